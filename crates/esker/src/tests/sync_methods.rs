//! How the log is made durable, as whoever opens an engine has it and hears of it.

use super::support::{fill_and_commit, number, options};
use crate::{Engine, Level, Options, SyncMethod};
use esker_io::{Disk, Overlay, SimDisk};
use std::path::Path;
use std::sync::{Arc, Mutex};

/// Opened by `sync_method`, and what was said of it.
fn open(disk: Arc<dyn Disk>, options: Options) -> (Engine, Vec<(String, Level)>) {
    let said: Arc<Mutex<Vec<(String, Level)>>> = Arc::default();
    let sink = said.clone();
    let notify = Arc::new(move |text: &str, level| sink.lock().unwrap().push((text.to_owned(), level)));
    let engine = Engine::open(disk, Path::new("/db"), options, notify).unwrap();
    let mut said = said.lock().unwrap().clone();
    said.retain(|(text, _)| text.starts_with("sync method of the log: "));
    (engine, said)
}

#[test]
fn the_log_is_synced_as_the_options_say() {
    let disk = SimDisk::new(1);
    for (n, method) in SyncMethod::ALL.into_iter().enumerate() {
        let options = Options { sync_method: Some(method), ..options() };
        let (engine, said) = open(Arc::new(disk.clone()), options);
        assert_eq!((engine.sync_method(), engine.status().sync_method), (method, method));
        assert!(said.is_empty(), "{said:?}");
        assert!(engine.status_text().contains(&format!(" by {method}, ")));
        engine.create_table(&format!("t{n}"), &number()).unwrap();
        fill_and_commit(&engine, &engine.open_table(&format!("t{n}")).unwrap(), 3);
        let (after, _) = open(Arc::new(disk.after_power_cut(1)), super::support::options());
        assert_eq!(after.tables().len(), n + 1);
        engine.close().unwrap();
    }
    assert_eq!(Options::default().sync_method, Some(SyncMethod::Fdatasync));
}

/// Figures are for the record, and nothing is tried on a folder that is only looked at.
#[test]
fn a_trial_tells_what_it_found() {
    let disk = SimDisk::new(1);
    let host = crate::host::SimHost::new();
    let auto = Options { sync_method: None, host, ..options() };
    let (engine, said) = open(Arc::new(disk.clone()), auto.clone());
    // A clock that stands still.
    assert_eq!(engine.sync_method(), SyncMethod::Fdatasync);
    assert_eq!((said.len(), said[0].1), (1, Level::Info));
    assert!(said[0].0.contains("dsync 0.0 us (0.0 to 0.0, 50 times)"), "{said:?}");
    engine.close().unwrap();
    let before = disk.op_count();
    let (engine, said) = open(Arc::new(disk.clone()), Options { read_only: true, ..auto.clone() });
    assert_eq!((engine.sync_method(), said.len(), disk.op_count()), (SyncMethod::Fdatasync, 0, before));
    drop(engine);
    // A disk that has none of the ways takes them all for one.
    let (engine, _) =
        open(Arc::new(Overlay::new(Arc::new(disk))), Options { sync_method: Some(SyncMethod::Uring), ..auto });
    assert_eq!(engine.sync_method(), SyncMethod::Uring);
}
