//! Comparing everything that can be seen with the model, between steps.

use crate::recover::rows_differ;
use crate::sim::{Answer, Failure, Flow, Sim, FOLDER};
use esker::io::Disk;
use std::path::Path;

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
                }
                _ => return self.after_fault(),
            }
        }
        Ok(Flow::Go)
    }

    /// The engine has stopped writing: reads go on with what is committed, or fail cleanly.
    pub fn verify_reads_after_stop(&mut self) -> Result<(), Failure> {
        let Some(engine) = &self.engine else { return Ok(()) };
        if self.disk.is_power_cut() {
            return Ok(());
        }
        // The last event may have happened in memory or not.
        let (before, after) =
            (self.model.state(self.model.events.len().saturating_sub(1)), self.model.state(self.model.events.len()));
        for name in engine.tables() {
            let kind = [&before, &after].iter().find_map(|s| s.tables.get(&name)).map(|t| t.kind);
            let Some(kind) = kind else { return self.fail(format!("table {name} came from nowhere")) };
            let Ok(rows) = self.read_committed(&name, kind) else { continue };
            let fits = [&before, &after].iter().any(|s| s.tables.get(&name).is_some_and(|t| t.rows == rows));
            if !fits {
                let why = after.tables.get(&name).and_then(|t| rows_differ(&rows, &t.rows));
                return self.fail(format!("{name}, read after writing has stopped: {why:?}"));
            }
        }
        Ok(())
    }

    /// Nothing is open: ends all transactions, decides what is prepared, and looks for files that nobody owns.
    pub fn settle(&mut self) -> Result<Flow, Failure> {
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
            let files = self.disk.list(&Path::new(FOLDER).join("runs"))?;
            let runs = self.engine()?.status().runs;
            if files.len() as u64 != runs {
                let names: Vec<_> = files.iter().map(|f| &f.name).collect();
                return self.fail(format!("{runs} runs are in use, but {} files are there: {names:?}", files.len()));
            }
        }
        self.verify()
    }
}
