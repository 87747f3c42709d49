//! Owns how a row's values in an index are told to people.

use super::{Collations, Encoding, KeyCodec, Part};
use std::fmt::Write;

impl KeyCodec {
    /// The values of a row image in the index's columns, as SQL would write them: numbers, texts in quotes, other bytes as
    /// X'..'. Types that the key does not know (dates, decimals) are told as the numbers and bytes that they are stored as.
    ///
    /// # Safety
    /// As for [`key_of_image`](Self::key_of_image).
    #[must_use]
    pub unsafe fn text_of_image(&self, image: *const u8, collations: &dyn Collations) -> String {
        let mut text = String::new();
        for (at, part) in self.parts.iter().enumerate() {
            // A text that is compared level by level has a part for each.
            if self.parts[..at].iter().any(|p| p.place == part.place) {
                continue;
            }
            if at > 0 {
                text.push(',');
            }
            // SAFETY: the caller's promise.
            match unsafe { part.value(image) } {
                None => text.push_str("NULL"),
                Some(value) => part.tell(value, collations, &mut text),
            }
        }
        text
    }
}

/// Of a number's bytes, little-endian.
fn number(value: &[u8], fill: u8) -> [u8; 8] {
    let mut bytes = [fill; 8];
    let n = value.len().min(8);
    bytes[..n].copy_from_slice(&value[..n]);
    bytes
}

impl Part {
    fn tell(&self, value: &[u8], collations: &dyn Collations, out: &mut String) {
        // Writing to a string does not fail.
        let _ = match (self.encoding, value) {
            (Encoding::Unsigned, value) => write!(out, "{}", u64::from_le_bytes(number(value, 0))),
            (Encoding::Signed, value) => {
                let fill = if value.last().is_some_and(|b| b & 0x80 != 0) { 0xff } else { 0 };
                write!(out, "{}", i64::from_le_bytes(number(value, fill)))
            }
            (Encoding::Float, &[a, b, c, d]) => write!(out, "{}", f32::from_le_bytes([a, b, c, d])),
            (Encoding::Float, value) => write!(out, "{}", f64::from_le_bytes(number(value, 0))),
            (Encoding::Weights | Encoding::PaddedWeights, value) => {
                quote(&collations.text(self.collation, value), out);
                Ok(())
            }
            (Encoding::Fixed | Encoding::Bytes, value) => match std::str::from_utf8(value) {
                Ok(text) if self.encoding == Encoding::Bytes && !text.chars().any(char::is_control) => {
                    quote(text, out);
                    Ok(())
                }
                _ => {
                    out.push_str("X'");
                    value.iter().try_for_each(|b| write!(out, "{b:02X}")).map(|()| out.push('\''))
                }
            },
        };
    }
}

fn quote(text: &str, out: &mut String) {
    out.push('\'');
    out.push_str(&text.replace('\'', "''"));
    out.push('\'');
}

#[cfg(test)]
mod tests {
    use crate::key_bytes::key_encoding::*;
    use crate::{Collations, FormatError, IndexEntry, IndexState, KeyCodec, KeyPart, NoCollations};
    use crate::{Column, ColumnKind, CommitSeq, Layout, NullBit};

    /// Any number is a collation.
    #[derive(Debug)]
    struct All;

    impl Collations for All {
        fn weights(&self, _: u32, value: &[u8], _: u32, weights: &mut Vec<u8>) -> Result<(), FormatError> {
            weights.extend_from_slice(value);
            Ok(())
        }
        fn text(&self, collation: u32, value: &[u8]) -> String {
            format!("{collation}{}", NoCollations.text(collation, value))
        }
    }

    /// What is told of columns of these widths, encodings and collations, with an image's bytes behind a byte of null bits.
    fn told(columns: &[(u32, u32, u32)], null: u8, bytes: &[u8]) -> String {
        let mut offset = 1;
        let column = |(at, (width, ..)): (usize, &(u32, u32, u32))| {
            let null = Some(NullBit { byte: 0, mask: 1 << at });
            let column = Column { kind: ColumnKind::Fixed { width: *width }, offset, null };
            offset += width;
            column
        };
        let of: Vec<Column> = columns.iter().enumerate().map(column).collect();
        let layout = Layout { image_bytes: offset, head_bytes: 1, columns: of };
        let part = |(at, (_, encoding, collation)): (usize, &(u32, u32, u32))| KeyPart {
            column: at as u32,
            prefix_bytes: 0,
            descending: false,
            encoding: *encoding,
            collation: *collation,
        };
        let mut parts: Vec<KeyPart> = columns.iter().enumerate().map(part).collect();
        // Another level of the last column.
        parts.push(*parts.last().unwrap());
        let (state, usable_from) = (IndexState::Ready, CommitSeq::ZERO);
        let index = IndexEntry { id: 1, name: "k".into(), unique: true, parts, state, usable_from, weights: 0 };
        let codec = KeyCodec::new(&index, &layout, |c| Some(c as usize), &All).unwrap();
        let image = [&[null], bytes].concat();
        // SAFETY: an image of the layout.
        unsafe { codec.text_of_image(image.as_ptr(), &All) }
    }

    #[test]
    fn values_are_told_as_sql_writes_them() {
        assert_eq!(told(&[(1, SIGNED, 0), (2, UNSIGNED, 0)], 0, &[0xff, 0xff, 0xff]), "-1,65535");
        assert_eq!(told(&[(8, SIGNED, 0)], 0, &i64::MIN.to_le_bytes()), i64::MIN.to_string());
        assert_eq!(told(&[(3, SIGNED, 0), (1, SIGNED, 0)], 0, &[0xff, 0xff, 0x7f, 5]), "8388607,5");
        assert_eq!(told(&[(1, SIGNED, 0), (1, SIGNED, 0)], 2, &[7, 0]), "7,NULL");
        let floats = [&1.5f32.to_le_bytes()[..], &(-0.25f64).to_le_bytes()].concat();
        assert_eq!(told(&[(4, FLOAT, 0), (8, FLOAT, 0)], 0, &floats), "1.5,-0.25");
        assert_eq!(told(&[(4, WEIGHTS, 33), (1, WEIGHTS, 8)], 0, b"it'sx"), "'33it''s','8x'");
        assert_eq!(told(&[(2, BYTES, 0), (2, BYTES, 0), (2, FIXED, 0)], 0, b"a-\x00bab"), "'a-',X'0062',X'6162'");
    }
}
