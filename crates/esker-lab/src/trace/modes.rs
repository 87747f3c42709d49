//! Modes of a distribution of times: where reads of one kind are told from reads of another by how long they took.
//!
//! The times are counted in buckets of a quarter of an octave, smoothed; a cut is made where a valley between two peaks
//! is deep. Only an inference, and a cautious one: what has no deep valley is one mode.

/// Modes that are told apart at most: the device's own memory, what it fetched ahead, the medium.
const MOST: usize = 3;
/// A valley has at most this share of the lower one of its peaks.
const VALLEY: f64 = 0.2;
/// A mode has at least this share of all reads...
const SHARE: f64 = 0.02;
/// ... and at least so many, ...
const READS: usize = 3;
/// ... and its median is at least so many times that of the mode before.
const APART: f64 = 2.0;

/// The least time of each mode but the first, of times in ascending order: empty if there is one mode. The unit is the
/// caller's, values below one of it are one.
#[must_use]
pub fn cuts(sorted: &[f64]) -> Vec<f64> {
    let mut parts: Vec<&[f64]> = vec![sorted];
    let least = READS.max((sorted.len() as f64 * SHARE).ceil() as usize);
    while parts.len() < MOST {
        let candidates = parts.iter().enumerate().filter_map(|(i, part)| Some((i, cut(part, least)?)));
        let Some((i, (at, _))) = candidates.min_by(|a, b| (a.1).1.total_cmp(&(b.1).1)) else { break };
        let (low, high) = parts[i].split_at(at);
        parts.splice(i..=i, [low, high]);
    }
    parts.iter().skip(1).filter_map(|part| part.first().copied()).collect()
}

fn bucket(time: f64) -> usize {
    (4.0 * time.max(1.0).log2()) as usize
}

/// The best place to cut: how many times are below it, and how shallow the valley is.
fn cut(sorted: &[f64], least: usize) -> Option<(usize, f64)> {
    let first = bucket(*sorted.first()?);
    let mut counts = vec![0.0; bucket(*sorted.last()?) - first + 1];
    sorted.iter().for_each(|t| counts[bucket(*t) - first] += 1.0);
    let at = |i: usize, d: usize| if d == 0 { i.checked_sub(1) } else { Some(i + d - 1) };
    let count = |i: Option<usize>| i.and_then(|i| counts.get(i)).copied().unwrap_or(0.0);
    let smooth: Vec<f64> =
        (0..counts.len()).map(|i| (count(at(i, 0)) + 2.0 * count(at(i, 1)) + count(at(i, 2))) / 4.0).collect();
    let peak = |part: &[f64]| part.iter().copied().fold(0.0, f64::max);
    let median = |part: &[f64]| part[part.len() / 2];
    let mut best: Option<(usize, f64)> = None;
    for i in 1..smooth.len() {
        let below = sorted.partition_point(|t| bucket(*t) < first + i);
        if below < least || sorted.len() - below < least {
            continue;
        }
        let depth = smooth[i] / peak(&smooth[..i]).min(peak(&smooth[i..]));
        let apart = median(&sorted[below..]) >= APART * median(&sorted[..below]);
        if apart && depth <= VALLEY && best.is_none_or(|(_, d)| depth < d) {
            best = Some((below, depth));
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `n` times around a middle, a fifth to either side.
    fn around(middle: f64, n: u32) -> impl Iterator<Item = f64> {
        (0..n).map(move |i| middle * (0.8 + 0.4 * f64::from(i) / f64::from(n)))
    }

    fn sorted(parts: &[(f64, u32)]) -> Vec<f64> {
        let mut all: Vec<f64> = parts.iter().flat_map(|(middle, n)| around(*middle, *n)).collect();
        all.sort_by(f64::total_cmp);
        all
    }

    #[test]
    fn three_modes_are_told_apart_as_in_the_source() {
        let cuts = cuts(&sorted(&[(10.0, 500), (250.0, 400), (1500.0, 30)]));
        let [prefetched, disk] = cuts[..] else { panic!("{cuts:?}") };
        assert!((12.0..=200.0).contains(&prefetched) && (300.0..=1200.0).contains(&disk), "{cuts:?}");
    }

    #[test]
    fn one_mode_with_a_tail_is_one() {
        assert!(cuts(&sorted(&[(100.0, 500), (5000.0, 2)])).is_empty());
        assert!(cuts(&sorted(&[(100.0, 500), (140.0, 500)])).is_empty());
        assert!(cuts(&[]).is_empty() && cuts(&[7.0]).is_empty());
    }

    #[test]
    fn there_are_never_more_than_three() {
        let cuts = cuts(&sorted(&[(10.0, 100), (100.0, 100), (1000.0, 100), (10_000.0, 100)]));
        assert_eq!(cuts.len(), 2);
    }
}
