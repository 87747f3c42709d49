//! The row ids that a run says it has versions of, for whoever opens a folder and must lock them: read past the block index
//! and without a block.
//!
//! Invariant: what is given out agrees with what the log says of the run; who gets none, or an error, finds the ids in the
//! blocks.

use crate::tree::run::Run;
use crate::tree::stored::Stored;
use crate::{Error, Result};
use esker_format::run::{section_kind, RowIdSet, RowIds};
use esker_format::FormatError;

impl<K: Stored> Run<K> {
    /// None: the run says nothing of them.
    pub(crate) fn row_ids(&self) -> Result<Option<RowIds>> {
        Ok(self.read_row_ids()?.map(|(_, ids)| ids))
    }

    /// Fails unless what the run says of its rows, if it does, are those of its blocks.
    pub(crate) fn check_row_ids(&self, of_blocks: RowIdSet) -> Result<()> {
        match self.read_row_ids()? {
            Some((offset, ids)) if ids.stored() != of_blocks.finish() => {
                Err(self.invalid(offset, "row ids of a run against its blocks", ids.rows))
            }
            _ => Ok(()),
        }
    }

    /// And where they lie.
    fn read_row_ids(&self) -> Result<Option<(u64, RowIds)>> {
        let opened = self.open_part()?;
        let Ok(section) = opened.part.section(section_kind::ROW_IDS) else { return Ok(None) };
        let damage = |e| Error::damage(&self.path(), section.offset, e);
        let most = RowIds::most_bytes(self.stats.rows);
        if section.bytes > most {
            let what = "row ids of a run";
            return Err(damage(FormatError::TooLong { what, found: section.bytes, max: most }));
        }
        let bytes = opened.read(section)?;
        section.check(self.file_id, &bytes).map_err(damage)?;
        let ids = RowIds::decode(bytes.into_owned()).map_err(damage)?;
        if ids.rows > self.stats.rows || (ids.first, ids.last) != (self.stats.min_id, self.stats.max_id) {
            return Err(self.invalid(section.offset, "row ids of a run against the log's figures", ids.rows));
        }
        Ok(Some((section.offset, ids)))
    }
}
