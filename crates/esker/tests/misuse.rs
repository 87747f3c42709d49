//! What Rust programs may do that nobody should: each is an error that says so, or does what was meant; nothing is lost.

#![allow(clippy::unwrap_used)]

use esker::format::RowId;
use esker::{
    Direction, Engine, Error, IndexPlan, IndexRange, Isolation, KeyRange, Level, LockMode, Options, PosixDisk,
    ScanOptions, Schema, Session, Table, TableDef, Type,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Nothing here takes so long.
const PATIENCE: Duration = Duration::from_secs(120);

/// A folder that goes with the test.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn folder(name: &str) -> Folder {
    let path = std::env::temp_dir().join(format!("esker-misuse-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    Folder(path)
}

fn def() -> TableDef {
    let schema = Schema::new().column("id", Type::U64).column("text", Type::Text(100));
    TableDef::of(&schema).unwrap().unique("by_id", &["id"]).unwrap()
}

fn made(folder: &Folder) -> (Engine, Arc<Table>) {
    let engine = Engine::open_dir(&folder.0).unwrap();
    engine.create_table("t", &def()).unwrap();
    let table = engine.open_table("t").unwrap();
    (engine, table)
}

fn insert(session: &mut Session, table: &Arc<Table>, ids: std::ops::Range<u64>) -> Result<(), Error> {
    ids.into_iter().try_for_each(|id| session.insert(table, &[id.into(), "some text".into()]).map(drop))
}

fn ids(engine: &Engine) -> Vec<u64> {
    let (table, mut session) = (engine.open_table("t").unwrap(), engine.session());
    let (mut rows, mut found) = (session.rows(&table).unwrap(), Vec::new());
    while let Some(row) = rows.next().unwrap() {
        found.push(row.get("id").unwrap());
    }
    found
}

fn is_refused<T>(result: Result<T, Error>, words: &str) {
    let error = result.err().unwrap_or_else(|| panic!("it went through; wanted: {words}"));
    assert!(error.to_string().contains(words), "{error}");
}

#[test]
fn a_table_of_another_engine_is_refused() {
    let (one, other) = (folder("one"), folder("other"));
    let ((a, of_a), (b, of_b)) = (made(&one), made(&other));
    let mut session = a.session();
    insert(&mut session, &of_a, 0..3).unwrap();
    let words = "table 't' is of another engine";
    is_refused(insert(&mut session, &of_b, 7..8), words);
    is_refused(session.update(&of_b, esker::format::RowId(1), &[1u64.into(), "".into()]), words);
    is_refused(session.delete(&of_b, esker::format::RowId(1)), words);
    is_refused(session.lock_all(&of_b), words);
    is_refused(session.delete_all(&of_b), words);
    is_refused(session.rows(&of_b).map(drop), words);
    is_refused(session.rows_by(&of_b, "by_id", esker::IndexRange::all()).map(drop), words);
    is_refused(session.open_cursor(&of_b, ScanOptions::default()).map(drop), words);
    is_refused(session.count(&of_b), words);
    is_refused(session.check_index(&of_b, 0), words);
    is_refused(session.auto_increment_used(&of_b, 5), words);
    is_refused(a.optimize(&of_b, &mut |_, _| true), words);
    is_refused(a.check(&of_b, &mut |_, _| true), words);
    is_refused(a.analyze(&of_b, &mut |_, _| true), words);
    is_refused(a.build_indexes(&of_b, &[], &mut |_, _| true).map(drop), words);
    is_refused(a.alter_indexes(vec![b.build_indexes(&of_b, &[], &mut |_, _| true).unwrap()]), words);
    session.commit().unwrap();
    assert_eq!((ids(&a), ids(&b)), (vec![0, 1, 2], vec![]));
    // One that was opened before its engine was closed is none of the engine that has the folder now.
    drop((session, a));
    let again = Engine::open_dir(&one.0).unwrap();
    is_refused(insert(&mut again.session(), &of_a, 7..8), words);
    assert_eq!(ids(&again), [0, 1, 2]);
}

/// What reads on, and locks, is in the engine that it began in.
#[test]
fn a_cursor_goes_on_with_no_session_of_another_engine() {
    let (one, other) = (folder("cursor"), folder("cursor-other"));
    let ((a, table), (b, _)) = (made(&one), made(&other));
    let (mut session, mut strange) = (a.session(), b.session());
    insert(&mut session, &table, 0..3).unwrap();
    session.commit().unwrap();
    let words = "table 't' is of another engine";
    for lock in [None, Some(LockMode::Exclusive)] {
        let options = || ScanOptions { mask: table.all_columns(), lock, ..ScanOptions::default() };
        let mut rows = session.scan(&table, options()).unwrap();
        is_refused(rows.next_batch(&mut strange).map(|b| b.ids.len()), words);
        is_refused(rows.fetch(&mut strange, esker::format::RowId(1)), words);
        let mut keys = session.open_index_cursor(&table, 0, options()).unwrap();
        is_refused(keys.seek(&mut strange, KeyRange::default(), Direction::Forward), words);
        is_refused(keys.seek_key(&mut strange, b"key", Direction::Forward), words);
        is_refused(keys.seek_from(&mut strange, b"key", Direction::Forward), words);
        keys.seek(&mut session, KeyRange::default(), Direction::Forward).unwrap();
        is_refused(keys.next_batch(&mut strange).map(|b| b.ids.len()), words);
        is_refused(keys.choose(&mut strange, &[]).map(|b| b.ids.len()), words);
        assert!(!strange.holds_locks());
        assert!(!rows.next_batch(&mut session).unwrap().ids.is_empty());
        assert!(!keys.next_batch(&mut session).unwrap().ids.is_empty());
    }
}

/// Waiting for it would never end, and nobody's commits are to suffer.
#[test]
fn a_position_of_another_log_is_refused_and_writing_goes_on() {
    let (one, other) = (folder("log"), folder("log-other"));
    let ((a, table), (b, of_b)) = (made(&one), made(&other));
    let (mut session, mut strange) = (a.session(), b.session());
    insert(&mut strange, &of_b, 0..1000).unwrap();
    let end = strange.commit_unsynced().unwrap();
    for end in [end, esker::format::Lsn(u64::MAX)] {
        is_refused(session.await_log(end), "no commit of this engine ends at");
    }
    strange.await_log(end).unwrap();
    insert(&mut session, &table, 0..3).unwrap();
    let end = session.commit_unsynced().unwrap();
    session.await_log(end).unwrap();
    assert!(!a.poisoned());
    assert_eq!(ids(&a), [0, 1, 2]);
}

#[test]
fn an_index_that_is_kept_twice_is_refused_and_the_folder_opens() {
    let folder = folder("twice");
    let (engine, table) = made(&folder);
    let mut session = engine.session();
    insert(&mut session, &table, 0..3).unwrap();
    session.commit().unwrap();
    let keep = |name: &str| IndexPlan::Keep { index: 0, name: name.into() };
    let twice = [keep("by_id"), keep("again")];
    is_refused(engine.build_indexes(&table, &twice, &mut |_, _| true).map(drop), "cannot have its index 0 twice");
    engine.close().unwrap();
    drop((session, engine, table));
    assert_eq!(ids(&Engine::open_dir(&folder.0).unwrap()), [0, 1, 2]);
}

#[test]
fn names_that_nobody_could_say_are_refused() {
    let folder = folder("names");
    let (engine, table) = made(&folder);
    let (most, long) = ("n".repeat(4096), "n".repeat(4097));
    let named = |name: &str| def().index(name, &["text"]).unwrap();
    for (name, words) in [("", "is empty"), (&long, "4097 bytes"), (&"\u{e4}".repeat(35 << 20), "73400320 bytes")] {
        is_refused(engine.create_table(name, &def()), words);
        is_refused(engine.create_counting_table(name, &def(), 5), words);
        is_refused(engine.create_table("u", &named(name)), words);
        is_refused(engine.rename_table("t", name), words);
        is_refused(engine.show_table("t", name), words);
        let add = IndexPlan::Add(named(name).indexes[1].clone());
        for plan in [add, IndexPlan::Keep { index: 0, name: name.to_owned() }] {
            is_refused(engine.build_indexes(&table, &[plan], &mut |_, _| true).map(drop), words);
        }
    }
    engine.create_table(&most, &named(&most)).unwrap();
    engine.rename_table("t", "n").unwrap();
    engine.checkpoint().unwrap();
    drop((table, engine));
    assert_eq!(Engine::open_dir(&folder.0).unwrap().tables(), ["n", &most]);
}

#[test]
fn two_indexes_of_one_name_are_refused() {
    let folder = folder("one-name");
    let (engine, table) = made(&folder);
    let mut twice = def();
    twice.indexes.push(twice.indexes[0].clone());
    is_refused(engine.create_table("u", &twice), "table 'u': two indexes have the name 'by_id'");
    let add = |name: &str| {
        let mut index = def().indexes.remove(0);
        index.name = name.to_owned();
        IndexPlan::Add(index)
    };
    let keep = |index: usize, name: &str| IndexPlan::Keep { index, name: name.to_owned() };
    let alter = |plan: &[IndexPlan]| engine.alter_indexes(vec![engine.build_indexes(&table, plan, &mut |_, _| true)?]);
    for (plan, name) in [
        ([keep(0, "by_id"), add("by_id")], "by_id"),
        ([keep(0, "other"), add("other")], "other"),
        ([add("new"), add("new")], "new"),
    ] {
        is_refused(alter(&plan), &format!("table 't': two indexes would have the name '{name}'"));
    }
    // In one statement an index may have the name that another one gives up.
    alter(&[keep(0, "first"), add("by_id")]).unwrap();
    alter(&[keep(0, "by_id"), keep(1, "first")]).unwrap();
    is_refused(alter(&[keep(0, "first"), keep(1, "first")]), "two indexes would have the name 'first'");
    drop((table, engine));
    let engine = Engine::open_dir(&folder.0).unwrap();
    assert!(engine.open_table("u").is_err());
    let table = engine.open_table("t").unwrap();
    let mut session = engine.session();
    insert(&mut session, &table, 0..3).unwrap();
    for name in ["first", "by_id"] {
        let mut rows = session.rows_by(&table, name, esker::IndexRange::all()).unwrap();
        assert_eq!(rows.next().unwrap().unwrap().get::<u64>("id").unwrap(), 0, "{name}");
    }
}

/// What a front end has of its own in a table's definition is in every manifest, and is what values are read by.
#[test]
fn extra_bytes_without_bound_or_of_another_table_are_refused() {
    let folder = folder("extra");
    let (engine, _) = made(&folder);
    let with = |extra: Vec<u8>| TableDef { extra, indexes: Vec::new(), ..def() };
    engine.create_table("most", &with(vec![1; 8 << 20])).unwrap();
    is_refused(engine.create_table("u", &with(vec![1; (8 << 20) + 1])), "its extra bytes are 8388609, the limit is");
    let columns = (0..16384).fold(Schema::new(), |s, n| s.nullable(&format!("{n:0255}"), Type::Bytes(u32::MAX)));
    engine.create("longest", &columns).unwrap();
    let words = "table 'u': its schema is of other columns than its layout";
    let one = Schema::new().column("id", Type::U64);
    for other in [one.clone(), one.clone().column("text", Type::Text(99)), one.nullable("text", Type::Text(100))] {
        is_refused(engine.create_table("u", &with(TableDef::of(&other).unwrap().extra)), words);
    }
    // Bytes of another front end may begin with anything.
    engine.create_table("opaque", &with(b"ESCH\xff".to_vec())).unwrap();
    drop(engine);
    let engine = Engine::open_dir(&folder.0).unwrap();
    assert_eq!(engine.open_table("most").unwrap().extra(), vec![1; 8 << 20]);
    assert_eq!(engine.open_table("longest").unwrap().schema(), Some(&columns));
    assert_eq!(engine.open_table("opaque").unwrap().extra(), b"ESCH\xff");
}

#[test]
fn an_xid_that_is_none_is_refused_and_the_transaction_stays_open() {
    let folder = folder("xid");
    let (engine, table) = made(&folder);
    let mut session = engine.session();
    insert(&mut session, &table, 0..3).unwrap();
    let (most, long, words) = (vec![b'x'; 4096], vec![b'x'; 4097], "bytes, 1 to 4096 are possible");
    for xid in [&b""[..], &long, &vec![b'x'; 70 << 20]] {
        is_refused(session.prepare(xid), words);
        is_refused(session.prepare_in_turn(xid), words);
    }
    session.prepare(&most).unwrap();
    session.detach_prepared();
    drop((session, table, engine));
    let engine = Engine::open_dir(&folder.0).unwrap();
    assert_eq!(engine.prepared(), std::slice::from_ref(&most));
    assert!(engine.commit_xid(&most).unwrap());
    assert_eq!(ids(&engine), [0, 1, 2]);
}

#[test]
fn an_error_with_a_cause_gives_it() {
    let failed = esker::io::IoError::new("write", Path::new("/x"), Some(7), esker::io::IoKind::Failed, "no");
    let full = esker::io::IoError { kind: esker::io::IoKind::DiskFull, ..failed.clone() };
    let truncated = || esker::format::FormatError::Truncated { what: "row", need: 9, have: 1 };
    let io = |e: &Error| std::error::Error::source(e).is_some_and(|cause| cause.is::<esker::io::IoError>());
    let format = |e: &Error| std::error::Error::source(e).is_some_and(|cause| cause.is::<esker::format::FormatError>());
    assert!(io(&failed.into()) && io(&full.into()) && format(&Error::damage(Path::new("/x"), 0, truncated())));
}

#[test]
fn a_table_that_was_dropped_is_refused() {
    let folder = folder("gone");
    let (engine, table) = made(&folder);
    let (mut before, mut session) = (engine.session(), engine.session());
    insert(&mut before, &table, 0..3).unwrap();
    engine.drop_table("t").unwrap();
    let words = "no Esker table 't'";
    for session in [&mut before, &mut session] {
        is_refused(insert(session, &table, 7..8), words);
        is_refused(session.update(&table, esker::format::RowId(1), &[1u64.into(), "".into()]), words);
        is_refused(session.delete(&table, esker::format::RowId(1)), words);
        is_refused(session.lock_all(&table), words);
        is_refused(session.delete_all(&table), words);
        is_refused(session.rows(&table).map(drop), words);
        is_refused(session.rows_by(&table, "by_id", esker::IndexRange::all()).map(drop), words);
        is_refused(session.count(&table), words);
        is_refused(session.check_index(&table, 0), words);
        is_refused(session.auto_increment_used(&table, 5), words);
    }
    is_refused(engine.optimize(&table, &mut |_, _| true), words);
    is_refused(engine.check(&table, &mut |_, _| true), words);
    is_refused(engine.analyze(&table, &mut |_, _| true), words);
    is_refused(engine.build_indexes(&table, &[], &mut |_, _| true).map(drop), words);
    before.commit().unwrap();
    // One of its name is another one.
    engine.create_table("t", &def()).unwrap();
    is_refused(insert(&mut before, &table, 7..8), words);
    assert_eq!(ids(&engine), []);
}

#[test]
fn what_was_written_into_a_dropped_table_leaves_no_file() {
    let folder = folder("dropped-files");
    let (engine, table) = made(&folder);
    engine.create_table("u", &def()).unwrap();
    let (other, mut session, mut table) = (engine.open_table("u").unwrap(), engine.session(), table);
    for ended in [Session::commit, Session::rollback, by_xid] {
        // It has files of its own in both tables, some that are finished, and some that are not.
        insert(&mut session, &table, 0..20_000).unwrap();
        insert(&mut session, &other, 0..20_000).unwrap();
        assert_eq!(session.count(&table).unwrap(), 20_000);
        insert(&mut session, &table, 20_000..40_000).unwrap();
        engine.drop_table("t").unwrap();
        ended(&mut session).unwrap();
        assert!([0, 20_000].contains(&session.count(&other).unwrap()));
        session.commit().unwrap();
        engine.truncate_table("u").unwrap();
        no_files(&folder.0.join("runs"));
        engine.create_table("t", &def()).unwrap();
        table = engine.open_table("t").unwrap();
    }
}

fn by_xid(session: &mut Session) -> Result<(), Error> {
    session.prepare(b"xid")?;
    session.commit()
}

/// Files are removed in the background.
fn no_files(folder: &Path) {
    let began = Instant::now();
    while std::fs::read_dir(folder).unwrap().next().is_some() {
        assert!(began.elapsed() < PATIENCE, "{:?}", std::fs::read_dir(folder).unwrap().collect::<Vec<_>>());
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn what_is_closed_writes_nothing_and_keeps_the_folder_while_it_may() {
    let folder = folder("closed");
    let (engine, table) = made(&folder);
    let (mut session, mut loads) = (engine.session(), engine.session());
    insert(&mut session, &table, 0..10).unwrap();
    session.commit().unwrap();
    insert(&mut session, &table, 10..20).unwrap();
    insert(&mut loads, &table, 100_000..200_000).unwrap(); // has files of its own
    engine.close().unwrap();
    engine.close().unwrap();
    assert!(matches!(Engine::open_dir(&folder.0), Err(Error::Locked(_))), "its sessions are there");
    for session in [&mut session, &mut loads] {
        is_refused(session.commit(), "it was closed");
        is_refused(session.prepare(b"xid"), "it was closed");
    }
    is_refused(insert(&mut engine.session(), &table, 20..21), "it was closed");
    is_refused(engine.create_table("u", &def()), "it was closed");
    is_refused(engine.drop_table("t"), "it was closed");
    is_refused(engine.truncate_table("t"), "it was closed");
    is_refused(engine.checkpoint(), "it was closed");
    is_refused(engine.commit_xid(b"xid"), "it was closed");
    drop(session);
    assert!(matches!(Engine::open_dir(&folder.0), Err(Error::Locked(_))), "one session is there");
    drop((loads, engine));
    let again = Engine::open_dir(&folder.0).unwrap();
    insert(&mut again.session(), &again.open_table("t").unwrap(), 30..31).unwrap();
    drop(table);
    assert_eq!(ids(&again), (0..10).collect::<Vec<_>>());
    assert!(again.check(&again.open_table("t").unwrap(), &mut |_, _| true).unwrap().damages.is_empty());
}

#[test]
fn what_is_prepared_is_not_decided_by_a_session_of_a_closed_engine() {
    let folder = folder("prepared");
    let (engine, table) = made(&folder);
    let mut session = engine.session();
    insert(&mut session, &table, 0..3).unwrap();
    session.prepare(b"xid").unwrap();
    engine.close().unwrap();
    is_refused(session.commit(), "it was closed");
    drop((session, engine));
    let again = Engine::open_dir(&folder.0).unwrap();
    assert_eq!((again.prepared(), ids(&again)), (vec![b"xid".to_vec()], vec![]));
    assert!(again.commit_xid(b"xid").unwrap());
    assert_eq!(ids(&again), [0, 1, 2]);
}

#[test]
fn a_folder_is_free_when_the_last_handle_is_dropped() {
    let folder = folder("dropped");
    drop(made(&folder));
    for id in 0..20 {
        let engine = Engine::open_dir(&folder.0).unwrap_or_else(|e| panic!("opening {id}: {e}"));
        let (table, mut session) = (engine.open_table("t").unwrap(), engine.session());
        insert(&mut session, &table, id..id + 1).unwrap();
        session.commit().unwrap();
        if id % 2 == 0 {
            drop(engine); // before its session
        }
    }
    // By one of its own threads, which waits for itself no more than for others that wait for it.
    let (engine, (done, is_done)) = (Engine::open_dir(&folder.0).unwrap(), std::sync::mpsc::channel());
    let handle = engine.clone();
    engine.request_checkpoint(Box::new(move |result| {
        drop(handle);
        done.send(result).unwrap();
    }));
    drop(engine);
    is_done.recv().unwrap().unwrap();
}

/// Files of somebody in the folder of runs, whose names are as those of runs but for their form, or their size.
#[test]
fn what_is_laid_among_the_runs_means_nothing() {
    let folder = folder("laid");
    let strays =
        ["1.run", "+000000000000001.run", "000000000000000A.run", "fffffffffffffffe.run", "ffffffffffffffff.run"];
    for life in 0..3u64 {
        let (engine, table) = match life {
            0 => made(&folder),
            _ => Engine::open_dir(&folder.0).map(|e| (e.clone(), e.open_table("t").unwrap())).unwrap(),
        };
        let mut session = engine.session();
        insert(&mut session, &table, life * 50_000..(life + 1) * 50_000).unwrap();
        session.commit().unwrap();
        engine.checkpoint().unwrap();
        assert!(table.stats().runs > 0);
        drop((session, table, engine));
        for name in strays {
            let path = folder.0.join("runs").join(name);
            assert_eq!(path.exists(), life > 0, "{name}");
            std::fs::write(path, "of somebody").unwrap();
        }
    }
    assert_eq!(ids(&Engine::open_dir(&folder.0).unwrap()).len(), 150_000);
}

#[test]
fn a_folder_that_has_lost_its_manifest_is_told_from_one_that_is_none() {
    let folder = folder("lost");
    drop(made(&folder));
    let read_only = || {
        let options = Options { read_only: true, ..Options::default() };
        Engine::open(Arc::new(PosixDisk::new()), &folder.0, options, Arc::new(|_, _| {})).err().unwrap()
    };
    std::fs::remove_file(folder.0.join("MANIFEST")).unwrap();
    for error in [read_only(), Engine::open_dir(&folder.0).err().unwrap()] {
        assert!(matches!(error, Error::ManifestMissing { .. }), "{error}");
    }
    std::fs::remove_dir_all(folder.0.join("wal")).unwrap();
    std::fs::remove_dir_all(folder.0.join("runs")).unwrap();
    is_refused::<Engine>(Err(read_only()), "no Esker folder");
    assert!(Engine::open_dir(&folder.0).is_ok());
}

/// What a program gives the engine to call is called in threads of the engine's, in the middle of its work.
#[test]
fn what_panics_when_it_is_told_stops_nothing() {
    let folder = folder("panics");
    let told = Arc::new(std::sync::Mutex::new(Vec::new()));
    let heard = told.clone();
    let log = Arc::new(move |text: &str, level: Level| {
        heard.lock().unwrap().push((text.to_owned(), level));
        panic!("by what is told");
    });
    let engine = Engine::open(Arc::new(PosixDisk::new()), &folder.0, Options::default(), log).unwrap();
    engine.create_table("t", &def()).unwrap();
    let (table, (done, is_done)) = (engine.open_table("t").unwrap(), std::sync::mpsc::channel());
    let mut session = engine.session();
    for id in 0..20 {
        insert(&mut session, &table, id..id + 1).unwrap();
        session.commit().unwrap();
        // Some are answered together.
        for _ in 0..3 {
            engine.request_checkpoint(Box::new(|_| panic!("by the answer")));
        }
        let done = done.clone();
        engine.request_checkpoint(Box::new(move |result| done.send(result).unwrap()));
        is_done.recv_timeout(PATIENCE).expect("no answer").unwrap();
    }
    assert_eq!(ids(&engine), (0..20).collect::<Vec<_>>());
    engine.close().unwrap();
    let errors = told.lock().unwrap().iter().filter(|(_, level)| *level == Level::Error).count();
    assert!((1..=60).contains(&errors), "told of {errors}");
}

#[test]
fn a_relative_folder_stays_where_it_was() {
    let folder = folder("relative");
    std::fs::create_dir_all(folder.0.join("elsewhere")).unwrap();
    std::env::set_current_dir(&folder.0).unwrap();
    let engine = Engine::open_dir("data").unwrap();
    std::env::set_current_dir("elsewhere").unwrap();
    engine.create_table("t", &def()).unwrap();
    let mut session = engine.session();
    insert(&mut session, &engine.open_table("t").unwrap(), 0..100_000).unwrap();
    session.commit().unwrap();
    engine.checkpoint().unwrap();
    assert!(engine.open_table("t").unwrap().stats().runs > 0);
    drop((session, engine));
    assert_eq!(std::fs::read_dir(folder.0.join("elsewhere")).unwrap().count(), 0);
    assert_eq!(ids(&Engine::open_dir(folder.0.join("data")).unwrap()).len(), 100_000);
    is_refused(Engine::open_dir(""), "no folder");
}

#[test]
fn a_savepoint_of_another_transaction_undoes_nothing_and_is_not_forgotten() {
    let folder = folder("savepoint");
    let (engine, table) = made(&folder);
    engine.create_table("u", &def()).unwrap();
    let (mut a, mut b) = (engine.session(), engine.session());
    insert(&mut a, &engine.open_table("u").unwrap(), 0..5).unwrap();
    let point = a.savepoint();
    a.commit().unwrap();
    for session in [&mut a, &mut b] {
        insert(session, &table, 0..20).unwrap();
        session.rollback_to(&point);
        is_refused(session.commit(), "a savepoint of another transaction");
        is_refused(session.prepare(b"xid"), "a savepoint of another transaction");
        session.rollback().unwrap();
    }
    // One of before there was a transaction is of any.
    let before = b.savepoint();
    b.begin(Isolation::ReadCommitted, Default::default());
    insert(&mut b, &table, 0..20).unwrap();
    b.rollback_to(&before);
    insert(&mut b, &table, 30..31).unwrap();
    b.commit().unwrap();
    assert_eq!((b.count(&table).unwrap(), ids(&engine)), (1, vec![30]));
}

#[test]
fn a_savepoint_that_was_undone_itself_is_none() {
    let folder = folder("undone");
    let (engine, table) = made(&folder);
    let mut a = engine.session();
    let holds = |ids: &[u64]| {
        let report = engine.check(&table, &mut |_, _| true).unwrap();
        assert!(report.damages.is_empty() && report.unheld.is_empty(), "{report:?}");
        assert_eq!((engine.session().count(&table).unwrap(), self::ids(&engine)), (ids.len() as u64, ids.to_vec()));
    };
    insert(&mut a, &table, 0..2).unwrap();
    let first = a.savepoint();
    insert(&mut a, &table, 10..11).unwrap();
    let second = a.savepoint();
    insert(&mut a, &table, 11..12).unwrap();
    a.rollback_to(&first);
    insert(&mut a, &table, 12..13).unwrap();
    a.rollback_to(&second);
    is_refused(a.commit(), "a savepoint that was undone itself");
    is_refused(a.prepare(b"xid"), "a savepoint that was undone itself");
    a.rollback().unwrap();
    holds(&[]);
    // Those that were not are good more than once, in the order in which they came to be, and behind what was undone.
    insert(&mut a, &table, 0..2).unwrap();
    let first = a.savepoint();
    for n in 0..3 {
        insert(&mut a, &table, 10..20).unwrap();
        let second = a.savepoint();
        for _ in 0..2 {
            insert(&mut a, &table, 20..30).unwrap();
            a.rollback_to(&second);
        }
        let same = a.savepoint();
        insert(&mut a, &table, 20..21).unwrap();
        a.rollback_to(&same);
        a.rollback_to(&second);
        if n < 2 {
            a.rollback_to(&first);
        }
    }
    a.commit().unwrap();
    holds(&[0, 1, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19]);
}

#[test]
fn who_reads_a_table_while_it_is_emptied_gets_all_its_rows_or_is_told() {
    const ROWS: u64 = 30_000;
    for how in ["by_id", "", "locking by_id", "locking"] {
        let folder = folder("emptied");
        let (engine, table) = made(&folder);
        let mut writer = engine.session();
        insert(&mut writer, &table, 0..ROWS).unwrap();
        writer.commit().unwrap();
        let mut reader = engine.session();
        let mut rows = match how {
            "by_id" => reader.rows_by(&table, "by_id", IndexRange::all()),
            "" => reader.rows(&table),
            "locking" => reader.rows_for_update(&table),
            _ => reader.rows_by_for_update(&table, "by_id", IndexRange::all()),
        }
        .unwrap();
        assert!(rows.next().unwrap().is_some());
        engine.truncate_table("t").unwrap();
        engine.checkpoint().unwrap();
        let mut found = 1;
        let end = loop {
            match rows.next() {
                Ok(Some(_)) => found += 1,
                Ok(None) => break None,
                Err(e) => break Some(e),
            }
        };
        assert!(how != "by_id" || end.is_some(), "a batch had all of them");
        match end {
            None if !how.starts_with("locking") => assert_eq!(found, ROWS, "{how}"),
            None => {}
            Some(e) => {
                assert!(matches!(e, Error::TableChanged(_)), "{how}: {e}");
                // Who goes on all the same is told again.
                is_refused(rows.next().map(drop), &e.to_string());
            }
        }
        drop(rows);
        reader.rollback().unwrap();
        assert_eq!(ids(&engine), [0; 0]);
    }
}

#[test]
fn after_an_error_no_row_is_given() {
    let folder = folder("error");
    let (engine, table) = made(&folder);
    let (mut a, mut b) = (engine.session(), engine.session());
    insert(&mut a, &table, 0..5).unwrap();
    a.commit().unwrap();
    let key = [2u64.into()];
    let mut rows = a.rows_by_for_update(&table, "by_id", IndexRange::equal(&key)).unwrap();
    assert!(rows.next().unwrap().is_some());
    drop(rows);
    b.set_lock_wait(Duration::ZERO, true);
    for by_index in [true, false] {
        let mut rows = match by_index {
            true => b.rows_by_for_update(&table, "by_id", IndexRange::all()).unwrap(),
            false => b.rows_for_update(&table).unwrap(),
        };
        assert!(rows.next().unwrap().is_some() && rows.next().unwrap().is_some());
        for _ in 0..3 {
            assert!(matches!(rows.next(), Err(Error::WouldBlock)));
        }
        drop(rows);
        b.rollback().unwrap();
    }
}

#[test]
fn without_statements_a_transaction_is_one() {
    let folder = folder("statements");
    let (engine, table) = made(&folder);
    let (mut reader, mut writer) = (engine.session(), engine.session());
    assert_eq!(reader.count(&table).unwrap(), 0);
    insert(&mut writer, &table, 0..3).unwrap();
    writer.commit().unwrap();
    assert_eq!(reader.count(&table).unwrap(), 0);
    reader.begin_statement();
    assert_eq!(reader.count(&table).unwrap(), 3);
    insert(&mut writer, &table, 3..4).unwrap();
    writer.commit().unwrap();
    assert_eq!(reader.count(&table).unwrap(), 3);
    reader.commit().unwrap();
    assert_eq!(reader.count(&table).unwrap(), 4);
}

#[test]
fn options_beyond_all_means_are_taken_as_the_nearest() {
    let open = |path: &Path, options: &Options| {
        Engine::open(Arc::new(PosixDisk::new()), path, options.clone(), Arc::new(|_, _| ()))
    };
    type Odd = fn(usize) -> Options;
    let odd: [(&str, Odd); 6] = [
        ("block_bytes", |n| Options { block_bytes: n, ..Options::default() }),
        ("lookup_block_bytes", |n| Options { lookup_block_bytes: n, ..Options::default() }),
        ("bulk_threshold_bytes", |n| Options { bulk_threshold_bytes: n, ..Options::default() }),
        ("min_run_bytes", |n| Options { min_run_bytes: n, ..Options::default() }),
        ("run_bytes", |n| Options { run_bytes: n as u64, ..Options::default() }),
        ("recovery_target_bytes", |n| Options { recovery_target_bytes: Some(n as u64), ..Options::default() }),
    ];
    for (name, options) in odd {
        for bytes in [0, usize::MAX] {
            let folder = folder("options");
            let engine = open(&folder.0, &options(bytes)).unwrap();
            engine.create_table("t", &def()).unwrap();
            let (table, mut session) = (engine.open_table("t").unwrap(), engine.session());
            insert(&mut session, &table, 0..3000).unwrap();
            session.commit().unwrap();
            engine.checkpoint().unwrap_or_else(|e| panic!("{name} {bytes}: {e}"));
            assert!(table.stats().runs > 0, "{name} {bytes}");
            engine.optimize(&table, &mut |_, _| true).unwrap_or_else(|e| panic!("{name} {bytes}: {e}"));
            drop((session, engine));
            assert_eq!(ids(&open(&folder.0, &options(bytes)).unwrap()).len(), 3000, "{name} {bytes}");
        }
    }
}

#[test]
fn a_transaction_of_any_threshold_fits_into_the_log() {
    let folder = folder("threshold");
    let options = Options { bulk_threshold_bytes: usize::MAX, min_run_bytes: usize::MAX, ..Options::default() };
    let engine = Engine::open(Arc::new(PosixDisk::new()), &folder.0, options, Arc::new(|_, _| ())).unwrap();
    let schema = Schema::new().column("id", Type::U64).column("bytes", Type::Bytes(1 << 20));
    let (table, mut session, bytes) = (engine.create("t", &schema).unwrap(), engine.session(), vec![7; 1 << 20]);
    for id in 0..150u64 {
        session.insert(&table, &[id.into(), (&bytes).into()]).unwrap();
    }
    session.commit().unwrap();
    assert_eq!(session.count(&table).unwrap(), 150);
}

#[test]
fn a_session_that_outlives_the_engines_handles_has_its_background_work() {
    let folder = folder("outlives");
    let options = Options { recovery_target_bytes: Some(1 << 20), ..Options::default() };
    let engine = Engine::open(Arc::new(PosixDisk::new()), &folder.0, options, Arc::new(|_, _| ())).unwrap();
    let schema = Schema::new().column("id", Type::U64).column("bytes", Type::Bytes(1 << 16));
    let (table, mut session, bytes) = (engine.create("t", &schema).unwrap(), engine.session(), vec![7; 1 << 16]);
    drop(engine);
    // More than the target allows of the log, by little: commits wait for flushes then.
    for id in 0..20u64 {
        session.insert(&table, &[id.into(), (&bytes).into()]).unwrap();
        session.commit().unwrap();
    }
    for _ in 0..6000 {
        if table.stats().runs > 0 {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert!(table.stats().runs > 0, "nobody flushes");
    assert_eq!(session.count(&table).unwrap(), 20);
    drop(session);
    let engine = Engine::open_dir(&folder.0).unwrap();
    assert_eq!(engine.session().count(&engine.open_table("t").unwrap()).unwrap(), 20);
}

/// What it sees may be purged by then: a row would seem to be gone, or its entry to be damage.
#[test]
fn a_cursor_of_a_transaction_that_has_ended_is_refused() {
    let folder = folder("ended");
    let (engine, table) = made(&folder);
    let (mut reader, mut writer) = (engine.session(), engine.session());
    insert(&mut writer, &table, 0..3).unwrap();
    writer.commit().unwrap();
    let mut rows = reader.open_cursor(&table, ScanOptions::default()).unwrap();
    let mut index = reader.open_index_cursor(&table, 0, ScanOptions::default()).unwrap();
    let all = || KeyRange::of_prefix(&[]);
    index.seek(&mut reader, all(), Direction::Forward).unwrap();
    assert!(rows.fetch(&mut reader, RowId(1)).unwrap().is_some());
    for end in [Session::end_statement, |s: &mut Session| s.commit().map(drop).unwrap()] {
        end(&mut reader);
        writer.update(&table, RowId(1), &[0u64.into(), "another".into()]).unwrap();
        writer.commit().unwrap();
        engine.checkpoint().unwrap();
        is_refused(rows.fetch(&mut reader, RowId(1)), "has ended");
        is_refused(index.seek(&mut reader, all(), Direction::Forward), "has ended");
        is_refused(index.seek_key(&mut reader, &[0; 8], Direction::Forward), "has ended");
        // Another one's view keeps nothing of what this one saw.
        assert_eq!(reader.count(&table).unwrap(), 3);
        is_refused(rows.fetch(&mut reader, RowId(1)), "has ended");
    }
}
