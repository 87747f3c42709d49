//! By how many rows an open transaction changes a table: for all once it commits, and for its own view until then.
//!
//! The two are not the same where it wrote over what its view does not see: a row that was inserted since shows by the
//! transaction's own version, one that was deleted since no longer shows beside another one of its primary key, and after its
//! DELETE of all rows nothing is left of what the view had.

use esker_format::CommitSeq;

/// See the module.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct OwnRows {
    change: i64,
    /// It has emptied the table: of so many rows that were committed up to there.
    emptied: Option<(CommitSeq, i64)>,
    /// For this view of it there are so many more rows than its changes tell: those that it wrote over and that were not there,
    /// less those that it hides.
    unseen: (CommitSeq, i64),
}

impl OwnRows {
    /// By how much its commit changes the number of rows.
    pub(crate) fn change(&self) -> i64 {
        self.change
    }

    /// It has inserted so many rows; fewer than none: has deleted.
    #[inline]
    pub(crate) fn wrote(&mut self, rows: i64) {
        self.change += rows;
    }

    /// It is about to write over a row that is not there for its own view.
    pub(crate) fn wrote_unseen(&mut self, view: CommitSeq) {
        self.unseen = (view, self.unseen_by(view) + 1);
    }

    /// It has written a row at the primary key of one that only its own view has, and that is no longer there for it.
    pub(crate) fn hid(&mut self, view: CommitSeq) {
        self.unseen = (view, self.unseen_by(view) - 1);
    }

    fn unseen_by(&self, view: CommitSeq) -> i64 {
        if self.unseen.0 == view {
            self.unseen.1
        } else {
            0
        }
    }

    /// It has deleted all rows that it had, and `rows` that were committed up to `as_of`.
    pub(crate) fn emptied(&mut self, as_of: CommitSeq, rows: i64) {
        *self = OwnRows { change: -rows, emptied: Some((as_of, rows)), ..OwnRows::default() };
    }

    /// The rows that its view sees, which has `committed` of others.
    pub(crate) fn seen_by(&self, view: CommitSeq, committed: i64) -> i64 {
        let committed = match self.emptied {
            // The view is older: all that it has is gone.
            Some((as_of, rows)) if view < as_of => rows,
            _ => committed,
        };
        committed + self.change + self.unseen_by(view)
    }
}
