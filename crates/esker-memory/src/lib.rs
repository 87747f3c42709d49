//! Whose memory it is, and regions that go back to the operating system.
//!
//! Invariant: what an account shows is the sum of the live charges and regions on it, whatever the allocator keeps in
//! reserve.

mod parts;
mod region;
mod slab;

pub use parts::{Part, Parts};
pub use region::{charged, charged_total, reserve, trim, Account, Charge, OutOfMemory, Region, Reserve, PAGE_BYTES};
