//! From a file's events to what is known of its statements.

use crate::format::{End, Line, Lost, Trace, Wait, VERSION};
use crate::lines::{self, RawLine};
use crate::statement::{cut, Figures, FileName, Key, Slow, Statement, TEXT_BYTES};
use crate::top::Top;
use crate::waits::Waits;
use crate::Options;
use std::collections::{HashMap, VecDeque};
use std::io::{self, BufRead};

/// What is listed at most: slowest statements and reads, warnings, parts, and statements without an end.
const LISTED: usize = 10;
const WARNINGS: usize = 20;
const PARTS: usize = 100;
const UNFINISHED: usize = 8;
/// Statements that are open at once; more only where ends are missing.
const OPEN: usize = 32;
/// Ended statements that are still known by their numbers: late events are not taken for new statements.
const ENDED: usize = 64;
/// Files whose names are kept.
const FILES: usize = 1 << 16;
/// Statements of one number that are shown.
const SHOWN: usize = 100;

/// Tracing begins or goes on; of a damaged line what can be read.
#[derive(Debug, Clone)]
pub(crate) struct TraceStart {
    pub(crate) conn: Option<u64>,
    pub(crate) trace: Trace<'static>,
}

/// A statement of the list.
#[derive(Debug)]
pub(crate) struct SlowStatement {
    pub(crate) q: Option<u64>,
    pub(crate) tim: u64,
    pub(crate) wall: u64,
    pub(crate) text: Option<String>,
}

/// All that is known of a file.
#[derive(Debug)]
pub(crate) struct TraceSummary {
    query: Option<u64>,
    pub(crate) parts: Vec<TraceStart>,
    /// The last one, listed or not.
    newest: Option<TraceStart>,
    /// It was said that nothing tells whose events come.
    headless: bool,
    pub(crate) lost: Vec<Lost<'static>>,
    pub(crate) warnings: Vec<(u64, String)>,
    pub(crate) warnings_in_all: u64,
    pub(crate) lines: u64,
    pub(crate) waits_in_all: u64,
    /// Ended statements.
    pub(crate) ended: u64,
    pub(crate) unfinished_in_all: u64,
    /// Of ended statements.
    pub(crate) total: Figures,
    pub(crate) total_waits: Waits,
    pub(crate) events: u64,
    pub(crate) dropped: u64,
    pub(crate) worker: u64,
    pub(crate) overhead: u64,
    /// Some statement told its processor time, and that of the engine.
    pub(crate) knows: (bool, bool, bool),
    /// In no statement that ended.
    pub(crate) outside: Waits,
    /// Reads of the device; of those, right behind the one before.
    pub(crate) device_reads: u64,
    pub(crate) in_sequence: u64,
    pub(crate) slow_reads: Top<Slow>,
    pub(crate) listed: Top<SlowStatement>,
    pub(crate) shown: Top<Statement>,
    pub(crate) unfinished: Vec<Statement>,
    files: HashMap<u64, FileName>,
    open: Vec<Statement>,
    recent: VecDeque<Key>,
}

/// Reads a file.
///
/// # Errors
/// When it cannot be read.
pub(crate) fn gather(input: &mut dyn BufRead, options: &Options) -> io::Result<TraceSummary> {
    let mut all = TraceSummary::new(options);
    lines::each(input, |number, raw| all.line(number, raw))?;
    while let Some(statement) = all.open.pop() {
        all.without_end(statement);
    }
    all.unfinished.sort_by_key(|s| s.tim);
    Ok(all)
}

impl TraceSummary {
    fn new(options: &Options) -> TraceSummary {
        TraceSummary {
            query: options.query,
            parts: Vec::new(),
            newest: None,
            headless: false,
            lost: Vec::new(),
            warnings: Vec::new(),
            warnings_in_all: 0,
            lines: 0,
            waits_in_all: 0,
            ended: 0,
            unfinished_in_all: 0,
            total: Figures::default(),
            total_waits: Waits::default(),
            events: 0,
            dropped: 0,
            worker: 0,
            overhead: 0,
            knows: (false, false, false),
            outside: Waits::default(),
            device_reads: 0,
            in_sequence: 0,
            slow_reads: Top::new(LISTED),
            listed: Top::new(LISTED),
            shown: Top::new(if options.query.is_some() { SHOWN } else { options.top }),
            unfinished: Vec::new(),
            files: HashMap::new(),
            open: Vec::new(),
            recent: VecDeque::new(),
        }
    }

    fn warn(&mut self, number: u64, what: impl Into<String>) {
        self.warnings_in_all += 1;
        if self.warnings.len() < WARNINGS {
            self.warnings.push((number, what.into()));
        }
    }

    fn line(&mut self, number: u64, raw: RawLine<'_>) {
        self.lines = number;
        let text = match raw {
            RawLine::Text(text, true) => text,
            RawLine::Text(text, false) => {
                self.warn(number, "not UTF-8; read with signs of replacement");
                text
            }
            RawLine::Long => return self.warn(number, "longer than any line of a trace; passed over"),
            RawLine::Cut => return self.warn(number, "the file ends within this line; passed over"),
        };
        match Line::parse(&text) {
            Ok(line) => self.event(number, line),
            Err(e) => match Trace::salvage(&text) {
                Some((conn, trace)) => {
                    self.warn(number, format!("{e}; what else this TRACE line has is read"));
                    self.trace_start(number, conn, &trace);
                }
                None => self.warn(number, format!("{e}; passed over")),
            },
        }
    }

    fn event(&mut self, number: u64, line: Line<'_>) {
        if self.parts.is_empty() && !self.headless && !matches!(line, Line::Trace(_) | Line::Other(_)) {
            self.headless = true;
            self.warn(number, "no TRACE line before it that can be read: whose session it is, is not known");
        }
        match line {
            Line::Trace(part) => self.trace_start(number, Some(part.conn), &part),
            Line::Statement(begin) => self.begin(begin),
            Line::File(file) => {
                if self.files.len() < FILES || self.files.contains_key(&file.file) {
                    let text = |t: Option<crate::format::Str<'_>>| t.map(|t| cut(&t, TEXT_BYTES));
                    self.files.insert(file.file, (text(file.path), text(file.obj)));
                }
            }
            Line::Wait(wait) => self.wait(&wait),
            Line::Call(call) => {
                if let Some(at) = self.of(Key { q: call.q, s: call.s }, call.tim) {
                    self.open[at].last = self.open[at].last.max(call.tim);
                    self.open[at].calls.add(&call);
                }
            }
            Line::Calls(calls) => {
                if let Some(at) = self.known(Key { q: calls.q, s: calls.s }) {
                    let dropped = &mut self.open[at].calls.dropped;
                    *dropped = dropped.saturating_add(calls.dropped.unwrap_or(0));
                }
            }
            Line::Plan(row) => {
                if let Some(at) = self.known(Key { q: row.q, s: row.s }) {
                    self.open[at].plan_row(row.text.as_deref(), row.none);
                }
            }
            Line::End(end) => self.end(&end),
            Line::Lost(_) if self.lost.len() >= PARTS => {}
            Line::Lost(lost) => {
                if let Line::Lost(lost) = Line::Lost(lost).into_owned() {
                    self.lost.push(lost);
                }
            }
            Line::Other(_) => {}
        }
    }

    fn begin(&mut self, begin: crate::format::Statement<'_>) {
        let key = Key { q: Some(begin.q), s: begin.s };
        // Events of it may have come before its text was known.
        let at = self.known(key).filter(|at| !self.open[*at].begun).unwrap_or_else(|| {
            self.push(Statement::new(key, begin.tim));
            self.open.len() - 1
        });
        let statement = &mut self.open[at];
        statement.begun = true;
        statement.tim = begin.tim;
        statement.db = begin.db.map(|db| cut(&db, TEXT_BYTES));
        statement.text = begin.text.map(|text| cut(&text, TEXT_BYTES));
    }

    fn trace_start(&mut self, number: u64, conn: Option<u64>, part: &Trace<'_>) {
        if part.version > VERSION {
            self.warn(number, format!("format {}; what is newer than {VERSION} is passed over", part.version));
        }
        let same = |last: &TraceStart| (last.conn, last.trace.pid, &last.trace.began) == (conn, part.pid, &part.began);
        if self.newest.as_ref().is_some_and(same) {
            self.open.iter_mut().for_each(|s| s.gap = true);
        } else {
            // Another server, or session: what was open will not end, and numbers begin again.
            while let Some(statement) = self.open.pop() {
                self.without_end(statement);
            }
            self.recent.clear();
            self.files.clear();
        }
        if let Line::Trace(trace) = Line::Trace(part.clone()).into_owned() {
            let start = TraceStart { conn, trace };
            if self.parts.len() < PARTS {
                self.parts.push(start.clone());
            }
            self.newest = Some(start);
        }
    }

    fn push(&mut self, mut statement: Statement) {
        if self.open.len() >= OPEN {
            let oldest = self.open.remove(0);
            self.without_end(oldest);
        }
        statement.conn = self.newest.as_ref().and_then(|p| p.conn);
        self.open.push(statement);
    }

    /// The place of an open statement.
    fn known(&self, key: Key) -> Option<usize> {
        self.open.iter().rposition(|o| o.key.is(key))
    }

    /// The same; one whose beginning is not in the file begins here.
    fn of(&mut self, key: Key, tim: u64) -> Option<usize> {
        let known = self.known(key);
        if known.is_some() || (key.q, key.s) == (None, None) || self.recent.iter().any(|r| r.is(key)) {
            return known;
        }
        self.push(Statement::new(key, tim));
        Some(self.open.len() - 1)
    }

    fn wait(&mut self, wait: &Wait<'_>) {
        self.waits_in_all += 1;
        let at = self.of(Key { q: wait.q, s: wait.s }, wait.tim);
        let file = wait.file.and_then(|f| self.files.get(&f));
        if !wait.within && wait.x.is_none() && wait.nam.contains("read") {
            self.slow_reads.offer(wait.ela, || Slow::new(wait, file));
        }
        match at {
            Some(at) => self.open[at].wait(wait, file),
            None => self.outside.add(wait),
        }
    }

    fn end(&mut self, end: &End<'_>) {
        let begin = end.tim.saturating_sub(end.ela);
        let Some(at) = self.of(Key { q: Some(end.q), s: end.s }, begin) else { return };
        // What began after it and is still open has lost its end.
        while self.open.len() > at + 1 {
            let Some(inner) = self.open.pop() else { break };
            self.without_end(inner);
        }
        let Some(mut statement) = self.open.pop() else { return };
        if !statement.begun {
            statement.tim = begin;
        }
        let Line::End(owned) = Line::End(end.clone()).into_owned() else { return };
        statement.end = Some(owned);
        self.add(&statement, end);
        self.recent.push_back(statement.key);
        if self.recent.len() > ENDED {
            self.recent.pop_front();
        }
        self.show(statement, end.ela);
    }

    /// Adds an ended statement to the totals, and to the statement that it ran within.
    fn add(&mut self, statement: &Statement, end: &End<'_>) {
        let stats = statement.all_waits();
        let figures = Figures::new(end, &stats.waits);
        self.ended += 1;
        // What ran within it is there already.
        self.total =
            self.total.plus(figures.minus(statement.inner.as_ref().map_or_else(Figures::default, |i| i.figures)));
        self.total_waits.merge(&statement.own.waits);
        let (cpu, engine, ready) = self.knows;
        self.knows = (cpu || end.cpu.is_some(), engine || end.engine.is_some(), ready || end.ready.is_some());
        let add = |sum: &mut u64, more: Option<u64>| *sum = sum.saturating_add(more.unwrap_or(0));
        add(&mut self.events, end.events);
        add(&mut self.dropped, end.dropped);
        add(&mut self.worker, end.worker);
        add(&mut self.overhead, end.overhead);
        self.device_reads += statement.own.device_reads;
        self.in_sequence += statement.own.in_sequence;
        if let Some(outer) = self.open.last_mut() {
            outer.ran_within(figures, &stats);
        }
    }

    fn show(&mut self, statement: Statement, wall: u64) {
        let of = |s: &Statement| SlowStatement {
            q: s.key.q,
            tim: s.tim,
            wall,
            text: s.text.as_deref().map(|t| cut(t, 400)),
        };
        self.listed.offer(wall, || of(&statement));
        if self.query.is_none_or(|q| statement.key.q == Some(q)) {
            self.shown.offer(wall, || statement);
        }
    }

    fn without_end(&mut self, statement: Statement) {
        self.unfinished_in_all += 1;
        self.outside.merge(&statement.own.waits);
        self.device_reads += statement.own.device_reads;
        self.in_sequence += statement.own.in_sequence;
        if self.query.is_none_or(|q| statement.key.q == Some(q)) && self.unfinished.len() < UNFINISHED {
            self.unfinished.push(statement);
        }
    }
}
