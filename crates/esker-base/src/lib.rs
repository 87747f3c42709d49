//! What happened, how often and how long. The bottom of the house: every other crate counts, waits and locks through this
//! one, and nothing here knows what a table is.
//!
//! Invariants: counting and reading counters never block each other; what is not profiled costs next to nothing.

pub mod counters;
mod draw;
pub mod histogram;
pub mod lock;
pub mod phase;
pub mod trace;
pub mod wait;

pub use counters::{count, global_total, Counter, SessionCounters};
pub use wait::{timed, WaitEvent};

/// Is nothing counted and nothing timed? Never, but in what bench-cost builds beside, to measure what that costs.
pub const WITHOUT_FIGURES: bool = cfg!(esker_without_figures);
