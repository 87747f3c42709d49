//! Who reads block after block, with and without reading ahead: the same rows, the same errors, fewer reads.

use crate::tests::tables::{begin, commit_rows, def, open, options};
use crate::tree::run::{Ahead, Run};
use crate::upkeep::{checkpoint, flush};
use crate::*;
use esker_base::counters::{bind, Counter, SessionCounters};
use esker_format::ColumnMask;
use esker_io::{IoKind, SimDisk};
use std::sync::Arc;

const ROWS: u64 = 20_000;

fn small_blocks() -> Options {
    Options { block_bytes: 4 << 10, ..options() }
}

/// A table of one run, of whose blocks none is in memory.
fn cold(options: Options) -> (SimDisk, Engine, Arc<Table>, Arc<Run>) {
    let disk = SimDisk::new(1);
    let e = open(&disk, small_blocks());
    e.create_table("t", &def()).unwrap();
    let t = e.open_table("t").unwrap();
    commit_rows(&mut e.session(), &t, ROWS);
    flush::tree(&e.core, &t, &t.tree()).unwrap();
    checkpoint::write(&e.core).unwrap();
    drop((t, e));
    disk.crash();
    let e = open(&disk, options);
    let t = e.open_table("t").unwrap();
    let run = t.tree().snapshot().runs[0].run.clone();
    assert_eq!(t.tree().snapshot().runs.len(), 1);
    run.index().unwrap();
    (disk, e, t, run)
}

/// What a scan did.
#[derive(Debug, PartialEq)]
struct Did {
    rows: u64,
    error: Option<String>,
    cached: u64,
    missed: u64,
    ahead: u64,
    reads: u64,
}

fn scan(e: &Engine, t: &Arc<Table>, read_blocks: u32) -> Did {
    let own = SessionCounters::new();
    let _bound = bind(&own);
    let mut s = e.session();
    s.set_read_blocks(read_blocks);
    begin(&mut s);
    let mut cursor = s.scan(t, ScanOptions { mask: ColumnMask::all(2), ..ScanOptions::default() }).unwrap();
    let (mut rows, mut error) = (0, None);
    loop {
        match cursor.next_batch(&mut s).map(|batch| batch.ids.len() as u64) {
            Ok(0) => break,
            Ok(n) => rows += n,
            Err(e) => {
                error = Some(format!("{e:?}"));
                break;
            }
        }
    }
    let [cached, missed, ahead, reads] =
        [Counter::BlocksCached, Counter::BlocksMissed, Counter::BlocksReadAhead, Counter::ReadsRun].map(|c| own.get(c));
    Did { rows, error, cached, missed, ahead, reads }
}

/// Reads of so many blocks: one, then twice as many each time.
fn reads_of(blocks: u64, most: u64) -> u64 {
    let (mut left, mut many, mut reads) = (blocks, 1, 0);
    while left > 0 {
        left -= left.min(many);
        many = (2 * many).min(most);
        reads += 1;
    }
    reads
}

#[test]
fn blocks_that_lie_beside_each_other_are_read_by_one_call() {
    for most in [1, 2, 7, 64] {
        let (_disk, e, t, run) = cold(small_blocks());
        let index = run.index().unwrap().keep();
        let blocks = index.entries().len() as u64;
        assert!(blocks > 100, "{blocks}");
        let reads = reads_of(blocks, most.into());
        let did = scan(&e, &t, most);
        let ahead = blocks - reads;
        assert_eq!(did, Did { rows: ROWS, error: None, cached: 0, missed: blocks, ahead, reads }, "{most} at once");
        // To have been read by a scan, ahead or not, is no use that would keep a block in memory.
        assert!((0..index.entries().len()).all(|at| index.slot(at).is_here() && !index.slot(at).take_touched()));
        let again = scan(&e, &t, most);
        assert_eq!(again, Did { rows: ROWS, error: None, cached: blocks, missed: 0, ahead: 0, reads: 0 });
    }
}

#[test]
fn what_is_in_memory_is_not_read_again() {
    let (_disk, e, t, run) = cold(small_blocks());
    let index = run.index().unwrap().keep();
    let blocks = index.entries().len() as u64;
    // Of every ten one.
    (5..index.entries().len()).step_by(10).for_each(|at| drop(run.block(&index, at).unwrap()));
    let there = (0..index.entries().len()).filter(|at| index.slot(*at).is_here()).count() as u64;
    let did = scan(&e, &t, 64);
    assert_eq!((did.rows, did.cached, did.missed), (ROWS, there, blocks - there));
    // Each stretch between two of them by one call, the first few by several.
    assert!(did.reads + did.ahead == did.missed && (there..there + 5).contains(&did.reads), "{did:?}, {there} there");
}

#[test]
fn who_wants_little_reads_little() {
    let (_disk, e, t, _) = cold(small_blocks());
    let own = SessionCounters::new();
    let _bound = bind(&own);
    let mut s = e.session();
    s.set_read_blocks(64);
    begin(&mut s);
    let mut cursor = s.scan(&t, ScanOptions { mask: ColumnMask::all(2), ..ScanOptions::default() }).unwrap();
    assert!(!cursor.next_batch(&mut s).unwrap().ids.is_empty());
    assert_eq!((own.get(Counter::ReadsRun), own.get(Counter::BlocksReadAhead)), (1, 0));
}

#[test]
fn what_would_not_stay_in_memory_is_not_read_ahead() {
    let options = || Options { memory_limit_bytes: 512 << 10, ..small_blocks() };
    let (_disk, e, t, run) = cold(options());
    let blocks = run.index().unwrap().entries().len() as u64;
    let did = scan(&e, &t, 64);
    assert_eq!((did.rows, did.missed, did.ahead, did.reads), (ROWS, blocks, 0, blocks));
}

#[test]
fn a_damaged_block_is_told_of_where_its_reader_comes_to_it() {
    let told = |block: usize, most: u32| {
        let (disk, e, t, run) = cold(small_blocks());
        let place = run.index().unwrap().entry(block).offset;
        disk.damage(&run.path(), place + 100, &[1, 2, 3]).unwrap();
        let did = scan(&e, &t, most);
        (did.rows, did.error, did.ahead)
    };
    // The first that one read brings, and one among others.
    for block in [39, 42] {
        let (rows, error, _) = told(block, 1);
        assert!(rows > 0 && error.as_ref().is_some_and(|e| e.starts_with("Damage")), "{rows} {error:?}");
        for most in [2, 8, 64] {
            let (rows_ahead, error_ahead, ahead) = told(block, most);
            assert_eq!((rows_ahead, &error_ahead), (rows, &error), "block {block}, {most} at once");
            assert!(ahead > 10, "{ahead}");
        }
    }
}

#[test]
fn a_place_that_cannot_be_read_costs_only_its_block() {
    let told = |most: u32| {
        let (disk, e, t, run) = cold(small_blocks());
        let place = run.index().unwrap().entry(42).offset;
        disk.fail_reads_of(&run.path(), place..place + 1, IoKind::Failed).unwrap();
        let did = scan(&e, &t, most);
        (did.rows, did.error, did.ahead)
    };
    let (rows, error, _) = told(1);
    assert!(rows > 0 && error.is_some());
    let (rows_ahead, error_ahead, ahead) = told(64);
    assert_eq!((rows_ahead, error_ahead), (rows, error));
    assert!(ahead > 10, "{ahead}");
}

#[test]
fn who_misses_block_after_block_tells_of_those_that_follow_before_it_comes_to_them() {
    let mut ahead = Ahead::new(1);
    let (mut told, mut times) = (0, 0);
    for at in 10..2000 {
        let now = ahead.next_told(at);
        if at < 13 {
            assert_eq!(now, None, "whoever wants {} blocks alone", at - 9);
            continue;
        }
        if let Some(blocks) = now {
            assert!(blocks.start == told.max(at + 1), "{blocks:?} at {at}, told before {told}");
            (told, times) = (blocks.end, times + 1);
        }
        // Some lie ahead, and never very many.
        assert!((at + 1..at + 200).contains(&told), "told before {told} at {at}");
    }
    assert!((10..50).contains(&times), "{times}");
    // What is in memory ends it.
    ahead.missed = 0;
    assert_eq!(ahead.next_told(5000), None);
}

#[test]
fn a_scan_of_what_is_not_in_memory_is_announced_and_nothing_else_is() {
    let announced = |read_blocks: u32, scans: u32| {
        let (_disk, e, t, run) = cold(small_blocks());
        let own = SessionCounters::new();
        let bound = bind(&own);
        let blocks = run.index().unwrap().entries().len() as u64;
        let mut s = e.session();
        for _ in 0..scans {
            begin(&mut s);
            s.set_read_blocks(read_blocks);
            let mut cursor = s.scan(&t, ScanOptions { mask: ColumnMask::all(2), ..ScanOptions::default() }).unwrap();
            while !cursor.next_batch(&mut s).unwrap().ids.is_empty() {}
            drop(cursor);
            s.commit().unwrap();
        }
        drop(bound);
        (own.get(Counter::ReadsAnnounced), blocks)
    };
    let (once, blocks) = announced(1, 1);
    assert!(once >= blocks / 128 && once <= blocks / 32 + 5, "{once} for {blocks} blocks");
    assert_eq!(announced(1, 3).0, once, "what is in memory is not announced again");
    // A merge reads past the cache.
    let (_disk, e, t, run) = cold(small_blocks());
    let index = run.index().unwrap().keep();
    let own = SessionCounters::new();
    let _bound = bind(&own);
    (0..20).for_each(|at| drop(run.block(&index, at).unwrap()));
    assert_eq!(own.get(Counter::ReadsAnnounced), 0, "one by one");
    (0..index.entries().len()).for_each(|at| drop(run.read_in_order(&index, at).unwrap()));
    assert_eq!(own.get(Counter::ReadsAnnounced), (index.entries().len() as u64).div_ceil(32));
    drop((e, t));
}
