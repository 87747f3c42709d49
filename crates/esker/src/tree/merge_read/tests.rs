//! How many runs a read looks at, and how much it reads in whole spans.

use super::*;
use crate::tests::tables::{begin, commit_rows, def, insert, open, options, small_runs};
use crate::tree::levels::looked;
use crate::upkeep::flush;
use crate::*;
use esker_format::{ColumnMask, CommitSeq, TxnId};
use esker_io::SimDisk;

fn view(e: &Engine) -> View {
    View { seq: e.core.views.visible_seq(), me: TxnId::ZERO }
}

#[test]
fn a_lookup_looks_at_the_runs_over_its_row() {
    let disk = SimDisk::new(1);
    let e = open(&disk, options());
    e.create_table("t", &def()).unwrap();
    let t = e.open_table("t").unwrap();
    let mut s = e.session();
    let mut ids = Vec::new();
    for _ in 0..300 {
        ids.extend(commit_rows(&mut s, &t, 2));
        flush::tree(&e.core, &t, &t.tree()).unwrap();
    }
    // One more over all of them.
    begin(&mut s);
    for id in [ids[0], ids[599]] {
        unsafe { s.update_image(&t, id, crate::tests::tables::img(7).as_ptr()).unwrap() };
    }
    s.commit().unwrap();
    flush::tree(&e.core, &t, &t.tree()).unwrap();
    assert_eq!(t.tree().snapshot().runs.len(), 301);
    begin(&mut s);
    let mask = ColumnMask::all(2);
    let mut c = s.open_cursor(&t, ScanOptions { mask, ..ScanOptions::default() }).unwrap();
    for id in &ids {
        looked::take();
        assert!(c.fetch(&mut s, *id).unwrap().is_some());
        assert!(looked::take() <= 2, "row {id}");
    }
    // A scan from the middle opens no run before it, and none before it is needed.
    let mut read = MergeRead::new(t.tree().snapshot(), None, view(&e), ids[400], &crate::lock::Parker::new()).unwrap();
    looked::take();
    assert!(matches!(read.next().unwrap(), Span::Rows(span) if span.block.row_id(span.rows.start) == ids[400]));
    assert!(looked::take() <= 2);
}

/// What lies about a block's beginning costs no more than what lies behind it.
#[test]
fn a_read_from_the_middle_of_a_block_gives_its_rest_as_it_stands() {
    let disk = SimDisk::new(1);
    let e = open(&disk, options());
    e.create_table("t", &def()).unwrap();
    let t = e.open_table("t").unwrap();
    let ids = commit_rows(&mut e.session(), &t, 300);
    flush::tree(&e.core, &t, &t.tree()).unwrap();
    let mut read = MergeRead::new(t.tree().snapshot(), None, view(&e), ids[7], &crate::lock::Parker::new()).unwrap();
    let Span::Rows(span) = read.next().unwrap() else { panic!("one by one") };
    assert_eq!((span.block.row_id(span.rows.start), span.rows.len()), (ids[7], 293));
}

/// Rows that a scan gives out together, and those that it gives out one by one.
fn scan(e: &Engine, t: &Arc<Table>) -> (usize, usize) {
    let mut read =
        MergeRead::new(t.tree().snapshot(), None, view(e), esker_format::RowId::ZERO, &crate::lock::Parker::new())
            .unwrap();
    let (mut rows, mut alone) = (0, 0);
    looked::take();
    loop {
        match read.next().unwrap() {
            Span::Rows(span) if span.rows.len() > 1 => rows += span.rows.len(),
            Span::Rows(_) | Span::One(..) => alone += 1,
            Span::End => return (rows, alone),
        }
    }
}

#[test]
fn a_row_that_was_rolled_back_costs_its_block_alone() {
    let disk = SimDisk::new(1);
    let e = open(&disk, Options { block_bytes: 1 << 10, ..small_runs() });
    e.create_table("t", &def()).unwrap();
    let t = e.open_table("t").unwrap();
    let mut s = e.session();
    begin(&mut s);
    for n in 0..3000 {
        if n == 1500 {
            s.end_statement();
            s.begin_statement();
            insert(&mut s, &t, n);
            s.rollback_statement();
            s.begin_statement();
        }
        insert(&mut s, &t, n);
    }
    s.commit().unwrap();
    flush::tree(&e.core, &t, &t.tree()).unwrap();
    let state = t.tree().snapshot();
    let with_aborted =
        state.runs.iter().find(|h| !h.aborted.is_empty()).expect("a run with a row that was rolled back");
    let blocks = with_aborted.run.index().unwrap().entries().len();
    let (rows, alone) = scan(&e, &t);
    assert_eq!(rows + alone, 3000);
    assert!(blocks > 20 && alone < 3 * 3000 / blocks, "{alone} rows one by one, {blocks} blocks");
}

/// Deleted rows, and those with several versions, of which older ones are needed, cost themselves and not their block.
#[test]
fn what_lies_between_deleted_and_changed_rows_is_given_together() {
    let disk = SimDisk::new(1);
    let e = open(&disk, options());
    e.create_table("t", &def()).unwrap();
    let t = e.open_table("t").unwrap();
    let (mut s, mut old) = (e.session(), e.session());
    let ids = commit_rows(&mut s, &t, 300);
    begin(&mut old);
    old.read_view().unwrap();
    begin(&mut s);
    for at in [0, 100, 299] {
        s.delete(&t, ids[at]).unwrap();
    }
    unsafe { s.update_image(&t, ids[200], crate::tests::tables::img(7).as_ptr()).unwrap() };
    s.commit().unwrap();
    flush::tree(&e.core, &t, &t.tree()).unwrap();
    let runs = t.tree().snapshot();
    let blocks = runs.runs.iter().map(|h| h.run.index().unwrap().entries().len()).sum::<usize>();
    assert_eq!(blocks, 1, "tombstones and both versions lie in one block");
    // 1 to 99, 101 to 199, 201 to 298; and 200.
    assert_eq!(scan(&e, &t), (296, 1));
    old.commit().unwrap();
}

#[test]
fn a_run_that_a_mark_deletes_is_not_opened() {
    let disk = SimDisk::new(1);
    let e = open(&disk, options());
    e.create_table("t", &def()).unwrap();
    let t = e.open_table("t").unwrap();
    let mut s = e.session();
    for _ in 0..5 {
        commit_rows(&mut s, &t, 20);
        flush::tree(&e.core, &t, &t.tree()).unwrap();
    }
    begin(&mut s);
    s.delete_all(&t).unwrap();
    s.commit().unwrap();
    commit_rows(&mut s, &t, 20);
    assert_eq!(scan(&e, &t), (0, 20));
    assert_eq!(looked::take(), 0);
    assert_eq!(t.tree().snapshot().seen_marks(View { seq: CommitSeq(1), me: TxnId::ZERO }).len(), 0);
}
