//! The server's plan of a statement, and where it expected other rows than came.

use serde::Serialize;

/// Rows that are expected and rows that come differ by so many times, or are alike.
const OFF: f64 = 10.0;

/// A row of the plan.
#[derive(Debug, Clone, Serialize, PartialEq)]
pub struct Line {
    /// Column and value, in the server's order.
    pub columns: Vec<(String, String)>,
    /// By how many times `rows` and `r_rows` differ, if it is tenfold or more.
    pub times_off: Option<f64>,
}

impl Line {
    /// A column's value; `None` if it is not there, or NULL.
    #[must_use]
    pub fn get(&self, column: &str) -> Option<&str> {
        let found = self.columns.iter().find(|(name, _)| name == column);
        found.map(|(_, value)| value.as_str()).filter(|v| !v.is_empty() && *v != "NULL")
    }
}

/// Rows with tabs between their columns; the first one is the heading.
pub(crate) fn lines(rows: &[String]) -> Vec<Line> {
    let Some((heading, rows)) = rows.split_first() else { return Vec::new() };
    let names: Vec<&str> = heading.split('\t').map(str::trim).collect();
    let line = |row: &String| {
        let values = row.split('\t').map(str::trim);
        let columns = names.iter().zip(values).map(|(name, value)| ((*name).to_owned(), value.to_owned())).collect();
        let mut line = Line { columns, times_off: None };
        line.times_off = times_off(&line);
        line
    };
    rows.iter().map(line).collect()
}

fn times_off(line: &Line) -> Option<f64> {
    let number = |column| line.get(column)?.parse::<f64>().ok().filter(|v: &f64| v.is_finite() && *v >= 0.0);
    // Below one row nothing is far from anything.
    let (expected, came) = (number("rows")?.max(1.0), number("r_rows")?.max(1.0));
    let off = (expected / came).max(came / expected);
    (off >= OFF).then_some(off)
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
            lines(&all).iter().map(|l| l.times_off.map(|t| t.round() as u64)).collect::<Vec<_>>()
        };
        let pairs =
            [("1200", "498133.00"), ("1200", "121"), ("1200", "120"), ("1", "0.00"), ("NULL", "9"), ("9", "NULL")];
        assert_eq!(rows(&pairs), [Some(415), None, Some(10), None, None, None]);
        assert!(lines(&[]).is_empty());
    }
}
