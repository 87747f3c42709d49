//! Whose memory it is, and regions that go back to the operating system.
//!
//! Invariant: what an account shows is the sum of the live charges and regions on it, whatever the allocator keeps in
//! reserve.

mod region;
#[cfg(feature = "sim")]
pub mod scarce;
mod shares;
mod slab;
mod strict;

pub use region::{
    charged, charged_total, charges, peak, reserve, trim, Account, Charge, OutOfMemory, Region, Reserve, PAGE_BYTES,
};
pub use shares::{Share, Shares};
