//! The workload: which step comes next. One thread interleaves all sessions; a session with an open scan only goes on
//! with it.

use crate::ddl::Ddl;
use crate::meanwhile::Inside;
use crate::sim::{Failure, Flow, Sim, Slot};

impl Sim {
    fn table(&mut self) -> Option<String> {
        let names: Vec<&String> = self.model.tables.keys().collect();
        if names.is_empty() {
            return None;
        }
        let at = self.rng.index(names.len());
        Some(names[at].clone())
    }

    /// How many rows a statement has: mostly few, sometimes enough for a run of its own.
    fn amount(&mut self, name: &str) -> usize {
        let have = self.model.tables.get(name).map_or(0, |t| t.used.len());
        if have >= self.config.most_rows {
            return 1;
        }
        let n = match self.rng.below(10) {
            0..=3 => 1,
            4..=6 => 1 + self.rng.index(8),
            7..=8 => 1 + self.rng.index(90),
            _ => 100 + self.rng.index(400),
        };
        n.min(self.config.most_rows)
    }

    /// Runs `steps` steps, or until only a restart helps.
    pub fn run(&mut self, steps: usize) -> Result<Flow, Failure> {
        for _ in 0..steps {
            self.stats.steps += 1;
            self.in_workload = true;
            let flow = self.step();
            self.in_workload = false;
            if flow? == Flow::Stop || std::mem::take(&mut self.stopped_inside) {
                return Ok(Flow::Stop);
            }
            if self.config.verify_each && self.verify()? == Flow::Stop {
                return Ok(Flow::Stop);
            }
        }
        Ok(Flow::Go)
    }

    pub(crate) fn step(&mut self) -> Result<Flow, Failure> {
        if self.binlog.in_use {
            return self.step_two_phase();
        }
        if self.config.time_passes && self.rng.chance(6) {
            return Ok(self.time_passes());
        }
        let mut i = self.rng.index(self.slots.len());
        if self.inside.is_some() && self.rng.chance(25) {
            // A decision in the middle of a flush is worth more than its share.
            let prepared = |s: &Slot| s.txn.as_ref().is_some_and(|t| t.xid.is_some() && !t.ordered);
            i = self.slots.iter().position(prepared).unwrap_or(i);
        }
        if self.inside == Some(Inside::Seal(i)) {
            return Ok(Flow::Go);
        }
        if self.slots[i].scan.is_some() {
            return self.step_scan(i);
        }
        let Some(name) = self.table() else { return self.ddl(Ddl::Create) };
        if let Some(txn) = self.slots[i].txn.as_ref().filter(|t| t.xid.is_some()) {
            return self.step_prepared(i, txn.ordered);
        }
        if self.slots[i].txn.as_ref().is_some_and(|t| !t.altered.is_empty()) {
            return self.step_altered(i);
        }
        match self.rng.below(100) {
            0..=21 => {
                let rows = self.amount(&name);
                self.insert(i, &name, rows)
            }
            22..=33 => {
                let rows = self.amount(&name).min(150);
                self.modify(i, &name, rows, false)
            }
            34..=39 => {
                let rows = self.amount(&name).min(100);
                self.modify(i, &name, rows, true)
            }
            40..=41 => self.delete_all(i, &name),
            42..=47 => self.scan(i, &name),
            48 => self.count(i, &name),
            49..=50 => self.some_background(&name),
            51..=54 => {
                let (rows, lock) = (1 + self.rng.index(10), self.rng.chance(40));
                self.fetch(i, &name, rows, lock)
            }
            55..=59 => self.locking_scan(i, &name),
            60..=62 => self.open_scan(i, &name),
            63..=76 => self.step_txn(i),
            77..=81 => self.some_background(&name),
            85..=86 | 97 => self.alter(&name),
            82..=84 => {
                let ddl = *self.rng.pick(&[Ddl::Create, Ddl::Create, Ddl::Drop, Ddl::Rename, Ddl::Truncate]);
                self.ddl(ddl)
            }
            87..=89 => self.decide_any(),
            90..=91 => self.request_checkpoint(),
            92 if self.inside.is_none() && self.rng.chance(30) => self.clean_restart(),
            93 if self.config.lazy_modes => self.set_flush_mode().map(|()| Flow::Go),
            94..=96 => self.verify(),
            _ => self.commit(i),
        }
    }

    fn step_txn(&mut self, i: usize) -> Result<Flow, Failure> {
        if self.slots[i].txn.is_none() {
            self.begin(i);
            return Ok(Flow::Go);
        }
        match self.rng.below(10) {
            0..=1 => self.savepoint(i),
            2..=3 => self.rollback_to(i),
            4 => self.take_view(i),
            5 => return self.rollback(i),
            6..=7 => return self.prepare(i),
            _ => return self.commit(i),
        }
        Ok(Flow::Go)
    }

    fn step_prepared(&mut self, i: usize, ordered: bool) -> Result<Flow, Failure> {
        match self.rng.below(10) {
            0..=3 if !ordered => {
                self.commit_ordered(i);
                Ok(Flow::Go)
            }
            4 if !ordered => self.rollback(i),
            5..=6 if !ordered => {
                self.detach(i);
                Ok(Flow::Go)
            }
            _ => self.commit(i),
        }
    }

    fn decide_any(&mut self) -> Result<Flow, Failure> {
        let xids: Vec<Vec<u8>> = self.model.detached.keys().cloned().collect();
        let commit = self.rng.chance(50);
        if xids.is_empty() {
            return self.decide_xid(b"nobody", commit);
        }
        let at = self.rng.index(xids.len());
        self.decide_xid(&xids[at], commit)
    }
}
