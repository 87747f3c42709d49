//! The tables of the workload: a few layouts that together have every column kind, format and compression; rows of
//! them, and reading row images back.
//!
//! Invariant: the packed form is canonical, two rows are equal exactly if their packed bytes are.

use crate::indexes::{defs, first};
use crate::{Failure, Rng};
use esker::format::{row, Column, ColumnKind, ColumnMask, Compression, Layout, NullBit, RowFormat, Value};
use esker::{IndexDef, TableDef};

/// One sort of table.
pub struct Kind {
    /// How its rows are laid out.
    pub layout: Layout,
    /// How blocks keep them.
    pub format: RowFormat,
    /// How blocks are compressed.
    pub compression: Compression,
    /// What they can have, those that they are made with first.
    pub indexes: Vec<IndexDef>,
    /// So many are they made with.
    pub first: usize,
}

fn layout(columns: &[(ColumnKind, bool)]) -> Layout {
    let mut offset = 1;
    let mut out = Vec::new();
    for (i, (kind, nullable)) in columns.iter().enumerate() {
        let null = nullable.then_some(NullBit { byte: 0, mask: 1 << i });
        out.push(Column { kind: *kind, offset, null });
        offset += kind.slot_bytes();
    }
    Layout { image_bytes: offset, head_bytes: 1, columns: out }
}

/// All kinds, in an order that never changes.
#[must_use]
pub fn kinds() -> Vec<Kind> {
    let fixed = |width| ColumnKind::Fixed { width };
    let padded = |width| ColumnKind::Padded { width, pad: b' ' };
    let var = |len_bytes, max| ColumnKind::Var { len_bytes, max };
    let blob = ColumnKind::Blob { len_bytes: 2 };
    let long = |len_bytes| ColumnKind::Blob { len_bytes };
    let of = |columns: &[(ColumnKind, bool)], format, compression| Kind {
        layout: layout(columns),
        format,
        compression,
        indexes: Vec::new(),
        first: 0,
    };
    let mut kinds = vec![
        of(&[(fixed(8), false), (padded(12), false), (fixed(4), true)], RowFormat::Fixed, Compression::None),
        of(&[(fixed(8), false), (var(1, 40), false), (padded(30), true)], RowFormat::Dynamic, Compression::None),
        of(&[(fixed(2), true), (var(2, 300), true), (padded(8), false)], RowFormat::Dynamic, Compression::Lz4),
        of(&[(fixed(4), false), (blob, true), (var(1, 20), false)], RowFormat::Dynamic, Compression::Zstd),
        of(&[(fixed(16), false), (var(1, 20), true)], RowFormat::Fixed, Compression::Lz4),
        of(&[(fixed(1), false)], RowFormat::Dynamic, Compression::None),
        of(&[(long(3), true), (fixed(3), false), (long(4), false)], RowFormat::Dynamic, Compression::Lz4),
        of(&[(fixed(2), true), (fixed(4), false), (var(1, 20), false)], RowFormat::Dynamic, Compression::Lz4),
    ];
    kinds.iter_mut().enumerate().for_each(|(at, kind)| (kind.indexes, kind.first) = (defs(at), first(at)));
    kinds
}

impl Kind {
    /// What a table of this kind is created with.
    #[must_use]
    pub fn def(&self, temporary: bool) -> TableDef {
        TableDef {
            layout: self.layout.clone(),
            format: self.format,
            compression: self.compression,
            temporary,
            indexes: self.indexes[..self.first].to_vec(),
            extra: vec![7, 7],
        }
    }

    /// A row, packed.
    pub fn row(&self, rng: &mut Rng) -> Result<Vec<u8>, Failure> {
        let parts: Vec<Option<Vec<u8>>> = self.layout.columns.iter().map(|c| value(c, rng)).collect();
        let values: Vec<Value<'_>> = parts.iter().map(|p| p.as_deref().map_or(Value::Null, Value::Bytes)).collect();
        let mut packed = Vec::new();
        row::pack_values(&self.layout, &values, &mut packed).map_err(|e| Failure::new(format!("row: {e}")))?;
        Ok(packed)
    }

    /// A row that has some values of another one: keys that stay when it takes its place.
    pub fn row_like(&self, old: &[u8], rng: &mut Rng) -> Result<Vec<u8>, Failure> {
        let new = self.row(rng)?;
        let failed = |e| Failure::new(format!("row: {e}"));
        let mut values = row::values(&self.layout, &new).map_err(failed)?;
        for (value, old) in values.iter_mut().zip(row::values(&self.layout, old).map_err(failed)?) {
            if rng.chance(60) {
                *value = old;
            }
        }
        let mut packed = Vec::new();
        row::pack_values(&self.layout, &values, &mut packed).map_err(failed)?;
        Ok(packed)
    }

    /// The row image of a packed row; its blobs point into `packed`.
    pub fn image(&self, packed: &[u8]) -> Result<Vec<u8>, Failure> {
        let mut image = vec![0xEE; self.layout.image_bytes as usize];
        let mask = ColumnMask::all(self.layout.columns.len());
        row::unpack(&self.layout, packed, &mask, &mut image).map_err(|e| Failure::new(format!("image: {e}")))?;
        Ok(image)
    }

    /// The packed row of a row image.
    ///
    /// # Safety
    /// `image` is a whole row image of this kind with all columns decoded.
    #[must_use]
    pub unsafe fn pack(&self, image: *const u8) -> Vec<u8> {
        let mut packed = Vec::new();
        // SAFETY: the caller's promise.
        let done = unsafe { row::pack(&self.layout, image, &mut packed) };
        assert_eq!(done, Ok(()), "small rows have memory");
        packed
    }

    /// Do the decoded columns of an image equal those of a packed row? The first that does not, if not.
    ///
    /// # Safety
    /// `image` is a row image of this kind in which the columns of `mask` are decoded.
    pub unsafe fn compare(&self, image: *const u8, packed: &[u8], mask: &ColumnMask) -> Result<(), String> {
        // SAFETY: as above; a copy in which what is not decoded cannot be followed.
        let mut copy = unsafe { std::slice::from_raw_parts(image, self.layout.image_bytes as usize) }.to_vec();
        for (i, c) in self.layout.columns.iter().enumerate().filter(|(i, _)| !mask.get(*i)) {
            let at = c.offset as usize;
            copy[at..at + c.kind.slot_bytes() as usize].fill(0);
            let _ = i;
        }
        // SAFETY: empty blobs are not read.
        let read = unsafe { self.pack(copy.as_ptr()) };
        let (read, want) = (row::values(&self.layout, &read), row::values(&self.layout, packed));
        let (Ok(read), Ok(want)) = (read, want) else { return Err("row does not decode".into()) };
        for i in (0..read.len()).filter(|i| mask.get(*i)) {
            if read[i] != want[i] {
                return Err(format!("column {i} is {:?}, not {:?}", read[i], want[i]));
            }
        }
        Ok(())
    }
}

fn value(column: &Column, rng: &mut Rng) -> Option<Vec<u8>> {
    if column.null.is_some() && rng.chance(25) {
        return None;
    }
    let text = |rng: &mut Rng, n: u64| -> Vec<u8> { (0..n).map(|_| b'a' + rng.below(4) as u8).collect() };
    Some(match column.kind {
        ColumnKind::Fixed { width } => {
            let narrow = rng.chance(60);
            (0..width).map(|i| if narrow && i > 0 { 0 } else { rng.number() as u8 }).collect()
        }
        ColumnKind::Padded { width, .. } => {
            let n = rng.below(u64::from(width) + 1);
            text(rng, n)
        }
        ColumnKind::Var { max, .. } => {
            let most = if rng.chance(80) { 20.min(max) } else { max };
            let n = rng.below(u64::from(most) + 1);
            text(rng, n)
        }
        ColumnKind::Blob { len_bytes } => {
            let most = match rng.below(1000) {
                // More than two bytes of length can say.
                0..=1 if len_bytes > 2 => 200_000,
                0..=29 => 6000,
                _ => 120,
            };
            let n = rng.below(most);
            text(rng, n)
        }
    })
}
