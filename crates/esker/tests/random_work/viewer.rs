//! One who holds a view while others work, and reads the same by it again and again.
//!
//! Invariant: whatever is flushed, merged, committed or changed meanwhile, a table shows what it had when the view was opened, or is
//! refused since it was changed.

use crate::model::{difference, Row, KINDS};
use crate::table::{read, Now, Span};
use crate::tally::Tally;
use crate::world::{Halt, World};
use esker::{BeginOptions, Error, Isolation, Session};
use fastrand::Rng;
use std::collections::BTreeMap;

/// A table as it was when the view was opened.
struct Then {
    at: usize,
    now: Now,
    rows: BTreeMap<u64, Row>,
}

pub fn hold_views(world: &World<'_>, seed: u64) {
    let (mut rng, mut session) = (Rng::with_seed(seed), world.engine.session());
    while world.wait_for_operations(rng.u64(..20)) {
        let tables = open_view(world, &mut session);
        for _ in 0..rng.u64(1..8) {
            if !world.wait_for_operations(rng.u64(..60)) {
                break;
            }
            let then = &tables[rng.usize(..tables.len())];
            match look_again(world, &mut session, &mut rng, then) {
                Ok(()) | Err(Halt::Cut) => {}
                Err(halt) => world.fail(format!("a view that was held: {}", halt.told())),
            }
        }
        if let Err(e) = session.rollback() {
            return world.fail(format!("a view is let go: {e}"));
        }
    }
}

fn open_view(world: &World<'_>, session: &mut Session) -> Vec<Then> {
    session.begin(Isolation::RepeatableRead, BeginOptions::default());
    let _ends = world.ends.write().unwrap();
    session.take_view();
    Tally::add(&world.shared.tally.views_held, 1);
    let then = |(at, slot): (usize, &crate::table::Slot)| {
        let rows = slot.rows.lock().unwrap().seen(None, world.clock());
        Then { at, now: slot.now(), rows }
    };
    world.shared.slots.iter().enumerate().map(then).collect()
}

fn look_again(world: &World<'_>, session: &mut Session, rng: &mut Rng, then: &Then) -> Result<(), Halt> {
    let tally = &world.shared.tally;
    let kind = then.now.shape.kinds[rng.usize(..then.now.shape.kinds.len())];
    let (by_index, descending) = (rng.bool(), rng.bool());
    let read = match by_index {
        true => rows_by(session, then, &Span::all(kind, descending)),
        false => all_rows(session, then),
    };
    match read {
        Ok(found) => {
            Tally::add(&tally.old_views_compared, 1);
            let by = if by_index { KINDS[kind].name } else { "a scan" };
            difference(&then.rows, &found).map_err(|why| Halt::Wrong(format!("table {} by {by}: {why}", then.at)))
        }
        Err(e) if is_refusal(&e) && world.shared.slots[then.at].now().changed > then.now.changed => {
            Tally::add(&tally.old_views_refused, 1);
            Ok(())
        }
        Err(e) => Err(world.halt("reading by an old view", &e)),
    }
}

/// May a view of before get this of a table that was changed?
fn is_refusal(error: &Error) -> bool {
    match error {
        Error::TableChanged(_) | Error::NoSuchTable(_) => true,
        Error::InvalidArgument(why) => why.contains("has no index"),
        _ => false,
    }
}

fn all_rows(session: &mut Session, then: &Then) -> Result<BTreeMap<u64, Row>, Error> {
    let table = then.now.table.as_ref().unwrap();
    let found = read(session.rows(table), usize::MAX)?;
    let (kept, counted) = (session.count(table)?, session.count_rows(table)?);
    assert_eq!((kept, counted), (found.len() as u64, found.len() as u64), "counts of table {} in an old view", then.at);
    Ok(found.into_iter().map(|(rid, row)| (rid.0, row)).collect())
}

fn rows_by(session: &mut Session, then: &Then, span: &Span) -> Result<BTreeMap<u64, Row>, Error> {
    let table = then.now.table.as_ref().unwrap();
    let found = span.with(|index, range| read(session.rows_by(table, index, range), usize::MAX))?;
    assert!(span.is_order_of(&found), "{span:?} of table {} in an old view: {found:?}", then.at);
    let many = found.len();
    let found: BTreeMap<_, _> = found.into_iter().map(|(rid, row)| (rid.0, row)).collect();
    assert_eq!(many, found.len(), "{span:?} of table {} gives rows twice to an old view", then.at);
    Ok(found)
}
