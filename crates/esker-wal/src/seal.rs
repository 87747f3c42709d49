//! Padding frames, which say where the log stood when they were written.
//!
//! A seal ends each synced group at a sector's end and carries the durable position of that moment. A start is the
//! first frame of the first segment of each opening of the log and carries where the log ended before. Both bear their
//! segment's tag with the highest bit set, so that they cannot be taken for anybody's payload.

use crate::{sector_up, SECTOR_BYTES};
use esker_format::frame::{frame_bytes, frame_header, parse_frame};
use esker_format::{FormatError, Lsn};

/// Marks the tag of a padding frame; tags and generations stay below.
pub(crate) const SEAL_BIT: u32 = 1 << 31;

/// Two numbers: kind and position.
const BODY: usize = 16;
const KIND_SEAL: u64 = 0;
const KIND_START: u64 = 1;

/// The most that one seal adds to the stream.
pub(crate) const SEAL_MAX_BYTES: u64 = SECTOR_BYTES + frame_bytes(BODY) as u64;

/// What a padding frame says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Padding {
    /// Everything before was durable when this was written.
    Seal(Lsn),
    /// The log ended here when it was opened.
    Start(Lsn),
}

/// Anything that can be found at a position.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Piece<'a> {
    Payload(&'a [u8]),
    Padding(Padding, usize),
}

/// The padding frame that goes from `lsn` to a sector's end.
pub(crate) fn padding(lsn: Lsn, tag: u32, padding: Padding) -> Vec<u8> {
    let least = frame_bytes(BODY) as u64;
    let bytes = sector_up(lsn.0 + least) - lsn.0;
    let (kind, position) = match padding {
        Padding::Seal(lsn) => (KIND_SEAL, lsn.0),
        Padding::Start(lsn) => (KIND_START, lsn.0),
    };
    let mut body = vec![0; bytes as usize - frame_bytes(0)];
    body[..8].copy_from_slice(&kind.to_le_bytes());
    body[8..16].copy_from_slice(&position.to_le_bytes());
    let mut out = frame_header(lsn, tag | SEAL_BIT, &body).to_vec();
    out.extend_from_slice(&body);
    out
}

/// Parses what is at `lsn`; results as those of [`parse_frame`].
pub(crate) fn parse(bytes: &[u8], lsn: Lsn, tag: u32) -> Result<Option<Piece<'_>>, FormatError> {
    if let Some(frame) = parse_frame(bytes, lsn, tag)? {
        return Ok(Some(Piece::Payload(frame.payload)));
    }
    let Some(frame) = parse_frame(bytes, lsn, tag | SEAL_BIT)? else { return Ok(None) };
    let number = |at: usize| frame.payload.get(at..at + 8).and_then(|b| b.try_into().ok()).map(u64::from_le_bytes);
    let padding = match (number(0), number(8)) {
        (Some(KIND_SEAL), Some(lsn)) => Padding::Seal(Lsn(lsn)),
        (Some(KIND_START), Some(lsn)) => Padding::Start(Lsn(lsn)),
        (kind, _) => {
            return Err(FormatError::Invalid { what: "kind of log padding", found: kind.unwrap_or(u64::MAX) });
        }
    };
    Ok(Some(Piece::Padding(padding, frame.bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_ends_at_a_sector_and_says_what_it_was_told() {
        for at in [0, 1, 4000, 4055, 4056, 4057, 4095, 4096, 9000] {
            for what in [Padding::Seal(Lsn(77)), Padding::Start(Lsn(at))] {
                let bytes = padding(Lsn(at), 3, what);
                assert_eq!((at + bytes.len() as u64) % SECTOR_BYTES, 0);
                assert!(bytes.len() as u64 <= SEAL_MAX_BYTES);
                assert_eq!(parse(&bytes, Lsn(at), 3), Ok(Some(Piece::Padding(what, bytes.len()))));
                assert_eq!(parse(&bytes, Lsn(at), 4), Ok(None));
                assert_eq!(parse(&bytes, Lsn(at + 1), 3), Ok(None));
            }
        }
    }
}
