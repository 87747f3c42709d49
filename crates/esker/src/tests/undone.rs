//! What a large transaction has undone lies in its runs beside what it has not: nobody sees it, whatever he reads the rows by.

use crate::tests::indexes::{def, image, Row};
use crate::tests::support::{begin, flush, open_with, small};
use crate::*;
use esker_format::{ColumnMask, RowId};
use esker_io::SimDisk;
use std::sync::Arc;

const ROWS: u32 = 12_000;
/// Long, so that few of them fill a run.
const WIDTH: usize = 180;

fn row(a: u32, text: u8) -> Vec<u8> {
    image(&Row { a, c: None, text: vec![text; WIDTH] })
}

/// The texts by the first index, which does not cover them.
fn texts(s: &mut Session, t: &Arc<Table>) -> Vec<u8> {
    let options = ScanOptions { mask: ColumnMask::all(3), ..ScanOptions::default() };
    let mut cursor = s.open_index_cursor(t, 0, options).unwrap();
    cursor.seek(s, KeyRange { from: vec![], to: None }, Direction::Forward).unwrap();
    let mut texts = Vec::new();
    loop {
        let batch = cursor.next_batch(s).unwrap();
        if batch.ids.is_empty() {
            return texts;
        }
        // SAFETY: the batch has a decoded image for each id.
        texts.extend((0..batch.ids.len()).map(|i| unsafe { *batch.images.add(i * batch.stride + 10) }));
    }
}

#[test]
fn rows_by_an_index_are_as_they_were() {
    let e = open_with(&SimDisk::new(1), small()).unwrap();
    e.create_table("t", &TableDef { indexes: vec![def().indexes[0].clone()], ..def() }).unwrap();
    let t = e.open_table("t").unwrap();
    let mut s = e.session();
    begin(&mut s);
    // In another order than their keys.
    let ids: Vec<RowId> =
        (0..ROWS).map(|n| unsafe { s.insert_image(&t, row(n * 7 % ROWS, b'a').as_ptr()).unwrap() }).collect();
    s.commit().unwrap();
    flush(&e, &t);
    begin(&mut s);
    let update = |s: &mut Session, n: u32, text| unsafe {
        s.update_image(&t, ids[n as usize], row(n * 7 % ROWS, text).as_ptr()).unwrap();
    };
    (0..ROWS / 2).for_each(|n| update(&mut s, n, b'b'));
    let point = s.savepoint();
    (ROWS / 4..ROWS).for_each(|n| update(&mut s, n, b'c'));
    assert!(!s.current.open().unwrap().tables[0].rows.runs.is_empty(), "nothing is in runs");
    s.rollback_to(&point);
    let mut wanted = vec![b'a'; ROWS as usize];
    (0..ROWS / 2).for_each(|n| wanted[(n * 7 % ROWS) as usize] = b'b');
    assert_eq!(texts(&mut s, &t), wanted);
    s.commit().unwrap();
    begin(&mut s);
    assert_eq!(texts(&mut s, &t), wanted);
    let undone = t.tree().snapshot().runs.iter().filter(|run| !run.aborted().is_empty()).count();
    assert!(undone > 0, "no run has anything undone");
}
