//! The log: one stream of frames, kept in segments; group commit; replay. Payloads are opaque bytes here.
//!
//! **Positions.** An [`Lsn`](esker_format::Lsn) is a byte position in the stream, padding included. Segments are files
//! of fixed size that hold consecutive pieces of it; a frame may continue in the next segment.
//!
//! **Order of writing and syncing.** One leader at a time takes what is buffered, writes it, syncs, and only then
//! tells everybody that it is durable. A segment is synced before the first byte goes into the next one. A new segment
//! is filled and synced, gets its header, is synced again, gets its name, and the folder is synced, all before it is
//! used: a sync on the commit path is one device flush without any change of size or name.
//!
//! **How a sync is made** ([`SyncMethod`]) is chosen when the log is opened, and is one device flush in any case; `writer.rs` has
//! the rule for those writes that are durable by themselves.
//!
//! **No rewriting.** What a sync covers ends at a multiple of [`SECTOR_BYTES`] (a *seal*, a padding frame, fills up the
//! rest), and writing goes on after it: a sector that holds frames acknowledged as durable is never written again, but
//! for this: opening a log writes its last group once more, byte for byte, since the sync of a process that died may have
//! failed. A device that writes 512 bytes as a whole cannot tear what does not change.
//! Only what was written without a sync ([`Wal::write_out`]) may share its last sector with what follows.
//!
//! **Stale bytes never replay.** Each use of a segment file has a generation of its own, which never comes again, and a
//! tag that nobody could know before; a frame counts only with its segment's tag and its own position. Each opening of the
//! log begins a new segment whose first frame says where the valid log ended, so that what lay behind a torn tail is cut
//! off for good; that space is given back.
//!
//! **Torn or damaged.** A frame that does not fit ends the log, unless something later proves that it was durable once:
//! a segment begun after it, or a seal that says so. Then it is damage, an error with file and offset.
//!
//! **Failures.** A failed write or sync of the log, and a failed sync of its folder, poison it: nothing is tried again,
//! nothing more is acknowledged. That space, memory or handles run out is met when a segment is made or recycled, before
//! anything is appended, and does no harm: what was begun is discarded, and tried again.
//!
//! No thread is made here: who waits for durability does the work, for all others who wait too.

mod buffer;
mod chain;
mod error;
mod group;
#[cfg(test)]
mod group_tests;
mod measure;
mod options;
mod pace;
mod replay;
mod seal;
mod segment;
mod sync;
mod tail;
mod trial;
mod wal;
mod writer;

pub use error::{Result, WalError};
pub use esker_io::SyncMethod;
pub use group::{COMMIT_GROUPS, PREPARE_GROUPS};
pub use measure::SECTOR_BYTES;
pub use options::{Clock, Committer, FlushMode, WalOptions};
pub use replay::{replay, OnFrame, Replayed};
pub use tail::Appended;
pub use trial::Syncing;
pub use wal::{Credit, Opening, Wal, WalStats};

pub use measure::FRAME_ALIGN;
pub(crate) use measure::{frame_space, sector_up};
