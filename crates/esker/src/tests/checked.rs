//! What CHECK tells while it goes over a table.

use crate::tests::alter::filled_as;
use crate::tests::tables::{open, options};
use crate::*;
use esker_io::SimDisk;

/// Holding indexes against rows goes on where reading the blocks ended, in steps.
#[test]
fn a_check_tells_how_far_it_is_until_its_end() {
    let e = open(&SimDisk::new(1), Options { block_bytes: 4 << 10, ..options() });
    let (t, rows) = filled_as(&e, "t", 30_000);
    e.sim_flush(&t).unwrap();
    let mut told = Vec::new();
    let report = e
        .check(&t, &mut |done, total| {
            told.push((done, total));
            true
        })
        .unwrap();
    assert!(report.damages.is_empty() && !report.stopped, "{report:?}");
    let total = told[0].1;
    assert!(told.iter().all(|(done, of)| *of == total && *done <= total), "{told:?}");
    assert!(told.windows(2).all(|w| w[0].0 <= w[1].0), "{told:?}");
    // What is beyond the blocks is told in as many steps as rows and entries are asked about, and ends near the end.
    let indexes = t.trees().kept_indexes().count() as u64;
    let mut steps: Vec<u64> = told.iter().map(|(done, _)| *done).filter(|done| *done > report.blocks).collect();
    steps.dedup();
    assert!(indexes > 1 && steps.len() as u64 >= (1 + indexes) * (rows / 4096) - 2, "{steps:?} of {total}");
    assert!(steps.last().unwrap() * 10 >= total * 9, "{steps:?} of {total}");
    // The blocks alone, where nothing is held against anything.
    let mut most = 0;
    let part = e.check_part(&t, CheckScope::Unchecked, &mut |_, total| {
        most = total;
        true
    });
    assert_eq!((part.unwrap().blocks, most), (0, 0));
    // It can be stopped there.
    let report = e.check(&t, &mut |done, _| done <= report.blocks).unwrap();
    assert!(report.stopped && report.damages.is_empty(), "{report:?}");
}
