//! The lock of a row that is read, by a scan or by an index.

use crate::lock::{LockMode, LockOutcome, WaitPolicy};
use crate::session::Session;
use crate::{Error, Result};
use esker_format::{RowId, TreeId};

/// How a reader came by a row.
#[derive(PartialEq, Eq)]
pub(crate) enum Locked {
    /// By this request.
    Newly,
    /// By this transaction, earlier.
    Before,
    /// Others have it, and the reader passes over it.
    Skip,
    /// Others have it, and the reader takes its last committed version.
    SemiConsistent,
}

impl Session {
    /// Locks a row that is read. Who passes over it where others have locked it, or is semi-consistent, does not wait for them.
    pub(super) fn lock_to_read(
        &mut self,
        (tree, row): (TreeId, RowId),
        mode: LockMode,
        skips_locked: bool,
        is_semi_consistent: bool,
    ) -> Result<Locked> {
        let insists = !skips_locked && !is_semi_consistent;
        let wait = WaitPolicy { nowait: self.wait.nowait || !insists, ..self.wait };
        match self.lock_row(tree, row, mode, wait) {
            Ok(LockOutcome::Granted) => Ok(Locked::Newly),
            Ok(LockOutcome::AlreadyHeld) => Ok(Locked::Before),
            Err(Error::WouldBlock) if skips_locked => Ok(Locked::Skip),
            Err(Error::WouldBlock) if is_semi_consistent => Ok(Locked::SemiConsistent),
            Err(e) => Err(e),
        }
    }
}
