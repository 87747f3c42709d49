//! Reading rows: cursors, which decode a batch at a time, and plain values for Rust programs.

pub(crate) mod cursor;
pub(crate) mod rows;
