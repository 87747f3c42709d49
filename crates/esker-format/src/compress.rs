//! Owns compression of segments. Invariant: what hardly shrinks is kept plain, and nothing is decompressed into more
//! bytes than its stored raw length says.

use crate::codec::grow;
use crate::error::FormatError;

/// How a table's blocks are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(u8)]
pub enum Compression {
    /// Not at all.
    #[default]
    None = 0,
    /// LZ4 block format: fast.
    Lz4 = 1,
    /// Zstandard: small.
    Zstd = 2,
}

impl Compression {
    /// From its stored number.
    pub fn from_u8(value: u8) -> Result<Self, FormatError> {
        match value {
            0 => Ok(Compression::None),
            1 => Ok(Compression::Lz4),
            2 => Ok(Compression::Zstd),
            other => Err(FormatError::Unknown { what: "compression", found: u64::from(other) }),
        }
    }
}

/// Segments shorter than this are kept plain: there is nothing to win.
const MIN_BYTES: usize = 64;
/// So are those that would not become shorter by one part in so many: to decompress them for each reader, and to keep them twice in
/// memory, costs more than that is worth.
const LEAST_GAIN: usize = 8;
/// Zeroed bytes after decompressed content: decode loops may read past the end, in chunks.
pub(crate) const SLACK_BYTES: usize = 64;

/// Compresses segments; keeps its work memory.
#[derive(Default)]
pub(crate) struct Compressor {
    zstd: Option<(i32, zstd::bulk::Compressor<'static>)>,
}

impl Compressor {
    /// Appends `raw` to `out`, compressed if that is enough shorter, and tells which it was.
    pub(crate) fn append(
        &mut self,
        compression: Compression,
        zstd_level: i32,
        raw: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Compression, FormatError> {
        if compression == Compression::None || raw.len() < MIN_BYTES {
            grow(out, raw.len())?;
            out.extend_from_slice(raw);
            return Ok(Compression::None);
        }
        let start = out.len();
        let bound = match compression {
            Compression::Lz4 => lz4_flex::block::get_maximum_output_size(raw.len()),
            // Too little room makes zstd fail, which is what is wanted when nothing shrinks.
            _ => raw.len(),
        };
        grow(out, bound)?;
        out.resize(start + bound, 0);
        let place = &mut out[start..];
        let len = match compression {
            Compression::Lz4 => lz4_flex::block::compress_into(raw, place).ok(),
            _ => self.zstd(zstd_level).and_then(|z| z.compress_to_buffer(raw, place).ok()),
        };
        match len {
            Some(len) if len < raw.len() - raw.len() / LEAST_GAIN => {
                out.truncate(start + len);
                Ok(compression)
            }
            _ => {
                out.truncate(start);
                // There is room: the bound is no less.
                out.extend_from_slice(raw);
                Ok(Compression::None)
            }
        }
    }

    /// The zstd context of this level; none if it cannot be made (then nothing is compressed).
    fn zstd(&mut self, level: i32) -> Option<&mut zstd::bulk::Compressor<'static>> {
        if !matches!(&self.zstd, Some((have, _)) if *have == level) {
            self.zstd = zstd::bulk::Compressor::new(level).ok().map(|z| (level, z));
        }
        self.zstd.as_mut().map(|(_, z)| z)
    }
}

thread_local! {
    /// A decompression context for each thread: making one costs more than a small segment.
    static UNZSTD: std::cell::RefCell<Option<zstd::bulk::Decompressor<'static>>> =
        const { std::cell::RefCell::new(None) };
}

/// Decompresses a segment into `raw`, and zeroes the [`SLACK_BYTES`] at its end, which are no part of it.
pub(crate) fn decompress(compression: Compression, stored: &[u8], raw: &mut [u8]) -> Result<(), FormatError> {
    let raw_bytes = raw.len().saturating_sub(SLACK_BYTES);
    let (place, slack) = raw.split_at_mut(raw_bytes);
    slack.fill(0);
    let len = match compression {
        Compression::None => None,
        Compression::Lz4 => lz4_flex::block::decompress_into(stored, place).ok(),
        Compression::Zstd => UNZSTD.with(|slot| {
            let mut slot = slot.borrow_mut();
            if slot.is_none() {
                *slot = zstd::bulk::Decompressor::new().ok();
            }
            slot.as_mut().and_then(|z| z.decompress_to_buffer(stored, place).ok())
        }),
    };
    if len == Some(raw_bytes) {
        Ok(())
    } else {
        Err(FormatError::Decompress { what: "block segment", raw_bytes: raw_bytes as u64 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_shrinks_by_less_than_an_eighth_is_plain() {
        let mut compressor = Compressor::default();
        // Noise and zeros, in such shares that about so many percent are won.
        let mut noise = 1u64;
        let mut kind_of = |won: usize| {
            let mut raw: Vec<u8> = (0..8000 - 80 * won)
                .map(|_| {
                    noise = noise.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                    (noise >> 56) as u8
                })
                .collect();
            raw.resize(8000, 0);
            let mut out = Vec::new();
            let kind = compressor.append(Compression::Lz4, 3, &raw, &mut out).unwrap();
            assert_eq!(kind == Compression::None, out.len() == raw.len());
            kind
        };
        assert_eq!([0, 5, 10].map(&mut kind_of), [Compression::None; 3]);
        assert_eq!([16, 30, 90].map(&mut kind_of), [Compression::Lz4; 3]);
    }

    #[test]
    fn round_trips_and_keeps_plain_what_does_not_shrink() {
        let mut noise = 1u64;
        let random: Vec<u8> = std::iter::repeat_with(|| {
            noise = noise.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (noise >> 56) as u8
        })
        .take(1000)
        .collect();
        let text = b"an esker is a long ridge ".repeat(40);
        let mut compressor = Compressor::default();
        for kind in [Compression::Lz4, Compression::Zstd] {
            let mut out = vec![9];
            assert_eq!(compressor.append(kind, 3, &random, &mut out), Ok(Compression::None));
            assert_eq!(out[1..], random);
            out.truncate(1);
            assert_eq!(compressor.append(kind, 3, &text, &mut out), Ok(kind));
            assert!(out.len() < text.len() / 2);
            let unpack = |stored: &[u8], bytes: usize| {
                let mut raw = vec![1; bytes + SLACK_BYTES];
                decompress(kind, stored, &mut raw).map(|()| raw)
            };
            let raw = unpack(&out[1..], text.len()).unwrap();
            assert_eq!(raw[..text.len()], text);
            assert!(unpack(&out[1..], text.len() - 1).is_err());
            assert!(unpack(&out[1..], text.len() + 1).is_err());
            assert!(unpack(&out[1..out.len() - 3], text.len()).is_err());
        }
    }
}
