//! Redo of a transaction's small writes in one tree, until it goes to the log with the commit.
//!
//! It is kept in pieces, one for each memtable that has the versions: when a flush moves those to a private run, their piece
//! is needed no more. Invariant: records stand in the order of their ordinals, and pieces are never taken out of the list but
//! by a rollback to before them, so that a [`RedoPoint`] stays what it was.

/// See the module.
#[derive(Default)]
pub(crate) struct Redo {
    /// The memtable of `bytes`; 0: none yet.
    mem: u64,
    bytes: Vec<u8>,
    older: Vec<(u64, Vec<u8>)>,
}

/// A place in a transaction's redo to which it can be cut back.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RedoPoint {
    pieces: usize,
    bytes: usize,
}

impl Redo {
    /// Where records of versions in memtable `mem` go.
    #[inline]
    pub(crate) fn of(&mut self, mem: u64) -> &mut Vec<u8> {
        if self.mem != mem {
            if self.mem != 0 {
                self.older.push((self.mem, std::mem::take(&mut self.bytes)));
            }
            self.mem = mem;
        }
        &mut self.bytes
    }

    pub(crate) fn point(&self) -> RedoPoint {
        RedoPoint { pieces: self.older.len(), bytes: self.bytes.len() }
    }

    /// Forgets what came after `point`.
    pub(crate) fn truncate(&mut self, point: RedoPoint) {
        if self.older.len() > point.pieces {
            self.older.truncate(point.pieces + 1);
            if let Some((mem, bytes)) = self.older.pop() {
                (self.mem, self.bytes) = (mem, bytes);
            }
        }
        self.bytes.truncate(point.bytes);
        if self.bytes.is_empty() {
            self.bytes = Vec::new();
        }
    }

    /// The versions in memtable `mem` are in a run.
    pub(crate) fn forget(&mut self, mem: u64) {
        if self.mem == mem {
            self.bytes = Vec::new();
        }
        self.older.iter_mut().filter(|o| o.0 == mem).for_each(|o| o.1 = Vec::new());
    }

    pub(crate) fn len_bytes(&self) -> usize {
        self.older.iter().map(|o| o.1.len()).sum::<usize>() + self.bytes.len()
    }

    /// Appends all of it to `out`.
    pub(crate) fn append_to(&self, out: &mut Vec<u8>) {
        self.older.iter().for_each(|o| out.extend_from_slice(&o.1));
        out.extend_from_slice(&self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(redo: &Redo) -> Vec<u8> {
        let mut out = Vec::new();
        redo.append_to(&mut out);
        assert_eq!(out.len(), redo.len_bytes());
        out
    }

    #[test]
    fn points_hold_over_memtables_and_moves() {
        let mut redo = Redo::default();
        let start = redo.point();
        redo.of(1).extend_from_slice(b"ab");
        let first = redo.point();
        redo.of(1).extend_from_slice(b"c");
        redo.of(2).extend_from_slice(b"de");
        let second = redo.point();
        redo.forget(1);
        redo.of(3).extend_from_slice(b"f");
        assert_eq!(all(&redo), b"def");
        redo.truncate(second);
        assert_eq!(all(&redo), b"de");
        redo.of(4).extend_from_slice(b"g");
        redo.truncate(first);
        // What was there before the point has moved.
        assert_eq!(all(&redo), b"");
        redo.of(4).extend_from_slice(b"h");
        assert_eq!(all(&redo), b"h");
        redo.truncate(start);
        assert_eq!(all(&redo), b"");
    }

    #[test]
    fn a_moved_current_piece_leaves_later_points_right() {
        let mut redo = Redo::default();
        redo.of(1).extend_from_slice(b"abc");
        let point = redo.point();
        redo.forget(1);
        redo.of(2).extend_from_slice(b"wxyz");
        redo.truncate(point);
        assert_eq!(all(&redo), b"", "what came after the point must go");
    }
}
