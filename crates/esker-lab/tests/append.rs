//! `esker lab buffer` appends to a file whose last page is not in memory. A test program of its own:
//! what the process read from storage is counted.

#![allow(clippy::unwrap_used)]

mod lab;

use lab::{report, rows, Folder};
use serde_json::Value;

#[test]
fn an_aligned_append_has_the_kernel_read_the_last_page_once() {
    let arguments = ["buffer", "--records", "60K", "--from", "128K", "--to", "128K", "--runs", "2"];
    let report = report(&Folder::new("append"), &arguments);
    let of = |what: &str| -> Vec<&Value> {
        let rows = rows(&report).iter().filter(|r| r["params"]["do"] == what && r["params"]["buffer"] == "128K");
        rows.inspect(|r| {
            println!("{what}: {} {} {} {}", r["status"], r["why"], r["counts"], r["metrics"]["tail_reads"])
        })
        .collect()
    };
    let (plain, aligned) = (of("append"), of("append aligned"));
    assert!(plain.len() == 2 && aligned.len() == 2, "{report:#}");
    if plain[0]["status"] == "unsupported" {
        println!("skipped: {}", plain[0]["why"]);
        return;
    }
    let reads = |row: &Value| row["metrics"]["tail_reads"]["median"].as_f64().unwrap();
    for (plain, aligned) in plain.into_iter().zip(aligned) {
        let writes = plain["counts"]["calls"].as_f64().unwrap();
        assert!(writes > 20.0 && aligned["counts"]["calls"].as_f64().unwrap() > 20.0);
        // Each write begins within a page, or the first one alone. What else the process reads is little.
        assert!(reads(plain) >= writes && reads(plain) < writes + 10.0, "{plain:#}");
        assert!(reads(aligned) >= 1.0 && reads(aligned) < 11.0, "{aligned:#}");
    }
}
