//! The file's format: known lines, lines that are broken, and the way there and back of any.
#![allow(clippy::unwrap_used)]

use esker_trace::format::*;
use proptest::prelude::*;
use proptest::strategy::Union;

const LINES: &str = include_str!("lines.txt");

#[test]
fn every_kind_prints_as_it_was_read() {
    for line in LINES.lines() {
        let parsed: Line<'static> = line.parse().unwrap();
        assert!(!matches!(parsed, Line::Other(_)), "{line}");
        assert_eq!(parsed.to_string(), line);
    }
}

#[test]
fn values_are_what_they_say() {
    let wait = Wait {
        tim: 100_000,
        conn: Some(7),
        q: Some(8841),
        s: Some(3),
        nam: "db file sequential read".into(),
        ela: 253_412,
        x: None,
        class: Some("User I/O".into()),
        obj: Some("shop.orders/PRIMARY".into()),
        file: Some(19),
        block: Some(934_517),
        blocks: Some(1),
        bytes: Some(4096),
        from: Some("device".into()),
        cpu: Some(1200),
        ready: Some(3040),
        within: true,
        ..Wait::default()
    };
    assert_eq!(LINES.lines().nth(4).unwrap().parse(), Ok(Line::from(wait)));
    let text = match Line::parse(LINES.lines().nth(1).unwrap()) {
        Ok(Line::Statement(s)) => s.text.unwrap().into_owned(),
        other => panic!("{other:?}"),
    };
    assert_eq!(text, "SELECT 'a\\b'\n\tFROM t");
}

#[test]
fn what_is_not_known_is_passed_over() {
    assert_eq!(Line::parse("LATER x=1 ?"), Ok(Line::Other("LATER x=1 ?".into())));
    assert_eq!(Line::parse(" \r"), Ok(Line::Other("".into())));
    let lost = Lost { tim: Some(1000), why: Some("a".into()) };
    assert_eq!(Line::parse("LOST later='x y' tim=7  why=a tim=1 more=-0.5e+3\r"), Ok(lost.into()));
}

#[test]
fn a_broken_line_says_what_and_where() {
    let cases = [
        ("wait tim=1", 1, "a line begins with a keyword in capital letters"),
        ("WAIT", 1, "WAIT without tim"),
        ("WAIT tim=1 nam='x'", 1, "WAIT without ela"),
        ("WAIT tim", 9, "expected key=value"),
        ("WAIT tim=", 10, "expected a value"),
        ("WAIT tim=1 nam='db file seq", 28, "the line ends within quotes"),
        ("LOST why='a\\x'", 13, "expected one of \\ ' n r t after a backslash"),
        ("LOST why='a'b", 13, "expected a space after the value"),
        ("LOST why=a(b)", 11, "expected a space after the value"),
        ("LOST tim=1.2345", 10, "tim: not a time in microseconds with up to three decimals"),
        ("LOST tim=-1", 10, "tim: not a time in microseconds with up to three decimals"),
        ("LOST tim=18446744073709552", 10, "tim: not a time in microseconds with up to three decimals"),
        ("LOST tim=1.", 10, "tim: not a time in microseconds with up to three decimals"),
        ("CALLS q=1.5", 9, "q: not a number from 0 to 2^64-1"),
        ("CALLS q=18446744073709551616", 9, "q: not a number from 0 to 2^64-1"),
        ("PLAN none=2", 11, "none: neither 0 nor 1"),
        ("WAIT tim=1 nam='a' ela=1 then=1++2", 31, "then: not numbers with + between them"),
        // Two servers' lines in one, where the first was killed.
        ("LOST tim=12TRACE version=1 conn=7", 10, "tim: not a time in microseconds with up to three decimals"),
        ("LOST tim=12 TRACE version=1 conn=7", 13, "expected key=value"),
    ];
    for (line, at, what) in cases {
        assert_eq!(Line::parse(line), Err(ParseError { at, what: what.into() }), "{line}");
    }
    assert_eq!(Line::parse("WAIT").unwrap_err().to_string(), "byte 1: WAIT without tim");
}

#[test]
fn the_greatest_time_fits() {
    let lost = Lost { tim: Some(u64::MAX), why: None };
    assert_eq!(lost.to_string(), "LOST tim=18446744073709551.615");
    assert_eq!(lost.to_string().parse(), Ok(Line::Lost(lost)));
}

/// Any text, with more of what must be escaped.
fn text() -> impl Strategy<Value = Str<'static>> {
    let piece = prop_oneof![any::<String>(), "[\\\\'\n\r\t =a]{0,6}", "[A-Za-z0-9_./#@+-]{1,9}"];
    piece.prop_map(Str::Owned)
}

fn may<T: Clone + std::fmt::Debug + 'static>(of: impl Strategy<Value = T> + 'static) -> BoxedStrategy<Option<T>> {
    proptest::option::of(of).boxed()
}

fn numbers<const N: usize>() -> impl Strategy<Value = [Option<u64>; N]> {
    let number = prop_oneof![any::<u64>(), 0u64..2_000];
    proptest::collection::vec(may(number), N).prop_map(|v| <[_; N]>::try_from(v).unwrap())
}

fn wait() -> impl Strategy<Value = Line<'static>> {
    let texts = proptest::collection::vec(may(text()), 5);
    let list = || may(proptest::collection::vec(any::<u64>(), 1..5));
    (any::<u64>(), text(), any::<u64>(), numbers(), texts, any::<bool>(), (numbers::<1>(), list(), list())).prop_map(
        |(tim, nam, ela, numbers, texts, within, (more, with, then))| {
            let [conn, q, s, x, by, others, file, block, blocks, bytes, cpu, ready] = numbers;
            let [class, obj, lock, key, from] = <[_; 5]>::try_from(texts).unwrap();
            let wait = Wait {
                tim,
                conn,
                q,
                s,
                nam,
                ela,
                x,
                class,
                obj,
                file,
                block,
                blocks,
                bytes,
                from,
                cpu,
                ready,
                ..Wait::default()
            };
            let [later, ..] = more;
            Line::Wait(Wait { lock, key, by, others, with, later, then, within, ..wait })
        },
    )
}

fn end() -> impl Strategy<Value = Line<'static>> {
    (any::<(u64, u64, u64, bool)>(), numbers(), numbers(), may(text())).prop_map(
        |((q, tim, ela, killed), a, b, commit)| {
            let [s, cpu, engine, ready, waits_cpu, waits_ready, rows, changed, first_row, err] = a;
            let [events, dropped, overhead, blocks_cached, blocks_missed, blocks_ahead, merge_passes, tmp_disk_tables, tmp_disk_bytes, worker] =
                b;
            let end = End { q, s, tim, ela, cpu, engine, ready, waits_cpu, waits_ready, rows, changed, first_row, err, ..End::default() };
            let end = End { killed, events, dropped, overhead, blocks_cached, blocks_missed, blocks_ahead, merge_passes, ..end };
            Line::End(End { tmp_disk_tables, tmp_disk_bytes, worker, commit, ..end })
        },
    )
}

fn others() -> Vec<BoxedStrategy<Line<'static>>> {
    let n = any::<(u64, u64)>;
    vec![
        (n(), numbers(), may(text()), may(text()), may(text()), may(text()), may(text()))
            .prop_map(|((version, conn), [pid, tim], user, server, esker, began, level)| {
                Trace { version, conn, user, server, esker, pid, began, level, tim }.into()
            })
            .boxed(),
        (n(), numbers(), may(text()), may(text()))
            .prop_map(|((q, tim), [s], db, text)| Statement { q, s, tim, db, text }.into())
            .boxed(),
        (any::<u64>(), may(text()), may(text())).prop_map(|(file, path, obj)| File { file, path, obj }.into()).boxed(),
        (any::<u64>(), numbers(), may(text()), text())
            .prop_map(|(tim, [q, s, x, full, past, last], tab, function)| {
                Call { tim, q, s, tab, function, x, full, past, last }.into()
            })
            .boxed(),
        numbers().prop_map(|[dropped, q, s]| Calls { dropped, q, s }.into()).boxed(),
        (numbers(), may(text()), any::<bool>())
            .prop_map(|([q, s], text, none)| Plan { q, s, text, none }.into())
            .boxed(),
        (numbers(), may(text())).prop_map(|([tim], why)| Lost { tim, why }.into()).boxed(),
    ]
}

fn any_line() -> impl Strategy<Value = Line<'static>> {
    Union::new(others().into_iter().chain([wait().boxed(), end().boxed()]))
}

proptest! {
    #[test]
    fn a_line_comes_back(line in any_line()) {
        let text = line.to_string();
        prop_assert!(!text.contains('\n'));
        prop_assert_eq!(Line::parse(&text), Ok(line));
    }

    #[test]
    fn a_cut_line_is_an_error_or_a_line(line in any_line(), at in any::<proptest::sample::Index>()) {
        let text = line.to_string();
        let cut: String = text.chars().take(at.index(text.chars().count())).collect();
        survives(&cut)?;
    }

    #[test]
    fn any_text_is_an_error_or_a_line(text in any::<String>(), rest in "[a-z=' \\\\0-9.]{0,30}") {
        survives(&text)?;
        survives(&format!("WAIT tim=1 nam='a' {rest}"))?;
    }
}

/// It is an error within the line, or a line that comes back.
fn survives(text: &str) -> Result<(), TestCaseError> {
    match Line::parse(text) {
        Ok(line) => {
            let again = line.to_string();
            prop_assert_eq!(Line::parse(&again), Ok(line));
        }
        Err(e) => prop_assert!(e.at >= 1 && e.at <= text.len() + 1),
    }
    Ok(())
}
