// SPDX-License-Identifier: MIT OR Apache-2.0
//! What can be seen: counters, gauges, lock profiles, texts. Takes no lock that a row operation takes.

use crate::boundary::{needed, out, out_slice, shared};
use crate::engine::EsEngine;
use crate::guard::catch;
use crate::metrics::Metric;
use crate::mutexes::{charge_stacks, pages};
use crate::phases::{phase_figures, phases};
use crate::session::EsSession;
use crate::trace::{readable, EsTableForPeopleFn};
use crate::wait_figures::{wait_figures, waits};
use esker::Status;
use esker_base::histogram::{Histogram, HistogramSnapshot};
use esker_base::{global_total, wait, Counter, WaitEvent};
use esker_memory::{charged, charged_total, reserve, Account};
use std::ffi::{c_char, c_void, CString};
use std::sync::OnceLock;

/// Names as C strings, made once.
fn counter_names() -> &'static [CString] {
    static NAMES: OnceLock<Vec<CString>> = OnceLock::new();
    NAMES.get_or_init(|| Counter::ALL.iter().map(|c| CString::new(c.name()).unwrap_or_default()).collect())
}

/// A figure that is no counter: name, unit, meaning, and how it is taken from what the engine says of itself.
type Gauge = (&'static str, &'static str, &'static str, fn(&Status) -> u64);

const ENGINE_GAUGES: &[Gauge] = &[
    ("memory_total", "bytes", "Memory on all accounts", |_| charged_total()),
    ("memory_limit", "bytes", "What they may have together, esker_memory_limit", |s| s.memory_limit_bytes),
    // What the regions have from the operating system, for those who hold the accounts against the process's maps.
    ("memory_regions", "bytes", "Memory of regions that somebody uses", |_| reserve().live_bytes),
    ("memory_hot", "bytes", "Memory of free regions that is kept for the next", |_| reserve().hot_bytes),
    ("memory_mapped", "bytes", "Address space of regions, touched or not", |_| reserve().mapped_bytes),
    ("tables", "count", "Tables, those of sequences and partitions too", |s| s.tables),
    ("runs", "count", "Runs of all trees, or what is left of them", |s| s.runs),
    ("run_bytes", "bytes", "What those take on disk", |s| s.run_bytes),
    ("merge_debt_bytes", "bytes", "What waits to be merged beyond what merging leaves alone", |s| s.merge_debt_bytes),
    ("wal_end", "bytes", "Position behind the log's last record", |s| s.wal_end.0),
    ("wal_durable", "bytes", "Position before which the log is durable", |s| s.wal_durable.0),
    ("wal_replay_from", "bytes", "Position from which a restart would replay the log", |s| s.replay_from.0),
    ("wal_replay_bytes", "bytes", "What it would replay", |s| s.wal_end.0.saturating_sub(s.replay_from.0)),
    ("visible_seq", "sequence", "Commit sequence that a view opened now has", |s| s.visible_seq),
    ("view_horizon", "sequence", "What every open view sees: older versions than the newest of these can go", |s| {
        s.view_horizon
    }),
    ("prepared", "count", "Transactions that are prepared and not decided", |s| s.prepared),
];

/// What is on an account.
fn meaning_of(account: Account) -> &'static str {
    match account {
        Account::Memtable => "Memory of memtables: versions that are not yet flushed",
        Account::BlockCache => {
            "Memory of blocks and filters that are kept for the next reader, and of those that are read past these"
        }
        Account::BulkBuffer => "Memory of large writes' buffers, and of the files that they go to",
        Account::Wal => "Memory of the log's buffers",
        Account::Cursor => "Memory that scans decode into",
        Account::Locks => "Memory of locks and of the transactions that hold them",
        Account::Catalog => "Memory of the indexes and statistics of open runs, and of the catalog",
        Account::Other => "Memory of anything else",
    }
}

/// Groups of committers that a sync of the log served, by what they waited for.
static GROUPS: [(&str, &Histogram); 2] =
    [("commit_group", &esker::wal::COMMIT_GROUPS), ("prepare_group", &esker::wal::PREPARE_GROUPS)];
/// Sizes 1, 2, 3 to 4, and so on; the last has all that are larger.
const GROUP_SIZES: usize = 11;

/// Of each kind the groups, and their sizes.
fn groups_of(kind: &str) -> Vec<Metric> {
    let of = |name, meaning: String| Metric { name, unit: "count", per_session: false, meaning };
    let what = if kind == "commit_group" { "to commit" } else { "to prepare" };
    let size = |name: String, sizes: String| of(name, format!("Those of {sizes} committers"));
    let sizes = (0..GROUP_SIZES).map(|bucket| match 1u64 << bucket {
        most @ (1 | 2) => size(format!("{kind}_size_{most}"), most.to_string()),
        most if bucket + 1 == GROUP_SIZES => {
            size(format!("{kind}_size_{}_up", most / 2 + 1), format!("{} and more", most / 2 + 1))
        }
        most => size(format!("{kind}_size_{}_{most}", most / 2 + 1), format!("{} to {most}", most / 2 + 1)),
    });
    let all = format!(
        "Groups of those who waited for one sync of the log {what}; not those that a sync served that went on already"
    );
    std::iter::once(of(format!("{kind}s"), all)).chain(sizes).collect()
}

fn group_figures(sizes: &Histogram) -> Vec<u64> {
    let sizes = sizes.snapshot();
    let (each, larger) = sizes.buckets.split_at(GROUP_SIZES - 1);
    std::iter::once(sizes.count).chain(each.iter().copied()).chain([larger.iter().sum()]).collect()
}

/// Memory by account, then the engine's, then groups of committers, the phases of their commits, and waits.
pub(crate) fn gauges() -> impl Iterator<Item = Metric> {
    let of = |name: String, unit, meaning: &str| Metric { name, unit, per_session: false, meaning: meaning.to_owned() };
    let accounts = Account::ALL.iter().map(move |&a| of(format!("memory_{}", a.name()), "bytes", meaning_of(a)));
    let engine = ENGINE_GAUGES.iter().map(move |(name, unit, meaning, _)| of((*name).to_owned(), unit, meaning));
    accounts.chain(engine).chain(GROUPS.iter().flat_map(|(kind, _)| groups_of(kind))).chain(phases()).chain(waits())
}

/// Their figures, in the same order.
pub(crate) fn gauge_figures(status: &Status) -> impl Iterator<Item = u64> + '_ {
    charge_stacks();
    let accounts = Account::ALL.iter().map(|&a| charged(a));
    let engine = ENGINE_GAUGES.iter().map(|(.., figure)| figure(status));
    accounts
        .chain(engine)
        .chain(GROUPS.iter().flat_map(|(_, sizes)| group_figures(sizes)))
        .chain(phase_figures())
        .chain(wait_figures())
}

fn gauge_names() -> &'static [CString] {
    static NAMES: OnceLock<Vec<CString>> = OnceLock::new();
    NAMES.get_or_init(|| gauges().map(|gauge| CString::new(gauge.name).unwrap_or_default()).collect())
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

/// What a session has done since it was opened, as far as the server tells it of a table's part in a statement: a call's work is
/// the difference of two.
#[repr(C)]
pub struct EsWork {
    /// Blocks taken from the cache, or read.
    pub(crate) blocks: u64,
    /// Reads of run files: blocks, their indexes and filters; the page cache may have answered.
    pub(crate) reads: u64,
    /// For how long, in nanoseconds.
    pub(crate) read_ns: u64,
    /// Blocks that were read together with one that was wanted.
    pub(crate) blocks_ahead: u64,
    /// Whole buffers of rows that a large write has filled.
    pub(crate) buffers: u64,
    /// Row versions passed over, newer than a view or undone.
    pub(crate) versions_passed: u64,
}

/// What a session has done by now.
///
/// # Safety
/// `session` is open.
#[no_mangle]
pub unsafe extern "C" fn es_session_work(session: *const EsSession, work: *mut EsWork) {
    // SAFETY: the caller's promise.
    let (session, work) = unsafe { (shared(session), out(work)) };
    let counters = session.counters();
    work.write(EsWork {
        blocks: counters.get(Counter::BlocksCached) + counters.get(Counter::BlocksMissed),
        reads: counters.get(Counter::ReadsRun),
        read_ns: counters.waited_ns_ever(WaitEvent::RunRead),
        blocks_ahead: counters.get(Counter::BlocksReadAhead),
        buffers: counters.get(Counter::BuffersFilled),
        versions_passed: counters.get(Counter::VersionsPassed),
    });
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
    for (to, figure) in values.iter_mut().zip(gauge_figures(&status).chain(std::iter::repeat(0))) {
        to.write(figure);
    }
}

/// Takes a part of a text: `length` bytes without a NUL, valid for the call.
pub type EsWriteFn = Option<unsafe extern "C" fn(context: *mut c_void, text: *const c_char, length: usize)>;

/// The engine's state as text for people, with tables called as `table_for_people` does; `write` may be called several times.
///
/// # Safety
/// `write` is called with `context` in this thread.
#[no_mangle]
pub unsafe extern "C" fn es_status_text(
    engine: *const EsEngine,
    table_for_people: EsTableForPeopleFn,
    write: EsWriteFn,
    context: *mut c_void,
) {
    // SAFETY: the caller's promise.
    let (handle, write) = unsafe { (shared(engine), needed(write)) };
    let _ = handle.guard.clean_up(|| {
        let text = handle.engine.status_text_named(&|table| readable(table_for_people, table));
        // SAFETY: the text is valid for the call.
        unsafe { write(context, text.as_ptr().cast(), text.len()) };
        Ok(())
    });
}

/// Takes the name of a page or of a wait event, and what it says, both valid for the call.
pub type EsSiteFn = Option<unsafe extern "C" fn(context: *mut c_void, name: *const c_char, figures: *const c_char)>;

fn figures(name: &str, of: &HistogramSnapshot) -> String {
    format!(
        "{name}={},mean_us={:.1},p99_us={:.1}",
        of.count,
        of.mean_ns() as f64 / 1e3,
        of.quantile_ns(0.99) as f64 / 1e3
    )
}

/// Calls `site` with the pages that tell of locks as plockstat does, then with every wait event.
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
        for (what, page) in pages() {
            tell(what.to_owned(), page);
        }
        for (event, of) in wait::report() {
            tell(format!("wait {}", event.name()), figures("waits", &of));
        }
        Ok(())
    });
}
