//! What a large transaction gathers goes to few files, with a part for each tree; who has a part of one, has it for himself.

use crate::tests::support::*;
use crate::tests::tables::{run_files, Watched};
use crate::*;
use esker_base::counters::{bind, Counter, SessionCounters};
use esker_format::RowId;
use esker_io::SimDisk;
use std::sync::atomic::Ordering;
use std::sync::Arc;

/// Files that so many bytes of one statement may make.
pub(crate) fn most_files(bytes: u64) -> u64 {
    bytes / (16 << 20) + 8
}

fn many(e: &Engine, tables: usize, filling: u32) -> Vec<Arc<Table>> {
    (0..tables).map(|i| make(e, &format!("t{i:04}"), &fixed(filling))).collect()
}

fn rows_in(e: &Engine, tables: usize) -> u64 {
    (0..tables).map(|i| count(e, &format!("t{i:04}"))).sum()
}

/// Small chunks and a low threshold: a few rows in each of some tables make a file.
fn few_rows() -> Options {
    let o = Options { wal_segment_bytes: 256 << 10, ..small() };
    Options { bulk_threshold_bytes: 2 << 10, min_run_bytes: 8 << 10, block_bytes: 4 << 10, ..o }
}

/// Rows in each of these tables, gathered in one open transaction.
fn gather(s: &mut Session, tables: &[Arc<Table>], rows: u64) -> Vec<Vec<RowId>> {
    begin(s);
    tables.iter().map(|t| (0..rows).map(|n| insert(s, t, n).unwrap()).collect()).collect()
}

/// Which files the trees refer to.
fn referred(tables: &[Arc<Table>]) -> Vec<String> {
    let mut names: Vec<_> = tables
        .iter()
        .flat_map(|t| {
            t.tree().snapshot().runs.iter().map(|h| format!("{:016x}.run", h.run.file_id.0)).collect::<Vec<_>>()
        })
        .collect();
    names.sort();
    names.dedup();
    names
}

#[test]
fn a_thousand_trees_make_few_files() {
    const TABLES: usize = 1000;
    let disk = Watched::new();
    let e = crate::tests::tables::open_on(Arc::new(disk.clone()), options());
    let tables = many(&e, TABLES, 1000);
    let own = SessionCounters::new();
    let _bound = bind(&own);
    let mut made = [0; 3];
    let mut figures = |s: &mut Session, what: &str, bytes: u64| {
        s.commit().unwrap();
        let now = [
            own.get(Counter::RunsCreated),
            disk.1.run_syncs.load(Ordering::Relaxed) as u64,
            own.get(Counter::RunsAttached),
        ];
        let [files, syncs, runs] = [0, 1, 2].map(|i| now[i] - made[i]);
        made = now;
        assert!(files > 0 && files <= most_files(bytes), "{what}: {files} files of {bytes} bytes");
        assert_eq!(files, syncs, "{what}: a file is synced once");
        // The first rows are small writes: a few trees have no others.
        assert!(runs >= TABLES as u64 * 4 / 5, "{what}: {runs} runs of {TABLES} trees");
    };
    let mut s = e.session();
    let row_bytes = 1009;
    // 80 MiB, more than large writes may take; then little more than is worth a file.
    begin(&mut s);
    let mut ids = vec![Vec::new(); TABLES];
    for n in 0..80_000u64 {
        let at = n as usize % TABLES;
        ids[at].push(insert(&mut s, &tables[at], n).unwrap());
    }
    figures(&mut s, "inserts", 80_000 * row_bytes);
    assert!(own.get(Counter::LargeSpills) > 0, "memory was never short");
    gather(&mut s, &tables, 3);
    figures(&mut s, "a few inserts", 3 * 1000 * row_bytes);
    // Updates, deletes and inserts in one part of each tree.
    begin(&mut s);
    for (t, ids) in tables.iter().zip(&ids) {
        ids[..20].iter().for_each(|id| unsafe { s.update_image(t, *id, image(t, 7).as_ptr()) }.unwrap());
        ids[20..25].iter().for_each(|id| s.delete(t, *id).unwrap());
        fill(&mut s, t, 0..3);
    }
    figures(&mut s, "changes", 23 * 1000 * row_bytes);
    assert_eq!(rows_in(&e, TABLES), 80_000 + 3000 - 5000 + 3000);
    drop((s, tables, e));
    disk.0.crash();
    let e = crate::tests::tables::open_on(Arc::new(disk.clone()), options());
    assert_eq!(rows_in(&e, TABLES), 81_000);
    let sums: u64 = (0..TABLES)
        .map(|i| e.check(&e.open_table(&format!("t{i:04}")).unwrap(), &mut |_, _| true).unwrap())
        .map(|report| report.damages.len() as u64)
        .sum();
    assert_eq!(sums, 0);
}

/// Threads: as many trees as are loaded wholly, a few of them stream to files of their own.
#[test]
fn streams_of_one_transaction_are_few() {
    let disk = SimDisk::new(1);
    let o = Options { background: Background::Threads, memory_limit_bytes: 1 << 30, ..small() };
    let e = open_with(&disk, o).unwrap();
    let tables = many(&e, 40, 1000);
    let own = SessionCounters::new();
    let _bound = bind(&own);
    let mut s = e.session();
    gather(&mut s, &tables, 300);
    s.commit().unwrap();
    let files = run_files(&disk).len();
    assert!((2..=8 + 1).contains(&files), "{files} files of 12 MB in 40 trees");
    assert_eq!(own.get(Counter::RunsAttached), 40);
    assert_eq!(rows_in(&e, 40), 12_000);
}

/// Streams of half a megabyte of chunks, which few have room for in 8 MiB; runs are worth 2 MiB.
fn crowded() -> Options {
    Options { memory_limit_bytes: 32 << 20, bulk_buffer_bytes: 4 << 20, min_run_bytes: 2 << 20, ..small() }
}

/// Twenty at a time, of which none has gathered enough for a run when memory is short: each goes on with one file.
#[test]
fn many_writers_make_few_files_each() {
    const WRITERS: u64 = 20;
    const ROWS: u64 = 6000;
    let disk = SimDisk::new(1);
    let e = open_with(&disk, crowded()).unwrap();
    let t = make(&e, "t", &fixed(1000));
    let own = SessionCounters::new();
    let _bound = bind(&own);
    let most = e.core.large.limit() * 3 / 2;
    let mut sessions: Vec<_> = (0..WRITERS).map(|_| e.session()).collect();
    sessions.iter_mut().for_each(begin);
    for n in 0..ROWS * WRITERS {
        insert(&mut sessions[(n % WRITERS) as usize], &t, n).unwrap();
        let used = e.core.large.used();
        assert!(used <= most, "{used} bytes of large writes, {most} are allowed");
    }
    assert!(own.get(Counter::LargeSpills) >= WRITERS, "memory was not short");
    sessions.iter_mut().for_each(|s| s.commit().unwrap());
    let files = own.get(Counter::RunsCreated);
    assert!(files <= WRITERS * 2, "{files} files of {WRITERS} writers with {ROWS} rows");
    assert!(files <= WRITERS * most_files(ROWS * 1009));
    assert_eq!(e.core.large.used(), 0, "what large writes take was not given back");
    drop((sessions, t, e));
    disk.crash();
    let e = open_with(&disk, crowded()).unwrap();
    assert_eq!(count(&e, "t"), ROWS * WRITERS);
    assert!(e.check(&e.open_table("t").unwrap(), &mut |_, _| true).unwrap().damages.is_empty());
}

/// Threads: one has a stream, another goes on by itself where memory is short. Whoever rolls back removes no file.
#[test]
fn a_run_that_its_session_writes_is_removed_by_a_worker() {
    let disk = SimDisk::new(1);
    let e = open_with(&disk, Options { background: Background::Threads, ..crowded() }).unwrap();
    let t = make(&e, "t", &fixed(1000));
    let own = SessionCounters::new();
    let _bound = bind(&own);
    let (mut first, mut second) = (e.session(), e.session());
    begin(&mut first);
    fill(&mut first, &t, 0..3000);
    begin(&mut second);
    let mut n = 0;
    while own.get(Counter::LargeSpills) == 0 {
        insert(&mut second, &t, n).unwrap();
        n += 1;
    }
    assert!(n > 2000, "{n} rows were gathered");
    until(|| run_files(&disk).len() == 2);
    fill(&mut second, &t, 0..1000);
    assert_eq!(run_files(&disk).len(), 2);
    let goes_on = |s: &Session| s.current.open().unwrap().tables[0].bulk.as_ref().is_some_and(|b| !b.is_gathering());
    assert!(goes_on(&second), "it goes on with its file");
    let removed = Arc::new(std::sync::Mutex::new(Vec::new()));
    let told = removed.clone();
    disk.watch(Some(Arc::new(move |operation, path| {
        if operation == "remove" && path.extension().is_some_and(|e| e == "run") {
            told.lock().unwrap().push(std::thread::current().id());
        }
    })));
    second.rollback().unwrap();
    until(|| run_files(&disk).len() == 1);
    first.commit().unwrap();
    assert_eq!(count(&e, "t"), 3000);
    let removed = removed.lock().unwrap();
    assert!(removed.len() == 1 && removed[0] != std::thread::current().id());
    until(|| e.core.large.used() == 0);
}

#[test]
fn what_is_little_in_all_trees_makes_no_file() {
    let disk = SimDisk::new(1);
    let e = open_with(&disk, options()).unwrap();
    let tables = many(&e, 300, 1000);
    let own = SessionCounters::new();
    let _bound = bind(&own);
    let mut s = e.session();
    // Large by the first tree, whose run streams; a megabyte in the others.
    begin(&mut s);
    let ids: Vec<_> = (0..4000).map(|n| insert(&mut s, &tables[0], n).unwrap()).collect();
    for t in &tables[1..] {
        fill(&mut s, t, 0..3);
    }
    assert_eq!(ids.len(), 4000);
    s.commit().unwrap();
    assert_eq!((own.get(Counter::RunsCreated), own.get(Counter::RunsAttached)), (1, 1));
    drop((s, tables, e));
    disk.crash();
    let e = open_with(&disk, options()).unwrap();
    assert_eq!(rows_in(&e, 300), 4000 + 299 * 3);
}

/// New rows below rows of others that are changed: each part is in order, whichever comes first.
#[test]
fn changes_and_new_rows_share_a_part() {
    let disk = SimDisk::new(1);
    let e = open_with(&disk, few_rows()).unwrap();
    let tables = many(&e, 2, 100);
    let (mut s, mut other) = (e.session(), e.session());
    // Its ids come in ranges: what it inserts later lies below the other one's rows.
    gather(&mut s, &tables, 40);
    let ids = gather(&mut other, &tables, 200);
    other.commit().unwrap();
    for (t, ids) in tables.iter().zip(&ids) {
        ids.iter().step_by(2).for_each(|id| unsafe { s.update_image(t, *id, image(t, 7).as_ptr()) }.unwrap());
        ids.iter().skip(1).step_by(4).for_each(|id| s.delete(t, *id).unwrap());
        let below = insert(&mut s, t, 1).unwrap();
        assert!(below < ids[0], "row {below} is not below row {}", ids[0]);
        fill(&mut s, t, 0..99);
        let txn = s.current.open().unwrap();
        let gathered = txn.tables.iter().find(|own| Arc::ptr_eq(&own.table, t)).unwrap();
        assert!(gathered.rows.has_private() && gathered.bulk.as_ref().is_some_and(|b| b.rows == 100));
    }
    let files = run_files(&disk).len();
    s.commit().unwrap();
    assert_eq!(run_files(&disk).len(), files + 1);
    let expected = 2 * (40 + 200 - 50 + 100);
    assert_eq!(rows_in(&e, 2), expected);
    drop((s, other, tables, e));
    disk.crash();
    let e = open_with(&disk, few_rows()).unwrap();
    assert_eq!(rows_in(&e, 2), expected);
}

/// A merge that takes one part, a DROP, a TRUNCATE: the others' parts stay, and the file goes with the last.
#[test]
fn parts_leave_one_by_one() {
    let disk = SimDisk::new(1);
    for restart in [false, true] {
        let mut e = open_with(&disk, few_rows()).unwrap();
        let mut tables = many(&e, 4, 100);
        let mut s = e.session();
        gather(&mut s, &tables, 40);
        s.commit().unwrap();
        let file = referred(&tables);
        assert_eq!((file.len(), &run_files(&disk)), (1, &file), "one file for four trees");
        drop(s);
        let renew = |e: &mut Engine, tables: &mut Vec<Arc<Table>>, names: &[usize]| {
            if restart {
                tables.clear();
                // The folder's lock goes with the engine.
                let old = std::mem::replace(e, open_with(&SimDisk::new(2), options()).unwrap());
                drop(old);
                disk.crash();
                *e = open_with(&disk, few_rows()).unwrap();
                *tables = names.iter().map(|i| e.open_table(&format!("t{i:04}")).unwrap()).collect();
            }
            assert!(run_files(&disk).contains(&file[0]), "a part of it is somebody's still");
        };
        renew(&mut e, &mut tables, &[0, 1, 2, 3]);
        let mut s = e.session();
        begin(&mut s);
        fill(&mut s, &tables[0], 0..100);
        s.commit().unwrap();
        drop(s);
        e.optimize(&tables[0], &mut |_, _| true).unwrap();
        assert!(!referred(&tables[..1]).contains(&file[0]), "the merge took the part");
        renew(&mut e, &mut tables, &[0, 1, 2, 3]);
        assert_eq!(rows_in(&e, 4), 260);
        tables.remove(1);
        e.drop_table("t0001").unwrap();
        renew(&mut e, &mut tables, &[0, 2, 3]);
        assert_eq!((count(&e, "t0002"), count(&e, "t0003")), (40, 40));
        e.truncate_table("t0002").unwrap();
        renew(&mut e, &mut tables, &[0, 2, 3]);
        assert_eq!((count(&e, "t0002"), count(&e, "t0003")), (0, 40));
        assert!(e.check(&tables[2], &mut |_, _| true).unwrap().damages.is_empty());
        tables.clear();
        e.drop_table("t0003").unwrap();
        assert!(!run_files(&disk).contains(&file[0]), "the last part is gone, restarts: {restart}");
        ["t0000", "t0002"].iter().for_each(|name| e.drop_table(name).unwrap());
        assert_eq!(run_files(&disk).len(), 0);
        drop(e);
    }
}

/// Also one with a part for a temporary table, which no restart brings back.
#[test]
fn prepared_parts_come_back() {
    for (commit, temporary) in [(true, false), (false, false), (true, true), (false, true)] {
        let disk = SimDisk::new(1);
        let mut e = open_with(&disk, few_rows()).unwrap();
        let mut tables = many(&e, 3, 100);
        if temporary {
            tables.insert(0, make(&e, "passing", &TableDef { temporary: true, ..fixed(100) }));
        }
        let mut s = e.session();
        gather(&mut s, &tables, 40);
        s.prepare(b"x").unwrap();
        assert_eq!(run_files(&disk).len(), 1);
        s.detach_prepared();
        drop((s, tables));
        for _ in 0..2 {
            drop(e);
            disk.crash();
            e = open_with(&disk, few_rows()).unwrap();
            assert_eq!((run_files(&disk).len(), rows_in(&e, 3)), (1, 0));
        }
        let decided = if commit { e.commit_xid(b"x") } else { e.rollback_xid(b"x") };
        assert!(decided.unwrap());
        let rows = if commit { 120 } else { 0 };
        assert_eq!((run_files(&disk).len(), rows_in(&e, 3)), (usize::from(commit), rows));
        drop(e);
        disk.crash();
        e = open_with(&disk, few_rows()).unwrap();
        assert_eq!((run_files(&disk).len(), rows_in(&e, 3)), (usize::from(commit), rows));
        (0..3).for_each(|i| e.drop_table(&format!("t{i:04}")).unwrap());
        assert_eq!(run_files(&disk).len(), 0, "committed: {commit}, with a temporary table: {temporary}");
    }
}

/// The power is cut at each step of a transaction with parts, of a merge of one, and of a DROP: all of it counts or nothing,
/// and no file is there that nobody refers to.
#[test]
fn a_power_cut_at_each_step_leaves_no_file_of_nobody() {
    let whole = SimDisk::new(1);
    let e = open_with(&whole, few_rows()).unwrap();
    drop((many(&e, 3, 100), e));
    whole.crash();
    let (mut cuts, mut kept, mut lost) = (0, 0, 0);
    for at in 1.. {
        let disk = whole.snapshot();
        let e = open_with(&disk, few_rows()).unwrap();
        disk.power_cut_at(disk.op_count() + at);
        let tables: Vec<_> = (0..3).map(|i| e.open_table(&format!("t{i:04}")).unwrap()).collect();
        let mut s = e.session();
        begin(&mut s);
        let inserted = tables.iter().all(|t| (0..40).all(|n| insert(&mut s, t, n).is_ok()));
        let committed = inserted && s.commit().is_ok();
        let optimized = committed && e.optimize(&tables[0], &mut |_, _| true).is_ok();
        let dropped = optimized && e.drop_table("t0001").is_ok();
        if !disk.is_power_cut() {
            assert!(dropped);
            break;
        }
        cuts += 1;
        drop((s, tables, e));
        for seed in 0..2 {
            let after = disk.after_power_cut(seed);
            let e = open_with(&after, few_rows()).unwrap();
            let names: Vec<_> = (0..3).map(|i| format!("t{i:04}")).filter(|n| e.open_table(n).is_ok()).collect();
            let rows: Vec<_> = names.iter().map(|n| count(&e, n)).collect();
            assert!(rows.iter().all(|r| *r == rows[0] && (*r == 0 || *r == 40)), "{rows:?} after step {at}");
            assert!(!committed || rows[0] == 40, "what was acknowledged is lost after step {at}");
            if rows[0] == 0 {
                lost += 1
            } else {
                kept += 1
            }
            let tables: Vec<_> = names.iter().map(|n| e.open_table(n).unwrap()).collect();
            let mut files = run_files(&after);
            files.sort();
            assert_eq!(files, referred(&tables), "after step {at}");
            assert!(tables.iter().all(|t| e.check(t, &mut |_, _| true).unwrap().damages.is_empty()));
        }
    }
    assert!(cuts > 10 && kept > 3 && lost > 3, "{cuts} cuts, {kept} with the rows, {lost} without");
}
