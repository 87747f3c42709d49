//! Reports whose truth is known: made-up noise, a thousand of each kind.

use super::*;
use crate::experiment::turns;
use fastrand::Rng;

pub(crate) const SETS: u64 = 1000;
/// Standard deviation of the noise.
const NOISE: f64 = 0.03;

/// How a machine is noisy, along the time in which rows take turns.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Noise {
    White,
    /// A slope of up to 30 percent over the whole, a slow wave of up to 10, and white noise.
    Drifting,
    /// AR(1), 0.7, from measurement to measurement.
    Correlated,
    /// Quiet, but for bursts of up to nine measurements that take 5 to 20 percent longer.
    Bursty,
    /// AR(1), 0.7, from round to round of each row by itself: no order of turns helps.
    OfRows,
    /// White, and one row, the second, with AR(1), 0.7, from round to round of its own.
    OfOneRow,
}

fn gauss(random: &mut Rng) -> f64 {
    (-2.0 * (1.0 - random.f64()).ln()).sqrt() * (std::f64::consts::TAU * random.f64()).cos()
}

fn correlated(random: &mut Rng, n: usize) -> Vec<f64> {
    let mut x = NOISE * gauss(random);
    let mut next = || {
        x = 0.7 * x + NOISE * (1.0f64 - 0.49).sqrt() * gauss(random);
        x
    };
    (0..n).map(|_| next()).collect()
}

fn along_time(noise: Noise, random: &mut Rng, n: usize) -> Vec<f64> {
    match noise {
        Noise::White | Noise::OfOneRow => (0..n).map(|_| NOISE * gauss(random)).collect(),
        Noise::Correlated => correlated(random, n),
        Noise::OfRows => vec![0.0; n],
        Noise::Drifting => {
            let (slope, wave, phase) = (0.6 * random.f64() - 0.3, 0.1 * random.f64(), 6.0 * random.f64());
            let waves = 3.0 * random.f64();
            let drift = |share: f64| slope * share + wave * (phase + std::f64::consts::TAU * waves * share).sin();
            (0..n).map(|i| drift(i as f64 / n as f64) + NOISE * gauss(random)).collect()
        }
        Noise::Bursty => {
            let (mut left, mut height) = (0, 0.0);
            let mut next = || {
                if left == 0 && random.f64() < 0.02 {
                    (left, height) = (random.usize(1..10), 0.05 + 0.15 * random.f64());
                }
                let burst = if left > 0 { height } else { 0.0 };
                left = left.saturating_sub(1);
                burst + 0.4 * NOISE * gauss(random)
            };
            (0..n).map(|_| next()).collect()
        }
    }
}

/// Samples of rows that take turns as an experiment lets them; the second row takes `times` as long as the others.
pub(crate) fn samples(noise: Noise, rows: usize, rounds: usize, seed: u64, times: f64) -> Vec<Vec<f64>> {
    let mut random = Rng::with_seed(seed);
    let time = along_time(noise, &mut random, rows * rounds);
    let mut samples = vec![Vec::new(); rows];
    for (row, noise) in turns(seed, rows, rounds).into_iter().flatten().zip(time) {
        samples[row].push(if row == 1 { times } else { 1.0 } * noise.exp());
    }
    let own = match noise {
        Noise::OfRows => 0..rows,
        Noise::OfOneRow => 1..2,
        _ => 0..0,
    };
    if !own.is_empty() {
        for row in &mut samples[own] {
            row.iter_mut().zip(correlated(&mut random, rounds)).for_each(|(v, noise)| *v *= noise.exp());
        }
    }
    samples
}

fn told(samples: &[Vec<f64>]) -> Vec<Decision> {
    let against = |row: &Vec<f64>| Contrast::of_rounds(row, &samples[0]);
    family(&samples[1..].iter().map(against).collect::<Vec<_>>()).into_iter().flatten().map(|c| c.decision).collect()
}

/// Percent of the sets in which it is so.
pub(crate) fn percent(is: impl Fn(u64) -> bool) -> f64 {
    (0..SETS).filter(|seed| is(*seed)).count() as f64 * 100.0 / SETS as f64
}

pub(crate) const KINDS: [Noise; 4] = [Noise::White, Noise::Drifting, Noise::Correlated, Noise::Bursty];

#[test]
fn equal_rows_are_called_different_in_few_reports_and_a_true_difference_is_found() {
    for noise in KINDS {
        for rows in [3, 12] {
            let of = |seed, times| told(&samples(noise, rows, LEAST_ROUNDS, seed, times));
            let wrong = percent(|seed| of(seed, 1.0).contains(&Decision::Different));
            let found = percent(|seed| of(seed, 1.10)[0] == Decision::Different);
            println!("{noise:?}, {rows} rows: {wrong:.1} percent called different, {found:.1} percent found");
            assert!(wrong <= 5.0, "{noise:?}, {rows} rows: {wrong} percent of equal reports called different");
            assert!(found >= 90.0, "{noise:?}, {rows} rows: a difference was found in {found} percent");
        }
    }
}

#[test]
fn rows_with_noise_of_their_own_need_more_rounds() {
    let of = |rounds, seed, times| told(&samples(Noise::OfRows, 12, rounds, seed, times));
    for rounds in [32, 64] {
        let wrong = percent(|seed| of(rounds, seed, 1.0).contains(&Decision::Different));
        println!("{rounds} rounds: {wrong:.1} percent called different");
        assert!(wrong <= 5.0, "{wrong} percent of equal reports called different in {rounds} rounds");
    }
    let found = percent(|seed| of(64, seed, 1.10)[0] == Decision::Different);
    println!("{found:.1} percent found in 64 rounds");
    assert!(found >= 90.0, "found in {found} percent");
}

#[test]
fn one_row_with_noise_of_its_own() {
    let of = |rows, rounds, seed, times| told(&samples(Noise::OfOneRow, rows, rounds, seed, times));
    // Of 8 pairs nobody can tell that one row's resemble each other: what that costs must not be the equal rows'.
    for (rows, rounds, most) in
        [(3, 16, 75.0), (12, 16, 75.0), (3, 32, 90.0), (12, 32, 90.0), (3, 64, 90.0), (12, 64, 90.0)]
    {
        let wrong = percent(|seed| of(rows, rounds, seed, 1.0).contains(&Decision::Different));
        let found = percent(|seed| of(rows, rounds, seed, 1.10)[0] == Decision::Different);
        println!("{rows} rows, {rounds} rounds: {wrong:.1} percent called different, {found:.1} percent found");
        assert!(wrong <= 5.0, "{rows} rows, {rounds} rounds: {wrong} percent of equal reports called different");
        assert!(found >= most, "{rows} rows, {rounds} rounds: found in {found} percent");
    }
}

#[test]
fn reports_of_two_quiet_machines_are_told_apart_alike() {
    for noise in [Noise::White, Noise::Bursty] {
        let of = |seed: u64, times: f64| {
            let (a, b) = (samples(noise, 12, 16, 2 * seed, times), samples(noise, 12, 16, 2 * seed + 1, 1.0));
            let contrasts: Vec<_> = a.iter().zip(&b).map(|(a, b)| Contrast::of_reports(a, b)).collect();
            family(&contrasts).into_iter().flatten().map(|c| c.decision).collect::<Vec<_>>()
        };
        let wrong = percent(|seed| of(seed, 1.0).contains(&Decision::Different));
        let found = percent(|seed| of(seed, 1.10)[1] == Decision::Different);
        println!("{noise:?}: {wrong:.1} percent called different, {found:.1} percent found");
        assert!(wrong <= 5.0 && found >= 90.0, "{noise:?}: {wrong} percent called different, {found} percent found");
    }
}

#[test]
fn too_few_rounds_decide_nothing() {
    for rounds in 1..LEAST_ROUNDS {
        for times in [1.0, 1.1, 50.0] {
            let told = told(&samples(Noise::White, 5, rounds, rounds as u64, times));
            assert!(told.iter().all(|t| *t == Decision::Undecided), "{rounds} rounds: {told:?}");
        }
    }
}

#[test]
fn every_round_has_its_way_back_and_an_even_drift_falls_out() {
    let turns = turns(1, 9, 16);
    for pair in turns.chunks(2) {
        let back: Vec<usize> = pair[1].iter().rev().copied().collect();
        assert_eq!(pair[0], back);
    }
    assert!(turns.chunks(2).zip(turns.chunks(2).skip(1)).all(|(a, b)| a[0] != b[0]), "{turns:?}");
    let mut samples = vec![Vec::new(); 9];
    for (i, row) in turns.into_iter().flatten().enumerate() {
        samples[row].push((0.01 * i as f64).exp());
    }
    for row in &samples[1..] {
        let ratio = family(&[Contrast::of_rounds(row, &samples[0])])[0].map(|c| c.ratio);
        assert!(ratio.is_some_and(|r| (r - 1.0).abs() < 1e-9), "{ratio:?}");
    }
}

#[test]
fn what_is_called_the_same_is_nearly_so() {
    let steady = |of: f64| [of; 16];
    let judge = |a: &[f64], b: &[f64]| family(&[Contrast::of_rounds(a, b)])[0];
    assert_eq!(judge(&steady(2.0), &steady(2.0)).map(|c| c.decision), Some(Decision::Same));
    let twice = judge(&steady(2.0), &steady(1.0));
    assert!(twice.is_some_and(|c| c.decision == Decision::Different && (c.ratio - 2.0).abs() < 1e-6), "{twice:?}");
    // So noisy that half as much again might be hidden.
    let noisy: Vec<f64> = (0..16).map(|n| if n % 4 < 2 { 1.0 } else { 2.0 }).collect();
    assert_eq!(judge(&noisy, &steady(1.4)).map(|c| c.decision), Some(Decision::Undecided));
    assert_eq!(judge(&[0.0; 16], &steady(1.0)), None);
    assert_eq!(judge(&[], &[]), None);
}
