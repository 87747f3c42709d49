//! Transaction control of the simulator: statements, savepoints, commit in one and two phases, decisions by XID.
//!
//! Invariant: an event enters the history when its record may be in the log, and becomes durable when the engine has
//! said so.

use crate::meanwhile::Inside;
use crate::model::{Event, Point, TxnModel};
use crate::sim::{Answer, Failure, Flow, Sim};
use esker::{BeginOptions, FlushMode, Isolation, Session};

/// An owner that has no locks.
const NOBODY: u64 = u64::MAX;

/// How a statement ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    Done,
    /// With an error that the model expected.
    Refused,
    /// With an error of the disk.
    Fault,
}

impl Sim {
    /// Begins a transaction of a random sort.
    pub(crate) fn begin(&mut self, i: usize) {
        let repeatable = self.rng.chance(60);
        let snapshot_isolation = self.rng.chance(40);
        self.begin_as(i, repeatable, snapshot_isolation);
    }

    /// Begins a transaction of this sort.
    pub(crate) fn begin_as(&mut self, i: usize, repeatable: bool, snapshot_isolation: bool) {
        let isolation = if repeatable { Isolation::RepeatableRead } else { Isolation::ReadCommitted };
        self.slots[i].session.begin(isolation, BeginOptions { snapshot_isolation });
        let owner = self.model.new_owner();
        self.note(|| format!("s{i} begin repeatable={repeatable} si={snapshot_isolation}"));
        self.slots[i].txn = Some(TxnModel { owner, repeatable, snapshot_isolation, ..TxnModel::default() });
        self.slots[i].savepoints.clear();
    }

    /// Runs `body` as a statement; in a transaction of its own if none is open.
    pub(crate) fn statement(
        &mut self,
        i: usize,
        body: impl FnOnce(&mut Sim, usize) -> Result<Ended, Failure>,
    ) -> Result<Flow, Failure> {
        let auto = self.slots[i].txn.is_none();
        if auto {
            self.begin(i);
        }
        self.slots[i].session.begin_statement();
        let saved = self.slots[i].txn.as_ref().map(TxnModel::point).unwrap_or_default();
        let had_view = self.slots[i].txn.as_ref().is_some_and(|t| t.view.is_some());
        let ended = body(self, i)?;
        match ended {
            Ended::Done => {
                self.slots[i].session.end_statement();
                if auto {
                    return self.commit(i);
                }
            }
            Ended::Refused => {
                if auto || self.rng.chance(70) {
                    self.undo_statement(i, saved);
                }
                self.slots[i].session.end_statement();
                if auto {
                    return self.rollback(i);
                }
            }
            Ended::Fault => {
                if self.after_fault()? == Flow::Stop {
                    return Ok(Flow::Stop);
                }
                self.undo_statement(i, saved);
                self.slots[i].session.end_statement();
                // Was the view opened before the error? Not worth knowing.
                if auto || !had_view || self.rng.chance(30) {
                    return self.rollback(i);
                }
                if let Some(txn) = &mut self.slots[i].txn {
                    txn.shaky = true;
                }
            }
        }
        Ok(Flow::Go)
    }

    fn undo_statement(&mut self, i: usize, saved: Point) {
        self.note(|| format!("s{i} rollback statement"));
        let slot = &mut self.slots[i];
        slot.session.rollback_statement();
        if let Some(txn) = &mut slot.txn {
            txn.back_to(saved);
        }
    }

    pub(crate) fn take_view(&mut self, i: usize) {
        let seq = self.model.seq;
        let Some(txn) = self.slots[i].txn.as_mut().filter(|t| t.repeatable) else { return };
        txn.view.get_or_insert(seq);
        self.slots[i].session.take_view();
        self.note(|| format!("s{i} take view"));
    }

    pub(crate) fn savepoint(&mut self, i: usize) {
        let slot = &mut self.slots[i];
        let Some(txn) = &slot.txn else { return };
        let point = slot.session.savepoint();
        slot.savepoints.push((point, txn.point()));
        self.note(|| format!("s{i} savepoint"));
    }

    pub(crate) fn rollback_to(&mut self, i: usize) {
        let n = self.slots[i].savepoints.len();
        if n == 0 {
            return;
        }
        let at = self.rng.index(n);
        let slot = &mut self.slots[i];
        slot.savepoints.truncate(at + 1);
        let (point, saved) = slot.savepoints[at].clone();
        slot.session.rollback_to(&point);
        if let Some(txn) = &mut slot.txn {
            txn.back_to(saved);
        }
        self.note(|| format!("s{i} rollback to savepoint {at}"));
    }

    /// The session's transaction is over.
    fn ended(&mut self, i: usize) {
        self.slots[i].savepoints.clear();
        if let Some(txn) = self.slots[i].txn.take() {
            self.model.locks.release(txn.owner);
        }
    }

    /// What the engine acknowledged is durable as far as the mode says.
    pub(crate) fn acknowledged(&mut self) {
        match self.mode {
            FlushMode::EveryCommit => self.model.all_durable(),
            FlushMode::WriteOnly => self.model.written = self.model.sure(),
            FlushMode::Lazy => {}
        }
    }

    /// A call that may write runs: others go on in the middle of it.
    fn with_session<T: Send>(&mut self, i: usize, call: impl FnOnce(&mut Session) -> T + Send) -> Result<T, Failure> {
        let unused = self.new_slot()?.session;
        let mut session = std::mem::replace(&mut self.slots[i].session, unused);
        let result = self.meanwhile(Inside::Seal(i), || call(&mut session));
        self.slots[i].session = session;
        result
    }

    pub(crate) fn commit(&mut self, i: usize) -> Result<Flow, Failure> {
        let Some(txn) = self.slots[i].txn.clone() else { return Ok(Flow::Go) };
        self.note(|| format!("s{i} commit of {} changes, xid {:?}", txn.changes.len(), txn.xid.is_some()));
        let lost = self.slots[i].session.sim_has_lost();
        let answer = self.with_session(i, |session| session.commit())?;
        let (expected, must_fail) = self.refuses_writer(i);
        let answer = self.judge("commit", answer, expected, txn.shaky)?;
        if matches!(answer, Answer::No(_)) {
            self.stats.writers_refused += 1;
            return self.rollback(i);
        }
        if lost && matches!(answer, Answer::Ok(())) {
            return self.fail("a transaction was committed that has lost what it had written");
        }
        if must_fail && matches!(answer, Answer::Ok(())) {
            return self.fail("a transaction was committed that lacks entries in an index");
        }
        self.stats.commits += 1;
        if txn.xid.is_none() {
            self.has_written(&txn, matches!(answer, Answer::Ok(())));
        }
        // Temporary tables do not outlive the process: nobody waits for them.
        let lasting = |key: &u64| self.model.tables.values().any(|t| t.key == *key && !t.temporary);
        let waited = txn.xid.is_some() || txn.changes.keys().any(|(key, _)| lasting(key));
        let quiet = txn.ordered || (txn.xid.is_none() && txn.changes.is_empty());
        match answer {
            Answer::Ok(()) => {
                if !quiet {
                    self.decided(i, true);
                }
                if !quiet && waited {
                    self.acknowledged();
                }
                self.ended(i);
                Ok(Flow::Go)
            }
            _ if self.after_fault()? == Flow::Stop => {
                let event = match txn.xid {
                    Some(xid) => Event::Decide(xid, true),
                    None => Event::Commit(txn.changes),
                };
                if !txn.ordered {
                    self.model.perhaps(event);
                }
                Ok(Flow::Stop)
            }
            // Nothing was logged: the transaction is as it was.
            _ if txn.xid.is_some() => self.fail("the decision of a prepared transaction failed without stopping"),
            _ => {
                self.stats.commits_lost += u64::from(lost);
                self.rollback(i)
            }
        }
    }

    /// The session's transaction is decided, in the model.
    fn decided(&mut self, i: usize, commit: bool) {
        let Some(txn) = self.slots[i].txn.as_ref() else { return };
        let in_flush = txn.xid.is_some() && matches!(self.inside, Some(Inside::Flush | Inside::Everything));
        self.stats.decided_inside += u64::from(in_flush);
        match txn.xid.clone() {
            Some(xid) => {
                // The model keeps prepared transactions in one place; the session's locks go when it ends.
                self.model.detached.insert(xid.clone(), TxnModel { owner: NOBODY, ..txn.clone() });
                self.model.happened(Event::Decide(xid, commit));
            }
            None if commit => {
                let changes = txn.changes.clone();
                self.model.happened(Event::Commit(changes));
            }
            None => {}
        }
    }

    pub(crate) fn rollback(&mut self, i: usize) -> Result<Flow, Failure> {
        let Some(txn) = self.slots[i].txn.clone() else { return Ok(Flow::Go) };
        self.note(|| format!("s{i} rollback, xid {:?}", txn.xid.is_some()));
        let answer = self.slots[i].session.rollback();
        match self.judge("rollback", answer, &[], false)? {
            Answer::Ok(()) => {
                if let (Some(_), false) = (&txn.xid, txn.ordered) {
                    self.decided(i, false);
                    self.acknowledged();
                }
                self.ended(i);
                Ok(Flow::Go)
            }
            _ => {
                if let Some(xid) = txn.xid {
                    self.model.perhaps(Event::Decide(xid, false));
                }
                match self.after_fault()? {
                    Flow::Stop => Ok(Flow::Stop),
                    Flow::Go => self.fail("rollback failed without stopping"),
                }
            }
        }
    }

    pub(crate) fn prepare(&mut self, i: usize) -> Result<Flow, Failure> {
        if self.slots[i].txn.as_ref().is_none_or(|t| t.xid.is_some()) {
            return Ok(Flow::Go);
        }
        let xid = format!("xid-{}", self.next_xid).into_bytes();
        self.next_xid += 1;
        self.prepare_as(i, xid)
    }

    /// The same under this XID.
    pub(crate) fn prepare_as(&mut self, i: usize, xid: Vec<u8>) -> Result<Flow, Failure> {
        let Some(txn) = self.slots[i].txn.as_ref().filter(|t| t.xid.is_none()) else { return Ok(Flow::Go) };
        let (wrote, shaky) = (!txn.wrote.is_empty(), txn.shaky);
        self.note(|| format!("s{i} prepare {}", String::from_utf8_lossy(&xid)));
        let answer = self.with_session(i, |session| session.prepare(&xid))?;
        let (expected, must_fail) = self.refuses_writer(i);
        let answer = self.judge("prepare", answer, expected, shaky)?;
        if matches!(answer, Answer::No(_)) {
            self.stats.writers_refused += 1;
            return self.rollback(i);
        }
        if must_fail && matches!(answer, Answer::Ok(())) {
            return self.fail("a transaction was prepared that lacks entries in an index");
        }
        if let Some(txn) = self.slots[i].txn.clone() {
            self.has_written(&txn, matches!(answer, Answer::Ok(())));
        }
        if !wrote {
            return Ok(Flow::Go);
        }
        let Some(txn) = self.slots[i].txn.as_mut() else { return Ok(Flow::Go) };
        match answer {
            Answer::Ok(()) => {
                txn.xid = Some(xid);
                let event = Event::Prepare(Box::new(txn.clone()));
                self.model.happened(event);
                self.acknowledged();
                Ok(Flow::Go)
            }
            _ => {
                let mut maybe = txn.clone();
                maybe.xid = Some(xid);
                if self.after_fault()? == Flow::Stop {
                    self.model.perhaps(Event::Prepare(Box::new(maybe)));
                    return Ok(Flow::Stop);
                }
                self.rollback(i)
            }
        }
    }

    /// The order of the binlog: in memory, acknowledged by the log of the coordinator.
    pub(crate) fn commit_ordered(&mut self, i: usize) {
        if !self.slots[i].txn.as_ref().is_some_and(|t| t.xid.is_some() && !t.ordered) {
            return;
        }
        self.note(|| format!("s{i} commit_ordered"));
        self.slots[i].session.commit_ordered();
        // What it has locked it has up to its commit.
        self.decided(i, true);
        if let Some(txn) = &mut self.slots[i].txn {
            txn.ordered = true;
            // They are in the committed rows now.
            txn.changes.clear();
            txn.keys.clear();
        }
    }

    pub(crate) fn detach(&mut self, i: usize) {
        let Some(txn) = self.slots[i].txn.as_ref().filter(|t| t.xid.is_some() && !t.ordered) else { return };
        if let Some(xid) = txn.xid.clone() {
            self.model.detached.insert(xid, txn.clone());
        }
        self.note(|| format!("s{i} detach"));
        let slot = &mut self.slots[i];
        slot.session.detach_prepared();
        (slot.txn, slot.savepoints) = (None, Vec::new());
    }

    /// Decides a prepared transaction by its XID.
    pub(crate) fn decide_xid(&mut self, xid: &[u8], commit: bool) -> Result<Flow, Failure> {
        self.note(|| format!("decide {} commit={commit}", String::from_utf8_lossy(xid)));
        let engine = self.engine()?;
        let answer = if commit { engine.commit_xid(xid) } else { engine.rollback_xid(xid) };
        let known = self.model.detached.contains_key(xid);
        match self.judge("decision by XID", answer, &[], false)? {
            Answer::Ok(found) if found != known => {
                self.fail(format!("decision by XID found {found}, the model {known}"))
            }
            Answer::Ok(true) => {
                self.stats.decided_inside += u64::from(matches!(self.inside, Some(Inside::Flush)));
                self.model.happened(Event::Decide(xid.to_vec(), commit));
                self.acknowledged();
                Ok(Flow::Go)
            }
            Answer::Ok(false) => Ok(Flow::Go),
            _ => {
                self.model.perhaps(Event::Decide(xid.to_vec(), commit));
                match self.after_fault()? {
                    Flow::Stop => Ok(Flow::Stop),
                    Flow::Go => self.fail("a decision by XID failed without stopping the engine"),
                }
            }
        }
    }
}
