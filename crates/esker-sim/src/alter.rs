//! Tables get and lose indexes in the simulator, with their rows in place: built in one step, used or given up in another,
//! between and beside whatever else goes on.
//!
//! Invariants: no lock of a server's keeps writers away here, the engine itself must refuse what does not go together: a change
//! that was built from rows that are others by now, or the commit of who wrote for the indexes of before. A view from before the
//! change reads the rows and the older indexes, and gets an error from the newer ones alone.

use crate::indexes::alike;
use crate::meanwhile::Inside;
use crate::model::{Event, IndexModel, Key, TableModel, TxnModel};
use crate::sim::{Answer, Failure, Flow, Refusal, Sim};
use esker::{BuiltIndexes, Error, IndexPlan, ScanOptions, Table};
use std::collections::BTreeSet;
use std::sync::Arc;

/// A table has no more indexes.
const MOST_INDEXES: usize = 5;

/// Indexes that are being built, or are built and not used yet.
pub(crate) struct Build {
    key: Key,
    /// None while it goes on.
    built: Option<BuiltIndexes>,
    indexes: Vec<IndexModel>,
    /// Somebody has written in the table since: surely, or perhaps.
    overtaken: (bool, bool),
}

/// A list that a table is to have.
struct Plan {
    indexes: Vec<IndexModel>,
    plan: Vec<IndexPlan>,
    /// Places in it of new indexes in which rows have the same key, and these rows.
    alike: Vec<(usize, BTreeSet<u64>)>,
}

impl Sim {
    /// Builds indexes of a table, or does something about those that are built.
    pub(crate) fn alter(&mut self, name: &str) -> Result<Flow, Failure> {
        if matches!(self.inside, Some(Inside::Build(_))) {
            return Ok(Flow::Go);
        }
        match self.building.take() {
            Some(_) if self.rng.chance(10) => {
                self.note(|| "what was built is given up".into());
                Ok(Flow::Go)
            }
            Some(build) => self.use_built(build),
            None => self.build(name),
        }
    }

    /// Some of its indexes stay, some of them under another name, some of those come that tables of its kind can have.
    fn plan(&mut self, table: &TableModel, name: &str) -> Plan {
        let (drops, renames) = (*self.rng.pick(&[0, 0, 30, 100]), *self.rng.pick(&[0, 30, 30]));
        let (mut indexes, mut plan, mut twins) = (Vec::new(), Vec::new(), Vec::new());
        for (place, index) in table.indexes.iter().enumerate() {
            if self.rng.chance(drops) {
                continue;
            }
            let name = if self.rng.chance(renames) { format!("n{}", self.model.new_key()) } else { index.name.clone() };
            indexes.push(IndexModel { name: name.clone(), ..index.clone() });
            plan.push(IndexPlan::Keep { index: place, name });
        }
        let rows = self.model.visible(name, None, None);
        for _ in 0..self.rng.below(3) {
            let defs = self.kinds[table.kind].indexes.len();
            if defs == 0 || indexes.len() >= MOST_INDEXES {
                break;
            }
            let (def, at) = (self.rng.index(defs), self.rng.index(indexes.len() + 1));
            let id = self.model.new_key() << 8;
            let index = IndexModel { id, def, name: format!("i{id}"), since: u64::MAX };
            plan.insert(at, IndexPlan::Add(index.def(&self.kinds[table.kind])));
            indexes.insert(at, index);
        }
        for (place, index) in indexes.iter().enumerate().filter(|(_, index)| index.since == u64::MAX) {
            let rows = alike(table.kind, index.def, &rows);
            twins.extend((!rows.is_empty()).then_some((place, rows)));
        }
        Plan { indexes, plan, alike: twins }
    }

    fn build(&mut self, name: &str) -> Result<Flow, Failure> {
        let Some(model) = self.model.tables.get(name).cloned() else { return Ok(Flow::Go) };
        let Plan { indexes, plan, alike } = self.plan(&model, name);
        self.note(|| format!("build of {name}: {plan:?}"));
        let engine = self.engine()?.clone();
        let table = engine.open_table(name).map_err(|e| Failure::new(format!("open table {name}: {e}")))?;
        let (bound, perhaps_bound) = self.bound(model.key);
        let (mut asked, stop_at) = (0, if self.rng.chance(10) { self.rng.below(3) } else { u64::MAX });
        let mut go_on = move |done: u64, total: u64| {
            asked += 1;
            done <= total && asked <= stop_at
        };
        self.building = Some(Build { key: model.key, built: None, indexes, overtaken: (false, false) });
        let work = || engine.build_indexes(&table, &plan, &mut go_on);
        let answer = self.meanwhile(Inside::Build(model.key), work)?;
        let mut build = self.building.take();
        let mut expected = vec![Refusal::Interrupted];
        expected.extend((bound || perhaps_bound).then_some(Refusal::LockTimeout));
        expected.extend((!alike.is_empty()).then_some(Refusal::Duplicate));
        if model.temporary {
            expected = vec![Refusal::Unsupported];
        }
        if let Err(Error::DuplicateKey { index, row }) = &answer {
            if !alike.iter().any(|(place, rows)| place == index && rows.contains(&row.0)) {
                return self.fail(format!("row {row} in index {index} of {name} is like none: {alike:?}"));
            }
        }
        match self.judge(&format!("build of {name}"), answer, &expected, false)? {
            Answer::Ok(_) if bound || model.temporary || !alike.is_empty() => {
                self.fail(format!("indexes of {name} were built; bound {bound}, alike {alike:?}"))
            }
            Answer::Ok(built) => {
                if let Some(build) = &mut build {
                    build.built = Some(built);
                }
                self.building = build;
                // Beside others a change is made later, or soon.
                match self.building.take_if(|_| self.rng.chance(60)) {
                    Some(build) if !self.stopped_inside => self.use_built(build),
                    build => {
                        self.building = self.building.take().or(build);
                        Ok(Flow::Go)
                    }
                }
            }
            Answer::No(Refusal::Duplicate) => {
                self.stats.build_duplicates += 1;
                Ok(Flow::Go)
            }
            Answer::No(refusal) => {
                self.stats.alters_refused += u64::from(refusal == Refusal::LockTimeout);
                Ok(Flow::Go)
            }
            Answer::Fault => {
                self.stats.builds_cut += u64::from(self.disk.is_power_cut());
                self.after_fault()
            }
        }
    }

    /// The table gets what was built for it.
    fn use_built(&mut self, Build { key, built, mut indexes, overtaken }: Build) -> Result<Flow, Failure> {
        let Some(built) = built else { return Ok(Flow::Go) };
        let before = self.model.by_key(key).map(|t| t.indexes.clone());
        let (bound, mut perhaps_bound) = self.bound(key);
        // Emptied it has another key here, but not in the engine: whoever prepared may have written there since.
        let prepared = self.slots.iter().any(|s| s.txn.as_ref().is_some_and(|t| t.xid.is_some()));
        perhaps_bound |= before.is_none() && (prepared || !self.model.detached.is_empty());
        // It was dropped or emptied, or somebody has written there.
        let must_fail = bound || overtaken.0 || before.is_none();
        let mut expected = Vec::new();
        expected.extend((bound || perhaps_bound).then_some(Refusal::LockTimeout));
        expected.extend((overtaken.0 || overtaken.1 || before.is_none()).then_some(Refusal::TableChanged));
        // Dropped, not emptied: in the engine it is the same table then.
        expected.extend(before.is_none().then_some(Refusal::NoSuchTable));
        self.note(|| format!("alter {key} to {indexes:?}, overtaken {overtaken:?}, bound {bound}"));
        let answer = self.engine()?.alter_indexes(vec![built]);
        let seq = self.model.seq + 1;
        indexes.iter_mut().filter(|index| index.since == u64::MAX).for_each(|index| index.since = seq);
        let event = Event::Alter(key, indexes.clone());
        match self.judge(&format!("{event:?}"), answer, &expected, false)? {
            Answer::Ok(()) if must_fail => self.fail(format!("{event:?} succeeded, expected {expected:?}")),
            Answer::Ok(()) => {
                let before = before.unwrap_or_default();
                let count = |of: &[IndexModel], but: &[IndexModel]| {
                    of.iter().filter(|index| !but.iter().any(|other| other.id == index.id)).count() as u64
                };
                self.stats.indexes_added += count(&indexes, &before);
                self.stats.indexes_dropped += count(&before, &indexes);
                let renamed = |index: &&IndexModel| before.iter().any(|b| b.id == index.id && b.name != index.name);
                self.stats.indexes_renamed += indexes.iter().filter(renamed).count() as u64;
                self.model.happened(event);
                self.model.all_durable();
                self.tell_writers(key);
                Ok(Flow::Go)
            }
            Answer::No(Refusal::TableChanged | Refusal::NoSuchTable) => {
                self.stats.alters_overtaken += 1;
                Ok(Flow::Go)
            }
            Answer::No(_) => {
                self.stats.alters_refused += 1;
                Ok(Flow::Go)
            }
            Answer::Fault => match self.after_fault()? {
                Flow::Stop => {
                    self.model.perhaps(event);
                    Ok(Flow::Stop)
                }
                Flow::Go => Ok(Flow::Go),
            },
        }
    }

    /// Whoever has written in a table that has other indexes now can only roll back.
    fn tell_writers(&mut self, key: Key) {
        for slot in &mut self.slots {
            let Some(txn) = slot.txn.as_mut().filter(|t| t.xid.is_none() && t.wrote.contains(&key)) else { continue };
            txn.altered.insert(key);
            if slot.scan.take().is_some() {
                slot.session.end_statement();
            }
        }
    }

    /// What a transaction's end may meet for the sake of indexes that it did not know; and must it?
    pub(crate) fn refuses_writer(&self, i: usize) -> (&'static [Refusal], bool) {
        let Some(txn) = self.slots[i].txn.as_ref().filter(|t| !t.altered.is_empty()) else { return (&[], false) };
        // What it has inserted and deleted again may have left nothing.
        let there = |key: &Key, id: &u64| self.model.tables.values().any(|t| t.key == *key && t.rows.contains_key(id));
        let lasts =
            txn.changes.iter().any(|((key, id), row)| txn.altered.contains(key) && (row.is_some() || there(key, id)));
        (&[Refusal::TableChanged], lasts)
    }

    /// A transaction was committed or prepared, or was to be: what is built by now may lack its rows.
    pub(crate) fn has_written(&mut self, txn: &TxnModel, done: bool) {
        let Some(build) = &mut self.building else { return };
        let surely = done && txn.changes.iter().any(|((key, _), row)| *key == build.key && row.is_some());
        build.overtaken.0 |= surely;
        build.overtaken.1 |= txn.wrote.contains(&build.key);
    }

    /// A session's view is older than this index, which must say so.
    pub(crate) fn refuses_view(&mut self, i: usize, table: &Arc<Table>, place: usize) -> Result<(), Failure> {
        let session = &mut self.slots[i].session;
        let checked = session.check_index(table, place).map(drop);
        let read = session.open_index_cursor(table, place, ScanOptions::default()).map(drop);
        match (checked, read) {
            (Err(Error::TableChanged(_)), Err(Error::TableChanged(_))) => {
                self.stats.views_refused += 1;
                Ok(())
            }
            other => self.fail(format!("s{i} reads by index {place}, which is newer than its view: {other:?}")),
        }
    }

    /// A step of a transaction that has written for indexes of before.
    pub(crate) fn step_altered(&mut self, i: usize) -> Result<Flow, Failure> {
        match self.rng.below(10) {
            0..=1 => self.write_on(i).map(|()| Flow::Go),
            2 => {
                self.rollback_to(i);
                Ok(Flow::Go)
            }
            3..=4 => self.prepare(i),
            5..=6 => self.rollback(i),
            _ => self.commit(i),
        }
    }

    /// It cannot write there any more.
    fn write_on(&mut self, i: usize) -> Result<(), Failure> {
        let Some(txn) = self.slots[i].txn.as_ref() else { return Ok(()) };
        // Where it was refused before it had written it may not be known to have tried.
        let Some(key) = txn.altered.iter().find(|key| txn.rows.iter().any(|(k, _)| k == *key)).copied() else {
            return Ok(());
        };
        let shaky = txn.shaky;
        let Some((name, kind)) = self.model.tables.iter().find(|t| t.1.key == key).map(|t| (t.0.clone(), t.1.kind))
        else {
            return Ok(());
        };
        self.note(|| format!("s{i} goes on writing into {name}"));
        let table = self.engine()?.open_table(&name).map_err(|e| Failure::new(format!("open table {name}: {e}")))?;
        let row = self.kinds[kind].row(&mut self.rng)?;
        let session = &mut self.slots[i].session;
        session.begin_statement();
        let answer = session.insert_row(&table, &row);
        session.rollback_statement();
        session.end_statement();
        match self.judge("writing for other indexes", answer, &[Refusal::TableChanged], shaky)? {
            Answer::Ok(id) => self.fail(format!("row {id} was inserted into {name} for indexes that it does not have")),
            _ => Ok(()),
        }
    }
}
