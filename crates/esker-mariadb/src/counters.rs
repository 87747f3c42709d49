// SPDX-License-Identifier: MIT OR Apache-2.0
//! What can be seen: counters, gauges, lock profiles, texts. Takes no lock that a row operation takes.

use crate::engine::EsEngine;
use crate::session::EsSession;
use esker::Status;
use esker_base::histogram::HistogramSnapshot;
use esker_base::{global_total, lock, wait, Counter};
use esker_memory::{charged, charged_total, reserve, Account};
use std::ffi::{c_char, c_void, CString};
use std::sync::OnceLock;

/// Names as C strings, made once.
fn counter_names() -> &'static [CString] {
    static NAMES: OnceLock<Vec<CString>> = OnceLock::new();
    NAMES.get_or_init(|| Counter::ALL.iter().map(|c| CString::new(c.name()).unwrap_or_default()).collect())
}

/// Takes a figure, which is no counter, from what the engine says of itself.
type Gauge = fn(&Status) -> u64;

const ENGINE_GAUGES: &[(&str, Gauge)] = &[
    ("memory_total", |_| charged_total()),
    ("memory_limit", |s| s.memory_limit_bytes),
    // What the regions have from the operating system, for those who hold the accounts against the process's maps.
    ("memory_regions", |_| reserve().live_bytes),
    ("memory_hot", |_| reserve().hot_bytes),
    ("memory_mapped", |_| reserve().mapped_bytes),
    ("tables", |s| s.tables),
    ("runs", |s| s.runs),
    ("run_bytes", |s| s.run_bytes),
    ("wal_end", |s| s.wal_end.0),
    ("wal_durable", |s| s.wal_durable.0),
    ("wal_replay_from", |s| s.replay_from.0),
    ("wal_replay_bytes", |s| s.wal_end.0.saturating_sub(s.replay_from.0)),
    ("visible_seq", |s| s.visible_seq),
    ("view_horizon", |s| s.view_horizon),
    ("prepared", |s| s.prepared),
];

/// Memory by account, then the engine's.
fn gauge_names() -> &'static [CString] {
    static NAMES: OnceLock<Vec<CString>> = OnceLock::new();
    NAMES.get_or_init(|| {
        let accounts = Account::ALL.iter().map(|a| format!("memory_{}", a.name()));
        let others = ENGINE_GAUGES.iter().map(|(name, _)| (*name).to_owned());
        accounts.chain(others).map(|name| CString::new(name).unwrap_or_default()).collect()
    })
}

/// How many counters there are.
#[no_mangle]
pub extern "C" fn es_counter_count() -> u32 {
    Counter::COUNT as u32
}

/// A counter's name.
#[no_mangle]
pub extern "C" fn es_counter_name(index: u32) -> *const c_char {
    counter_names().get(index as usize).map_or(std::ptr::null(), |name| name.as_ptr())
}

/// Its total.
#[no_mangle]
pub extern "C" fn es_counter_global(index: u32) -> u64 {
    Counter::ALL.get(index as usize).map_or(0, |&c| global_total(c))
}

/// A session's share of it.
#[no_mangle]
pub unsafe extern "C" fn es_counter_session(session: *const EsSession, index: u32) -> u64 {
    // SAFETY: see the crate.
    let session = unsafe { &*session };
    Counter::ALL.get(index as usize).map_or(0, |&c| session.counters().get(c))
}

/// How many gauges there are.
#[no_mangle]
pub extern "C" fn es_gauge_count() -> u32 {
    gauge_names().len() as u32
}

/// A gauge's name.
#[no_mangle]
pub extern "C" fn es_gauge_name(index: u32) -> *const c_char {
    gauge_names().get(index as usize).map_or(std::ptr::null(), |name| name.as_ptr())
}

/// All gauges' values.
#[no_mangle]
pub unsafe extern "C" fn es_gauges(engine: *mut EsEngine, values: *mut u64) {
    // SAFETY: see the crate.
    let handle = unsafe { &*engine };
    let status = handle.guard.clean_up(|| Ok(handle.engine.status())).unwrap_or_default();
    let accounts = Account::ALL.iter().map(|&a| charged(a));
    let figures = accounts.chain(ENGINE_GAUGES.iter().map(|(_, gauge)| gauge(&status)));
    for (i, figure) in figures.enumerate() {
        // SAFETY: the caller gave room for es_gauge_count() values.
        unsafe { values.add(i).write(figure) };
    }
}

/// `es_write_fn`.
pub type WriteFn = unsafe extern "C" fn(*mut c_void, *const c_char, usize);

/// SHOW ENGINE STATUS.
#[no_mangle]
pub unsafe extern "C" fn es_status_text(engine: *mut EsEngine, write: WriteFn, context: *mut c_void) {
    // SAFETY: see the crate.
    let handle = unsafe { &*engine };
    let _ = handle.guard.clean_up(|| {
        let text = handle.engine.status_text();
        // SAFETY: the text is valid for the call.
        unsafe { write(context, text.as_ptr().cast(), text.len()) };
        Ok(())
    });
}

/// Times the engine's locks, or stops.
#[no_mangle]
pub extern "C" fn es_profile_locks(on: i32) {
    lock::profile(on != 0);
}

/// `es_site_fn`.
pub type SiteFn = unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char);

fn figures(name: &str, of: &HistogramSnapshot) -> String {
    format!(
        "{name}={},mean_us={:.1},p99_us={:.1}",
        of.count,
        of.mean_ns() as f64 / 1e3,
        of.quantile_ns(0.99) as f64 / 1e3
    )
}

/// Lock sites, then wait events.
#[no_mangle]
pub unsafe extern "C" fn es_lock_report(site: SiteFn, context: *mut c_void) {
    let tell = |name: String, figures: String| {
        let (name, figures) = (CString::new(name).unwrap_or_default(), CString::new(figures).unwrap_or_default());
        // SAFETY: the strings are valid for the call.
        unsafe { site(context, name.as_ptr(), figures.as_ptr()) };
    };
    for s in lock::report() {
        let mut text = format!("contended={}", s.contended);
        if s.acquired != 0 {
            let parts = [figures("waits", &s.wait), figures("holds", &s.hold), figures("unlocks", &s.unlock)];
            text = format!("{text} acquired={} {}", s.acquired, parts.join(" "));
        }
        tell(format!("lock {}", s.name), text);
    }
    for (event, of) in wait::report() {
        tell(format!("wait {}", event.name()), figures("waits", &of));
    }
}
