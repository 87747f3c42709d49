//! How many rows a view sees: as it is kept ([`LiveRows`](crate::catalog::live_rows::LiveRows)), or by reading them.

use crate::catalog::table::{Table, Trees};
use crate::session::Session;
use crate::tree::merge_read::MergeRead;
use crate::tree::run::health::State;
use crate::{Error, Result};
use esker_base::counters::{count, Counter};
use esker_format::{CommitSeq, RowId};
use std::sync::Arc;

impl Session {
    /// Number of rows that a plain read would see, at once: without reading any, whatever others are writing.
    ///
    /// The rows are read, as by [`count_rows`](Self::count_rows), where it is not known: for the first count of a table that an
    /// earlier version has written, for one with blocks that could not be read, so that the error tells of them, and in rare cases
    /// where a view was opened just as others committed.
    ///
    /// # Errors
    /// As for [`scan`](Self::scan).
    ///
    /// ```
    /// # use esker::{Engine, Schema, Type};
    /// # fn main() -> esker::Result<()> {
    /// # let dir = std::env::temp_dir().join(format!("esker-count-{}", std::process::id()));
    /// # let engine = Engine::open_dir(&dir)?;
    /// let table = engine.create("events", &Schema::new().column("n", Type::U64))?;
    /// let (mut writer, mut reader) = (engine.session(), engine.session());
    /// for n in 0..1000u64 {
    ///     writer.insert(&table, &[n.into()])?;
    /// }
    /// assert_eq!(writer.count(&table)?, 1000); // its own, too
    /// assert_eq!(reader.count(&table)?, 0); // not committed yet
    /// reader.commit()?;
    /// writer.commit()?;
    /// assert_eq!(reader.count(&table)?, 1000);
    /// # drop((writer, reader));
    /// # let _ = std::fs::remove_dir_all(&dir); // deps-ok: an example
    /// # Ok(())
    /// # }
    /// ```
    pub fn count(&mut self, table: &Arc<Table>) -> Result<u64> {
        let view = self.read_view()?;
        let (seq, trees) = (view.seq, table.trees());
        self.check_rebuilt(table, view)?;
        if let Some(rows) = self.known_rows(table, &trees, seq) {
            count(Counter::CountsKept, 1);
            return Ok(rows);
        }
        let rows = self.count_rows(table)?;
        self.counted(table, &trees, seq, rows);
        Ok(rows)
    }

    /// Number of rows that a plain read would see, counted by reading.
    ///
    /// # Errors
    /// As for [`scan`](Self::scan).
    pub fn count_rows(&mut self, table: &Arc<Table>) -> Result<u64> {
        let options = crate::ScanOptions {
            mask: esker_format::ColumnMask::none(table.layout.columns.len()),
            ..Default::default()
        };
        let mut cursor = self.scan(table, options)?;
        cursor.count_rest(self)
    }

    /// Holds the number that is kept against that of the rows that this session's view sees, which are read as long as `go_on`
    /// says so, unless it is known how many were `read` under that view. From now on what was read counts.
    ///
    /// # Errors
    /// [`Error::CountMismatch`]; [`Error::Interrupted`] once `go_on` says no; those of reading.
    pub(crate) fn check_count(
        &mut self,
        table: &Arc<Table>,
        read: Option<u64>,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<()> {
        let view = self.read_view()?;
        let trees = table.trees();
        self.check_rebuilt(table, view)?;
        let counted = match read {
            Some(rows) => rows,
            None => {
                MergeRead::new(table.readable(&trees.rows)?, None, view, RowId(1), &self.parker)?.count_rest(go_on)?
            }
        };
        let kept = self.known_rows(table, &trees, view.seq);
        self.counted(table, &trees, view.seq, counted);
        match kept.filter(|kept| *kept != counted) {
            Some(kept) => Err(Error::CountMismatch { table: table.name(), kept, counted }),
            None => Ok(()),
        }
    }

    /// By how many rows the open transaction changes the table, as it stands; 0 if there is none. Opens no view.
    pub fn own_rows(&self, table: &Arc<Table>) -> i64 {
        let own = self.current.open().and_then(|txn| txn.in_table(table));
        own.filter(|t| t.rows.tree.id == table.tree_id()).map_or(0, |t| t.own.change())
    }

    /// What is known of the number of rows that a view of this session's sees.
    fn known_rows(&self, table: &Arc<Table>, trees: &Trees, seq: CommitSeq) -> Option<u64> {
        let txn = self.current.open().filter(|t| t.broken.is_none())?;
        if trees.rows.snapshot().runs.iter().any(|r| r.owner.is_none() && r.run.state() != State::Sound) {
            return None;
        }
        let committed = trees.live.count(seq)?;
        let own = txn.in_table(table).filter(|t| t.rows.tree.id == trees.rows.id);
        u64::try_from(own.map_or(committed, |t| t.own.seen_by(seq, committed))).ok()
    }

    /// Its view has so many rows: others will know, unless some are the transaction's own.
    fn counted(&self, table: &Arc<Table>, trees: &Trees, seq: CommitSeq, rows: u64) {
        if self.current.open().is_some_and(|t| t.in_table(table).is_none()) {
            trees.live.counted(seq, rows as i64);
            trees.rows.mark_to_save();
        }
    }
}
