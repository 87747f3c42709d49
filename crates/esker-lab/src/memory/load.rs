//! What a process of its own does with memory for `esker lab memory`: loads rows, deletes half, deletes all, waits, and
//! deletes and inserts again and again. It prints a figure a line.
//!
//! Invariants: a row that is alive has the bytes that it was given, looked at after each step; the threads live from the
//! first step to the last, and rest while memory is read.

use super::store::{Heap, Regions, Store};
use super::Task;
use crate::error::{LabError, Result};
use crate::probe::host::Usage;
use crate::probe::maps;
use crate::records::{Records, Shape};
use std::sync::mpsc::{sync_channel, Receiver, SyncSender};
use std::sync::Arc;
use std::time::Instant;

/// Buffers that live for a few rows.
const BUFFERS: usize = 64;
/// Rows of a transaction, whose log buffer lives until its end.
const TRANSACTION_ROWS: usize = 256;
/// Bytes of an object that outlives the rows.
const SURVIVOR_BYTES: usize = 64;
/// No record. Not zero, so that empty tables are written to and count as memory before the load.
const NONE: u32 = u32::MAX;

/// What the process is told.
#[derive(Debug, Clone, clap::Args)]
pub struct Load {
    /// Rows go to Esker's regions, not to malloc
    #[arg(long)]
    pub(super) regions: bool,
    #[arg(long)]
    pub(super) seed: u64,
    #[command(flatten)]
    pub(super) task: Task,
}

/// One thing that all threads do before memory is looked at.
#[derive(Debug, Clone, Copy)]
enum Step {
    Fill,
    DeleteHalf,
    DeleteRest,
    Churn,
    Look,
}

/// A thread's share of the rows.
struct Share<S> {
    store: S,
    /// The record that a slot holds, or [`NONE`].
    records: Vec<u32>,
    /// Slots in the order of their deletion.
    order: Vec<u32>,
    next_record: u32,
    /// Where the oldest rows are: where churn goes on.
    oldest: usize,
    source: Arc<Records>,
    others: OtherAllocations,
}

/// What an engine takes from malloc besides rows.
struct OtherAllocations {
    buffers: Vec<Vec<u8>>,
    log: Vec<u8>,
    survivors: Vec<Box<[u8]>>,
    /// One stays for so many rows; 0: none does.
    rows_a_survivor: usize,
    inserted: usize,
}

impl OtherAllocations {
    fn new(rows: usize, rows_a_survivor: usize) -> OtherAllocations {
        let survivors = Vec::with_capacity(rows.checked_div(rows_a_survivor).unwrap_or(0) + 1);
        OtherAllocations {
            buffers: vec![Vec::new(); BUFFERS],
            log: Vec::new(),
            survivors,
            rows_a_survivor,
            inserted: 0,
        }
    }

    /// What goes along with an insert.
    fn insert(&mut self, row: &[u8]) {
        self.inserted += 1;
        let mut buffer = Vec::with_capacity(64 << (self.inserted * 7 % 8));
        buffer.extend_from_slice(&row[..row.len().min(64)]);
        self.buffers[self.inserted % BUFFERS] = buffer;
        match self.inserted % TRANSACTION_ROWS {
            0 => self.log = Vec::new(),
            _ => self.log.extend_from_slice(row),
        }
        let due = self.rows_a_survivor > 0 && self.inserted % self.rows_a_survivor == 0;
        if due && self.survivors.len() < self.survivors.capacity() {
            self.survivors.push([1; SURVIVOR_BYTES].into());
        }
    }

    /// The statement ends: only what outlives the rows stays.
    fn end(&mut self) {
        // Not fill(): that keeps their memory.
        self.buffers.iter_mut().for_each(|buffer| *buffer = Vec::new());
        self.log = Vec::new();
    }
}

impl<S: Store> Share<S> {
    /// `rows` empty slots.
    fn new(rows: usize, seed: u64, task: &Task, source: Arc<Records>) -> Share<S> {
        let mut order: Vec<u32> = (0..rows as u32).collect();
        if task.is_scattered() {
            fastrand::Rng::with_seed(seed).shuffle(&mut order);
        }
        let others = OtherAllocations::new(rows, task.survivors);
        let (store, records) = (S::with_slots(rows), vec![NONE; rows]);
        Share { store, records, order, next_record: 0, oldest: 0, source, others }
    }

    fn insert(&mut self, slot: usize) -> Result<()> {
        let record = self.next_record;
        self.next_record = (record + 1) % NONE;
        let row = self.source.get(record.into());
        self.store.insert(slot, row)?;
        self.records[slot] = record;
        self.others.insert(row);
        Ok(())
    }

    fn delete(&mut self, slot: usize) {
        self.store.delete(slot);
        self.records[slot] = NONE;
    }

    fn fill(&mut self) -> Result<()> {
        (0..self.records.len()).try_for_each(|slot| self.insert(slot))
    }

    fn delete_of_order(&mut self, range: std::ops::Range<usize>) {
        for i in range {
            self.delete(self.order[i] as usize);
        }
    }

    /// The oldest tenth goes, as many new rows come.
    fn churn(&mut self) -> Result<()> {
        let (slots, tenth) = (self.records.len(), tenth(self.records.len()));
        let begin = self.oldest;
        (0..tenth).for_each(|i| self.delete((begin + i) % slots));
        self.oldest = (begin + tenth) % slots;
        (0..tenth).try_for_each(|i| self.insert((begin + i) % slots))
    }

    /// How many rows there are that have the bytes that they were given, and how many bytes.
    fn look(&self) -> Contents {
        let mut contents = Contents::default();
        for (slot, record) in self.records.iter().enumerate().filter(|r| *r.1 != NONE) {
            let wanted = self.source.get(u64::from(*record));
            if self.store.get(slot, wanted.len()) == Some(wanted) {
                contents.rows += 1;
                contents.bytes += wanted.len() as u64;
            }
        }
        contents
    }

    fn step(&mut self, step: Step) -> Result<Contents> {
        let (half, all) = (self.order.len() / 2, self.order.len());
        match step {
            Step::Fill => self.fill()?,
            Step::DeleteHalf => self.delete_of_order(0..half),
            Step::DeleteRest => self.delete_of_order(half..all),
            Step::Churn => self.churn()?,
            Step::Look => return Ok(self.look()),
        }
        self.others.end();
        Ok(Contents::default())
    }
}

/// Rows that a round of churn deletes of a thread's so many, and inserts.
pub(super) fn tenth(rows: usize) -> usize {
    rows.div_ceil(10)
}

#[derive(Debug, Clone, Copy, Default)]
struct Contents {
    rows: u64,
    bytes: u64,
}

/// The threads at work, and what they answer.
struct Workers {
    orders: Vec<SyncSender<Step>>,
    answers: Receiver<Result<Contents>>,
}

impl Workers {
    /// All do a step; it ends with the last of them.
    fn all(&self, step: Step) -> Result<Contents> {
        let gone = || LabError::Failed("a thread has ended".into());
        for order in &self.orders {
            order.send(step).map_err(|_| gone())?;
        }
        let mut all = Contents::default();
        for _ in &self.orders {
            let contents = self.answers.recv().map_err(|_| gone())??;
            all = Contents { rows: all.rows + contents.rows, bytes: all.bytes + contents.bytes };
        }
        Ok(all)
    }
}

/// Prints figures.
type Print<'a> = dyn FnMut(&str, f64) -> Result<()> + 'a;

/// Prints what is in memory, and what of it the kernel may take when it is short.
fn tell_memory(print: &mut Print<'_>, moment: &str) -> Result<()> {
    let memory = maps::own_memory()?;
    print(&format!("{moment}_rss"), (memory.resident + memory.swapped) as f64)?;
    print(&format!("{moment}_lazy"), memory.lazy_free as f64)
}

/// Verifies, and prints how many rows live.
fn tell_rows(print: &mut Print<'_>, workers: &Workers, moment: &str) -> Result<Contents> {
    let contents = workers.all(Step::Look)?;
    print(&format!("{moment}_rows"), contents.rows as f64)?;
    Ok(contents)
}

/// Does a step and tells the time that it took: real, user and system, in seconds, and page faults.
fn timed(print: &mut Print<'_>, name: &str, work: impl FnOnce() -> Result<()>) -> Result<()> {
    let (before, began) = (Usage::now(), Instant::now());
    work()?;
    let (took, used) = (began.elapsed(), Usage::now().since(&before));
    print(&format!("{name}_s"), took.as_secs_f64())?;
    print(&format!("{name}_user_s"), used.user.as_secs_f64())?;
    print(&format!("{name}_system_s"), used.system.as_secs_f64())?;
    print(&format!("{name}_faults"), used.minor_faults as f64)
}

/// The steps, with memory looked at after each.
fn steps(workers: &Workers, task: &Task, print: &mut Print<'_>) -> Result<()> {
    tell_memory(print, "start")?;
    timed(print, "load", || workers.all(Step::Fill).map(drop))?;
    tell_memory(print, "loaded")?;
    let asked = tell_rows(print, workers, "loaded")?.bytes;
    print("asked", asked as f64)?;
    timed(print, "half", || workers.all(Step::DeleteHalf).map(drop))?;
    tell_memory(print, "half")?;
    tell_rows(print, workers, "half")?;
    timed(print, "rest", || workers.all(Step::DeleteRest).map(drop))?;
    tell_memory(print, "none")?;
    tell_rows(print, workers, "none")?;
    std::thread::sleep(task.wait);
    tell_memory(print, "later")?;
    workers.all(Step::Fill)?;
    timed(print, "churn", || (0..task.churn).try_for_each(|_| workers.all(Step::Churn).map(drop)))?;
    tell_memory(print, "churned")?;
    tell_rows(print, workers, "churned").map(drop)
}

/// Rows of each thread, and what they hold.
fn shares<S: Store>(load: &Load) -> Vec<Share<S>> {
    let task = &load.task;
    let rows = task.rows_a_thread();
    let records = Records::new(Shape::Spread, task.row_bytes as usize, rows as u64, load.seed);
    let source = Arc::new(records);
    (0..task.threads).map(|i| Share::new(rows, load.seed + i as u64, task, Arc::clone(&source))).collect()
}

fn work<S: Store + Send>(load: &Load, print: &mut Print<'_>) -> Result<()> {
    let shares = shares::<S>(load);
    std::thread::scope(|scope| {
        // With room from the start: nothing of theirs is to lie among the rows.
        let (done, answers) = sync_channel(shares.len());
        let mut orders = Vec::new();
        for mut share in shares {
            let (order, steps) = sync_channel::<Step>(1);
            let done = done.clone();
            orders.push(order);
            scope.spawn(move || steps.iter().try_for_each(|step| done.send(share.step(step))));
        }
        drop(done);
        // The threads end when nobody can give orders any more.
        steps(&Workers { orders, answers }, &load.task, print)
    })
}

/// Does it all, and prints the figures: sizes in bytes, times in seconds; before them a line with the file that malloc
/// lies in.
///
/// # Errors
/// Memory is short.
pub fn run(load: &Load, print: &mut dyn FnMut(&str) -> Result<()>) -> Result<()> {
    print(&format!("malloc {}\n", maps::malloc_file()?))?;
    let print: &mut Print<'_> = &mut |name, value| print(&format!("{name} {value}\n"));
    match load.regions {
        true => work::<Regions>(load, print),
        false => work::<Heap>(load, print),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn share<S: Store>(scattered: bool) -> Share<S> {
        let task = Task::small(scattered);
        let source = Arc::new(Records::new(Shape::Spread, 300, 1000, 1));
        Share::new(1000, 1, &task, source)
    }

    fn rows_at_each_step<S: Store>(scattered: bool) -> Vec<u64> {
        let mut share = share::<S>(scattered);
        let steps = [Step::Fill, Step::DeleteHalf, Step::DeleteRest, Step::Fill, Step::Churn, Step::Churn];
        let look = |step| {
            share.step(step).unwrap();
            share.step(Step::Look).unwrap().rows
        };
        steps.map(look).to_vec()
    }

    #[test]
    fn each_step_leaves_the_rows_that_it_should() {
        for scattered in [true, false] {
            assert_eq!(rows_at_each_step::<Heap>(scattered), [1000, 500, 0, 1000, 1000, 1000]);
            assert_eq!(rows_at_each_step::<Regions>(scattered), [1000, 500, 0, 1000, 1000, 1000]);
        }
    }

    #[test]
    fn what_lives_for_a_statement_is_gone_after_it() {
        let mut share = share::<Heap>(false);
        share.step(Step::Fill).unwrap();
        let held: usize = share.others.buffers.iter().map(Vec::capacity).sum();
        // One survivor for 100 rows.
        assert_eq!((held, share.others.log.capacity(), share.others.survivors.len()), (0, 0, 10));
    }

    #[test]
    fn a_wrong_row_does_not_count() {
        let mut share = share::<Heap>(true);
        share.step(Step::Fill).unwrap();
        share.records[7] = 8;
        assert_eq!(share.step(Step::Look).unwrap().rows, 999);
    }

    #[test]
    fn churn_goes_round() {
        let mut share = share::<Regions>(false);
        share.step(Step::Fill).unwrap();
        for _ in 0..10 {
            share.step(Step::Churn).unwrap();
        }
        // Every row of the first load is gone.
        assert_eq!(share.oldest, 0);
        assert!(share.records.iter().all(|r| (1000..2000).contains(r)));
    }
}
