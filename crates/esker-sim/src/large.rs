//! What is large in one way: tables with more rows in a block than two bytes can number, and transactions over several tables
//! whose rows go into files which those share.

use crate::background::Work;
use crate::crash::{crash, finish, plan_cut};
use crate::sim::{small_options, Config, Failure, Flow, Sim, Stats};
use crate::Rng;
use esker::Options;
use std::collections::BTreeSet;

/// The kind whose rows have one byte.
const SHORT_ROWS: usize = 5;
/// Most rows in a block.
const ROWS_IN_BLOCK: u64 = 1 << 16;
const NAME: &str = "d/large";

/// One table whose rows fill a block by their number: loaded, changed here and there, merged, read after a kill.
pub fn large_seed(seed: u64, hold: &mut Option<Sim>) -> Result<Stats, Failure> {
    let mut chance = Rng::new(seed ^ 0x1A46E);
    let options = Options {
        memory_limit_bytes: 64 << 20,
        bulk_buffer_bytes: 4 << 20,
        min_run_bytes: 32 << 10,
        block_bytes: 1 << 20,
        run_bytes: 1 << 30,
        wal_segment_bytes: 1 << 20,
        ..small_options()
    };
    let sim = hold.insert(Sim::new(seed, Config { options, ..Config::default() }));
    sim.reopen()?;
    sim.create(NAME, SHORT_ROWS)?;
    // Some statements stage many more rows than they were to insert.
    while sim.model.visible(NAME, None, None).len() as u64 <= ROWS_IN_BLOCK {
        sim.insert(0, NAME, 14_000 + chance.index(3000))?;
    }
    sim.modify(1, NAME, 200, false)?;
    sim.modify(2, NAME, 200, true)?;
    for work in [Work::Flush, Work::Optimize] {
        let read = sim.scan(0, NAME)?;
        if read == Flow::Stop || sim.background(NAME, work)? == Flow::Stop {
            return sim.fail("the engine stopped without a fault");
        }
    }
    let table = sim.engine()?.open_table(NAME).map_err(|e| Failure::new(e.to_string()))?;
    let runs = sim.engine()?.sim_runs(&table);
    let (rows, blocks): (u64, u64) = (runs.iter().map(|r| r.rows).sum(), runs.iter().map(|r| r.blocks).sum());
    // All blocks but the last are as full as they may be.
    if rows <= ROWS_IN_BLOCK || rows < (blocks - 1) * ROWS_IN_BLOCK {
        return sim.fail(format!("{rows} rows in {blocks} blocks: the blocks are small"));
    }
    sim.run(10)?;
    sim.kill();
    sim.reopen()?;
    sim.settle()?;
    sim.check_blocks()?;
    Ok(sim.stats)
}

/// Tables that share the files of a spill, of these kinds.
const SPILLED: [usize; 5] = [0, 1, 2, 3, 6];

fn names() -> impl Iterator<Item = String> {
    (0..SPILLED.len()).map(|n| format!("d/s{n}"))
}

/// Transactions over several tables, none of which has enough for a file: what they have left goes into one, with a part
/// for each. Cut or killed several times; what was committed is there whole, in rows and entries.
pub fn spilled_seed(seed: u64, hold: &mut Option<Sim>) -> Result<Stats, Failure> {
    let mut chance = Rng::new(seed ^ 0x5B111);
    let options = Options { bulk_buffer_bytes: 48 << 10, run_bytes: 24 << 10, ..small_options() };
    let sim = hold.insert(Sim::new(seed, Config { options, most_rows: 3000, ..Config::default() }));
    for life in 0..3 {
        if life > 0 {
            plan_cut(sim, &mut chance);
        }
        let mut flow = sim.reopen()?;
        if life == 0 {
            names().zip(SPILLED).try_for_each(|(name, kind)| sim.create(&name, kind))?;
        }
        for _ in 0..3 {
            if flow == Flow::Go {
                flow = one_spill(sim, &mut chance)?;
            }
        }
        if flow == Flow::Go {
            sim.run(5 + chance.index(20))?;
        }
        crash(sim, &mut chance);
    }
    finish(sim)?;
    Ok(sim.stats)
}

/// Does the first session neither read nor wait for its transaction's end?
fn may_write(sim: &Sim) -> bool {
    sim.slots[0].scan.is_none() && sim.slots[0].txn.as_ref().is_none_or(|t| t.xid.is_none() && t.altered.is_empty())
}

/// A transaction that writes to all tables in turn, and ends in some way; others come in between.
fn one_spill(sim: &mut Sim, chance: &mut Rng) -> Result<Flow, Failure> {
    let names: Vec<String> = names().collect();
    if !may_write(sim) {
        return sim.run(1);
    }
    if sim.slots[0].txn.is_none() {
        sim.begin(0);
    }
    for _ in 0..2 + chance.below(3) {
        for name in &names {
            let flow = match chance.below(8) {
                0..=3 => sim.insert(0, name, 20 + chance.index(60))?,
                4 => sim.modify(0, name, 60, false)?,
                5 => sim.modify(0, name, 30, true)?,
                6 => sim.background(name, Work::Flush)?,
                _ => sim.run(1)?,
            };
            // Whatever steps did in between, and however a statement failed.
            if flow == Flow::Stop || !may_write(sim) || sim.slots[0].txn.is_none() {
                return Ok(flow);
            }
        }
        match chance.below(4) {
            0 => sim.savepoint(0),
            1 => sim.rollback_to(0),
            _ => {}
        }
    }
    let flow = match chance.below(4) {
        0 => sim.rollback(0)?,
        1 => sim.prepare(0)?,
        _ => sim.commit(0)?,
    };
    let mut files = BTreeSet::new();
    for name in &names {
        let table = sim.engine()?.open_table(name).map_err(|e| Failure::new(format!("open table {name}: {e}")))?;
        let own: BTreeSet<u64> = sim.engine()?.sim_runs(&table).iter().map(|run| run.file).collect();
        sim.stats.files_shared += own.intersection(&files).count() as u64;
        files.extend(own);
    }
    Ok(flow)
}
