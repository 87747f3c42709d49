//! Owns the packed row: one row as bytes, for memtable and log. Head bytes first, then for every column that is not
//! NULL its length (none for fixed columns) and its value, in the layout's order. Invariant: a packed row that
//! [`check`] accepts can be unpacked, pushed into a block and taken out again byte for byte.

use crate::codec::grow;
use crate::error::FormatError;
use crate::image::{self, is_null, is_null_in, value_of};
use crate::layout::{Column, ColumnKind, Layout};
use crate::mask::ColumnMask;
use crate::MAX_ROW_BYTES;

/// A column's value, for those who have no images.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Value<'a> {
    /// NULL.
    Null,
    /// The stored bytes: of a fixed column its whole width, of a padded one what comes before the pad bytes.
    Bytes(&'a [u8]),
}

/// Length of the packed form of an image. Front ends check it against [`MAX_ROW_BYTES`] when the layout has blobs.
///
/// # Safety
/// `image` points to an image of `layout`, which is validated: readable for `image_bytes` bytes, initialised where
/// values are, blob pointers valid for their lengths.
#[must_use]
pub unsafe fn packed_len(layout: &Layout, image: *const u8) -> usize {
    let mut total = layout.head_bytes as usize;
    for column in &layout.columns {
        // SAFETY: the caller's promise.
        unsafe {
            if !is_null(column, image) {
                total += column.kind.packed_len_bytes() + value_of(column, image).1;
            }
        }
    }
    total
}

/// Appends the packed form of an image. Where there is no memory for it, what was appended is none.
///
/// # Safety
/// As [`packed_len`].
pub unsafe fn pack(layout: &Layout, image: *const u8, out: &mut Vec<u8>) -> Result<(), FormatError> {
    grow(out, layout.head_bytes as usize + 16 * layout.columns.len())?;
    // SAFETY: the caller's promise.
    unsafe {
        out.extend_from_slice(std::slice::from_raw_parts(image, layout.head_bytes as usize));
        for column in &layout.columns {
            if !is_null(column, image) {
                let (at, len) = value_of(column, image);
                let value = if len == 0 { &[][..] } else { std::slice::from_raw_parts(at, len) };
                put_packed_value(column, value, out)?;
            }
        }
    }
    Ok(())
}

/// Appends a value that is not NULL in packed form.
#[inline]
fn put_packed_value(column: &Column, value: &[u8], out: &mut Vec<u8>) -> Result<(), FormatError> {
    grow(out, 4 + value.len())?;
    let len = (value.len() as u32).to_le_bytes();
    match column.kind.packed_len_bytes() {
        0 => {}
        1 => out.push(len[0]),
        n => out.extend_from_slice(&len[..n]),
    }
    out.extend_from_slice(value);
    Ok(())
}

/// Splits the head off a packed row.
pub(crate) fn split_head<'a>(layout: &Layout, packed: &'a [u8]) -> Result<(&'a [u8], &'a [u8]), FormatError> {
    let need = u64::from(layout.head_bytes);
    let have = packed.len() as u64;
    packed.split_at_checked(need as usize).ok_or(FormatError::Truncated { what: "packed row", need, have })
}

/// Takes the next value off a packed row: `None` when the column is NULL.
#[inline]
pub(crate) fn take_value<'a>(
    column: &Column,
    head: &[u8],
    rest: &mut &'a [u8],
) -> Result<Option<&'a [u8]>, FormatError> {
    if is_null_in(column, head) {
        return Ok(None);
    }
    let short =
        |need: usize, have: usize| FormatError::Truncated { what: "packed row", need: need as u64, have: have as u64 };
    let len_bytes = column.kind.packed_len_bytes();
    let len = match (column.kind, len_bytes) {
        (ColumnKind::Fixed { width }, _) => width as usize,
        _ => {
            let (raw, tail) = rest.split_at_checked(len_bytes).ok_or(short(len_bytes, rest.len()))?;
            *rest = tail;
            let mut le = [0; 4];
            le[..len_bytes].copy_from_slice(raw);
            let len = u32::from_le_bytes(le);
            let max = column.kind.max_bytes();
            if len > max {
                let (found, max) = (u64::from(len), u64::from(max));
                return Err(FormatError::TooLong { what: "value of a packed row", found, max });
            }
            len as usize
        }
    };
    let (value, tail) = rest.split_at_checked(len).ok_or(short(len, rest.len()))?;
    *rest = tail;
    Ok(Some(value))
}

/// Writes the head and the wanted columns of a packed row into an image. Blob slots point into `packed`, NULL columns
/// become zeros, pad bytes or length 0.
pub fn unpack(layout: &Layout, packed: &[u8], mask: &ColumnMask, image: &mut [u8]) -> Result<(), FormatError> {
    let have = image.len() as u64;
    if have < u64::from(layout.image_bytes) {
        return Err(FormatError::Truncated { what: "row image", need: u64::from(layout.image_bytes), have });
    }
    let (head, mut rest) = split_head(layout, packed)?;
    image[..head.len()].copy_from_slice(head);
    for (i, column) in layout.columns.iter().enumerate().take(mask.end()) {
        let value = take_value(column, head, &mut rest)?.unwrap_or(&[]);
        if mask.get(i) {
            // SAFETY: the image has image_bytes bytes, the layout is validated, and take_value bounds the length.
            unsafe { image::put_value(column, image.as_mut_ptr(), value) };
        }
    }
    Ok(())
}

/// Checks a packed row from end to end.
pub fn check(layout: &Layout, packed: &[u8]) -> Result<(), FormatError> {
    if packed.len() > MAX_ROW_BYTES as usize {
        let (found, max) = (packed.len() as u64, u64::from(MAX_ROW_BYTES));
        return Err(FormatError::TooLong { what: "packed row", found, max });
    }
    let (head, mut rest) = split_head(layout, packed)?;
    for column in &layout.columns {
        take_value(column, head, &mut rest)?;
    }
    if !rest.is_empty() {
        return Err(FormatError::Invalid { what: "end of a packed row", found: rest.len() as u64 });
    }
    Ok(())
}

/// Appends the packed form of values, one for each column. The head is zero but for null bits.
pub fn pack_values(layout: &Layout, values: &[Value<'_>], out: &mut Vec<u8>) -> Result<(), FormatError> {
    if values.len() != layout.columns.len() {
        return Err(FormatError::Invalid { what: "count of values", found: values.len() as u64 });
    }
    let start = out.len();
    let result = append_values(layout, values, out);
    if result.is_err() {
        out.truncate(start);
    }
    result
}

/// The part of [`pack_values`] that may leave a half-written row.
fn append_values(layout: &Layout, values: &[Value<'_>], out: &mut Vec<u8>) -> Result<(), FormatError> {
    let start = out.len();
    out.resize(start + layout.head_bytes as usize, 0);
    for (i, (column, value)) in layout.columns.iter().zip(values).enumerate() {
        match (*value, column.null) {
            (Value::Null, Some(null)) => out[start + null.byte as usize] |= null.mask,
            (Value::Null, None) => {
                return Err(FormatError::Invalid { what: "NULL in a column that is never NULL", found: i as u64 });
            }
            (Value::Bytes(bytes), _) => {
                let (found, max) = (bytes.len() as u64, u64::from(column.kind.max_bytes()));
                let max = max.min(u64::from(MAX_ROW_BYTES));
                if found > max {
                    return Err(FormatError::TooLong { what: "value", found, max });
                }
                match column.kind {
                    ColumnKind::Fixed { .. } if found != max => {
                        return Err(FormatError::Invalid { what: "length of a fixed value", found });
                    }
                    ColumnKind::Padded { pad, .. } => {
                        let len = bytes.iter().rposition(|&b| b != pad).map_or(0, |at| at + 1);
                        put_packed_value(column, &bytes[..len], out)?;
                    }
                    _ => put_packed_value(column, bytes, out)?,
                }
            }
        }
    }
    if out.len() - start > MAX_ROW_BYTES as usize {
        let (found, max) = ((out.len() - start) as u64, u64::from(MAX_ROW_BYTES));
        return Err(FormatError::TooLong { what: "packed row", found, max });
    }
    Ok(())
}

/// The values of a packed row.
pub fn values<'a>(layout: &Layout, packed: &'a [u8]) -> Result<Vec<Value<'a>>, FormatError> {
    check(layout, packed)?;
    let (head, mut rest) = split_head(layout, packed)?;
    let value = |column| Ok(take_value(column, head, &mut rest)?.map_or(Value::Null, Value::Bytes));
    layout.columns.iter().map(value).collect()
}
