//! A million events are read in the memory of what is shown.

#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use esker_trace::format::*;
use esker_trace::Options;
use std::alloc::{GlobalAlloc, Layout, System};
use std::io::{BufRead, Read};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Counts bytes in use, and the most that ever were.
struct Counting;

static NOW: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: all is done by the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        MOST.fetch_max(NOW.fetch_add(layout.size(), Relaxed) + layout.size(), Relaxed);
        // SAFETY: as the caller's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as the caller's.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// A file that is made while it is read.
struct Generated<F: FnMut(u64, &mut Lines) -> bool> {
    part: Lines,
    at: usize,
    number: u64,
    make: F,
}

impl<F: FnMut(u64, &mut Lines) -> bool> Read for Generated<F> {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let length = self.fill_buf()?.read(out)?;
        self.consume(length);
        Ok(length)
    }
}

impl<F: FnMut(u64, &mut Lines) -> bool> BufRead for Generated<F> {
    fn fill_buf(&mut self) -> std::io::Result<&[u8]> {
        if self.at == self.part.0.len() {
            self.part.0.clear();
            self.at = 0;
            if (self.make)(self.number, &mut self.part) {
                self.number += 1;
            }
        }
        Ok(&self.part.0.as_bytes()[self.at..])
    }

    fn consume(&mut self, length: usize) {
        self.at += length;
    }
}

fn most_while_read(make: impl FnMut(u64, &mut Lines) -> bool) -> (esker_trace::report::File, usize) {
    let mut input = Generated { part: Lines::default(), at: 0, number: 0, make };
    let before = NOW.load(Relaxed);
    MOST.store(before, Relaxed);
    let file = esker_trace::read("made up", &mut input, &Options { query: None, top: 3 }).unwrap();
    (file, MOST.load(Relaxed) - before)
}

/// One statement that waits so often, at as many places.
fn one_statement(events: u64) -> impl FnMut(u64, &mut Lines) -> bool {
    move |n: u64, lines: &mut Lines| {
        match n {
            0 => lines.add(trace()).add(Statement { q: 8841, s: Some(1), ..Statement::default() }),
            n if n <= events => lines.add(Wait {
                file: Some(n),
                block: Some(n * 77),
                from: Some(if n % 3 == 0 { "pagecache" } else { "device" }.into()),
                obj: Some(format!("shop.t{n}/PRIMARY").into()),
                within: n % 5 == 0,
                ..wait(n * 1000, 900 + n % 700, "db file sequential read")
            }),
            n if n == events + 1 => lines.add(end(events * 1000, events * 1000)),
            _ => return false,
        };
        true
    }
}

/// So many statements, each with its text, a call, a plan and a wait.
fn many_statements(statements: u64) -> impl FnMut(u64, &mut Lines) -> bool {
    move |n: u64, lines: &mut Lines| {
        let (q, s, tim) = (n, Some(n), n * 10_000);
        if n == 0 {
            lines.add(trace());
        } else if n <= statements {
            let text = Some(format!("SELECT {n} FROM t WHERE {}", "x".repeat(200)).into());
            lines.add(Statement { q, s, tim, db: None, text });
            lines.add(Wait {
                q: Some(q),
                s,
                obj: Some(format!("t{n}").into()),
                ..wait(tim, n % 5000, "log file sync")
            });
            lines.add(Call { q: Some(q), s, tim, function: "index_next".into(), ..Call::default() });
            lines.add(Plan { q: Some(q), s, text: Some("id".into()), none: false });
            if n % 10 > 0 {
                // Each is slower than those before it.
                lines.add(End { q, s, ..end(tim + 5000 + n, 5000 + n) });
            }
        } else {
            return false;
        }
        true
    }
}

// One test: the counter is of the whole process.
#[test]
fn memory_does_not_grow_with_events() {
    const EVENTS: u64 = 1_000_000;
    let (few, small) = most_while_read(one_statement(EVENTS / 100));
    let (file, large) = most_while_read(one_statement(EVENTS));
    let counted = |file: &esker_trace::report::File| {
        let account = &file.statements[0].account;
        account.rows.iter().chain(&account.within).filter_map(|r| r.count).sum::<u64>()
    };
    assert_eq!((counted(&few), counted(&file)), (EVENTS / 100, EVENTS));
    assert!(large < small + 100_000 && large < 4 << 20, "{small} bytes for {}, {large} for {EVENTS}", EVENTS / 100);

    let (_, small) = most_while_read(many_statements(EVENTS / 500));
    let (file, large) = most_while_read(many_statements(EVENTS / 5));
    assert_eq!(file.statements_ended + file.statements_unfinished, EVENTS / 5);
    assert!(large < small + 500_000 && large < 8 << 20, "{small} bytes for a few, {large} for many");
}
