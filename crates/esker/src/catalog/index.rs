//! An index: its definition, and how its keys are made of rows.

use crate::catalog::statistics::Alike;
use crate::catalog::table::Table;
use crate::tree::key::ByBytes;
use crate::tree::TreeState;
use crate::work::Work;
use crate::{Error, Result};
use esker_format::{
    weights_version, Collations, CommitSeq, FormatError, IndexEntry, IndexState, KeyCodec, KeyPart, LayoutVersion,
};
use std::sync::Arc;

/// What an index is created with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexDef {
    /// Its name.
    pub name: String,
    /// No two rows have the same key; NULL is like no other value.
    pub unique: bool,
    /// The parts of its key; a column's id is its place in the layout.
    pub parts: Vec<KeyPart>,
}

impl IndexDef {
    /// The catalog's entry of a new one.
    pub(crate) fn entry(&self, id: u32, collations: &dyn Collations) -> IndexEntry {
        IndexEntry {
            id,
            name: self.name.clone(),
            unique: self.unique,
            parts: self.parts.clone(),
            state: IndexState::Ready,
            usable_from: CommitSeq::ZERO,
            weights: weights_version(&self.parts, collations),
        }
    }
}

/// An index of an open table.
pub(crate) struct Index {
    pub(crate) entry: IndexEntry,
    codec: std::result::Result<KeyCodec, FormatError>,
    pub(crate) collations: Arc<dyn Collations>,
    /// What is known of how many entries are alike.
    pub(crate) alike: Arc<Alike>,
    /// What was done by it.
    pub(crate) work: Arc<Work>,
}

impl Index {
    pub(crate) fn new(entry: &IndexEntry, layout: &LayoutVersion, collations: &Arc<dyn Collations>) -> Self {
        let place_of = |column| layout.columns.iter().position(|c| c.id == column);
        let codec = match weights_version(&entry.parts, &**collations) {
            now if now != entry.weights && now != 0 && entry.weights != 0 => Err(FormatError::Reweighed),
            _ => KeyCodec::new(entry, &layout.layout, place_of, &**collations),
        };
        Index {
            entry: entry.clone(),
            codec,
            collations: collations.clone(),
            alike: Arc::default(),
            work: Arc::default(),
        }
    }

    /// The same, for views from a commit sequence on.
    pub(crate) fn usable_from(self, seq: CommitSeq) -> Self {
        Index { entry: IndexEntry { usable_from: seq, ..self.entry }, ..self }
    }

    /// The same under another name.
    pub(crate) fn named(&self, name: &str, layout: &LayoutVersion) -> Self {
        let entry = IndexEntry { name: name.to_owned(), ..self.entry.clone() };
        let (alike, work) = (self.alike.clone(), self.work.clone());
        Index { alike, work, ..Index::new(&entry, layout, &self.collations) }
    }

    /// It comes in the place of one of these, if that has its id: of a table that is emptied.
    pub(crate) fn instead_of(self, before: &[Arc<Index>]) -> Self {
        let work = before.iter().find(|index| index.entry.id == self.entry.id).map(|index| index.work.clone());
        Index { work: work.unwrap_or_default(), ..self }
    }

    /// Is it as this says, whatever its name is?
    pub(crate) fn is_like(&self, def: &IndexDef) -> bool {
        self.entry.unique == def.unique && self.entry.parts == def.parts
    }

    /// Is it written with the rows?
    pub(crate) fn is_kept(&self) -> bool {
        self.entry.state != IndexState::Leaving
    }

    /// How its keys are made. Fails where this version, or the front end's collations, do not know how, or not any more.
    pub(crate) fn codec(&self) -> Result<&KeyCodec> {
        self.codec.as_ref().map_err(|e| self.error(e))
    }

    /// Fails where keys cannot be made, whatever the values: texts tell only by what they weigh that nobody knows it.
    pub(crate) fn makes_keys(&self) -> Result<()> {
        self.codec()?;
        let mut weights = Vec::new();
        let mut with_weights = self.entry.parts.iter().filter(|part| part.collation != 0);
        let asked = with_weights.try_for_each(|part| self.collations.weights(part.collation, b" ", 0, &mut weights));
        asked.map_err(|e| self.error(&e))
    }

    /// What went wrong with one of its keys.
    pub(crate) fn error(&self, why: &FormatError) -> Error {
        Error::InvalidArgument(format!("index '{}': {why}", self.entry.name))
    }

    /// Can its keys be made, for a table that is about to get it?
    pub(crate) fn check(&self, table: &str) -> Result<()> {
        self.codec().map(drop).map_err(|e| Error::InvalidArgument(format!("table '{table}': {e}")))
    }
}

impl Table {
    /// Are these its indexes, whatever their names are?
    pub fn has_indexes(&self, defs: &[IndexDef]) -> bool {
        let trees = self.trees();
        let same = |((_, index), def): ((usize, &Arc<Index>), &IndexDef)| index.is_like(def);
        trees.kept_indexes().count() == defs.len() && trees.kept_indexes().zip(defs).all(same)
    }

    /// Bytes of run files and memtables of all its indexes.
    pub fn index_bytes(&self) -> u64 {
        let of = |state: &TreeState<ByBytes>| state.in_runs().stored_bytes + state.memtable_bytes();
        self.trees().keys.iter().map(|tree| of(&tree.snapshot())).sum()
    }

    /// The bytes with which all keys of the index at this place begin whose first `parts` parts are like a row image's; and
    /// whether they are a whole key of a unique index, without a NULL, so that no two rows have it.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) if there is no such index, or its keys cannot be made.
    ///
    /// # Safety
    /// As for [`insert_image`](crate::Session::insert_image); the columns of other parts may be anything.
    pub unsafe fn key_prefix(&self, index: usize, image: *const u8, parts: usize) -> Result<(Vec<u8>, bool)> {
        let trees = self.trees();
        let index = trees.index(index)?;
        let mut key = Vec::new();
        // SAFETY: the caller's promise.
        let has_null = unsafe { index.codec()?.parts_of_image(image, parts, &*index.collations, &mut key) }
            .map_err(|e| index.error(&e))?;
        Ok((key, index.entry.unique && !has_null && parts >= index.codec()?.parts()))
    }
}
