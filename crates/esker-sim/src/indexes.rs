//! Indexes that the engine keeps, in the simulator: which tables have some, what writing a row must come to under unique
//! keys, and holding them against the rows.
//!
//! Invariants: the reference makes keys of a row's values, never of the engine's key bytes; a key that a transaction put or
//! deleted, and did not roll back, is its own until it ends: others must meet it. Steps are interleaved, not simultaneous:
//! nobody has a key reserved when another one looks.

use crate::keys::hash;
use crate::kinds::{kinds, Kind};
use crate::model::{IndexModel, Key, Row, TableModel, TxnModel};
use crate::sim::{Answer, Failure, Refusal, Sim};
use esker::format::key_bytes::key_encoding::{BYTES, FIXED, FLOAT, UNSIGNED};
use esker::format::{row, KeyPart, Value};
use esker::{Error, IndexDef, Session, Table};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

/// A key that one row may have: the index, and a number that follows from the values.
pub type UniqueKey = (u64, u64);

/// The indexes that tables of a [kind](crate::kinds::kinds) can have; they are made with the [`first`] of them. Where they are
/// unique, values repeat now and then, of the last kind often.
#[must_use]
pub(crate) fn defs(kind: usize) -> Vec<IndexDef> {
    let part = |column, encoding| KeyPart { column, prefix_bytes: 0, descending: false, encoding, collation: 0 };
    let down = |column, encoding| KeyPart { descending: true, ..part(column, encoding) };
    let begin = |column, prefix_bytes| KeyPart { prefix_bytes, ..part(column, BYTES) };
    let index = |name: &str, unique, parts: &[KeyPart]| IndexDef { name: name.into(), unique, parts: parts.to_vec() };
    match kind {
        0 => vec![
            index("plain", false, &[down(2, UNSIGNED), part(1, FIXED)]),
            index("unique", true, &[down(0, UNSIGNED), part(1, FIXED)]),
            index("padded", false, &[down(1, FIXED)]),
            index("number", true, &[part(0, UNSIGNED)]),
        ],
        1 => vec![
            index("unique", true, &[begin(1, 3), down(0, UNSIGNED)]),
            index("padded", false, &[part(2, FIXED)]),
            index("both", true, &[part(0, UNSIGNED), part(1, BYTES)]),
        ],
        2 => vec![
            index("text", false, &[begin(1, 20)]),
            index("all", true, &[part(1, BYTES), down(0, UNSIGNED), part(2, FIXED)]),
        ],
        3 => vec![
            index("plain", false, &[part(0, FLOAT)]),
            index("unique", true, &[begin(1, 8), down(2, BYTES)]),
            index("short", false, &[down(2, BYTES), part(0, UNSIGNED)]),
        ],
        4 => vec![index("text", false, &[part(1, BYTES)]), index("number", true, &[part(0, FIXED)])],
        5 => vec![index("byte", false, &[down(0, UNSIGNED)])],
        6 => vec![index("blob", false, &[begin(0, 40), part(1, FIXED)]), index("unique", true, &[begin(2, 60)])],
        7 => vec![
            index("few", true, &[part(0, UNSIGNED)]),
            index("plain", false, &[begin(2, 2), down(0, UNSIGNED)]),
            index("many", true, &[down(1, UNSIGNED), part(2, BYTES)]),
            index("other", false, &[part(2, BYTES)]),
            index("number", true, &[part(1, UNSIGNED)]),
        ],
        _ => Vec::new(),
    }
}

/// So many of them tables of a kind are made with.
pub(crate) fn first(kind: usize) -> usize {
    [2, 1, 0, 2, 0, 0, 0, 3][kind]
}

fn all_kinds() -> &'static [Kind] {
    static KINDS: OnceLock<Vec<Kind>> = OnceLock::new();
    KINDS.get_or_init(kinds)
}

/// The unique keys of a row, in the order of the indexes; those with NULL are none.
#[must_use]
pub fn unique_keys(kind: usize, indexes: &[IndexModel], packed: &[u8]) -> Vec<UniqueKey> {
    let kind = &all_kinds()[kind];
    // A row of the reference's own making.
    let Ok(values) = row::values(&kind.layout, packed) else { return Vec::new() };
    let of_index = |index: &IndexModel| Some((index.id, unique_key(kind.indexes.get(index.def)?, &values)?));
    indexes.iter().filter_map(of_index).collect()
}

/// The first of these that is unique and of columns that cannot be NULL.
pub(crate) fn primary(kind: usize, indexes: &[IndexModel]) -> Option<IndexModel> {
    let kind = &all_kinds()[kind];
    let tells = |part: &KeyPart| kind.layout.columns[part.column as usize].null.is_none();
    let is_primary =
        |index: &&IndexModel| kind.indexes.get(index.def).is_some_and(|def| def.unique && def.parts.iter().all(tells));
    indexes.iter().find(is_primary).cloned()
}

/// What a row's values come to in an index; none if it is not unique, or of NULL.
fn unique_key(index: &IndexDef, values: &[Value<'_>]) -> Option<u64> {
    let mut key = Vec::new();
    for part in index.parts.iter().filter(|_| index.unique) {
        let Value::Bytes(bytes) = values[part.column as usize] else { return None };
        let counts = if part.prefix_bytes == 0 { bytes.len() } else { bytes.len().min(part.prefix_bytes as usize) };
        key.extend_from_slice(&(counts as u32).to_le_bytes());
        key.extend_from_slice(&bytes[..counts]);
    }
    index.unique.then(|| hash(&key))
}

/// Rows that have the same key in this index of their kind's.
pub(crate) fn alike(kind: usize, def: usize, rows: &BTreeMap<u64, Row>) -> BTreeSet<u64> {
    let index = [IndexModel { id: 0, def, name: String::new(), since: 0 }];
    let mut of_key = BTreeMap::<UniqueKey, Vec<u64>>::new();
    for (id, row) in rows {
        unique_keys(kind, &index, row).into_iter().for_each(|key| of_key.entry(key).or_default().push(*id));
    }
    of_key.into_values().filter(|rows| rows.len() > 1).flatten().collect()
}

/// What looking for some keys must come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Met {
    Nobody,
    /// A row has a key of this index.
    Row(usize, u64),
    /// Somebody who has not ended has put or deleted one.
    Pending,
}

impl Met {
    /// What the engine answers.
    pub(crate) fn refusals(self) -> &'static [Refusal] {
        match self {
            Met::Nobody => &[],
            Met::Row(..) => &[Refusal::Duplicate],
            Met::Pending => &[Refusal::WouldBlock],
        }
    }
}

/// What writing a row means for its unique keys.
pub(crate) struct Rekey {
    before: Vec<UniqueKey>,
    after: Vec<UniqueKey>,
    /// The writer's view does not see the row's newest version: keys that stay are written, too.
    overtaken: bool,
}

impl Rekey {
    pub(crate) fn new(table: &TableModel, old: Option<&[u8]>, new: Option<&[u8]>, overtaken: bool) -> Self {
        let of = |row: Option<&[u8]>| row.map(|row| unique_keys(table.kind, &table.indexes, row)).unwrap_or_default();
        Rekey { before: of(old), after: of(new), overtaken }
    }

    fn fresh(&self) -> impl Iterator<Item = &UniqueKey> {
        self.after.iter().filter(|key| !self.before.contains(key))
    }
}

/// How these indexes of a table differ from the rows that a session sees, of which there must be so many.
pub(crate) fn differ(
    session: &mut Session,
    table: &Arc<Table>,
    indexes: impl Iterator<Item = usize>,
    rows: usize,
) -> esker::Result<Option<String>> {
    for index in indexes {
        let report = session.check_index(table, index)?;
        if !report.wrong.is_empty() || (report.rows, report.entries) != (rows as u64, rows as u64) {
            return Ok(Some(format!("index {index}, of {rows} rows: {report:?}")));
        }
    }
    Ok(None)
}

impl Sim {
    /// What a session's writing of a row must meet.
    pub(crate) fn meets(&self, i: usize, key: Key, rekey: &Rekey) -> Met {
        let Some(table) = self.model.tables.values().find(|t| t.key == key) else { return Met::Nobody };
        let attached = self.slots.iter().enumerate().filter(|(at, _)| *at != i).filter_map(|(_, s)| s.txn.as_ref());
        let others: Vec<&TxnModel> = attached.chain(self.model.detached.values()).collect();
        for unique in rekey.fresh() {
            if others.iter().any(|t| t.keys.contains_key(&(key, *unique))) {
                return Met::Pending;
            }
            let own = self.slots[i].txn.as_ref().and_then(|t| t.keys.get(&(key, *unique)));
            if let Some(row) = own.copied().unwrap_or_else(|| table.unique.get(unique).copied()) {
                let place = table.indexes.iter().position(|index| index.id == unique.0);
                return Met::Row(place.unwrap_or(usize::MAX), row);
            }
        }
        Met::Nobody
    }

    /// As `judge`, of a write that must meet this: a duplicate must be the right one.
    pub(crate) fn judge_keys<T>(
        &mut self,
        what: &str,
        answer: esker::Result<T>,
        met: Met,
        expected: &[Refusal],
        shaky: bool,
    ) -> Result<Answer<T>, Failure> {
        if let Err(Error::DuplicateKey { index, row }) = &answer {
            if met != Met::Row(*index, row.0) {
                return self.fail(format!("{what}: a duplicate in index {index}, row {row}; the model says {met:?}"));
            }
        }
        let judged = self.judge(what, answer, expected, shaky)?;
        match (&judged, met) {
            (Answer::No(Refusal::Duplicate), _) => self.stats.duplicates += 1,
            (Answer::No(Refusal::WouldBlock), Met::Pending) => self.stats.keys_pending += 1,
            _ => {}
        }
        Ok(judged)
    }

    /// A session has written a row.
    pub(crate) fn rekeyed(&mut self, i: usize, key: Key, id: u64, rekey: &Rekey) {
        let primary = self.model.by_key(key).and_then(|t| primary(t.kind, &t.indexes));
        let Some(txn) = &mut self.slots[i].txn else { return };
        txn.primary.entry(key).or_insert(primary);
        let gone = rekey.before.iter().filter(|k| !rekey.after.contains(k));
        txn.keys.extend(gone.map(|k| ((key, *k), None)));
        let written = rekey.after.iter().filter(|k| rekey.overtaken || !rekey.before.contains(k));
        txn.keys.extend(written.map(|k| ((key, *k), Some(id))));
        self.stats.keys_overtaken += u64::from(rekey.overtaken && !rekey.after.is_empty());
    }

    /// A session has emptied a table.
    pub(crate) fn emptied_keys(&mut self, i: usize, key: Key) {
        let table = self.model.tables.values().find(|t| t.key == key);
        let all: Vec<UniqueKey> = table.into_iter().flat_map(|t| t.unique.keys().copied()).collect();
        if let Some(txn) = &mut self.slots[i].txn {
            txn.keys.iter_mut().filter(|((k, _), _)| *k == key).for_each(|(_, row)| *row = None);
            txn.keys.extend(all.into_iter().map(|k| ((key, k), None)));
        }
    }

    /// Holds the kept indexes against what a session sees in a view, or in the latest; false if that met a fault.
    pub(crate) fn check_kept(
        &mut self,
        i: usize,
        (name, table): (&str, &Arc<Table>),
        kind: usize,
        rows: &BTreeMap<u64, Row>,
        view: Option<u64>,
    ) -> Result<bool, Failure> {
        let indexes = self.model.tables.get(name).map(|t| t.indexes.clone()).unwrap_or_default();
        if indexes.is_empty() {
            return Ok(true);
        }
        let txn = self.slots[i].txn.as_ref();
        let (shaky, repeatable) = txn.map_or((false, false), |t| (t.shaky, t.repeatable));
        let but = txn.filter(|t| t.repeatable).map(|t| self.hidden(name, kind, rows, t)).unwrap_or_default();
        let is_newer = |index: &IndexModel| view.is_some_and(|view| view < index.since);
        for place in indexes.iter().enumerate().filter(|(_, index)| is_newer(index)).map(|(place, _)| place) {
            self.refuses_view(i, table, place)?;
        }
        let places = indexes.iter().enumerate().filter(|(_, index)| !is_newer(index) && !but.contains(&index.id));
        let places = places.map(|(place, _)| place);
        let answer = differ(&mut self.slots[i].session, table, places, rows.len());
        self.stats.kept_checked += 1;
        self.stats.kept_checked_in_views += u64::from(repeatable);
        match self.judge(&format!("holding indexes of {name} against its rows"), answer, &[], shaky)? {
            Answer::Ok(None) => Ok(true),
            Answer::Ok(Some(why)) => self.fail(format!("{name} as s{i} sees it: {why}")),
            _ => Ok(false),
        }
    }

    /// Unique indexes in which a row that only an old view has is hidden: the transaction put or deleted its key since, as
    /// another row's.
    fn hidden(&self, name: &str, kind: usize, rows: &BTreeMap<u64, Row>, txn: &TxnModel) -> BTreeSet<u64> {
        let Some(table) = self.model.tables.get(name) else { return BTreeSet::new() };
        let key = table.key;
        let other = |id: u64, unique: &UniqueKey| txn.keys.get(&(key, *unique)).is_some_and(|row| *row != Some(id));
        let of_row = |(id, row): (&u64, &Row)| {
            let keys = unique_keys(kind, &table.indexes, row).into_iter();
            keys.map(move |k| (*id, k)).collect::<Vec<_>>()
        };
        rows.iter().flat_map(of_row).filter(|(id, k)| other(*id, k)).map(|(_, k)| k.0).collect()
    }
}
