//! Fuzzes a session's trace and its report.
#![no_main]

#[path = "../../crates/esker-trace/tests/common/survive.rs"]
mod survive;

libfuzzer_sys::fuzz_target!(|data: &[u8]| survive::survive(data));
