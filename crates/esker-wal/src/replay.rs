//! Reads the log from a position to its end, and tells an end from damage.
//!
//! A frame that does not fit ends the log, unless it was durable once. That is proven by a later opening (its start
//! frame says how far the log went), by anything valid in a following segment (written only after this one was synced, so
//! that frames wholly within this one were durable), or by a seal further on that carries a durable position behind the
//! frame. Frames are looked for wherever one can begin: tag and position must be those of the very place, so that neither
//! chance nor a row's content finds one. Or whoever opens the log knows it
//! ([`WalOptions::durable`](crate::WalOptions::durable)).
//!
//! A frame that goes on behind the last segment says that one is missing: it was begun when the segments for it were ready,
//! and an opening that finds it torn wipes its beginning before it takes those away.

use crate::seal::{parse, Padding, Piece, SEAL_BIT};
use crate::segment::{self, Listing, Segment};
use crate::{frame_space, Result, WalError, FRAME_ALIGN};
use esker_base::{count, Counter};
use esker_format::frame::{frame_at, FRAME_HEADER_BYTES};
use esker_format::{FolderId, FormatError, Lsn};
use esker_io::{Disk, OpenMode};
use esker_memory::{Account, OutOfMemory};
use std::path::Path;
use std::sync::Arc;

const READ_BYTES: u64 = 1 << 20;

/// Gets each frame's position and payload.
pub type OnFrame<'a, E> = dyn FnMut(Lsn, &[u8]) -> std::result::Result<(), E> + 'a;

/// What a replay found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Frames given to the callback.
    pub frames: u64,
    /// Bytes of the stream from the first position to the end, padding included.
    pub size_bytes: u64,
    /// Position after the last valid frame.
    pub end: Lsn,
    /// What the log itself says was durable before it was opened.
    pub durable: Lsn,
    /// Something was begun at the end and did not reach the disk as a whole.
    pub torn: bool,
}

/// The log as it was found.
pub(crate) struct Found {
    /// Those that hold something of the stream, or could.
    pub(crate) segments: Vec<Arc<Segment>>,
    /// Those that a later opening made meaningless.
    pub(crate) void: Vec<Arc<Segment>>,
    pub(crate) listing: Listing,
}

impl Found {
    pub(crate) fn next_generation(&self) -> u32 {
        let segments = self.listing.segments.last().copied().unwrap_or(0);
        let spares = self.listing.spares.last().map_or(0, |s| s.0);
        segments.max(spares) + 1
    }
}

/// Reads the log of `folder` from `from` to its end without changing anything. `on_frame` gets each frame's position and payload,
/// `progress` the bytes done and the bytes there are.
///
/// # Errors
/// What the disk says; damage, with file and offset; a segment that is missing; whatever `on_frame` returns.
pub fn replay<E: From<WalError>>(
    disk: &dyn Disk,
    dir: &Path,
    folder: FolderId,
    from: Lsn,
    on_frame: &mut OnFrame<'_, E>,
    progress: &mut dyn FnMut(u64, u64),
) -> std::result::Result<Replayed, E> {
    let found = find(disk, dir, folder, from, OpenMode::Read)?;
    run(dir, &found.segments, (from, Lsn(0)), on_frame, progress)
}

/// Finds the segments and how far each counts.
pub(crate) fn find(disk: &dyn Disk, dir: &Path, folder: FolderId, from: Lsn, mode: OpenMode) -> Result<Found> {
    let listing = segment::list(disk, dir)?;
    let (mut segments, mut void) = (Vec::new(), Vec::new());
    let mut limit = u64::MAX;
    for generation in listing.segments.iter().rev() {
        match segment::open(disk, dir, *generation, mode, folder)? {
            Ok(mut segment) => {
                segment.end = segment.end.min(limit);
                limit = limit.min(segment.start.unwrap_or(segment.first));
                if segment.first < segment.end {
                    segments.push(Arc::new(segment));
                } else {
                    void.push(Arc::new(segment));
                }
            }
            // Older than anything that is needed.
            Err(_) if segments.last().is_some_and(|s: &Arc<Segment>| s.first <= from.0) => {}
            Err(reason) => {
                return Err(WalError::Damage { file: segment::wal_path(dir, *generation), offset: 0, reason });
            }
        }
    }
    segments.reverse();
    Ok(Found { segments, void, listing })
}

/// Replays found segments; `known`: see [`WalOptions::durable`](crate::WalOptions::durable).
pub(crate) fn run<E: From<WalError>>(
    dir: &Path,
    segments: &[Arc<Segment>],
    (from, known): (Lsn, Lsn),
    on_frame: &mut OnFrame<'_, E>,
    progress: &mut dyn FnMut(u64, u64),
) -> std::result::Result<Replayed, E> {
    let missing = |at: u64| WalError::Missing { folder: dir.to_owned(), lsn: Lsn(at) };
    let begins = |s: &Arc<Segment>| s.first <= from.0 || s.start == Some(from.0);
    let Some(mut i) = segments.iter().rposition(begins) else {
        return Err(missing(from.0).into());
    };
    // Nothing valid in the first of two neighbours says that the second's predecessor was there: a segment that a crash left
    // half full ends the log just as one whose successor is gone. Their positions tell.
    let gap = |w: &&[Arc<Segment>]| w[0].end < w[1].start.unwrap_or(w[1].first);
    if let Some(w) = segments[i..].windows(2).find(gap) {
        return Err(missing(w[0].end).into());
    }
    let total = segments.last().map_or(0, |s| s.end.saturating_sub(from.0));
    let mut reader = Reader { segments, bytes: Vec::new(), start: 0 };
    let mut replayed = Replayed { durable: from, ..Replayed::default() };
    let mut at = from.0.max(segments[i].first);
    let mut told = at;
    loop {
        while at >= segments[i].end {
            match segments.get(i + 1) {
                Some(next) if next.start == Some(at) => at = next.first,
                Some(next) if next.start.is_none() && next.first == segments[i].end => {}
                None if at == segments[i].end => break,
                _ => return Err(missing(at).into()),
            }
            i += 1;
        }
        if at - told >= READ_BYTES {
            progress(at - from.0, total);
            count(Counter::RecoveryBytes, at - told);
            told = at;
        }
        match reader.piece(i, at)? {
            Ok(Piece::Payload(payload)) => {
                on_frame(Lsn(at), payload)?;
                replayed.frames += 1;
                at += frame_space(payload.len()) as u64;
            }
            Ok(Piece::Padding(Padding::Seal(durable) | Padding::Start(durable), bytes)) => {
                replayed.durable = replayed.durable.max(durable);
                at += bytes as u64;
            }
            Err(reason) => {
                if at < segments[i].end {
                    let is_durable = reader.was_durable(i, at)?;
                    if let Some(end) = reader.behind_all(i, at)?.filter(|_| !is_durable) {
                        return Err(missing(end).into());
                    }
                    if is_durable || at <= known.0 {
                        let file = segments[i].path.clone();
                        return Err(WalError::Damage { file, offset: segments[i].offset(at), reason }.into());
                    }
                    replayed.torn = !matches!(reason, FormatError::Invalid { what: NOTHING, .. });
                } else if at <= known.0 {
                    return Err(missing(at).into());
                }
                count(Counter::RecoveryBytes, at - told);
                progress(total, total);
                replayed.end = Lsn(at);
                replayed.size_bytes = at - from.0;
                return Ok(replayed);
            }
        }
    }
}

const NOTHING: &str = "log frame";

/// Each byte of the length that the header of a torn frame has got from an opening that took away the segments in which it went on:
/// until that is done it must tell that the frame did not end where it began, and not where. In one aligned word with the
/// tag, it is written as a whole.
pub(crate) const WITHDRAWN: u8 = 0xff;

/// Where the frame at `at` ends of which this is the header; none if it has no more than that, or is none.
fn frame_end(header: &[u8], at: u64, tag: u32) -> Option<u64> {
    match parse(header, Lsn(at), tag) {
        Err(FormatError::Truncated { need, .. }) => Some(at + need),
        _ => None,
    }
}

/// Does the frame that begins at `at` in this segment, where the log ends, go on behind it?
pub(crate) fn goes_on_behind(segment: &Segment, at: u64) -> Result<bool> {
    let Some(header) = header_at(segment, at)? else { return Ok(false) };
    // One that was taken back is so again: perhaps it was not durably so.
    let goes_on = frame_end(&header, at, segment.tag).is_some_and(|end| end > segment.space_end);
    Ok(goes_on || is_withdrawn(&header, at, segment.tag))
}

/// Where the frame that was begun at `at` in this segment, where the log ends, was to end; `at` if none was.
pub(crate) fn begun_to(segment: &Segment, at: u64) -> Result<u64> {
    let header = header_at(segment, at)?;
    Ok(header.and_then(|header| frame_end(&header, at, segment.tag)).unwrap_or(at))
}

/// What there is in place of a frame's header, if there is room for one.
fn header_at(segment: &Segment, at: u64) -> Result<Option<[u8; FRAME_HEADER_BYTES]>> {
    let header_end = at.saturating_add(FRAME_HEADER_BYTES as u64);
    if at < segment.first || header_end > segment.space_end {
        return Ok(None);
    }
    let mut header = [0; FRAME_HEADER_BYTES];
    segment.file.read_at(&mut header, segment.offset(at))?;
    Ok(Some(header))
}

/// Is this the header of a frame at `at` that an opening took back?
fn is_withdrawn(header: &[u8], at: u64, tag: u32) -> bool {
    header[frame_at::LEN..frame_at::TAG] == [WITHDRAWN; 4]
        && header[frame_at::TAG..frame_at::LSN] == tag.to_le_bytes()
        && header[frame_at::LSN..frame_at::LSN + 8] == at.to_le_bytes()
}

struct Reader<'a> {
    segments: &'a [Arc<Segment>],
    /// The stream from `start` on.
    bytes: Vec<u8>,
    start: u64,
}

impl Reader<'_> {
    /// Where the stream that goes on from segment `i` without a new opening ends.
    fn end(&self, i: usize) -> u64 {
        let mut end = self.segments[i].end;
        for next in &self.segments[i + 1..] {
            if next.start.is_some() || next.first != end {
                break;
            }
            end = next.end;
        }
        end
    }

    /// Holds `need` bytes at `at`, which lies in segment `i`; false if the stream ends before.
    fn load(&mut self, i: usize, at: u64, need: u64) -> Result<bool> {
        if self.start <= at && at + need <= self.start + self.bytes.len() as u64 {
            return Ok(true);
        }
        let end = self.end(i);
        if at + need > end {
            return Ok(false);
        }
        let want = need.max(READ_BYTES).min(end - at);
        self.start = at;
        self.bytes.clear();
        let bytes = want as usize;
        self.bytes.try_reserve_exact(bytes).map_err(|_| OutOfMemory { bytes, account: Account::Wal })?;
        self.bytes.resize(bytes, 0);
        let mut done = 0;
        for s in &self.segments[i..] {
            let position = at + done;
            if done == want {
                break;
            }
            let bytes = (want - done).min(s.end - position);
            s.file.read_at(&mut self.bytes[done as usize..(done + bytes) as usize], s.offset(position))?;
            done += bytes;
        }
        Ok(true)
    }

    /// What is at `at`, or why nothing valid is.
    fn piece(&mut self, i: usize, at: u64) -> Result<std::result::Result<Piece<'_>, FormatError>> {
        let tag = self.segments[i].tag;
        let mut need = FRAME_HEADER_BYTES as u64;
        if self.load(i, at, need)? {
            // The header alone tells how long the frame is.
            let offset = (at - self.start) as usize;
            let header = &self.bytes[offset..offset + FRAME_HEADER_BYTES];
            if let Err(FormatError::Truncated { need: whole, .. }) = parse(header, Lsn(at), tag) {
                need = whole;
            }
        }
        if !self.load(i, at, need)? {
            let have = self.end(i).saturating_sub(at);
            return Ok(Err(FormatError::Truncated { what: NOTHING, need, have }));
        }
        let offset = (at - self.start) as usize;
        Ok(match parse(&self.bytes[offset..], Lsn(at), tag) {
            Ok(Some(piece)) => Ok(piece),
            Ok(None) => Err(FormatError::Invalid { what: NOTHING, found: at }),
            Err(e) => Err(e),
        })
    }

    /// Is there proof that `broken`, in segment `i`, was durable once?
    fn was_durable(&mut self, i: usize, broken: u64) -> Result<bool> {
        if self.segments[i + 1..].iter().any(|s| s.start.is_some()) {
            return Ok(true);
        }
        let inside = self.lies_inside(i, broken)?;
        for j in i..self.segments.len() {
            let mut at = if j == i { broken + FRAME_ALIGN as u64 } else { self.segments[j].first };
            while let Some(candidate) = self.candidate(j, at)? {
                at = candidate;
                match self.piece(j, at)? {
                    Ok(_) if j > i && inside => return Ok(true),
                    Ok(Piece::Padding(Padding::Seal(durable), _)) if durable.0 > broken => return Ok(true),
                    Ok(Piece::Padding(_, bytes)) => at += bytes as u64,
                    Ok(Piece::Payload(payload)) => at += frame_space(payload.len()) as u64,
                    Err(_) => at += FRAME_ALIGN as u64,
                }
            }
        }
        Ok(false)
    }

    /// If the frame that begins at `at`, in segment `i`, goes on where there is no segment: where that should begin.
    fn behind_all(&mut self, i: usize, at: u64) -> Result<Option<u64>> {
        let end = self.end(i);
        Ok(self.begun(i, at)?.filter(|frame_end| *frame_end > end).map(|_| end))
    }

    /// Where the frame ends of which the whole header is at `at`, in segment `i`, as far as that tells: what it says it is long,
    /// and whose it is, is one write.
    fn begun(&mut self, i: usize, at: u64) -> Result<Option<u64>> {
        if at + FRAME_HEADER_BYTES as u64 > self.segments[i].end || !self.load(i, at, FRAME_HEADER_BYTES as u64)? {
            return Ok(None);
        }
        let header = &self.bytes[(at - self.start) as usize..][..FRAME_HEADER_BYTES];
        Ok(frame_end(header, at, self.segments[i].tag))
    }

    /// Did the frame at `broken` end within segment `i`? If not, the next segment's sync covers its rest.
    fn lies_inside(&mut self, i: usize, broken: u64) -> Result<bool> {
        let end = self.segments[i].end;
        if broken + FRAME_HEADER_BYTES as u64 > end {
            return Ok(false);
        }
        Ok(match self.begun(i, broken)? {
            Some(frame_end) => frame_end <= end,
            None => {
                let header = &self.bytes[(broken - self.start) as usize..][..FRAME_HEADER_BYTES];
                !is_withdrawn(header, broken, self.segments[i].tag)
            }
        })
    }

    /// The first position from `at` on, in segment `j`, that looks like a frame's.
    fn candidate(&mut self, j: usize, mut at: u64) -> Result<Option<u64>> {
        let (tag, end) = (self.segments[j].tag, self.segments[j].end);
        while at < end && self.load(j, at, FRAME_HEADER_BYTES as u64)? {
            let bytes = &self.bytes[(at - self.start) as usize..];
            let starts = bytes.len() - FRAME_HEADER_BYTES + 1;
            for offset in (0..starts).step_by(FRAME_ALIGN) {
                let (header, position) = (&bytes[offset..offset + FRAME_HEADER_BYTES], at + offset as u64);
                let begins = header[frame_at::LSN..frame_at::LSN + 8] == position.to_le_bytes()
                    && (header[frame_at::TAG..frame_at::LSN] == tag.to_le_bytes()
                        || header[frame_at::TAG..frame_at::LSN] == (tag | SEAL_BIT).to_le_bytes());
                if begins && position < end {
                    return Ok(Some(position));
                }
            }
            at += starts.next_multiple_of(FRAME_ALIGN) as u64;
        }
        Ok(None)
    }
}
