//! Time: hours pass between operations, locks are waited for until their time is over, commits that nobody waited for
//! are synced after a second, and what cannot be read is tried again after pauses that grow. All of it is the time of the
//! simulation: no seed takes longer for it, and each replays.

use crate::background::Work;
use crate::crash::{crash, finish};
use crate::sim::{varied_options, Config, Failure, Flow, Sim, Stats, FOLDER};
use crate::Rng;
use esker::io::IoKind;
use esker::{Error, FlushMode, Host, Machine};
use std::path::Path;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// What a commit did not wait for is synced after so long, by the next round of the log's thread.
const LAZY_SYNC: Duration = Duration::from_secs(1);
/// A run that cannot be read rests so long, and each time after that for twice as long.
const FIRST_REST: Duration = Duration::from_secs(10);
/// The longest rest is the first one, doubled so often.
const DOUBLINGS: u32 = 10;
const NAME: &str = "d/rests";
const KIND: usize = 4;

/// From a moment to days.
pub(crate) fn some_time(chance: &mut Rng) -> Duration {
    let most_ms = *chance.pick(&[10, 900, 1000, 20_000, 3_600_000, 200_000_000]);
    Duration::from_millis(1 + chance.below(most_ms))
}

/// The machine's threads, counted, and its clock, which jumps ahead now and then: as if all had slept for days.
#[derive(Debug, Default)]
pub(crate) struct Jumping {
    ahead_us: AtomicU64,
    begun: AtomicU64,
    alive: Arc<AtomicI64>,
}

impl Jumping {
    pub(crate) fn jump(&self, time: Duration) {
        self.ahead_us.fetch_add(time.as_micros() as u64, Ordering::Relaxed);
    }

    /// How many threads were begun, and how many of them have not ended.
    pub(crate) fn threads(&self) -> (u64, i64) {
        (self.begun.load(Ordering::SeqCst), self.alive.load(Ordering::SeqCst))
    }

    fn ahead(&self) -> Duration {
        Duration::from_micros(self.ahead_us.load(Ordering::Relaxed))
    }
}

impl Host for Jumping {
    fn now(&self) -> Duration {
        Machine.now() + self.ahead()
    }

    fn unix(&self) -> Duration {
        Machine.unix() + self.ahead()
    }

    fn sleep(&self, time: Duration) {
        Machine.sleep(time);
    }

    fn spawn(&self, name: &str, work: Box<dyn FnOnce() + Send>) -> std::io::Result<JoinHandle<()>> {
        struct Alive(Arc<AtomicI64>);
        impl Drop for Alive {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::SeqCst);
            }
        }
        self.begun.fetch_add(1, Ordering::SeqCst);
        self.alive.fetch_add(1, Ordering::SeqCst);
        let alive = Alive(self.alive.clone());
        let work = move || {
            let _alive = alive;
            work();
        };
        Machine.spawn(name, Box::new(work))
    }
}

impl Sim {
    /// A step of the workload: nothing happens, for some time.
    pub(crate) fn time_passes(&mut self) -> Flow {
        let time = some_time(&mut self.rng);
        self.note(|| format!("{time:?} pass"));
        self.time.pass(time);
        self.stats.jumps += 1;
        Flow::Go
    }

    /// Will a round of the log's thread sync what commits did not wait for? Then the next one is due a second later.
    pub(crate) fn syncs_lazily(&mut self) -> bool {
        let now = self.time.now();
        let is_lazy = self.mode != FlushMode::EveryCommit;
        let due = (is_lazy || self.owes_sync) && now - self.synced >= LAZY_SYNC;
        if due {
            (self.synced, self.owes_sync) = (now, is_lazy);
        }
        due
    }

    /// A wait for a lock was given up: exactly when it was time, and no other wait came before it.
    pub(crate) fn gave_up(&self) -> Result<(), Failure> {
        let now = self.time.waited();
        let waited = now - self.waited.replace(now);
        match waited == self.config.lock_wait {
            true => Ok(()),
            false => self.fail(format!("a lock was waited for {waited:?}, not {:?}", self.config.lock_wait)),
        }
    }
}

/// A workload whose sessions wait for locks and do not wait for the log, over jumps of time and crashes; then a run that
/// cannot be read for some time.
pub fn time_seed(seed: u64, hold: &mut Option<Sim>) -> Result<Stats, Failure> {
    let mut chance = Rng::new(seed ^ 0x71_3E);
    let options = varied_options(&mut chance);
    let lock_wait = some_time(&mut chance);
    let config = Config { options, lock_wait, time_passes: true, lazy_modes: true, ..Config::default() };
    let sim = hold.insert(Sim::new(seed, config));
    for _ in 0..3 {
        if sim.reopen()? == Flow::Go {
            sim.set_flush_mode()?;
            sim.run(150)?;
        }
        crash(sim, &mut chance);
    }
    finish(sim)?;
    if sim.waited.get() != sim.time.waited() {
        return sim.fail("somebody waited for a lock and did not say so");
    }
    unreadable(sim, &mut chance)?;
    Ok(sim.stats)
}

/// One run of a table cannot be read. Merging all takes it when its rest is over and at no other time, each rest is twice the
/// one before; once it can be read again it is merged.
fn unreadable(sim: &mut Sim, chance: &mut Rng) -> Result<(), Failure> {
    let stopped = |sim: &Sim| sim.fail("the engine stopped without a fault");
    // Without key trees: parts of theirs in the same file would have rests of their own.
    sim.create(NAME, KIND)?;
    sim.insert(0, NAME, 300)?;
    for _ in 0..3 {
        sim.commit(0)?;
        if sim.background(NAME, Work::Flush)? == Flow::Stop {
            return stopped(sim);
        }
        sim.modify(0, NAME, 300, false)?;
    }
    sim.rollback(0)?;
    let engine = sim.engine()?.clone();
    let table = engine.open_table(NAME).map_err(|e| Failure::new(e.to_string()))?;
    let Some(newest) = engine.sim_runs(&table).iter().map(|r| r.file).max() else { return stopped(sim) };
    let path = Path::new(FOLDER).join("runs").join(format!("{newest:016x}.run"));
    sim.disk.fail_reads_of(&path, 0..u64::MAX, IoKind::Failed)?;
    let (mut tries, mut rested) = (0, sim.time.now());
    while tries < 14 {
        let now = sim.time.now();
        match engine.optimize(&table, &mut |_, _| true) {
            Ok(()) if now >= rested => return sim.fail(format!("after {tries} tries it is not tried any more")),
            Ok(()) => {}
            Err(Error::Io(_)) if now >= rested => {
                rested = now + FIRST_REST * (1 << tries.min(DOUBLINGS));
                tries += 1;
                sim.stats.retries += 1;
            }
            Err(e) => return sim.fail(format!("try {tries}, {:?} too early: {e}", rested.saturating_sub(now))),
        }
        // Up to the end of the rest, to the moment before it, or past it.
        let left = rested.saturating_sub(sim.time.now());
        let (tick, more) = (Duration::from_micros(1), some_time(chance));
        let time = *chance.pick(&[left, left.saturating_sub(tick), left / 2, tick, left + more]);
        sim.time.pass(time);
    }
    sim.disk.clear_plans();
    sim.time.pass(FIRST_REST * (1 << DOUBLINGS));
    engine.optimize(&table, &mut |_, _| true).map_err(|e| Failure::new(e.to_string()))?;
    match engine.sim_runs(&table).iter().any(|r| r.file == newest) {
        true => sim.fail("a run that can be read again is not merged"),
        false => sim.verify().map(drop),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_replays() {
        let story = || {
            let mut hold = None;
            let stats = time_seed(7, &mut hold).unwrap();
            (format!("{stats:?}"), hold.unwrap().time.now())
        };
        assert_eq!(story(), story());
    }
}
