//! The end of a generation: what is on the disk is opened again, and held against what there should be.
//!
//! A transaction whose end was under way when the power was cut is there or not, as a whole; one that was prepared waits for its
//! decision. Invariants: all that was acknowledged is there, and nothing of what had not come to its end; indexes have the rows, in
//! their order, and no others.

use crate::model::{difference, Row, Stage, Txn, ABORTED, ACTIVE, KINDS};
use crate::table::{create, index_def, read, Now, Shape, Slot, Span};
use crate::tally::Tally;
use crate::world::Shared;
use esker::{CheckScope, Engine, Session, Table};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering::SeqCst;
use std::sync::Arc;

/// Transactions whose outcome is not known: one a thread, at most.
const MOST_UNKNOWN: usize = 10;

/// What the model knows of a transaction after an opening.
enum Outcome {
    /// As its status says.
    Known,
    /// It is there, or not.
    Unknown,
    /// It is prepared still.
    Left,
}

/// Finds out what an opening brought back; the transactions that are still prepared.
pub fn take_up(engine: &Engine, shared: &Shared, txns: &[Arc<Txn>]) -> Result<Vec<Arc<Txn>>, String> {
    let prepared: BTreeSet<Vec<u8>> = engine.prepared().into_iter().collect();
    let (mut unknown, mut left) = (Vec::new(), Vec::new());
    for txn in txns {
        match outcome(engine, shared, txn, prepared.contains(&txn.xid()))? {
            Outcome::Known => {}
            Outcome::Unknown => unknown.push(txn.clone()),
            Outcome::Left => left.push(txn.clone()),
        }
    }
    if let Some(xid) = prepared.iter().find(|xid| !txns.iter().any(|txn| txn.xid() == **xid)) {
        return Err(format!("{:?} is prepared, and was never", String::from_utf8_lossy(xid)));
    }
    Tally::add(&shared.tally.ends_of_unknown_outcome, unknown.len() as u64);
    Tally::add(&shared.tally.prepared_over_a_crash, left.len() as u64);
    find_tables(engine, shared)?;
    resolve(&mut engine.session(), shared, &unknown)?;
    let base = Txn::new(0);
    base.set_status(1);
    for slot in &shared.slots {
        slot.rows.lock().unwrap().settle(&base, &left);
        slot.gate.open();
    }
    let tables = left.iter().flat_map(|txn| txn.tables.lock().unwrap().clone());
    tables.for_each(|at| assert!(shared.slots[at].gate.enter()));
    Ok(left)
}

/// What became of a transaction, as far as that is known; `is_prepared`: the engine says so.
fn outcome(engine: &Engine, shared: &Shared, txn: &Txn, is_prepared: bool) -> Result<Outcome, String> {
    let told = |what: &str| Err(format!("{} {what}: {:?}, {}", txn.id, txn.stage(), txn.status()));
    let commits = || txn.set_status(shared.clock.fetch_add(1, SeqCst) + 1);
    match (txn.stage(), is_prepared) {
        (Stage::Open | Stage::Committing, true) => return told("is prepared"),
        (Stage::Prepared, false) => return told("is prepared no more"),
        (Stage::Committing, false) if txn.status() == ACTIVE => return Ok(Outcome::Unknown),
        (Stage::Ordered, true) => {
            Tally::add(&shared.tally.decided_over_a_crash, 1);
            let was_there = engine.commit_xid(&txn.xid()).map_err(|e| format!("{} is committed: {e}", txn.id))?;
            assert!(was_there, "{} was prepared a moment ago", txn.id);
        }
        (Stage::Deciding, false) if txn.status() == ACTIVE => commits(),
        (Stage::Preparing | Stage::Prepared | Stage::Deciding | Stage::RollingBack, true) => {
            txn.set_status(ACTIVE);
            txn.set_stage(Stage::Prepared);
            return Ok(Outcome::Left);
        }
        (Stage::Open | Stage::Preparing, false) if txn.status() == ACTIVE => txn.set_status(ABORTED),
        _ => {}
    }
    txn.set_stage(Stage::Open);
    Ok(Outcome::Known)
}

/// Finds each table, as it was or as it was about to be.
fn find_tables(engine: &Engine, shared: &Shared) -> Result<(), String> {
    let names = engine.tables();
    for (at, slot) in shared.slots.iter().enumerate() {
        let mut now = slot.now.write().unwrap();
        let shapes: Vec<Shape> = [now.shape.clone()].into_iter().chain(now.becomes.iter().flatten().cloned()).collect();
        let found = shapes.iter().filter(|shape| names.contains(&shape.name)).find_map(|shape| {
            let table = engine.open_table(&shape.name).ok()?;
            let defs: Vec<_> = shape.kinds.iter().map(|kind| index_def(*kind)).collect();
            table.has_indexes(&defs).then(|| (shape.clone(), table))
        });
        let (shape, table) = match found {
            Some(found) => found,
            None if now.becomes.contains(&None) && !names.contains(&now.shape.name) => {
                let table = create(engine, &now.shape).map_err(|e| format!("table {at} is made again: {e}"))?;
                (now.shape.clone(), table)
            }
            None => return Err(format!("table {at} is lost: {shapes:?}; there are {names:?}")),
        };
        *now = Now { shape, table: Some(table), changed: shared.clock.load(SeqCst), becomes: Vec::new() };
    }
    match engine.tables().len() {
        many if many == shared.slots.len() => Ok(()),
        _ => Err(format!("tables that nobody made: {:?}", engine.tables())),
    }
}

/// Some of those whose outcome is not known are there, so that all tables have what they should.
fn resolve(session: &mut Session, shared: &Shared, unknown: &[Arc<Txn>]) -> Result<(), String> {
    assert!(unknown.len() <= MOST_UNKNOWN, "{} transactions had not ended", unknown.len());
    let all = |slot: &Slot| rows_of(session, slot.now().table.as_ref().unwrap());
    let found = shared.slots.iter().map(all).collect::<Result<Vec<_>, _>>()?;
    let mut why = String::new();
    for some in 0..1u32 << unknown.len() {
        for (at, txn) in unknown.iter().enumerate() {
            txn.set_status(if some >> at & 1 == 1 { shared.clock.load(SeqCst) + 1 } else { ABORTED });
        }
        let mut slots = shared.slots.iter().zip(&found).enumerate();
        let fits = |(at, (slot, found)): (usize, (&Slot, _))| {
            difference(&slot.rows.lock().unwrap().committed(), found).map_err(|why| format!("table {at}: {why}"))
        };
        match slots.try_for_each(fits) {
            Ok(()) => {
                shared.clock.fetch_add(1, SeqCst);
                unknown.iter().for_each(|txn| txn.set_stage(Stage::Open));
                return Ok(());
            }
            Err(e) => {
                why = format!("{why}\n  with {some:b} of {:?}: {e}", unknown.iter().map(|t| t.id).collect::<Vec<_>>())
            }
        }
    }
    Err(format!("after the opening{why}"))
}

fn rows_of(session: &mut Session, table: &Arc<Table>) -> Result<BTreeMap<u64, Row>, String> {
    let found = read(session.rows(table), usize::MAX).map_err(|e| format!("a scan: {e}"))?;
    Ok(found.into_iter().map(|(rid, row)| (rid.0, row)).collect())
}

/// Holds all tables against what there should be, while nobody works.
pub fn check_all(engine: &Engine, shared: &Shared) -> Result<(), String> {
    let mut session = engine.session();
    for (at, slot) in shared.slots.iter().enumerate() {
        let (now, wanted) = (slot.now(), slot.rows.lock().unwrap().committed());
        check_table(engine, &mut session, &now, &wanted).map_err(|why| format!("table {at}, {why}"))?;
    }
    session.commit().map_err(|e| e.to_string())
}

fn check_table(engine: &Engine, session: &mut Session, now: &Now, wanted: &BTreeMap<u64, Row>) -> Result<(), String> {
    let told = |what: &'static str| move |e: esker::Error| format!("{what}: {e}");
    let table = now.table.as_ref().unwrap();
    difference(wanted, &rows_of(session, table)?).map_err(|why| format!("by a scan: {why}"))?;
    let counted = session.count(table).map_err(told("count"))?;
    if counted != wanted.len() as u64 {
        return Err(format!("counted {counted} rows, not {}", wanted.len()));
    }
    for (index, kind) in now.shape.kinds.iter().enumerate() {
        let (name, span) = (KINDS[*kind].name, Span::all(*kind, index % 2 == 1));
        let read = span.with(|name, range| read(session.rows_by(table, name, range), usize::MAX));
        let found = read.map_err(|e| format!("by {name}: {e}"))?;
        if !span.is_order_of(&found) || found.len() > wanted.len() {
            return Err(format!("by {name}: {} rows, not in order, or too many", found.len()));
        }
        let found = found.into_iter().map(|(rid, row)| (rid.0, row)).collect();
        difference(wanted, &found).map_err(|why| format!("by {name}: {why}"))?;
        let wrong = session.check_index(table, index).map_err(told("check of an index"))?.wrong;
        if !wrong.is_empty() {
            return Err(format!("{name}: {wrong:?}"));
        }
    }
    let damages = engine.check_part(table, CheckScope::All, &mut |_, _| true).map_err(told("check"))?.damages;
    if damages.is_empty() {
        Ok(())
    } else {
        Err(format!("check: {damages:?}"))
    }
}
