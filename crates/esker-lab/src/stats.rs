//! Medians and how far they can be trusted.

/// The middle of some samples, and the range that most likely holds it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Summary {
    /// The median.
    pub median: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
}

/// Median of `samples` with a confidence interval of at least 95 percent from order statistics (the binomial interval for
/// a median; Hahn and Meeker, Statistical Intervals, 5.2). With fewer than six samples none exists: then the interval is
/// the whole range. `None` without samples.
#[must_use]
pub fn summary(samples: &[f64]) -> Option<Summary> {
    let mut s: Vec<f64> = samples.to_vec();
    s.sort_by(f64::total_cmp);
    let n = s.len();
    let (first, last) = (*s.first()?, *s.last()?);
    let median = if n % 2 == 1 { s[n / 2] } else { (s[n / 2 - 1] + s[n / 2]) / 2.0 };
    let outside = outside(n);
    let (low, high) = if outside == 0 { (first, last) } else { (s[outside], s[n - 1 - outside]) };
    Some(Summary { median, low, high })
}

/// How many samples may be left out at each end so that the rest still covers the median with 95 percent.
fn outside(n: usize) -> usize {
    if n > 1000 {
        // 2^-n is no number any more; the normal approximation is as good.
        let n = n as f64;
        return ((n - 1.96 * n.sqrt()) / 2.0) as usize - 1;
    }
    // P(at most k of n are below the median), summed up until both tails together exceed 5 percent.
    let (mut term, mut tail, mut k) = (0.5f64.powi(n as i32), 0.0, 0);
    while k < n / 2 {
        tail += term;
        if 2.0 * tail > 0.05 {
            return k.saturating_sub(1);
        }
        term *= (n - k) as f64 / (k + 1) as f64;
        k += 1;
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_samples_give_their_range() {
        assert_eq!(summary(&[]), None);
        assert_eq!(summary(&[3.0, 1.0, 2.0]), Some(Summary { median: 2.0, low: 1.0, high: 3.0 }));
        assert_eq!(summary(&[4.0, 1.0]), Some(Summary { median: 2.5, low: 1.0, high: 4.0 }));
    }

    #[test]
    fn many_samples_narrow_it() {
        // For 20 samples the interval is from the 6th to the 15th.
        let samples: Vec<f64> = (1..=20).map(f64::from).collect();
        assert_eq!(summary(&samples), Some(Summary { median: 10.5, low: 6.0, high: 15.0 }));
        // Both ways of working it out agree where they meet.
        let (few, many) = (outside(1000), outside(1001));
        assert!(few.abs_diff(many) <= 1, "{few} and {many}");
        // 3000 * 0.5 +- 1.96 * sqrt(3000) / 2
        assert_eq!(outside(3000), 1445);
    }
}
