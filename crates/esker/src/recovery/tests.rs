//! What a restart knows of a table without reading it.

use crate::tests::tables::{begin, commit_rows, def, delete_rows, insert, open, options, rows_of, small_runs};
use crate::upkeep::{checkpoint, merge};
use crate::{Host, Options};
use esker_base::counters::{bind, Counter, SessionCounters};
use esker_io::SimDisk;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The figure stays right whatever part of the log is replayed over a manifest that has counted it already.
#[test]
fn rows_are_counted_once() {
    let disk = SimDisk::new(1);
    let mut e = open(&disk, small_runs());
    e.create_table("t", &def()).unwrap();
    for round in 0..4u64 {
        let t = e.open_table("t").unwrap();
        let mut s = e.session();
        // Something in the memtable keeps the log from here on.
        let small = commit_rows(&mut s, &t, 40);
        // Two that insert at once, the later one first to commit.
        let mut other = e.session();
        begin(&mut s);
        begin(&mut other);
        (0..5).for_each(|n| assert!(insert(&mut s, &t, n) < insert(&mut other, &t, n)));
        other.commit().unwrap();
        s.commit().unwrap();
        let large = commit_rows(&mut s, &t, 2000);
        delete_rows(&mut s, &t, &small[..10]);
        delete_rows(&mut s, &t, &large[..1000]);
        if round % 2 == 0 {
            while merge::once(&e.core, &t, &t.tree()).unwrap() {}
        }
        checkpoint::write(&e.core).unwrap();
        if round > 1 {
            // And what comes after the manifest is counted.
            let more = commit_rows(&mut s, &t, 1500);
            delete_rows(&mut s, &t, &more[..500]);
            delete_rows(&mut s, &t, &small[10..15]);
            while merge::once(&e.core, &t, &t.tree()).unwrap() {}
            let lasting = commit_rows(&mut s, &t, 7);
            unsafe {
                begin(&mut s);
                s.update_image(&t, lasting[0], crate::tests::tables::img(3).as_ptr()).unwrap();
                s.commit().unwrap();
            }
        }
        let rows = rows_of(&e, &t);
        assert_eq!(t.stats().rows, rows);
        drop((s, other, t, e));
        disk.crash();
        e = open(&disk, small_runs());
        let t = e.open_table("t").unwrap();
        assert_eq!(rows_of(&e, &t), rows);
        assert_eq!(t.stats().rows, rows, "after a restart, round {round}");
    }
}

/// Time goes on by a second whenever somebody looks at it.
#[derive(Debug, Default)]
struct Patient {
    looked: Mutex<u64>,
    heard: Mutex<Vec<f64>>,
}

impl Host for Patient {
    fn now(&self) -> Duration {
        let mut looked = self.looked.lock().unwrap();
        *looked += 1;
        Duration::from_secs(*looked)
    }

    fn unix(&self) -> Duration {
        self.now()
    }

    fn sleep(&self, _: Duration) {}

    fn opening(&self, done: f64) {
        self.heard.lock().unwrap().push(done);
    }
}

#[test]
fn a_host_hears_that_a_long_replay_goes_on() {
    let disk = SimDisk::new(1);
    let (memory_limit_bytes, bulk_threshold_bytes) = (256 << 20, 1 << 20);
    let large = Options { memory_limit_bytes, bulk_threshold_bytes, ..small_runs() };
    let e = open(&disk, large.clone());
    e.create_table("t", &def()).unwrap();
    let (t, mut s) = (e.open_table("t").unwrap(), e.session());
    while e.core.wal.end_lsn().0 < 6 << 20 {
        commit_rows(&mut s, &t, 400);
    }
    drop((s, t, e));
    disk.crash();
    let host = Arc::new(Patient::default());
    drop(open(&disk, Options { host: host.clone(), ..large }));
    let heard = host.heard.lock().unwrap();
    assert!(heard.len() > 3 && heard[0] == 0.0, "{heard:?}");
    assert!(heard.windows(2).all(|w| w[0] < w[1]) && heard.last().is_some_and(|done| *done <= 1.0), "{heard:?}");
}

/// As much as the log says, and `esker lab` reckons with.
#[test]
fn what_is_replayed_is_counted_once() {
    let disk = SimDisk::new(1);
    let e = open(&disk, options());
    e.create_table("t", &def()).unwrap();
    let t = e.open_table("t").unwrap();
    commit_rows(&mut e.session(), &t, 500);
    drop((t, e));
    disk.crash();
    let own = SessionCounters::new();
    let _bound = bind(&own);
    let e = open(&disk, options());
    let status = e.status();
    assert!(status.recovered_bytes > 0);
    assert_eq!(own.get(Counter::RecoveryBytes), status.recovered_bytes);
    assert!((1..1000).contains(&own.get(Counter::RecoveryRecords)));
}
