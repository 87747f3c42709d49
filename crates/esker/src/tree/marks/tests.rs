//! Range marks: they go when nobody needs them, and not before; reading does not pay for those that stay.

use super::*;
use crate::tests::tables::{
    begin, commit_rows, def, delete_rows, img, insert, open, open_on, options, rows_of, run_files, small_runs, Watched,
};
use crate::upkeep::{checkpoint, flush, merge};
use crate::*;
use esker_io::{IoKind, SimDisk};
use std::cell::RefCell;
use std::rc::Rc;

fn empty(s: &mut Session, t: &Arc<Table>) {
    begin(s);
    s.lock_all(t).unwrap();
    s.delete_all(t).unwrap();
    s.commit().unwrap();
}

fn marks_of(t: &Arc<Table>) -> usize {
    t.tree().snapshot().marks.len()
}

fn merge(e: &Engine, t: &Arc<Table>) {
    while merge::wanted(&e.core, &t.tree(), e.core.views.horizon()) && merge::once(&e.core, t, &t.tree()).unwrap() {}
}

fn table(disk: &SimDisk, options: Options) -> (Engine, Arc<Table>) {
    let e = open(disk, options);
    e.create_table("t", &def()).unwrap();
    let t = e.open_table("t").unwrap();
    (e, t)
}

fn reopen(disk: &SimDisk, options: Options) -> (Engine, Arc<Table>) {
    disk.crash();
    let e = open(disk, options);
    let t = e.open_table("t").unwrap();
    (e, t)
}

#[test]
fn marks_do_not_pile_up() {
    let disk = SimDisk::new(1);
    let (e, t) = table(&disk, options());
    let mut s = e.session();
    for round in 0..300 {
        commit_rows(&mut s, &t, 3);
        empty(&mut s, &t);
        if round % 10 == 9 {
            merge(&e, &t);
            assert!(marks_of(&t) <= 1, "{} marks after {round} rounds", marks_of(&t));
        }
    }
    assert_eq!(rows_of(&e, &t), 0);
    commit_rows(&mut s, &t, 3);
    // The log brings rows and marks back.
    checkpoint::write(&e.core).unwrap();
    drop((s, t, e));
    let (e, t) = reopen(&disk, options());
    assert_eq!(rows_of(&e, &t), 3);
    merge(&e, &t);
    assert!(marks_of(&t) <= 1);
    flush::tree(&e.core, &t, &t.tree()).unwrap();
    merge(&e, &t);
    assert_eq!((marks_of(&t), rows_of(&e, &t)), (0, 3));
}

#[test]
fn a_mark_stays_while_a_memtable_needs_it() {
    let disk = SimDisk::new(1);
    let (e, t) = table(&disk, options());
    let mut s = e.session();
    commit_rows(&mut s, &t, 50);
    empty(&mut s, &t);
    merge(&e, &t);
    merge::once(&e.core, &t, &t.tree()).unwrap();
    assert_eq!((marks_of(&t), rows_of(&e, &t)), (1, 0));
    checkpoint::write(&e.core).unwrap();
    drop((s, t, e));
    let (e, t) = reopen(&disk, options());
    merge(&e, &t);
    assert_eq!((marks_of(&t), rows_of(&e, &t)), (1, 0));
    flush::tree(&e.core, &t, &t.tree()).unwrap();
    merge(&e, &t);
    assert_eq!((marks_of(&t), rows_of(&e, &t)), (0, 0));
    checkpoint::write(&e.core).unwrap();
    drop((t, e));
    let (e, t) = reopen(&disk, options());
    assert_eq!(rows_of(&e, &t), 0);
}

#[test]
fn a_mark_goes_with_the_runs_that_it_empties() {
    let disk = SimDisk::new(1);
    let (e, t) = table(&disk, small_runs());
    let mut s = e.session();
    commit_rows(&mut s, &t, 2000);
    let late = commit_rows(&mut s, &t, 10);
    flush::tree(&e.core, &t, &t.tree()).unwrap();
    // A row that an older view holds keeps its run, and so the mark.
    let mut view = e.session();
    begin(&mut view);
    view.take_view();
    empty(&mut s, &t);
    merge(&e, &t);
    assert_eq!((marks_of(&t), rows_of(&e, &t)), (1, 0));
    assert_eq!(view.count_rows(&t).unwrap(), 2010);
    view.commit().unwrap();
    merge(&e, &t);
    let state = t.tree().snapshot();
    assert_eq!((state.marks.len(), state.runs.len(), rows_of(&e, &t)), (0, 0, 0), "{late:?}");
}

#[test]
fn what_a_transaction_deleted_of_its_own_is_given_back() {
    let disk = Watched::new();
    let e = open_on(Arc::new(disk.clone()), small_runs());
    e.create_table("t", &def()).unwrap();
    let t = e.open_table("t").unwrap();
    let mut s = e.session();
    begin(&mut s);
    for n in 0..3000 {
        insert(&mut s, &t, n);
    }
    s.delete_all(&t).unwrap();
    let kept = insert(&mut s, &t, 1);
    s.commit().unwrap();
    assert_eq!(rows_of(&e, &t), 1);
    // The run that held them goes as a whole, without being read.
    run_files(&disk.0).iter().for_each(|f| disk.break_reads(f, 0, IoKind::Failed));
    assert!(merge::once(&e.core, &t, &t.tree()).unwrap());
    assert_eq!(t.tree().snapshot().runs.len(), 0);
    flush::tree(&e.core, &t, &t.tree()).unwrap();
    merge(&e, &t);
    let state = t.tree().snapshot();
    let rows: u64 = state.runs.iter().map(|h| h.run.stats.rows).sum();
    assert_eq!((rows, state.marks.len()), (1, 0));
    delete_rows(&mut s, &t, &[kept]);
    assert_eq!(rows_of(&e, &t), 0);
}

#[test]
fn reading_does_not_pay_for_marks_that_views_keep() {
    let disk = SimDisk::new(1);
    let (e, t) = table(&disk, options());
    let mut s = e.session();
    commit_rows(&mut s, &t, 5);
    let mut view = e.session();
    begin(&mut view);
    view.take_view();
    for n in 1..=200u64 {
        empty(&mut s, &t);
        commit_rows(&mut s, &t, n % 3);
    }
    merge(&e, &t);
    let state = t.tree().snapshot();
    assert_eq!(state.marks.len(), 200, "an older view may stand between any two of them");
    for at in [0, 7, 199] {
        assert_eq!(state.marks_at(state.marks[at].seq).len(), 1);
    }
    assert_eq!(state.marks_at(CommitSeq(state.marks[0].seq.0 - 1)).len(), 0);
    assert_eq!((view.count_rows(&t).unwrap(), rows_of(&e, &t)), (5, 200 % 3));
    view.commit().unwrap();
    merge(&e, &t);
    assert_eq!((marks_of(&t), rows_of(&e, &t)), (1, 200 % 3));
}

#[test]
fn only_marks_that_are_covered_count_no_more() {
    let mark = |seq: u64, ordinal: u64, up_to: u64, as_of: u64| RangeMark {
        owner: None,
        seq: CommitSeq(seq),
        ordinal,
        up_to: RowId(up_to),
        as_of: CommitSeq(as_of),
    };
    let firsts = |mut marks: Vec<RangeMark>| sort(&mut marks).to_vec();
    assert_eq!(firsts(vec![mark(10, 1, 5, 9), mark(20, 1, 8, 12), mark(30, 1, 8, 20)]), [0, 1, 2]);
    // One that is narrower, one that did not see the one before.
    assert_eq!(firsts(vec![mark(10, 1, 5, 9), mark(20, 1, 4, 12), mark(30, 1, 5, 25)]), [0, 0, 2]);
    assert_eq!(firsts(vec![mark(10, 1, 5, 9), mark(20, 1, 5, 8), mark(30, 1, 5, 12)]), [0, 0, 0]);
    // Two of one transaction cover each other, but not what neither saw.
    assert_eq!(firsts(vec![mark(20, 1, 5, 9), mark(20, 2, 5, 9), mark(10, 1, 5, 8)]), [0, 0, 0]);
    assert_eq!(firsts(vec![mark(20, 1, 5, 12), mark(20, 2, 5, 12), mark(10, 1, 5, 8)]), [0, 1, 2]);
}

/// Rows behind those that are locked come and go while a mark waits, and one that holds their key comes below: a flush leaves of the
/// key only what stands last, which the mark deletes. It deletes what stood before, too.
#[test]
fn keys_of_rows_that_went_while_a_mark_waited_are_free() {
    use crate::tests::hooks;
    use crate::tests::indexes::{def, image, Row};
    const KEY: u32 = 7;
    // SAFETY: an image of the table's layout.
    let write = |s: &mut Session, t: &Arc<Table>, a, c| unsafe {
        s.insert_image(t, image(&Row { a, c, text: vec![] }).as_ptr()).unwrap()
    };
    let flush_all = |e: &Engine, t: &Arc<Table>| {
        let trees = t.trees();
        flush::tree(&e.core, t, &trees.rows).unwrap();
        trees.keys.iter().for_each(|keys| flush::tree(&e.core, t, keys).unwrap());
    };
    for counts in [true, false] {
        let e = open(&SimDisk::new(1), options());
        e.create_table("t", &def()).unwrap();
        let t = e.open_table("t").unwrap();
        let (mut d, begun) = (e.session(), Rc::new(RefCell::new(None)));
        let (engine, table, inserter) = (e.clone(), t.clone(), begun.clone());
        let insert_first = move || {
            let mut x = engine.session();
            begin(&mut x);
            // Of the row ids that it has taken, some are left.
            let first: Vec<_> = (1..5).map(|a| write(&mut x, &table, a, None)).collect();
            *inserter.borrow_mut() = Some((x, first));
        };
        let (engine, table) = (e.clone(), t.clone());
        let go_on = move || {
            let (e, t) = (engine, table);
            let (mut x, first) = begun.borrow_mut().take().unwrap();
            let mut y = e.session();
            begin(&mut y);
            let behind = write(&mut y, &t, 100, Some(KEY));
            y.commit().unwrap();
            flush_all(&e, &t);
            x.delete(&t, behind).unwrap();
            let below = write(&mut x, &t, 101, Some(KEY));
            assert!(below < behind && first.iter().all(|row| *row < below), "{first:?} {below:?} {behind:?}");
            x.commit().unwrap();
            flush_all(&e, &t);
        };
        hooks::at("all rows are about to be locked", insert_first);
        hooks::at("all rows are locked", go_on);
        begin(&mut d);
        if counts {
            assert_eq!(d.lock_all(&t).unwrap(), 5);
        }
        d.delete_all(&t).unwrap();
        assert!(hooks::all_done());
        d.commit().unwrap();
        let found = e.check(&t, &mut |_, _| true).unwrap();
        assert!(found.damages.is_empty(), "counts {counts}: {:?}", found.damages);
        assert_eq!(rows_of(&e, &t), 0);
        e.checkpoint().unwrap();
        let found = e.check(&t, &mut |_, _| true).unwrap();
        assert!(found.damages.is_empty(), "counts {counts}, at rest: {:?}", found.damages);
        begin(&mut d);
        write(&mut d, &t, 102, Some(KEY));
        d.commit().unwrap();
    }
}

/// A row comes behind those that are locked while a mark is made: the mark reaches over it, and so does the lock, which a restart
/// takes for the mark's.
#[test]
fn what_a_mark_reaches_over_is_locked() {
    use crate::tests::hooks;
    let (e, t) = table(&SimDisk::new(1), options());
    let (mut a, mut b) = (e.session(), e.session());
    commit_rows(&mut b, &t, 3);
    begin(&mut a);
    let behind = std::rc::Rc::new(std::cell::RefCell::new((e.session(), RowId::ZERO)));
    let (table, came, mut other) = (t.clone(), behind.clone(), e.session());
    hooks::at("all rows are locked", move || {
        begin(&mut other);
        insert(&mut other, &table, 7);
        // Not seen by who deletes all, unlike the other one.
        let (session, row) = &mut *came.borrow_mut();
        begin(session);
        *row = insert(session, &table, 8);
        other.commit().unwrap();
    });
    a.delete_all(&t).unwrap();
    assert!(hooks::all_done());
    behind.borrow_mut().0.commit().unwrap();
    begin(&mut b);
    let refused = b.delete(&t, behind.borrow().1);
    assert!(matches!(refused, Err(Error::LockTimeout)), "{refused:?}");
    a.commit().unwrap();
    b.delete(&t, behind.borrow().1).unwrap();
    b.commit().unwrap();
    assert_eq!(rows_of(&e, &t), 0);
}

/// Done once, when a session is about to wait.
struct Meanwhile(std::cell::RefCell<Option<Box<dyn FnOnce() + Send>>>);

impl WaitHooks for Meanwhile {
    fn before_wait(&self) {
        self.0.take().into_iter().for_each(|act| act());
    }
}

/// A row that came behind those that are locked is changed by somebody who commits while it is waited for: it goes all the same.
#[test]
fn what_changed_while_it_was_waited_for_goes() {
    use crate::tests::hooks;
    let (e, t) = table(&SimDisk::new(1), options());
    let (mut a, mut other) = (e.session(), e.session());
    commit_rows(&mut other, &t, 3);
    let changer = Arc::new(std::sync::Mutex::new(e.session()));
    let (table, holder) = (t.clone(), changer.clone());
    begin(&mut a);
    hooks::at("all rows are locked", move || {
        begin(&mut other);
        let row = insert(&mut other, &table, 7);
        other.commit().unwrap();
        let mut changer = holder.lock().unwrap();
        begin(&mut changer);
        // SAFETY: an image of this layout.
        unsafe { changer.update_image(&table, row, img(8).as_ptr()).unwrap() };
    });
    let commit = Box::new(move || changer.lock().unwrap().commit().unwrap());
    a.set_wait_hooks(Box::new(Meanwhile(std::cell::RefCell::new(Some(commit)))));
    a.delete_all(&t).unwrap();
    assert!(hooks::all_done());
    a.commit().unwrap();
    assert_eq!(rows_of(&e, &t), 0);
}
