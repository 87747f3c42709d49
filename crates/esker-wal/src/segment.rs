//! One file of the log, how it is made and found.
//!
//! A file named `<generation>.wal` always has a durable header: it gets that name only after its header is synced. A
//! file named `<number>.spare` has no meaning but its size.

use crate::buffer;
use crate::replay::WITHDRAWN;
use crate::seal::{padding, parse, Padding, Piece, SEAL_BIT};
use crate::{sector_up, Result, WalError, SECTOR_BYTES};
use esker_base::{count, Counter};
use esker_format::frame::{frame_at, SegmentHeader, FRAME_HEADER_BYTES, SEGMENT_HEADER_BYTES};
use esker_format::{FolderId, FormatError, Lsn};
use esker_io::{AccessHint, Disk, File, IoKind, OpenMode};
use esker_memory::{Account, Region};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const HEADER: u64 = SEGMENT_HEADER_BYTES as u64;
/// A segment that starts a log has its start frame right behind the header.
const HEAD: usize = SEGMENT_HEADER_BYTES + SECTOR_BYTES as usize;
const ZEROS_BYTES: usize = 64 << 10;
/// Pieces in which the end of a log is written again when it is opened.
const KEEP_BYTES: usize = 1 << 20;

pub(crate) struct Segment {
    pub(crate) generation: u32,
    /// What its frames repeat.
    pub(crate) tag: u32,
    /// Position of its first byte.
    pub(crate) first: u64,
    /// Position after the last byte that counts.
    pub(crate) end: u64,
    /// Position after its last byte.
    pub(crate) space_end: u64,
    /// If the log was opened with this segment: where it ended before.
    pub(crate) start: Option<u64>,
    pub(crate) file: Arc<dyn File>,
    pub(crate) path: PathBuf,
}

impl Segment {
    pub(crate) fn offset(&self, position: u64) -> u64 {
        HEADER + (position - self.first)
    }

    /// The same, with a file that ends at `space_end`.
    pub(crate) fn ending_at(&self, space_end: u64) -> Segment {
        let (file, path) = (self.file.clone(), self.path.clone());
        Segment { end: self.end.min(space_end), space_end, file, path, ..*self }
    }
}

pub(crate) fn wal_path(dir: &Path, generation: u32) -> PathBuf {
    dir.join(format!("{generation:010}.wal"))
}

pub(crate) fn spare_path(dir: &Path, generation: u32) -> PathBuf {
    dir.join(format!("{generation:010}.spare"))
}

/// Space for the segment of an opening on a full disk. A spare, but for its size, and not counted among them.
pub(crate) fn reserve_path(dir: &Path) -> PathBuf {
    dir.join("reserve.spare")
}

/// The log's files in a folder, by rising generation.
pub(crate) struct Listing {
    pub(crate) segments: Vec<u32>,
    pub(crate) spares: Vec<(u32, u64)>,
}

pub(crate) fn list(disk: &dyn Disk, dir: &Path) -> Result<Listing> {
    let mut listing = Listing { segments: Vec::new(), spares: Vec::new() };
    for entry in disk.list(dir)? {
        let number = entry.name.split('.').next().and_then(|n| n.parse().ok());
        let Some(number) = number.filter(|number| *number < SEAL_BIT) else { continue };
        // What has the number in another form is no file of the log's, and none that its path would lead to.
        let is = |path: PathBuf| path.file_name().is_some_and(|name| name == entry.name.as_str());
        if is(wal_path(dir, number)) {
            listing.segments.push(number);
        } else if is(spare_path(dir, number)) {
            listing.spares.push((number, entry.size_bytes));
        }
    }
    listing.segments.sort_unstable();
    listing.spares.sort_unstable();
    Ok(listing)
}

/// Opens a segment and reads its head. The outer error is one of the disk, the inner one of the bytes.
pub(crate) fn open(
    disk: &dyn Disk,
    dir: &Path,
    generation: u32,
    mode: OpenMode,
    folder: FolderId,
) -> Result<std::result::Result<Segment, FormatError>> {
    let path = wal_path(dir, generation);
    let file = disk.open(&path, mode, AccessHint::Log)?;
    let size = file.size_bytes()? / SECTOR_BYTES * SECTOR_BYTES;
    if size < HEAD as u64 {
        return Ok(Err(FormatError::Truncated { what: "log segment", need: HEAD as u64, have: size }));
    }
    let mut head = vec![0; HEAD];
    file.read_at(&mut head, 0)?;
    let header = match SegmentHeader::decode(&head) {
        Ok(SegmentHeader { folder: found, .. }) if found != folder => {
            return Ok(Err(FormatError::Foreign { what: "log segment", found, expected: folder }));
        }
        Ok(header) if header.generation == generation => header,
        Ok(header) => {
            let found = u64::from(header.generation);
            return Ok(Err(FormatError::Invalid {
                what: "log segment's generation (the file is a copy, or was renamed)",
                found,
            }));
        }
        Err(e) => return Ok(Err(e)),
    };
    let SegmentHeader { tag, first_lsn, .. } = header;
    if tag >= SEAL_BIT {
        return Ok(Err(FormatError::Invalid { what: "log segment's tag", found: tag.into() }));
    }
    let first = first_lsn.0;
    let start = match parse(&head[SEGMENT_HEADER_BYTES..], first_lsn, tag) {
        // What a row has in the midst of a frame may look like one.
        Ok(Some(Piece::Padding(Padding::Start(lsn), _))) if lsn.0 <= first && first - lsn.0 < SECTOR_BYTES => {
            Some(lsn.0)
        }
        _ => None,
    };
    let end = match first.checked_add(size - HEADER) {
        Some(end) if first % SECTOR_BYTES == 0 => end,
        _ => return Ok(Err(FormatError::Invalid { what: "log segment's first position", found: first })),
    };
    Ok(Ok(Segment { generation, tag, first, end, space_end: end, start, file, path }))
}

/// Makes a file of `capacity` bytes behind its header, filled with zeros and synced, under a spare's name.
pub(crate) fn create_spare(disk: &dyn Disk, path: &Path, capacity: u64) -> Result<()> {
    let create = || disk.open(path, OpenMode::Create, AccessHint::Log);
    let fill = || -> Result<()> {
        let file = match create() {
            // Left by an attempt that failed.
            Err(e) if e.kind == IoKind::AlreadyExists => {
                disk.remove(path)?;
                create()?
            }
            file => file?,
        };
        let size = HEADER + capacity;
        file.reserve(0, size)?;
        write_zeros(&*file, size)
    };
    let filled = fill();
    if filled.is_err() {
        // Gives the space back; if that fails too, the next opening does it.
        let _ = disk.remove(path);
    } else {
        count(Counter::WalSegmentsCreated, 1);
    }
    filled
}

fn write_zeros(file: &dyn File, size: u64) -> Result<()> {
    let zeros = Region::zeroed(Account::Wal, ZEROS_BYTES)?;
    let mut at = 0;
    while at < size {
        let bytes = (size - at).min(ZEROS_BYTES as u64);
        file.write_at(&zeros[..bytes as usize], at)?;
        at += bytes;
    }
    file.sync_all()?;
    Ok(())
}

/// Takes the space of a spare that has holes, or shares blocks with a copy or a snapshot, now: that there is none is an error
/// that passes; met by a commit in the segment that it becomes, it would stop the log.
fn take_space(disk: &dyn Disk, spare: &Path, file: &dyn File) -> Result<()> {
    // Where it cannot be told it is written whole: that does no harm, and a look that fails tells nothing of what is there.
    if file.owns_space().unwrap_or(false) {
        return Ok(());
    }
    let taken = write_zeros(file, file.size_bytes()?);
    if taken.is_err() {
        // What it took by then is given back: a smaller one may fit.
        let _ = disk.remove(spare);
    }
    taken
}

/// Makes the names in the log's folder durable. That there is no space is no passing failure here: which names are on the
/// medium is then unknown, and another sync may not tell.
pub(crate) fn sync_names(disk: &dyn Disk, dir: &Path) -> Result<()> {
    disk.sync_dir(dir).map_err(WalError::Io)
}

/// Turns a spare into the segment that `header` describes, durably. `start`: the log ended there before and begins anew
/// with this segment.
pub(crate) fn make(
    disk: &dyn Disk,
    dir: &Path,
    spare: &Path,
    header: SegmentHeader,
    start: Option<u64>,
) -> Result<Segment> {
    let mut head = Vec::with_capacity(HEAD);
    header.encode(&mut head);
    let SegmentHeader { generation, tag, first_lsn, folder } = header;
    if let Some(end) = start {
        head.extend_from_slice(&padding(first_lsn, tag, Padding::Start(Lsn(end))));
    }
    let mut aligned = Region::zeroed(Account::Wal, HEAD)?;
    aligned[..head.len()].copy_from_slice(&head);
    {
        let file = disk.open(spare, OpenMode::Write, AccessHint::Log)?;
        take_space(disk, spare, &*file)?;
        file.write_at(&aligned[..head.len()], 0)?;
        file.sync_data()?;
    }
    let path = wal_path(dir, generation);
    disk.rename(spare, &path)?;
    sync_names(disk, dir)?;
    open(disk, dir, generation, OpenMode::Write, folder)?.map_err(|reason| WalError::Damage {
        file: path,
        offset: 0,
        reason,
    })
}

/// Writes what lies from `from` to `end` once more and syncs it. A sync alone is not enough: an earlier one, of a process
/// that died, may have failed, which leaves bytes that can be read and are not on the medium, and are clean to the
/// operating system. What was synced keeps its contents: the bytes are the same.
///
/// `torn`: the header of a frame that was begun at `end` and goes on in segments that are about to go. It is
/// [withdrawn](WITHDRAWN), or it would tell the next opening that these are missing.
pub(crate) fn keep(segment: &Segment, from: u64, end: u64, torn: bool) -> Result<()> {
    let mut at = from / SECTOR_BYTES * SECTOR_BYTES;
    let header = end..end + if torn { FRAME_HEADER_BYTES as u64 } else { 0 };
    let length = header.start + frame_at::LEN as u64..header.start + frame_at::TAG as u64;
    let end = sector_up(header.end).min(if torn { segment.space_end } else { segment.end });
    let mut buffer = buffer::region((end.saturating_sub(at) as usize).min(KEEP_BYTES))?;
    while at < end {
        let n = buffer.len().min((end - at) as usize);
        segment.file.read_at(&mut buffer[..n], segment.offset(at))?;
        let here = |position: u64| position.clamp(at, at + n as u64).wrapping_sub(at) as usize;
        if torn {
            buffer[here(length.start)..here(length.end)].fill(WITHDRAWN);
        }
        segment.file.write_at(&buffer[..n], segment.offset(at))?;
        at += n as u64;
    }
    segment.file.sync_data().map_err(WalError::from)
}
