//! How often all trees are looked at, by the count of trees.

use super::*;
use crate::host::SimHost;
use crate::tests::support::Slow;
use crate::tests::tables::{commit_rows, def, open_on, options};
use crate::upkeep::background::one_round;
use crate::{Engine, Options};
use esker_io::SimDisk;

const TABLES: u64 = 300;

/// Tables with some 12 KiB in memory each, and memory enough for them.
fn many_tables(options: Options) -> Engine {
    let e = open_on(Arc::new(SimDisk::new(1)), Options { memory_limit_bytes: 1 << 30, ..options });
    let mut s = e.session();
    for n in 0..TABLES {
        e.create_table(&format!("t{n}"), &def()).unwrap();
        commit_rows(&mut s, &e.open_table(&format!("t{n}")).unwrap(), 100);
    }
    e
}

fn looks(e: &Engine) -> u64 {
    e.core.due.looks.load(Ordering::Relaxed)
}

fn with_runs(e: &Engine) -> u64 {
    e.core.trees().iter().filter(|(_, tree)| tree.in_memory().flushable_bytes == 0).count() as u64
}

#[test]
fn a_look_finds_many_to_flush() {
    let e = many_tables(options());
    assert_eq!(with_runs(&e), 0);
    let before = looks(&e);
    // Of four parts one is for memtables.
    e.set_memory_limit(4 << 20);
    one_round(&e.core).unwrap();
    let flushed = with_runs(&e);
    assert!(flushed > TABLES / 2, "{flushed} tables were flushed");
    assert!(e.core.flushes.flushable_bytes() <= 1 << 20);
    let looks_at_all = (looks(&e) - before) / TABLES;
    assert!(
        looks_at_all <= 2 + flushed / 32,
        "all {TABLES} trees were looked at {looks_at_all} times for {flushed} flushes"
    );
}

#[test]
fn what_is_dropped_or_emptied_once_it_is_chosen_is_not_flushed() {
    for gone in [Engine::drop_table, Engine::truncate_table] {
        let e = many_tables(options());
        e.set_memory_limit(4 << 20);
        let first = Turn::take(&e.core, &HashSet::new()).unwrap();
        let chosen = e.core.flushes.turns.lock().next.front().unwrap().clone();
        gone(&e, &chosen.table.name()).unwrap();
        let next = Turn::take(&e.core, &HashSet::new()).unwrap();
        assert_ne!(next.tree().id(), chosen.tree.id());
        assert_ne!(next.tree().id(), first.tree().id());
    }
}

/// Writers wait by what was seen, and go on meanwhile.
#[test]
fn what_was_chosen_does_not_count_for_long_while_memory_is_short() {
    let time = SimHost::new();
    let e = many_tables(Options { host: time.clone(), ..options() });
    e.create_table("large", &def()).unwrap();
    commit_rows(&mut e.session(), &e.open_table("large").unwrap(), 1000);
    e.set_memory_limit(4 << 20);
    let take = || Turn::take(&e.core, &HashSet::new()).unwrap();
    let name = |turn: &Turn<'_>| turn.table().name();
    // What comes first is left as it is, and would come first again.
    let first = take();
    assert_eq!(name(&first), "large");
    let before = looks(&e);
    let second = take();
    drop(first);
    let third = take();
    assert_eq!(looks(&e), before);
    assert!(name(&second) != "large" && name(&third) != "large");
    time.pass(TICK * 2);
    assert_eq!(name(&take()), "large");
    assert!(looks(&e) > before && e.core.flushes.flushable_bytes() > 3 << 20);
}

/// The largest come first for as long as memory is short. Where the log is nearly as long as it may be, those that keep it take turns with them.
#[test]
fn a_long_log_does_not_wait_until_memory_is_not_short_any_more() {
    let e = many_tables(Options { recovery_target_bytes: Some(4 << 20), ..options() });
    e.create_table("large", &def()).unwrap();
    let large = e.open_table("large").unwrap();
    let first = |e: &Engine| {
        e.core.flushes.forget();
        Turn::take(&e.core, &HashSet::new()).unwrap().table().name()
    };
    // What an inline engine flushes with each commit is left to turns.
    let commit = || crate::sim_hooks::quietly(|| drop(commit_rows(&mut e.session(), &large, 1000)));
    e.set_memory_limit(4 << 20);
    commit();
    assert!(!pressure::log_is_long(&e.core));
    assert_eq!(first(&e), "large");
    while !pressure::log_is_long(&e.core) {
        commit();
    }
    assert_eq!(first(&e), "t0");
    let others = e.core.flushes.turns.lock().next.iter().map(|t| t.table.name()).collect::<Vec<_>>();
    assert_eq!(others.iter().position(|name| name == "large"), Some(0), "{others:?}");
}

/// The time of a look, here 20 ms or more, is a small share of all.
#[test]
fn looks_that_take_long_are_rare_unless_memory_is_short() {
    let time = SimHost::new();
    let host = Arc::new(Slow(time.clone()));
    let e = many_tables(Options { background: Background::Threads, host, ..options() });
    let (before, rounds) = (looks(&e), 100);
    let none = HashSet::new();
    for _ in 0..rounds {
        time.pass(Duration::from_millis(100));
        assert!(Turn::take(&e.core, &none).is_none(), "nothing is to be flushed");
    }
    let looked = (looks(&e) - before) / TABLES;
    assert!((5..=rounds / 8).contains(&looked), "all trees were looked at {looked} times in {rounds} rounds");
    e.set_memory_limit(4 << 20);
    assert!(Turn::take(&e.core, &none).is_some(), "memory is short");
}
