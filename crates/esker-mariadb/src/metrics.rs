// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every numeric status variable with its unit, its scope and its meaning: `INFORMATION_SCHEMA.ESKER_METRICS`, and docs/STATUS.md.
//!
//! Invariant: they are those of `SHOW GLOBAL STATUS`, in its order: counters, then gauges.

use crate::boundary::{needed, shared};
use crate::counters::{gauge_figures, gauges};
use crate::engine::EsEngine;
use esker_base::{global_total, Counter};
use std::ffi::{c_char, c_void, CString};
use std::sync::OnceLock;

/// A status variable.
pub(crate) struct Metric {
    /// Without `Esker_`.
    pub(crate) name: String,
    pub(crate) unit: &'static str,
    /// A session has a value of its own, too.
    pub(crate) per_session: bool,
    pub(crate) meaning: String,
}

/// A counter's unit, which its name tells.
fn unit_of(counter: Counter) -> &'static str {
    match counter.name() {
        name if name.ends_with("_us") => "microseconds",
        name if name.split('_').any(|word| word == "bytes") => "bytes",
        _ => "count",
    }
}

/// All of them.
pub(crate) fn metrics() -> Vec<Metric> {
    let counter = |c: &Counter| Metric {
        name: c.name().to_owned(),
        unit: unit_of(*c),
        per_session: true,
        meaning: c.help().to_owned(),
    };
    Counter::ALL.iter().map(counter).chain(gauges()).collect()
}

/// A status variable and its value in all. Its texts are static.
#[repr(C)]
pub struct EsMetric {
    /// Without `Esker_`.
    pub(crate) name: *const c_char,
    pub(crate) unit: *const c_char,
    pub(crate) meaning: *const c_char,
    pub(crate) value: u64,
    /// A session has a value of its own, too.
    pub(crate) per_session: bool,
}

/// Takes a metric, valid for the call; true: no more are wanted.
pub type EsMetricFn = Option<unsafe extern "C" fn(context: *mut c_void, metric: *const EsMetric) -> bool>;

/// Name, unit and meaning of each.
fn texts() -> &'static [([CString; 3], bool)] {
    static TEXTS: OnceLock<Vec<([CString; 3], bool)>> = OnceLock::new();
    let c = |text: &str| CString::new(text).unwrap_or_default();
    TEXTS.get_or_init(|| metrics().iter().map(|m| ([c(&m.name), c(m.unit), c(&m.meaning)], m.per_session)).collect())
}

/// Calls `metric` with every numeric status variable.
///
/// # Safety
/// `metric` is called with `context` in this thread.
#[no_mangle]
pub unsafe extern "C" fn es_metrics(engine: *const EsEngine, metric: EsMetricFn, context: *mut c_void) {
    // SAFETY: the caller's promise.
    let (handle, metric) = unsafe { (shared(engine), needed(metric)) };
    let _ = handle.guard.clean_up(|| {
        let status = handle.engine.status();
        let values = Counter::ALL.iter().map(|c| global_total(*c)).chain(gauge_figures(&status));
        for (([name, unit, meaning], per_session), value) in texts().iter().zip(values) {
            let [name, unit, meaning] = [name, unit, meaning].map(|text| text.as_ptr());
            let told = EsMetric { name, unit, meaning, value, per_session: *per_session };
            // SAFETY: valid for the call.
            if unsafe { metric(context, &told) } {
                break;
            }
        }
        Ok(())
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::fmt::Write;
    use std::path::Path;

    const DOC: &str = "docs/STATUS.md";
    const RENEW: &str = "ESKER_RENEW_DOCS=1 cargo test -p esker-mariadb --lib status_document";
    const HEAD: &str = "# Status variables\n\n\
        Every numeric `Esker_*` variable of `SHOW GLOBAL STATUS`, as `INFORMATION_SCHEMA.ESKER_METRICS` has them on a running server. Those of\n\
        scope *session* have a value of the session's own in `SHOW SESSION STATUS`; what background threads do is in the global one\n\
        alone. All count from the server's start. `Esker_sync_method` is the one text: how the log is made durable.\n\n\
        This file is made from the sources: `";

    /// Buckets of a distribution are one line.
    fn document() -> String {
        let mut text = format!("{HEAD}{RENEW}`.\n\n| variable | unit | scope | meaning |\n|---|---|---|---|\n");
        for m in metrics().iter().filter(|m| !is_bucket(&m.name)) {
            let scope = if m.per_session { "global, session" } else { "global" };
            writeln!(text, "| `Esker_{}` | {} | {scope} | {} |", m.name, m.unit, m.meaning).unwrap();
        }
        text.push_str(
            "\nBeside them distributions, a variable a bucket: `Esker_commit_group_size_3_4` counts groups of three and four, \
             `Esker_commit_prepare_us_4_15` prepares\nthat took 4 to 15 us; `_up` is the last.\n",
        );
        text
    }

    fn is_bucket(name: &str) -> bool {
        let end = name.rsplit('_').next().unwrap_or_default();
        (end == "up" || end.parse::<u64>().is_ok()) && ["_us_", "_ns_", "_size_"].iter().any(|of| name.contains(of))
    }

    #[test]
    fn the_status_document_is_what_the_sources_say() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(DOC);
        if std::env::var_os("ESKER_RENEW_DOCS").is_some() {
            std::fs::write(&path, document()).unwrap();
        }
        assert!(std::fs::read_to_string(&path).unwrap_or_default() == document(), "{DOC} is old: {RENEW}");
    }

    /// As prometheus-mysqld-exporter names them.
    #[test]
    fn the_board_shows_what_there_is() {
        const BEFORE: &str = "mysql_global_status_esker_";
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/grafana/esker.json");
        let board = std::fs::read_to_string(path).unwrap();
        let end = |rest: &str| rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(rest.len());
        let shown: BTreeSet<_> = board.split(BEFORE).skip(1).map(|rest| rest[..end(rest)].to_owned()).collect();
        let known: BTreeSet<_> = metrics().into_iter().map(|m| m.name.to_ascii_lowercase()).collect();
        assert!(shown.len() > 50, "{} variables on the board", shown.len());
        assert_eq!(shown.difference(&known).collect::<Vec<_>>(), Vec::<&String>::new());
    }

    /// A column of more than 512 characters would put the table on disk.
    #[test]
    fn each_says_what_it_means() {
        let all = metrics();
        let names: BTreeSet<_> = all.iter().map(|m| &m.name).collect();
        assert_eq!(names.len(), all.len());
        for m in &all {
            assert!(m.name.len() < 64 && (8..512).contains(&m.meaning.chars().count()), "{}: {}", m.name, m.meaning);
            assert_eq!(m.unit == "microseconds", m.name.ends_with("_us"), "{}", m.name);
        }
    }
}
