//! Key trees in the simulator: most tables have one or two, whose entries follow from the rows. They are written as a
//! server would, behind each row in the same statement, and must be those of the rows in every view.
//!
//! Invariant: a row has one entry in each tree, and its key ends with the row's id: no two rows share a key.

use crate::model::{Row, TableModel};
use crate::sim::{Answer, Failure, Sim};
use esker::format::{CommitSeq, IndexEntry, IndexState, KeyPart, RowId};
use esker::sim_hooks::{Entry, RunFigures};
use esker::{Engine, Session, Table, TableDef};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Ids of indexes that nobody keeps begin here.
const FIRST_APART: u32 = 101;

/// Key and payload.
type KeyAndPayload = (Vec<u8>, Vec<u8>);
/// Rows and payloads by their keys.
type Entries = BTreeMap<Vec<u8>, (RowId, Vec<u8>)>;

/// How many key trees tables of a [kind](crate::kinds::kinds) have.
#[must_use]
pub(crate) fn trees(kind: usize) -> usize {
    [1, 2, 1, 2, 0, 1, 2, 1][kind]
}

/// `n` indexes that nobody keeps but the simulator, as far as the engine cares.
pub(crate) fn indexes(n: usize) -> Vec<IndexEntry> {
    let part = KeyPart { column: 0, prefix_bytes: 0, descending: false, encoding: 1, collation: 0 };
    let index = |id: u32| IndexEntry {
        id,
        name: format!("k{id}"),
        unique: false,
        parts: vec![part],
        state: IndexState::Leaving,
        usable_from: CommitSeq::ZERO,
        weights: 0,
    };
    // Behind those that the engine keeps.
    (FIRST_APART..).take(n).map(index).collect()
}

/// A number that follows from the bytes (FNV-1a).
pub(crate) fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xCBF2_9CE4_8422_2325, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x100_0000_01B3))
}

/// So long a payload fills a block of 1 KiB as far as versions of one key may: the next one begins another.
const MUCH: usize = 17 << 10;

/// The entry of a row. In the first tree most updates change the key, of all lengths; in the second all keys begin
/// with the same 66 bytes, more than a block index keeps, half of the updates leave the key, and some payloads are long.
fn entry(tree: usize, id: u64, row: &[u8]) -> KeyAndPayload {
    let h = hash(row);
    let (mut key, payload) = match (tree, h % 5) {
        (0, 0) => (Vec::new(), h.to_le_bytes()[..(h >> 32) as usize % 8].to_vec()),
        (0, 1) => (vec![b'a'; 63], vec![b'p'; (h >> 32) as usize % 40]),
        (0, 2) => (vec![b'b'; 64 + (h >> 8) as usize % 3], Vec::new()),
        (0, _) => (h.to_be_bytes()[..1 + (h >> 8) as usize % 7].to_vec(), Vec::new()),
        _ => {
            let payload = if h % 64 == 1 { vec![b'q'; MUCH] } else { Vec::new() };
            ([&[b'c'; 66][..], &[(h >> 8) as u8 % 2]].concat(), payload)
        }
    };
    key.extend_from_slice(&id.to_be_bytes());
    (key, payload)
}

fn entries_of(tree: usize, rows: &BTreeMap<u64, Row>) -> Entries {
    let of_row = |(id, row): (&u64, &Row)| {
        let (key, payload) = entry(tree, *id, row);
        (key, (RowId(*id), payload))
    };
    rows.iter().map(of_row).collect()
}

/// What becomes of a row.
pub(crate) struct Rewrite<'a> {
    pub(crate) id: u64,
    pub(crate) old: Option<&'a [u8]>,
    pub(crate) new: Option<&'a [u8]>,
    /// The writer's view does not see `old` but an older version, or none; `new` it will see. So an entry that stays as
    /// it is must be written again, and the older version's goes.
    pub(crate) unseen: Option<Option<Row>>,
}

impl<'a> Rewrite<'a> {
    pub(crate) fn insert(id: u64, row: &'a [u8]) -> Self {
        Rewrite { id, old: None, new: Some(row), unseen: None }
    }
}

/// Writes what changes in each of `trees` trees.
pub(crate) fn write_entries(
    session: &mut Session,
    table: &Arc<Table>,
    trees: usize,
    Rewrite { id, old, new, unseen }: Rewrite<'_>,
) -> esker::Result<()> {
    for tree in 0..trees {
        let of = |row: Option<&[u8]>| row.map(|row| entry(tree, id, row));
        let (old, new, row) = (of(old), of(new), RowId(id));
        let gone: BTreeSet<_> = [&old, &of(unseen.as_ref().and_then(|seen| seen.as_deref()))]
            .into_iter()
            .flatten()
            .map(|(key, _)| key.clone())
            .filter(|key| new.as_ref().is_none_or(|new| new.0 != *key))
            .collect();
        for key in &gone {
            session.sim_write_entry(table, tree, Entry { key, row, payload: None })?;
        }
        if let Some((key, payload)) = new.as_ref().filter(|new| unseen.is_some() || old.as_ref() != Some(new)) {
            session.sim_write_entry(table, tree, Entry { key, row, payload: Some(payload) })?;
        }
    }
    Ok(())
}

/// How the entries that a session sees differ from those of `rows`: all of them, those from some key on, and some keys
/// by themselves, also of `gone` rows that it must not find.
pub(crate) fn keys_differ(
    session: &mut Session,
    table: &Arc<Table>,
    trees: usize,
    rows: &BTreeMap<u64, Row>,
    gone: &[(u64, Row)],
) -> esker::Result<Option<String>> {
    for tree in 0..trees {
        let want = entries_of(tree, rows);
        let middle = want.keys().nth(want.len() / 2).cloned().unwrap_or_default();
        let prefix = middle[..middle.len().min(64)].to_vec();
        for from in [Vec::new(), middle, prefix] {
            let have = session.sim_entries(table, tree, &from)?;
            let should = want.range(from.clone()..).map(|(key, (row, payload))| (key.clone(), *row, payload.clone()));
            if !have.iter().cloned().eq(should) {
                return Ok(Some(format!("key tree {tree} from {from:?} on: {}", how_they_differ(&have, &want, &from))));
            }
        }
        let some = want.keys().step_by(want.len() / 8 + 1).cloned();
        let none = gone.iter().map(|(id, row)| entry(tree, *id, row).0);
        for key in some.chain(none).collect::<Vec<_>>() {
            let found = session.sim_entry(table, tree, &key)?;
            if found != want.get(&key).map(|(row, payload)| (key.clone(), *row, payload.clone())) {
                return Ok(Some(format!("key tree {tree} has {found:?} at {key:?}, not {:?}", want.get(&key))));
            }
        }
    }
    Ok(None)
}

fn how_they_differ(have: &[(Vec<u8>, RowId, Vec<u8>)], want: &Entries, from: &[u8]) -> String {
    let in_order = have.windows(2).all(|pair| pair[0].0 < pair[1].0);
    let given: BTreeSet<&Vec<u8>> = have.iter().map(|e| &e.0).collect();
    let few = |ids: Vec<RowId>| format!("{} of rows {:?}", ids.len(), &ids[..ids.len().min(5)]);
    let lost = want.range(from.to_vec()..).filter(|(key, _)| !given.contains(key)).map(|(_, e)| e.0).collect();
    let extra = have.iter().filter(|e| !want.contains_key(&e.0)).map(|e| e.1).collect();
    let other = |e: &&(Vec<u8>, RowId, Vec<u8>)| want.get(&e.0).is_some_and(|w| (&w.0, &w.1) != (&e.1, &e.2));
    let different = have.iter().filter(other).map(|e| e.1).collect();
    format!("in order {in_order}, lost {}, extra {}, different {}", few(lost), few(extra), few(different))
}

/// Makes a table with the key trees of its kind.
pub(crate) fn create_table(engine: &Engine, name: &str, kind: usize, def: &TableDef) -> esker::Result<()> {
    match trees(kind) {
        0 => engine.create_table(name, def),
        n => engine.sim_create_table(name, def, &indexes(n)),
    }
}

impl Sim {
    /// As [`write_entries`], by a session of the workload; false if that met a fault.
    pub(crate) fn write_keys(
        &mut self,
        i: usize,
        table: &Arc<Table>,
        kind: usize,
        rewrite: Rewrite<'_>,
    ) -> Result<bool, Failure> {
        let shaky = self.slots[i].txn.as_ref().is_some_and(|t| t.shaky);
        let answer = write_entries(&mut self.slots[i].session, table, trees(kind), rewrite);
        Ok(matches!(self.judge("writing entries of a row", answer, &[], shaky)?, Answer::Ok(())))
    }

    /// A session's view of a table's key trees is that of its rows; false if that met a fault. The view is the latest if
    /// none is given.
    pub(crate) fn check_keys(
        &mut self,
        i: usize,
        (name, table): (&str, &Arc<Table>),
        kind: usize,
        rows: &BTreeMap<u64, Row>,
        view: Option<u64>,
    ) -> Result<bool, Failure> {
        let shaky = self.slots[i].txn.as_ref().is_some_and(|t| t.shaky);
        // Versions that are in the trees, most of which nobody sees.
        let versions = self.model.tables.get(name).into_iter().flat_map(|t| &t.rows);
        let old = versions.flat_map(|(id, all)| all.iter().rev().skip(1).take(1).map(|v| (*id, v.row.clone())));
        let gone: Vec<_> = old.filter_map(|(id, row)| Some((id, row?))).take(20).collect();
        // What the engine hides it hides in its own indexes.
        let txn = self.slots[i].txn.as_ref();
        let all = self.model.visible(name, view, txn);
        let hidden = self.model.hidden(name, &all, view, txn);
        self.stats.rows_hidden += hidden.len() as u64;
        let all: BTreeMap<_, _> = rows.iter().map(|(id, row)| (*id, row.clone())).chain(hidden).collect();
        let answer = keys_differ(&mut self.slots[i].session, table, trees(kind), &all, &gone);
        match self.judge(&format!("reading keys of {name}"), answer, &[], shaky)? {
            Answer::Ok(None) if self.rng.chance(40) => self.check_kept(i, (name, table), kind, rows, view),
            Answer::Ok(None) => Ok(true),
            Answer::Ok(Some(why)) => self.fail(format!("{name} as s{i} sees it: {why}")),
            _ => Ok(false),
        }
    }

    /// The entries of some rows, by the keys that these have in `rows` and that they had before, are what `rows` say; false
    /// if that met a fault.
    pub(crate) fn check_keys_of(
        &mut self,
        i: usize,
        (name, table): (&str, &Arc<Table>),
        ids: &[u64],
        rows: &BTreeMap<u64, Row>,
    ) -> Result<bool, Failure> {
        let shaky = self.slots[i].txn.as_ref().is_some_and(|t| t.shaky);
        let Some(model) = self.model.tables.get(name) else { return Ok(true) };
        let mut wanted = Vec::new();
        for (id, tree) in ids.iter().flat_map(|id| (0..trees(model.kind)).map(move |tree| (*id, tree))) {
            let now = rows.get(&id).map(|row| entry(tree, id, row));
            let all = model.rows.get(&id).into_iter().flatten().filter_map(|v| v.row.as_ref());
            let old = all.map(|row| entry(tree, id, row).0).filter(|key| now.as_ref().is_none_or(|now| now.0 != *key));
            wanted.extend(old.map(|key| (id, tree, key, None)));
            wanted.extend(now.map(|(key, payload)| (id, tree, key, Some(payload))));
        }
        for (id, tree, key, payload) in wanted {
            let answer = self.slots[i].session.sim_entry(table, tree, &key);
            let Answer::Ok(found) = self.judge(&format!("reading a key of {name}"), answer, &[], shaky)? else {
                return Ok(false);
            };
            let want = payload.map(|payload| (key.clone(), RowId(id), payload));
            if found != want {
                return self
                    .fail(format!("{name} as s{i} sees it: tree {tree} has {found:?} at {key:?}, not {want:?}"));
            }
        }
        Ok(true)
    }

    /// As [`check_keys`](Self::check_keys), of the view in which the session reads the table, which is opened if there is
    /// none.
    pub(crate) fn check_keys_in_view(&mut self, i: usize, name: &str) -> Result<bool, Failure> {
        // Where nothing is read no view is opened.
        let kind = self.model.tables.get(name).map(|t| t.kind);
        let Some(kind) = kind.filter(|kind| trees(*kind) > 0) else { return Ok(true) };
        let (view, too_old) = self.read_view(i, name);
        if too_old {
            return Ok(true);
        }
        let table = self.engine()?.open_table(name).map_err(|e| Failure::new(format!("open table {name}: {e}")))?;
        let rows = self.seen(i, name, view);
        self.check_keys(i, (name, &table), kind, &rows, view)
    }

    /// Notes what background work has done to a table's key trees, which had the runs `before`.
    pub(crate) fn see_key_runs(
        &mut self,
        table: &Table,
        before: &[RunFigures],
        flush: bool,
        merge: bool,
    ) -> Result<(), Failure> {
        let now = self.engine()?.sim_key_runs(table);
        let is_in = |file: u64, runs: &[RunFigures]| runs.iter().any(|r| r.file == file);
        let new = now.iter().any(|r| !r.private && !is_in(r.file, before));
        let gone = before.iter().any(|r| !is_in(r.file, &now));
        self.stats.keys_flushed += u64::from(flush && new);
        self.stats.keys_merged += u64::from(merge && new && gone);
        self.stats.keys_narrowed += now.iter().filter(|r| r.narrowed).count() as u64;
        // Entries are never written to private runs: what is in one was moved by a flush.
        self.stats.keys_moved += now.iter().filter(|r| r.private).count() as u64;
        if new && !self.faulty {
            // The power may go just now.
            self.stats.keys_over_blocks += self.engine()?.sim_keys_over_blocks(table).unwrap_or(0);
            let (in_memory, in_runs) = self.engine()?.sim_keys_alike(table).unwrap_or_default();
            self.stats.keys_alike_in_memory += in_memory;
            self.stats.keys_alike_in_runs += in_runs;
        }
        Ok(())
    }

    /// Notes what a restart has found in key trees.
    pub(crate) fn see_recovered_keys(&mut self) -> Result<(), Failure> {
        let engine = self.engine()?.clone();
        let of = |(name, t): (&String, &TableModel)| (name.clone(), trees(t.kind) + t.indexes.len(), t.key);
        let names: Vec<(String, usize, u64)> = self.model.tables.iter().map(of).collect();
        for (name, trees, key) in names.into_iter().filter(|t| t.1 > 0) {
            let table = engine.open_table(&name).map_err(|e| Failure::new(format!("open table {name}: {e}")))?;
            let runs = engine.sim_key_runs(&table);
            let in_memory = engine.sim_keys_in_memory(&table);
            if engine.sim_key_trees(&table) != trees {
                return self.fail(format!("{name} has {} key trees, not {trees}", engine.sim_key_trees(&table)));
            }
            let prepared = self.model.detached.values().any(|t| t.changes.keys().any(|(k, _)| *k == key));
            self.stats.keys_from_runs += u64::from(!runs.is_empty());
            self.stats.keys_from_log += u64::from(in_memory);
            self.stats.keys_prepared += u64::from(prepared);
            self.stats.keys_moved_back += u64::from(runs.iter().any(|r| r.private));
        }
        Ok(())
    }
}
