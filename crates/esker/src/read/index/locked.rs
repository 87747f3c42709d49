//! Locking reads by an index.
//!
//! A locking read meets what others have not committed: it waits for whoever has put an entry into its range, or taken one
//! away, and reads the key again. Then it locks the row, and makes sure under that lock that the entry is still the row's.
//! Where it is not, it reads on from that very key under a newer view, so that a row whose key moved ahead is met there.
//! It waits for nobody outside its range, and trusts what was read ahead only while nobody else has written into the tree.
//! Invariant: each time it reads a key again, somebody has committed, rolled back or ended since.

use super::{row_of, take_one, IndexCursor};
use crate::lock::LockMode;
use crate::read::locked::Locked;
use crate::session::{FoundLocked, Session};
use crate::tree::merge_read::{Span, Unseen};
use crate::txn::prepared;
use crate::txn::written::TreeWrites;
use crate::{Error, Result};
use esker_format::RowId;

/// A key that is come to.
struct Ahead {
    key: Vec<u8>,
    /// Whose it is for the view.
    row: Option<RowId>,
    unseen: Option<Unseen>,
}

impl IndexCursor {
    /// Was the row given out last a committed version of a row that another transaction has locked? If it matches, it
    /// must be read again: by [`step_back`](Self::step_back), without being semi-consistent, which waits.
    pub fn was_semi_consistent(&self) -> bool {
        self.semi_consistent
    }

    /// From now on, or no longer, gives out locked rows in their last committed version instead of waiting.
    pub fn set_semi_consistent(&mut self, on: bool) {
        self.options.semi_consistent = on;
    }

    /// A locking cursor stands before the row given out last again.
    pub fn step_back(&mut self) {
        self.again = !self.buffer.ids.is_empty();
    }

    /// Gets the next row, locked; none at the end.
    pub(super) fn next_locked(&mut self, session: &mut Session, mode: LockMode) -> Result<()> {
        self.semi_consistent = false;
        if std::mem::take(&mut self.again) {
            let key = self.buffer.keys.get(0).to_vec();
            self.read_again(session, &key)?;
        }
        self.buffer.clear();
        loop {
            if session.parker.is_killed() {
                return Err(Error::Interrupted);
            }
            self.renew(session)?;
            let ahead = self.ahead()?;
            self.pass_expected(session, ahead.as_ref().map(|ahead| &ahead.key[..]))?;
            let Some(ahead) = ahead else { return Ok(()) };
            self.last = Some(ahead.key.clone());
            if let Some(unseen) = ahead.unseen.as_ref().filter(|unseen| !self.passes(unseen)) {
                self.wait_for(session, *unseen)?;
                self.read_again(session, &ahead.key)?;
                continue;
            }
            self.meet_expected(session, &ahead.key, ahead.row)?;
            let Some(row) = ahead.row else { continue };
            let locked = self.lock(session, row, mode)?;
            if locked != Locked::Skip && self.give(session, &ahead, row, &locked)? {
                return Ok(());
            }
        }
    }

    /// Reads anew what lies ahead, if anybody else has written into the tree since it was read: a row whose key moves, from behind
    /// a key that is read ahead to before it, would be met at neither.
    fn renew(&mut self, session: &mut Session) -> Result<()> {
        let Some(last) = self.last.as_ref() else { return Ok(()) };
        let (now, own_puts) = (self.tree()?.snapshot().stamp(), self.own_puts(session));
        if own_puts.checked_sub(self.own_puts).is_some_and(|more| now == self.stamp.after(more)) {
            (self.stamp, self.own_puts) = (now, own_puts);
            return Ok(());
        }
        #[cfg(test)]
        met::count_renewal();
        self.read(session, &self.range.rest(last, self.direction), self.direction)
    }

    /// How many versions the transaction has put into the tree so far.
    pub(super) fn own_puts(&self, session: &Session) -> usize {
        let txn = session.current.open().and_then(|txn| txn.in_table(&self.table));
        txn.and_then(|txn| txn.keys.get(self.index)).map_or(0, TreeWrites::puts)
    }

    /// Gives a row, unless its entry has changed: then lets go of it, and reads that key again; false.
    fn give(&mut self, session: &mut Session, ahead: &Ahead, row: RowId, locked: &Locked) -> Result<bool> {
        let (table, key) = (self.table.clone(), &ahead.key[..]);
        // What was read ahead is the newest as long as nothing was committed since, or nothing was written into the tree since
        // and nobody had anything there that was passed over; and this transaction, which had no lock on the row, has not
        // changed it either. Whoever changes the entry has the row's lock, and has counted what he wrote before he lets go.
        let is_settled = session.core.views.visible_seq() == self.view.seq
            || (ahead.unseen.is_none() && self.tree()?.snapshot().stamp() == self.stamp);
        let newest = *locked == Locked::Newly && is_settled;
        if newest && self.give_ahead(session, key, row)? {
            return Ok(true);
        }
        let latest = session.latest_view()?;
        let version = session.find_version(&table, row, latest)?;
        let latest = session.latest_view()?;
        let is_entry = (newest && version.is_some()) || self.is_entry_of(session, key, row, latest)?;
        match version {
            Some((order, found)) if is_entry => {
                self.semi_consistent = *locked == Locked::SemiConsistent;
                let version = Some((order, found.clone()));
                let found_locked = FoundLocked { tree: table.tree_id(), row, version };
                session.found_locked = (!self.semi_consistent).then_some(found_locked);
                self.buffer.add_found(&table, &self.options.mask, row, found)?;
                self.buffer.keys.push(key);
                return Ok(true);
            }
            // Nobody but who has the lock can have taken both away in between.
            None if is_entry && *locked != Locked::SemiConsistent => self.check_gone(session, key, row, latest)?,
            _ => {}
        }
        session.unlock_row(&table, row);
        self.read_again(session, key)?;
        Ok(false)
    }

    /// The next key of which the view sees an entry, or somebody else has one.
    fn ahead(&mut self) -> Result<Option<Ahead>> {
        loop {
            if let Some((span, _)) = &mut self.span {
                if let Some(at) = take_one(&mut span.rows, self.direction) {
                    let key = span.block.key(at).to_vec();
                    return Ok(Some(Ahead { key, row: Some(span.block.row(at)), unseen: None }));
                }
                self.span = None;
            }
            let Some(entries) = &mut self.entries else { return Ok(None) };
            match entries.next()? {
                Span::End => self.entries = None,
                Span::Rows(span) => self.span = Some((span, entries.is_own())),
                Span::One(key, found) => {
                    let row = row_of(&found);
                    return Ok(Some(Ahead { key: key.to_vec(), row, unseen: entries.unseen() }));
                }
            }
        }
    }

    /// Does the reader not wait for this version? What the view sees of its key is still looked at: the row's lock says whether
    /// it is free.
    fn passes(&self, unseen: &Unseen) -> bool {
        let by_policy = self.options.skip_locked || (self.is_semi_consistent() && !unseen.tombstone);
        unseen.owner.is_some() && by_policy
    }

    fn is_semi_consistent(&self) -> bool {
        self.options.semi_consistent && !self.is_whole_key
    }

    /// Returns when a version that the view does not see was committed or is gone.
    fn wait_for(&self, session: &mut Session, unseen: Unseen) -> Result<()> {
        #[cfg(test)]
        met::count(unseen.owner.is_some());
        match unseen.owner {
            Some(owner) => {
                let tree = self.tree()?.id;
                session.wait_for_change((tree, unseen.row), owner, unseen.ordinal)
            }
            None => {
                // A commit shows once it lets go of this.
                drop(prepared::lock_commits(&session.core));
                Ok(())
            }
        }
    }

    /// Reads on from a key, the key included, with what was committed since.
    fn read_again(&mut self, session: &mut Session, key: &[u8]) -> Result<()> {
        self.read(session, &self.range.rest_with(key, self.direction), self.direction)
    }

    fn lock(&mut self, session: &mut Session, row: RowId, mode: LockMode) -> Result<Locked> {
        let (skips, is_semi_consistent) = (self.options.skip_locked, self.is_semi_consistent());
        session.lock_to_read((self.table.tree_id(), row), mode, skips, is_semi_consistent)
    }
}

/// Counts the versions that this thread's locking reads did not see and waited for.
#[cfg(test)]
pub(crate) mod met {
    use std::cell::Cell;

    thread_local! {
        static MET: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
        static RENEWALS: Cell<usize> = const { Cell::new(0) };
    }

    pub(super) fn count_renewal() {
        RENEWALS.set(RENEWALS.get() + 1);
    }

    /// How often this thread read anew what lies ahead, since the last call.
    pub(crate) fn take_renewals() -> usize {
        RENEWALS.replace(0)
    }

    pub(super) fn count(is_active: bool) {
        let (active, ended) = MET.get();
        MET.set(if is_active { (active + 1, ended) } else { (active, ended + 1) });
    }

    /// How many since the last call: of transactions that had not ended, of others.
    pub(crate) fn take() -> (usize, usize) {
        MET.replace((0, 0))
    }
}
