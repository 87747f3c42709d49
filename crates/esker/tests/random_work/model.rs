//! What there should be: of each table its rows' versions, and how far each transaction has come.
//!
//! A row is known by its row id, as in the engine; its versions stand in the order in which they were written, which its lock
//! keeps. A transaction has one status word: active, committed at a moment of the clock, or aborted. Invariant: what is undone in
//! the engine is undone here before, and what is done there stands here before anybody is let at it: so who has a row's lock finds
//! here what the engine gives.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// A row's values. What `pad` has follows from `stamp`, which no two writes share.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    pub id: u64,
    pub group: Option<i64>,
    pub code: Option<String>,
    pub stamp: u64,
    pub pad: usize,
}

/// A column's value in a key. NULL comes first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    Null,
    Number(i128),
    Text(String),
}

impl Row {
    pub fn part(&self, column: &str) -> Part {
        match column {
            "id" => Part::Number(self.id.into()),
            "group" => self.group.map_or(Part::Null, |n| Part::Number(n.into())),
            "code" => self.code.clone().map_or(Part::Null, Part::Text),
            _ => Part::Number(self.stamp.into()),
        }
    }
}

/// A kind of index; a table has some of them.
pub struct Kind {
    pub name: &'static str,
    pub unique: bool,
    pub columns: &'static [&'static str],
}

/// The first one every table has.
pub static KINDS: [Kind; 5] = [
    Kind { name: "by_id", unique: true, columns: &["id"] },
    Kind { name: "by_code", unique: true, columns: &["code"] },
    Kind { name: "by_group", unique: false, columns: &["group"] },
    Kind { name: "by_code_and_group", unique: false, columns: &["code", "group"] },
    Kind { name: "by_group_and_stamp", unique: true, columns: &["group", "stamp"] },
];

impl Kind {
    pub fn key(&self, row: &Row) -> Vec<Part> {
        self.columns.iter().map(|column| row.part(column)).collect()
    }

    /// The key, if no other row may have it.
    fn unique_key(&self, row: &Row) -> Option<Vec<Part>> {
        self.unique.then(|| self.key(row)).filter(|key| !key.contains(&Part::Null))
    }

    /// Has each of these rows a unique key of its own?
    pub fn is_unique_in<'r>(&self, rows: impl IntoIterator<Item = &'r Row>) -> bool {
        let mut keys = HashSet::new();
        rows.into_iter().filter_map(|row| self.unique_key(row)).all(|key| keys.insert(key))
    }
}

pub const ACTIVE: u64 = 0;
pub const ABORTED: u64 = u64::MAX;

/// How far the end of a transaction has come: what a crash may make of it. Once the end is acknowledged it is `Open` again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// It reads and writes, or has ended.
    Open,
    Committing,
    Preparing,
    Prepared,
    /// Prepared, and being committed by its session or by XID.
    Deciding,
    /// Prepared, and committed for whoever keeps the order, who says so again after a crash.
    Ordered,
    /// Prepared, and being rolled back.
    RollingBack,
}

pub struct Txn {
    pub id: u64,
    status: AtomicU64,
    stage: Mutex<Stage>,
    /// Writes of statements that have ended.
    steps: AtomicU64,
    /// Tables that nobody may change before it ends.
    pub tables: Mutex<BTreeSet<usize>>,
}

impl Txn {
    pub fn new(id: u64) -> Arc<Txn> {
        let (status, stage) = (AtomicU64::new(ACTIVE), Mutex::new(Stage::Open));
        Arc::new(Txn { id, status, stage, steps: AtomicU64::new(0), tables: Mutex::default() })
    }

    pub fn xid(&self) -> Vec<u8> {
        format!("xid {}", self.id).into_bytes()
    }

    pub fn status(&self) -> u64 {
        self.status.load(Ordering::SeqCst)
    }

    pub fn set_status(&self, status: u64) {
        self.status.store(status, Ordering::SeqCst);
    }

    pub fn steps(&self) -> u64 {
        self.steps.load(Ordering::SeqCst)
    }

    /// A statement has ended, after so many writes.
    pub fn set_steps(&self, steps: u64) {
        self.steps.store(steps, Ordering::SeqCst);
    }

    pub fn stage(&self) -> Stage {
        *self.stage.lock().unwrap()
    }

    pub fn set_stage(&self, stage: Stage) {
        *self.stage.lock().unwrap() = stage;
    }

    /// May its locks be gone? The engine lets go of them a moment before it answers.
    fn may_have_ended(&self) -> bool {
        self.status() != ACTIVE || !matches!(self.stage(), Stage::Open | Stage::Preparing | Stage::Prepared)
    }
}

pub struct Version {
    pub txn: Arc<Txn>,
    /// Which of its transaction's writes it is.
    pub step: u64,
    /// `None`: deleted.
    pub row: Option<Row>,
}

/// All versions of a table's rows, by row id.
#[derive(Default)]
pub struct Rows {
    versions: BTreeMap<u64, Vec<Version>>,
    /// Which rows ever had a unique key of a kind.
    holders: HashMap<(usize, Vec<Part>), BTreeSet<u64>>,
}

impl Rows {
    pub fn put(&mut self, rid: u64, version: Version) {
        let kinds = KINDS.iter().enumerate();
        let keys = kinds.filter_map(|(at, kind)| Some((at, kind.unique_key(version.row.as_ref()?)?)));
        for key in keys {
            self.holders.entry(key).or_default().insert(rid);
        }
        self.versions.entry(rid).or_default().push(version);
    }

    /// All rows are deleted.
    pub fn empty(&mut self, txn: &Arc<Txn>, step: u64) {
        self.versions.values_mut().for_each(|of| of.push(Version { txn: txn.clone(), step, row: None }));
    }

    /// What a transaction did after a step has never been.
    pub fn undo(&mut self, txn: &Txn, after: u64) {
        self.versions.values_mut().for_each(|of| of.retain(|v| v.txn.id != txn.id || v.step <= after));
    }

    /// The newest version of a row, whoever's, but for what was rolled back.
    fn newest(&self, rid: u64) -> Option<&Version> {
        self.versions.get(&rid)?.iter().rev().find(|v| v.txn.status() != ABORTED)
    }

    /// Rows that stand, by their newest versions, but for those of statements of others that have not ended.
    pub fn standing(&self, me: u64, wanted: impl Fn(&Row) -> bool) -> Vec<(u64, u64)> {
        let newest = self.versions.keys().filter_map(|rid| Some((*rid, self.newest(*rid)?)));
        let settled = newest.filter(|(_, v)| v.txn.id == me || v.txn.status() != ACTIVE || v.step <= v.txn.steps());
        settled.filter_map(|(rid, v)| Some((rid, v.row.as_ref().filter(|row| wanted(row))?.stamp))).collect()
    }

    /// One of the rows that stand, as the number says.
    pub fn any(&self, number: u64) -> Option<Row> {
        let at = number as usize % self.versions.len().max(1);
        self.newest(*self.versions.keys().nth(at)?)?.row.clone()
    }

    pub fn stands(&self, rid: u64, stamp: u64) -> bool {
        self.newest(rid).and_then(|v| v.row.as_ref()).is_some_and(|row| row.stamp == stamp)
    }

    pub fn is_written_by(&self, rid: u64, me: u64) -> bool {
        self.newest(rid).is_some_and(|v| v.txn.id == me)
    }

    /// The row as whoever has just got its lock must find it.
    ///
    /// # Errors
    /// It is deleted, or somebody else has the lock.
    pub fn under_lock(&self, rid: u64, me: u64) -> Result<&Row, String> {
        let newest = self.newest(rid).ok_or_else(|| format!("row {rid} has never been"))?;
        let (txn, row) = (&newest.txn, &newest.row);
        if txn.id != me && !txn.may_have_ended() {
            return Err(format!("row {rid} is locked by {}, {:?}, which wrote {row:?}", txn.id, txn.stage()));
        }
        row.as_ref().ok_or_else(|| format!("row {rid} was deleted by {}, {} {:?}", txn.id, txn.status(), txn.stage()))
    }

    /// Another row that stands with a unique key of this one.
    pub fn conflict(&self, kinds: &[usize], rid: u64, row: &Row) -> Option<String> {
        kinds.iter().find_map(|kind| {
            let key = KINDS[*kind].unique_key(row)?;
            let others = self.holders.get(&(*kind, key.clone()))?.iter().filter(|other| **other != rid);
            let mut stands = others.filter_map(|other| Some((other, self.newest(*other)?)));
            let has =
                |row: &Option<Row>| row.as_ref().is_some_and(|row| KINDS[*kind].unique_key(row) == Some(key.clone()));
            let (other, version) = stands.find(|(_, v)| has(&v.row))?;
            Some(format!(
                "{} {key:?} of row {other} by {}, {:?}",
                KINDS[*kind].name,
                version.txn.id,
                version.txn.stage()
            ))
        })
    }

    /// What a view from a moment of the clock shows, with the own changes of a transaction. A row that it has written counts as it
    /// wrote it; one that lost its id to others since, who gave way to a row of its own, is not shown beside that.
    pub fn seen(&self, me: Option<u64>, view: u64) -> BTreeMap<u64, Row> {
        let is_own = |v: &&Version| me == Some(v.txn.id);
        let own = self.versions.values().flatten().filter(is_own).filter_map(|v| v.row.as_ref());
        let own_ids: HashSet<u64> = if me.is_some() { own.map(|row| row.id).collect() } else { HashSet::new() };
        let is_seen = |v: &&Version| (1..=view).contains(&v.txn.status()) && v.txn.status() != ABORTED;
        let show = |(rid, of): (&u64, &Vec<Version>)| {
            let shown = match of.iter().rev().find(is_own) {
                Some(own) => own.row.as_ref(),
                None => of.iter().rev().find(is_seen)?.row.as_ref().filter(|row| !own_ids.contains(&row.id)),
            };
            shown.map(|row| (*rid, row.clone()))
        };
        self.versions.iter().filter_map(show).collect()
    }

    /// What is committed.
    pub fn committed(&self) -> BTreeMap<u64, Row> {
        self.seen(None, ABORTED)
    }

    /// Keeps what is committed, as of `base`, and the versions of `left`.
    pub fn settle(&mut self, base: &Arc<Txn>, left: &[Arc<Txn>]) {
        let committed = self.committed();
        let before = std::mem::take(self);
        for (rid, row) in committed {
            self.put(rid, Version { txn: base.clone(), step: 0, row: Some(row) });
        }
        for (rid, of) in before.versions {
            of.into_iter().filter(|v| left.iter().any(|l| l.id == v.txn.id)).for_each(|v| self.put(rid, v));
        }
    }
}

/// How what was found differs from what is wanted, if it does.
pub fn difference(wanted: &BTreeMap<u64, Row>, found: &BTreeMap<u64, Row>) -> Result<(), String> {
    if wanted == found {
        return Ok(());
    }
    let lacks: Vec<_> = wanted.iter().filter(|(rid, row)| found.get(rid) != Some(row)).take(3).collect();
    let more: Vec<_> = found.iter().filter(|(rid, row)| wanted.get(rid) != Some(row)).take(3).collect();
    Err(format!("{} rows, not {}: {more:?} instead of {lacks:?}", found.len(), wanted.len()))
}
