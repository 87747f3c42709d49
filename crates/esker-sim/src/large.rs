//! Tables that are large in one way: more rows in a block than two bytes can number.

use crate::background::Work;
use crate::sim::{small_options, Config, Failure, Flow, Sim, Stats};
use crate::Rng;
use esker::Options;

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
    let report = sim.engine()?.check(&table, &mut |_, _| true).map_err(|e| Failure::new(e.to_string()))?;
    // All blocks but the last are as full as they may be.
    if report.rows <= ROWS_IN_BLOCK || report.rows < (report.blocks - 1) * ROWS_IN_BLOCK {
        return sim.fail(format!("{} rows in {} blocks: the blocks are small", report.rows, report.blocks));
    }
    sim.run(10)?;
    sim.kill();
    sim.reopen()?;
    sim.settle()?;
    Ok(sim.stats)
}
