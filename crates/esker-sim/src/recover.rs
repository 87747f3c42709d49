//! Restarts: what the engine finds must be the state after some prefix of the history that holds everything durable.
//!
//! Invariant: after a restart the model begins again with the state that was found, so that the next crash is held
//! against it.

use crate::kinds::Kind;
use crate::model::{Event, IndexModel, Row, State, TableState};
use crate::sim::{Answer, Failure, Flow, Sim};
use esker::io::SimDisk;
use esker::IndexDef;
use std::collections::BTreeMap;
use std::fmt::Write;

/// What an engine holds: rows of each table, and what is prepared.
struct Found {
    tables: BTreeMap<String, (BTreeMap<u64, Row>, Vec<IndexDef>)>,
    prepared: Vec<Vec<u8>>,
}

impl Sim {
    /// The power goes; the disk comes back with what the seed leaves of it.
    pub fn power_cut(&mut self, seed: u64) {
        self.note(|| format!("power cut, outcome {seed}"));
        self.disk.cut_power();
        self.drop_engine();
        self.disk = self.disk.after_power_cut(seed);
        self.model.survived = self.model.durable;
        self.model.restarted = false;
        self.stats.crashes += 1;
    }

    /// The process dies; what it has written stays.
    pub fn kill(&mut self) {
        self.note(|| "kill".into());
        // The copy is made before sessions and engine clean up behind them.
        let disk = self.disk.snapshot();
        self.killed(disk);
    }

    /// The process dies where the power was to go: in the middle of anything. What it has written stays.
    pub fn kill_at_cut(&mut self) {
        self.note(|| "kill in the middle".into());
        let disk = self.disk.after_kill();
        self.stats.kills_inside += 1;
        self.killed(disk);
    }

    fn killed(&mut self, disk: SimDisk) {
        self.drop_engine();
        self.disk = disk;
        if self.model.restarted || self.model.events.is_empty() {
            self.model.survived = self.model.written;
        }
        self.model.restarted = false;
        self.stats.crashes += 1;
    }

    /// Opens the engine and takes over what it finds.
    pub fn reopen(&mut self) -> Result<Flow, Failure> {
        let (events, survived) = (self.model.events.len(), self.model.survived);
        self.note(|| format!("open, {events} events of which {survived} must be there"));
        if self.open_engine()? == Flow::Stop {
            return Ok(Flow::Stop);
        }
        let mut found = self.look()?;
        for _ in 0..3 {
            if found.is_none() && self.after_fault()? == Flow::Go {
                found = self.look()?;
            }
        }
        let Some(found) = found else { return Ok(Flow::Stop) };
        let state = self.explain(&found)?;
        self.check_blocks()?;
        self.model.restart(state, self.faulty);
        (self.mode, self.owes_sync) = (esker::FlushMode::EveryCommit, false);
        self.see_recovered_keys()?;
        Ok(Flow::Go)
    }

    /// Reads everything; none if a fault came in between.
    fn look(&mut self) -> Result<Option<Found>, Failure> {
        let engine = self.engine()?;
        let mut prepared = engine.prepared();
        prepared.sort();
        let names = engine.tables();
        let mut tables = BTreeMap::new();
        for name in names {
            let Some(kind) = self.kind_of(&name)? else {
                return self.fail(format!("table {name} has a layout that no table ever had"));
            };
            let answer = self.read_committed(&name, kind);
            match self.judge(&format!("reading {name} after a restart"), answer, &[], false)? {
                Answer::Ok(rows) => {
                    let indexes = self.indexes_of(&name)?;
                    tables.insert(name, (rows, indexes));
                }
                _ => return Ok(None),
            }
        }
        Ok(Some(Found { tables, prepared }))
    }

    /// The indexes of a table.
    pub(crate) fn indexes_of(&self, name: &str) -> Result<Vec<IndexDef>, Failure> {
        let engine = self.engine()?;
        let table = engine.open_table(name).map_err(|e| Failure::new(format!("open table {name}: {e}")))?;
        Ok(engine.sim_indexes(&table))
    }

    /// Notes which changes of indexes that nobody was told of are there, if so many events are.
    fn see_alters(&mut self, n: usize) {
        let unsure = self.model.events.iter().enumerate().skip(self.model.survived);
        for (at, _) in unsure.filter(|(_, event)| matches!(event, Event::Alter(..))) {
            match at < n {
                true => self.stats.alters_kept += 1,
                false => self.stats.alters_lost += 1,
            }
        }
    }

    fn kind_of(&self, name: &str) -> Result<Option<usize>, Failure> {
        let table = self.engine()?.open_table(name).map_err(|e| Failure::new(format!("open table {name}: {e}")))?;
        let same = |k: &crate::kinds::Kind| {
            k.layout == **table.layout() && k.format == table.format() && k.compression == table.compression()
        };
        Ok(self.kinds.iter().position(same))
    }

    /// The latest prefix of the history that gives what was found.
    fn explain(&mut self, found: &Found) -> Result<State, Failure> {
        let mut why = String::new();
        for n in (self.model.survived..=self.model.events.len()).rev() {
            let mut state = self.model.state(n);
            state.tables.retain(|_, t| !t.temporary);
            match difference(found, &state, &self.kinds) {
                None => {
                    self.see_alters(n);
                    return Ok(state);
                }
                Some(text) => {
                    let _ = writeln!(why, "  after {n} events: {text}");
                }
            }
        }
        let (least, all) = (self.model.survived, self.model.events.len());
        self.fail(format!("what was found is no state between {least} and {all} events:\n{why}"))
    }

    /// Every block of every table is sound.
    pub(crate) fn check_blocks(&mut self) -> Result<(), Failure> {
        let engine = self.engine()?.clone();
        for name in engine.tables() {
            let table = engine.open_table(&name).map_err(|e| Failure::new(format!("open table {name}: {e}")))?;
            match engine.check(&table, &mut |_, _| true) {
                Ok(report) if report.damages.is_empty() => self.stats.runs += u64::from(report.blocks > 0),
                Ok(_) if self.faulty => {}
                Ok(report) => return self.fail(format!("CHECK of {name} found {:?}", report.damages)),
                Err(_) if self.faulty => {}
                Err(e) => return self.fail(format!("CHECK of {name}: {e}")),
            }
        }
        Ok(())
    }
}

fn difference(found: &Found, want: &State, kinds: &[Kind]) -> Option<String> {
    let (have, should): (Vec<_>, Vec<_>) = (found.tables.keys().collect(), want.tables.keys().collect());
    if have != should {
        return Some(format!("tables are {have:?}, not {should:?}"));
    }
    let should: Vec<_> = want.prepared.keys().cloned().collect();
    if found.prepared != should {
        let text = |xids: &[Vec<u8>]| xids.iter().map(|x| String::from_utf8_lossy(x).into_owned()).collect::<Vec<_>>();
        return Some(format!("prepared are {:?}, not {:?}", text(&found.prepared), text(&should)));
    }
    for (name, table) in &want.tables {
        let (rows, indexes) = found.tables.get(name)?;
        if !has_indexes(table, kinds, indexes) {
            return Some(format!("{name} has the indexes {indexes:?}, not {:?}", table.indexes));
        }
        if let Some(text) = rows_differ(rows, &table.rows) {
            return Some(format!("{name}: {text}"));
        }
    }
    None
}

/// Are these the indexes that the model has?
pub(crate) fn has_indexes(table: &TableState, kinds: &[Kind], indexes: &[IndexDef]) -> bool {
    are_indexes(table.kind, &table.indexes, kinds, indexes)
}

/// The same of this kind and these.
pub(crate) fn are_indexes(kind: usize, want: &[IndexModel], kinds: &[Kind], have: &[IndexDef]) -> bool {
    want.iter().map(|index| index.def(&kinds[kind])).eq(have.iter().cloned())
}

/// How two sets of rows differ, in a few words.
pub(crate) fn rows_differ(have: &BTreeMap<u64, Row>, want: &BTreeMap<u64, Row>) -> Option<String> {
    if have == want {
        return None;
    }
    let few = |ids: Vec<u64>| format!("{} rows {:?}", ids.len(), &ids[..ids.len().min(5)]);
    let missing = want.keys().filter(|id| !have.contains_key(id)).copied().collect();
    let extra = have.keys().filter(|id| !want.contains_key(id)).copied().collect();
    let other = have.iter().filter(|(id, row)| want.get(id).is_some_and(|w| w != *row)).map(|(id, _)| *id).collect();
    Some(format!("lost {}, extra {}, different {}", few(missing), few(extra), few(other)))
}
