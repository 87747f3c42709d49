//! The next identity of each kind. None is ever given twice: the manifest says how far they had come, and an opening counts
//! on from all that log and folder name.

use esker_format::{FileId, Manifest, TableId, TreeId, TxnId};
use std::sync::atomic::{AtomicU64, Ordering};

/// See the module.
pub(crate) struct Ids {
    table: AtomicU64,
    tree: AtomicU64,
    file: AtomicU64,
    txn: AtomicU64,
}

impl Ids {
    /// As far as a manifest says.
    pub(crate) fn of(manifest: &Manifest) -> Self {
        Ids {
            table: AtomicU64::new(manifest.next_table.0),
            tree: AtomicU64::new(manifest.next_tree.0),
            file: AtomicU64::new(manifest.next_file.0),
            txn: AtomicU64::new(manifest.next_txn.0),
        }
    }

    pub(crate) fn new_table(&self) -> TableId {
        TableId(self.table.fetch_add(1, Ordering::Relaxed))
    }

    pub(crate) fn new_tree(&self) -> TreeId {
        TreeId(self.tree.fetch_add(1, Ordering::Relaxed))
    }

    pub(crate) fn new_file(&self) -> FileId {
        FileId(self.file.fetch_add(1, Ordering::Relaxed))
    }

    pub(crate) fn new_txn(&self) -> TxnId {
        TxnId(self.txn.fetch_add(1, Ordering::Relaxed))
    }

    /// The one that comes next: nobody has it or a later one.
    pub(crate) fn next_table(&self) -> TableId {
        TableId(self.table.load(Ordering::Relaxed))
    }

    pub(crate) fn next_tree(&self) -> TreeId {
        TreeId(self.tree.load(Ordering::Relaxed))
    }

    pub(crate) fn next_file(&self) -> FileId {
        FileId(self.file.load(Ordering::Relaxed))
    }

    pub(crate) fn next_txn(&self) -> TxnId {
        TxnId(self.txn.load(Ordering::Relaxed))
    }

    /// Somebody has it: those that come are later.
    pub(crate) fn table_seen(&self, id: TableId) {
        self.table.fetch_max(id.0 + 1, Ordering::Relaxed);
    }

    pub(crate) fn tree_seen(&self, id: TreeId) {
        self.tree.fetch_max(id.0 + 1, Ordering::Relaxed);
    }

    pub(crate) fn file_seen(&self, id: FileId) {
        self.file.fetch_max(id.0 + 1, Ordering::Relaxed);
    }

    pub(crate) fn txn_seen(&self, id: TxnId) {
        self.txn.fetch_max(id.0 + 1, Ordering::Relaxed);
    }
}
