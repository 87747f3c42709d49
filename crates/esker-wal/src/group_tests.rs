//! Group commit on a clock that stands still: who is waited for is a matter of who comes, not of how fast this machine is.

use crate::group::{Goal, Group, COMMIT_GROUPS, PREPARE_GROUPS};
use crate::pace::Advice;
use crate::sync::{AtomicU64, Ordering};
use crate::Committer;
use std::sync::Barrier;
use std::thread;

const THREADS: u64 = 8;
const COMMITS: u64 = 25;
const HOUR_NS: u64 = 3600 * 1_000_000_000;

/// A group that knows that syncs take an hour, and that those who are acknowledged are back at once.
fn learned() -> Group {
    let group = Group::new(0);
    group.pace.synced(HOUR_NS);
    group.pace.acknowledged(1, 0);
    group.pace.arrived(1);
    group
}

/// Each commits by a position of his own, in so many rounds; the number of syncs.
fn commit_in_rounds(group: &Group, who: Committer) -> u64 {
    let (end, syncs, coordinator) = (AtomicU64::new(0), AtomicU64::new(0), Barrier::new(THREADS as usize));
    thread::scope(|s| {
        for _ in 0..THREADS {
            s.spawn(|| {
                for _ in 0..COMMITS {
                    let mine = end.fetch_add(1, Ordering::SeqCst) + 1;
                    let work = || {
                        if syncs.fetch_add(1, Ordering::SeqCst) == 0 {
                            // Until all have come: else one would be through before the next begins.
                            while group.waiting() + 1 < THREADS as usize {
                                thread::yield_now();
                            }
                        }
                        group.set_durable(end.load(Ordering::SeqCst));
                        Ok(())
                    };
                    group.until(Goal::Durable(mine), who, work).unwrap();
                    if who == Committer::Prepares {
                        // Their coordinator ends all of a group.
                        if coordinator.wait().is_leader() {
                            group.ended_prepared(THREADS);
                        }
                        coordinator.wait();
                    }
                }
                // Who has ended is not to be waited for.
                group.pace.arrived(0);
            });
        }
    });
    syncs.into_inner()
}

/// Those who commit again at once are served together: without being waited for they would share syncs by halves at best.
#[test]
fn a_sync_waits_for_those_who_come_back() {
    for (who, sizes) in [(Committer::Commits, &COMMIT_GROUPS), (Committer::Prepares, &PREPARE_GROUPS)] {
        let before = sizes.snapshot();
        let syncs = commit_in_rounds(&learned(), who);
        // The first comes alone.
        assert!((COMMITS..COMMITS + THREADS).contains(&syncs), "{syncs} syncs");
        let groups = sizes.snapshot().since(&before);
        let members = groups.sum_ns + groups.count; // sizes are recorded less one
        assert!(groups.count <= syncs && members <= THREADS * COMMITS, "{groups:?}");
        assert!(members > THREADS * COMMITS * 9 / 10, "{groups:?}");
    }
}

/// Who does not commit is expected by nobody.
#[test]
fn others_are_not_expected() {
    let group = Group::new(0);
    for position in 1..3 {
        let work = || {
            group.set_durable(position);
            Ok(())
        };
        group.until(Goal::Durable(position), Committer::No, work).unwrap();
    }
    assert_eq!(group.pace.advise(0), Advice::AllAreThere);
}
