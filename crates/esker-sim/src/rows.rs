//! Writing rows in the simulator: inserts of any size, updates and deletes by row id, emptying a table.
//!
//! Invariant: a row that the transaction has locked is written only if it is alive for it; that is the engine's
//! contract with its callers, who write what they have found.

use crate::indexes::{primary, Met, Rekey};
use crate::keys::Rewrite;
use crate::locks::Verdict;
use crate::model::{Key, Row};
use crate::sim::{Answer, Failure, Flow, Refusal, Sim};
use crate::txns::Ended;
use esker::format::RowId;

impl Sim {
    /// The session is about to write (or read) this table.
    pub(crate) fn touch(&mut self, i: usize, name: &str, write: bool) -> Option<(Key, usize)> {
        let table = self.model.tables.get(name)?;
        let (key, kind) = (table.key, table.kind);
        let txn = self.slots[i].txn.as_mut()?;
        txn.touched.insert(key);
        if write {
            txn.wrote.insert(key);
        }
        Some((key, kind))
    }

    pub(crate) fn insert(&mut self, i: usize, name: &str, rows: usize) -> Result<Flow, Failure> {
        let name = name.to_owned();
        self.statement(i, |sim, i| sim.insert_rows(i, &name, rows))
    }

    fn insert_rows(&mut self, i: usize, name: &str, rows: usize) -> Result<Ended, Failure> {
        self.note(|| format!("s{i} insert {rows} rows into {name}"));
        let Some((key, kind)) = self.touch(i, name, true) else { return Ok(Ended::Done) };
        let table = self.engine()?.open_table(name).map_err(|e| Failure::new(format!("open table {name}: {e}")))?;
        let as_image = self.rng.chance(50);
        let (shaky, owner) = self.slots[i].txn.as_ref().map_or((false, 0), |t| (t.shaky, t.owner));
        let mut again = match self.rng.below(4) {
            0 | 1 => self.deleted_since(i, name),
            2 => self.deleted_itself(i, name, key),
            _ => None,
        };
        for _ in 0..rows {
            let packed = match again.take() {
                Some(row) => row.to_vec(),
                None => self.kinds[kind].row(&mut self.rng)?,
            };
            let Some(model) = self.model.by_key(key) else { return Ok(Ended::Done) };
            let rekey = Rekey::new(model, None, Some(&packed), false);
            let met = self.meets(i, key, &rekey);
            let answer = if as_image {
                let image = self.kinds[kind].image(&packed)?;
                // SAFETY: an image of this table's layout; its blobs point into `packed`.
                unsafe { self.slots[i].session.insert_image(&table, image.as_ptr()) }
            } else {
                self.slots[i].session.insert_row(&table, &packed)
            };
            let id = match self.judge_keys("insert", answer, met, met.refusals(), shaky)? {
                Answer::Ok(id) if met == Met::Nobody => id,
                Answer::Ok(id) => return self.fail(format!("row {id} was inserted, the model says {met:?}")),
                Answer::No(_) => match self.refused_insert(i, name, met)? {
                    // INSERT IGNORE.
                    Ended::Done => continue,
                    ended => return Ok(ended),
                },
                Answer::Fault => {
                    self.model.locks.insert(owner, key, 0, false);
                    return Ok(Ended::Fault);
                }
            };
            if self.model.by_key(key).is_some_and(|t| t.used.insert(id.0)) {
                self.model.locks.insert(owner, key, id.0, true);
            } else if !self.may_keep_id(i, key, id.0) {
                return self.fail(format!("row id {} of {name} was given out twice", id.0));
            }
            self.wrote(i, key, id.0, Some(packed.as_slice().into()));
            self.rekeyed(i, key, id.0, &rekey);
            if !self.write_keys(i, &table, kind, Rewrite::insert(id.0, &packed))? {
                return Ok(Ended::Fault);
            }
            if as_image && !self.insert_staged(i, name, key, kind)? {
                return Ok(Ended::Fault);
            }
        }
        Ok(Ended::Done)
    }

    /// A row that the transaction's view sees and that others have deleted since: its primary key written again hides it.
    fn deleted_since(&mut self, i: usize, name: &str) -> Option<Row> {
        let txn = self.slots[i].txn.as_ref()?;
        let mut rows = self.model.visible(name, Some(txn.view?), Some(txn));
        rows.retain(|id, _| self.model.newest(name, *id).is_some_and(|v| v.row.is_none()));
        let at = self.rng.below(rows.len().max(1) as u64) as usize;
        rows.into_values().nth(at)
    }

    /// A row that the transaction has deleted, as it was before: inserted again it may keep its id.
    fn deleted_itself(&mut self, i: usize, name: &str, key: Key) -> Option<Row> {
        let txn = self.slots[i].txn.as_ref()?;
        let deleted = txn.changes.iter().filter(|((of, _), row)| *of == key && row.is_none());
        let rows: Vec<_> =
            deleted.filter_map(|((_, id), _)| self.model.newest(name, *id).and_then(|v| v.row.clone())).collect();
        let at = self.rng.below(rows.len().max(1) as u64) as usize;
        rows.into_iter().nth(at)
    }

    /// May a row that was just inserted have the id of another one? If that had a primary key, and the transaction deleted it.
    fn may_keep_id(&self, i: usize, key: Key, id: u64) -> bool {
        let deleted = self.slots[i].txn.as_ref().is_some_and(|txn| txn.changes.get(&(key, id)) == Some(&None));
        deleted && self.model.tables.values().any(|t| t.key == key && primary(t.kind, &t.indexes).is_some())
    }

    /// What a statement does about a row that was not inserted: the next one, the same without the row in its way (REPLACE
    /// and its loop), or nothing more.
    fn refused_insert(&mut self, i: usize, name: &str, met: Met) -> Result<Ended, Failure> {
        match met {
            Met::Row(_, row) if self.rng.chance(30) => self.modify_one(i, name, row, true),
            _ if self.rng.chance(20) => Ok(Ended::Refused),
            _ => Ok(Ended::Done),
        }
    }

    /// Inserts more rows by writing them where the engine offers room for them; false if that met a fault.
    fn insert_staged(&mut self, i: usize, name: &str, key: Key, kind: usize) -> Result<bool, Failure> {
        let table = self.engine()?.open_table(name).map_err(|e| Failure::new(format!("open table {name}: {e}")))?;
        let Some(stage) = self.slots[i].session.stage(&table) else { return Ok(true) };
        let rows = self.rng.below(stage.rows.min(20) as u64 + 1) as usize;
        self.note(|| format!("s{i} stages {rows} rows for {name}"));
        let mut written = Vec::new();
        for n in 0..rows {
            let packed = self.kinds[kind].row(&mut self.rng)?;
            let image = self.kinds[kind].image(&packed)?;
            // SAFETY: within the stage; images of tables that have one point nowhere.
            unsafe { std::ptr::copy_nonoverlapping(image.as_ptr(), stage.images.add(n * stage.stride), stage.stride) };
            written.push(packed);
        }
        let shaky = self.slots[i].txn.as_ref().is_some_and(|t| t.shaky);
        // SAFETY: just written.
        let answer = unsafe { self.slots[i].session.unstage(rows) };
        if !matches!(self.judge("taking staged rows", answer, &[], shaky)?, Answer::Ok(())) {
            return Ok(false);
        }
        let first = stage.first.0;
        for (packed, id) in written.iter().zip(first..) {
            if !self.model.by_key(key).is_some_and(|t| t.used.insert(id)) {
                return self.fail(format!("row id {id} of {name} was given out twice"));
            }
            self.wrote(i, key, id, Some(packed.as_slice().into()));
        }
        for (packed, id) in written.iter().zip(first..) {
            if !self.write_keys(i, &table, kind, Rewrite::insert(id, packed))? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn wrote(&mut self, i: usize, key: Key, id: u64, row: Option<Row>) {
        if let Some(txn) = &mut self.slots[i].txn {
            txn.rows.insert((key, id));
            txn.changes.insert((key, id), row);
        }
    }

    /// Updates or deletes some rows by their ids.
    pub(crate) fn modify(&mut self, i: usize, name: &str, rows: usize, delete: bool) -> Result<Flow, Failure> {
        let name = name.to_owned();
        self.statement(i, |sim, i| {
            sim.note(|| format!("s{i} {} {rows} rows of {name}", if delete { "delete" } else { "update" }));
            let ids = sim.choose_ids(i, &name, rows);
            for id in ids {
                let ended = sim.modify_one(i, &name, id, delete)?;
                if ended != Ended::Done {
                    return Ok(ended);
                }
            }
            Ok(Ended::Done)
        })
    }

    /// Ids of rows, mostly of such as the session can see, some in a row, some apart.
    pub(crate) fn choose_ids(&mut self, i: usize, name: &str, rows: usize) -> Vec<u64> {
        let seen: Vec<u64> = if self.rng.chance(90) {
            self.model.visible(name, None, self.slots[i].txn.as_ref()).into_keys().collect()
        } else {
            self.model.tables.get(name).map(|t| t.used.iter().copied().collect()).unwrap_or_default()
        };
        if seen.is_empty() {
            return Vec::new();
        }
        let from = self.rng.index(seen.len());
        if self.rng.chance(50) {
            return seen[from..].iter().copied().take(rows).collect();
        }
        (0..rows).map(|_| seen[self.rng.index(seen.len())]).collect()
    }

    /// Writes one row: a new version, or its end.
    pub(crate) fn modify_one(&mut self, i: usize, name: &str, id: u64, delete: bool) -> Result<Ended, Failure> {
        let Some((key, kind)) = self.touch(i, name, false) else { return Ok(Ended::Done) };
        let Some(txn) = self.slots[i].txn.as_ref() else { return Ok(Ended::Done) };
        let (owner, shaky) = (txn.owner, txn.shaky);
        let verdict = self.model.locks.ask(owner, key, id, true);
        let newest = self.model.newest(name, id);
        let own = txn.changes.get(&(key, id));
        let old = own.map_or_else(|| newest.and_then(|v| v.row.clone()), Clone::clone);
        let alive = old.is_some();
        let view = txn.view.filter(|view| own.is_none() && newest.is_some_and(|v| v.seq > *view));
        let unseen = view.map(|view| self.model.seen_at(name, id, view));
        if verdict == Verdict::Maybe && !alive {
            return Ok(Ended::Done);
        }
        // Even a refused write makes the transaction one that writes.
        self.touch(i, name, true);
        let unread = self.newer(i, name, key, id);
        let kept = self.model.tables.get(name).is_some_and(|t| !t.indexes.is_empty());
        let expected: &[Refusal] = match (verdict, unread, alive) {
            (Verdict::Blocked, _, _) => &[Refusal::WouldBlock],
            // It is read even under a lock that was there before: it must be there, and its keys are made of what it was.
            (Verdict::Free | Verdict::Held, true, false) => &[Refusal::RecordChanged, Refusal::RowNotFound],
            (Verdict::Free | Verdict::Held, true, true) => &[Refusal::RecordChanged],
            (Verdict::Free | Verdict::Held, false, false) => &[Refusal::RowNotFound],
            (Verdict::Free | Verdict::Held, false, true) => &[],
            (Verdict::Maybe, true, _) => &[Refusal::WouldBlock, Refusal::RecordChanged],
            (Verdict::Maybe, false, _) => &[Refusal::WouldBlock],
        };
        let table = self.engine()?.open_table(name).map_err(|e| Failure::new(format!("open table {name}: {e}")))?;
        let packed = match &old {
            _ if delete => None,
            Some(old) if kept && self.rng.chance(50) => Some(self.kinds[kind].row_like(old, &mut self.rng)?),
            _ => Some(self.kinds[kind].row(&mut self.rng)?),
        };
        let Some(model) = self.model.tables.get(name) else { return Ok(Ended::Done) };
        let rekey = Rekey::new(model, old.as_deref(), packed.as_deref(), unseen.is_some());
        let met =
            if alive && !unread && verdict != Verdict::Blocked { self.meets(i, key, &rekey) } else { Met::Nobody };
        let expected = [expected, met.refusals()].concat();
        let is_sure = matches!(verdict, Verdict::Free | Verdict::Held);
        let must_fail = verdict == Verdict::Blocked || is_sure && (unread || !alive || met != Met::Nobody);
        let session = &mut self.slots[i].session;
        let answer = match &packed {
            None => session.delete(&table, RowId(id)),
            Some(packed) if self.rng.chance(50) => {
                let image = self.kinds[kind].image(packed)?;
                // SAFETY: an image of this table's layout; its blobs point into `packed`.
                unsafe { session.update_image(&table, RowId(id), image.as_ptr()) }
            }
            Some(packed) => session.update_row(&table, RowId(id), packed),
        };
        let what =
            format!("writing row {id} of {name} (lock {verdict:?}, unread {unread}, alive {alive}, keys {met:?})");
        self.note(|| format!("s{i} {what}, delete {delete}"));
        match self.judge_keys(&what, answer, met, &expected, shaky)? {
            Answer::Ok(()) if must_fail => self.fail(format!("{what}: succeeded, expected {expected:?}")),
            Answer::Ok(()) => {
                self.model.locks.take(owner, key, id, true);
                self.wrote(i, key, id, packed.as_deref().map(Into::into));
                self.rekeyed(i, key, id, &rekey);
                let rewrite = Rewrite { id, old: old.as_deref(), new: packed.as_deref(), unseen };
                match self.write_keys(i, &table, kind, rewrite)? {
                    true => Ok(Ended::Done),
                    false => Ok(Ended::Fault),
                }
            }
            Answer::No(Refusal::WouldBlock) if met != Met::Pending => Ok(Ended::Refused),
            Answer::No(Refusal::WouldBlock) if !is_sure => {
                self.model.locks.keep(owner, key, id, false, true);
                Ok(Ended::Refused)
            }
            // For a key: the row itself is locked.
            Answer::No(_) => {
                self.model.locks.take(owner, key, id, true);
                Ok(Ended::Refused)
            }
            Answer::Fault => {
                self.model.locks.keep(owner, key, id, false, true);
                Ok(Ended::Fault)
            }
        }
    }

    /// Is there a version that this session's view is too old for, and does it care?
    pub(crate) fn newer(&self, i: usize, name: &str, key: Key, id: u64) -> bool {
        let Some(txn) = self.slots[i].txn.as_ref() else { return false };
        let newest = self.model.newest(name, id);
        txn.snapshot_isolation
            && txn.repeatable
            && !txn.changes.contains_key(&(key, id))
            && txn.view.is_some_and(|view| newest.is_some_and(|v| v.seq > view))
    }

    /// DELETE without WHERE.
    pub(crate) fn delete_all(&mut self, i: usize, name: &str) -> Result<Flow, Failure> {
        let name = name.to_owned();
        self.statement(i, |sim, i| sim.delete_all_rows(i, &name))
    }

    fn delete_all_rows(&mut self, i: usize, name: &str) -> Result<Ended, Failure> {
        self.note(|| format!("s{i} delete all of {name}"));
        let Some((key, _)) = self.touch(i, name, true) else { return Ok(Ended::Done) };
        let Some(txn) = self.slots[i].txn.as_ref() else { return Ok(Ended::Done) };
        let (owner, shaky) = (txn.owner, txn.shaky);
        let verdict = self.model.locks.ask_range(owner, key);
        let expected: &[Refusal] = match verdict {
            Verdict::Blocked | Verdict::Maybe => &[Refusal::WouldBlock],
            _ => &[],
        };
        let table = self.engine()?.open_table(name).map_err(|e| Failure::new(format!("open table {name}: {e}")))?;
        let answer = self.slots[i].session.delete_all(&table);
        let up_to = self.model.by_key(key).and_then(|t| t.used.last().copied()).unwrap_or(0);
        match self.judge("delete all", answer, expected, shaky)? {
            Answer::Ok(()) if verdict == Verdict::Blocked => self.fail("delete all passed a row lock"),
            Answer::Ok(()) => {
                self.model.locks.take_range(owner, key, up_to);
                let all: Vec<u64> =
                    self.model.by_key(key).map(|t| t.rows.keys().copied().collect()).unwrap_or_default();
                if let Some(txn) = &mut self.slots[i].txn {
                    txn.changes.iter_mut().filter(|((k, _), _)| *k == key).for_each(|(_, row)| *row = None);
                    txn.changes.extend(all.into_iter().map(|id| ((key, id), None)));
                    txn.emptied.insert(key, up_to);
                    txn.empties.insert(key, up_to);
                }
                self.emptied_keys(i, key);
                Ok(Ended::Done)
            }
            Answer::No(_) => Ok(Ended::Refused),
            Answer::Fault => {
                self.model.locks.keep_range(owner, key, up_to, false);
                Ok(Ended::Fault)
            }
        }
    }
}
