use super::*;

fn row(name: &str, samples: &[f64], status: Status) -> Row {
    let metric = Metric { unit: "ns", samples: samples.to_vec() };
    Row {
        params: vec![name.into()],
        metrics: BTreeMap::from([("ns", metric)]),
        counts: BTreeMap::from([("writes", 1_234_567)]),
        base: Some(0),
        noise: Noise::default(),
        status,
        details: Details::default(),
    }
}

fn report(rows: Vec<Row>) -> Report {
    Report {
        command: "io",
        options: json!({}),
        machine: json!({}),
        params: vec!["way"],
        shown: vec![("ns", "ns a record")],
        shown_counts: vec![("writes", "writes")],
        relative: Some("ns"),
        null_difference: Some(0.02),
        rows,
        ..Report::default()
    }
}

#[test]
fn what_cannot_be_told_apart_is_the_same() {
    let noise = |of: f64| (0..16).map(|n| of * (1.0 + 0.001 * f64::from(n * 7 % 16 - 8))).collect::<Vec<_>>();
    let wild = |n: u32| if n % 4 < 2 { 60.0 } else { 160.0 };
    let good = |name, samples: &[f64]| row(name, samples, Status::Good);
    let (plain, near, far) = (good("plain", &[100.0; 16]), good("near", &noise(100.0)), good("far", &noise(50.0)));
    let wild = good("wild", &(0..16).map(wild).collect::<Vec<_>>());
    let r = report(vec![plain, near, far, wild]);
    let text = r.to_text();
    let line = |n: usize| text.lines().nth(n).map(|l| l.split_whitespace().collect::<Vec<_>>().join(" "));
    assert_eq!(line(1).as_deref(), Some("plain 100.0 100.0 1,234,567"));
    assert_eq!(line(2).as_deref(), Some("near 100.0 ±0.5 same 1,234,567"));
    assert_eq!(line(3).as_deref(), Some("far 50.0 ±0.2 50.0 1,234,567"));
    assert_eq!(line(4).as_deref(), Some("wild 110.0 ±50.0 98.0 undecided 1,234,567"));
    let told: Vec<Value> = r.to_json()["rows"].as_array().into_iter().flatten().map(|r| r["told"].clone()).collect();
    assert_eq!(told, [Value::Null, json!("same"), json!("different"), json!("undecided")]);
    // Half of the rounds decide nothing.
    let few = report(r.rows.iter().map(|r| row(&r.params[0], &r.metrics["ns"].samples[..14], Status::Good)).collect());
    assert_eq!(few.to_text().matches(" undecided  ").count(), 3);
    assert_eq!(r.verdict(), Verdict::Good);
}

#[test]
fn what_is_void_or_failed_is_not_judged_nor_anything_by_it() {
    let twice = |status: Status| report(vec![row("a", &[100.0; 16], Status::Good), row("b", &[50.0; 16], status)]);
    let told = |mut r: Report, swap: bool| {
        if swap {
            let status = std::mem::replace(&mut r.rows[1].status, Status::Good);
            r.rows[0].status = status;
        }
        let json = r.to_json();
        let again: Vec<Value> = crate::readback::compared(&json).iter().map(|c| json!(c.map(|c| c.decision))).collect();
        assert_eq!(json["rows"][1]["told"], again[1]);
        json["rows"][1]["told"].clone()
    };
    for swap in [false, true] {
        assert_eq!(told(twice(Status::Stopped), swap), json!("different"));
        assert_eq!(told(twice(Status::Void("sums differ".into())), swap), Value::Null);
        assert_eq!(told(twice(Status::Failed("no space".into())), swap), Value::Null);
    }
}

#[test]
fn figures_stand_below_their_headings_and_words_behind() {
    let refused = Row::without_figures(vec!["far away".into()], Status::Unsupported("no".into()));
    let text = Report { null_difference: None, ..report(vec![row("a", &[100.0], Status::Good), refused]) }.to_text();
    let lines = [
        "way       ns a record  percent     writes",
        "a               100.0    100.0  1,234,567",
        "far away                                   unsupported: no",
    ];
    assert_eq!(text.lines().collect::<Vec<_>>(), lines);
}

#[test]
fn noise_stands_in_words_beside_its_row_and_says_why_it_is_too_much() {
    let (mut loud, mut louder) = (row("a", &[100.0], Status::Good), row("b", &[100.0], Status::Good));
    (loud.noise.steal, louder.noise.steal) = (0.11, 0.23);
    let report = report(vec![loud, row("c", &[100.0], Status::Good), louder]);
    let text = report.to_text();
    let ends = |n: usize, words: &str| text.lines().nth(n).is_some_and(|line| line.ends_with(words));
    assert!(
        ends(0, "noise") && ends(1, "  host took 11%") && ends(2, "  quiet") && ends(3, "  host took 23%"),
        "{text}"
    );
    let why = "Too noisy (exit code 3): in row 'b', the worst of 2 such rows, the host took 23 percent of the \
               processors' time, and more than 10 is too much.";
    assert!(text.contains(why), "{text}");
    assert_eq!(report.to_json()["notes"].as_array().and_then(|n| n.last().cloned()), Some(json!(why)));
    assert!(text.contains("--wait-for-quiet 60s"), "{text}");
    let mut alike = report.clone();
    alike.rows.iter_mut().for_each(|r| r.noise.steal = 0.5);
    assert!(alike.to_text().contains("(exit code 3): in all rows, the host took 50 percent"), "{}", alike.to_text());
    // Of several kinds the one that is furthest beyond what figures bear; who waited is not told to.
    let waited = QuietWait { seconds: 61.0, limit_s: 60.0, quiet: false, last: "others ran 90%".into() };
    let mut busy = Report { waited: Some(waited), ..report };
    (busy.rows[1].noise.others_cpu, busy.rows[2].noise.steal) = (0.75, 0.2);
    let text = busy.to_text();
    assert!(text.contains("in row 'c', the worst of 3 such rows, other processes took 75 percent"), "{text}");
    assert!(text.contains("Waited 61 s") && !text.contains("--wait-for-quiet 60s"), "{text}");
    let json = busy.to_json();
    assert_eq!((&json["waited"]["quiet"], &json["exit_code"]), (&json!(false), &json!(3)));
    assert!(report_of_nothing_else().to_text().lines().all(|l| !l.contains("--wait-for-quiet")));
}

/// Where only the lab itself waited.
fn report_of_nothing_else() -> Report {
    let mut own = row("a", &[100.0], Status::Good);
    (own.noise.io_pressure, own.noise.cpu_pressure) = (0.9, 0.9);
    report(vec![own])
}

#[test]
fn dates_are_those_of_the_calendar() {
    let all = [0, 951_827_696, 951_868_800, 1_795_746_047, 4_107_542_399].map(date_text);
    let these = [
        "1970-01-01T00:00:00Z",
        "2000-02-29T12:34:56Z",
        "2000-03-01T00:00:00Z",
        "2026-11-27T02:20:47Z",
        "2100-02-28T23:59:59Z",
    ];
    assert_eq!(all, these);
}

#[test]
fn verdicts() {
    let void = report(vec![row("a", &[1.0], Status::Void("sums differ".into()))]);
    assert_eq!((void.verdict(), void.to_json()["exit_code"].clone()), (Verdict::Void, json!(2)));
    let refused = report(vec![row("a", &[], Status::Unsupported("no".into()))]);
    assert_eq!(refused.verdict(), Verdict::Unsupported);
    let full = report(vec![row("a", &[1.0], Status::Good), row("b", &[], Status::Failed("no space".into()))]);
    assert_eq!((full.verdict(), full.to_json()["exit_code"].clone()), (Verdict::Failed, json!(1)));
    let mut noisy = row("a", &[1.0], Status::Good);
    noisy.noise.steal = 0.5;
    assert_eq!(report(vec![noisy]).verdict(), Verdict::Noisy);
}
