//! An open transaction: what it has written in each tree, and going back to a point of it.
//!
//! Invariants: rolling back to a point aborts every ordinal from there on, in every memtable and run, without touching a
//! row; a transaction that has written stands in the engine's registry until its status word is stored.

use crate::catalog::table::{Table, Trees};
use crate::core::Core;
use crate::tree::key::{ByBytes, ByRow};
use crate::tree::run::MovedRun;
use crate::txn::own_rows::OwnRows;
use crate::txn::redo::{Redo, RedoPoint};
use crate::txn::state::TxnState;
use crate::txn::written::TreeWrites;
use crate::write::bulk::BulkWriter;
use crate::write::deferred::Deferred;
use crate::write::large::LargeWriter;
use crate::{Error, Result};
use esker_format::{grow, CommitSeq, Record, RowId, TableId, TxnId};
use std::collections::{BTreeMap, HashMap};
use std::ops::{Range, RangeBounds};
use std::sync::Arc;

/// A transaction with more tables than this finds them by a map.
const FEW_TABLES: usize = 8;

/// How a transaction isolates its reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Isolation {
    /// A view per statement.
    ReadCommitted,
    /// A view per transaction, opened by its first read.
    RepeatableRead,
}

/// Further properties of a transaction.
#[derive(Debug, Clone, Copy, Default)]
pub struct BeginOptions {
    /// A row that was changed after the view was opened by a plain read is an error to a writer.
    pub snapshot_isolation: bool,
}

/// A point of a transaction to which it can be rolled back.
#[derive(Debug, Clone)]
pub struct Savepoint {
    /// Whose point it is; `None`: of any, before it has written anything.
    txn: Option<TxnId>,
    ordinal: u64,
    /// How many ordinals before that were rolled back.
    undone: u64,
    small_bytes: usize,
    marks_redo: usize,
    tables: Vec<SavedTable>,
}

impl Savepoint {
    /// Before anything was written, as by default; its memory stays.
    pub(crate) fn clear(&mut self) {
        let mut tables = std::mem::take(&mut self.tables);
        tables.clear();
        tables.shrink_to(FEW_TABLES);
        *self = Savepoint { tables, ..Savepoint::default() };
    }
}

impl Default for Savepoint {
    /// Before anything was written.
    fn default() -> Self {
        Savepoint { txn: None, ordinal: 1, undone: 0, small_bytes: 0, marks_redo: 0, tables: Vec::new() }
    }
}

/// What a transaction had in one table at a savepoint.
#[derive(Debug, Clone, Default)]
struct SavedTable {
    own: OwnRows,
    rows: RedoPoint,
    keys: Vec<RedoPoint>,
    changed: CommitSeq,
}

/// What a transaction has in one table.
pub(crate) struct TableTxn {
    pub(crate) table: Arc<Table>,
    /// The table's, when this was made.
    pub(crate) trees: Arc<Trees>,
    pub(crate) rows: TreeWrites<ByRow>,
    /// In the key trees, in the order of the table's.
    pub(crate) keys: Vec<TreeWrites<ByBytes>>,
    pub(crate) ids: Range<u64>,
    pub(crate) reserve: u64,
    pub(crate) bulk: Option<BulkWriter>,
    pub(crate) own: OwnRows,
    pub(crate) marks: usize,
    /// Below here are the AUTO_INCREMENT values that it took; 0: it took none.
    pub(crate) auto_increment: u64,
    /// Rows that others have changed since the transaction's own view, where that matters to it: of their versions and entries
    /// only its own count for that view.
    pub(crate) overtaken: BTreeMap<RowId, Overtaken>,
    /// The table's, when this was made: it was neither emptied nor altered since.
    pub(crate) changed: CommitSeq,
}

/// A row that others have changed since the transaction's view, which has written it on top of that, or has written another
/// one at its primary key: two rows of one key are none that anybody may see.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Overtaken {
    /// Of the transaction's write.
    ordinal: u64,
    view: CommitSeq,
}

/// An open transaction: neither prepared nor ended.
pub(crate) struct Txn {
    pub(crate) state: Arc<TxnState>,
    pub(crate) isolation: Isolation,
    pub(crate) options: BeginOptions,
    pub(crate) view: Option<CommitSeq>,
    /// The view was opened by a plain read.
    pub(crate) view_by_read: bool,
    pub(crate) next_ordinal: u64,
    /// How many ordinals were rolled back.
    undone: u64,
    /// Rows that range marks have deleted, but one for each, which is its ordinal's.
    pub(crate) deleted_at_once: u64,
    /// Redo of range marks.
    pub(crate) marks_redo: Vec<u8>,
    /// Bytes of small writes.
    pub(crate) small_bytes: usize,
    /// It has become too large for memtable and log: what it writes now goes to private runs, in all its trees.
    pub(crate) large: Option<LargeWriter>,
    pub(crate) tables: Vec<TableTxn>,
    /// Entries that are not put yet.
    pub(crate) deferred: Deferred,
    /// Where in `tables` each stands, once they are many.
    places: HashMap<TableId, usize>,
    last_table: usize,
    pub(crate) registered: bool,
    /// Something of what it wrote was lost to this error: the transaction can only be rolled back.
    pub(crate) broken: Option<Broken>,
    /// What it had gathered for itself was put beside the rest for a commit that has failed since: savepoints do not tell where that
    /// is.
    pub(crate) kept_at_end: bool,
}

/// What was lost, see [`Txn::lose`].
pub(crate) struct Broken {
    /// Of the first of it.
    pub(crate) first_ordinal: u64,
    pub(crate) why: Error,
}

// SAFETY: the raw pointers are into memtables that the transaction's state, or `TreeWrites`, keeps alive, and a transaction is
// used by one thread at a time.
unsafe impl Send for Txn {}

impl Txn {
    pub(crate) fn new(state: Arc<TxnState>, isolation: Isolation, options: BeginOptions) -> Txn {
        Txn {
            state,
            isolation,
            options,
            view: None,
            view_by_read: false,
            next_ordinal: 1,
            undone: 0,
            deleted_at_once: 0,
            marks_redo: Vec::new(),
            small_bytes: 0,
            large: None,
            tables: Vec::new(),
            deferred: Deferred::default(),
            places: HashMap::new(),
            last_table: 0,
            registered: false,
            broken: None,
            kept_at_end: false,
        }
    }

    /// Did it write nothing, ever? Its locks are released by now.
    pub(crate) fn is_unused(&self) -> bool {
        !self.registered && self.next_ordinal == 1 && self.tables.is_empty() && self.broken.is_none()
    }

    /// One that is unused, and that nobody knows of any more, begins once more, as another one. False: it is known still.
    pub(crate) fn begins_anew(&mut self, id: TxnId, isolation: Isolation, options: BeginOptions) -> bool {
        (self.isolation, self.options, self.view, self.view_by_read) = (isolation, options, None, false);
        Arc::get_mut(&mut self.state).is_some_and(|state| state.begins_anew(id))
    }

    /// A plain read has opened its view.
    pub(crate) fn view_opened(&mut self, seq: CommitSeq) {
        self.view = Some(seq);
        self.view_by_read = true;
    }

    /// How many of its changes were undone.
    pub(crate) fn undone(&self) -> u64 {
        self.undone
    }

    /// How much it has changed: rows, and entries of indexes; what was undone, too.
    #[inline]
    pub(crate) fn changes(&self) -> u64 {
        self.next_ordinal - 1 + self.deleted_at_once
    }

    /// Takes the next ordinal.
    #[inline]
    pub(crate) fn take_ordinal(&mut self) -> u64 {
        self.next_ordinal += 1;
        self.next_ordinal - 1
    }

    /// The place of a table, made if there is none.
    #[inline]
    pub(crate) fn table_of(&mut self, core: &Core, table: &Arc<Table>) -> Result<usize> {
        let is = |t: &TableTxn| Arc::ptr_eq(&t.table, table) && t.changed == table.changed_seq() && !table.is_dropped();
        if self.tables.get(self.last_table).is_some_and(is) {
            return Ok(self.last_table);
        }
        self.table_of_slow(core, table)
    }

    #[cold]
    fn table_of_slow(&mut self, core: &Core, table: &Arc<Table>) -> Result<usize> {
        core.writable.check()?;
        core.check_usable(table)?;
        if !self.registered {
            core.writers.add(&self.state);
            self.registered = true;
        }
        let changed = table.changed_seq();
        let trees = table.trees();
        let at = match self.place_of(table) {
            Some(at) if self.tables[at].changed == changed => at,
            // Emptied since. Nobody else sees a temporary table: what was in it is gone, the transaction goes on.
            Some(at) if table.temporary => {
                self.deferred.forget_table(at);
                self.tables[at].let_go(core);
                self.tables[at] = TableTxn::new(core, table, &trees, changed);
                at
            }
            Some(_) => return Err(Error::TableChanged(table.name())),
            None => {
                self.tables.push(TableTxn::new(core, table, &trees, changed));
                self.note_places();
                self.tables.len() - 1
            }
        };
        self.last_table = at;
        Ok(at)
    }

    /// Where a table stands, if the transaction has written there.
    #[inline]
    pub(crate) fn place_of(&self, table: &Arc<Table>) -> Option<usize> {
        let is = |t: &TableTxn| Arc::ptr_eq(&t.table, table);
        if self.tables.get(self.last_table).is_some_and(is) {
            return Some(self.last_table);
        }
        match self.places.is_empty() {
            true => self.tables.iter().position(is),
            false => self.places.get(&table.id).copied(),
        }
    }

    fn note_places(&mut self) {
        match self.tables.len() {
            n if n <= FEW_TABLES => {}
            n if self.places.is_empty() => {
                self.places = (0..n).map(|at| (self.tables[at].table.id, at)).collect();
            }
            n => drop(self.places.insert(self.tables[n - 1].table.id, n - 1)),
        }
    }

    /// What it has in a table, if it has written there.
    pub(crate) fn in_table(&self, table: &Arc<Table>) -> Option<&TableTxn> {
        self.place_of(table).map(|at| &self.tables[at])
    }

    /// Bytes of redo.
    pub(crate) fn redo_bytes(&self) -> usize {
        self.marks_redo.len() + self.tables.iter().flat_map(TableTxn::redo).map(Redo::len_bytes).sum::<usize>()
    }

    /// All redo, with `last` at its end: one frame of the log.
    pub(crate) fn frame(&self, last: &Record<'_>) -> Result<Vec<u8>> {
        let (mut frame, mut end) = (Vec::new(), Vec::new());
        for t in self.tables.iter().filter(|t| t.auto_increment != 0) {
            Record::AutoIncrementMark { table: t.table.id, next: t.auto_increment }.encode(&mut end);
        }
        last.encode(&mut end);
        grow(&mut frame, self.redo_bytes() + end.len()).map_err(Error::in_memory)?;
        self.tables.iter().flat_map(TableTxn::redo).for_each(|redo| redo.append_to(&mut frame));
        frame.extend_from_slice(&self.marks_redo);
        frame.extend_from_slice(&end);
        Ok(frame)
    }

    /// This point of it.
    pub(crate) fn savepoint(&self) -> Savepoint {
        let mut point = Savepoint::default();
        self.point_in(&mut point);
        point
    }

    /// The same in the place of another one, of which nothing is needed any more but its memory: each statement has one.
    pub(crate) fn point_in(&self, point: &mut Savepoint) {
        if self.is_at(point) {
            return;
        }
        (point.txn, point.ordinal, point.undone) = (Some(self.state.id), self.next_ordinal, self.undone);
        (point.small_bytes, point.marks_redo) = (self.small_bytes, self.marks_redo.len());
        point.tables.resize_with(self.tables.len(), SavedTable::default);
        for (saved, t) in point.tables.iter_mut().zip(&self.tables) {
            (saved.own, saved.rows, saved.changed) = (t.own, t.rows.redo.point(), t.changed);
            saved.keys.clear();
            saved.keys.extend(t.keys.iter().map(|k| k.redo.point()));
        }
    }

    /// Has it neither written nor undone anything since `point`, which is one of its own? What it has begun to write in since counts
    /// for nothing there.
    pub(crate) fn is_at(&self, point: &Savepoint) -> bool {
        point.txn == Some(self.state.id) && (point.ordinal, point.undone) == (self.next_ordinal, self.undone)
    }

    /// Has anything changed since `point`?
    pub(crate) fn is_beyond(&self, point: &Savepoint) -> bool {
        self.next_ordinal > point.ordinal
    }

    /// Something of what it wrote from this ordinal on is lost, or its writer was told that it was not written: it can only be
    /// rolled back to before that.
    pub(crate) fn lose(&mut self, first_ordinal: u64, why: &Error) {
        if self.broken.as_ref().is_none_or(|lost| first_ordinal < lost.first_ordinal) {
            self.broken = Some(Broken { first_ordinal, why: why.clone() });
        }
    }

    /// From now on it can only be rolled back.
    fn break_by(&mut self, why: Error) {
        self.broken = Some(Broken { first_ordinal: 0, why });
    }

    /// Undoes everything since `point`.
    pub(crate) fn rollback_to(&mut self, core: &Core, point: &Savepoint) {
        self.adopt_moved(false);
        self.deferred.clear();
        if point.txn.is_some_and(|txn| txn != self.state.id) {
            return self.break_by(Error::InvalidArgument("a savepoint of another transaction".into()));
        }
        if !self.is_beyond(point) {
            return;
        }
        if self.kept_at_end && point.ordinal > 1 {
            return self.break_by(Error::InvalidArgument("a savepoint of before a commit that failed".into()));
        }
        let undone_since = self.state.aborted().count_from(point.ordinal);
        if self.undone - undone_since != point.undone {
            return self.break_by(Error::InvalidArgument("a savepoint that was undone itself".into()));
        }
        self.undone = point.undone + (self.next_ordinal - point.ordinal);
        self.state.abort_ordinals(point.ordinal, self.next_ordinal);
        if self.broken.as_ref().is_some_and(|lost| lost.first_ordinal >= point.ordinal) {
            // What was lost is undone.
            self.broken = None;
        }
        self.small_bytes = point.small_bytes;
        self.marks_redo.truncate(point.marks_redo);
        let aborted = self.state.aborted();
        for (i, table) in self.tables.iter_mut().enumerate() {
            let saved = point.tables.get(i).filter(|s| s.changed == table.changed).cloned().unwrap_or_default();
            table.own = saved.own;
            table.overtaken.retain(|_, by| by.ordinal < point.ordinal);
            table.bulk.take_if(|b| b.first_ordinal.is_none_or(|first| first >= point.ordinal));
            table.rows.rollback_to(core, saved.rows, point.ordinal, &aborted);
            for (i, keys) in table.keys.iter_mut().enumerate() {
                let saved = saved.keys.get(i).copied().unwrap_or_default();
                keys.rollback_to(core, saved, point.ordinal, &aborted);
            }
        }
        if self.tables.iter().all(|t| !t.is_large()) {
            self.large = None;
        }
        core.locks.rolled_back(&self.state.locks);
    }

    /// By how many rows its commit changes each of its tables, as the log says it: of a table that is not there it says that it
    /// is not known.
    pub(crate) fn row_changes(&self) -> Vec<(TableId, i64)> {
        self.tables.iter().map(|t| (t.table.id, t.own.change())).collect()
    }

    /// Its end, which is about to come, may change the number of rows of its tables.
    pub(crate) fn enter_row_changes(&self, core: &Core) {
        for t in &self.tables {
            t.trees.live.enter(&core.views, &self.state, Some(t.own.change()));
            if t.own.change() != 0 {
                t.rows.tree.mark_to_save();
            }
        }
    }

    /// Takes over what flushes have moved to private runs: the runs are attached or dropped with the others, the redo of
    /// what they hold goes. `close`: nothing moves from now on.
    pub(crate) fn adopt_moved(&mut self, close: bool) {
        if !self.registered {
            return;
        }
        let moved = {
            let mut moves = self.state.moves.lock();
            moves.closed |= close;
            std::mem::take(&mut moves.list)
        };
        for m in moved {
            match m.run {
                MovedRun::Rows(run) => {
                    if let Some(t) = self.tables.iter_mut().find(|t| t.rows.tree.id == m.tree) {
                        t.rows.adopt(m.mem, run);
                    }
                }
                MovedRun::Keys(run) => {
                    if let Some(k) = self.tables.iter_mut().flat_map(|t| &mut t.keys).find(|k| k.tree.id == m.tree) {
                        k.adopt(m.mem, run);
                    }
                }
            }
        }
    }
}

impl TableTxn {
    /// Its trees are gone: what is gathered for them goes to no file.
    pub(crate) fn let_go(&mut self, core: &Core) {
        self.bulk = None;
        self.rows.let_go(core);
        self.keys.iter_mut().for_each(|k| k.let_go(core));
    }

    fn new(core: &Core, table: &Arc<Table>, trees: &Arc<Trees>, changed: CommitSeq) -> TableTxn {
        TableTxn {
            table: table.clone(),
            trees: trees.clone(),
            rows: TreeWrites::new(trees.rows.clone(), &core.large),
            keys: trees.keys.iter().map(|k| TreeWrites::new(k.clone(), &core.large)).collect(),
            ids: 0..0,
            reserve: 1,
            bulk: None,
            own: OwnRows::default(),
            marks: 0,
            auto_increment: 0,
            overtaken: BTreeMap::new(),
            changed,
        }
    }

    /// See [`overtaken`](Self::overtaken).
    pub(crate) fn is_overtaken(&self, row: RowId, view: CommitSeq) -> bool {
        !self.overtaken.is_empty() && self.overtaken.get(&row).is_some_and(|by| by.view == view)
    }

    /// Which of these rows are.
    pub(crate) fn overtaken_of(
        &self,
        rows: impl RangeBounds<RowId>,
        view: CommitSeq,
    ) -> impl Iterator<Item = RowId> + '_ {
        self.overtaken.range(rows).filter(move |(_, by)| by.view == view).map(|(row, _)| *row)
    }

    /// A row is from the write of this ordinal on.
    pub(crate) fn overtake(&mut self, row: RowId, ordinal: u64, view: CommitSeq) {
        let by = Overtaken { ordinal, view };
        // An older view is gone.
        self.overtaken
            .entry(row)
            .and_modify(|known| *known = if known.view == view { *known } else { by })
            .or_insert(by);
    }

    /// The row is no longer there for the own view, though it was: the transaction has written another one at its primary key.
    pub(crate) fn hide(&mut self, row: RowId, ordinal: u64, view: CommitSeq) {
        self.overtake(row, ordinal, view);
        self.own.hid(view);
    }

    /// Of all its trees.
    fn redo(&self) -> impl Iterator<Item = &Redo> {
        std::iter::once(&self.rows.redo).chain(self.keys.iter().map(|k| &k.redo))
    }

    /// Has it anything in memory of its own, or on its way to a run?
    fn is_large(&self) -> bool {
        self.bulk.is_some() || self.rows.has_private() || self.keys.iter().any(|k| k.has_private())
    }
}
