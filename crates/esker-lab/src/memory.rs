//! `esker lab memory`: does memory come back? What a process has in memory after loading rows, after deleting half of
//! them, after deleting all, and some time later, by allocator; and the processor time of deleting and inserting again
//! and again. With `--pid`, a running server's memory instead.
//!
//! Each run is a process of its own ([`load`]), so that an allocator can be preloaded and all of its memory is the
//! rows'. Invariant: a row's figures are of the allocator that it names; the process tells whose malloc it has.

pub mod load;
mod server;
mod store;

use crate::doctor;
use crate::error::{LabError, Result};
use crate::experiment::{Case, Experiment, Sample};
use crate::needs::{enough_memory, Needs};
use crate::options::CommonOptions;
use crate::probe::host::{canonical, read_text};
use crate::report::{null_difference, Report};
use crate::units::{size, time};
use clap::{Args, ValueEnum};
use esker_io::{Disk, PosixDisk};
use serde_json::json;
use std::collections::HashMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;

const MIB: f64 = (1u64 << 20) as f64;

/// Options of the command.
#[derive(Debug, Clone, Args)]
pub struct Options {
    #[command(flatten)]
    common: CommonOptions,
    #[command(flatten)]
    task: Task,
    /// Whose memory; several, with commas
    #[arg(long, value_name = "NAME", value_enum, value_delimiter = ',', default_values_t = Allocator::ALL)]
    allocators: Vec<Allocator>,
    /// Another allocator's library, which takes malloc's place; may be given several times
    #[arg(long, value_name = "FILE")]
    preload: Vec<PathBuf>,
    /// Looks at a running process instead: its maps, and Esker's accounts held against them
    #[arg(long, value_name = "PID", conflicts_with_all = LOADING)]
    pid: Option<u32>,
    /// That server's answer to SHOW GLOBAL STATUS LIKE 'Esker_memory%', as the client prints it into a file; - for
    /// standard input
    #[arg(long, value_name = "FILE", requires = "pid")]
    accounts: Option<PathBuf>,
}

/// Options of a load, which a look at a running process has no use for.
const LOADING: [&str; 15] = [
    "bytes",
    "row_bytes",
    "wait",
    "churn",
    "delete",
    "threads",
    "survivors",
    "allocators",
    "preload",
    "runs",
    "seed",
    "max_time",
    "max_space",
    "max_memory",
    "wait_for_quiet",
];

impl Options {
    pub(crate) fn common(&self) -> &CommonOptions {
        &self.common
    }
}

/// What is done with memory.
#[derive(Debug, Clone, Args)]
pub struct Task {
    /// Rows to load: the sum of their lengths
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "256M")]
    bytes: u64,
    /// The longest row, in bytes; they begin at a quarter of it
    #[arg(long, value_name = "N", default_value_t = 1000)]
    row_bytes: u32,
    /// How long to wait after all rows are deleted: seconds, or 90s, 5m
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "10s")]
    wait: Duration,
    /// How often the oldest tenth of the rows is deleted and as many new ones are inserted
    #[arg(long, value_name = "ROUNDS", default_value_t = 20)]
    churn: u32,
    /// Which half is deleted first
    #[arg(long, value_enum, default_value_t = Half::Scattered)]
    delete: Half,
    /// Threads that share the rows
    #[arg(long, value_name = "N", default_value_t = 1)]
    threads: usize,
    /// While rows are loaded, one small object that outlives them is made for so many of them; 0: none
    #[arg(long, value_name = "ROWS", default_value_t = 1000)]
    survivors: usize,
}

/// Which rows are deleted first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Half {
    /// Drawn at random.
    Scattered,
    /// In the order of their insertion.
    Oldest,
}

impl Task {
    fn is_scattered(&self) -> bool {
        self.delete == Half::Scattered
    }

    /// Rows of the mean length, five eighths of the longest, that make up a thread's share.
    fn rows_a_thread(&self) -> usize {
        let mean = (u64::from(self.row_bytes) * 5 / 8).max(1);
        (self.bytes / mean / self.threads.max(1) as u64).max(1) as usize
    }

    fn check(&self) -> Result<()> {
        let refuse = |why: &str| Err(LabError::Invalid(why.into()));
        if !(1..=65_536).contains(&self.row_bytes) {
            return refuse("--row-bytes must be between 1 and 65536");
        }
        if !(1..=256).contains(&self.threads) {
            return refuse("--threads must be between 1 and 256");
        }
        if self.bytes == 0 || self.rows_a_thread() > u32::MAX as usize / 2 {
            return refuse("--bytes must be at least 1, and less than 2^31 rows a thread");
        }
        Ok(())
    }

    /// The words that say it to [`load`].
    fn words(&self) -> Vec<String> {
        let half = if self.is_scattered() { "scattered" } else { "oldest" };
        let words = [
            ("--bytes", self.bytes.to_string()),
            ("--row-bytes", self.row_bytes.to_string()),
            ("--wait", self.wait.as_secs_f64().to_string()),
            ("--churn", self.churn.to_string()),
            ("--delete", half.into()),
            ("--threads", self.threads.to_string()),
            ("--survivors", self.survivors.to_string()),
        ];
        words.into_iter().flat_map(|(name, value)| [name.to_owned(), value]).collect()
    }

    #[cfg(test)]
    fn small(scattered: bool) -> Task {
        let delete = if scattered { Half::Scattered } else { Half::Oldest };
        let wait = Duration::from_millis(1);
        Task { bytes: 100_000, row_bytes: 300, wait, churn: 2, delete, threads: 1, survivors: 100 }
    }
}

/// Whose memory rows lie in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Allocator {
    /// The C library's malloc
    System,
    /// Debian's libjemalloc2
    Jemalloc,
    /// Debian's libmimalloc2.0
    Mimalloc,
    /// Debian's libtcmalloc-minimal4
    Tcmalloc,
    /// Esker's own, as memtables and buffers use them
    Regions,
}

impl Allocator {
    const ALL: [Allocator; 5] =
        [Allocator::System, Allocator::Jemalloc, Allocator::Mimalloc, Allocator::Tcmalloc, Allocator::Regions];

    fn case(self) -> AllocatorCase {
        let (name, start, package) = match self {
            Allocator::System => return AllocatorCase::own("system", false),
            Allocator::Regions => return AllocatorCase::own("regions", true),
            Allocator::Jemalloc => ("jemalloc", "libjemalloc.so", "libjemalloc2"),
            Allocator::Mimalloc => ("mimalloc", "libmimalloc.so", "libmimalloc2.0"),
            Allocator::Tcmalloc => ("tcmalloc", "libtcmalloc_minimal.so", "libtcmalloc-minimal4"),
        };
        let none = || format!("no {start}* in the folders of libraries; Debian's package {package} has it");
        AllocatorCase { name: name.into(), regions: false, preload: Some(library(start).ok_or_else(none)) }
    }
}

/// The library whose file name begins with `start`, in the folders where distributions put them.
fn library(start: &str) -> Option<PathBuf> {
    let disk = PosixDisk::new();
    let own = format!("/usr/lib/{}-linux-gnu", std::env::consts::ARCH);
    [&own, "/usr/local/lib", "/usr/lib64", "/usr/lib"].iter().map(Path::new).find_map(|folder| {
        let entry = disk.list(folder).ok()?.into_iter().find(|e| !e.is_dir && e.name.starts_with(start))?;
        canonical(&folder.join(entry.name)).ok()
    })
}

/// A library, or why there is none.
type Preload = std::result::Result<PathBuf, String>;

/// An allocator as a case: its name, how rows are stored, and what is preloaded, or why it cannot be.
struct AllocatorCase {
    name: String,
    regions: bool,
    preload: Option<Preload>,
}

impl AllocatorCase {
    fn own(name: &str, regions: bool) -> AllocatorCase {
        AllocatorCase { name: name.into(), regions, preload: None }
    }

    /// A library that was named.
    fn of_file(file: &Path) -> AllocatorCase {
        let odd = file.display().to_string().contains([' ', ':']);
        let found = match odd {
            true => Err("the loader takes no path with a blank or a colon".into()),
            false => canonical(file).map_err(|e| e.to_string()),
        };
        AllocatorCase { name: file.display().to_string(), regions: false, preload: Some(found) }
    }
}

/// Measures.
///
/// # Errors
/// Wrong options, not enough memory, no such process.
pub fn run(options: &Options) -> Result<Report> {
    options.common.without_cache()?;
    if let Some(pid) = options.pid {
        return server::report(&options.common, pid, options.accounts.as_deref());
    }
    let task = &options.task;
    task.check()?;
    let memory_bytes = memory_bytes(task);
    enough_memory(&options.common, memory_bytes)?;
    let mut experiment = Experiment::begin(&options.common, "memory")?;
    let preloaded = options.preload.iter().map(|p| AllocatorCase::of_file(p));
    let allocators: Vec<AllocatorCase> = options.allocators.iter().map(|a| a.case()).chain(preloaded).collect();
    // The null test, the wait, and a row that is touched some ten times in half a microsecond.
    let runs = ((allocators.len() + 1) * experiment.rounds()) as f64;
    let rows = (task.bytes / (task.row_bytes as u64).max(1)) as f64;
    let seconds = runs * (task.wait.as_secs_f64() + rows * 5e-6);
    experiment.plan(allocators.len(), Needs { seconds, memory_bytes, ..Needs::default() })?;
    let base = options.allocators.iter().position(|a| *a == Allocator::System);
    let seed = options.common.seed;
    let case = |allocator: &AllocatorCase| {
        let params = vec![allocator.name.clone()];
        let (regions, preload) = (allocator.regions, allocator.preload.clone());
        let work = Box::new(move |experiment: &Experiment| measure(experiment, task, seed, regions, preload.as_ref()));
        Case { params, base, work }
    };
    let rows = experiment.run(&mut allocators.iter().map(case).collect::<Vec<_>>());
    let names: Vec<&str> = allocators.iter().map(|a| a.name.as_str()).collect();
    Ok(Report {
        command: "memory",
        options: experiment.options(json!({
            "allocators": names, "bytes": task.bytes, "row_bytes": task.row_bytes, "churn": task.churn,
            "wait_s": task.wait.as_secs_f64(), "delete": format!("{:?}", task.delete).to_lowercase(),
            "threads": task.threads, "survivors": task.survivors,
        })),
        machine: doctor::machine(&options.common.dir),
        params: vec!["allocator"],
        shown: vec![
            ("start_rss", "MiB before"),
            ("loaded_rss", "loaded"),
            ("half_rss", "half deleted"),
            ("none_rss", "all deleted"),
            ("later_rss", "later"),
            ("kept", "percent kept"),
            ("load_ns", "ns an insert"),
            ("churn_ns", "ns in churn"),
            ("churn_user_s", "user s"),
            ("churn_system_s", "system s"),
            ("churn_system_share", "percent system"),
            ("churn_faults", "faults"),
        ],
        shown_counts: vec![("rows", "rows"), ("asked", "bytes")],
        relative: Some("loaded_rss"),
        null_difference: null_difference(&rows, "loaded_rss"),
        rows,
        notes: notes(task),
        waited: experiment.waited(),
        ..Report::default()
    })
}

/// What must be there so that nobody is pushed out of memory: half as much again as the rows' bytes, and what a row costs
/// besides, in tables and as a piece of memory.
fn memory_bytes(task: &Task) -> u64 {
    let rows = (task.rows_a_thread() * task.threads) as u64;
    task.bytes.saturating_add(task.bytes / 2).saturating_add(rows * 64)
}

/// What a reader of the table must know.
fn notes(task: &Task) -> Vec<String> {
    let pages = read_text(Path::new("/sys/kernel/mm/transparent_hugepage/enabled")).unwrap_or_default();
    let huge = pages.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map_or("unknown", |(word, _)| word);
    let mut notes = vec![
        format!(
            "MiB are the whole process's: resident and swapped. 'later' is {} s after the last row went. 'percent kept' \
             is what is left then of what the load took. Transparent huge pages: {huge}.",
            task.wait.as_secs_f64()
        ),
        "Churn deletes the oldest tenth and inserts as many, from malloc row by row. Regions are freed as a whole, when \
         no row in them lives: after half the rows, drawn at random, none may be free. An engine with regions frees \
         memtables, not rows."
            .into(),
    ];
    let prefixes = ["MALLOC_", "MIMALLOC_", "TCMALLOC_", "GLIBC_TUNABLES"];
    // Any of them may be no text, those that nobody asks for, too.
    let all = std::env::vars_os().map(|(name, value)| [name, value].map(|t| t.to_string_lossy().into_owned()));
    let set = all.filter(|[name, _]| prefixes.iter().any(|p| name.starts_with(p)));
    notes.extend(set.map(|[name, value]| format!("{name}={value} was set.")));
    notes
}

/// One process's figures by name, and the file that its malloc lies in.
#[derive(Debug, Default, PartialEq)]
struct LoadFigures {
    malloc: String,
    figures: HashMap<String, f64>,
}

impl LoadFigures {
    fn parse(text: &str) -> Result<LoadFigures> {
        let mut figures = LoadFigures::default();
        for line in text.lines() {
            match line.split_once(' ') {
                Some(("malloc", file)) => file.clone_into(&mut figures.malloc),
                Some((name, value)) => {
                    let value = value.parse().map_err(|_| strange(line))?;
                    figures.figures.insert(name.to_owned(), value);
                }
                None => return Err(strange(line)),
            }
        }
        Ok(figures)
    }

    fn get(&self, name: &str) -> Result<f64> {
        self.figures.get(name).copied().ok_or_else(|| strange(name))
    }
}

fn strange(what: &str) -> LabError {
    LabError::Failed(format!("the process that was to load rows said something strange, or nothing, about '{what}'"))
}

fn measure(
    experiment: &Experiment,
    task: &Task,
    seed: u64,
    regions: bool,
    preload: Option<&Preload>,
) -> Result<Sample> {
    let library = match preload {
        Some(Ok(path)) => Some(path),
        Some(Err(why)) => return Err(LabError::Unsupported(why.clone())),
        None => None,
    };
    let mut command = Command::new(std::env::current_exe().map_err(|e| LabError::Failed(e.to_string()))?);
    command.args(["lab", "memory-load", "--seed", &seed.to_string()]).args(task.words());
    if regions {
        command.arg("--regions");
    }
    command.env_remove("LD_PRELOAD");
    if let Some(path) = library {
        command.env("LD_PRELOAD", path);
    }
    let (said, complaint) = finish(experiment, command)?;
    let figures = LoadFigures::parse(&said)?;
    match library.filter(|path| Path::new(&figures.malloc) != path.as_path()) {
        Some(_) => Err(LabError::Unsupported(not_taken(&figures.malloc, &complaint))),
        None => sample(&figures, task),
    }
}

/// The words about a library that did not take malloc's place.
fn not_taken(malloc: &str, complaint: &str) -> String {
    let loader = complaint.lines().find(|l| l.contains("LD_PRELOAD")).unwrap_or("");
    format!("it was preloaded, but malloc is still {malloc}'s; {loader}").trim_end_matches("; ").to_owned()
}

/// Runs a process to its end, or until it must stop; what it said, and what it complained about.
fn finish(experiment: &Experiment, mut command: Command) -> Result<(String, String)> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(ended)?;
    let (said, complaint) = (gather(child.stdout.take()), gather(child.stderr.take()));
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if !experiment.is_over() => std::thread::sleep(Duration::from_millis(10)),
            other => {
                end(&mut child);
                return Err(other.map_or_else(ended, |_| LabError::Stopped));
            }
        }
    };
    // Ctrl-C ends it too.
    experiment.check()?;
    let (said, complaint) = (said.join().unwrap_or_default(), complaint.join().unwrap_or_default());
    match status.success() {
        true => Ok((said, complaint)),
        false => Err(ended(format!("{status}: {}", complaint.trim()))),
    }
}

fn ended(why: impl std::fmt::Display) -> LabError {
    LabError::Failed(format!("the process that was to load rows ended with {why}"))
}

/// Reads a pipe to its end, so that nobody waits for room in it.
fn gather(pipe: Option<impl Read + Send + 'static>) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            let _ = pipe.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

fn end(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}

/// A run's figures: sizes in MiB, times in seconds and nanoseconds a row.
fn sample(figures: &LoadFigures, task: &Task) -> Result<Sample> {
    let mib = |name: &str| Ok::<_, LabError>(figures.get(name)? / MIB);
    let rows = figures.get("loaded_rows")?;
    // A row deleted and a row inserted are two.
    let churned = 2.0 * f64::from(task.churn) * (load::tenth(task.rows_a_thread()) * task.threads) as f64;
    let (start, loaded, later) = (mib("start_rss")?, mib("loaded_rss")?, mib("later_rss")?);
    let mut metrics = vec![
        ("start_rss", "MiB", start),
        ("loaded_rss", "MiB", loaded),
        ("half_rss", "MiB", mib("half_rss")?),
        ("none_rss", "MiB", mib("none_rss")?),
        ("later_rss", "MiB", later),
        ("later_lazy", "MiB", mib("later_lazy")?),
        ("churned_rss", "MiB", mib("churned_rss")?),
        ("load_ns", "ns", figures.get("load_s")? * 1e9 / rows),
        ("delete_system_s", "s", figures.get("half_system_s")? + figures.get("rest_system_s")?),
    ];
    if loaded > start {
        metrics.push(("kept", "%", 100.0 * (later - start) / (loaded - start)));
    }
    if churned > 0.0 {
        let (user, system) = (figures.get("churn_user_s")?, figures.get("churn_system_s")?);
        if user + system > 0.0 {
            metrics.push(("churn_system_share", "%", 100.0 * system / (user + system)));
        }
        metrics.extend([
            ("churn_ns", "ns", figures.get("churn_s")? * 1e9 / churned),
            ("churn_user_s", "s", user),
            ("churn_system_s", "s", system),
            ("churn_faults", "", figures.get("churn_faults")?),
        ]);
    }
    let counts = vec![("rows", rows as u64), ("asked", figures.get("asked")? as u64)];
    Ok(Sample { metrics, counts, wrong: wrong(figures, task)?, ..Sample::default() })
}

/// Says which step left another number of rows than it should.
fn wrong(figures: &LoadFigures, task: &Task) -> Result<Option<String>> {
    let (each, threads) = (task.rows_a_thread(), task.threads);
    let all = each * threads;
    for (moment, wanted) in [("loaded", all), ("half", (each - each / 2) * threads), ("none", 0), ("churned", all)] {
        let rows = figures.get(&format!("{moment}_rows"))?;
        if rows != wanted as f64 {
            return Ok(Some(format!("{rows} rows were right in step '{moment}', not {wanted}")));
        }
    }
    Ok(None)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn told(rows: [usize; 4]) -> LoadFigures {
        let [loaded, half, none, churned] = rows;
        let text = format!(
            "malloc /lib/a b.so\nloaded_rows {loaded}\nhalf_rows {half}\nnone_rows {none}\nchurned_rows {churned}\n"
        );
        LoadFigures::parse(&text).unwrap()
    }

    #[test]
    fn a_step_that_leaves_other_rows_makes_the_row_void() {
        let task = Task { threads: 3, ..Task::small(true) };
        // 100000 bytes in rows of 187 on average: 178 for each of three threads.
        let good = told([534, 267, 0, 534]);
        assert_eq!((good.malloc.as_str(), wrong(&good, &task).unwrap()), ("/lib/a b.so", None));
        assert!(wrong(&told([534, 266, 0, 534]), &task)
            .unwrap()
            .unwrap()
            .contains("266 rows were right in step 'half'"));
        assert!(wrong(&told([534, 267, 1, 534]), &task).unwrap().is_some());
    }

    #[test]
    fn what_a_process_does_not_say_is_missed() {
        assert!(sample(&told([1, 1, 0, 1]), &Task::small(true)).unwrap_err().to_string().contains("start_rss"));
        assert!(LoadFigures::parse("half_rows many\n").is_err() && LoadFigures::parse("nothing\n").is_err());
    }

    #[test]
    fn tasks_without_sense_are_refused() {
        let small = || Task::small(true);
        assert!(small().check().is_ok());
        for task in [
            Task { row_bytes: 0, ..small() },
            Task { row_bytes: 65_537, ..small() },
            Task { threads: 0, ..small() },
            Task { bytes: 0, ..small() },
            Task { bytes: u64::MAX, row_bytes: 1, ..small() },
        ] {
            assert!(task.check().is_err(), "{task:?}");
        }
    }
}
