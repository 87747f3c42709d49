//! One writer's random work against a model.

use crate::tests::support::*;
use crate::upkeep::{checkpoint, flush, merge};
use crate::*;
use esker_base::counters::{bind, Counter, SessionCounters};
use esker_format::RowId;
use esker_io::SimDisk;

/// One writer's random work, with flushes (some fail), merges, savepoints, crashes, against a model.
/// A merge of what needs it, or the first step of all.
fn either(e: &Engine, t: &Table, all: bool) -> Result<bool> {
    if all {
        merge::once_of_all(&e.core, t, &t.tree())
    } else {
        merge::once(&e.core, t, &t.tree())
    }
}

#[test]
fn random_work_of_one_writer_equals_a_model() {
    use std::collections::BTreeMap;
    let own = SessionCounters::new();
    let _bound = bind(&own);
    let reached =
        [Counter::Flushes, Counter::Merges, Counter::RunsAttached, Counter::RunsMoved, Counter::VersionsCarried];
    let figures = || reached.map(|c| (c.name(), own.get(c)));
    let first = u64::from(std::process::id());
    for seed in first..first + 64 {
        // These see other work each time: they go on until all was reached.
        if seed >= first + 8 && figures().iter().all(|f| f.1 > 0) {
            break;
        }
        eprintln!("seed {seed}");
        let mut x = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let mut rnd = move |n: u64| {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            (x >> 11) % n
        };
        let disk = SimDisk::new(seed);
        let o =
            Options { bulk_threshold_bytes: 48 << 10, min_run_bytes: 16 << 10, memory_limit_bytes: 2 << 20, ..roomy() };
        let mut e = open_with(&disk, o.clone()).unwrap();
        make(&e, "t", &fixed(100));
        let mut durable: BTreeMap<RowId, ()> = BTreeMap::new();
        for _ in 0..4 {
            let t = e.open_table("t").unwrap();
            let mut s = e.session();
            for _ in 0..3 {
                let mut now = durable.clone();
                let mut points: Vec<(Savepoint, BTreeMap<RowId, ()>)> = Vec::new();
                begin(&mut s);
                for _ in 0..rnd(30) {
                    s.begin_statement();
                    match rnd(12) {
                        0..=3 => {
                            let most = if rnd(3) == 0 { 900 } else { 60 };
                            for n in 0..rnd(most) {
                                now.insert(insert(&mut s, &t, n).unwrap(), ());
                            }
                        }
                        4 | 5 => {
                            let most = rnd(300) as usize;
                            let ids: Vec<_> = now.keys().copied().filter(|_| rnd(3) == 0).take(most).collect();
                            for id in ids {
                                s.delete(&t, id).unwrap();
                                now.remove(&id);
                            }
                        }
                        6 => {
                            let most = rnd(300) as usize;
                            let ids: Vec<_> = now.keys().copied().filter(|_| rnd(3) == 0).take(most).collect();
                            let mut im = [0x5a; 109];
                            im[0] = 0;
                            for id in ids {
                                unsafe { s.update_image(&t, id, im.as_ptr()).unwrap() };
                            }
                        }
                        7 => points.push((s.savepoint(), now.clone())),
                        8 => {
                            if !points.is_empty() {
                                let at = rnd(points.len() as u64) as usize;
                                points.truncate(at + 1);
                                s.rollback_to(&points[at].0);
                                now = points[at].1.clone();
                            }
                        }
                        9 => {
                            if rnd(3) == 0 {
                                disk.fail_once(disk.op_count() + 1 + rnd(4), esker_io::IoKind::Resources);
                            }
                            let _ = flush::tree(&e.core, &t, &t.tree());
                            disk.clear_plans();
                        }
                        10 => {
                            let _ = either(&e, &t, rnd(2) == 0);
                        }
                        _ => {
                            checkpoint::write(&e.core).unwrap();
                        }
                    }
                    s.end_statement();
                    if rnd(4) == 0 {
                        assert_eq!(s.count_rows(&t).unwrap(), now.len() as u64, "seed {seed}");
                    }
                }
                match rnd(6) {
                    0 => s.rollback().unwrap(),
                    1 => {
                        s.prepare(b"x").unwrap();
                        if rnd(2) == 0 {
                            flush::tree(&e.core, &t, &t.tree()).unwrap();
                        }
                        s.commit().unwrap();
                        durable = now;
                    }
                    _ => {
                        s.commit().unwrap();
                        durable = now;
                    }
                }
                assert_eq!(count(&e, "t"), durable.len() as u64, "seed {seed}");
                if rnd(2) == 0 {
                    while either(&e, &t, rnd(2) == 0).unwrap() {
                        if rnd(20) == 0 {
                            break;
                        }
                    }
                }
            }
            drop((s, t, e));
            disk.crash();
            e = open_with(&disk, o.clone()).unwrap();
            assert_eq!(count(&e, "t"), durable.len() as u64, "seed {seed} after a crash");
        }
    }
    assert!(figures().iter().all(|f| f.1 > 0), "{:?}", figures());
}
