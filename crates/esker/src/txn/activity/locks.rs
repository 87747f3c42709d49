//! Who has locked what, and who wants it: in words that people know, the values of keys.
//!
//! Every list is copied first; then no lock is held that a row operation takes, and texts are made from what is in memory:
//! a row whose block would have to be read is told by its id. A list is bounded: what a transaction has locked beyond its
//! share is one line.

use crate::catalog::index::Index;
use crate::catalog::table::{AnyTree, Table};
use crate::core::Core;
use crate::lock::{LockMode, LockOwner, Locked, WaitKey, Waiter, COUNTER};
use crate::read::buffer::decode;
use crate::tree::{find_in_memory, Found};
use crate::version::View;
use crate::Engine;
use esker_format::{ColumnMask, LocalTime, RowId, Telling, TreeId, TxnId};
use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering;
use std::sync::Arc;

/// Lines of one transaction, at most.
const MOST_OF_ONE: usize = 1000;
/// Of all, at most, but for a line or two of each.
const MOST_OF_ALL: usize = 4000;
/// Characters of a text.
const MOST_CHARS: usize = 512;
/// The end of one that was longer.
const CUT: &str = "...";

/// A lock, neighbouring ones of a transaction that has many, or the wish for one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockInfo {
    /// Whose.
    pub txn: TxnId,
    /// Its session's connection; zero: none, as for a prepared transaction after a restart.
    pub connection: u64,
    /// The table; empty: of all those that are not listed.
    pub table: String,
    /// "row", "key" (of an index), "range" (all rows, or those that another transaction inserts) or "auto_increment" (the
    /// counter).
    pub kind: &'static str,
    /// The index whose values the text has.
    pub key_name: Option<String>,
    /// Which it is.
    pub key_text: String,
    /// "shared" or "exclusive"; none: it is another's end that is waited for, in whatever mode.
    pub mode: Option<&'static str>,
    /// It is not granted.
    pub waiting: bool,
}

/// Something that can be locked, in words.
#[derive(Default)]
pub(super) struct What {
    pub(super) table: String,
    pub(super) kind: &'static str,
    pub(super) row: Option<RowId>,
    key_name: Option<String>,
    key_text: Option<String>,
}

impl What {
    /// The text with its index's name.
    pub(super) fn named_text(&self) -> Option<String> {
        let text = self.key_text.as_ref()?;
        Some(match &self.key_name {
            Some(name) => cut(format!("{name}({text})")),
            None => text.clone(),
        })
    }
}

fn cut(text: String) -> String {
    if text.chars().count() <= MOST_CHARS {
        return text;
    }
    text.chars().take(MOST_CHARS - CUT.len()).chain(CUT.chars()).collect()
}

/// The tables of some trees, and for whom what is locked there is told.
pub(super) struct Trees<'a> {
    trees: HashMap<TreeId, Tree>,
    local_time: Option<&'a LocalTime>,
}

struct Tree {
    table: Arc<Table>,
    indexes: Vec<Arc<Index>>,
    /// It is the tree of this index; none: of the rows.
    index: Option<usize>,
}

impl<'a> Trees<'a> {
    /// Without a local time they are told for whoever may read it.
    pub(super) fn of(core: &Core, wanted: HashSet<TreeId>, local_time: Option<&'a LocalTime>) -> Trees<'a> {
        let mut trees = HashMap::new();
        if wanted.is_empty() {
            return Trees { trees, local_time };
        }
        for table in core.shown_tables() {
            let of_table = table.trees();
            for (at, tree) in of_table.all().enumerate().filter(|(_, tree)| wanted.contains(&tree.id())) {
                // The rows' is the first.
                let index = matches!(tree, AnyTree::Keys(_)).then(|| at - 1);
                let indexes = of_table.indexes.clone();
                trees.insert(tree.id(), Tree { table: table.clone(), indexes, index });
            }
        }
        Trees { trees, local_time }
    }

    /// What somebody waits for.
    pub(super) fn wanted(&self, wait: &Waiter) -> What {
        match wait.key {
            WaitKey::Row(tree, row) => self.rows(tree, row, row, wait.blockers.first().copied()),
            WaitKey::Range(tree) => self.range(tree, "all rows".to_owned()),
            WaitKey::End(txn, tree) => {
                let text = format!("rows that transaction {txn} inserts");
                What { kind: "transaction end", key_text: Some(text), ..self.what(tree) }
            }
            WaitKey::Change(txn, tree) => {
                let key = || {
                    let (tree, row) = (self.trees.get(&tree)?, wait.row?);
                    tree.text(tree.index?, row, [txn, TxnId::ZERO], self.local_time)
                };
                let (key_name, key_text) = key().unzip();
                let key_text = key_text.or(wait.row.map(|row| format!("row id {row}")));
                What { kind: "key", row: wait.row, key_name, key_text, ..self.what(tree) }
            }
        }
    }

    fn what(&self, tree: TreeId) -> What {
        What { table: self.trees.get(&tree).map(|t| t.table.name()).unwrap_or_default(), ..What::default() }
    }

    fn range(&self, tree: TreeId, text: String) -> What {
        What { kind: "range", key_text: Some(text), ..self.what(tree) }
    }

    /// Rows, or keys that are reserved; `owner` may have written them.
    fn rows(&self, tree: TreeId, first: RowId, last: RowId, owner: Option<TxnId>) -> What {
        if first == COUNTER {
            return What { kind: "auto_increment", ..self.what(tree) };
        }
        let what = What { kind: "row", row: Some(first), ..self.what(tree) };
        let Some(at) = self.trees.get(&tree) else { return what };
        if let Some(index) = at.index {
            let key_name = Some(at.indexes[index].entry.name.clone());
            return What { kind: "key", row: None, key_name, key_text: Some(format!("hash {:06x}", first.0)), ..what };
        }
        if first != last {
            let text = format!("row ids {first} to {last} ({} rows)", last.0 - first.0 + 1);
            return What { key_text: Some(text), ..what };
        }
        // Tables of the front end have it first, if they have one.
        let primary = at.indexes.iter().position(|i| i.entry.unique && i.is_kept());
        let by = [TxnId::ZERO, owner.unwrap_or(TxnId::ZERO)];
        let text = primary.and_then(|index| at.text(index, first, by, self.local_time));
        match text {
            Some((name, text)) => What { key_name: Some(name), key_text: Some(text), ..what },
            None => What { key_text: Some(format!("row id {first}")), ..what },
        }
    }
}

impl Tree {
    /// The row's values in an index, with the index's name, as the first of these sees them who finds the row in memory;
    /// zero: nobody, so as they were committed.
    fn text(
        &self,
        index: usize,
        row: RowId,
        by: [TxnId; 2],
        local_time: Option<&LocalTime>,
    ) -> Option<(String, String)> {
        let index = &self.indexes[index];
        let (codec, rows) = (index.codec().ok()?, self.table.tree());
        let state = rows.snapshot();
        let seen = by.into_iter().filter_map(|me| find_in_memory(&state, row, View::newest(me)));
        let found = seen.into_iter().find(|found| !matches!(found, Found::Tombstone))?;
        let mut mask = ColumnMask::none(self.table.layout.columns.len());
        codec.columns().for_each(|column| mask.set(column));
        let mut image = vec![0; self.table.layout.image_bytes as usize];
        decode(&self.table, &mask, &found, &mut image).ok()?;
        let telling = Telling { collations: &*index.collations, shown: &self.table.shown(), local_time };
        // SAFETY: the image has the columns of the index, and blob slots point to what `found` keeps.
        let text = unsafe { codec.text_of_image(image.as_ptr(), &telling) };
        Some((index.entry.name.clone(), cut(text)))
    }
}

fn mode_name(mode: LockMode) -> &'static str {
    match mode {
        LockMode::Shared => "shared",
        LockMode::Exclusive => "exclusive",
    }
}

/// In which mode somebody wants what he waits for; none: it is another's end that he waits for.
pub(super) fn mode_of(wait: &Waiter) -> Option<LockMode> {
    match wait.key {
        WaitKey::Row(..) | WaitKey::Range(_) => Some(wait.mode),
        WaitKey::End(..) | WaitKey::Change(..) => None,
    }
}

/// Everybody who may have locks, with the connection.
fn owners(core: &Core) -> Vec<(u64, Arc<LockOwner>)> {
    let open = core.sessions.open().into_iter();
    let mut owners: Vec<_> = open.map(|(p, owner)| (p.connection.load(Ordering::Relaxed), owner)).collect();
    let known: HashSet<TxnId> = owners.iter().map(|(_, owner)| owner.txn).collect();
    let prepared: Vec<_> = core.prepared.lock().values().map(|p| (0, p.state.locks.clone())).collect();
    owners.extend(prepared.into_iter().filter(|(_, owner)| !known.contains(&owner.txn)));
    owners.retain(|(_, owner)| owner.holds_any());
    owners.sort_by_key(|(_, owner)| owner.txn);
    owners
}

impl LockInfo {
    fn new(txn: TxnId, connection: u64, what: What, mode: Option<LockMode>, waiting: bool) -> Self {
        let mode = mode.map(mode_name);
        let (key_name, key_text) = (what.key_name, what.key_text.unwrap_or_default());
        LockInfo { txn, connection, table: what.table, kind: what.kind, key_name, key_text, mode, waiting }
    }
}

impl Engine {
    /// Every lock, by transactions, then every wait for one. A transaction with many has them in few lines: neighbouring rows
    /// as one, and from some number on the rest as one. Timestamps are told in UTC.
    pub fn locks(&self) -> Vec<LockInfo> {
        self.locks_told(None)
    }

    /// The same for a reader whose local time this is.
    pub fn locks_told(&self, local_time: Option<&LocalTime>) -> Vec<LockInfo> {
        let core = &self.core;
        let owners = owners(core);
        let most = (MOST_OF_ALL / owners.len().max(1)).clamp(1, MOST_OF_ONE);
        let held: Vec<_> = owners.iter().map(|(_, owner)| core.locks.held_by(owner, most)).collect();
        let waits = core.locks.waits();
        let tree_of = |lock: &Locked| match lock {
            Locked::Rows { tree, .. } | Locked::Range { tree, .. } => *tree,
        };
        let of_held = held.iter().flat_map(|(list, _)| list.iter().map(tree_of));
        let trees = Trees::of(core, of_held.chain(waits.iter().map(|w| w.key.tree())).collect(), local_time);
        let mut all = Vec::new();
        for ((connection, owner), (list, more)) in owners.iter().zip(held) {
            let line = |what, mode| LockInfo::new(owner.txn, *connection, what, mode, false);
            all.extend(list.iter().map(|lock| match *lock {
                Locked::Rows { tree, first, last, mode } => {
                    line(trees.rows(tree, first, last, Some(owner.txn)), Some(mode))
                }
                Locked::Range { tree, up_to } => {
                    line(trees.range(tree, format!("rows before row id {up_to}")), Some(LockMode::Exclusive))
                }
            }));
            if more > 0 {
                let key_text = Some(format!("... and {more} more"));
                all.push(line(What { kind: "row", key_text, ..What::default() }, None));
            }
        }
        let connections = connections(core);
        all.extend(waits.iter().map(|wait| {
            let connection = connections.get(&wait.txn).copied().unwrap_or_default();
            let what = trees.wanted(wait);
            // What is still to come of another transaction: no row, no key.
            let kind = if what.kind == "transaction end" { "range" } else { what.kind };
            LockInfo::new(wait.txn, connection, What { kind, ..what }, mode_of(wait), true)
        }));
        all
    }
}

/// Of all who have a transaction open in a session.
pub(super) fn connections(core: &Core) -> HashMap<TxnId, u64> {
    let open = core.sessions.open().into_iter();
    open.map(|(p, owner)| (owner.txn, p.connection.load(Ordering::Relaxed))).collect()
}
