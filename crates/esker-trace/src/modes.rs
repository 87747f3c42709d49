//! Modes of a distribution of times: where reads of one kind are told from those of another by how long they took.
//!
//! Counted in buckets of a quarter of an octave, smoothed; a cut is made where a valley between two peaks is deep, as
//! `esker lab trace` does. Only an inference, and a cautious one: what has no deep valley is one mode.

/// Modes that are told apart at most: the device's own memory, what it fetched ahead, the medium.
const MOST: usize = 3;
/// A valley has at most this share of the lower one of its peaks.
const VALLEY: f64 = 0.2;
/// A mode has at least this share of all, and so many.
const SHARE: f64 = 0.02;
const LEAST: u64 = 3;
/// A mode's middle is at least so many times that of the one before.
const APART: f64 = 2.0;

/// A part of the distribution: how many, and their least, median and greatest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mode {
    pub(crate) from: u64,
    pub(crate) median: u64,
    pub(crate) to: u64,
    pub(crate) count: u64,
}

/// The modes of times in ascending order, each with how often it came; none without any.
pub(crate) fn modes(times: &[(u64, u64)]) -> Vec<Mode> {
    let all: u64 = times.iter().map(|t| t.1).sum();
    let least = LEAST.max((all as f64 * SHARE).ceil() as u64);
    let mut parts = vec![times];
    while parts.len() < MOST {
        let candidates = parts.iter().enumerate().filter_map(|(i, part)| Some((i, cut(part, least)?)));
        let Some((i, (at, _))) = candidates.min_by(|a, b| (a.1).1.total_cmp(&(b.1).1)) else { break };
        let (low, high) = parts[i].split_at(at);
        parts.splice(i..=i, [low, high]);
    }
    parts.into_iter().filter_map(mode).collect()
}

fn mode(part: &[(u64, u64)]) -> Option<Mode> {
    let (from, to) = (part.first()?.0, part.last()?.0);
    Some(Mode { from, median: median(part), to, count: part.iter().map(|t| t.1).sum() })
}

fn median(part: &[(u64, u64)]) -> u64 {
    let half = part.iter().map(|t| t.1).sum::<u64>().div_ceil(2);
    let mut seen = 0;
    part.iter()
        .find(|t| {
            seen += t.1;
            seen >= half
        })
        .map_or(0, |t| t.0)
}

fn bucket(ns: u64) -> usize {
    (4.0 * (ns.max(1) as f64).log2()) as usize
}

/// The best place to cut, and how shallow the valley is.
fn cut(part: &[(u64, u64)], least: u64) -> Option<(usize, f64)> {
    let first = bucket(part.first()?.0);
    let mut counts = vec![0.0; bucket(part.last()?.0) - first + 1];
    part.iter().for_each(|(ns, n)| counts[bucket(*ns) - first] += *n as f64);
    let count = |i: Option<usize>| i.and_then(|i| counts.get(i)).copied().unwrap_or(0.0);
    let smooth: Vec<f64> = (0..counts.len())
        .map(|i| (count(i.checked_sub(1)) + 2.0 * count(Some(i)) + count(Some(i + 1))) / 4.0)
        .collect();
    let peak = |part: &[f64]| part.iter().copied().fold(0.0, f64::max);
    let number = |part: &[(u64, u64)]| part.iter().map(|t| t.1).sum::<u64>();
    let mut best: Option<(usize, f64)> = None;
    for i in 1..smooth.len() {
        let at = part.partition_point(|t| bucket(t.0) < first + i);
        let (low, high) = part.split_at(at);
        if number(low) < least || number(high) < least {
            continue;
        }
        let depth = smooth[i] / peak(&smooth[..i]).min(peak(&smooth[i..]));
        let apart = median(high) as f64 >= APART * median(low) as f64;
        if apart && depth <= VALLEY && best.is_none_or(|(_, d)| depth < d) {
            best = Some((at, depth));
        }
    }
    best
}

/// What may have served the reads of each mode; nothing where there is one only. `sequential`: most reads were right
/// behind the one before, so that the device can fetch ahead.
pub(crate) fn sources(modes: usize, sequential: bool) -> &'static [&'static str] {
    match (modes, sequential) {
        (2, true) => &["prefetched", "disk"],
        (2, false) => &["array cache", "disk"],
        (3, _) => &["array cache", "prefetched", "disk"],
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `n` times around a middle, a fifth to either side.
    fn around(parts: &[(u64, u64)]) -> Vec<(u64, u64)> {
        let each = |&(middle, n): &(u64, u64)| (0..n).map(move |i| (middle * 4 / 5 + middle * 2 / 5 * i / n, 1));
        let mut all: Vec<(u64, u64)> = parts.iter().flat_map(each).collect();
        all.sort_unstable();
        all
    }

    #[test]
    fn three_modes_are_told_apart() {
        let found = modes(&around(&[(9_000, 400), (253_000, 9300), (1_512_000, 300)]));
        assert_eq!(found.iter().map(|m| m.count).collect::<Vec<_>>(), [400, 9300, 300]);
        for (mode, middle) in found.iter().zip([9_000, 253_000, 1_512_000]) {
            assert!(mode.median.abs_diff(middle) < middle / 50 && mode.from >= middle * 4 / 5, "{mode:?}");
        }
    }

    #[test]
    fn one_mode_with_a_tail_is_one() {
        assert_eq!(modes(&around(&[(100_000, 500), (5_000_000, 2)])).len(), 1);
        assert_eq!(modes(&around(&[(100_000, 500), (140_000, 500)])).len(), 1);
        assert_eq!(modes(&around(&[(10, 100), (100, 100), (1000, 100), (10_000, 100)])).len(), MOST);
        assert_eq!((modes(&[]), modes(&[(7, 1)]).len()), (Vec::new(), 1));
    }
}
