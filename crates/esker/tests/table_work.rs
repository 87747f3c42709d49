//! What a running engine tells of each table and index: what was read, changed and waited for, by numbers.

#![allow(clippy::unwrap_used)]

use esker::base::counters::{bind, Bound};
use esker::base::trace::Source;
use esker::base::Counter;
use esker::io::{AccessHint, DirEntry, Disk, File, LockGuard, OpenMode};
use esker::{
    Background, Engine, IndexDef, IndexPlan, IndexRange, Options, PosixDisk, Schema, Session, Table, TableDef, Type,
    WorkFigures,
};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn folder(name: &str) -> Folder {
    let folder = Folder(std::env::temp_dir().join(format!("esker-table-work-{name}-{}", std::process::id())));
    let _ = std::fs::remove_dir_all(&folder.0);
    folder
}

fn open(folder: &Folder) -> Engine {
    let options = Options { background: Background::Inline, block_bytes: 4 << 10, ..Options::default() };
    Engine::open(Arc::new(PosixDisk::new()), &folder.0, options, Arc::new(|_, _| {})).unwrap()
}

fn create(engine: &Engine, name: &str) -> Arc<Table> {
    let schema = Schema::new().column("id", Type::U64).column("what", Type::Text(200));
    let def = TableDef::of(&schema).unwrap().unique("by_id", &["id"]).unwrap().index("by_what", &["what"]).unwrap();
    engine.create_table(name, &def).unwrap();
    engine.open_table(name).unwrap()
}

/// A session that is worked for in this thread.
fn session(engine: &Engine) -> (Session, Bound) {
    let session = engine.session();
    let bound = bind(session.counters());
    (session, bound)
}

/// What cannot be compressed away.
fn what(id: u64) -> String {
    (0..10).map(|i| format!("{:016x}", (id * 10 + i).wrapping_mul(0x9e37_79b9_7f4a_7c15))).collect()
}

fn insert(s: &mut Session, t: &Arc<Table>, ids: std::ops::Range<u64>) {
    for id in ids {
        s.insert(t, &[id.into(), what(id).as_str().into()]).unwrap();
    }
}

fn read_all(s: &mut Session, t: &Arc<Table>) -> u64 {
    let (mut rows, mut n) = (s.rows(t).unwrap(), 0);
    while rows.next().unwrap().is_some() {
        n += 1;
    }
    n
}

/// Rows with ids of a range, by the key.
fn read_some(s: &mut Session, t: &Arc<Table>, from: u64, to: u64) -> u64 {
    let (from, to) = ([from.into()], [to.into()]);
    let (mut rows, mut n) = (s.rows_by(t, "by_id", IndexRange::between(&from, &to)).unwrap(), 0);
    while rows.next().unwrap().is_some() {
        n += 1;
    }
    n
}

/// Of a table, or of its index.
fn of(engine: &Engine, table: &str, index: Option<&str>) -> WorkFigures {
    let found = engine.work().into_iter().find(|w| w.table == table && w.index.as_deref() == index);
    found.unwrap_or_else(|| panic!("{table} {index:?}: {:#?}", engine.work())).figures
}

/// Rows read and changed.
fn rows(engine: &Engine, table: &str, index: Option<&str>) -> (u64, u64) {
    let figures = of(engine, table, index);
    (figures.rows_read, figures.rows_changed)
}

#[test]
fn rows_are_of_their_table_and_index() {
    let folder = folder("rows");
    let engine = open(&folder);
    let (t, u) = (create(&engine, "db/t"), create(&engine, "db/u"));
    let (mut s, _bound) = session(&engine);
    s.begin_statement();
    insert(&mut s, &t, 0..100);
    // Both tables in turn, within one statement.
    for id in 0..10 {
        insert(&mut s, &u, id..id + 1);
        assert_eq!(read_some(&mut s, &t, id, id), 1);
    }
    assert_eq!(engine.work().iter().filter(|w| w.figures != WorkFigures::default()).count(), 0, "not before its end");
    s.end_statement();
    assert_eq!((rows(&engine, "db/t", None), rows(&engine, "db/t", Some("by_id"))), ((0, 100), (10, 0)));
    assert_eq!((rows(&engine, "db/u", None), rows(&engine, "db/u", Some("by_id"))), ((0, 10), (0, 0)));
    // Without statements, when the transaction ends; what is rolled back was done all the same.
    assert_eq!(read_all(&mut s, &t), 100);
    let ids: Vec<_> = {
        let mut rows = s.rows(&t).unwrap();
        std::iter::from_fn(|| rows.next().unwrap().map(|row| row.id())).take(3).collect()
    };
    s.update(&t, ids[0], &[1000u64.into(), "other".into()]).unwrap();
    s.delete(&t, ids[1]).unwrap();
    s.rollback().unwrap();
    let (read, changed) = rows(&engine, "db/t", None);
    assert!((103..=200).contains(&read) && changed == 102, "{read} {changed}");
    let names: Vec<_> = engine.work().into_iter().map(|w| (w.table, w.index)).collect();
    let index = |name: &str| Some(name.to_owned());
    let each = [None, index("by_id"), index("by_what")];
    let all: Vec<_> = ["db/t", "db/u"].iter().flat_map(|t| each.clone().map(|i| ((*t).to_owned(), i))).collect();
    assert_eq!(names, all);
    engine.forget_work();
    assert!(engine.work().iter().all(|w| w.figures == WorkFigures::default()));
}

#[test]
fn blocks_are_of_those_who_came_to_them() {
    let folder = folder("blocks");
    {
        let engine = open(&folder);
        let t = create(&engine, "db/t");
        insert(&mut engine.session(), &t, 0..1); // not bound: nobody's
        let (mut s, _bound) = session(&engine);
        insert(&mut s, &t, 0..3000);
        s.commit().unwrap();
        assert_eq!(rows(&engine, "db/t", None), (0, 3000));
        drop((s, t));
        engine.checkpoint().unwrap();
        engine.close().unwrap();
    }
    // Nothing is in the cache now.
    let engine = open(&folder);
    let t = engine.open_table("db/t").unwrap();
    let (mut s, _bound) = session(&engine);
    assert_eq!(of(&engine, "db/t", None), WorkFigures::default(), "since the start");
    // A change that has to look whether its key is free.
    assert!(s.insert(&t, &[7u64.into(), "x".into()]).is_err());
    s.rollback().unwrap();
    let (table, index) = (of(&engine, "db/t", None), of(&engine, "db/t", Some("by_id")));
    assert_eq!((index.blocks_read, index.blocks_read_by_changes), (1, 1), "{index:?}");
    assert_eq!((table.blocks_read, table.blocks_cached, table.rows_changed), (0, 0, 0), "{table:?}");
    // That block again, and one of rows that was not there.
    assert_eq!(read_some(&mut s, &t, 7, 7), 1);
    s.commit().unwrap();
    let index = of(&engine, "db/t", Some("by_id"));
    assert_eq!((index.blocks_read, index.blocks_cached, index.blocks_read_by_changes), (2, 1, 1), "{index:?}");
    assert_eq!((index.rows_read, of(&engine, "db/t", None).blocks_read), (1, 0));
    assert_eq!(read_all(&mut s, &t), 3000);
    s.commit().unwrap();
    let table = of(&engine, "db/t", None);
    assert!(table.blocks_read > 20 && table.blocks_read_by_changes == 0, "{table:?}");
}

/// A disk whose files say what they are told to of who answers them.
#[derive(Default)]
struct Told {
    disk: PosixDisk,
    says: Arc<Mutex<Option<Source>>>,
}

struct ToldFile(Arc<dyn File>, Arc<Mutex<Option<Source>>>);

impl File for ToldFile {
    fn path(&self) -> &Path {
        self.0.path()
    }
    fn read_at(&self, buf: &mut [u8], offset: u64) -> esker::io::Result<()> {
        self.0.read_at(buf, offset)
    }
    fn read_at_from(&self, buf: &mut [u8], offset: u64) -> esker::io::Result<Option<Source>> {
        self.0.read_at(buf, offset)?;
        Ok(*self.1.lock().unwrap())
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> esker::io::Result<()> {
        self.0.write_at(buf, offset)
    }
    fn sync_data(&self) -> esker::io::Result<()> {
        self.0.sync_data()
    }
    fn sync_all(&self) -> esker::io::Result<()> {
        self.0.sync_all()
    }
    fn size_bytes(&self) -> esker::io::Result<u64> {
        self.0.size_bytes()
    }
    fn set_size(&self, size_bytes: u64) -> esker::io::Result<()> {
        self.0.set_size(size_bytes)
    }
    fn reserve(&self, offset: u64, size_bytes: u64) -> esker::io::Result<()> {
        self.0.reserve(offset, size_bytes)
    }
}

impl Disk for Told {
    fn open(&self, path: &Path, mode: OpenMode, hint: AccessHint) -> esker::io::Result<Arc<dyn File>> {
        Ok(Arc::new(ToldFile(self.disk.open(path, mode, hint)?, self.says.clone())))
    }
    fn create_dir(&self, path: &Path) -> esker::io::Result<()> {
        self.disk.create_dir(path)
    }
    fn list(&self, path: &Path) -> esker::io::Result<Vec<DirEntry>> {
        self.disk.list(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> esker::io::Result<()> {
        self.disk.rename(from, to)
    }
    fn link(&self, from: &Path, to: &Path) -> esker::io::Result<()> {
        self.disk.link(from, to)
    }
    fn remove(&self, path: &Path) -> esker::io::Result<()> {
        self.disk.remove(path)
    }
    fn remove_dir(&self, path: &Path) -> esker::io::Result<()> {
        self.disk.remove_dir(path)
    }
    fn sync_dir(&self, path: &Path) -> esker::io::Result<()> {
        self.disk.sync_dir(path)
    }
    fn exists(&self, path: &Path) -> esker::io::Result<bool> {
        self.disk.exists(path)
    }
    fn lock(&self, path: &Path) -> esker::io::Result<Box<dyn LockGuard>> {
        self.disk.lock(path)
    }
    fn free_bytes(&self, path: &Path) -> esker::io::Result<u64> {
        self.disk.free_bytes(path)
    }
}

#[test]
fn blocks_are_of_the_page_cache_or_of_the_device() {
    let folder = folder("sources");
    // With what one reads block by block, and with what one reads several by one call.
    for read_blocks in [1, 64] {
        let _ = std::fs::remove_dir_all(&folder.0);
        let disk = Arc::new(Told::default());
        let open = || {
            let options = Options { background: Background::Inline, block_bytes: 4 << 10, ..Options::default() };
            Engine::open(disk.clone(), &folder.0, options, Arc::new(|_, _| {})).unwrap()
        };
        let engine = open();
        let t = create(&engine, "db/t");
        let (mut s, bound) = session(&engine);
        insert(&mut s, &t, 0..3000);
        s.commit().unwrap();
        drop((bound, s, t));
        engine.checkpoint().unwrap();
        engine.close().unwrap();
        for says in [None, Some(Source::PageCache), Some(Source::Device)] {
            // Nothing is in the cache now.
            let engine = open();
            let t = engine.open_table("db/t").unwrap();
            let (mut s, _bound) = session(&engine);
            s.set_read_blocks(read_blocks);
            *disk.says.lock().unwrap() = says;
            // A change that looks into an index, then that index, then all rows.
            assert!(s.insert(&t, &[7u64.into(), "x".into()]).is_err());
            s.rollback().unwrap();
            assert_eq!(read_some(&mut s, &t, 1000, 1000), 1);
            assert_eq!(read_all(&mut s, &t), 3000);
            s.commit().unwrap();
            let (table, index) = (of(&engine, "db/t", None), of(&engine, "db/t", Some("by_id")));
            assert!(table.blocks_read > 20 && index.blocks_read >= 2 && index.blocks_read_by_changes == 1, "{index:?}");
            for of in [table, index] {
                let (pagecache, device) = match says {
                    None => (0, 0),
                    Some(Source::PageCache) => (of.blocks_read, 0),
                    Some(Source::Device) => (0, of.blocks_read),
                };
                assert_eq!((of.blocks_pagecache, of.blocks_device), (pagecache, device), "{says:?} {of:?}");
                assert_eq!(of.knows_source(), says.is_some());
            }
            let counted =
                [Counter::BlocksMissed, Counter::BlocksPagecache, Counter::BlocksDevice, Counter::BlocksReadAhead];
            let [missed, pagecache, device, ahead] = counted.map(|c| s.counters().get(c));
            assert_eq!((missed, ahead > 20), (table.blocks_read + index.blocks_read, read_blocks > 1));
            assert_eq!(pagecache, table.blocks_pagecache + index.blocks_pagecache);
            assert_eq!(device, table.blocks_device + index.blocks_device);
            // From Esker's cache: nobody is asked.
            engine.forget_work();
            assert_eq!(read_all(&mut s, &t), 3000);
            s.commit().unwrap();
            let table = of(&engine, "db/t", None);
            assert!((table.blocks_read, table.knows_source()) == (0, true) && table.blocks_cached > 20, "{table:?}");
        }
    }
}

#[test]
fn waits_for_rows_are_of_their_table() {
    let folder = folder("waits");
    let engine = open(&folder);
    let (t, u) = (create(&engine, "db/t"), create(&engine, "db/u"));
    let (mut s, _bound) = session(&engine);
    insert(&mut s, &t, 0..1);
    insert(&mut s, &u, 0..1);
    s.commit().unwrap();
    let id = s.rows(&t).unwrap().next().unwrap().unwrap().id();
    s.delete(&t, id).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut other, _bound) = session(&engine);
            other.set_lock_wait(Duration::from_millis(20), false);
            assert_eq!(read_all(&mut other, &u), 1);
            assert!(other.delete(&t, id).is_err());
        });
    });
    let (t, u) = (of(&engine, "db/t", None), of(&engine, "db/u", None));
    assert_eq!((t.lock_waits, u.lock_waits, u.lock_wait_us), (1, 0, 0));
    assert!(t.lock_wait_us >= 20_000, "{t:?}");
}

#[test]
fn figures_stay_with_their_table() {
    let folder = folder("names");
    let engine = open(&folder);
    let t = create(&engine, "db/t");
    let (mut s, _bound) = session(&engine);
    insert(&mut s, &t, 0..50);
    s.commit().unwrap();
    assert_eq!(read_some(&mut s, &t, 0, 9), 10);
    s.commit().unwrap();
    let both = |name: &str| (rows(&engine, name, None), rows(&engine, name, Some("by_id")));
    engine.rename_table("db/t", "db/u").unwrap();
    assert_eq!(both("db/u"), ((0, 50), (10, 0)));
    engine.rename_table("db/u", "db/t").unwrap();
    engine.truncate_table("db/t").unwrap();
    assert_eq!(both("db/t"), ((0, 50), (10, 0)));
    // Other indexes: what is kept keeps its figures, under another name, too.
    let renamed = IndexPlan::Keep { index: 0, name: "by_number".into() };
    let new = IndexDef { name: "again".into(), ..by_what(&t) };
    let built = engine.build_indexes(&t, &[renamed, IndexPlan::Add(new)], &mut |_, _| true).unwrap();
    engine.alter_indexes(vec![built]).unwrap();
    assert_eq!(rows(&engine, "db/t", Some("by_number")), (10, 0));
    assert_eq!(rows(&engine, "db/t", Some("again")), (0, 0));
    assert!(!engine.work().iter().any(|w| w.index.as_deref() == Some("by_what")));
    engine.drop_table("db/t").unwrap();
    assert_eq!(engine.work(), []);
    // Another one of its name begins anew.
    create(&engine, "db/t");
    assert_eq!(both("db/t"), ((0, 0), (0, 0)));
}

/// The definition of an index over the second column.
fn by_what(t: &Table) -> IndexDef {
    let def = TableDef::of(t.schema().unwrap()).unwrap().index("by_what", &["what"]).unwrap();
    def.indexes.into_iter().next().unwrap()
}

#[test]
fn a_copy_goes_on_where_its_table_was() {
    let folder = folder("copy");
    let engine = open(&folder);
    let (t, mut others) = (create(&engine, "db/t"), Vec::new());
    let (mut s, _bound) = session(&engine);
    insert(&mut s, &t, 0..50);
    s.commit().unwrap();
    assert_eq!(read_some(&mut s, &t, 0, 9), 10);
    s.commit().unwrap();
    // Somebody has left that name before, and is still there.
    let old = create(&engine, "db/x");
    engine.rename_table("db/t", "db/y").unwrap();
    engine.rename_table("db/x", "db/t").unwrap();
    insert(&mut s, &old, 0..1000);
    s.commit().unwrap();
    engine.rename_table("db/t", "db/x").unwrap();
    engine.rename_table("db/y", "db/t").unwrap();
    // As ALTER TABLE does, which drops the old one at last, or gives it its name back.
    let copy = create(&engine, "db/#copy");
    insert(&mut s, &copy, 0..5);
    s.commit().unwrap();
    engine.rename_table("db/t", "db/#before").unwrap();
    engine.show_table("db/#copy", "db/t").unwrap();
    assert_eq!((rows(&engine, "db/t", None), rows(&engine, "db/t", Some("by_id"))), ((0, 55), (10, 0)));
    assert_eq!(rows(&engine, "db/#before", None), (0, 50));
    // More tables than a session gathers figures of.
    for n in 0..100u64 {
        let name = format!("db/n{n}");
        others.push((create(&engine, &name), name));
    }
    s.begin_statement();
    others.iter().for_each(|(t, _)| insert(&mut s, t, 0..1));
    others.iter().for_each(|(t, _)| assert_eq!(read_all(&mut s, t), 1));
    s.end_statement();
    assert!(others.iter().all(|(_, name)| rows(&engine, name, None) == (1, 1)));
}
