// SPDX-License-Identifier: MIT OR Apache-2.0
//! The C boundary: handles, status codes, panic guard; no policy of its own. `include/esker.h` is generated from here by
//! cbindgen (`header_tests.rs`), comments included: what stands at a function or a field is what a front end reads.
//!
//! Invariants:
//! - Every function that C can call catches panics; a panic leaves the engine refusing all further work but clean-up,
//!   since what it left half done is unknown.
//! - Pointers and numbers of C pass `boundary.rs` before they are used: a null where none is allowed stops the process,
//!   as it would have later; a number that is no member of its enum is refused.
//! - The structs have the layout that `layout.rs` lists: asserted here, and field by field in the header.
//!
//! The rules of all calls stand at the head of the header (`cbindgen.toml`); each function's `# Safety` says what it
//! asks for beyond them.

mod boundary;
#[cfg(test)]
mod call_tests;
mod folders;
mod guard;
#[cfg(test)]
mod header_tests;
mod layout;
mod phases;
mod service;
mod wait_figures;
mod waits;

pub mod activity;
pub mod alter;
pub mod auto_increment;
pub mod counters;
pub mod cursor;
pub mod engine;
pub mod index;
pub mod index_cursor;
pub mod metrics;
pub mod mutexes;
pub mod session;
pub mod shown;
pub mod stage;
pub mod status;
pub mod table;
pub mod table_work;
pub mod trace;
pub mod transaction;
pub mod visible;
pub mod whole_key;
pub mod write;
pub mod xid;

pub use boundary::Unchecked;
