//! A session with one transaction after the other: statements, savepoints, and what is undone of them.
//!
//! Invariant: what a transaction has locked stays as it is, but for its own changes, until it ends.

use crate::model::{Row, Txn, Version, ABORTED};
use crate::table::{some_row, Slot};
use crate::tally::Tally;
use crate::world::{Halt, World};
use esker::base::counters::{bind, Bound};
use esker::{BeginOptions, Isolation, Savepoint, Session, Table};
use fastrand::Rng;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::Arc;
use std::time::Duration;

/// Waits for a lock, in milliseconds: some give up at once.
const PATIENCE_MS: [u64; 4] = [0, 3, 20, 60];

/// Of a hundred transactions so many only lock, to meet what others gather.
const READERS: u8 = 45;

/// Lines of its story that a failure tells.
const STORY_LINES: usize = 60;

pub struct Client<'w> {
    // Before the session whose counters it is about.
    _bound: Bound,
    pub session: Session,
    pub world: &'w World<'w>,
    pub rng: Rng,
    pub txn: Arc<Txn>,
    /// It keeps one view.
    repeatable: bool,
    /// The moment that its reads are from, once there was one.
    pub view: Option<u64>,
    /// Writes so far.
    steps: u64,
    /// Rows of others that it has locked, by table and row id, with their stamps then.
    pub locked: Vec<(usize, u64, u64)>,
    /// It only reads, to meet what others gather.
    pub is_reader: bool,
    pub is_undone_in_part: bool,
    /// The table in which it has gathered many changes, until it ends or gives them up.
    gathers_in: Option<&'w Slot>,
    /// What it did in this transaction, for who has to find out.
    story: Vec<String>,
}

/// A table in which a transaction works.
pub struct Place<'w> {
    pub at: usize,
    pub slot: &'w Slot,
    pub table: Arc<Table>,
    pub kinds: Vec<usize>,
}

impl<'w> Client<'w> {
    pub fn new(world: &'w World<'w>, seed: u64) -> Client<'w> {
        let session = world.engine.session();
        Client {
            _bound: bind(session.counters()),
            session,
            world,
            rng: Rng::with_seed(seed),
            txn: Txn::new(0),
            repeatable: false,
            view: None,
            steps: 0,
            locked: Vec::new(),
            is_reader: false,
            is_undone_in_part: false,
            gathers_in: None,
            story: Vec::new(),
        }
    }

    /// Works until all operations are done, or the power is cut.
    pub fn run(&mut self) {
        while !self.world.is_over() {
            let done = if self.chance(12) { self.decide_detached() } else { self.transaction() };
            let done = match done {
                Err(Halt::Refused | Halt::Lost) => self.roll_back(),
                Err(Halt::Changed) if self.has_older_view() => {
                    Tally::add(&self.tally().old_views_refused, 1);
                    self.roll_back()
                }
                done => done,
            };
            match done {
                Ok(()) => {}
                Err(Halt::Cut) => return,
                Err(halt) => {
                    let last = &self.story[self.story.len().saturating_sub(STORY_LINES)..];
                    return self.world.fail(format!("{}\n{}", halt.told(), last.join("\n")));
                }
            }
        }
    }

    fn transaction(&mut self) -> Result<(), Halt> {
        self.begin();
        let mut points = Vec::new();
        for _ in 0..1 + self.rng.u64(..9) {
            if !self.world.take_operation() {
                break;
            }
            self.statement()?;
            if self.gathers_in.is_some() && self.chance(70) {
                break;
            }
            self.move_between(&mut points);
        }
        self.end()
    }

    fn begin(&mut self) {
        self.txn = self.world.begin();
        self.repeatable = self.rng.bool();
        self.is_reader = self.chance(READERS);
        (self.view, self.steps, self.is_undone_in_part) = (None, 0, false);
        self.locked.clear();
        self.story.clear();
        let isolation = if self.repeatable { Isolation::RepeatableRead } else { Isolation::ReadCommitted };
        let snapshot_isolation = self.chance(25);
        self.session.begin(isolation, BeginOptions { snapshot_isolation });
        let patience = if self.is_reader { 0 } else { PATIENCE_MS[self.rng.usize(..PATIENCE_MS.len())] };
        self.session.set_lock_wait(Duration::from_millis(patience), false);
        self.tell(format!("{} begins, {isolation:?}, snapshot {snapshot_isolation}", self.txn.id));
    }

    /// One statement, which is undone if somebody else is in its way, or for once.
    fn statement(&mut self) -> Result<(), Halt> {
        let before = self.steps;
        if !self.repeatable {
            self.view = None;
        }
        self.session.begin_statement();
        let done = self.operation();
        let refused = matches!(done, Err(Halt::Refused));
        if !refused {
            done?;
        }
        if refused || self.chance(4) {
            Tally::add(&self.tally().statements_undone, 1);
            self.undo(before);
            self.session.rollback_statement();
        }
        self.session.end_statement();
        self.txn.set_steps(self.steps);
        Ok(())
    }

    /// To a savepoint and back.
    fn move_between(&mut self, points: &mut Vec<(Savepoint, u64)>) {
        match self.rng.u8(..12) {
            0 | 1 => {
                Tally::add(&self.tally().savepoints, 1);
                points.push((self.session.savepoint(), self.steps));
                self.tell(format!("savepoint {}", self.steps));
            }
            2 if !points.is_empty() => {
                Tally::add(&self.tally().transactions_undone_in_part, 1);
                points.truncate(1 + self.rng.usize(..points.len()));
                let (point, steps) = points[points.len() - 1].clone();
                self.undo(steps);
                self.session.rollback_to(&point);
            }
            _ => {}
        }
    }

    /// The model's part of it, which comes before the engine's.
    fn undo(&mut self, after: u64) {
        self.tell(format!("undone after {after}"));
        self.is_undone_in_part = true;
        for at in self.txn.tables.lock().unwrap().iter() {
            self.slot(*at).rows.lock().unwrap().undo(&self.txn, after);
        }
    }

    /// Readers wait for it from now on.
    pub fn gathers_in(&mut self, slot: &'w Slot) {
        self.gathers_no_more();
        slot.gathering.fetch_add(1, SeqCst);
        self.gathers_in = Some(slot);
    }

    /// Readers go on.
    pub fn gathers_no_more(&mut self) {
        if let Some(slot) = self.gathers_in.take() {
            slot.gathering.fetch_sub(1, SeqCst);
        }
    }

    pub fn roll_back(&mut self) -> Result<(), Halt> {
        self.gathers_no_more();
        self.txn.set_status(ABORTED);
        self.session.rollback().map_err(|e| self.world.halt("rollback", &e))?;
        Tally::add(&self.tally().rollbacks, 1);
        self.world.leave_tables(&self.txn);
        Ok(())
    }

    /// Goes into one of the tables, unless somebody is changing it. Readers prefer one in which somebody gathers.
    pub fn enter(&mut self) -> Option<Place<'w>> {
        let slots = &self.world.shared.slots;
        let at = self.rng.usize(..slots.len());
        let gathering = slots.iter().position(|slot| slot.gathering.load(SeqCst) > 0);
        let at = gathering.filter(|_| self.is_reader).unwrap_or(at);
        let mut tables = self.txn.tables.lock().unwrap();
        if !tables.contains(&at) && !slots[at].gate.enter() {
            return None;
        }
        tables.insert(at);
        let now = slots[at].now();
        Some(Place { at, slot: &slots[at], table: now.table.unwrap(), kinds: now.shape.kinds })
    }

    /// Notes a write, which has been done.
    pub fn put(&mut self, place: &Place<'_>, rid: u64, row: Option<Row>) {
        self.steps += 1;
        self.tell(format!("{}: table {} row {rid} is {row:?}", self.steps, place.at));
        let version = Version { txn: self.txn.clone(), step: self.steps, row };
        place.slot.rows.lock().unwrap().put(rid, version);
    }

    pub fn check_locked(&self) -> Result<(), Halt> {
        for (at, rid, stamp) in &self.locked {
            let rows = self.slot(*at).rows.lock().unwrap();
            if !rows.stands(*rid, *stamp) && !rows.is_written_by(*rid, self.txn.id) {
                return Err(Halt::Wrong(format!(
                    "row {rid} of table {at} was changed under the lock of {}",
                    self.txn.id
                )));
            }
        }
        Ok(())
    }

    /// Was there a view before a table's last change?
    fn has_older_view(&self) -> bool {
        let changed = |at: &usize| self.slot(*at).now().changed;
        self.repeatable
            && self.txn.tables.lock().unwrap().iter().any(|at| self.view.is_some_and(|view| view < changed(at)))
    }

    pub fn new_row(&mut self, id: u64, wide: u64) -> Row {
        some_row(&mut self.rng, id, self.world.shared.number(), wide)
    }

    pub fn slot(&self, at: usize) -> &'w Slot {
        &self.world.shared.slots[at]
    }

    pub fn tally(&self) -> &'w Tally {
        &self.world.shared.tally
    }

    pub fn chance(&mut self, percent: u8) -> bool {
        self.rng.u8(..100) < percent
    }

    pub fn tell(&mut self, what: String) {
        self.story.push(format!("  at {}: {what}", self.world.clock()));
    }
}

impl Drop for Client<'_> {
    fn drop(&mut self) {
        self.gathers_no_more();
    }
}
