//! The number of rows that is kept: exact for every view, whatever others do, over restarts, and without reading a row.

use crate::tests::formats::{content, kill, put};
use crate::tests::hooks;
use crate::tests::support::*;
use crate::tests::tables::run_files;
use crate::upkeep::{background, checkpoint};
use crate::*;
use esker_base::counters::{bind, Counter, SessionCounters};
use esker_format::key_bytes::key_encoding;
use esker_format::{ColumnMask, Manifest, Record, RowId, TxnId};
use esker_io::SimDisk;
use std::path::Path;
use std::sync::{Arc, Mutex};

/// What is kept, which must be what a scan finds under the same view.
#[track_caller]
fn sees(s: &mut Session, t: &Arc<Table>) -> u64 {
    let own = SessionCounters::new();
    let bound = bind(&own);
    let kept = s.count(t).unwrap();
    assert_eq!((own.get(Counter::CountsKept), own.get(Counter::Scans)), (1, 0), "it was not known");
    drop(bound);
    assert_eq!(s.count_rows(t).unwrap(), kept, "by reading, and by what is kept");
    kept
}

/// The same for a new session.
#[track_caller]
fn newest(e: &Engine, t: &Arc<Table>) -> u64 {
    sees(&mut begun(e, false), t)
}

fn commit(e: &Engine, work: impl FnOnce(&mut Session)) {
    let mut s = begun(e, false);
    work(&mut s);
    s.commit().unwrap();
}

fn update(s: &mut Session, t: &Arc<Table>, row: RowId) -> Result<()> {
    // SAFETY: an image of this table's layout.
    unsafe { s.update_image(t, row, image(t, 77).as_ptr()) }
}

fn rows(s: &mut Session, t: &Arc<Table>, n: u64) -> Vec<RowId> {
    (0..n).map(|n| insert(s, t, n).unwrap()).collect()
}

#[test]
fn counting_reads_no_block() {
    let (disk, e, t) = one_table(small());
    commit(&e, |s| drop(rows(s, &t, 5000)));
    e.checkpoint().unwrap();
    drop((t, e));
    let e = open_with(&disk, small()).unwrap();
    let t = e.open_table("t").unwrap();
    let (own, reads) = (SessionCounters::new(), disk.read_count());
    let bound = bind(&own);
    let mut s = e.session();
    rows(&mut s, &t, 10);
    assert_eq!(s.count(&t).unwrap(), 5010);
    let blocks = own.get(Counter::BlocksCached) + own.get(Counter::BlocksMissed);
    assert_eq!((blocks, disk.read_count() - reads), (0, 0));
    drop(bound);
    assert_eq!(sees(&mut s, &t), 5010);
    assert!(!run_files(&disk).is_empty() && disk.read_count() > reads, "there was nothing to read");
}

#[test]
fn old_views_count_while_newer_commits_are_folded() {
    let (_, e, t) = one_table(options());
    let mut views = Vec::new();
    for n in 0..400u64 {
        commit(&e, |s| drop(rows(s, &t, n % 3)));
        if n % 90 == 1 {
            let mut view = begun(&e, false);
            let rows = sees(&mut view, &t);
            views.push((view, rows));
        }
        views.iter_mut().for_each(|(view, rows)| assert_eq!(view.count(&t).unwrap(), *rows));
    }
    views.iter_mut().for_each(|(view, rows)| assert_eq!(sees(view, &t), *rows));
    assert_eq!(newest(&e, &t), 399);
}

/// What its commit changes and what its own view sees are not the same.
#[test]
fn own_changes_of_rows_that_the_own_view_does_not_see() {
    for keep in [false, true] {
        let (_, e, t) = one_table(options());
        let mut ids = Vec::new();
        commit(&e, |s| ids = rows(s, &t, 3));
        let mut old = begun(&e, false);
        assert_eq!(sees(&mut old, &t), 3);
        commit(&e, |s| {
            ids.extend(rows(s, &t, 4));
            s.delete(&t, ids[2]).unwrap();
            update(s, &t, ids[1]).unwrap();
        });
        update(&mut old, &t, ids[1]).unwrap();
        assert_eq!(sees(&mut old, &t), 3);
        // It comes to be seen.
        update(&mut old, &t, ids[3]).unwrap();
        update(&mut old, &t, ids[3]).unwrap();
        assert_eq!(sees(&mut old, &t), 4);
        let point = old.savepoint();
        update(&mut old, &t, ids[4]).unwrap();
        old.delete(&t, ids[5]).unwrap();
        assert_eq!(sees(&mut old, &t), 5);
        if !keep {
            old.rollback_to(&point);
            assert_eq!(sees(&mut old, &t), 4);
        }
        old.delete(&t, ids[3]).unwrap();
        assert_eq!(sees(&mut old, &t), if keep { 4 } else { 3 });
        assert_eq!(newest(&e, &t), 6);
        old.commit().unwrap();
        assert_eq!(newest(&e, &t), if keep { 4 } else { 5 });
    }
}

/// As SQL does it, in a statement that has read by a view of its own; the next one has a newer.
#[test]
fn a_statements_view_is_not_the_next_ones() {
    let (_, e, t) = one_table(options());
    let mut s = e.session();
    s.begin(Isolation::ReadCommitted, BeginOptions::default());
    s.begin_statement();
    assert_eq!(sees(&mut s, &t), 0);
    commit(&e, |s| drop(rows(s, &t, 3)));
    let mut cursor = s.scan(&t, ScanOptions { mask: ColumnMask::all(2), ..locking() }).unwrap();
    for deleted in [true, false] {
        let row = cursor.next_batch(&mut s).unwrap().ids[0];
        match deleted {
            true => s.delete(&t, row).unwrap(),
            false => update(&mut s, &t, row).unwrap(),
        }
    }
    assert_eq!(sees(&mut s, &t), 1);
    s.end_statement();
    s.begin_statement();
    assert_eq!(sees(&mut s, &t), 2);
    s.commit().unwrap();
    assert_eq!(newest(&e, &t), 2);
}

#[test]
fn a_row_that_is_gone_is_not_deleted_again() {
    let (_, e, t) = one_table(options());
    let mut ids = Vec::new();
    commit(&e, |s| ids = rows(s, &t, 3));
    let mut s = begun(&e, false);
    s.delete(&t, ids[0]).unwrap();
    assert!(matches!(s.delete(&t, ids[0]), Err(Error::RowNotFound)));
    assert!(matches!(update(&mut s, &t, ids[0]), Err(Error::RowNotFound)));
    // It was read under its lock, which stays, and was not there before the savepoint.
    let point = s.savepoint();
    let new = insert(&mut s, &t, 9).unwrap();
    let mut cursor = s.open_cursor(&t, ScanOptions { mask: ColumnMask::all(2), ..locking() }).unwrap();
    assert!(cursor.fetch(&mut s, new).unwrap().is_some());
    s.rollback_to(&point);
    assert!(matches!(s.delete(&t, new), Err(Error::RowNotFound)));
    assert!(cursor.fetch(&mut s, ids[1]).unwrap().is_some());
    s.delete_all(&t).unwrap();
    assert!(matches!(s.delete(&t, ids[1]), Err(Error::RowNotFound)));
    assert_eq!(sees(&mut s, &t), 0);
    s.commit().unwrap();
    assert_eq!(newest(&e, &t), 0);
}

#[test]
fn emptied_twice_and_undone() {
    let (_, e, t) = one_table(options());
    commit(&e, |s| drop(rows(s, &t, 5)));
    let mut s = begun(&e, false);
    assert_eq!(sees(&mut s, &t), 5);
    let (mut beside, mut inserter) = (begun(&e, false), begun(&e, false));
    insert(&mut inserter, &t, 1).unwrap();
    rows(&mut s, &t, 2);
    let start = s.savepoint();
    s.delete_all(&t).unwrap();
    assert_eq!(sees(&mut s, &t), 0);
    let emptied = s.savepoint();
    rows(&mut s, &t, 3);
    // Not there when it was emptied.
    inserter.commit().unwrap();
    assert_eq!((sees(&mut s, &t), sees(&mut beside, &t), newest(&e, &t)), (3, 6, 6));
    s.delete_all(&t).unwrap();
    rows(&mut s, &t, 1);
    assert_eq!(sees(&mut s, &t), 1);
    s.rollback_to(&emptied);
    assert_eq!(sees(&mut s, &t), 0);
    s.rollback_to(&start);
    assert_eq!(sees(&mut s, &t), 7);
    s.begin_statement();
    s.delete_all(&t).unwrap();
    rows(&mut s, &t, 9);
    s.rollback_statement();
    assert_eq!(sees(&mut s, &t), 7);
    s.delete_all(&t).unwrap();
    rows(&mut s, &t, 2);
    s.commit().unwrap();
    assert_eq!(newest(&e, &t), 2);
}

/// Does something once, when the session has to wait.
struct Meanwhile(Mutex<Option<Box<dyn FnOnce() + Send>>>);

impl WaitHooks for Meanwhile {
    fn before_wait(&self) {
        let work = self.0.lock().unwrap().take();
        work.into_iter().for_each(|work| work());
    }
}

/// Rows that others commit while it waits for its lock go, too.
#[test]
fn emptied_while_others_insert() {
    let (_, e, t) = one_table(options());
    let mut ids = Vec::new();
    commit(&e, |s| ids = rows(s, &t, 4));
    let mut holder = begun(&e, false);
    update(&mut holder, &t, ids[0]).unwrap();
    let mut s = e.session();
    s.begin(Isolation::ReadCommitted, BeginOptions::default());
    let meanwhile = {
        let (e, t) = (e.clone(), t.clone());
        move || {
            commit(&e, |s| drop(rows(s, &t, 3)));
            holder.commit().unwrap();
        }
    };
    s.set_wait_hooks(Box::new(Meanwhile(Mutex::new(Some(Box::new(meanwhile))))));
    s.delete_all(&t).unwrap();
    assert_eq!(sees(&mut s, &t), 0);
    s.commit().unwrap();
    assert_eq!(newest(&e, &t), 0);
}

/// Inserts of a statement that fails: gathered for a run, then lost with the disk's space, and in a table with keys.
#[test]
fn a_statement_that_fails_in_the_middle() {
    let soon_runs = Options { bulk_threshold_bytes: 16 << 10, min_run_bytes: 16 << 10, ..small() };
    let (disk, e, t) = one_table(soon_runs);
    commit(&e, |s| drop(rows(s, &t, 7)));
    let mut s = begun(&e, false);
    rows(&mut s, &t, 2);
    s.begin_statement();
    disk.capacity(Some(disk.used_bytes()));
    let failed = (0..20_000).find_map(|n| insert(&mut s, &t, n).err());
    assert!(failed.is_some(), "the disk was not full");
    if let (Ok(kept), Ok(read)) = (s.count(&t), s.count_rows(&t)) {
        assert_eq!(kept, read);
    }
    s.rollback_statement();
    disk.capacity(None);
    assert_eq!(sees(&mut s, &t), 9);
    s.commit().unwrap();
    assert_eq!(newest(&e, &t), 9);
    // A large one that is not undone, and one that is.
    let mut s = begun(&e, false);
    rows(&mut s, &t, 3000);
    assert_eq!(s.count(&t).unwrap(), 3009);
    s.end_statement();
    s.begin_statement();
    rows(&mut s, &t, 3000);
    s.rollback_statement();
    assert_eq!(sees(&mut s, &t), 3009);
    s.commit().unwrap();
    assert_eq!(newest(&e, &t), 3009);
}

/// Commits before and after manifests, some of which replay finds in both.
#[test]
fn a_crash_counts_each_commit_once() {
    let (disk, mut e, mut t) = one_table(small());
    let u = make(&e, "u", &fixed(100));
    let mut want = 0;
    drop(u);
    for round in 0..6u64 {
        let mut keeps_log = begun(&e, false);
        rows(&mut keeps_log, &e.open_table("u").unwrap(), 1);
        keeps_log.commit().unwrap();
        for n in 0..80 {
            commit(&e, |s| {
                let ids = rows(s, &t, n % 4 + 1);
                s.delete(&t, ids[0]).unwrap();
                want += n % 4;
            });
            if n == 70 - 10 * round {
                checkpoint::write(&e.core).unwrap();
            }
        }
        if round % 2 == 0 {
            flush(&e, &t);
        }
        if round == 3 {
            e.truncate_table("t").unwrap();
            want = 0;
            commit(&e, |s| drop(rows(s, &t, 2)));
            want += 2;
        }
        assert_eq!(newest(&e, &t), want);
        drop((keeps_log, t, e));
        disk.crash();
        e = open_with(&disk, small()).unwrap();
        t = e.open_table("t").unwrap();
        assert_eq!(newest(&e, &t), want, "round {round}");
        assert_eq!(t.stats().rows, want);
    }
}

#[test]
fn prepared_transactions_count_once_they_are_committed() {
    let (disk, e, t) = one_table(small());
    let u = make(&e, "u", &fixed(100));
    let mut ids = Vec::new();
    commit(&e, |s| ids = rows(s, &t, 10));
    commit(&e, |s| drop(rows(s, &u, 10)));
    let prepare = |xid: &[u8], work: &dyn Fn(&mut Session)| {
        let mut s = begun(&e, false);
        work(&mut s);
        s.prepare(xid).unwrap();
        s.detach_prepared();
    };
    prepare(b"more", &|s| drop(rows(s, &t, 3000)));
    prepare(b"less", &|s| ids[..4].iter().for_each(|id| s.delete(&t, *id).unwrap()));
    prepare(b"undone", &|s| drop(rows(s, &t, 100)));
    prepare(b"none", &|s| s.delete_all(&u).unwrap());
    assert_eq!((newest(&e, &t), newest(&e, &u)), (10, 10));
    checkpoint::write(&e.core).unwrap();
    drop((t, u, e));
    let open = || {
        disk.crash();
        let e = open_with(&disk, small()).unwrap();
        let (t, u) = (e.open_table("t").unwrap(), e.open_table("u").unwrap());
        (e, t, u)
    };
    let (e, t, u) = open();
    assert_eq!((newest(&e, &t), newest(&e, &u)), (10, 10));
    assert!(e.commit_xid(b"more").unwrap() && e.rollback_xid(b"undone").unwrap());
    assert_eq!(newest(&e, &t), 3010);
    drop((t, u, e));
    let (e, t, u) = open();
    assert_eq!(newest(&e, &t), 3010);
    assert!(e.commit_xid(b"less").unwrap() && e.commit_xid(b"none").unwrap());
    commit(&e, |s| drop(rows(s, &u, 1)));
    assert_eq!((newest(&e, &t), newest(&e, &u)), (3006, 1));
    background::settle_all(&e.core).unwrap();
    drop((t, u, e));
    let (e, t, u) = open();
    assert_eq!((newest(&e, &t), newest(&e, &u)), (3006, 1));
}

/// Two-phase commit in one session: the decision comes between views, and the same XID is refused before it.
#[test]
fn decided_by_commit_ordered() {
    let (_, e, t) = one_table(options());
    let (mut s, mut other) = (begun(&e, false), begun(&e, false));
    rows(&mut s, &t, 2);
    s.prepare(b"x").unwrap();
    rows(&mut other, &t, 10);
    assert!(other.prepare(b"x").is_err());
    rows(&mut other, &t, 5);
    let mut before = begun(&e, false);
    assert_eq!(sees(&mut before, &t), 0);
    s.commit_ordered();
    let mut after = begun(&e, false);
    assert_eq!((sees(&mut before, &t), sees(&mut after, &t)), (0, 2));
    s.commit().unwrap();
    other.prepare(b"y").unwrap();
    other.commit().unwrap();
    assert_eq!((sees(&mut before, &t), sees(&mut after, &t), newest(&e, &t)), (0, 2, 17));
}

#[test]
fn emptied_tables_begin_anew() {
    let (_, e, t) = one_table(options());
    commit(&e, |s| drop(rows(s, &t, 5)));
    let mut old = begun(&e, false);
    assert_eq!(sees(&mut old, &t), 5);
    e.truncate_table("t").unwrap();
    assert!(matches!(old.count(&t), Err(Error::TableChanged(_))));
    assert_eq!(newest(&e, &t), 0);
    let temporary = make(&e, "temporary", &TableDef { temporary: true, ..fixed(8) });
    // Its view is older than the table.
    rows(&mut old, &temporary, 3);
    assert_eq!(sees(&mut old, &temporary), 3);
    e.truncate_table("temporary").unwrap();
    assert_eq!(sees(&mut old, &temporary), 0);
    rows(&mut old, &temporary, 2);
    assert_eq!(sees(&mut old, &temporary), 2);
}

/// Leaves the folder as an earlier version would: it has said nothing of how many rows there are.
fn of_an_earlier_version(disk: &SimDisk) {
    let mut manifest = Manifest::decode(&content(disk, "MANIFEST")).unwrap();
    manifest.tables.values_mut().for_each(|t| (t.live_rows, t.counted_at) = (40, esker_format::CommitSeq::ZERO));
    let mut bytes = Vec::new();
    manifest.encode(&mut bytes);
    put(disk, "MANIFEST", &bytes);
}

#[test]
fn the_first_count_of_a_table_of_an_earlier_version_reads_it() {
    let (disk, e, t) = one_table(small());
    commit(&e, |s| drop(rows(s, &t, 33)));
    e.checkpoint().unwrap();
    // What follows in the log does not tell, either.
    insert_untold(&e, &t, 1000, None);
    insert_untold(&e, &t, 1001, Some(b"x"));
    drop(t);
    let disk = kill(e, &disk);
    of_an_earlier_version(&disk);
    let e = open_with(&disk, small()).unwrap();
    let t = e.open_table("t").unwrap();
    assert_eq!(t.stats().rows, 41, "about");
    let count = |e: &Engine, t: &Arc<Table>| {
        let (own, mut s) = (SessionCounters::new(), begun(e, false));
        let _bound = bind(&own);
        let rows = s.count(t).unwrap();
        (rows, own.get(Counter::Scans))
    };
    // Its own rows are nobody else's.
    let mut s = begun(&e, false);
    rows(&mut s, &t, 4);
    assert_eq!(s.count(&t).unwrap(), 38);
    s.rollback().unwrap();
    assert_eq!(count(&e, &t), (34, 1));
    assert_eq!(count(&e, &t), (34, 0));
    assert!(e.commit_xid(b"x").unwrap());
    assert_eq!(count(&e, &t), (35, 1));
    assert_eq!((count(&e, &t), t.stats().rows), ((35, 0), 35));
    // From now on it is known.
    drop(t);
    e.checkpoint().unwrap();
    let disk = kill(e, &disk);
    let e = open_with(&disk, small()).unwrap();
    let t = e.open_table("t").unwrap();
    assert_eq!(newest(&e, &t), 35);
    // Until an earlier version comes between.
    insert_untold(&e, &t, 1002, None);
    drop(t);
    let disk = kill(e, &disk);
    let e = open_with(&disk, small()).unwrap();
    let t = e.open_table("t").unwrap();
    assert_eq!((count(&e, &t), count(&e, &t)), ((36, 1), (36, 0)));
    drop(t);
    let disk = kill(e, &disk);
    of_an_earlier_version(&disk);
    let e = open_with(&disk, small()).unwrap();
    let t = e.open_table("t").unwrap();
    let mut s = begun(&e, false);
    s.delete_all(&t).unwrap();
    rows(&mut s, &t, 1);
    assert_eq!((s.count(&t).unwrap(), s.current.open().unwrap().tables[0].own.change()), (1, -35));
    s.rollback().unwrap();
    assert!(e.check(&t, &mut |_, _| true).unwrap().damages.is_empty());
    assert_eq!(newest(&e, &t), 36, "a check counts, too");
}

/// What an earlier version logs for a transaction that inserts a row, and commits or is prepared.
fn insert_untold(e: &Engine, t: &Table, row: u64, xid: Option<&[u8]>) {
    let (mut packed, mut log) = (Vec::new(), Vec::new());
    // SAFETY: an image of this table's layout.
    unsafe { esker_format::row::pack(t.layout(), image(t, 1).as_ptr(), &mut packed) }.unwrap();
    let (txn, tree, row) = (TxnId(4000 + row), t.tree().id, RowId(row));
    Record::RowPut { txn, ordinal: 1, tree, row, layout: 0, bytes: &packed, supersedes: false }.encode(&mut log);
    let (attach, aborted, deltas) = (Vec::new(), Vec::new(), Vec::new());
    match xid {
        Some(xid) => Record::Prepare { txn, xid, attach, aborted, deltas }.encode(&mut log),
        None => Record::Commit { txn, attach, aborted, deltas }.encode(&mut log),
    }
    let end = e.core.wal.append(&log).unwrap().end;
    e.core.wal.wait_durable(end).unwrap();
}

#[test]
fn a_check_finds_a_wrong_number() {
    let (_, e, t) = one_table(small());
    let part =
        KeyPart { column: 0, prefix_bytes: 0, descending: false, encoding: key_encoding::UNSIGNED, collation: 0 };
    let index = IndexDef { name: "n".into(), unique: false, parts: vec![part] };
    let k = make(&e, "k", &TableDef { indexes: vec![index], ..fixed(100) });
    for t in [&t, &k] {
        commit(&e, |s| drop(rows(s, t, 12)));
        t.trees().live.counted(e.core.views.visible_seq(), 9);
        let found = e.check(t, &mut |_, _| true).unwrap().damages;
        let text = format!("table '{}' has 12 rows, and 9 by the number that is kept", t.name());
        assert_eq!(found.iter().map(ToString::to_string).collect::<Vec<_>>(), [text]);
        // It was told, and is right from now on.
        assert!(e.check(t, &mut |_, _| true).unwrap().damages.is_empty());
        assert_eq!(newest(&e, t), 12);
    }
}

#[test]
fn what_is_known_to_be_damaged_is_not_counted() {
    let (disk, e, t) = one_table(small());
    commit(&e, |s| drop(rows(s, &t, 2000)));
    e.checkpoint().unwrap();
    let block = t.tree().snapshot().runs[0].run.index().unwrap().entries()[0].offset;
    drop(t);
    let disk = kill(e, &disk);
    let file = Path::new("/db/runs").join(&run_files(&disk)[0]);
    disk.damage(&file, block + 9, &[1, 2, 3]).unwrap();
    let e = open_with(&disk, small()).unwrap();
    let t = e.open_table("t").unwrap();
    let mut s = begun(&e, false);
    assert_eq!(s.count(&t).unwrap(), 2000, "nobody has met it");
    assert!(matches!(s.count_rows(&t), Err(Error::Damage { .. })));
    assert!(matches!(s.count(&t), Err(Error::Damage { .. })));
}

/// A transaction that has written in a table commits while that is emptied, just as the record of it is in the log: the commit
/// would stand behind the record, and say of the emptied table that it has rows.
#[test]
fn nobody_commits_behind_its_emptying_what_a_table_had_before() {
    let disk = SimDisk::new(1);
    let e = open_with(&disk, options()).unwrap();
    let t = make(&e, "t", &fixed(8));
    let mut s = begun(&e, false);
    fill(&mut s, &t, 0..3);
    let late = Arc::new(Mutex::new(None));
    let answer = late.clone();
    hooks::at("a table is made anew, and not durably so", move || {
        // In a thread of its own: the statement holds the catalog.
        let committed = std::thread::spawn(move || s.commit()).join().unwrap();
        *answer.lock().unwrap() = Some(committed);
    });
    e.truncate_table("t").unwrap();
    assert!(hooks::all_done());
    assert_eq!(newest(&e, &t), 0);
    drop(t);
    let e = open_with(&kill(e, &disk), options()).unwrap();
    assert_eq!(newest(&e, &e.open_table("t").unwrap()), 0);
    let late = late.lock().unwrap().take();
    assert!(matches!(late, Some(Err(Error::TableChanged(_)))), "{late:?}");
}
