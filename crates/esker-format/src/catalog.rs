//! Owns what the catalog says about a table: its trees, and the layouts that its rows were written with.
//! Invariants of a decoded entry: its layouts are validated, each has as many columns as it has entries for them, and no
//! number is used twice; exactly one of its trees is of rows.

use crate::codec::{put_bytes, put_varint, Reader};
use crate::compress::Compression;
use crate::entry::{put_entry, put_list};
use crate::error::FormatError;
use crate::ids::{CommitSeq, TableId, TreeId};
use crate::index::IndexEntry;
use crate::layout::{Layout, RowFormat};
use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The numbers that a table's trees begin with.
pub mod tree_kind {
    #![allow(missing_docs)]
    pub const ROWS: u8 = 1;
    pub const KEYS: u8 = 2;
}

/// What a tree is sorted by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TreeKind {
    /// Row ids: it holds the rows.
    Rows,
    /// Key bytes, as the index says.
    Keys(IndexEntry),
}

/// One tree of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeEntry {
    /// Its identity; TRUNCATE gives it a new one.
    pub id: TreeId,
    /// What it is sorted by.
    pub kind: TreeKind,
}

impl TreeEntry {
    fn encode(&self, out: &mut Vec<u8>) {
        match &self.kind {
            TreeKind::Rows => put_entry(out, tree_kind::ROWS, |out| put_varint(out, self.id.0)),
            TreeKind::Keys(index) => put_entry(out, tree_kind::KEYS, |out| {
                put_varint(out, self.id.0);
                index.encode(out);
            }),
        }
    }

    /// Reads a tree; `None` for one that may be skipped.
    fn decode(r: &mut Reader<'_>) -> Result<Option<Self>, FormatError> {
        let mut e = r.entry()?;
        let kind = match e.kind {
            tree_kind::ROWS | tree_kind::KEYS => e.kind,
            _ => return e.skip("kind of a tree").map(|()| None),
        };
        let id = TreeId(e.body.varint()?);
        let kind = match kind {
            tree_kind::ROWS => TreeKind::Rows,
            _ => TreeKind::Keys(IndexEntry::decode(&mut e.body)?),
        };
        Ok(Some(TreeEntry { id, kind }))
    }
}

/// Appends a count and the trees.
pub(crate) fn put_trees(out: &mut Vec<u8>, trees: &[TreeEntry]) {
    put_varint(out, trees.len() as u64);
    trees.iter().for_each(|t| t.encode(out));
}

/// Reads what [`put_trees`] wrote: one tree of rows, and others.
pub(crate) fn get_trees(r: &mut Reader<'_>) -> Result<Vec<TreeEntry>, FormatError> {
    let n = r.count(2)?;
    let mut trees = Vec::new();
    for _ in 0..n {
        trees.extend(TreeEntry::decode(r)?);
    }
    match trees.iter().filter(|t| t.kind == TreeKind::Rows).count() {
        1 => Ok(trees),
        found => Err(FormatError::Invalid { what: "number of row trees of a table", found: found as u64 }),
    }
}

/// A number that changes with the trees and the names of their indexes.
#[must_use]
pub fn trees_version(trees: &[TreeEntry]) -> u64 {
    let mut bytes = Vec::new();
    for tree in trees {
        put_varint(&mut bytes, tree.id.0);
        if let TreeKind::Keys(index) = &tree.kind {
            put_bytes(&mut bytes, index.name.as_bytes());
        }
    }
    xxh3_64_with_seed(&bytes, 0)
}

/// A column over all versions of its table's layout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ColumnEntry {
    /// Its identity in its table, never used twice there.
    pub id: u32,
    /// Its value in rows that were written before it came, as in a packed row; `None`: it was there from the first, or is
    /// NULL in them.
    pub default: Option<Vec<u8>>,
}

/// A layout with its number and columns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LayoutVersion {
    /// Counts a table's layouts, from 0 on: runs and redo name it.
    pub number: u32,
    /// How row images are laid out.
    pub layout: Arc<Layout>,
    /// The layout's columns, in its order.
    pub columns: Vec<ColumnEntry>,
}

impl LayoutVersion {
    /// The layout that a table begins with.
    #[must_use]
    pub fn first(layout: Arc<Layout>) -> Self {
        let columns = (0..layout.columns.len() as u32).map(|id| ColumnEntry { id, default: None }).collect();
        LayoutVersion { number: 0, layout, columns }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, u64::from(self.number));
        let mut layout = Vec::new();
        self.layout.encode(&mut layout);
        put_bytes(out, &layout);
        put_list(out, &self.columns, |column, out| {
            put_varint(out, u64::from(column.id));
            out.push(u8::from(column.default.is_some()));
            if let Some(default) = &column.default {
                put_bytes(out, default);
            }
        });
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, FormatError> {
        let number = r.varint32()?;
        let layout = Arc::new(Layout::decode(r.bytes()?)?);
        let columns = r.list(2, |r| {
            let id = r.varint32()?;
            let default = match r.u8()? {
                0 => None,
                1 => Some(r.bytes()?.to_vec()),
                found => return Err(FormatError::Unknown { what: "default of a column", found: u64::from(found) }),
            };
            Ok(ColumnEntry { id, default })
        })?;
        if columns.len() != layout.columns.len() {
            return Err(FormatError::Invalid { what: "columns of a layout version", found: columns.len() as u64 });
        }
        Ok(LayoutVersion { number, layout, columns })
    }
}

/// What the catalog says about a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableEntry {
    /// Its identity.
    pub id: TableId,
    /// Its name.
    pub name: String,
    /// Its trees.
    pub trees: Vec<TreeEntry>,
    /// How rows are written now.
    pub layout: LayoutVersion,
    /// How rows were written before, as long as there may be such.
    pub older_layouts: Vec<LayoutVersion>,
    /// How its blocks keep rows.
    pub format: RowFormat,
    /// How its blocks are compressed.
    pub compression: Compression,
    /// When it was created, seconds since 1970.
    pub created_unix_s: u64,
    /// Commit sequence of its last rebuild: older views cannot read it.
    pub rebuilt_seq: CommitSeq,
    /// Bytes of the front end, opaque here.
    pub extra: Vec<u8>,
}

impl TableEntry {
    /// The tree that holds its rows.
    #[must_use]
    pub fn row_tree(&self) -> TreeId {
        self.trees.iter().find(|t| t.kind == TreeKind::Rows).map_or(TreeId::ZERO, |t| t.id)
    }

    /// Appends the stored form.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.id.0);
        put_bytes(out, self.name.as_bytes());
        put_trees(out, &self.trees);
        let layouts: Vec<_> = std::iter::once(&self.layout).chain(&self.older_layouts).collect();
        put_list(out, &layouts, |layout, out| layout.encode(out));
        out.push(self.format as u8);
        out.push(self.compression as u8);
        put_varint(out, self.created_unix_s);
        put_varint(out, self.rebuilt_seq.0);
        put_bytes(out, &self.extra);
    }

    /// Reads the stored form.
    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<Self, FormatError> {
        let (id, name) = (TableId(r.varint()?), r.text()?.to_owned());
        let trees = get_trees(r)?;
        let mut layouts = r.list(6, LayoutVersion::decode)?;
        let mut numbers: Vec<_> = layouts.iter().map(|l| l.number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        if layouts.is_empty() || numbers.len() != layouts.len() {
            return Err(FormatError::Invalid { what: "layouts of a table", found: layouts.len() as u64 });
        }
        Ok(TableEntry {
            id,
            name,
            trees,
            layout: layouts.remove(0),
            older_layouts: layouts,
            format: RowFormat::from_u8(r.u8()?)?,
            compression: Compression::from_u8(r.u8()?)?,
            created_unix_s: r.varint()?,
            rebuilt_seq: CommitSeq(r.varint()?),
            extra: r.bytes()?.to_vec(),
        })
    }
}
