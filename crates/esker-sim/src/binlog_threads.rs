//! A server with a binlog, with real threads: clients prepare beside each other, go into the binlog, sync it for all who are in
//! it, and have their `commit_ordered` in its order; somebody rotates it and asks the engine what it needs, which answers from
//! a thread of its own, when it has time; flushes, merges and manifests go on. Then the power goes, or the process.
//!
//! Invariant of what is found: once the binlog has decided what was prepared, each client has the rows that the binlog holds,
//! in rows and entries. What the clients do follows from the seed, how they interleave does not.

use crate::cut::{self, def, insert, packed, said, scan_all, Numbers, TREES};
use crate::keys::{indexes, write_entries, Rewrite};
use crate::runner::alive;
use crate::sim::{sync_method, Failure, Sim, Stats};
use crate::time::Jumping;
use crate::Rng;
use esker::format::{Compression, RowId};
use esker::io::SimDisk;
use esker::{Background, BeginOptions, Engine, Error, Isolation, Machine, Session, Table};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

const CLIENTS: u32 = 4;
const TRANSACTIONS: u32 = 150;

/// A batch's rows and version, by client and batch; none: it is deleted.
type Change = ((u32, u32), Option<(u32, u32)>);

struct Entry {
    xid: Vec<u8>,
    changes: Vec<Change>,
}

/// The binlog: entries are never taken out, the first ones are forgotten.
#[derive(Default)]
struct Binlog {
    entries: Vec<Entry>,
    synced: usize,
    ordered: usize,
    forgotten: usize,
    /// The engine was asked for so many and has not answered.
    asked: Option<usize>,
    free: BTreeSet<Vec<u8>>,
    made: u64,
    /// What comes from here on comes too late.
    over: bool,
}

/// The folder and all who use it.
struct Server {
    engine: Engine,
    disk: SimDisk,
    table: Arc<Table>,
    binlog: Arc<Mutex<Binlog>>,
    /// Another `commit_ordered` is due.
    turn: Condvar,
    stop: AtomicBool,
    refused: AtomicU64,
}

fn locked(binlog: &Mutex<Binlog>) -> MutexGuard<'_, Binlog> {
    binlog.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Server {
    /// Is the error what a cut causes?
    fn is_over(&self, e: &Error) -> Result<(), Failure> {
        match e {
            Error::Io(_) | Error::DiskFull(_) | Error::Poisoned(_) if self.disk.is_power_cut() => Ok(()),
            e => Err(Failure(format!("a client met: {e} ({e:?})"))),
        }
    }

    fn new_xid(&self, rng: &mut Rng) -> Vec<u8> {
        let mut binlog = locked(&self.binlog);
        if rng.chance(30) {
            if let Some(xid) = binlog.free.pop_first() {
                return xid;
            }
        }
        binlog.made += 1;
        format!("threads-{}", binlog.made).into_bytes()
    }

    /// Into the binlog, synced with whoever is in it, and the decision when it is its turn.
    fn commit(&self, session: &mut Session, xid: Vec<u8>, changes: Vec<Change>, rng: &mut Rng) -> Result<(), Error> {
        let place = {
            let mut binlog = locked(&self.binlog);
            binlog.entries.push(Entry { xid, changes });
            binlog.entries.len() - 1
        };
        (0..rng.below(3)).for_each(|_| std::thread::yield_now());
        {
            let mut binlog = locked(&self.binlog);
            binlog.synced = binlog.entries.len();
            while binlog.ordered < place {
                binlog = self.turn.wait(binlog).unwrap_or_else(PoisonError::into_inner);
            }
        }
        // Nobody else's turn is it.
        session.commit_ordered();
        locked(&self.binlog).ordered += 1;
        self.turn.notify_all();
        session.commit()
    }

    /// Rotates the binlog again and again, and asks what of it the engine needs.
    fn rotate(&self, mut rng: Rng) {
        while !self.stop.load(Ordering::Acquire) {
            std::thread::sleep(std::time::Duration::from_micros(rng.below(3000)));
            let upto = {
                let mut binlog = locked(&self.binlog);
                if binlog.asked.is_some() || binlog.ordered == binlog.forgotten {
                    continue;
                }
                // All that is in the files before has its decision in memory.
                binlog.asked = Some(binlog.ordered);
                binlog.ordered
            };
            let (binlog, disk) = (self.binlog.clone(), self.disk.clone());
            self.engine.request_checkpoint(Box::new(move |answer| {
                let mut binlog = locked(&binlog);
                if binlog.over || answer.is_err() && disk.is_power_cut() {
                    return;
                }
                binlog.asked = None;
                let Binlog { entries, free, forgotten, .. } = &mut *binlog;
                free.extend(entries[*forgotten..upto].iter().map(|e| e.xid.clone()));
                *forgotten = upto;
            }));
        }
    }

    fn maintain(&self, mut rng: Rng) -> Result<(), Failure> {
        while !self.stop.load(Ordering::Acquire) {
            let done = match rng.below(8) {
                0..=2 => self.engine.sim_flush(&self.table),
                3..=4 => self.engine.sim_merge(&self.table).map(drop),
                _ => self.engine.sim_manifest(),
            };
            if let Err(e) = done {
                return self.is_over(&e);
            }
            std::thread::yield_now();
        }
        Ok(())
    }
}

struct Client<'a> {
    server: &'a Server,
    number: u32,
    rng: Rng,
    session: Session,
    /// Rows of its batches, with their version.
    mine: BTreeMap<u32, (Vec<RowId>, u32)>,
    next: u32,
}

impl Client<'_> {
    fn run(mut self) -> Result<u64, Failure> {
        let mut done = 0;
        for _ in 0..TRANSACTIONS {
            alive();
            if self.server.disk.is_power_cut() {
                break;
            }
            match self.transaction() {
                Ok(()) => done += 1,
                Err(e) => {
                    self.server.refused.fetch_add(1, Ordering::Relaxed);
                    self.server.is_over(&e)?;
                    break;
                }
            }
        }
        Ok(done)
    }

    fn transaction(&mut self) -> Result<(), Error> {
        self.session.begin(Isolation::ReadCommitted, BeginOptions::default());
        let (mut mine, mut changes) = (self.mine.clone(), Vec::new());
        for _ in 0..1 + self.rng.below(2) {
            self.session.begin_statement();
            self.step(&mut mine, &mut changes)?;
            self.session.end_statement();
        }
        if self.rng.chance(10) {
            return self.session.rollback();
        }
        let xid = self.server.new_xid(&mut self.rng);
        self.session.prepare(&xid)?;
        if self.rng.chance(8) {
            self.session.rollback()?;
            locked(&self.server.binlog).free.insert(xid);
            return Ok(());
        }
        self.mine = mine;
        self.server.commit(&mut self.session, xid, changes, &mut self.rng)
    }

    fn step(&mut self, mine: &mut BTreeMap<u32, (Vec<RowId>, u32)>, changes: &mut Vec<Change>) -> Result<(), Error> {
        let (table, number) = (&self.server.table, self.number);
        let known: Vec<u32> = mine.keys().copied().collect();
        if self.rng.chance(20) {
            let point = self.session.savepoint();
            for at in 0..1 + self.rng.below(60) as u32 {
                insert(&mut self.session, table, TREES, [number, u32::MAX, at, 0, 9])?;
            }
            self.session.rollback_to(&point);
        }
        if known.is_empty() || self.rng.chance(55) {
            let rows = if self.rng.chance(15) { 100 + self.rng.below(200) } else { 1 + self.rng.below(5) } as u32;
            let row = |at| [number, self.next, at, rows, 0];
            let ids = (0..rows).map(|at| insert(&mut self.session, table, TREES, row(at)));
            mine.insert(self.next, (ids.collect::<Result<_, _>>()?, 0));
            changes.push(((number, self.next), Some((rows, 0))));
            self.next += 1;
            return Ok(());
        }
        let batch = *self.rng.pick(&known);
        let (ids, version) = mine[&batch].clone();
        let (rows, deletes) = (ids.len() as u32, self.rng.chance(30));
        for (at, id) in (0..).zip(&ids) {
            let of = |version| packed([number, batch, at, rows, version]);
            let (old, new) = (of(version), (!deletes).then(|| of(version + 1)));
            match &new {
                Some(new) => self.session.update_row(table, *id, new)?,
                None => self.session.delete(table, *id)?,
            }
            let rewrite = Rewrite { id: id.0, old: Some(&old), new: new.as_deref(), unseen: None };
            write_entries(&mut self.session, table, TREES, rewrite)?;
        }
        match deletes {
            true => drop(mine.remove(&batch)),
            false => drop(mine.insert(batch, (ids, version + 1))),
        }
        changes.push(((number, batch), (!deletes).then_some((rows, version + 1))));
        Ok(())
    }
}

/// One folder, one cut. Ignores the simulation in its second argument: there is none.
pub fn binlog_threads_seed(seed: u64, _: &mut Option<Sim>) -> Result<Stats, Failure> {
    one_cut(seed, false)
}

/// The same, with a disk that lies about syncs, which some seeds must find out.
pub fn canary_seed(seed: u64, _: &mut Option<Sim>) -> Result<Stats, Failure> {
    one_cut(seed, true)
}

fn one_cut(seed: u64, lies: bool) -> Result<Stats, Failure> {
    let mut chance = Rng::new(seed ^ 0xB1_7EAD);
    let disk = SimDisk::new(seed);
    let engine =
        cut::open(&disk, Background::Threads, Arc::<Jumping>::default(), Arc::new(|_, _| {}), sync_method(seed));
    let engine = engine.map_err(said("open"))?;
    let made = engine.sim_create_table("d/rows", &def(Compression::Lz4), &indexes(TREES));
    let table = made.and_then(|()| engine.open_table("d/rows")).map_err(said("create"))?;
    let binlog = Arc::<Mutex<Binlog>>::default();
    let (turn, stop, refused) = (Condvar::new(), AtomicBool::new(false), AtomicU64::new(0));
    let server = Server { engine, disk, table, binlog, turn, stop, refused };
    server.disk.lie_about_sync(lies);
    server.disk.power_cut_at(server.disk.op_count() + 60 + chance.below(if lies { 300 } else { 1500 }));
    let commits = clients(&server, seed)?;
    server.disk.cut_power();
    let killed = chance.chance(40) && !lies;
    let mut binlog = std::mem::replace(&mut *locked(&server.binlog), Binlog { over: true, ..Binlog::default() });
    let mut stats = Stats { commits, crashes: 1, ..Stats::default() };
    stats.two_phase.saw("entries_forgotten", binlog.forgotten);
    stats.two_phase.saw(if killed { "killed_asked" } else { "cut_asked" }, usize::from(binlog.asked.is_some()));
    let after = match killed {
        true => server.disk.after_kill(),
        false => {
            let lost = chance.index(binlog.entries.len() - binlog.synced + 1);
            stats.two_phase.saw("entries_lost", lost);
            binlog.entries.truncate(binlog.entries.len() - lost);
            server.disk.after_power_cut(chance.number())
        }
    };
    let _ = server.engine.close();
    drop(server);
    check(&after, &binlog, &mut stats).map_err(|f| Failure(format!("killed {killed}: {}", f.0)))?;
    Ok(stats)
}

/// Runs everything until the clients are done or cut off; how much they have committed.
fn clients(server: &Server, seed: u64) -> Result<u64, Failure> {
    std::thread::scope(|scope| {
        let maintains = scope.spawn(|| server.maintain(Rng::new(seed ^ 0x77)));
        let rotates = scope.spawn(|| server.rotate(Rng::new(seed ^ 0x99)));
        let begin = |number: u32| {
            let (session, rng) = (server.engine.session(), Rng::new(seed ^ u64::from(number) << 40));
            let client = Client { server, number, rng, session, mine: BTreeMap::new(), next: 1 };
            scope.spawn(move || client.run())
        };
        let clients: Vec<_> = (1..=CLIENTS).map(begin).collect();
        let panicked = |_| Err(Failure::new("a thread panicked"));
        let done: Vec<_> = clients.into_iter().map(|c| c.join().unwrap_or_else(panicked)).collect();
        server.stop.store(true, Ordering::Release);
        maintains.join().unwrap_or_else(|_| Err(Failure::new("a thread panicked")))?;
        rotates.join().map_err(|_| Failure::new("a thread panicked"))?;
        done.into_iter().sum()
    })
}

/// Opens what is left, decides by the binlog, and compares.
fn check(disk: &SimDisk, binlog: &Binlog, stats: &mut Stats) -> Result<(), Failure> {
    let engine =
        cut::open(disk, Background::Inline, Arc::new(Machine), Arc::new(|_, _| {}), None).map_err(said("open"))?;
    for xid in engine.prepared() {
        let place = binlog.entries.iter().rposition(|e| e.xid == xid).filter(|place| *place >= binlog.forgotten);
        let name = String::from_utf8_lossy(&xid).into_owned();
        if place.is_none() && binlog.free.contains(&xid) {
            return Err(Failure(format!("{name} is prepared: nobody knows any more how its transaction has ended")));
        }
        let found = match place {
            Some(_) => engine.commit_xid(&xid),
            None => engine.rollback_xid(&xid),
        };
        if !found.map_err(said("decide"))? {
            return Err(Failure(format!("{name} was prepared, and then it was not")));
        }
        stats.two_phase.saw(if place.is_some() { "found_committed" } else { "found_rolled_back" }, 1);
    }
    let table = engine.open_table("d/rows").map_err(said("open table"))?;
    let report = engine.check(&table, &mut |_, _| true).map_err(said("check"))?;
    if !report.damages.is_empty() {
        return Err(Failure(format!("damaged: {:?}", report.damages)));
    }
    let rows = scan_all(&mut engine.session(), &table, TREES).map_err(said("scan"))?;
    let mut want = BTreeMap::new();
    for ((client, batch), change) in binlog.entries.iter().flat_map(|e| &e.changes) {
        match change {
            Some(now) => drop(want.insert((*client, *batch), *now)),
            None => drop(want.remove(&(*client, *batch))),
        }
    }
    let rows_of = |(&(client, batch), &(rows, version)): (&(u32, u32), &(u32, u32))| {
        (0..rows).map(move |at| [client, batch, at, rows, version])
    };
    let want: BTreeSet<Numbers> = want.iter().flat_map(rows_of).collect();
    let have: BTreeSet<Numbers> = rows.iter().copied().collect();
    if have != want || rows.len() != want.len() {
        let (lost, extra): (Vec<_>, Vec<_>) =
            (want.difference(&have).take(4).collect(), have.difference(&want).take(4).collect());
        return Err(Failure(format!("the engine lacks {lost:?} of the binlog, and has {extra:?} beside it")));
    }
    engine.close().map_err(said("close"))
}
