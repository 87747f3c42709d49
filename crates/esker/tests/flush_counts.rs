//! What flushes tell of themselves.

#![allow(clippy::unwrap_used)]

use esker::base::counters::{bind, SessionCounters};
use esker::base::Counter;
use esker::{Background, Engine, Options, PosixDisk, Schema, Type};
use std::path::PathBuf;
use std::sync::Arc;

struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn flushes_are_counted_by_what_they_wrote() {
    let folder = Folder(std::env::temp_dir().join(format!("esker-flush-counts-{}", std::process::id())));
    let _ = std::fs::remove_dir_all(&folder.0);
    let options = Options { background: Background::Inline, ..Options::default() };
    let engine = Engine::open(Arc::new(PosixDisk::new()), &folder.0, options, Arc::new(|_, _| {})).unwrap();
    let tables = ["a", "b", "c"].map(|name| engine.create(name, &Schema::new().column("n", Type::U64)).unwrap());
    let mut session = engine.session();
    for table in &tables[..2] {
        (0..1000u64).for_each(|n| _ = session.insert(table, &[n.into()]).unwrap());
    }
    session.commit().unwrap();
    // All of it is done by this thread.
    let own = SessionCounters::new();
    let bound = bind(&own);
    engine.checkpoint().unwrap();
    drop(bound);
    assert_eq!((own.get(Counter::Flushes), own.get(Counter::SyncsRun)), (2, 2), "of the empty one there is none");
    assert_eq!(own.get(Counter::FlushSyncs), 4, "each run, and each time their folder");
    let files = std::fs::read_dir(folder.0.join("runs")).unwrap().map(|file| file.unwrap().metadata().unwrap().len());
    assert_eq!(own.get(Counter::FlushBytes), files.sum::<u64>());
    // Two runs were written and synced in that time.
    assert!(own.get(Counter::FlushUs) > 0);
    engine.checkpoint().unwrap();
    assert_eq!(own.get(Counter::Flushes), 2);
}
