//! One of the threads that write: its transactions, and what it was told of them.

use super::{
    gone, look, own_of, packed, wrong, Numbers, Own, Told, Work, ALL, BY_KEY, BY_TEXT, COMMON, OWN, TRANSACTIONS,
};
use crate::runner::alive;
use crate::sim::Failure;
use crate::Rng;
use esker::format::RowId;
use esker::{BeginOptions, Error, Isolation, Savepoint, Session};
use std::sync::PoisonError;
use std::time::Duration;

/// One thread's session.
pub(super) struct Client<'a> {
    work: &'a Work,
    number: u32,
    rng: Rng,
    session: Session,
    repeatable: bool,
    /// Rows with common keys that it has met.
    met: Vec<RowId>,
    saved: Vec<(Savepoint, Own)>,
    next: u32,
    told: Told,
}

impl<'a> Client<'a> {
    pub(super) fn new(work: &'a Work, number: u32, seed: u64) -> Self {
        let mut session = work.engine.session();
        session.set_lock_wait(Duration::from_millis(200), false);
        let rng = Rng::new(seed ^ u64::from(number) << 40);
        let (met, saved, told) = (Vec::new(), Vec::new(), Told::default());
        Client { work, number, rng, session, repeatable: false, met, saved, next: 0, told }
    }

    pub(super) fn run(mut self) -> Result<Told, Failure> {
        for _ in 0..TRANSACTIONS {
            alive();
            if self.work.disk.is_power_cut() || !self.transaction()? {
                break;
            }
        }
        Ok(self.told)
    }

    /// False if the power has gone.
    fn transaction(&mut self) -> Result<bool, Failure> {
        let work = self.work;
        let _gate = work.gate.read().unwrap_or_else(PoisonError::into_inner);
        let mut own = self.told.own.clone();
        self.repeatable = self.rng.chance(50);
        let isolation = if self.repeatable { Isolation::RepeatableRead } else { Isolation::ReadCommitted };
        self.session.begin(isolation, BeginOptions::default());
        self.saved.clear();
        for _ in 0..1 + self.rng.below(8) {
            self.session.begin_statement();
            let done = self.step(&mut own);
            self.session.end_statement();
            if let Err(e) = done {
                return self.roll_back(e);
            }
        }
        if self.rng.chance(15) {
            return match self.session.rollback() {
                Ok(()) => Ok(true),
                Err(e) => self.work.goes_on(e),
            };
        }
        let xid = self.rng.chance(25).then(|| format!("x{}-{}", self.number, self.rng.number()).into_bytes());
        if let Some(xid) = &xid {
            self.told.xids.insert(xid.clone(), false);
        }
        match self.commit(xid.as_deref()) {
            Ok(()) => {
                xid.map(|xid| self.told.xids.insert(xid, true));
                self.told.own = own;
                self.told.stats.commits += 1;
                Ok(true)
            }
            Err(e) => {
                let goes_on = self.roll_back(e)?;
                self.told.perhaps = (!goes_on).then_some(own);
                Ok(goes_on)
            }
        }
    }

    fn roll_back(&mut self, e: Error) -> Result<bool, Failure> {
        self.told.stats.writers_refused += u64::from(matches!(e, Error::TableChanged(_)));
        Ok(self.work.goes_on(e)? && self.session.rollback().is_ok())
    }

    fn commit(&mut self, xid: Option<&[u8]>) -> Result<(), Error> {
        if let Some(xid) = xid {
            self.session.prepare(xid)?;
            if self.rng.chance(70) {
                self.session.commit_ordered();
            }
        }
        self.session.commit()
    }

    fn step(&mut self, own: &mut Own) -> Result<(), Error> {
        match self.rng.below(20) {
            0..=4 => self.insert_common(),
            5..=8 => self.change_common(),
            9..=11 => self.insert_own(own, 1),
            12 => {
                let rows = 100 + self.rng.below(500);
                self.insert_own(own, rows)
            }
            13..=14 => self.change_own(own),
            15 => {
                self.saved.push((self.session.savepoint(), own.clone()));
                Ok(())
            }
            16..=17 => {
                if let Some((point, then)) = self.saved.last() {
                    self.session.rollback_to(point);
                    own.clone_from(then);
                }
                Ok(())
            }
            _ => self.read(own),
        }
    }

    /// A row of keys that others use, too.
    fn common(&mut self) -> Numbers {
        let second = self.rng.chance(60).then(|| self.rng.below(COMMON) as u32);
        (self.rng.below(COMMON) as u32, second, self.rng.below(100) as u32)
    }

    fn insert_common(&mut self) -> Result<(), Error> {
        let row = packed(self.common());
        // REPLACE gives up some time, too.
        for _ in 0..3 {
            match self.session.insert_row(&self.work.table, &row) {
                Ok(id) => {
                    self.met.push(id);
                    break;
                }
                Err(Error::DuplicateKey { row: other, .. }) => {
                    self.told.stats.duplicates += 1;
                    self.met.push(other);
                    if self.rng.chance(60) {
                        break;
                    }
                    self.session.delete(&self.work.table, other).or_else(gone)?;
                }
                Err(e) => return Err(e),
            }
        }
        let most = COMMON as usize * 2;
        self.met.drain(..self.met.len().saturating_sub(most));
        Ok(())
    }

    fn change_common(&mut self) -> Result<(), Error> {
        if self.met.is_empty() {
            return Ok(());
        }
        let id = *self.rng.pick(&self.met);
        if self.rng.chance(30) {
            return self.session.delete(&self.work.table, id).or_else(gone);
        }
        let row = packed(self.common());
        match self.session.update_row(&self.work.table, id, &row) {
            Err(Error::DuplicateKey { row, .. }) => {
                self.told.stats.duplicates += 1;
                self.met.push(row);
                Ok(())
            }
            done => done.or_else(gone),
        }
    }

    /// Rows with keys that nobody else uses: it knows whether they are free.
    fn insert_own(&mut self, own: &mut Own, rows: u64) -> Result<(), Error> {
        for _ in 0..rows {
            let key = self.number * OWN + self.next;
            self.next += 1;
            let second = self.rng.chance(50).then_some(key);
            let id = self.session.insert_row(&self.work.table, &packed((key, second, 0)))?;
            own.insert(key, (id, 0));
        }
        let Some((key, (id, _))) = own.iter().nth(self.rng.index(own.len())).map(|(key, row)| (*key, *row)) else {
            return Ok(());
        };
        match self.session.insert_row(&self.work.table, &packed((key, None, 1))) {
            Err(Error::DuplicateKey { index: BY_KEY, row }) if row == id => Ok(()),
            Err(e @ (Error::DuplicateKey { .. } | Error::WouldBlock)) => {
                Err(wrong(format!("own key {key}, {id}: {e}")))
            }
            Err(e) => Err(e),
            Ok(row) => Err(wrong(format!("own key {key} is row {id}, and was inserted as {row}"))),
        }
    }

    fn change_own(&mut self, own: &mut Own) -> Result<(), Error> {
        let all: Vec<u32> = own.keys().copied().collect();
        let most = if self.rng.chance(20) { 200 } else { 4 };
        for _ in 0..=self.rng.below(most) {
            if all.is_empty() {
                return Ok(());
            }
            let key = *self.rng.pick(&all);
            let Some((id, version)) = own.get(&key).copied() else { continue };
            if self.rng.chance(40) {
                self.session.delete(&self.work.table, id)?;
                own.remove(&key);
                continue;
            }
            // The key may have been another row's, in this transaction even.
            let to =
                if self.rng.chance(50) { key } else { self.number * OWN + self.rng.below(u64::from(self.next)) as u32 };
            let new = packed((to, self.rng.chance(50).then_some(to), version + 1));
            match (self.session.update_row(&self.work.table, id, &new), own.get(&to)) {
                (Ok(()), taken) if to == key || taken.is_none() => {
                    own.remove(&key);
                    own.insert(to, (id, version + 1));
                }
                (Err(Error::DuplicateKey { row, .. }), Some((other, _))) if row == *other && to != key => {}
                (
                    Err(
                        e @ (Error::Deadlock
                        | Error::LockTimeout
                        | Error::TableChanged(_)
                        | Error::Io(_)
                        | Error::Poisoned(_)),
                    ),
                    _,
                ) => return Err(e),
                (done, taken) => {
                    return Err(wrong(format!("own key {key} of {id} to {to}, which is {taken:?}: {done:?}")))
                }
            }
        }
        Ok(())
    }

    fn read(&mut self, own: &Own) -> Result<(), Error> {
        // In an old view a row may be hidden behind a new one with its key.
        let indexes: &[usize] = if self.repeatable { &[BY_TEXT] } else { &ALL };
        let rows = look(&mut self.session, &self.work.table, indexes)?;
        self.told.stats.kept_checked_in_views += 1;
        match own_of(&rows, self.number) == *own {
            true => Ok(()),
            false => Err(wrong(format!("client {} does not see its own rows", self.number))),
        }
    }
}
