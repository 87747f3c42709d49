//! Random work of real threads on tables with indexes, over power cuts and kills, held against a model.
//!
//! Owns the seeds. Each makes a simulated disk and some tables, and goes through generations: four clients with all kinds of
//! statements and ends, one who holds views, one who changes tables, until so many operations are done or, in the middle of them, the
//! power is cut; then the disk is opened again as that left it. Settings are so small that large transactions, spills, flushes,
//! merges and checkpoints never stop. Invariant: the work is bounded by operations, not by time.
//!
//! What threads do next to each other no seed decides: one that failed is replayed some times over. `ESKER_RANDOM_SEED` runs one,
//! `ESKER_RANDOM_SEEDS` so many, from that one on.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod client;
mod crash;
mod ddl;
mod ends;
mod model;
mod reads;
mod statements;
mod table;
mod tally;
mod viewer;
mod world;

use client::Client;
use esker::io::{Disk, SimDisk};
use esker::{Engine, Options};
use fastrand::Rng;
use model::Txn;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Duration;
use table::{Shape, Slot};
use tally::{Before, Tally};
use world::{Shared, World, PULSE};

const SEEDS: u64 = 6;
/// Where something was not reached, so many times as many are run.
const PATIENCE: u64 = 4;
const CLIENTS: usize = 4;
const GENERATIONS: usize = 6;
/// Nothing has happened for so long: it hangs.
const HANGS: Duration = Duration::from_secs(240);

#[test]
fn random_work_is_what_the_model_says() {
    let number = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
    let (first, many) = (number("ESKER_RANDOM_SEED"), number("ESKER_RANDOM_SEEDS"));
    let is_chosen = first.is_some() || many.is_some();
    let (first, many) = (first.unwrap_or(1), many.unwrap_or(if is_chosen { 1 } else { SEEDS }));
    std::thread::spawn(watch);
    let (before, tally) = (Before::now(), Arc::new(Tally::default()));
    let missing =
        || before.figures(&tally).into_iter().filter(|(_, n)| *n == 0).map(|(name, _)| name).collect::<Vec<_>>();
    let mut done = 0;
    while done < many || !is_chosen && done < PATIENCE * many && !missing().is_empty() {
        let seed = first + done;
        if let Err(why) = run(seed, &tally) {
            panic!("seed {seed}, {why}\nreplay: ESKER_RANDOM_SEED={seed} cargo test -p esker --test random_work");
        }
        done += 1;
    }
    println!("{done} seeds: {:?}", before.figures(&tally));
    assert!(is_chosen || missing().is_empty(), "never reached, so that nothing is said of it: {:?}", missing());
}

/// Ends the process when nothing happens: a test fails, it does not wait for ever.
fn watch() {
    let mut seen = u64::MAX;
    while PULSE.load(Ordering::Relaxed) != seen {
        seen = PULSE.load(Ordering::Relaxed);
        std::thread::sleep(HANGS);
    }
    eprintln!("nothing has happened for {} s: it hangs", HANGS.as_secs());
    std::process::abort();
}

/// Memory for a few hundred rows, blocks and runs of a few.
fn options(rng: &mut Rng) -> Options {
    let mut one = |of: [usize; 3]| of[rng.usize(..of.len())];
    Options {
        memory_limit_bytes: one([512 << 10, 2 << 20, 8 << 20]) as u64,
        bulk_buffer_bytes: one([16 << 10, 16 << 10, 64 << 10]),
        bulk_threshold_bytes: one([1 << 10, 4 << 10, 16 << 10]),
        min_run_bytes: one([1 << 10, 8 << 10, 32 << 10]),
        block_bytes: one([512, 2 << 10, 8 << 10]),
        lookup_block_bytes: one([512, 1 << 10, 4 << 10]),
        wal_segment_bytes: one([64 << 10, 64 << 10, 256 << 10]) as u64,
        recovery_target_bytes: Some(one([32 << 10, 128 << 10, 512 << 10]) as u64),
        run_bytes: one([8 << 10, 64 << 10, 512 << 10]) as u64,
        max_open_runs: one([4, 16, 256]),
        ..Options::default()
    }
}

fn open(disk: &SimDisk, rng: &mut Rng) -> Result<Engine, String> {
    let opened = Engine::open(Arc::new(disk.clone()), Path::new("/data/esker"), options(rng), Arc::new(|_, _| {}));
    opened.map_err(|e| format!("opening: {e}"))
}

fn run(seed: u64, tally: &Arc<Tally>) -> Result<(), String> {
    let mut rng = Rng::with_seed(seed);
    let shape =
        |at: usize, rng: &mut Rng| Shape { name: format!("table {at} at first"), kinds: table::some_kinds(rng) };
    let slots = (0..rng.usize(2..5)).map(|at| Slot::new(shape(at, &mut rng))).collect();
    let (clock, numbers) = (AtomicU64::new(2), AtomicU64::new(0));
    let shared = Shared { slots, clock, numbers, tally: tally.clone() };
    let mut disk = SimDisk::new(seed);
    disk.create_dir(Path::new("/data")).and_then(|()| disk.sync_dir(Path::new("/"))).unwrap();
    let mut engine = open(&disk, &mut rng)?;
    for slot in &shared.slots {
        let made = table::create(&engine, &slot.now().shape).map_err(|e| format!("a table is made: {e}"))?;
        slot.now.write().unwrap().table = Some(made);
    }
    let mut left = Vec::new();
    for generation in 0..GENERATIONS {
        let told = |why: String| format!("generation {generation}: {why}");
        let (after, txns) = live(&shared, engine, &disk, &left, &mut rng).map_err(told)?;
        disk = after;
        engine = open(&disk, &mut rng).map_err(told)?;
        left = crash::take_up(&engine, &shared, &txns).map_err(told)?;
        crash::check_all(&engine, &shared).map_err(told)?;
    }
    Ok(())
}

/// A generation, from an opened engine to what is on the disk when it is gone, with the transactions that there were.
fn live(
    shared: &Shared,
    engine: Engine,
    disk: &SimDisk,
    left: &[Arc<Txn>],
    rng: &mut Rng,
) -> Result<(SimDisk, Vec<Arc<Txn>>), String> {
    let world = World::new(shared, engine, disk.clone(), left, rng);
    work(&world, rng);
    if let Some(wrong) = world.wrong() {
        return Err(wrong);
    }
    let tally = &shared.tally;
    if let Err(wrong) = crash::check_all(&world.engine, shared) {
        if !disk.is_power_cut() {
            return Err(wrong);
        }
    }
    let World { engine, txns, cut, .. } = world;
    shared.slots.iter().for_each(|slot| slot.now.write().unwrap().table = None);
    let (after, count) = match cut {
        None => {
            engine.close().map_err(|e| format!("closing: {e}"))?;
            (disk.after_kill(), &tally.quiet_ends)
        }
        Some(_) if rng.bool() => (disk.after_kill(), &tally.kills),
        Some(_) => (disk.after_power_cut(rng.u64(..)), &tally.power_cuts),
    };
    Tally::add(count, 1);
    Ok((after, txns.into_inner().unwrap()))
}

/// All threads of a generation, to their end.
fn work(world: &World<'_>, rng: &mut Rng) {
    let seeds: Vec<u64> = (0..CLIENTS + 2).map(|_| rng.u64(..)).collect();
    std::thread::scope(|scope| {
        let clients = seeds[2..].iter().map(|seed| scope.spawn(|| Client::new(world, *seed).run()));
        let mut threads: Vec<_> = clients.collect();
        threads.push(scope.spawn(|| viewer::hold_views(world, seeds[0])));
        threads.push(scope.spawn(|| ddl::change_tables(world, seeds[1])));
        for thread in threads {
            if thread.join().is_err() {
                world.fail("a thread panicked, see above".into());
            }
        }
    });
}
