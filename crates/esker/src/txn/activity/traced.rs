//! What a session's trace says of a wait for a lock: what is waited for, by the values of its keys, and who has it.

use super::locks::Trees;
use crate::core::Core;
use crate::lock::{Waiter, Words};
use esker_base::trace::Wanted;
use std::collections::HashSet;

impl Words for Core {
    fn of_wait(&self, wait: &Waiter, connection: u64) -> Option<Wanted> {
        // Whoever will read it is not known: timestamps are in UTC.
        let what = Trees::of(self, HashSet::from([wait.key.tree()]), None).wanted(wait);
        Some(Wanted {
            kind: what.kind,
            key: what.named_text(),
            connection,
            others: (wait.blockers.len() as u64).saturating_sub(1),
            with: Vec::new(),
            later: 0,
            then: Vec::new(),
            table: what.table,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{open, people};
    use crate::tests::support::{engine, until};
    use crate::{Error, LockMode, Result, ScanOptions, Session, Table};
    use esker_base::trace::{begin_statement, end_statement, Noted, Recorder, Wanted, MOST_HOLDERS};
    use esker_base::WaitEvent;
    use esker_format::{ColumnMask, RowId};
    use std::sync::Arc;

    /// What a traced thread noted of the work.
    fn traced(work: impl FnOnce()) -> (Vec<Noted>, Vec<Wanted>) {
        begin_statement(Recorder::new(Box::new(|| None)));
        work();
        let (mut recorder, _) = end_statement().unwrap();
        (recorder.take_noted(), recorder.take_wanted())
    }

    #[test]
    fn a_trace_says_which_row_was_waited_for_and_whom() {
        let (engine, _) = engine();
        let table = people(&engine, 3);
        let mut holder = open(&engine, 11);
        holder.delete(&table, RowId(2)).unwrap();
        let mut sharer = open(&engine, 13);
        let shared = ScanOptions { mask: ColumnMask::all(2), lock: Some(LockMode::Shared), ..ScanOptions::default() };
        sharer.open_cursor(&table, shared).unwrap().fetch(&mut sharer, RowId(3)).unwrap();
        let (told, ended) = std::sync::mpsc::channel();
        let (noted, wanted) = std::thread::scope(|scope| {
            let mut session = open(&engine, 12);
            let killer = session.killer();
            let table = &table;
            let thread = scope.spawn(move || {
                traced(|| {
                    type Work = fn(&mut Session, &Arc<Table>) -> Result<()>;
                    let works: [Work; 3] =
                        [|s, t| s.delete(t, RowId(2)), |s, t| s.delete(t, RowId(3)), |s, t| s.lock_all(t).map(drop)];
                    for work in works {
                        assert!(matches!(work(&mut session, table), Err(Error::Interrupted)));
                        session.clear_kill();
                        told.send(()).unwrap();
                    }
                })
            });
            for _ in 0..3 {
                until(|| !engine.lock_waits().is_empty());
                killer.kill();
                ended.recv().unwrap();
            }
            thread.join().unwrap()
        });
        let waits: Vec<_> = noted.iter().filter(|n| n.wanted.is_some()).map(|n| n.event).collect();
        assert_eq!(waits, [Some(WaitEvent::RowLock), Some(WaitEvent::RowLock), Some(WaitEvent::RangeLock)]);
        let of = |noted: &Noted| &wanted[noted.wanted.unwrap()];
        let all: Vec<_> = noted.iter().filter(|n| n.wanted.is_some()).map(of).collect();
        let row = |key: &str, connection| Wanted {
            table: "people".into(),
            kind: "row",
            key: Some(key.into()),
            connection,
            others: 0,
            with: vec![],
            later: 0,
            then: vec![],
        };
        assert_eq!(all[..2], [&row("by_id(2)", 11), &row("by_id(3)", 13)]);
        assert_eq!((all[2].kind, all[2].key.as_deref()), ("range", Some("all rows")));
        // Both hold rows of the table: the one is named first, the other with it.
        let both = (all[2].connection, &all[2].with[..]);
        assert!(both == (11, &[13]) || both == (13, &[11]), "{:?}", all[2]);
        assert_eq!((all[2].others, all[2].later), (1, 0));
    }

    /// Two share row 2, of connections 11 and 13; `queued` others who want it alone wait behind them, from connection 20 on, and
    /// behind those a traced session. Then each lets go in turn: what the traced one waited for.
    fn wanted_behind(queued: u64) -> Wanted {
        let (engine, _) = engine();
        let table = people(&engine, 3);
        let shared =
            || ScanOptions { mask: ColumnMask::all(2), lock: Some(LockMode::Shared), ..ScanOptions::default() };
        let sharers = [11, 13].map(|connection| {
            let mut session = open(&engine, connection);
            session.open_cursor(&table, shared()).unwrap().fetch(&mut session, RowId(2)).unwrap();
            session
        });
        let (got, next) = std::sync::mpsc::channel();
        let delete = |connection| {
            let mut session = open(&engine, connection);
            session.delete(&table, RowId(2)).unwrap();
            session
        };
        let (noted, mut wanted) = std::thread::scope(|scope| {
            for n in 0..queued {
                let (got, delete) = (got.clone(), &delete);
                scope.spawn(move || got.send(delete(20 + n)).unwrap());
                until(|| engine.lock_waits().iter().any(|w| w.waiting_connection == 20 + n));
            }
            let thread = scope.spawn(|| traced(|| drop(delete(12))));
            until(|| engine.lock_waits().iter().any(|w| w.waiting_connection == 12));
            let [mut first, mut second] = sharers;
            first.rollback().unwrap();
            // Who was woken for that stands in the queue again, or another one might be woken beside it and come first.
            until(|| {
                let waits = engine.lock_waits();
                let is_behind = |connection| {
                    waits.iter().any(|w| (w.waiting_connection, w.blocking_connection) == (20, connection))
                };
                is_behind(13) && !is_behind(11)
            });
            second.rollback().unwrap();
            // One after the other, and all while the traced one waits.
            for _ in 0..queued {
                let mut session = next.recv().unwrap();
                until(|| engine.lock_waits().iter().any(|w| w.waiting_connection == 12));
                session.rollback().unwrap();
            }
            thread.join().unwrap()
        });
        // One wait, however often it went on.
        let waits = noted.iter().filter(|n| n.event == Some(WaitEvent::RowLock)).count();
        assert_eq!((waits, wanted.len()), (1, 1));
        wanted.remove(0)
    }

    #[test]
    fn who_got_the_row_meanwhile_is_named_too() {
        let wanted = wanted_behind(2);
        assert_eq!((wanted.kind, wanted.key.as_deref()), ("row", Some("by_id(2)")));
        let first = (wanted.connection, &wanted.with[..]);
        assert!(first == (11, &[13]) || first == (13, &[11]), "{wanted:?}");
        assert_eq!((wanted.others, wanted.later, &wanted.then[..]), (1, 2, &[20, 21][..]));
    }

    #[test]
    fn of_a_crowd_some_are_named_and_all_counted() {
        let wanted = wanted_behind(20);
        assert_eq!((wanted.later, wanted.then.len()), (20, MOST_HOLDERS));
        assert_eq!(wanted.then, (20..36).collect::<Vec<u64>>());
    }
}
