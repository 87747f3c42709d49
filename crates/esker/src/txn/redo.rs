//! Redo of a transaction's small writes in one tree, until it goes to the log with the commit.
//!
//! It is kept in pieces, one for each memtable that has the versions: when a flush moves those to a private run, their piece
//! is needed no more. Rows that were gathered in bulk come late, and with older ordinals than what is there: they have pieces
//! of their own. Invariants: the other records stand in the order of their ordinals, and their pieces are never taken out of
//! the list but by a rollback to before them, so that a [`RedoPoint`] stays what it was; gathered rows are the first versions
//! of their rows, so they go first.

/// See the module.
#[derive(Default)]
pub(crate) struct Redo {
    /// The memtable of `bytes`; 0: none yet.
    mem: u64,
    bytes: Vec<u8>,
    older: Vec<(u64, Vec<u8>)>,
    gathered: Vec<BulkRows>,
}

/// Rows that were gathered in bulk and then kept in a memtable: all of one memtable, since who reads after each row that he has
/// written gathers them one by one.
struct BulkRows {
    mem: u64,
    bytes: Vec<u8>,
    /// Where those begin that were gathered together, and the first one's ordinal.
    begins: Vec<(u64, usize)>,
}

/// A place in a transaction's redo to which it can be cut back.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RedoPoint {
    pieces: usize,
    bytes: usize,
}

impl BulkRows {
    /// Forgets those that were gathered from `ordinal` on.
    fn truncate(&mut self, ordinal: u64) {
        let kept = self.begins.partition_point(|b| b.0 < ordinal);
        if let Some((_, begin)) = self.begins.get(kept) {
            self.bytes.truncate(*begin);
            self.begins.truncate(kept);
        }
    }
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

    /// Where records of gathered rows in memtable `mem` go, the first of which has `first_ordinal`.
    pub(crate) fn of_gathered(&mut self, mem: u64, first_ordinal: u64) -> &mut Vec<u8> {
        if self.gathered.last().is_none_or(|g| g.mem != mem) {
            self.gathered.push(BulkRows { mem, bytes: Vec::new(), begins: Vec::new() });
        }
        let last = self.gathered.len() - 1;
        let BulkRows { bytes, begins, .. } = &mut self.gathered[last];
        debug_assert!(begins.last().is_none_or(|b| b.0 <= first_ordinal), "gathered in the order of ordinals");
        if begins.last().is_none_or(|b| b.0 != first_ordinal) {
            begins.push((first_ordinal, bytes.len()));
        }
        bytes
    }

    pub(crate) fn point(&self) -> RedoPoint {
        RedoPoint { pieces: self.older.len(), bytes: self.bytes.len() }
    }

    /// Forgets what came after `point`, at which `ordinal` was the next one.
    pub(crate) fn truncate(&mut self, point: RedoPoint, ordinal: u64) {
        self.gathered.iter_mut().for_each(|g| g.truncate(ordinal));
        self.gathered.retain(|g| !g.begins.is_empty());
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
        // Older ones too: what this transaction had there was carried on until it came to `mem`, or has moved.
        if self.mem <= mem {
            self.bytes = Vec::new();
        }
        self.older.iter_mut().filter(|o| o.0 <= mem).for_each(|o| o.1 = Vec::new());
        self.gathered.retain(|g| g.mem > mem);
    }

    pub(crate) fn len_bytes(&self) -> usize {
        let gathered = self.gathered.iter().map(|g| g.bytes.len()).sum::<usize>();
        gathered + self.older.iter().map(|o| o.1.len()).sum::<usize>() + self.bytes.len()
    }

    /// Appends all of it to `out`, which has room for it.
    pub(crate) fn append_to(&self, out: &mut Vec<u8>) {
        self.gathered.iter().for_each(|g| out.extend_from_slice(&g.bytes));
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
        redo.truncate(second, 9);
        assert_eq!(all(&redo), b"de");
        redo.of(4).extend_from_slice(b"g");
        redo.truncate(first, 9);
        // What was there before the point has moved.
        assert_eq!(all(&redo), b"");
        redo.of(4).extend_from_slice(b"h");
        assert_eq!(all(&redo), b"h");
        redo.truncate(start, 9);
        assert_eq!(all(&redo), b"");
    }

    #[test]
    fn a_moved_current_piece_leaves_later_points_right() {
        let mut redo = Redo::default();
        redo.of(1).extend_from_slice(b"abc");
        let point = redo.point();
        redo.forget(1);
        redo.of(2).extend_from_slice(b"wxyz");
        redo.truncate(point, 9);
        assert_eq!(all(&redo), b"", "what came after the point must go");
    }

    #[test]
    fn rows_gathered_one_by_one_are_one_piece_of_a_memtable_and_cut_anywhere() {
        let mut redo = Redo::default();
        for ordinal in 0..1000_u64 {
            redo.of_gathered(1 + ordinal / 800, ordinal).push(ordinal as u8);
        }
        assert_eq!(redo.gathered.len(), 2, "so many pieces are looked at whenever the redo's length is asked for");
        let bytes: Vec<u8> = (0..1000_u64).map(|ordinal| ordinal as u8).collect();
        assert_eq!(all(&redo), bytes);
        for ordinal in [900, 801, 800, 799, 3, 0] {
            redo.truncate(RedoPoint::default(), ordinal as u64);
            assert_eq!(all(&redo), bytes[..ordinal]);
        }
        redo.of_gathered(1, 7).push(7);
        redo.of_gathered(2, 9).push(9);
        redo.forget(1);
        assert_eq!(all(&redo), [9]);
    }

    #[test]
    fn gathered_rows_stay_though_they_came_after_the_point() {
        let mut redo = Redo::default();
        redo.of(1).extend_from_slice(b"ab");
        let point = redo.point();
        redo.of_gathered(1, 3).extend_from_slice(b"old");
        redo.of_gathered(1, 7).extend_from_slice(b"new");
        redo.of(1).extend_from_slice(b"c");
        redo.truncate(point, 5);
        assert_eq!(all(&redo), b"oldab");
        redo.forget(1);
        assert_eq!(all(&redo), b"");
    }
}
