//! Fault scenarios: operations or reads fail, once, twice or in recovery, or the disk is full for a while. The engine says
//! so clearly, goes on or stops, and nothing acknowledged is lost.

use crate::ddl::Ddl;
use crate::sim::{Config, Failure, Flow, Sim, Stats};
use crate::Rng;
use esker::io::sim::OpRecord;
use esker::io::IoKind;

/// Steps of a workload with a fault.
const STEPS: usize = 70;

fn config() -> Config {
    Config { most_rows: 500, ..Config::default() }
}

/// What a workload does on this seed when nothing fails: operations, reads, bytes.
fn measure(seed: u64, hold: &mut Option<Sim>) -> Result<(u64, u64, u64), Failure> {
    let sim = hold.insert(Sim::new(seed, config()));
    sim.reopen()?;
    sim.run(STEPS)?;
    sim.settle()?;
    Ok((sim.disk.op_count(), sim.disk.read_count(), sim.disk.used_bytes()))
}

/// How an operation may fail.
const KINDS: [IoKind; 5] = [IoKind::Failed, IoKind::Failed, IoKind::DiskFull, IoKind::Resources, IoKind::ReadOnly];

/// Some operations of one workload fail, each in a run of its own, or two of them in one.
pub fn operations_seed(seed: u64, tries: u64, hold: &mut Option<Sim>) -> Result<Stats, Failure> {
    let mut chance = Rng::new(seed ^ 0xFA17);
    let (operations, _, _) = measure(seed, hold)?;
    let mut stats = Stats::default();
    for n in 0..tries {
        // The first ones are those of opening: all of them, over the seeds.
        let at = if n == 0 { 1 + chance.below(30) } else { 1 + chance.below(operations) };
        let kind = *chance.pick(&KINDS);
        let mut faults = vec![Fault::Operation(at, kind)];
        if chance.chance(40) {
            // The second meets what the first has left.
            faults.push(match chance.below(3) {
                0 => Fault::Operation(at + 1 + chance.below(60), *chance.pick(&KINDS)),
                _ => Fault::Operation(at + 1 + chance.below(6), *chance.pick(&KINDS)),
            });
        }
        stats.add(some_faults(seed, &faults, &mut chance, hold)?);
    }
    Ok(stats)
}

/// Every operation of one short workload fails, each in a run of its own.
pub fn every_operation(seed: u64, kind: IoKind, hold: &mut Option<Sim>) -> Result<Stats, Failure> {
    let mut chance = Rng::new(seed ^ 0xFA11);
    let (operations, _, _) = measure(seed, hold)?;
    let mut stats = Stats::default();
    for at in 1..=operations {
        stats.add(some_faults(seed, &[Fault::Operation(at, kind)], &mut chance, hold)?);
    }
    Ok(stats)
}

/// Some reads of one workload fail, each in a run of its own.
pub fn reads_seed(seed: u64, tries: u64, hold: &mut Option<Sim>) -> Result<Stats, Failure> {
    let mut chance = Rng::new(seed ^ 0x4EAD);
    let (_, reads, _) = measure(seed, hold)?;
    let mut stats = Stats::default();
    for n in 0..tries {
        let at = if n == 0 { 1 + chance.below(8) } else { 1 + chance.below(reads) };
        stats.add(some_faults(seed, &[Fault::Read(at)], &mut chance, hold)?);
    }
    Ok(stats)
}

#[derive(Debug, Clone, Copy)]
enum Fault {
    Operation(u64, IoKind),
    Read(u64),
}

impl Fault {
    /// Is it this operation that fails?
    fn is(self, number: u64) -> bool {
        matches!(self, Fault::Operation(at, _) if at == number)
    }

    /// Has the disk come to it? A fault that was planned behind the end of the work proves nothing.
    fn has_struck(self, sim: &Sim) -> bool {
        match self {
            Fault::Operation(at, _) => sim.disk.op_count() >= at,
            Fault::Read(at) => sim.disk.read_count() >= at,
        }
    }

    /// Can it have no more effects?
    fn is_over(self, sim: &Sim) -> bool {
        matches!(self, Fault::Operation(..)) && self.has_struck(sim)
    }
}

fn some_faults(seed: u64, faults: &[Fault], chance: &mut Rng, hold: &mut Option<Sim>) -> Result<Stats, Failure> {
    let sim = hold.insert(Sim::new(seed, config()));
    for fault in faults {
        sim.note(|| format!("{fault:?}"));
        match *fault {
            Fault::Operation(at, kind) => sim.disk.fail_once(at, kind),
            Fault::Read(at) => sim.disk.fail_read_once(at, IoKind::Failed),
        }
    }
    sim.faulty = true;
    let mut flow = sim.reopen()?;
    for _ in 0..STEPS {
        if flow == Flow::Stop {
            break;
        }
        if sim.engine()?.poisoned() {
            // By work that no step waits for.
            flow = Flow::Stop;
            break;
        }
        if faults.iter().all(|fault| fault.is_over(sim)) {
            // They have struck: from here on there is no excuse. (A run that could not be opened stays unreadable.)
            if std::mem::take(&mut sim.faulty) {
                tell_writers(sim);
            }
        }
        flow = sim.run(1)?;
    }
    // A file whose removal failed is an orphan until the next start.
    let log = sim.disk.op_log();
    let failed = |op: &OpRecord| faults.iter().any(|fault| fault.is(op.number));
    sim.check_files = !log.iter().any(|op| failed(op) && op.operation == "remove");
    if flow == Flow::Go {
        sim.faulty |= sim.engine()?.poisoned();
        flow = sim.settle()?;
    }
    sim.stats.faults += faults.iter().filter(|fault| fault.has_struck(sim)).count() as u64;
    if flow == Flow::Stop {
        if let (Some(Fault::Read(_)), Some(engine)) = (faults.first(), &sim.engine) {
            // The log's own files are another matter.
            let of_run = |m: &String| m.contains("writing stopped") && m.contains(".run");
            if engine.poisoned() && sim.messages.lock().is_ok_and(|m| m.iter().any(of_run)) {
                return sim.fail("a failed read of a run has stopped all writing");
            }
        }
        sim.stats.poisoned += u64::from(sim.engine.is_some());
        sim.faulty = true;
        sim.verify_reads_after_stop()?;
    }
    end(sim, chance)
}

/// Rows that a transaction had gathered were lost between two statements, perhaps: the next that needs them is told.
fn tell_writers(sim: &mut Sim) {
    for txn in sim.slots.iter_mut().filter_map(|slot| slot.txn.as_mut()) {
        txn.shaky |= !txn.wrote.is_empty();
    }
}

/// The engine is opened again without faults: all that was acknowledged is there, and work goes on.
fn end(sim: &mut Sim, chance: &mut Rng) -> Result<Stats, Failure> {
    if chance.chance(50) {
        sim.power_cut(chance.number());
    } else {
        sim.kill();
    }
    sim.faulty = false;
    sim.disk.clear_plans();
    sim.check_files = true;
    for what in ["open", "work", "power cut", "restart"] {
        let flow = match what {
            "open" => sim.reopen()?,
            "work" => sim.run(10)?,
            // What a restarted process has read must have been made durable by it, whatever an earlier sync has lost.
            "power cut" => {
                sim.power_cut(chance.number());
                if sim.reopen()? == Flow::Go {
                    sim.settle()?
                } else {
                    Flow::Stop
                }
            }
            _ => sim.clean_restart()?,
        };
        if flow == Flow::Stop {
            return sim.fail(format!("the engine stopped without a fault, at the last {what}"));
        }
    }
    sim.verify()?;
    Ok(sim.stats)
}

/// A crash leaves a tail of the log; a fault comes while the folder is opened, or soon after. Then it is opened again, by
/// another process or by the same.
pub fn recovery_seed(seed: u64, tries: u64, hold: &mut Option<Sim>) -> Result<Stats, Failure> {
    let mut chance = Rng::new(seed ^ 0x4EC0);
    let mut stats = Stats::default();
    for _ in 0..tries {
        stats.add(one_recovery(seed, &mut chance, hold)?);
    }
    Ok(stats)
}

fn one_recovery(seed: u64, chance: &mut Rng, hold: &mut Option<Sim>) -> Result<Stats, Failure> {
    let lazy_modes = chance.chance(30);
    let sim = hold.insert(Sim::new(seed, Config { lazy_modes, ..config() }));
    sim.reopen()?;
    if sim.run(20 + chance.index(60))? == Flow::Stop {
        return sim.fail("stopped without a fault");
    }
    if chance.chance(50) {
        sim.power_cut(chance.number());
    } else {
        sim.kill();
    }
    // Recovery reads more than it changes.
    let (operations, reads) = (sim.disk.op_count(), sim.disk.read_count());
    let fault = if chance.chance(60) {
        let at = operations + 1 + chance.below(25);
        let kind = *chance.pick(&KINDS);
        sim.disk.fail_once(at, kind);
        Fault::Operation(at, kind)
    } else {
        let kind = *chance.pick(&[IoKind::Failed, IoKind::Failed, IoKind::Resources]);
        let at = reads + 1 + chance.below(40);
        sim.disk.fail_read_once(at, kind);
        Fault::Read(at)
    };
    sim.faulty = true;
    let mut flow = sim.reopen()?;
    if flow == Flow::Go {
        // From now on the fault may still come.
        sim.faulty = true;
        flow = sim.run(8)?;
    } else if sim.engine.is_none() {
        sim.stats.refused_opens += 1;
    }
    sim.stats.faults += u64::from(fault.has_struck(sim));
    if flow == Flow::Stop && sim.engine.is_none() && chance.chance(50) {
        // The same process tries again, on the disk as the failed attempt has left it.
        sim.faulty = false;
        sim.disk.clear_plans();
        if sim.reopen()? == Flow::Stop {
            return sim.fail("it does not open a second time");
        }
    }
    end(sim, chance)
}

/// The disk fills up at some point, stays full for a while, and gets space again.
pub fn disk_full_seed(seed: u64, tries: u64, hold: &mut Option<Sim>) -> Result<Stats, Failure> {
    let mut chance = Rng::new(seed ^ 0xF011);
    let (_, _, bytes) = measure(seed, hold)?;
    let mut stats = Stats::default();
    for n in 0..tries {
        let capacity = if n % 2 == 0 { Some(chance.below(bytes).max(4096)) } else { None };
        stats.add(one_full(seed, capacity, &mut chance, hold)?);
    }
    Ok(stats)
}

/// `capacity`: what the disk has from the beginning; none: somewhere in the work no more than is used then.
fn one_full(seed: u64, capacity: Option<u64>, chance: &mut Rng, hold: &mut Option<Sim>) -> Result<Stats, Failure> {
    let sim = hold.insert(Sim::new(seed, config()));
    let mut flow = Flow::Go;
    if capacity.is_none() {
        sim.reopen()?;
        flow = sim.run(chance.index(STEPS))?;
    }
    let capacity = capacity.unwrap_or_else(|| sim.disk.used_bytes());
    sim.note(|| format!("capacity {capacity} bytes"));
    sim.disk.capacity(Some(capacity));
    sim.faulty = true;
    if sim.engine.is_none() {
        flow = sim.reopen()?;
    }
    if flow == Flow::Stop {
        // Too small to begin with: the same folder opens once there is space.
        sim.drop_engine();
    } else {
        flow = work_when_full(sim, chance)?;
        if flow == Flow::Go && chance.chance(30) {
            // Opened again while it is full.
            sim.kill();
            flow = sim.reopen()?;
            if flow == Flow::Stop {
                sim.drop_engine();
            }
        }
    }
    let is_reserve = |op: &OpRecord| op.operation == "rename" && op.path.ends_with("reserve.spare");
    sim.stats.reserve_used += sim.disk.op_log().iter().filter(|op| is_reserve(op)).count() as u64;
    sim.stats.faults += sim.disk.full_count();
    sim.stats.disk_full_answers += sim.full_answers.get();
    sim.disk.capacity(None);
    sim.faulty = false;
    if sim.engine.is_none() {
        if sim.reopen()? == Flow::Stop {
            return sim.fail("the engine does not open although there is space again");
        }
    } else if flow == Flow::Stop {
        return sim.fail("a full disk stopped the engine for good");
    }
    for i in 0..sim.slots.len() {
        sim.slots[i].scan = None;
        sim.slots[i].session.end_statement();
        if sim.slots[i].txn.as_ref().is_some_and(|t| t.shaky) {
            sim.rollback(i)?;
        }
    }
    tell_writers(sim);
    if sim.run(15)? == Flow::Stop || sim.settle()? == Flow::Stop {
        return sim.fail("writing does not go on although there is space again");
    }
    end(sim, chance)
}

/// Works; once the disk was full, tables are dropped, perhaps.
fn work_when_full(sim: &mut Sim, chance: &mut Rng) -> Result<Flow, Failure> {
    if sim.run(STEPS)? == Flow::Stop {
        return Ok(Flow::Stop);
    }
    if sim.full_answers.get() > 0 && chance.chance(50) {
        for _ in 0..4 {
            if sim.ddl(Ddl::Drop)? == Flow::Stop {
                return Ok(Flow::Stop);
            }
        }
    }
    Ok(Flow::Go)
}
