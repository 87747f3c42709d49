//! Transactions in two phases, as a server with a binlog ends them: sessions prepare, a group of them goes into the
//! [binlog](crate::binlog), is synced, has its `commit_ordered` in that order, and commits; the binlog is rotated, and forgets
//! what the engine says it does not need. Between any two of these steps others go on, flushes, merges and checkpoints too.
//!
//! Invariant: when the server is there again, and has decided by the binlog what the engine has prepared, the engine holds the
//! transactions that the binlog holds and nothing else: by rows, by entries, in every view.

use crate::background::Work;
use crate::binlog::Entry;
use crate::meanwhile::Inside;
use crate::model::{Event, Key, Row};
use crate::recover::rows_differ;
use crate::sim::{Answer, Failure, Flow, Sim};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// Kinds of the tables: plain, unique and descending keys, prefixes, blobs.
const KINDS: [usize; 4] = [0, 1, 3, 7];
/// XIDs that the server asks for at a time.
const MOST_AT_A_TIME: u64 = 3;

impl Sim {
    /// The tables of the scenarios, on a folder that is open; from now on transactions go through the binlog.
    pub(crate) fn begin_two_phase(&mut self) -> Result<(), Failure> {
        self.binlog.in_use = true;
        KINDS.iter().enumerate().try_for_each(|(n, kind)| self.create(&format!("d/b{n}"), *kind))
    }

    fn some_table(&mut self) -> String {
        format!("d/b{}", self.rng.index(KINDS.len()))
    }

    /// A place where the server may end.
    fn ends_here(&mut self) -> bool {
        let most = self.binlog.ends_with_prepared;
        let ends = self.binlog.ends_here() || most > 0 && self.prepared_sessions().len() >= most;
        if ends {
            self.note(|| "the server ends here".into());
        }
        ends
    }

    /// A step of the workload.
    pub(crate) fn step_two_phase(&mut self) -> Result<Flow, Failure> {
        if self.ends_here() {
            return Ok(Flow::Stop);
        }
        match self.rng.below(100) {
            0..=11 => {
                let name = self.some_table();
                self.some_background(&name)
            }
            12..=17 => self.rotate_binlog(),
            18..=27 => self.next_in_binlog(),
            28..=32 => self.whole_group(),
            33..=35 => self.hold_now(),
            36..=38 => self.end_detached(),
            _ => {
                let i = self.rng.index(self.slots.len());
                self.step_session(i)
            }
        }
    }

    fn step_session(&mut self, i: usize) -> Result<Flow, Failure> {
        if self.inside == Some(Inside::Seal(i)) {
            return Ok(Flow::Go);
        }
        let Some(txn) = &self.slots[i].txn else {
            self.begin(i);
            return self.step_open(i);
        };
        match (&txn.xid, txn.ordered) {
            (_, true) => self.commit(i),
            (None, _) => self.step_open(i),
            (Some(xid), _) if self.binlog.has(xid) => self.next_in_binlog(),
            (Some(_), _) => match self.rng.below(10) {
                0..=2 => {
                    self.write_to_binlog(i);
                    Ok(Flow::Go)
                }
                // It waits for others.
                3..=5 => Ok(Flow::Go),
                6 => self.roll_back_prepared(i),
                7 => {
                    self.detach(i);
                    Ok(Flow::Go)
                }
                _ => self.whole_group(),
            },
        }
    }

    fn step_open(&mut self, i: usize) -> Result<Flow, Failure> {
        let name = self.some_table();
        match self.rng.below(20) {
            0..=4 => {
                let large = self.model.tables.get(&name).is_some_and(|t| t.used.len() < self.config.most_rows);
                let rows = if large && self.rng.chance(25) { 60 + self.rng.index(250) } else { 1 + self.rng.index(8) };
                self.insert(i, &name, rows)
            }
            5..=8 => {
                let rows = if self.rng.chance(15) { 120 } else { 1 + self.rng.index(12) };
                self.modify(i, &name, rows, false)
            }
            9..=10 => {
                let rows = 1 + self.rng.index(20);
                self.modify(i, &name, rows, true)
            }
            11 if self.rng.chance(15) => self.delete_all(i, &name),
            11 => self.scan(i, &name),
            12 => {
                self.savepoint(i);
                Ok(Flow::Go)
            }
            13 => {
                self.rollback_to(i);
                Ok(Flow::Go)
            }
            14 => {
                self.take_view(i);
                Ok(Flow::Go)
            }
            15 if self.rng.chance(40) => self.rollback(i),
            _ if self.slots[i].txn.as_ref().is_some_and(|t| !t.wrote.is_empty()) => self.prepare_for_binlog(i),
            _ => self.insert(i, &name, 3),
        }
    }

    /// The first phase.
    pub(crate) fn prepare_for_binlog(&mut self, i: usize) -> Result<Flow, Failure> {
        let (xid, _) = self.binlog.new_xid(&mut self.rng);
        let flow = self.prepare_as(i, xid.clone())?;
        let is_prepared = self.slots[i].txn.as_ref().is_some_and(|t| t.xid.is_some());
        if flow == Flow::Go && !is_prepared {
            // It has written nothing, or was refused.
            self.binlog.let_go(&xid);
        }
        Ok(flow)
    }

    fn roll_back_prepared(&mut self, i: usize) -> Result<Flow, Failure> {
        let xid = self.slots[i].txn.as_ref().and_then(|t| t.xid.clone());
        let flow = self.rollback(i)?;
        xid.iter().filter(|_| flow == Flow::Go).for_each(|xid| self.binlog.let_go(xid));
        Ok(flow)
    }

    /// Sessions whose transactions are prepared, and not in the binlog.
    pub(crate) fn prepared_sessions(&self) -> Vec<usize> {
        let is_prepared = |i: &usize| {
            let xid = self.slots[*i].txn.as_ref().filter(|t| !t.ordered).and_then(|t| t.xid.as_ref());
            xid.is_some_and(|xid| !self.binlog.has(xid))
        };
        (0..self.slots.len()).filter(is_prepared).collect()
    }

    fn write_to_binlog(&mut self, i: usize) {
        let Some(txn) = &self.slots[i].txn else { return };
        let Some(xid) = txn.xid.clone() else { return };
        let undone = txn.rows.iter().any(|row| !txn.changes.contains_key(row));
        let entry = Entry { xid, changes: txn.changes.clone(), session: Some(i) };
        self.stats.two_phase.saw("undone_in_part", usize::from(undone));
        self.note(|| format!("s{i} {} to the binlog", String::from_utf8_lossy(&entry.xid)));
        self.binlog.entries.push(entry);
    }

    fn sync_binlog(&mut self) {
        self.note(|| "sync the binlog".into());
        self.binlog.synced = self.binlog.entries.len();
    }

    /// The next thing to do for what is in the binlog: a `commit_ordered`, or a sync.
    fn next_in_binlog(&mut self) -> Result<Flow, Failure> {
        if self.binlog.ordered < self.binlog.synced {
            return self.next_ordered();
        }
        self.sync_binlog();
        Ok(Flow::Go)
    }

    fn next_ordered(&mut self) -> Result<Flow, Failure> {
        let entry = self.binlog.entries[self.binlog.ordered].clone();
        match entry.session {
            Some(i) => self.commit_ordered(i),
            None => {
                if self.decide_xid(&entry.xid, true)? == Flow::Stop {
                    return Ok(Flow::Stop);
                }
            }
        }
        self.binlog.ordered += 1;
        Ok(Flow::Go)
    }

    /// All who are prepared go into the binlog together, and have their `commit_ordered` one after the other.
    fn whole_group(&mut self) -> Result<Flow, Failure> {
        let mut group = self.prepared_sessions();
        while !group.is_empty() {
            let next = self.rng.index(group.len());
            self.write_to_binlog(group.swap_remove(next));
            if self.ends_here() {
                return Ok(Flow::Stop);
            }
        }
        self.sync_binlog();
        while self.binlog.ordered < self.binlog.synced {
            if self.ends_here() || self.next_ordered()? == Flow::Stop {
                return Ok(Flow::Stop);
            }
        }
        Ok(Flow::Go)
    }

    /// A prepared transaction whose session is gone goes into the binlog, or is rolled back.
    fn end_detached(&mut self) -> Result<Flow, Failure> {
        let xid = self.model.detached.keys().find(|xid| !self.binlog.has(xid)).cloned();
        let Some((xid, txn)) = xid.and_then(|xid| self.model.detached.get(&xid).map(|txn| (xid.clone(), txn))) else {
            return Ok(Flow::Go);
        };
        let entry = Entry { xid: xid.clone(), changes: txn.changes.clone(), session: None };
        if self.rng.chance(70) {
            self.note(|| format!("{} to the binlog", String::from_utf8_lossy(&xid)));
            self.binlog.entries.push(entry);
            return Ok(Flow::Go);
        }
        let flow = self.decide_xid(&xid, false)?;
        if flow == Flow::Go {
            self.binlog.let_go(&xid);
        }
        Ok(flow)
    }

    /// A new file of the binlog; the engine is asked whether it needs the one before, once all that is in it is committed.
    fn rotate_binlog(&mut self) -> Result<Flow, Failure> {
        if self.binlog.rotated.is_none() && !self.binlog.entries.is_empty() {
            self.sync_binlog();
            self.note(|| "rotate the binlog".into());
            self.binlog.rotated = Some(self.binlog.synced);
        }
        match self.binlog.rotated.filter(|rotated| self.binlog.ordered >= *rotated) {
            Some(rotated) if !self.ends_here() => self.ask_for(rotated),
            Some(_) => Ok(Flow::Stop),
            None => Ok(Flow::Go),
        }
    }

    /// commit_checkpoint_request for the first entries of the binlog, which forgets them for the answer.
    fn ask_for(&mut self, entries: usize) -> Result<Flow, Failure> {
        self.note(|| format!("are the first {entries} entries of the binlog needed?"));
        if std::mem::take(&mut self.binlog.cut_at_request) {
            self.disk.power_cut_at(self.disk.op_count() + 1 + self.rng.below(2));
        }
        let answer = Arc::new(Mutex::new(None));
        let told = answer.clone();
        self.binlog.asked = true;
        self.engine()?.request_checkpoint(Box::new(move |result| {
            if let Ok(mut told) = told.lock() {
                *told = Some(result);
            }
        }));
        let answer = answer.lock().ok().and_then(|mut answer| answer.take());
        let Some(answer) = answer else { return self.fail("a checkpoint request was not answered") };
        match self.judge("checkpoint request", answer, &[], false)? {
            Answer::Ok(()) => {
                self.binlog.asked = false;
                self.model.all_durable();
                let forgotten = self.binlog.forget(entries);
                self.stats.two_phase.saw("entries_forgotten", forgotten);
                Ok(Flow::Go)
            }
            _ => match self.after_fault()? {
                Flow::Stop => Ok(Flow::Stop),
                Flow::Go => self.fail("a checkpoint request failed, and the engine goes on"),
            },
        }
    }

    /// What is committed now is what the binlog has given out for it.
    fn hold_now(&mut self) -> Result<Flow, Failure> {
        let held = self.binlog.holds(self.binlog.ordered);
        let mut rows = BTreeMap::new();
        for (name, table) in &self.model.tables {
            rows.extend(self.model.visible(name, None, None).into_iter().map(|(id, row)| ((table.key, id), row)));
        }
        if rows != held {
            return self.fail(format!("the model has {} rows, the binlog has made {}", rows.len(), held.len()));
        }
        self.verify()
    }

    /// The engine holds the transactions of the binlog, all of which are decided.
    pub(crate) fn hold_against_binlog(&mut self) -> Result<Flow, Failure> {
        let held = self.binlog.holds(self.binlog.entries.len());
        let tables: Vec<(String, Key, usize)> =
            self.model.tables.iter().map(|(name, t)| (name.clone(), t.key, t.kind)).collect();
        for (name, key, kind) in tables {
            let range = held.range((key, 0)..=(key, u64::MAX));
            let want: BTreeMap<u64, Row> = range.map(|((_, id), row)| (*id, row.clone())).collect();
            let answer = self.read_committed(&name, kind);
            match self.judge(&format!("reading {name} after recovery"), answer, &[], false)? {
                Answer::Ok(rows) => {
                    if let Some(why) = rows_differ(&rows, &want) {
                        return self.fail(format!("{name} does not hold what the binlog holds: {why}"));
                    }
                }
                _ => return self.after_fault(),
            }
        }
        Ok(Flow::Go)
    }

    /// The server is there again: decides by the binlog what the engine has prepared. Others read, flush, merge and write
    /// manifests meanwhile.
    pub(crate) fn recover_by_binlog(&mut self) -> Result<Flow, Failure> {
        self.binlog.opened();
        let view = self.rng.chance(40);
        if view {
            // Older than every decision.
            self.begin_as(0, true, false);
            self.take_view(0);
        }
        let mut listed: Vec<Vec<u8>> = self.engine()?.prepared();
        self.see_found()?;
        if listed.len() > 1 && std::mem::take(&mut self.binlog.ends_recovering) {
            match self.rng.chance(50) {
                true => self.binlog.places_left = Some(2 + self.rng.below(listed.len() as u64 - 1)),
                false => self.disk.power_cut_at(self.disk.op_count() + 2 + self.rng.below(4)),
            }
        }
        let at_a_time = 1 + self.rng.index(MOST_AT_A_TIME as usize);
        let mut decided = 0;
        while !listed.is_empty() {
            if decided == 0 && self.between_decisions()? == Flow::Stop {
                return Ok(Flow::Stop);
            }
            for xid in listed.drain(..listed.len().min(at_a_time)).collect::<Vec<_>>() {
                self.binlog.recovering = decided > 0;
                if self.ends_here() || self.decide_found(&xid)? == Flow::Stop {
                    return Ok(Flow::Stop);
                }
                decided += 1;
            }
            self.binlog.recovering = !listed.is_empty();
            if self.between_decisions()? == Flow::Stop {
                return Ok(Flow::Stop);
            }
            if self.rng.chance(30) {
                // Asked anew: what was decided is in no list any more.
                listed = self.engine()?.prepared();
            }
        }
        self.binlog.recovering = false;
        if self.disk.is_power_cut() {
            // In the last decision's removal of files, which nobody is told of.
            return Ok(Flow::Stop);
        }
        if !self.engine()?.prepared().is_empty() {
            return self.fail("something is prepared that was in no list");
        }
        self.binlog.recovered();
        if view && self.end_reader()? == Flow::Stop {
            return Ok(Flow::Stop);
        }
        if self.hold_against_binlog()? == Flow::Stop {
            return Ok(Flow::Stop);
        }
        self.check_blocks()?;
        if self.rng.chance(50) {
            // All in it is decided, durably so: the binlog begins anew.
            let forgotten = self.binlog.forget(self.binlog.entries.len());
            self.stats.two_phase.saw("entries_forgotten_at_once", forgotten);
        }
        Ok(Flow::Go)
    }

    fn see_found(&mut self) -> Result<(), Failure> {
        let engine = self.engine()?.clone();
        for name in engine.tables() {
            let table = engine.open_table(&name).map_err(|e| Failure::new(format!("open table {name}: {e}")))?;
            let private = engine.sim_runs(&table).iter().filter(|run| run.private).count();
            self.stats.two_phase.saw("found_with_runs", private);
        }
        Ok(())
    }

    /// The reader whose view is older than every decision reads all tables, and ends.
    fn end_reader(&mut self) -> Result<Flow, Failure> {
        for n in 0..KINDS.len() {
            if self.scan(0, &format!("d/b{n}"))? == Flow::Stop {
                return Ok(Flow::Stop);
            }
        }
        self.rollback(0)
    }

    fn decide_found(&mut self, xid: &[u8]) -> Result<Flow, Failure> {
        if self.binlog.is_free(xid) {
            let xid = String::from_utf8_lossy(xid);
            return self.fail(format!("{xid} is prepared: nobody knows any more how its transaction has ended"));
        }
        let commit = self.binlog.has(xid);
        let flow = self.decide_xid(xid, commit)?;
        if flow == Flow::Go {
            let again = self.binlog.is_used_again(xid);
            self.stats.two_phase.saw(if commit { "found_committed" } else { "found_rolled_back" }, 1);
            self.stats.two_phase.saw("found_used_again", usize::from(again));
        }
        Ok(flow)
    }

    fn between_decisions(&mut self) -> Result<Flow, Failure> {
        // A flush and a manifest behind it let the log go that has what is prepared, unless somebody keeps it.
        const WORKS: [Work; 7] =
            [Work::Manifest, Work::Manifest, Work::Flush, Work::Merge, Work::Round, Work::Everything, Work::Everything];
        let works = if self.rng.chance(60) { 1 + self.rng.below(3) } else { 0 };
        for _ in 0..works {
            let (name, work) = (self.some_table(), *self.rng.pick(&WORKS));
            if self.background(&name, work)? == Flow::Stop {
                return Ok(Flow::Stop);
            }
            self.stats.two_phase.saw("works_between_decisions", 1);
        }
        match self.rng.chance(30) {
            true => self.verify(),
            false => Ok(Flow::Go),
        }
    }

    /// The log has stopped while transactions were under way: none is acknowledged any more, nor is it said that the binlog may
    /// forget one, and those in it are committed all the same.
    pub(crate) fn go_on_without_log(&mut self) -> Result<(), Failure> {
        let logged = self.model.sure();
        for i in 0..self.slots.len() {
            let Some(txn) = self.slots[i].txn.as_ref().filter(|t| t.xid.is_none() && !t.wrote.is_empty()) else {
                continue;
            };
            let wrote = !txn.changes.is_empty();
            let xid = self.binlog.new_xid(&mut self.rng).0;
            match self.slots[i].session.prepare(&xid) {
                Ok(()) if wrote => return self.fail("a transaction was prepared by a log that has stopped"),
                Ok(()) => {}
                Err(_) => {
                    self.stats.two_phase.saw("prepares_refused", 1);
                    // As the server does, whatever comes of it: also where it was the one whose sync failed.
                    let _ = self.slots[i].session.rollback();
                }
            }
        }
        while self.binlog.ordered < self.binlog.synced {
            let entry = self.binlog.entries[self.binlog.ordered].clone();
            // Who has its XID alone is told that it is not durable.
            let Some(i) = entry.session else { break };
            self.commit_ordered(i);
            self.binlog.ordered += 1;
            self.stats.two_phase.saw("ordered_without_log", 1);
        }
        let flow = self.ask_for(0)?;
        match flow {
            Flow::Stop => self.stats.two_phase.saw("requests_refused", 1),
            // It stopped where segments are made, and lacks nothing.
            Flow::Go if self.model.sure() == logged => {}
            Flow::Go => return self.fail("a log that has stopped has said that all is durable"),
        }
        self.verify_reads_after_stop()?;
        // What was decided since was in memory only, whatever becomes of what was written when the log stopped.
        self.model.events.drain(logged..self.model.sure());
        Ok(())
    }

    /// Nothing is open, prepared or left to ask.
    pub(crate) fn settle_two_phase(&mut self) -> Result<Flow, Failure> {
        for i in 0..self.slots.len() {
            let is_open = |sim: &Sim| sim.slots[i].txn.as_ref().is_some_and(|t| t.xid.is_none());
            let prepares = is_open(self) && self.rng.chance(50);
            if prepares && self.prepare_for_binlog(i)? == Flow::Stop {
                return Ok(Flow::Stop);
            }
            if is_open(self) && self.rollback(i)? == Flow::Stop {
                return Ok(Flow::Stop);
            }
        }
        while self.model.detached.keys().any(|xid| !self.binlog.has(xid)) {
            if self.end_detached()? == Flow::Stop {
                return Ok(Flow::Stop);
            }
        }
        if self.whole_group()? == Flow::Stop || self.rotate_binlog()? == Flow::Stop || self.hold_now()? == Flow::Stop {
            return Ok(Flow::Stop);
        }
        self.settle()
    }

    /// How far transactions in two phases are, when the process (`killed`) or the power ends.
    pub(crate) fn see_phases(&mut self, killed: bool) {
        let is_detached = |xid: &&Vec<u8>| !self.binlog.has(xid);
        let prepared = !self.prepared_sessions().is_empty() || self.model.detached.keys().any(|xid| is_detached(&xid));
        let recent = &self.model.events[self.model.durable.min(self.model.sure())..self.model.sure()];
        let decided = recent.iter().any(|event| matches!(event, Event::Decide(_, true)));
        let in_binlog = self.binlog.entries.len() > self.binlog.ordered;
        let (asked, recovering) = (self.binlog.asked, self.binlog.recovering);
        let phases = [
            (prepared && !recovering, "killed_prepared", "cut_prepared"),
            (in_binlog && !recovering, "killed_in_binlog", "cut_in_binlog"),
            (decided && !recovering, "killed_ordered", "cut_ordered"),
            (asked, "killed_asked", "cut_asked"),
            (recovering, "killed_recovering", "cut_recovering"),
        ];
        for (seen, kill, cut) in phases {
            self.stats.two_phase.saw(if killed { kill } else { cut }, usize::from(seen));
        }
    }
}
