//! A folder opened read-only: all that was committed is seen, nothing can be written, and nothing on the disk changes.

#![allow(clippy::unwrap_used)]

use esker::format::row::{pack_values, Value};
use esker::format::{Column, ColumnKind, Compression, Layout, RowFormat, RowId};
use esker::io::{AccessHint, Disk, IoError, IoKind, OpenMode};
use esker::{Background, BeginOptions, Engine, Error, Isolation, Options, Session, Table, TableDef};
use esker_io::SimDisk;
use std::path::Path;
use std::sync::Arc;

const DIR: &str = "/db";

fn options(read_only: bool) -> Options {
    Options { background: Background::Inline, wal_segment_bytes: 256 << 10, read_only, ..Options::default() }
}

fn open(disk: &SimDisk, read_only: bool) -> Result<Engine, Error> {
    Engine::open(Arc::new(disk.clone()), Path::new(DIR), options(read_only), Arc::new(|_, _| {}))
}

fn def(temporary: bool) -> TableDef {
    let columns = vec![Column { kind: ColumnKind::Fixed { width: 8 }, offset: 0, null: None }];
    let layout = Layout { image_bytes: 8, head_bytes: 0, columns };
    TableDef {
        layout,
        format: RowFormat::Dynamic,
        compression: Compression::None,
        temporary,
        indexes: Vec::new(),
        extra: vec![],
    }
}

fn insert(session: &mut Session, table: &Arc<Table>, numbers: std::ops::Range<u64>) -> Result<(), Error> {
    session.begin(Isolation::RepeatableRead, BeginOptions::default());
    for n in numbers {
        let mut packed = Vec::new();
        pack_values(table.layout(), &[Value::Bytes(&n.to_le_bytes())], &mut packed).unwrap();
        session.insert_row(table, &packed)?;
    }
    Ok(())
}

fn read(session: &mut Session, table: &Arc<Table>) -> Vec<u64> {
    let mut rows = session.rows(table).unwrap();
    let mut out = Vec::new();
    while let Some(row) = rows.next().unwrap() {
        match row.stored().unwrap()[..] {
            [Value::Bytes(bytes)] => out.push(u64::from_le_bytes(bytes.try_into().unwrap())),
            _ => panic!("a value is missing"),
        }
    }
    session.commit().unwrap();
    out
}

/// Every file but the lock, with its bytes.
fn contents(disk: &SimDisk) -> Vec<(String, Vec<u8>)> {
    let mut all = Vec::new();
    for part in [DIR, "/db/runs", "/db/wal"] {
        for entry in disk.list(Path::new(part)).unwrap() {
            if entry.is_dir || entry.name == "LOCK" {
                continue;
            }
            let path = Path::new(part).join(&entry.name);
            let file = disk.open(&path, OpenMode::Read, AccessHint::Meta).unwrap();
            let mut bytes = vec![0; entry.size_bytes as usize];
            file.read_at(&mut bytes, 0).unwrap();
            all.push((path.display().to_string(), bytes));
        }
    }
    all
}

#[test]
fn reads_everything_and_changes_nothing() {
    let disk = SimDisk::new(7);
    let engine = open(&disk, false).unwrap();
    engine.create_table("t", &def(false)).unwrap();
    engine.create_table("#tmp", &def(true)).unwrap();
    engine.create_table("undecided", &def(false)).unwrap();
    let table = engine.open_table("t").unwrap();
    let mut session = engine.session();
    insert(&mut session, &table, 0..1000).unwrap();
    session.commit().unwrap();
    engine.checkpoint().unwrap();
    insert(&mut session, &table, 1000..1010).unwrap();
    session.commit().unwrap();
    let undecided = engine.open_table("undecided").unwrap();
    insert(&mut session, &undecided, 0..3).unwrap();
    session.prepare(b"x").unwrap();
    session.detach_prepared();
    drop((session, table, undecided, engine)); // no clean close
    let orphan = disk.open(Path::new("/db/runs/0000000000000abc.run"), OpenMode::Create, AccessHint::Meta).unwrap();
    orphan.write_at(b"left behind", 0).unwrap();
    let before = contents(&disk);

    for _ in 0..2 {
        let engine = open(&disk, true).unwrap();
        assert_eq!(engine.tables(), ["t", "undecided"]);
        assert_eq!(engine.prepared(), [b"x"]);
        let table = engine.open_table("t").unwrap();
        let mut session = engine.session();
        assert_eq!(read(&mut session, &table), (0..1010).collect::<Vec<_>>());
        assert!(engine.check(&table, &mut |_, _| true).unwrap().damages.is_empty());

        let refused = |result: Result<(), Error>| assert!(matches!(result, Err(Error::ReadOnly(_))), "{result:?}");
        refused(insert(&mut session, &table, 0..1));
        session.rollback().unwrap();
        refused(session.delete(&table, RowId(1)));
        session.rollback().unwrap();
        refused(session.delete_all(&table));
        session.rollback().unwrap();
        refused(engine.create_table("u", &def(false)));
        refused(engine.drop_table("t"));
        refused(engine.rename_table("t", "u"));
        refused(engine.truncate_table("t"));
        refused(engine.checkpoint());
        refused(engine.optimize(&table, &mut |_, _| true));
        refused(engine.commit_xid(b"x").map(|_| ()));
        refused(engine.rollback_xid(b"x").map(|_| ()));
        drop(session);
        engine.close().unwrap();
        assert!(contents(&disk) == before, "something was changed");
    }

    let engine = open(&disk, false).unwrap();
    assert!(engine.rollback_xid(b"x").unwrap());
    let table = engine.open_table("t").unwrap();
    assert_eq!(read(&mut engine.session(), &table), (0..1010).collect::<Vec<_>>());
}

#[test]
fn a_folder_that_is_not_there_is_not_made() {
    let disk = SimDisk::new(8);
    let error = open(&disk, true).err().unwrap();
    assert!(error.to_string().starts_with("no Esker folder"), "{error}");
    assert!(!disk.exists(Path::new(DIR)).unwrap());
}

/// Whoever may not even read a file has not opened anything read-only.
#[test]
fn what_the_system_does_not_permit_is_told_as_it_says() {
    let words = "Permission denied (os error 13)";
    let denied = IoError::new("open", Path::new("/db/MANIFEST"), None, IoKind::ReadOnly, words);
    let error = Error::from(denied);
    assert!(matches!(error, Error::ReadOnly(_)), "{error:?}");
    assert_eq!(error.to_string(), "cannot open /db/MANIFEST: Permission denied (os error 13)");
    let disk = SimDisk::new(9);
    drop(open(&disk, false).unwrap());
    let refused = open(&disk, true).unwrap().create_table("t", &def(false)).unwrap_err();
    assert_eq!(refused.to_string(), "engine is read-only: it was opened read-only");
}
