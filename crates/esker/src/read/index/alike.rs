//! About how many entries of an index are alike in their first parts, for whoever plans how to read.
//!
//! From some places on, spread over the index, groups of entries that are alike are stepped over, from one to the next: what
//! they were, and about how many entries lie there, makes a density of groups. Where an index has few groups all are
//! counted. What was found is kept with the index until the table has grown or shrunk by a tenth.
//! Invariants: so many steps at most, however large the index is; it is about what was committed, and holds no view.

use super::estimate::Sources;
use super::KeyRange;
use crate::catalog::table::Table;
use crate::engine::Engine;
use crate::lock::Parker;
use crate::tree::key::ByBytes;
use crate::tree::merge_read::{may_show, Span};
use crate::tree::{RunHandle, TreeState};
use crate::version::View;
use crate::{Error, Result};
use esker_format::key_bytes::pass_prefix;
use esker_format::{KeyCodec, LeafEntry, TxnId};
use std::sync::Arc;

/// Where groups are looked at.
const PLACES: usize = 8;
/// Groups that are stepped over from each place on.
const GROUPS: u64 = 8;

/// What was found of an index.
pub(crate) struct Alike {
    /// Rows of the table then.
    rows: u64,
    /// By the number of parts: about how many entries are alike.
    entries: Vec<f64>,
}

impl Alike {
    fn is_of(&self, rows: u64) -> bool {
        self.rows.abs_diff(rows) <= self.rows / 10
    }
}

impl Engine {
    /// About how many rows are alike in the first part of the key of the index at this place of the table's, in the first
    /// two, and so on; empty if there are none. `anew`: whatever is known already.
    pub fn rows_alike(&self, table: &Arc<Table>, index: usize, anew: bool) -> Result<Vec<f64>> {
        let rows = table.stats().rows;
        let trees = table.trees();
        let definition = trees.index(index)?;
        if let Some(known) = definition.alike.load().as_ref().filter(|known| !anew && known.is_of(rows)) {
            return Ok(known.entries.clone());
        }
        let view = View { seq: self.core.views.visible_seq(), me: TxnId::ZERO };
        let state = trees.keys[index].snapshot();
        let sources = Sources { state, private: None, view, parker: &Parker::new() };
        let (codec, places) = (definition.codec()?, places(&sources.state, view)?);
        let density = |parts| sources.groups_an_entry(codec, parts, &places);
        let found = (1..=codec.parts()).map(density).collect::<Result<Option<Vec<f64>>>>()?;
        let entries: Vec<f64> = found.unwrap_or_default().iter().map(|groups| 1.0 / groups).collect();
        definition.alike.store(Some(Arc::new(Alike { rows, entries: entries.clone() })));
        Ok(entries)
    }
}

impl Sources<'_> {
    /// How many groups there are to an entry, a group being entries that are alike in so many parts; none if there is no entry.
    fn groups_an_entry(&self, codec: &KeyCodec, parts: usize, places: &[Vec<u8>]) -> Result<Option<f64>> {
        let mut densities = Vec::new();
        for (at, place) in places.iter().enumerate() {
            // At the beginning a group begins; elsewhere one may have begun before.
            let from = if at == 0 { Some(Vec::new()) } else { self.behind_group(codec, parts, place)? };
            let Some(from) = from else { continue };
            let (groups, to) = self.step(codec, parts, from.clone())?;
            let is_whole = at == 0 && to.is_none();
            if groups > 0 {
                densities.push(groups as f64 / self.entries_in(&KeyRange { from, to })?.max(groups) as f64);
            }
            if is_whole {
                break;
            }
        }
        let count = densities.len() as f64;
        Ok((!densities.is_empty()).then(|| densities.iter().sum::<f64>() / count))
    }

    /// Steps over groups from a key on: how many, and where the next begins, if there is more.
    fn step(&self, codec: &KeyCodec, parts: usize, from: Vec<u8>) -> Result<(u64, Option<Vec<u8>>)> {
        let mut at = Some(from);
        for groups in 0..GROUPS {
            let Some(from) = at else { return Ok((groups, None)) };
            let range = KeyRange { from, to: None };
            match self.first_of(&range)? {
                Some(key) => at = self.behind_group(codec, parts, &key)?,
                None => return Ok((groups, None)),
            }
        }
        Ok((GROUPS, at))
    }

    /// Where what follows the entries begins that are like this one; none: nothing can.
    fn behind_group(&self, codec: &KeyCodec, parts: usize, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let bytes =
            codec.prefix_bytes(key, parts).map_err(|e| Error::InvalidArgument(format!("key in an index: {e}")))?;
        let mut group = key[..bytes].to_vec();
        Ok(pass_prefix(&mut group).then_some(group))
    }

    fn first_of(&self, range: &KeyRange) -> Result<Option<Vec<u8>>> {
        Ok(match self.read(range)?.next()? {
            Span::End => None,
            Span::Rows(span) => Some(span.block.key(span.rows.start).to_vec()),
            Span::One(key, _) => Some(key.to_vec()),
        })
    }
}

/// Keys spread over all of the tree, by what its largest run or memtable has; the first stands for the tree's beginning.
fn places(state: &TreeState<ByBytes>, view: View) -> Result<Vec<Vec<u8>>> {
    let marks = state.seen_marks(view);
    let entries = |h: &RunHandle<ByBytes>| (h.run.stats.rows as f64 * h.own_share()) as u64;
    let seen = state.runs.iter().filter(|h| may_show(h, view, &marks, false));
    let run = seen.max_by_key(|h| entries(h));
    let mem = state.memtables().max_by_key(|mem| mem.versions());
    let mut places = match (run, mem) {
        (Some(run), mem) if mem.is_none_or(|mem| (mem.versions() as u64) < entries(run)) => in_run(run)?,
        (_, Some(mem)) => mem.spread(PLACES).iter().map(|key| key.to_vec()).collect(),
        _ => Vec::new(),
    };
    if let Some(first) = places.first_mut() {
        first.clear();
    }
    Ok(places)
}

fn in_run(handle: &RunHandle<ByBytes>) -> Result<Vec<Vec<u8>>> {
    let blocks = handle.run.index()?.keep();
    let mut places = vec![handle.first.to_vec()];
    let mut passed = 0;
    for (index, entry) in blocks.entries().iter().enumerate() {
        let rows = u64::from(entry.block().rows);
        let place = |number: usize| handle.run.stats.rows * number as u64 / PLACES as u64;
        for at in (1..PLACES).map(place).filter(|at| (passed..passed + rows).contains(at)) {
            let block = handle.run.block(&blocks, index)?;
            let key = block.key((at - passed) as u32);
            if *key >= *handle.first && *key <= *handle.last {
                places.push(key.to_vec());
            }
        }
        passed += rows;
    }
    Ok(places)
}
