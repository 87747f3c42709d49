//! Owns how a key block's byte strings lie in memory. Invariant: where all are of one length nothing is kept but that.

use crate::block::head::invalid;
use crate::error::FormatError;
use crate::prefetch::prefetch_byte;

const END_BYTES: usize = size_of::<u32>();

/// Byte strings one after the other, in the order of their entries, in a buffer that they share with others.
pub(super) struct Strings {
    at: usize,
    bytes: usize,
    lengths: Lengths,
}

enum Lengths {
    /// All are as long as this.
    All(usize),
    /// Where each ends, counted from the first one's start, four bytes each, from here on in the buffer.
    Ends(usize),
}

impl Strings {
    /// Of `lengths`, from `at` on in a buffer.
    pub(super) fn plan(at: usize, lengths: impl Iterator<Item = usize>) -> Strings {
        let (mut count, mut bytes, mut first, mut alike) = (0, 0, 0, true);
        for length in lengths {
            if count == 0 {
                first = length;
            }
            alike &= length == first;
            bytes += length;
            count += 1;
        }
        let lengths = if alike { Lengths::All(first) } else { Lengths::Ends(at + bytes) };
        Strings { at, bytes, lengths }
    }

    /// Their bytes together.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Where what follows `rows` of them begins in the buffer.
    pub(super) fn end(&self, rows: u32) -> usize {
        match self.lengths {
            Lengths::All(_) => self.at + self.bytes,
            Lengths::Ends(at) => at + rows as usize * END_BYTES,
        }
    }

    /// Writes string `i`, of the length that was planned: first `shared` bytes of the one before, then `rest`. All before it have
    /// been written. An error where there is less room than that.
    pub(super) fn write(&self, buffer: &mut [u8], i: u32, shared: usize, rest: &[u8]) -> Result<(), FormatError> {
        let (before, start) = match i.checked_sub(1) {
            None => (0, 0),
            Some(last) => self.span(buffer, last),
        };
        let (from, to) = (self.at + start, self.at + start + shared);
        let end = start + shared + rest.len();
        if end > self.bytes || shared > start - before {
            return invalid("length of a string in a key block", end as u64);
        }
        buffer.copy_within(self.at + before..self.at + before + shared, from);
        buffer[to..self.at + end].copy_from_slice(rest);
        if let Lengths::Ends(at) = self.lengths {
            buffer[at + i as usize * END_BYTES..][..END_BYTES].copy_from_slice(&(end as u32).to_le_bytes());
        }
        Ok(())
    }

    /// Start and end of string `i`, counted from the first one's start.
    #[inline]
    fn span(&self, buffer: &[u8], i: u32) -> (usize, usize) {
        let i = i as usize;
        match self.lengths {
            Lengths::All(length) => (i * length, (i + 1) * length),
            Lengths::Ends(at) => {
                let end = |i: usize| match buffer[at + i * END_BYTES..].first_chunk() {
                    Some(end) => u32::from_le_bytes(*end) as usize,
                    None => 0,
                };
                (if i == 0 { 0 } else { end(i - 1) }, end(i))
            }
        }
    }

    /// A hint: brings string `i`, or what tells where it is.
    #[inline]
    pub(super) fn prefetch(&self, buffer: &[u8], i: u32) {
        let i = i as usize;
        prefetch_byte(
            buffer,
            match self.lengths {
                Lengths::All(length) => self.at + i * length,
                Lengths::Ends(at) => at + i * END_BYTES,
            },
        );
    }

    /// String `i`, which is there.
    #[inline]
    pub(super) fn get<'a>(&self, buffer: &'a [u8], i: u32) -> &'a [u8] {
        let (start, end) = self.span(buffer, i);
        &buffer[self.at..self.at + self.bytes][start..end]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_was_written_is_there(
            first in proptest::collection::vec(any::<u8>(), 0..4),
            rest in proptest::collection::vec((0usize..4, proptest::collection::vec(any::<u8>(), 0..4)), 0..40),
            alike in any::<bool>(),
            at in 0usize..9,
        ) {
            let mut all = vec![first];
            for (shared, mut tail) in rest {
                let last = all.last().unwrap();
                let shared = shared.min(last.len());
                if alike {
                    tail.resize(last.len() - shared, 7);
                }
                all.push([&last[..shared], &tail].concat());
            }
            let rows = all.len() as u32;
            let strings = Strings::plan(at, all.iter().map(Vec::len));
            prop_assert!(!alike || strings.end(rows) == at + rows as usize * all[0].len());
            let mut buffer = vec![0xee; strings.end(rows) + 1];
            for i in 0..all.len() {
                let shared = match i {
                    0 => 0,
                    _ => all[i - 1].iter().zip(&all[i]).take_while(|(a, b)| a == b).count(),
                };
                strings.write(&mut buffer, i as u32, shared, &all[i][shared..]).unwrap();
            }
            prop_assert!(buffer[..at].iter().chain(buffer.last()).all(|b| *b == 0xee));
            for (i, one) in all.iter().enumerate() {
                prop_assert_eq!(strings.get(&buffer, i as u32), &one[..]);
            }
        }
    }

    #[test]
    fn more_than_was_planned_is_refused() {
        let strings = Strings::plan(1, [2, 3].into_iter());
        let mut buffer = vec![0; strings.end(2)];
        strings.write(&mut buffer, 0, 0, b"ab").unwrap();
        strings.write(&mut buffer, 1, 3, b"").unwrap_err();
        strings.write(&mut buffer, 1, 2, b"cd").unwrap_err();
        strings.write(&mut buffer, 1, 2, b"c").unwrap();
        assert_eq!((strings.get(&buffer, 0), strings.get(&buffer, 1)), (&b"ab"[..], &b"abc"[..]));
    }
}
