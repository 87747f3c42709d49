//! What the engine must look like: all versions of all rows in maps, transactions as overlays, and the history since
//! the start as a list of events in log order.
//!
//! Invariant: the log is one stream, so whatever a crash leaves is the state after some prefix of the events, and that
//! prefix holds at least those that are `durable`.

use crate::indexes::{first, unique_keys, UniqueKey};
use crate::kinds::Kind;
use crate::locks::Locks;
use esker::IndexDef;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A packed row.
pub type Row = Arc<[u8]>;
/// A table's identity: a truncated table is a new one.
pub type Key = u64;
/// What a transaction changed: the row's last state, none if it is deleted.
pub type Changes = BTreeMap<(Key, u64), Option<Row>>;

/// What a rollback to a point gives back: changes, the tables that were emptied, and keys.
pub type Point = (Changes, BTreeMap<Key, u64>, Keys);
/// Unique keys that a transaction put, for which row, or deleted.
pub type Keys = BTreeMap<(Key, UniqueKey), Option<u64>>;

impl TxnModel {
    /// The point where it is now.
    #[must_use]
    pub fn point(&self) -> Point {
        (self.changes.clone(), self.empties.clone(), self.keys.clone())
    }

    /// Goes back to a point.
    pub fn back_to(&mut self, point: Point) {
        (self.changes, self.empties, self.keys) = point;
    }
}

/// An index of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexModel {
    /// Its identity: one that comes again is another.
    pub id: u64,
    /// Its place among those that tables of the kind can have.
    pub def: usize,
    /// Its name.
    pub name: String,
    /// Views older than this cannot read by it.
    pub since: u64,
}

impl IndexModel {
    /// What the engine knows of it.
    #[must_use]
    pub fn def(&self, kind: &Kind) -> IndexDef {
        IndexDef { name: self.name.clone(), ..kind.indexes[self.def].clone() }
    }
}

/// Those that a table is made with.
fn first_indexes(kind: usize, key: Key) -> Vec<IndexModel> {
    let defs = crate::indexes::defs(kind).into_iter().take(first(kind)).enumerate();
    defs.map(|(def, index)| IndexModel { id: (key << 8) + def as u64, def, name: index.name, since: 0 }).collect()
}

/// One version of a row.
#[derive(Debug, Clone)]
pub struct Version {
    /// The commit that made it.
    pub seq: u64,
    /// The row; none: deleted.
    pub row: Option<Row>,
}

/// A table with all its versions since the engine was opened.
#[derive(Debug, Clone)]
pub struct TableModel {
    /// Its identity.
    pub key: Key,
    /// Index into [`kinds`](crate::kinds::kinds).
    pub kind: usize,
    /// Gone after a restart.
    pub temporary: bool,
    /// Views older than this cannot read it.
    pub rebuilt: u64,
    /// Versions of each row, oldest first.
    pub rows: BTreeMap<u64, Vec<Version>>,
    /// Row ids that were given out.
    pub used: BTreeSet<u64>,
    /// The rows that have unique keys now.
    pub unique: BTreeMap<UniqueKey, u64>,
    /// Its indexes, in their order.
    pub indexes: Vec<IndexModel>,
}

impl TableModel {
    /// A row is about to change.
    fn forget_keys(&mut self, id: u64) {
        let newest = self.rows.get(&id).and_then(|all| all.last()?.row.as_ref());
        for key in newest.map(|row| unique_keys(self.kind, &self.indexes, row)).unwrap_or_default() {
            self.unique.remove(&key);
        }
    }

    fn learn_keys(&mut self, id: u64, row: &[u8]) {
        self.unique.extend(unique_keys(self.kind, &self.indexes, row).into_iter().map(|key| (key, id)));
    }

    /// It has other indexes from now on.
    fn alter(&mut self, indexes: &[IndexModel]) {
        self.indexes = indexes.to_vec();
        self.unique.clear();
        let newest = |(id, all): (&u64, &Vec<Version>)| Some((*id, all.last()?.row.clone()?));
        let rows: Vec<_> = self.rows.iter().filter_map(newest).collect();
        rows.iter().for_each(|(id, row)| self.learn_keys(*id, row));
    }
}

/// A transaction.
#[derive(Debug, Clone, Default)]
pub struct TxnModel {
    /// Who it is to the locks.
    pub owner: u64,
    /// REPEATABLE READ.
    pub repeatable: bool,
    /// Snapshot isolation is on.
    pub snapshot_isolation: bool,
    /// Its view.
    pub view: Option<u64>,
    /// Its changes.
    pub changes: Changes,
    /// Its unique keys.
    pub keys: Keys,
    /// The primary keys of the tables that it wrote, as they were then.
    pub primary: BTreeMap<Key, Option<IndexModel>>,
    /// Tables that it read or wrote: no DDL on them.
    pub touched: BTreeSet<Key>,
    /// Tables that it wrote.
    pub wrote: BTreeSet<Key>,
    /// Rows that it ever wrote, rolled back or not.
    pub rows: BTreeSet<(Key, u64)>,
    /// Tables that it ever emptied, rolled back or not, with the greatest row id then.
    pub emptied: BTreeMap<Key, u64>,
    /// The same of what was not rolled back: a restart finds that in the log, and not how far one went that was.
    pub empties: BTreeMap<Key, u64>,
    /// Set by prepare.
    pub xid: Option<Vec<u8>>,
    /// commit_ordered has run.
    pub ordered: bool,
    /// An operation failed in it: it may fail again.
    pub shaky: bool,
    /// Tables that got other indexes since it wrote there: it cannot commit.
    pub altered: BTreeSet<Key>,
}

/// One step of the history.
#[derive(Debug, Clone)]
pub enum Event {
    /// A transaction was committed.
    Commit(Changes),
    /// A transaction was prepared.
    Prepare(Box<TxnModel>),
    /// A prepared transaction was committed or rolled back.
    Decide(Vec<u8>, bool),
    /// A table was made.
    Create(String, Key, usize, bool),
    /// A table was dropped.
    Drop(String),
    /// A table was renamed.
    Rename(String, String),
    /// A table was emptied and is now another.
    Truncate(String, Key),
    /// A table has other indexes.
    Alter(Key, Vec<IndexModel>),
}

/// A table in a [`State`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableState {
    /// Its identity.
    pub key: Key,
    /// Its kind.
    pub kind: usize,
    /// Gone after a restart.
    pub temporary: bool,
    /// Its rows.
    pub rows: BTreeMap<u64, Row>,
    /// Its indexes.
    pub indexes: Vec<IndexModel>,
}

/// What is committed at one point of the history.
#[derive(Debug, Clone, Default)]
pub struct State {
    /// Tables by name.
    pub tables: BTreeMap<String, TableState>,
    /// Prepared transactions by XID.
    pub prepared: BTreeMap<Vec<u8>, TxnModel>,
}

impl State {
    /// Takes one step.
    pub fn apply(&mut self, event: &Event) {
        match event {
            Event::Commit(changes) => self.change(changes),
            Event::Prepare(txn) => {
                if let Some(xid) = &txn.xid {
                    self.prepared.insert(xid.clone(), TxnModel::clone(txn));
                }
            }
            Event::Decide(xid, commit) => {
                if let Some(txn) = self.prepared.remove(xid).filter(|_| *commit) {
                    self.change(&txn.changes);
                }
            }
            Event::Create(name, key, kind, temporary) => {
                let indexes = first_indexes(*kind, *key);
                let rows = BTreeMap::new();
                let table = TableState { key: *key, kind: *kind, temporary: *temporary, rows, indexes };
                self.tables.insert(name.clone(), table);
            }
            Event::Drop(name) => drop(self.tables.remove(name)),
            Event::Rename(from, to) => {
                if let Some(table) = self.tables.remove(from) {
                    self.tables.insert(to.clone(), table);
                }
            }
            Event::Truncate(name, key) => {
                if let Some(table) = self.tables.get_mut(name) {
                    table.key = *key;
                    table.rows.clear();
                }
            }
            Event::Alter(key, indexes) => {
                let table = self.tables.values_mut().find(|t| t.key == *key);
                table.into_iter().for_each(|table| table.indexes.clone_from(indexes));
            }
        }
    }

    fn change(&mut self, changes: &Changes) {
        for ((key, id), row) in changes {
            let Some(table) = self.tables.values_mut().find(|t| t.key == *key) else { continue };
            match row {
                Some(row) => drop(table.rows.insert(*id, row.clone())),
                None => drop(table.rows.remove(id)),
            }
        }
    }
}

/// The whole reference.
#[derive(Debug, Clone, Default)]
pub struct Model {
    /// Tables by name.
    pub tables: BTreeMap<String, TableModel>,
    /// Row locks.
    pub locks: Locks,
    /// Prepared transactions without a session.
    pub detached: BTreeMap<Vec<u8>, TxnModel>,
    /// The newest commit.
    pub seq: u64,
    /// State when the engine was opened.
    pub base: State,
    /// What happened since.
    pub events: Vec<Event>,
    /// So many events survive a power cut.
    pub durable: usize,
    /// So many events survived a power cut before the last sync.
    pub durable_before: usize,
    /// So many events survive the end of the process.
    pub written: usize,
    /// So many events have survived what happened last.
    pub survived: usize,
    /// The engine was opened since the last crash: what it wrote counts.
    pub restarted: bool,
    /// So many of the last events may have happened or not.
    pub unsure: usize,
    next_key: Key,
    next_owner: u64,
}

impl Model {
    /// A fresh table identity.
    pub fn new_key(&mut self) -> Key {
        self.next_key += 1;
        self.next_key
    }

    /// A fresh lock owner.
    pub fn new_owner(&mut self) -> u64 {
        self.next_owner += 1;
        self.next_owner
    }

    /// The table of this identity.
    pub fn by_key(&mut self, key: Key) -> Option<&mut TableModel> {
        self.tables.values_mut().find(|t| t.key == key)
    }

    /// Notes an event and makes it so.
    pub fn happened(&mut self, event: Event) {
        self.seq += 1;
        let seq = self.seq;
        match &event {
            Event::Commit(changes) => self.commit(changes, seq),
            Event::Prepare(_) => {}
            Event::Decide(xid, commit) => {
                if let Some(txn) = self.detached.remove(xid) {
                    if *commit {
                        self.commit(&txn.changes, seq);
                    }
                    self.locks.release(txn.owner);
                }
            }
            Event::Create(name, key, kind, temporary) => {
                let (key, kind, temporary) = (*key, *kind, *temporary);
                let (rows, used, unique) = (BTreeMap::new(), BTreeSet::new(), BTreeMap::new());
                let indexes = first_indexes(kind, key);
                let table = TableModel { key, kind, temporary, rebuilt: seq, rows, used, unique, indexes };
                self.tables.insert(name.clone(), table);
            }
            Event::Drop(name) => drop(self.tables.remove(name)),
            Event::Rename(from, to) => {
                if let Some(table) = self.tables.remove(from) {
                    self.tables.insert(to.clone(), table);
                }
            }
            Event::Truncate(name, key) => {
                if let Some(table) = self.tables.get_mut(name) {
                    (table.key, table.rebuilt) = (*key, seq);
                    table.rows.clear();
                    table.used.clear();
                    table.unique.clear();
                }
            }
            Event::Alter(key, indexes) => self.by_key(*key).into_iter().for_each(|table| table.alter(indexes)),
        }
        // What failed in the middle of it may have happened as well, or not: it touched other rows.
        let at = self.sure();
        self.events.insert(at, event);
    }

    /// So many events have surely happened.
    #[must_use]
    pub fn sure(&self) -> usize {
        self.events.len() - self.unsure
    }

    /// Notes an event that may have happened: only a restart tells.
    pub fn perhaps(&mut self, event: Event) {
        self.events.push(event);
        self.unsure += 1;
    }

    /// The states that memory may be in: each of the last events happened, or not.
    #[must_use]
    pub fn possible(&self) -> Vec<State> {
        let sure = self.sure();
        let mut states = vec![self.state(sure)];
        for event in &self.events[sure..] {
            let mut with = states.clone();
            with.iter_mut().for_each(|s| s.apply(event));
            states.extend(with);
        }
        states
    }

    /// Makes a transaction's changes the newest versions.
    pub fn commit(&mut self, changes: &Changes, seq: u64) {
        // Rows may give keys to each other.
        for (key, id) in changes.keys() {
            self.by_key(*key).into_iter().for_each(|table| table.forget_keys(*id));
        }
        for ((key, id), row) in changes {
            if let Some(table) = self.by_key(*key) {
                table.rows.entry(*id).or_default().push(Version { seq, row: row.clone() });
                row.iter().for_each(|row| table.learn_keys(*id, row));
            }
        }
    }

    /// Everything that surely happened so far survives everything.
    pub fn all_durable(&mut self) {
        self.durable_to(self.sure());
    }

    /// The first `events` events survive everything.
    pub fn durable_to(&mut self, events: usize) {
        if self.durable < events {
            (self.durable_before, self.durable) = (self.durable, events);
        }
        self.written = self.written.max(events);
    }

    /// What a read sees: `view` none means the newest.
    #[must_use]
    pub fn visible(&self, name: &str, view: Option<u64>, txn: Option<&TxnModel>) -> BTreeMap<u64, Row> {
        let Some(table) = self.tables.get(name) else { return BTreeMap::new() };
        let view = view.unwrap_or(u64::MAX);
        let mut rows = BTreeMap::new();
        for (id, versions) in &table.rows {
            if let Some(row) = versions.iter().rev().find(|v| v.seq <= view).and_then(|v| v.row.as_ref()) {
                rows.insert(*id, row.clone());
            }
        }
        let own = txn.into_iter().flat_map(|t| t.changes.range((table.key, 0)..=(table.key, u64::MAX)));
        for ((_, id), row) in own {
            match row {
                Some(row) => drop(rows.insert(*id, row.clone())),
                None => drop(rows.remove(id)),
            }
        }
        rows
    }

    /// Of these rows that it sees, those at whose primary keys the transaction has written since, as another row's: no view
    /// shows two rows of one primary key.
    #[must_use]
    pub fn hidden(
        &self,
        name: &str,
        rows: &BTreeMap<u64, Row>,
        view: Option<u64>,
        txn: Option<&TxnModel>,
    ) -> BTreeMap<u64, Row> {
        let Some((table, txn)) = self.tables.get(name).zip(txn.filter(|txn| txn.repeatable)) else {
            return BTreeMap::new();
        };
        let primary = txn.primary.get(&table.key).and_then(|primary| primary.as_ref());
        let Some(primary) = primary.filter(|index| view.is_some_and(|view| view >= index.since)) else {
            return BTreeMap::new();
        };
        let is_hidden = |(id, row): &(&u64, &Row)| {
            let keys = unique_keys(table.kind, std::slice::from_ref(primary), row);
            !txn.changes.contains_key(&(table.key, **id))
                && keys.iter().any(|k| txn.keys.contains_key(&(table.key, *k)))
        };
        rows.iter().filter(is_hidden).map(|(id, row)| (*id, row.clone())).collect()
    }

    /// The newest committed version of a row.
    #[must_use]
    pub fn newest(&self, name: &str, id: u64) -> Option<&Version> {
        self.tables.get(name)?.rows.get(&id)?.last()
    }

    /// A row as a view sees what was committed.
    #[must_use]
    pub fn seen_at(&self, name: &str, id: u64, view: u64) -> Option<Row> {
        let versions = self.tables.get(name)?.rows.get(&id)?;
        versions.iter().rev().find(|v| v.seq <= view)?.row.clone()
    }

    /// The state after the first `n` events.
    #[must_use]
    pub fn state(&self, n: usize) -> State {
        let mut state = self.base.clone();
        self.events[..n].iter().for_each(|e| state.apply(e));
        state
    }

    /// Begins again from what a restart left. `blurred`: it could not read something, and keeps
    /// writers from what may lie there.
    pub fn restart(&mut self, mut state: State, blurred: bool) {
        state.tables.retain(|_, t| !t.temporary);
        // No view is older than the start.
        state.tables.values_mut().flat_map(|t| &mut t.indexes).for_each(|index| index.since = 0);
        self.tables.clear();
        self.locks = Locks::default();
        self.seq = 1;
        self.events.clear();
        (self.durable, self.durable_before, self.written, self.survived) = (0, 0, 0, 0);
        (self.restarted, self.unsure) = (true, 0);
        for (name, t) in &state.tables {
            let version = |row: &Row| vec![Version { seq: 1, row: Some(row.clone()) }];
            let rows: BTreeMap<_, _> = t.rows.iter().map(|(id, row)| (*id, version(row))).collect();
            let used = rows.keys().copied().collect();
            let unique = BTreeMap::new();
            let (kind, indexes) = (t.kind, t.indexes.clone());
            let mut table = TableModel { key: t.key, kind, temporary: false, rebuilt: 0, rows, used, unique, indexes };
            t.rows.iter().for_each(|(id, row)| table.learn_keys(*id, row));
            self.tables.insert(name.clone(), table);
        }
        let mut detached = state.prepared.clone();
        // A row of one transaction that lies in the range of another was inserted: it needs no lock of its own.
        let emptied: BTreeSet<Key> = detached.values().flat_map(|t| t.emptied.keys().copied()).collect();
        for txn in detached.values_mut() {
            txn.owner = self.new_owner();
            for (key, id) in &txn.rows {
                let sure = txn.changes.contains_key(&(*key, *id)) && !emptied.contains(key);
                self.locks.keep(txn.owner, *key, *id, sure, !blurred);
                // An update counts too: the log does not tell.
                self.locks.insert(txn.owner, *key, *id, false);
                // The id of a row that was rolled back may be given out again.
                let written = txn.changes.contains_key(&(*key, *id));
                if let Some(table) = self.by_key(*key).filter(|_| written) {
                    table.used.insert(*id);
                }
            }
            for key in txn.wrote.iter().filter(|_| blurred) {
                self.locks.keep_range(txn.owner, *key, u64::MAX, false);
            }
            for (key, up_to) in &txn.emptied {
                self.locks.keep_range(txn.owner, *key, *up_to, false);
            }
            for (key, up_to) in &txn.empties {
                self.locks.keep_range(txn.owner, *key, *up_to, true);
            }
        }
        self.detached = detached;
        self.base = state;
    }
}
