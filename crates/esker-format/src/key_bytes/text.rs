//! Owns how a row's values in an index are told to people.

use super::part::{Encoding, Part};
use super::shown::{float, hex, LocalTime, Shown};
use super::{Collations, KeyCodec};
use crate::layout::ColumnKind;
use std::borrow::Cow;

/// More bytes of a value nobody is shown.
const MOST_BYTES: usize = 4096;

/// What a text depends on beyond the row.
pub struct Telling<'a> {
    /// What strings are in the front end's character sets.
    pub collations: &'a dyn Collations,
    /// How the table's columns are shown, by their places; those that are missing, as their encodings tell.
    pub shown: &'a [Shown],
    /// The time of who reads; none: it is not known who will, and timestamps are told in UTC, with that word.
    pub local_time: Option<&'a LocalTime>,
}

impl KeyCodec {
    /// The values of a row image in the index's columns, as SQL would write them, and as [`Shown`] says. Where that is not known,
    /// numbers are told as numbers, texts in quotes, and other bytes as X'..'. Of a prefix the whole value is told.
    ///
    /// # Safety
    /// As for [`key_of_image`](Self::key_of_image).
    #[must_use]
    pub unsafe fn text_of_image(&self, image: *const u8, telling: &Telling<'_>) -> String {
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
                Some(value) => part.tell(&value[..value.len().min(MOST_BYTES)], telling, &mut text),
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
    fn tell(&self, value: &[u8], telling: &Telling<'_>, out: &mut String) {
        let value = self.filled_up(value);
        let shown = telling.shown.get(self.place).unwrap_or(&Shown::Plain);
        let from = out.len();
        if shown.tell(&value, telling.local_time, out).is_none() {
            self.tell_plain(&value, telling.collations, out);
        }
        if let Shown::Filled(_, width) = shown {
            let missing = usize::from(*width).saturating_sub(out.len() - from);
            out.insert_str(from, &"0".repeat(missing));
        }
    }

    /// Bytes of which pad bytes are a part; texts are as good without.
    fn filled_up<'v>(&self, value: &'v [u8]) -> Cow<'v, [u8]> {
        match (self.encoding, self.column.kind) {
            (Encoding::Fixed, ColumnKind::Padded { width, pad }) if value.len() < MOST_BYTES => {
                let mut value = value.to_vec();
                value.resize((width as usize).min(MOST_BYTES), pad);
                value.into()
            }
            _ => value.into(),
        }
    }

    fn tell_plain(&self, value: &[u8], collations: &dyn Collations, out: &mut String) {
        match (self.encoding, value) {
            (Encoding::Unsigned, value) => out.push_str(&u64::from_le_bytes(number(value, 0)).to_string()),
            (Encoding::Signed, value) => {
                let fill = if value.last().is_some_and(|b| b & 0x80 != 0) { 0xff } else { 0 };
                out.push_str(&i64::from_le_bytes(number(value, fill)).to_string());
            }
            // Of a short one six digits are known for certain.
            (Encoding::Float, &[a, b, c, d]) => float(f32::from_le_bytes([a, b, c, d]).into(), Some(6), out),
            (Encoding::Float, value) => float(f64::from_le_bytes(number(value, 0)), None, out),
            (Encoding::Weights | Encoding::PaddedWeights, value) => quote(&collations.text(self.collation, value), out),
            (Encoding::Bytes, value) => match readable(value) {
                Some(text) => quote(text, out),
                None => hex(value, out),
            },
            (Encoding::Fixed, value) => hex(value, out),
        }
    }
}

/// Bytes that look like a text; one that was cut may end within a character.
fn readable(value: &[u8]) -> Option<&str> {
    let text = match std::str::from_utf8(value) {
        Err(e) if value.len() == MOST_BYTES && e.error_len().is_none() => {
            std::str::from_utf8(&value[..e.valid_up_to()]).ok()?
        }
        text => text.ok()?,
    };
    (!text.chars().any(char::is_control)).then_some(text)
}

pub(super) fn quote(text: &str, out: &mut String) {
    out.push('\'');
    out.push_str(&text.replace('\'', "''"));
    out.push('\'');
}

#[cfg(test)]
mod tests {
    use crate::key_bytes::key_encoding::*;
    use crate::{Collations, FormatError, IndexEntry, IndexState, KeyCodec, KeyPart, NoCollations, Shown, Telling};
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
        told_as(columns, |width| ColumnKind::Fixed { width }, null, bytes, &[], false)
    }

    fn told_as(
        columns: &[(u32, u32, u32)],
        kind: impl Fn(u32) -> ColumnKind,
        null: u8,
        bytes: &[u8],
        shown: &[Shown],
        descending: bool,
    ) -> String {
        let mut offset = 1;
        let column = |(at, (width, ..)): (usize, &(u32, u32, u32))| {
            let null = Some(NullBit { byte: 0, mask: 1 << at });
            let column = Column { kind: kind(*width), offset, null };
            offset += column.kind.slot_bytes();
            column
        };
        let of: Vec<Column> = columns.iter().enumerate().map(column).collect();
        let layout = Layout { image_bytes: offset, head_bytes: 1, columns: of };
        let part = |(at, (_, encoding, collation)): (usize, &(u32, u32, u32))| KeyPart {
            column: at as u32,
            prefix_bytes: 0,
            descending,
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
        let telling = Telling { collations: &All, shown, local_time: None };
        // SAFETY: an image of the layout.
        unsafe { codec.text_of_image(image.as_ptr(), &telling) }
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

    #[test]
    fn columns_are_told_as_they_are_shown() {
        let shown = [Shown::Plain, Shown::Date, Shown::Enum(vec!["it's".into()])];
        let columns = [(1, SIGNED, 0), (3, UNSIGNED, 0), (1, UNSIGNED, 0)];
        let date = (2026u32 << 9 | 1 << 5 | 2).to_le_bytes();
        let image = [0xff, date[0], date[1], date[2], 1];
        for descending in [false, true] {
            let told = |null| told_as(&columns, |width| ColumnKind::Fixed { width }, null, &image, &shown, descending);
            assert_eq!((told(0), told(2)), ("-1,'2026-01-02','it''s'".into(), "-1,NULL,'it''s'".into()));
        }
        let named = [shown[2].clone()];
        // Whoever tells the number, zeros come before it.
        let filled = |of, width| Shown::Filled(Box::new(of), width);
        let shown = [filled(Shown::Plain, 4), filled(Shown::Rounded(1), 6), filled(Shown::Plain, 2)];
        let columns = [(1, UNSIGNED, 0), (4, FLOAT, 0), (2, UNSIGNED, 0)];
        let image = [&[7][..], &2.5f32.to_le_bytes(), &300u16.to_le_bytes()].concat();
        let told = |null| told_as(&columns, |width| ColumnKind::Fixed { width }, null, &image, &shown, false);
        assert_eq!((told(0), told(1)), ("0007,0002.5,300".into(), "NULL,0002.5,300".into()));
        // No value of the enum: as its number.
        assert_eq!(told_as(&[(1, UNSIGNED, 0)], |width| ColumnKind::Fixed { width }, 0, &[9], &named, false), "9");
        // Bytes that look like a text, in full width.
        let padded = |width| ColumnKind::Padded { width, pad: 0 };
        assert_eq!(told_as(&[(4, FIXED, 0)], padded, 0, b"ab\0\0", &[Shown::Binary], false), "X'61620000'");
        assert_eq!(told_as(&[(4, BYTES, 0)], padded, 0, b"ab\0\0", &[], false), "'ab'");
    }

    #[test]
    fn of_a_long_value_the_beginning_is_told() {
        let long = ["a".repeat(super::MOST_BYTES - 1).as_str(), "\u{e4}", "b"].concat();
        let text = told(&[(long.len() as u32, BYTES, 0)], 0, long.as_bytes());
        assert_eq!(text, format!("'{}'", &long[..super::MOST_BYTES - 1]));
        let text = told(&[(long.len() as u32, FIXED, 0)], 0, long.as_bytes());
        assert_eq!(text.len(), 3 + 2 * super::MOST_BYTES);
    }
}
