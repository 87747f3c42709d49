use super::*;
use crate::histogram::HistogramSnapshot;
use std::sync::Arc;

/// Profiling is process-wide: tests that switch it or depend on it take turns.
static TURN: parking_lot::Mutex<()> = parking_lot::Mutex::new(());

fn figures(name: &str) -> SiteReport {
    report().into_iter().find(|site| site.name == name).unwrap()
}

/// Until somebody has found such a lock taken, and has tried it as often as he does: he waits for it then, whenever he comes to run.
/// Only counted he may still get it by a try.
fn until_waited_for(before: &SiteReport) {
    while figures(before.name).spins < before.spins + SPINS {
        std::thread::yield_now();
    }
}

#[test]
fn who_has_to_wait_for_a_lock_is_told_so() {
    let _turn = TURN.lock();
    // No other test of this process waits for it.
    let event = crate::wait::WaitEvent::Definition;
    let lock = Mutex::new(&order::CATALOG_SHOWN, 0);
    *lock.lock_told(event) += 1;
    assert_eq!(crate::wait::snapshot(event).count, 0);
    let (guard, before) = (lock.lock(), figures(order::CATALOG_SHOWN.name()));
    std::thread::scope(|scope| {
        scope.spawn(|| *lock.lock_told(event) += 1);
        until_waited_for(&before);
        drop(guard);
    });
    assert_eq!((*lock.lock(), crate::wait::snapshot(event).count), (2, 1));
}

#[test]
fn contention_is_counted_without_profiling() {
    let _turn = TURN.lock();
    let lock = Mutex::new(&order::LAB, 0);
    let before = figures(order::LAB.name());
    let guard = lock.lock();
    assert!(lock.try_lock().is_none());
    std::thread::scope(|scope| {
        scope.spawn(|| *lock.lock() += 1);
        until_waited_for(&before);
        drop(guard);
    });
    assert_eq!(*lock.lock(), 1);
    let after = figures(order::LAB.name());
    assert_eq!((after.contended - before.contended, after.acquired - before.acquired), (2, 3));
    // Who waited has tried some more times before; who only tried has not.
    assert_eq!(after.spins - before.spins, SPINS);
    // Who found it taken, and waited, was timed; who only tried was not.
    assert_eq!(after.wait.count - before.wait.count, 1);
    assert!(after.wait_max_ns > 0 && after.hold.count - before.hold.count < 3);
}

#[test]
fn profile_times_every_hold_and_unlock() {
    let _turn = TURN.lock();
    let lock = Arc::new(RwLock::new(&order::LOCK_SHARD, ()));
    let before = figures(order::LOCK_SHARD.name());
    profile(true);
    drop(lock.read());
    let guard = lock.write();
    let thread = std::thread::spawn({
        let lock = lock.clone();
        move || drop(lock.read())
    });
    until_waited_for(&before);
    drop(guard);
    thread.join().unwrap();
    profile(false);
    let after = figures(order::LOCK_SHARD.name());
    assert_eq!((after.contended - before.contended, after.acquired - before.acquired), (1, 3));
    let of = |after: &HistogramSnapshot, before: &HistogramSnapshot| after.count - before.count;
    let times = [of(&after.wait, &before.wait), of(&after.hold, &before.hold), of(&after.unlock, &before.unlock)];
    assert_eq!(times, [1, 3, 3]);
    assert_eq!(of(&after.rewake, &before.rewake), 1, "he was let in by one who was timed");
    assert!(
        after.rewake.sum_ns > before.rewake.sum_ns && after.rewake.sum_ns <= after.wait.sum_ns + after.unlock.sum_ns
    );
    assert!(after.hold_max_ns > 0 && after.hold_max_ns <= after.hold.sum_ns);
}

#[test]
fn one_in_64_is_timed_wherever_it_is_taken() {
    let _turn = TURN.lock();
    let lock = Mutex::new(&order::IO_LINKED, 0);
    let before = figures(order::IO_LINKED.name());
    (0..6400).for_each(|_| *lock.lock() += 1);
    let after = figures(order::IO_LINKED.name());
    assert_eq!((after.acquired - before.acquired, *lock.lock()), (6400, 6400));
    let timed = after.hold.count - before.hold.count;
    assert!((98..=102).contains(&timed), "{timed}");
    assert_eq!(after.unlock.count - before.unlock.count, timed);
    assert!(after.sampled_one_in().is_some_and(|n| (62..=66).contains(&n)), "{after:?}");
    // Places that take it by turns, two or several of them, are met alike.
    for places in [2, 3, 4, 8] {
        let met = |place| (0..6400).filter(|n| n % places == place && timed_since(*n).is_some()).count() as u64;
        assert!((0..places).all(|place| met(place).abs_diff(100 / places) <= 5), "one of {places}");
    }
}

#[test]
fn what_is_gone_is_in_the_sum() {
    let _turn = TURN.lock();
    let name = order::IO_RING_POOL.name();
    let lock = Mutex::new(&order::IO_RING_POOL, 0);
    let before = figures(name).acquired;
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..1000).for_each(|_| *lock.lock() += 1));
            // Its own, and gone with the thread.
            scope.spawn(|| (0..100).for_each(|_| drop(Mutex::new(&order::IO_RING_POOL, 0).lock())));
        }
    });
    assert_eq!(figures(name).acquired - before, 4400);
    // Many readers of one lock at once, none of which is lost.
    let shared = RwLock::new(&order::IO_OVERLAY, 0);
    std::thread::scope(|scope| {
        (0..4).for_each(|_| drop(scope.spawn(|| (0..10_000).for_each(|_| drop(shared.read())))));
    });
    assert_eq!(figures(order::IO_OVERLAY.name()).acquired, 40_000);
}

#[test]
fn what_is_forgotten_is_counted_on() {
    let _turn = TURN.lock();
    let since = |name: &str| since_forgotten().into_iter().find(|site| site.name == name).unwrap();
    let lock = Mutex::new(&order::IO_WRITE_QUEUE, 0);
    profile(true);
    drop(lock.lock());
    profile(false);
    let told = since(order::IO_WRITE_QUEUE.name());
    assert_eq!((told.acquired, told.hold.count, told.sampled_one_in()), (1, 1, Some(1)));
    forget();
    let told = since(order::IO_WRITE_QUEUE.name());
    assert_eq!((told.acquired, told.hold.count, told.hold_max_ns, told.sampled_one_in()), (0, 0, 0, None));
    drop(lock.lock());
    assert_eq!(since(order::IO_WRITE_QUEUE.name()).acquired, 1);
    assert_eq!(figures(order::IO_WRITE_QUEUE.name()).acquired, 2);
    let ranks: Vec<_> = report().into_iter().map(|site| (site.rank, site.name)).collect();
    assert!(ranks.iter().all(|(rank, name)| order::ALL[*rank].name() == *name));
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
    let [waiter, holder, unlocker] = [Role::Waiter, Role::Holder, Role::Unlocker].map(of);
    let ([waiter], [holder], [unlocker]) = (&waiter[..], &holder[..], &unlocker[..]) else { panic!("{found:?}") };
    assert!((waiter.count, holder.count, unlocker.count) == (1, 1, 1), "{found:?}");
    assert_eq!(unlocker.frames, holder.frames);
    // Each has the time that its thread was there for.
    let told = figures(order::VIEWS_SLOTS.name());
    assert!(waiter.sum_ns > 0 && waiter.sum_ns <= told.wait.sum_ns, "{told:?}");
    assert!(holder.sum_ns > 0 && holder.sum_ns <= told.hold.sum_ns, "{told:?}");
    assert!(unlocker.sum_ns > 0 && unlocker.sum_ns <= told.unlock.sum_ns, "{told:?}");
    assert!(waiter.frames[0].ends_with("wait_for_it"), "{waiter:?}");
    assert!(holder.frames.iter().any(|f| f.ends_with("hold_until_waited_for")), "{holder:?}");
    assert_eq!(stacks("test.no-such-site"), Stacks::default());
}

#[test]
fn waiters_who_take_turns_are_sampled_alike() {
    let _turn = TURN.lock();
    let (samples, mut met) = (stacks::Samples::new(), [0; 2]);
    sample_stacks(16);
    for n in 0..32_000 {
        met[n % 2] += u32::from(samples.before_wait(8).is_some());
    }
    sample_stacks(0);
    assert!(met.iter().all(|n| (950..=1050).contains(n)), "{met:?}");
}

/// Work that cannot be left out.
fn busy(steps: u64) {
    (0..steps).for_each(|step| _ = black_box(step));
}

/// Threads that hold a lock for so many steps of work, and let go of it in so many.
#[inline(never)]
fn let_go_slowly(lock: &parking_lot::Mutex<u64>, held: u64, unlocking: u64) {
    let site = order::VIEWS_SLOTS.made();
    for _ in 0..300 {
        let (mut guard, since) = site.acquire(address(lock), 0, || lock.try_lock(), || lock.lock());
        #[cfg(debug_assertions)]
        order::taken(site, 0);
        *guard += 1;
        busy(held);
        #[cfg(debug_assertions)]
        order::released(site, 0);
        site.release(address(lock), true, since, || {
            busy(unlocking);
            drop(guard);
        });
    }
}

/// What part of holding and unlocking is unlocking, by the lock's row and by its stacks, and the function that unlocks by these.
fn unlocking(lock: &parking_lot::Mutex<u64>, held: u64, unlocking: u64) -> (f64, f64, String) {
    let name = order::VIEWS_SLOTS.made().name();
    sample_stacks(1);
    let before = figures(name);
    std::thread::scope(|scope| (0..2).for_each(|_| drop(scope.spawn(|| let_go_slowly(lock, held, unlocking)))));
    let after = figures(name);
    let of = |after: &HistogramSnapshot, before: &HistogramSnapshot| after.sum_ns - before.sum_ns;
    let share = |unlock: u64, hold: u64| unlock as f64 / (unlock + hold).max(1) as f64;
    let stacks = stacks(name).stacks;
    let sum = |role| stacks.iter().filter(|s| s.role == role).map(|s| s.sum_ns).sum();
    let function = stacks.iter().find(|s| s.role == Role::Unlocker).map(|s| s.frames[0].clone());
    let by_row = share(of(&after.unlock, &before.unlock), of(&after.hold, &before.hold));
    (by_row, share(sum(Role::Unlocker), sum(Role::Holder)), function.unwrap_or_default())
}

#[test]
fn a_busy_loop_in_unlocking_shows_as_such_with_its_stack() {
    let _turn = TURN.lock();
    let lock = parking_lot::Mutex::new(0);
    profile(true);
    // The same work all while the lock is held, and half of it in letting go. A thread that is put aside in one of the two makes that
    // longer, which does not come about by turns for ever: on a busy machine for a while.
    let (began, mut tries) = (Instant::now(), Vec::new());
    let shows = (0..).take_while(|n| *n < 20 || began.elapsed() < Duration::from_secs(60)).any(|_| {
        let (none, half) = (unlocking(&lock, 100_000, 0), unlocking(&lock, 50_000, 50_000));
        let found = none.0 < 0.2 && [half.0, half.1].iter().all(|share| (0.3..0.7).contains(share));
        let named = half.2.ends_with("let_go_slowly");
        tries.push((none, half));
        found && named
    });
    sample_stacks(0);
    profile(false);
    assert!(shows, "{tries:?}");
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
