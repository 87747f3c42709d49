//! Prepared transactions of many rows after a restart: their runs say which rows they are of, so that opening reads no block,
//! and whatever of that cannot be read leaves no row unlocked.

use crate::tests::indexes::{def, image, Row};
use crate::tests::support::{begin, count, insert_seven, make, number, open_with, options, roomy};
use crate::tree::run::Run;
use crate::upkeep::flush;
use crate::*;
use esker_format::run::{container_kind, encode_end, section_kind, Part, PartPlace, RunFooter, Section};
use esker_format::{BlockEntry, FileId, RowId};
use esker_io::{AccessHint, Disk, File, IoKind, OpenMode, SimDisk};
use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Rows that are there before.
const THERE: u32 = 3000;
/// Rows that the prepared transaction inserts, each with a key of its own from here on.
const NEW: std::ops::Range<u32> = 100_000..106_000;

/// Short blocks, so that there are many, and large writes begin soon.
fn soon() -> Options {
    let wal_segment_bytes = 256 << 10;
    Options {
        bulk_threshold_bytes: 8 << 10,
        min_run_bytes: 8 << 10,
        block_bytes: 1 << 10,
        wal_segment_bytes,
        ..options()
    }
}

fn row(a: u32) -> Row {
    Row { a, c: None, text: vec![b'x'; 60] }
}

fn insert(s: &mut Session, t: &Arc<Table>, a: u32) -> Result<RowId> {
    // SAFETY: an image of this table's layout.
    unsafe { s.insert_image(t, image(&row(a)).as_ptr()) }
}

fn update(s: &mut Session, t: &Arc<Table>, id: RowId, a: u32) {
    // SAFETY: the same.
    unsafe { s.update_image(t, id, image(&row(a)).as_ptr()) }.unwrap();
}

/// A table and its rows.
type Filled = (Arc<Table>, Vec<RowId>);

/// Tables with so many rows each, in runs.
fn tables(disk: &SimDisk, options: Options, names: &[&str]) -> (Engine, Vec<Filled>) {
    let e = open_with(disk, options).unwrap();
    let fill = |name: &&str| {
        e.create_table(name, &def()).unwrap();
        let t = e.open_table(name).unwrap();
        let mut s = e.session();
        begin(&mut s);
        let ids = (0..THERE).map(|a| insert(&mut s, &t, a).unwrap()).collect();
        s.commit().unwrap();
        (t, ids)
    };
    let tables = names.iter().map(fill).collect();
    e.checkpoint().unwrap();
    (e, tables)
}

/// A session that waits for nobody, in a statement.
fn at_once(e: &Engine) -> Session {
    let mut s = e.session();
    s.set_lock_wait(Duration::ZERO, true);
    begin(&mut s);
    s
}

/// Can another transaction write this row?
fn is_free(e: &Engine, name: &str, id: RowId) -> bool {
    let (mut s, t) = (at_once(e), e.open_table(name).unwrap());
    let deleted = s.delete(&t, id);
    s.rollback().unwrap();
    match deleted {
        Err(Error::WouldBlock) => false,
        Ok(()) => true,
        Err(e) => panic!("row {id}: {e}"),
    }
}

/// Can another transaction insert this key?
fn is_key_free(e: &Engine, name: &str, a: u32) -> bool {
    let (mut s, t) = (at_once(e), e.open_table(name).unwrap());
    let inserted = insert(&mut s, &t, a);
    s.rollback().unwrap();
    match inserted {
        Err(Error::WouldBlock) => false,
        Ok(_) | Err(Error::DuplicateKey { .. }) => true,
        Err(e) => panic!("key {a}: {e}"),
    }
}

/// The runs of prepared transactions in a table's rows.
fn private(t: &Table) -> Vec<Arc<Run>> {
    t.tree().snapshot().runs.iter().filter(|r| r.owner.is_some()).map(|r| r.run.clone()).collect()
}

/// Blocks of all runs of the tables' rows cannot be read from now on, but for those that lie so far behind that a look at what
/// follows the blocks meets them; how many there are in runs of prepared transactions.
fn hide_blocks(disk: &SimDisk, tables: &[Arc<Table>]) -> usize {
    const LOOK: u64 = 16 << 10;
    let mut blocks = 0;
    for t in tables {
        for handle in &t.tree().snapshot().runs {
            let index = handle.run.index().unwrap();
            let path = handle.run.path();
            let size = disk.open(&path, OpenMode::Read, AccessHint::Blocks).unwrap().size_bytes().unwrap();
            let end = |entry: &BlockEntry| entry.offset + u64::from(entry.stored_bytes);
            let last = index.entries().iter().map(end).max().unwrap().saturating_sub(LOOK);
            for entry in index.entries().iter().filter(|e| end(e) <= last && end(e) + LOOK <= size) {
                disk.fail_reads_of(&path, entry.offset..end(entry), IoKind::Failed).unwrap();
                blocks += usize::from(handle.owner.is_some());
            }
        }
    }
    blocks
}

/// Opens the folder after a crash, on a disk that gives no block of rows out, by few reads for each run.
fn reopen(disk: &SimDisk, e: Engine, options: Options) -> Engine {
    let tables: Vec<_> = e.tables().iter().map(|name| e.open_table(name).unwrap()).collect();
    let runs: Vec<_> = tables.iter().flat_map(|t| private(t)).collect();
    assert!(runs.iter().all(|run| run.row_ids().unwrap().is_some()), "a run of a transaction does not tell its rows");
    let blocks = hide_blocks(disk, &tables);
    drop((e, tables));
    disk.crash();
    let before = disk.read_count();
    let e = open_with(disk, options).unwrap();
    let reads = (disk.read_count() - before) as usize;
    let opened: Vec<_> = e.tables().iter().flat_map(|name| private(&e.open_table(name).unwrap())).collect();
    assert_eq!(opened.len(), runs.len());
    assert!(opened.iter().all(|run| run.index_in_memory().is_none()), "an index was read");
    assert!(reads <= 4 * runs.len() + 40 && blocks > 5 * reads, "{reads} reads, {} runs, {blocks} blocks", runs.len());
    disk.clear_plans();
    e
}

/// What is expected of the tables of [`prepare_much`].
struct Expected {
    ids: Vec<Vec<RowId>>,
    new: Vec<RowId>,
}

impl Expected {
    fn is_changed(at: usize) -> bool {
        at % 3 == 0 || at % 7 == 0
    }

    /// Everything that the transaction has written is locked, and nothing else.
    fn check(&self, e: &Engine, when: &str) {
        for (at, id) in self.ids[0].iter().enumerate().step_by(5) {
            assert_eq!(is_free(e, "some", *id), !Self::is_changed(at), "row {id} of some, {when}");
        }
        for id in self.ids[1].iter().step_by(131) {
            assert!(!is_free(e, "emptied", *id), "row {id} of emptied, {when}");
        }
        for id in self.ids[2].iter().step_by(7) {
            assert!(!is_free(e, "deleted", *id), "row {id} of deleted, {when}");
        }
        assert!(self.new.iter().all(|id| is_locked(e, "some", *id)), "a new row, {when}");
        for a in NEW.step_by(97) {
            assert!(!is_key_free(e, "some", a), "key {a} of a new row, {when}");
        }
        // Old and new keys of updated rows, and those of deleted ones.
        for a in [3, 9, 200_003, 200_009, 7, 14] {
            assert!(!is_key_free(e, "some", a), "key {a} of some, {when}");
        }
        for a in [1, 2, 4, 200_001, 300_000, 300_999] {
            assert!(is_key_free(e, "some", a), "key {a} of some, {when}");
        }
        assert!(!is_key_free(e, "emptied", 17) && !is_key_free(e, "deleted", 17), "{when}");
        assert!(is_key_free(e, "deleted", THERE) && is_key_free(e, "emptied", THERE + 1000), "{when}");
    }
}

/// Has a prepared transaction that has runs in the table locked this row, which nobody else sees?
fn is_locked(e: &Engine, name: &str, id: RowId) -> bool {
    let t = e.open_table(name).unwrap();
    let owner = t.tree().snapshot().runs.iter().find_map(|r| r.owner.clone()).unwrap();
    e.core.locks.holds(&owner.locks, t.tree_id(), id, LockMode::Exclusive)
}

/// One transaction inserts, updates and deletes in one table, empties another one and deletes all rows of a third; what it
/// does behind a savepoint is rolled back.
fn prepare_much(e: &Engine, tables: &[Filled]) -> Expected {
    let [(some, ids), (emptied, _), (deleted, all)] = tables else { unreachable!() };
    let mut s = e.session();
    begin(&mut s);
    let new: Vec<_> = NEW.map(|a| insert(&mut s, some, a).unwrap()).collect();
    for (at, id) in ids.iter().enumerate() {
        match (at % 3, at % 7) {
            (0, _) => update(&mut s, some, *id, 200_000 + at as u32),
            (_, 0) => s.delete(some, *id).unwrap(),
            _ => {}
        }
    }
    s.delete_all(emptied).unwrap();
    for a in 0..1000 {
        insert(&mut s, emptied, THERE + 2000 + a).unwrap();
    }
    all.iter().for_each(|id| s.delete(deleted, *id).unwrap());
    s.end_statement();
    let point = s.savepoint();
    s.begin_statement();
    for a in 0..1000 {
        insert(&mut s, some, 300_000 + a).unwrap();
    }
    new.iter().step_by(2).for_each(|id| s.delete(some, *id).unwrap());
    s.rollback_to(&point);
    s.prepare(b"x").unwrap();
    s.detach_prepared();
    // Inserted in bulk, spilled with updates and deletes, spilled alone.
    assert!(private(some).len() > 1 && !private(emptied).is_empty() && !private(deleted).is_empty());
    Expected { ids: tables.iter().map(|t| t.1.clone()).collect(), new }
}

/// Commits so much to a table of its own that a checkpoint leaves the PREPARE behind.
fn write_on(e: &Engine) {
    let t = e.open_table("other").unwrap();
    let (mut s, mut a) = (e.session(), e.core.wal.end_lsn().0 as u32);
    let from = e.core.signals.replay_from();
    for _ in 0..8 {
        begin(&mut s);
        (0..60).for_each(|_| {
            insert(&mut s, &t, a).unwrap();
            a += 1;
        });
        s.commit().unwrap();
    }
    flush::all(&e.core).unwrap();
    assert!(e.core.signals.replay_from() > from, "the checkpoint did not pass the PREPARE");
}

#[test]
fn what_is_prepared_is_locked_by_what_its_runs_say() {
    for commit in [true, false] {
        let disk = SimDisk::new(1);
        let (e, tables) = tables(&disk, soon(), &["some", "emptied", "deleted"]);
        e.create_table("other", &def()).unwrap();
        let expected = prepare_much(&e, &tables);
        drop(tables);
        let e = reopen(&disk, e, soon());
        expected.check(&e, "after a restart");
        let e = reopen(&disk, e, soon());
        expected.check(&e, "after another one");
        write_on(&e);
        write_on(&e);
        let e = reopen(&disk, e, soon());
        expected.check(&e, "after the log went on");
        let decided = if commit { e.commit_xid(b"x") } else { e.rollback_xid(b"x") };
        assert!(decided.unwrap());
        let mut s = e.session();
        for (name, committed) in [("some", 3000 - 286 + 6000), ("emptied", 1000), ("deleted", 0)] {
            let t = e.open_table(name).unwrap();
            let rows = if commit { committed } else { u64::from(THERE) };
            assert_eq!(s.count(&t).unwrap(), rows, "{name}");
            for index in 0..3 {
                let report = s.check_index(&t, index).unwrap();
                assert_eq!((report.rows, &report.wrong[..]), (rows, &[][..]), "index {index} of {name}");
            }
            let report = e.check(&t, &mut |_, _| true).unwrap();
            assert!(report.damages.is_empty(), "{:?}", report.damages);
        }
        assert_eq!(e.core.locks.stats().rows, 0, "locks are left");
    }
}

/// So many rows that a few bytes say of whole containers of locks that all of them are there.
#[test]
fn rows_of_several_containers_are_locked() {
    let disk = SimDisk::new(1);
    let e = open_with(&disk, soon()).unwrap();
    let (t, mut s) = (make(&e, "t", &number()), e.session());
    begin(&mut s);
    let ids: Vec<_> = (0..250_000).map(|_| insert_seven(&mut s, &t)).collect();
    s.prepare(b"x").unwrap();
    s.detach_prepared();
    let said: usize = private(&t).iter().map(|run| run.row_ids().unwrap().unwrap().stored().len()).sum();
    assert!(said < 100, "{said} bytes for rows that follow each other");
    drop((s, t));
    let e = reopen(&disk, e, soon());
    assert!(ids.iter().step_by(101).chain(ids.last()).all(|id| is_locked(&e, "t", *id)));
    assert_eq!(e.core.locks.stats().rows, ids.len() as u64);
    assert!(e.commit_xid(b"x").unwrap());
    assert_eq!(count(&e, "t"), ids.len() as u64);
}

/// What a flush moves out of the shared memtable tells its rows as well.
#[test]
fn moved_runs_say_their_rows() {
    let disk = SimDisk::new(1);
    let options = || Options { block_bytes: 512, wal_segment_bytes: 256 << 10, ..roomy() };
    let (e, tables) = tables(&disk, options(), &["t"]);
    let (t, ids) = &tables[0];
    let mut s = e.session();
    begin(&mut s);
    ids.iter().step_by(2).for_each(|id| update(&mut s, t, *id, 400_000 + id.0 as u32));
    assert!(private(t).is_empty());
    flush::tree(&e.core, t, &t.tree()).unwrap();
    assert_eq!(private(t).len(), 1, "nothing was moved");
    s.prepare(b"x").unwrap();
    s.detach_prepared();
    drop(s);
    let ids = ids.clone();
    drop(tables);
    let e = reopen(&disk, e, options());
    for (at, id) in ids.iter().enumerate().step_by(13) {
        assert_eq!(is_free(&e, "t", *id), at % 2 == 1, "row {id}");
    }
}

/// Every second row was changed by a transaction that is prepared; the runs that it has.
fn prepared_runs() -> (SimDisk, Vec<RowId>, Vec<(PathBuf, FileId)>) {
    let disk = SimDisk::new(1);
    let (e, tables) = tables(&disk, soon(), &["t"]);
    let (t, ids) = &tables[0];
    let mut s = e.session();
    begin(&mut s);
    ids.iter().step_by(2).for_each(|id| update(&mut s, t, *id, 400_000 + id.0 as u32));
    s.prepare(b"x").unwrap();
    s.detach_prepared();
    let runs: Vec<_> = private(t).iter().map(|run| (run.path(), run.file_id)).collect();
    assert!(!runs.is_empty());
    let ids = ids.clone();
    drop((s, tables, e));
    disk.crash();
    (disk, ids, runs)
}

/// A run file: its bytes, and its parts.
fn read_file(disk: &SimDisk, (path, id): &(PathBuf, FileId)) -> (Arc<dyn File>, Vec<u8>, Vec<Part>) {
    let file = disk.open(path, OpenMode::Write, AccessHint::Blocks).unwrap();
    let mut bytes = vec![0; file.size_bytes().unwrap() as usize];
    file.read_at(&mut bytes, 0).unwrap();
    let footer = RunFooter::decode(&bytes, bytes.len() as u64).unwrap();
    let directory = &bytes[footer.directory_offset as usize..][..footer.directory_bytes() as usize];
    let places = footer.decode_directory(directory).unwrap();
    let part = |(n, place): (usize, &PartPlace)| {
        Part::decode(*id, n as u32, &places, &bytes[place.offset as usize..][..place.bytes as usize]).unwrap()
    };
    let parts = places.iter().enumerate().map(part).collect();
    (file, bytes, parts)
}

/// Writes a run file anew, with sections that `change` makes others of, whole and sealed; how many parts told their rows.
fn rewrite(disk: &SimDisk, run: &(PathBuf, FileId), change: impl Fn(&mut Part, &mut [u8])) -> usize {
    let (file, mut bytes, mut parts) = read_file(disk, run);
    let (mut places, mut had) = (Vec::new(), 0);
    for part in &mut parts {
        if part.section(section_kind::ROW_IDS).is_ok() {
            change(part, &mut bytes);
            had += 1;
        }
        // Its footer stays where it is, and is shorter or as long.
        let last = part.sections.iter().map(|s| s.offset + s.bytes).max().unwrap() as usize;
        let mut footer = Vec::new();
        places.push(part.encode(run.1, last as u64, &mut footer));
        bytes[last..last + footer.len()].copy_from_slice(&footer);
    }
    bytes.truncate(places[places.len() - 1].end() as usize);
    let mut tail = Vec::new();
    encode_end(run.1, &places, bytes.len() as u64, &mut tail);
    bytes.extend_from_slice(&tail);
    file.set_size(bytes.len() as u64).unwrap();
    file.write_at(&bytes, 0).unwrap();
    file.sync_all().unwrap();
    had
}

/// Opens the folder, and tells what it was told.
fn open_told(disk: &SimDisk) -> (Engine, Vec<String>) {
    let told = Arc::new(Mutex::new(Vec::new()));
    let tell = told.clone();
    let notify: Notify = Arc::new(move |text: &str, _| tell.lock().unwrap().push(text.to_owned()));
    let e = Engine::open(Arc::new(disk.clone()), std::path::Path::new("/db"), soon(), notify).unwrap();
    let told = told.lock().unwrap().clone();
    (e, told)
}

/// Every second row is locked; how many others are.
fn second_rows(e: &Engine, ids: &[RowId], when: &str) -> usize {
    let free = ids.iter().step_by(9).map(|id| is_free(e, "t", *id)).enumerate();
    let (changed, others): (Vec<_>, Vec<_>) = free.partition(|(at, _)| at % 2 == 0);
    assert!(changed.iter().all(|(_, free)| !free), "{when}");
    others.iter().filter(|(_, free)| !free).count()
}

/// As an earlier version has written them.
#[test]
fn runs_that_say_nothing_of_their_rows_are_read() {
    let (disk, ids, runs) = prepared_runs();
    let forget = |part: &mut Part, _: &mut [u8]| part.sections.retain(|s| s.kind != section_kind::ROW_IDS);
    let had: usize = runs.iter().map(|run| rewrite(&disk, run, forget)).sum();
    assert!(had > 0);
    let (e, told) = open_told(&disk);
    assert!(private(&e.open_table("t").unwrap()).iter().all(|run| run.row_ids().unwrap().is_none()));
    assert!(told.iter().all(|text| !text.contains("locked")), "{told:?}");
    assert_eq!(second_rows(&e, &ids, "without the section"), 0);
    assert!(e.commit_xid(b"x").unwrap());
    let t = e.open_table("t").unwrap();
    assert!(e.check(&t, &mut |_, _| true).unwrap().damages.is_empty());
}

/// The blocks tell what the section does not; without them all rows that may be there are locked.
#[test]
fn damage_of_what_a_run_says_of_its_rows_unlocks_none() {
    let (whole, ids, runs) = prepared_runs();
    for way in ["a bit", "blocks too"] {
        let disk = whole.snapshot();
        let mut sections = HashSet::new();
        for run in &runs {
            let (_, _, parts) = read_file(&disk, run);
            for part in &parts {
                let Ok(section) = part.section(section_kind::ROW_IDS) else { continue };
                sections.insert(section.offset);
                disk.damage(&run.0, section.offset, &[1]).unwrap();
                if way == "blocks too" {
                    disk.fail_reads_of(&run.0, part.first_block..section.offset, IoKind::Failed).unwrap();
                }
            }
        }
        let (e, told) = open_told(&disk);
        disk.clear_plans();
        let told = told.iter().filter(|text| text.contains("what a prepared transaction has locked"));
        assert_eq!((told.count(), sections.is_empty()), (sections.len(), false), "{way}");
        assert_eq!(second_rows(&e, &ids, way) > 0, way == "blocks too", "{way}");
        let t = e.open_table("t").unwrap();
        let found = e.check(&t, &mut |_, _| true).unwrap().damages;
        let found: HashSet<u64> = found.iter().map(offset_of).collect();
        assert_eq!(found, sections, "what CHECK TABLE found, {way}");
        assert!(e.commit_xid(b"x").unwrap());
        assert_eq!(e.session().count(&t).unwrap(), u64::from(THERE));
    }
}

fn offset_of(e: &Error) -> u64 {
    match e {
        Error::Damage { offset, .. } => *offset,
        e => panic!("{e}"),
    }
}

/// A set that is not the run's, though it is whole: opening sees what does not agree with the log's figures, CHECK TABLE all.
#[test]
fn what_a_run_says_of_others_rows_is_found() {
    let (whole, ids, runs) = prepared_runs();
    // Of the first one, and of one in the middle.
    for (place, by_log) in [(4, true), (4 + 2 * 700, false)] {
        let disk = whole.snapshot();
        let lie = |part: &mut Part, bytes: &mut [u8]| {
            let at = part.sections.iter().position(|s| s.kind == section_kind::ROW_IDS).unwrap();
            let said = part.sections[at];
            let set = said.offset as usize..(said.offset + said.bytes) as usize;
            assert_eq!(bytes[set.start + 1], container_kind::LIST);
            bytes[set.start + place] += 1;
            part.sections[at] = Section::written(runs[0].1, said.kind, false, 0, bytes, set);
        };
        assert_eq!(runs.iter().map(|run| rewrite(&disk, run, lie)).sum::<usize>(), 1);
        let (e, told) = open_told(&disk);
        let told = told.iter().filter(|text| text.contains("against the log's figures")).count();
        assert_eq!(told, usize::from(by_log));
        if by_log {
            assert_eq!(second_rows(&e, &ids, "another first row"), 0);
        }
        let t = e.open_table("t").unwrap();
        let found = e.check(&t, &mut |_, _| true).unwrap().damages;
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].to_string().contains("row ids of a run against"), "{found:?}");
    }
}
