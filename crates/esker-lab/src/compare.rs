//! Can rows be told apart? Differences of logarithms, a pair of rounds at a time, and one bound for all comparisons of a
//! report: equal rows are called different in at most 5 percent of whole reports. docs/design/0011 says why so.
//!
//! A pair is a round and the next one, which goes backwards (ABBA): what drifts evenly falls out of its mean. The bound
//! is the largest studentised difference that chance gives: of all comparisons at once, under changes of sign of whole
//! pairs (Romano and Wolf 2005; Westfall and Young's max-T), so that rows held against the same one, and rows of very
//! different noise, are taken as they are. Where pairs resemble the pairs before, it is widened.

use serde::Serialize;

/// Pairs of rounds without which nothing is decided.
pub const LEAST_PAIRS: usize = 8;
/// Rounds without which nothing is decided.
pub const LEAST_ROUNDS: usize = 2 * LEAST_PAIRS;
/// Reports of equal rows that may call some of them different; a fifth below what is promised.
const LEVEL: f64 = 0.04;
/// Rows whose interval lies within so much of each other are the same: 10 percent.
const SAME: f64 = 1.10;
/// More pairs than this are merged into so many blocks: what lasts from pair to pair ends within one.
const BLOCKS: usize = 16;
/// Up to so many pairs all changes of sign are tried; beyond, so many drawn ones as there are for these.
const ALL_SIGNS: usize = 11;
/// A resemblance of pairs beyond this is believed.
const ALIKE: f64 = 0.3;
/// A row's own resemblance counts from so many pairs on, if it is beyond that of all by so many standard errors.
const TELLING: f64 = 12.0;
const CLEAR: f64 = 0.5;
/// Relative differences below this are a clock's.
const LEAST_ERROR: f64 = 1e-9;

/// What can be told of two rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Told {
    /// They differ.
    Different,
    /// They differ by less than 10 percent, if at all.
    Same,
    /// There are too few rounds, or they are too noisy.
    Undecided,
}

/// A row held against another.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Compared {
    /// The one over the other; the mean over pairs of rounds, of logarithms.
    pub ratio: f64,
    /// The interval that holds it, together with those of all others of the report; none with too few rounds.
    pub interval: Option<(f64, f64)>,
    /// Which it is.
    pub told: Told,
}

/// Two rows that are to be held against each other.
#[derive(Debug, Clone)]
pub struct Contrast {
    /// A difference a pair; or, of rows without common rounds, those of each from its mean.
    parts: Vec<Vec<f64>>,
    /// Logarithm of the ratio.
    mean: f64,
}

impl Contrast {
    /// Of rows that were measured in the same rounds: samples in their order. `None` where one is not positive.
    #[must_use]
    pub fn of_rounds(a: &[f64], b: &[f64]) -> Option<Contrast> {
        let rounds = a.len().min(b.len());
        let both = || a.iter().zip(b).take(rounds);
        if rounds == 0 || both().any(|(a, b)| *a <= 0.0 || *b <= 0.0) {
            return None;
        }
        let logs: Vec<f64> = both().map(|(a, b)| (a / b).ln()).collect();
        let pairs = pairs(&logs);
        let mean = mean(if pairs.is_empty() { &logs } else { &pairs });
        Some(Contrast { parts: vec![pairs], mean })
    }

    /// Of rows of two reports. `None` where a sample is not positive.
    #[must_use]
    pub fn of_reports(a: &[f64], b: &[f64]) -> Option<Contrast> {
        let logs = |samples: &[f64]| {
            let all: Vec<f64> = samples.iter().map(|v| v.ln()).collect();
            (!all.is_empty() && all.iter().all(|v| v.is_finite())).then_some(all)
        };
        let (a, b) = (logs(a)?, logs(b)?);
        let centred = |logs: &[f64]| {
            let pairs = pairs(logs);
            let middle = mean(&pairs);
            pairs.into_iter().map(|v| v - middle).collect::<Vec<_>>()
        };
        Some(Contrast { parts: vec![centred(&a), centred(&b)], mean: mean(&a) - mean(&b) })
    }

    /// Pairs of rounds, of the row that has fewer.
    fn pairs(&self) -> usize {
        self.parts.iter().map(Vec::len).min().unwrap_or(0)
    }

    /// The standard error of the mean.
    fn error(&self) -> f64 {
        self.parts.iter().map(|p| squared_error(p.iter().copied())).sum::<f64>().sqrt().max(LEAST_ERROR)
    }

    /// The studentised mean after a change of signs, a word of them for each part.
    fn changed(&self, signs: &[u64; 2]) -> f64 {
        let (mut sum, mut square) = (0.0, 0.0);
        for (part, signs) in self.parts.iter().zip(signs) {
            let changed = || part.iter().enumerate().map(|(k, v)| if signs >> k & 1 == 1 { -v } else { *v });
            sum += changed().sum::<f64>() / part.len() as f64;
            square += squared_error(changed());
        }
        sum.abs() / square.sqrt().max(LEAST_ERROR)
    }
}

/// Means of rounds and their ways back; a last round without one is left out. Many are merged.
fn pairs(logs: &[f64]) -> Vec<f64> {
    let pairs: Vec<f64> = logs.chunks_exact(2).map(mean).collect();
    if pairs.len() <= BLOCKS {
        return pairs;
    }
    pairs.chunks_exact(pairs.len().div_ceil(BLOCKS)).map(mean).collect()
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// Of a mean, from the spread of its values.
fn squared_error(values: impl Iterator<Item = f64> + Clone) -> f64 {
    let n = values.clone().count() as f64;
    let mean = values.clone().sum::<f64>() / n;
    values.map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1.0) / n
}

/// Holds all of a report's rows against each other that are to be; `None` where there was nothing to hold.
#[must_use]
pub fn family(contrasts: &[Option<Contrast>]) -> Vec<Option<Compared>> {
    let enough: Vec<&Contrast> = contrasts.iter().flatten().filter(|c| c.pairs() >= LEAST_PAIRS).collect();
    let bound = bound(&enough);
    let mut widened = widened(&enough).into_iter();
    let mut judge = |c: &Contrast| {
        let ratio = c.mean.exp();
        if c.pairs() < LEAST_PAIRS {
            return Compared { ratio, interval: None, told: Told::Undecided };
        }
        let half = bound * widened.next().unwrap_or(1.0) * c.error();
        let (low, high) = ((c.mean - half).exp(), (c.mean + half).exp());
        let told = match c.mean.abs() > half {
            true => Told::Different,
            false if low >= 1.0 / SAME && high <= SAME => Told::Same,
            false => Told::Undecided,
        };
        Compared { ratio, interval: Some((low, high)), told }
    };
    contrasts.iter().map(|c| c.as_ref().map(&mut judge)).collect()
}

/// The studentised difference that the largest one of them exceeds by chance in [`LEVEL`] of all reports.
fn bound(contrasts: &[&Contrast]) -> f64 {
    let longest = contrasts.iter().flat_map(|c| &c.parts).map(Vec::len).max().unwrap_or(0);
    let all = longest <= ALL_SIGNS && contrasts.iter().all(|c| c.parts.len() == 1);
    let mut random = fastrand::Rng::with_seed(1);
    let count = 1u64 << (if all { longest.max(1) } else { ALL_SIGNS } - 1);
    // All signs the other way round give the same.
    let signs = (0..count).map(|n| match all || n == 0 {
        true => [n, 0],
        false => [random.u64(..), random.u64(..)],
    });
    let largest = |signs: [u64; 2]| contrasts.iter().map(|c| c.changed(&signs)).fold(0.0, f64::max);
    let mut all: Vec<f64> = signs.map(largest).collect();
    all.sort_by(|a, b| b.total_cmp(a));
    all[(LEVEL * count as f64) as usize]
}

/// How much wider the error of each mean is because pairs resemble the pairs before: by the correlation of neighbours, of
/// all rows together, since a row alone has too few; by its own where that is clearly more. It is estimated too low by
/// about (1 + 3r) / n (Kendall 1954); what is believed of all gets a margin for its own error.
fn widened(contrasts: &[&Contrast]) -> Vec<f64> {
    let of = |pairs: &Vec<f64>| {
        let (n, mean) = (pairs.len() as f64, mean(pairs));
        let square: f64 = pairs.iter().map(|v| (v - mean).powi(2)).sum();
        let both: f64 = pairs.windows(2).map(|w| (w[0] - mean) * (w[1] - mean)).sum();
        (square > 0.0).then(|| ((n * both / square + 1.0) / (n - 3.0), n))
    };
    let found: Vec<(f64, f64)> = contrasts.iter().flat_map(|c| &c.parts).filter_map(of).collect();
    let sum = found.iter().fold((0.0, 0.0), |sum, f| (sum.0 + f.0, sum.1 + 2.0 / f.1));
    let n = found.len().max(1) as f64;
    let (alike, margin) = ((sum.0 / n).max(0.0), sum.1 / n);
    let all = if alike > ALIKE { alike + margin } else { alike };
    let own = |c: &&Contrast| {
        let mine: Vec<(f64, f64)> = c.parts.iter().filter_map(of).collect();
        let others = (sum.0 - mine.iter().map(|f| f.0).sum::<f64>()) / (n - mine.len() as f64).max(1.0);
        let clear = mine.into_iter().filter(|(r, n)| *n >= TELLING && *r > others.max(0.0) + CLEAR / n.sqrt());
        clear.map(|f| f.0).fold(all, f64::max).min(0.85)
    };
    let error = |alike: f64| ((1.0 + alike) / (1.0 - alike)).sqrt();
    contrasts.iter().map(own).map(error).collect()
}

#[cfg(test)]
#[path = "compare/known.rs"]
pub(crate) mod known;
