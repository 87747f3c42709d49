//! A model of the server's binlog, which says how transactions in two phases have ended: its entries in their order, how far
//! it is synced, and which XIDs it has forgotten. And what crashes of such a server have met.
//!
//! Invariants: `ordered <= synced <= entries.len()`; a power cut keeps at least what is synced and a prefix of the rest, the
//! end of the process keeps all; an entry is forgotten only when the engine has answered that it needs it no more, and its XID
//! may be used again from then on.

use crate::model::{Changes, Key, Row};
use crate::Rng;
use std::collections::{BTreeMap, BTreeSet};

/// What the binlog holds: rows of all tables.
pub(crate) type Rows = BTreeMap<(Key, u64), Row>;

/// A transaction in the binlog.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) xid: Vec<u8>,
    pub(crate) changes: Changes,
    /// Who waits for it; none: it is decided by its XID.
    pub(crate) session: Option<usize>,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Binlog {
    /// The workload's transactions go through it.
    pub(crate) in_use: bool,
    /// What forgotten entries have made.
    rows: Rows,
    pub(crate) entries: Vec<Entry>,
    /// So many entries are synced.
    pub(crate) synced: usize,
    /// So many entries have had their `commit_ordered`.
    pub(crate) ordered: usize,
    /// So many entries are in files before the newest.
    pub(crate) rotated: Option<usize>,
    /// The engine was asked whether it needs those, and has not answered.
    pub(crate) asked: bool,
    /// XIDs of transactions that were begun and have not ended.
    under_way: BTreeSet<Vec<u8>>,
    /// XIDs of which nobody knows anything: their transactions were rolled back or are forgotten.
    free: BTreeSet<Vec<u8>>,
    /// XIDs that were used before.
    again: BTreeSet<Vec<u8>>,
    made: u64,
    /// The server ends at the last of so many places.
    pub(crate) places_left: Option<u64>,
    /// The server ends as soon as so many transactions are prepared and not in the binlog; none: it does not.
    pub(crate) ends_with_prepared: usize,
    /// The power goes while the engine looks whether it needs something.
    pub(crate) cut_at_request: bool,
    /// The server ends in a recovery that has several transactions to decide.
    pub(crate) ends_recovering: bool,
    /// Recovery has decided something and has something left to decide.
    pub(crate) recovering: bool,
}

impl Binlog {
    /// An XID for a transaction: a new one, or one that is free again; and whether it was used before.
    pub(crate) fn new_xid(&mut self, rng: &mut Rng) -> (Vec<u8>, bool) {
        let free = self.free.len();
        let again = free > 0 && rng.chance(40);
        let xid = match again.then(|| self.free.iter().nth(rng.index(free)).cloned()).flatten() {
            Some(xid) => xid,
            None => {
                self.made += 1;
                format!("binlog-{}", self.made).into_bytes()
            }
        };
        self.free.remove(&xid);
        self.under_way.insert(xid.clone());
        if again {
            self.again.insert(xid.clone());
        }
        (xid, again)
    }

    /// The transaction of this XID has left no trace.
    pub(crate) fn let_go(&mut self, xid: &[u8]) {
        self.under_way.remove(xid);
        self.free.insert(xid.to_vec());
    }

    /// Was the transaction of this XID rolled back or forgotten?
    pub(crate) fn is_free(&self, xid: &[u8]) -> bool {
        self.free.contains(xid)
    }

    /// Has the XID of a transaction been another one's before?
    pub(crate) fn is_used_again(&self, xid: &[u8]) -> bool {
        self.again.contains(xid)
    }

    /// Does the binlog say that the transaction of this XID is committed?
    pub(crate) fn has(&self, xid: &[u8]) -> bool {
        self.entries.iter().any(|e| e.xid == xid)
    }

    /// A place at which the server may end: does it?
    pub(crate) fn ends_here(&mut self) -> bool {
        match &mut self.places_left {
            Some(0) => true,
            Some(left) => {
                *left -= 1;
                *left == 0
            }
            None => false,
        }
    }

    /// The server does not end by any plan of before.
    pub(crate) fn plan_nothing(&mut self) {
        (self.places_left, self.ends_with_prepared) = (None, 0);
        (self.cut_at_request, self.ends_recovering) = (false, false);
    }

    /// All rows that the first `entries` entries, and those forgotten, have made.
    pub(crate) fn holds(&self, entries: usize) -> Rows {
        let mut rows = self.rows.clone();
        self.entries[..entries].iter().for_each(|e| apply(&mut rows, &e.changes));
        rows
    }

    /// The engine needs none of the first `entries` entries any more; how many there were.
    pub(crate) fn forget(&mut self, entries: usize) -> usize {
        for entry in self.entries.drain(..entries) {
            apply(&mut self.rows, &entry.changes);
            self.under_way.remove(&entry.xid);
            self.free.insert(entry.xid);
        }
        self.synced -= entries;
        self.ordered -= entries;
        self.rotated = self.rotated.filter(|rotated| *rotated > entries).map(|rotated| rotated - entries);
        entries
    }

    /// The power goes: of what is not synced a prefix stays; how many entries are lost.
    pub(crate) fn lose_power(&mut self, rng: &mut Rng) -> usize {
        let all = self.entries.len();
        self.entries.truncate(self.synced + rng.index(all - self.synced + 1));
        all - self.entries.len()
    }

    /// The server is there again, and finds it as it is.
    pub(crate) fn opened(&mut self) {
        // Before anything is decided by it.
        self.synced = self.entries.len();
        (self.asked, self.recovering) = (false, false);
        self.entries.iter_mut().for_each(|e| e.session = None);
    }

    /// Everything was decided as it says.
    pub(crate) fn recovered(&mut self) {
        self.ordered = self.entries.len();
        for xid in std::mem::take(&mut self.under_way) {
            match self.has(&xid) {
                true => drop(self.under_way.insert(xid)),
                false => drop(self.free.insert(xid)),
            }
        }
    }
}

fn apply(rows: &mut Rows, changes: &Changes) {
    for (at, row) in changes {
        match row {
            Some(row) => drop(rows.insert(*at, row.clone())),
            None => drop(rows.remove(at)),
        }
    }
}

/// Figures of the scenarios with a binlog. `killed_...` and `cut_...`: so often the process or the power ended when ...
const FIGURES: [&str; 23] = [
    // ... a transaction was prepared and not in the binlog,
    "killed_prepared",
    "cut_prepared",
    // ... one was in the binlog, and its `commit_ordered` had not come,
    "killed_in_binlog",
    "cut_in_binlog",
    // ... it had, and was not durable,
    "killed_ordered",
    "cut_ordered",
    // ... the engine was asked what it needs and had not answered,
    "killed_asked",
    "cut_asked",
    // ... of what a restart had found prepared a part was decided.
    "killed_recovering",
    "cut_recovering",
    // Entries went with the end of the binlog.
    "entries_lost",
    // Entries were forgotten: for the engine's answer, or since all was decided by a restart.
    "entries_forgotten",
    "entries_forgotten_at_once",
    // A transaction that a restart found prepared was committed, rolled back; it had an XID that was used before, or runs.
    "found_committed",
    "found_rolled_back",
    "found_used_again",
    "found_with_runs",
    // Transactions in the binlog had rolled back rows to a savepoint.
    "undone_in_part",
    // Flushes, merges and checkpoints between two decisions of a restart.
    "works_between_decisions",
    // A log that could not be synced: prepares and requests that were refused, and transactions that had to be committed.
    "prepares_refused",
    "requests_refused",
    "ordered_without_log",
    // A life was ended at each of at least ten places, one after the other.
    "ended_at_many_places",
];

/// See [`FIGURES`].
#[derive(Clone, Copy, Default)]
pub struct Figures([u64; FIGURES.len()]);

impl Figures {
    /// Something that has a figure has happened so often.
    pub(crate) fn saw(&mut self, what: &str, times: usize) {
        let at = FIGURES.iter().position(|figure| *figure == what);
        assert!(at.is_some(), "there is no figure {what}");
        at.into_iter().for_each(|at| self.0[at] += times as u64);
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        FIGURES.iter().copied().zip(self.0)
    }

    pub(crate) fn add(&mut self, other: Figures) {
        self.0.iter_mut().zip(other.0).for_each(|(sum, n)| *sum += n);
    }
}

impl std::fmt::Debug for Figures {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_map().entries(self.all().filter(|(_, n)| *n > 0)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(binlog: &mut Binlog, rng: &mut Rng, row: u64) -> Vec<u8> {
        let (xid, _) = binlog.new_xid(rng);
        let changes = Changes::from([((1, row), Some(Row::from([row as u8].as_slice())))]);
        binlog.entries.push(Entry { xid: xid.clone(), changes, session: None });
        xid
    }

    #[test]
    fn what_is_synced_stays_and_what_is_forgotten_is_free() {
        let mut rng = Rng::new(1);
        let mut lost = BTreeSet::new();
        for _ in 0..50 {
            let mut binlog = Binlog::default();
            let xids: Vec<_> = (1..=4).map(|row| entry(&mut binlog, &mut rng, row)).collect();
            (binlog.synced, binlog.ordered) = (2, 1);
            assert_eq!(binlog.forget(1), 1);
            assert!(binlog.is_free(&xids[0]) && !binlog.has(&xids[0]) && !binlog.is_free(&xids[1]));
            lost.insert(binlog.lose_power(&mut rng));
            assert!(binlog.has(&xids[1]));
            let left = binlog.entries.len();
            assert_eq!(binlog.holds(left).len(), 1 + left);
            binlog.opened();
            binlog.recovered();
            assert!(xids.iter().all(|xid| binlog.has(xid) != binlog.is_free(xid)));
        }
        assert_eq!(lost, BTreeSet::from([0, 1, 2]));
    }
}
