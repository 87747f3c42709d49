//! Owns what ends a part of a run file: its sections, and the footer with their table. A part is a run: the blocks of
//! one tree. Invariants: sections lie before the footer; a section of unknown kind is passed over unless its table says
//! that it must be known.

use super::filter::Filters;
use super::index::{decode_leaf, decode_top, encode_index, Leaf, LeafEntry};
use super::{block_context, PartPlace, RunStats, RUN_HEADER_BYTES, RUN_VERSION};
use crate::codec::{self, get_u16, get_u32, get_u64, set_u32, set_u64};
use crate::error::FormatError;
use crate::ids::{FileId, TreeId};
use std::ops::Range;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Length of a part's footer before the table of sections.
pub const PART_FOOTER_BYTES: usize = 64;
/// Length of an entry of the table of sections.
pub const SECTION_ENTRY_BYTES: usize = 32;
/// The most sections of a part.
pub const MAX_SECTIONS: u32 = 1 << 16;
/// Version of every kind of section that there is.
pub const SECTION_VERSION: u16 = 1;
/// "ESKRPT" and two zero bytes.
pub const PART_MAGIC: u64 = u64::from_le_bytes(*b"ESKRPT\0\0");

/// Offsets in a part's footer (checksum at 0, of all that follows with the table).
pub mod part_at {
    #![allow(missing_docs)]
    pub const CHECKSUM: usize = 0;
    pub const MAGIC: usize = 8;
    pub const VERSION: usize = 16;
    pub const PART: usize = 20;
    pub const FILE: usize = 24;
    pub const TREE: usize = 32;
    pub const FINGERPRINT: usize = 40;
    pub const FIRST_BLOCK: usize = 48;
    pub const BLOCK_KIND: usize = 56;
    pub const ZERO: usize = 57;
    pub const SECTIONS: usize = 60;
    pub const TABLE: usize = 64;
}

/// Offsets in an entry of the table of sections.
pub mod section_at {
    #![allow(missing_docs)]
    pub const KIND: usize = 0;
    pub const VERSION: usize = 4;
    pub const REQUIRED: usize = 6;
    pub const ZERO: usize = 7;
    pub const OFFSET: usize = 8;
    pub const BYTES: usize = 16;
    pub const CHECKSUM: usize = 24;
}

/// What sections there are.
pub mod section_kind {
    #![allow(missing_docs)]
    pub const INDEX_LEAVES: u32 = 1;
    pub const INDEX_TOP: u32 = 2;
    pub const STATISTICS: u32 = 3;
    pub const FILTERS: u32 = 4;
    pub const ROW_IDS: u32 = 5;
    pub const ROW_FILTERS: u32 = 6;
}

/// What the blocks of a part are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum BlockKind {
    /// Row blocks.
    Rows = 0,
    /// Key blocks.
    Keys = 1,
}

impl BlockKind {
    /// The kind of section that has their filters: two, since versions before there were any of rows would ask these otherwise.
    #[must_use]
    pub fn filters(self) -> u32 {
        match self {
            BlockKind::Rows => section_kind::ROW_FILTERS,
            BlockKind::Keys => section_kind::FILTERS,
        }
    }
}

/// A section of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Section {
    /// One of [`section_kind`]'s numbers.
    pub kind: u32,
    /// Version of its content.
    pub version: u16,
    /// Nobody may read the part who does not know it.
    pub required: bool,
    /// Where it begins in the file.
    pub offset: u64,
    /// How long it is.
    pub bytes: u64,
    checksum: u64,
}

impl Section {
    /// Describes the section that was appended to `out` at `place`; `base`: where `out` begins in the file.
    #[must_use]
    pub fn written(file: FileId, kind: u32, required: bool, base: u64, out: &[u8], place: Range<usize>) -> Self {
        let offset = base + place.start as u64;
        let content = &out[place];
        let checksum = xxh3_64_with_seed(content, block_context(file, offset));
        Section { kind, version: SECTION_VERSION, required, offset, bytes: content.len() as u64, checksum }
    }

    /// Fails unless `bytes` are the section's.
    pub fn check(&self, file: FileId, bytes: &[u8]) -> Result<(), FormatError> {
        let found = xxh3_64_with_seed(bytes, block_context(file, self.offset));
        if found != self.checksum || bytes.len() as u64 != self.bytes {
            return Err(FormatError::Checksum { expected: self.checksum, found });
        }
        Ok(())
    }
}

/// Sections that not every part has.
#[derive(Debug, Clone, Copy, Default)]
pub struct MoreSections<'a> {
    /// Of key blocks.
    pub filters: Option<&'a Filters>,
    /// A finished [`super::RowIdSet`]; empty: none.
    pub row_ids: &'a [u8],
}

/// A part's footer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Which part of its file it is, from 0.
    pub number: u32,
    /// The tree that it was written for.
    pub tree: TreeId,
    /// [`crate::Layout::fingerprint`] of the layout that it was written with, or [`crate::IndexEntry::fingerprint`] of the
    /// index.
    pub fingerprint: u64,
    /// What its blocks are.
    pub blocks: BlockKind,
    /// Where its first block begins, or could.
    pub first_block: u64,
    /// Its sections; of those that are decoded, only known ones.
    pub sections: Vec<Section>,
}

impl Part {
    /// Appends the end of a part whose blocks are written: sections and footer. `self` has no sections yet. `base`: where
    /// `out` begins in the file. For the directory of parts, tells where the footer is.
    pub fn encode_with<E: LeafEntry>(
        mut self,
        file: FileId,
        (entries, stats, more): (&[E], &RunStats, MoreSections<'_>),
        base: u64,
        out: &mut Vec<u8>,
    ) -> PartPlace {
        let first = out.len();
        if let Some(filters) = more.filters {
            filters.encode(file, base, out);
        }
        let row_ids = out.len();
        out.extend_from_slice(more.row_ids);
        let start = out.len();
        let top = encode_index(file, entries, base, out);
        let statistics = out.len();
        stats.encode(out);
        let places = [
            (section_kind::INDEX_LEAVES, true, start..top),
            (section_kind::INDEX_TOP, true, top..statistics),
            (section_kind::STATISTICS, true, statistics..out.len()),
        ];
        // Who does not know these reads all the same: blocks tell what they tell.
        let filters = more.filters.map(|_| (self.blocks.filters(), false, first..row_ids));
        let row_ids = (row_ids < start).then_some((section_kind::ROW_IDS, false, row_ids..start));
        let written = |(kind, required, place)| Section::written(file, kind, required, base, out, place);
        self.sections = places.into_iter().chain(filters).chain(row_ids).map(written).collect();
        self.encode(file, base, out)
    }

    /// Appends the footer, whose sections are written. Else as [`encode_with`](Self::encode_with).
    pub fn encode(&self, file: FileId, base: u64, out: &mut Vec<u8>) -> PartPlace {
        let (start, offset) = (out.len(), base + out.len() as u64);
        let bytes = PART_FOOTER_BYTES + self.sections.len() * SECTION_ENTRY_BYTES;
        out.resize(start + bytes, 0);
        let b = &mut out[start..];
        set_u64(b, part_at::MAGIC, PART_MAGIC);
        set_u32(b, part_at::VERSION, RUN_VERSION);
        set_u32(b, part_at::PART, self.number);
        set_u64(b, part_at::FILE, file.0);
        set_u64(b, part_at::TREE, self.tree.0);
        set_u64(b, part_at::FINGERPRINT, self.fingerprint);
        set_u64(b, part_at::FIRST_BLOCK, self.first_block);
        b[part_at::BLOCK_KIND] = self.blocks as u8;
        set_u32(b, part_at::SECTIONS, self.sections.len() as u32);
        for (entry, s) in b[part_at::TABLE..].chunks_exact_mut(SECTION_ENTRY_BYTES).zip(&self.sections) {
            set_u32(entry, section_at::KIND, s.kind);
            entry[section_at::VERSION..section_at::VERSION + 2].copy_from_slice(&s.version.to_le_bytes());
            entry[section_at::REQUIRED] = s.required.into();
            set_u64(entry, section_at::OFFSET, s.offset);
            set_u64(entry, section_at::BYTES, s.bytes);
            set_u64(entry, section_at::CHECKSUM, s.checksum);
        }
        codec::seal(b, block_context(file, offset));
        PartPlace { tree: self.tree, offset, bytes: bytes as u32 }
    }

    /// Reads the footer of part `number` of `file`, all of `bytes`; `places`: the file's directory.
    pub fn decode(file: FileId, number: u32, places: &[PartPlace], bytes: &[u8]) -> Result<Self, FormatError> {
        let invalid = |what, found: u64| Err(FormatError::Invalid { what, found });
        let Some(place) = places.get(number as usize) else {
            return invalid("number of a part", number.into());
        };
        // Nothing of a part lies in the one before it.
        let before = number.checked_sub(1).and_then(|n| places.get(n as usize));
        let from = before.map_or(RUN_HEADER_BYTES as u64, PartPlace::end);
        codec::need("part footer", bytes, PART_FOOTER_BYTES)?;
        let magic = get_u64(bytes, part_at::MAGIC);
        if magic != PART_MAGIC {
            return invalid("part footer magic", magic);
        }
        codec::check_seal(bytes, block_context(file, place.offset))?;
        codec::check_version("part footer", get_u32(bytes, part_at::VERSION), RUN_VERSION)?;
        let blocks = match bytes[part_at::BLOCK_KIND] {
            0 => BlockKind::Rows,
            1 => BlockKind::Keys,
            other => return Err(FormatError::Unknown { what: "kind of blocks", found: other.into() }),
        };
        let count = get_u32(bytes, part_at::SECTIONS);
        let table = &bytes[part_at::TABLE..];
        if count > MAX_SECTIONS || table.len() != count as usize * SECTION_ENTRY_BYTES {
            return invalid("sections of a part", count.into());
        }
        let mut part = Part {
            number: get_u32(bytes, part_at::PART),
            tree: TreeId(get_u64(bytes, part_at::TREE)),
            fingerprint: get_u64(bytes, part_at::FINGERPRINT),
            blocks,
            first_block: get_u64(bytes, part_at::FIRST_BLOCK),
            sections: Vec::new(),
        };
        if part.number != number {
            return invalid("number of a part", part.number.into());
        }
        let in_file = get_u64(bytes, part_at::FILE);
        if in_file != file.0 {
            return invalid("part's file id", in_file);
        }
        if part.tree != place.tree {
            return invalid("part's tree", part.tree.0);
        }
        if part.first_block < from || part.first_block > place.offset {
            return invalid("first block of a part", part.first_block);
        }
        for entry in table.chunks_exact(SECTION_ENTRY_BYTES) {
            codec::check_bits("requirement of a section", entry[section_at::REQUIRED].into(), 1)?;
            let section = Section {
                kind: get_u32(entry, section_at::KIND),
                version: get_u16(entry, section_at::VERSION),
                required: entry[section_at::REQUIRED] != 0,
                offset: get_u64(entry, section_at::OFFSET),
                bytes: get_u64(entry, section_at::BYTES),
                checksum: get_u64(entry, section_at::CHECKSUM),
            };
            let end = section.offset.checked_add(section.bytes);
            if section.offset < part.first_block || end.is_none_or(|end| end > place.offset) {
                return invalid("place of a section", section.offset);
            }
            let known = matches!(section.kind, section_kind::INDEX_LEAVES..=section_kind::ROW_FILTERS);
            match (known, section.required) {
                (true, _) if section.version == SECTION_VERSION => {
                    if part.section(section.kind).is_ok() {
                        return invalid("second section of a kind", section.kind.into());
                    }
                    part.sections.push(section);
                }
                (_, false) => {}
                (true, true) => {
                    codec::check_version("section of a run", section.version.into(), SECTION_VERSION.into())?
                }
                (false, true) => {
                    return Err(FormatError::Unknown { what: "section of a run", found: section.kind.into() });
                }
            }
        }
        Ok(part)
    }

    /// The section of this kind.
    pub fn section(&self, kind: u32) -> Result<&Section, FormatError> {
        let missing = FormatError::Invalid { what: "run without a section of its kind", found: kind.into() };
        self.sections.iter().find(|s| s.kind == kind).ok_or(missing)
    }

    /// Reads the top level of the block index, all of its section's `bytes`; the pages are read one by one, see
    /// [`decode_leaf`](Self::decode_leaf).
    pub fn decode_top(&self, file: FileId, bytes: &[u8]) -> Result<Vec<Leaf>, FormatError> {
        self.section(section_kind::INDEX_TOP)?.check(file, bytes)?;
        decode_top(self.blocks, self.section(section_kind::INDEX_LEAVES)?, bytes)
    }

    /// Reads the leaf page of the block index that `leaf` is about, all of `bytes`, and appends what it says to `out`,
    /// which holds the pages before it or nothing. The blocks lie in the part, before its sections.
    pub fn decode_leaf<E: LeafEntry>(
        &self,
        file: FileId,
        leaf: &Leaf,
        bytes: &[u8],
        out: &mut Vec<E>,
    ) -> Result<(), FormatError> {
        if E::BLOCKS != self.blocks {
            return Err(FormatError::Invalid { what: "kind of blocks", found: self.blocks as u64 });
        }
        let end = self.sections.iter().map(|s| s.offset).min().unwrap_or(self.first_block);
        decode_leaf(file, leaf, self.first_block..end, bytes, out)
    }

    /// Reads the part's statistics, all of its section's `bytes`.
    pub fn decode_stats(&self, file: FileId, bytes: &[u8]) -> Result<RunStats, FormatError> {
        self.section(section_kind::STATISTICS)?.check(file, bytes)?;
        let mut reader = codec::Reader::new("run statistics", bytes);
        let stats = RunStats::decode(&mut reader)?;
        reader.finish()?;
        Ok(stats)
    }
}
