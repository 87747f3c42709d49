//! Crash scenarios: the workload loses power, or its process, at one operation; what comes back is held against the
//! history; the work goes on and is cut again, over several generations, recovery included.

use crate::sim::{varied_options, Config, Failure, Flow, Sim, Stats};
use crate::Rng;

/// A workload that is cut everywhere has more operations than this.
const LEAST_CUTS: u64 = 50;

/// A workload without crashes on one seed.
pub fn model_seed(seed: u64, steps: usize, config: Config, hold: &mut Option<Sim>) -> Result<Stats, Failure> {
    let options = varied_options(&mut Rng::new(seed ^ 0x0B71));
    let sim = hold.insert(Sim::new(seed, Config { options, ..config }));
    sim.reopen()?;
    sim.run(steps)?;
    sim.settle()?;
    sim.clean_restart()?;
    sim.verify()?;
    Ok(sim.stats)
}

/// Several generations on one seed, each ended by a power cut or a kill at a random operation.
pub fn crash_seed(seed: u64, hold: &mut Option<Sim>) -> Result<Stats, Failure> {
    let mut chance = Rng::new(seed ^ 0x00C0_FFEE);
    let (lazy_modes, mut options) = (chance.chance(30), varied_options(&mut chance));
    if seed % 8 == 0 {
        options.sync_method = None;
    }
    let config = Config { lazy_modes, options, ..Config::default() };
    let sim = hold.insert(Sim::new(seed, config));
    for _ in 0..2 + chance.below(4) {
        plan_cut(sim, &mut chance);
        let steps = 10 + chance.index(110);
        if sim.reopen()? == Flow::Go {
            sim.run(steps)?;
        }
        crash(sim, &mut chance);
    }
    finish(sim)?;
    Ok(sim.stats)
}

/// Where the power goes in this generation: often while it starts, mostly later, sometimes not at an operation at all.
pub(crate) fn plan_cut(sim: &Sim, chance: &mut Rng) {
    let now = sim.disk.op_count();
    let ahead = match chance.below(10) {
        0..=1 => 1 + chance.below(14),
        2..=7 => 1 + chance.below(250),
        _ => return,
    };
    sim.disk.power_cut_at(now + ahead);
}

pub(crate) fn crash(sim: &mut Sim, chance: &mut Rng) {
    if sim.disk.is_power_cut() && chance.chance(40) {
        sim.kill_at_cut();
    } else if sim.disk.is_power_cut() || chance.chance(60) {
        sim.power_cut(chance.number());
    } else {
        sim.kill();
        // What was planned for the old process stays behind with it.
        sim.disk.clear_plans();
    }
    if chance.chance(30) {
        // Twice in a row, nothing done in between.
        sim.power_cut(chance.number());
    }
}

/// Nothing goes wrong any more: everything is decided, verified, closed and opened once more.
pub(crate) fn finish(sim: &mut Sim) -> Result<(), Failure> {
    for what in ["open", "settle", "restart"] {
        let flow = match what {
            "open" => sim.reopen()?,
            "settle" => {
                sim.run(15)?;
                sim.settle()?
            }
            _ => sim.clean_restart()?,
        };
        if flow == Flow::Stop {
            return sim.fail(format!("the engine stopped without a fault, at the last {what}"));
        }
    }
    sim.verify().map(|_| ())
}

/// One short workload, cut or killed at every single operation, each time with another outcome.
pub fn every_operation(seed: u64, steps: usize, hold: &mut Option<Sim>) -> Result<Stats, Failure> {
    let mut stats = Stats::default();
    let first = Sim::new(seed, Config::default()).disk.op_count() + 1;
    let mut cut = first;
    loop {
        let sim = hold.insert(Sim::new(seed, Config::default()));
        sim.disk.power_cut_at(cut);
        if sim.reopen()? == Flow::Go && sim.run(steps)? == Flow::Go {
            sim.settle()?;
        }
        let through = !sim.disk.is_power_cut();
        // Every second seed: the process is killed there.
        if seed % 2 == 1 && !through {
            sim.kill_at_cut();
        } else {
            sim.power_cut(seed ^ cut);
        }
        finish(sim)?;
        stats.add(sim.stats);
        if through && cut < first + LEAST_CUTS {
            return hold.insert(Sim::new(seed, Config::default())).fail("the workload was hardly cut at all");
        }
        if through {
            return Ok(stats);
        }
        cut += 1;
    }
}

/// A disk that says it has synced and has not: some seed must fail, or the crash test finds nothing.
pub fn canary_seed(seed: u64, hold: &mut Option<Sim>) -> Result<Stats, Failure> {
    let sim = hold.insert(Sim::new(seed, Config::default()));
    sim.reopen()?;
    sim.disk.lie_about_sync(true);
    sim.run(40)?;
    sim.power_cut(seed);
    finish(sim)?;
    Ok(sim.stats)
}
