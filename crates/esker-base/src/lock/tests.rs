use super::*;
use std::sync::Arc;

/// Profiling is process-wide: tests that switch it or depend on it take turns.
static TURN: parking_lot::Mutex<()> = parking_lot::Mutex::new(());

fn figures(name: &str) -> SiteReport {
    report().into_iter().find(|site| site.name == name).unwrap()
}

#[test]
fn contention_is_counted_without_profiling() {
    let _turn = TURN.lock();
    let lock = Mutex::new("test.contention", 0);
    let guard = lock.lock();
    assert!(lock.try_lock().is_none());
    std::thread::scope(|scope| {
        scope.spawn(|| *lock.lock() += 1);
        while figures("test.contention").contended < 2 {
            std::thread::yield_now();
        }
        drop(guard);
    });
    assert_eq!(*lock.lock(), 1);
    let figures = figures("test.contention");
    assert_eq!((figures.contended, figures.acquired, figures.hold.count), (2, 0, 0));
}

#[test]
fn profile_times_wait_hold_and_unlock() {
    let _turn = TURN.lock();
    let lock = Arc::new(RwLock::new("test.profile", ()));
    profile(true);
    drop(lock.read());
    let guard = lock.write();
    let thread = std::thread::spawn({
        let lock = lock.clone();
        move || drop(lock.read())
    });
    while figures("test.profile").contended < 1 {
        std::thread::yield_now();
    }
    drop(guard);
    thread.join().unwrap();
    profile(false);
    drop(lock.write());
    let figures = figures("test.profile");
    assert_eq!((figures.contended, figures.acquired), (1, 3));
    assert_eq!((figures.wait.count, figures.hold.count, figures.unlock.count), (1, 3, 3));
}

#[test]
fn locks_of_one_name_share_a_site() {
    let _turn = TURN.lock();
    let locks = [Mutex::new("test.shared", ()), Mutex::new("test.shared", ())];
    for lock in &locks {
        let _guard = lock.lock();
        assert!(lock.try_lock().is_none());
    }
    assert_eq!(figures("test.shared").contended, 2);
    assert_eq!(report().iter().filter(|site| site.name == "test.shared").count(), 1);
}

#[test]
fn condvar_times_out_and_wakes() {
    let _turn = TURN.lock();
    let lock = Mutex::new("test.condvar", false);
    let condvar = Condvar::new();
    let mut guard = lock.lock();
    assert!(condvar.wait_for(&mut guard, Duration::from_millis(1)));
    assert!(condvar.wait_until(&mut guard, Instant::now()));
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
    let lock = RwLock::new("test.readers", 5);
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
    while figures("test.stacks").wait.count + figures("test.stacks").contended <= before {
        std::thread::yield_now();
    }
    // The waiter has been counted; give it the time to record its stack and to leave its mark.
    while stacks("test.stacks").stacks.is_empty() && EXPECTED.load(Ordering::Relaxed) {
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
    let before = figures("test.stacks").wait.count + figures("test.stacks").contended;
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
    let lock = Mutex::new("test.stacks", 0);
    // Without profiling nothing is sampled, and without sampling neither.
    sample_stacks(1);
    contend(&lock);
    sample_stacks(0);
    profile(true);
    contend(&lock);
    assert_eq!(stacks("test.stacks"), Stacks::default());
    sample_stacks(1);
    EXPECTED.store(true, Ordering::Relaxed);
    contend(&lock);
    profile(false);
    sample_stacks(0);
    let found = stacks("test.stacks").stacks;
    let of = |role: Role| found.iter().filter(|s| s.role == role).collect::<Vec<_>>();
    let ([waiter], [holder]) = (&of(Role::Waiter)[..], &of(Role::Holder)[..]) else { panic!("{found:?}") };
    assert!((waiter.count, holder.count) == (1, 1), "{found:?}");
    assert!(waiter.frames[0].ends_with("wait_for_it"), "{waiter:?}");
    assert!(holder.frames.iter().any(|f| f.ends_with("hold_until_waited_for")), "{holder:?}");
    assert_eq!(stacks("test.no-such-site"), Stacks::default());
}

#[cfg(debug_assertions)]
#[test]
fn locks_taken_in_a_circle_are_found_though_nobody_waits() {
    let circle = |a: &Mutex<u32>, b: &Mutex<u32>| {
        let taken = std::panic::AssertUnwindSafe(|| drop((a.lock(), b.lock())));
        std::panic::catch_unwind(taken).err().map(|e| *e.downcast::<String>().unwrap())
    };
    let make = |name| Mutex::new(name, 0);
    let (a, b, c, d) = (make("order.a"), make("order.b"), make("order.c"), make("order.d"));
    assert_eq!([circle(&a, &b), circle(&b, &c), circle(&a, &c)], [None, None, None]);
    let why = circle(&c, &a).unwrap();
    assert_eq!(why, "'order.c' is held and 'order.a' wanted; the order is order.a, order.b, order.c");
    assert!(circle(&a, &make("order.a")).is_some(), "two of one name");
    // What was only tried waited for nobody; what was let go of, or is slept on, is not held.
    {
        let _d = d.lock();
        drop(a.try_lock().unwrap());
    }
    assert_eq!(circle(&a, &d), None);
    let mut held = d.lock();
    Condvar::new().wait_for(&mut held, std::time::Duration::ZERO);
    drop(held);
    assert_eq!(circle(&a, &d), None);
    assert!(circle(&d, &a).is_some(), "what was waited for twice is learned");
}
