//! About how many entries of an index are alike in their first parts, for whoever plans how to read.
//!
//! Whoever asks first guesses: from some places on, spread over the index, groups of entries that are alike are stepped over,
//! from one to the next: what they were, and about how many entries lie there, makes a density of groups. ANALYZE TABLE looks at
//! more places, and at the group around each: an entry's share of its group, on average, is how many groups there are to an
//! entry. Where an index has few groups all are counted. What is known is kept with the index (`catalog/statistics.rs`).
//! Invariants: so many steps at most, however large the index is; it is about what was committed, and holds no view.

use super::estimate::{Sources, FEW_OF_GROUP};
use super::KeyRange;
use crate::catalog::ddl;
use crate::catalog::table::{Table, Trees};
use crate::engine::Engine;
use crate::lock::Parker;
use crate::tree::key::ByBytes;
use crate::tree::merge_read::{may_show, Span};
use crate::tree::RunHandle;
use crate::version::View;
use crate::{Error, Result};
use esker_base::counters::{count, Counter};
use esker_format::key_bytes::pass_prefix;
use esker_format::{IndexStatistics, KeyCodec, LeafEntry, TxnId};
use std::sync::Arc;

/// Where groups are looked at for a guess.
const PLACES: usize = 8;
/// Groups that are stepped over from each of these places on.
const GROUPS: u64 = 8;
/// Where ANALYZE TABLE looks at groups.
const ANALYZED_PLACES: usize = 256;
/// So many groups it counts.
const COUNTED_GROUPS: u64 = 64;

impl Engine {
    /// About how many rows are alike in the first part of the key of the index at this place of the table's, in the first
    /// two, and so on; empty if there are none.
    pub fn rows_alike(&self, table: &Arc<Table>, index: usize) -> Result<Vec<f64>> {
        let trees = table.trees();
        let (rows, definition) = (table.stats().rows, trees.index(index)?);
        if let Some(known) = definition.alike.known(rows) {
            return Ok(known);
        }
        let (codec, parker) = (definition.codec()?, Parker::new());
        let sources = self.committed(&trees, index, &parker);
        let places = sources.places(PLACES)?;
        let groups = (1..=codec.parts()).map(|parts| sources.guess(codec, parts, &places)).collect::<Result<_>>()?;
        let groups: Vec<f64> = Option::unwrap_or_default(groups);
        let entries: Vec<f64> = groups.iter().map(|groups| 1.0 / groups).collect();
        definition.alike.guess(rows, entries.clone());
        Ok(entries)
    }

    /// Finds out about the indexes of a table, at more places than [`rows_alike`](Self::rows_alike) does, and keeps it durably:
    /// plans are made by it until the table has grown or shrunk by more than a tenth. An index whose keys cannot be made any more
    /// is left out. `progress` gets indexes done and indexes there are; false stops it.
    ///
    /// # Errors
    /// [`Error::Interrupted`] if `progress` said so: what was known stays.
    pub fn analyze(&self, table: &Arc<Table>, progress: &mut dyn FnMut(u64, u64) -> bool) -> Result<()> {
        let _held = self.core.hold_folder()?;
        self.core.check_usable(table)?;
        let (trees, now) = (table.trees(), self.core.host.unix().as_secs());
        let total = trees.kept_indexes().count() as u64;
        let mut statistics = Vec::new();
        for (done, (index, definition)) in (0..).zip(trees.kept_indexes()) {
            let Ok(codec) = definition.codec() else { continue };
            let mut go_on = || match progress(done, total) {
                true => Ok(()),
                false => Err(Error::Interrupted),
            };
            go_on()?;
            let (rows, parker) = (trees.live.newest(), Parker::new());
            let sources = self.committed(&trees, index, &parker);
            let Some(groups) = sources.analyze(codec, rows, &mut go_on)? else { continue };
            statistics.push(IndexStatistics { tree: trees.keys[index].id, analyzed_unix_s: now, rows, groups });
        }
        match statistics.is_empty() {
            true => Ok(()),
            false => ddl::keep_statistics(&self.core, table, statistics),
        }
    }

    /// What is committed of an index, about to be looked into.
    fn committed<'a>(&self, trees: &Trees, index: usize, parker: &'a Arc<Parker>) -> Sources<'a> {
        count(Counter::IndexesSampled, 1);
        let view = View { seq: self.core.views.visible_seq(), me: TxnId::ZERO };
        Sources { state: trees.keys[index].snapshot(), private: None, view, parker }
    }
}

impl Sources<'_> {
    /// How many groups there are to an entry, a group being entries that are alike in so many parts; none if there is no entry.
    fn guess(&self, codec: &KeyCodec, parts: usize, places: &[Vec<u8>]) -> Result<Option<f64>> {
        let mut densities = Vec::new();
        for (at, place) in places.iter().enumerate() {
            // At the beginning a group begins; elsewhere one may have begun before.
            let from = if at == 0 { Some(Vec::new()) } else { self.behind_group(codec, parts, place)? };
            let Some(from) = from else { continue };
            let (groups, to) = self.step(codec, parts, from.clone(), GROUPS)?;
            let is_whole = at == 0 && to.is_none();
            if groups > 0 {
                densities
                    .push(groups as f64 / self.entries_in(&KeyRange { from, to }, FEW_OF_GROUP)?.max(groups) as f64);
            }
            if is_whole {
                break;
            }
        }
        Ok(average(&densities))
    }

    /// How many groups there are in an index of so many rows, for each number of parts: none of an empty index, and nothing at
    /// all where all that was looked at is deleted. `go_on`: asked at each place.
    fn analyze(&self, codec: &KeyCodec, rows: u64, go_on: &mut dyn FnMut() -> Result<()>) -> Result<Option<Vec<u64>>> {
        let mut groups = Vec::new();
        for parts in 1..=codec.parts() {
            let (counted, to) = self.step(codec, parts, Vec::new(), COUNTED_GROUPS)?;
            match to {
                // Of more parts there are more.
                Some(_) => break,
                None if counted == 0 => return Ok(Some(groups)),
                None => groups.push(counted),
            }
        }
        let counted = groups.len();
        if counted == codec.parts() {
            return Ok(Some(groups));
        }
        let mut shares = vec![Vec::new(); codec.parts() - counted];
        // The first place stands for no entry. One after the other: a block serves all that is asked of it.
        for place in self.places(ANALYZED_PLACES)?.iter().skip(1) {
            go_on()?;
            for (parts, shares) in (counted + 1..).zip(&mut shares) {
                let from = place[..prefix_bytes(codec, place, parts)?].to_vec();
                let entries =
                    self.entries_in(&KeyRange { from, to: self.behind_group(codec, parts, place)? }, FEW_OF_GROUP)?;
                if entries > 0 {
                    shares.push(1.0 / entries as f64);
                }
            }
        }
        let of_all = |density: f64| ((rows as f64 * density).round() as u64).max(1);
        groups.extend(shares.iter().filter_map(|shares| average(shares)).map(of_all));
        Ok((groups.len() == codec.parts()).then_some(groups))
    }

    /// Steps over up to so many groups from a key on: how many, and where the next begins, if there is more.
    fn step(&self, codec: &KeyCodec, parts: usize, from: Vec<u8>, most: u64) -> Result<(u64, Option<Vec<u8>>)> {
        let mut at = Some(from);
        for groups in 0..most {
            let Some(from) = at else { return Ok((groups, None)) };
            let range = KeyRange { from, to: None };
            match self.first_of(&range)? {
                Some(key) => at = self.behind_group(codec, parts, &key)?,
                None => return Ok((groups, None)),
            }
        }
        Ok((most, at))
    }

    /// Where what follows the entries begins that are like this one; none: nothing can.
    fn behind_group(&self, codec: &KeyCodec, parts: usize, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut group = key[..prefix_bytes(codec, key, parts)?].to_vec();
        Ok(pass_prefix(&mut group).then_some(group))
    }

    /// Up to so many keys, spread over all of the tree, by what its largest run or memtable has; the first stands for the tree's
    /// beginning.
    fn places(&self, most: usize) -> Result<Vec<Vec<u8>>> {
        let marks = self.state.seen_marks(self.view);
        let entries = |h: &RunHandle<ByBytes>| (h.run.stats.rows as f64 * h.own_share()) as u64;
        let seen = self.state.runs.iter().filter(|h| may_show(h, self.view, &marks, false));
        let run = seen.max_by_key(|h| entries(h));
        let mem = self.state.memtables().max_by_key(|mem| mem.versions());
        let mut places = match (run, mem) {
            (Some(run), mem) if mem.is_none_or(|mem| (mem.versions() as u64) < entries(run)) => in_run(run, most)?,
            (_, Some(mem)) => mem.spread(most).iter().map(|key| key.to_vec()).collect(),
            _ => Vec::new(),
        };
        if let Some(first) = places.first_mut() {
            first.clear();
        }
        Ok(places)
    }

    fn first_of(&self, range: &KeyRange) -> Result<Option<Vec<u8>>> {
        Ok(match self.read(range)?.next()? {
            Span::End => None,
            Span::Rows(span) => Some(span.block.key(span.rows.start).to_vec()),
            Span::One(key, _) => Some(key.to_vec()),
        })
    }
}

fn average(numbers: &[f64]) -> Option<f64> {
    (!numbers.is_empty()).then(|| numbers.iter().sum::<f64>() / numbers.len() as f64)
}

/// How many bytes of a key its first parts take.
fn prefix_bytes(codec: &KeyCodec, key: &[u8], parts: usize) -> Result<usize> {
    codec.prefix_bytes(key, parts).map_err(|e| Error::InvalidArgument(format!("key in an index: {e}")))
}

fn in_run(handle: &RunHandle<ByBytes>, most: usize) -> Result<Vec<Vec<u8>>> {
    let blocks = handle.run.index()?.keep();
    let mut places = vec![handle.first.to_vec()];
    let place = |number: u64| handle.run.stats.rows * number / most as u64;
    let (mut passed, mut next) = (0, 1);
    for (index, entry) in blocks.entries().iter().enumerate() {
        let rows = u64::from(entry.block().rows);
        while next < most as u64 && place(next) < passed + rows {
            let block = handle.run.block(&blocks, index)?;
            let key = block.key((place(next) - passed) as u32);
            if *key >= *handle.first && *key <= *handle.last {
                places.push(key.to_vec());
            }
            next += 1;
        }
        passed += rows;
    }
    Ok(places)
}
