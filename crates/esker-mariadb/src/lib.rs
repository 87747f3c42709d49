// SPDX-License-Identifier: MIT OR Apache-2.0
//! The C boundary: `include/esker.h` in Rust. Handles, status codes, panic guard; no policy of its own.
//!
//! Invariants: every function that C can call catches panics; a panic leaves the engine refusing all further work but
//! clean-up, since what it left half done is unknown. Structs here have the fields of the header's, in its order;
//! `layout_tests` compares sizes.
//!
//! Safety of the whole crate: pointers come from the shim, which keeps the header's rules. Each function's safety
//! condition is that rule and is not repeated.
#![allow(clippy::missing_safety_doc)]

mod activity;
mod counters;
mod cursor;
mod engine;
mod guard;
#[cfg(test)]
mod layout_tests;
mod session;
mod status;
mod table;
mod waits;
mod write;
mod xid;
