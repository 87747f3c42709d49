use super::calls::{ALL_TIMED, SAMPLED};
use super::*;
use crate::wait::timed;
use std::sync::Arc;

/// A recorder whose thread was ready for 5 more nanoseconds each time it is asked, and how often it was.
fn recorder() -> (Box<Recorder>, Arc<AtomicU64>) {
    let asked = Arc::new(AtomicU64::new(0));
    let count = asked.clone();
    (Recorder::new(Box::new(move || Some(5 * count.fetch_add(1, Ordering::Relaxed)))), asked)
}

#[test]
fn a_panic_of_the_recorder_is_its_own_end_and_nobody_elses() {
    let (mut recorder, _) = recorder();
    let id = recorder.id();
    let mut readings = 2; // the statement's begin, and one wait's
    recorder.set_ready(Box::new(move || {
        readings = u64::checked_sub(readings, 1).unwrap();
        Some(0)
    }));
    begin_statement(recorder);
    assert!(is_on() && !has_failed(id));
    begin_call();
    assert_eq!(timed(WaitEvent::RowLock, || 5), 5);
    end_call();
    assert!(!is_on() && has_failed(id) && end_statement_of(id).is_none() && with_recorder(|_| ()).is_none());
    // The thread's next one works.
    begin_statement(Recorder::new(Box::new(|| None)));
    timed(WaitEvent::RowLock, || ());
    assert_eq!(end_statement().unwrap().0.take_noted().len(), 1);
    begin_statement(Recorder::new(Box::new(|| panic!("the clock"))));
    assert!(!is_on());
}

#[test]
fn nobody_notes_what_is_not_traced() {
    assert!(!is_on() && end_statement().is_none());
    timed(WaitEvent::RunRead, || place(Path::new("a"), 0, 1));
    begin_call();
    end_call();
    end_binlog();
    assert!(with_recorder(|_| ()).is_none() && !is_filling());
}

#[test]
fn waits_are_noted_with_their_places_and_inner_ones_are_marked() {
    begin_statement(recorder().0);
    timed(WaitEvent::RunRead, || {
        place(Path::new("runs/7"), 4096, 512);
        answered_by(Source::PageCache);
    });
    timed(WaitEvent::WalDurable, || {
        timed(WaitEvent::WalWrite, || place(Path::new("wal/1"), 0, 100));
        timed(WaitEvent::WalSync, || place(Path::new("runs/7"), 0, 0));
    });
    begin_binlog();
    end_binlog();
    end_binlog();
    let (mut recorder, totals) = end_statement().unwrap();
    let noted = recorder.take_noted();
    let events: Vec<_> = noted.iter().map(|n| (n.event, n.nested, n.place.map(|p| p.file))).collect();
    assert_eq!(
        events,
        [
            (Some(WaitEvent::RunRead), false, Some(0)),
            (Some(WaitEvent::WalWrite), true, Some(1)),
            (Some(WaitEvent::WalSync), true, Some(0)),
            (Some(WaitEvent::WalDurable), false, None),
            (None, false, None),
        ]
    );
    assert_eq!(recorder.paths(), [Path::new("runs/7"), Path::new("wal/1")]);
    assert_eq!((noted[0].source, noted[0].place.unwrap().offset), (Some(Source::PageCache), 4096));
    assert!(noted[3].ns >= noted[1].ns + noted[2].ns && noted[1].begin_ns >= noted[3].begin_ns);
    let outer: u64 = noted.iter().filter(|n| !n.nested).map(|n| n.ns).sum();
    assert!(totals.ns >= outer && totals.cpu_ns >= totals.waits_cpu_ns);
    assert_eq!(totals.waits_cpu_ns, noted.iter().map(|n| n.cpu_ns).sum::<u64>());
    assert!(recorder.take_noted().is_empty() && !is_on());
}

#[test]
fn what_another_statement_left_in_the_thread_is_not_taken() {
    let (mine, other) = (recorder().0, recorder().0);
    let (mine_id, other_id) = (mine.id(), other.id());
    assert!(mine_id != other_id);
    begin_statement(other);
    assert!(end_statement_of(mine_id).is_none() && is_on());
    assert_eq!(end_statement_of(other_id).unwrap().0.id(), other_id);
    assert!(end_statement_of(other_id).is_none() && !is_on());
}

#[test]
fn time_ready_is_asked_for_where_the_thread_may_sleep() {
    let (recorder, asked) = recorder();
    begin_statement(recorder);
    timed(WaitEvent::RunRead, || ()); // from the page cache: not asked
    assert_eq!(asked.load(Ordering::Relaxed), 1);
    timed(WaitEvent::RunRead, will_sleep);
    timed(WaitEvent::WalSync, || timed(WaitEvent::WalRead, will_sleep));
    let (mut recorder, totals) = end_statement().unwrap();
    let ready: Vec<u64> = recorder.take_noted().iter().map(|n| n.ready_ns).collect();
    assert_eq!(ready, [0, 5, 0, 5]);
    assert_eq!((totals.ready_ns, totals.waits_ready_ns), (25, 10));
}

#[test]
fn what_does_not_fit_is_summed_by_its_kind() {
    begin_statement(recorder().0);
    let more = 1000;
    for _ in 0..MOST_NOTED + more {
        timed(WaitEvent::RunRead, || place(Path::new("r"), 0, 1));
    }
    timed(WaitEvent::RunSync, || ());
    assert!(is_filling());
    let (mut recorder, totals) = end_statement().unwrap();
    let (noted, summed) = (recorder.take_noted(), recorder.take_summed());
    assert_eq!(noted.len(), MOST_NOTED);
    let sums: Vec<_> = summed.iter().map(|n| (n.event, n.count, n.place)).collect();
    assert_eq!(sums, [(Some(WaitEvent::RunRead), more as u64, None), (Some(WaitEvent::RunSync), 1, None)]);
    // Where others had the processor meanwhile such reads took longer than this thread ran.
    let cpu_ns: u64 = noted.iter().chain(&summed).map(|n| n.cpu_ns).sum();
    assert_eq!(cpu_ns.min(totals.cpu_ns), totals.waits_cpu_ns);
    assert!(recorder.take_noted().is_empty() && recorder.take_summed().is_empty());
}

#[test]
fn what_it_holds_is_told_and_grows_with_what_is_noted() {
    let held = Arc::new(AtomicU64::new(0));
    let told = held.clone();
    let (mut recorder, _) = recorder();
    recorder.set_on_held(Box::new(move |bytes| told.store(bytes, Ordering::Relaxed)));
    let held = || held.load(Ordering::Relaxed) as usize;
    let idle = held();
    let room = |waits: usize| idle + waits * size_of::<Noted>();
    assert!(idle < 1024, "{idle}");
    begin_statement(recorder);
    assert_eq!(held(), idle);
    timed(WaitEvent::RunRead, || ());
    assert_eq!(held(), room(FIRST_NOTED));
    (0..FIRST_NOTED).for_each(|_| timed(WaitEvent::RunRead, || ()));
    assert_eq!(held(), room(2 * FIRST_NOTED));
    (0..2 * MOST_NOTED).for_each(|_| timed(WaitEvent::RunRead, || ()));
    assert_eq!(held(), room(MOST_NOTED));
    // What was taken is held until it is given back, and there is room for as many as ever.
    let noted = with_recorder(Recorder::take_noted).unwrap();
    timed(WaitEvent::RunRead, || ());
    assert_eq!((noted.len(), held()), (MOST_NOTED, room(MOST_NOTED + FIRST_NOTED)));
    with_recorder(|r| r.give_back(noted, false));
    assert_eq!(held(), room(FIRST_NOTED));
    (0..MOST_NOTED).for_each(|_| timed(WaitEvent::RunRead, || ()));
    let (mut recorder, _) = end_statement().unwrap();
    let noted = recorder.take_noted();
    assert_eq!(noted.len(), MOST_NOTED);
    recorder.give_back(noted, true);
    assert_eq!(held(), idle);
    // A small one's is there for the next.
    begin_statement(recorder);
    timed(WaitEvent::RunRead, || ());
    let (mut recorder, _) = end_statement().unwrap();
    let noted = recorder.take_noted();
    recorder.give_back(noted, true);
    assert_eq!(held(), room(FIRST_NOTED));
}

fn wanted(table: &str) -> Wanted {
    Wanted {
        table: table.into(),
        kind: "row",
        key: None,
        connection: 5,
        others: 0,
        with: vec![],
        later: 0,
        then: vec![],
    }
}

#[test]
fn what_was_wanted_is_of_its_wait_and_bounded() {
    wants(|| panic!("nobody asks"));
    begin_statement(recorder().0);
    timed(WaitEvent::RunRead, || ());
    timed(WaitEvent::RowLock, || {
        wants(|| Some(wanted("a")));
        timed(WaitEvent::RunRead, || ());
    });
    timed(WaitEvent::RowLock, || wants(|| None));
    timed(WaitEvent::KeyLock, || wants(|| Some(wanted("b"))));
    wants(|| Some(wanted("no wait")));
    let taken = with_recorder(|r| (r.take_noted(), r.take_wanted())).unwrap();
    let of: Vec<_> = taken.0.iter().map(|n| n.wanted.map(|at| taken.1[at].table.as_str())).collect();
    assert_eq!(of, [None, None, Some("a"), None, Some("b")]);
    assert_eq!(taken.1.len(), 2);
    // What does not fit is waited for without words; there is room again once they are taken.
    let long = "x".repeat(1000);
    (0..100).for_each(|_| timed(WaitEvent::RowLock, || wants(|| Some(wanted(&long)))));
    let taken = with_recorder(|r| (r.take_noted(), r.take_wanted())).unwrap();
    let told = taken.0.iter().filter(|n| n.wanted.is_some()).count();
    assert!((50..65).contains(&told) && taken.1.len() == told && taken.0.len() == 100, "{told} told");
    timed(WaitEvent::RowLock, || wants(|| Some(wanted(&long))));
    let (mut recorder, _) = end_statement().unwrap();
    assert_eq!((recorder.take_noted()[0].wanted, recorder.take_wanted()), (Some(0), vec![wanted(&long)]));
}

#[test]
fn what_other_threads_took_is_told_once() {
    assert!(helped().is_none());
    begin_statement(recorder().0);
    let session = helped().unwrap();
    let busy = move || session.helps(|| std::thread::sleep(std::time::Duration::from_millis(2)));
    std::thread::scope(|scope| (0..2).for_each(|_| drop(scope.spawn(busy.clone()))));
    let (recorder, totals) = end_statement().unwrap();
    assert!(totals.helped_ns >= 4_000_000, "{totals:?}");
    begin_statement(recorder);
    assert_eq!(end_statement().unwrap().1.helped_ns, 0);
}

#[test]
fn the_engines_processor_time_is_that_of_its_calls() {
    let busy = |ns| {
        let began = thread_cpu_ns();
        while thread_cpu_ns() - began < ns {}
    };
    begin_statement(recorder().0);
    busy(2_000_000); // the server's
    begin_call();
    busy(3_000_000);
    timed(WaitEvent::RunSync, || busy(4_000_000)); // a wait's
    end_call();
    let (_, totals) = end_statement().unwrap();
    assert!(totals.engine_ns >= 3_000_000 && totals.waits_cpu_ns >= 4_000_000, "{totals:?}");
    assert!(totals.cpu_ns >= totals.engine_ns + totals.waits_cpu_ns + 2_000_000, "{totals:?}");

    begin_statement(recorder().0);
    let calls = ALL_TIMED + 16 * SAMPLED;
    for _ in 0..calls {
        begin_call();
        busy(10_000);
        end_call();
    }
    let (_, totals) = end_statement().unwrap();
    // But for what reading the clock takes, of which it is known about.
    assert!(totals.engine_ns >= calls * 9_000 && totals.engine_ns <= totals.cpu_ns, "{totals:?}");

    // What is called often and does nothing is not told to have done more than there was.
    begin_statement(recorder().0);
    for _ in 0..200_000 {
        begin_call();
        end_call();
    }
    let (_, totals) = end_statement().unwrap();
    assert!(totals.engine_ns + totals.waits_cpu_ns <= totals.cpu_ns, "{totals:?}");
}

/// Such a read has taken long all the same if others had the processor meanwhile.
#[test]
fn parts_are_no_more_than_the_whole_where_a_read_did_not_run() {
    let ready = Arc::new(AtomicU64::new(0));
    let told = ready.clone();
    begin_statement(Recorder::new(Box::new(move || Some(told.load(Ordering::Relaxed)))));
    begin_call();
    timed(WaitEvent::RunRead, || {
        std::thread::sleep(std::time::Duration::from_millis(50));
        ready.store(50_000_000, Ordering::Relaxed);
    });
    end_call();
    let (mut recorder, totals) = end_statement().unwrap();
    let [read] = recorder.take_noted()[..] else { panic!("one wait") };
    assert!(read.cpu_ns == read.ns && read.ns >= 50_000_000 && read.ns > totals.cpu_ns, "{read:?} {totals:?}");
    assert!(totals.waits_cpu_ns + totals.engine_ns <= totals.cpu_ns, "{totals:?}");
    assert_eq!(totals.waits_ready_ns, (read.cpu_ns - totals.cpu_ns).min(totals.ready_ns));
}
