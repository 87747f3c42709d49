//! What the figures of tables (`ESKER_TABLE_STATS`) cost a statement, in nanoseconds of processor time: that reads a row by an index, as the engine
//! notes it, and adds that to the table's figures at its end. Medians of 31 rounds in one thread and in two at once, of the same table
//! and of one each. `cargo run --release -p esker --features sim --example table_work_cost [-- --json]`
//! `bench/cost.py` puts it beside the other figures.

use esker::base::counters::{bind, count, Counter};
use esker::base::trace::thread_cpu_ns;
use esker::sim_hooks::note_work;
use esker::{Engine, Notify, Options, Schema, Table, Type};
use esker_io::SimDisk;
use std::sync::{Arc, Barrier};

const ROUNDS: usize = 31;
const TIMES: u64 = 1_000_000;

/// Nanoseconds of a statement, of the slowest of so many threads; `noted`: with the figures of a table.
fn round(engine: &Engine, tables: &[&Arc<Table>], noted: bool) -> f64 {
    let begin = Barrier::new(tables.len());
    let each = |table: &Arc<Table>| {
        let mut session = engine.session();
        let counters = session.counters();
        let _bound = bind(&counters);
        begin.wait();
        let start = thread_cpu_ns();
        for _ in 0..TIMES {
            let read = || {
                count(Counter::RowsRead, 1);
                count(Counter::BlocksCached, 3);
            };
            if noted {
                note_work(&mut session, table, read);
            } else {
                read();
            }
        }
        (thread_cpu_ns() - start) as f64 / TIMES as f64
    };
    std::thread::scope(|scope| {
        let all: Vec<_> = tables.iter().map(|table| scope.spawn(|| each(table))).collect();
        all.into_iter().map(|thread| thread.join().unwrap_or(f64::NAN)).fold(0.0, f64::max)
    })
}

fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of[of.len() / 2]
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let log: Notify = Arc::new(|message, level| eprintln!("{level:?}: {message}"));
    let engine = Engine::open(Arc::new(SimDisk::new(1)), "work".as_ref(), Options::default(), log)?;
    let schema = Schema::new().column("id", Type::U64);
    let (a, b) = (engine.create("a", &schema)?, engine.create("b", &schema)?);
    let cases =
        [("1 thread", vec![&a]), ("2 threads, one table", vec![&a, &a]), ("2 threads, a table each", vec![&a, &b])];
    let mut found = Vec::new();
    for (_, tables) in &cases {
        // Beside each other, so that what disturbs disturbs both.
        let rounds = (0..ROUNDS).map(|_| {
            let without = round(&engine, tables, false);
            round(&engine, tables, true) - without
        });
        found.push(median(rounds.collect()));
    }
    if std::env::args().any(|argument| argument == "--json") {
        println!("{{\"tables\": [{:.2}, {:.2}]}}", found[0], found[1]);
    } else {
        println!("ns of a statement that reads a row by an index, median of {ROUNDS}");
        cases.iter().zip(found).for_each(|((what, _), ns)| println!("{what:<28} {ns:>8.2}"));
    }
    Ok(engine.close()?)
}
