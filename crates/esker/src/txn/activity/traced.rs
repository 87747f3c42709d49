//! What a session's trace says of a wait for a lock: what is waited for, by the values of its keys, and who has it.

use super::locks::{connections, Trees};
use crate::core::Core;
use crate::lock::{Waiter, Words};
use esker_base::trace::Wanted;
use std::collections::HashSet;

impl Words for Core {
    fn of_wait(&self, wait: &Waiter) -> Option<Wanted> {
        // Whoever will read it is not known: timestamps are in UTC.
        let what = Trees::of(self, HashSet::from([wait.key.tree()]), None).wanted(wait);
        let first = wait.blockers.first()?;
        Some(Wanted {
            kind: what.kind,
            key: what.named_text(),
            connection: connections(self).get(first).copied().unwrap_or_default(),
            others: wait.blockers.len() as u64 - 1,
            table: what.table,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{open, people};
    use crate::tests::support::{engine, until};
    use crate::{Error, LockMode, Result, ScanOptions, Session, Table};
    use esker_base::trace::{begin_statement, end_statement, Noted, Recorder, Wanted};
    use esker_base::WaitEvent;
    use esker_format::{ColumnMask, RowId};
    use std::sync::Arc;

    /// What a traced thread noted of the work.
    fn traced(work: impl FnOnce()) -> (Vec<Noted>, Vec<Wanted>) {
        begin_statement(Recorder::new(Box::new(|| None)));
        work();
        let (mut recorder, _) = end_statement().unwrap();
        (recorder.take_noted(true), recorder.take_wanted())
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
        };
        assert_eq!(all[..2], [&row("by_id(2)", 11), &row("by_id(3)", 13)]);
        assert_eq!((all[2].kind, all[2].key.as_deref()), ("range", Some("all rows")));
        assert!([11, 13].contains(&all[2].connection), "{:?}", all[2]);
    }
}
