// SPDX-License-Identifier: MIT OR Apache-2.0
//! `es_engine`: open, close, settings.

use crate::guard::{catch, Guard};
use crate::status::{report, str_of, EsError, Failure, Status};
use crate::waits::Owners;
use crate::xid::XidList;
use esker::{Engine, Error, FlushMode, Level, Notify, Options};
use esker_io::PosixDisk;
use std::ffi::{c_char, c_void};
use std::path::Path;
use std::sync::{mpsc, Arc, Mutex};

/// `es_log_fn`.
pub type LogFn = unsafe extern "C" fn(*mut c_void, i32, *const c_char, usize);

/// `es_options`.
#[repr(C)]
pub struct EsOptions {
    pub(crate) data_dir: *const c_char,
    pub(crate) memory_limit_bytes: u64,
    pub(crate) bulk_buffer_bytes: u64,
    pub(crate) bulk_threshold_bytes: u64,
    pub(crate) wal_segment_bytes: u64,
    pub(crate) recovery_target_bytes: u64,
    pub(crate) recovery_target_seconds: u32,
    pub(crate) flush_mode: i32,
    pub(crate) log: Option<LogFn>,
    pub(crate) log_context: *mut c_void,
}

/// `es_engine`.
pub struct EsEngine {
    pub(crate) engine: Engine,
    pub(crate) guard: Arc<Guard>,
    /// What is left of the list that `es_recover` hands out.
    pub(crate) recovered: Mutex<XidList>,
    pub(crate) owners: Arc<Owners>,
}

/// The C side's log function and its context.
struct Sink {
    log: LogFn,
    context: *mut c_void,
}
// SAFETY: the header says that the function is called from any thread with its context.
unsafe impl Send for Sink {}
// SAFETY: as above.
unsafe impl Sync for Sink {}

impl Sink {
    fn write(&self, text: &str, level: Level) {
        let level = match level {
            Level::Error => 0,
            Level::Warning => 1,
            Level::Info => 2,
        };
        // SAFETY: the text is valid for the call.
        unsafe { (self.log)(self.context, level, text.as_ptr().cast(), text.len()) }
    }
}

fn notify(options: &EsOptions) -> Notify {
    match options.log {
        Some(log) => {
            let sink = Sink { log, context: options.log_context };
            Arc::new(move |text: &str, level| sink.write(text, level))
        }
        None => Arc::new(|_: &str, _| {}),
    }
}

fn flush_mode(mode: i32) -> FlushMode {
    match mode {
        0 => FlushMode::Lazy,
        2 => FlushMode::WriteOnly,
        _ => FlushMode::EveryCommit,
    }
}

fn size(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// The engine's own defaults.
#[no_mangle]
pub unsafe extern "C" fn es_default_options(options: *mut EsOptions) {
    let defaults = Options::default();
    // SAFETY: see the crate.
    unsafe {
        options.write(EsOptions {
            data_dir: std::ptr::null(),
            memory_limit_bytes: defaults.memory_limit_bytes,
            bulk_buffer_bytes: defaults.bulk_buffer_bytes as u64,
            bulk_threshold_bytes: defaults.bulk_threshold_bytes as u64,
            wal_segment_bytes: defaults.wal_segment_bytes,
            recovery_target_bytes: 0,
            recovery_target_seconds: defaults.recovery_target_seconds,
            flush_mode: FlushMode::EveryCommit as i32,
            log: None,
            log_context: std::ptr::null_mut(),
        });
    }
}

/// Opens or creates the data folder and recovers.
#[no_mangle]
pub unsafe extern "C" fn es_engine_open(
    options: *const EsOptions,
    engine: *mut *mut EsEngine,
    error: *mut EsError,
) -> Status {
    let result = catch(|| {
        // SAFETY: see the crate.
        let (given, dir) = unsafe { (&*options, str_of((*options).data_dir)?) };
        let log = notify(given);
        let wanted = Options {
            memory_limit_bytes: given.memory_limit_bytes,
            bulk_buffer_bytes: size(given.bulk_buffer_bytes),
            bulk_threshold_bytes: size(given.bulk_threshold_bytes),
            wal_segment_bytes: given.wal_segment_bytes,
            recovery_target_seconds: given.recovery_target_seconds,
            recovery_target_bytes: (given.recovery_target_bytes > 0).then_some(given.recovery_target_bytes),
            ..Options::default()
        };
        let opened = Engine::open(Arc::new(PosixDisk::with_uring(2)), Path::new(dir), wanted, log.clone())?;
        opened.set_flush_mode(flush_mode(given.flush_mode));
        let poisoned = opened.clone();
        let handle = EsEngine {
            engine: opened,
            guard: Arc::new(Guard::new(log, Box::new(move |why| poisoned.poison(why)))),
            recovered: Mutex::new(XidList::default()),
            owners: Arc::default(),
        };
        // SAFETY: see the crate.
        unsafe { engine.write(Box::into_raw(Box::new(handle))) };
        Ok(())
    });
    // SAFETY: see the crate.
    unsafe { report(result, error) }
}

/// Clean shutdown.
#[no_mangle]
pub unsafe extern "C" fn es_engine_close(engine: *mut EsEngine, error: *mut EsError) -> Status {
    if engine.is_null() {
        return 0;
    }
    let result = catch(|| {
        // SAFETY: made by es_engine_open, and not used again.
        let handle = unsafe { Box::from_raw(engine) };
        handle.engine.close()?;
        match handle.engine.poisoned() {
            // Not everything that the front end heard to be committed need be on disk.
            true => Err(Error::Poisoned("restart recovers".into()).into()),
            false => Ok(()),
        }
    });
    // SAFETY: see the crate.
    unsafe { report(result, error) }
}

/// New bound of memory.
#[no_mangle]
pub unsafe extern "C" fn es_set_memory_limit(engine: *mut EsEngine, bytes: u64) {
    // SAFETY: see the crate.
    let handle = unsafe { &*engine };
    let _ = handle.guard.run(|| {
        handle.engine.set_memory_limit(bytes);
        Ok(())
    });
}

/// New size of bulk buffers.
#[no_mangle]
pub unsafe extern "C" fn es_set_bulk_buffer(engine: *mut EsEngine, bytes: u64) {
    // SAFETY: see the crate.
    let handle = unsafe { &*engine };
    let _ = handle.guard.run(|| {
        handle.engine.set_bulk_buffer(size(bytes));
        Ok(())
    });
}

/// When commits are synced.
#[no_mangle]
pub unsafe extern "C" fn es_set_flush_mode(engine: *mut EsEngine, mode: i32) {
    // SAFETY: see the crate.
    let handle = unsafe { &*engine };
    let _ = handle.guard.run(|| {
        handle.engine.set_flush_mode(flush_mode(mode));
        Ok(())
    });
}

/// Returns when the log is durable up to now.
#[no_mangle]
pub unsafe extern "C" fn es_flush_log(engine: *mut EsEngine, error: *mut EsError) -> Status {
    // SAFETY: see the crate.
    let handle = unsafe { &*engine };
    let result = handle.guard.run(|| {
        let (done, wait) = mpsc::channel();
        handle.engine.request_checkpoint(Box::new(move |result| {
            let _ = done.send(result);
        }));
        let answer = wait.recv().map_err(|_| Failure::invalid("the log was closed"))?;
        Ok(answer?)
    });
    // SAFETY: see the crate.
    unsafe { report(result, error) }
}
