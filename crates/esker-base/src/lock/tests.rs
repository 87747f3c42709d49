use super::*;
use std::sync::Arc;

/// Profiling is process-wide: tests that switch it or depend on it take turns.
static TURN: parking_lot::Mutex<()> = parking_lot::Mutex::new(());

fn figures(name: &str) -> SiteReport {
    report().into_iter().find(|site| site.name == name).unwrap()
}

#[test]
fn who_has_to_wait_for_a_lock_is_told_so() {
    let _turn = TURN.lock();
    // No other test of this process waits for it.
    let event = crate::wait::WaitEvent::Definition;
    let lock = Mutex::new(&order::CATALOG_SHOWN, 0);
    *lock.lock_told(event) += 1;
    assert_eq!(crate::wait::snapshot(event).count, 0);
    let contended = || figures(order::CATALOG_SHOWN.name()).contended;
    let (guard, before) = (lock.lock(), contended());
    std::thread::scope(|scope| {
        scope.spawn(|| *lock.lock_told(event) += 1);
        while contended() == before {
            std::thread::yield_now();
        }
        drop(guard);
    });
    assert_eq!((*lock.lock(), crate::wait::snapshot(event).count), (2, 1));
}

#[test]
fn contention_is_counted_without_profiling() {
    let _turn = TURN.lock();
    let lock = Mutex::new(&order::LAB, 0);
    let guard = lock.lock();
    assert!(lock.try_lock().is_none());
    std::thread::scope(|scope| {
        scope.spawn(|| *lock.lock() += 1);
        while figures(order::LAB.name()).contended < 2 {
            std::thread::yield_now();
        }
        drop(guard);
    });
    assert_eq!(*lock.lock(), 1);
    let figures = figures(order::LAB.name());
    assert_eq!((figures.contended, figures.acquired, figures.hold.count), (2, 0, 0));
}

#[test]
fn profile_times_wait_hold_and_unlock() {
    let _turn = TURN.lock();
    let lock = Arc::new(RwLock::new(&order::LOCK_SHARD, ()));
    profile(true);
    drop(lock.read());
    let guard = lock.write();
    let thread = std::thread::spawn({
        let lock = lock.clone();
        move || drop(lock.read())
    });
    while figures(order::LOCK_SHARD.name()).contended < 1 {
        std::thread::yield_now();
    }
    drop(guard);
    thread.join().unwrap();
    profile(false);
    drop(lock.write());
    let figures = figures(order::LOCK_SHARD.name());
    assert_eq!((figures.contended, figures.acquired), (1, 3));
    assert_eq!((figures.wait.count, figures.hold.count, figures.unlock.count), (1, 3, 3));
}

#[test]
fn locks_of_one_name_share_a_site() {
    let _turn = TURN.lock();
    let locks = [Mutex::new(&order::COMMIT, ()), Mutex::new(&order::COMMIT, ())];
    for lock in &locks {
        let _guard = lock.lock();
        assert!(lock.try_lock().is_none());
    }
    assert_eq!(figures(order::COMMIT.name()).contended, 2);
    assert_eq!(report().iter().filter(|site| site.name == order::COMMIT.name()).count(), 1);
}

#[test]
fn condvar_times_out_and_wakes() {
    let _turn = TURN.lock();
    let lock = Mutex::new(&order::PREPARED, false);
    let condvar = Condvar::new();
    let mut guard = lock.lock();
    assert!(condvar.wait_for(&mut guard, Duration::from_millis(1)));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            *lock.lock() = true;
            condvar.notify_all();
        });
        while !*guard {
            condvar.wait(&mut guard);
        }
    });
    assert!(*guard);
}

#[test]
fn readers_share_and_try_tells() {
    let _turn = TURN.lock();
    let lock = RwLock::new(&order::TREE_STATE, 5);
    let (a, b) = (lock.read(), lock.try_read().unwrap());
    assert_eq!((*a, *b), (5, 5));
    assert!(lock.try_write().is_none());
    drop((a, b));
    *lock.try_write().unwrap() = 6;
    assert_eq!(lock.into_inner(), 6);
}

/// Holds a lock until another thread is seen to wait for it.
#[inline(never)]
fn hold_until_waited_for(lock: &Mutex<u32>, begun: &std::sync::Barrier, before: u64) {
    let guard = lock.lock();
    begun.wait();
    while figures(order::VIEWS_SLOTS.name()).wait.count + figures(order::VIEWS_SLOTS.name()).contended <= before {
        std::thread::yield_now();
    }
    // The waiter has been counted; give it the time to record its stack and to leave its mark.
    while stacks(order::VIEWS_SLOTS.name()).stacks.is_empty() && EXPECTED.load(Ordering::Relaxed) {
        std::thread::yield_now();
    }
    drop(guard);
}

#[inline(never)]
fn wait_for_it(lock: &Mutex<u32>) {
    *lock.lock() += 1;
}

/// Are samples to be waited for?
static EXPECTED: AtomicBool = AtomicBool::new(false);

fn contend(lock: &Mutex<u32>) {
    let begun = std::sync::Barrier::new(2);
    let before = figures(order::VIEWS_SLOTS.name()).wait.count + figures(order::VIEWS_SLOTS.name()).contended;
    std::thread::scope(|scope| {
        scope.spawn(|| hold_until_waited_for(lock, &begun, before));
        scope.spawn(|| {
            begun.wait();
            wait_for_it(lock);
        });
    });
}

#[test]
fn stacks_of_waiter_and_holder_are_sampled_when_asked_for() {
    let _turn = TURN.lock();
    let lock = Mutex::new(&order::VIEWS_SLOTS, 0);
    // Without profiling nothing is sampled, and without sampling neither.
    sample_stacks(1);
    contend(&lock);
    sample_stacks(0);
    profile(true);
    contend(&lock);
    assert_eq!(stacks(order::VIEWS_SLOTS.name()), Stacks::default());
    sample_stacks(1);
    EXPECTED.store(true, Ordering::Relaxed);
    contend(&lock);
    profile(false);
    sample_stacks(0);
    let found = stacks(order::VIEWS_SLOTS.name()).stacks;
    let of = |role: Role| found.iter().filter(|s| s.role == role).collect::<Vec<_>>();
    let ([waiter], [holder]) = (&of(Role::Waiter)[..], &of(Role::Holder)[..]) else { panic!("{found:?}") };
    assert!((waiter.count, holder.count) == (1, 1), "{found:?}");
    assert!(waiter.frames[0].ends_with("wait_for_it"), "{waiter:?}");
    assert!(holder.frames.iter().any(|f| f.ends_with("hold_until_waited_for")), "{holder:?}");
    assert_eq!(stacks("test.no-such-site"), Stacks::default());
}

/// Takes the lock and lets go of it; what the panic says if it is against the order.
#[cfg(debug_assertions)]
fn refused<G>(take: impl FnOnce() -> G) -> Option<String> {
    let taken = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(take())));
    taken.err().map(|e| *e.downcast::<String>().unwrap())
}

#[cfg(debug_assertions)]
#[test]
fn a_wrong_order_is_found_though_nobody_waits() {
    let catalog = Mutex::new(&order::CATALOG, 0);
    let state = RwLock::new(&order::TREE_STATE, 0);
    let tail = Mutex::new(&order::WAL_TAIL, 0);
    let above = catalog.lock();
    assert_eq!(refused(|| (state.read(), tail.lock())), None);
    drop(above);
    let below = tail.lock();
    let why = refused(|| state.write()).unwrap();
    assert!(
        why.starts_with("'wal.tail' is held and 'tree.state' wanted; the order is tree.state, tree.dead_in_runs,"),
        "{why}"
    );
    assert!(why.ends_with(", wal.writer, wal.tail"), "{why}");
    assert!(refused(|| catalog.lock()).is_some());
    // The one above is held, whatever else is.
    let read = state.try_read().unwrap();
    assert!(refused(|| state.read()).is_some(), "a reader that reads twice may wait for a writer between");
    drop(below);
    assert!(refused(|| catalog.lock()).is_some());
    drop(read);
    assert_eq!(refused(|| (catalog.lock(), state.write())), None, "what was let go of is not held");
}

#[cfg(debug_assertions)]
#[test]
fn what_is_tried_waits_for_nobody_and_is_held() {
    let (catalog, tail) = (Mutex::new(&order::CATALOG, 0), Mutex::new(&order::WAL_TAIL, 0));
    let (state, commit) = (RwLock::new(&order::TREE_STATE, 0), Mutex::new(&order::COMMIT, 0));
    let below = tail.lock();
    let tried = (catalog.try_lock().unwrap(), state.try_write().unwrap());
    drop(below);
    assert!(refused(|| commit.lock()).is_some(), "the tree's state is held");
    drop(tried.1);
    assert_eq!(refused(|| commit.lock()), None);
}

#[cfg(debug_assertions)]
#[test]
fn several_of_one_place_are_taken_in_turn() {
    let [a, b, c] = [0; 3].map(|n| Mutex::new(&order::TXN_MOVES, n));
    let first = a.lock_in_turn(3);
    assert!(refused(|| b.lock()).is_some() && refused(|| b.lock_in_turn(3)).is_some(), "no turn, and the same");
    let second = b.lock_in_turn(7);
    assert!(refused(|| c.lock_in_turn(5)).is_some());
    drop(first);
    assert!(refused(|| c.lock_in_turn(5)).is_some());
    drop(second);
    assert_eq!(refused(|| c.lock_in_turn(5)), None);
}

#[cfg(debug_assertions)]
#[test]
fn who_sleeps_on_a_lock_takes_it_again() {
    let (state, tail) = (Mutex::new(&order::TREE_STATE, 0), Mutex::new(&order::WAL_TAIL, 0));
    let zero = std::time::Duration::ZERO;
    let mut above = state.lock();
    assert_eq!(refused(|| Condvar::new().wait_for(&mut above, zero)), None);
    let below = tail.lock();
    assert!(refused(|| Condvar::new().wait_for(&mut above, zero)).is_some());
    drop(below);
}
