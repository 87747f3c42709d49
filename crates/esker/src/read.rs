//! Reading rows: cursors, which decode a batch at a time, and plain values for Rust programs.

pub(crate) mod buffer;
mod count;
pub(crate) mod cursor;
pub(crate) mod index;
#[cfg(any(test, feature = "sim"))]
pub(crate) mod keys;
mod locked;
pub(crate) mod rows;
pub(crate) mod verify;
