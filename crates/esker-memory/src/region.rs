//! Whose memory it is, and regions that go back to the operating system.
//!
//! Owns the accounts and the type [`Region`]. Invariant: what an account shows is the sum of the live [`Charge`]s and
//! [`Region`]s on it, whatever the allocator keeps in reserve (see [`reserve`]).

use crate::slab;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a page: regions begin at multiples of it.
pub const PAGE_BYTES: usize = 4096;

/// What memory is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(usize)]
pub enum Account {
    /// Memtables: versions not yet flushed.
    Memtable,
    /// Blocks kept for the next reader, and those that somebody reads past these.
    BlockCache,
    /// Buffers of large writes, and of the files that they go to.
    BulkBuffer,
    /// The log's ring and buffers.
    Wal,
    /// What scans decode into.
    Cursor,
    /// Row locks and the transactions that hold them.
    Locks,
    /// Indexes and statistics of open runs, and the catalog.
    Catalog,
    /// Anything else.
    Other,
}

impl Account {
    /// Every account, in the order of the enum.
    pub const ALL: [Account; 8] = [
        Account::Memtable,
        Account::BlockCache,
        Account::BulkBuffer,
        Account::Wal,
        Account::Cursor,
        Account::Locks,
        Account::Catalog,
        Account::Other,
    ];

    /// Name in snake_case; the status variable is `Esker_memory_<name>`.
    pub const fn name(self) -> &'static str {
        match self {
            Account::Memtable => "memtable",
            Account::BlockCache => "block_cache",
            Account::BulkBuffer => "bulk_buffer",
            Account::Wal => "wal",
            Account::Cursor => "cursor",
            Account::Locks => "locks",
            Account::Catalog => "catalog",
            Account::Other => "other",
        }
    }
}

/// Of an account. All on one cache line, which who charges it has anyway.
#[repr(align(128))]
struct Balance {
    bytes: AtomicU64,
    peak: AtomicU64,
    charges: AtomicU64,
}

static BALANCES: [Balance; Account::ALL.len()] =
    [const { Balance { bytes: AtomicU64::new(0), peak: AtomicU64::new(0), charges: AtomicU64::new(0) } };
        Account::ALL.len()];

fn add(account: Account, bytes: u64) {
    let balance = &BALANCES[account as usize];
    let now = balance.bytes.fetch_add(bytes, Ordering::Relaxed).wrapping_add(bytes);
    if now > balance.peak.load(Ordering::Relaxed) {
        balance.peak.fetch_max(now, Ordering::Relaxed);
    }
}

fn subtract(account: Account, bytes: u64) {
    BALANCES[account as usize].bytes.fetch_sub(bytes, Ordering::Relaxed);
}

/// Bytes charged to an account now, in the whole process.
pub fn charged(account: Account) -> u64 {
    BALANCES[account as usize].bytes.load(Ordering::Relaxed)
}

/// The most that was ever charged to it at a time.
pub fn peak(account: Account) -> u64 {
    BALANCES[account as usize].peak.load(Ordering::Relaxed)
}

/// How many charges and regions are on it now.
pub fn charges(account: Account) -> u64 {
    BALANCES[account as usize].charges.load(Ordering::Relaxed)
}

/// Bytes charged to all accounts now.
pub fn charged_total() -> u64 {
    Account::ALL.into_iter().map(charged).sum()
}

/// Bytes on an account for as long as it lives: for memory that is not a [`Region`].
#[derive(Debug)]
pub struct Charge {
    account: Account,
    bytes: u64,
}

impl Charge {
    /// Adds `bytes` to an account.
    pub fn new(account: Account, bytes: u64) -> Self {
        add(account, bytes);
        BALANCES[account as usize].charges.fetch_add(1, Ordering::Relaxed);
        Charge { account, bytes }
    }

    /// Changes how much it is.
    pub fn resize(&mut self, bytes: u64) {
        if bytes >= self.bytes {
            add(self.account, bytes - self.bytes);
        } else {
            subtract(self.account, self.bytes - bytes);
        }
        self.bytes = bytes;
    }

    /// How much it is.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Where it is.
    pub fn account(&self) -> Account {
        self.account
    }

    /// Moves it to another account.
    pub fn transfer(&mut self, account: Account) {
        add(account, self.bytes);
        subtract(self.account, self.bytes);
        BALANCES[account as usize].charges.fetch_add(1, Ordering::Relaxed);
        BALANCES[self.account as usize].charges.fetch_sub(1, Ordering::Relaxed);
        self.account = account;
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        subtract(self.account, self.bytes);
        BALANCES[self.account as usize].charges.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The operating system gave no memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutOfMemory {
    /// Bytes asked for.
    pub bytes: usize,
    /// For what.
    pub account: Account,
}

impl std::fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "out of memory: {} bytes for {}", self.bytes, self.account.name())
    }
}

impl std::error::Error for OutOfMemory {}

/// A writable run of bytes outside malloc's heap, beginning at a multiple of [`PAGE_BYTES`]. Dropping it gives the
/// memory back to the operating system, except a few MiB kept for the next ones.
///
/// The bytes of a new region are initialised but unspecified: zeros, or what somebody else left there.
pub struct Region {
    start: NonNull<u8>,
    bytes: usize,
    place: slab::Place,
    charge: Charge,
}

// SAFETY: a region owns its memory alone, like a Box<[u8]>.
unsafe impl Send for Region {}
// SAFETY: shared access only reads.
unsafe impl Sync for Region {}

impl Region {
    /// Takes `bytes` bytes. The account is charged with [`capacity`](Region::capacity), which is a little more.
    pub fn new(account: Account, bytes: usize) -> Result<Region, OutOfMemory> {
        let (start, place) = slab::allocate(bytes).ok_or(OutOfMemory { bytes, account })?;
        let charge = Charge::new(account, place.bytes() as u64);
        Ok(Region { start, bytes, place, charge })
    }

    /// As [`new`](Region::new), with all bytes zero.
    pub fn zeroed(account: Account, bytes: usize) -> Result<Region, OutOfMemory> {
        let mut region = Self::new(account, bytes)?;
        region.fill(0);
        Ok(region)
    }

    /// Bytes of memory that it takes: its length rounded up to a size class.
    pub fn capacity(&self) -> usize {
        self.place.bytes()
    }

    /// The capacity that a region of `bytes` bytes has.
    pub fn capacity_of(bytes: usize) -> usize {
        slab::taken_bytes(bytes)
    }

    /// Changes the length within the capacity (what is more is cut). Bytes that were beyond the old end are
    /// unspecified.
    pub fn set_len(&mut self, bytes: usize) {
        self.bytes = bytes.min(self.capacity());
    }

    /// Where it begins. Valid for reads and writes of `len()` bytes for as long as the region lives and is not
    /// borrowed otherwise.
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// Where it begins, for readers and for writers that share it by a protocol of their own.
    pub fn base(&self) -> NonNull<u8> {
        self.start
    }

    /// Whose it is.
    pub fn account(&self) -> Account {
        self.charge.account()
    }

    /// Makes it somebody else's.
    pub fn transfer(&mut self, account: Account) {
        self.charge.transfer(account);
    }
}

impl Deref for Region {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: `start` points to at least `bytes` initialised bytes that only this region uses.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.bytes) }
    }
}

impl DerefMut for Region {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and the region is borrowed for writing.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes) }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        slab::free(self.start, self.place);
    }
}

impl std::fmt::Debug for Region {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Region").field("bytes", &self.bytes).field("account", &self.account()).finish_non_exhaustive()
    }
}

/// What the region allocator has from the operating system.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reserve {
    /// Address space mapped, in bytes, touched or not.
    pub mapped_bytes: u64,
    /// Bytes in regions that live.
    pub live_bytes: u64,
    /// Bytes free but kept resident for the next region.
    pub hot_bytes: u64,
    /// Number of mappings.
    pub mappings: u64,
}

/// What the region allocator has now. Takes no lock: figures that change meanwhile need not fit each other.
pub fn reserve() -> Reserve {
    slab::reserve()
}

/// Gives all memory that no region uses back to the operating system.
pub fn trim() {
    slab::trim();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charges_add_up() {
        let before = charged(Account::Locks);
        let mut charge = Charge::new(Account::Locks, 100);
        charge.resize(250);
        assert_eq!(charged(Account::Locks) - before, 250);
        charge.resize(50);
        assert_eq!((charged(Account::Locks) - before, charge.bytes()), (50, 50));
        let catalog = charged(Account::Catalog);
        charge.transfer(Account::Catalog);
        assert_eq!((charged(Account::Locks) - before, charged(Account::Catalog) - catalog), (0, 50));
        drop(charge);
        assert_eq!(charged(Account::Catalog), catalog);
    }

    #[test]
    fn an_account_knows_its_peak_and_how_many_are_on_it() {
        // No other test of this process uses it.
        let account = Account::Cursor;
        let (first, mut second) = (Charge::new(account, 70), Charge::new(account, 30));
        drop(first);
        second.resize(60);
        assert_eq!((charged(account), peak(account), charges(account)), (60, 100, 1));
        second.resize(200);
        second.transfer(Account::Memtable);
        assert_eq!((charged(account), peak(account), charges(account)), (0, 200, 0));
        assert_eq!((peak(Account::Memtable), charges(Account::Memtable)), (200, 1));
    }

    #[test]
    fn region_charges_its_capacity_and_is_aligned() {
        for bytes in [0, 1, 4096, 4097, 65_000, 70_000, 4 << 20, (4 << 20) + 1, 9 << 20] {
            let before = charged(Account::Wal);
            let mut region = Region::new(Account::Wal, bytes).unwrap();
            assert_eq!(region.len(), bytes);
            assert!(region.capacity() >= bytes);
            assert_eq!(region.capacity(), Region::capacity_of(bytes));
            assert!(region.capacity() <= bytes + bytes / 4 + PAGE_BYTES);
            assert_eq!(region.as_mut_ptr() as usize % PAGE_BYTES, 0);
            assert_eq!(charged(Account::Wal) - before, region.capacity() as u64);
            region.fill(0xab);
            assert!(region.iter().all(|&b| b == 0xab));
            drop(region);
            assert_eq!(charged(Account::Wal), before);
        }
    }

    #[test]
    fn names_are_unique() {
        let names: std::collections::HashSet<_> = Account::ALL.iter().map(|a| a.name()).collect();
        assert_eq!(names.len(), Account::ALL.len());
        for (i, account) in Account::ALL.into_iter().enumerate() {
            assert_eq!(account as usize, i);
        }
    }

    #[test]
    fn absurd_size_is_out_of_memory() {
        let error = Region::new(Account::Other, isize::MAX as usize).unwrap_err();
        assert_eq!(error.account, Account::Other);
        assert!(Region::new(Account::Other, usize::MAX).is_err());
    }
}
