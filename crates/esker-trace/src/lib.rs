//! What happened, how often, how long, and whose memory it was. The bottom of the house: every other crate counts,
//! waits, locks and takes memory through this one, and nothing here knows what a table is.
//!
//! Invariants: counting and reading counters never block each other; what is not profiled costs next to nothing.

pub mod counters;
pub mod histogram;
pub mod lock;
pub mod memory;
mod slab;
pub mod wait;

pub use counters::{count, global_total, Counter, SessionCounters};
pub use memory::{Account, Charge, OutOfMemory, Region};
pub use wait::{timed, WaitEvent};
