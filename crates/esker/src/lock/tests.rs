use super::*;
use crate::tests::support::until;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::thread;

const TREE: TreeId = TreeId(7);
/// Longer than any wait here takes; a circle that is not found ends a test then.
const LONG: WaitPolicy = WaitPolicy { timeout: Duration::from_secs(20), nowait: false };
const NOWAIT: WaitPolicy = WaitPolicy { timeout: Duration::from_secs(600), nowait: true };
const SHORT: WaitPolicy = WaitPolicy { timeout: Duration::from_millis(1), nowait: false };
use LockMode::{Exclusive, Shared};
use LockOutcome::{AlreadyHeld, Granted};

struct Session<'a> {
    table: &'a LockTable,
    owner: Arc<LockOwner>,
    parker: Arc<Parker>,
}

impl<'a> Session<'a> {
    fn new(table: &'a LockTable, txn: u64) -> Self {
        Session { table, owner: LockOwner::new(TxnId(txn)), parker: Parker::new() }
    }
    fn lock(&self, row: u64, mode: LockMode, policy: WaitPolicy) -> Result<LockOutcome, LockError> {
        self.table.lock(&self.owner, &self.parker, TREE, RowId(row), mode, policy, &NoHooks)
    }
    fn range(&self, up_to: u64, policy: WaitPolicy) -> Result<LockOutcome, LockError> {
        self.table.lock_range(&self.owner, &self.parker, TREE, RowId(up_to), policy, &NoHooks)
    }
    fn holds(&self, row: u64, mode: LockMode) -> bool {
        self.table.holds(&self.owner, TREE, RowId(row), mode)
    }
    fn unlock(&self, row: u64) {
        self.table.unlock_row(&self.owner, TREE, RowId(row));
    }
    fn end(&self) {
        self.table.release_all(&self.owner);
    }
}

fn empty(table: &LockTable) {
    assert_eq!(table.stats(), LockStats::default());
    assert!(table.shards.iter().all(|s| s.lock().charge.bytes() == 0));
}

#[test]
fn modes_exclude_as_they_should() {
    let table = LockTable::new(Arc::new(crate::Machine));
    let (a, b) = (Session::new(&table, 1), Session::new(&table, 2));
    assert_eq!(a.lock(5, Shared, NOWAIT), Ok(Granted));
    assert_eq!(a.lock(5, Shared, NOWAIT), Ok(AlreadyHeld));
    assert_eq!(b.lock(5, Shared, NOWAIT), Ok(Granted));
    assert_eq!(a.lock(5, Exclusive, NOWAIT), Err(LockError::WouldBlock));
    assert_eq!(a.lock(5, Exclusive, SHORT), Err(LockError::Timeout));
    b.unlock(5);
    assert_eq!(a.lock(5, Exclusive, NOWAIT), Ok(Granted));
    assert_eq!(a.lock(5, Shared, NOWAIT), Ok(AlreadyHeld));
    assert_eq!(a.lock(5, Exclusive, NOWAIT), Ok(AlreadyHeld));
    assert!(a.holds(5, Exclusive) && a.holds(5, Shared) && !b.holds(5, Shared));
    assert_eq!(a.owner.locked_rows(), 1);
    assert_eq!(b.lock(5, Shared, NOWAIT), Err(LockError::WouldBlock));
    assert_eq!(b.lock(6, Exclusive, NOWAIT), Ok(Granted));
    let zero = WaitPolicy { timeout: Duration::ZERO, nowait: false };
    assert_eq!(a.lock(6, Shared, zero), Err(LockError::WouldBlock));
    a.end();
    assert_eq!(b.lock(5, Exclusive, NOWAIT), Ok(Granted));
    b.end();
    empty(&table);
}

#[test]
fn ten_million_rows_take_little() {
    let table = LockTable::new(Arc::new(crate::Machine));
    let a = Session::new(&table, 1);
    for row in 0..10_000_000 {
        assert_eq!(a.lock(row, Exclusive, NOWAIT), Ok(Granted));
    }
    let stats = table.stats();
    assert_eq!((stats.rows, a.owner.locked_rows()), (10_000_000, 10_000_000));
    assert_eq!(stats.containers, 153);
    assert_eq!(a.owner.held.lock().containers.len(), 153);
    assert!(stats.size_bytes < 1_500_000, "{stats:?}");
    a.end();
    empty(&table);
}

#[test]
fn ranges_and_rows_exclude_each_other() {
    let table = LockTable::new(Arc::new(crate::Machine));
    let (a, b) = (Session::new(&table, 1), Session::new(&table, 2));
    assert_eq!(b.lock(70_000, Shared, NOWAIT), Ok(Granted));
    assert_eq!(a.range(70_001, NOWAIT), Err(LockError::WouldBlock));
    assert_eq!(table.stats().ranges, 0);
    assert!(a.owner.held.lock().ranges.is_empty());
    assert_eq!(b.lock(1, Exclusive, NOWAIT), Ok(Granted));
    b.unlock(1);
    assert_eq!(a.range(70_000, NOWAIT), Ok(Granted));
    assert_eq!(a.range(69_000, NOWAIT), Ok(AlreadyHeld));
    assert_eq!(a.range(70_001, SHORT), Err(LockError::Timeout));
    assert_eq!(b.lock(69_999, Shared, NOWAIT), Err(LockError::WouldBlock));
    assert_eq!(b.lock(70_001, Exclusive, NOWAIT), Ok(Granted));
    assert_eq!(b.range(1, NOWAIT), Err(LockError::WouldBlock));
    assert_eq!(a.lock(3, Exclusive, NOWAIT), Ok(AlreadyHeld));
    assert!(a.holds(3, Exclusive) && !a.holds(70_000, Shared));
    assert_eq!(b.table.lock(&b.owner, &b.parker, TreeId(8), RowId(3), Exclusive, NOWAIT, &NoHooks), Ok(Granted));
    a.end();
    assert_eq!(b.lock(3, Exclusive, NOWAIT), Ok(Granted));
    b.end();
    empty(&table);
}

#[test]
fn kill_wakes_and_sticks_until_cleared() {
    let table = LockTable::new(Arc::new(crate::Machine));
    let (a, b) = (Session::new(&table, 1), Session::new(&table, 2));
    a.lock(1, Exclusive, NOWAIT).unwrap();
    thread::scope(|s| {
        let waiter = s.spawn(|| b.lock(1, Shared, LONG));
        until(|| table.stats().waiting == 1);
        b.parker.kill();
        assert_eq!(waiter.join().unwrap(), Err(LockError::Interrupted));
    });
    assert_eq!(b.lock(1, Shared, LONG), Err(LockError::Interrupted));
    b.parker.clear_kill();
    assert_eq!(b.lock(1, Shared, SHORT), Err(LockError::Timeout));
    a.end();
    b.end();
    empty(&table);
}

#[test]
fn circles_have_one_victim() {
    let table = LockTable::new(Arc::new(crate::Machine));
    for n in 2..6u64 {
        let sessions: Vec<_> = (0..n).map(|i| Session::new(&table, i + 1)).collect();
        for (i, session) in sessions.iter().enumerate() {
            session.lock(i as u64 * 100_000, Exclusive, NOWAIT).unwrap();
        }
        let victims = AtomicU64::new(0);
        thread::scope(|s| {
            for (i, session) in sessions.iter().enumerate() {
                let victims = &victims;
                s.spawn(move || {
                    match session.lock((i as u64 + 1) % n * 100_000, Exclusive, LONG) {
                        Ok(outcome) => assert_eq!(outcome, Granted),
                        Err(e) => {
                            assert_eq!(e, LockError::Deadlock);
                            victims.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                    session.end();
                });
            }
        });
        assert_eq!(victims.into_inner(), 1);
        empty(&table);
    }
}

#[test]
fn two_upgrades_are_a_circle() {
    let table = LockTable::new(Arc::new(crate::Machine));
    let (a, b) = (Session::new(&table, 1), Session::new(&table, 2));
    a.lock(1, Shared, NOWAIT).unwrap();
    b.lock(1, Shared, NOWAIT).unwrap();
    thread::scope(|s| {
        let first = s.spawn(|| a.lock(1, Exclusive, LONG));
        until(|| table.stats().waiting == 1);
        assert_eq!(b.lock(1, Exclusive, LONG), Err(LockError::Deadlock));
        b.end();
        assert_eq!(first.join().unwrap(), Ok(Granted));
    });
    a.end();
    empty(&table);
}

#[test]
fn hooks_come_in_pairs_and_name_the_holder() {
    #[derive(Default)]
    struct Seen(AtomicUsize, AtomicUsize, AtomicU64);
    impl WaitHooks for Seen {
        fn before_wait(&self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
        fn after_wait(&self) {
            self.1.fetch_add(1, Ordering::SeqCst);
        }
        fn waits_for(&self, txn: TxnId) {
            self.2.fetch_or(1 << txn.0, Ordering::SeqCst);
        }
        fn reports(&self) -> bool {
            true
        }
    }
    let table = LockTable::new(Arc::new(crate::Machine));
    let (a, b, c) = (Session::new(&table, 1), Session::new(&table, 2), Session::new(&table, 3));
    a.lock(1, Exclusive, NOWAIT).unwrap();
    let seen = Seen::default();
    thread::scope(|s| {
        s.spawn(|| b.lock(1, Exclusive, LONG));
        until(|| table.stats().waiting == 1);
        let waiter = s.spawn(|| table.lock(&c.owner, &c.parker, TREE, RowId(1), Exclusive, LONG, &seen));
        until(|| table.stats().waiting == 2);
        a.end();
        // b has it now or gets it after c; c is told when it waits for b.
        until(|| b.holds(1, Exclusive) || c.holds(1, Exclusive));
        if b.holds(1, Exclusive) {
            until(|| seen.2.load(Ordering::SeqCst) == 0b110);
            b.end();
        }
        assert_eq!(waiter.join().unwrap(), Ok(Granted));
        c.end();
    });
    b.end();
    assert_eq!((seen.0.into_inner(), seen.1.into_inner()), (1, 1));
    empty(&table);
}

/// One release wakes one of those who want the same row; each gets its turn, none is forgotten.
#[test]
fn a_hot_row_is_handed_on() {
    let table = LockTable::new(Arc::new(crate::Machine));
    let first = Session::new(&table, 1);
    first.lock(1, Exclusive, NOWAIT).unwrap();
    let inside = AtomicUsize::new(0);
    thread::scope(|s| {
        for t in 0..8 {
            let (table, inside) = (&table, &inside);
            s.spawn(move || {
                for i in 0..300 {
                    let session = Session::new(table, 1000 + t * 1000 + i);
                    assert_eq!(session.lock(1, Exclusive, LONG), Ok(Granted));
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                    inside.fetch_sub(1, Ordering::SeqCst);
                    session.end();
                }
            });
        }
        until(|| table.stats().waiting == 8);
        first.end();
    });
    empty(&table);
}

/// Everything at once: rows shared and exclusive, upgrades, ranges, unlocks, timeouts, kills. Nothing hangs, nothing
/// that excludes overlaps, nothing is left.
#[test]
fn storm() {
    let table = LockTable::new(Arc::new(crate::Machine));
    let rows: Vec<AtomicU64> = (0..6).map(|_| AtomicU64::new(0)).collect();
    let ended = AtomicUsize::new(0);
    thread::scope(|s| {
        for t in 0..6u64 {
            let (table, rows, ended) = (&table, &rows, &ended);
            s.spawn(move || {
                let mut seed = t + 1;
                let mut random = |n: u64| {
                    seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                    (seed >> 33) % n
                };
                for i in 0..2000 {
                    let session = Session::new(table, 1 + t + i * 6);
                    // Rows of one and of several containers.
                    let place = |row: u64| row * 40_000;
                    let mut exclusive = vec![];
                    for _ in 0..3 {
                        let row = random(rows.len() as u64);
                        let policy = if random(10) == 0 { SHORT } else { LONG };
                        let outcome = match random(12) {
                            0 => session.range(place(6), policy),
                            1..=5 => session.lock(place(row), Shared, policy),
                            _ => session.lock(place(row), Exclusive, policy),
                        };
                        match outcome {
                            Ok(_) => {}
                            Err(LockError::Deadlock) => break,
                            Err(LockError::Timeout) if policy.timeout == SHORT.timeout => break,
                            Err(e) => panic!("{e:?}"),
                        }
                        for (r, word) in rows.iter().enumerate() {
                            if !exclusive.contains(&r) && session.holds(place(r as u64), Exclusive) {
                                exclusive.push(r);
                                assert_eq!(word.swap(session.owner.txn.0, Ordering::SeqCst), 0);
                            }
                        }
                        if random(4) == 0 && session.owner.held.lock().ranges.is_empty() {
                            exclusive.retain(|r| *r as u64 != row || rows[*r].swap(0, Ordering::SeqCst) == 0);
                            session.unlock(place(row));
                        }
                    }
                    for r in exclusive {
                        assert_eq!(rows[r].swap(0, Ordering::SeqCst), session.owner.txn.0);
                    }
                    session.end();
                    table.waits.graph.lock().check();
                    ended.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(ended.into_inner(), 12_000);
    empty(&table);
}
