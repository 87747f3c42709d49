//! Owns a table's description as Rust programs give it: columns by name and type. It is stored among the front end's bytes
//! of the catalog's table entry; the layout of row images follows from it.
//! Invariant: a validated schema has at least one column, no two of one name, and a valid layout.

use crate::codec::{check_bits, check_version, put_bytes, put_varint, Reader};
use crate::error::FormatError;
use crate::layout::{Column, ColumnKind, Layout, NullBit, MAX_COLUMNS};

/// "ESCH": with it the stored form begins.
pub const SCHEMA_MAGIC: [u8; 4] = *b"ESCH";
/// Version of the stored form.
pub const SCHEMA_VERSION: u32 = 1;
/// The longest name of a column, in bytes.
pub const MAX_NAME_BYTES: usize = 255;
/// Values of columns that may be longer lie outside the row image.
const MOST_VAR_BYTES: u32 = 0xffff;

/// The numbers of column types.
pub mod column_type {
    #![allow(missing_docs)]
    pub const I64: u8 = 1;
    pub const U64: u8 = 2;
    pub const F64: u8 = 3;
    pub const TEXT: u8 = 4;
    pub const BYTES: u8 = 5;
}

/// What a column holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Type {
    /// A signed integer.
    I64,
    /// An unsigned integer.
    U64,
    /// A floating-point number; every bit of it is kept.
    F64,
    /// UTF-8 of at most so many bytes.
    Text(u32),
    /// At most so many bytes.
    Bytes(u32),
}

impl std::fmt::Display for Type {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Type::I64 => f.write_str("a signed integer"),
            Type::U64 => f.write_str("an unsigned integer"),
            Type::F64 => f.write_str("a floating-point number"),
            Type::Text(max) => write!(f, "text of at most {max} bytes"),
            Type::Bytes(max) => write!(f, "at most {max} bytes"),
        }
    }
}

/// A column of a schema.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SchemaColumn {
    /// Its name; case matters.
    pub name: String,
    /// What it holds.
    pub kind: Type,
    /// May it be NULL?
    pub nullable: bool,
}

/// A table's columns, in order.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Schema {
    columns: Vec<SchemaColumn>,
}

impl Schema {
    /// Without columns.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a column that is never NULL.
    #[must_use]
    pub fn column(self, name: &str, kind: Type) -> Self {
        self.with(name, kind, false)
    }

    /// Adds a column that may be NULL.
    #[must_use]
    pub fn nullable(self, name: &str, kind: Type) -> Self {
        self.with(name, kind, true)
    }

    fn with(mut self, name: &str, kind: Type, nullable: bool) -> Self {
        self.columns.push(SchemaColumn { name: name.to_owned(), kind, nullable });
        self
    }

    /// The columns, in order.
    #[must_use]
    pub fn columns(&self) -> &[SchemaColumn] {
        &self.columns
    }

    /// Where a column stands.
    #[must_use]
    pub fn position(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|c| c.name == name)
    }

    /// In words, which of its columns cannot be, if it is one of them that is wrong, or their number.
    #[must_use]
    pub fn problem(&self) -> Option<String> {
        if self.columns.is_empty() || self.columns.len() > MAX_COLUMNS {
            return Some(format!("{} columns, not 1 to {MAX_COLUMNS}", self.columns.len()));
        }
        let mut names = std::collections::HashSet::new();
        self.columns.iter().enumerate().find_map(|(i, column)| match column.name.len() {
            1..=MAX_NAME_BYTES if names.insert(&column.name) => None,
            1..=MAX_NAME_BYTES => Some(format!("two columns have the name '{}'", column.name)),
            bytes => Some(format!("the name of column {} has {bytes} bytes, not 1 to {MAX_NAME_BYTES}", i + 1)),
        })
    }

    /// The layout of its rows.
    ///
    /// # Errors
    /// No columns, too many, a name that is empty, too long or there twice, or rows that are too long.
    pub fn layout(&self) -> Result<Layout, FormatError> {
        if self.problem().is_some() {
            return Err(FormatError::Invalid { what: "count or name of columns", found: self.columns.len() as u64 });
        }
        let head_bytes = self.columns.iter().filter(|c| c.nullable).count().div_ceil(8) as u32;
        let (mut offset, mut nulls, mut columns) = (head_bytes, 0u32, Vec::with_capacity(self.columns.len()));
        for column in &self.columns {
            let kind = match column.kind {
                Type::I64 | Type::U64 | Type::F64 => ColumnKind::Fixed { width: 8 },
                Type::Text(max) | Type::Bytes(max) if max > MOST_VAR_BYTES => ColumnKind::Blob { len_bytes: 4 },
                Type::Text(max) | Type::Bytes(max) => ColumnKind::Var { len_bytes: 1 + u8::from(max > 0xff), max },
            };
            let null = column.nullable.then(|| {
                nulls += 1;
                NullBit { byte: (nulls - 1) / 8, mask: 1 << ((nulls - 1) % 8) }
            });
            columns.push(Column { kind, offset, null });
            offset = offset.saturating_add(kind.slot_bytes());
        }
        let layout = Layout { image_bytes: offset, head_bytes, columns };
        layout.validate()?;
        Ok(layout)
    }

    /// Appends the stored form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&SCHEMA_MAGIC);
        put_varint(out, u64::from(SCHEMA_VERSION));
        put_varint(out, self.columns.len() as u64);
        for column in &self.columns {
            let (kind, max) = match column.kind {
                Type::I64 => (column_type::I64, 0),
                Type::U64 => (column_type::U64, 0),
                Type::F64 => (column_type::F64, 0),
                Type::Text(max) => (column_type::TEXT, max),
                Type::Bytes(max) => (column_type::BYTES, max),
            };
            put_bytes(out, column.name.as_bytes());
            out.push(kind);
            put_varint(out, u64::from(max));
            out.push(u8::from(column.nullable));
        }
    }

    /// Reads the stored form, all of `bytes`; `None` if they are something else's.
    pub fn decode(bytes: &[u8]) -> Result<Option<Self>, FormatError> {
        let Some(bytes) = bytes.strip_prefix(&SCHEMA_MAGIC) else { return Ok(None) };
        let mut r = Reader::new("schema", bytes);
        check_version("schema", r.varint32()?, SCHEMA_VERSION)?;
        let n = r.count(4)?;
        let mut columns = Vec::with_capacity(n);
        for _ in 0..n {
            let name = r.text()?.to_owned();
            let (kind, max, nullable) = (r.u8()?, r.varint32()?, r.u8()?);
            let kind = match kind {
                column_type::I64 => Type::I64,
                column_type::U64 => Type::U64,
                column_type::F64 => Type::F64,
                column_type::TEXT => Type::Text(max),
                column_type::BYTES => Type::Bytes(max),
                other => return Err(FormatError::Unknown { what: "type of a column", found: u64::from(other) }),
            };
            if !matches!(kind, Type::Text(_) | Type::Bytes(_)) && max != 0 {
                return Err(FormatError::Invalid { what: "length of a number's column", found: max.into() });
            }
            check_bits("NULL bit of a column", nullable.into(), 1)?;
            columns.push(SchemaColumn { name, kind, nullable: nullable == 1 });
        }
        r.finish()?;
        let schema = Schema { columns };
        schema.layout()?;
        Ok(Some(schema))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Schema {
        Schema::new().column("id", Type::U64).nullable("name", Type::Text(100)).nullable("data", Type::Bytes(1 << 20))
    }

    #[test]
    fn the_stored_form_is_this_and_reads_back() {
        let mut bytes = Vec::new();
        sample().encode(&mut bytes);
        assert_eq!(bytes, b"ESCH\x01\x03\x02id\x02\x00\x00\x04name\x04\x64\x01\x04data\x05\x80\x80\x40\x01");
        assert_eq!(Schema::decode(&bytes).unwrap(), Some(sample()));
        assert_eq!(Schema::decode(b"").unwrap(), None);
        assert_eq!(Schema::decode(b"something else's").unwrap(), None);
        for end in 4..bytes.len() {
            assert!(Schema::decode(&bytes[..end]).is_err(), "cut at {end}");
        }
        bytes[4] = 2;
        assert!(Schema::decode(&bytes).is_err(), "another version");
    }

    #[test]
    fn the_layout_follows() {
        let layout = sample().layout().unwrap();
        assert_eq!((layout.head_bytes, layout.image_bytes), (1, 1 + 8 + 101 + 12));
        assert_eq!(layout.columns[1].null, Some(NullBit { byte: 0, mask: 1 }));
        assert_eq!(layout.columns[2].null, Some(NullBit { byte: 0, mask: 2 }));
    }

    #[test]
    fn what_is_no_table_is_refused() {
        for bad in [
            Schema::new(),
            Schema::new().column("", Type::I64),
            Schema::new().column(&"x".repeat(256), Type::I64),
            Schema::new().column("a", Type::I64).column("a", Type::I64),
            (0..300).fold(Schema::new(), |s, i| s.column(&format!("c{i}"), Type::Text(65535))),
        ] {
            assert!(bad.layout().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_problem_names_its_column() {
        let of = |schema: Schema| schema.problem().unwrap_or_default();
        assert_eq!(of(Schema::new()), format!("0 columns, not 1 to {MAX_COLUMNS}"));
        let long = Schema::new().column("a", Type::I64).column(&"x".repeat(256), Type::I64);
        assert_eq!(of(long), "the name of column 2 has 256 bytes, not 1 to 255");
        assert_eq!(of(Schema::new().column("a", Type::I64).column("a", Type::I64)), "two columns have the name 'a'");
        assert_eq!(sample().problem(), None);
    }
}
