//! What any bytes must survive; the fuzzer uses it, too.

use esker_trace::format::Line;
use esker_trace::Options;

/// They are lines, or errors that say where; they have a report, whose rows add up.
pub fn survive(data: &[u8]) {
    for line in String::from_utf8_lossy(data).lines() {
        match Line::parse(line) {
            Ok(parsed) => assert_eq!(Line::parse(&parsed.to_string()), Ok(parsed)),
            Err(e) => assert!(e.at >= 1 && e.at <= line.len() + 1, "{e}: {line}"),
        }
    }
    let options = Options { query: None, top: 3 };
    let Ok(file) = esker_trace::read("any", &mut &data[..], &options) else { panic!("memory can be read") };
    for account in file.statements.iter().map(|s| &s.account).chain([&file.total]) {
        let sum: i128 = account.rows.iter().map(|r| i128::from(r.sum_ns)).sum();
        let cut = account.rows.iter().any(|r| r.sum_ns == i64::MAX || r.sum_ns == i64::MIN);
        let adds_up = sum == i128::from(account.wall_ns) || account.unaccounted_ns.is_none();
        assert!(adds_up || cut || account.wall_ns == i64::MAX, "{account:?}");
    }
    let mut text = String::new();
    assert!(esker_trace::text::print(&file, &mut text).is_ok());
    assert!(esker_trace::html::page(&[file]).ends_with("</html>\n"));
}
