//! By which power of the log does recovery's time grow? time = a + b n^k, with what opening costs anyway in the fit: left
//! out, it makes every law look flatter than it is.
//!
//! For each k the rest is linear: a and b by least squares on relative errors, neither below zero. The best k has the least
//! sum of squares; those that an F test does not tell from it are its interval (profile likelihood; Bates and Watts,
//! Nonlinear Regression Analysis, 6.1).

/// Sizes without which a law says nothing: three figures are fitted, and something must be left to doubt them.
pub(super) const LEAST_SIZES: usize = 4;
/// The engine's time grows by at most this power of its log.
pub(super) const MOST: f64 = 1.1;
/// Powers that are tried: so many steps, of this size.
const STEPS: u32 = 1600;
const STEP: f64 = 0.0025;

/// What was measured at one size.
pub(super) struct Size {
    /// Frames replayed.
    pub n: f64,
    /// Seconds of each run; all above zero.
    pub times: Vec<f64>,
}

/// The law: seconds = a + b n^k.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Law {
    /// Seconds that opening takes without a log.
    pub a: f64,
    pub b: f64,
    pub k: f64,
    /// 95 percent confidence for k.
    pub low: f64,
    pub high: f64,
}

impl Law {
    /// Does the interval reach beyond what the engine promises?
    pub(super) fn is_fault(&self) -> bool {
        self.high > MOST
    }
}

/// Finds the law; `None` with fewer than [`LEAST_SIZES`] sizes, or where the longest log is not four times the shortest.
pub(super) fn fit(sizes: &[Size]) -> Option<Law> {
    let n = || sizes.iter().map(|s| s.n);
    let (least, most) = (n().reduce(f64::min)?, n().reduce(f64::max)?);
    let mut different: Vec<f64> = n().collect();
    different.sort_by(f64::total_cmp);
    // Sizes that differ by less than a tenth are one.
    different.dedup_by(|b, a| *b < *a * 1.1);
    if different.len() < LEAST_SIZES || least <= 0.0 || most < 4.0 * least {
        return None;
    }
    let points: Vec<Point> = sizes.iter().flat_map(|s| of(s, most)).collect();
    let tried: Vec<(f64, f64, f64, f64)> = (0..=STEPS)
        .map(|step| {
            let k = f64::from(step) * STEP;
            let (a, b, squares) = linear(&points, k);
            (k, a, b, squares)
        })
        .collect();
    let (k, a, b, squares) = tried.iter().copied().min_by(|x, y| x.3.total_cmp(&y.3))?;
    let left = points.len() as f64 - 3.0;
    let bound = squares * (1.0 + student(left).powi(2) / left);
    let inside = || tried.iter().filter(|t| t.3 <= bound).map(|t| t.0);
    let (low, high) = (inside().reduce(f64::min)?, inside().reduce(f64::max)?);
    Some(Law { a, b: b / most.powf(k), k, low, high })
}

/// A run: its size as a part of the largest, its time, and its weight.
type Point = (f64, f64, f64);

/// A size's runs, weighted by its own mean: errors are shares of the time.
fn of(size: &Size, most: f64) -> impl Iterator<Item = Point> + '_ {
    let mean = size.times.iter().sum::<f64>() / size.times.len().max(1) as f64;
    size.times.iter().map(move |t| (size.n / most, *t, mean.powi(-2)))
}

/// a, b and the sum of squares for one k.
fn linear(points: &[Point], k: f64) -> (f64, f64, f64) {
    let sum = |of: &dyn Fn(f64, f64) -> f64| points.iter().map(|(x, y, w)| w * of(x.powf(k), *y)).sum::<f64>();
    let (w, x, y) = (sum(&|_, _| 1.0), sum(&|x, _| x), sum(&|_, y| y));
    let (xx, xy) = (sum(&|x, _| x * x), sum(&|x, y| x * y));
    let spread = w * xx - x * x;
    let (mut a, mut b) = (y / w, 0.0);
    if spread > 1e-12 * w * xx {
        b = (w * xy - x * y) / spread;
        a = (y - b * x) / w;
    }
    if a < 0.0 {
        (a, b) = (0.0, xy / xx);
    } else if b < 0.0 {
        (a, b) = (y / w, 0.0);
    }
    (a, b, sum(&|x, y| (y - a - b * x).powi(2)))
}

/// Two-sided 95 percent of Student's t (Abramowitz and Stegun, 26.7.5); of one degree of freedom, as it is.
fn student(degrees: f64) -> f64 {
    if degrees < 1.5 {
        return 12.706;
    }
    if degrees < 2.5 {
        return 4.303;
    }
    let z: f64 = 1.959_964;
    let first = (z.powi(3) + z) / 4.0;
    let second = (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / 96.0;
    let third = (3.0 * z.powi(7) + 19.0 * z.powi(5) + 17.0 * z.powi(3) - 15.0 * z) / 384.0;
    z + first / degrees + second / degrees.powi(2) + third / degrees.powi(3)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: [f64; 5] = [1e4, 3e4, 1e5, 3e5, 1e6];

    /// Runs of a known law: so many of each size, with so much relative noise.
    fn planted(a: f64, b: f64, k: f64, noise: f64, seed: u64) -> Vec<Size> {
        let mut random = fastrand::Rng::with_seed(seed);
        // The sum of twelve is as good as normal.
        let mut normal = move || (0..12).map(|_| random.f64()).sum::<f64>() - 6.0;
        let mut times = |n: f64| (0..4).map(|_| (a + b * n.powf(k)) * (1.0 + noise * normal())).collect();
        SIZES.map(|n| Size { n, times: times(n) }).into()
    }

    #[test]
    fn planted_costs_are_found_beside_a_constant() {
        for (k, b) in [(1.0, 3e-6), (2.0, 3e-12)] {
            let laws: Vec<Law> = (0..200).filter_map(|seed| fit(&planted(0.02, b, k, 0.03, seed))).collect();
            assert_eq!(laws.len(), 200);
            let far = laws.iter().filter(|l| (l.k - k).abs() > 0.1).count();
            let missed = laws.iter().filter(|l| l.low > k || l.high < k).count();
            let faults = laws.iter().filter(|l| l.is_fault()).count();
            println!("k {k}: {far} of 200 beyond 0.1, {missed} intervals without it, {faults} faults");
            assert_eq!(far, 0);
            // 5 percent, and three standard errors of that.
            assert!(missed <= 19, "{missed} of 200 intervals miss {k}");
            assert!(if k > 1.5 { faults == 200 } else { faults <= 10 }, "{faults} faults at {k}");
        }
    }

    #[test]
    fn without_noise_the_law_is_exact() {
        let law = fit(&planted(0.5, 2e-6, 1.0, 0.0, 1)).unwrap();
        assert!(
            (law.k - 1.0).abs() < 1e-9 && (law.a - 0.5).abs() < 1e-6 && (law.b / 2e-6 - 1.0).abs() < 1e-6,
            "{law:?}"
        );
        // What takes the same time always has no power to speak of, and is no fault.
        let flat = fit(&planted(0.5, 0.0, 1.0, 0.0, 1)).unwrap();
        assert!((flat.a + flat.b - 0.5).abs() < 1e-6, "{flat:?}");
    }

    #[test]
    fn too_few_sizes_tell_no_law() {
        let mut sizes = planted(0.02, 3e-6, 1.0, 0.03, 1);
        sizes.truncate(3);
        assert_eq!(fit(&sizes), None);
        let near = |n: f64| Size { n, times: vec![1.0, 1.1] };
        assert_eq!(fit(&[near(100.0), near(100.0), near(101.0), near(900.0)]), None);
        assert_eq!(fit(&[near(100.0), near(120.0), near(140.0), near(160.0)]), None);
        assert_eq!(fit(&[]), None);
    }

    #[test]
    fn student_is_the_tables() {
        for (degrees, value) in [(1.0, 12.706), (2.0, 4.303), (5.0, 2.571), (13.0, 2.160), (60.0, 2.000)] {
            assert!((student(degrees) - value).abs() < 0.01, "{degrees}");
        }
    }
}
