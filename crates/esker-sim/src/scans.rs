//! Reading in the simulator: plain and locking scans, counts, reads by row id, and cursors that stay open while others
//! go on. Each answer is compared row by row.

use crate::indexes::differ;
use crate::keys::{keys_differ, trees};
use crate::locks::Verdict;
use crate::model::Row;
use crate::recover::rows_differ;
use crate::sim::{Answer, Failure, Flow, OpenScan, Refusal, Sim};
use crate::txns::Ended;
use esker::format::{ColumnMask, RowId};
use esker::{Batch, Error, LockMode, ScanOptions, Table};
use std::collections::BTreeMap;
use std::sync::Arc;

impl Sim {
    /// The view that a plain read of this session uses, opened if it is the first; and whether it is too old.
    pub(crate) fn read_view(&mut self, i: usize, name: &str) -> (Option<u64>, bool) {
        let seq = self.model.seq;
        let Some(txn) = self.slots[i].txn.as_mut().filter(|t| t.repeatable) else { return (None, false) };
        let view = *txn.view.get_or_insert(seq);
        let table = self.model.tables.get(name);
        (Some(view), table.is_some_and(|t| !t.temporary && view < t.rebuilt))
    }

    /// What the session sees by a view of it.
    pub(crate) fn seen(&mut self, i: usize, name: &str, view: Option<u64>) -> BTreeMap<u64, Row> {
        let txn = self.slots[i].txn.as_ref();
        let mut rows = self.model.visible(name, view, txn);
        let hidden = self.model.hidden(name, &rows, view, txn);
        self.stats.rows_hidden += hidden.len() as u64;
        rows.retain(|id, _| !hidden.contains_key(id));
        rows
    }

    /// Is the session's view, if it has one, older than the table?
    pub(crate) fn too_old(&self, i: usize, name: &str) -> bool {
        let view = self.slots[i].txn.as_ref().and_then(|t| t.view);
        let table = self.model.tables.get(name);
        table.is_some_and(|t| !t.temporary && view.is_some_and(|v| v < t.rebuilt))
    }

    fn mask(&mut self, kind: usize) -> ColumnMask {
        let n = self.kinds[kind].layout.columns.len();
        if self.rng.chance(60) {
            return ColumnMask::all(n);
        }
        let mut mask = ColumnMask::none(n);
        (0..n).filter(|_| self.rng.chance(40)).for_each(|c| mask.set(c));
        mask
    }

    /// Scans a table as a statement.
    pub(crate) fn scan(&mut self, i: usize, name: &str) -> Result<Flow, Failure> {
        let name = name.to_owned();
        self.statement(i, |sim, i| {
            sim.note(|| format!("s{i} scan {name}"));
            let Some((_, kind)) = sim.touch(i, &name, false) else { return Ok(Ended::Done) };
            let mask = sim.mask(kind);
            sim.read_all(i, &name, &mask, false)
        })
    }

    /// Reads all rows, or counts them, and compares with the model.
    pub(crate) fn read_all(&mut self, i: usize, name: &str, mask: &ColumnMask, count: bool) -> Result<Ended, Failure> {
        let Some(table) = self.model.tables.get(name) else { return Ok(Ended::Done) };
        let kind = table.kind;
        let table = self.engine()?.open_table(name).map_err(|e| Failure::new(format!("open table {name}: {e}")))?;
        let (view, too_old) = self.read_view(i, name);
        let shaky = self.slots[i].txn.as_ref().is_some_and(|t| t.shaky);
        let want = self.seen(i, name, view);
        let expected: &[Refusal] = if too_old { &[Refusal::TableChanged] } else { &[] };
        if count {
            let answer = self.slots[i].session.count_rows(&table);
            return match self.judge("count", answer, expected, shaky)? {
                Answer::Ok(n) if !too_old && n == want.len() as u64 => {
                    match self.check_rest(i, (name, &table), kind, &want, view)? {
                        true => Ok(Ended::Done),
                        false => Ok(Ended::Fault),
                    }
                }
                Answer::Ok(n) => {
                    let about = self.about(name, kind, &want);
                    self.fail(format!("count of {name} is {n}, not {} (too old: {too_old}); {about}", want.len()))
                }
                Answer::No(_) => Ok(Ended::Refused),
                Answer::Fault => Ok(Ended::Fault),
            };
        }
        let options = ScanOptions { mask: mask.clone(), ..ScanOptions::default() };
        let answer = self.slots[i].session.scan(&table, options);
        let mut cursor = match self.judge("scan", answer, expected, shaky)? {
            Answer::Ok(_) if too_old => return self.fail(format!("{name} was read through a view older than it is")),
            Answer::Ok(cursor) => cursor,
            Answer::No(_) => return Ok(Ended::Refused),
            Answer::Fault => return Ok(Ended::Fault),
        };
        let mut rest = want.iter();
        loop {
            let answer = cursor.next_batch(&mut self.slots[i].session);
            let batch = match answer {
                Ok(batch) => batch,
                Err(e) => {
                    return match self.judge::<()>("batch", Err(e), &[], shaky)? {
                        Answer::Fault => Ok(Ended::Fault),
                        _ => self.fail("an error became success"),
                    }
                }
            };
            if batch.ids.is_empty() {
                break;
            }
            let differs = compare_batch(&self.kinds[kind], &batch, mask, &mut rest);
            if let Err(why) = differs {
                return self.fail(format!("scan of {name} by s{i} (view {view:?}): {why}"));
            }
        }
        match rest.next() {
            Some((id, _)) => {
                self.fail(format!("scan of {name} by s{i} (view {view:?}) lacks row {id} and what follows"))
            }
            None if self.check_rest(i, (name, &table), kind, &want, view)? => Ok(Ended::Done),
            None => Ok(Ended::Fault),
        }
    }

    /// After a statement has read these rows: the number of rows that is kept, and the keys, say the same; false: a fault.
    fn check_rest(
        &mut self,
        i: usize,
        (name, table): (&str, &Arc<Table>),
        kind: usize,
        rows: &BTreeMap<u64, Row>,
        view: Option<u64>,
    ) -> Result<bool, Failure> {
        let shaky = self.slots[i].txn.as_ref().is_some_and(|t| t.shaky);
        let answer = self.slots[i].session.count(table);
        match self.judge("kept count", answer, &[], shaky)? {
            Answer::Ok(kept) if kept == rows.len() as u64 => self.check_keys(i, (name, table), kind, rows, view),
            Answer::Ok(kept) => {
                self.fail(format!("{name} has {} rows for s{i}, and {kept} by the number that is kept", rows.len()))
            }
            _ => Ok(false),
        }
    }

    pub(crate) fn count(&mut self, i: usize, name: &str) -> Result<Flow, Failure> {
        let name = name.to_owned();
        self.statement(i, |sim, i| {
            sim.note(|| format!("s{i} count {name}"));
            let Some((_, kind)) = sim.touch(i, &name, false) else { return Ok(Ended::Done) };
            let mask = ColumnMask::none(sim.kinds[kind].layout.columns.len());
            sim.read_all(i, &name, &mask, true)
        })
    }

    /// Reads single rows by id, some of them locked.
    pub(crate) fn fetch(&mut self, i: usize, name: &str, rows: usize, lock: bool) -> Result<Flow, Failure> {
        let name = name.to_owned();
        self.statement(i, |sim, i| {
            sim.note(|| format!("s{i} fetch {rows} of {name}, lock {lock}"));
            let Some((_, kind)) = sim.touch(i, &name, false) else { return Ok(Ended::Done) };
            let mask = sim.mask(kind);
            sim.fetch_rows(i, &name, rows, lock, kind, mask)
        })
    }

    fn fetch_rows(
        &mut self,
        i: usize,
        name: &str,
        rows: usize,
        lock: bool,
        kind: usize,
        mask: ColumnMask,
    ) -> Result<Ended, Failure> {
        let ids = self.choose_ids(i, name, rows);
        let table = self.engine()?.open_table(name).map_err(|e| Failure::new(format!("open table {name}: {e}")))?;
        let (view, too_old) = if lock { (None, self.too_old(i, name)) } else { self.read_view(i, name) };
        let (shaky, owner) = self.slots[i].txn.as_ref().map_or((false, 0), |t| (t.shaky, t.owner));
        let key = self.model.tables.get(name).map_or(0, |t| t.key);
        let want = self.seen(i, name, view);
        let lock = lock.then_some(if self.rng.chance(50) { LockMode::Shared } else { LockMode::Exclusive });
        let exclusive = lock == Some(LockMode::Exclusive);
        let options = ScanOptions { mask: mask.clone(), lock, ..ScanOptions::default() };
        let answer = self.slots[i].session.open_cursor(&table, options);
        let expected: &[Refusal] = if too_old { &[Refusal::TableChanged] } else { &[] };
        let mut cursor = match self.judge("open cursor", answer, expected, shaky)? {
            Answer::Ok(_) if too_old => return self.fail(format!("{name} was read through a view older than it is")),
            Answer::Ok(cursor) => cursor,
            Answer::No(_) => return Ok(Ended::Refused),
            Answer::Fault => return Ok(Ended::Fault),
        };
        for &id in &ids {
            let verdict = lock.map(|_| self.model.locks.ask(owner, key, id, exclusive));
            let newer = lock.is_some() && self.newer(i, name, key, id);
            let mut expected = Vec::new();
            if matches!(verdict, Some(Verdict::Blocked | Verdict::Maybe)) {
                expected.push(Refusal::WouldBlock);
            }
            if newer {
                expected.push(Refusal::RecordChanged);
            }
            let answer = cursor.fetch(&mut self.slots[i].session, RowId(id));
            let what = format!("fetch of row {id} of {name} (lock {verdict:?})");
            match self.judge(&what, answer, &expected, shaky)? {
                Answer::Ok(_) if verdict == Some(Verdict::Blocked) => {
                    return self.fail(format!("{what} passed a lock"))
                }
                Answer::Ok(found) => {
                    if lock.is_some() {
                        self.model.locks.take(owner, key, id, exclusive);
                    }
                    match (found, want.get(&id)) {
                        (None, None) => {}
                        // SAFETY: the cursor gave an image of this kind, decoded by this mask.
                        (Some(image), Some(row)) => unsafe {
                            if let Err(why) = self.kinds[kind].compare(image, row, &mask) {
                                return self.fail(format!("{what}: {why}"));
                            }
                        },
                        (found, want) => {
                            return self.fail(format!("{what}: found {}, wanted {}", found.is_some(), want.is_some()))
                        }
                    }
                }
                Answer::No(Refusal::WouldBlock) => return Ok(Ended::Refused),
                Answer::No(_) => {
                    self.model.locks.take(owner, key, id, exclusive);
                    return Ok(Ended::Refused);
                }
                Answer::Fault => {
                    self.model.locks.keep(owner, key, id, false, true);
                    return Ok(Ended::Fault);
                }
            }
        }
        let same = match lock {
            // The engine hides rows in its own indexes alone.
            None => {
                let all = self.model.visible(name, view, self.slots[i].txn.as_ref());
                self.check_keys_of(i, (name, &table), &ids, &all)?
            }
            Some(_) => self.check_keys_in_view(i, name)?,
        };
        Ok(if same { Ended::Done } else { Ended::Fault })
    }

    /// Opens a scan that stays open over the steps of others.
    pub(crate) fn open_scan(&mut self, i: usize, name: &str) -> Result<Flow, Failure> {
        if self.slots[i].txn.is_none() {
            self.begin(i);
        }
        self.note(|| format!("s{i} open scan of {name}"));
        let Some((_, kind)) = self.touch(i, name, false) else { return Ok(Flow::Go) };
        let table = self.engine()?.open_table(name).map_err(|e| Failure::new(format!("open table {name}: {e}")))?;
        self.slots[i].session.begin_statement();
        let (view, too_old) = self.read_view(i, name);
        let shaky = self.slots[i].txn.as_ref().is_some_and(|t| t.shaky);
        let mask = ColumnMask::all(self.kinds[kind].layout.columns.len());
        let answer = self.slots[i].session.scan(&table, ScanOptions { mask, ..ScanOptions::default() });
        let expected: &[Refusal] = if too_old { &[Refusal::TableChanged] } else { &[] };
        match self.judge("open scan", answer, expected, shaky)? {
            Answer::Ok(_) if too_old => self.fail(format!("{name} was read through a view older than it is")),
            Answer::Ok(cursor) => {
                let all = self.seen(i, name, view);
                let rest = all.iter().map(|(id, row)| (*id, row.clone())).collect();
                let view = view.unwrap_or(self.model.seq);
                self.slots[i].scan = Some(OpenScan { cursor, name: name.to_owned(), table, view, all, rest });
                Ok(Flow::Go)
            }
            Answer::No(_) => {
                self.slots[i].session.end_statement();
                Ok(Flow::Go)
            }
            Answer::Fault => self.abandon_scan(i),
        }
    }

    fn abandon_scan(&mut self, i: usize) -> Result<Flow, Failure> {
        self.slots[i].scan = None;
        self.slots[i].session.end_statement();
        match self.after_fault()? {
            Flow::Stop => Ok(Flow::Stop),
            Flow::Go => self.rollback(i),
        }
    }

    /// A few more batches of the open scan; closes it at its end, or early.
    pub(crate) fn step_scan(&mut self, i: usize) -> Result<Flow, Failure> {
        let Some(mut scan) = self.slots[i].scan.take() else { return Ok(Flow::Go) };
        let kind = self.model.tables.get(&scan.name).map_or(0, |t| t.kind);
        let shaky = self.slots[i].txn.as_ref().is_some_and(|t| t.shaky);
        self.note(|| format!("s{i} step scan of {}, {} rows left", scan.name, scan.rest.len()));
        let mask = ColumnMask::all(self.kinds[kind].layout.columns.len());
        for _ in 0..=self.rng.below(3) {
            let answer = scan.cursor.next_batch(&mut self.slots[i].session);
            let batch = match answer {
                Ok(batch) => batch,
                Err(e) => {
                    self.judge::<()>("batch of an open scan", Err(e), &[], shaky)?;
                    return self.abandon_scan(i);
                }
            };
            let n = batch.ids.len();
            if n == 0 {
                if let Some((id, _)) = scan.rest.front() {
                    return self.fail(format!("open scan of {} by s{i} lacks row {id} and what follows", scan.name));
                }
                // Whatever others did meanwhile.
                if !self.check_keys(i, (&scan.name, &scan.table), kind, &scan.all, Some(scan.view))? {
                    return self.abandon_scan(i);
                }
                self.slots[i].session.end_statement();
                return Ok(Flow::Go);
            }
            let mut rest = scan.rest.iter().map(|(id, row)| (id, row));
            if let Err(why) = compare_batch(&self.kinds[kind], &batch, &mask, &mut rest) {
                return self.fail(format!("open scan of {} by s{i}: {why}", scan.name));
            }
            scan.rest.drain(..n);
        }
        if self.rng.chance(20) && !self.check_keys(i, (&scan.name, &scan.table), kind, &scan.all, Some(scan.view))? {
            return self.abandon_scan(i);
        }
        if self.rng.chance(10) {
            self.slots[i].session.end_statement();
        } else {
            self.slots[i].scan = Some(scan);
        }
        Ok(Flow::Go)
    }

    /// For a failure's report: how what is committed now differs from the model, and from `want`.
    pub(crate) fn about(&self, name: &str, kind: usize, want: &BTreeMap<u64, Row>) -> String {
        let now = match self.read_committed(name, kind) {
            Ok(now) => now,
            Err(e) => return format!("committed rows cannot be read: {e}"),
        };
        let model = rows_differ(&now, &self.model.visible(name, None, None));
        format!(
            "committed rows against the model: {model:?}, against what should be seen: {:?}",
            rows_differ(&now, want)
        )
    }

    /// Everything that is committed, read by a session of its own; an error, too, if the entries are not those of the
    /// rows.
    pub(crate) fn read_committed(&self, name: &str, kind: usize) -> Result<BTreeMap<u64, Row>, Error> {
        let rows = self.read_rows(name, kind)?;
        match self.committed_keys_differ(name, kind, &rows)? {
            None => Ok(rows),
            Some(why) => Err(Error::InvalidArgument(format!("{name}: {why}"))),
        }
    }

    /// How what is committed in a table's key trees differs from the entries of `rows`.
    pub(crate) fn committed_keys_differ(
        &self,
        name: &str,
        kind: usize,
        rows: &BTreeMap<u64, Row>,
    ) -> Result<Option<String>, Error> {
        let Some(engine) = &self.engine else { return Ok(None) };
        let table = engine.open_table(name)?;
        let mut session = engine.session();
        match keys_differ(&mut session, &table, trees(kind), rows, &[])? {
            None => differ(&mut session, &table, 0..engine.sim_indexes(&table).len(), rows.len()),
            wrong => Ok(wrong),
        }
    }

    /// The rows that are committed, read by a session of its own.
    pub(crate) fn read_rows(&self, name: &str, kind: usize) -> Result<BTreeMap<u64, Row>, Error> {
        let Some(engine) = &self.engine else { return Ok(BTreeMap::new()) };
        let table = engine.open_table(name)?;
        let mut session = engine.session();
        let mask = ColumnMask::all(self.kinds[kind].layout.columns.len());
        let mut cursor = session.scan(&table, ScanOptions { mask, ..ScanOptions::default() })?;
        let mut rows = BTreeMap::new();
        loop {
            let batch = cursor.next_batch(&mut session)?;
            if batch.ids.is_empty() {
                break;
            }
            for (n, id) in batch.ids.iter().enumerate() {
                // SAFETY: the batch has an image for each id, with all columns decoded.
                let packed = unsafe { self.kinds[kind].pack(batch.images.add(n * batch.stride)) };
                if rows.insert(id.0, packed.into()).is_some() {
                    return Err(Error::InvalidArgument(format!("row {id} of {name} was given twice")));
                }
            }
        }
        match session.count(&table)? {
            kept if kept == rows.len() as u64 => Ok(rows),
            kept => {
                let text = format!("{name} has {} rows, and {kept} by the number that is kept", rows.len());
                Err(Error::InvalidArgument(text))
            }
        }
    }
}

/// Compares a batch with the rows that come next.
fn compare_batch<'a>(
    kind: &crate::kinds::Kind,
    batch: &Batch<'_>,
    mask: &ColumnMask,
    rest: &mut impl Iterator<Item = (&'a u64, &'a Row)>,
) -> Result<(), String> {
    for (n, id) in batch.ids.iter().enumerate() {
        let Some((want, row)) = rest.next() else { return Err(format!("row {id} is too many")) };
        if *want != id.0 {
            return Err(format!("row {id} comes where row {want} should"));
        }
        // SAFETY: the batch has an image for each id.
        unsafe { kind.compare(batch.images.add(n * batch.stride), row, mask) }.map_err(|e| format!("row {id}: {e}"))?;
    }
    Ok(())
}
