//! Real threads on a real disk: money moves between rows under locks, readers check that none is lost, bulk loads and
//! rollbacks go on beside it. Each table has a key tree, whose entries are those of the rows in every view. Ends after a number of operations, not after a time.

use crate::keys::{indexes, keys_differ, write_entries, Rewrite};
use crate::model::Row;
use crate::sim::Failure;
use crate::Rng;
use esker::format::{row, Column, ColumnKind, ColumnMask, Compression, Layout, RowFormat, RowId, Value};
use esker::{
    BeginOptions, Cursor, Engine, Error, Isolation, LockMode, Options, PosixDisk, ScanOptions, Session, Table,
};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Duration;

const ACCOUNTS: u64 = 12;
const START: u64 = 1000;
/// Key trees of each table.
const TREES: usize = 1;
/// One load in so many is followed by a look at all entries.
const LOOKS: u64 = 8;

/// What the threads did.
#[derive(Debug, Default)]
pub struct Report {
    /// Transfers that were committed.
    pub transfers: AtomicU64,
    /// Transfers that a deadlock or a timeout ended.
    pub refused: AtomicU64,
    /// Sums that were checked.
    pub sums: AtomicU64,
    /// Rows of bulk loads that were committed.
    pub loaded: AtomicU64,
    /// Entries that were compared with their rows.
    pub entries: AtomicU64,
}

fn layout() -> Layout {
    let column = |kind, offset| Column { kind, offset, null: None };
    let columns = vec![column(ColumnKind::Fixed { width: 8 }, 1), column(ColumnKind::Var { len_bytes: 1, max: 60 }, 9)];
    Layout { image_bytes: 70, head_bytes: 1, columns }
}

fn packed(amount: u64, text: &[u8]) -> Result<Vec<u8>, Failure> {
    let mut out = Vec::new();
    row::pack_values(&layout(), &[Value::Bytes(&amount.to_le_bytes()), Value::Bytes(text)], &mut out)
        .map_err(|e| Failure::new(e.to_string()))?;
    Ok(out)
}

fn options() -> Options {
    Options {
        memory_limit_bytes: 4 << 20,
        bulk_buffer_bytes: 256 << 10,
        bulk_threshold_bytes: 16 << 10,
        min_run_bytes: 64 << 10,
        block_bytes: 4 << 10,
        wal_segment_bytes: 1 << 20,
        ..Options::default()
    }
}

fn open(dir: &Path) -> Result<Engine, Failure> {
    Engine::open(Arc::new(PosixDisk::new()), dir, options(), Arc::new(|_, _| {})).map_err(said("open"))
}

fn said(what: &'static str) -> impl Fn(Error) -> Failure {
    move |e| Failure(format!("{what}: {e}"))
}

/// The packed row of a row image.
///
/// # Safety
/// `image` points to a decoded image of [`layout`].
unsafe fn packed_of(image: *const u8) -> Vec<u8> {
    let mut packed = Vec::new();
    // SAFETY: the caller's promise.
    let done = unsafe { row::pack(&layout(), image, &mut packed) };
    assert_eq!(done, Ok(()), "small rows have memory");
    packed
}

/// The amount in a row.
fn amount(row: &[u8]) -> Result<u64, Error> {
    match row::values(&layout(), row).as_deref() {
        Ok([Value::Bytes(bytes), _]) => (*bytes).try_into().map(u64::from_le_bytes).ok(),
        _ => None,
    }
    .ok_or_else(|| Error::InvalidArgument(format!("row {row:?} has no amount")))
}

/// All rows of a table, whose entries are theirs.
fn rows_of(session: &mut Session, table: &Arc<Table>) -> Result<BTreeMap<u64, Row>, Failure> {
    let options = ScanOptions { mask: ColumnMask::all(2), ..ScanOptions::default() };
    let mut cursor = session.scan(table, options).map_err(said("scan"))?;
    let mut rows = BTreeMap::new();
    loop {
        let batch = cursor.next_batch(session).map_err(said("batch"))?;
        if batch.ids.is_empty() {
            break;
        }
        for (i, id) in batch.ids.iter().enumerate() {
            // SAFETY: the batch has an image for each id.
            let row = unsafe { packed_of(batch.images.add(i * batch.stride)) };
            rows.insert(id.0, row.into());
        }
    }
    match keys_differ(session, table, TREES, &rows, &[]).map_err(said("reading entries"))? {
        None => Ok(rows),
        Some(why) => Err(Failure(format!("{}: {why}", table.name()))),
    }
}

/// Inserts a row with its entries.
fn insert(session: &mut Session, table: &Arc<Table>, row: &[u8]) -> Result<RowId, Error> {
    let id = session.insert_row(table, row)?;
    write_entries(session, table, TREES, Rewrite::insert(id.0, row))?;
    Ok(id)
}

struct Work {
    engine: Engine,
    accounts: Arc<Table>,
    events: Arc<Table>,
    ids: Vec<RowId>,
    report: Report,
    done: AtomicBool,
}

/// Runs `operations` transfers on each of `threads` threads in the folder `dir`, with readers and loaders beside them.
pub fn run(dir: &Path, seed: u64, threads: u64, operations: u64) -> Result<Report, Failure> {
    let engine = open(dir)?;
    let def = |compression| esker::TableDef {
        layout: layout(),
        format: RowFormat::Dynamic,
        compression,
        temporary: false,
        indexes: Vec::new(),
        extra: Vec::new(),
    };
    let create = |name, compression| engine.sim_create_table(name, &def(compression), &indexes(TREES));
    create("d/accounts", Compression::None).map_err(said("create"))?;
    create("d/events", Compression::Lz4).map_err(said("create"))?;
    let accounts = engine.open_table("d/accounts").map_err(said("open table"))?;
    let events = engine.open_table("d/events").map_err(said("open table"))?;
    let mut session = engine.session();
    let mut ids = Vec::new();
    for _ in 0..ACCOUNTS {
        ids.push(insert(&mut session, &accounts, &packed(START, b"")?).map_err(said("insert"))?);
    }
    session.commit().map_err(said("commit"))?;
    drop(session);
    let work = Work { engine, accounts, events, ids, report: Report::default(), done: AtomicBool::new(false) };
    let results: Vec<Result<(), Failure>> = std::thread::scope(|scope| {
        let work = &work;
        let others: Vec<_> = vec![
            scope.spawn(move || work.check_sums()),
            scope.spawn(move || work.load(seed, operations / 20 + 4)),
            scope.spawn(move || work.maintain()),
        ];
        let movers: Vec<_> =
            (0..threads).map(|t| scope.spawn(move || work.transfer(seed ^ t << 32, operations))).collect();
        let join = |h: std::thread::ScopedJoinHandle<'_, Result<(), Failure>>| {
            h.join().unwrap_or_else(|_| Err(Failure::new("a thread panicked")))
        };
        let mut results: Vec<_> = movers.into_iter().map(join).collect();
        work.done.store(true, Ordering::Release);
        results.extend(others.into_iter().map(join));
        results
    });
    results.into_iter().collect::<Result<Vec<()>, Failure>>()?;
    let Work { engine, accounts, events, report, .. } = work;
    // Once more on what a restart finds.
    drop((accounts, events));
    engine.close().map_err(said("close"))?;
    drop(engine);
    let engine = open(dir)?;
    let accounts = engine.open_table("d/accounts").map_err(said("open table"))?;
    let events = engine.open_table("d/events").map_err(said("open table"))?;
    let mut session = engine.session();
    check_sum(&mut session, &accounts)?;
    let rows = rows_of(&mut session, &events)?.len() as u64;
    let kept = session.count(&events).map_err(said("kept count"))?;
    session.commit().map_err(said("commit"))?;
    drop(session);
    report.entries.fetch_add(rows, Ordering::Relaxed);
    let loaded = report.loaded.load(Ordering::Relaxed);
    if (rows, kept) != (loaded, loaded) {
        return Err(Failure(format!("{rows} rows after a restart, {kept} by what is kept, {loaded} were committed")));
    }
    engine.close().map_err(said("close"))?;
    Ok(report)
}

fn check_sum(session: &mut Session, accounts: &Arc<Table>) -> Result<(), Failure> {
    session.begin(Isolation::RepeatableRead, BeginOptions::default());
    session.begin_statement();
    let rows = rows_of(session, accounts)?;
    let kept = session.count(accounts).map_err(said("kept count"))?;
    session.end_statement();
    let sum: u64 = rows.values().map(|row| amount(row)).sum::<Result<_, _>>().map_err(said("amount"))?;
    if (sum, rows.len() as u64, kept) != (ACCOUNTS * START, ACCOUNTS, ACCOUNTS) {
        return Err(Failure(format!(
            "{} accounts ({kept} by what is kept) hold {sum}, not {}",
            rows.len(),
            ACCOUNTS * START
        )));
    }
    Ok(())
}

impl Work {
    fn check_sums(&self) -> Result<(), Failure> {
        let mut session = self.engine.session();
        while !self.done.load(Ordering::Acquire) {
            // Twice under one view, then a fresh one.
            check_sum(&mut session, &self.accounts)?;
            check_sum(&mut session, &self.accounts)?;
            session.commit().map_err(said("commit of a reader"))?;
            self.report.sums.fetch_add(2, Ordering::Relaxed);
            self.report.entries.fetch_add(2 * ACCOUNTS, Ordering::Relaxed);
        }
        Ok(())
    }

    fn transfer(&self, seed: u64, operations: u64) -> Result<(), Failure> {
        let mut rng = Rng::new(seed);
        let mut session = self.engine.session();
        session.set_lock_wait(Duration::from_millis(500), false);
        for _ in 0..operations {
            session.begin(Isolation::ReadCommitted, BeginOptions::default());
            let moved = self.move_once(&mut session, &mut rng);
            match moved {
                Ok(()) if rng.chance(85) => {
                    session.commit().map_err(said("commit of a transfer"))?;
                    self.report.transfers.fetch_add(1, Ordering::Relaxed);
                }
                Ok(()) => session.rollback().map_err(said("rollback"))?,
                Err(Error::Deadlock | Error::LockTimeout) => {
                    self.report.refused.fetch_add(1, Ordering::Relaxed);
                    session.rollback().map_err(said("rollback"))?;
                }
                Err(e) => return Err(said("transfer")(e)),
            }
        }
        Ok(())
    }

    fn move_once(&self, session: &mut Session, rng: &mut Rng) -> Result<(), Error> {
        session.begin_statement();
        let lock = Some(LockMode::Exclusive);
        let options = ScanOptions { mask: ColumnMask::all(2), lock, ..ScanOptions::default() };
        let mut cursor: Cursor = session.open_cursor(&self.accounts, options)?;
        let from = *rng.pick(&self.ids);
        let to = *rng.pick(&self.ids);
        let step = 1 + rng.below(5);
        for (id, add) in [(from, false), (to, true)] {
            let image = cursor.fetch(session, id)?.ok_or(Error::RowNotFound)?;
            // SAFETY: the cursor gave a decoded image.
            let old = unsafe { packed_of(image) };
            let have = amount(&old)?;
            let now = if add { have + step } else { have.wrapping_sub(step) };
            let text = vec![b'x'; rng.index(40)];
            let row = packed(now, &text).map_err(|f| Error::InvalidArgument(f.0))?;
            session.update_row(&self.accounts, id, &row)?;
            // The statement has no view but that of its locks.
            let rewrite = Rewrite { id: id.0, old: Some(&old), new: Some(&row), unseen: None };
            write_entries(session, &self.accounts, TREES, rewrite)?;
            // Others come in between, in another order.
            std::thread::yield_now();
        }
        session.end_statement();
        Ok(())
    }

    fn load(&self, seed: u64, rounds: u64) -> Result<(), Failure> {
        let mut rng = Rng::new(seed ^ 0x10AD);
        let mut session = self.engine.session();
        for round in 0..rounds {
            session.begin(Isolation::RepeatableRead, BeginOptions::default());
            session.begin_statement();
            let rows = 1 + rng.below(3000);
            for n in 0..rows {
                let row = packed(n, b"some event with a text that repeats")?;
                insert(&mut session, &self.events, &row).map_err(said("bulk insert"))?;
            }
            session.end_statement();
            if rng.chance(50) {
                session.commit().map_err(said("commit of a load"))?;
                self.report.loaded.fetch_add(rows, Ordering::Relaxed);
            } else {
                session.rollback().map_err(said("rollback of a load"))?;
            }
            session.begin(Isolation::ReadCommitted, BeginOptions::default());
            session.begin_statement();
            let found = match round % LOOKS {
                0 => rows_of(&mut session, &self.events)?.len() as u64,
                _ => session.count_rows(&self.events).map_err(said("count"))?,
            };
            let kept = session.count(&self.events).map_err(said("kept count"))?;
            session.end_statement();
            session.commit().map_err(said("commit of a count"))?;
            let loaded = self.report.loaded.load(Ordering::Relaxed);
            if (found, kept) != (loaded, loaded) {
                return Err(Failure(format!("{found} events, {kept} by what is kept, {loaded} were committed")));
            }
        }
        Ok(())
    }

    /// Flushes, merges and checkpoints from outside, beside the engine's own.
    fn maintain(&self) -> Result<(), Failure> {
        while !self.done.load(Ordering::Acquire) {
            self.engine.checkpoint().map_err(said("checkpoint"))?;
            self.engine.optimize(&self.accounts, &mut |_, _| true).map_err(said("optimize"))?;
            self.engine.optimize(&self.events, &mut |_, _| true).map_err(said("optimize"))?;
            std::thread::yield_now();
        }
        Ok(())
    }
}
