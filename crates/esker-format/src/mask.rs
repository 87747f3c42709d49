//! Owns the set of columns that a reader wants. Invariant: bits past the last column are zero.

/// Which columns to decode: one bit a column.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ColumnMask {
    columns: usize,
    /// The first 64 columns, of which few tables have more.
    first: u64,
    /// The others.
    rest: Vec<u64>,
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
        ColumnMask { columns, first: 0, rest: vec![0; columns.saturating_sub(64).div_ceil(64)] }
    }

    fn word_mut(&mut self, column: usize) -> &mut u64 {
        match column / 64 {
            0 => &mut self.first,
            word => &mut self.rest[word - 1],
        }
    }

    /// Adds a column; one past the last is ignored.
    pub fn set(&mut self, column: usize) {
        if column < self.columns {
            *self.word_mut(column) |= 1 << (column % 64);
        }
    }

    /// Removes a column.
    pub fn clear(&mut self, column: usize) {
        if column < self.columns {
            *self.word_mut(column) &= !(1 << (column % 64));
        }
    }

    /// Is the column wanted?
    #[inline]
    #[must_use]
    pub fn get(&self, column: usize) -> bool {
        let word = match column / 64 {
            0 => self.first,
            word => self.rest.get(word - 1).copied().unwrap_or(0),
        };
        word >> (column % 64) & 1 != 0
    }

    /// How many columns the table has.
    #[must_use]
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// How many columns are wanted.
    #[must_use]
    pub fn count(&self) -> usize {
        std::iter::once(&self.first).chain(&self.rest).map(|w| w.count_ones() as usize).sum()
    }

    /// Is every column wanted?
    #[must_use]
    pub fn is_all(&self) -> bool {
        self.count() == self.columns
    }

    /// One past the last wanted column; zero when none is wanted.
    #[must_use]
    pub fn end(&self) -> usize {
        let end_in = |word: u64| 64 - word.leading_zeros() as usize;
        match self.rest.iter().rposition(|&w| w != 0) {
            Some(i) => (i + 1) * 64 + end_in(self.rest[i]),
            None => end_in(self.first),
        }
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
        for columns in [1, 63, 64, 65, 128, 129] {
            let mut mask = ColumnMask::all(columns);
            assert_eq!((mask.count(), mask.end(), mask.is_all()), (columns, columns, true));
            mask.clear(columns - 1);
            assert_eq!((mask.count(), mask.end(), mask.get(columns)), (columns - 1, columns - 1, false));
        }
    }
}
