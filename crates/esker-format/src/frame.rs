//! Owns the outer form of the log: segment headers and frames. Invariants: a frame is believed only when its position,
//! its segment's tag and its checksum all fit, so that neither bytes of a recycled segment replay nor what somebody has put into
//! rows to look like frames; a length is bounded before it is used.

use crate::codec::{self, get_u32, get_u64, set_u32, set_u64};
use crate::error::FormatError;
use crate::ids::{FolderId, Lsn};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// Format version of log segments.
pub const WAL_VERSION: u32 = 2;
/// Feature that a segment may require: its frames have its tag, not its generation.
pub const TAGGED: u64 = 1;
/// Features that this version knows of those that a segment may require.
pub const KNOWN_FEATURES: u64 = TAGGED;
/// Length of a segment's header.
pub const SEGMENT_HEADER_BYTES: usize = 4096;
/// Length of a frame's header; its payload follows.
pub const FRAME_HEADER_BYTES: usize = 24;
/// The longest payload: a row of the greatest length, and the rest of its record.
pub const MAX_PAYLOAD_BYTES: u32 = 128 << 20;
/// "ESKWAL" and two zero bytes.
pub const SEGMENT_MAGIC: u64 = u64::from_le_bytes(*b"ESKWAL\0\0");

/// Offsets in a segment's header (checksum at 0, of all that follows).
pub mod segment_at {
    #![allow(missing_docs)]
    pub const CHECKSUM: usize = 0;
    pub const MAGIC: usize = 8;
    pub const VERSION: usize = 16;
    pub const GENERATION: usize = 20;
    pub const FIRST_LSN: usize = 24;
    pub const FOLDER: usize = 32;
    pub const REQUIRED_FEATURES: usize = 48;
    pub const KEY: usize = 56;
    pub const KEY_VERSION: usize = 60;
    pub const TAG: usize = 64;
}

/// Offsets in a frame's header (checksum of the payload, seeded with the checksum of the rest of the header).
pub mod frame_at {
    #![allow(missing_docs)]
    pub const CHECKSUM: usize = 0;
    pub const LEN: usize = 8;
    pub const TAG: usize = 12;
    pub const LSN: usize = 16;
    pub const PAYLOAD: usize = 24;
}

/// The start of a log segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentHeader {
    /// Which use of a recycled file this is.
    pub generation: u32,
    /// What its frames repeat. One that nobody can know who fills rows; the generation in segments of before there were tags.
    pub tag: u32,
    /// LSN of the first byte after the header.
    pub first_lsn: Lsn,
    /// The folder that the log is of.
    pub folder: FolderId,
}

impl SegmentHeader {
    /// Appends [`SEGMENT_HEADER_BYTES`] bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.resize(start + SEGMENT_HEADER_BYTES, 0);
        let b = &mut out[start..];
        set_u64(b, segment_at::MAGIC, SEGMENT_MAGIC);
        set_u32(b, segment_at::VERSION, WAL_VERSION);
        set_u32(b, segment_at::GENERATION, self.generation);
        set_u64(b, segment_at::FIRST_LSN, self.first_lsn.0);
        b[segment_at::FOLDER..segment_at::REQUIRED_FEATURES].copy_from_slice(&self.folder.0);
        if self.tag != self.generation {
            set_u64(b, segment_at::REQUIRED_FEATURES, TAGGED);
            set_u32(b, segment_at::TAG, self.tag);
        }
        codec::seal(b, SEGMENT_MAGIC);
    }

    /// Reads the first [`SEGMENT_HEADER_BYTES`] bytes of a segment.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        codec::need("log segment header", bytes, SEGMENT_HEADER_BYTES)?;
        let b = &bytes[..SEGMENT_HEADER_BYTES];
        let magic = get_u64(b, segment_at::MAGIC);
        if magic != SEGMENT_MAGIC {
            return Err(FormatError::Invalid { what: "log segment magic", found: magic });
        }
        codec::check_seal(b, SEGMENT_MAGIC)?;
        codec::check_version("log segment", get_u32(b, segment_at::VERSION), WAL_VERSION)?;
        let features = get_u64(b, segment_at::REQUIRED_FEATURES);
        codec::check_bits("required feature bits", features, KNOWN_FEATURES)?;
        // Id and version of a key, as one.
        let key = get_u64(b, segment_at::KEY);
        if key != 0 {
            return Err(FormatError::Invalid { what: "log segment key", found: key });
        }
        let mut folder = FolderId::default();
        folder.0.copy_from_slice(&b[segment_at::FOLDER..segment_at::REQUIRED_FEATURES]);
        let generation = get_u32(b, segment_at::GENERATION);
        Ok(SegmentHeader {
            generation,
            tag: if features & TAGGED == 0 { generation } else { get_u32(b, segment_at::TAG) },
            first_lsn: Lsn(get_u64(b, segment_at::FIRST_LSN)),
            folder,
        })
    }
}

/// A whole frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Its position: LSN of its first header byte.
    pub lsn: Lsn,
    /// Its records.
    pub payload: &'a [u8],
}

impl Frame<'_> {
    /// Header and payload together: the next frame begins at `lsn + bytes()` at the earliest.
    #[must_use]
    pub fn bytes(&self) -> usize {
        frame_bytes(self.payload.len())
    }
}

/// Length of a frame with a payload of `payload` bytes.
#[must_use]
pub const fn frame_bytes(payload: usize) -> usize {
    FRAME_HEADER_BYTES + payload
}

/// The header of the frame that holds `payload` at `lsn`, in a segment with this tag. The payload is at most
/// [`MAX_PAYLOAD_BYTES`] long.
#[must_use]
pub fn frame_header(lsn: Lsn, tag: u32, payload: &[u8]) -> [u8; FRAME_HEADER_BYTES] {
    debug_assert!(payload.len() <= MAX_PAYLOAD_BYTES as usize);
    let mut header = [0; FRAME_HEADER_BYTES];
    set_u32(&mut header, frame_at::LEN, payload.len() as u32);
    set_u32(&mut header, frame_at::TAG, tag);
    set_u64(&mut header, frame_at::LSN, lsn.0);
    let sum = frame_checksum(&header, payload);
    set_u64(&mut header, frame_at::CHECKSUM, sum);
    header
}

/// The checksum of a frame: its payload's, seeded with that of the header after the checksum.
fn frame_checksum(header: &[u8], payload: &[u8]) -> u64 {
    xxh3_64_with_seed(payload, xxh3_64(&header[frame_at::LEN..FRAME_HEADER_BYTES]))
}

/// Reads the frame at the start of `bytes`, which is the log's content at `expected_lsn`, in a segment with this tag.
///
/// - `Ok(Some)`: a whole frame.
/// - `Ok(None)`: no frame was begun here: zeros, or bytes of an older use or of another position. The log ends.
/// - `Err(Truncated)`: a frame of this position begins here and `bytes` is too short for it: read `need` bytes.
/// - `Err(Checksum)`, `Err(TooLong)`: a frame of this position was begun and is torn or damaged. Only the reader can
///   tell which: at the end of the log it is a torn write, before acknowledged frames it is damage.
pub fn parse_frame(bytes: &[u8], expected_lsn: Lsn, tag: u32) -> Result<Option<Frame<'_>>, FormatError> {
    codec::need("log frame", bytes, FRAME_HEADER_BYTES)?;
    let found = (get_u64(bytes, frame_at::LSN), get_u32(bytes, frame_at::TAG));
    if found != (expected_lsn.0, tag) {
        return Ok(None);
    }
    let len = get_u32(bytes, frame_at::LEN);
    let expected = get_u64(bytes, frame_at::CHECKSUM);
    if expected_lsn == Lsn::ZERO && tag == 0 && len == 0 && expected == 0 {
        return Ok(None);
    }
    if len > MAX_PAYLOAD_BYTES {
        let (found, max) = (u64::from(len), u64::from(MAX_PAYLOAD_BYTES));
        return Err(FormatError::TooLong { what: "log frame", found, max });
    }
    codec::need("log frame", bytes, frame_bytes(len as usize))?;
    let payload = &bytes[FRAME_HEADER_BYTES..frame_bytes(len as usize)];
    let found = frame_checksum(bytes, payload);
    if expected != found {
        return Err(FormatError::Checksum { expected, found });
    }
    Ok(Some(Frame { lsn: expected_lsn, payload }))
}
