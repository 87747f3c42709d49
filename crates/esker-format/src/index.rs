//! Owns what the catalog says about an index: the definition of a key tree.
//! Invariants: names and numbers are the front end's, opaque here; a state that is not known is refused.

use crate::codec::{check_bits, put_bytes, put_varint, Reader};
use crate::entry::put_list;
use crate::error::FormatError;
use crate::ids::CommitSeq;
use crate::key_bytes::Collations;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The numbers of an index's states.
pub mod index_state {
    #![allow(missing_docs)]
    pub const BUILDING: u8 = 1;
    pub const READY: u8 = 2;
    pub const LEAVING: u8 = 3;
}

/// Bits of an index's flags.
pub mod index_flags {
    #![allow(missing_docs)]
    pub const UNIQUE: u64 = 1;
}

/// Bits of a key part's flags.
pub mod part_flags {
    #![allow(missing_docs)]
    pub const DESCENDING: u64 = 1;
}

/// How far an index has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum IndexState {
    /// Writers keep it, nobody reads it: rows from before are still missing.
    Building = index_state::BUILDING,
    /// Complete.
    Ready = index_state::READY,
    /// About to be dropped: nobody reads or keeps it.
    Leaving = index_state::LEAVING,
}

impl IndexState {
    fn from_u8(value: u8) -> Result<Self, FormatError> {
        match value {
            index_state::BUILDING => Ok(IndexState::Building),
            index_state::READY => Ok(IndexState::Ready),
            index_state::LEAVING => Ok(IndexState::Leaving),
            found => Err(FormatError::Unknown { what: "state of an index", found: u64::from(found) }),
        }
    }
}

/// One part of an index's key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct KeyPart {
    /// Id of the column ([`crate::ColumnEntry::id`]).
    pub column: u32,
    /// Only so many bytes of the value count; 0: all.
    pub prefix_bytes: u32,
    /// Greater values come first.
    pub descending: bool,
    /// Number of the way in which the value becomes key bytes ([`crate::key_bytes::key_encoding`]).
    pub encoding: u32,
    /// The front end's number of the collation; 0: none.
    pub collation: u32,
}

impl KeyPart {
    fn encode(&self, out: &mut Vec<u8>) {
        let flags = if self.descending { part_flags::DESCENDING } else { 0 };
        for n in [self.column, self.prefix_bytes] {
            put_varint(out, u64::from(n));
        }
        put_varint(out, flags);
        for n in [self.encoding, self.collation] {
            put_varint(out, u64::from(n));
        }
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, FormatError> {
        let (column, prefix_bytes, flags) = (r.varint32()?, r.varint32()?, r.varint()?);
        check_bits("flags of a key part", flags, part_flags::DESCENDING)?;
        Ok(KeyPart {
            column,
            prefix_bytes,
            descending: flags & part_flags::DESCENDING != 0,
            encoding: r.varint32()?,
            collation: r.varint32()?,
        })
    }
}

/// An index, as its key tree's definition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexEntry {
    /// Its identity in its table, never used twice there.
    pub id: u32,
    /// Its name.
    pub name: String,
    /// No two rows have the same key.
    pub unique: bool,
    /// The parts of its key, in order.
    pub parts: Vec<KeyPart>,
    /// How far it has come.
    pub state: IndexState,
    /// Views before this commit sequence cannot read it.
    pub usable_from: CommitSeq,
    /// What strings weighed when it was made ([`weights_version`]); 0: nobody told.
    pub weights: u64,
}

/// What strings weigh in the collations of these parts, in one number; 0: there are none, or the front end does not tell.
#[must_use]
pub fn weights_version(parts: &[KeyPart], collations: &dyn Collations) -> u64 {
    let versions = parts.iter().filter(|p| p.collation != 0).map(|p| collations.version(p.collation));
    let bytes: Vec<u8> = versions.flat_map(u64::to_le_bytes).collect();
    if bytes.iter().all(|b| *b == 0) {
        0
    } else {
        xxh3_64_with_seed(&bytes, 0).max(1)
    }
}

impl IndexEntry {
    /// Identifies how its keys are made: a hash of its parts as they are stored, and of whether it is unique.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        let mut parts = Vec::new();
        put_list(&mut parts, &self.parts, KeyPart::encode);
        xxh3_64_with_seed(&parts, if self.unique { index_flags::UNIQUE } else { 0 })
    }

    /// Appends the stored form.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, u64::from(self.id));
        put_bytes(out, self.name.as_bytes());
        put_varint(out, if self.unique { index_flags::UNIQUE } else { 0 });
        put_list(out, &self.parts, KeyPart::encode);
        out.push(self.state as u8);
        put_varint(out, self.usable_from.0);
        if self.weights != 0 {
            put_varint(out, self.weights);
        }
    }

    /// Reads the stored form.
    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<Self, FormatError> {
        let (id, name, flags) = (r.varint32()?, r.text()?.to_owned(), r.varint()?);
        check_bits("flags of an index", flags, index_flags::UNIQUE)?;
        Ok(IndexEntry {
            id,
            name,
            unique: flags & index_flags::UNIQUE != 0,
            parts: r.list(5, KeyPart::decode)?,
            state: IndexState::from_u8(r.u8()?)?,
            usable_from: CommitSeq(r.varint()?),
            // Behind it in its entry, and not there before anybody told.
            weights: if r.rest().is_empty() { 0 } else { r.varint()? },
        })
    }
}
