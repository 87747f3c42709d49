use super::*;
use crate::tests::support::until;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::thread;

const TREE: TreeId = TreeId(7);
/// Longer than any wait here takes; a circle that is not found ends a test then.
const LONG: WaitPolicy = WaitPolicy { timeout: Duration::from_secs(20), nowait: false };
/// Of a victim: who waits for what it has gives up before, if it is not told.
const LONGER: WaitPolicy = WaitPolicy { timeout: Duration::from_secs(60), nowait: false };
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
    /// Locks rows of its own, and tells of so many changes.
    fn works(&self, rows: u64, changes: u64) {
        let own = 1_000_000 * self.owner.txn.0;
        (own..own + rows).for_each(|row| assert_eq!(self.lock(row, Exclusive, NOWAIT), Ok(Granted)));
        self.owner.activity.set_changes(changes);
    }
    /// Waits for a row; refused, it is rolled back.
    fn lock_or_go(&self, row: u64, policy: WaitPolicy) -> Result<LockOutcome, LockError> {
        let outcome = self.lock(row, Exclusive, policy);
        if outcome.is_err() {
            self.end();
        }
        outcome
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

/// What the front end says when a wait would begin counts, not what was set before; but who does not wait by himself does not.
#[test]
fn the_front_end_says_how_long_a_wait_may_take() {
    struct Longest(Duration);
    impl WaitHooks for Longest {
        fn longest_wait(&self) -> Option<Duration> {
            Some(self.0)
        }
    }
    let table = LockTable::new(Arc::new(crate::Machine));
    let (a, b) = (Session::new(&table, 1), Session::new(&table, 2));
    assert_eq!(a.lock(5, Exclusive, NOWAIT), Ok(Granted));
    let lock = |policy, longest| table.lock(&b.owner, &b.parker, TREE, RowId(5), Exclusive, policy, &Longest(longest));
    assert_eq!(lock(LONG, Duration::ZERO), Err(LockError::WouldBlock));
    assert_eq!(lock(LONG, SHORT.timeout), Err(LockError::Timeout));
    assert_eq!(lock(NOWAIT, LONG.timeout), Err(LockError::WouldBlock));
    a.end();
    assert_eq!(lock(LONG, Duration::ZERO), Ok(Granted));
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
fn who_has_done_least_is_the_victim() {
    // Rows locked besides and changes of who waits, and of who then closes the circle; is it who waits?
    let cases = [
        ((0, 0), (1, 0), true),
        ((0, 0), (0, 1), true),
        ((1, 1), (0, 3), true),
        ((1, 1), (1, 1), false),
        ((2, 0), (0, 2), false),
        ((1, 0), (0, 0), false),
        ((0, 1), (0, 0), false),
    ];
    for (waits, closes, refused) in cases {
        let table = LockTable::new(Arc::new(crate::Machine));
        let (a, b) = (Session::new(&table, 1), Session::new(&table, 2));
        for (s, own, (rows, changes)) in [(&a, 1, waits), (&b, 2, closes)] {
            s.lock(own, Exclusive, NOWAIT).unwrap();
            s.works(rows, changes);
        }
        let outcomes = thread::scope(|s| {
            let waiter = s.spawn(|| a.lock_or_go(2, LONGER));
            until(|| table.stats().waiting == 1);
            let closed = b.lock_or_go(1, LONG);
            (waiter.join().unwrap(), closed)
        });
        let (gets, goes) = (Ok(Granted), Err(LockError::Deadlock));
        assert_eq!(outcomes, if refused { (goes, gets) } else { (gets, goes) }, "{waits:?} {closes:?}");
        let circle = table.closed_by(if refused { a.owner.txn } else { b.owner.txn });
        let told: Vec<_> = circle.iter().map(|w| (w.txn.0, w.key, w.blockers[0].0)).collect();
        let row = |row| WaitKey::Row(TREE, RowId(row));
        let mut expected = vec![(1, row(2), 2), (2, row(1), 1)];
        expected.rotate_left(usize::from(!refused));
        assert_eq!(told, expected);
        a.end();
        b.end();
        empty(&table);
    }
}

/// Each is counted once, whatever else ends its wait at that moment, and waits as anybody does if it goes on.
#[test]
fn a_victim_keeps_its_locks_until_it_ends_and_waits_again() {
    for killed in [false, true] {
        let table = LockTable::new(Arc::new(crate::Machine));
        let (a, b, c) = (Session::new(&table, 1), Session::new(&table, 2), Session::new(&table, 3));
        for (s, own) in [(&a, 1), (&b, 2), (&c, 3)] {
            s.lock(own, Exclusive, NOWAIT).unwrap();
        }
        b.works(1, 0);
        thread::scope(|s| {
            let victim = s.spawn(|| {
                let counts = esker_base::SessionCounters::new();
                let _bound = esker_base::counters::bind(&counts);
                if killed {
                    // When it looks for the second time: once it is refused.
                    a.parker.kill_after(1);
                }
                assert_eq!(a.lock(2, Exclusive, LONGER), Err(LockError::Deadlock));
                a.parker.clear_kill();
                assert_eq!(a.lock(3, Exclusive, SHORT), Err(LockError::Timeout));
                assert_eq!((counts.get(Counter::Deadlocks), counts.get(Counter::LockTimeouts)), (1, 1));
                assert!(a.holds(1, Exclusive) && !b.holds(1, Exclusive));
                assert_eq!(table.stats().waiting, 1);
                a.end();
            });
            until(|| table.stats().waiting == 1);
            assert_eq!(b.lock(1, Exclusive, LONG), Ok(Granted));
            victim.join().unwrap();
        });
        b.end();
        c.end();
        empty(&table);
    }
}

#[test]
fn two_circles_closed_at_once_have_a_victim_each() {
    let table = LockTable::new(Arc::new(crate::Machine));
    let sessions = [1, 2, 3].map(|txn| Session::new(&table, txn));
    let [a, b, c] = &sessions;
    for s in [a, b] {
        s.lock(3, Shared, NOWAIT).unwrap();
    }
    for row in [1, 2] {
        c.lock(row, Exclusive, NOWAIT).unwrap();
    }
    thread::scope(|s| {
        let victims = [(a, 1), (b, 2)].map(|(victim, row)| s.spawn(move || victim.lock_or_go(row, LONGER)));
        until(|| table.stats().waiting == 2);
        assert_eq!(c.lock(3, Exclusive, LONG), Ok(Granted));
        for victim in victims {
            assert_eq!(victim.join().unwrap(), Err(LockError::Deadlock));
        }
    });
    c.end();
    empty(&table);
}

/// Who waits for a transaction's end, or for what it may undo, can be the victim too; and so can a range.
#[test]
fn whatever_is_waited_for_can_be_refused() {
    for what in 0..3 {
        let table = LockTable::new(Arc::new(crate::Machine));
        let (a, b) = (Session::new(&table, 1), Session::new(&table, 2));
        a.lock(1, Exclusive, NOWAIT).unwrap();
        b.lock(2, Exclusive, NOWAIT).unwrap();
        b.works(1, 0);
        b.owner.inserts_into(TREE, RowId(9));
        let entry = (TREE, RowId(2));
        let wait = || match what {
            0 => table.wait_for_end(&a.owner, &a.parker, &b.owner, TREE, LONGER, &NoHooks),
            1 => table.wait_for_change(&a.owner, &a.parker, &b.owner, entry, LONGER, &NoHooks, || true),
            _ => a.range(3, LONGER).map(|_| ()),
        };
        thread::scope(|s| {
            let victim = s.spawn(|| {
                let outcome = wait();
                a.end();
                outcome
            });
            until(|| table.stats().waiting == 1);
            assert_eq!(b.lock(1, Exclusive, LONG), Ok(Granted), "{what}");
            assert_eq!(victim.join().unwrap(), Err(LockError::Deadlock), "{what}");
        });
        b.end();
        empty(&table);
    }
}

#[test]
fn who_waits_for_a_victims_row_gets_it() {
    let table = LockTable::new(Arc::new(crate::Machine));
    let sessions = [1, 2, 3].map(|txn| Session::new(&table, txn));
    let [victim, closes, after] = &sessions;
    for s in [victim, closes] {
        s.lock(1, Shared, NOWAIT).unwrap();
    }
    victim.lock(2, Exclusive, NOWAIT).unwrap();
    closes.works(2, 0);
    thread::scope(|s| {
        let refused = s.spawn(|| victim.lock_or_go(1, LONGER));
        until(|| table.stats().waiting == 1);
        let last = s.spawn(|| after.lock(1, Exclusive, LONGER));
        until(|| table.stats().waiting == 2);
        assert_eq!(closes.lock(2, Exclusive, LONG), Ok(Granted));
        assert_eq!(refused.join().unwrap(), Err(LockError::Deadlock));
        closes.end();
        assert_eq!(last.join().unwrap(), Ok(Granted));
        after.end();
    });
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

/// Sets of rows that a restart has found are locked as if one by one: but for those of others, and of ranges.
#[test]
fn restored_locks_are_locks() {
    let table = LockTable::new(Arc::new(crate::Machine));
    let (a, b, c) = (Session::new(&table, 1), Session::new(&table, 2), Session::new(&table, 3));
    let restore = |s: &Session<'_>, high, rows: &[std::ops::RangeInclusive<u16>], mode| {
        table.restore(&s.owner, TREE, high, rows.iter().cloned(), mode);
    };
    let all = 0..=u16::MAX;
    assert_eq!(b.lock(70_000, Shared, NOWAIT), Ok(Granted));
    assert_eq!(b.lock(70_001, Exclusive, NOWAIT), Ok(Granted));
    restore(&a, 1, std::slice::from_ref(&all), Exclusive);
    assert_eq!(a.owner.locked_rows(), 65_534);
    assert!(a.holds(65_536, Exclusive) && a.holds(131_071, Exclusive) && !a.holds(131_072, Shared));
    assert!(!a.holds(70_000, Shared) && !a.holds(70_001, Shared));
    assert_eq!(c.lock(69_999, Shared, NOWAIT), Err(LockError::WouldBlock));
    // Those that it has already are no more.
    restore(&a, 1, &[5..=9, 100..=30_000], Exclusive);
    restore(&a, 1, &[5..=9], Shared);
    assert_eq!(a.owner.locked_rows(), 65_534);
    // Shared beside shared, not beside exclusive, and no upgrade of its own.
    restore(&c, 1, &[4463..=4465], Shared);
    assert_eq!((c.owner.locked_rows(), c.holds(70_000, Shared)), (1, true));
    // Of a tree with ranges only what lies behind them all.
    assert_eq!(b.range(200_000, SHORT), Err(LockError::Timeout));
    a.end();
    b.end();
    c.end();
    assert_eq!(b.range(200_000, NOWAIT), Ok(Granted));
    restore(&a, 2, &[all], Exclusive);
    restore(&a, 3, &[10..=20, 3000..=5000], Exclusive);
    assert_eq!(a.owner.locked_rows(), 5000 - 3392 + 1);
    assert!(!a.holds(199_999, Shared) && a.holds(200_000, Exclusive));
    a.end();
    b.end();
    empty(&table);
}
