// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files, memory and waits, one call each.

use crate::activity::{pointer, terminated};
use crate::boundary::{needed, shared};
use crate::engine::EsEngine;
use crate::mutexes::charge_stacks;
use esker::MemoryOwner;
use std::ffi::{c_char, c_void};

/// A file of the engine's, and what was done to it since it was first opened.
#[repr(C)]
pub struct EsFile {
    /// Valid for the call, as all texts. Those of tables and indexes are NULL where it is not of one alone.
    pub(crate) path: *const c_char,
    pub(crate) kind: *const c_char,
    pub(crate) table: *const c_char,
    pub(crate) index: *const c_char,
    pub(crate) size_bytes: u64,
    pub(crate) reads: u64,
    pub(crate) read_bytes: u64,
    pub(crate) read_ns: u64,
    pub(crate) writes: u64,
    pub(crate) write_bytes: u64,
    pub(crate) write_ns: u64,
    pub(crate) syncs: u64,
    pub(crate) sync_ns: u64,
}

/// Takes one, which is valid for the call; true: stop. None of the engine's locks is held.
pub type EsFileFn = Option<unsafe extern "C" fn(context: *mut c_void, file: *const EsFile) -> bool>;

/// Calls `each` with every file. Touches none of them, and waits for nobody who does.
///
/// # Safety
/// `each` is called with `context` in this thread.
#[no_mangle]
pub unsafe extern "C" fn es_files(engine: *const EsEngine, each: EsFileFn, context: *mut c_void) {
    // SAFETY: the caller's promise.
    let (handle, each) = unsafe { (shared(engine), needed(each)) };
    let list = handle.guard.clean_up(|| Ok(handle.engine.files())).unwrap_or_default();
    for file in list {
        let (path, kind) = (terminated(file.path.to_string_lossy().into_owned()), terminated(file.kind.to_owned()));
        let (table, index) = (file.table.map(terminated), file.index.map(terminated));
        let f = file.figures;
        let row = EsFile {
            path: path.as_ptr(),
            kind: kind.as_ptr(),
            table: pointer(table.as_ref()),
            index: pointer(index.as_ref()),
            size_bytes: f.size_bytes,
            reads: f.reads,
            read_bytes: f.read_bytes,
            read_ns: f.read_ns,
            writes: f.writes,
            write_bytes: f.write_bytes,
            write_ns: f.write_ns,
            syncs: f.syncs,
            sync_ns: f.sync_ns,
        };
        // SAFETY: the row and its texts are valid for the call.
        if unsafe { each(context, &row) } {
            break;
        }
    }
}

/// Memory of one kind that somebody has.
#[repr(C)]
pub struct EsMemory {
    /// Valid for the call, as all texts: "engine", "session" or "table".
    pub(crate) owner: *const c_char,
    pub(crate) kind: *const c_char,
    /// NULL but for a table.
    pub(crate) table: *const c_char,
    pub(crate) of_session: bool,
    /// 0: nobody has said whose it is.
    pub(crate) connection: u64,
    pub(crate) bytes: u64,
    pub(crate) peak_bytes: u64,
    pub(crate) has_peak: bool,
    pub(crate) objects: u64,
}

/// Takes one, which is valid for the call; true: stop. None of the engine's locks is held.
pub type EsMemoryFn = Option<unsafe extern "C" fn(context: *mut c_void, memory: *const EsMemory) -> bool>;

/// Calls `each` with what the engine's accounts, sessions and tables have in memory.
///
/// # Safety
/// `each` is called with `context` in this thread.
#[no_mangle]
pub unsafe extern "C" fn es_memory(engine: *const EsEngine, each: EsMemoryFn, context: *mut c_void) {
    // SAFETY: the caller's promise.
    let (handle, each) = unsafe { (shared(engine), needed(each)) };
    charge_stacks();
    let list = handle.guard.clean_up(|| Ok(handle.engine.memory())).unwrap_or_default();
    for memory in list {
        let (owner, table, connection) = match memory.owner {
            MemoryOwner::Engine => (c"engine", None, 0),
            MemoryOwner::Session(connection) => (c"session", None, connection),
            MemoryOwner::Table(name) => (c"table", Some(terminated(name)), 0),
        };
        let kind = terminated(memory.kind.to_owned());
        let row = EsMemory {
            owner: owner.as_ptr(),
            kind: kind.as_ptr(),
            table: pointer(table.as_ref()),
            of_session: owner == c"session",
            connection,
            bytes: memory.bytes,
            peak_bytes: memory.peak_bytes.unwrap_or(0),
            has_peak: memory.peak_bytes.is_some(),
            objects: memory.objects,
        };
        // SAFETY: the row and its texts are valid for the call.
        if unsafe { each(context, &row) } {
            break;
        }
    }
}

/// Waits of one kind, of the process or of a session.
#[repr(C)]
pub struct EsWait {
    /// Valid for the call, as all texts.
    pub(crate) kind: *const c_char,
    pub(crate) name: *const c_char,
    pub(crate) of_session: bool,
    /// 0: nobody has said whose it is.
    pub(crate) connection: u64,
    pub(crate) count: u64,
    pub(crate) sum_ns: u64,
    pub(crate) max_ns: u64,
    /// Not of sessions, as `p99_ns`.
    pub(crate) p50_ns: u64,
    pub(crate) p99_ns: u64,
}

/// Takes one, which is valid for the call; true: stop. None of the engine's locks is held.
pub type EsWaitFn = Option<unsafe extern "C" fn(context: *mut c_void, wait: *const EsWait) -> bool>;

/// Calls `each` with every kind of wait of the process, then with those of each session that has waited so.
///
/// # Safety
/// `each` is called with `context` in this thread.
#[no_mangle]
pub unsafe extern "C" fn es_waits(engine: *const EsEngine, each: EsWaitFn, context: *mut c_void) {
    // SAFETY: the caller's promise.
    let (handle, each) = unsafe { (shared(engine), needed(each)) };
    let list = handle.guard.clean_up(|| Ok(handle.engine.waits())).unwrap_or_default();
    for wait in list {
        let [class, name] = [wait.event.class(), wait.event.title()].map(|text| terminated(text.to_owned()));
        let (p50_ns, p99_ns) = wait.p50_p99_ns.unwrap_or_default();
        let row = EsWait {
            kind: class.as_ptr(),
            name: name.as_ptr(),
            of_session: wait.connection.is_some(),
            connection: wait.connection.unwrap_or(0),
            count: wait.count,
            sum_ns: wait.sum_ns,
            max_ns: wait.max_ns,
            p50_ns,
            p99_ns,
        };
        // SAFETY: the row and its texts are valid for the call.
        if unsafe { each(context, &row) } {
            break;
        }
    }
}

/// How many waits of a kind took so long.
#[repr(C)]
pub struct EsWaitBucket {
    /// Valid for the call.
    pub(crate) name: *const c_char,
    pub(crate) from_ns: u64,
    /// 0: no end.
    pub(crate) to_ns: u64,
    pub(crate) count: u64,
}

/// Takes one, which is valid for the call; true: stop. None of the engine's locks is held.
pub type EsWaitBucketFn = Option<unsafe extern "C" fn(context: *mut c_void, bucket: *const EsWaitBucket) -> bool>;

/// Calls `each` with how the process's waits of each kind are spread; empty buckets are left out.
///
/// # Safety
/// `each` is called with `context` in this thread.
#[no_mangle]
pub unsafe extern "C" fn es_wait_buckets(engine: *const EsEngine, each: EsWaitBucketFn, context: *mut c_void) {
    // SAFETY: the caller's promise.
    let (handle, each) = unsafe { (shared(engine), needed(each)) };
    let list = handle.guard.clean_up(|| Ok(handle.engine.wait_buckets())).unwrap_or_default();
    for bucket in list {
        let name = terminated(bucket.event.title().to_owned());
        let (from_ns, to_ns) = (bucket.from_ns, bucket.to_ns.unwrap_or(0));
        let row = EsWaitBucket { name: name.as_ptr(), from_ns, to_ns, count: bucket.count };
        // SAFETY: the row and its text are valid for the call.
        if unsafe { each(context, &row) } {
            break;
        }
    }
}

/// Waits are counted from zero again, for `es_waits` and `es_wait_buckets`.
///
/// # Safety
/// `engine` is open.
#[no_mangle]
pub unsafe extern "C" fn es_forget_waits(engine: *const EsEngine) {
    // SAFETY: the caller's promise.
    let handle = unsafe { shared(engine) };
    let _ = handle.guard.clean_up(|| {
        handle.engine.forget_waits();
        Ok(())
    });
}
