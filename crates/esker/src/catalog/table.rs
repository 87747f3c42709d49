//! A table: its definition and its current trees.

use crate::catalog::auto_increment::AutoIncrement;
use crate::catalog::index::{Index, IndexDef};
use crate::catalog::live_rows::LiveRows;
use crate::tree::key::ByBytes;
use crate::tree::memtable::Memtable;
use crate::tree::stored::{KeyShape, RowShape, Stored};
use crate::tree::{InMemory, InRuns, Tree, TreeState};
use crate::version::View;
use crate::work::Work;
use crate::{Error, Result};
use esker_base::lock::{order, Mutex, RwLock};
use esker_format::key_bytes::key_encoding;
use esker_format::{
    trees_version, Collations, ColumnMask, CommitSeq, Compression, IndexEntry, KeyCodec, KeyPart, Layout,
    LayoutVersion, Lsn, RowFormat, Schema, Shown, TableEntry, TableId, TreeEntry, TreeId, TreeKind, Type,
};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Duration;

/// What a table is created with.
#[derive(Debug, Clone)]
pub struct TableDef {
    /// How a row image is laid out.
    pub layout: Layout,
    /// How blocks keep rows.
    pub format: RowFormat,
    /// How blocks are compressed.
    pub compression: Compression,
    /// Gone after a restart, and readable whatever the age of the view.
    pub temporary: bool,
    /// Its keys.
    pub indexes: Vec<IndexDef>,
    /// Bytes of the front end, 8 MiB at most; a [`Schema`], or opaque here.
    pub extra: Vec<u8>,
}

impl TableDef {
    /// A table of these columns: packed rows, compressed with LZ4.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) for a schema that is none: see [`Schema::layout`].
    pub fn of(schema: &Schema) -> crate::Result<TableDef> {
        let layout = schema.layout().map_err(|e| {
            let why = schema.problem().unwrap_or_else(|| format!("its rows: {e}"));
            crate::Error::InvalidArgument(format!("a schema that is none: {why}"))
        })?;
        let mut extra = Vec::new();
        schema.encode(&mut extra);
        let (format, compression) = (RowFormat::Dynamic, Compression::Lz4);
        Ok(TableDef { layout, format, compression, temporary: false, indexes: Vec::new(), extra })
    }
}

/// Indexes of tables that have a [`Schema`].
impl TableDef {
    /// Adds an index over these columns, by name.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) for a column that the schema does not have, or for none.
    pub fn index(self, name: &str, columns: &[&str]) -> crate::Result<TableDef> {
        self.with_index(name, columns, false)
    }

    /// The same of an index in which no two rows have the same values: who writes a second one gets
    /// [`Error::DuplicateKey`](crate::Error::DuplicateKey). NULL is like no other value.
    ///
    /// # Errors
    /// As for [`index`](Self::index).
    pub fn unique(self, name: &str, columns: &[&str]) -> crate::Result<TableDef> {
        self.with_index(name, columns, true)
    }

    fn with_index(mut self, name: &str, columns: &[&str], unique: bool) -> crate::Result<TableDef> {
        let bad = |why: String| crate::Error::InvalidArgument(format!("index '{name}': {why}"));
        let schema = Schema::decode(&self.extra).ok().flatten();
        let schema = schema.ok_or_else(|| bad("its table has no schema, so no columns by name".into()))?;
        if columns.is_empty() || self.indexes.iter().any(|i| i.name == name) {
            return Err(bad("it has no columns, or another index has its name".into()));
        }
        let part = |column: &&str| {
            let at = schema.position(column).ok_or_else(|| bad(format!("there is no column '{column}'")))?;
            let encoding = match schema.columns()[at].kind {
                Type::I64 => key_encoding::SIGNED,
                Type::U64 => key_encoding::UNSIGNED,
                Type::F64 => key_encoding::FLOAT,
                Type::Text(_) | Type::Bytes(_) => key_encoding::BYTES,
            };
            Ok(KeyPart { column: at as u32, prefix_bytes: 0, descending: false, encoding, collation: 0 })
        };
        let parts = columns.iter().map(part).collect::<crate::Result<_>>()?;
        self.indexes.push(IndexDef { name: name.to_owned(), unique, parts });
        Ok(self)
    }
}

/// Figures of a table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TableStats {
    /// Rows, as of the newest commit; an estimate as long as nobody has counted a table of an earlier version.
    pub rows: u64,
    /// Bytes of the rows' run files and memtables; those of indexes: [`Table::index_bytes`].
    pub data_bytes: u64,
    /// Bytes of packed rows in runs, before compression.
    pub raw_bytes: u64,
    /// Runs.
    pub runs: u64,
    /// Bytes of memory in memtables.
    pub memtable_bytes: u64,
    /// Bytes of dead versions, estimated.
    pub dead_bytes: u64,
    /// Seconds since 1970.
    pub created_unix_s: u64,
    /// Last commit that changed it, seconds since 1970; 0: not since the start.
    pub updated_unix_s: u64,
}

/// The trees of a table and its indexes, until it is emptied or altered: then it gets others.
pub(crate) struct Trees {
    pub(crate) rows: Arc<Tree>,
    /// One a key, in the catalog's order.
    pub(crate) keys: Vec<Arc<Tree<ByBytes>>>,
    /// What the keys are, in the same order.
    pub(crate) indexes: Vec<Arc<Index>>,
    /// Columns that keys are made of.
    pub(crate) index_columns: ColumnMask,
    pub(crate) auto_increment: Arc<AutoIncrement>,
    pub(crate) live: Arc<LiveRows>,
}

impl Trees {
    /// Empty ones for the trees of `entry`, from `lsn` on, with memtables that are new.
    pub(crate) fn new(entry: &TableEntry, indexes: Vec<Arc<Index>>, memtables: Memtables, lsn: Lsn) -> Trees {
        let Memtables { rows, keys } = memtables;
        let rows = Tree::new(entry.row_tree(), Table::row_shape(entry), rows, lsn);
        let keys = key_trees(entry).zip(keys).map(|((id, index), mem)| Tree::new(id, key_shape(index), mem, lsn));
        let live = LiveRows::new(0, CommitSeq(lsn.0), true);
        let index_columns = index_columns(&entry.layout.layout, &indexes);
        Trees { rows, keys: keys.collect(), indexes, index_columns, auto_increment: Arc::default(), live }
    }

    /// The indexes that are written with the rows, by their places.
    pub(crate) fn kept_indexes(&self) -> impl Iterator<Item = (usize, &Arc<Index>)> {
        self.indexes.iter().enumerate().filter(|(_, index)| index.is_kept())
    }

    /// The index at this place.
    pub(crate) fn index(&self, at: usize) -> crate::Result<&Arc<Index>> {
        let index = self.indexes.get(at).filter(|i| i.is_kept());
        index.ok_or_else(|| crate::Error::InvalidArgument(format!("there is no index {at}")))
    }

    /// Are the keys of the index at this place unique?
    pub(crate) fn is_unique(&self, at: usize) -> bool {
        self.indexes.get(at).is_some_and(|index| index.entry.unique)
    }

    /// The place of the primary key: the first unique index without columns that can be NULL.
    pub(crate) fn primary(&self) -> Option<usize> {
        let is_primary = |index: &Index| index.entry.unique && index.codec().is_ok_and(|codec| !codec.has_nullable());
        self.kept_indexes().find(|(_, index)| is_primary(index)).map(|(at, _)| at)
    }

    /// The same, if it tells what a view sees.
    pub(crate) fn primary_of(&self, view: CommitSeq) -> Option<usize> {
        self.primary().filter(|at| self.tells(*at, view))
    }

    /// Does the index at this place tell what a view sees?
    pub(crate) fn tells(&self, at: usize, view: CommitSeq) -> bool {
        self.indexes[at].entry.usable_from <= view
    }

    /// What the catalog says of them.
    pub(crate) fn entries(&self) -> Vec<TreeEntry> {
        let rows = TreeEntry { id: self.rows.id, kind: TreeKind::Rows };
        let key = |(tree, index): (&Arc<Tree<ByBytes>>, &Arc<Index>)| TreeEntry {
            id: tree.id,
            kind: TreeKind::Keys(index.entry.clone()),
        };
        std::iter::once(rows).chain(self.keys.iter().zip(&self.indexes).map(key)).collect()
    }

    /// All of them.
    pub(crate) fn all(&self) -> impl Iterator<Item = AnyTree> + '_ {
        let keys = self.keys.iter().map(|k| AnyTree::Keys(k.clone()));
        std::iter::once(AnyTree::Rows(self.rows.clone())).chain(keys)
    }
}

/// Memtables for the trees of a table that is about to be made: what can fail of them comes first.
pub(crate) struct Memtables {
    rows: Arc<Memtable>,
    keys: Vec<Arc<Memtable<ByBytes>>>,
}

impl Memtables {
    pub(crate) fn new(entry: &TableEntry) -> crate::Result<Self> {
        let keys = key_trees(entry).map(|_| Memtable::new(Lsn(0))).collect::<crate::Result<_>>()?;
        Ok(Memtables { rows: Memtable::new(Lsn(0))?, keys })
    }
}

/// The key trees of an entry, with their definitions.
pub(crate) fn key_trees(entry: &TableEntry) -> impl Iterator<Item = (TreeId, &IndexEntry)> {
    entry.trees.iter().filter_map(|tree| match &tree.kind {
        TreeKind::Rows => None,
        TreeKind::Keys(index) => Some((tree.id, index)),
    })
}

/// The indexes of an entry.
pub(crate) fn indexes_of(entry: &TableEntry, collations: &Arc<dyn Collations>) -> Vec<Index> {
    key_trees(entry).map(|(_, index)| Index::new(index, &entry.layout, collations)).collect()
}

/// Columns that the keys of these indexes are made of.
pub(crate) fn index_columns(layout: &Layout, indexes: &[Arc<Index>]) -> ColumnMask {
    let mut columns = ColumnMask::none(layout.columns.len());
    let codecs = indexes.iter().filter(|i| i.is_kept()).filter_map(|i| i.codec().ok());
    codecs.flat_map(KeyCodec::columns).for_each(|column| columns.set(column));
    columns
}

/// What a run of a key tree says of how its keys were made.
pub(crate) fn key_shape(index: &IndexEntry) -> KeyShape {
    KeyShape { fingerprint: index.fingerprint(), unique: index.unique }
}

/// A tree of any kind.
#[derive(Clone)]
pub(crate) enum AnyTree {
    Rows(Arc<Tree>),
    Keys(Arc<Tree<ByBytes>>),
}

/// Does the same with a tree of either kind.
macro_rules! with_tree {
    ($any:expr, $tree:ident => $body:expr) => {
        match $any {
            $crate::catalog::table::AnyTree::Rows($tree) => $body,
            $crate::catalog::table::AnyTree::Keys($tree) => $body,
        }
    };
}
pub(crate) use with_tree;

impl AnyTree {
    pub(crate) fn id(&self) -> TreeId {
        with_tree!(self, tree => tree.id)
    }

    /// What its memtables take.
    pub(crate) fn in_memory(&self) -> InMemory {
        with_tree!(self, tree => tree.snapshot().in_memory())
    }

    /// Has nobody written to it for so long?
    pub(crate) fn rests(&self, time: Duration, now: Duration) -> bool {
        with_tree!(self, tree => tree.rest.lasts(&tree.snapshot(), time, now))
    }

    /// From where its memtables need the log; none if there is nothing to flush.
    pub(crate) fn needs_from(&self) -> Option<Lsn> {
        with_tree!(self, tree => tree.snapshot().needs_from())
    }

    /// From where a checkpoint with this position finds that its memtables need the log: see
    /// [`Memtable::needs_at_checkpoint`].
    pub(crate) fn needs_at_checkpoint(&self, position: Lsn) -> Lsn {
        let needs =
            with_tree!(self, tree => tree.snapshot().memtables().map(|m| m.needs_at_checkpoint(position)).min());
        needs.unwrap_or(position)
    }

    /// See [`TreeState::dead_wants_flush`](crate::tree::TreeState::dead_wants_flush).
    pub(crate) fn dead_wants_flush(&self, horizon: CommitSeq) -> bool {
        with_tree!(self, tree => tree.snapshot().dead_wants_flush(horizon))
    }

    /// See [`TreeState::flush_paid_by_looks`](crate::tree::TreeState::flush_paid_by_looks).
    pub(crate) fn flush_paid_by_looks(&self) -> u64 {
        with_tree!(self, tree => tree.snapshot().flush_paid_by_looks())
    }

    pub(crate) fn merge_debt_bytes(&self) -> u64 {
        with_tree!(self, tree => tree.merge_debt_bytes.load(Ordering::Relaxed))
    }
}

/// An open table.
pub struct Table {
    pub(crate) id: TableId,
    /// What the catalog says, but for what changes: name, trees, last rebuild.
    made: TableEntry,
    name: RwLock<String>,
    /// How its columns are shown, as far as the front end has told since the start.
    shown: RwLock<Arc<[Shown]>>,
    pub(crate) layout: Arc<Layout>,
    pub(crate) format: RowFormat,
    pub(crate) compression: Compression,
    pub(crate) temporary: bool,
    pub(crate) extra: Vec<u8>,
    schema: Option<Schema>,
    pub(crate) created_unix_s: u64,
    pub(crate) has_blobs: bool,
    trees: RwLock<Arc<Trees>>,
    /// The row tree's id, for those who ask for each row.
    tree_id: AtomicU64,
    rebuilt_seq: AtomicU64,
    /// Of the last commit before others knew the table. Not kept: no view is older than the start.
    shown_seq: AtomicU64,
    /// Of the last time that it got other trees, for those who had begun to write into them.
    changed_seq: AtomicU64,
    /// Has it indexes that are kept? For those who ask for each row.
    indexed: AtomicBool,
    /// Commits and prepares that changed it since the start. Counted under the commit lock.
    pub(crate) writes: AtomicU64,
    updated_unix_s: AtomicU64,
    dropped: AtomicBool,
    /// What was done to its rows.
    pub(crate) work: Arc<Work>,
    /// The engine of this process that it is of; zero: none yet.
    engine: AtomicU64,
    /// The name that it had before it was renamed last, and the how manieth renaming that was. Under the catalog's lock.
    pub(crate) former: Mutex<(u64, String)>,
}

/// First byte of an entry's `extra`: the engine's own flags.
const TEMPORARY: u8 = 1;

/// Does the entry's table end with the process?
pub(crate) fn is_temporary(entry: &TableEntry) -> bool {
    entry.extra.first().is_some_and(|f| f & TEMPORARY != 0)
}

impl Table {
    pub(crate) fn new(entry: &TableEntry, trees: Trees) -> Arc<Table> {
        let indexed = trees.kept_indexes().next().is_some();
        Arc::new(Table {
            id: entry.id,
            made: entry.clone(),
            name: RwLock::new(&order::TABLE_NAME, entry.name.clone()),
            shown: RwLock::new(&order::TABLE_SHOWN, Arc::default()),
            layout: entry.layout.layout.clone(),
            format: entry.format,
            compression: entry.compression,
            temporary: is_temporary(entry),
            extra: entry.extra.get(1..).unwrap_or_default().to_vec(),
            // Bytes of another front end, or of a later version, are no schema of ours.
            schema: Schema::decode(entry.extra.get(1..).unwrap_or_default()).ok().flatten(),
            created_unix_s: entry.created_unix_s,
            has_blobs: entry.layout.layout.has_blobs(),
            tree_id: AtomicU64::new(trees.rows.id.0),
            indexed: AtomicBool::new(indexed),
            trees: RwLock::new(&order::TABLE_TREES, Arc::new(trees)),
            rebuilt_seq: AtomicU64::new(entry.rebuilt_seq.0),
            shown_seq: AtomicU64::new(0),
            changed_seq: AtomicU64::new(entry.rebuilt_seq.0),
            writes: AtomicU64::new(0),
            updated_unix_s: AtomicU64::new(0),
            dropped: AtomicBool::new(false),
            work: Arc::default(),
            engine: AtomicU64::new(0),
            former: Mutex::new(&order::TABLE_FORMER, (0, String::new())),
        })
    }

    /// How the blocks of a table's rows are made.
    pub(crate) fn row_shape(entry: &TableEntry) -> RowShape {
        RowShape { layout: entry.layout.layout.clone(), format: entry.format }
    }

    /// The catalog's entry for a new table.
    pub(crate) fn entry_for(
        id: TableId,
        trees: Vec<TreeEntry>,
        name: &str,
        def: &TableDef,
        seq: CommitSeq,
        created_unix_s: u64,
    ) -> TableEntry {
        let mut extra = vec![if def.temporary { TEMPORARY } else { 0 }];
        extra.extend_from_slice(&def.extra);
        TableEntry {
            id,
            name: name.to_owned(),
            trees,
            layout: LayoutVersion::first(Arc::new(def.layout.clone())),
            older_layouts: Vec::new(),
            format: def.format,
            compression: def.compression,
            created_unix_s,
            rebuilt_seq: seq,
            extra,
        }
    }

    /// Says which engine has it.
    pub(crate) fn set_engine(&self, engine: u64) {
        self.engine.store(engine, Ordering::Relaxed);
    }

    /// Which engine has it.
    pub(crate) fn engine(&self) -> u64 {
        self.engine.load(Ordering::Relaxed)
    }

    pub(crate) fn entry(&self) -> TableEntry {
        self.entry_with(&self.trees())
    }

    /// The same for the trees that it has, or had.
    pub(crate) fn entry_with(&self, trees: &Trees) -> TableEntry {
        TableEntry { name: self.name(), trees: trees.entries(), rebuilt_seq: self.rebuilt_seq(), ..self.made.clone() }
    }

    /// Its name.
    pub fn name(&self) -> String {
        self.name.read().clone()
    }

    /// People are to see its columns, by their places in the layout, like this. Kept in memory: who opens a table says it.
    pub fn show_as(&self, shown: Vec<Shown>) {
        if *self.shown() != *shown {
            *self.shown.write() = shown.into();
        }
    }

    pub(crate) fn shown(&self) -> Arc<[Shown]> {
        self.shown.read().clone()
    }

    /// How its row images are laid out.
    pub fn layout(&self) -> &Arc<Layout> {
        &self.layout
    }

    /// How its blocks keep rows.
    pub fn format(&self) -> RowFormat {
        self.format
    }

    /// How its blocks are compressed.
    pub fn compression(&self) -> Compression {
        self.compression
    }

    /// The front end's bytes.
    pub fn extra(&self) -> &[u8] {
        &self.extra
    }

    /// Its columns by name and type, if it was created with a schema.
    pub fn schema(&self) -> Option<&Schema> {
        self.schema.as_ref()
    }

    /// A mask of all columns.
    pub fn all_columns(&self) -> ColumnMask {
        ColumnMask::all(self.layout.columns.len())
    }

    /// Has it any indexes that are written with the rows?
    pub(crate) fn is_indexed(&self) -> bool {
        self.indexed.load(Ordering::Acquire)
    }

    /// Figures, without reading rows.
    pub fn stats(&self) -> TableStats {
        let trees = self.trees();
        let state = trees.rows.snapshot();
        let InRuns { stored_bytes, raw_bytes, versions } = state.in_runs();
        let memtable_bytes = state.memtable_bytes();
        let mut stats = TableStats {
            rows: trees.live.newest(),
            runs: state.runs.len() as u64,
            data_bytes: stored_bytes + memtable_bytes,
            raw_bytes,
            memtable_bytes,
            created_unix_s: self.created_unix_s,
            updated_unix_s: self.updated_unix_s.load(Ordering::Relaxed),
            ..TableStats::default()
        };
        if versions > stats.rows {
            stats.dead_bytes = stats.raw_bytes / versions.max(1) * (versions - stats.rows);
        }
        stats
    }

    /// Its rows.
    pub(crate) fn tree(&self) -> Arc<Tree> {
        self.trees.read().rows.clone()
    }

    /// What a tree of its holds, to be read.
    ///
    /// # Errors
    /// [`Error::NoSuchTable`] if the table was dropped, [`Error::TableChanged`] if the tree alone was.
    pub(crate) fn readable<K: Stored>(&self, tree: &Tree<K>) -> Result<Arc<TreeState<K>>> {
        let state = tree.snapshot();
        match (state.is_discarded, self.is_dropped()) {
            (false, _) => Ok(state),
            (true, true) => Err(Error::NoSuchTable(self.name())),
            (true, false) => Err(Error::TableChanged(self.name())),
        }
    }

    /// What the tree of its rows holds, to be read under a view.
    ///
    /// # Errors
    /// Those of [`readable`](Self::readable); [`Error::TableChanged`], too, if it was emptied since the view was opened: what the view
    /// sees is no longer there.
    pub(crate) fn rows_under(&self, view: View) -> Result<Arc<TreeState>> {
        let state = self.readable(&self.tree())?;
        self.check_view(view)?;
        Ok(state)
    }

    /// Fails if the table was emptied since the view was opened. For who has got a tree of it already.
    pub(crate) fn check_view(&self, view: View) -> Result<()> {
        match !self.temporary && view.seq < self.rebuilt_seq() {
            true => Err(Error::TableChanged(self.name())),
            false => Ok(()),
        }
    }

    pub(crate) fn trees(&self) -> Arc<Trees> {
        self.trees.read().clone()
    }

    pub(crate) fn tree_id(&self) -> TreeId {
        TreeId(self.tree_id.load(Ordering::Acquire))
    }

    /// Is it one of the table's trees, which is neither dropped nor emptied?
    pub(crate) fn has_tree(&self, id: TreeId) -> bool {
        self.tree_id() == id || self.trees.read().keys.iter().any(|k| k.id == id)
    }

    /// Has it this tree still: was it neither dropped nor emptied since?
    pub(crate) fn still_has(&self, id: TreeId) -> bool {
        !self.is_dropped() && self.has_tree(id)
    }

    /// It was emptied: it has other trees.
    pub(crate) fn set_trees(&self, trees: Trees, rebuilt: CommitSeq) {
        self.tree_id.store(trees.rows.id.0, Ordering::Release);
        let mut now = self.trees.write();
        let old = std::mem::replace(&mut *now, Arc::new(trees));
        self.rebuilt_seq.store(rebuilt.0, Ordering::Release);
        self.changed_seq.store(rebuilt.0, Ordering::Release);
        drop(now);
        drop(old);
        self.mark_to_save();
    }

    /// It has other indexes, and the same rows.
    pub(crate) fn set_indexes(&self, trees: Trees, altered: CommitSeq) {
        let mut now = self.trees.write();
        self.indexed.store(trees.kept_indexes().next().is_some(), Ordering::Release);
        *now = Arc::new(trees);
        self.changed_seq.store(altered.0, Ordering::Release);
        drop(now);
        self.mark_to_save();
    }

    /// Changes with the indexes, for whoever wants to know after a crash whether they were altered.
    pub fn version(&self) -> u64 {
        trees_version(&self.trees().entries())
    }

    pub(crate) fn set_name(&self, name: &str) {
        name.clone_into(&mut self.name.write());
        self.mark_to_save();
    }

    /// When it left this name, among all renamings, if its last one was from that.
    pub(crate) fn left(&self, name: &str) -> Option<u64> {
        let former = self.former.lock();
        (former.1 == name).then_some(former.0)
    }

    pub(crate) fn rebuilt_seq(&self) -> CommitSeq {
        CommitSeq(self.rebuilt_seq.load(Ordering::Acquire))
    }

    /// Others come to know the table, with all that is in it; `visible` is what is visible by now.
    pub(crate) fn show(&self, visible: CommitSeq) {
        let newest = match self.trees().live.saved(visible).counted_at {
            CommitSeq::ZERO => visible,
            seq => seq,
        };
        self.shown_seq.store(newest.0, Ordering::Release);
    }

    /// A view that is older than this sees nothing of what the table is now.
    pub(crate) fn readable_from(&self) -> CommitSeq {
        self.rebuilt_seq().max(CommitSeq(self.shown_seq.load(Ordering::Acquire)))
    }

    pub(crate) fn changed_seq(&self) -> CommitSeq {
        CommitSeq(self.changed_seq.load(Ordering::Acquire))
    }

    pub(crate) fn touched(&self, unix_s: u64) {
        self.updated_unix_s.store(unix_s, Ordering::Relaxed);
    }

    pub(crate) fn set_dropped(&self) {
        self.dropped.store(true, Ordering::SeqCst);
        self.mark_to_save();
    }

    pub(crate) fn is_dropped(&self) -> bool {
        self.dropped.load(Ordering::SeqCst)
    }

    /// The manifest may say something else of it than is true: see [`Tree::mark_to_save`].
    pub(crate) fn mark_to_save(&self) {
        self.tree().mark_to_save();
    }
}
