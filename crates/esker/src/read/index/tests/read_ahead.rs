//! Rows that a locking cursor reads ahead of their locks: given as they are under the lock, whoever changes them meanwhile.

use super::*;
use crate::read::index::locked::met;
use crate::read::index::read_ahead::taken;
use crate::tests::support::begun;
use crate::tree::levels::looked;
use crate::tree::near::searched;
use crate::tree::run::run_path;

const ROWS: u64 = 600;

/// The number of the row that came as the `n`th: keys lie in another order than rows.
fn scrambled(n: u64) -> u64 {
    n * 337 % ROWS
}

fn values(n: u64) -> Values {
    (n, Some(n as i32), Some(b"n".to_vec()))
}

/// Rows of all numbers, in runs of small blocks; the row id of each number.
fn filled(layers: u64) -> (SimDisk, Engine, Arc<Table>, Vec<RowId>) {
    let (disk, e, t) = made(Options { min_run_bytes: 4 << 10, ..small_blocks() });
    let mut s = begun(&e, false);
    let mut ids = vec![RowId::ZERO; ROWS as usize];
    for n in 0..ROWS {
        ids[scrambled(n) as usize] = insert(&mut s, &t, &values(scrambled(n)));
        if n % (ROWS / layers) == ROWS / layers - 1 {
            s.commit().unwrap();
            e.sim_flush(&t).unwrap();
            s = begun(&e, false);
        }
    }
    (disk, e, t, ids)
}

/// A locking cursor that has given so many rows, and they.
fn after(s: &mut Session, t: &Arc<Table>, rows: usize, way: Direction) -> (IndexCursor, Vec<Values>) {
    let mut c = s.open_index_cursor(t, BY_FEW, locking()).unwrap();
    c.seek(s, KeyRange::default(), way).unwrap();
    let mut all = Vec::new();
    while all.len() < rows {
        all.extend(given(&c.next_batch(s).unwrap(), &locking().mask).into_iter().map(|g| g.2));
    }
    (c, all)
}

/// The numbers of all rows in the order in which they are given: the index is a descending one.
fn numbers(way: Direction) -> Vec<u64> {
    match way {
        Direction::Forward => (0..ROWS).rev().collect(),
        Direction::Backward => (0..ROWS).collect(),
    }
}

const BOTH: [Direction; 2] = [Direction::Forward, Direction::Backward];

#[test]
fn a_range_that_nobody_else_writes_in_is_read_ahead() {
    for way in BOTH {
        let (_disk, e, t, _) = filled(1);
        let mut s = begun(&e, false);
        let (mut c, mut all) = after(&mut s, &t, 1, way);
        taken::take();
        all.extend(rest(&mut s, &mut c, &locking().mask).into_iter().map(|g| g.2));
        assert_eq!(all, numbers(way).into_iter().map(values).collect::<Vec<_>>());
        assert!(taken::take() > ROWS as usize * 9 / 10, "{way:?}");
        let mut other = begun(&e, false);
        other.set_lock_wait(std::time::Duration::ZERO, true);
        assert!((1..=ROWS).all(|row| matches!(other.delete(&t, RowId(row)), Err(Error::WouldBlock))));
    }
}

/// Each row is changed when it is given, and what was read is not looked for again.
#[test]
fn who_changes_each_row_finds_it_once() {
    let (_disk, e, t, _) = filled(1);
    let mut s = begun(&e, false);
    let (mut c, first) = after(&mut s, &t, 20, Direction::Forward);
    let mut expected: Vec<Values> = first;
    taken::take();
    met::take_renewals();
    while let Some((_, row, mut new)) = given(&c.next_batch(&mut s).unwrap(), &locking().mask).pop() {
        looked::take();
        let is_renamed = new.0 % 3 == 1;
        match new.0 % 3 {
            0 => s.delete(&t, row).unwrap(),
            _ => {
                new.2 = new.2.filter(|_| !is_renamed).or(Some(b"changed".to_vec()));
                update(&mut s, &t, row, &new);
                expected.push(new);
            }
        }
        // The new name might be another row's.
        assert_eq!(looked::take(), usize::from(is_renamed));
    }
    assert!(taken::take() > ROWS as usize * 9 / 10);
    // Entries that it has taken away itself are no reason to read anew.
    assert_eq!(met::take_renewals(), 0);
    s.commit().unwrap();
    let mut s = begun(&e, false);
    let mask = locking().mask;
    let mut c = s.open_index_cursor(&t, BY_FEW, plain(&mask)).unwrap();
    c.seek(&mut s, KeyRange::default(), Direction::Forward).unwrap();
    assert_eq!(rest(&mut s, &mut c, &mask).into_iter().map(|g| g.2).collect::<Vec<_>>(), expected);
    (0..2).for_each(|index| assert!(s.check_index(&t, index).unwrap().wrong.is_empty()));
}

/// Somebody changes and deletes rows ahead, and commits or does not.
#[test]
fn what_was_committed_since_is_read_anew() {
    for (way, commits) in BOTH.into_iter().flat_map(|way| [(way, true), (way, false)]) {
        let (_disk, e, t, ids) = filled(1);
        let mut s = begun(&e, false);
        taken::take();
        let (mut c, all) = after(&mut s, &t, 30, way);
        assert!(taken::take() > 0, "nothing was read ahead");
        let mut expected: Vec<Values> = numbers(way).into_iter().map(values).collect();
        let mut other = begun(&e, false);
        for at in [31, 33, 40, 300] {
            let (n, _, _) = expected[at];
            let new = (n, Some(n as i32), Some(b"theirs".to_vec()));
            update(&mut other, &t, ids[n as usize], &new);
            expected[at] = if commits { new } else { values(n) };
        }
        let gone: Vec<u64> = [32, 200].map(|at| expected[at].0).into();
        gone.iter().for_each(|n| other.delete(&t, ids[*n as usize]).unwrap());
        if commits {
            other.commit().unwrap();
            expected.retain(|(n, ..)| !gone.contains(n));
        } else {
            other.rollback().unwrap();
        }
        let found: Vec<_> =
            all.into_iter().chain(rest(&mut s, &mut c, &locking().mask).into_iter().map(|g| g.2)).collect();
        assert_eq!(found, expected, "{way:?}, committed {commits}");
        assert!(taken::take() > 0);
    }
}

/// Somebody commits elsewhere before every row: hardly anything is read in vain.
#[test]
fn where_others_commit_all_the_time_little_is_read_ahead() {
    let (_disk, e, t, _) = filled(1);
    let mut s = begun(&e, false);
    let (mut c, mut all) = after(&mut s, &t, 1, Direction::Forward);
    searched::take();
    for n in 0.. {
        let mut other = begun(&e, false);
        insert(&mut other, &t, &(10_000 + n, Some(10_000), None));
        other.commit().unwrap();
        match given(&c.next_batch(&mut s).unwrap(), &locking().mask).pop() {
            Some(row) => all.push(row.2),
            None => break,
        }
    }
    assert_eq!(all, numbers(Direction::Forward).into_iter().map(values).collect::<Vec<_>>());
    assert!(searched::take() < 40 * ROWS as usize);
}

/// The transaction itself changes rows ahead.
#[test]
fn own_changes_ahead_are_met() {
    let (_disk, e, t, ids) = filled(1);
    let mut s = begun(&e, false);
    let (mut c, all) = after(&mut s, &t, 30, Direction::Forward);
    let mut expected: Vec<Values> = numbers(Direction::Forward).into_iter().map(values).collect();
    for at in [30, 31, 35, 500] {
        let n = expected[at].0;
        expected[at].2 = Some(b"own".to_vec());
        update(&mut s, &t, ids[n as usize], &expected[at]);
    }
    s.delete(&t, ids[expected[32].0 as usize]).unwrap();
    expected.remove(32);
    let found: Vec<_> = all.into_iter().chain(rest(&mut s, &mut c, &locking().mask).into_iter().map(|g| g.2)).collect();
    assert_eq!(found, expected);
}

/// Rows of all layers, in the order of keys: the place of each is searched once, when it is told of.
#[test]
fn rows_that_are_told_of_are_searched_once() {
    for layers in [1, 4] {
        let (_disk, e, t, _) = filled(layers);
        let mut s = begun(&e, false);
        let mask = locking().mask;
        let mut c = s.open_index_cursor(&t, BY_FEW, plain(&mask)).unwrap();
        searched::take();
        c.seek(&mut s, KeyRange::default(), Direction::Backward).unwrap();
        let found: Vec<_> = rest(&mut s, &mut c, &mask).into_iter().map(|g| g.2).collect();
        assert_eq!(found, (0..ROWS).map(values).collect::<Vec<_>>());
        let searches = searched::take() as u64;
        assert!((ROWS..=ROWS * 11 / 10 * 2).contains(&searches), "{searches} searches in {layers} layers");
    }
}

/// Own entries do not hide those of others: a row that somebody moves to before where it was is met there.
#[test]
fn what_others_move_is_met_beside_own_changes() {
    for way in BOTH {
        let (_disk, e, t, ids) = filled(1);
        let mut s = begun(&e, false);
        let (mut c, all) = after(&mut s, &t, 30, way);
        let mut expected: Vec<Values> = numbers(way).into_iter().map(values).collect();
        s.delete(&t, ids[expected[29].0 as usize]).unwrap();
        let mut other = begun(&e, false);
        let moved = (expected[300].0, expected[40].1, None);
        update(&mut other, &t, ids[moved.0 as usize], &moved);
        other.commit().unwrap();
        expected[300] = moved;
        let mut found: Vec<_> =
            all.into_iter().chain(rest(&mut s, &mut c, &locking().mask).into_iter().map(|g| g.2)).collect();
        expected.sort_unstable();
        found.sort_unstable();
        assert_eq!(found, expected, "{way:?}");
    }
}

/// Rows that were read ahead as the transaction's own are gone when it has rolled back to a savepoint.
#[test]
fn what_is_rolled_back_meanwhile_is_not_given() {
    let (_disk, e, t, _) = filled(1);
    let mut s = begun(&e, false);
    let point = s.savepoint();
    for n in (0..ROWS).step_by(4) {
        insert(&mut s, &t, &(10_000 + n, Some(n as i32), Some(b"own".to_vec())));
    }
    let (mut c, all) = after(&mut s, &t, 40, Direction::Forward);
    assert!(all.iter().any(|row| row.0 >= 10_000));
    s.rollback_to(&point);
    let left = rest(&mut s, &mut c, &locking().mask).into_iter().map(|g| g.2);
    let found: Vec<_> = all.into_iter().filter(|row| row.0 < 10_000).chain(left).collect();
    assert_eq!(found, numbers(Direction::Forward).into_iter().map(values).collect::<Vec<_>>());
}

/// A block that cannot be read costs its own rows: all that come before these are given.
#[test]
fn what_cannot_be_read_ahead_fails_where_it_is_come_to() {
    let options = || Options { min_run_bytes: 4 << 10, ..small_blocks() };
    let (disk, e, t, ids) = filled(1);
    e.checkpoint().unwrap();
    drop((t, e));
    let mut late = 0;
    for block in 0..8 {
        let disk = disk.snapshot();
        let e = open_with(&disk, options()).unwrap();
        let t = e.open_table("t").unwrap();
        let run = t.tree().snapshot().runs[0].run.clone();
        let entry = run.index().unwrap().entries()[block];
        let (lost, at) = (entry.first_id..=entry.last_id, entry.offset..entry.offset + 1);
        let path = run_path(std::path::Path::new("/db/runs"), run.file_id);
        disk.fail_reads_of(&path, at, esker_io::IoKind::Failed).unwrap();
        let mut s = begun(&e, false);
        let mut c = s.open_index_cursor(&t, BY_FEW, locking()).unwrap();
        c.seek(&mut s, KeyRange::default(), Direction::Forward).unwrap();
        let mut found = Vec::new();
        let met = loop {
            match c.next_batch(&mut s) {
                Ok(batch) => found.extend(given(&batch, &locking().mask).into_iter().map(|g| g.2)),
                Err(e) => break e,
            }
        };
        assert!(matches!(met, Error::Io(_)), "{met:?}");
        let before = numbers(Direction::Forward).into_iter().take_while(|n| !lost.contains(&ids[*n as usize]));
        assert_eq!(found, before.map(values).collect::<Vec<_>>());
        late += usize::from(found.len() > 8);
    }
    assert!(late > 3, "{late}");
}
