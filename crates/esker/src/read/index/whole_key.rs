//! One row by a whole key of a unique index, without a cursor: what most statements of an application ask for.
//!
//! Invariants: entry and row are looked up under one view; an entry whose row is not there is damage.

use super::in_memory;
use crate::catalog::table::Table;
use crate::read::buffer::decode;
use crate::session::Session;
use crate::tree::key::ByBytes;
use crate::tree::stored::split_value;
use crate::tree::{find, Found};
use crate::work::Kind;
use crate::{Error, Result};
use esker_base::counters::{count, Counter};
use esker_format::{ColumnMask, FormatError, RowId};
use std::sync::Arc;

impl Session {
    /// The row of this session's view that has a whole key of the unique index at this place of the table's: its id, and in
    /// `image`, which lies as the table's layout says, its columns of `mask`. What belongs to other columns is left as it is.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a table with blobs, whose slots would point to what does not stay; those of reading.
    ///
    /// # Panics
    /// The image is shorter than the layout's.
    pub fn row_by_key(
        &mut self,
        table: &Arc<Table>,
        index: usize,
        key: &[u8],
        mask: &ColumnMask,
        image: &mut [u8],
    ) -> Result<Option<RowId>> {
        if table.layout.has_blobs() {
            return Err(Error::InvalidArgument("a single row of a table with blobs is read by a cursor".into()));
        }
        let image = &mut image[..table.layout.image_bytes as usize];
        let trees = table.trees();
        let definition = trees.index(index)?;
        let codec = definition.codec()?;
        self.works_on(&definition.work, Kind::Read);
        let view = self.read_view()?;
        self.check_index_view(table, definition, view)?;
        self.seal_for_read(table)?;
        count(Counter::KeysLookedUp, 1);
        let entry = |session: &Session| {
            let own = session.private_keys(table, index)?;
            find(&*table.readable(&trees.keys[index])?, own.as_ref(), key, view)
        };
        let Some((order, found)) = entry(self)? else { return Ok(None) };
        let Some((row, payload)) = told_by(&found) else { return Ok(None) };
        if !order.is_own() && self.is_overtaken(table, row, view.seq) {
            return Ok(None);
        }
        let mut wanted = (0..table.layout.columns.len()).filter(|place| mask.get(*place));
        if wanted.all(|place| codec.covers(place)) {
            let filled = codec.fill_image(key, payload, mask, image, &mut Vec::new());
            filled.map_err(|e| damage_of(&found, e))?;
        } else {
            let found = find(&*table.readable(&trees.rows)?, self.private_of(table)?.as_ref(), row, view)?;
            match found.filter(|(_, found)| !matches!(found, Found::Tombstone)) {
                Some((_, found)) => decode(table, mask, &found, image)?,
                None if entry(self)?.is_some_and(|(_, found)| told_by(&found).is_some_and(|(r, _)| r == row)) => {
                    let index = definition.entry.name.clone();
                    return Err(Error::EntryWithoutRow { table: table.name(), index, row });
                }
                None => return Ok(None),
            }
        }
        count(Counter::RowsRead, 1);
        count(Counter::RowBytesOut, u64::from(table.layout.image_bytes));
        Ok(Some(row))
    }
}

/// The row of an entry, and its payload.
fn told_by(found: &Found<ByBytes>) -> Option<(RowId, &[u8])> {
    match found {
        Found::Mem(_, value) => Some(split_value(value)),
        Found::Block(_, _, block, at) => Some((block.row(*at), block.payload(*at))),
        Found::Tombstone => None,
    }
}

/// An entry that is none.
fn damage_of(found: &Found<ByBytes>, why: FormatError) -> Error {
    match found {
        Found::Block(run, offset, ..) => run.damage(*offset, why),
        Found::Mem(..) | Found::Tombstone => in_memory(why),
    }
}
