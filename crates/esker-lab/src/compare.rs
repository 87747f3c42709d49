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
/// Reports of equal rows that may call some of them different by the changes of sign alone. What is promised is 0.05; the
/// rest is for rows whose pairs resemble each other more than can be seen. Of 8 pairs' 128 changes it is the third; from
/// [`TELLING`] pairs on there are more to choose from, and nothing is missed by it.
const LEVEL: f64 = 0.0175;
const LEVEL_OF_MANY: f64 = 0.0125;
/// The same of rows without common rounds: each report's pairs around their own mean find less.
const LEVEL_OF_REPORTS: f64 = 0.04;
/// The bound is made so much larger, for the same: between one change of signs and the next there is no other.
const RESERVE: f64 = 1.03;
/// The resemblance of all rows is believed to be so many standard errors more than it is seen. Rows that are held against
/// the same one share noise, so a part of the error stays however many they are.
const ERRORS: f64 = 1.2;
const SHARED: f64 = 0.05;
/// Rows whose interval lies within so much of each other are the same: 10 percent.
const SAME: f64 = 1.10;
/// More pairs than this are merged into so many blocks: what lasts from pair to pair ends within one.
const BLOCKS: usize = 16;
/// Up to so many pairs all changes of sign are tried; beyond, so many drawn ones as there are for these.
const ALL_SIGNS: usize = 11;
/// A row's own resemblance counts from so many pairs on, if it is beyond that of all by so much of what the largest of as
/// many rows is beyond it by chance.
const TELLING: f64 = 12.0;
const CLEAR: f64 = 0.2;
/// No resemblance beyond this is believed: it would widen without end.
const MOST_ALIKE: f64 = 0.9;
/// Relative differences below this are a clock's.
const LEAST_ERROR: f64 = 1e-9;

/// What can be told of two rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Decision {
    /// They differ.
    Different,
    /// They differ by less than 10 percent, if at all.
    Same,
    /// There are too few rounds, or they are too noisy.
    Undecided,
}

/// A row held against another.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Comparison {
    /// The one over the other; the mean over pairs of rounds, of logarithms.
    pub ratio: f64,
    /// The interval that holds it, together with those of all others of the report; none with too few rounds.
    pub interval: Option<(f64, f64)>,
    /// Which it is.
    pub decision: Decision,
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

    /// What its parts say after a change of signs, a word of them for each part.
    fn estimate(&self, signs: [u64; 2]) -> Estimate {
        let (mut sum, mut squared_error, mut alike) = (0.0, 0.0, [None; 2]);
        for ((part, signs), alike) in self.parts.iter().zip(signs).zip(&mut alike) {
            let n = part.len() as f64;
            let changed = || part.iter().enumerate().map(|(k, v)| if signs >> k & 1 == 1 { -v } else { *v });
            let mean = changed().sum::<f64>() / n;
            let square: f64 = changed().map(|v| (v - mean).powi(2)).sum();
            let both: f64 = changed().zip(changed().skip(1)).map(|(a, b)| (a - mean) * (b - mean)).sum();
            sum += mean;
            squared_error += square / (n - 1.0) / n;
            // Estimated too low by about (1 + 3r) / n (Kendall 1954).
            *alike = (square > 0.0).then(|| ((n * both / square + 1.0) / (n - 3.0), n));
        }
        Estimate { mean: sum, error: squared_error.sqrt().max(LEAST_ERROR), alike }
    }
}

/// What the pairs of a contrast say of it.
struct Estimate {
    mean: f64,
    /// The standard error of the mean.
    error: f64,
    /// How much the pairs of each part resemble the pairs before, and how many there are.
    alike: [Option<(f64, f64)>; 2],
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

/// Holds all of a report's rows against each other that are to be; `None` where there was nothing to hold.
#[must_use]
pub fn family(contrasts: &[Option<Contrast>]) -> Vec<Option<Comparison>> {
    let enough: Vec<&Contrast> = contrasts.iter().flatten().filter(|c| c.pairs() >= LEAST_PAIRS).collect();
    let bound = bound(&enough);
    let estimates: Vec<Estimate> = enough.iter().map(|c| c.estimate([0, 0])).collect();
    let mut halves = estimates.iter().zip(widened(&estimates)).map(|(estimate, wider)| bound * wider * estimate.error);
    let mut judge = |c: &Contrast| {
        let ratio = c.mean.exp();
        if c.pairs() < LEAST_PAIRS {
            return Comparison { ratio, interval: None, decision: Decision::Undecided };
        }
        let half = halves.next().unwrap_or(f64::INFINITY);
        let (low, high) = ((c.mean - half).exp(), (c.mean + half).exp());
        let decision = match c.mean.abs() > half {
            true => Decision::Different,
            false if low >= 1.0 / SAME && high <= SAME => Decision::Same,
            false => Decision::Undecided,
        };
        Comparison { ratio, interval: Some((low, high)), decision }
    };
    contrasts.iter().map(|c| c.as_ref().map(&mut judge)).collect()
}

/// The studentised difference that the largest one of them exceeds by chance in [`LEVEL`] of all reports, and the reserve.
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
    let largest = |signs: [u64; 2]| {
        let estimates: Vec<Estimate> = contrasts.iter().map(|c| c.estimate(signs)).collect();
        let studentised = estimates
            .iter()
            .zip(widened(&estimates))
            .map(|(estimate, wider)| estimate.mean.abs() / estimate.error / wider);
        studentised.fold(0.0, f64::max)
    };
    let mut all: Vec<f64> = signs.map(largest).collect();
    all.sort_by(|a, b| b.total_cmp(a));
    let level = match longest as f64 >= TELLING {
        _ if contrasts.iter().any(|c| c.parts.len() > 1) => LEVEL_OF_REPORTS,
        true => LEVEL_OF_MANY,
        false => LEVEL,
    };
    RESERVE * all[((level * count as f64).ceil() as usize).min(all.len() - 1)]
}

/// How much wider the error of each mean is because pairs resemble the pairs before: by the correlation of neighbours, of
/// all rows together, since a row alone has too few; by its own where that is clearly more.
fn widened(estimates: &[Estimate]) -> Vec<f64> {
    let found = || estimates.iter().flat_map(|s| s.alike).flatten();
    let (sum, pairs, n) = found().fold((0.0, 0.0, 0.0), |of, (r, n)| (of.0 + r, of.1 + n, of.2 + 1.0));
    let one_error = (pairs / f64::max(n, 1.0)).max(1.0).sqrt().recip();
    let alike = sum / f64::max(n, 1.0);
    let all = if alike > 0.0 { alike + ERRORS * one_error * (SHARED + (1.0 - SHARED) / n).sqrt() } else { 0.0 };
    let chance = one_error * (2.0 * f64::max(n, 1.0).ln()).sqrt();
    let own = |s: &Estimate| {
        let mine = || s.alike.into_iter().flatten();
        let others = (sum - mine().map(|f| f.0).sum::<f64>()) / (n - mine().count() as f64).max(1.0);
        let clear = mine().filter(|(r, n)| *n >= TELLING && *r > others.max(0.0) + CLEAR * chance);
        clear.map(|f| f.0).fold(all, f64::max).min(MOST_ALIKE)
    };
    estimates.iter().map(own).map(|alike| ((1.0 + alike) / (1.0 - alike)).sqrt()).collect()
}

#[cfg(test)]
#[path = "compare/known.rs"]
pub(crate) mod known;
