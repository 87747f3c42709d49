//! Owns the primitives of all encodings: little-endian integers, LEB128 varints, length-prefixed bytes and checksums.
//! Invariant: a `Reader` never reads past its slice and never allocates more elements than the bytes left could hold.

use crate::error::FormatError;
use std::ops::Range;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Length of the longest varint.
const MAX_VARINT_BYTES: usize = 10;

/// Appends `value` as LEB128: 7 bits a byte, low bits first, high bit set on all but the last byte.
pub(crate) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Bytes that [`put_varint`] appends for `value`.
pub(crate) const fn varint_bytes(value: u64) -> usize {
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

/// Makes room for `more` bytes behind what is in `out`. Whoever appends what only a row's length bounds, which is 64 MiB, asks here
/// first: a `Vec` that cannot grow by itself ends the process.
///
/// # Errors
/// [`FormatError::OutOfMemory`]; `out` is as it was.
#[inline]
pub fn grow(out: &mut Vec<u8>, more: usize) -> Result<(), FormatError> {
    out.try_reserve(more).map_err(|_| FormatError::OutOfMemory { bytes: more as u64 })
}

/// A buffer of so many zeros, for what only a row's length bounds.
///
/// # Errors
/// [`FormatError::OutOfMemory`].
pub fn zeros(bytes: usize) -> Result<Vec<u8>, FormatError> {
    let mut out = Vec::new();
    out.try_reserve_exact(bytes).map_err(|_| FormatError::OutOfMemory { bytes: bytes as u64 })?;
    out.resize(bytes, 0);
    Ok(out)
}

/// Appends a varint length and the bytes.
pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Appends the ends of ranges as varints, after their count.
pub(crate) fn put_ranges(out: &mut Vec<u8>, ranges: &[Range<u64>]) {
    put_varint(out, ranges.len() as u64);
    for range in ranges {
        put_varint(out, range.start);
        put_varint(out, range.end);
    }
}

/// Writes a u32 at `at`; the place must exist.
pub(crate) fn set_u32(out: &mut [u8], at: usize, value: u32) {
    out[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

/// Writes a u64 at `at`; the place must exist.
pub(crate) fn set_u64(out: &mut [u8], at: usize, value: u64) {
    out[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

/// Reads a u16 at `at`; the place must exist (fixed headers, whose length was checked).
pub(crate) fn get_u16(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

/// Reads a u32 at `at`; the place must exist.
pub(crate) fn get_u32(bytes: &[u8], at: usize) -> u32 {
    let mut raw = [0; 4];
    raw.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(raw)
}

/// Reads a u64 at `at`; the place must exist.
#[inline]
pub(crate) fn get_u64(bytes: &[u8], at: usize) -> u64 {
    let mut raw = [0; 8];
    raw.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(raw)
}

/// Checks that `bytes` is at least `need` long.
pub(crate) fn need(what: &'static str, bytes: &[u8], need: usize) -> Result<(), FormatError> {
    if bytes.len() < need {
        return Err(FormatError::Truncated { what, need: need as u64, have: bytes.len() as u64 });
    }
    Ok(())
}

/// Stores at offset 0 of `out` the checksum of all that follows it, seeded with `context`.
pub(crate) fn seal(out: &mut [u8], context: u64) {
    let sum = xxh3_64_with_seed(&out[8..], context);
    set_u64(out, 0, sum);
}

/// Checks what [`seal`] stored. `bytes` holds at least the checksum.
pub(crate) fn check_seal(bytes: &[u8], context: u64) -> Result<(), FormatError> {
    let expected = get_u64(bytes, 0);
    let found = xxh3_64_with_seed(&bytes[8..], context);
    if expected != found {
        return Err(FormatError::Checksum { expected, found });
    }
    Ok(())
}

/// Refuses all versions but `supported`.
pub(crate) fn check_version(what: &'static str, found: u32, supported: u32) -> Result<(), FormatError> {
    match found {
        // Never written.
        0 => Err(FormatError::Invalid { what, found: 0 }),
        _ if found > supported => Err(FormatError::NewerVersion { what, found, supported }),
        _ if found < supported => Err(FormatError::OlderVersion { what, found, needed: supported }),
        _ => Ok(()),
    }
}

/// Refuses bits that only a newer version knows.
pub(crate) fn check_bits(what: &'static str, bits: u64, known: u64) -> Result<(), FormatError> {
    match bits & !known {
        0 => Ok(()),
        found => Err(FormatError::Unknown { what, found }),
    }
}

/// Reads encodings from the front of a slice.
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    what: &'static str,
}

impl<'a> Reader<'a> {
    /// A reader over `bytes`; errors name `what`.
    pub(crate) fn new(what: &'static str, bytes: &'a [u8]) -> Self {
        Reader { bytes, what }
    }

    /// A reader over other bytes, whose errors name the same.
    pub(crate) fn over<'b>(&self, bytes: &'b [u8]) -> Reader<'b> {
        Reader { bytes, what: self.what }
    }

    /// What was not read yet.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.bytes
    }

    /// The error for a value that the format does not allow.
    pub(crate) fn invalid(&self, found: u64) -> FormatError {
        FormatError::Invalid { what: self.what, found }
    }

    /// The next `n` bytes.
    pub(crate) fn take(&mut self, n: usize) -> Result<&'a [u8], FormatError> {
        match self.bytes.split_at_checked(n) {
            Some((head, tail)) => {
                self.bytes = tail;
                Ok(head)
            }
            None => Err(FormatError::Truncated { what: self.what, need: n as u64, have: self.bytes.len() as u64 }),
        }
    }

    /// The next `N` bytes.
    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], FormatError> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    /// One byte.
    pub(crate) fn u8(&mut self) -> Result<u8, FormatError> {
        Ok(self.take(1)?[0])
    }

    /// A varint.
    pub(crate) fn varint(&mut self) -> Result<u64, FormatError> {
        let mut value = 0u64;
        for (i, &byte) in self.bytes.iter().take(MAX_VARINT_BYTES).enumerate() {
            let bits = u64::from(byte & 0x7f);
            if i == MAX_VARINT_BYTES - 1 && byte > 1 {
                return Err(self.invalid(u64::from(byte)));
            }
            value |= bits << (7 * i);
            if byte & 0x80 == 0 {
                self.bytes = &self.bytes[i + 1..];
                return Ok(value);
            }
        }
        let have = self.bytes.len() as u64;
        Err(FormatError::Truncated { what: self.what, need: have + 1, have })
    }

    /// A varint that must fit a u32.
    pub(crate) fn varint32(&mut self) -> Result<u32, FormatError> {
        let value = self.varint()?;
        u32::try_from(value).map_err(|_| self.invalid(value))
    }

    /// A count of elements that take at least `min_bytes` each: never more than the bytes left could hold.
    pub(crate) fn count(&mut self, min_bytes: usize) -> Result<usize, FormatError> {
        let value = self.varint()?;
        let bound = (self.bytes.len() / min_bytes.max(1)) as u64;
        if value > bound {
            return Err(FormatError::TooLong { what: self.what, found: value, max: bound });
        }
        Ok(value as usize)
    }

    /// A varint length and that many bytes.
    pub(crate) fn bytes(&mut self) -> Result<&'a [u8], FormatError> {
        let n = self.count(1)?;
        self.take(n)
    }

    /// Pairs of varints after their count.
    pub(crate) fn pairs(&mut self) -> Result<Vec<(u64, u64)>, FormatError> {
        let n = self.count(2)?;
        (0..n).map(|_| Ok((self.varint()?, self.varint()?))).collect()
    }

    /// What `put_ranges` wrote.
    pub(crate) fn ranges(&mut self) -> Result<Vec<Range<u64>>, FormatError> {
        Ok(self.pairs()?.into_iter().map(|(start, end)| start..end).collect())
    }

    /// UTF-8 text after its length.
    pub(crate) fn text(&mut self) -> Result<&'a str, FormatError> {
        let bytes = self.bytes()?;
        std::str::from_utf8(bytes).map_err(|e| self.invalid(e.valid_up_to() as u64))
    }

    /// Fails unless everything was read.
    pub(crate) fn finish(self) -> Result<(), FormatError> {
        if self.bytes.is_empty() {
            Ok(())
        } else {
            Err(self.invalid(self.bytes.len() as u64))
        }
    }
}
