//! Real threads.

use esker_sim::runner::alone;
use std::sync::atomic::Ordering;

#[test]
fn transfers_loads_and_readers() {
    let _alone = alone();
    let dir = std::env::temp_dir().join(format!("esker-sim-{}", std::process::id()));
    let result = esker_sim::threads::run(&dir, 1, 3, 4000);
    let _ = std::fs::remove_dir_all(&dir);
    let report = result.map_err(|f| f.0).unwrap();
    println!("{report:?}");
    assert!(report.transfers.load(Ordering::Relaxed) > 0);
    assert!(report.sums.load(Ordering::Relaxed) > 0);
}
