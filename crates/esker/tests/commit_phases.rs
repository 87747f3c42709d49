//! How often a commit goes through each of its phases. A process of its own, since their figures are the process's.

#![allow(clippy::unwrap_used)]

use esker::base::phase::{figures, CommitPhase};
use esker::base::{global_total, Counter};
use esker::{Background, Engine, FlushMode, Options, PosixDisk, Schema, Session, SyncMethod, Table, Type};
use std::path::PathBuf;
use std::sync::Arc;

struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Transactions, each of one row, and how they end.
struct Ends<'a>(&'a mut Session, &'a Arc<Table>, u64);

impl Ends<'_> {
    fn insert(&mut self) {
        self.2 += 1;
        self.0.insert(self.1, &[self.2.into()]).unwrap();
    }

    fn alone(&mut self) {
        self.insert();
        self.0.commit().unwrap();
    }

    fn decided_by_another(&mut self) {
        self.insert();
        self.0.prepare(&self.2.to_le_bytes()).unwrap();
        self.0.commit_ordered();
        self.0.commit().unwrap();
    }

    /// Its end waits for others.
    fn in_turn(&mut self) {
        self.insert();
        self.0.prepare_in_turn(&self.2.to_le_bytes()).unwrap();
        self.0.commit_ordered();
        self.0.commit().unwrap();
    }

    fn unsynced(&mut self) {
        self.insert();
        self.0.commit_unsynced().unwrap();
    }

    fn undone(&mut self) {
        self.insert();
        self.0.rollback().unwrap();
        self.insert();
        self.0.prepare(&self.2.to_le_bytes()).unwrap();
        self.0.rollback().unwrap();
        // Neither goes on where the others were.
        self.0.commit().unwrap();
    }
}

fn counts() -> [u64; CommitPhase::COUNT] {
    std::array::from_fn(|i| figures(CommitPhase::ALL[i]).count)
}

#[test]
fn each_phase_is_counted_as_often_as_it_is_gone_through() {
    // Prepare, waiting in it, gathering, log write, log sync, commit_ordered, visible, settling, waiting, whole.
    type Case = (&'static str, fn(&mut Ends<'_>), [u64; CommitPhase::COUNT]);
    let cases: [Case; 5] = [
        ("alone", |ends| (0..10).for_each(|_| ends.alone()), [0, 0, 0, 10, 10, 0, 10, 10, 10, 10]),
        ("two phases", |ends| (0..10).for_each(|_| ends.decided_by_another()), [10, 10, 0, 10, 10, 10, 10, 10, 0, 10]),
        ("in turn", |ends| (0..10).for_each(|_| ends.in_turn()), [10, 10, 0, 10, 10, 10, 10, 10, 0, 0]),
        ("unsynced", |ends| (0..10).for_each(|_| ends.unsynced()), [0, 0, 0, 0, 0, 0, 10, 10, 0, 10]),
        // Both waits of a prepare and of what takes it back, for one that is written each.
        ("undone", |ends| (0..10).for_each(|_| ends.undone()), [10, 10, 0, 20, 20, 0, 0, 0, 0, 0]),
    ];
    for method in SyncMethod::ALL {
        let folder = std::env::temp_dir().join(format!("esker-phases-{method}-{}", std::process::id()));
        let folder = Folder(folder);
        let options = Options { background: Background::Inline, sync_method: Some(method), ..Options::default() };
        let engine = Engine::open(Arc::new(PosixDisk::new()), &folder.0, options, Arc::new(|_, _| {})).unwrap();
        let table = engine.create("t", &Schema::new().column("n", Type::U64)).unwrap();
        let mut session = engine.session();
        let mut ends = Ends(&mut session, &table, 0);
        for (name, work, mut expected) in cases {
            // What an unsynced commit left is written with the next one.
            ends.alone();
            let (before, apart) = (counts(), global_total(Counter::SyncsWal));
            work(&mut ends);
            if engine.sync_method() != SyncMethod::Fdatasync {
                expected[CommitPhase::LogWrite as usize] = 0;
            }
            let seen: [u64; CommitPhase::COUNT] = std::array::from_fn(|i| counts()[i] - before[i]);
            assert_eq!(seen, expected, "{name} by {method}");
            assert_eq!(global_total(Counter::SyncsWal) - apart, expected[CommitPhase::LogWrite as usize], "{name}");
        }
        engine.set_flush_mode(FlushMode::WriteOnly);
        ends.alone();
        let before = counts();
        ends.alone();
        let seen = CommitPhase::LogWrite as usize;
        assert_eq!(counts()[seen] - before[seen], 1, "written and not synced");
        drop(session);
        engine.close().unwrap();
    }
    for phase in CommitPhase::ALL {
        let found = figures(*phase);
        assert_eq!(found.buckets.iter().sum::<u64>(), found.count, "{}", phase.name());
    }
}
