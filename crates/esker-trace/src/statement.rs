//! What is known of a statement while its events come, in memory that does not grow with them.

use crate::calls::Calls;
use crate::format::{End, Wait};
use crate::times::Sum;
use crate::top::Top;
use crate::waits::{label, Waits};

/// The slowest waits that are kept of a statement.
const SLOWEST: usize = 5;
/// Rows of a plan, and things that locks were waited for on.
const PLAN_ROWS: usize = 500;
const LOCKS: usize = 20;
/// Connections that are told of each.
const HOLDERS: usize = 32;
/// Bytes of a key that is told, and of what it is of.
const KEY_BYTES: usize = 2048;
/// Bytes of a statement's text, and of a row of its plan.
pub(crate) const TEXT_BYTES: usize = 64 << 10;
/// Waits of this class are for locks of rows and tables.
const LOCK_CLASS: &str = "Application";

/// What a statement is known by: its number in the file, else the server's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) q: Option<u64>,
    pub(crate) s: Option<u64>,
}

impl Key {
    /// Do both mean one statement?
    pub(crate) fn is(self, other: Key) -> bool {
        match (self.s, other.s) {
            (Some(a), Some(b)) => a == b,
            _ => self.q.is_some() && self.q == other.q,
        }
    }
}

/// What a lock was waited for on, as far as a wait tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Lock {
    pub(crate) name: String,
    pub(crate) object: Option<String>,
    pub(crate) kind: Option<String>,
    pub(crate) key: Option<String>,
    /// The connection that had it.
    pub(crate) by: Option<u64>,
}

/// Who else had what was waited for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct LockHolders {
    /// Together with the first, and who came to have it afterwards: connections, each once, and no more than a bounded number.
    pub(crate) with: Vec<u64>,
    pub(crate) then: Vec<u64>,
    /// Of the wait with most of them how many, those that are not told included.
    pub(crate) most_with: u64,
    pub(crate) most_then: u64,
}

impl LockHolders {
    fn of(wait: &Wait<'_>) -> LockHolders {
        let mut of = LockHolders::default();
        let told = |list: &Option<Vec<u64>>| list.clone().unwrap_or_default();
        (of.with, of.then) = (told(&wait.with), told(&wait.then));
        of.with.truncate(HOLDERS);
        of.then.truncate(HOLDERS);
        of.most_with = wait.others.unwrap_or(0).max(of.with.len() as u64);
        of.most_then = wait.later.unwrap_or(0).max(of.then.len() as u64);
        of
    }

    fn merge(&mut self, other: &LockHolders) {
        let add = |list: &mut Vec<u64>, more: &[u64]| {
            for connection in more {
                if list.len() < HOLDERS && !list.contains(connection) {
                    list.push(*connection);
                }
            }
        };
        add(&mut self.with, &other.with);
        add(&mut self.then, &other.then);
        self.most_with = self.most_with.max(other.most_with);
        self.most_then = self.most_then.max(other.most_then);
    }
}

impl Lock {
    fn of(wait: &Wait<'_>) -> Lock {
        let text = |text: &Option<crate::format::Str<'_>>| text.as_deref().map(|t| cut(t, KEY_BYTES));
        let (object, kind, key) = (text(&wait.obj), text(&wait.lock), text(&wait.key));
        Lock { name: wait.nam.to_string(), object, kind, key, by: wait.by }
    }

    fn others() -> Lock {
        Lock { name: "others".into(), object: None, kind: None, key: None, by: None }
    }
}

/// A wait that is told by itself.
#[derive(Debug, Clone)]
pub(crate) struct Slow {
    pub(crate) what: String,
    pub(crate) ns: u64,
    /// ns since the file began.
    pub(crate) tim: u64,
    pub(crate) q: Option<u64>,
    pub(crate) object: Option<String>,
    pub(crate) file: Option<u64>,
    pub(crate) path: Option<String>,
    pub(crate) block: Option<u64>,
    pub(crate) blocks: Option<u64>,
}

/// Path and object of a file.
pub(crate) type FileName = (Option<String>, Option<String>);

impl Slow {
    pub(crate) fn new(wait: &Wait<'_>, file: Option<&FileName>) -> Slow {
        let object = wait.obj.as_deref().map(str::to_owned);
        Slow {
            what: label(&wait.nam, wait.from.as_deref()),
            ns: wait.ela,
            tim: wait.tim,
            q: wait.q,
            object: object.or_else(|| file.and_then(|f| f.1.clone())),
            file: wait.file,
            path: file.and_then(|f| f.0.clone()),
            block: wait.block,
            blocks: wait.blocks,
        }
    }
}

/// The figures of one statement, or of several, in ns. What a file does not tell is zero here.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Figures {
    pub(crate) wall: i128,
    pub(crate) waits: i128,
    pub(crate) cpu: i128,
    pub(crate) engine: i128,
    pub(crate) ready: i128,
    pub(crate) waits_cpu: i128,
    pub(crate) waits_ready: i128,
}

impl Figures {
    /// `waits`: those of the statement, and of those that ran within it.
    pub(crate) fn new(end: &End<'_>, waits: &Waits) -> Figures {
        let known = |ns: Option<u64>| i128::from(ns.unwrap_or(0));
        let (ela, cpu, ready) = waits.outermost();
        Figures {
            wall: i128::from(end.ela),
            waits: ela,
            cpu: known(end.cpu),
            engine: known(end.engine),
            ready: known(end.ready),
            // Without the statement's word for it, what its waits say; nothing can be taken from a time that is not known.
            waits_cpu: end.cpu.map_or(0, |_| end.waits_cpu.map_or(cpu, i128::from)),
            waits_ready: end.ready.map_or(0, |_| end.waits_ready.map_or(ready, i128::from)),
        }
    }

    fn each(self, other: Figures, of: impl Fn(i128, i128) -> i128) -> Figures {
        Figures {
            wall: of(self.wall, other.wall),
            waits: of(self.waits, other.waits),
            cpu: of(self.cpu, other.cpu),
            engine: of(self.engine, other.engine),
            ready: of(self.ready, other.ready),
            waits_cpu: of(self.waits_cpu, other.waits_cpu),
            waits_ready: of(self.waits_ready, other.waits_ready),
        }
    }

    pub(crate) fn plus(self, other: Figures) -> Figures {
        self.each(other, |a, b| a + b)
    }

    pub(crate) fn minus(self, other: Figures) -> Figures {
        self.each(other, |a, b| a - b)
    }

    /// Processor time outside of waits.
    pub(crate) fn processor(self) -> i128 {
        self.cpu - self.waits_cpu
    }

    /// Of that, the server's.
    pub(crate) fn server(self) -> i128 {
        self.processor() - self.engine
    }

    /// Ready but not run, outside of waits.
    pub(crate) fn not_run(self) -> i128 {
        self.ready - self.waits_ready
    }

    /// What none of the above explains; a little below zero where clocks do not agree.
    pub(crate) fn unaccounted(self) -> i128 {
        self.wall - self.waits - self.processor() - self.not_run()
    }
}

/// What waits tell.
#[derive(Debug, Clone)]
pub(crate) struct WaitStats {
    pub(crate) waits: Waits,
    pub(crate) slowest: Top<Slow>,
    pub(crate) locks: Vec<(Lock, LockHolders, Sum)>,
    /// Reads of the device; of those, right behind the one before.
    pub(crate) device_reads: u64,
    pub(crate) in_sequence: u64,
    behind: Option<(u64, u64)>,
}

impl WaitStats {
    fn new() -> WaitStats {
        let (waits, slowest) = (Waits::default(), Top::new(SLOWEST));
        WaitStats { waits, slowest, locks: Vec::new(), device_reads: 0, in_sequence: 0, behind: None }
    }

    fn add(&mut self, wait: &Wait<'_>, file: Option<&FileName>) {
        self.waits.add(wait);
        if !wait.within && wait.x.is_none() {
            self.slowest.offer(wait.ela, || Slow::new(wait, file));
        }
        if wait.class.as_deref() == Some(LOCK_CLASS) && !wait.within {
            let count = wait.x.unwrap_or(1);
            self.lock(
                Lock::of(wait),
                &LockHolders::of(wait),
                // Of several the sum is known alone: each counts as their mean, as in `Times`.
                Sum { count, sum_ns: wait.ela, max_ns: wait.ela / count.max(1) },
            );
        }
        if wait.from.as_deref() == Some("device") {
            self.device_reads += 1;
            let (file, block) = (wait.file.unwrap_or(0), wait.block.unwrap_or(0));
            // A file's own blocks begin anywhere, and are told by the ones of 4096 bytes that they touch: two neighbours share one.
            let touches = |(of, end): (u64, u64)| of == file && (block == end || end.checked_sub(1) == Some(block));
            self.in_sequence += u64::from(wait.block.is_some() && self.behind.is_some_and(touches));
            self.behind = Some((file, block.saturating_add(wait.blocks.unwrap_or(1))));
        }
    }

    fn lock(&mut self, what: Lock, holders: &LockHolders, sum: Sum) {
        let known = self.locks.len() < LOCKS || self.locks.iter().any(|(w, ..)| *w == what);
        let what = if known { what } else { Lock::others() };
        let holders = if known { holders } else { &LockHolders::default() };
        match self.locks.iter_mut().find(|(w, ..)| *w == what) {
            Some((_, had, mine)) => {
                had.merge(holders);
                mine.merge(sum);
            }
            None => self.locks.push((what, holders.clone(), sum)),
        }
    }

    pub(crate) fn merge(&mut self, other: &WaitStats) {
        self.waits.merge(&other.waits);
        self.slowest.merge(&other.slowest);
        other.locks.iter().for_each(|(what, holders, sum)| self.lock(what.clone(), holders, *sum));
        self.device_reads += other.device_reads;
        self.in_sequence += other.in_sequence;
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Statement {
    pub(crate) key: Key,
    pub(crate) conn: Option<u64>,
    /// When it began, ns since the file began; of the first event where the beginning is not in the file.
    pub(crate) tim: u64,
    /// The end of its last event.
    pub(crate) last: u64,
    pub(crate) db: Option<String>,
    pub(crate) text: Option<String>,
    /// Its STATEMENT is in the file.
    pub(crate) begun: bool,
    /// Tracing was off for a part of it.
    pub(crate) gap: bool,
    pub(crate) own: WaitStats,
    /// Of statements that ended after it began: if it ends, they ran within it.
    pub(crate) inner: Option<Box<NestedStatements>>,
    pub(crate) calls: Calls,
    pub(crate) plan: Vec<String>,
    pub(crate) no_plan: bool,
    pub(crate) end: Option<End<'static>>,
}

/// What is known of several statements together.
#[derive(Debug)]
pub(crate) struct NestedStatements {
    pub(crate) count: u64,
    pub(crate) figures: Figures,
    pub(crate) waits: WaitStats,
}

/// At most so many bytes of a text.
pub(crate) fn cut(text: &str, bytes: usize) -> String {
    if text.len() <= bytes {
        return text.to_owned();
    }
    let end = (0..=bytes).rev().find(|i| text.is_char_boundary(*i)).unwrap_or(0);
    format!("{}…", &text[..end])
}

impl Statement {
    pub(crate) fn new(key: Key, tim: u64) -> Statement {
        Statement {
            key,
            conn: None,
            tim,
            last: tim,
            db: None,
            text: None,
            begun: false,
            gap: false,
            own: WaitStats::new(),
            inner: None,
            calls: Calls::default(),
            plan: Vec::new(),
            no_plan: false,
            end: None,
        }
    }

    pub(crate) fn wait(&mut self, wait: &Wait<'_>, file: Option<&FileName>) {
        self.own.add(wait, file);
        self.last = self.last.max(wait.tim.saturating_add(wait.ela));
    }

    /// Another statement has ended since this one began.
    pub(crate) fn ran_within(&mut self, figures: Figures, waits: &WaitStats) {
        let none = || Box::new(NestedStatements { count: 0, figures: Figures::default(), waits: WaitStats::new() });
        let inner = self.inner.get_or_insert_with(none);
        inner.count += 1;
        inner.figures = inner.figures.plus(figures);
        inner.waits.merge(waits);
    }

    pub(crate) fn plan_row(&mut self, text: Option<&str>, none: bool) {
        self.no_plan |= none;
        if let Some(text) = text.filter(|_| self.plan.len() < PLAN_ROWS) {
            self.plan.push(cut(text, TEXT_BYTES));
        }
    }

    /// What its own waits tell, and those of statements that ran within it. Without an end nothing tells whether any did.
    pub(crate) fn all_waits(&self) -> WaitStats {
        let mut all = self.own.clone();
        if let (Some(inner), Some(_)) = (&self.inner, &self.end) {
            all.merge(&inner.waits);
        }
        all
    }
}
