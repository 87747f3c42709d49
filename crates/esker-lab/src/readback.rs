//! Reports that were printed as JSON, read again: rows, their parameters in order, their figures, and whether two figures
//! can be told apart.

use crate::compare::{family, Comparison, Contrast};
use crate::error::{LabError, Result};
use crate::experiment::AGAIN;
use crate::report::{Metric, SCHEMA_VERSION};
use crate::stats::{summary, Summary};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Reads a report.
///
/// # Errors
/// When it is none, one of a newer version, or one whose parts, rows and parameters are not what they are to be.
pub fn parse(text: &str, name: &str) -> Result<Value> {
    let mut report: Value =
        serde_json::from_str(text).map_err(|e| LabError::Invalid(format!("{name} is no JSON: {e}")))?;
    if report["schema"] != "esker-lab" {
        return Err(LabError::Invalid(format!("{name} is no report of esker lab")));
    }
    match report["schema_version"].as_u64() {
        Some(version) if version <= u64::from(SCHEMA_VERSION) => {
            whole(&report)
                .map_err(|why| LabError::Invalid(format!("{name} is no whole report of esker lab: {why}")))?;
            match report["reports"].as_array_mut() {
                Some(reports) => reports.iter_mut().for_each(name_way),
                None => name_way(&mut report),
            }
            Ok(report)
        }
        version => {
            let version = version.map_or_else(|| "none".to_owned(), |v| v.to_string());
            Err(LabError::Invalid(format!("{name} has schema version {version}, this esker reads {SCHEMA_VERSION}")))
        }
    }
}

/// Refuses what is written to as an object and is none, by its place.
fn whole(report: &Value) -> std::result::Result<(), String> {
    objects(&report["reports"], "reports")?;
    for (p, part) in parts(report).into_iter().enumerate() {
        let place = if report["reports"].is_array() { format!("reports[{p}].rows") } else { "rows".to_owned() };
        objects(&part["rows"], &place)?;
        if let Some(n) = all_rows(part).position(|row| !row["params"].is_object()) {
            return Err(format!("{place}[{n}].params is no object"));
        }
    }
    Ok(())
}

/// Refuses what is no list of objects; one that is not there is empty.
fn objects(list: &Value, place: &str) -> std::result::Result<(), String> {
    match list {
        Value::Null => Ok(()),
        Value::Array(all) => match all.iter().position(|one| !one.is_object()) {
            Some(n) => Err(format!("{place}[{n}] is no object")),
            None => Ok(()),
        },
        _ => Err(format!("{place} is no list")),
    }
}

/// The one way that `buffer` had, before its reports told of any.
const ONLY_WAY: &str = "cached";

/// Says in a report of `buffer` that tells of no ways which one its rows are of.
fn name_way(report: &mut Value) {
    let tells = |row: &Value| row["params"].get("way").is_some();
    if report["command"] != "buffer" || all_rows(report).any(tells) {
        return;
    }
    if let Some(names) = report["params"].as_array_mut() {
        // Where it stands since.
        let at = names.iter().position(|n| n == "buffer").unwrap_or(names.len());
        names.insert(at, "way".into());
    }
    for row in report["rows"].as_array_mut().into_iter().flatten() {
        row["params"]["way"] = ONLY_WAY.into();
    }
}

/// The commands' reports: those in one of 'all', or the report itself.
#[must_use]
pub fn parts(report: &Value) -> Vec<&Value> {
    match report["reports"].as_array() {
        Some(reports) => reports.iter().collect(),
        None => vec![report],
    }
}

/// A value as people read it.
#[must_use]
pub fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// The report's rows, those of the null test included.
pub fn all_rows(report: &Value) -> impl Iterator<Item = &Value> {
    report["rows"].as_array().into_iter().flatten()
}

/// The report's rows, without what was only measured a second time.
pub fn rows(report: &Value) -> impl Iterator<Item = &Value> {
    let is_again = |row: &Value| {
        let mut values = row["params"].as_object().into_iter().flat_map(|p| p.values());
        values.any(|v| v.as_str().is_some_and(|v| v.ends_with(AGAIN)))
    };
    all_rows(report).filter(move |row| !is_again(row))
}

/// Names of the rows' parameters, in the command's order; of reports that do not tell it, in the alphabet's.
#[must_use]
pub fn params(report: &Value) -> Vec<&str> {
    match report["params"].as_array() {
        Some(names) => names.iter().filter_map(Value::as_str).collect(),
        None => {
            let first = rows(report).next().and_then(|r| r["params"].as_object());
            first.into_iter().flat_map(|p| p.keys()).map(String::as_str).collect()
        }
    }
}

/// What the report calls a metric, if it is one of those to look at first.
#[must_use]
pub fn heading(report: &Value, metric: &str) -> Option<String> {
    let shown = report["shown"].as_array().into_iter().flatten();
    shown.filter(|s| s["name"] == metric).find_map(|s| s["heading"].as_str()).map(str::to_owned)
}

/// A row's values of some parameters, between them `gap`; a number alone says nothing, so its parameter's name goes before
/// it.
#[must_use]
pub fn label(row: &Value, names: &[&str], gap: &str) -> String {
    let of = |name: &&str| match row["params"][name].as_str().unwrap_or_default() {
        "" => None,
        value if value.starts_with(|c: char| c.is_ascii_digit()) && value.parse::<f64>().is_ok() => {
            Some(format!("{name} {value}"))
        }
        value => Some(value.to_owned()),
    };
    names.iter().filter_map(of).collect::<Vec<_>>().join(gap)
}

/// Each row of the report held against the one that is 100 percent for it, from its samples: so of reports of any version.
#[must_use]
pub fn compared(report: &Value) -> Vec<Option<Comparison>> {
    let all: Vec<&Value> = all_rows(report).collect();
    let contrast = |(i, row): (usize, &&Value)| {
        let (metric, base) = (report["relative"].as_str()?, row["base"].as_u64()? as usize);
        let counts = |row: &&Value| !matches!(row["status"].as_str(), Some("void" | "failed"));
        let samples = |row: &Value| Some(row).filter(counts).and_then(|row| figure(row, metric)).map(|f| f.samples);
        (base != i).then_some(())?;
        Contrast::of_rounds(&samples(row)?, &samples(all.get(base)?)?)
    };
    family(&all.iter().enumerate().map(contrast).collect::<Vec<_>>())
}

/// A row's figure, as it stands in a report.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// The median, in `unit`.
    pub median: f64,
    /// Lower end of its interval.
    pub low: f64,
    /// Upper end of its interval.
    pub high: f64,
    /// In the order of the runs.
    pub samples: Vec<f64>,
    /// "ns", "s", "bytes", "1/s", "".
    pub unit: String,
}

/// A row's figure of that name.
#[must_use]
pub fn figure(row: &Value, metric: &str) -> Option<Figure> {
    Figure::deserialize(&row["metrics"][metric]).ok()
}

impl Figure {
    /// Of samples; none without.
    #[must_use]
    pub fn of(metric: &Metric) -> Option<Figure> {
        let Summary { median, low, high } = summary(&metric.samples)?;
        Some(Figure { median, low, high, samples: metric.samples.clone(), unit: metric.unit.into() })
    }

    /// One over it, so that less is better where more was.
    #[must_use]
    pub fn inverse(&self) -> Figure {
        let over = |v: f64| if v > 0.0 { 1.0 / v } else { f64::MAX };
        let samples = self.samples.iter().copied().map(over).collect();
        Figure { median: over(self.median), low: over(self.high), high: over(self.low), samples, ..self.clone() }
    }
}

/// A number with three digits that count, or all before the point.
#[must_use]
pub fn number(v: f64) -> String {
    match v.abs() {
        a if a >= 100.0 || a == 0.0 => format!("{v:.0}"),
        a if a >= 10.0 => format!("{v:.1}"),
        a if a >= 1.0 => format!("{v:.2}"),
        a if a >= 0.001 => {
            let digits = 2 - a.log10().floor() as i32;
            format!("{v:.*}", digits as usize)
        }
        _ => format!("{v:.2e}"),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_no_report_is_refused() {
        assert!(parse("{", "x").unwrap_err().to_string().contains("x is no JSON"));
        assert!(parse("{}", "x").unwrap_err().to_string().contains("no report"));
        let newer = json!({"schema": "esker-lab", "schema_version": 99}).to_string();
        assert!(parse(&newer, "x").unwrap_err().to_string().contains("schema version 99"));
        let row = json!({ "params": { "way": "plain" } });
        let lists = [
            (json!({ "rows": [1] }), "rows[0] is no object"),
            (json!({ "rows": 1 }), "rows is no list"),
            (json!({ "rows": [row, {}] }), "rows[1].params is no object"),
            (json!({ "rows": [{ "params": [1] }] }), "rows[0].params is no object"),
            (json!({ "reports": [1] }), "reports[0] is no object"),
            (json!({ "reports": { "rows": [] } }), "reports is no list"),
            (json!({ "reports": [{}, { "rows": [row, "x"] }] }), "reports[1].rows[1] is no object"),
        ];
        for (mut report, why) in lists {
            (report["schema"], report["schema_version"]) = (json!("esker-lab"), json!(2));
            for command in ["buffer", "io"] {
                report["command"] = json!(command);
                let said = parse(&report.to_string(), "x").unwrap_err().to_string();
                assert_eq!(said, format!("x is no whole report of esker lab: {why}"));
            }
        }
        let empty = json!({ "schema": "esker-lab", "schema_version": 2, "command": "buffer" });
        assert!(parse(&empty.to_string(), "x").is_ok());
    }

    #[test]
    fn a_report_tells_the_same_when_it_is_read_again() {
        use crate::report::{Metric, Report, Row, Status};
        let row = |name: &str, of: f64, rounds: u32| {
            let samples = (0..rounds).map(|n| of * (1.0 + 0.001 * f64::from(n * 7 % 16))).collect();
            let mut row = Row::without_figures(vec![name.into()], Status::Good);
            row.metrics.insert("ns", Metric { unit: "ns", samples });
            Row { base: Some(0), ..row }
        };
        let report = Report {
            command: "io",
            options: json!({}),
            machine: json!({}),
            params: vec!["way"],
            shown: vec![],
            shown_counts: vec![],
            relative: Some("ns"),
            null_difference: None,
            rows: vec![row("a", 1.0, 16), row("b", 1.1, 16), row("c", 1.01, 16), row("d", 9.0, 14)],
            ..Report::default()
        };
        let json = report.to_json();
        let again: Vec<Value> = compared(&json).iter().map(|c| json!(c.map(|c| c.decision))).collect();
        let first: Vec<Value> = rows(&json).map(|r| r["told"].clone()).collect();
        assert_eq!(first, again);
        assert_eq!(again, [Value::Null, json!("different"), json!("different"), json!("undecided")]);
    }

    #[test]
    fn numbers_are_short() {
        let all = [0.0, 0.000_04, 0.012_345, 0.5, 1.2345, 12.345, 123.45, 12345.6].map(number);
        assert_eq!(all, ["0", "4.00e-5", "0.0123", "0.500", "1.23", "12.3", "123", "12346"]);
    }
}
