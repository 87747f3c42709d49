//! An experiment, which is a command at work: its folder, its plan, its order of runs, and when it must stop.
//!
//! Invariants: everything lies in a folder of its own, which is gone at the end, however that comes; nothing begins
//! without room for it; runs of different cases take turns, forwards and backwards, in orders that the seed gives.

use crate::details::Details;
use crate::error::{LabError, Result};
use crate::needs::{enough_memory, most_memory, Needs, Pace};
use crate::noise::Stretches;
use crate::options::{CommonOptions, COMPARED, LOOKED};
use crate::probe::host::create_new_dir;
use crate::quiet::{wait_here, QuietWait};
use crate::report::{Metric, Row, Status};
use crate::units::size_text;
use esker_io::{Disk, IoKind, PosixDisk};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Behind the last parameter of what is measured a second time for the null test.
pub const AGAIN: &str = " again";

/// Commands whose rows stand for themselves, and take long.
const LONG: [&str; 4] = ["doctor", "trace", "memory", "recovery"];

/// Was it stopped by Ctrl-C?
#[must_use]
pub fn interrupted() -> bool {
    stop_flag().load(Ordering::Relaxed)
}

/// Set by Ctrl-C.
fn stop_flag() -> &'static AtomicBool {
    static STOP: OnceLock<AtomicBool> = OnceLock::new();
    STOP.get_or_init(|| AtomicBool::new(false))
}

/// Signals that come so soon one after the other are one request to stop: timeout(1) sends one to its command and one to
/// the whole group, and who passes Ctrl-C on sends it to whom the terminal has sent it, too.
const ONE_REQUEST: Duration = Duration::from_secs(1);

/// A command's measurements: cases that are run in turns, in a folder of their own.
pub struct Experiment {
    common: CommonOptions,
    folder: PathBuf,
    began: Instant,
    bar: ProgressBar,
    /// The block device below the folder.
    device: String,
    waited: Option<QuietWait>,
}

impl Experiment {
    /// Makes the folder.
    ///
    /// # Errors
    /// When the folder cannot be written.
    pub fn begin(common: &CommonOptions, command: &str) -> Result<Experiment> {
        common.check()?;
        // A second command in one process finds it set already.
        let mut first = None;
        let _ = ctrlc::set_handler(move || {
            stop_flag().store(true, Ordering::SeqCst);
            if first.get_or_insert_with(Instant::now).elapsed() > ONE_REQUEST {
                // Asked for again: at once, whatever is left behind.
                std::process::exit(130);
            }
        });
        let usual = if LONG.contains(&command) { LOOKED } else { COMPARED };
        let common = common.with_rounds(usual);
        let folder = own_folder(&common.dir, &format!("esker-lab-{command}-{}", std::process::id()))?;
        let bar = ProgressBar::hidden();
        let device = crate::doctor::device(&common.dir);
        Ok(Experiment { common, folder, began: Instant::now(), bar, device, waited: None })
    }

    /// How often each case is measured.
    #[must_use]
    pub fn rounds(&self) -> usize {
        self.common.rounds()
    }

    /// The folder for the command's files.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The options.
    #[must_use]
    pub fn common(&self) -> &CommonOptions {
        &self.common
    }

    /// The block device below the folder, as "major:minor".
    #[must_use]
    pub fn device(&self) -> &str {
        &self.device
    }

    /// How long it was waited for the machine to be quiet, if it was to be.
    #[must_use]
    pub fn waited(&self) -> Option<QuietWait> {
        self.waited.clone()
    }

    /// Refuses what there is no room for, waits until the machine is quiet if it is to, and says what is about to happen.
    ///
    /// # Errors
    /// `Space`.
    pub fn plan(&mut self, cases: usize, needs: Needs) -> Result<()> {
        let space = needs.space_bytes;
        if let Some(most) = self.common.max_space.filter(|most| space > *most) {
            let (need, most) = (size_text(space), size_text(most));
            return Err(LabError::Space(format!(
                "it takes {need} of space, --max-space allows {most}{}",
                needs.hint()
            )));
        }
        let free = self.free_bytes()?;
        if space > free {
            let (need, free) = (size_text(space), size_text(free));
            let dir = self.common.dir.display();
            return Err(LabError::Space(format!(
                "it takes {need} of space, {dir} has {free} to spare{}",
                needs.hint()
            )));
        }
        // Files on memory are memory.
        let files = if self.is_on_memory() { space } else { 0 };
        enough_memory(&self.common, needs.memory_bytes.saturating_add(files))?;
        self.waited = self.common.wait_for_quiet.map(|limit| wait_here(limit, &self.device, || self.is_over()));
        if std::io::IsTerminal::is_terminal(&std::io::stderr()) {
            let (runs, seconds) = (self.rounds(), Pace::measure(&self.folder)?.seconds(&needs).ceil() as u64);
            let seconds = self.common.max_time.map_or(seconds, |most| seconds.min(most.as_secs()));
            eprintln!(
                "{cases} cases, {runs} runs each, about {}, {} written, {} of memory, {} of space in {}",
                indicatif::HumanDuration(Duration::from_secs(seconds)),
                needs.written(),
                size_text(needs.memory_bytes),
                size_text(space),
                self.folder.display()
            );
            self.bar = ProgressBar::new((cases * runs) as u64);
            if let Ok(style) = ProgressStyle::with_template("{wide_bar} {pos}/{len} {msg} {eta}") {
                self.bar.set_style(style);
            }
        }
        Ok(())
    }

    /// Bytes that may be taken: what others need on the file system stays free.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn free_bytes(&self) -> Result<u64> {
        Ok(PosixDisk::new().free_bytes(&self.folder)?.saturating_sub(64 << 20))
    }

    /// Are its files in memory?
    #[must_use]
    pub fn is_on_memory(&self) -> bool {
        matches!(crate::doctor::file_system(&self.common.dir).as_str(), "tmpfs" | "ramfs")
    }

    /// Bytes that its files may take: as far as there is space, and it is allowed.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn room_bytes(&self) -> Result<u64> {
        let allowed = self.common.max_space.unwrap_or(u64::MAX).min(self.free_bytes()?);
        let memory = if self.is_on_memory() { most_memory(&self.common).map_or(u64::MAX, |m| m / 2) } else { u64::MAX };
        Ok(allowed.min(memory))
    }

    /// Must it stop?
    #[must_use]
    pub fn is_over(&self) -> bool {
        let late = self.common.max_time.is_some_and(|most| self.began.elapsed() > most);
        late || stop_flag().load(Ordering::Relaxed)
    }

    /// For use in long loops.
    ///
    /// # Errors
    /// `Stopped`.
    pub fn check(&self) -> Result<()> {
        if self.is_over() {
            return Err(LabError::Stopped);
        }
        Ok(())
    }

    /// Shows that one of the planned steps begins, for a command that does not [`run`](Experiment::run) cases.
    pub fn step(&self, message: &str) {
        self.bar.set_message(message.to_owned());
        self.bar.inc(1);
    }

    /// Takes words on how far the step is, for the progress bar.
    pub fn teller(&self) -> impl Fn(&str) + Send + Sync + 'static {
        let bar = self.bar.clone();
        move |words| bar.set_message(words.to_owned())
    }

    /// Removes the files in its folder, which stays its own.
    pub fn clear(&self) {
        empty(&self.folder);
    }

    /// Runs all cases as often as asked for, in turns. What is 100 percent is measured twice: the null test.
    pub fn run(&self, cases: &mut [Case<'_>]) -> Vec<Row> {
        let (mut rows, mut of) = (Vec::new(), Vec::new());
        let mut place = vec![0; cases.len()];
        for (i, case) in cases.iter().enumerate() {
            place[i] = rows.len();
            rows.push(case.row());
            of.push(i);
            if case.base == Some(i) {
                let mut twin = case.row();
                if let Some(last) = twin.params.last_mut() {
                    last.push_str(AGAIN);
                }
                rows.push(twin);
                of.push(i);
                self.bar.inc_length(self.rounds() as u64);
            }
        }
        rows.iter_mut().for_each(|row| row.base = row.base.and_then(|case| place.get(case).copied()));
        let mut stretches = Stretches::begin(&self.device, rows.len());
        for i in turns(self.common.seed, rows.len(), self.rounds()).into_iter().flatten() {
            self.bar.set_message(rows[i].params.join(" "));
            if self.run_once(&mut cases[of[i]], &mut rows[i]) {
                stretches.did(i);
            }
            self.bar.inc(1);
        }
        rows.iter_mut().zip(stretches.end(self.is_over())).for_each(|(row, noise)| row.noise = noise);
        self.bar.finish_and_clear();
        rows
    }

    /// Measures a case once more, unless there is no use in it; whether it did.
    fn run_once(&self, case: &mut Case<'_>, row: &mut Row) -> bool {
        if row.status != Status::Good {
            return false;
        }
        if self.is_over() {
            row.status = Status::Stopped;
            return false;
        }
        match (case.work)(self) {
            Ok(sample) => row.add(sample),
            Err(LabError::Unsupported(why)) => row.status = Status::Unsupported(why),
            Err(LabError::Stopped) => row.status = Status::Stopped,
            Err(e) => row.status = Status::Failed(e.to_string()),
        }
        true
    }

    /// Options for the report.
    #[must_use]
    pub fn options(&self, more: Value) -> Value {
        self.common.options(more)
    }
}

/// In which order so many rows are measured, round by round: a round and its way back, so that what drifts meets all
/// alike; then another order, so that no row always follows the same one, or always begins.
pub(crate) fn turns(seed: u64, rows: usize, rounds: usize) -> Vec<Vec<usize>> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut order: Vec<usize> = (0..rows).collect();
    let mut turn = |round| {
        match round % 2 {
            0 => random.shuffle(&mut order),
            _ => order.reverse(),
        }
        order.clone()
    };
    (0..rounds).map(&mut turn).collect()
}

/// Makes a folder that is nobody else's: one that is there may be of a process of the same number, in another container
/// or long ago.
fn own_folder(dir: &Path, name: &str) -> Result<PathBuf> {
    let (mut folder, mut n) = (dir.join(name), 1);
    loop {
        match create_new_dir(&folder) {
            Err(e) if e.kind == IoKind::AlreadyExists => n += 1,
            made => return Ok(made.map(|()| folder)?),
        }
        folder = dir.join(format!("{name}-{n}"));
    }
}

/// Removes a folder with all that is in it, as far as that is possible.
pub fn remove_all(folder: &Path) {
    empty(folder);
    let _ = PosixDisk::new().remove_dir(folder);
}

fn empty(folder: &Path) {
    let disk = PosixDisk::new();
    for entry in disk.list(folder).unwrap_or_default() {
        let path = folder.join(entry.name);
        match entry.is_dir {
            true => remove_all(&path),
            false => drop(disk.remove(&path)),
        }
    }
}

impl Drop for Experiment {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
        remove_all(&self.folder);
    }
}

/// Measures something once.
pub type Work<'a> = Box<dyn FnMut(&Experiment) -> Result<Sample> + 'a>;

/// One thing to measure.
pub struct Case<'a> {
    /// The values of the report's parameters.
    pub params: Vec<String>,
    /// The case that is 100 percent for this one.
    pub base: Option<usize>,
    /// Measures it once.
    pub work: Work<'a>,
}

impl Case<'_> {
    fn row(&self) -> Row {
        Row { base: self.base, ..Row::without_figures(self.params.clone(), Status::Good) }
    }
}

/// What one run gave.
#[derive(Debug, Clone, Default)]
pub struct Sample {
    /// Figures: name, unit, value.
    pub metrics: Vec<(&'static str, &'static str, f64)>,
    /// Figures that every run must agree on.
    pub counts: Vec<(&'static str, u64)>,
    /// Set when what came out is wrong.
    pub wrong: Option<String>,
    /// Histograms and stacks.
    pub details: Details,
}

impl Row {
    fn add(&mut self, sample: Sample) {
        for (name, unit, value) in sample.metrics {
            let metric = self.metrics.entry(name).or_insert_with(|| Metric { unit, samples: Vec::new() });
            metric.samples.push(value);
        }
        for (name, n) in sample.counts {
            let first = *self.counts.entry(name).or_insert(n);
            if first != n {
                self.status = Status::Void(format!("{name} was {first} in one run and {n} in another"));
            }
        }
        self.details.merge(sample.details);
        if let Some(why) = sample.wrong {
            self.status = Status::Void(why);
        }
    }
}
