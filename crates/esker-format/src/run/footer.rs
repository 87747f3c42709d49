//! Owns the end of a run file: the directory of its parts, and the footer that tells where it is. Invariants: the
//! footer's place and the rule of its checksum are the same in all versions; a decoded place lies in the file.

use super::{block_context, RUN_HEADER_BYTES, RUN_VERSION};
use crate::codec::{self, get_u32, get_u64, set_u32, set_u64};
use crate::error::FormatError;
use crate::ids::{FileId, TreeId};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Length of the footer, the last bytes of the file.
pub const RUN_FOOTER_BYTES: usize = 256;
/// Length of an entry of the directory of parts.
pub const PART_ENTRY_BYTES: usize = 24;
/// The most parts of a file.
pub const MAX_PARTS: u32 = 1 << 20;
/// "ESKRFT" and two zero bytes.
pub const FOOTER_MAGIC: u64 = u64::from_le_bytes(*b"ESKRFT\0\0");

/// Offsets in the footer (checksum at 0, of all that follows).
pub mod footer_at {
    #![allow(missing_docs)]
    pub const CHECKSUM: usize = 0;
    pub const MAGIC: usize = 8;
    pub const VERSION: usize = 16;
    pub const PARTS: usize = 20;
    pub const FILE: usize = 24;
    pub const DIRECTORY_OFFSET: usize = 32;
    pub const DIRECTORY_SUM: usize = 40;
}

/// Offsets in an entry of the directory of parts.
pub mod place_at {
    #![allow(missing_docs)]
    pub const TREE: usize = 0;
    pub const OFFSET: usize = 8;
    pub const BYTES: usize = 16;
    pub const ZERO: usize = 20;
}

/// Where a part's footer lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartPlace {
    /// The tree that the part belongs to.
    pub tree: TreeId,
    /// Where its footer begins in the file.
    pub offset: u64,
    /// How long that is.
    pub bytes: u32,
}

/// The last bytes of a run file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunFooter {
    /// The file's identity, as in the header.
    pub file: FileId,
    /// How many parts the file has.
    pub parts: u32,
    /// Where the directory of parts begins.
    pub directory_offset: u64,
    directory_sum: u64,
}

/// Appends directory and footer of a file with these parts, numbered from 0. `base`: where `out` begins in the file.
pub fn encode_end(file: FileId, parts: &[PartPlace], base: u64, out: &mut Vec<u8>) {
    let (start, directory_offset) = (out.len(), base + out.len() as u64);
    for part in parts {
        let at = out.len();
        out.resize(at + PART_ENTRY_BYTES, 0);
        let entry = &mut out[at..];
        set_u64(entry, place_at::TREE, part.tree.0);
        set_u64(entry, place_at::OFFSET, part.offset);
        set_u32(entry, place_at::BYTES, part.bytes);
    }
    let sum = xxh3_64_with_seed(&out[start..], block_context(file, directory_offset));
    let start = out.len();
    out.resize(start + RUN_FOOTER_BYTES, 0);
    let b = &mut out[start..];
    set_u64(b, footer_at::MAGIC, FOOTER_MAGIC);
    set_u32(b, footer_at::VERSION, RUN_VERSION);
    set_u32(b, footer_at::PARTS, parts.len() as u32);
    set_u64(b, footer_at::FILE, file.0);
    set_u64(b, footer_at::DIRECTORY_OFFSET, directory_offset);
    set_u64(b, footer_at::DIRECTORY_SUM, sum);
    codec::seal(b, FOOTER_MAGIC);
}

impl PartPlace {
    /// Where the footer ends: the next part begins there or behind it.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(self.bytes.into())
    }
}

impl RunFooter {
    /// Reads the last [`RUN_FOOTER_BYTES`] bytes of a file that is `file_bytes` long, and bounds the directory by it.
    pub fn decode(bytes: &[u8], file_bytes: u64) -> Result<Self, FormatError> {
        codec::need("run footer", bytes, RUN_FOOTER_BYTES)?;
        let b = &bytes[bytes.len() - RUN_FOOTER_BYTES..];
        let magic = get_u64(b, footer_at::MAGIC);
        if magic != FOOTER_MAGIC {
            return Err(FormatError::Invalid { what: "run footer magic", found: magic });
        }
        codec::check_seal(b, FOOTER_MAGIC)?;
        codec::check_version("run footer", get_u32(b, footer_at::VERSION), RUN_VERSION)?;
        let footer = RunFooter {
            file: FileId(get_u64(b, footer_at::FILE)),
            parts: get_u32(b, footer_at::PARTS),
            directory_offset: get_u64(b, footer_at::DIRECTORY_OFFSET),
            directory_sum: get_u64(b, footer_at::DIRECTORY_SUM),
        };
        if footer.parts == 0 || footer.parts > MAX_PARTS {
            return Err(FormatError::Invalid { what: "parts of a run", found: footer.parts.into() });
        }
        let end = footer.directory_offset.checked_add(footer.directory_bytes());
        if footer.directory_offset < RUN_HEADER_BYTES as u64
            || end.is_none_or(|end| end > file_bytes.saturating_sub(RUN_FOOTER_BYTES as u64))
        {
            return Err(FormatError::Invalid { what: "directory of parts", found: footer.directory_offset });
        }
        Ok(footer)
    }

    /// Length of the directory of parts, in bytes.
    #[must_use]
    pub fn directory_bytes(&self) -> u64 {
        u64::from(self.parts) * PART_ENTRY_BYTES as u64
    }

    /// Reads the directory of parts, all of `bytes`; which part is which is their order.
    pub fn decode_directory(&self, bytes: &[u8]) -> Result<Vec<PartPlace>, FormatError> {
        if bytes.len() as u64 != self.directory_bytes() {
            return Err(FormatError::Invalid { what: "directory of parts", found: bytes.len() as u64 });
        }
        let found = xxh3_64_with_seed(bytes, block_context(self.file, self.directory_offset));
        if found != self.directory_sum {
            return Err(FormatError::Checksum { expected: self.directory_sum, found });
        }
        let mut from = RUN_HEADER_BYTES as u64;
        let place = |entry: &[u8]| {
            let place = PartPlace {
                tree: TreeId(get_u64(entry, place_at::TREE)),
                offset: get_u64(entry, place_at::OFFSET),
                bytes: get_u32(entry, place_at::BYTES),
            };
            if place.offset < from || place.end() > self.directory_offset {
                return Err(FormatError::Invalid { what: "place of a part", found: place.offset });
            }
            from = place.end();
            Ok(place)
        };
        bytes.chunks_exact(PART_ENTRY_BYTES).map(place).collect()
    }
}
