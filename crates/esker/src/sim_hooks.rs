//! What the simulator needs of the engine and nobody else: background work piece by piece, calls that do none on the
//! side, and a look at what lies in a table.
//!
//! Invariant: nothing here does what the engine's own threads or callers could not do at that moment.

use crate::catalog::ddl;
use crate::catalog::index::IndexDef;
use crate::catalog::table::{with_tree, Table, TableDef};
use crate::engine::Engine;
pub use crate::host::SimHost;
pub use crate::read::keys::SeenEntry;
use crate::session::Session;
use crate::tree::key::ByBytes;
use crate::tree::stored::{may_meet, Stored};
use crate::tree::{RunHandle, Tree};
use crate::upkeep::{background, checkpoint, flush, merge};
use crate::work::Kind;
pub use crate::write::keys::Entry;
use crate::Result;
use esker_format::IndexEntry;
use std::cell::Cell;
use std::sync::Arc;

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work`; commits in this thread do no background work behind themselves meanwhile. Somebody else is in the
/// middle of it, and has its locks.
pub fn quietly<T>(work: impl FnOnce() -> T) -> T {
    struct Before(bool);
    impl Drop for Before {
        fn drop(&mut self) {
            QUIET.set(self.0);
        }
    }
    let _before = Before(QUIET.replace(true));
    work()
}

pub(crate) fn is_quiet() -> bool {
    QUIET.get()
}

/// A run of a table, as the simulator sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunFigures {
    /// Its file.
    pub file: u64,
    /// Versions in it.
    pub rows: u64,
    /// Those of them that are tombstones.
    pub tombstones: u64,
    /// Blocks.
    pub blocks: u64,
    /// Its transaction has not ended, as far as the tree knows.
    pub private: bool,
    /// A merge took keys of it.
    pub narrowed: bool,
}

impl Engine {
    /// Writes one table's memtable out.
    pub fn sim_flush(&self, table: &Table) -> Result<()> {
        table.trees().all().try_for_each(|tree| with_tree!(tree, tree => flush::tree(&self.core, table, &tree)))
    }

    /// One merge of one table; false if nothing there wants merging.
    pub fn sim_merge(&self, table: &Table) -> Result<bool> {
        for tree in table.trees().all() {
            if with_tree!(tree, tree => merge::once(&self.core, table, &tree))? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// A manifest, nothing flushed before.
    pub fn sim_manifest(&self) -> Result<()> {
        checkpoint::write(&self.core)
    }

    /// One round of the background threads that look after log and memory, with what they make of an error.
    pub fn sim_round(&self) -> Result<()> {
        self.judged(background::one_round(&self.core))
    }

    /// One round of the background thread that merges; false if nothing wants merging.
    pub fn sim_merge_round(&self) -> Result<bool> {
        self.judged(background::merge_somewhere(&self.core))
    }

    /// Is space in the log set aside for a DROP TABLE?
    pub fn sim_has_drop_space(&self) -> bool {
        self.core.drop_space.lock().is_some()
    }

    fn judged<T>(&self, result: Result<T>) -> Result<T> {
        match &result {
            Err(e) if e.stops_writing() => self.core.writable.poison(&e.to_string()),
            _ => {}
        }
        result
    }

    /// A table with key trees, behind those of the indexes in `def`, that nobody keeps but the caller.
    pub fn sim_create_table(&self, name: &str, def: &TableDef, indexes: &[IndexEntry]) -> Result<()> {
        ddl::create_table(&self.core, name, def, 0, indexes)
    }

    /// The runs of a table's key trees.
    pub fn sim_key_runs(&self, table: &Table) -> Vec<RunFigures> {
        table.trees().keys.iter().flat_map(|tree| figures(tree)).collect()
    }

    /// The indexes of a table, in their order.
    pub fn sim_indexes(&self, table: &Table) -> Vec<IndexDef> {
        let def = |(_, index): (usize, &Arc<crate::catalog::index::Index>)| {
            let entry = &index.entry;
            IndexDef { name: entry.name.clone(), unique: entry.unique, parts: entry.parts.clone() }
        };
        table.trees().kept_indexes().map(def).collect()
    }

    /// How many key trees a table has.
    pub fn sim_key_trees(&self, table: &Table) -> usize {
        table.trees().keys.len()
    }

    /// Places in the runs of a table's key trees where the versions of a key go on in the next block. Reads those blocks.
    pub fn sim_keys_over_blocks(&self, table: &Table) -> Result<u64> {
        let mut places = 0;
        for tree in &table.trees().keys {
            for handle in &tree.snapshot().runs {
                places += keys_over_blocks(handle)?;
            }
        }
        Ok(places)
    }

    /// Neighbours in a table's key trees whose first 8 bytes are alike, and that differ later: in memtables, and in the blocks of runs,
    /// which are read.
    pub fn sim_keys_alike(&self, table: &Table) -> Result<(u64, u64)> {
        let (mut in_memory, mut in_runs) = (0, 0);
        for tree in &table.trees().keys {
            let state = tree.snapshot();
            for memtable in state.memtables() {
                let behind = memtable.walk().skip(1);
                in_memory += memtable.walk().zip(behind).filter(|(a, b)| is_alike(a.key(), b.key())).count() as u64;
            }
            for handle in &state.runs {
                let index = handle.run.index()?.keep();
                for at in 0..index.entries().len() {
                    let block = handle.run.read_block_of(&index, at)?;
                    let (rows, key) = (ByBytes::rows(&block), |i| ByBytes::key(&block, i));
                    in_runs += (1..rows).filter(|i| is_alike(key(i - 1), key(*i))).count() as u64;
                }
            }
        }
        Ok((in_memory, in_runs))
    }

    /// Has any key tree of a table versions in a memtable?
    pub fn sim_keys_in_memory(&self, table: &Table) -> bool {
        table.trees().keys.iter().any(|tree| tree.snapshot().memtables().any(|m| !m.is_empty()))
    }

    /// The runs of a table's rows.
    pub fn sim_runs(&self, table: &Table) -> Vec<RunFigures> {
        figures(&table.tree())
    }
}

fn is_alike(a: &[u8], b: &[u8]) -> bool {
    a != b && a.len() > 8 && b.len() > 8 && a[..8] == b[..8]
}

fn keys_over_blocks<K: Stored>(handle: &RunHandle<K>) -> Result<u64> {
    let index = handle.run.index()?.keep();
    let mut places = 0;
    for at in 1..index.entries().len() {
        if may_meet::<K>(&index.entries()[at - 1], &index.entries()[at]) {
            let (block, next) = (handle.run.read_block_of(&index, at - 1)?, handle.run.read_block_of(&index, at)?);
            places += u64::from(K::cmp(K::last_key(&block), K::key(&next, 0)).is_eq());
        }
    }
    Ok(places)
}

fn figures<K: Stored>(tree: &Tree<K>) -> Vec<RunFigures> {
    let figures = |h: &RunHandle<K>| {
        let stats = &h.run.stats;
        let narrowed = (&h.first, &h.last) != (&h.run.bounds.0, &h.run.bounds.1);
        let (file, private) = (h.run.file_id.0, h.owner.is_some());
        let (rows, tombstones, blocks) = (stats.rows, stats.tombstones, stats.blocks);
        RunFigures { file, rows, tombstones, blocks, private, narrowed }
    };
    tree.snapshot().runs.iter().map(figures).collect()
}

/// The place of a key tree among all of the table's; the simulator counts those that nobody keeps.
fn place(table: &Table, apart: usize) -> usize {
    table.trees().kept_indexes().count() + apart
}

impl Session {
    /// Has the transaction lost what it had written, as where that could not be spilled?
    pub fn sim_has_lost(&self) -> bool {
        self.current.open().is_some_and(|txn| txn.broken.is_some())
    }

    /// Writes an entry of a key tree. The caller has the row's lock, and no other row has that key.
    pub fn sim_write_entry(&mut self, table: &Arc<Table>, apart: usize, entry: Entry<'_>) -> Result<()> {
        self.write_entry(table, place(table, apart), entry)
    }

    /// All entries of a key tree from `from` on that this session's view sees: keys, rows and payloads.
    pub fn sim_entries(&mut self, table: &Arc<Table>, apart: usize, from: &[u8]) -> Result<Vec<SeenEntry>> {
        self.read_entries(table, place(table, apart), from)
    }

    /// The entry with the least key from `from` on, as this session's view sees it.
    pub fn sim_first(&mut self, table: &Arc<Table>, apart: usize, from: &[u8]) -> Result<Option<SeenEntry>> {
        self.first_entry(table, place(table, apart), from)
    }

    /// The entry of one key, as this session's view sees it.
    pub fn sim_entry(&mut self, table: &Arc<Table>, apart: usize, key: &[u8]) -> Result<Option<SeenEntry>> {
        self.read_entry(table, place(table, apart), key)
    }
}

/// Notes what `read` counts, in a thread that is bound to the session's counters, as read from the table, and ends the statement in
/// which it was: what the table's figures cost a statement, and nothing else of it.
pub fn note_work(session: &mut Session, table: &Table, read: impl FnOnce()) {
    session.works_on(&table.work, Kind::Read);
    read();
    session.tell_work();
}
