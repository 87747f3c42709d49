//! Noise of things done one after the other, of which each may be short.

use super::{Noise, Reading};
use std::time::Duration;

/// A shorter time has too few of the kernel's ticks to tell of.
const STRETCH: Duration = Duration::from_millis(250);

/// The noise while things are done one after the other. What is short shares a stretch with what came before and after: all
/// of a stretch have its noise.
pub struct Stretches {
    since: Reading,
    done: Vec<usize>,
    /// The worst of each thing so far.
    noise: Vec<Noise>,
}

impl Stretches {
    /// Begins one, for so many things.
    #[must_use]
    pub fn begin(device: &str, things: usize) -> Stretches {
        Stretches { since: Reading::now(device), done: Vec::new(), noise: vec![Noise::default(); things] }
    }

    /// Something was done.
    pub fn did(&mut self, thing: usize) {
        self.done.push(thing);
        if self.since.at.elapsed() >= STRETCH {
            self.close();
        }
    }

    fn close(&mut self) {
        let now = Reading::now(&self.since.device);
        let noise = self.since.until(&now);
        for thing in self.done.drain(..) {
            self.noise[thing] = self.noise[thing].worse(noise);
        }
        self.since = now;
    }

    /// The worst of each thing. The last stretch is made as long as it has to be, unless it is `over`.
    #[must_use]
    pub fn end(mut self, over: bool) -> Vec<Noise> {
        let left = STRETCH.saturating_sub(self.since.at.elapsed());
        if !self.done.is_empty() {
            if !over {
                std::thread::sleep(left);
            }
            if !over || left.is_zero() {
                self.close();
            }
        }
        self.noise
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn what_is_short_shares_a_stretch() {
        let mut stretches = Stretches::begin("", 4);
        // However long this takes, nothing has passed yet.
        stretches.since.at += HOUR;
        stretches.did(0);
        stretches.did(1);
        assert_eq!((stretches.done.as_slice(), stretches.noise[0]), ([0, 1].as_slice(), Noise::default()));
        // As if a second had passed, with all ticks that there ever were.
        stretches.since.at -= HOUR + Duration::from_secs(1);
        (stretches.since.ticks, stretches.since.busy) = (0, 0);
        let told = stretches.since.clone();
        stretches.did(2);
        assert!(stretches.done.is_empty() && stretches.since.at > told.at);
        // The next one begins where this one ended.
        stretches.did(3);
        let noise = stretches.end(false);
        assert!(noise[0] == noise[1] && noise[1] == noise[2] && noise[0] != Noise::default(), "{noise:?}");
        // Who is told to end is not kept waiting, and nothing is told of what was too short.
        let mut over = Stretches::begin("", 1);
        over.since.at += HOUR;
        (over.since.ticks, over.since.busy) = (0, 0);
        over.did(0);
        assert_eq!(over.end(true), [Noise::default()]);
        // The last one is long enough.
        let mut last = Stretches::begin("", 1);
        let began = last.since.at;
        // What was before and worse stays.
        last.noise[0].steal = 1.0;
        last.did(0);
        let noise = last.end(false);
        assert!(began.elapsed() >= STRETCH && noise[0].steal == 1.0, "{noise:?}");
    }
}
