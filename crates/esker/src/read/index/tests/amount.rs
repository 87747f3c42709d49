//! How much a reading reads, and what it says of how much there is.

use super::*;
use crate::tests::support::{begin, begun};
use crate::tree::backward::pieces;
use crate::tree::levels::looked;
use esker_base::counters::{bind, Counter, SessionCounters};

/// Rows of these numbers and this name, committed.
fn commit(e: &Engine, t: &Arc<Table>, numbers: impl Iterator<Item = u64>, name: &[u8]) {
    let mut s = begun(e, false);
    numbers.for_each(|n| {
        insert(&mut s, t, &(n, Some(n as i32), Some(name.to_vec())));
    });
    s.commit().unwrap();
}

/// A table with three runs that lie over each other, and a memtable over all; so many rows.
fn layered(name: &[u8]) -> (SimDisk, Engine, Arc<Table>, u64) {
    let (disk, e, t) = made(Options { bulk_threshold_bytes: 64 << 20, ..small_blocks() });
    for layer in 0..3 {
        commit(&e, &t, (0..9000).filter(|n| n % 3 == layer), name);
        e.sim_flush(&t).unwrap();
    }
    commit(&e, &t, 9000..9500, name);
    (disk, e, t, 9500)
}

struct Read {
    rows: u64,
    examined: u64,
    blocks: u64,
    pieces: u64,
    opened: u64,
}

/// Reads a range against its order, to its end or one batch; entries alone.
fn backward(s: &mut Session, t: &Arc<Table>, index: usize, range: KeyRange, all: bool) -> Read {
    let counters = SessionCounters::new();
    let _bound = bind(&counters);
    pieces::take();
    looked::take();
    let mut c = s.open_index_cursor(t, index, plain(&mask_of(&[]))).unwrap();
    c.seek(s, range, Direction::Backward).unwrap();
    let (mut rows, mut last) = (0, None);
    loop {
        let batch = c.next_batch(s).unwrap();
        for at in 0..batch.ids.len() {
            let key = batch.key(at).to_vec();
            assert!(last.is_none_or(|last| key < last), "not in the order of keys");
            last = Some(key);
            rows += 1;
        }
        if batch.ids.is_empty() || !all {
            break;
        }
    }
    let blocks = counters.get(Counter::BlocksCached) + counters.get(Counter::BlocksMissed);
    let (pieces, opened) = (pieces::take() as u64, looked::take() as u64);
    Read { rows, examined: counters.get(Counter::RowsExamined), blocks, pieces, opened }
}

#[test]
fn reading_backward_examines_what_it_gives() {
    for name in [&b"n"[..], &[b'n'; 100]] {
        let (_disk, e, t, rows) = layered(name);
        let mut s = begun(&e, false);
        for index in [BY_FEW, BY_NAME] {
            let blocks: u64 = t.trees().keys[index].snapshot().runs.iter().map(|h| h.run.stats.blocks).sum();
            assert!(blocks > 100, "{blocks} blocks");
            let read = backward(&mut s, &t, index, KeyRange::default(), true);
            assert_eq!(read.rows, rows);
            assert!(read.examined <= rows + rows / 5, "{} of {rows} entries were examined", read.examined);
            // A piece ends with a block of one of the runs, or is as large as one.
            assert!(read.pieces <= blocks + rows / 100 + 10, "{} pieces of {blocks} blocks", read.pieces);
            // Each piece opens the three runs, and looks for its beginning in a few blocks of each.
            assert!(read.opened <= 10 * read.pieces, "{} runs opened, {} pieces", read.opened, read.pieces);
            assert!(read.blocks <= 100 * read.pieces, "{} blocks, {} pieces", read.blocks, read.pieces);
        }
    }
}

#[test]
fn who_reads_a_row_or_two_from_the_end_reads_little() {
    for name in [&b"n"[..], &[b'n'; 100]] {
        let (_disk, e, t, rows) = layered(name);
        let mut s = begun(&e, false);
        let before = |n: u64| {
            let key = entry_of(&t, BY_NAME, RowId(1), &(n, None, Some(name.to_vec()))).0;
            KeyRange { from: Vec::new(), to: Some(key) }
        };
        for (index, range) in [(BY_FEW, KeyRange::default()), (BY_NAME, KeyRange::default()), (BY_NAME, before(4321))] {
            let read = backward(&mut s, &t, index, range, false);
            assert!(read.rows >= 1 && read.rows < rows / 100);
            assert!(read.examined <= 120 && read.pieces <= 2, "{} entries, {} pieces", read.examined, read.pieces);
            assert!(read.blocks < 100, "{} blocks", read.blocks);
        }
    }
}

/// Runs that lie beside each other are looked into where the reading has come to, from either end.
#[test]
fn the_end_of_many_runs_is_looked_for_in_few() {
    let (_disk, e, t) = made(small_blocks());
    for n in 0..100 {
        commit(&e, &t, 10 * n..10 * n + 10, b"n");
        e.sim_flush(&t).unwrap();
    }
    let mut s = begun(&e, false);
    for index in [BY_FEW, BY_NAME] {
        assert_eq!(t.trees().keys[index].snapshot().runs.len(), 100);
        let read = backward(&mut s, &t, index, KeyRange::default(), false);
        assert!(read.rows > 0 && read.blocks <= 20, "{} rows, {} blocks", read.rows, read.blocks);
        let read = backward(&mut s, &t, index, KeyRange::default(), true);
        assert_eq!(read.rows, 1000);
        assert!(read.blocks <= 1000, "{} blocks, {} pieces", read.blocks, read.pieces);
    }
}

/// Who passes many dead keys backward says so, in however many pieces he reads: of those in memory, and of those in runs.
#[test]
fn dead_keys_that_are_passed_backward_are_told_of() {
    for options in [plain(&mask_of(&[])), locking()] {
        for flushed in [false, true] {
            let (_disk, e, t) = made(Options { bulk_threshold_bytes: 64 << 20, ..small_blocks() });
            commit(&e, &t, 0..2500, b"n");
            flushed.then(|| e.sim_flush(&t).unwrap());
            let mut s = begun(&e, false);
            // The greatest keys of the index are of the least numbers.
            (0..2400u64).for_each(|n| s.delete(&t, RowId(n + 1)).unwrap());
            s.commit().unwrap();
            flushed.then(|| e.sim_flush(&t).unwrap());
            let tree = t.trees().keys[BY_FEW].clone();
            let horizon = e.core.views.horizon();
            assert!(!tree.snapshot().dead_wants_flush(horizon) && tree.snapshot().dead_in_runs().is_none());
            begin(&mut s);
            let mut c = s.open_index_cursor(&t, BY_FEW, options.clone()).unwrap();
            c.seek(&mut s, KeyRange::default(), Direction::Backward).unwrap();
            assert_eq!(c.next_batch(&mut s).unwrap().ids[0], RowId(2401));
            drop(c);
            assert_eq!(tree.snapshot().dead_wants_flush(horizon), !flushed);
            let told = tree.snapshot().dead_in_runs();
            assert_eq!(told.is_some(), flushed);
            if let Some(range) = told {
                assert!(range.first[..] < few(1000)[..] && range.last.starts_with(&few(0)), "not so many of them");
            }
        }
    }
}

/// A key with more versions than a block has is read once, whichever way.
#[test]
fn many_versions_of_a_key_are_one_entry() {
    let (_disk, e, t) = made(small_blocks());
    commit(&e, &t, 0..300, &[b'v'; 80]);
    let (mut views, mut s) = (Vec::new(), e.session());
    for round in 0..120 {
        let mut view = begun(&e, false);
        view.read_view().unwrap();
        views.push(view);
        begin(&mut s);
        let (key, _) = entry_of(&t, BY_NAME, RowId(7), &(6, None, Some(vec![b'v'; 80])));
        s.write_entry(&t, BY_NAME, Entry { key: &key, row: RowId(7), payload: Some(&[1; 900]) }).unwrap();
        s.commit().unwrap();
        if round % 50 == 49 {
            e.sim_flush(&t).unwrap();
        }
    }
    let versions: u64 = t.trees().keys[BY_NAME].snapshot().runs.iter().map(|h| h.run.stats.rows).sum();
    assert!(versions >= 300 + 100, "{versions} versions in runs");
    assert!(e.sim_keys_over_blocks(&t).unwrap() > 3, "no key goes on in the next block");
    let mut s = begun(&e, false);
    let read = backward(&mut s, &t, BY_FEW, KeyRange::default(), true);
    assert_eq!(read.rows, 300);
    let mut c = s.open_index_cursor(&t, BY_NAME, plain(&mask_of(&[FEW]))).unwrap();
    for direction in [Direction::Forward, Direction::Backward] {
        c.seek(&mut s, KeyRange::default(), direction).unwrap();
        assert_eq!(rest(&mut s, &mut c, &mask_of(&[FEW])).len(), 300, "{direction:?}");
    }
}

/// Whoever reads to the end of a range looks at nothing behind it, however much of that is dead.
#[test]
fn what_lies_behind_a_range_is_not_examined() {
    let counters = SessionCounters::new();
    let _bound = bind(&counters);
    let (_disk, e, t) = made(small_blocks());
    commit(&e, &t, 0..2000, b"n");
    let mut s = begun(&e, false);
    for n in 100..2000u64 {
        s.delete(&t, RowId(n + 1)).unwrap();
    }
    s.commit().unwrap();
    begin(&mut s);
    for direction in [Direction::Forward, Direction::Backward] {
        let before = counters.get(Counter::RowsExamined);
        let mut c = s.open_index_cursor(&t, BY_FEW, plain(&mask_of(&[FEW]))).unwrap();
        // Falling: what is dead lies before it.
        c.seek(&mut s, KeyRange { from: few(60), to: Some(few(49)) }, direction).unwrap();
        assert_eq!(rest(&mut s, &mut c, &mask_of(&[FEW])).len(), 11);
        let up = KeyRange { from: few(1999), to: Some(few(1998)) };
        c.seek(&mut s, up, direction).unwrap();
        assert_eq!(rest(&mut s, &mut c, &mask_of(&[FEW])).len(), 0);
        assert!(counters.get(Counter::RowsExamined) - before < 40);
    }
}

#[test]
fn an_entry_without_its_row_is_damage() {
    let (_disk, e, t) = made(small_blocks());
    commit(&e, &t, 0..10, b"n");
    let mut s = begun(&e, false);
    let (key, payload) = entry_of(&t, BY_FEW, RowId(77), &(1, Some(5), None));
    s.write_entry(&t, BY_FEW, Entry { key: &key, row: RowId(77), payload: Some(&payload) }).unwrap();
    s.commit().unwrap();
    begin(&mut s);
    for options in [plain(&mask_of(&[NUMBER])), locking()] {
        let mut c = s.open_index_cursor(&t, BY_FEW, options).unwrap();
        c.seek(&mut s, KeyRange::of_prefix(&few(5)), Direction::Backward).unwrap();
        let answer = loop {
            match c.next_batch(&mut s) {
                Ok(batch) if batch.ids.is_empty() => break None,
                Ok(_) => {}
                Err(e) => break Some(e),
            }
        };
        assert!(
            matches!(&answer, Some(Error::EntryWithoutRow { table, index, row: RowId(77) }) if table == "t" && index == "few"),
            "{answer:?}"
        );
    }
    // Those alone tell it.
    let mut c = s.open_index_cursor(&t, BY_FEW, plain(&mask_of(&[FEW]))).unwrap();
    c.seek(&mut s, KeyRange::of_prefix(&few(5)), Direction::Forward).unwrap();
    assert_eq!(rest(&mut s, &mut c, &mask_of(&[FEW])).len(), 2);
}

/// Rows that the reader's own transaction changes while it reads are not given by keys that they no longer have.
#[test]
fn own_changes_while_reading_are_met() {
    let (_disk, e, t) = made(small_blocks());
    commit(&e, &t, 0..200, b"n");
    e.sim_flush(&t).unwrap();
    let (mut s, all) = (begun(&e, false), mask_of(&[NUMBER, FEW, NAME]));
    let mut c = s.open_index_cursor(&t, BY_NAME, plain(&all)).unwrap();
    c.seek(&mut s, KeyRange::default(), Direction::Forward).unwrap();
    let first = given(&c.next_batch(&mut s).unwrap(), &all);
    assert_eq!(first.iter().map(|g| g.2 .0).collect::<Vec<_>>(), [199, 198, 197, 196]);
    let values = |n: u64, name: &[u8]| (n, Some(n as i32), Some(name.to_vec()));
    s.delete(&t, RowId(101)).unwrap();
    update(&mut s, &t, RowId(91), &values(90, b"a"));
    update(&mut s, &t, RowId(81), &(80, None, Some(b"n".to_vec())));
    let left = rest(&mut s, &mut c, &all);
    let expected: Vec<u64> = (0..196).rev().filter(|n| ![100, 90].contains(n)).collect();
    assert_eq!(left.iter().map(|g| g.2 .0).collect::<Vec<_>>(), expected);
    assert!(left.contains(&(
        entry_of(&t, BY_NAME, RowId(81), &values(80, b"n")).0,
        RowId(81),
        (80, None, Some(b"n".to_vec()))
    )));
}

/// A row that its reader wrote over a version which its view does not see is found by the key that it has now, and no other.
#[test]
fn a_row_written_beyond_the_view_has_one_entry() {
    let (_disk, e, t) = made(small_blocks());
    commit(&e, &t, 0..50, b"n");
    let mut s = begun(&e, false);
    s.read_view().unwrap();
    let mut other = begun(&e, false);
    let values = |n: u64, few: i32, name: &[u8]| (n, Some(few), Some(name.to_vec()));
    update(&mut other, &t, RowId(11), &values(10, 100, b"n"));
    update(&mut other, &t, RowId(21), &values(20, 200, b"n"));
    update(&mut other, &t, RowId(31), &values(30, 300, b"n"));
    other.commit().unwrap();
    // One stays where the other has put it, one goes back, one is deleted.
    update(&mut s, &t, RowId(11), &values(10, 100, b"own"));
    update(&mut s, &t, RowId(21), &values(20, 20, b"own"));
    s.delete(&t, RowId(31)).unwrap();
    for columns in [&[FEW][..], &[FEW, NAME]] {
        let mask = mask_of(columns);
        for direction in [Direction::Forward, Direction::Backward] {
            let mut c = s.open_index_cursor(&t, BY_FEW, plain(&mask)).unwrap();
            c.seek(&mut s, KeyRange::default(), direction).unwrap();
            let mut found: Vec<_> =
                rest(&mut s, &mut c, &mask).into_iter().map(|g| (g.2 .1.unwrap(), g.1 .0)).collect();
            found.sort_unstable();
            let expected = (0..50).filter(|n| ![10, 30].contains(n)).map(|n| (n, n as u64 + 1));
            assert_eq!(found, expected.chain([(100, 11)]).collect::<Vec<_>>());
        }
    }
}

#[test]
fn a_kill_reaches_who_reads_backward() {
    let (_disk, e, t) = made(small_blocks());
    commit(&e, &t, 0..3000, b"n");
    let mut s = begun(&e, false);
    for looks in [0, 3, 12] {
        s.parker.kill_after(looks);
        let mut c = s.open_index_cursor(&t, BY_FEW, plain(&mask_of(&[FEW]))).unwrap();
        c.seek(&mut s, KeyRange::default(), Direction::Backward).unwrap();
        let answer = loop {
            match c.next_batch(&mut s) {
                Ok(batch) if batch.ids.is_empty() => panic!("it went on to the end"),
                Ok(_) => {}
                Err(e) => break e,
            }
        };
        assert!(matches!(answer, Error::Interrupted), "{answer}");
        s.clear_kill();
    }
}

#[test]
fn estimates_are_near_and_zero_only_where_nothing_is() {
    let (_disk, e, t, rows) = layered(b"n");
    let mut s = begun(&e, false);
    let mut about = |range: KeyRange, count: u64| {
        let estimate = s.estimate_rows(&t, BY_FEW, &range).unwrap();
        match count {
            0..=16 => assert_eq!(estimate, count),
            _ => assert!(estimate >= count / 2 && estimate <= count * 2, "{estimate} instead of {count}"),
        }
    };
    about(KeyRange::default(), rows);
    for (least, behind) in
        [(0, 9000), (100, 200), (17, 18), (3000, 3016), (3000, 3064), (3000, 4500), (9100, 9400), (8000, 9500)]
    {
        // Falling.
        about(KeyRange { from: few(behind - 1), to: Some(few(least - 1)) }, (behind - least) as u64);
    }
    about(KeyRange { from: few(-1), to: Some(few(-100)) }, 0);
    about(KeyRange { from: few(5), to: Some(few(6)) }, 0);
    // All of it is deleted: a few are said to be there, or none if somebody has looked.
    s.commit().unwrap();
    begin(&mut s);
    for n in 2000..2050u64 {
        let mut c = s.open_index_cursor(&t, BY_FEW, locking()).unwrap();
        c.seek(&mut s, KeyRange::of_prefix(&few(n as i32)), Direction::Forward).unwrap();
        let row = c.next_batch(&mut s).unwrap().ids[0];
        s.delete(&t, row).unwrap();
    }
    assert_eq!(s.estimate_rows(&t, BY_FEW, &KeyRange { from: few(2049), to: Some(few(1999)) }).unwrap(), 0);
    assert!(s.current.open().unwrap().view.is_none(), "an estimate opened the transaction's view");
}
