// SPDX-License-Identifier: MIT OR Apache-2.0
//! Session traces: what a traced session's thread notes goes to a file of the session's own, in the format of `esker-trace`.
//!
//! Lines are made and written between calls of the engine, so no lock is held. A trace that cannot go on, as its disk is full
//! or its size is the greatest, ends with a line that says so; the session goes on. So does a trace that panics: it holds nothing of
//! the engine's, which goes on, too.

mod lines;
mod names;

use crate::boundary::{exclusive, out, shared, slice, take};
use crate::engine::EsEngine;
use crate::folders;
use crate::guard::catch;
use crate::session::EsSession;
use crate::status::{report, str_of, EsError, EsStatus, Failure};
use esker_base::trace::{self, cost_ns, thread_cpu_ns, Noted, Recorder, Totals, Wanted};
use esker_base::{Counter, SessionCounters};
use esker_io::{ready_clock, AppendFile};
use esker_memory::{Account, Charge};
use esker_trace::format::{Call, Calls, End, File, Lost, Plan, Statement, Trace, VERSION};
use lines::{of_temporary, start_of, wait_line, without_passwords};
pub(crate) use names::readable;
use names::{names_of_files, OwnerOfFile};
use std::borrow::Cow;
use std::collections::HashMap;
use std::ffi::c_char;
use std::fmt::{Display, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Of a statement so many bytes are written.
const TEXT_BYTES: usize = 64 * 1024;
/// Of memory for lines so much is kept from one statement to the next.
const KEPT_BYTES: usize = 16 * 1024;
/// What a trace's name ends with; other files in the folder are somebody else's.
const EXTENSION: &str = "trc";
/// What a file may be longer than the greatest size: the line that says that it ends.
const LAST_WORDS_BYTES: usize = 256;

/// The greatest size of a file, and of all together.
static MOST_BYTES: AtomicU64 = AtomicU64::new(u64::MAX);
/// What is in the folder, as far as this process knows.
static ALL_BYTES: AtomicU64 = AtomicU64::new(0);
/// A file counts for so much at least.
const LEAST_BYTES: u64 = 4096;
/// So often the folder is looked over at most.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// Which one was, and when.
static LOOKED: Mutex<Option<(PathBuf, Instant)>> = Mutex::new(None);
/// Why there is no other trace, or no more of one.
const NO_ROOM: &str = "all traces together would be longer than esker_trace_max_size";
/// That was told, and a sixteenth of the room was not free since.
static NO_ROOM_TOLD: AtomicBool = AtomicBool::new(false);
/// What noting one wait costs.
static COST_NS: OnceLock<u64> = OnceLock::new();

/// Of which session a trace is, and where it goes. All texts are needed for the call only.
#[repr(C)]
pub struct EsTraceFile {
    /// Is made if it is not there; its parent is.
    pub(crate) folder: *const c_char,
    /// Without its extension.
    pub(crate) name: *const c_char,
    pub(crate) user: *const c_char,
    pub(crate) server: *const c_char,
    /// In UTC, as RFC 3339 has it.
    pub(crate) began: *const c_char,
    pub(crate) level: *const c_char,
    pub(crate) connection: u64,
    pub(crate) process: u64,
    pub(crate) table_for_people: EsTableForPeopleFn,
}

/// Writes the name of a table of the engine as people know it, `schema.table`, in UTF-8, at most `room` bytes of it; returns how
/// many, 0 if it cannot. Called by the session's thread. NULL: tables are called as the engine calls them.
pub type EsTableForPeopleFn =
    Option<unsafe extern "C" fn(name: *const c_char, readable: *mut u8, room: usize) -> usize>;

/// Calls of the engine one after another that are alike.
#[repr(C)]
pub struct EsTraceCall {
    /// Of the first, by `es_trace_now`.
    pub(crate) at_ns: u64,
    pub(crate) count: u64,
    /// May be NULL.
    pub(crate) table: *const c_char,
    pub(crate) function: *const c_char,
    /// Of `end_bulk_insert`: buffers that were written full.
    pub(crate) is_bulk_end: bool,
    pub(crate) full: u64,
}

/// What the server knows of a statement that has ended.
#[repr(C)]
pub struct EsTraceEnd {
    pub(crate) rows: u64,
    pub(crate) changed: u64,
    /// By `es_trace_now`; 0: none.
    pub(crate) first_row_ns: u64,
    pub(crate) error: u64,
    pub(crate) merge_passes: u64,
    pub(crate) disk_tables: u64,
    pub(crate) disk_bytes: u64,
    /// Calls that were not kept.
    pub(crate) calls_dropped: u64,
    pub(crate) killed: bool,
}

/// What a session has counted, as far as a trace tells it.
#[derive(Clone, Copy, Default)]
struct Counted {
    blocks_cached: u64,
    blocks_missed: u64,
    blocks_ahead: u64,
    commits: u64,
    rollbacks: u64,
}

impl Counted {
    fn of(counters: &SessionCounters) -> Counted {
        let get = |counter| counters.get(counter);
        Counted {
            blocks_cached: get(Counter::BlocksCached),
            blocks_missed: get(Counter::BlocksMissed),
            blocks_ahead: get(Counter::BlocksReadAhead),
            commits: get(Counter::Commits),
            rollbacks: get(Counter::Rollbacks),
        }
    }
}

/// A session's trace. Used by the session's thread; a statement begins and ends in one thread.
pub struct EsTrace {
    /// Between statements; during one it is the thread's.
    recorder: Option<Box<Recorder>>,
    recorder_id: u64,
    origin: Instant,
    /// None: it has ended.
    file: Option<AppendFile>,
    file_bytes: u64,
    lines: String,
    /// Of the lines; the recorder has its own.
    memory: Charge,
    /// Why it has ended, if nobody was told.
    untold: Option<Failure>,
    connection: u64,
    query: u64,
    statement: u64,
    began_ns: u64,
    before: Counted,
    /// Files that were told, of those that the recorder knows: is it a temporary table's?
    files: Vec<bool>,
    events: u64,
    dropped: u64,
    overhead_ns: u64,
    table_for_people: EsTableForPeopleFn,
}

fn has_room_for(bytes: u64) -> bool {
    ALL_BYTES.load(Ordering::Relaxed).saturating_add(bytes) <= MOST_BYTES.load(Ordering::Relaxed)
}

/// A new file, if there is room for one.
fn create(folder: &Path, name: &str) -> Result<AppendFile, Failure> {
    let mut looked = LOOKED.lock().unwrap_or_else(PoisonError::into_inner);
    if !looked.as_ref().is_some_and(|(of, at)| of == folder && at.elapsed() < LOOK_AGAIN) {
        look_over(|| AppendFile::bytes_in(folder, EXTENSION, LEAST_BYTES));
        *looked = Some((folder.to_owned(), Instant::now()));
    }
    if !has_room_for(LEAST_BYTES) {
        return Err(Failure::invalid(NO_ROOM));
    }
    let file = AppendFile::create(&folder.join(name)).map_err(esker::Error::from)?;
    ALL_BYTES.fetch_add(LEAST_BYTES, Ordering::Relaxed);
    Ok(file)
}

/// From here on so much is there, and what is appended meanwhile.
fn look_over(there: impl FnOnce() -> u64) {
    let before = ALL_BYTES.load(Ordering::Relaxed);
    ALL_BYTES.fetch_add(there().wrapping_sub(before), Ordering::Relaxed);
}

/// That there is no room is told once, until there is: of others the text is empty.
fn told_once(failure: Failure) -> Failure {
    if failure.text == NO_ROOM && NO_ROOM_TOLD.swap(true, Ordering::Relaxed) {
        return Failure { text: String::new(), ..failure };
    }
    failure
}

/// One whose memory is on the account.
fn recorder_since(origin: Instant) -> Box<Recorder> {
    let mut recorder = Recorder::since(origin, ready_clock());
    let mut memory = Charge::new(Account::Other, 0);
    recorder.set_on_held(Box::new(move |bytes| memory.resize(bytes)));
    recorder
}

impl EsTrace {
    fn open(given: &EsTraceFile) -> Result<EsTrace, Failure> {
        // SAFETY: es_trace_open's caller's promise.
        let text = |pointer| unsafe { str_of(pointer) };
        let name = format!("{}.{EXTENSION}", text(given.name)?);
        let file = create(Path::new(text(given.folder)?), &name)?;
        COST_NS.get_or_init(cost_ns);
        let recorder = recorder_since(Instant::now());
        let mut trace = EsTrace {
            origin: recorder.origin(),
            recorder_id: recorder.id(),
            recorder: Some(recorder),
            file: Some(file),
            file_bytes: 0,
            lines: String::new(),
            memory: Charge::new(Account::Other, 0),
            untold: None,
            connection: given.connection,
            query: 0,
            statement: 0,
            began_ns: 0,
            before: Counted::default(),
            files: Vec::new(),
            events: 0,
            dropped: 0,
            overhead_ns: 0,
            table_for_people: given.table_for_people,
        };
        trace.line(&Trace {
            version: VERSION,
            conn: given.connection,
            user: Some(text(given.user)?.into()),
            server: Some(text(given.server)?.into()),
            esker: Some(env!("CARGO_PKG_VERSION").into()),
            pid: Some(given.process),
            began: Some(text(given.began)?.into()),
            level: Some(text(given.level)?.into()),
            tim: Some(0),
        });
        match trace.append() {
            Ok(()) => {
                let most = MOST_BYTES.load(Ordering::Relaxed);
                if ALL_BYTES.load(Ordering::Relaxed) <= most - most / 16 {
                    NO_ROOM_TOLD.store(false, Ordering::Relaxed);
                }
                Ok(trace)
            }
            // A file without its first line is none.
            Err(failure) => {
                if trace.file.take().map(AppendFile::remove).is_some_and(|removed| removed.is_ok()) {
                    let without = |all: u64| Some(all.saturating_sub(LEAST_BYTES));
                    let _ = ALL_BYTES.fetch_update(Ordering::Relaxed, Ordering::Relaxed, without);
                }
                Err(failure)
            }
        }
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn line(&mut self, line: &dyn Display) {
        // Into memory: it cannot fail.
        let _ = writeln!(self.lines, "{line}");
    }

    /// What was made goes to the file, or the trace ends with this failure. Does nothing once it has.
    fn write_out(&mut self) -> Result<(), Failure> {
        if let Some(failure) = self.untold.take() {
            return Err(failure);
        }
        self.memory.resize(self.lines.capacity() as u64);
        let written = self.append().map_err(|failure| self.give_up(failure));
        self.memory.resize(self.lines.capacity() as u64);
        written
    }

    fn append(&mut self) -> Result<(), Failure> {
        let lines = std::mem::take(&mut self.lines);
        let Some(file) = self.file.as_mut().filter(|_| !lines.is_empty()) else { return Ok(()) };
        let (bytes, most) = (lines.len() as u64, MOST_BYTES.load(Ordering::Relaxed));
        let length = self.file_bytes + bytes;
        if length > most {
            return Err(Failure::invalid("it would be longer than esker_trace_max_size"));
        }
        let more = length.max(LEAST_BYTES) - self.file_bytes.max(LEAST_BYTES);
        if more > 0 && !has_room_for(more) {
            return Err(Failure::invalid(NO_ROOM));
        }
        file.append(lines.as_bytes()).map_err(esker::Error::from)?;
        self.file_bytes = length;
        // Only now: who looks the folder over meanwhile counts it twice, and does not miss it.
        ALL_BYTES.fetch_add(more, Ordering::Relaxed);
        if lines.capacity() <= KEPT_BYTES {
            self.lines = lines;
            self.lines.clear();
        }
        Ok(())
    }

    /// Runs a part of tracing. A panic in it is the trace's end, and nobody else's.
    fn guarded(&mut self, work: impl FnOnce(&mut EsTrace) -> Result<(), Failure>) -> Result<(), Failure> {
        catch(|| work(self)).map_err(|failure| match failure.status {
            EsStatus::Panic => self.panicked(failure),
            _ => failure,
        })
    }

    fn panicked(&mut self, failure: Failure) -> Failure {
        self.lines = String::new();
        self.give_up(failure)
    }

    /// As [`guarded`](EsTrace::guarded), where the next one tells of a failure.
    fn guarded_untold(&mut self, work: impl FnOnce(&mut EsTrace) -> Result<(), Failure>) {
        if let Err(failure) = self.guarded(work) {
            self.untold = Some(failure);
        }
    }

    #[cold]
    fn give_up(&mut self, failure: Failure) -> Failure {
        let Some(mut file) = self.file.take() else { return failure };
        let mut why = failure.text.clone();
        why.truncate(start_of(&why, LAST_WORDS_BYTES / 2).len());
        let lost = Lost { tim: Some(self.now_ns()), why: Some(why.into()) };
        // If there is no room for that either, the file just ends. A line that was cut short is ended.
        let _ = file.append(format!("\n{lost}\n").as_bytes());
        let failure = told_once(failure);
        if failure.text.is_empty() {
            return failure;
        }
        Failure { text: format!("the trace '{}' ends: {}", file.path().display(), failure.text), ..failure }
    }

    fn begin(&mut self, query: u64, db: &str, text: &str, counters: &SessionCounters) {
        let Some(mut recorder) = self.recorder.take() else { return };
        self.query = query;
        self.statement += 1;
        (self.events, self.dropped, self.overhead_ns) = (0, 0, 0);
        self.before = Counted::of(counters);
        self.began_ns = self.now_ns();
        let cut = start_of(text, TEXT_BYTES);
        let (tim, s) = (self.began_ns, Some(self.statement));
        self.line(&Statement { q: query, s, tim, db: Some(db.into()), text: Some(without_passwords(cut)) });
        recorder.set_ready(ready_clock());
        trace::begin_statement(recorder);
    }

    /// Lines of what was noted, and wanted of others; `names` knows which table's the files are.
    fn tell(
        &mut self,
        (noted, wanted): (&[Noted], &[Wanted]),
        paths: &[PathBuf],
        names: impl FnOnce() -> HashMap<PathBuf, OwnerOfFile>,
    ) {
        let untold = paths.get(self.files.len()..).unwrap_or_default();
        if !untold.is_empty() {
            let mut names = names();
            for path in untold {
                let (owner, is_temp) = names.remove(path).unwrap_or_default();
                let obj = owner.map(|(table, index)| {
                    let table = readable(self.table_for_people, &table);
                    index.map_or_else(|| table.clone(), |index| format!("{table}/{index}"))
                });
                let (file, path) = (self.files.len() as u64 + 1, Some(path.to_string_lossy()));
                self.line(&File { file, path, obj: obj.map(Cow::Owned) });
                self.files.push(is_temp);
            }
        }
        for wait in noted {
            let is_temp = wait.place.is_some_and(|place| self.files.get(place.file).copied().unwrap_or_default());
            let whose = (self.connection, self.query, self.statement);
            let line = wait_line(wait, wanted, whose, |table| readable(self.table_for_people, table));
            self.line(&if is_temp { of_temporary(line) } else { line });
            self.events += 1;
            self.dropped += wait.count - 1;
            self.overhead_ns += wait.count * COST_NS.get().copied().unwrap_or(0);
        }
    }

    fn end(&mut self, engine: &EsEngine, session: &EsSession, given: &EsTraceEnd) -> Result<(), Failure> {
        let Some((mut recorder, totals)) = trace::end_statement_of(self.recorder_id) else {
            if trace::has_failed(self.recorder_id) {
                return Err(self.panicked(Failure::panic("a bug in Esker's tracing, see the error log".into())));
            }
            return self.end_elsewhere(session, given);
        };
        let told_from = thread_cpu_ns();
        let (noted, summed, wanted) = (recorder.take_noted(), recorder.take_summed(), recorder.take_wanted());
        self.tell((&noted, &wanted), recorder.paths(), || names_of_files(engine));
        self.tell((&summed, &[]), &[], HashMap::new);
        recorder.give_back(noted, true);
        self.recorder = Some(recorder);
        if given.calls_dropped > 0 {
            let calls = Calls { dropped: Some(given.calls_dropped), q: Some(self.query), s: Some(self.statement) };
            self.line(&calls);
        }
        let end = self.end_line(Some(totals), session, given);
        self.line(&end);
        let written = self.write_out();
        // Of the next statement's, as far as it is after this one's end.
        self.overhead_ns = thread_cpu_ns().saturating_sub(told_from);
        written
    }

    /// The server has continued the statement in another thread of its pool, after a commit of InnoDB's. What was noted stayed
    /// with the first one, and is lost; the end says only what it knows.
    #[cold]
    fn end_elsewhere(&mut self, session: &EsSession, given: &EsTraceEnd) -> Result<(), Failure> {
        let recorder = recorder_since(self.origin);
        self.recorder_id = recorder.id();
        self.files.clear();
        self.recorder = Some(recorder);
        let end = self.end_line(None, session, given);
        self.line(&end);
        self.write_out()
    }

    fn end_line(&self, totals: Option<Totals>, session: &EsSession, given: &EsTraceEnd) -> End<'static> {
        let (counters, in_transaction) = (session.counters(), session.session.txn_id().is_some());
        let (now, then) = (Counted::of(counters), self.before);
        let commit = match (now.commits - then.commits, now.rollbacks - then.rollbacks) {
            (0, 0) if in_transaction => "not yet",
            (0, 0) => "nothing to commit",
            (_, 0) => "committed",
            (0, _) => "rolled back",
            _ => "committed and rolled back",
        };
        let ns = totals.map_or_else(|| self.now_ns() - self.began_ns, |t| t.ns);
        End {
            q: self.query,
            s: Some(self.statement),
            tim: self.began_ns + ns,
            ela: ns,
            cpu: totals.map(|t| t.cpu_ns),
            engine: totals.map(|t| t.engine_ns),
            ready: totals.map(|t| t.ready_ns),
            waits_cpu: totals.map(|t| t.waits_cpu_ns),
            waits_ready: totals.map(|t| t.waits_ready_ns),
            rows: Some(given.rows),
            changed: Some(given.changed),
            first_row: (given.first_row_ns > 0).then(|| given.first_row_ns.saturating_sub(self.began_ns).min(ns)),
            err: (given.error != 0).then_some(given.error),
            killed: given.killed,
            events: Some(self.events),
            dropped: Some(self.dropped),
            overhead: Some(self.overhead_ns),
            blocks_cached: Some(now.blocks_cached - then.blocks_cached),
            blocks_missed: Some(now.blocks_missed - then.blocks_missed),
            blocks_ahead: Some(now.blocks_ahead - then.blocks_ahead),
            merge_passes: Some(given.merge_passes),
            tmp_disk_tables: Some(given.disk_tables),
            tmp_disk_bytes: Some(given.disk_bytes),
            worker: totals.map(|t| t.helped_ns),
            commit: Some(commit.into()),
        }
    }

    /// A call of the engine is over: half of what the recorder keeps is written, before there is no room.
    fn make_room(&mut self, engine: &EsEngine) -> Result<(), Failure> {
        if !trace::is_filling() {
            return Ok(());
        }
        let began = thread_cpu_ns();
        let taken = trace::with_recorder(|r| (r.take_noted(), r.take_wanted(), r.paths().to_vec()));
        if let Some((noted, wanted, paths)) = taken {
            self.tell((&noted, &wanted), &paths, || names_of_files(engine));
            trace::with_recorder(|r| r.give_back(noted, false));
        }
        let written = self.write_out();
        self.overhead_ns += thread_cpu_ns().saturating_sub(began);
        written
    }
}

impl Drop for EsTrace {
    fn drop(&mut self) {
        // A statement that has not ended, in whichever thread that was, has no trace any more.
        if self.recorder.is_none() {
            let _ = trace::end_statement_of(self.recorder_id);
        }
    }
}

/// The greatest size of a trace, and of all that are in their folder; from now on.
#[no_mangle]
pub extern "C" fn es_trace_max_size(bytes: u64) {
    MOST_BYTES.store(bytes, Ordering::Relaxed);
}

/// May traces lie in `folder`, as `esker_trace_dir` has it? Not where the server or Esker looks for its own.
///
/// # Safety
/// Texts of C; `home` is the server's data folder, `own` Esker's.
#[no_mangle]
pub unsafe extern "C" fn es_trace_folder(
    folder: *const c_char,
    home: *const c_char,
    own: *const c_char,
    error: *mut EsError,
) -> EsStatus {
    // SAFETY: the caller's promise.
    let text = |pointer| unsafe { str_of(pointer) };
    let result = catch(|| folders::check_traces(text(folder)?, Path::new(text(home)?), Path::new(text(own)?)));
    // SAFETY: the caller's promise.
    unsafe { report(result, error) }
}

/// Begins a session's trace in a file of its own. `*trace` is written only if it succeeds. A failure without words has been told
/// before; so it is with [`es_trace_leave`] and [`es_trace_end`].
///
/// # Safety
/// `file` and its texts are there for the call; an engine is open.
#[no_mangle]
pub unsafe extern "C" fn es_trace_open(
    file: *const EsTraceFile,
    trace: *mut *mut EsTrace,
    error: *mut EsError,
) -> EsStatus {
    // SAFETY: the caller's promise.
    let (file, trace) = unsafe { (shared(file), out(trace)) };
    let result = catch(|| {
        trace.write(Box::into_raw(Box::new(EsTrace::open(file).map_err(told_once)?)));
        Ok(())
    });
    // SAFETY: the caller's promise.
    unsafe { report(result, error) }
}

/// Ends a trace, and a statement of it that has not ended.
///
/// # Safety
/// `trace` may be NULL; it is not used again.
#[no_mangle]
pub unsafe extern "C" fn es_trace_close(trace: *mut EsTrace) {
    // SAFETY: made by es_trace_open; the caller's promise.
    let trace = unsafe { take(trace) };
    let _ = catch(|| {
        drop(trace);
        Ok(())
    });
}

/// A statement begins in this thread. Its texts are UTF-8, or become so; passwords in it are not written.
///
/// # Safety
/// `session` and `trace` are open; none of the trace's statements is under way.
#[no_mangle]
pub unsafe extern "C" fn es_trace_begin(
    trace: *mut EsTrace,
    session: *const EsSession,
    query: u64,
    db: *const u8,
    db_bytes: usize,
    text: *const u8,
    text_bytes: usize,
) {
    // SAFETY: the caller's promise.
    let (trace, session) = unsafe { (exclusive(trace), shared(session)) };
    // SAFETY: the caller's promise.
    let (db, text) = unsafe { (slice(db, db_bytes), slice(text, text_bytes)) };
    trace.guarded_untold(|trace| {
        let (db, text) = (String::from_utf8_lossy(db), String::from_utf8_lossy(text));
        trace.begin(query, &db, &text, session.counters());
        Ok(())
    });
}

/// What a statement left in this thread that the server continued in another one is gone, before it notes what others do.
#[no_mangle]
pub extern "C" fn es_trace_left_behind() {
    drop(trace::end_statement());
}

/// Nanoseconds since the trace began.
///
/// # Safety
/// `trace` is open.
#[no_mangle]
pub unsafe extern "C" fn es_trace_now(trace: *const EsTrace) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { shared(trace) }.now_ns()
}

/// The traced statement's thread enters the engine; never twice.
#[no_mangle]
pub extern "C" fn es_trace_enter() {
    trace::begin_call();
}

/// It has left the engine. A failure is told once: that the trace has ended, and why.
///
/// # Safety
/// `engine` and `trace` are open.
#[no_mangle]
pub unsafe extern "C" fn es_trace_leave(engine: *const EsEngine, trace: *mut EsTrace, error: *mut EsError) -> EsStatus {
    trace::end_call();
    // SAFETY: the caller's promise.
    let (handle, trace) = unsafe { (shared(engine), exclusive(trace)) };
    let result = trace.guarded(|trace| trace.make_room(handle));
    // SAFETY: the caller's promise.
    unsafe { report(result, error) }
}

/// The statement's transaction is prepared, and others work on it.
#[no_mangle]
pub extern "C" fn es_trace_binlog() {
    trace::begin_binlog();
}

/// Its own thread goes on; nothing if none is prepared.
#[no_mangle]
pub extern "C" fn es_trace_binlog_end() {
    trace::end_binlog();
}

/// Calls of the statement, in their order.
///
/// # Safety
/// `trace` is open.
#[no_mangle]
pub unsafe extern "C" fn es_trace_call(trace: *mut EsTrace, call: *const EsTraceCall) {
    // SAFETY: the caller's promise.
    let (trace, call) = unsafe { (exclusive(trace), shared(call)) };
    trace.guarded_untold(|trace| {
        // SAFETY: the caller's promise.
        let text = |pointer| unsafe { str_of(pointer) };
        let bulk = |n: u64| call.is_bulk_end.then_some(n);
        let line = Call {
            tim: call.at_ns,
            q: Some(trace.query),
            s: Some(trace.statement),
            tab: if call.table.is_null() { None } else { Some(text(call.table)?.into()) },
            function: text(call.function)?.into(),
            x: (call.count > 1).then_some(call.count),
            full: bulk(call.full),
            // No row is written past the buffers, and the last of them goes with the commit.
            past: bulk(0),
            last: bulk(0),
        };
        trace.line(&line);
        Ok(())
    });
}

/// A row of the server's plan; none: it has none to show.
///
/// # Safety
/// `trace` is open.
#[no_mangle]
pub unsafe extern "C" fn es_trace_plan(trace: *mut EsTrace, text: *const u8, bytes: usize) {
    // SAFETY: the caller's promise.
    let (trace, text) = unsafe { (exclusive(trace), slice(text, bytes)) };
    trace.guarded_untold(|trace| {
        let line = (!text.is_empty()).then(|| String::from_utf8_lossy(text));
        let none = line.is_none();
        let plan = Plan { q: Some(trace.query), s: Some(trace.statement), text: line, none };
        trace.line(&plan);
        Ok(())
    });
}

/// The statement that began in this thread ends. A failure is told once: that the trace has ended, and why.
///
/// # Safety
/// `engine`, `session` and `trace` are open.
#[no_mangle]
pub unsafe extern "C" fn es_trace_end(
    engine: *const EsEngine,
    trace: *mut EsTrace,
    session: *const EsSession,
    end: *const EsTraceEnd,
    error: *mut EsError,
) -> EsStatus {
    // SAFETY: the caller's promise.
    let (handle, trace, session, end) = unsafe { (shared(engine), exclusive(trace), shared(session), shared(end)) };
    let result = trace.guarded(|trace| trace.end(handle, session, end));
    // SAFETY: the caller's promise.
    unsafe { report(result, error) }
}

#[cfg(test)]
mod tests;
