//! Owns what a front end says of its columns' types: a number each, which it alone understands. It is stored as the front end's
//! bytes of the catalog's table entry, so that no table is opened by the definition of another one whose columns are as wide.

use crate::codec::{check_version, put_varint, Reader};
use crate::error::FormatError;

/// "ESCT": with it the stored form begins.
pub const COLUMN_TYPES_MAGIC: [u8; 4] = *b"ESCT";
/// Version of the stored form.
pub const COLUMN_TYPES_VERSION: u32 = 1;

/// The types of a table's columns, in the order of its layout.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ColumnTypes(pub Vec<u32>);

impl ColumnTypes {
    /// The stored form.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = COLUMN_TYPES_MAGIC.to_vec();
        put_varint(&mut out, u64::from(COLUMN_TYPES_VERSION));
        put_varint(&mut out, self.0.len() as u64);
        self.0.iter().for_each(|number| put_varint(&mut out, u64::from(*number)));
        out
    }

    /// Reads the stored form, all of `bytes`; `None` if they are something else's.
    ///
    /// # Errors
    /// They are cut, longer, or of a later version.
    pub fn decode(bytes: &[u8]) -> Result<Option<Self>, FormatError> {
        let Some(bytes) = bytes.strip_prefix(&COLUMN_TYPES_MAGIC) else { return Ok(None) };
        let mut r = Reader::new("column types", bytes);
        check_version("column types", r.varint32()?, COLUMN_TYPES_VERSION)?;
        let numbers = (0..r.count(1)?).map(|_| r.varint32()).collect::<Result<_, _>>()?;
        r.finish()?;
        Ok(Some(ColumnTypes(numbers)))
    }

    /// The first column that is of another type here than there, or only here or there.
    #[must_use]
    pub fn differs_at(&self, other: &ColumnTypes) -> Option<usize> {
        let (ours, theirs) = (&self.0, &other.0);
        (0..ours.len().max(theirs.len())).find(|at| ours.get(*at) != theirs.get(*at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stored_form_is_this_and_reads_back() {
        let types = ColumnTypes(vec![4, 0x0002_00f7, 0]);
        let mut bytes = types.encode();
        assert_eq!(bytes, b"ESCT\x01\x03\x04\xf7\x81\x08\x00");
        assert_eq!(ColumnTypes::decode(&bytes), Ok(Some(types)));
        assert_eq!(ColumnTypes::decode(b""), Ok(None));
        assert_eq!(ColumnTypes::decode(b"ESCH\x01"), Ok(None));
        for end in 4..bytes.len() {
            assert!(ColumnTypes::decode(&bytes[..end]).is_err(), "cut at {end}");
        }
        assert!(ColumnTypes::decode(&[&bytes[..], &[0]].concat()).is_err(), "longer");
        bytes[4] = 2;
        assert!(matches!(ColumnTypes::decode(&bytes), Err(FormatError::NewerVersion { found: 2, .. })));
    }

    #[test]
    fn they_differ_where_one_is_another_or_missing() {
        let of = |numbers: &[u32]| ColumnTypes(numbers.to_vec());
        assert_eq!(of(&[1, 2]).differs_at(&of(&[1, 2])), None);
        assert_eq!(of(&[1, 2, 3]).differs_at(&of(&[1, 3, 2])), Some(1));
        assert_eq!(of(&[1, 2]).differs_at(&of(&[1])), Some(1));
        assert_eq!(of(&[]).differs_at(&of(&[0])), Some(0));
    }
}
