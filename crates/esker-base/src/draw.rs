//! Owns which of many that are alike are looked at, for all.
//!
//! Invariant: those that take turns are met alike, however many they are. Every sixteenth of a thousand would be of two kinds
//! always the same one.

/// What is drawn for the one with this number: multiples of the golden ratio, which are spread evenly, those of every second or
/// sixteenth number, too.
#[inline]
pub(crate) const fn draw(number: u64) -> u64 {
    number.wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// Is it one in so many, of whom the first is one?
#[inline]
pub(crate) const fn is_drawn(number: u64, one_in: u64) -> bool {
    draw(number) <= u64::MAX / one_in
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_take_turns_are_met_alike() {
        for kinds in [1, 2, 3, 4, 8, 10, 16, 17, 32, 48] {
            for kind in 0..kinds {
                let (met, all) =
                    ((kind..960_000).step_by(kinds).filter(|n| is_drawn(*n as u64, 16)).count(), 60_000 / kinds);
                assert!(met.abs_diff(all) <= all / 20, "{kind} of {kinds}: {met} of {all}");
            }
        }
    }

    #[test]
    fn one_in_one_is_all() {
        assert!((0..100_000).all(|n| is_drawn(n, 1)));
        assert!(is_drawn(0, u64::MAX));
    }
}
