// SPDX-License-Identifier: MIT OR Apache-2.0
//! What can be seen: counters, gauges, lock profiles, texts. Takes no lock that a row operation takes.

use crate::boundary::{needed, out_slice, shared};
use crate::engine::EsEngine;
use crate::guard::catch;
use crate::phases::{phase_figures, phase_names};
use crate::session::EsSession;
use esker::Status;
use esker_base::histogram::{Histogram, HistogramSnapshot};
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
    ("merge_debt_bytes", |s| s.merge_debt_bytes),
    ("wal_end", |s| s.wal_end.0),
    ("wal_durable", |s| s.wal_durable.0),
    ("wal_replay_from", |s| s.replay_from.0),
    ("wal_replay_bytes", |s| s.wal_end.0.saturating_sub(s.replay_from.0)),
    ("visible_seq", |s| s.visible_seq),
    ("view_horizon", |s| s.view_horizon),
    ("prepared", |s| s.prepared),
];

/// Groups of committers that a sync of the log served, by what they waited for.
static GROUPS: [(&str, &Histogram); 2] =
    [("commit_group", &esker::wal::COMMIT_GROUPS), ("prepare_group", &esker::wal::PREPARE_GROUPS)];
/// Sizes 1, 2, 3 to 4, and so on; the last has all that are larger.
const GROUP_SIZES: usize = 11;

fn group_names(kind: &str) -> Vec<String> {
    let sizes = (0..GROUP_SIZES).map(|bucket| match 1u64 << bucket {
        most @ (1 | 2) => format!("{kind}_size_{most}"),
        most if bucket + 1 == GROUP_SIZES => format!("{kind}_size_{}_up", most / 2 + 1),
        most => format!("{kind}_size_{}_{most}", most / 2 + 1),
    });
    std::iter::once(format!("{kind}s")).chain(sizes).collect()
}

fn group_figures(sizes: &Histogram) -> Vec<u64> {
    let sizes = sizes.snapshot();
    let (each, larger) = sizes.buckets.split_at(GROUP_SIZES - 1);
    std::iter::once(sizes.count).chain(each.iter().copied()).chain([larger.iter().sum()]).collect()
}

/// Memory by account, then the engine's, then groups of committers, then the phases of their commits.
fn gauge_names() -> &'static [CString] {
    static NAMES: OnceLock<Vec<CString>> = OnceLock::new();
    NAMES.get_or_init(|| {
        let accounts = Account::ALL.iter().map(|a| format!("memory_{}", a.name()));
        let others = ENGINE_GAUGES.iter().map(|(name, _)| (*name).to_owned());
        let groups = GROUPS.iter().flat_map(|(name, _)| group_names(name));
        let all = accounts.chain(others).chain(groups).chain(phase_names());
        all.map(|name| CString::new(name).unwrap_or_default()).collect()
    })
}

/// How many counters there are.
#[no_mangle]
pub extern "C" fn es_counter_count() -> u32 {
    Counter::COUNT as u32
}

/// A counter's name: snake_case, NUL-terminated, static; NULL if there is no such counter.
#[no_mangle]
pub extern "C" fn es_counter_name(index: u32) -> *const c_char {
    counter_names().get(index as usize).map_or(std::ptr::null(), |name| name.as_ptr())
}

/// A counter's total.
#[no_mangle]
pub extern "C" fn es_counter_global(index: u32) -> u64 {
    Counter::ALL.get(index as usize).map_or(0, |&c| global_total(c))
}

/// A session's share of it.
///
/// # Safety
/// `session` is open.
#[no_mangle]
pub unsafe extern "C" fn es_counter_session(session: *const EsSession, index: u32) -> u64 {
    // SAFETY: the caller's promise.
    let session = unsafe { shared(session) };
    Counter::ALL.get(index as usize).map_or(0, |&c| session.counters().get(c))
}

/// How many gauges there are: figures that are no counters, as memory by account, log positions, recovery.
#[no_mangle]
pub extern "C" fn es_gauge_count() -> u32 {
    gauge_names().len() as u32
}

/// A gauge's name, as a counter's.
#[no_mangle]
pub extern "C" fn es_gauge_name(index: u32) -> *const c_char {
    gauge_names().get(index as usize).map_or(std::ptr::null(), |name| name.as_ptr())
}

/// The first `capacity` gauges' values, taken together.
///
/// # Safety
/// `values` is room for `capacity` of them.
#[no_mangle]
pub unsafe extern "C" fn es_gauges(engine: *const EsEngine, values: *mut u64, capacity: u32) {
    // SAFETY: the caller's promise.
    let (handle, values) = unsafe { (shared(engine), out_slice(values, capacity as usize)) };
    let status = handle.guard.clean_up(|| Ok(handle.engine.status())).unwrap_or_default();
    let accounts = Account::ALL.iter().map(|&a| charged(a));
    let engine = ENGINE_GAUGES.iter().map(|(_, gauge)| gauge(&status));
    let groups = GROUPS.iter().flat_map(|(_, sizes)| group_figures(sizes));
    let figures = accounts.chain(engine).chain(groups).chain(phase_figures());
    for (to, figure) in values.iter_mut().zip(figures.chain(std::iter::repeat(0))) {
        to.write(figure);
    }
}

/// Takes a part of a text: `length` bytes without a NUL, valid for the call.
pub type EsWriteFn = Option<unsafe extern "C" fn(context: *mut c_void, text: *const c_char, length: usize)>;

/// The engine's state as text for people; `write` may be called several times.
///
/// # Safety
/// `write` is called with `context` in this thread.
#[no_mangle]
pub unsafe extern "C" fn es_status_text(engine: *const EsEngine, write: EsWriteFn, context: *mut c_void) {
    // SAFETY: the caller's promise.
    let (handle, write) = unsafe { (shared(engine), needed(write)) };
    let _ = handle.guard.clean_up(|| {
        let text = handle.engine.status_text();
        // SAFETY: the text is valid for the call.
        unsafe { write(context, text.as_ptr().cast(), text.len()) };
        Ok(())
    });
}

/// Times waits, holds and releases of the engine's own locks, or stops. Contention is counted always.
#[no_mangle]
pub extern "C" fn es_profile_locks(on: bool) {
    lock::profile(on);
}

/// Takes the name and the figures of a lock site or a wait event, both valid for the call.
pub type EsSiteFn = Option<unsafe extern "C" fn(context: *mut c_void, name: *const c_char, figures: *const c_char)>;

fn figures(name: &str, of: &HistogramSnapshot) -> String {
    format!(
        "{name}={},mean_us={:.1},p99_us={:.1}",
        of.count,
        of.mean_ns() as f64 / 1e3,
        of.quantile_ns(0.99) as f64 / 1e3
    )
}

/// Calls `site` with every lock site, then with every wait event.
///
/// # Safety
/// `site` is called with `context` in this thread.
#[no_mangle]
pub unsafe extern "C" fn es_lock_report(site: EsSiteFn, context: *mut c_void) {
    let site = needed(site);
    let tell = |name: String, figures: String| {
        let (name, figures) = (CString::new(name).unwrap_or_default(), CString::new(figures).unwrap_or_default());
        // SAFETY: the strings are valid for the call.
        unsafe { site(context, name.as_ptr(), figures.as_ptr()) };
    };
    let _ = catch(|| {
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
        Ok(())
    });
}
