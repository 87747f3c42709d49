//! Whose memory it is. Told from accounts and from what trees have in memory: no file is touched, and nobody is waited for who
//! waits for a disk.

use crate::catalog::table::with_tree;
use crate::engine::Engine;
use crate::tree::stored::Stored;
use crate::tree::Tree;
use esker_memory::{charged, charges, peak, Account};

/// Who has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MemoryOwner {
    /// The engine: an account, in which the memory of sessions and tables is, too.
    Engine,
    /// A session, by its connection; zero: nobody has said which.
    Session(u64),
    /// A table, by its name.
    Table(String),
}

/// Memory of one kind that somebody has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryInfo {
    /// Who has it.
    pub owner: MemoryOwner,
    /// The account's name; of a session "redo" (what goes to the log with the commit) and "gathered" (rows of a large write), as
    /// it told at the last end of a statement; of a table "memtable" (its rows and entries that are in no run yet),
    /// "block_cache" and "block_index".
    pub kind: &'static str,
    /// Bytes now.
    pub bytes: u64,
    /// The most so far: of an account since the process began, of a session since it did. Not known of tables.
    pub peak_bytes: Option<u64>,
    /// Of an account, its charges; of a table memtables, blocks, indexes; of a session one, or none.
    pub objects: u64,
}

/// What a table has in memory: objects and bytes.
#[derive(Default)]
struct InMemory {
    memtable: (u64, u64),
    blocks: (u64, u64),
    index: (u64, u64),
}

fn add(to: &mut (u64, u64), (objects, bytes): (u64, u64)) {
    to.0 += objects;
    to.1 += bytes;
}

impl InMemory {
    fn add<K: Stored>(&mut self, tree: &Tree<K>) {
        let state = tree.snapshot();
        let memtables = state.memtables().filter(|m| !m.is_empty());
        memtables.for_each(|m| add(&mut self.memtable, (1, m.used_bytes() as u64)));
        let mut seen = std::collections::HashSet::new();
        // Several handles may be of one run.
        for handle in state.runs.iter().filter(|h| seen.insert(std::sync::Arc::as_ptr(&h.run))) {
            if let Some(index) = handle.run.index_in_memory() {
                let (blocks, block_bytes, own_bytes) = index.in_memory();
                add(&mut self.blocks, (blocks, block_bytes));
                add(&mut self.index, (1, own_bytes));
            }
        }
    }
}

impl Engine {
    /// All of it: the engine's accounts, then sessions, then tables by their names.
    pub fn memory(&self) -> Vec<MemoryInfo> {
        let mut list: Vec<_> = Account::ALL
            .into_iter()
            .map(|account| MemoryInfo {
                owner: MemoryOwner::Engine,
                kind: account.name(),
                bytes: charged(account),
                peak_bytes: Some(peak(account)),
                objects: charges(account),
            })
            .collect();
        for session in self.core.sessions.all() {
            for (kind, own) in [("redo", &session.redo), ("gathered", &session.gathered)] {
                let (bytes, most) = own.get();
                let owner = MemoryOwner::Session(session.connection());
                list.push(MemoryInfo { owner, kind, bytes, peak_bytes: Some(most), objects: u64::from(bytes > 0) });
            }
        }
        let mut tables: Vec<_> = self.core.shown_tables().into_iter().map(|table| (table.name(), table)).collect();
        tables.sort_by(|a, b| a.0.cmp(&b.0));
        for (name, table) in tables {
            let mut of = InMemory::default();
            for tree in table.trees().all() {
                with_tree!(tree, tree => of.add(&tree));
            }
            let kinds = [("memtable", of.memtable), ("block_cache", of.blocks), ("block_index", of.index)];
            list.extend(kinds.into_iter().filter(|(_, (objects, _))| *objects > 0).map(|(kind, (objects, bytes))| {
                MemoryInfo { owner: MemoryOwner::Table(name.clone()), kind, bytes, peak_bytes: None, objects }
            }));
        }
        list
    }
}
