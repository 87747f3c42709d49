//! A table as all threads share it: who may change it now, its name and indexes, what its rows should be, and its rows as values.
//!
//! Invariant: who works in a table has entered its gate, and who changes the table has closed it: as a server's metadata locks do.
//! A prepared transaction stays in, over a crash too.

use crate::model::{Part, Row, Rows, KINDS};
use esker::format::RowId;
use esker::{Engine, Error, IndexDef, IndexRange, Schema, Table, TableDef, Type, Value};
use fastrand::Rng;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, RwLock};

/// Longest text and bytes of a row.
const CODE_BYTES: u32 = 60;
const PAD_BYTES: u32 = 4000;

/// Lets many in, or one alone.
#[derive(Default)]
pub struct Gate {
    /// Who is in; below 0: one alone.
    inside: AtomicI64,
    /// Somebody wants to be alone: nobody else enters.
    closing: AtomicBool,
}

impl Gate {
    pub fn enter(&self) -> bool {
        let more = |inside| (inside >= 0 && !self.closing.load(SeqCst)).then_some(inside + 1);
        self.inside.fetch_update(SeqCst, SeqCst, more).is_ok()
    }

    pub fn leave(&self) {
        self.inside.fetch_sub(1, SeqCst);
    }

    /// Waits until nobody is in, for as long as `go_on` says so.
    pub fn close(&self, mut go_on: impl FnMut() -> bool) -> bool {
        self.closing.store(true, SeqCst);
        let alone = loop {
            if self.inside.compare_exchange(0, -1, SeqCst, SeqCst).is_ok() {
                break true;
            }
            if !go_on() {
                break false;
            }
        };
        self.closing.store(false, SeqCst);
        alone
    }

    pub fn open(&self) {
        self.inside.store(0, SeqCst);
    }
}

/// Name and indexes.
#[derive(Debug, Clone, PartialEq)]
pub struct Shape {
    pub name: String,
    /// Kinds of indexes, in the table's order.
    pub kinds: Vec<usize>,
}

/// A shape, and the table that the engine has for it.
#[derive(Clone)]
pub struct Now {
    pub shape: Shape,
    pub table: Option<Arc<Table>>,
    /// The moment of the last change that views of before may not read over.
    pub changed: u64,
    /// What a crash may leave instead, while it is being changed; `None`: no table.
    pub becomes: Vec<Option<Shape>>,
}

pub struct Slot {
    pub gate: Gate,
    pub rows: Mutex<Rows>,
    pub now: RwLock<Now>,
    /// Transactions that gather many changes at this moment.
    pub gathering: AtomicUsize,
}

impl Slot {
    pub fn new(shape: Shape) -> Slot {
        let now = Now { shape, table: None, changed: 0, becomes: Vec::new() };
        Slot { gate: Gate::default(), rows: Mutex::default(), now: RwLock::new(now), gathering: AtomicUsize::new(0) }
    }

    pub fn now(&self) -> Now {
        self.now.read().unwrap().clone()
    }
}

pub fn create(engine: &Engine, shape: &Shape) -> Result<Arc<Table>, Error> {
    engine.create_table(&shape.name, &def(&shape.kinds))?;
    engine.open_table(&shape.name)
}

/// The first kind, and some of the others.
pub fn some_kinds(rng: &mut Rng) -> Vec<usize> {
    (0..KINDS.len()).filter(|kind| *kind == 0 || rng.u8(..100) < 55).collect()
}

pub fn index_def(kind: usize) -> IndexDef {
    def(&[kind]).indexes.remove(0)
}

fn def(kinds: &[usize]) -> TableDef {
    let schema = Schema::new().column("id", Type::U64).nullable("group", Type::I64);
    let schema = schema.nullable("code", Type::Text(CODE_BYTES)).column("stamp", Type::U64);
    let bare = TableDef::of(&schema.column("pad", Type::Bytes(PAD_BYTES))).unwrap();
    let add = |def: TableDef, kind: &usize| match &KINDS[*kind] {
        kind if kind.unique => def.unique(kind.name, kind.columns).unwrap(),
        kind => def.index(kind.name, kind.columns).unwrap(),
    };
    kinds.iter().fold(bare, add)
}

/// A row of this id, whose other columns are of a domain that grows with `wide`.
pub fn some_row(rng: &mut Rng, id: u64, stamp: u64, wide: u64) -> Row {
    let number = rng.u64(..wide);
    let code = || format!("a code of some length: {number:07}{}", &"as keys are"[..(number % 11) as usize]);
    Row {
        id,
        group: (rng.u8(..100) < 85).then(|| rng.i64(-3..9)),
        code: (rng.u8(..100) < 70).then(code),
        stamp,
        pad: if rng.u8(..100) < 4 { rng.usize(..PAD_BYTES as usize) } else { rng.usize(..120) },
    }
}

/// Bytes that cannot be compressed away.
fn pad(stamp: u64, bytes: usize) -> Vec<u8> {
    let mut pad = vec![0; bytes];
    Rng::with_seed(stamp).fill(&mut pad);
    pad
}

pub fn with_values<R>(row: &Row, write: impl FnOnce(&[Value<'_>]) -> R) -> R {
    let pad = pad(row.stamp, row.pad);
    let (group, code) = (row.group.into(), row.code.as_deref().into());
    write(&[row.id.into(), group, code, row.stamp.into(), pad.as_slice().into()])
}

/// The model's row of one that the engine gave.
fn row_of(values: &[Value<'_>]) -> Option<Row> {
    let [Value::U64(id), group, code, Value::U64(stamp), Value::Bytes(bytes)] = *values else { return None };
    let group = match group {
        Value::I64(group) => Some(group),
        _ => None,
    };
    let code = match code {
        Value::Text(code) => Some(code.to_owned()),
        _ => None,
    };
    (*bytes == pad(stamp, bytes.len())).then_some(Row { id, group, code, stamp, pad: bytes.len() })
}

/// The rows that a reading gives, `most` of them, in its order.
pub fn read(rows: Result<esker::Rows<'_>, Error>, most: usize) -> Result<Vec<(RowId, Row)>, Error> {
    let (mut rows, mut found) = (rows?, Vec::new());
    while let Some(row) = if found.len() < most { rows.next()? } else { None } {
        let values = row.values()?;
        let read = row_of(&values).unwrap_or_else(|| panic!("row {} is not what was written: {values:?}", row.id()));
        found.push((row.id(), read));
    }
    Ok(found)
}

/// Part of an index: of keys that begin like one row's, or from one's to another's.
#[derive(Debug, Clone)]
pub struct Span {
    pub kind: usize,
    /// How many columns of it say where the span begins and ends.
    columns: usize,
    from: Option<Row>,
    to: Option<Row>,
    pub descending: bool,
}

impl Span {
    pub fn all(kind: usize, descending: bool) -> Span {
        Span { kind, columns: 0, from: None, to: None, descending }
    }

    pub fn id(id: u64) -> Span {
        Span::ids(id, id, false)
    }

    pub fn ids(from: u64, to: u64, descending: bool) -> Span {
        let row = |id| Some(Row { id, group: None, code: None, stamp: 0, pad: 0 });
        Span { kind: 0, columns: 1, from: row(from), to: row(to), descending }
    }

    /// Behind all keys that rows have.
    pub fn nothing(kind: usize) -> Span {
        let row = Row { id: u64::MAX, group: Some(i64::MAX), code: Some("~".into()), stamp: u64::MAX, pad: 0 };
        let (from, to) = (Some(row.clone()), Some(row));
        Span { kind, columns: KINDS[kind].columns.len(), from, to, descending: false }
    }

    /// Some part of an index of this kind, about these two rows.
    pub fn some(rng: &mut Rng, kind: usize, a: Row, b: Row) -> Span {
        let columns = 1 + rng.usize(..KINDS[kind].columns.len());
        let descending = rng.bool();
        let (from, to) = match rng.u8(..10) {
            0 => (None, None),
            1 => (Some(a), None),
            2 => (None, Some(a)),
            3..=6 => (Some(a.clone()), Some(a)),
            _ if KINDS[kind].key(&a) <= KINDS[kind].key(&b) => (Some(a), Some(b)),
            _ => (Some(b), Some(a)),
        };
        Span { kind, columns, from, to, descending }
    }

    fn key(&self, row: &Row) -> Vec<Part> {
        let mut key = KINDS[self.kind].key(row);
        key.truncate(self.columns);
        key
    }

    pub fn holds(&self, row: &Row) -> bool {
        let key = self.key(row);
        self.from.as_ref().is_none_or(|from| key >= self.key(from))
            && self.to.as_ref().is_none_or(|to| key <= self.key(to))
    }

    /// Do rows come in the order of their keys?
    pub fn is_order_of(&self, rows: &[(RowId, Row)]) -> bool {
        let key = |of: &(RowId, Row)| KINDS[self.kind].key(&of.1);
        rows.windows(2)
            .all(|two| if self.descending { key(&two[0]) >= key(&two[1]) } else { key(&two[0]) <= key(&two[1]) })
    }

    fn values<'r>(&self, row: &'r Option<Row>) -> Vec<Value<'r>> {
        let Some(row) = row else { return Vec::new() };
        let value = |column: &&str| -> Value<'r> {
            match *column {
                "id" => row.id.into(),
                "group" => row.group.into(),
                "code" => row.code.as_deref().into(),
                _ => row.stamp.into(),
            }
        };
        KINDS[self.kind].columns[..self.columns].iter().map(value).collect()
    }

    /// Reads by an index of this name.
    pub fn with<R>(&self, read: impl FnOnce(&str, IndexRange<'_>) -> R) -> R {
        let (from, to) = (self.values(&self.from), self.values(&self.to));
        let range = IndexRange::between(&from, &to);
        read(KINDS[self.kind].name, if self.descending { range.descending() } else { range })
    }
}
