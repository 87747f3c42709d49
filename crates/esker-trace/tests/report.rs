//! The report: sums that are known, broken files, several statements and parts, memory.

#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use esker_trace::format::*;
use esker_trace::Options;

/// Compares with a file beside this one; `ESKER_RENEW_GOLDEN=1` writes it anew.
fn golden(name: &str, text: &str) {
    let path = format!("{}/tests/golden/{name}", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("ESKER_RENEW_GOLDEN").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(text == expected, "{path} is not what is printed now:\n{text}");
    assert!(text.lines().all(|l| l.chars().count() <= 100), "wider than 100 columns:\n{text}");
}

#[test]
fn a_statement_is_accounted_for_to_the_microsecond() {
    let file = example().read();
    let [statement] = &file.statements[..] else { panic!("{file:#?}") };
    let account = &statement.account;
    let (device, cache) = example_sums();
    let ms = 1_000_000;
    // The processor's time is without that within waits; so is the time ready but not run.
    let known = [
        ("read device", device),
        ("read page cache", cache),
        ("processor, server", 400 * ms),
        ("processor, engine", 200 * ms),
        ("ready, not run", 30 * ms),
    ];
    for (what, sum_ns) in known {
        assert_eq!(row(&account.rows, what).sum_ns, sum_ns, "{what}");
    }
    let unaccounted = 1240 * ms - device - cache - 630 * ms;
    assert_eq!((account.unaccounted_ns, account.rows.last().unwrap().sum_ns), (Some(unaccounted), unaccounted));
    assert_eq!(account.rows.iter().map(|r| r.sum_ns).sum::<i64>(), account.wall_ns);
    let read = row(&account.rows, "read device");
    assert_eq!((read.count, read.max_ns, read.bytes), (Some(2000), Some(1_523_600), Some(2000 * 16_384)));
    assert!(read.p99_ns.unwrap().abs_diff(1_515_600) < 2000, "{read:?}");
    assert_eq!(statement.device.modes.iter().map(|m| m.count).collect::<Vec<_>>(), [80, 1860, 60]);
    assert_eq!(statement.device.powers.iter().map(|p| p.count).sum::<u64>(), 2000);
    assert_eq!(statement.slowest[0].ns, 1_523_600);
    golden("statement.txt", &text(&file));
}

#[test]
fn waits_within_others_are_not_added() {
    let mut lines = Lines::default();
    lines.add(trace()).add(Statement { q: 8841, s: Some(1), tim: 0, ..Statement::default() });
    lines.add(Wait { within: true, cpu: Some(3), ready: Some(2), ..wait(20 * US, 700 * US, "log file device sync") });
    lines.add(Wait { within: true, ..wait(750 * US, 30 * US, "log file parallel write") });
    lines.add(wait(10 * US, 800 * US, "log file sync"));
    lines.add(End { cpu: Some(100 * US), ready: Some(40 * US), ..end(1000 * US, 1000 * US) });
    let file = lines.read();
    let account = &file.statements[0].account;
    assert_eq!(account.unaccounted_ns, Some(60_000));
    let outer = row(&account.rows, "log file sync");
    let nested: Vec<(&str, u64)> = outer.nested.iter().map(|n| (n.what.as_str(), n.sum_ns)).collect();
    assert_eq!(nested, [("log file device sync", 700 * US), ("log file parallel write", 30 * US)]);
    assert_eq!(account.within.len(), 2);
    assert_eq!(row(&account.within, "log file device sync").sum_ns, 700_000);
    assert_eq!(file.total.unaccounted_ns, Some(60_000));
}

#[test]
fn more_than_the_wall_shows_as_less_than_nothing() {
    let mut lines = Lines::default();
    lines.add(trace()).add(Statement { q: 8841, s: Some(1), tim: 0, ..Statement::default() });
    lines.add(wait(0, 900 * US, "log file sync"));
    lines.add(End { cpu: Some(110 * US), ready: Some(0), ..end(1000 * US, 1000 * US) });
    let file = lines.read();
    assert_eq!(file.statements[0].account.unaccounted_ns, Some(-10_000));
    assert!(text(&file).contains("unaccounted                         -0.000010  -1.0\n"), "{}", text(&file));
}

#[test]
fn what_is_not_told_is_unaccounted_and_said_to_be() {
    let mut lines = Lines::default();
    lines.add(trace()).add(wait(0, 400 * US, "bulk writer")).add(End {
        // Of times that are not told, parts are nothing.
        waits_cpu: Some(7),
        waits_ready: Some(5),
        ..end(1000 * US, 1000 * US)
    });
    let file = lines.read();
    let statement = &file.statements[0];
    assert_eq!(statement.account.rows.iter().map(|r| r.sum_ns).sum::<i64>(), 1_000_000);
    assert_eq!((statement.begun, statement.account.unaccounted_ns), (false, Some(600_000)));
    let text = text(&file);
    for said in
        ["its beginning is not in the trace", "processor time is not known", "time ready but not run is not known"]
    {
        assert!(text.contains(said), "{said}: {text}");
    }
}

#[test]
fn a_killed_servers_file_is_read_as_far_as_it_goes() {
    let whole = example().0;
    // In the middle of the statement, in the middle of a line.
    let cut = whole.char_indices().nth(whole.len() / 2).unwrap().0;
    let file = read(&whole[..cut], 3);
    let [statement] = &file.statements[..] else { panic!("{file:#?}") };
    let waits = whole[..cut].lines().filter(|l| l.starts_with("WAIT")).count() as u64 - 1;
    let counted: u64 = statement.account.rows.iter().filter_map(|r| r.count).sum();
    assert_eq!((statement.ended, counted, statement.account.unaccounted_ns), (false, waits, None));
    let lines = whole[..cut].lines().count() as u64;
    assert_eq!((file.warnings.len(), file.warnings[0].line), (1, lines));
    assert_eq!(file.outside.iter().filter_map(|r| r.count).sum::<u64>(), waits);
    let text = text(&file);
    assert!(text.contains(&format!("warning: line {lines}: the file ends within this line")), "{text}");
    assert!(text.contains("no end in the trace"), "{text}");
}

#[test]
fn broken_lines_are_told_and_the_rest_counts() {
    let whole = example().0;
    let mut lines: Vec<String> = whole.lines().map(str::to_owned).collect();
    lines[100] = lines[100][..40].to_owned();
    lines[200] = "\u{1}\u{2}".into();
    lines.insert(300, "LATER x=1".into());
    let file = read(&(lines.join("\n") + "\n"), 3);
    assert_eq!(file.warnings.iter().map(|w| w.line).collect::<Vec<_>>(), [101, 201]);
    let counted: u64 = file.statements[0].account.rows.iter().filter_map(|r| r.count).sum();
    assert_eq!(counted, 3198);
    let mut bytes = whole.replace("'shop'", "'sh\u{1}p'").into_bytes();
    let at = bytes.iter().position(|b| *b == 1).unwrap();
    bytes[at] = 0xff;
    let options = Options { query: None, top: 3 };
    let file = esker_trace::read("x", &mut &bytes[..], &options).unwrap();
    assert_eq!((file.warnings.len(), file.statements[0].db.as_deref()), (1, Some("sh\u{fffd}p")));
}

/// Every text of a line with what clears a terminal in it.
fn odd(line: &str) -> String {
    let odd = |word: &str| match word.split_once('=') {
        Some((key, value)) if value.starts_with('\'') => format!("{key}='\u{1b}[2J\u{9b}1m{}", &value[1..]),
        Some((key, value)) if value.starts_with(char::is_alphabetic) => format!("{key}='\u{1b}[2J\u{9b}1m{value}'"),
        _ => word.to_owned(),
    };
    line.split(' ').map(odd).collect::<Vec<_>>().join(" ")
}

#[test]
fn no_name_in_a_file_moves_the_cursor() {
    let call = "CALL q=8841 s=3 tim=2 tab='shop.parts' fn=index_next\nCALLS";
    let lines = include_str!("lines.txt").replace("CALLS", call).replace(" in=1", "");
    let whole: String = lines.lines().map(|l| odd(l) + "\n").collect();
    let another = "STATEMENT q=8842 s=4 tim=12500000\nEND q=8842 s=4 tim=12500001 ela=1\n";
    for bytes in [whole.clone(), whole + another] {
        let options = Options { query: None, top: 3 };
        let file = esker_trace::read("a\u{1b}[2Jfile", &mut bytes.as_bytes(), &options).unwrap();
        let text = text(&file);
        assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "{text:?}");
        for said in ["a [2Jfile\n", "calls [2J 1mshop.parts: [2J 1mindex_next", "([2J 1mshop.orders"] {
            assert!(text.contains(said), "{said}: {text}");
        }
        assert_eq!(text.contains("slowest reads"), bytes.ends_with(another), "{text}");
    }
}

#[test]
fn a_damaged_first_line_costs_no_more_than_itself() {
    let whole = example().0;
    let first = whole.lines().next().unwrap();
    let account = |file: &esker_trace::report::File| serde_json::to_string(&file.total).unwrap();
    let expected = account(&read(&whole, 3));
    // What is damaged, and what is known nevertheless.
    let cases = [
        (
            "conn=7",
            "conn=7x",
            None,
            Some("app@localhost"),
            "line 1: byte 22: conn: not a number from 0 to 2^64-1; what else",
        ),
        (
            "version=1",
            "ver\u{1}sion=1",
            Some(7),
            Some("app@localhost"),
            "line 1: byte 10: expected key=value; what else",
        ),
        ("user='app@localhost'", "user='app@local\\host'", Some(7), None, "after a backslash; what else"),
        ("'2026-11-27T02:30:00.123456Z' level=FULL tim=0", "'2026", Some(7), Some("app@localhost"), "within quotes"),
    ];
    for (from, to, conn, user, said) in cases {
        let damaged = whole.replacen(first, &first.replace(from, to), 1);
        let file = read(&damaged, 3);
        assert_ne!(damaged, whole);
        assert_eq!((file.parts[0].conn, file.parts[0].user.as_deref(), file.parts.len()), (conn, user, 1), "{to}");
        assert_eq!((account(&file), file.statements[0].conn, file.warnings.len()), (expected.clone(), conn, 1), "{to}");
        let text = text(&file);
        assert!(text.contains(said), "{to}: {text}");
        assert!(conn.is_some() || text.contains("conn ?"), "{text}");
    }
    // Nothing of it is left.
    for gone in ["", "TRAXE version=1 conn=7\n", "\u{1}RACE version=1 conn=7\n"] {
        let file = read(&whole.replacen(&format!("{first}\n"), gone, 1), 3);
        assert_eq!((account(&file), file.parts.len(), file.is_empty()), (expected.clone(), 0, false));
        let warning = &file.warnings.last().unwrap();
        assert_eq!(warning.line, if gone.is_empty() { 1 } else { 2 });
        assert!(warning.text.starts_with("no TRACE line before it"), "{warning:?}");
    }
    assert!(read("to whom it may concern\nFILE file=3\n", 3).is_empty());
}

#[test]
fn another_sessions_damaged_first_line_ends_what_was_open() {
    let whole = example().0;
    let open = whole[..whole.find("END").unwrap()].to_owned();
    let file = read(&(open + &whole.replacen("conn=7", "conn=x", 1)), 3);
    assert_eq!((file.statements_ended, file.statements_unfinished), (1, 1));
    assert_eq!(file.total.wall_ns, 1_240_000_000);
    assert_eq!(file.parts.iter().map(|p| p.conn).collect::<Vec<_>>(), [Some(7), None]);
}

#[test]
fn a_limit_is_no_fault_of_the_estimate() {
    let limited = example().0.replace("\\'2014-01-01\\''", "1 LIMIT 5'").replace("498133.00", "5.00");
    assert!(limited.contains("LIMIT 5'"), "{}", &limited[..400]);
    let file = read(&limited, 3);
    let line = &file.statements[0].plan[0];
    assert_eq!((line.times_off, line.cut_short), (None, Some("LIMIT")));
    let text = text(&file);
    assert!(text.contains("<- fewer came, may have ended early: LIMIT") && !text.contains("ANALYZE"), "{text}");
    let accused = read(&limited.replace(" LIMIT 5", ""), 3);
    assert_eq!(accused.statements[0].plan[0].times_off, Some(240.0));
}

/// Three statements, one within a procedure, one without an end; two parts, and another server.
fn several() -> Lines {
    let mut lines = Lines::default();
    let of = |q, s, tim, ela, nam: &'static str| Wait { q: Some(q), s: Some(s), ..wait(tim, ela, nam) };
    let begin = |q, s, tim, text: &'static str| Statement { q, s: Some(s), tim, db: None, text: Some(text.into()) };
    let ended = |q, s, tim, ela, cpu, waits_cpu| {
        let (events, dropped) = (Some(5), Some(0));
        let some = |us| Some(us * US);
        End {
            q,
            s: Some(s),
            cpu: some(cpu),
            ready: Some(0),
            waits_cpu: some(waits_cpu),
            events,
            dropped,
            ..end(tim, ela)
        }
    };
    lines.add(trace()).add(begin(1, 1, 0, "CALL p()"));
    lines.add(of(1, 1, 10 * US, 50 * US, "library cache lock"));
    lines.add(begin(2, 2, 100 * US, "INSERT INTO t VALUES (1)"));
    let lock = Wait {
        class: Some("Application".into()),
        obj: Some("shop.t".into()),
        lock: Some("row".into()),
        key: Some("PRIMARY(17,'it''s')".into()),
        by: Some(9),
        ..of(2, 2, 110 * US, 300 * US, "enq: TX - row lock contention")
    };
    lines.add(lock).add(ended(2, 2, 500 * US, 400 * US, 60, 10));
    lines.add(ended(1, 1, 1000 * US, 1000 * US, 200, 15));
    lines.add(Wait { q: None, s: None, ..wait(1100 * US, 7 * US, "log file sync") });
    lines.add(Statement { q: 3, s: Some(3), tim: 1200 * US, db: None, text: Some("SET esker_trace = OFF".into()) });
    lines.add(Trace { tim: Some(5 * SECOND), level: Some("WAITS".into()), ..trace() });
    lines.add(begin(4, 4, 5 * SECOND, "COMMIT")).add(of(4, 4, 5 * SECOND, 2000 * US, "binlog"));
    lines.add(ended(4, 4, 5 * SECOND + 2500 * US, 2500 * US, 300, 0));
    lines.add(Lost { tim: Some(6 * SECOND), why: Some("the disk is full".into()) });
    lines.add(Trace { pid: Some(13), ..trace() }).add(begin(1, 1, 0, "SELECT 1"));
    lines.add(ended(1, 1, 100 * US, 100 * US, 100, 0));
    lines
}

#[test]
fn statements_within_others_count_once() {
    let file = several().read();
    assert_eq!((file.statements_ended, file.statements_unfinished, file.parts.len()), (4, 1, 3));
    // 1000 us of the procedure, which holds 400 of its statement, 2500 and 100.
    assert_eq!(file.total.wall_ns, 3_600_000);
    assert_eq!(file.total.rows.iter().map(|r| r.sum_ns).sum::<i64>(), 3_600_000);
    assert_eq!(row(&file.total.rows, "enq: TX - row lock contention").sum_ns, 300_000);
    assert_eq!(row(&file.total.rows, "processor").sum_ns, 185_000 + 300_000 + 100_000);
    assert_eq!(
        file.outside.iter().map(|r| (r.what.as_str(), r.sum_ns)).collect::<Vec<_>>(),
        [("log file sync", 7_000)]
    );
    let procedure = file.statements.iter().find(|s| s.text.as_deref() == Some("CALL p()")).unwrap();
    assert_eq!(
        (procedure.statements_within, procedure.account.unaccounted_ns),
        (1, Some(1_000_000 - 350_000 - 185_000))
    );
    let inner = read(&several().0, 10);
    let inner = inner.statements.iter().find(|s| s.query == Some(2)).unwrap();
    assert_eq!((inner.account.unaccounted_ns, inner.locks[0].sum_ns), (Some(50_000), 300_000));
    let lock = &inner.locks[0];
    assert_eq!(
        (lock.object.as_deref(), lock.lock.as_deref(), lock.key.as_deref(), lock.by),
        (Some("shop.t"), Some("row"), Some("PRIMARY(17,'it''s')"), Some(9))
    );
    golden("several.txt", &text(&file));
}

/// The line of a lock, without breaks.
fn locks_of(file: &esker_trace::report::File) -> String {
    let text = text(file);
    let begin = text.find("  locks:").unwrap();
    text[begin..].lines().map(str::trim).collect::<Vec<_>>().join(" ")
}

#[test]
fn a_lock_is_told_by_what_was_waited_for_and_whom() {
    let mut lines = Lines::default();
    lines.add(trace()).add(Statement { q: 8841, s: Some(1), tim: 0, ..Statement::default() });
    let lock = |tim, key: &'static str, by| Wait {
        class: Some("Application".into()),
        obj: Some("shop.t".into()),
        lock: Some("key".into()),
        key: Some(key.into()),
        by: Some(by),
        ..wait(tim, 100 * US, "enq: TX - unique key")
    };
    lines.add(lock(0, "a(1)", 5)).add(lock(200 * US, "a(1)", 5));
    // Another holder, another key: by themselves.
    lines.add(lock(400 * US, "a(1)", 0)).add(lock(600 * US, "a(2)", 5));
    lines.add(end(1000 * US, 1000 * US));
    let file = lines.read();
    let counts: Vec<u64> = file.statements[0].locks.iter().map(|l| l.count).collect();
    assert_eq!(counts, [2, 1, 1]);
    let told = locks_of(&file);
    for words in [
        "waited for enq: TX - unique key on shop.t key a(1) behind connection 5: 2 times, 200 us, longest 100 us",
        "key a(1) behind a transaction without a connection: 1 time",
        "key a(2) behind connection 5: 1 time",
    ] {
        assert!(told.contains(words), "{words}: {told}");
    }
    // However many there are, they are few in memory, and all are counted.
    let mut lines = Lines::default();
    lines.add(trace()).add(Statement { q: 8841, s: Some(1), tim: 0, ..Statement::default() });
    for n in 0..100 {
        lines.add(lock(n, "a", n));
    }
    let file = lines.add(end(1000 * US, 1000 * US)).read();
    let locks = &file.statements[0].locks;
    let others = locks.iter().find(|l| l.what == "others").unwrap();
    assert_eq!((locks.len(), others.count, locks.iter().map(|l| l.count).sum()), (21, 80, 100u64));
}

#[test]
fn all_who_had_a_lock_are_named() {
    let mut lines = Lines::default();
    lines.add(trace()).add(Statement { q: 8841, s: Some(1), tim: 0, ..Statement::default() });
    let lock = |tim, with: &[u64], then: &[u64], later| Wait {
        class: Some("Application".into()),
        by: Some(5),
        others: Some(with.len() as u64),
        with: Some(with.to_vec()),
        later: Some(later),
        then: Some(then.to_vec()),
        ..wait(tim, 100 * US, "enq: TX - row lock contention")
    };
    lines.add(lock(0, &[6], &[7, 0], 2)).add(lock(200 * US, &[8], &[7, 9], 4)).add(end(1000 * US, 1000 * US));
    let file = lines.read();
    let [only] = &file.statements[0].locks[..] else { panic!("they are one") };
    assert_eq!((&only.with[..], only.most_with, &only.then[..], only.most_then), (&[6, 8][..], 1, &[7, 0, 9][..], 4));
    let words =
        "behind connection 5, together with 6 and 8, then behind 7, one without a connection, 9 and 1 more: 2 times";
    assert!(locks_of(&file).contains(words), "{}", locks_of(&file));
    // However many are told: few are kept.
    let mut lines = Lines::default();
    lines.add(trace()).add(Statement { q: 8841, s: Some(1), tim: 0, ..Statement::default() });
    let many: Vec<u64> = (1..1000).collect();
    let file = lines.add(lock(0, &many, &many, 5000)).add(end(1000 * US, 1000 * US)).read();
    let only = &file.statements[0].locks[0];
    assert_eq!((only.with.len(), only.most_with, only.then.len(), only.most_then), (32, 999, 32, 5000));
}

#[test]
fn a_statement_is_known_by_either_number() {
    let mut lines = Lines::default();
    lines.add(trace()).add(Statement { q: 8841, s: Some(1), ..Statement::default() });
    lines.add(Wait { q: None, ..wait(0, 100 * US, "a") }).add(Wait { s: None, ..wait(0, 10 * US, "a") });
    lines.add(End { s: None, ..end(1000 * US, 1000 * US) });
    // Too late: it is no new statement.
    lines.add(wait(0, US, "a"));
    let file = lines.read();
    assert_eq!((file.statements.len(), file.statements_ended, file.statements_unfinished), (1, 1, 0));
    assert_eq!(row(&file.total.rows, "a").sum_ns, 110_000);
    assert_eq!(row(&file.outside, "a").sum_ns, 1_000);
}

#[test]
fn a_text_may_come_after_the_first_events() {
    let mut lines = Lines::default();
    lines.add(trace()).add(wait(20 * US, 100 * US, "a"));
    lines.add(Statement { q: 8841, s: Some(1), tim: 10 * US, db: None, text: Some("SELECT 1".into()) });
    lines.add(wait(200 * US, 10 * US, "a")).add(end(1010 * US, 1000 * US));
    let file = lines.read();
    let [statement] = &file.statements[..] else { panic!("{file:#?}") };
    assert_eq!((statement.begun, statement.at_ns, file.statements_unfinished), (true, 10 * US, 0));
    assert_eq!(row(&statement.account.rows, "a").sum_ns, 110_000);
}

#[test]
fn tracing_that_was_off_in_a_statement_is_said() {
    let mut lines = Lines::default();
    lines.add(trace()).add(Statement { q: 8841, s: Some(1), ..Statement::default() });
    lines.add(Trace { tim: Some(500 * US), ..trace() }).add(end(1000 * US, 1000 * US));
    let file = lines.read();
    assert!(file.statements[0].gap && file.statements_ended == 1, "{file:#?}");
    assert!(text(&file).contains("tracing was off for a part of it"));
}

#[test]
fn the_slowest_are_shown_or_those_that_are_asked_for() {
    let mut lines = Lines::default();
    lines.add(trace());
    for n in 0..1000u64 {
        let (q, s, tim) = (n, Some(n), n * 1_000_000);
        lines.add(Statement { q, s, tim, ..Statement::default() });
        lines.add(End { q, s, ..end(tim + n * US, n * US) });
    }
    let shown = |options: &Options| {
        let file = esker_trace::read("x", &mut lines.0.as_bytes(), options).unwrap();
        file.statements.iter().map(|s| s.query.unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(shown(&Options { query: None, top: 2 }), [999, 998]);
    assert_eq!(shown(&Options { query: Some(17), top: 2 }), [17]);
    assert!(shown(&Options { query: None, top: 0 }).is_empty());
    assert_eq!(lines.read().slowest_statements.len(), 10);
}

#[test]
fn json_has_stable_names() {
    let text = esker_trace::json(&[example().read()]).unwrap();
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    let statement = &json["files"][0]["statements"][0];
    assert_eq!((&json["schema"], &json["schema_version"]), (&"esker-trace".into(), &1.into()));
    assert_eq!(statement["query"], 8841);
    assert_eq!(statement["account"]["wall_ns"], 1_240_000_000);
    assert_eq!(statement["account"]["rows"][0]["what"], "read device");
    assert_eq!(statement["account"]["rows"][0]["sum_ns"], example_sums().0);
    assert_eq!(statement["device"]["modes"][1]["inferred"], "prefetched");
    assert_eq!(statement["plan"][0]["times_off"].as_f64().unwrap().round(), 415.0);
    assert_eq!(statement["calls"][0]["steps"][3]["times"], 498_132);
    let mut names: Vec<String> = Vec::new();
    collect(&json, "", &mut names);
    names.sort();
    names.dedup();
    golden("names.txt", &(names.join("\n") + "\n"));
}

/// The paths of all names.
fn collect(json: &serde_json::Value, path: &str, names: &mut Vec<String>) {
    match json {
        serde_json::Value::Object(all) => all.iter().for_each(|(key, value)| {
            let path = format!("{path}.{key}");
            collect(value, &path, names);
            names.push(path);
        }),
        serde_json::Value::Array(all) => all.iter().for_each(|value| collect(value, &format!("{path}[]"), names)),
        _ => {}
    }
}

/// Of many traces, one behind the other, the first hundred are listed; each statement is its own connection's all the same.
#[test]
fn a_statement_is_of_the_trace_that_it_stands_in() {
    let mut lines = Lines::default();
    for conn in 1..=150 {
        lines.add(Trace { conn, ..trace() }).add(Statement { q: 8841, s: Some(1), ..Statement::default() });
        lines.add(end(0, conn * US));
    }
    let file = lines.read();
    assert_eq!((file.parts.len(), file.statements_ended), (100, 150));
    let slowest = file.statements.iter().max_by_key(|s| s.account.wall_ns).unwrap();
    assert_eq!((slowest.conn, slowest.account.wall_ns), (Some(150), 150_000));
}

/// Blocks of runs begin anywhere in their file, and are told by those of 4096 bytes that they touch.
#[test]
fn blocks_that_share_one_of_4096_bytes_lie_behind_each_other() {
    let sources = |step: u64| {
        let mut lines = Lines::default();
        lines.add(trace()).add(Statement { q: 8841, s: Some(1), ..Statement::default() });
        for n in 0..200 {
            let ela = if n % 2 == 0 { 100 * US } else { 5000 * US };
            let read = wait(n * 6000 * US, ela, "read");
            lines.add(Wait {
                from: Some("device".into()),
                file: Some(1),
                block: Some(n * step),
                blocks: Some(5),
                ..read
            });
        }
        lines.add(end(2_000_000 * US, 2_000_000 * US));
        let file = lines.read();
        file.statements[0].device.modes.iter().map(|mode| mode.inferred).collect::<Vec<_>>()
    };
    assert_eq!(sources(4), [Some("prefetched"), Some("disk")]);
    assert_eq!(sources(5), sources(4));
    assert_eq!(sources(7), [Some("array cache"), Some("disk")]);
}
