// SPDX-License-Identifier: MIT OR Apache-2.0
//! The engine's handle: open, close, settings.

use crate::boundary::{out, shared, take, FromC, Unchecked};
use crate::folders;
use crate::guard::{catch, Guard};
use crate::index::{EsCollationTextFn, EsWeightsFn, EsWeightsVersionFn, Weights};
use crate::service::Service;
use crate::status::{report, str_of, EsError, EsStatus, Failure};
use crate::waits::Owners;
use crate::xid::XidList;
use esker::{Engine, Error, FlushMode, Level, Notify, Options, SyncMethod};
use esker_base::wait::{listen, timed, WaitEvent};
use esker_io::PosixDisk;
use std::ffi::{c_char, c_void, CStr};
use std::path::Path;
use std::sync::{mpsc, Arc, Mutex, OnceLock};

/// How much a line of the log matters.
#[repr(i32)]
#[derive(Debug, Clone, Copy)]
pub enum EsLogLevel {
    /// Something is wrong.
    Error = 0,
    /// Something to look at.
    Warning = 1,
    /// For the record.
    Info = 2,
}

/// Takes a line for the log: `length` bytes without a NUL, valid for the call. Called from any thread, also before
/// `es_engine_open` returns.
pub type EsLogFn =
    Option<unsafe extern "C" fn(context: *mut c_void, level: EsLogLevel, text: *const c_char, length: usize)>;

/// When a commit is written and made durable.
#[repr(i32)]
#[derive(Debug, Clone, Copy)]
pub enum EsFlushMode {
    /// Some time later; a crash of the process loses the last commits.
    Lazy = 0,
    /// Before it returns.
    EveryCommit = 1,
    /// Written before it returns, durable some time later: a power cut loses the last commits.
    WriteOnly = 2,
}

// SAFETY: all members.
unsafe impl FromC for EsFlushMode {
    const NAME: &'static str = "flush mode";
    const ALL: &'static [EsFlushMode] = &[EsFlushMode::Lazy, EsFlushMode::EveryCommit, EsFlushMode::WriteOnly];
}

/// What makes the log durable.
#[repr(i32)]
#[derive(Debug, Clone, Copy)]
pub enum EsSyncMethod {
    /// A write, then fdatasync.
    Fdatasync = 0,
    /// One write that is durable.
    Dsync = 1,
    /// A write and fdatasync by one call of io_uring.
    Uring = 2,
    /// What a trial at the opening finds to be fastest.
    Auto = 3,
}

// SAFETY: all members.
unsafe impl FromC for EsSyncMethod {
    const NAME: &'static str = "sync method";
    const ALL: &'static [EsSyncMethod] =
        &[EsSyncMethod::Fdatasync, EsSyncMethod::Dsync, EsSyncMethod::Uring, EsSyncMethod::Auto];
}

/// What an engine is opened with.
#[repr(C)]
pub struct EsOptions {
    pub(crate) data_dir: *const c_char,
    pub(crate) memory_limit_bytes: u64,
    pub(crate) bulk_buffer_bytes: u64,
    pub(crate) bulk_threshold_bytes: u64,
    pub(crate) wal_segment_bytes: u64,
    /// 0: `recovery_target_seconds` decides.
    pub(crate) recovery_target_bytes: u64,
    pub(crate) recovery_target_seconds: u32,
    pub(crate) flush_mode: Unchecked<EsFlushMode>,
    pub(crate) sync_method: Unchecked<EsSyncMethod>,
    /// NULL: nobody wants to know.
    pub(crate) log: EsLogFn,
    pub(crate) log_context: *mut c_void,
    /// NULL: there are no collations.
    pub(crate) weights: EsWeightsFn,
    /// NULL: strings weigh for ever what they weighed.
    pub(crate) weights_version: EsWeightsVersionFn,
    /// NULL: texts in keys are not told.
    pub(crate) collation_text: EsCollationTextFn,
    pub(crate) weights_context: *mut c_void,
    /// NULL: nobody wants to know. The process has one.
    pub(crate) waiting: EsWaitingFn,
}

/// This thread, whoever's it is, begins to wait (`what` for, static text), or has waited (NULL). Called from any thread, at any
/// place; must not call back into the engine.
pub type EsWaitingFn = Option<unsafe extern "C" fn(what: *const c_char)>;

static WAITING: OnceLock<unsafe extern "C" fn(what: *const c_char)> = OnceLock::new();

/// What people are told of a wait; none: nothing.
fn words(event: WaitEvent) -> Option<&'static CStr> {
    match event {
        WaitEvent::RowLock
        | WaitEvent::KeyLock
        | WaitEvent::RangeLock
        | WaitEvent::EndLock
        | WaitEvent::CounterLock => Some(c"Esker: row lock"),
        WaitEvent::WalDurable | WaitEvent::WalSync | WaitEvent::WalWrite | WaitEvent::WalSpace => {
            Some(c"Esker: log sync")
        }
        WaitEvent::RunRead => Some(c"Esker: reading"),
        WaitEvent::RunWrite | WaitEvent::RunWriteQueue | WaitEvent::RunSync | WaitEvent::BulkWorker => {
            Some(c"Esker: writing")
        }
        WaitEvent::FlushStall => Some(c"Esker: slowed by flush"),
        WaitEvent::MemoryStall => Some(c"Esker: memory"),
        _ => None,
    }
}

fn tell_waiting(event: Option<WaitEvent>) {
    let what = match event.map(words) {
        Some(Some(words)) => words.as_ptr(),
        // The end, too, of what had no words: it changes nothing.
        Some(None) | None => std::ptr::null(),
    };
    if let Some(waiting) = WAITING.get() {
        // SAFETY: see es_engine_open.
        unsafe { waiting(what) }
    }
}

/// An open engine. Used by any thread.
pub struct EsEngine {
    pub(crate) engine: Engine,
    pub(crate) guard: Arc<Guard>,
    /// What is left of the list that `es_recover` hands out.
    pub(crate) recovered: Mutex<XidList>,
    pub(crate) owners: Arc<Owners>,
}

fn notify(options: &EsOptions) -> Notify {
    let Some(log) = options.log else { return Arc::new(|_: &str, _| {}) };
    // An address: the rules allow the function to be called from any thread with its context.
    let context = options.log_context as usize;
    Arc::new(move |text: &str, level| {
        let level = match level {
            Level::Error => EsLogLevel::Error,
            Level::Warning => EsLogLevel::Warning,
            Level::Info => EsLogLevel::Info,
        };
        // SAFETY: the text is valid for the call; for the rest see es_engine_open.
        unsafe { log(context as *mut c_void, level, text.as_ptr().cast(), text.len()) }
    })
}

fn flush_mode(given: Unchecked<EsFlushMode>) -> Result<FlushMode, Failure> {
    Ok(match given.checked()? {
        EsFlushMode::Lazy => FlushMode::Lazy,
        EsFlushMode::EveryCommit => FlushMode::EveryCommit,
        EsFlushMode::WriteOnly => FlushMode::WriteOnly,
    })
}

/// None: a trial decides.
fn sync_method(given: Unchecked<EsSyncMethod>) -> Result<Option<SyncMethod>, Failure> {
    Ok(match given.checked()? {
        EsSyncMethod::Fdatasync => Some(SyncMethod::Fdatasync),
        EsSyncMethod::Dsync => Some(SyncMethod::Dsync),
        EsSyncMethod::Uring => Some(SyncMethod::Uring),
        EsSyncMethod::Auto => None,
    })
}

fn size(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// May the engine's files lie in `folder`, as `esker_data_dir` has it? Not in a database's folder, nor in the server's own.
///
/// # Safety
/// Texts of C; `home` is the server's data folder.
#[no_mangle]
pub unsafe extern "C" fn es_data_folder(folder: *const c_char, home: *const c_char, error: *mut EsError) -> EsStatus {
    // SAFETY: the caller's promise.
    let text = |pointer| unsafe { str_of(pointer) };
    let result = catch(|| folders::check_data(text(folder)?, Path::new(text(home)?)));
    // SAFETY: the caller's promise.
    unsafe { report(result, error) }
}

/// The options that the engine itself would choose; `data_dir`, `log` and those of weights are NULL.
///
/// # Safety
/// `options` may be written.
#[no_mangle]
pub unsafe extern "C" fn es_default_options(options: *mut EsOptions) {
    let defaults = Options::default();
    // SAFETY: the caller's promise.
    unsafe { out(options) }.write(EsOptions {
        data_dir: std::ptr::null(),
        memory_limit_bytes: defaults.memory_limit_bytes,
        bulk_buffer_bytes: defaults.bulk_buffer_bytes as u64,
        bulk_threshold_bytes: defaults.bulk_threshold_bytes as u64,
        wal_segment_bytes: defaults.wal_segment_bytes,
        recovery_target_bytes: 0,
        recovery_target_seconds: defaults.recovery_target_seconds,
        flush_mode: Unchecked::new(EsFlushMode::EveryCommit),
        sync_method: Unchecked::new(EsSyncMethod::Fdatasync),
        log: None,
        log_context: std::ptr::null_mut(),
        weights: None,
        weights_version: None,
        collation_text: None,
        waiting: None,
        weights_context: std::ptr::null_mut(),
    });
}

/// Opens or creates the data folder and recovers. `*engine` is written only if it succeeds.
///
/// # Safety
/// The options are needed for the call only, but for `log`, `weights`, `weights_version`, `collation_text`, `waiting` and their contexts: they are used, from any thread,
/// until the engine is closed.
#[no_mangle]
pub unsafe extern "C" fn es_engine_open(
    options: *const EsOptions,
    engine: *mut *mut EsEngine,
    error: *mut EsError,
) -> EsStatus {
    // SAFETY: the caller's promise.
    let (given, engine) = unsafe { (shared(options), out(engine)) };
    let result = catch(|| {
        // SAFETY: the caller's promise.
        let dir = unsafe { str_of(given.data_dir)? };
        let (log, mode) = (notify(given), flush_mode(given.flush_mode)?);
        if let Some(waiting) = given.waiting {
            let _ = WAITING.set(waiting);
            listen(tell_waiting);
        }
        let wanted = Options {
            memory_limit_bytes: given.memory_limit_bytes,
            bulk_buffer_bytes: size(given.bulk_buffer_bytes),
            bulk_threshold_bytes: size(given.bulk_threshold_bytes),
            wal_segment_bytes: given.wal_segment_bytes,
            sync_method: sync_method(given.sync_method)?,
            recovery_target_seconds: given.recovery_target_seconds,
            recovery_target_bytes: (given.recovery_target_bytes > 0).then_some(given.recovery_target_bytes),
            collations: Arc::new(Weights::new(
                given.weights,
                given.weights_version,
                given.collation_text,
                given.weights_context,
            )),
            host: Arc::new(Service::default()),
            ..Options::default()
        };
        let opened = Engine::open(Arc::new(PosixDisk::with_uring(2)), Path::new(dir), wanted, log.clone())?;
        opened.set_flush_mode(mode);
        let poisoned = opened.clone();
        engine.write(Box::into_raw(Box::new(EsEngine {
            engine: opened,
            guard: Arc::new(Guard::new(log, Box::new(move |why| poisoned.poison(why)))),
            recovered: Mutex::new(XidList::default()),
            owners: Arc::default(),
        })));
        Ok(())
    });
    // SAFETY: the caller's promise.
    unsafe { report(result, error) }
}

/// Clean shutdown. Frees the handle also when it fails. `Poisoned`: writing had stopped; what was committed last may
/// have to be recovered with the help of who decided it.
///
/// # Safety
/// All of its sessions, killers, tables and cursors are closed. `engine` may be NULL; it is not used again.
#[no_mangle]
pub unsafe extern "C" fn es_engine_close(engine: *mut EsEngine, error: *mut EsError) -> EsStatus {
    let result = catch(|| {
        // SAFETY: made by es_engine_open; the caller's promise.
        let Some(handle) = (unsafe { take(engine) }) else { return Ok(()) };
        handle.engine.close()?;
        match handle.engine.poisoned() {
            // Not everything that the front end heard to be committed need be on disk.
            true => Err(Error::Poisoned("restart recovers".into()).into()),
            false => Ok(()),
        }
    });
    // SAFETY: the caller's promise.
    unsafe { report(result, error) }
}

/// New bound of memory.
///
/// # Safety
/// `engine` is open.
#[no_mangle]
pub unsafe extern "C" fn es_set_memory_limit(engine: *const EsEngine, bytes: u64) {
    // SAFETY: the caller's promise.
    let handle = unsafe { shared(engine) };
    let _ = handle.guard.run(|| {
        handle.engine.set_memory_limit(bytes);
        Ok(())
    });
}

/// New size of the buffers in which the rows of large writes gather.
///
/// # Safety
/// `engine` is open.
#[no_mangle]
pub unsafe extern "C" fn es_set_bulk_buffer(engine: *const EsEngine, bytes: u64) {
    // SAFETY: the caller's promise.
    let handle = unsafe { shared(engine) };
    let _ = handle.guard.run(|| {
        handle.engine.set_bulk_buffer(size(bytes));
        Ok(())
    });
}

/// From the next commit on.
///
/// # Safety
/// `engine` is open.
#[no_mangle]
pub unsafe extern "C" fn es_set_flush_mode(engine: *const EsEngine, mode: Unchecked<EsFlushMode>) -> EsStatus {
    // SAFETY: the caller's promise.
    let handle = unsafe { shared(engine) };
    let result = handle.guard.run(|| {
        handle.engine.set_flush_mode(flush_mode(mode)?);
        Ok(())
    });
    result.map_or_else(|failure| failure.status, |()| EsStatus::Ok)
}

/// The name of what makes the log durable: static, NUL-terminated.
///
/// # Safety
/// `engine` is open.
#[no_mangle]
pub unsafe extern "C" fn es_sync_method(engine: *const EsEngine) -> *const c_char {
    // SAFETY: the caller's promise.
    let handle = unsafe { shared(engine) };
    let method = match handle.engine.sync_method() {
        SyncMethod::Fdatasync => c"fdatasync",
        SyncMethod::Dsync => c"dsync",
        SyncMethod::Uring => c"uring",
    };
    method.as_ptr()
}

/// Returns when the log is durable up to the moment of the call, or cannot become so.
///
/// # Safety
/// `engine` is open.
#[no_mangle]
pub unsafe extern "C" fn es_flush_log(engine: *const EsEngine, error: *mut EsError) -> EsStatus {
    // SAFETY: the caller's promise.
    let handle = unsafe { shared(engine) };
    let result = handle.guard.run(|| {
        let (done, wait) = mpsc::channel();
        handle.engine.request_checkpoint(Box::new(move |result| {
            let _ = done.send(result);
        }));
        let answer = timed(WaitEvent::Checkpoint, || wait.recv());
        let answer = answer.map_err(|_| Failure::invalid("the log was closed"))?;
        Ok(answer?)
    });
    // SAFETY: the caller's promise.
    unsafe { report(result, error) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_waits_for_long_is_seen_waiting() {
        let told: Vec<&CStr> = WaitEvent::ALL.iter().filter_map(|event| words(*event)).collect();
        for wait in [c"row lock", c"log sync", c"reading", c"writing", c"slowed by flush", c"memory"] {
            let wait = format!("Esker: {}", wait.to_str().unwrap());
            assert!(told.iter().any(|t| t.to_str() == Ok(&wait)), "{wait}");
        }
        assert_eq!(words(WaitEvent::FileName), None);
    }
}
