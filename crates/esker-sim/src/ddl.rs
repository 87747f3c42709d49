//! The catalog in the simulator: tables come and go; checkpoint requests, flush modes, clean restarts.
//!
//! Invariant: as under a server's metadata locks, no table is dropped, renamed or truncated while an open transaction
//! has touched it; a prepared transaction without a session has no such lock, there the engine itself must refuse.

use crate::keys::create_table;
use crate::meanwhile::Inside;
use crate::model::{Event, Key};
use crate::sim::{Answer, Failure, Flow, Refusal, Sim};
use esker::FlushMode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

const NAMES: [&str; 6] = ["d/a", "d/b", "d/c", "d/d", "d/e", "d/f"];

/// A change of the catalog.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ddl {
    /// CREATE TABLE.
    Create,
    /// DROP TABLE.
    Drop,
    /// RENAME TABLE.
    Rename,
    /// TRUNCATE TABLE.
    Truncate,
}

impl Sim {
    /// Has an open transaction touched the table? A prepared one counts only if it did no more than read.
    fn busy(&self, key: Key) -> bool {
        if self.inside == Some(Inside::Build(key)) {
            return true;
        }
        self.slots.iter().any(|s| {
            s.txn.as_ref().is_some_and(|t| {
                let refused_by_engine = t.xid.is_some() && !t.ordered && t.wrote.contains(&key);
                t.touched.contains(&key) && !refused_by_engine
            })
        })
    }

    /// Is a prepared transaction bound to the table: surely, or perhaps?
    pub(crate) fn bound(&self, key: Key) -> (bool, bool) {
        let attached = self.slots.iter().filter_map(|s| s.txn.as_ref()).filter(|t| t.xid.is_some() && !t.ordered);
        let sure = attached.clone().any(|t| t.wrote.contains(&key))
            || self.model.detached.values().any(|t| t.changes.keys().any(|(k, _)| *k == key));
        (sure, self.model.detached.values().any(|t| t.wrote.contains(&key)))
    }

    /// Makes a table.
    pub(crate) fn create(&mut self, name: &str, kind: usize) -> Result<(), Failure> {
        let answer = create_table(self.engine()?, name, kind, &self.kinds[kind].def(false));
        self.judge("create", answer, &[], false)?;
        let key = self.model.new_key();
        self.model.happened(Event::Create(name.to_owned(), key, kind, false));
        self.model.all_durable();
        Ok(())
    }

    pub(crate) fn ddl(&mut self, what: Ddl) -> Result<Flow, Failure> {
        let name = (*self.rng.pick(&NAMES)).to_owned();
        let table = self.model.tables.get(&name).map(|t| t.key);
        if table.is_some_and(|key| self.busy(key)) {
            return Ok(Flow::Go);
        }
        let (bound, perhaps_bound) = match table {
            Some(key) if what != Ddl::Create => self.bound(key),
            _ => (false, false),
        };
        let mut expected = Vec::new();
        if bound || perhaps_bound {
            expected.push(Refusal::LockTimeout);
        }
        let mut must_fail = bound;
        let event = match what {
            Ddl::Create => {
                if table.is_some() {
                    (must_fail, expected) = (true, vec![Refusal::TableExists]);
                }
                let (kind, temporary) = (self.rng.index(self.kinds.len()), self.rng.chance(10));
                Event::Create(name.clone(), self.model.new_key(), kind, temporary)
            }
            Ddl::Drop => Event::Drop(name.clone()),
            Ddl::Truncate => Event::Truncate(name.clone(), self.model.new_key()),
            Ddl::Rename => {
                let to = (*self.rng.pick(&NAMES)).to_owned();
                if self.model.tables.contains_key(&to) {
                    must_fail = true;
                    expected.push(Refusal::TableExists);
                }
                Event::Rename(name.clone(), to)
            }
        };
        if table.is_none() && what != Ddl::Create {
            (must_fail, expected) = (true, vec![Refusal::NoSuchTable]);
        }
        self.note(|| format!("{event:?}"));
        let engine = self.engine()?;
        let had_space = engine.sim_has_drop_space();
        let answer = match &event {
            Event::Create(name, _, kind, temporary) => {
                create_table(engine, name, *kind, &self.kinds[*kind].def(*temporary))
            }
            Event::Rename(from, to) => engine.rename_table(from, to),
            Event::Truncate(name, _) => engine.truncate_table(name),
            _ => engine.drop_table(&name),
        };
        let used_space = what == Ddl::Drop && had_space && !engine.sim_has_drop_space();
        self.stats.drop_space_used += u64::from(used_space);
        match self.judge(&format!("{event:?}"), answer, &expected, false)? {
            Answer::Ok(()) if must_fail => self.fail(format!("{event:?} succeeded, expected {expected:?}")),
            Answer::Ok(()) => {
                let temporary = match &event {
                    Event::Create(_, _, _, temporary) => *temporary,
                    _ => self.model.tables.get(&name).is_some_and(|t| t.temporary),
                };
                self.model.happened(event);
                if !temporary {
                    // DDL waits for the log whatever the mode.
                    self.model.all_durable();
                }
                Ok(Flow::Go)
            }
            Answer::No(_) => Ok(Flow::Go),
            Answer::Fault => match self.after_fault()? {
                Flow::Stop => {
                    self.model.perhaps(event);
                    Ok(Flow::Stop)
                }
                Flow::Go => Ok(Flow::Go),
            },
        }
    }

    /// commit_checkpoint_request: told only once everything is durable.
    pub(crate) fn request_checkpoint(&mut self) -> Result<Flow, Failure> {
        self.note(|| "request checkpoint".into());
        let told = Arc::new(AtomicBool::new(false));
        let flag = told.clone();
        self.engine()?.request_checkpoint(Box::new(move |result| flag.store(result.is_ok(), Ordering::Relaxed)));
        if told.load(Ordering::Relaxed) {
            self.model.all_durable();
            return Ok(Flow::Go);
        }
        if !self.faulty && !self.disk.is_power_cut() {
            return self.fail("a checkpoint request was not answered");
        }
        self.after_fault()
    }

    pub(crate) fn set_flush_mode(&mut self) -> Result<(), Failure> {
        let mode = *self.rng.pick(&[FlushMode::EveryCommit, FlushMode::WriteOnly, FlushMode::Lazy]);
        self.note(|| format!("flush mode {mode:?}"));
        self.engine()?.set_flush_mode(mode);
        self.owes_sync |= [self.mode, mode] != [FlushMode::EveryCommit; 2];
        self.mode = mode;
        Ok(())
    }

    /// Shuts the engine down properly and opens it again. Open transactions are rolled back, prepared ones stay.
    pub(crate) fn clean_restart(&mut self) -> Result<Flow, Failure> {
        self.note(|| "clean restart".into());
        for slot in &self.slots {
            if let Some(txn) = slot.txn.as_ref().filter(|t| t.xid.is_some() && !t.ordered) {
                if let Some(xid) = txn.xid.clone() {
                    self.model.detached.insert(xid, txn.clone());
                }
            }
        }
        self.slots.clear();
        self.building = None;
        let answer = self.engine()?.close();
        match self.judge("close", answer, &[], false)? {
            Answer::Ok(()) if !self.engine()?.poisoned() => {
                self.model.all_durable();
                self.model.survived = self.model.durable;
            }
            _ if self.disk.is_power_cut() => return Ok(Flow::Stop),
            // What could not be written out is in the log.
            _ => self.kill(),
        }
        self.engine = None;
        self.reopen()
    }
}
