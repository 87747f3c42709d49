//! Readers of one view while others write, flush and merge: they go on in what the tree has become.

use super::model::{change, entries, Model};
use super::*;
use crate::tests::support::begun;
use esker_base::counters::{bind, SessionCounters};

/// A reader, and what it has still to give.
enum Reader {
    Scan(Box<crate::Cursor>, Vec<(RowId, Values)>),
    Index { cursor: Box<IndexCursor>, choosing: bool, rest: Vec<Given>, mask: ColumnMask },
}

impl Reader {
    /// Reads a batch; false at the end.
    fn goes_on(&mut self, s: &mut Session, random: &mut fastrand::Rng) -> bool {
        match self {
            Reader::Scan(cursor, rest) => {
                let all = mask_of(&[NUMBER, FEW, NAME]);
                let batch = cursor.next_batch(s).unwrap();
                let row = |at: usize| {
                    // SAFETY: an image for each id.
                    let image =
                        unsafe { std::slice::from_raw_parts(batch.images.add(at * batch.stride), batch.stride) };
                    (batch.ids[at], values_of(image, &all))
                };
                let rows: Vec<_> = (0..batch.ids.len()).map(row).collect();
                assert_eq!(rows, rest[..rows.len()]);
                rest.drain(..rows.len());
                assert!(!rows.is_empty() || rest.is_empty(), "{} rows were not given", rest.len());
                !rows.is_empty()
            }
            Reader::Index { cursor, choosing, rest, mask } => {
                cursor.batch_rows = random.usize(1..24);
                let batch = cursor.next_batch(s).unwrap();
                let rows = batch.ids.len();
                let ids: Vec<_> = rest[..rows].iter().map(|given| given.1).collect();
                assert_eq!(batch.ids, ids);
                if *choosing {
                    let places: Vec<u32> = (0..rows as u32).filter(|_| random.bool()).collect();
                    let chosen = given(&cursor.choose(s, &places).unwrap(), mask);
                    assert_eq!(chosen, places.iter().map(|at| rest[*at as usize].clone()).collect::<Vec<_>>());
                } else {
                    assert_eq!(given(&batch, mask), rest[..rows]);
                }
                rest.drain(..rows);
                assert!(rows > 0 || rest.is_empty(), "{} entries were not given", rest.len());
                rows > 0
            }
        }
    }
}

/// All ways to read the table in a view.
fn readers(s: &mut Session, t: &Arc<Table>, model: &Model) -> Vec<Reader> {
    let all = mask_of(&[NUMBER, FEW, NAME]);
    let rows = model.iter().map(|(row, values)| (*row, values.clone())).collect();
    let mut readers = vec![Reader::Scan(Box::new(s.scan(t, plain(&all)).unwrap()), rows)];
    for (index, told) in [(BY_FEW, mask_of(&[FEW])), (BY_NAME, mask_of(&[NAME, NUMBER]))] {
        for (direction, mask, choosing) in [
            (Direction::Forward, &told, false),
            (Direction::Backward, &told, false),
            (Direction::Forward, &all, false),
            (Direction::Backward, &all, false),
            (Direction::Forward, &all, true),
            (Direction::Backward, &all, true),
        ] {
            let mut cursor = Box::new(s.open_index_cursor(t, index, plain(mask)).unwrap());
            cursor.set_choosing(choosing);
            cursor.seek(s, KeyRange::default(), direction).unwrap();
            let mut rest = entries(t, index, model, mask);
            if direction == Direction::Backward {
                rest.reverse();
            }
            readers.push(Reader::Index { cursor, choosing, rest, mask: mask.clone() });
        }
    }
    readers
}

#[test]
fn readers_go_on_in_newer_states_and_see_their_view() {
    let (scans, indexes) = (SessionCounters::new(), SessionCounters::new());
    for seed in 0..12 {
        let mut random = fastrand::Rng::with_seed(seed);
        let random = &mut random;
        let (_disk, e, t) = made(small_blocks());
        let (mut model, mut number) = (Model::new(), 0);
        let mut w = begun(&e, false);
        (0..400).for_each(|_| change(&mut w, &t, &mut model, random, &mut number));
        w.commit().unwrap();
        if random.bool() {
            e.sim_flush(&t).unwrap();
        }
        let mut s = begun(&e, false);
        let mut open = readers(&mut s, &t, &model);
        while !open.is_empty() {
            let mut w = begun(&e, false);
            (0..random.usize(1..40)).for_each(|_| change(&mut w, &t, &mut model, random, &mut number));
            w.commit().unwrap();
            if random.bool() {
                e.sim_flush(&t).unwrap();
            }
            while random.u8(0..3) == 0 && e.sim_merge(&t).unwrap() {}
            open.retain_mut(|reader| {
                let _bound = bind(if matches!(reader, Reader::Scan(..)) { &scans } else { &indexes });
                reader.goes_on(&mut s, random)
            });
        }
    }
    let [scans, indexes] = [scans, indexes].map(|counters| counters.get(Counter::ReadsFollowed));
    assert!(scans > 10 && indexes > 500, "{scans} scans and {indexes} index cursors went on in a newer state");
}

/// What a reader has passed in memory goes once it is in a run, however long the reader takes.
#[test]
fn a_reader_that_goes_on_keeps_no_memtable_of_before() {
    let (_disk, e, t) = made(small_blocks());
    let (mut model, mut number) = (Model::new(), 0);
    let random = &mut fastrand::Rng::with_seed(1);
    let mut w = begun(&e, false);
    (0..400).for_each(|_| change(&mut w, &t, &mut model, random, &mut number));
    w.commit().unwrap();
    let mut s = begun(&e, false);
    for at in 0..13 {
        let mut reader = readers(&mut s, &t, &model).swap_remove(at);
        let mut w = begun(&e, false);
        (0..40).for_each(|_| change(&mut w, &t, &mut Model::new(), random, &mut number));
        w.commit().unwrap();
        reader.goes_on(&mut s, random);
        let trees = t.trees();
        let memtable = Arc::downgrade(&trees.rows.snapshot().active);
        let memtables = trees.keys.iter().map(|tree| Arc::downgrade(&tree.snapshot().active)).collect::<Vec<_>>();
        e.sim_flush(&t).unwrap();
        // The batch that stands may point to it.
        for _ in 0..2 {
            reader.goes_on(&mut s, random);
        }
        assert!(memtable.upgrade().is_none(), "reader {at} keeps a memtable of rows");
        assert!(memtables.iter().all(|m| m.upgrade().is_none()), "reader {at} keeps a memtable of entries");
    }
}

/// Where nothing newer can be read under the view, what is read so far is read to its end.
#[test]
fn a_reader_of_a_table_that_is_emptied_reads_on() {
    [false, true].into_iter().for_each(reads_on_when_emptied);
}

fn reads_on_when_emptied(temporary: bool) {
    let disk = SimDisk::new(1);
    let e = open_with(&disk, small_blocks()).unwrap();
    e.create_table("t", &TableDef { temporary, ..def() }).unwrap();
    let t = e.open_table("t").unwrap();
    let (mut model, mut number) = (Model::new(), 0);
    let random = &mut fastrand::Rng::with_seed(2);
    let mut w = begun(&e, false);
    (0..300).for_each(|_| change(&mut w, &t, &mut model, random, &mut number));
    w.commit().unwrap();
    let mut s = begun(&e, false);
    let mut open = readers(&mut s, &t, &model);
    open.retain(|reader| {
        matches!(reader, Reader::Scan(..)) || matches!(reader, Reader::Index { cursor, .. } if cursor.covering)
    });
    open.iter_mut().for_each(|reader| assert!(reader.goes_on(&mut s, random)));
    e.truncate_table("t").unwrap();
    for reader in &mut open {
        while reader.goes_on(&mut s, random) {}
    }
    assert_eq!(open.len(), 5);
}
