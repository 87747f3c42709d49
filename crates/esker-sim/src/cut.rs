//! Real threads on the simulated disk, cut in the middle: clients with batches of rows and transfers, in one and in two
//! phases, with savepoints and deletes; flushes, merges and manifests beside the engine's own; tables that are idle for
//! long; sometimes a disk that fills up. All tables have key trees. Then the power goes, or the process.
//!
//! Invariant of what is found: of each client's batches exactly those that were acknowledged are there, whole, and
//! perhaps what was under way; the accounts hold together what they held; the entries are those of the rows, for each
//! client that looks, and afterwards. Ends after a number of transactions. What the
//! clients do follows from the seed, how they interleave does not.

use crate::keys::{indexes, keys_differ, write_entries, Rewrite};
use crate::runner::alive;
use crate::sim::{small_options, sync_method, Failure, Sim, Stats};
use crate::time::{some_time, Jumping};
use crate::Rng;
use esker::format::{row, Column, ColumnKind, ColumnMask, Compression, Layout, RowFormat, RowId, Value};
use esker::io::SimDisk;
use esker::{
    Background, BeginOptions, Engine, Error, Host, Isolation, LockMode, Machine, Options, ScanOptions, Session,
    SyncMethod, Table, TableDef,
};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const FOLDER: &str = "/db";
const CLIENTS: u32 = 4;
const TRANSACTIONS: u32 = 250;
const ACCOUNTS: u32 = 12;
const START: u32 = 1000;
const IDLE_TABLES: u32 = 12;
/// Key trees of the tables with batches and accounts; of idle ones.
pub(crate) const TREES: usize = 2;
const IDLE_TREES: usize = 1;
/// Batch number of rows that are always rolled back.
const NEVER: u32 = 999_999;

/// Batches of a client: number of rows, and version of all of them.
type Batches = BTreeMap<u32, (u32, u32)>;
/// A row: client, batch, place in it, rows of the batch, version.
pub(crate) type Numbers = [u32; 5];

fn layout() -> Layout {
    let column = |kind, offset| Column { kind, offset, null: None };
    let mut columns: Vec<Column> = (0..5).map(|i| column(ColumnKind::Fixed { width: 4 }, 1 + 4 * i)).collect();
    columns.push(column(ColumnKind::Var { len_bytes: 1, max: 60 }, 21));
    Layout { image_bytes: 82, head_bytes: 1, columns }
}

pub(crate) fn packed(numbers: Numbers) -> Vec<u8> {
    let bytes = numbers.map(u32::to_le_bytes);
    let text = vec![b'a' + (numbers[2] % 7) as u8; (numbers[2] % 50) as usize];
    let mut values: Vec<Value<'_>> = bytes.iter().map(|b| Value::Bytes(b)).collect();
    values.push(Value::Bytes(&text));
    let mut out = Vec::new();
    // The values fit the layout by their making.
    let _ = row::pack_values(&layout(), &values, &mut out);
    out
}

/// The numbers of a row image.
///
/// # Safety
/// `image` points to a decoded image of [`layout`].
unsafe fn numbers(image: *const u8) -> Numbers {
    std::array::from_fn(|i| {
        let mut bytes = [0; 4];
        // SAFETY: the caller's promise; the columns lie at bytes 1 to 21.
        unsafe { std::ptr::copy_nonoverlapping(image.add(1 + 4 * i), bytes.as_mut_ptr(), 4) };
        u32::from_le_bytes(bytes)
    })
}

pub(crate) fn def(compression: Compression) -> TableDef {
    TableDef {
        layout: layout(),
        format: RowFormat::Dynamic,
        compression,
        temporary: false,
        indexes: Vec::new(),
        extra: Vec::new(),
    }
}

pub(crate) fn said(what: &'static str) -> impl Fn(Error) -> Failure {
    move |e| Failure(format!("{what}: {e} ({e:?})"))
}

pub(crate) fn open(
    disk: &SimDisk,
    background: Background,
    host: Arc<dyn Host>,
    notify: esker::Notify,
    sync_method: Option<SyncMethod>,
) -> Result<Engine, Error> {
    let options = Options { bulk_threshold_bytes: 4 << 10, background, host, sync_method, ..small_options() };
    Engine::open(Arc::new(disk.clone()), Path::new(FOLDER), options, notify)
}

fn scan(s: &mut Session, t: &Arc<Table>) -> Result<BTreeMap<u64, Numbers>, Error> {
    let mut cursor = s.scan(t, ScanOptions { mask: ColumnMask::all(6), ..ScanOptions::default() })?;
    let mut rows = BTreeMap::new();
    loop {
        let batch = cursor.next_batch(s)?;
        if batch.ids.is_empty() {
            return Ok(rows);
        }
        for (i, id) in batch.ids.iter().enumerate() {
            // SAFETY: the batch has a decoded image for each id.
            rows.insert(id.0, unsafe { numbers(batch.images.add(i * batch.stride)) });
        }
    }
}

/// All rows; an error, too, if the entries in the table's `trees` are not theirs.
pub(crate) fn scan_all(s: &mut Session, t: &Arc<Table>, trees: usize) -> Result<Vec<Numbers>, Error> {
    let rows = scan(s, t)?;
    let all = rows.iter().map(|(id, numbers)| (*id, packed(*numbers).into())).collect();
    match keys_differ(s, t, trees, &all, &[])? {
        None => Ok(rows.into_values().collect()),
        Some(why) => Err(Error::InvalidArgument(format!("{}: {why}", t.name()))),
    }
}

/// Inserts a row with its entries.
pub(crate) fn insert(s: &mut Session, t: &Arc<Table>, trees: usize, numbers: Numbers) -> Result<RowId, Error> {
    let row = packed(numbers);
    let id = s.insert_row(t, &row)?;
    write_entries(s, t, trees, Rewrite::insert(id.0, &row))?;
    Ok(id)
}

/// What a client knows to be committed, and what may be.
#[derive(Default, Clone)]
struct Told {
    batches: Batches,
    perhaps: Option<Batches>,
    /// Its prepared transactions, and whether their commit was acknowledged.
    xids: BTreeMap<Vec<u8>, bool>,
    acknowledged: u64,
    /// Views in which it compared entries with their rows.
    keys_read: u64,
}

/// The folder and everything that goes on in it.
struct Work {
    engine: Engine,
    host: Arc<Jumping>,
    disk: SimDisk,
    rows: Arc<Table>,
    accounts: Arc<Table>,
    ids: Vec<RowId>,
    /// The disk fills up now and then.
    fills: bool,
    stop: AtomicBool,
    idle_rows: AtomicU64,
    /// Parts of runs, and moved runs of open transactions, that were seen in key trees.
    narrowed: AtomicU64,
    moved: AtomicU64,
    messages: Arc<Mutex<Vec<String>>>,
}

/// After an error: is it what a cut or a full disk may cause, and does the client go on?
enum After {
    GoOn,
    Over,
}

impl Work {
    fn after(&self, e: Error) -> Result<After, Failure> {
        match e {
            Error::Deadlock | Error::LockTimeout => Ok(After::GoOn),
            Error::DiskFull(_) if self.fills => Ok(After::GoOn),
            Error::Io(_) | Error::DiskFull(_) | Error::Poisoned(_) if self.disk.is_power_cut() => Ok(After::Over),
            e => Err(Failure(format!("a client met: {e} ({e:?})"))),
        }
    }

    /// Flushes, merges and manifests from outside, beside the engine's own.
    fn maintain(&self, mut rng: Rng) -> Result<(), Failure> {
        while !self.stop.load(Ordering::Acquire) {
            let table = if rng.chance(70) { &self.rows } else { &self.accounts };
            let done = match rng.below(10) {
                0..=3 => self.engine.sim_flush(table),
                4..=6 => self.engine.sim_merge(table).map(|_| ()),
                7..=8 => self.engine.sim_manifest(),
                _ => self.engine.optimize(table, &mut |_, _| true),
            };
            for run in self.engine.sim_key_runs(table) {
                self.narrowed.fetch_add(u64::from(run.narrowed), Ordering::Relaxed);
                self.moved.fetch_add(u64::from(run.private), Ordering::Relaxed);
            }
            match done {
                Ok(()) | Err(Error::Interrupted) => {}
                Err(e) => {
                    if matches!(self.after(e)?, After::Over) {
                        return Ok(());
                    }
                }
            }
            if rng.chance(20) {
                self.host.jump(some_time(&mut rng));
            }
            std::thread::yield_now();
        }
        Ok(())
    }

    /// Lets the disk fill up and gives it space again.
    fn fill(&self, mut rng: Rng) {
        while self.fills && !self.stop.load(Ordering::Acquire) {
            std::thread::sleep(Duration::from_millis(rng.below(20)));
            self.disk.capacity(Some(self.disk.used_bytes() + rng.below(100_000)));
            std::thread::sleep(Duration::from_millis(rng.below(30)));
            self.disk.capacity(None);
        }
        self.disk.capacity(None);
    }

    /// The first row into one idle table after the other.
    fn wake_idle_tables(&self) -> Result<(), Failure> {
        let mut session = self.engine.session();
        for n in 0..IDLE_TABLES {
            for _ in 0..20 {
                if self.stop.load(Ordering::Acquire) {
                    return Ok(());
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            let table = self.engine.open_table(&idle_name(n)).map_err(said("open an idle table"))?;
            let inserted = insert(&mut session, &table, IDLE_TREES, [9, n, 0, 1, 0]);
            match inserted.and_then(|_| session.commit()) {
                Ok(()) => drop(self.idle_rows.fetch_add(1, Ordering::SeqCst)),
                Err(e) => match self.after(e)? {
                    After::GoOn => drop(session.rollback()),
                    After::Over => return Ok(()),
                },
            }
        }
        Ok(())
    }
}

fn idle_name(n: u32) -> String {
    format!("d/idle{n}")
}

/// One thread's session.
struct Client<'a> {
    work: &'a Work,
    number: u32,
    rng: Rng,
    session: Session,
    /// Row ids of its batches.
    mine: BTreeMap<u32, Vec<RowId>>,
    next: u32,
    told: Told,
}

impl Client<'_> {
    fn run(mut self) -> Result<Told, Failure> {
        for _ in 0..TRANSACTIONS {
            alive();
            if self.work.disk.is_power_cut() || matches!(self.transaction()?, After::Over) {
                break;
            }
        }
        Ok(self.told)
    }

    fn transaction(&mut self) -> Result<After, Failure> {
        let (mut batches, mut mine) = (self.told.batches.clone(), self.mine.clone());
        let isolation = if self.rng.chance(50) { Isolation::ReadCommitted } else { Isolation::RepeatableRead };
        self.session.begin(isolation, BeginOptions::default());
        self.session.begin_statement();
        let steps = 1 + self.rng.below(3);
        let done = (0..steps).try_for_each(|_| self.step(&mut batches, &mut mine));
        self.session.end_statement();
        if let Err(e) = done {
            return self.roll_back(e);
        }
        if self.rng.chance(12) {
            return match self.session.rollback() {
                Ok(()) => Ok(After::GoOn),
                Err(e) => self.work.after(e),
            };
        }
        let xid = self.rng.chance(30).then(|| format!("x{}-{}", self.number, self.rng.number()).into_bytes());
        if let Some(xid) = &xid {
            self.told.xids.insert(xid.clone(), false);
        }
        match self.commit(xid.as_deref()) {
            Ok(()) => {
                // Decided in memory only, it is prepared at least: its coordinator will commit it.
                xid.map(|xid| self.told.xids.insert(xid, true));
                (self.told.batches, self.mine) = (batches, mine);
                self.told.acknowledged += 1;
                Ok(After::GoOn)
            }
            Err(e) => {
                let after = self.roll_back(e)?;
                if matches!(after, After::Over) {
                    self.told.perhaps = Some(batches);
                }
                Ok(after)
            }
        }
    }

    fn roll_back(&mut self, e: Error) -> Result<After, Failure> {
        match self.work.after(e)? {
            After::GoOn if self.session.rollback().is_ok() => Ok(After::GoOn),
            _ => Ok(After::Over),
        }
    }

    fn commit(&mut self, xid: Option<&[u8]>) -> Result<(), Error> {
        if let Some(xid) = xid {
            self.session.prepare(xid)?;
            if self.rng.chance(70) {
                self.session.commit_ordered();
            }
        }
        self.session.commit()
    }

    fn step(&mut self, batches: &mut Batches, mine: &mut BTreeMap<u32, Vec<RowId>>) -> Result<(), Error> {
        let known: Vec<u32> = mine.keys().copied().collect();
        match self.rng.below(10) {
            4..=5 if !known.is_empty() => {
                let batch = *self.rng.pick(&known);
                let (rows, version) = batches[&batch];
                for (at, id) in (0..).zip(&mine[&batch]) {
                    let numbers = |version| [self.number, batch, at, rows, version];
                    self.rewrite(*id, numbers(version), Some(numbers(version + 1)))?;
                }
                batches.insert(batch, (rows, version + 1));
            }
            6 if !known.is_empty() => {
                let batch = *self.rng.pick(&known);
                self.delete(batch, batches[&batch], &mine[&batch])?;
                mine.remove(&batch);
                batches.remove(&batch);
            }
            7 => self.undone(batches, mine)?,
            8 => self.transfer()?,
            9 => {
                let found = scan_all(&mut self.session, &self.work.rows, TREES)?;
                scan_all(&mut self.session, &self.work.accounts, TREES)?;
                self.told.keys_read += 1;
                let have = found.iter().filter(|n| n[0] == self.number).count();
                let want: usize = batches.values().map(|(rows, _)| *rows as usize).sum();
                if have != want {
                    let what = format!("client {} reads {have} own rows, not {want}", self.number);
                    return Err(Error::InvalidArgument(what));
                }
            }
            _ => {
                let rows = match self.rng.below(6) {
                    0 => 200 + self.rng.below(700),
                    1..=2 => 1 + self.rng.below(60),
                    _ => 1 + self.rng.below(4),
                } as u32;
                let mut ids = Vec::new();
                for at in 0..rows {
                    let row = [self.number, self.next, at, rows, 0];
                    ids.push(insert(&mut self.session, &self.work.rows, TREES, row)?);
                }
                mine.insert(self.next, ids);
                batches.insert(self.next, (rows, 0));
                self.next += 1;
            }
        }
        Ok(())
    }

    /// Inserts and deletes that are rolled back to a savepoint.
    fn undone(&mut self, batches: &Batches, mine: &BTreeMap<u32, Vec<RowId>>) -> Result<(), Error> {
        let point = self.session.savepoint();
        for at in 0..1 + self.rng.below(200) as u32 {
            insert(&mut self.session, &self.work.rows, TREES, [self.number, NEVER, at, 0, 9])?;
        }
        if let Some((batch, ids)) = mine.iter().next() {
            self.delete(*batch, batches[batch], ids)?;
        }
        self.session.rollback_to(&point);
        Ok(())
    }

    /// Deletes the rows of a batch of which there are so many, in this version.
    fn delete(&mut self, batch: u32, (rows, version): (u32, u32), ids: &[RowId]) -> Result<(), Error> {
        (0..).zip(ids).try_for_each(|(at, id)| self.rewrite(*id, [self.number, batch, at, rows, version], None))
    }

    /// Updates or deletes a row of its own, with its entries. Nobody else writes it, so each of its views sees the newest.
    fn rewrite(&mut self, id: RowId, old: Numbers, new: Option<Numbers>) -> Result<(), Error> {
        let (table, old, new) = (&self.work.rows, packed(old), new.map(packed));
        match &new {
            Some(new) => self.session.update_row(table, id, new)?,
            None => self.session.delete(table, id)?,
        }
        let rewrite = Rewrite { id: id.0, old: Some(&old), new: new.as_deref(), unseen: None };
        write_entries(&mut self.session, table, TREES, rewrite)
    }

    /// Moves something from one account to another, under their locks.
    fn transfer(&mut self) -> Result<(), Error> {
        let accounts = &self.work.accounts;
        let plain = ScanOptions { mask: ColumnMask::all(6), ..ScanOptions::default() };
        let locking = ScanOptions { lock: Some(LockMode::Exclusive), ..plain.clone() };
        let mut cursor = self.session.open_cursor(accounts, locking)?;
        let (from, to) = (*self.rng.pick(&self.work.ids), *self.rng.pick(&self.work.ids));
        for (id, add) in [(from, false), (to, true)] {
            let mut view = self.session.open_cursor(accounts, plain.clone())?;
            let image = view.fetch(&mut self.session, id)?.ok_or(Error::RowNotFound)?;
            // SAFETY: the cursor gave a decoded image.
            let seen = packed(unsafe { numbers(image) });
            let image = cursor.fetch(&mut self.session, id)?.ok_or(Error::RowNotFound)?;
            // SAFETY: the cursor gave a decoded image.
            let mut account = unsafe { numbers(image) };
            let old = packed(account);
            account[3] = if add { account[3].wrapping_add(3) } else { account[3].wrapping_sub(3) };
            let new = packed(account);
            self.session.update_row(accounts, id, &new)?;
            // Others have moved it on since the view was taken.
            let unseen = (seen != old).then(|| Some(seen.into()));
            let rewrite = Rewrite { id: id.0, old: Some(&old), new: Some(&new), unseen };
            write_entries(&mut self.session, accounts, TREES, rewrite)?;
        }
        Ok(())
    }
}

/// One folder, one cut. Ignores the simulation in its second argument: there is none.
pub fn cut_seed(seed: u64, _: &mut Option<Sim>) -> Result<Stats, Failure> {
    one_cut(seed, false)
}

/// The same, with a disk that lies about syncs, which some seeds must find out.
pub fn canary_seed(seed: u64, _: &mut Option<Sim>) -> Result<Stats, Failure> {
    one_cut(seed, true)
}

fn one_cut(seed: u64, lies: bool) -> Result<Stats, Failure> {
    let mut chance = Rng::new(seed ^ 0x7EAD);
    let work = begin(seed, chance.chance(30))?;
    work.disk.lie_about_sync(lies);
    work.disk.power_cut_at(work.disk.op_count() + 60 + chance.below(if lies { 300 } else { 3000 }));
    let told = clients(&work, seed)?;
    if work.engine.poisoned() && !work.disk.is_power_cut() {
        return Err(Failure(format!("writing stopped without a cut: {:?}", work.messages.lock())));
    }
    let kill = chance.chance(35) && !lies;
    // If the clients were done first, it is cut now.
    work.disk.cut_power();
    let left = kill.then(|| work.disk.after_kill());
    let Work { engine, host, disk, idle_rows, narrowed, moved, .. } = work;
    let _ = engine.close();
    drop(engine);
    match host.threads() {
        (1.., 0) => {}
        (begun, alive) => return Err(Failure(format!("{alive} of {begun} threads outlive their engine"))),
    }
    let mut stats = Stats {
        commits: told.iter().map(|t| t.acknowledged).sum(),
        crashes: 1,
        keys_read: told.iter().map(|t| t.keys_read).sum(),
        keys_narrowed: narrowed.into_inner(),
        keys_moved: moved.into_inner(),
        ..Stats::default()
    };
    for outcome in 0..if kill { 1 } else { 3 } {
        let after = left.clone().unwrap_or_else(|| disk.after_power_cut(chance.number()));
        let found = check(&after, told.clone(), idle_rows.load(Ordering::SeqCst));
        stats.add(found.map_err(|f| Failure(format!("kill {kill}, outcome {outcome}: {}", f.0)))?);
    }
    Ok(stats)
}

fn begin(seed: u64, fills: bool) -> Result<Work, Failure> {
    let disk = SimDisk::new(seed);
    let messages: Arc<Mutex<Vec<String>>> = Arc::default();
    let sink = messages.clone();
    let notify: esker::Notify = Arc::new(move |text, _| {
        if let Ok(mut messages) = sink.lock() {
            messages.push(text.to_owned());
        }
    });
    let host = Arc::<Jumping>::default();
    let engine = open(&disk, Background::Threads, host.clone(), notify, sync_method(seed)).map_err(said("open"))?;
    let make = |name: &str, compression, trees| -> Result<Arc<Table>, Error> {
        engine.sim_create_table(name, &def(compression), &indexes(trees))?;
        engine.open_table(name)
    };
    let rows = make("d/rows", Compression::Lz4, TREES).map_err(said("create"))?;
    let accounts = make("d/accounts", Compression::None, TREES).map_err(said("create"))?;
    for n in 0..IDLE_TABLES {
        make(&idle_name(n), Compression::None, IDLE_TREES).map_err(said("create"))?;
    }
    let mut session = engine.session();
    let ids = (0..ACCOUNTS).map(|n| insert(&mut session, &accounts, TREES, [0, n, 0, START, 0]));
    let ids = ids.collect::<Result<Vec<_>, _>>().map_err(said("insert"))?;
    session.commit().map_err(said("commit"))?;
    drop(session);
    let stop = AtomicBool::new(false);
    let [idle_rows, narrowed, moved] = [0; 3].map(AtomicU64::new);
    Ok(Work { engine, host, disk, rows, accounts, ids, fills, stop, idle_rows, narrowed, moved, messages })
}

/// Runs everything until the clients are done or cut off.
fn clients(work: &Work, seed: u64) -> Result<Vec<Told>, Failure> {
    std::thread::scope(|scope| {
        let others = [
            scope.spawn(|| work.maintain(Rng::new(seed ^ 0x77))),
            scope.spawn(|| work.wake_idle_tables()),
            scope.spawn(|| {
                work.fill(Rng::new(seed ^ 0x99));
                Ok(())
            }),
        ];
        let clients: Vec<_> = (1..=CLIENTS)
            .map(|number| {
                let mut session = work.engine.session();
                session.set_lock_wait(Duration::from_millis(300), false);
                let rng = Rng::new(seed ^ u64::from(number) << 40);
                let (mine, told) = (BTreeMap::new(), Told::default());
                let client = Client { work, number, rng, session, mine, next: 1, told };
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

/// What a restart has found in key trees.
fn see_keys(engine: &Engine) -> Result<Stats, Failure> {
    let mut stats = Stats { keys_prepared: u64::from(!engine.prepared().is_empty()), ..Stats::default() };
    for name in engine.tables() {
        let table = engine.open_table(&name).map_err(said("open table"))?;
        let runs = engine.sim_key_runs(&table);
        stats.keys_from_runs += u64::from(!runs.is_empty());
        stats.keys_from_log += u64::from(engine.sim_keys_in_memory(&table));
        stats.keys_moved_back += u64::from(runs.iter().any(|run| run.private));
    }
    Ok(stats)
}

/// Opens what the cut has left and holds it against what the clients were told.
fn check(disk: &SimDisk, mut told: Vec<Told>, idle_rows: u64) -> Result<Stats, Failure> {
    let engine = open(disk, Background::Inline, Arc::new(Machine), Arc::new(|_, _| {}), None)
        .map_err(said("open after the cut"))?;
    let stats = see_keys(&engine)?;
    for xid in engine.prepared() {
        let Some(client) = told.iter_mut().find(|t| t.xids.contains_key(&xid)) else {
            return Err(Failure(format!("{} of nobody is prepared", String::from_utf8_lossy(&xid))));
        };
        // As a coordinator would: what was acknowledged is committed.
        let commit = client.xids.get(&xid).copied().unwrap_or(false);
        let found = if commit { engine.commit_xid(&xid) } else { engine.rollback_xid(&xid) };
        if !found.map_err(said("decide"))? {
            return Err(Failure::new("a prepared transaction was not found"));
        }
    }
    let mut session = engine.session();
    let mut read = |name: &str, trees| -> Result<Vec<Numbers>, Failure> {
        let table = engine.open_table(name).map_err(said("open table"))?;
        let report = engine.check(&table, &mut |_, _| true).map_err(said("check"))?;
        if !report.damages.is_empty() {
            return Err(Failure(format!("{name} is damaged: {:?}", report.damages)));
        }
        scan_all(&mut session, &table, trees).map_err(said("scan"))
    };
    check_batches(read("d/rows", TREES)?, &told)?;
    let sum = read("d/accounts", TREES)?.iter().fold(0u32, |sum, n| sum.wrapping_add(n[3]));
    if sum != ACCOUNTS * START {
        return Err(Failure(format!("the accounts hold {sum}")));
    }
    let mut idle = 0;
    for n in 0..IDLE_TABLES {
        idle += read(&idle_name(n), IDLE_TREES)?.len() as u64;
    }
    // One more may have been under way.
    if !(idle_rows..=idle_rows + 1).contains(&idle) {
        return Err(Failure(format!("{idle} rows in idle tables, {idle_rows} were committed")));
    }
    drop(session);
    engine.close().map_err(said("close"))?;
    Ok(stats)
}

fn check_batches(rows: Vec<Numbers>, told: &[Told]) -> Result<(), Failure> {
    let mut found: BTreeMap<u32, BTreeMap<u32, Vec<Numbers>>> = BTreeMap::new();
    for n in rows {
        found.entry(n[0]).or_default().entry(n[1]).or_default().push(n);
    }
    for (number, told) in (1..).zip(told) {
        let mut got = Batches::new();
        for (batch, list) in found.remove(&number).unwrap_or_default() {
            let (rows, version) = (list[0][3], list[0][4]);
            let mut places: Vec<u32> = list.iter().map(|n| n[2]).collect();
            places.sort_unstable();
            let alike = list.iter().all(|n| (n[3], n[4]) == (rows, version));
            if places != (0..rows).collect::<Vec<_>>() || !alike {
                return Err(Failure(format!("batch {batch} of client {number}: {} rows of {rows}", list.len())));
            }
            got.insert(batch, (rows, version));
        }
        if got != told.batches && Some(&got) != told.perhaps.as_ref() {
            let lost: Vec<_> = told.batches.iter().filter(|(b, v)| got.get(b) != Some(v)).take(4).collect();
            let extra: Vec<_> = got.iter().filter(|(b, v)| told.batches.get(b) != Some(v)).take(4).collect();
            let perhaps = told.perhaps.is_some();
            return Err(Failure(format!("client {number}: lost {lost:?}, extra {extra:?}, one under way: {perhaps}")));
        }
    }
    match found.keys().next() {
        None => Ok(()),
        Some(nobody) => Err(Failure(format!("there are rows of client {nobody}"))),
    }
}
