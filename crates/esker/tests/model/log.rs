//! The log, and what a restart makes of it, as far as one tree matters: which commit of which row is found, and who is
//! prepared. As `replay.rs` and `recovery/tree.rs`.

use crate::sync::{order, Mutex};
use esker_format::TxnId;
use std::collections::{BTreeMap, BTreeSet};

/// Where the log begins, and what a frame takes.
pub(crate) const FIRST: u64 = 100;
const FRAME: u64 = 10;

/// Rows by their commits.
pub(crate) type Rows = BTreeMap<u64, u64>;

#[derive(Clone)]
pub(crate) enum Record {
    /// With its redo, as a preparation.
    Commit(Vec<u64>),
    Prepare(TxnId, Vec<u64>),
    Decide(TxnId),
    Rollback(TxnId),
    Edit(Rows, u64),
}

/// What a checkpoint says.
#[derive(Clone, Default)]
pub(crate) struct Manifest {
    pub(crate) replay_from: u64,
    pub(crate) run: Rows,
    pub(crate) flushed_to: u64,
    /// So many frames were durable before it.
    pub(crate) behind: usize,
}

pub(crate) struct Log(Mutex<Vec<Vec<Record>>>);

impl Log {
    pub(crate) fn new() -> Log {
        Log(Mutex::new(&order::WAL_TAIL, Vec::new()))
    }

    pub(crate) fn end(&self) -> u64 {
        FIRST + FRAME * self.frames() as u64
    }

    pub(crate) fn frames(&self) -> usize {
        self.0.lock().len()
    }

    /// Where the frame begins.
    pub(crate) fn append(&self, frame: Vec<Record>) -> u64 {
        let mut frames = self.0.lock();
        frames.push(frame);
        FIRST + FRAME * (frames.len() as u64 - 1)
    }

    /// However much of the log outlives a crash: with each of the manifests, as if none came after it, a restart finds what
    /// the log says from its first byte on. One that was being rolled back may be gone before the log says so.
    pub(crate) fn assert_recovers(&self, manifests: &[Manifest]) {
        let frames = self.0.lock().clone();
        let rolled_back: BTreeSet<u64> = frames.iter().filter_map(|frame| rolled_back(frame)).collect();
        for manifest in manifests {
            for upto in manifest.behind..=frames.len() {
                let (rows, prepared) = replay(&frames[..upto], manifest);
                let (want, are_prepared) = told(&frames[..upto]);
                let what = || format!("of {upto} frames, from {}", manifest.replay_from);
                assert_eq!(rows, want, "{}", what());
                let gone: BTreeSet<u64> = are_prepared.difference(&prepared).copied().collect();
                assert!(prepared.is_subset(&are_prepared) && gone.is_subset(&rolled_back), "{}: {gone:?}", what());
            }
        }
    }
}

/// Who is rolled back by this frame; not one who is prepared in it again.
fn rolled_back(frame: &[Record]) -> Option<u64> {
    match frame {
        [Record::Rollback(txn)] => Some(txn.0),
        _ => None,
    }
}

fn positions(frames: &[Vec<Record>]) -> impl Iterator<Item = (u64, &Record)> {
    let at = |(n, frame): (usize, &'_ Vec<Record>)| (FIRST + FRAME * n as u64, frame.len());
    frames.iter().enumerate().flat_map(move |f| std::iter::repeat_n(at(f).0, at(f).1).zip(f.1))
}

/// What was committed, and who is prepared, whatever runs hold.
fn told(frames: &[Vec<Record>]) -> (Rows, BTreeSet<u64>) {
    let (mut rows, mut prepared) = (Rows::new(), BTreeMap::new());
    for (at, record) in positions(frames) {
        match record {
            Record::Commit(written) => rows.extend(written.iter().map(|row| (*row, at))),
            Record::Prepare(txn, written) => drop(prepared.insert(txn.0, written.clone())),
            Record::Decide(txn) => {
                rows.extend(prepared.remove(&txn.0).into_iter().flatten().map(|row| (row, at)));
            }
            Record::Rollback(txn) => drop(prepared.remove(&txn.0)),
            Record::Edit(..) => {}
        }
    }
    (rows, prepared.into_keys().collect())
}

fn replay(frames: &[Vec<Record>], manifest: &Manifest) -> (Rows, BTreeSet<u64>) {
    let (mut run, mut flushed_to) = (manifest.run.clone(), manifest.flushed_to);
    let (mut memory, mut prepared) = (Rows::new(), BTreeMap::new());
    for (at, record) in positions(frames).filter(|(at, _)| *at >= manifest.replay_from) {
        let mut commit = |written: &[u64]| memory.extend(written.iter().map(|row| (*row, at)));
        match record {
            Record::Commit(written) if at >= flushed_to => commit(written),
            Record::Commit(_) => {}
            Record::Prepare(txn, written) => drop(prepared.insert(txn.0, written.clone())),
            Record::Decide(txn) => match prepared.remove(&txn.0) {
                Some(written) if at >= flushed_to => commit(&written),
                _ => {}
            },
            Record::Rollback(txn) => drop(prepared.remove(&txn.0)),
            Record::Edit(added, boundary) => {
                run.extend(added.iter().map(|(row, seq)| (*row, *seq)));
                flushed_to = flushed_to.max(*boundary);
                memory.retain(|_, seq| *seq >= flushed_to);
            }
        }
    }
    for (row, seq) in memory {
        assert!(!run.contains_key(&row), "row {row} is in a run, and comes back from the log");
        run.insert(row, seq);
    }
    (run, prepared.into_keys().collect())
}
