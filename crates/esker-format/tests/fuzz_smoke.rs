//! A short fuzz run for every build: mutations of valid inputs, the same ones each time. `ESKER_FUZZ_ROUNDS` makes it
//! longer, `ESKER_FUZZ_SEED` gives other mutations. The targets in fuzz/ run the same checks under libFuzzer.
#![allow(clippy::unwrap_used)]

mod common;

use common::decoders::DECODERS;
use common::samples::{mutate, valid};
use common::Rng;

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default)
}

#[test]
fn decoders_survive_mutations() {
    let (rounds, seed) = (setting("ESKER_FUZZ_ROUNDS", 3000), setting("ESKER_FUZZ_SEED", 1));
    for (name, decoder) in DECODERS {
        for round in 0..rounds {
            let one = seed.wrapping_mul(1_000_003).wrapping_add(round);
            let mut rng = Rng(one);
            let mut bytes = valid(name, &mut rng);
            decoder(&bytes);
            mutate(&mut bytes, &mut rng);
            let survived = std::panic::catch_unwind(|| decoder(&bytes));
            assert!(survived.is_ok(), "{name}: ESKER_FUZZ_SEED={seed}, round {round}, bytes {bytes:?}");
        }
    }
}

#[test]
fn decoders_survive_noise() {
    let mut rng = Rng(setting("ESKER_FUZZ_SEED", 1));
    for (_, decoder) in DECODERS {
        for len in 0..300 {
            let bytes: Vec<u8> = (0..len).map(|_| rng.next() as u8).collect();
            decoder(&bytes);
        }
    }
}
