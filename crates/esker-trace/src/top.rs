//! The greatest of many.

/// At most `most` values, the greatest first; of equal ones the earlier.
#[derive(Debug, Clone)]
pub(crate) struct Top<T> {
    most: usize,
    kept: Vec<(u64, T)>,
}

impl<T> Top<T> {
    pub(crate) fn new(most: usize) -> Self {
        Top { most, kept: Vec::new() }
    }

    /// Keeps what `make` gives, if it is among the greatest.
    pub(crate) fn offer(&mut self, key: u64, make: impl FnOnce() -> T) {
        let at = self.kept.partition_point(|(k, _)| *k >= key);
        if at < self.most {
            self.kept.truncate(self.most - 1);
            self.kept.insert(at, (key, make()));
        }
    }

    pub(crate) fn merge(&mut self, other: &Top<T>)
    where
        T: Clone,
    {
        other.kept.iter().for_each(|(key, value)| self.offer(*key, || value.clone()));
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &T> {
        self.kept.iter().map(|(_, value)| value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_greatest_are_kept_in_order() {
        let mut top = Top::new(3);
        for (n, key) in [5, 1, 9, 5, 7, 5].into_iter().enumerate() {
            top.offer(key, || n);
        }
        assert_eq!(top.values().copied().collect::<Vec<_>>(), [2, 4, 0]);
        let mut none = Top::new(0);
        none.offer(1, || 1);
        assert_eq!(none.values().count(), 0);
    }
}
