//! Owns the set of columns that a reader wants. Invariant: bits past the last column are zero.

/// Which columns to decode: one bit a column.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ColumnMask {
    words: Vec<u64>,
    columns: usize,
}

impl ColumnMask {
    /// All of `columns` columns.
    #[must_use]
    pub fn all(columns: usize) -> Self {
        let mut mask = Self::none(columns);
        for i in 0..columns {
            mask.set(i);
        }
        mask
    }

    /// None of `columns` columns.
    #[must_use]
    pub fn none(columns: usize) -> Self {
        ColumnMask { words: vec![0; columns.div_ceil(64)], columns }
    }

    /// Adds a column; one past the last is ignored.
    pub fn set(&mut self, column: usize) {
        if column < self.columns {
            self.words[column / 64] |= 1 << (column % 64);
        }
    }

    /// Removes a column.
    pub fn clear(&mut self, column: usize) {
        if column < self.columns {
            self.words[column / 64] &= !(1 << (column % 64));
        }
    }

    /// Is the column wanted?
    #[inline]
    #[must_use]
    pub fn get(&self, column: usize) -> bool {
        self.words.get(column / 64).is_some_and(|w| w >> (column % 64) & 1 != 0)
    }

    /// How many columns the table has.
    #[must_use]
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// How many columns are wanted.
    #[must_use]
    pub fn count(&self) -> usize {
        self.words.iter().map(|w| w.count_ones() as usize).sum()
    }

    /// Is every column wanted?
    #[must_use]
    pub fn is_all(&self) -> bool {
        self.count() == self.columns
    }

    /// One past the last wanted column; zero when none is wanted.
    #[must_use]
    pub fn end(&self) -> usize {
        let word = self.words.iter().rposition(|&w| w != 0);
        word.map_or(0, |i| i * 64 + 64 - self.words[i].leading_zeros() as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits() {
        let mut m = ColumnMask::none(130);
        assert_eq!((m.count(), m.end(), m.is_all()), (0, 0, false));
        m.set(0);
        m.set(129);
        m.set(130);
        assert!(m.get(0) && m.get(129) && !m.get(1) && !m.get(130) && !m.get(1000));
        assert_eq!((m.count(), m.end()), (2, 130));
        m.clear(129);
        assert_eq!(m.end(), 1);
        assert!(ColumnMask::all(130).is_all() && ColumnMask::all(0).is_all());
    }
}
