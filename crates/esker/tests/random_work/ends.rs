//! How transactions end: at once, or in two phases, decided by their session, by XID, or in an order that others keep.
//!
//! Invariant: before the engine is told to end a transaction, the model knows what a crash may make of it from then on.

use crate::client::Client;
use crate::model::{Stage, Txn, ABORTED};
use crate::tally::Tally;
use crate::world::{At, Halt};
use std::sync::Arc;

impl Client<'_> {
    pub fn end(&mut self) -> Result<(), Halt> {
        self.check_locked()?;
        // What it has gathered is spilled now.
        self.gathers_no_more();
        // What is prepared says which of it was rolled back before.
        let in_two_phases = if self.is_undone_in_part { 70 } else { 35 };
        match self.rng.u8(..100) {
            kind if kind < in_two_phases && self.session.has_written() => self.commit_in_two_phases(),
            90.. => self.roll_back(),
            _ => self.commit(),
        }
    }

    fn commit(&mut self) -> Result<(), Halt> {
        self.end_by(Stage::Committing, |client| match client.chance(20) {
            true => client.session.commit_unsynced().and_then(|end| client.session.await_log(end)),
            false => client.session.commit(),
        })?;
        Tally::add(&self.tally().commits, 1);
        self.world.leave_tables(&self.txn);
        Ok(())
    }

    /// Does what commits the transaction.
    fn end_by(&mut self, stage: Stage, commit: impl FnOnce(&mut Self) -> esker::Result<()>) -> Result<(), Halt> {
        let _ends = self.world.ends.read().unwrap();
        self.txn.set_stage(stage);
        commit(self).map_err(|e| self.world.halt("commit", &e))?;
        self.world.committed(&self.txn);
        self.txn.set_stage(Stage::Open);
        Ok(())
    }

    fn commit_in_two_phases(&mut self) -> Result<(), Halt> {
        self.txn.set_stage(Stage::Preparing);
        self.session.prepare(&self.txn.xid()).map_err(|e| self.world.halt("prepare", &e))?;
        self.txn.set_stage(Stage::Prepared);
        Tally::add(&self.tally().prepared, 1);
        self.world.comes_to(At::Prepared);
        match self.rng.u8(..6) {
            0 | 1 => {
                self.session.detach_prepared();
                self.world.detached.lock().unwrap().push(self.txn.clone());
                Tally::add(&self.tally().detached, 1);
                return Ok(());
            }
            2 => return self.roll_back_prepared(),
            3 => self.end_by(Stage::Deciding, |client| client.session.commit())?,
            _ => self.commit_in_order()?,
        }
        Tally::add(&self.tally().commits, 1);
        self.world.leave_tables(&self.txn);
        Ok(())
    }

    fn commit_in_order(&mut self) -> Result<(), Halt> {
        {
            let _ends = self.world.ends.read().unwrap();
            self.txn.set_stage(Stage::Ordered);
            self.session.commit_ordered();
            self.world.committed(&self.txn);
        }
        self.world.comes_to(At::Decision);
        // Others may carry it out, and read it, before its session comes to that.
        std::thread::yield_now();
        self.session.commit().map_err(|e| self.world.halt("commit", &e))
    }

    fn roll_back_prepared(&mut self) -> Result<(), Halt> {
        self.txn.set_stage(Stage::RollingBack);
        self.roll_back()?;
        self.txn.set_stage(Stage::Open);
        Ok(())
    }

    /// Decides one of those that no session has.
    pub fn decide_detached(&mut self) -> Result<(), Halt> {
        let txn = {
            let mut detached = self.world.detached.lock().unwrap();
            let many = detached.len();
            if many == 0 {
                return Ok(());
            }
            detached.swap_remove(self.rng.usize(..many))
        };
        if !self.world.engine.prepared().contains(&txn.xid()) {
            return Err(Halt::Wrong(format!("{} is not among those that are prepared", txn.id)));
        }
        let was_there = if self.chance(60) { self.commit_by_xid(&txn) } else { self.roll_back_by_xid(&txn) };
        if !was_there.map_err(|e| self.world.halt("decision", &e))? {
            return Err(Halt::Wrong(format!("there was no {} to be decided", txn.id)));
        }
        Tally::add(&self.tally().decided_by_xid, 1);
        self.world.leave_tables(&txn);
        Ok(())
    }

    fn commit_by_xid(&self, txn: &Arc<Txn>) -> esker::Result<bool> {
        let _ends = self.world.ends.read().unwrap();
        txn.set_stage(Stage::Deciding);
        let was_there = self.world.engine.commit_xid(&txn.xid())?;
        self.world.committed(txn);
        txn.set_stage(Stage::Open);
        Ok(was_there)
    }

    fn roll_back_by_xid(&self, txn: &Arc<Txn>) -> esker::Result<bool> {
        txn.set_stage(Stage::RollingBack);
        txn.set_status(ABORTED);
        let was_there = self.world.engine.rollback_xid(&txn.xid())?;
        txn.set_stage(Stage::Open);
        Ok(was_there)
    }
}
