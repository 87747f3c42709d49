//! What any bytes must survive; the fuzzer uses it, too.

use esker_trace::format::{Line, Trace};
use esker_trace::Options;

/// They are lines, or errors that say where; they have a report, whose rows add up, and which a damaged first line leaves as
/// it is but for whose session it is.
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
    beheaded(data, &file);
    let mut text = String::new();
    assert!(esker_trace::text::print(&file, &mut text).is_ok());
    assert!(esker_trace::html::page(&[file]).ends_with("</html>\n"));
}

/// Without its only TRACE line, which is the first, all else is read as with it.
fn beheaded(data: &[u8], with: &esker_trace::report::File) {
    let Some(end) = data.iter().position(|b| *b == b'\n') else { return };
    let is_head = |line: &[u8]| Trace::salvage(&String::from_utf8_lossy(line)).is_some();
    if !is_head(&data[..end]) || data[end + 1..].split(|b| *b == b'\n').any(is_head) {
        return;
    }
    let damaged = [b"\xff\x00ACE version=1".as_slice(), &data[end..]].concat();
    let Ok(file) = esker_trace::read("any", &mut &damaged[..], &Options { query: None, top: 3 }) else {
        panic!("memory can be read")
    };
    let told = |f: &esker_trace::report::File| {
        (f.total.wall_ns, f.statements_ended, f.statements_unfinished, f.events_written, f.outside.clone())
    };
    assert_eq!(told(&file), told(with));
    assert!(file.parts.is_empty() && file.warnings_in_all >= 1);
}
