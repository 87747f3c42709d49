//! What changes cost that are not spread evenly, and how many runs a reader meets meanwhile: counted as in `cost.rs`.

use super::*;

/// What a load of changes came to.
struct Came {
    /// Bytes written for each byte handed in.
    price: f64,
    /// The most runs over a row, and how many there are on average, right after a flush and the merges that it asks for.
    deepest: usize,
    mean: f64,
}

/// Changes a table of so many memtables in transactions, each by `change`, until as much was changed as the table holds.
fn change(name: &str, memtables: usize, mut change: impl FnMut(&mut Costs, &mut Session)) -> Came {
    let mut costs = Costs::new(memtables * MEMTABLE / ROW);
    let before = costs.written();
    let (mut s, mut handed, mut deepest, mut sum, mut looks) = (costs.engine.session(), 0, 0, 0, 0);
    while handed < memtables * MEMTABLE {
        begin(&mut s);
        change(&mut costs, &mut s);
        s.commit().unwrap();
        handed += CHANGES * ROW;
        costs.changed(CHANGES);
        if costs.unflushed == 0 {
            let state = costs.table.tree().snapshot();
            for id in costs.ids.iter().step_by(7) {
                let runs = state.runs_at(*id).count();
                (deepest, sum, looks) = (deepest.max(runs), sum + runs, looks + 1);
            }
        }
    }
    costs.idle();
    let written = costs.written();
    let price = (0..3).map(|i| written[i] - before[i]).sum::<usize>() as f64 / handed as f64;
    let mean = sum as f64 / f64::from(looks);
    eprintln!("{name}: {price:.2} bytes a byte; at most {deepest} runs over a row, {mean:.2} on average");
    drop(s);
    costs.finish();
    Came { price, deepest, mean }
}

fn update(costs: &mut Costs, s: &mut Session, at: usize) {
    let (id, image) = (costs.ids[at], costs.image());
    // SAFETY: an image of the table's layout.
    unsafe { s.update_image(&costs.table, id, image.as_ptr()).unwrap() };
}

fn insert(costs: &mut Costs, s: &mut Session) {
    let image = costs.image();
    // SAFETY: an image of the table's layout.
    costs.ids.push(unsafe { s.insert_image(&costs.table, image.as_ptr()).unwrap() });
}

/// As many as `docs/design/0006-merging-has-a-price.md` says.
#[test]
fn a_reader_meets_few_runs() {
    let came = change("uniform", 20, |costs, s| {
        for _ in 0..CHANGES {
            let at = costs.next() as usize % costs.ids.len();
            update(costs, s, at);
        }
    });
    assert!(came.deepest <= 5 && came.mean <= 3.0, "{} runs, {} on average", came.deepest, came.mean);
}

#[test]
fn four_updates_in_five_of_one_row_in_five() {
    let came = change("80/20", 20, |costs, s| {
        for _ in 0..CHANGES {
            let (hot, rows) = (costs.next() % 5 > 0, costs.ids.len());
            let at = costs.next() as usize % if hot { rows / 5 } else { rows };
            update(costs, s, at);
        }
    });
    assert!(came.price <= 12.0 && came.deepest <= 12, "{} bytes a byte", came.price);
}

#[test]
fn inserts_and_updates_of_the_newest_rows() {
    // Of what is in memory mostly, and of what was flushed not long ago.
    for newest in [MEMTABLE / ROW / 4, 4 * MEMTABLE / ROW] {
        let came = change(&format!("the newest {newest} rows"), 20, |costs, s| {
            for n in 0..CHANGES {
                match n % 2 {
                    0 => insert(costs, s),
                    _ => {
                        let at = costs.ids.len() - 1 - costs.next() as usize % newest;
                        update(costs, s, at);
                    }
                }
            }
        });
        assert!(came.price <= 12.0 && came.deepest <= 12, "{} bytes a byte", came.price);
    }
}

#[test]
fn updates_of_one_block() {
    let came = change("one block", 20, |costs, s| {
        for _ in 0..CHANGES {
            let at = 5000 + costs.next() as usize % 80;
            update(costs, s, at);
        }
    });
    assert!(came.price <= 2.0 && came.deepest <= 12, "{} bytes a byte", came.price);
}

/// Updates anywhere weigh little in runs that hold many new rows.
#[test]
fn many_inserts_and_few_updates_anywhere() {
    for share in [4, 10] {
        let came = change(&format!("one update in {share}"), 20, |costs, s| {
            for n in 0..CHANGES {
                match n % share {
                    0 => {
                        let at = costs.next() as usize % costs.ids.len();
                        update(costs, s, at);
                    }
                    _ => insert(costs, s),
                }
            }
        });
        assert!(came.price <= 12.0 && came.deepest <= 12, "{} bytes a byte", came.price);
    }
}
