//! What is advised, and by which rule: each function is one setting, or one choice of the engine's own.

use super::facts::{Criterion, Fact, Facts, Group};
use super::{Advice, Outcome};
use crate::readback::{figure, number, Figure};
use crate::sync::{NO_BARRIER, STREAM};
use crate::units::{size, size_text, size_value};
use std::ops::RangeInclusive;

/// What no command measures.
pub(super) const UNKNOWN: &str =
    "No command of the lab says anything of esker_bulk_threshold, esker_wal_segment_size, \
    esker_default_compression, bulk_insert_buffer_size, read_rnd_buffer_size and the settings of other engines.";

const DEVICE_TIME: Criterion = Criterion::least("durable_s");
const RECORD_TIME: Criterion = Criterion::least("ns");
const RATE: Criterion = Criterion::most("per_second");

/// Advice on everything there is a rule for.
pub(super) fn all(facts: &Facts<'_>) -> Vec<Advice> {
    let mut advice = vec![bulk_buffer_size(facts), memory_limit(facts), flush_log(facts), recovery_target(facts)];
    advice.extend([profile_locks(facts), sync_binlog(facts), read_buffer_size(facts)]);
    advice.extend(CHOICES.iter().map(|choice| choice.judge(facts)));
    advice
}

/// A setting that is a size, found among the sizes that `buffer` measured.
struct Size {
    setting: &'static str,
    /// The buffer is the setting's value over this.
    divisor: u64,
    default: u64,
    /// Buffers that the setting can give, in bytes.
    buffers: RangeInclusive<u64>,
    /// Values of the rows' "do", and of their "way".
    rows: &'static [&'static str],
    way: &'static str,
    model: &'static str,
    by: Criterion,
    meaning: &'static str,
    /// Who has one of that size.
    each: &'static str,
    /// Does the engine bound all of them together?
    is_bounded: bool,
    command: &'static str,
}

fn bulk_buffer_size(facts: &Facts<'_>) -> Advice {
    let rule = Size {
        setting: "esker_bulk_buffer_size",
        divisor: 4,
        default: esker::Options::default().bulk_buffer_bytes as u64,
        buffers: 64 << 10..=4 << 20,
        rows: &["write"],
        way: "esker",
        model: "esker",
        by: DEVICE_TIME,
        meaning: "Files of large writes are written in pieces of a quarter of it and synced.",
        each: "Each large write has one, all of them within a quarter of esker_memory_limit",
        is_bounded: true,
        command: "buffer --from 16K --to 4M",
    };
    rule.advise(facts)
}

fn read_buffer_size(facts: &Facts<'_>) -> Advice {
    let rule = Size {
        setting: "read_buffer_size",
        divisor: 1,
        default: 128 << 10,
        buffers: 16 << 10..=16 << 20,
        rows: &["write", "read warm"],
        way: "cached",
        model: "myisam",
        by: RECORD_TIME,
        meaning: "The buffer of MyISAM's and Aria's scans and large writes.",
        each: "Each connection's scan has one, and nothing bounds all of them",
        is_bounded: false,
        command: "buffer --model myisam --from 16K --to 4M",
    };
    rule.advise(facts)
}

impl Size {
    fn buffer(&self, fact: &Fact<'_>) -> Option<u64> {
        size(fact.param("buffer")).ok().filter(|b| self.buffers.contains(b))
    }

    fn advise(&self, facts: &Facts<'_>) -> Advice {
        let mut advice = Advice::new(self.setting, size_value(self.default));
        let usual = self.default / self.divisor;
        let fits = |f: &Fact<'_>| {
            f.report["options"]["model"] == self.model
                && self.rows.contains(&f.param("do"))
                && f.param("way") == self.way
                && self.buffer(f).is_some()
        };
        let mut groups = facts.groups("buffer", &["buffer"], fits);
        groups.retain(|g| g.facts.len() > 1 && self.row(g, usual).is_some());
        facts.hold(&groups, self.by, |_, _| true);
        if groups.is_empty() {
            return advice.missing(self.command);
        }
        let good =
            |buffer: u64| groups.iter().all(|g| self.row(g, buffer).is_some_and(|f| self.is_unbeaten(facts, g, f)));
        let mut sizes: Vec<u64> = groups[0].facts.iter().filter_map(|f| self.buffer(f)).collect();
        sizes.sort_unstable();
        let chosen = if good(usual) { Some(usual) } else { sizes.iter().copied().find(|b| good(*b)) };
        for group in &groups {
            let best = group.best(self.by, |_| true);
            for fact in [self.row(group, usual), chosen.and_then(|b| self.row(group, b)), best].into_iter().flatten() {
                advice.rest_on(fact, self.by.metric);
            }
        }
        let (meaning, named) = (self.meaning, size_text(usual));
        let decided = groups.iter().all(|g| self.row(g, usual).is_some_and(|f| self.is_decided(facts, g, f)));
        match chosen {
            Some(buffer) if buffer == usual && !decided => advice.is(
                Outcome::Undecided,
                format!("{meaning} Whether another buffer is faster than {named} is not known."),
            ),
            Some(buffer) if buffer == usual => {
                advice.is(Outcome::Same, format!("{meaning} No buffer was measurably faster than {named}."))
            }
            Some(buffer) => {
                let better = size_text(buffer);
                let why = format!(
                    "{meaning} {better} is the smallest that no other was measurably faster than; {named} loses."
                );
                let (all, fits) = self.of_all(facts, buffer);
                if fits {
                    advice.advised = size_value(buffer * self.divisor);
                }
                advice.is(if fits { Outcome::Change } else { Outcome::Keep }, format!("{why} {all}"))
            }
            None => advice.is(Outcome::Keep, format!("{meaning} {named} loses, but no size is best for all rows.")),
        }
    }

    /// What such a buffer means in memory if every connection has one, and whether that may be advised: what is more than by
    /// default takes at most a quarter of the memory, unless the engine bounds it or nobody knows how much there is.
    fn of_all(&self, facts: &Facts<'_>, buffer: u64) -> (String, bool) {
        let (value, n) = (buffer * self.divisor, facts.max_connections);
        let (new, old) = (value.saturating_mul(n), self.default.saturating_mul(n));
        let mut words = format!(
            "{}: {n} connections (--max-connections) take up to {}, {} {}",
            self.each,
            size_text(new),
            size_text(new.abs_diff(old)),
            if new < old { "less than by default." } else { "more than by default." }
        );
        let most = facts.memory_bytes().filter(|_| !self.is_bounded).map(|m| m / 4);
        let most = most.filter(|most| new.saturating_sub(old) > *most);
        if let Some(most) = most {
            let most = size_text(most);
            words += &format!(" That is more than {most}, a quarter of the memory there is: the default stays.");
        }
        (words, most.is_none())
    }

    fn row<'g, 'a>(&self, group: &'g Group<'a>, buffer: u64) -> Option<&'g Fact<'a>> {
        group.facts.iter().find(|f| self.buffer(f) == Some(buffer))
    }

    /// Is no other row measurably better?
    fn is_unbeaten(&self, facts: &Facts<'_>, group: &Group<'_>, fact: &Fact<'_>) -> bool {
        !group.facts.iter().any(|other| facts.is_better(other, fact, self.by))
    }

    /// Is the row known to be as good as every other?
    fn is_decided(&self, facts: &Facts<'_>, group: &Group<'_>, fact: &Fact<'_>) -> bool {
        let mut others = group.facts.iter().filter(|f| !std::ptr::eq(f.row, fact.row));
        others.all(|other| facts.is_decided(other, fact, self.by))
    }
}

/// By rule a quarter of the memory, where a read that misses memory is measurably slower: the rest is for the page cache,
/// the server and other engines.
fn memory_limit(facts: &Facts<'_>) -> Advice {
    let default = esker::Options::default().memory_limit_bytes;
    let mut advice = Advice::new("esker_memory_limit", size_value(default));
    let Some(memory) = facts.memory_bytes() else { return advice.missing("doctor") };
    for fact in facts.of("doctor").iter().filter(|f| matches!(f.param("what"), "memory" | "memory limit")) {
        advice.rest_on(fact, "");
    }
    let quarter = (memory / 4).max(32 << 20) >> 20 << 20;
    let there = size_text(memory);
    if default > memory / 2 {
        advice.advised = size_value(quarter);
        return advice
            .is(Outcome::Change, format!("The default is more than half of the {there} there are: a quarter."));
    }
    let groups = facts.groups("io", &["do"], |f| f.param("way") == "cached" && f.param("do").starts_with("read "));
    facts.hold(&groups, RECORD_TIME, |_, _| true);
    let (mut known, mut decided, mut slower) = (false, true, Vec::new());
    for group in &groups {
        let (Some(cold), Some(warm)) = (group.with("do", "read cold"), group.with("do", "read warm")) else { continue };
        known = true;
        [cold, warm].into_iter().for_each(|f| advice.rest_on(f, RECORD_TIME.metric));
        decided &= facts.is_decided(warm, cold, RECORD_TIME);
        if facts.is_better(warm, cold, RECORD_TIME) {
            slower.push(format!("{} times as long", number(facts.percent(cold, warm, RECORD_TIME) / 100.0)));
        }
    }
    if !known {
        return advice.missing("io --cache both");
    }
    match (slower.is_empty(), decided) {
        (true, false) => advice.is(Outcome::Undecided, "Whether reads that miss memory are slower is not known."),
        (true, _) => advice.is(Outcome::Same, "Reads that miss memory were not measurably slower."),
        _ => {
            advice.advised = size_value(quarter);
            let why = format!(
                "A read that misses memory took {}. A quarter of the {there} there are, by rule: the rest is for the page \
                 cache, the server and other engines; how much Esker's own cache gains is not measured.",
                slower.join(", ")
            );
            advice.is(Outcome::Change, why)
        }
    }
}

/// The engine's own sessions, alone and under a binlog.
const SESSIONS: &str = "engine's sessions";
const SESSIONS_TWO: &str = "engine's sessions, 2pc";

/// Is it of storage that keeps what it is given?
fn keeps(fact: &Fact<'_>) -> bool {
    !fact.param("on").contains("tmpfs")
}

/// What two ways of committing differ by, at each number of threads: words, and the rows they rest on.
fn price(facts: &Facts<'_>, advice: &mut Advice, with: &str, without: &str) -> Option<String> {
    let mut words = Vec::new();
    let both = |f: &Fact<'_>| keeps(f) && [with, without].contains(&f.param("commit"));
    let groups = facts.groups("commit", &["commit"], both);
    facts.hold(&groups, RATE, |_, _| true);
    for group in groups {
        let (Some(a), Some(b)) = (group.with("commit", with), group.with("commit", without)) else { continue };
        let (Some(paid), Some(free)) = (figure(a.row, RATE.metric), figure(b.row, RATE.metric)) else { continue };
        [a, b].into_iter().for_each(|f| advice.rest_on(f, RATE.metric));
        let (paid, free) = (number(paid.median), number(free.median));
        let threads = a.param("threads");
        words.push(match (facts.is_better(b, a, RATE), facts.is_decided(b, a, RATE)) {
            (true, _) => format!("threads {threads}: {paid} a second instead of {free}"),
            (_, true) => format!("threads {threads}: no measurable difference"),
            _ => format!("threads {threads}: undecided, {paid} a second against {free}"),
        });
    }
    (!words.is_empty()).then(|| words.join("; "))
}

fn flush_log(facts: &Facts<'_>) -> Advice {
    let mut advice = Advice::new("esker_flush_log_at_trx_commit", "1");
    let Some(price) = price(facts, &mut advice, SESSIONS, "engine's sessions, no sync") else {
        return advice.missing("commit");
    };
    let barriers =
        facts.of("sync").into_iter().filter(|f| f.param("file") == "zero-filled" && f.param("barrier") == BARRIER);
    barriers.for_each(|f| advice.rest_on(&f, "median_us"));
    advice.is(Outcome::Durable, format!("1 keeps what was acknowledged through a power cut. It costs, with {price}."))
}

fn sync_binlog(facts: &Facts<'_>) -> Advice {
    let mut advice = Advice::new("sync_binlog", "0");
    let binlog = price(facts, &mut advice, SESSIONS_TWO, SESSIONS);
    let synced = price(facts, &mut advice, SESSIONS_TWO, "engine's sessions, 2pc, coordinator not synced");
    let (Some(binlog), Some(synced)) = (binlog, synced) else { return advice.missing("commit") };
    advice.advised = "1".into();
    let why = format!(
        "With the binlog on, a transaction's fate stands in it: only 1 keeps what was acknowledged through a power cut. \
         It costs, against 0, with {synced}. Binlog and two phases together cost, against no binlog, with {binlog}."
    );
    advice.is(Outcome::Durable, why)
}

fn profile_locks(facts: &Facts<'_>) -> Advice {
    let mut advice = Advice::new("esker_profile_locks", "OFF");
    let (mut known, mut decided, mut slower) = (false, true, Vec::new());
    let groups = facts.groups("locks", &["timing"], |f| matches!(f.param("timing"), "on" | "off"));
    facts.hold(&groups, RECORD_TIME, |_, _| true);
    for group in groups {
        let (Some(on), Some(off)) = (group.with("timing", "on"), group.with("timing", "off")) else { continue };
        known = true;
        [on, off].into_iter().for_each(|f| advice.rest_on(f, RECORD_TIME.metric));
        decided &= facts.is_decided(off, on, RECORD_TIME);
        if facts.is_better(off, on, RECORD_TIME) {
            let percent = number(facts.percent(on, off, RECORD_TIME) - 100.0);
            slower.push(format!("threads {}: {percent} percent", on.param("threads")));
        }
    }
    match (known, slower.is_empty()) {
        (false, _) => advice.missing("locks"),
        (_, true) if decided => advice.is(Outcome::Same, "Timing the locks costs nothing that could be measured."),
        (_, true) => advice.is(Outcome::Undecided, "What timing the locks costs is not known."),
        _ => advice.is(Outcome::Keep, format!("Timing the locks makes them slower, with {}.", slower.join("; "))),
    }
}

/// A log that was opened less often says nothing.
const LEAST_LOGS: usize = 3;

/// A row of `recovery`, the bytes it replayed, and the seconds it took to open.
type Log<'a> = (Fact<'a>, (f64, Figure));

/// The shortest log and the longest.
fn ends<'a>(group: &Group<'a>) -> Option<(Log<'a>, Log<'a>)> {
    let point = |f: &Fact<'a>| Some((figure(f.row, "replayed_bytes")?.median, figure(f.row, "open_s")?));
    let mut logs: Vec<Log<'a>> = group.facts.iter().filter_map(|f| Some((*f, point(f)?))).collect();
    logs.sort_by(|a, b| a.1 .0.total_cmp(&b.1 .0));
    Some((logs.first()?.clone(), logs.last()?.clone()))
}

/// The target holds if replay is as fast as the engine takes for granted. Between the shortest and the longest log, so
/// that what opening costs anyway does not count.
fn recovery_target(facts: &Facts<'_>) -> Advice {
    let default = esker::Options::default().recovery_target_seconds;
    let mut advice = Advice::new("esker_recovery_target_seconds", default.to_string());
    // Logs of one kind only, of which the longest spans most.
    let groups = facts.groups("recovery", &["commits"], |_| true);
    let widest =
        groups.iter().filter_map(ends).max_by(|x, y| (x.1 .1 .0 - x.0 .1 .0).total_cmp(&(y.1 .1 .0 - y.0 .1 .0)));
    let Some(((short, a), (long, b))) = widest else { return advice.missing("recovery") };
    if b.0 < 2.0 * a.0 || b.0 - a.0 < f64::from(8 << 20) {
        return advice.missing("recovery --records 10000,300000");
    }
    [short, long].into_iter().for_each(|f| advice.rest_on(&f, "open_s"));
    // The fastest that the intervals allow.
    let (bytes, least, middle) = (b.0 - a.0, b.1.low - a.1.high, b.1.median - a.1.median);
    let few = a.1.samples.len().min(b.1.samples.len()) < LEAST_LOGS;
    let (granted, told) = (esker::REPLAY_BYTES_PER_SECOND as f64, least > 0.0 && !few);
    let mib = |rate: f64| number(rate / f64::from(1 << 20));
    if !told || middle <= 0.0 || bytes / least >= granted {
        let why = "The log was not replayed measurably slower than the engine takes for granted";
        return advice.is(Outcome::Same, format!("{why} ({} MiB a second).", mib(granted)));
    }
    let rate = bytes / middle;
    advice.advised = (f64::from(default) * rate / granted).floor().max(1.0).to_string();
    let why = format!(
        "It takes {} MiB a second for granted and replayed {}: a restart within {default} s needs this value.",
        mib(granted),
        mib(rate)
    );
    advice.is(Outcome::Badly, why)
}

/// Something that the engine does one way, and could do in another.
struct Choice {
    name: &'static str,
    command: &'static str,
    by: Criterion,
    /// In which parameters the ways differ.
    vary: &'static [&'static str],
    among: fn(&Fact<'_>) -> bool,
    /// Is the row what the engine does?
    own: fn(&Fact<'_>) -> bool,
    does: &'static str,
    /// The arguments that measure it.
    measure: &'static str,
}

/// The engine's barrier.
const BARRIER: &str = "fdatasync";

const CHOICES: [Choice; 4] = [
    Choice {
        name: "engine: the log's barrier",
        command: "sync",
        by: Criterion::least("median_us"),
        vary: &["file", "barrier"],
        // What flushes no device cache is no barrier, a log cannot be written over in one place, and how fast large writes get
        // durable is no choice.
        among: |f| {
            !["sync_file_range", NO_BARRIER].contains(&f.param("barrier"))
                && !["one place", STREAM].contains(&f.param("file"))
        },
        own: |f| f.param("barrier") == BARRIER && matches!(f.param("file"), "zero-filled" | "recycled"),
        does: "fdatasync of segments that were filled with zeros",
        measure: "sync",
    },
    Choice {
        name: "engine: who syncs commits",
        command: "commit",
        by: RATE,
        vary: &["commit"],
        among: |f| keeps(f) && [SESSIONS, "engine's sessions, one sync per commit"].contains(&f.param("commit")),
        own: |f| f.param("commit") == SESSIONS,
        does: "group commit",
        measure: "commit",
    },
    Choice {
        name: "engine: writing bulk files",
        command: "io",
        by: DEVICE_TIME,
        vary: &["way"],
        among: |f| {
            let piece = esker::Options::default().bulk_buffer_bytes / 4;
            f.param("do") == "write" && f.report["options"]["buffer_bytes"] == piece as u64
        },
        own: |f| f.param("way") == "esker",
        does: "its own writer, through the page cache unless memory is short",
        measure: "io --buffer 1M",
    },
    Choice {
        name: "engine: reading files",
        command: "io",
        by: RECORD_TIME,
        vary: &["way"],
        among: |f| f.param("do") == "read cold",
        own: |f| f.param("way") == "esker",
        does: "its own file layer, a buffer a call",
        measure: "io",
    },
];

impl Choice {
    fn judge(&self, facts: &Facts<'_>) -> Advice {
        let mut advice = Advice::new(self.name, self.does);
        let (mut worse, mut better, mut groups, mut decided) = (Vec::new(), 0, 0, true);
        let all = facts.groups(self.command, self.vary, self.among);
        facts.hold(&all, self.by, |a, b| (self.own)(a) != (self.own)(b));
        for group in all {
            let own = group.best(self.by, self.own);
            let (Some(own), Some(other)) = (own, group.best(self.by, |f| !(self.own)(f))) else { continue };
            groups += 1;
            [own, other].into_iter().for_each(|f| advice.rest_on(f, self.by.metric));
            better += usize::from(facts.is_better(own, other, self.by));
            decided &= facts.is_decided(own, other, self.by);
            if facts.is_better(other, own, self.by) {
                let way = crate::readback::label(other.row, self.vary, " ");
                let percent = number(facts.percent(other, own, self.by));
                worse.push((way.clone(), format!("'{way}' took {percent} percent of its time ({})", group.label())));
            }
        }
        if groups == 0 {
            return advice.missing(self.measure);
        }
        if let Some((way, _)) = worse.first() {
            advice.advised = way.clone();
            let found: Vec<String> = worse.into_iter().map(|w| w.1).collect();
            return advice.is(Outcome::Badly, format!("{}. No setting changes that.", found.join("; ")));
        }
        match (better == groups, decided) {
            (true, _) => advice.is(Outcome::Keep, "It was measurably better than every other way."),
            (_, false) => advice.is(Outcome::Undecided, "Whether another way is better is not known."),
            _ => advice.is(Outcome::Same, "No other way was measurably better."),
        }
    }
}
