//! Fuzzes one decoder; what it must survive is said beside the tests of esker-format.
#![no_main]

#[path = "../../crates/esker-format/tests/common/mod.rs"]
mod common;

libfuzzer_sys::fuzz_target!(|data: &[u8]| common::decoders::row_ids(data));
