//! Which method makes the log durable: the one that is asked for, or the one that a trial finds to be fastest here.
//!
//! The trial writes sectors of a file that is about to become a segment and has no meaning yet but its size, in rounds in
//! which each method has its turn: what else the machine does hits all alike. Invariants: it writes within that file's size,
//! bytes that are no frame; nothing that it meets is an error of the opening; a method is left for another only if that is
//! a tenth faster at least, and their intervals lie apart.

use crate::options::WalOptions;
use crate::SECTOR_BYTES;
use esker_io::{AccessHint, Disk, File, OpenMode, SyncMethod};
use esker_memory::{Account, Region};
use std::path::Path;
use std::time::Duration;

const ROUNDS: usize = 50;
/// However slow the device is, an opening takes no longer for this.
const LONGEST: Duration = Duration::from_millis(500);
/// In whatever generation and position, it begins no frame.
const FILL: u8 = 0x5A;

/// How a log came to its method.
#[derive(Debug, Clone, Default)]
pub struct Syncing {
    /// What makes its groups durable.
    pub method: SyncMethod,
    /// The figures of a trial, or why the method asked for is not taken, for people; none if nothing was tried.
    pub found: Option<String>,
    /// The method that was asked for by name is refused by the system.
    pub refused: bool,
}

/// What a trial found of a method.
struct Tried {
    method: SyncMethod,
    /// Nanoseconds of each write.
    samples: Vec<u64>,
    refused: Option<String>,
}

/// What is to be tried, until it was.
pub(crate) struct Trial<'a> {
    options: &'a WalOptions,
    pub(crate) done: Option<Syncing>,
}

impl<'a> Trial<'a> {
    pub(crate) fn new(options: &'a WalOptions) -> Self {
        // What every system has needs no trial.
        let done = (options.sync_method == Some(SyncMethod::Fdatasync)).then(Syncing::default);
        Trial { options, done }
    }

    /// Tries on the spare at `path`, once.
    pub(crate) fn on(&mut self, disk: &dyn Disk, path: &Path) {
        if self.done.is_some() {
            return;
        }
        let place = match Place::open(disk, path) {
            Ok(place) => place,
            Err(why) => {
                let found = Some(format!("no method could be tried ({why}): fdatasync is taken"));
                self.done = Some(Syncing { found, refused: self.options.sync_method.is_some(), ..Syncing::default() });
                return;
            }
        };
        self.done = Some(match self.options.sync_method {
            Some(method) => place.named(method),
            None => {
                let tried = place.all(&*self.options.clock);
                let method = fastest(&tried);
                Syncing { method, found: Some(told(&tried, method)), refused: false }
            }
        });
    }
}

/// Where it is tried.
struct Place {
    file: std::sync::Arc<dyn File>,
    sectors: u64,
    content: Region,
}

impl Place {
    fn open(disk: &dyn Disk, path: &Path) -> Result<Place, String> {
        let open = || {
            let file = disk.open(path, OpenMode::Write, AccessHint::Log)?;
            let sectors = file.size_bytes()? / SECTOR_BYTES;
            let mut content = Region::zeroed(Account::Wal, SECTOR_BYTES as usize)?;
            content[..SECTOR_BYTES as usize].fill(FILL);
            Ok(Place { file, sectors: sectors.max(1), content })
        };
        open().map_err(|error: esker_io::IoError| error.to_string())
    }

    fn write(&self, number: u64, method: SyncMethod) -> Result<(), String> {
        let sector = &self.content[..SECTOR_BYTES as usize];
        let written = self.file.write_durably(sector, number % self.sectors * SECTOR_BYTES, method);
        written.map_err(|error| error.to_string())
    }

    fn named(&self, method: SyncMethod) -> Syncing {
        match self.write(0, method) {
            Ok(()) => Syncing { method, ..Syncing::default() },
            Err(why) => {
                let found = Some(format!("{method} is refused ({why}): fdatasync is taken"));
                Syncing { found, refused: true, ..Syncing::default() }
            }
        }
    }

    fn all(&self, now: &dyn Fn() -> Duration) -> Vec<Tried> {
        let (mut number, mut slowest, began) = (0, Duration::ZERO, now());
        // The first write of each is no sample: what is made for it (a ring, say) is made once.
        let mut tried = SyncMethod::ALL.map(|method| {
            number += 1;
            Tried { method, samples: Vec::with_capacity(ROUNDS), refused: self.write(number, method).err() }
        });
        'rounds: for round in 0..ROUNDS {
            for turn in 0..tried.len() {
                let before = now();
                if before.saturating_sub(began) + slowest > LONGEST {
                    break 'rounds;
                }
                let one = &mut tried[(round + turn) % SyncMethod::ALL.len()];
                if one.refused.is_some() {
                    continue;
                }
                number += 1;
                one.refused = self.write(number, one.method).err();
                let took = now().saturating_sub(before);
                slowest = slowest.max(took);
                one.samples.push(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
            }
        }
        tried.into()
    }
}

/// Median, and the interval in which the true one lies 95 times in 100, whatever the distribution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Middle {
    low: u64,
    median: u64,
    high: u64,
}

/// None with too few samples for an interval.
fn middle(samples: &[u64]) -> Option<Middle> {
    let mut sorted = samples.to_vec();
    sorted.sort_unstable();
    // Ranks, from 1: so many samples lie below the median, give or take 1.96 times sqrt(n) / 2.
    let (half, spread) = (sorted.len() as f64 / 2.0, 0.98 * (sorted.len() as f64).sqrt());
    let (low, high) = ((half - spread).floor(), (1.0 + half + spread).ceil());
    let at = |rank: f64| (rank >= 1.0).then(|| sorted.get(rank as usize - 1).copied()).flatten();
    Some(Middle { low: at(low)?, median: *sorted.get(sorted.len() / 2)?, high: at(high)? })
}

/// The method to take: fdatasync, unless another's median is a tenth less at least, and its interval below fdatasync's.
fn fastest(tried: &[Tried]) -> SyncMethod {
    let middle_of = |t: &Tried| t.refused.is_none().then(|| middle(&t.samples)).flatten();
    let usual = tried.iter().find(|t| t.method == SyncMethod::Fdatasync).and_then(middle_of);
    let Some(usual) = usual else { return SyncMethod::Fdatasync };
    let others = tried.iter().filter(|t| t.method != SyncMethod::Fdatasync);
    let faster = others
        .filter_map(|t| Some((middle_of(t)?, t.method)))
        .filter(|(middle, _)| middle.median <= usual.median - usual.median.div_ceil(10) && middle.high < usual.low);
    faster.min_by_key(|(middle, _)| middle.median).map_or(SyncMethod::Fdatasync, |(_, method)| method)
}

fn told(tried: &[Tried], chosen: SyncMethod) -> String {
    let us = |ns: u64| format!("{}.{}", ns / 1000, ns / 100 % 10);
    let one = |t: &Tried| match (&t.refused, middle(&t.samples)) {
        (Some(why), _) => format!("{} is refused ({why})", t.method),
        (None, Some(Middle { low, median, high })) => {
            format!("{} {} us ({} to {}, {} times)", t.method, us(median), us(low), us(high), t.samples.len())
        }
        (None, None) => format!("{} {} times, too few to tell", t.method, t.samples.len()),
    };
    let all: Vec<_> = tried.iter().map(one).collect();
    format!("of {}, {chosen} is taken", all.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: [u64; 0] = [];

    /// So many samples around `center`: evenly spread, up to `spread` to either side.
    fn around(center: u64, spread: u64) -> Vec<u64> {
        (0..50).map(|i| center - spread + 2 * spread * i / 49).collect()
    }

    fn tried(method: SyncMethod, samples: &[u64]) -> Tried {
        Tried { method, samples: samples.to_vec(), refused: None }
    }

    /// Which is taken, fdatasync's samples being around 1000, give or take `spread`.
    fn against(spread: u64, dsync: &[u64], uring: &[u64]) -> SyncMethod {
        let all = [
            (SyncMethod::Fdatasync, &around(1000, spread)[..]),
            (SyncMethod::Dsync, dsync),
            (SyncMethod::Uring, uring),
        ];
        fastest(&all.map(|(method, samples)| tried(method, samples)))
    }

    #[test]
    fn intervals_are_of_the_median() {
        let samples: Vec<u64> = (1..=50).rev().collect();
        assert_eq!(middle(&samples), Some(Middle { low: 18, median: 26, high: 33 }));
        // One wild sample moves nothing.
        let wild: Vec<u64> = (1..50).chain([1_000_000]).collect();
        assert_eq!(middle(&wild), middle(&samples));
        assert_eq!(middle(&NONE), None);
        assert_eq!(middle(&[1; 7]), None);
        assert_eq!(middle(&[1; 8]), Some(Middle { low: 1, median: 1, high: 1 }));
    }

    #[test]
    fn another_method_is_taken_if_it_is_a_tenth_faster_beyond_doubt() {
        let same = around(1000, 20);
        assert_eq!(against(20, &same, &same), SyncMethod::Fdatasync, "equal");
        assert_eq!(against(20, &around(950, 20), &same), SyncMethod::Fdatasync, "5 percent");
        assert_eq!(against(400, &around(850, 400), &same), SyncMethod::Fdatasync, "15 percent, intervals meet");
        assert_eq!(against(20, &around(850, 20), &same), SyncMethod::Dsync, "15 percent, intervals apart");
        assert_eq!(against(20, &same, &around(850, 20)), SyncMethod::Uring);
        assert_eq!(against(20, &around(850, 20), &around(800, 20)), SyncMethod::Uring, "the fastest of two");
        assert_eq!(against(0, &[900; 50], &same), SyncMethod::Dsync, "a tenth");
        assert_eq!(against(0, &[901; 50], &same), SyncMethod::Fdatasync, "almost a tenth");
        assert_eq!(against(20, &around(1150, 20), &same), SyncMethod::Fdatasync, "slower");
    }

    #[test]
    fn what_was_refused_or_hardly_tried_is_not_taken() {
        let refused = |method| Tried { refused: Some("no".into()), ..tried(method, &[1; 50]) };
        let usual = || tried(SyncMethod::Fdatasync, &around(1000, 20));
        assert_eq!(fastest(&[usual(), refused(SyncMethod::Dsync), refused(SyncMethod::Uring)]), SyncMethod::Fdatasync);
        assert_eq!(fastest(&[usual(), tried(SyncMethod::Dsync, &[1; 7])]), SyncMethod::Fdatasync);
        assert_eq!(
            fastest(&[refused(SyncMethod::Fdatasync), tried(SyncMethod::Dsync, &[1; 50])]),
            SyncMethod::Fdatasync
        );
        assert_eq!(fastest(&[]), SyncMethod::Fdatasync);
        // A clock that stands still tells nothing.
        let still = SyncMethod::ALL.map(|method| tried(method, &[0; 50]));
        assert_eq!(fastest(&still), SyncMethod::Fdatasync);
        let text =
            told(&[usual(), refused(SyncMethod::Dsync), tried(SyncMethod::Uring, &[1; 7])], SyncMethod::Fdatasync);
        let expected =
            "of fdatasync 1.0 us (0.9 to 1.0, 50 times), dsync is refused (no), uring 7 times, too few to tell, \
                        fdatasync is taken";
        assert_eq!(text, expected);
    }
}
