//! Scans that lock in the simulator: every row they give must have been free, every lock they take is noted, and what
//! they pass over or refuse must have been held by somebody else.

use crate::locks::Verdict;
use crate::model::Row;
use crate::sim::{Answer, Failure, Flow, Refusal, Sim};
use crate::txns::Ended;
use esker::format::{ColumnMask, RowId};
use esker::{Batch, Error, LockMode, ScanOptions};
use std::collections::{BTreeMap, BTreeSet};

impl Sim {
    /// SELECT ... FOR UPDATE, UPDATE and DELETE with a condition: a scan that locks and may write what it gives.
    pub(crate) fn locking_scan(&mut self, i: usize, name: &str) -> Result<Flow, Failure> {
        let name = name.to_owned();
        self.statement(i, |sim, i| {
            let ended = sim.scan_locked(i, &name)?;
            // What it has found and written is under another view than a plain read's.
            let look = ended == Ended::Done && sim.rng.chance(40);
            Ok(if look && !sim.check_keys_in_view(i, &name)? { Ended::Fault } else { ended })
        })
    }

    fn scan_locked(&mut self, i: usize, name: &str) -> Result<Ended, Failure> {
        let Some((key, kind)) = self.touch(i, name, false) else { return Ok(Ended::Done) };
        let exclusive = self.rng.chance(70);
        let (skip, semi) = (self.rng.chance(20), self.rng.chance(20));
        let semi = semi && !skip;
        let write_percent = *self.rng.pick(&[0, 3, 30, 100]);
        self.note(|| {
            format!(
                "s{i} locking scan of {name}, exclusive {exclusive}, skip {skip}, semi {semi}, writes {write_percent}%"
            )
        });
        let table = self.engine()?.open_table(name).map_err(|e| Failure::new(format!("open table {name}: {e}")))?;
        let (shaky, owner) = self.slots[i].txn.as_ref().map_or((false, 0), |t| (t.shaky, t.owner));
        let too_old = self.too_old(i, name);
        let mask = ColumnMask::all(self.kinds[kind].layout.columns.len());
        let lock = Some(if exclusive { LockMode::Exclusive } else { LockMode::Shared });
        let options = ScanOptions {
            mask: mask.clone(),
            lock,
            skip_locked: skip,
            semi_consistent: semi,
            ..ScanOptions::default()
        };
        let answer = self.slots[i].session.scan(&table, options);
        let expected: &[Refusal] = if too_old { &[Refusal::TableChanged] } else { &[] };
        let mut cursor = match self.judge("locking scan", answer, expected, shaky)? {
            Answer::Ok(_) if too_old => return self.fail(format!("{name} was locked through a view older than it is")),
            Answer::Ok(cursor) => cursor,
            Answer::No(_) => return Ok(Ended::Refused),
            Answer::Fault => return Ok(Ended::Fault),
        };
        let want = self.model.visible(name, None, self.slots[i].txn.as_ref());
        let gone = self.gone(i, name, &want);
        let mut rest = want.iter().peekable();
        loop {
            let mut answer = cursor.next_batch(&mut self.slots[i].session);
            let given = match &answer {
                Ok(b) => b.ids.first().map(|id| id.0),
                Err(_) => None,
            };
            // A row of the own view that was deleted since stops the scan where it lay.
            match &answer {
                Ok(_) if gone.first().is_some_and(|id| given.is_none_or(|given| *id < given)) => {
                    return self
                        .fail(format!("locking scan of {name} gave {given:?} past row {:?}, gone", gone.first()));
                }
                Err(Error::RecordChanged) if skip && !gone.is_empty() => {
                    rest.for_each(|(id, _)| self.model.locks.keep(owner, key, *id, false, true));
                    return Ok(Ended::Refused);
                }
                // Before the next row was locked.
                Err(Error::RecordChanged)
                    if gone.first().is_some_and(|id| rest.peek().is_none_or(|(next, _)| id < *next)) =>
                {
                    return Ok(Ended::Refused)
                }
                _ => {}
            }
            if let (true, Err(e)) = (skip, &answer) {
                return self.skipping_scan_failed(i, e.clone(), name, key, rest.map(|r| *r.0).collect());
            }
            if !skip && !semi {
                let next = rest.peek().map_or(u64::MAX, |r| *r.0);
                let inserts = self.model.locks.ask_inserts(owner, key, next);
                match (inserts, answer) {
                    (Verdict::Blocked, Ok(b)) => {
                        return self.fail(format!("locking scan of {name} gave {:?} past an insert of others", b.ids));
                    }
                    (Verdict::Blocked | Verdict::Maybe, Err(e @ (Error::WouldBlock | Error::LockTimeout))) => {
                        self.judge::<()>("waiting for an insert", Err(e), &[Refusal::WouldBlock], shaky)?;
                        return Ok(Ended::Refused);
                    }
                    (_, other) => answer = other,
                }
            }
            // What was passed over must have been locked by others.
            while let Some((id, _)) = rest.peek().filter(|(id, _)| skip && Some(**id) != given) {
                match self.model.locks.ask(owner, key, **id, exclusive) {
                    Verdict::Blocked | Verdict::Maybe => rest.next(),
                    _ => break,
                };
            }
            let Some((&id, row)) = rest.next() else {
                return match answer {
                    Ok(b) if b.ids.is_empty() => Ok(Ended::Done),
                    Ok(b) => self.fail(format!("locking scan of {name} gave {:?} behind the last row", b.ids)),
                    Err(e) => match self.judge::<()>("end of a locking scan", Err(e), &[], shaky)? {
                        Answer::Fault => Ok(Ended::Fault),
                        _ => self.fail("an error became success"),
                    },
                };
            };
            let verdict = self.model.locks.ask(owner, key, id, exclusive);
            let newer = self.newer(i, name, key, id);
            match answer {
                Ok(b) => {
                    // SAFETY: an image of this kind with all columns, if there is a row.
                    let differs = unsafe { check_row(&self.kinds[kind], &b, id, row, &mask) };
                    let was_semi = cursor.was_semi_consistent();
                    if let Err(why) = differs {
                        let about = self.about(name, kind, &want);
                        return self.fail(format!("locking scan of {name} by s{i}: {why} (semi {was_semi}); {about}"));
                    }
                    if was_semi {
                        if !semi || !matches!(verdict, Verdict::Blocked | Verdict::Maybe) {
                            return self.fail(format!("row {id} was given without its lock, verdict {verdict:?}"));
                        }
                        continue;
                    }
                    if verdict == Verdict::Blocked || newer {
                        return self
                            .fail(format!("locking scan of {name} gave row {id}: lock {verdict:?}, newer {newer}"));
                    }
                    self.model.locks.take(owner, key, id, exclusive);
                }
                Err(e) => return self.lock_refused(i, e, (key, id), verdict, newer, rest.map(|r| *r.0).collect()),
            }
            if self.rng.chance(write_percent) {
                let delete = self.rng.chance(30);
                let ended = self.modify_one(i, name, id, delete)?;
                if ended != Ended::Done {
                    return Ok(ended);
                }
            } else if self.rng.chance(20) {
                self.note(|| format!("s{i} unlocks row {id}, lock {verdict:?}"));
                self.slots[i].session.unlock_row(&table, RowId(id));
                // A lock that the transaction had before must stay.
                if matches!(verdict, Verdict::Free | Verdict::Maybe) {
                    self.model.locks.unlock(owner, key, id);
                    // An upgrade may leave the weaker lock.
                    self.model.locks.keep(owner, key, id, false, true);
                }
            }
        }
    }

    /// Rows of this session's view, if it cares, that nobody has any more.
    fn gone(&self, i: usize, name: &str, want: &BTreeMap<u64, Row>) -> BTreeSet<u64> {
        let Some(txn) = self.slots[i].txn.as_ref().filter(|t| t.snapshot_isolation && t.repeatable) else {
            return BTreeSet::new();
        };
        let Some(view) = txn.view else { return BTreeSet::new() };
        let seen = self.model.visible(name, Some(view), Some(txn));
        seen.into_keys().filter(|id| !want.contains_key(id)).collect()
    }

    /// A scan that passes over locked rows has failed at one of `rest`.
    fn skipping_scan_failed(
        &mut self,
        i: usize,
        e: Error,
        name: &str,
        key: u64,
        rest: Vec<u64>,
    ) -> Result<Ended, Failure> {
        let (shaky, owner) = self.slots[i].txn.as_ref().map_or((false, 0), |t| (t.shaky, t.owner));
        let newer = rest.iter().any(|id| self.newer(i, name, key, *id));
        let expected: &[Refusal] = if newer { &[Refusal::RecordChanged] } else { &[] };
        let answer = self.judge::<()>("a scan that skips locked rows", Err(e), expected, shaky)?;
        rest.iter().for_each(|id| self.model.locks.keep(owner, key, *id, false, true));
        Ok(if matches!(answer, Answer::Fault) { Ended::Fault } else { Ended::Refused })
    }

    fn lock_refused(
        &mut self,
        i: usize,
        e: Error,
        (key, id): (u64, u64),
        verdict: Verdict,
        newer: bool,
        rest: Vec<u64>,
    ) -> Result<Ended, Failure> {
        let (shaky, owner) = self.slots[i].txn.as_ref().map_or((false, 0), |t| (t.shaky, t.owner));
        let mut expected = Vec::new();
        if matches!(verdict, Verdict::Blocked | Verdict::Maybe) {
            expected.push(Refusal::WouldBlock);
        }
        if newer && verdict != Verdict::Blocked {
            expected.push(Refusal::RecordChanged);
        }
        match self.judge::<()>(&format!("locking row {id} (lock {verdict:?})"), Err(e), &expected, shaky)? {
            Answer::No(Refusal::RecordChanged) => {
                self.model.locks.take(owner, key, id, false);
                self.model.locks.keep(owner, key, id, false, true);
                Ok(Ended::Refused)
            }
            Answer::No(_) => Ok(Ended::Refused),
            Answer::Fault => {
                std::iter::once(id).chain(rest).for_each(|id| self.model.locks.keep(owner, key, id, false, true));
                Ok(Ended::Fault)
            }
            Answer::Ok(()) => self.fail("an error became success"),
        }
    }
}

/// Checks the one row of a locking cursor's batch.
///
/// # Safety
/// The batch is of this kind, decoded by this mask.
unsafe fn check_row(
    kind: &crate::kinds::Kind,
    batch: &Batch<'_>,
    id: u64,
    row: &Row,
    mask: &ColumnMask,
) -> Result<(), String> {
    match batch.ids {
        [] => Err(format!("it ends before row {id}")),
        // SAFETY: the caller's promise.
        [only] if only.0 == id => {
            unsafe { kind.compare(batch.images, row, mask) }.map_err(|e| format!("row {id}: {e}"))
        }
        ids => Err(format!("it gave {ids:?} where row {id} should come")),
    }
}
