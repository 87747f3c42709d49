//! Owns what ANALYZE TABLE found out about an index. Planners read it and nobody else: it may be lost, and is then guessed anew.

use crate::codec::{put_varint, Reader};
use crate::error::FormatError;
use crate::ids::TreeId;

/// What an index is like, as far as it was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexStatistics {
    /// The index's tree: another one, of the same index, is not what was looked at.
    pub tree: TreeId,
    /// When it was looked at, seconds since 1970.
    pub analyzed_unix_s: u64,
    /// Rows of the table then.
    pub rows: u64,
    /// Groups of entries that are alike in the first part of the key, in the first two, and so on; none if there was no entry.
    pub groups: Vec<u64>,
}

impl IndexStatistics {
    /// Appends the stored form.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        for n in [self.tree.0, self.analyzed_unix_s, self.rows, self.groups.len() as u64] {
            put_varint(out, n);
        }
        self.groups.iter().for_each(|&n| put_varint(out, n));
    }

    /// Reads the stored form.
    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<Self, FormatError> {
        let (tree, analyzed_unix_s, rows) = (TreeId(r.varint()?), r.varint()?, r.varint()?);
        let n = r.count(1)?;
        let groups = (0..n).map(|_| r.varint()).collect::<Result<_, _>>()?;
        Ok(IndexStatistics { tree, analyzed_unix_s, rows, groups })
    }
}
