//! Indexes that the engine keeps: several sessions insert, update and delete under unique keys, against a model that says
//! of every call whether it succeeds, meets a duplicate or would have to wait.

use crate::sim_hooks::Entry;
use crate::tests::support;
use crate::tests::tables::{open, options};
use crate::upkeep::checkpoint;
use crate::write::index::fetched;
use crate::*;
use esker_base::counters::{bind, Counter, SessionCounters};
use esker_format::key_bytes::key_encoding;
use esker_format::{Column, ColumnKind, Compression, KeyPart, Layout, NullBit, RowFormat, RowId};
use esker_io::SimDisk;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

/// What a row is: two numbers, of which the second may be NULL, and a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) a: u32,
    pub(crate) c: Option<u32>,
    pub(crate) text: Vec<u8>,
}

/// The places of the indexes: unique over the first number, plain over text and number, unique over the second.
const UNIQUE: [usize; 2] = [0, 2];
const PLAIN: usize = 1;

pub(crate) fn def() -> TableDef {
    let columns = vec![
        Column { kind: ColumnKind::Fixed { width: 4 }, offset: 1, null: None },
        Column { kind: ColumnKind::Fixed { width: 4 }, offset: 5, null: Some(NullBit { byte: 0, mask: 1 }) },
        Column { kind: ColumnKind::Var { len_bytes: 1, max: 200 }, offset: 9, null: None },
    ];
    let part = |column, encoding| KeyPart { column, prefix_bytes: 0, descending: column == 1, encoding, collation: 0 };
    let (number, text) = (key_encoding::UNSIGNED, key_encoding::BYTES);
    let index = |name: &str, unique, parts| IndexDef { name: name.into(), unique, parts };
    let indexes = vec![
        index("a", true, vec![part(0, number)]),
        index("text", false, vec![part(2, text), part(1, number)]),
        index("c", true, vec![part(1, number)]),
    ];
    let layout = Layout { image_bytes: 210, head_bytes: 1, columns };
    let (format, compression) = (RowFormat::Dynamic, Compression::None);
    TableDef { layout, format, compression, temporary: false, indexes, extra: vec![] }
}

pub(crate) fn image(row: &Row) -> Vec<u8> {
    let mut image = vec![0; 210];
    image[0] = u8::from(row.c.is_none());
    image[1..5].copy_from_slice(&row.a.to_le_bytes());
    image[5..9].copy_from_slice(&row.c.unwrap_or_default().to_le_bytes());
    image[9] = row.text.len() as u8;
    image[10..10 + row.text.len()].copy_from_slice(&row.text);
    image
}

/// Small numbers, as a function of a seed.
struct Rng(u64);

impl Rng {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }

    fn row(&mut self, keys: u64) -> Row {
        let c = (self.below(3) > 0).then(|| self.below(keys) as u32);
        let text = vec![b'a' + self.below(3) as u8; self.below(4) as usize * 30];
        Row { a: self.below(keys) as u32, c, text }
    }
}

/// A unique key: the index's place and the number.
type UniqueKey = (usize, u32);

fn unique_keys(row: &Row) -> Vec<UniqueKey> {
    [(UNIQUE[0], Some(row.a)), (UNIQUE[1], row.c)].into_iter().filter_map(|(i, n)| Some((i, n?))).collect()
}

/// What a transaction has done.
#[derive(Default, Clone)]
struct Pending {
    rows: BTreeMap<RowId, Option<Row>>,
    keys: HashMap<UniqueKey, Option<RowId>>,
}

/// A session with what the model knows of its transaction.
struct Client {
    session: Session,
    pending: Pending,
    locked: BTreeSet<RowId>,
    saved: Option<(Savepoint, Pending)>,
    repeatable: bool,
}

/// What a call is expected to come to.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Done,
    Duplicate(usize, RowId),
    Blocked,
}

#[derive(Default)]
struct Model {
    rows: BTreeMap<RowId, Row>,
    keys: HashMap<UniqueKey, RowId>,
}

impl Model {
    /// What checking these keys, in order, comes to for the client at `me`.
    fn check(&self, clients: &[Client], me: usize, keys: &[UniqueKey]) -> Outcome {
        for key in keys {
            if clients.iter().enumerate().any(|(i, c)| i != me && c.pending.keys.contains_key(key)) {
                return Outcome::Blocked;
            }
            let owner = match clients[me].pending.keys.get(key) {
                Some(own) => *own,
                None => self.keys.get(key).copied(),
            };
            if let Some(row) = owner {
                return Outcome::Duplicate(key.0, row);
            }
        }
        Outcome::Done
    }

    fn commit(&mut self, client: &mut Client) {
        for (row, value) in std::mem::take(&mut client.pending.rows) {
            match value {
                Some(value) => drop(self.rows.insert(row, value)),
                None => drop(self.rows.remove(&row)),
            }
        }
        for (key, row) in std::mem::take(&mut client.pending.keys) {
            match row {
                Some(row) => drop(self.keys.insert(key, row)),
                None => drop(self.keys.remove(&key)),
            }
        }
    }
}

impl Client {
    fn new(e: &Engine) -> Client {
        let mut session = e.session();
        session.set_lock_wait(Duration::ZERO, true);
        let (pending, locked) = (Pending::default(), BTreeSet::new());
        Client { session, pending, locked, saved: None, repeatable: false }
    }

    fn begin(&mut self, rng: &mut Rng) {
        self.repeatable = rng.below(2) == 0;
        let isolation = if self.repeatable { Isolation::RepeatableRead } else { Isolation::ReadCommitted };
        self.session.begin(isolation, BeginOptions::default());
        self.session.begin_statement();
        if rng.below(2) == 0 {
            self.session.take_view();
        }
    }

    fn has_overtaken(&self, table: &Arc<Table>, row: RowId) -> bool {
        let view = self.session.current.open().and_then(|t| t.view).or(self.session.statement_view);
        view.is_some_and(|view| self.session.is_overtaken(table, row, view))
    }

    fn ended(&mut self) {
        (self.pending, self.saved) = (Pending::default(), None);
        self.locked.clear();
    }
}

fn outcome(result: &Result<()>) -> Outcome {
    match result {
        Ok(()) => Outcome::Done,
        Err(Error::DuplicateKey { index, row }) => Outcome::Duplicate(*index, *row),
        Err(Error::WouldBlock) => Outcome::Blocked,
        Err(e) => panic!("{e}"),
    }
}

struct Run {
    engine: Engine,
    table: Arc<Table>,
    model: Model,
    clients: Vec<Client>,
    rng: Rng,
    keys: u64,
    met: [u64; 5],
}

impl Run {
    fn new(disk: &SimDisk, options: &Options, seed: u64, keys: u64, model: Model) -> Run {
        let engine = open(disk, options.clone());
        if engine.open_table("t").is_err() {
            engine.create_table("t", &def()).unwrap();
        }
        let table = engine.open_table("t").unwrap();
        let clients = (0..3).map(|_| Client::new(&engine)).collect();
        Run { engine, table, model, clients, rng: Rng(seed), keys, met: [0; 5] }
    }

    fn meet(&mut self, outcome: &Outcome) {
        let place = match outcome {
            Outcome::Done => 0,
            Outcome::Duplicate(..) => 1,
            Outcome::Blocked => 2,
        };
        self.met[place] += 1;
    }

    fn insert(&mut self, me: usize) {
        let row = self.rng.row(self.keys);
        let keys = unique_keys(&row);
        let expected = self.model.check(&self.clients, me, &keys);
        let client = &mut self.clients[me];
        // SAFETY: an image of this table's layout.
        let result = unsafe { client.session.insert_image(&self.table, image(&row).as_ptr()) };
        let id = result.as_ref().ok().copied();
        assert_eq!(outcome(&result.map(drop)), expected, "insert of {row:?}");
        if let Some(id) = id {
            client.pending.keys.extend(keys.into_iter().map(|k| (k, Some(id))));
            client.pending.rows.insert(id, Some(row));
        }
        self.meet(&expected);
    }

    /// Some row that the client may change: committed, or its own.
    fn pick(&mut self, me: usize) -> Option<(RowId, Row)> {
        let client = &self.clients[me];
        let mut rows = self.model.rows.clone();
        for (row, value) in &client.pending.rows {
            match value {
                Some(value) => drop(rows.insert(*row, value.clone())),
                None => drop(rows.remove(row)),
            }
        }
        let at = self.rng.below(rows.len().max(1) as u64) as usize;
        rows.into_iter().nth(at)
    }

    fn change(&mut self, me: usize, delete: bool) {
        let Some((id, old)) = self.pick(me) else { return };
        let mut new = self.rng.row(self.keys);
        match self.rng.below(3) {
            0 => (new.a, new.c) = (old.a, old.c),
            1 => new.text = old.text.clone(),
            _ => new.a = old.a,
        }
        let locked = self.clients.iter().enumerate().any(|(i, c)| i != me && c.locked.contains(&id));
        let (before, after) = (unique_keys(&old), unique_keys(&new));
        let fresh: Vec<_> = after.iter().filter(|k| !before.contains(k)).copied().collect();
        let expected = match (locked, delete) {
            (true, _) => Outcome::Blocked,
            (false, true) => Outcome::Done,
            (false, false) => self.model.check(&self.clients, me, &fresh),
        };
        let client = &mut self.clients[me];
        let result = match delete {
            true => client.session.delete(&self.table, id),
            // SAFETY: an image of this table's layout.
            false => unsafe { client.session.update_image(&self.table, id, image(&new).as_ptr()) },
        };
        assert_eq!(outcome(&result), expected, "{id}: {old:?} to {new:?}, deleted: {delete}");
        if !locked {
            client.locked.insert(id);
        }
        if expected == Outcome::Done {
            let gone = before.iter().filter(|k| delete || !after.contains(k));
            client.pending.keys.extend(gone.map(|k| (*k, None)));
            // Of a row that it has overtaken a transaction writes the keys that stay, too.
            let overtaken = client.has_overtaken(&self.table, id);
            self.met[4] += u64::from(overtaken);
            let written = if overtaken { after } else { fresh };
            client.pending.keys.extend(written.into_iter().filter(|_| !delete).map(|k| (k, Some(id))));
            client.pending.rows.insert(id, (!delete).then_some(new));
        }
        self.meet(&expected);
    }

    fn end(&mut self, me: usize, commit: bool) {
        let client = &mut self.clients[me];
        match commit {
            true => {
                client.session.commit().unwrap();
                self.model.commit(client);
            }
            false => client.session.rollback().unwrap(),
        }
        client.ended();
        client.begin(&mut self.rng);
    }

    fn step(&mut self) {
        let me = self.rng.below(3) as usize;
        match self.rng.below(40) {
            0..=11 => self.insert(me),
            12..=22 => self.change(me, false),
            23..=27 => self.change(me, true),
            28..=30 => self.end(me, true),
            31 => self.end(me, false),
            32 => {
                let client = &mut self.clients[me];
                client.saved = Some((client.session.savepoint(), client.pending.clone()));
            }
            33 => {
                let client = &mut self.clients[me];
                if let Some((point, pending)) = client.saved.clone() {
                    client.session.rollback_to(&point);
                    client.pending = pending;
                    self.met[3] += 1;
                }
            }
            34 | 35 => self.engine.sim_flush(&self.table).unwrap(),
            36 => drop(self.engine.sim_merge(&self.table).unwrap()),
            37 => checkpoint::write(&self.engine.core).unwrap(),
            38 => {
                let client = &mut self.clients[me];
                client.session.end_statement();
                client.session.begin_statement();
            }
            _ => self.verify(me),
        }
    }

    /// In a new view, and, of the plain index, in the client's own.
    fn verify(&mut self, me: usize) {
        let mut s = self.engine.session();
        for index in 0..3 {
            let report = s.check_index(&self.table, index).unwrap();
            assert_eq!((report.rows, &report.wrong[..]), (self.model.rows.len() as u64, &[][..]), "index {index}");
        }
        s.commit().unwrap();
        let client = &mut self.clients[me];
        let report = client.session.check_index(&self.table, PLAIN).unwrap();
        assert!(report.wrong.is_empty(), "{report:?}, repeatable: {}", client.repeatable);
    }
}

#[test]
fn unique_keys_hold_and_every_index_has_its_rows() {
    let disk = SimDisk::new(1);
    let options = Options {
        run_bytes: 24 << 10,
        block_bytes: 1 << 10,
        bulk_threshold_bytes: 1 << 10,
        min_run_bytes: 1 << 10,
        ..options()
    };
    let counters = SessionCounters::new();
    let _bound = bind(&counters);
    let (mut model, mut met) = (Model::default(), [0; 5]);
    for round in 0..6 {
        // Few keys: they meet; many: trees with several blocks.
        let mut run = Run::new(&disk, &options, round + 1, if round % 3 == 0 { 400 } else { 24 }, model);
        for i in 0..3 {
            run.clients[i].begin(&mut run.rng);
        }
        (0..1500).for_each(|_| run.step());
        for i in 0..3 {
            run.end(i, i != 1);
        }
        run.verify(0);
        met.iter_mut().zip(run.met).for_each(|(sum, n)| *sum += n);
        // Its sessions end, then the process does.
        drop(run.clients);
        model = run.model;
    }
    let [done, duplicates, blocked, savepoints, overtaken] = met;
    assert!(done > 3000 && duplicates > 500 && blocked > 500 && savepoints > 40 && overtaken > 50, "{met:?}");
    let of = |counter| counters.get(counter);
    let (moved, flushes, merges) = (of(Counter::RunsAttached), of(Counter::Flushes), of(Counter::Merges));
    assert!(moved > 200 && flushes > 200 && merges > 50, "{moved} private runs, {flushes} flushes, {merges} merges");
}

/// Entries that were put or taken away behind the engine's back.
#[test]
fn a_check_tells_what_is_wrong_with_an_index() {
    let disk = SimDisk::new(1);
    let e = open(&disk, options());
    e.create_table("t", &def()).unwrap();
    let t = e.open_table("t").unwrap();
    let mut s = e.session();
    let row = Row { a: 7, c: None, text: b"seven".to_vec() };
    // SAFETY: an image of this table's layout.
    let id = unsafe { s.insert_image(&t, image(&row).as_ptr()).unwrap() };
    s.commit().unwrap();
    assert!(e.check(&t, &mut |_, _| true).unwrap().damages.is_empty());
    let found = |entry| {
        let mut s = e.session();
        s.write_entry(&t, UNIQUE[0], entry).unwrap();
        s.commit().unwrap();
        let [extended, all] = [CheckScope::Extended, CheckScope::All].map(|scope| {
            let report = e.check_part(&t, scope, &mut |_, _| true).unwrap();
            report.damages.iter().map(ToString::to_string).collect::<Vec<_>>()
        });
        assert_eq!(extended, all);
        all
    };
    let (key, other) = (7u32.to_be_bytes(), 8u32.to_be_bytes());
    let entry = |key, row, payload| Entry { key, row, payload };
    let of = "index 'a' of table 't'";
    assert_eq!(found(entry(&key, id, None)), [format!("{of}: no entry of row {id} is found by its key")]);
    let moved = format!("{of}: the key of row {id} leads to row 99, or tells other values");
    assert_eq!(found(entry(&key, RowId(99), Some(b""))), [moved]);
    assert_eq!(found(entry(&key, id, Some(b""))), [""; 0]);
    let another = format!("{of}: an entry leads to row {id}, which has another key");
    assert_eq!(found(entry(&other, id, Some(b""))), [another]);
    let gone = format!("{of}: an entry leads to row 99, which is gone");
    assert_eq!(found(entry(&other, RowId(99), Some(b""))), [gone]);
}

/// Keys that come in no order, in runs that lie over each other, more than fit into memory: a check reads few blocks twice.
#[test]
fn a_check_of_an_index_larger_than_memory_reads_each_block_a_few_times() {
    const ROWS: u64 = 12_000;
    let disk = SimDisk::new(1);
    let e = support::open_with(&disk, support::small()).unwrap();
    let schema = Schema::new().column("id", Type::U64).column("name", Type::Bytes(400));
    e.create_table("t", &TableDef::of(&schema).unwrap().index("name", &["name"]).unwrap()).unwrap();
    let (t, mut s) = (e.open_table("t").unwrap(), e.session());
    let mut random = fastrand::Rng::with_seed(7);
    for id in 0..ROWS {
        let name: Vec<u8> = (0..400).map(|_| random.u8(..)).collect();
        s.insert(&t, &[id.into(), name.as_slice().into()]).unwrap();
        if id % 1000 == 0 {
            s.commit().unwrap();
        }
    }
    s.commit().unwrap();
    e.sim_flush(&t).unwrap();
    let state = t.trees().keys[0].snapshot();
    let blocks: usize = state.runs.iter().map(|run| run.run.index().unwrap().entries().len()).sum();
    let counters = SessionCounters::new();
    let _bound = bind(&counters);
    let report = s.check_index(&t, 0).unwrap();
    assert_eq!((report.rows, report.entries, report.wrong), (ROWS, ROWS, Vec::new()));
    let read = counters.get(Counter::BlocksMissed);
    assert!(state.runs.len() > 2 && blocks > 200, "{} runs of {blocks} blocks", state.runs.len());
    assert!(read < 8 * blocks as u64, "{read} blocks were read of {blocks} in {} runs", state.runs.len());
}

/// Every entry is looked up by its key where the check is an extended one; all that is there is read by both.
#[test]
fn only_an_extended_check_looks_entries_up() {
    const ROWS: u64 = 2000;
    let e = support::open_with(&SimDisk::new(1), support::options()).unwrap();
    let schema = Schema::new().column("id", Type::U64).column("name", Type::U64);
    let def = TableDef::of(&schema).unwrap().unique("id", &["id"]).unwrap().index("name", &["name"]).unwrap();
    e.create_table("t", &def).unwrap();
    let (t, mut s) = (e.open_table("t").unwrap(), e.session());
    for id in 0..ROWS {
        s.insert(&t, &[id.into(), (id % 7).into()]).unwrap();
    }
    s.commit().unwrap();
    e.sim_flush(&t).unwrap();
    let looked_up = |scope| {
        let counters = SessionCounters::new();
        let _bound = bind(&counters);
        let report = e.check_part(&t, scope, &mut |_, _| true).unwrap();
        assert!(report.damages.is_empty() && report.unheld.is_empty() && !report.stopped, "{report:?}");
        let (filters, blocks) = ([Counter::FiltersPassed, Counter::FiltersDenied], [Counter::BlocksCached]);
        let of = |all: &[Counter]| all.iter().map(|counter| counters.get(*counter)).sum::<u64>();
        (report.blocks, of(&filters) + of(&blocks))
    };
    let (blocks, looks) = looked_up(CheckScope::Extended);
    assert!(looks >= 2 * ROWS, "{looks} looks");
    let (of_all, few) = looked_up(CheckScope::All);
    assert!(of_all == blocks && blocks > 0 && few <= 2 * blocks, "{few} looks, {of_all} blocks of {blocks}");
}

/// Keys that begin alike for longer than the index of blocks tells: few blocks are looked at, and filters asked, to find one of them
/// or that there is none.
#[test]
fn keys_that_begin_alike_are_found_in_few_blocks() {
    const ROWS: u64 = 4000;
    let disk = SimDisk::new(1);
    let one_run = Options {
        block_bytes: 1 << 10,
        memory_limit_bytes: 64 << 20,
        bulk_threshold_bytes: 64 << 20,
        ..support::small()
    };
    let e = support::open_with(&disk, one_run).unwrap();
    let schema = Schema::new().column("id", Type::U64).column("name", Type::Bytes(400));
    let def = TableDef::of(&schema).unwrap().index("plain", &["name"]).unwrap().unique("unique", &["name"]).unwrap();
    e.create_table("t", &def).unwrap();
    let (t, mut s) = (e.open_table("t").unwrap(), e.session());
    let name = |n: u64| [&[b'x'; 300][..], &n.to_be_bytes()].concat();
    for id in 0..ROWS {
        s.insert(&t, &[id.into(), name(2 * id).as_slice().into()]).unwrap();
    }
    s.commit().unwrap();
    e.sim_flush(&t).unwrap();
    let runs = |index: usize| t.trees().keys[index].snapshot().runs.clone();
    let blocks = |index: usize| runs(index)[0].run.index().unwrap().entries().len();
    assert_eq!((runs(0).len(), runs(1).len()), (1, 1));
    assert!(blocks(0) > 50 && blocks(1) > 50, "{} and {} blocks", blocks(0), blocks(1));
    let counters = SessionCounters::new();
    let _bound = bind(&counters);
    for index in [0, 1] {
        let report = s.check_index(&t, index).unwrap();
        assert_eq!((report.rows, report.entries, report.wrong), (ROWS, ROWS, Vec::new()));
    }
    let looks = || {
        let looks = [Counter::BlocksCached, Counter::BlocksMissed, Counter::FiltersPassed, Counter::FiltersDenied];
        looks.iter().map(|counter| counters.get(*counter)).sum::<u64>()
    };
    let found = looks();
    assert!((2 * ROWS..24 * ROWS).contains(&found), "{found} blocks and filters were looked at for {ROWS} keys, twice");
    let new = ROWS / 10;
    for id in 0..new {
        s.insert(&t, &[id.into(), name(2 * id + 1).as_slice().into()]).unwrap();
    }
    let missed = looks() - found;
    assert!((new..24 * new).contains(&missed), "{missed} blocks and filters were looked at for {new} new keys");
}

/// Small writes of more entries than one fetch their places together; large ones, which go elsewhere, do not.
#[test]
fn places_of_entries_are_fetched_together_where_they_are_put() {
    let e = open(&SimDisk::new(1), options());
    e.create_table("t", &def()).unwrap();
    let (t, mut s) = (e.open_table("t").unwrap(), e.session());
    let row = |a: u32| image(&Row { a, c: Some(a), text: vec![7; 20] });
    fetched::take();
    let first = unsafe { s.insert_image(&t, row(1).as_ptr()).unwrap() };
    assert_eq!(fetched::take(), 0, "there is nothing yet");
    unsafe { s.update_image(&t, first, row(2).as_ptr()).unwrap() };
    assert_eq!(fetched::take(), 1);
    // Of one entry there is nothing to fetch together.
    let other = image(&Row { a: 2, c: None, text: vec![7; 20] });
    unsafe { s.update_image(&t, first, other.as_ptr()).unwrap() };
    s.delete(&t, first).unwrap();
    assert_eq!(fetched::take(), 2);
    let small = (10..100_000).take_while(|a| {
        unsafe { s.insert_image(&t, row(*a).as_ptr()).unwrap() };
        fetched::take() == 1
    });
    assert!((1..90_000).contains(&small.count()), "it never becomes large");
    unsafe { s.insert_image(&t, row(5).as_ptr()).unwrap() };
    assert_eq!(fetched::take(), 0);
    s.commit().unwrap();
}
