use super::*;
use crate::tests::support::{begun, engine, insert_seven, locking, until};
use crate::{BeginOptions, Error, LockMode, ScanOptions, Table};

pub(super) fn open(engine: &Engine, connection: u64) -> Session {
    let session = begun(engine, false);
    session.set_connection(connection);
    session
}

#[test]
fn transactions_are_listed_while_they_are_open() {
    let (engine, table) = engine();
    assert_eq!(engine.transactions(), []);
    let idle = engine.session();
    idle.set_connection(5);
    let mut writer = open(&engine, 6);
    insert_seven(&mut writer, &table);
    insert_seven(&mut writer, &table);
    writer.end_statement();
    let mut reader = open(&engine, 7);
    assert_eq!(reader.count_rows(&table).unwrap(), 0);
    reader.end_statement();

    let list = engine.transactions();
    let [w, r] = &list[..] else { panic!("{list:?}") };
    assert_eq!((w.connection, w.state, w.isolation, w.rows_changed), (6, "active", "REPEATABLE READ", 2));
    assert_eq!((w.txn, w.view_seq, w.xid.as_ref()), (writer.txn_id().unwrap(), None, None));
    assert!(w.redo_bytes > 16 && w.age_us > 0, "{w:?}");
    let now_us = crate::Machine.unix().as_micros() as u64;
    assert!(now_us.abs_diff(w.started_unix_us) < 60_000_000, "{w:?} at {now_us}");
    // One that only reads is listed too: its view keeps old versions.
    assert_eq!((r.connection, r.rows_changed, r.redo_bytes), (7, 0, 0));
    assert_eq!(r.view_seq, Some(engine.core.views.visible_seq()));

    writer.commit().unwrap();
    assert_eq!(engine.transactions().len(), 1);
    reader.rollback().unwrap();
    drop((idle, writer));
    assert_eq!(engine.transactions(), []);
    // Sessions that are gone leave nothing behind, and connection numbers do not stick to the wrong one.
    for _ in 0..1000 {
        drop(engine.session());
    }
    assert!(engine.core.sessions.all.lock().len() < 100);
}

#[test]
fn locked_rows_and_isolation_are_told() {
    let (engine, table) = engine();
    let mut s = open(&engine, 1);
    for _ in 0..10 {
        insert_seven(&mut s, &table);
    }
    s.commit().unwrap();
    s.begin(Isolation::ReadCommitted, BeginOptions::default());
    s.begin_statement();
    let mut cursor = s.scan(&table, locking()).unwrap();
    for _ in 0..3 {
        assert_eq!(cursor.next_batch(&mut s).unwrap().ids.len(), 1);
    }
    let t = &engine.transactions()[0];
    assert_eq!((t.isolation, t.rows_locked, t.rows_changed), ("READ COMMITTED", 3, 0));
    // A row operation tells nothing, but for what was changed before it locked.
    s.delete(&table, RowId(1)).unwrap();
    assert_eq!(engine.transactions()[0].rows_changed, 0);
    s.end_statement();
    assert_eq!(engine.transactions()[0].rows_changed, 1);
}

#[test]
fn the_prepared_are_listed_with_and_without_a_session() {
    let (engine, table) = engine();
    let mut s = open(&engine, 9);
    insert_seven(&mut s, &table);
    s.end_statement();
    s.prepare(b"x1").unwrap();
    let with = engine.transactions().remove(0);
    assert_eq!((with.connection, with.state, with.rows_changed), (9, "prepared", 1));
    assert_eq!(with.xid.as_deref(), Some(&b"x1"[..]));
    assert!(with.redo_bytes > 8);
    s.detach_prepared();
    let without = engine.transactions().remove(0);
    assert_eq!(TxnInfo { connection: 9, age_us: with.age_us, ..without }, with);
    assert!(engine.commit_xid(b"x1").unwrap());
    assert_eq!(engine.transactions(), []);
}

#[test]
fn waits_name_their_blockers_and_the_root() {
    let (engine, table) = engine();
    let mut s = open(&engine, 1);
    let (first, second) = (insert_seven(&mut s, &table), insert_seven(&mut s, &table));
    s.commit().unwrap();
    assert_eq!(engine.lock_waits(), []);
    let mut root = open(&engine, 11);
    root.delete(&table, first).unwrap();
    root.end_statement();
    let root_txn = root.txn_id().unwrap();
    std::thread::scope(|scope| {
        let mut sessions = Vec::new();
        let spawn = |connection: u64, work: fn(&mut Session, &Arc<Table>, RowId, RowId)| {
            let mut session = open(&engine, connection);
            let (killer, table) = (session.killer(), &table);
            let thread = scope.spawn(move || work(&mut session, table, first, second));
            (killer, thread)
        };
        sessions.push(spawn(12, |s, t, first, second| {
            s.delete(t, second).unwrap();
            assert!(matches!(s.delete(t, first), Err(Error::Interrupted)));
        }));
        until(|| engine.lock_waits().len() == 1);
        sessions.push(spawn(13, |s, t, _, second| assert!(matches!(s.delete(t, second), Err(Error::Interrupted)))));
        until(|| engine.lock_waits().len() == 2);
        sessions.push(spawn(14, |s, t, _, _| assert!(matches!(s.lock_all(t), Err(Error::Interrupted)))));
        until(|| engine.lock_waits().iter().any(|w| w.kind == "range"));
        let waits = engine.lock_waits();
        let of = |connection: u64| waits.iter().filter(move |w| w.waiting_connection == connection);
        let twelve = of(12).next().unwrap();
        assert_eq!((twelve.blocking_connection, twelve.root_blocker, twelve.blocking_txn), (11, 11, root_txn));
        assert_eq!((twelve.kind, twelve.row, twelve.table.as_str()), ("row", Some(first), "t"));
        assert!(twelve.blocker_idle_us > 0, "it has ended its statement");
        let thirteen = of(13).next().unwrap();
        assert_eq!((thirteen.blocking_connection, thirteen.root_blocker, thirteen.blocker_idle_us), (12, 11, 0));
        let range = of(14).next().unwrap();
        assert_eq!((range.row, range.root_blocker), (None, 11));
        let states: Vec<_> = engine.transactions().iter().map(|t| (t.connection, t.state)).collect();
        assert_eq!(states, [(11, "active"), (12, "lock wait"), (13, "lock wait"), (14, "lock wait")]);
        for (killer, thread) in sessions.into_iter().rev() {
            killer.kill();
            thread.join().unwrap();
        }
    });
    assert_eq!(engine.lock_waits(), []);
}

#[test]
fn who_waits_for_an_end_says_so() {
    let (engine, table) = engine();
    let mut inserter = open(&engine, 21);
    insert_seven(&mut inserter, &table);
    std::thread::scope(|scope| {
        let mut session = open(&engine, 22);
        let (killer, table) = (session.killer(), &table);
        let thread = scope.spawn(move || {
            let lock = Some(LockMode::Shared);
            let mut cursor = session.scan(table, ScanOptions { lock, ..locking() }).unwrap();
            assert!(matches!(cursor.next_batch(&mut session), Err(Error::Interrupted)));
        });
        until(|| !engine.lock_waits().is_empty());
        let wait = engine.lock_waits().remove(0);
        assert_eq!((wait.kind, wait.table.as_str(), wait.blocking_connection), ("transaction end", "t", 21));
        killer.kill();
        thread.join().unwrap();
    });
}

/// A table of numbers, unique, and names; so many rows of it are committed.
pub(super) fn people(engine: &Engine, rows: u64) -> Arc<Table> {
    let schema = esker_format::Schema::new();
    let schema = schema.column("id", esker_format::Type::U64).column("name", esker_format::Type::Text(40));
    let def = crate::TableDef::of(&schema).unwrap().index("by_name", &["name"]).unwrap();
    engine.create_table("people", &def.unique("by_id", &["id"]).unwrap()).unwrap();
    let table = engine.open_table("people").unwrap();
    let mut s = engine.session();
    for id in 1..=rows {
        s.insert(&table, &[id.into(), "it's".into()]).unwrap();
    }
    s.commit().unwrap();
    table
}

/// Lines of [`Engine::locks`], shortened.
fn lines(engine: &Engine) -> Vec<String> {
    let line = |l: LockInfo| {
        let of = l.key_name.unwrap_or_default();
        let end = if l.waiting { "?" } else { "" };
        format!("{}: {} {} {of}({}) {}{end}", l.connection, l.table, l.kind, l.key_text, l.mode.unwrap_or("-"))
    };
    engine.locks().into_iter().map(line).collect()
}

#[test]
fn locks_are_told_by_the_values_of_a_unique_key_that_are_in_memory() {
    let (engine, seven) = engine();
    let table = people(&engine, 3);
    assert_eq!(lines(&engine), [""; 0]);
    let mut s = open(&engine, 4);
    s.delete(&table, RowId(2)).unwrap();
    s.insert(&table, &[9u64.into(), "fresh".into()]).unwrap();
    // Its owner no longer sees it, and has no lock on what it inserted.
    assert_eq!(lines(&engine), ["4: people row by_id(2) exclusive"]);
    crate::tests::support::flush(&engine, &table);
    assert_eq!(lines(&engine), ["4: people row (row id 2) exclusive"], "nothing is read for it");
    let mut reader = open(&engine, 5);
    let mut rows = reader.rows(&table).unwrap();
    while rows.next().unwrap().is_some() {}
    drop(rows);
    assert_eq!(lines(&engine), ["4: people row by_id(2) exclusive"], "now its block is in memory");
    s.rollback().unwrap();
    // Without a unique key; one that its owner alone sees; all rows.
    let mut s = open(&engine, 6);
    let row = insert_seven(&mut s, &seven);
    s.commit().unwrap();
    s.begin(Isolation::RepeatableRead, BeginOptions::default());
    let mut cursor = s.scan(&seven, ScanOptions { lock: Some(LockMode::Shared), ..locking() }).unwrap();
    cursor.next_batch(&mut s).unwrap();
    s.delete_all(&table).unwrap();
    let all = ["6: t row (row id 1) shared", "6: people range (rows before row id 5) exclusive"];
    assert_eq!((row, lines(&engine)), (RowId(1), all.map(str::to_owned).to_vec()));
}

#[test]
fn many_locks_are_few_lines() {
    let (engine, _) = engine();
    let table = people(&engine, 3000);
    let mut s = open(&engine, 1);
    for row in 1..=1500 {
        s.delete(&table, RowId(2 * row)).unwrap();
    }
    let all = lines(&engine);
    assert_eq!((all.len(), all[999].as_str()), (1001, "1: people row by_id(2000) exclusive"));
    assert_eq!(all[1000], "1:  row (... and 500 more) -");
    for row in 1..=1500 {
        s.delete(&table, RowId(2 * row - 1)).unwrap();
    }
    assert_eq!(lines(&engine), ["1: people row (row ids 1 to 3000 (3000 rows)) exclusive"]);
    s.rollback().unwrap();
    // Many owners have fewer lines each.
    let mut sessions: Vec<_> = (1..=100).map(|n| open(&engine, n)).collect();
    for (n, s) in sessions.iter_mut().enumerate() {
        for at in 0..30 {
            s.delete(&table, RowId(1 + 100 * at + n as u64)).unwrap();
        }
    }
    assert_eq!(lines(&engine).len(), 3000);
    let mut more = open(&engine, 101);
    let seven = engine.open_table("t").unwrap();
    let mut row = RowId(0);
    for _ in 0..2000 {
        row = insert_seven(&mut more, &seven);
    }
    more.commit().unwrap();
    more.begin(Isolation::RepeatableRead, BeginOptions::default());
    for row in (1..=row.0).step_by(2) {
        more.delete(&seven, RowId(row)).unwrap();
    }
    let all = lines(&engine);
    assert_eq!(all.iter().filter(|l| l.starts_with("101:")).count(), 4000 / 101 + 1);
    assert_eq!(all.last().unwrap(), &format!("101:  row (... and {} more) -", 1000 - 4000 / 101));
}

#[test]
fn a_reserved_key_and_who_waits_for_a_key_are_told() {
    let (engine, _) = engine();
    let table = people(&engine, 3);
    let engine = Arc::new(engine);
    let mut s = open(&engine, 1);
    let other = engine.clone();
    crate::tests::hooks::at("a key is reserved", move || {
        let all = lines(&other);
        assert!(all.len() == 1 && all[0].starts_with("1: people key by_id(hash "), "{all:?}");
    });
    s.insert(&table, &[10u64.into(), "new".into()]).unwrap();
    assert!(crate::tests::hooks::all_done());
    assert_eq!(lines(&engine), [""; 0], "its entry is the lock now");
    std::thread::scope(|scope| {
        let mut waiter = open(&engine, 2);
        let (killer, table) = (waiter.killer(), &table);
        let thread = scope.spawn(move || {
            assert!(matches!(waiter.insert(table, &[10u64.into(), "same".into()]), Err(Error::Interrupted)));
        });
        until(|| !engine.lock_waits().is_empty());
        let wait = engine.lock_waits().remove(0);
        assert_eq!((wait.kind, wait.row, wait.key_text.as_deref()), ("key", Some(RowId(4)), Some("by_id(10)")));
        assert_eq!(lines(&engine), ["2: people key by_id(10) -?"]);
        killer.kill();
        thread.join().unwrap();
    });
}

#[test]
fn of_many_whom_somebody_waits_for_some_are_listed() {
    let (engine, table) = engine();
    let mut s = open(&engine, 1);
    let row = insert_seven(&mut s, &table);
    s.commit().unwrap();
    let shared = || ScanOptions { lock: Some(LockMode::Shared), ..locking() };
    let mut readers: Vec<_> = (0..2 * MOST_BLOCKERS as u64).map(|n| open(&engine, 100 + n)).collect();
    for reader in &mut readers {
        assert_eq!(reader.scan(&table, shared()).unwrap().next_batch(reader).unwrap().ids, [row]);
    }
    std::thread::scope(|scope| {
        let mut writer = open(&engine, 12);
        let writer = scope.spawn({
            let table = &table;
            move || writer.delete(table, row).map(|_| ())
        });
        until(|| !engine.lock_waits().is_empty());
        let waits = engine.lock_waits();
        assert_eq!(waits.len(), MOST_BLOCKERS);
        assert!(waits.iter().all(|w| w.waiting_connection == 12 && (100..132).contains(&w.blocking_connection)));
        readers.iter_mut().for_each(|reader| reader.rollback().unwrap());
        writer.join().unwrap().unwrap();
    });
}

struct Says;

impl crate::WaitHooks for Says {
    fn statement(&self, connection: u64) -> Option<String> {
        (connection != 33).then(|| format!("the words of {connection}"))
    }
}

#[test]
fn the_last_deadlock_is_on_the_page() {
    let (engine, _) = engine();
    let table = people(&engine, 3);
    assert!(!engine.status_text().contains("DEADLOCK"));
    let mut sessions = [31, 32, 33].map(|connection| open(&engine, connection));
    for (at, s) in sessions.iter_mut().enumerate() {
        s.set_wait_hooks(Box::new(Says));
        s.delete(&table, RowId(1 + at as u64)).unwrap();
    }
    let [mut victim, mut second, mut third] = sessions;
    std::thread::scope(|scope| {
        let table = &table;
        // 33 waits for 31, 32 for 33; then 31 would wait for 32.
        let third = scope.spawn(move || {
            third.delete(table, RowId(1)).unwrap();
            third.commit().unwrap();
        });
        until(|| engine.lock_waits().len() == 1);
        let second = scope.spawn(move || {
            second.insert(table, &[3u64.into(), "new".into()]).unwrap();
            second.commit().unwrap();
        });
        until(|| engine.lock_waits().len() == 2);
        assert!(matches!(victim.delete(table, RowId(2)), Err(Error::Deadlock)));
        victim.rollback().unwrap();
        third.join().unwrap();
        second.join().unwrap();
    });
    let page = engine.status_text();
    let told: Vec<&str> = page.lines().skip_while(|l| *l != "LAST DEADLOCK").take(11).collect();
    let said = told.iter().map(|l| l.split_once(", ").map_or(*l, |(_, rest)| rest)).collect::<Vec<_>>();
    assert!(said[2].ends_with(" s ago"), "{page}");
    let expected = [
        "connection 31, waits for an exclusive row of people: by_id(2), behind the next",
        "    the words of 31",
        "connection 32, waits for key of people: by_id(3), behind the next",
        "    the words of 32",
        "connection 33, waits for an exclusive row of people: by_id(1), behind the next",
        "    (statement not known)",
    ];
    assert_eq!(said[3..9], expected, "{page}");
    let page = engine.status_text_named(&|table| format!("`{table}`"));
    assert!(
        page.contains("waits for key of `people`: by_id(3), behind") && page.contains("`people`: about "),
        "{page}"
    );
    assert!(told[9].starts_with("the last waits for the first; transaction ") && told[9].ends_with(" was refused"));
}

/// A table of times, unique; one of them is committed.
fn times(engine: &Engine) -> Arc<Table> {
    let schema = esker_format::Schema::new().nullable("at", esker_format::Type::Bytes(600));
    let def = crate::TableDef::of(&schema).unwrap().unique("by_at", &["at"]).unwrap();
    engine.create_table("times", &def).unwrap();
    let table = engine.open_table("times").unwrap();
    let mut s = engine.session();
    s.insert(&table, &[(&1_767_323_045u32.to_be_bytes()[..]).into()]).unwrap();
    s.commit().unwrap();
    table
}

#[test]
fn keys_are_told_as_the_front_end_says_and_for_who_reads() {
    let (engine, _) = engine();
    let table = times(&engine);
    let mut s = open(&engine, 1);
    s.delete(&table, RowId(1)).unwrap();
    let text = |local| engine.locks_told(local).remove(0).key_text;
    assert_eq!(text(None), "X'695735A5'", "nobody has said yet");
    table.show_as(vec![crate::Shown::Timestamp(crate::TimeForm::Bits, 0)]);
    assert_eq!(text(None), "'2026-01-02 03:04:05 UTC'");
    assert_eq!(text(Some(&|seconds| 20260102060000 + seconds as u64 % 60)), "'2026-01-02 06:00:05'");
    // Another definition, as of a statement that alters the table.
    table.show_as(vec![crate::Shown::Binary]);
    assert_eq!(text(None), "X'695735A5'");
}

#[test]
fn long_keys_are_cut_and_marked() {
    let (engine, _) = engine();
    let table = times(&engine);
    let mut s = open(&engine, 1);
    for length in [510, 511] {
        s.insert(&table, &[vec![b'x'; length].as_slice().into()]).unwrap();
    }
    s.commit().unwrap();
    s.begin(Isolation::RepeatableRead, BeginOptions::default());
    for row in [2, 3] {
        s.delete(&table, RowId(row)).unwrap();
    }
    let texts: Vec<_> = engine.locks().into_iter().map(|l| l.key_text).collect();
    assert_eq!(texts, [format!("'{}'", "x".repeat(510)), format!("'{}...", "x".repeat(508))]);
}

#[test]
fn what_the_current_statement_has_changed_counts_in_a_deadlock() {
    let (engine, table) = engine();
    let mut closes = open(&engine, 1);
    let rows: Vec<RowId> = (0..2).map(|_| insert_seven(&mut closes, &table)).collect();
    closes.commit().unwrap();
    closes.begin(Isolation::ReadCommitted, BeginOptions::default());
    closes.begin_statement();
    std::thread::scope(|scope| {
        let (engine, table) = (&engine, &table);
        closes.delete(table, rows[0]).unwrap();
        insert_seven(&mut closes, table);
        let waits = scope.spawn(|| {
            let mut waits = open(engine, 2);
            waits.delete(table, rows[1]).unwrap();
            assert!(matches!(waits.delete(table, rows[0]), Err(Error::Deadlock)));
            waits.rollback().unwrap();
        });
        until(|| engine.lock_waits().len() == 1);
        closes.delete(table, rows[1]).unwrap();
        waits.join().unwrap();
    });
    closes.commit().unwrap();
}

#[test]
fn all_rows_deleted_at_once_are_as_many_changes() {
    let (engine, table) = engine();
    let mut s = open(&engine, 1);
    for _ in 0..5 {
        insert_seven(&mut s, &table);
    }
    s.commit().unwrap();
    s.begin(Isolation::ReadCommitted, BeginOptions::default());
    s.delete_all(&table).unwrap();
    s.end_statement();
    assert_eq!(engine.transactions()[0].rows_changed, 5);
    s.delete_all(&table).unwrap();
    s.end_statement();
    assert_eq!(engine.transactions()[0].rows_changed, 6);
}
