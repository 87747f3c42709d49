//! The server's plan of a statement, and where it expected other rows than came.

use serde::Serialize;

use crate::early::is_enough;

/// Rows that are expected and rows that come differ by so many times, or are alike.
const OFF: f64 = 10.0;
/// A table of which the first row that fits is enough says one of these.
const FIRST_ROW: [&str; 4] = ["FirstMatch", "LooseScan", "Not exists", "Distinct"];

/// A row of the plan.
#[derive(Debug, Clone, Serialize, PartialEq)]
pub struct Line {
    /// Column and value, in the server's order.
    pub columns: Vec<(String, String)>,
    /// By how many times `rows` and `r_rows` differ, if it is tenfold or more, and nothing but the estimate explains it.
    pub times_off: Option<f64>,
    /// So much fewer rows came, but the scan may have ended early: why.
    pub cut_short: Option<&'static str>,
}

impl Line {
    /// A column's value; `None` if it is not there, or NULL.
    #[must_use]
    pub fn get(&self, column: &str) -> Option<&str> {
        let found = self.columns.iter().find(|(name, _)| name == column);
        found.map(|(_, value)| value.as_str()).filter(|v| !v.is_empty() && *v != "NULL")
    }
}

/// Rows with tabs between their columns; the first one is the heading. `early`: why the statement may have ended before its
/// scans.
pub(crate) fn lines(rows: &[String], early: Option<&'static str>) -> Vec<Line> {
    let Some((heading, rows)) = rows.split_first() else { return Vec::new() };
    let names: Vec<&str> = heading.split('\t').map(str::trim).collect();
    let line = |row: &String| {
        let values = row.split('\t').map(str::trim);
        let columns = names.iter().zip(values).map(|(name, value)| ((*name).to_owned(), value.to_owned())).collect();
        Line { columns, times_off: None, cut_short: None }
    };
    let mut all: Vec<Line> = rows.iter().map(line).collect();
    let extra = |line: &Line, what: &str| line.get("Extra").is_some_and(|e| e.contains(what));
    let sorted = |line: &Line| line.get("id").filter(|_| extra(line, "Using filesort")).map(str::to_owned);
    let sorted: Vec<String> = all.iter().filter_map(sorted).collect();
    for line in &mut all {
        let whole = line.get("id").is_some_and(|id| sorted.iter().any(|s| s == id));
        let first = FIRST_ROW.iter().any(|what| extra(line, what))
            || line.get("select_type").is_some_and(|t| t == "DEPENDENT SUBQUERY");
        let early = early.filter(|why| !(whole && is_enough(why))).or(first.then_some("first row"));
        match (times_off(line), early) {
            (Some((_, true)), Some(why)) => line.cut_short = Some(why),
            (off, _) => line.times_off = off.map(|off| off.0),
        }
    }
    all
}

/// By how many times, and whether fewer came.
fn times_off(line: &Line) -> Option<(f64, bool)> {
    let number = |column| line.get(column)?.parse::<f64>().ok().filter(|v: &f64| v.is_finite() && *v >= 0.0);
    // Below one row nothing is far from anything.
    let (expected, came) = (number("rows")?.max(1.0), number("r_rows")?.max(1.0));
    let off = (expected / came).max(came / expected);
    (off >= OFF).then_some((off, came < expected))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_are_far_off_are_marked() {
        let rows = |pairs: &[(&str, &str)]| {
            let row = |(rows, came): &(&str, &str)| format!("1\torders\t{rows}\t{came}");
            let all: Vec<String> =
                std::iter::once("id\ttable\trows\tr_rows".into()).chain(pairs.iter().map(row)).collect();
            lines(&all, None).iter().map(|l| l.times_off.map(|t| t.round() as u64)).collect::<Vec<_>>()
        };
        let pairs =
            [("1200", "498133.00"), ("1200", "121"), ("1200", "120"), ("1", "0.00"), ("NULL", "9"), ("9", "NULL")];
        assert_eq!(rows(&pairs), [Some(415), None, Some(10), None, None, None]);
        assert!(lines(&[], None).is_empty());
    }

    #[test]
    fn fewer_rows_accuse_no_estimate_where_the_scan_may_have_ended_early() {
        let told = |early, row: &str| {
            let all =
                ["id\tselect_type\trows\tr_rows\tExtra".into(), row.into(), "2\tSUBQUERY\t9\t9\tUsing filesort".into()];
            let line = lines(&all, early).swap_remove(0);
            (line.times_off.is_some(), line.cut_short)
        };
        let (accused, limit) = ((true, None), (false, Some("LIMIT")));
        assert_eq!(told(None, "1\tSIMPLE\t5000\t10.00\tUsing where"), accused);
        assert_eq!(told(Some("LIMIT"), "1\tSIMPLE\t5000\t10.00\tUsing where"), limit);
        // More than expected is the estimate's, and what is sorted is read to its end.
        assert_eq!(told(Some("LIMIT"), "1\tSIMPLE\t10\t5000.00\tUsing where"), accused);
        assert_eq!(told(Some("LIMIT"), "1\tSIMPLE\t5000\t10.00\tUsing where; Using filesort"), accused);
        assert_eq!(told(Some("killed"), "1\tSIMPLE\t5000\t10.00\tUsing filesort"), (false, Some("killed")));
        assert_eq!(told(None, "1\tPRIMARY\t5000\t1.00\tFirstMatch(a)"), (false, Some("first row")));
        assert_eq!(told(None, "1\tDEPENDENT SUBQUERY\t5000\t1.00\t"), (false, Some("first row")));
        assert_eq!(told(Some("LIMIT"), "1\tSIMPLE\t5\t1.00\t"), (false, None));
    }
}
