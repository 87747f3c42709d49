//! Comparing everything that can be seen with the model, between steps.

use crate::model::{State, TableState};
use crate::recover::{are_indexes, has_indexes, rows_differ};
use crate::sim::{Answer, Failure, Flow, Sim, FOLDER};
use esker::io::Disk;
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

/// After so long what could not be read is tried again.
const A_WHILE: Duration = Duration::from_secs(10 * 60);

impl Sim {
    /// Every table as a new session sees it, its count, and the list of prepared transactions.
    pub fn verify(&mut self) -> Result<Flow, Failure> {
        let engine = self.engine()?;
        let names: Vec<String> = self.model.tables.keys().cloned().collect();
        if engine.tables() != names {
            return self.fail(format!("tables are {:?}, not {names:?}", engine.tables()));
        }
        let mut prepared = engine.prepared();
        prepared.sort();
        let want: Vec<_> = self.model.detached.keys().cloned().collect();
        if prepared != want {
            return self.fail(format!("{} prepared transactions, not {}", prepared.len(), want.len()));
        }
        for name in names {
            let kind = self.model.tables.get(&name).map_or(0, |t| t.kind);
            let answer = self.read_committed(&name, kind);
            match self.judge(&format!("reading {name}"), answer, &[], false)? {
                Answer::Ok(rows) => {
                    if let Some(why) = rows_differ(&rows, &self.model.visible(&name, None, None)) {
                        return self.fail(format!("{name}: {why}"));
                    }
                    self.verify_indexes(&name)?;
                }
                _ => return self.after_fault(),
            }
        }
        Ok(Flow::Go)
    }

    fn verify_indexes(&self, name: &str) -> Result<(), Failure> {
        let have = self.indexes_of(name)?;
        match self.model.tables.get(name) {
            Some(t) if !are_indexes(t.kind, &t.indexes, &self.kinds, &have) => {
                self.fail(format!("{name} has the indexes {have:?}, not {:?}", t.indexes))
            }
            _ => Ok(()),
        }
    }

    /// The engine has stopped writing: reads go on, with everything that is committed in memory.
    pub fn verify_reads_after_stop(&mut self) -> Result<(), Failure> {
        let Some(engine) = &self.engine else { return Ok(()) };
        if self.disk.is_power_cut() {
            return Ok(());
        }
        // The fault has struck, and time has passed since: no reading has an excuse.
        self.disk.clear_plans();
        self.time.pass(A_WHILE);
        let states = self.model.possible();
        let mut possible: Vec<bool> = states.iter().map(|s| s.tables.keys().eq(engine.tables().iter())).collect();
        for name in engine.tables() {
            let Some(kind) = states.iter().find_map(|s| s.tables.get(&name)).map(|t| t.kind) else {
                return self.fail(format!("table {name} came from nowhere"));
            };
            let rows = match self.read_committed(&name, kind) {
                Ok(rows) => rows,
                Err(e) => return self.fail(format!("{name} cannot be read after writing has stopped: {e}")),
            };
            let indexes = self.indexes_of(&name)?;
            let same = |t: &TableState| t.rows == rows && has_indexes(t, &self.kinds, &indexes);
            let fits = |s: &State| s.tables.get(&name).is_some_and(same);
            possible.iter_mut().zip(&states).for_each(|(p, s)| *p &= fits(s));
            if !possible.contains(&true) {
                let why: Vec<_> =
                    states.iter().filter_map(|s| rows_differ(&rows, &s.tables.get(&name)?.rows)).collect();
                return self.fail(format!("{name}, read after writing has stopped: {why:?}"));
            }
        }
        match possible.contains(&true) {
            true => Ok(()),
            false => self.fail(format!("tables after writing has stopped are {:?}", engine.tables())),
        }
    }

    /// Nothing is open: ends all transactions, decides what is prepared, and looks for files that nobody owns.
    pub fn settle(&mut self) -> Result<Flow, Failure> {
        self.building = None;
        for i in 0..self.slots.len() {
            self.slots[i].scan = None;
            self.slots[i].session.end_statement();
            let flow = if self.rng.chance(50) { self.commit(i)? } else { self.rollback(i)? };
            if flow == Flow::Stop {
                return Ok(Flow::Stop);
            }
        }
        for xid in self.model.detached.keys().cloned().collect::<Vec<_>>() {
            let commit = self.rng.chance(50);
            if self.decide_xid(&xid, commit)? == Flow::Stop {
                return Ok(Flow::Stop);
            }
        }
        if self.checkpoint()? == Flow::Stop {
            return Ok(Flow::Stop);
        }
        if !self.faulty && self.check_files {
            let engine = self.engine()?;
            let mut used = BTreeSet::new();
            for name in engine.tables() {
                let table = engine.open_table(&name).map_err(|e| Failure(e.to_string()))?;
                let runs: Vec<_> = engine.sim_runs(&table).into_iter().chain(engine.sim_key_runs(&table)).collect();
                if let Some(run) = runs.iter().find(|run| run.private) {
                    return self.fail(format!("run {:016x} of {name} is a transaction's that has ended", run.file));
                }
                // Runs of several trees may share a file.
                used.extend(runs.iter().map(|run| format!("{:016x}.run", run.file)));
            }
            let files = self.disk.list(&Path::new(FOLDER).join("runs"))?;
            let there: BTreeSet<_> = files.into_iter().map(|f| f.name).collect();
            if there != used {
                return self.fail(format!("files {used:?} are in use, but {there:?} are there"));
            }
        }
        self.verify()
    }
}
