//! What is known of how many entries of an index are alike: looked for by whoever asked first, or made by ANALYZE TABLE.
//!
//! What ANALYZE TABLE made is in the log, then in the manifest, and goes with the index's tree: an index that is dropped or
//! emptied takes it along, one that gets another name keeps it. Invariant: neither counts when the table has grown or shrunk by
//! more than a tenth since; who shrinks back to what it was is planned as then.

use crate::catalog::table::{Table, Trees};
use arc_swap::ArcSwapOption;
use esker_format::IndexStatistics;
use std::sync::Arc;

/// What is known of an index.
#[derive(Default)]
pub(crate) struct Alike {
    guessed: ArcSwapOption<Guessed>,
    analyzed: ArcSwapOption<IndexStatistics>,
}

/// Gone with the process.
struct Guessed {
    /// Rows of the table then.
    rows: u64,
    /// By the number of parts: about how many entries are alike.
    entries: Vec<f64>,
}

impl Alike {
    /// By the number of parts, about how many entries are alike in a table of so many rows, if that is known.
    pub(crate) fn known(&self, rows: u64) -> Option<Vec<f64>> {
        let (analyzed, guessed) = (self.analyzed.load(), self.guessed.load());
        let analyzed = analyzed.as_ref().filter(|a| is_about(a.rows, rows)).map(|a| entries(a));
        analyzed.or_else(|| guessed.as_ref().filter(|g| is_about(g.rows, rows)).map(|g| g.entries.clone()))
    }

    /// Keeps a guess that was made when the table had so many rows.
    pub(crate) fn guess(&self, rows: u64, entries: Vec<f64>) {
        self.guessed.store(Some(Arc::new(Guessed { rows, entries })));
    }
}

/// Has a table as many rows as then, or a tenth more or less?
fn is_about(then: u64, now: u64) -> bool {
    then.abs_diff(now) <= then / 10
}

fn entries(statistics: &IndexStatistics) -> Vec<f64> {
    let in_group = |groups: &u64| statistics.rows as f64 / (*groups).max(1) as f64;
    statistics.groups.iter().map(|groups| in_group(groups).max(1.0)).collect()
}

impl Trees {
    /// What ANALYZE TABLE found out about the indexes.
    pub(crate) fn statistics(&self) -> Vec<IndexStatistics> {
        let known = self.indexes.iter().filter_map(|index| index.alike.analyzed.load_full());
        known.map(|statistics| IndexStatistics::clone(&statistics)).collect()
    }

    /// Takes in what it found out, of those indexes that are still there.
    pub(crate) fn learn(&self, statistics: Vec<IndexStatistics>) {
        for found in statistics {
            let place = self.keys.iter().position(|key| key.id == found.tree);
            if let Some(index) = place.and_then(|at| self.indexes.get(at)) {
                index.alike.analyzed.store(Some(Arc::new(found)));
            }
        }
    }
}

impl Table {
    /// What ANALYZE TABLE found out about its indexes, by their names, whether it still counts or not.
    pub fn statistics(&self) -> Vec<(String, IndexStatistics)> {
        let trees = self.trees();
        let name = |tree| {
            let (_, index) = trees.keys.iter().zip(&trees.indexes).find(|(key, _)| key.id == tree)?;
            Some(index.entry.name.clone())
        };
        trees.statistics().into_iter().filter_map(|s| Some((name(s.tree)?, s))).collect()
    }
}
