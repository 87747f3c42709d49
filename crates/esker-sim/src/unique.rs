//! Real threads over few unique keys, on the simulated disk: they insert, update and delete rows with the same keys, roll
//! back, also to savepoints, wait for each other and meet in circles, beside loads that fill runs of their own. Flushes,
//! merges and manifests come from outside as well, and so does an index that comes and goes, with or without a front end's lock
//! that keeps writers away. Then the power goes, or the process.
//!
//! Invariants: in no view have two rows the same unique key, and each index has the rows that the view has, at any moment and
//! in what is found afterwards; the index that comes and goes is there or not as was told; keys that only one client uses are there or not exactly as it was told. Ends after a number of
//! transactions. What the clients do follows from the seed, how they interleave does not.

mod client;

use crate::cut::{open, said};
use crate::indexes::differ;
use crate::sim::{sync_method, Failure, Sim, Stats};
use crate::time::{some_time, Jumping};
use crate::Rng;
use client::Client;
use esker::format::key_bytes::key_encoding::{BYTES, UNSIGNED};
use esker::format::{
    row, Column, ColumnKind, ColumnMask, Compression, KeyPart, Layout, NullBit, RowFormat, RowId, Value,
};
use esker::io::SimDisk;
use esker::{
    Background, BeginOptions, Engine, Error, IndexDef, IndexPlan, Isolation, Machine, ScanOptions, Session, Table,
    TableDef,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

const CLIENTS: u32 = 4;
const TRANSACTIONS: u32 = 200;
/// Numbers that all clients use; a client's own begin at its number times [`OWN`].
const COMMON: u64 = 14;
const OWN: u32 = 100_000;
const NAME: &str = "d/unique";
/// Places of the indexes.
const BY_KEY: usize = 0;
const BY_TEXT: usize = 1;
const ALL: [usize; 3] = [BY_KEY, BY_TEXT, 2];
/// Of the one that comes and goes.
const EXTRA: usize = 3;

/// A row: its key, another that may be NULL, and a version.
type Numbers = (u32, Option<u32>, u32);
/// Rows of one client's own, by key: where they are, and their version.
type Own = BTreeMap<u32, (RowId, u32)>;

fn layout() -> Layout {
    let column = |kind, offset, null| Column { kind, offset, null };
    let number = ColumnKind::Fixed { width: 4 };
    let columns = vec![
        column(number, 1, None),
        column(number, 5, Some(NullBit { byte: 0, mask: 1 })),
        column(number, 9, None),
        column(ColumnKind::Var { len_bytes: 1, max: 80 }, 13, None),
    ];
    Layout { image_bytes: 94, head_bytes: 1, columns }
}

fn def() -> TableDef {
    let part = |column, encoding| KeyPart { column, prefix_bytes: 0, descending: false, encoding, collation: 0 };
    let index = |name: &str, unique, parts| IndexDef { name: name.into(), unique, parts };
    let second = KeyPart { descending: true, ..part(1, UNSIGNED) };
    let indexes = vec![
        index("key", true, vec![part(0, UNSIGNED)]),
        index("text", false, vec![part(3, BYTES), part(2, UNSIGNED)]),
        index("second", true, vec![second]),
    ];
    let (format, compression) = (RowFormat::Dynamic, Compression::Lz4);
    TableDef { layout: layout(), format, compression, temporary: false, indexes, extra: Vec::new() }
}

/// The indexes with or without the one that comes and goes.
fn plan(extra: bool, unique: bool) -> Vec<IndexPlan> {
    let mut plan: Vec<_> =
        ALL.iter().zip(def().indexes).map(|(at, index)| IndexPlan::Keep { index: *at, name: index.name }).collect();
    let part = KeyPart { column: 0, prefix_bytes: 0, descending: true, encoding: UNSIGNED, collation: 0 };
    let version = KeyPart { column: 2, descending: false, ..part };
    let parts = if unique { vec![part] } else { vec![version, part] };
    plan.extend(extra.then(|| IndexPlan::Add(IndexDef { name: "extra".into(), unique, parts })));
    plan
}

fn packed((key, second, version): Numbers) -> Vec<u8> {
    let (key_bytes, version_bytes) = (key.to_le_bytes(), version.to_le_bytes());
    let second = second.map(u32::to_le_bytes);
    let text = vec![b'a' + (key % 5) as u8; ((key + version) % 70) as usize];
    let second = second.as_ref().map_or(Value::Null, |bytes| Value::Bytes(bytes));
    let mut out = Vec::new();
    let values = [Value::Bytes(&key_bytes), second, Value::Bytes(&version_bytes), Value::Bytes(&text)];
    // The values fit the layout by their making.
    let _ = row::pack_values(&layout(), &values, &mut out);
    out
}

/// The numbers of a row image.
///
/// # Safety
/// `image` points to a decoded image of [`layout`].
unsafe fn numbers(image: *const u8) -> Numbers {
    // SAFETY: the caller's promise; the numbers lie in the first 13 bytes.
    let bytes = unsafe { std::slice::from_raw_parts(image, 13) };
    let number = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    (number(1), (bytes[0] & 1 == 0).then(|| number(5)), number(9))
}

/// The rows that a session sees; an error, too, if two have the same key, or an index is not theirs.
fn look(s: &mut Session, t: &Arc<Table>, indexes: &[usize]) -> Result<BTreeMap<RowId, Numbers>, Error> {
    let mut rows = BTreeMap::new();
    let mut cursor = s.scan(t, ScanOptions { mask: ColumnMask::all(4), ..ScanOptions::default() })?;
    loop {
        let batch = cursor.next_batch(s)?;
        if batch.ids.is_empty() {
            break;
        }
        for (i, id) in batch.ids.iter().enumerate() {
            // SAFETY: the batch has a decoded image for each id.
            rows.insert(*id, unsafe { numbers(batch.images.add(i * batch.stride)) });
        }
    }
    drop(cursor);
    let (mut keys, mut seconds) = (BTreeSet::new(), BTreeSet::new());
    for (id, (key, second, _)) in rows.iter().filter(|_| indexes.contains(&BY_KEY)) {
        if !keys.insert(*key) || second.is_some_and(|second| !seconds.insert(second)) {
            return Err(Error::InvalidArgument(format!("row {id} has a key that another one has: {key}, {second:?}")));
        }
    }
    match differ(s, t, indexes.iter().copied(), rows.len())? {
        None => Ok(rows),
        Some(why) => Err(Error::InvalidArgument(why)),
    }
}

/// What a client knows to be committed, and what may be.
#[derive(Default, Clone)]
struct Told {
    own: Own,
    perhaps: Option<Own>,
    /// Its prepared transactions, and whether their commit was acknowledged.
    xids: BTreeMap<Vec<u8>, bool>,
    stats: Stats,
}

struct Work {
    engine: Engine,
    host: Arc<Jumping>,
    disk: SimDisk,
    table: Arc<Table>,
    stop: AtomicBool,
    looked: AtomicU64,
    /// A front end's lock: held by who writes, and mostly by who alters.
    gate: RwLock<()>,
    extra: Mutex<Extra>,
}

/// What is known of the index that comes and goes.
#[derive(Default, Clone, Copy)]
struct Extra {
    is_there: bool,
    /// It may be otherwise.
    perhaps: bool,
    stats: Stats,
}

impl Work {
    fn extra(&self) -> std::sync::MutexGuard<'_, Extra> {
        self.extra.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an index and takes it away again.
    fn alter(&self, mut rng: Rng) -> Result<(), Failure> {
        while !self.stopped() {
            let gate = rng.chance(60).then(|| self.gate.write().unwrap_or_else(PoisonError::into_inner));
            let adds = !self.extra().is_there;
            let built = self.engine.build_indexes(&self.table, &plan(adds, rng.chance(50)), &mut |_, _| true);
            let done = built.and_then(|built| {
                self.extra().perhaps = true;
                self.engine.alter_indexes(vec![built])
            });
            match done {
                Ok(()) => {
                    let extra = &mut *self.extra();
                    (extra.is_there, extra.perhaps) = (adds, false);
                    extra.stats.indexes_added += u64::from(adds);
                    extra.stats.indexes_dropped += u64::from(!adds);
                }
                // Somebody has written meanwhile, or is prepared.
                Err(Error::TableChanged(_) | Error::LockTimeout) if gate.is_none() => {
                    let extra = &mut *self.extra();
                    extra.perhaps = false;
                    extra.stats.alters_overtaken += 1;
                }
                // Who was cut off between prepare and commit.
                Err(Error::TableChanged(_) | Error::LockTimeout) if self.disk.is_power_cut() => return Ok(()),
                Err(e @ (Error::TableChanged(_) | Error::LockTimeout)) => {
                    return Err(Failure(format!("an index was refused although nobody wrote: {e}")));
                }
                Err(e) if self.goes_on(e.clone())? => return Err(Failure(format!("altering: {e}"))),
                Err(_) => return Ok(()),
            }
            drop(gate);
            std::thread::sleep(Duration::from_millis(rng.below(4)));
        }
        Ok(())
    }

    /// After an error: does the client go on? Not if its power is gone.
    fn goes_on(&self, e: Error) -> Result<bool, Failure> {
        match e {
            Error::Deadlock | Error::LockTimeout | Error::TableChanged(_) => Ok(true),
            Error::Io(_) | Error::DiskFull(_) | Error::Poisoned(_) if self.disk.is_power_cut() => Ok(false),
            e => Err(Failure(format!("a client met: {e} ({e:?})"))),
        }
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// One view after the other.
    fn look_on(&self) -> Result<(), Failure> {
        let mut session = self.engine.session();
        while !self.stopped() {
            session.begin(Isolation::RepeatableRead, BeginOptions::default());
            session.begin_statement();
            let found = look(&mut session, &self.table, &ALL).and_then(|rows| {
                match session.check_index(&self.table, EXTRA) {
                    // It is newer than the view, not there, or went meanwhile.
                    Err(Error::TableChanged(_) | Error::InvalidArgument(_)) => Ok(rows),
                    Ok(report) if report.wrong.is_empty() && report.entries == rows.len() as u64 => Ok(rows),
                    Ok(report) => {
                        Err(wrong(format!("the index that comes and goes, of {} rows: {report:?}", rows.len())))
                    }
                    Err(e) => Err(e),
                }
            });
            session.end_statement();
            match found.and_then(|_| session.commit()) {
                Ok(()) => drop(self.looked.fetch_add(1, Ordering::Relaxed)),
                Err(e) if self.goes_on(e.clone())? => {}
                Err(_) => return Ok(()),
            }
        }
        Ok(())
    }

    /// Flushes, merges and manifests from outside, beside the engine's own.
    fn maintain(&self, mut rng: Rng) -> Result<(), Failure> {
        while !self.stopped() {
            let done = match rng.below(10) {
                0..=4 => self.engine.sim_flush(&self.table),
                5..=7 => self.engine.sim_merge(&self.table).map(drop),
                8 => self.engine.sim_manifest(),
                _ => self.engine.optimize(&self.table, &mut |_, _| true),
            };
            if let Err(e) = done {
                // An index may go meanwhile.
                if !matches!(e, Error::Interrupted | Error::NoSuchTable(_)) && !self.goes_on(e)? {
                    return Ok(());
                }
            }
            if rng.chance(5) {
                self.host.jump(some_time(&mut rng));
            }
            std::thread::yield_now();
        }
        Ok(())
    }
}

/// Somebody has deleted the row, or is to the reader's view another's.
fn gone(e: Error) -> Result<(), Error> {
    match e {
        Error::RowNotFound => Ok(()),
        e => Err(e),
    }
}

fn wrong(what: String) -> Error {
    Error::InvalidArgument(what)
}

fn own_of(rows: &BTreeMap<RowId, Numbers>, client: u32) -> Own {
    let of = |key: u32| key / OWN == client;
    rows.iter().filter(|(_, n)| of(n.0)).map(|(id, n)| (n.0, (*id, n.2))).collect()
}

/// One folder, one cut. Ignores the simulation in its second argument: there is none.
pub fn unique_seed(seed: u64, _: &mut Option<Sim>) -> Result<Stats, Failure> {
    one_cut(seed, false)
}

/// The same, with a disk that lies about syncs, which some seeds must find out.
pub fn canary_seed(seed: u64, _: &mut Option<Sim>) -> Result<Stats, Failure> {
    one_cut(seed, true)
}

fn one_cut(seed: u64, lies: bool) -> Result<Stats, Failure> {
    let mut chance = Rng::new(seed ^ 0x0411_9E5E);
    let disk = SimDisk::new(seed);
    let host = Arc::<Jumping>::default();
    let engine =
        open(&disk, Background::Threads, host.clone(), Arc::new(|_, _| {}), sync_method(seed)).map_err(said("open"))?;
    engine.create_table(NAME, &def()).map_err(said("create"))?;
    let table = engine.open_table(NAME).map_err(said("open table"))?;
    let (stop, looked) = (AtomicBool::new(false), AtomicU64::new(0));
    let work = Work { engine, host, disk, table, stop, looked, gate: RwLock::default(), extra: Mutex::default() };
    work.disk.lie_about_sync(lies);
    work.disk.power_cut_at(work.disk.op_count() + 60 + chance.below(if lies { 300 } else { 2500 }));
    let told = clients(&work, seed)?;
    let kill = chance.chance(35) && !lies;
    // If the clients were done first, it is cut now.
    work.disk.cut_power();
    let left = kill.then(|| work.disk.after_kill());
    let extra = *work.extra();
    let Work { engine, host, disk, looked, .. } = work;
    let _ = engine.close();
    drop(engine);
    if host.threads().1 != 0 {
        return Err(Failure(format!("{} threads outlive their engine", host.threads().1)));
    }
    let mut stats = Stats { crashes: 1, kept_checked: looked.into_inner(), ..Stats::default() };
    told.iter().for_each(|t| stats.add(t.stats));
    stats.add(extra.stats);
    for outcome in 0..if kill { 1 } else { 3 } {
        let after = left.clone().unwrap_or_else(|| disk.after_power_cut(chance.number()));
        check(&after, &told, extra).map_err(|f| Failure(format!("kill {kill}, outcome {outcome}: {}", f.0)))?;
    }
    Ok(stats)
}

/// Runs everything until the clients are done or cut off.
fn clients(work: &Work, seed: u64) -> Result<Vec<Told>, Failure> {
    std::thread::scope(|scope| {
        let others = [
            scope.spawn(|| work.maintain(Rng::new(seed ^ 0x77))),
            scope.spawn(|| work.look_on()),
            scope.spawn(|| work.alter(Rng::new(seed ^ 0xA17E4))),
        ];
        let clients: Vec<_> = (1..=CLIENTS)
            .map(|number| {
                let client = Client::new(work, number, seed);
                scope.spawn(move || client.run())
            })
            .collect();
        let panicked = |_| Err(Failure::new("a thread panicked"));
        let told: Vec<_> = clients.into_iter().map(|c| c.join().unwrap_or_else(panicked)).collect();
        work.stop.store(true, Ordering::Release);
        for other in others {
            other.join().unwrap_or_else(|_| Err(Failure::new("a thread panicked")))?;
        }
        told.into_iter().collect()
    })
}

/// Opens what the cut has left and holds it against what the clients were told.
fn check(disk: &SimDisk, told: &[Told], extra: Extra) -> Result<(), Failure> {
    let engine = open(disk, Background::Inline, Arc::new(Machine), Arc::new(|_, _| {}), None)
        .map_err(said("open after the cut"))?;
    let table = engine.open_table(NAME).map_err(said("open table"))?;
    let mut session = engine.session();
    let indexes: Vec<usize> = (0..engine.sim_indexes(&table).len()).collect();
    if (indexes.len() > EXTRA) != extra.is_there && !extra.perhaps {
        return Err(Failure(format!(
            "there are {} indexes; the last one was told of: {}",
            indexes.len(),
            extra.is_there
        )));
    }
    // With keys of prepared transactions that nobody has, and then that somebody has.
    look(&mut session, &table, &indexes).map_err(said("looking while there are prepared ones"))?;
    session.commit().map_err(said("commit"))?;
    for xid in engine.prepared() {
        let commit = told.iter().find_map(|t| t.xids.get(&xid)).copied().unwrap_or(false);
        let found = if commit { engine.commit_xid(&xid) } else { engine.rollback_xid(&xid) };
        found.map_err(said("decide"))?;
    }
    let rows = look(&mut session, &table, &indexes).map_err(said("looking after the cut"))?;
    for (number, told) in (1..).zip(told) {
        let found = own_of(&rows, number);
        if found != told.own && Some(&found) != told.perhaps.as_ref() {
            let (have, want) = (found.len(), told.own.len());
            return Err(Failure(format!("client {number} has {have} rows, not {want}, and they are others")));
        }
    }
    for key in 0..COMMON as u32 {
        let taken = rows.iter().find(|(_, n)| n.0 == key).map(|(id, _)| *id);
        match (session.insert_row(&table, &packed((key, None, 0))), taken) {
            (Ok(_), None) => {}
            (Err(Error::DuplicateKey { index: BY_KEY, row }), Some(id)) if row == id => {}
            (inserted, _) => return Err(Failure(format!("key {key}, which is {taken:?}: {inserted:?}"))),
        }
    }
    look(&mut session, &table, &indexes).map_err(said("looking at what was inserted"))?;
    session.commit().map_err(said("commit"))?;
    drop(session);
    engine.close().map_err(said("close"))
}
