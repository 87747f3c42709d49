//! The simulator: an engine on a simulated disk, its sessions, and the model beside it.
//!
//! Invariant: every call to the engine is held against the model at once; an answer that the model does not allow is a
//! [`Failure`]. An error of the disk is allowed only while faults are planned.

use crate::binlog::{Binlog, Figures};
use crate::kinds::{kinds, Kind};
use crate::meanwhile::{before_operation, Inside};
use crate::model::{Model, Row, TxnModel};
use crate::Rng;
use esker::io::{Disk, SimDisk};
use esker::sim_hooks::SimHost;
use esker::{Background, Cursor, Engine, Error, FlushMode, Host, Options, Savepoint, Session, SyncMethod, Table};
use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Where the engine's folder is on the simulated disk.
pub const FOLDER: &str = "/data/esker";
/// Steps that a failure tells of.
const TRACE_STEPS: usize = 4000;

/// The engine did what the model forbids.
#[derive(Debug, Clone)]
pub struct Failure(pub String);

impl Failure {
    /// A failure with this message.
    pub fn new(message: impl Into<String>) -> Self {
        Failure(message.into())
    }
}

impl From<esker::io::IoError> for Failure {
    fn from(e: esker::io::IoError) -> Self {
        Failure(format!("simulated disk: {e}"))
    }
}

/// How a simulation goes.
#[derive(Debug, Clone)]
pub struct Config {
    /// What the engine is opened with.
    pub options: Options,
    /// Sessions beside each other.
    pub sessions: usize,
    /// Rows that a table has at most, roughly.
    pub most_rows: usize,
    /// Verify everything after each step.
    pub verify_each: bool,
    /// Also use the lazier flush modes.
    pub lazy_modes: bool,
    /// So often is work of the engine interrupted by steps of sessions, in percent.
    pub meanwhile_percent: u64,
    /// Sessions wait for locks so long.
    pub lock_wait: Duration,
    /// Nothing happens for some time, now and then.
    pub time_passes: bool,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            options: small_options(),
            sessions: 3,
            most_rows: 1200,
            verify_each: false,
            lazy_modes: false,
            meanwhile_percent: 50,
            lock_wait: Duration::ZERO,
            time_passes: false,
        }
    }
}

/// What is left to do after a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// Go on.
    Go,
    /// The power is cut or the engine stopped: only a restart helps.
    Stop,
}

/// What the engine answered.
pub(crate) enum Answer<T> {
    Ok(T),
    /// An error that the model expected.
    No(Refusal),
    /// An error of the disk.
    Fault,
}

/// Errors that a model can expect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    WouldBlock,
    RowNotFound,
    RecordChanged,
    TableChanged,
    LockTimeout,
    TableExists,
    NoSuchTable,
    Interrupted,
    Duplicate,
    Unsupported,
}

fn kind_of(e: &Error) -> Option<Refusal> {
    Some(match e {
        Error::WouldBlock => Refusal::WouldBlock,
        Error::RowNotFound => Refusal::RowNotFound,
        Error::RecordChanged => Refusal::RecordChanged,
        Error::TableChanged(_) => Refusal::TableChanged,
        Error::LockTimeout => Refusal::LockTimeout,
        Error::TableExists(_) => Refusal::TableExists,
        Error::NoSuchTable(_) => Refusal::NoSuchTable,
        Error::Interrupted => Refusal::Interrupted,
        Error::DuplicateKey { .. } => Refusal::Duplicate,
        Error::Unsupported(_) => Refusal::Unsupported,
        _ => return None,
    })
}

/// A cursor that stays open over steps of others.
pub(crate) struct OpenScan {
    pub(crate) cursor: Cursor,
    pub(crate) name: String,
    pub(crate) table: Arc<Table>,
    /// Also at READ COMMITTED, where the transaction has none.
    pub(crate) view: u64,
    /// All that its view sees, and what of it is to come.
    pub(crate) all: BTreeMap<u64, Row>,
    pub(crate) rest: VecDeque<(u64, Row)>,
}

/// One session and its transaction in the model.
pub(crate) struct Slot {
    // Before the session: it must go first.
    pub(crate) scan: Option<OpenScan>,
    pub(crate) session: Session,
    pub(crate) txn: Option<TxnModel>,
    pub(crate) savepoints: Vec<(Savepoint, crate::model::Point)>,
}

/// What a simulation has done.
#[derive(Debug, Clone, Copy, Default)]
pub struct Stats {
    /// Steps of workloads.
    pub steps: u64,
    /// Commits.
    pub commits: u64,
    /// Commits that were refused, since what the transaction had written was lost.
    pub commits_lost: u64,
    /// Restarts after a power cut or a kill.
    pub crashes: u64,
    /// Those of them that were kills in the middle of an operation.
    pub kills_inside: u64,
    /// Operations that were made to fail.
    pub faults: u64,
    /// Statements and other calls were answered that the disk is full.
    pub disk_full_answers: u64,
    /// The segment in reserve was used, as there was no room for another.
    pub reserve_used: u64,
    /// DROP TABLE used the space in the log that is set aside for it.
    pub drop_space_used: u64,
    /// Folders that did not open because of them.
    pub refused_opens: u64,
    /// Engines that stopped writing.
    pub poisoned: u64,
    /// Private or merged runs were seen.
    pub runs: u64,
    /// Steps in the middle of work of the engine.
    pub steps_inside: u64,
    /// Prepared transactions that were decided in the middle of a flush.
    pub decided_inside: u64,
    /// Runs with tombstones were seen.
    pub tombstone_runs: u64,
    /// A flush made a run of a key tree.
    pub keys_flushed: u64,
    /// A merge replaced runs of a key tree.
    pub keys_merged: u64,
    /// Parts of runs were seen in key trees.
    pub keys_narrowed: u64,
    /// Private runs were seen in key trees: a flush moved what an open transaction had there.
    pub keys_moved: u64,
    /// Restarts found runs in a table's key trees.
    pub keys_from_runs: u64,
    /// Restarts replayed entries of a table from the log.
    pub keys_from_log: u64,
    /// Restarts found a prepared transaction on a table with key trees.
    pub keys_prepared: u64,
    /// Restarts found moved entries of a prepared transaction.
    pub keys_moved_back: u64,
    /// Key trees could not be read for damage, and said so.
    pub keys_damaged: u64,
    /// Places in runs where the versions of a key went on in the next block.
    pub keys_over_blocks: u64,
    /// Neighbours in memtables of key trees whose first 8 bytes are alike, and that differ later, each time that was looked at.
    pub keys_alike_in_memory: u64,
    /// The same in blocks of runs.
    pub keys_alike_in_runs: u64,
    /// Files were seen that several tables share.
    pub files_shared: u64,
    /// Views of threads whose entries were compared with their rows.
    pub keys_read: u64,
    /// Writes met a row with the same unique key.
    pub duplicates: u64,
    /// Writes met a unique key of somebody who had not ended.
    pub keys_pending: u64,
    /// Rows were written whose newest version the writer's view does not see, with their unique keys.
    pub keys_overtaken: u64,
    /// Kept indexes were held against what a session saw.
    pub kept_checked: u64,
    /// The same in the view of a transaction.
    pub kept_checked_in_views: u64,
    /// Rows that a view had before their primary key was written again, each time that was looked at.
    pub rows_hidden: u64,
    /// Time passed without anything else.
    pub jumps: u64,
    /// Commits that did not wait for the log were synced when it was time.
    pub lazy_syncs: u64,
    /// What could not be read was tried again.
    pub retries: u64,
    /// Indexes were added to tables.
    pub indexes_added: u64,
    /// Indexes were taken from tables.
    pub indexes_dropped: u64,
    /// Indexes got other names.
    pub indexes_renamed: u64,
    /// Indexes were not built, since two rows have the same key.
    pub build_duplicates: u64,
    /// Steps in the middle of building indexes.
    pub steps_inside_builds: u64,
    /// Indexes that were built came to nothing, since somebody had written meanwhile.
    pub alters_overtaken: u64,
    /// Indexes were not altered for the sake of a prepared transaction.
    pub alters_refused: u64,
    /// Transactions could not commit, since a table had got other indexes.
    pub writers_refused: u64,
    /// Views were refused by an index that is newer.
    pub views_refused: u64,
    /// Building was cut short, or what was built was not used yet when the end came.
    pub builds_cut: u64,
    /// Changes of indexes of which nobody was told were there after a crash.
    pub alters_kept: u64,
    /// Such changes were not.
    pub alters_lost: u64,
    /// Of transactions in two phases.
    pub two_phase: Figures,
}

impl Stats {
    /// All figures, by name.
    #[must_use]
    pub fn figures(&self) -> Vec<(&'static str, u64)> {
        let own = vec![
            ("steps", self.steps),
            ("commits_lost", self.commits_lost),
            ("crashes", self.crashes),
            ("kills_inside", self.kills_inside),
            ("faults", self.faults),
            ("disk_full_answers", self.disk_full_answers),
            ("reserve_used", self.reserve_used),
            ("drop_space_used", self.drop_space_used),
            ("refused_opens", self.refused_opens),
            ("poisoned", self.poisoned),
            ("runs", self.runs),
            ("steps_inside", self.steps_inside),
            ("decided_inside", self.decided_inside),
            ("tombstone_runs", self.tombstone_runs),
            ("keys_flushed", self.keys_flushed),
            ("keys_merged", self.keys_merged),
            ("keys_narrowed", self.keys_narrowed),
            ("keys_moved", self.keys_moved),
            ("keys_from_runs", self.keys_from_runs),
            ("keys_from_log", self.keys_from_log),
            ("keys_prepared", self.keys_prepared),
            ("keys_moved_back", self.keys_moved_back),
            ("keys_damaged", self.keys_damaged),
            ("keys_over_blocks", self.keys_over_blocks),
            ("keys_alike_in_memory", self.keys_alike_in_memory),
            ("keys_alike_in_runs", self.keys_alike_in_runs),
            ("files_shared", self.files_shared),
            ("keys_read", self.keys_read),
            ("duplicates", self.duplicates),
            ("keys_pending", self.keys_pending),
            ("keys_overtaken", self.keys_overtaken),
            ("kept_checked", self.kept_checked),
            ("kept_checked_in_views", self.kept_checked_in_views),
            ("rows_hidden", self.rows_hidden),
            ("jumps", self.jumps),
            ("lazy_syncs", self.lazy_syncs),
            ("retries", self.retries),
            ("indexes_added", self.indexes_added),
            ("indexes_dropped", self.indexes_dropped),
            ("indexes_renamed", self.indexes_renamed),
            ("build_duplicates", self.build_duplicates),
            ("steps_inside_builds", self.steps_inside_builds),
            ("alters_overtaken", self.alters_overtaken),
            ("alters_refused", self.alters_refused),
            ("writers_refused", self.writers_refused),
            ("views_refused", self.views_refused),
            ("builds_cut", self.builds_cut),
            ("alters_kept", self.alters_kept),
            ("alters_lost", self.alters_lost),
        ];
        own.into_iter().chain(self.two_phase.all()).collect()
    }

    /// Adds another's figures.
    pub fn add(&mut self, o: Stats) {
        self.steps += o.steps;
        self.commits += o.commits;
        self.commits_lost += o.commits_lost;
        self.crashes += o.crashes;
        self.kills_inside += o.kills_inside;
        self.faults += o.faults;
        self.disk_full_answers += o.disk_full_answers;
        self.reserve_used += o.reserve_used;
        self.drop_space_used += o.drop_space_used;
        self.refused_opens += o.refused_opens;
        self.poisoned += o.poisoned;
        self.runs += o.runs;
        self.steps_inside += o.steps_inside;
        self.decided_inside += o.decided_inside;
        self.tombstone_runs += o.tombstone_runs;
        self.keys_flushed += o.keys_flushed;
        self.keys_merged += o.keys_merged;
        self.keys_narrowed += o.keys_narrowed;
        self.keys_moved += o.keys_moved;
        self.keys_from_runs += o.keys_from_runs;
        self.keys_from_log += o.keys_from_log;
        self.keys_prepared += o.keys_prepared;
        self.keys_moved_back += o.keys_moved_back;
        self.keys_damaged += o.keys_damaged;
        self.keys_over_blocks += o.keys_over_blocks;
        self.keys_alike_in_memory += o.keys_alike_in_memory;
        self.keys_alike_in_runs += o.keys_alike_in_runs;
        self.files_shared += o.files_shared;
        self.keys_read += o.keys_read;
        self.duplicates += o.duplicates;
        self.keys_pending += o.keys_pending;
        self.keys_overtaken += o.keys_overtaken;
        self.kept_checked += o.kept_checked;
        self.kept_checked_in_views += o.kept_checked_in_views;
        self.rows_hidden += o.rows_hidden;
        self.jumps += o.jumps;
        self.lazy_syncs += o.lazy_syncs;
        self.retries += o.retries;
        self.indexes_added += o.indexes_added;
        self.indexes_dropped += o.indexes_dropped;
        self.indexes_renamed += o.indexes_renamed;
        self.build_duplicates += o.build_duplicates;
        self.steps_inside_builds += o.steps_inside_builds;
        self.alters_overtaken += o.alters_overtaken;
        self.alters_refused += o.alters_refused;
        self.writers_refused += o.writers_refused;
        self.views_refused += o.views_refused;
        self.builds_cut += o.builds_cut;
        self.alters_kept += o.alters_kept;
        self.alters_lost += o.alters_lost;
        self.two_phase.add(o.two_phase);
    }
}

/// See the module.
pub struct Sim {
    // Before the engine: it must go first.
    pub(crate) building: Option<crate::alter::Build>,
    pub(crate) slots: Vec<Slot>,
    pub(crate) engine: Option<Engine>,
    /// The disk under the engine.
    pub disk: SimDisk,
    /// The time of the engine: it passes where the simulation says so, and where somebody waits.
    pub time: Arc<SimHost>,
    /// The source of all choices of the workload.
    pub rng: Rng,
    /// The reference.
    pub model: Model,
    /// What the server keeps beside the engine.
    pub binlog: Binlog,
    /// How it goes.
    pub config: Config,
    /// Errors of the disk are expected.
    pub faulty: bool,
    /// Look for files that nobody owns.
    pub check_files: bool,
    /// What was done.
    pub stats: Stats,
    pub(crate) kinds: Vec<Kind>,
    pub(crate) mode: FlushMode,
    /// There may be commits of a mode that waits for no sync.
    pub(crate) owes_sync: bool,
    /// When the engine was opened, or synced what commits did not wait for.
    pub(crate) synced: Duration,
    /// So long were locks waited for, as far as sessions were told.
    pub(crate) waited: Cell<Duration>,
    /// So often was the engine's answer that the disk is full.
    pub(crate) full_answers: Cell<u64>,
    pub(crate) next_xid: u64,
    /// Steps of a workload are being taken.
    pub(crate) in_workload: bool,
    /// They are being taken in the middle of this.
    pub(crate) inside: Option<Inside>,
    /// One of these met what only a restart mends.
    pub(crate) stopped_inside: bool,
    pub(crate) trace: VecDeque<String>,
    pub(crate) messages: Arc<Mutex<VecDeque<String>>>,
}

/// Settings under which few rows suffice for every path of the engine.
#[must_use]
pub fn small_options() -> Options {
    Options {
        memory_limit_bytes: 4 << 20,
        bulk_buffer_bytes: 64 << 10,
        bulk_threshold_bytes: 2 << 10,
        min_run_bytes: 8 << 10,
        block_bytes: 1 << 10,
        wal_segment_bytes: 64 << 10,
        // A few segments: the engine's own controllers have something to do.
        recovery_target_bytes: Some(256 << 10),
        run_bytes: 48 << 10,
        max_open_runs: 6,
        background: Background::Inline,
        ..Options::default()
    }
}

/// [`small_options`], some of them as the seed has it.
#[must_use]
pub fn varied_options(chance: &mut Rng) -> Options {
    Options {
        // The small one leaves the block cache next to nothing.
        memory_limit_bytes: *chance.pick(&[4 << 20, 256 << 10]),
        bulk_threshold_bytes: *chance.pick(&[2 << 10, 2 << 10, 8 << 10, 256 << 10]),
        block_bytes: *chance.pick(&[1 << 10, 1 << 10, 4 << 10]),
        ..small_options()
    }
}

/// The log's way to sync is the seed's, each in its turn.
pub(crate) fn sync_method(seed: u64) -> Option<SyncMethod> {
    Some(SyncMethod::ALL[(seed % 3) as usize])
}

/// A disk on which the place for the folder is there since long.
fn empty_disk(seed: u64) -> SimDisk {
    let disk = SimDisk::new(seed);
    if let Some(parent) = Path::new(FOLDER).parent() {
        // Nothing is planned yet: it cannot fail.
        let _ = disk.create_dir(parent).and_then(|()| disk.sync_dir(Path::new("/")));
    }
    disk
}

impl Sim {
    /// A simulation on an empty disk, not opened yet.
    #[must_use]
    pub fn new(seed: u64, config: Config) -> Sim {
        let time = SimHost::new();
        // None is asked for where each opening is to try them all: by a clock that stands still, so that the same seed does the same.
        let sync_method = config.options.sync_method.and(sync_method(seed));
        let options = Options { host: time.clone(), sync_method, ..config.options };
        let config = Config { options, ..config };
        Sim {
            building: None,
            slots: Vec::new(),
            engine: None,
            disk: empty_disk(seed),
            time,
            rng: Rng::new(seed),
            model: Model::default(),
            binlog: Binlog::default(),
            config,
            faulty: false,
            check_files: true,
            stats: Stats::default(),
            kinds: kinds(),
            mode: FlushMode::EveryCommit,
            owes_sync: false,
            synced: Duration::ZERO,
            waited: Cell::default(),
            full_answers: Cell::default(),
            next_xid: 1,
            in_workload: false,
            inside: None,
            stopped_inside: false,
            trace: VecDeque::new(),
            messages: Arc::default(),
        }
    }

    /// Opens an engine on the disk; the disk may refuse only while faults are planned.
    pub(crate) fn open_engine(&mut self) -> Result<Flow, Failure> {
        let messages = self.messages.clone();
        let notify: esker::Notify = Arc::new(move |text, _| {
            if let Ok(mut m) = messages.lock() {
                m.push_back(text.to_owned());
                if m.len() > 20 {
                    m.pop_front();
                }
            }
        });
        self.disk.watch(Some(Arc::new(before_operation)));
        (self.in_workload, self.inside, self.stopped_inside) = (false, None, false);
        let opened = Engine::open(Arc::new(self.disk.clone()), Path::new(FOLDER), self.config.options.clone(), notify);
        match self.judge("open", opened, &[], false)? {
            Answer::Ok(engine) => {
                (self.mode, self.owes_sync) = (FlushMode::EveryCommit, false);
                self.synced = self.time.now();
                self.engine = Some(engine);
                for _ in 0..self.config.sessions {
                    let slot = self.new_slot()?;
                    self.slots.push(slot);
                }
                Ok(Flow::Go)
            }
            _ => Ok(Flow::Stop),
        }
    }

    pub(crate) fn new_slot(&self) -> Result<Slot, Failure> {
        let mut session = self.engine()?.session();
        session.set_lock_wait(self.config.lock_wait, self.config.lock_wait.is_zero());
        // Every other one reads ahead.
        session.set_read_blocks(1 + 7 * (self.slots.len() as u32 % 2));
        Ok(Slot { scan: None, session, txn: None, savepoints: Vec::new() })
    }

    /// Lets the engine go, as it is.
    pub(crate) fn drop_engine(&mut self) {
        self.stats.builds_cut += u64::from(self.building.take().is_some());
        self.slots.clear();
        self.engine = None;
    }

    pub(crate) fn engine(&self) -> Result<&Engine, Failure> {
        self.engine.as_ref().ok_or_else(|| Failure::new("no engine is open"))
    }

    /// Notes a step for the failure's story.
    pub(crate) fn note(&mut self, step: impl FnOnce() -> String) {
        crate::runner::alive();
        if self.trace.len() == TRACE_STEPS {
            self.trace.pop_front();
        }
        let at = self.disk.op_count();
        self.trace.push_back(format!("[{at}] {}", step()));
    }

    /// A failure with the story so far.
    pub(crate) fn fail<T>(&self, message: impl Into<String>) -> Result<T, Failure> {
        Err(Failure(message.into()))
    }

    /// The last steps.
    #[must_use]
    pub fn steps_told(&self) -> Vec<String> {
        self.trace.iter().cloned().collect()
    }

    /// The last steps, messages and operations, for a failure's report.
    #[must_use]
    pub fn story(&self) -> String {
        let mut out = String::from("steps:\n");
        let (steps, operations) =
            if std::env::var_os("ESKER_SIM_STORY").is_some() { (TRACE_STEPS, TRACE_STEPS) } else { (40, 12) };
        self.trace.iter().skip(self.trace.len().saturating_sub(steps)).for_each(|t| {
            let _ = writeln!(out, "  {t}");
        });
        if let Ok(messages) = self.messages.lock() {
            let _ = writeln!(out, "messages: {messages:#?}");
        }
        let log = self.disk.op_log();
        let _ = writeln!(out, "last operations of {}:", self.disk.op_count());
        for op in log.iter().rev().take(operations).rev() {
            let _ = writeln!(out, "  {op}");
        }
        out
    }

    /// Is the error what a failing disk may cause?
    fn is_fault(&self, e: &Error) -> bool {
        matches!(e, Error::Io(_) | Error::DiskFull(_) | Error::Poisoned(_) | Error::OutOfMemory(_) | Error::ReadOnly(_))
    }

    /// Do sessions wait for locks?
    fn waits(&self) -> bool {
        !self.config.lock_wait.is_zero()
    }

    /// Holds an answer against what is allowed. `expected` none given: only success.
    pub(crate) fn judge<T>(
        &self,
        what: &str,
        answer: esker::Result<T>,
        expected: &[Refusal],
        shaky: bool,
    ) -> Result<Answer<T>, Failure> {
        if matches!(answer, Err(Error::DiskFull(_))) {
            self.full_answers.set(self.full_answers.get() + 1);
        }
        match answer {
            Ok(value) => Ok(Answer::Ok(value)),
            Err(Error::LockTimeout) if expected.contains(&Refusal::WouldBlock) && self.waits() => {
                self.gave_up().map(|()| Answer::No(Refusal::WouldBlock))
            }
            Err(e) => match kind_of(&e).filter(|kind| *kind != Refusal::WouldBlock || !self.waits()) {
                Some(kind) if expected.contains(&kind) => Ok(Answer::No(kind)),
                _ if (self.faulty || shaky || self.disk.is_power_cut()) && self.is_fault(&e) => Ok(Answer::Fault),
                _ => self.fail(format!("{what}: unexpected error: {e} ({e:?}); allowed were {expected:?}")),
            },
        }
    }

    /// After an error of the disk: is the engine still of use?
    pub(crate) fn after_fault(&self) -> Result<Flow, Failure> {
        let stopped = self.disk.is_power_cut() || self.engine()?.poisoned();
        Ok(if stopped { Flow::Stop } else { Flow::Go })
    }
}
