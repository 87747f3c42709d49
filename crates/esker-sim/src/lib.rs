//! Deterministic simulation of the engine: one seed decides the workload, the faults and what a power cut leaves.
//!
//! A [`Sim`] drives an engine on the simulated disk from one thread, step by step, and holds each answer against the
//! [`Model`](model::Model). The scenarios on top of it lose power ([`crash`]), fail operations ([`fault`]) and flip
//! bits ([`damage`]); [`threads`] checks invariants with real threads on a real disk. Invariant: nothing here depends
//! on the machine's time, addresses or hash order, so that a seed replays.

mod alter;
mod background;
pub mod binlog;
pub mod binlog_crash;
pub mod binlog_threads;
pub mod crash;
pub mod cut;
pub mod damage;
mod ddl;
pub mod fault;
pub mod indexes;
mod keys;
pub mod kinds;
pub mod large;
mod locking;
mod locks;
mod meanwhile;
pub mod model;
pub mod reached;
mod recover;
mod rng;
mod rows;
pub mod runner;
mod scans;
pub mod sim;
pub mod threads;
pub mod time;
mod two_phase;
mod txns;
pub mod unique;
mod verify;
pub mod workload;

pub use rng::Rng;
pub use sim::{Config, Failure, Sim, Stats};
