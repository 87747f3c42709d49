// SPDX-License-Identifier: MIT OR Apache-2.0
//! `include/esker.h` is what cbindgen makes of these sources, and `layout.rs` of the structs.
//!
//! It is kept in the repository, and this test says when it is stale: so a build needs no generator, and a change of the
//! boundary is seen as one.

use crate::layout::static_asserts;
use std::path::Path;

/// The order in which the header has them.
const SOURCES: [&str; 23] = [
    "boundary",
    "status",
    "index",
    "engine",
    "table",
    "shown",
    "alter",
    "session",
    "transaction",
    "xid",
    "stage",
    "write",
    "cursor",
    "index_cursor",
    "whole_key",
    "auto_increment",
    "counters",
    "metrics",
    "activity",
    "visible",
    "table_work",
    "mutexes",
    "trace",
];
const RENEW: &str = "ESKER_RENEW_HEADER=1 cargo test -p esker-mariadb --lib header";

fn generated() -> String {
    let crate_dir = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut config = cbindgen::Config::from_file(crate_dir.join("cbindgen.toml")).unwrap();
    config.trailer = Some(format!("/* Both sides have the same structs. */\n{}", static_asserts()));
    let mut builder = cbindgen::Builder::new().with_config(config);
    for name in SOURCES {
        builder = builder.with_src(crate_dir.join(format!("src/{name}.rs")));
    }
    let mut text = Vec::new();
    builder.generate().unwrap().write(&mut text);
    String::from_utf8(text).unwrap()
}

#[test]
fn the_header_is_what_the_sources_say() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("include/esker.h");
    let text = generated();
    if std::env::var_os("ESKER_RENEW_HEADER").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap();
    assert!(kept == text, "include/esker.h is stale; renew it: {RENEW}");
}
