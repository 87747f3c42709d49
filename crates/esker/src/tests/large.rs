//! Large writes and long transactions: what they hold is bounded, what they move is neither lost nor doubled.

use crate::read::buffer::MOST_PINNED_BYTES;
use crate::tests::hooks;
use crate::tests::support::*;
use crate::tests::tables::{open_on, run_files, Watched};
use crate::tree::run::writer::RunWriter;
use crate::upkeep::pressure;
use crate::*;
use esker_base::counters::{bind, Counter, SessionCounters};
use esker_format::key_bytes::key_encoding;
use esker_format::row::{pack_values, Value};
use esker_format::{Column, ColumnKind, ColumnMask, CommitSeq, KeyPart, Layout, RowId, VersionTag, MAX_BLOCK_BYTES};
use esker_io::SimDisk;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;

fn blob() -> TableDef {
    let kind = ColumnKind::Blob { len_bytes: 4 };
    table(Layout { image_bytes: 13, head_bytes: 1, columns: vec![Column { kind, offset: 1, null: None }] })
}

/// As [`fill`], with rows that no compression makes small.
fn fill_with_noise(s: &mut Session, t: &Arc<Table>, numbers: std::ops::Range<u64>) {
    for n in numbers {
        let mut row = image(t, n);
        let noise = |(i, b): (usize, &mut u8)| *b = (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (i % 57)) as u8;
        row[9..].iter_mut().enumerate().for_each(noise);
        unsafe { s.insert_image(t, row.as_ptr()) }.unwrap();
    }
}

fn large_row(t: &Table, bytes: usize) -> Vec<u8> {
    let mut packed = Vec::new();
    pack_values(t.layout(), &[Value::Bytes(&vec![7; bytes])], &mut packed).unwrap();
    packed
}

/// A table of a number, by which it has an index, and a value, with so many rows whose values are short and then some whose are
/// long; all in runs, and a transaction that reads.
fn with_long_values(disk: &SimDisk, short: u64, long: u64, bytes: usize) -> (Engine, Arc<Table>, Session) {
    let e = open_with(disk, options()).unwrap();
    let kinds = [(ColumnKind::Fixed { width: 8 }, 1), (ColumnKind::Blob { len_bytes: 4 }, 9)];
    let columns = kinds.map(|(kind, offset)| Column { kind, offset, null: None }).to_vec();
    let part =
        KeyPart { column: 0, prefix_bytes: 0, descending: false, encoding: key_encoding::UNSIGNED, collation: 0 };
    let indexes = vec![IndexDef { name: "by_id".into(), unique: true, parts: vec![part] }];
    let def = TableDef { indexes, ..table(Layout { image_bytes: 21, head_bytes: 1, columns }) };
    let (t, mut s) = (make(&e, "t", &def), e.session());
    begin(&mut s);
    for n in 0..short + long {
        let (mut packed, length) = (Vec::new(), if n < short { 5 } else { bytes });
        pack_values(t.layout(), &[Value::Bytes(&n.to_le_bytes()), Value::Bytes(&vec![n as u8; length])], &mut packed)
            .unwrap();
        s.insert_row(&t, &packed).unwrap();
    }
    s.commit().unwrap();
    e.checkpoint().unwrap();
    begin(&mut s);
    (e, t, s)
}

/// What is read of long values at a time keeps few of their blocks in memory, however short the rows' images are.
#[test]
fn a_batch_keeps_few_long_values_in_memory() {
    const LONG: usize = 200_000;
    let disk = SimDisk::new(1);
    let (_e, t, mut s) = with_long_values(&disk, 0, 300, LONG);
    let all = || ScanOptions { mask: t.all_columns(), ..Default::default() };
    let few = |counts: &[usize], how: &str| {
        assert_eq!(counts.iter().sum::<usize>(), 300, "{how}");
        let most = MOST_PINNED_BYTES / LONG + 1;
        assert!(counts.iter().all(|n| *n <= most), "{how}: {counts:?}, {most} at most");
    };
    let mut scan = s.scan(&t, all()).unwrap();
    let counts: Vec<_> =
        std::iter::from_fn(|| Some(scan.next_batch(&mut s).unwrap().ids.len()).filter(|n| *n > 0)).collect();
    few(&counts, "a scan");
    drop(scan);
    let mut index = s.open_index_cursor(&t, 0, all()).unwrap();
    index.seek(&mut s, KeyRange::default(), Direction::Forward).unwrap();
    let counts: Vec<_> =
        std::iter::from_fn(|| Some(index.next_batch(&mut s).unwrap().ids.len()).filter(|n| *n > 0)).collect();
    few(&counts, "an index");
}

/// What a transaction gathers for itself goes to the log with its commit, behind what a savepoint knows of. One whose commit failed
/// is committed or rolled back as a whole: it was cut there, and what was committed of it was in no log.
#[test]
fn a_savepoint_of_before_a_commit_that_failed_is_none() {
    let disk = SimDisk::new(1);
    let e = open_with(&disk, options()).unwrap();
    let (t, mut other, mut s) = (make(&e, "t", &fixed(100)), e.session(), e.session());
    begin(&mut s);
    fill(&mut s, &t, 0..40);
    s.commit().unwrap();
    begin(&mut other);
    fill(&mut other, &t, 100..101);
    other.prepare(b"x").unwrap();
    for keeps_all in [false, true] {
        begin(&mut s);
        let crate::session::SessionParts { core, txn, .. } = s.parts().unwrap();
        txn.become_large(core);
        let change = |s: &mut Session, rows: std::ops::RangeInclusive<u64>| {
            rows.for_each(|n| unsafe { s.update_image(&t, RowId(n), image(&t, n + 1000).as_ptr()) }.unwrap());
        };
        change(&mut s, 1..=5);
        let point = s.savepoint();
        change(&mut s, 6..=10);
        s.prepare(b"x").unwrap_err();
        if keeps_all {
            s.commit().unwrap();
            continue;
        }
        s.rollback_to(&point);
        s.commit().unwrap_err();
        s.rollback().unwrap();
    }
    drop((t, s, other, e));
    disk.crash();
    let e = open_with(&disk, options()).unwrap();
    let t = e.open_table("t").unwrap();
    let mut s = e.session();
    begin(&mut s);
    let mut scan = s.scan(&t, ScanOptions { mask: t.all_columns(), ..Default::default() }).unwrap();
    let mut found = Vec::new();
    loop {
        let batch = scan.next_batch(&mut s).unwrap();
        if batch.ids.is_empty() {
            break;
        }
        let number = |at: usize| unsafe { batch.images.add(at * batch.stride + 1).cast::<u64>().read_unaligned() };
        found.extend((0..batch.ids.len()).map(number));
    }
    found.sort_unstable();
    let expected: Vec<u64> = (10..40).chain(1001..=1010).collect();
    assert_eq!(found, expected);
}

/// Whoever learns that no more rows come, or that nothing is where he seeks, still has the last one: what its values lie in stays
/// until another row takes its place.
#[test]
fn what_the_last_row_lies_in_stays_when_no_more_come() {
    let disk = SimDisk::new(1);
    let (_e, t, mut s) = with_long_values(&disk, 3, 2, 200_000);
    for lock in [None, Some(LockMode::Shared)] {
        let all = || ScanOptions { mask: t.all_columns(), lock, ..Default::default() };
        let mut scan = s.scan(&t, all()).unwrap();
        while !scan.next_batch(&mut s).unwrap().ids.is_empty() {
            assert!(scan.pins() > 0);
        }
        assert!(scan.pins() > 0, "the end of a scan");
        for direction in [Direction::Forward, Direction::Backward] {
            let mut index = s.open_index_cursor(&t, 0, all()).unwrap();
            index.seek(&mut s, KeyRange::default(), direction).unwrap();
            while !index.next_batch(&mut s).unwrap().ids.is_empty() {}
            assert!(index.pins() > 0, "the end of an index, {direction:?}");
            let nothing = KeyRange { from: vec![0xff; 9], to: None };
            index.seek(&mut s, nothing, direction).unwrap();
            assert!(index.next_batch(&mut s).unwrap().ids.is_empty());
            assert!(index.pins() > 0, "a seek that finds nothing, {direction:?}");
        }
    }
    // A session keeps a buffer for its next cursor, which has nothing of this one's.
    let all = ScanOptions { mask: t.all_columns(), ..Default::default() };
    assert_eq!(s.scan(&t, all).unwrap().pins(), 0);
}

/// The same where rows are read ahead of their locks, and none of those is given: others have them.
#[test]
fn what_the_last_row_lies_in_stays_when_others_have_the_rest() {
    let disk = SimDisk::new(1);
    let (e, t, mut s) = with_long_values(&disk, 0, 40, 100_000);
    let mut other = e.session();
    begin(&mut other);
    let all = |skip_locked| ScanOptions {
        mask: t.all_columns(),
        lock: Some(LockMode::Exclusive),
        skip_locked,
        ..Default::default()
    };
    let mut scan = other.scan(&t, all(false)).unwrap();
    let mut rows = 0;
    while let Some(row) = scan.next_batch(&mut other).unwrap().ids.first().copied() {
        rows += 1;
        if rows <= 2 {
            other.unlock_row(&t, row);
        }
    }
    let (mut scan, mut last) = (s.scan(&t, all(true)).unwrap(), None);
    let mut given = 0;
    while !scan.next_batch(&mut s).unwrap().ids.is_empty() {
        last = scan.pinned_blocks().last().copied();
        given += 1;
    }
    assert_eq!(given, 2);
    assert!(scan.pinned_blocks().contains(&last.unwrap()), "the block of the last row that was given");
}

/// The same where long values begin only once batches have become large, where the reader chooses by entries first, and where rows
/// are read ahead of their locks.
#[test]
fn long_values_behind_short_ones_are_taken_a_few_at_a_time() {
    const LONG: usize = 400_000;
    const SHORT_ROWS: u64 = 800;
    const LONG_ROWS: u64 = 100;
    let disk = SimDisk::new(1);
    let (_e, t, mut s) = with_long_values(&disk, SHORT_ROWS, LONG_ROWS, LONG);
    // The number, and how long the value is, of each row of a batch.
    let rows = |batch: &IndexBatch<'_>| -> Vec<(u64, usize)> {
        let row = |at: usize| {
            // SAFETY: an image of this layout for each id; its blob is pinned.
            unsafe {
                let image = batch.images.add(at * batch.stride);
                let length = image.add(9).cast::<u32>().read_unaligned() as usize;
                let value = std::slice::from_raw_parts(image.add(13).cast::<*const u8>().read_unaligned(), length);
                let n = image.add(1).cast::<u64>().read_unaligned();
                assert!(value.iter().all(|byte| *byte == n as u8), "row {n}");
                (n, length)
            }
        };
        (0..batch.ids.len()).map(row).collect()
    };
    let most = MOST_PINNED_BYTES / LONG + 1;
    let all: Vec<u64> = (0..SHORT_ROWS + LONG_ROWS).collect();
    let mask = t.all_columns();
    for direction in [Direction::Forward, Direction::Backward] {
        for chooses in [false, true] {
            let how = format!("{direction:?}, chooses: {chooses}");
            let mut index =
                s.open_index_cursor(&t, 0, ScanOptions { mask: mask.clone(), ..Default::default() }).unwrap();
            index.set_choosing(chooses);
            index.seek(&mut s, KeyRange::default(), direction).unwrap();
            let (mut found, mut largest, mut most_long) = (Vec::new(), 0, 0);
            loop {
                let mut batch = index.next_batch(&mut s).unwrap();
                if chooses && !batch.ids.is_empty() {
                    // All but every tenth.
                    let places: Vec<u32> =
                        (0..batch.ids.len() as u32).filter(|at| batch.ids[*at as usize].0 % 10 != 0).collect();
                    batch = index.choose(&mut s, &places).unwrap();
                    if batch.ids.is_empty() {
                        continue;
                    }
                }
                let rows = rows(&batch);
                if rows.is_empty() {
                    break;
                }
                let long = rows.iter().filter(|(_, length)| *length == LONG).count();
                (largest, most_long) = (largest.max(rows.len()), most_long.max(long));
                found.extend(rows.iter().map(|(n, _)| *n));
            }
            assert!(most_long <= most && most_long > 1, "{how}: {most_long} long values at once, {most} at most");
            assert!(largest > 200, "{how}: batches became large, {largest}");
            let mut wanted: Vec<u64> = all.iter().copied().filter(|n| !chooses || (n + 1) % 10 != 0).collect();
            if direction == Direction::Backward {
                wanted.reverse();
            }
            assert_eq!(found, wanted, "{how}");
        }
    }
    // Locked one by one, and read ahead by then: what that keeps is in memory, too.
    let lock = Some(LockMode::Exclusive);
    let mut index = s.open_index_cursor(&t, 0, ScanOptions { mask, lock, ..Default::default() }).unwrap();
    index.seek(&mut s, KeyRange::default(), Direction::Forward).unwrap();
    let (mut found, mut most_ahead) = (Vec::new(), 0);
    loop {
        let rows = rows(&index.next_batch(&mut s).unwrap());
        let Some((n, _)) = rows.first() else { break };
        found.push(*n);
        most_ahead = most_ahead.max(index.ahead_pinned_bytes());
    }
    assert_eq!(found, all);
    let pinned = MOST_PINNED_BYTES..MOST_PINNED_BYTES + LONG + (64 << 10);
    assert!(pinned.contains(&most_ahead), "{most_ahead} bytes were read ahead");
}

/// What a writer is told that it was not written is in no commit: neither a row without its entries, nor one that is there twice since
/// it was written once more.
#[test]
fn what_is_told_to_have_failed_is_not_committed() {
    const ROWS: u32 = 20_000;
    /// So many updates nearly fill what a large write may have in memory.
    const NEARLY: u32 = 1500;
    let row = |a: u32, text: u8| crate::tests::indexes::Row { a, c: Some(a + 1_000_000), text: vec![text; 150] };
    for (what, indexed) in [
        ("insert", false),
        ("insert behind updates", false),
        ("update", false),
        ("delete", false),
        ("insert", true),
        ("update", true),
        ("delete", true),
    ] {
        let disk = Watched::new();
        let options = Options { memory_limit_bytes: 1 << 20, min_run_bytes: 64 << 10, ..small() };
        let e = open_on(Arc::new(disk.clone()), options);
        let def = crate::tests::indexes::def();
        let indexes = if indexed { def.indexes.clone() } else { Vec::new() };
        let t = make(&e, "t", &TableDef { indexes, ..def });
        let mut s = e.session();
        let image = |a, text| crate::tests::indexes::image(&row(a, text));
        // SAFETY: images of this layout, here and below.
        let ids: Vec<_> = (0..ROWS).map(|a| unsafe { s.insert_image(&t, image(a, b'a').as_ptr()).unwrap() }).collect();
        s.commit().unwrap();
        begin(&mut s);
        s.begin_statement();
        let write = |s: &mut Session, at: u32| unsafe {
            match what {
                "insert" | "insert behind updates" => s.insert_image(&t, image(ROWS + at, b'b').as_ptr()).map(drop),
                "update" => s.update_image(&t, ids[at as usize], image(2 * ROWS + at, b'b').as_ptr()),
                _ => s.delete(&t, ids[at as usize]),
            }
        };
        if what == "insert behind updates" {
            let update = |at: u32| unsafe { s.update_image(&t, ids[at as usize], image(2 * ROWS + at, b'b').as_ptr()) };
            (0..NEARLY).try_for_each(update).unwrap();
        }
        disk.1.bad_writes.set(Some(esker_io::IoKind::Failed));
        let failed = (0..ROWS).find(|at| write(&mut s, *at).is_err());
        disk.1.bad_writes.set(None);
        let failed = failed.unwrap_or_else(|| panic!("{what}, {indexed}: nothing had to be spilled"));
        // Whoever thinks that it was not written writes it again.
        let _ = write(&mut s, failed);
        assert!(s.commit().is_err(), "{what}, {indexed}: committed with what was told to have failed at row {failed}");
        s.rollback_statement();
        s.end_statement();
        (0..10).for_each(|at| write(&mut s, at).unwrap());
        s.commit().unwrap();
        let rows = match what {
            "update" => ROWS,
            "delete" => ROWS - 10,
            _ => ROWS + 10,
        };
        begin(&mut s);
        assert_eq!((s.count_rows(&t).unwrap(), s.count(&t).unwrap()), (rows.into(), rows.into()), "{what}, {indexed}");
        assert!(e.check(&t, &mut |_, _| true).unwrap().damages.is_empty(), "{what}, {indexed}");
    }
}

#[test]
fn after_a_failed_hand_over_nothing_is_taken() {
    let disk = SimDisk::new(1);
    let e = open_with(&disk, Options { bulk_threshold_bytes: 4 << 10, ..small() }).unwrap();
    let t = make(&e, "t", &fixed(8));
    let mut s = e.session();
    begin(&mut s);
    fill(&mut s, &t, 0..2000);
    disk.capacity(Some(disk.used_bytes()));
    for _ in 0..6 {
        s.begin_statement();
        let failed = (0..1_000_000).find_map(|n| insert(&mut s, &t, n).err());
        assert!(failed.is_some(), "a full disk was not met");
        // Further rows are refused, and so is the stage.
        assert!(insert(&mut s, &t, 1).is_err() && s.stage(&t).is_none());
        s.rollback_statement();
    }
    disk.capacity(None);
    s.rollback().unwrap();
    begin(&mut s);
    insert(&mut s, &t, 1).unwrap();
    s.commit().unwrap();
    assert_eq!(count(&e, "t"), 1);
}

#[test]
fn a_transaction_of_large_rows_in_several_tables_commits() {
    let disk = SimDisk::new(1);
    let e = open_with(&disk, options()).unwrap();
    let mut s = e.session();
    begin(&mut s);
    for i in 0..3 {
        let t = make(&e, &format!("t{i}"), &blob());
        s.insert_row(&t, &large_row(&t, 50 << 20)).unwrap();
    }
    assert!(s.current.open().unwrap().redo_bytes() < 1 << 20, "a large row was written as a small one");
    s.commit().unwrap();
    drop((s, e));
    disk.crash();
    let e = open_with(&disk, options()).unwrap();
    assert_eq!((0..3).map(|i| count(&e, &format!("t{i}"))).sum::<u64>(), 3);
}

#[test]
fn redo_of_rolled_back_statements_goes() {
    let disk = SimDisk::new(1);
    let e = open_with(&disk, options()).unwrap();
    let t = make(&e, "t", &blob());
    let row = large_row(&t, 100 << 10);
    let mut s = e.session();
    begin(&mut s);
    for _ in 0..3000 {
        s.begin_statement();
        s.insert_row(&t, &row).unwrap();
        s.rollback_statement();
        assert_eq!(s.current.open().unwrap().redo_bytes(), 0);
    }
    s.begin_statement();
    s.insert_row(&t, &row).unwrap();
    s.commit().unwrap();
    assert_eq!(count(&e, "t"), 1);
}

#[test]
fn rows_that_are_read_back_one_by_one_stay_within_the_budget() {
    let disk = SimDisk::new(1);
    let e = open_with(&disk, small()).unwrap();
    let t = make(&e, "t", &fixed(400));
    let mut s = e.session();
    begin(&mut s);
    let options = ScanOptions { mask: ColumnMask::all(2), ..ScanOptions::default() };
    let mut c = s.open_cursor(&t, options).unwrap();
    let mut most = 0;
    for n in 0..20_000 {
        s.begin_statement();
        let row = insert(&mut s, &t, n).unwrap();
        assert!(c.fetch(&mut s, row).unwrap().is_some());
        s.end_statement();
        most = most.max(e.core.large.used());
    }
    assert!(
        most <= e.core.large.limit() * 3 / 2,
        "{most} bytes of large writes under a limit of {}",
        e.core.large.limit()
    );
    assert!(s.current.open().unwrap().tables[0].rows.runs.len() > 1, "nothing was spilled");
    s.commit().unwrap();
    assert_eq!(count(&e, "t"), 20_000);
}

/// Rows for 100 tables in turn, as an INSERT into partitions gives them; then the same for 40 sessions.
#[test]
fn loads_into_many_trees_and_sessions_stay_within_the_budget() {
    let disk = SimDisk::new(1);
    let e = open_with(&disk, small()).unwrap();
    let own = SessionCounters::new();
    let _bound = bind(&own);
    let tables: Vec<_> = (0..100).map(|i| make(&e, &format!("t{i:03}"), &fixed(100))).collect();
    let most = e.core.large.limit() * 3 / 2;
    let mut s = e.session();
    begin(&mut s);
    for n in 0..30_000u64 {
        insert(&mut s, &tables[n as usize % 100], n).unwrap();
        let used = e.core.large.used();
        assert!(used <= most, "{used} bytes of large writes, {most} are allowed");
    }
    s.commit().unwrap();
    assert!(own.get(Counter::LargeSpills) > 0, "nothing was spilled");
    assert_eq!(e.core.large.used(), 0, "what large writes take was not given back");
    assert_eq!(tables.iter().map(|t| count(&e, &t.name())).sum::<u64>(), 30_000);
    // Each session has less than half of a fair share before it must spill.
    let mut sessions: Vec<_> = (0..30).map(|_| e.session()).collect();
    let most = most + 30 * (64 << 10);
    for n in 0..30_000u64 {
        let s = &mut sessions[n as usize % 30];
        if n < 30 {
            begin(s);
        }
        insert(s, &tables[0], n).unwrap();
        let used = e.core.large.used();
        assert!(used <= most, "{used} bytes of large writes of 30 sessions, {most} are allowed");
    }
    sessions.iter_mut().for_each(|s| s.commit().unwrap());
    assert_eq!(count(&e, "t000"), 30_300);
}

/// Rows gathered before a statement are kept in memory during it; its rollback must not take their redo along.
#[test]
fn gathered_rows_survive_the_rollback_of_the_statement_that_read_them() {
    let (disk, e, t) = one_table(Options { bulk_threshold_bytes: 4 << 10, ..small() });
    let mut s = e.session();
    begin(&mut s);
    let ids: Vec<_> = (0..300).map(|n| insert(&mut s, &t, n).unwrap()).collect();
    assert!(s.current.open().unwrap().tables[0].bulk.as_ref().is_some_and(|b| b.rows > 0), "nothing was gathered");
    s.begin_statement();
    ids.iter().for_each(|id| s.delete(&t, *id).unwrap());
    s.rollback_statement();
    s.commit().unwrap();
    drop((s, t, e));
    disk.crash();
    let e = open_with(&disk, small()).unwrap();
    assert_eq!(count(&e, "t"), 300);
}

/// Rolling back ten thousand statements adds to one set of ordinals, in place.
#[test]
fn rolled_back_statements_share_one_set_of_ordinals() {
    let disk = SimDisk::new(1);
    let e = open_with(&disk, options()).unwrap();
    let t = make(&e, "t", &fixed(8));
    let mut s = e.session();
    begin(&mut s);
    for n in 0..10_000 {
        s.begin_statement();
        insert(&mut s, &t, n).unwrap();
        s.begin_statement();
        insert(&mut s, &t, n).unwrap();
        s.rollback_statement();
    }
    assert_eq!(s.current.open().unwrap().state.aborted().0.len(), 10_000);
    s.commit().unwrap();
    assert_eq!(count(&e, "t"), 10_000);
}

/// Threads: the workers are a few, whatever is loaded, and every stream's rows arrive.
#[test]
fn workers_serve_all_streams() {
    let disk = SimDisk::new(1);
    let e = open_with(&disk, Options { background: Background::Threads, ..small() }).unwrap();
    let tables: Vec<_> = (0..8).map(|i| make(&e, &format!("t{i}"), &fixed(100))).collect();
    std::thread::scope(|scope| {
        for t in &tables {
            let e = &e;
            scope.spawn(move || {
                let mut s = e.session();
                for round in 0..3 {
                    begin(&mut s);
                    fill(&mut s, t, 0..10_000);
                    if round == 1 {
                        s.rollback().unwrap();
                    } else {
                        s.commit().unwrap();
                    }
                }
            });
        }
    });
    tables.iter().for_each(|t| assert_eq!(count(&e, &t.name()), 20_000));
    // What was rolled back is a worker's to remove.
    until(|| e.core.large.used() == 0);
    drop(tables);
    e.close().unwrap();
}

/// Many transactions gather rows, too few for a run each: once the memtables are full, the rests become runs all the same.
/// Their sessions write them, and queue no write to the kernel, which would give each thread workers that stay.
#[test]
fn gathered_rows_do_not_overfill_the_memtables() {
    const LEAST: usize = 512 << 10;
    let watched = Watched::new();
    let o = Options {
        memory_limit_bytes: 8 << 20,
        bulk_buffer_bytes: 2 * LEAST,
        min_run_bytes: LEAST,
        bulk_threshold_bytes: 16 << 10,
        ..small()
    };
    let e = open_on(Arc::new(watched.clone()), o);
    let t = make(&e, "t", &fixed(100));
    let own = SessionCounters::new();
    let mut sessions: Vec<_> = (0..20).map(|_| e.session()).collect();
    // Nothing is flushed meanwhile.
    crate::sim_hooks::quietly(|| {
        let _bound = bind(&own);
        for s in &mut sessions {
            begin(s);
            fill_with_noise(s, &t, 0..2800);
            let open = |s: &Session| {
                let txn = s.current.open().unwrap();
                let gathered = txn.tables[0].bulk.as_ref().map_or(0, |b| b.gathered_bytes());
                (gathered as usize, txn.redo_bytes(), own.get(Counter::RunsAttached))
            };
            let (gathered, redo, runs) = open(s);
            assert!((LEAST / 4..LEAST).contains(&gathered), "{gathered} bytes are gathered, and no run begun");
            assert_eq!(s.count_rows(&t).unwrap(), 2800);
            let (_, redo_now, runs_now) = open(s);
            assert_ne!(redo_now > redo, runs_now > runs, "rows go to the memtable or to a run");
        }
    });
    let most = pressure::memtable_budget(&e.core) as usize / 2 * 3;
    let used = t.tree().snapshot().active.used_bytes();
    assert!(used < most + 2 * LEAST, "the memtable has {used} bytes, {most} are the most");
    let figures = [Counter::RunsAttached, Counter::BufferWrites, Counter::LargeSpills, Counter::Flushes];
    let [runs, writes, spills, flushes] = figures.map(|c| own.get(c));
    assert!(runs >= 8 && writes > 2 * runs, "20 transactions made {runs} runs in {writes} writes");
    assert_eq!((spills, flushes), (0, 0), "memory was made free in another way");
    let queued = || watched.1.queued.load(std::sync::atomic::Ordering::Relaxed);
    assert_eq!(queued(), 0, "a session queued writes");
    sessions.iter_mut().for_each(|s| s.commit().unwrap());
    assert_eq!(count(&e, "t"), 20 * 2800);
    // The disk sees them where they are queued: the engine's own threads do.
    begin(&mut sessions[0]);
    fill_with_noise(&mut sessions[0], &t, 0..20_000);
    sessions[0].commit().unwrap();
    assert!(queued() > 0, "nobody queues writes");
}

/// Versions of one row stay in one block, but for as many as make it longer than a reader takes, however long blocks may be.
#[test]
fn a_long_row_has_any_number_of_versions() {
    const LONG: usize = 4 << 20;
    const VERSIONS: u64 = 2 * MAX_BLOCK_BYTES as u64 / LONG as u64;
    let disk = SimDisk::new(1);
    let e = open_with(&disk, Options { block_bytes: usize::MAX, ..options() }).unwrap();
    let t = make(&e, "t", &blob());
    let row = large_row(&t, LONG);
    let mut writer = RunWriter::create(&e.core.runs.recipe(&t, &t.tree()), e.core.ids.new_file()).unwrap();
    for n in (1..=VERSIONS).rev() {
        writer.push(RowId(1), VersionTag { seq: CommitSeq(n), ordinal: n, ..VersionTag::default() }, &row).unwrap();
    }
    let run = writer.finish().unwrap();
    let (rows, blocks) = (run.stats.rows, run.stats.blocks as usize);
    assert_eq!(rows, VERSIONS);
    (0..blocks).for_each(|at| assert!(run.read_block(at).is_ok(), "block {at} of {blocks}"));
}

/// The same options, with workers, and less memory than forty rows of a MiB take.
fn for_long_rows() -> Options {
    Options { background: Background::Threads, memory_limit_bytes: 16 << 20, ..small() }
}

/// Rows that are longer than a chunk make chunks that are longer: what is on its way to a worker that cannot write is bounded
/// by its bytes, and who sends waits.
#[test]
fn long_rows_on_their_way_to_a_worker_stay_within_the_budget() {
    const ROWS: u64 = 40;
    let disk = Watched::new();
    let e = open_on(Arc::new(disk.clone()), for_long_rows());
    let t = make(&e, "t", &blob());
    let row = large_row(&t, 1 << 20);
    let (waits, sent, most_used) = (Arc::new(AtomicBool::new(false)), AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let held = disk.hold_run_writes();
        let writer = scope.spawn(|| {
            let waits = waits.clone();
            hooks::at("a stream has no room", move || waits.store(true, Ordering::SeqCst));
            let mut s = e.session();
            begin(&mut s);
            for _ in 0..ROWS {
                s.insert_row(&t, &row).unwrap();
                sent.fetch_add(1, Ordering::SeqCst);
                most_used.fetch_max(e.core.large.used(), Ordering::SeqCst);
            }
            s.commit().unwrap();
        });
        until(|| waits.load(Ordering::SeqCst) || sent.load(Ordering::SeqCst) == ROWS);
        most_used.fetch_max(e.core.large.used(), Ordering::SeqCst);
        drop(held);
        writer.join().unwrap();
    });
    let (used, most) = (most_used.into_inner(), e.core.large.limit() * 3 / 2);
    assert!(used < most, "{used} bytes of large writes, {most} are allowed");
    assert!(waits.load(Ordering::SeqCst), "all rows were sent though none could be written");
    assert_eq!(count(&e, "t"), ROWS);
    assert_eq!(e.core.large.used(), 0, "what large writes take was not given back");
}

/// Who waits for a worker can be killed, and only the statement ends: what earlier ones have sent stays.
#[test]
fn a_killed_session_does_not_wait_for_a_worker() {
    let disk = Watched::new();
    let e = open_on(Arc::new(disk.clone()), for_long_rows());
    let t = make(&e, "t", &blob());
    let row = large_row(&t, 1 << 20);
    let mut s = e.session();
    begin(&mut s);
    for _ in 0..3 {
        s.insert_row(&t, &row).unwrap();
    }
    s.end_statement();
    let killer = s.killer();
    let (waits, ended) = (Arc::new(AtomicBool::new(false)), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let held = disk.hold_run_writes();
        let (waits_there, s, ended) = (waits.clone(), &mut s, &ended);
        let writer = scope.spawn(|| {
            hooks::at("a stream has no room", move || waits_there.store(true, Ordering::SeqCst));
            s.begin_statement();
            let failed = (0..40).find_map(|_| s.insert_row(&t, &row).err());
            s.rollback_statement();
            ended.store(true, Ordering::SeqCst);
            failed
        });
        until(|| waits.load(Ordering::SeqCst));
        killer.kill();
        until(|| ended.load(Ordering::SeqCst));
        drop(held);
        let failed = writer.join().unwrap();
        assert!(matches!(failed, Some(Error::Interrupted)), "{failed:?}");
    });
    s.clear_kill();
    s.begin_statement();
    s.insert_row(&t, &row).unwrap();
    s.commit().unwrap();
    assert_eq!(count(&e, "t"), 4);
}

/// What a large write has written so far is removed by a worker, not by the session that rolls back.
#[test]
fn rolling_back_removes_no_file() {
    let (disk, e, t) = one_table(Options { background: Background::Threads, ..small() });
    let removed = Arc::new(std::sync::Mutex::new(Vec::new()));
    let told = removed.clone();
    disk.watch(Some(Arc::new(move |operation, path| {
        if operation == "remove" && path.extension().is_some_and(|e| e == "run") {
            told.lock().unwrap().push(std::thread::current().id());
        }
    })));
    let mut s = e.session();
    begin(&mut s);
    fill(&mut s, &t, 0..20_000);
    // The worker has nothing left to do, so that the file is nobody's at the moment.
    until(|| !run_files(&disk).is_empty());
    std::thread::sleep(std::time::Duration::from_millis(20));
    s.rollback().unwrap();
    until(|| run_files(&disk).is_empty());
    let removed = removed.lock().unwrap();
    assert!(!removed.is_empty() && !removed.contains(&std::thread::current().id()), "removed by {removed:?}");
}

/// What workers take for a traced session is told with its statement, and with nobody else's.
#[test]
fn who_is_traced_learns_what_workers_took() {
    use esker_base::trace::{begin_statement, end_statement, Recorder};
    let (_disk, e, t) = one_table(Options { background: Background::Threads, ..small() });
    let (mut s, mut other) = (e.session(), e.session());
    let statement = |s: &mut Session, traced: bool| {
        if traced {
            begin_statement(Recorder::new(Box::new(|| None)));
        }
        begin(s);
        fill_with_noise(s, &t, 0..20_000);
        s.commit().unwrap();
        end_statement().map(|(_, totals)| totals.helped_ns)
    };
    assert_eq!(statement(&mut other, false), None);
    let helped = statement(&mut s, true).unwrap();
    assert!(helped > 0, "no worker wrote a chunk of {} rows", 20_000);
    begin_statement(Recorder::new(Box::new(|| None)));
    begin(&mut s);
    s.count_rows(&t).unwrap();
    s.commit().unwrap();
    assert_eq!(end_statement().unwrap().1.helped_ns, 0, "what is told once is told no more");
}

/// Rows lost to an error in one tree, then in another, later: rolling the later back forgets the first.
#[test]
fn rows_lost_earlier_are_remembered() {
    let disk = SimDisk::new(1);
    let e = open_with(&disk, Options { bulk_threshold_bytes: 4 << 10, ..roomy() }).unwrap();
    let (a, b) = (make(&e, "a", &fixed(100)), make(&e, "b", &fixed(100)));
    let mut s = e.session();
    begin(&mut s);
    fill(&mut s, &a, 0..3000);
    s.end_statement();
    let point = s.savepoint();
    s.begin_statement();
    fill(&mut s, &b, 0..3000);
    // Memory is short and the disk full.
    e.core.large.set_memory_limit(0);
    disk.capacity(Some(disk.used_bytes()));
    s.end_statement();
    disk.capacity(None);
    assert!(s.current.open().unwrap().broken.is_some(), "nothing was lost");
    s.rollback_to(&point);
    let committed = s.commit();
    assert!(
        committed.is_err() || count(&e, "a") == 3000,
        "{} rows of 3000 after an acknowledged commit",
        count(&e, "a")
    );
}

/// Small runs are off: every gathered row a run.
#[test]
fn every_gathered_row_may_be_a_run() {
    let (disk, e, t) = one_table(Options { bulk_threshold_bytes: 4 << 10, min_run_bytes: 0, ..roomy() });
    let mut s = e.session();
    begin(&mut s);
    fill(&mut s, &t, 0..3000);
    s.commit().unwrap();
    assert_eq!(count(&e, "t"), 3000);
    assert!(!run_files(&disk).is_empty(), "no row is in a run");
}

/// An engine that is dropped without `close`: its threads end.
#[test]
fn workers_end_with_the_engine() {
    let disk = SimDisk::new(1);
    let e = open_with(&disk, Options { background: Background::Threads, ..roomy() }).unwrap();
    let pool = e.core.pool.watched();
    assert!(pool() > 1, "nobody but the engine has it: there are no workers");
    drop(e);
    until(|| pool() == 0);
}
