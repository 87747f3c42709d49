//! Scenarios of a server with a binlog: it ends at any step of the two phases, of what the engine does beside them and of the
//! recovery, by the end of the process or of the power; once the binlog has decided what was prepared, the engine holds the
//! transactions that the binlog holds.

use crate::crash::plan_cut;
use crate::sim::{varied_options, Config, Failure, Flow, Sim, Stats};
use crate::Rng;
use esker::io::IoKind;

const SESSIONS: usize = 5;
/// Some lives at least have so many places where they are ended; a short one may have fewer.
const LEAST_ENDS: u64 = 10;

fn config(chance: &mut Rng) -> Config {
    Config { options: varied_options(chance), sessions: SESSIONS, most_rows: 600, ..Config::default() }
}

/// A server on an empty folder, on which nothing is planned.
fn server(seed: u64, chance: &mut Rng) -> Result<Sim, Failure> {
    let mut sim = Sim::new(seed, config(chance));
    sim.reopen()?;
    sim.begin_two_phase()?;
    Ok(sim)
}

/// Several lives of a server, each of which ends anywhere.
pub fn binlog_seed(seed: u64, hold: &mut Option<Sim>) -> Result<Stats, Failure> {
    let mut chance = Rng::new(seed ^ 0xB1_4106);
    let sim = hold.insert(server(seed, &mut chance)?);
    let mut many_prepared = false;
    for life in 0..3 + chance.below(4) {
        plan_end(sim, &mut chance, many_prepared);
        if life == 0 || open(sim)? == Flow::Go {
            sim.run(20 + chance.index(120))?;
        }
        many_prepared = sim.prepared_sessions().len() > 1;
        end(sim, &mut chance);
    }
    finish(sim)?;
    Ok(sim.stats)
}

/// Where the server ends: at an operation of the disk, at a step, while the engine is asked what it needs, while it recovers,
/// or when its time is over.
fn plan_end(sim: &mut Sim, chance: &mut Rng, many_prepared: bool) {
    if many_prepared && chance.chance(60) {
        sim.binlog.ends_recovering = true;
        return;
    }
    match chance.below(12) {
        0..=2 => plan_cut(sim, chance),
        3..=4 => sim.binlog.places_left = Some(1 + chance.below(60)),
        5 => sim.binlog.places_left = Some(1 + chance.below(4)),
        6..=7 => sim.binlog.cut_at_request = true,
        8..=9 => sim.binlog.ends_with_prepared = 2 + chance.index(3),
        _ => {}
    }
}

fn open(sim: &mut Sim) -> Result<Flow, Failure> {
    match sim.reopen()? {
        Flow::Go => sim.recover_by_binlog(),
        Flow::Stop => Ok(Flow::Stop),
    }
}

/// The process ends, or the power goes, and what is not synced is lost or not, of the binlog as of the engine's files.
fn end(sim: &mut Sim, chance: &mut Rng) {
    let killed = chance.chance(45);
    sim.see_phases(killed);
    match (killed, sim.disk.is_power_cut()) {
        (true, true) => sim.kill_at_cut(),
        (true, false) => sim.kill(),
        (false, _) => lose_power(sim, chance),
    }
    if chance.chance(20) {
        lose_power(sim, chance);
    }
    sim.disk.clear_plans();
    sim.binlog.plan_nothing();
}

fn lose_power(sim: &mut Sim, chance: &mut Rng) {
    sim.power_cut(chance.number());
    let lost = sim.binlog.lose_power(chance);
    sim.stats.two_phase.saw("entries_lost", lost);
}

/// Nothing goes wrong any more.
fn finish(sim: &mut Sim) -> Result<(), Failure> {
    for what in ["open", "work", "settle", "restart", "hold"] {
        let flow = match what {
            "open" => open(sim)?,
            "work" => sim.run(15)?,
            "settle" => sim.settle_two_phase()?,
            "restart" => sim.clean_restart()?,
            _ => sim.hold_against_binlog()?,
        };
        if flow == Flow::Stop {
            return sim.fail(format!("the engine stopped without a fault, at the last {what}"));
        }
    }
    sim.verify().map(drop)
}

/// One short life, ended at every step and at every operation of the disk, each time by the end of the process or of the power;
/// every third recovery is ended, too.
pub fn binlog_everywhere(seed: u64, steps: usize, hold: &mut Option<Sim>) -> Result<Stats, Failure> {
    let mut stats = Stats::default();
    for at_steps in [true, false] {
        let mut at = 1;
        loop {
            let mut chance = Rng::new(seed ^ 0xB1_4107);
            let sim = hold.insert(server(seed, &mut chance)?);
            let mut chance = Rng::new(seed ^ at << 20);
            match at_steps {
                true => sim.binlog.places_left = Some(at),
                false => sim.disk.power_cut_at(sim.disk.op_count() + at),
            }
            let through = sim.run(steps)? == Flow::Go;
            end(sim, &mut chance);
            if at % 3 == 0 {
                match chance.chance(50) {
                    true => sim.binlog.places_left = Some(2 + chance.below(2)),
                    false => sim.disk.power_cut_at(sim.disk.op_count() + 1 + chance.below(25)),
                }
                open(sim)?;
                end(sim, &mut chance);
            }
            if open(sim)? == Flow::Stop || sim.settle_two_phase()? == Flow::Stop {
                return sim.fail("the engine stopped without a fault");
            }
            sim.hold_against_binlog()?;
            stats.add(sim.stats);
            if through {
                break;
            }
            at += 1;
        }
        if let (Some(sim), true) = (hold.as_mut(), at >= LEAST_ENDS) {
            sim.stats = Stats::default();
            sim.stats.two_phase.saw("ended_at_many_places", 1);
            stats.add(sim.stats);
        }
    }
    Ok(stats)
}

/// The log cannot be written or synced while transactions are prepared, or while the engine is asked what it needs: nothing is
/// acknowledged from then on, and a restart finds what the binlog holds.
pub fn binlog_faults_seed(seed: u64, hold: &mut Option<Sim>) -> Result<Stats, Failure> {
    let mut chance = Rng::new(seed ^ 0xB1_4108);
    let sim = hold.insert(server(seed, &mut chance)?);
    for _ in 0..3 {
        let mut flow = sim.run(20 + chance.index(60))?;
        if flow == Flow::Go {
            sim.faulty = true;
            sim.disk.fail_once(sim.disk.op_count() + 1 + chance.below(3), IoKind::Failed);
            flow = prepare_some(sim)?;
        }
        if flow == Flow::Go {
            flow = sim.run(30)?;
        }
        if flow == Flow::Stop && sim.engine()?.poisoned() {
            sim.stats.poisoned += 1;
            sim.go_on_without_log()?;
        }
        end(sim, &mut chance);
        sim.faulty = false;
        if open(sim)? == Flow::Stop {
            return sim.fail("it does not open although nothing fails any more");
        }
    }
    end(sim, &mut chance);
    finish(sim)?;
    Ok(sim.stats)
}

/// Each session that has something to prepare does.
fn prepare_some(sim: &mut Sim) -> Result<Flow, Failure> {
    for i in 0..SESSIONS {
        let is_open = sim.slots[i].txn.as_ref().is_some_and(|t| t.xid.is_none() && !t.wrote.is_empty());
        if is_open && sim.prepare_for_binlog(i)? == Flow::Stop {
            return Ok(Flow::Stop);
        }
    }
    Ok(Flow::Go)
}
