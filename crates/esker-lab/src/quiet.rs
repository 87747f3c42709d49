//! Waiting until the machine is quiet, for who asks for it with `--wait-for-quiet`: nothing is measured before others are
//! done, or a time is over.
//!
//! The lab does nothing meanwhile, so all noise is others', the kernel's pressure figures too.

use crate::noise::{Noise, Reading};
use indicatif::{ProgressBar, ProgressStyle};
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

/// Noise is looked at over so long a time.
const LOOK: Duration = Duration::from_secs(1);
/// So many looks after each other must be quiet: what comes and goes by the second is not.
const QUIET_LOOKS: u32 = 2;
/// Whether to stop is asked so often.
const STEP: Duration = Duration::from_millis(50);

/// How it ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct QuietWait {
    /// Seconds that it took.
    pub seconds: f64,
    /// Seconds that it was to take at most.
    pub limit_s: f64,
    /// Was it quiet in the end?
    pub quiet: bool,
    /// What was waited for last, in words; "quiet" where that is so.
    pub last: String,
}

impl QuietWait {
    /// For a report's notes.
    #[must_use]
    pub fn words(&self) -> String {
        let seconds = self.seconds;
        match self.quiet {
            true => format!("Waited {seconds:.0} s until the machine was quiet."),
            false => format!(
                "Waited {seconds:.0} s for the machine to be quiet, in vain: {}. It was measured all the same.",
                self.last
            ),
        }
    }
}

/// Waits, at most so long. `look` gives the noise of a while that is no longer than it is told, and how long that was; none
/// where it is to end.
pub(crate) fn wait(
    limit: Duration,
    mut look: impl FnMut(Duration) -> Option<(Noise, Duration)>,
    mut tell: impl FnMut(&str),
) -> QuietWait {
    let (mut took, mut quiet_looks, mut last) = (Duration::ZERO, 0, "quiet".to_owned());
    while quiet_looks < QUIET_LOOKS && took < limit {
        let Some((noise, time)) = look(LOOK.min(limit - took)) else { break };
        took += time;
        quiet_looks = if noise.is_quiet() { quiet_looks + 1 } else { 0 };
        last = noise.words();
        let (took, limit) = (took.as_secs_f64(), limit.as_secs_f64());
        tell(&format!("waiting for quiet, {took:.0} of at most {limit:.0} s: {last}"));
    }
    let quiet = quiet_looks >= QUIET_LOOKS;
    QuietWait { seconds: took.as_secs_f64(), limit_s: limit.as_secs_f64(), quiet, last }
}

/// Waits for this machine and the device that is to be measured; `is_over`: it is to end. On a terminal it shows for what.
pub(crate) fn wait_here(limit: Duration, device: &str, is_over: impl Fn() -> bool) -> QuietWait {
    let shows = std::io::IsTerminal::is_terminal(&std::io::stderr());
    let bar = if shows { ProgressBar::new_spinner() } else { ProgressBar::hidden() };
    if let Ok(style) = ProgressStyle::with_template("{spinner} {wide_msg}") {
        bar.set_style(style);
    }
    bar.set_message("waiting for quiet");
    let look = |time: Duration| {
        let (began, reading) = (Instant::now(), Reading::now(device));
        while began.elapsed() < time {
            std::thread::sleep(STEP.min(time));
            bar.tick();
            if is_over() {
                return None;
            }
        }
        Some((reading.noise(), began.elapsed()))
    };
    let waited = wait(limit, look, |words| bar.set_message(words.to_owned()));
    bar.finish_and_clear();
    waited
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOUD: Noise = Noise { steal: 0.0, others_cpu: 0.4, others_io: None, cpu_pressure: 0.0, io_pressure: 0.0 };

    /// Waits while the noise is as said, a look each, and then none; how often it was told of, too.
    fn of(limit: u64, noise: &[Noise]) -> (QuietWait, Vec<String>) {
        let (mut told, mut left) = (Vec::new(), noise.iter());
        let look = |time: Duration| left.next().map(|noise| (*noise, time));
        let waited = wait(Duration::from_secs(limit), look, |words| told.push(words.to_owned()));
        (waited, told)
    }

    #[test]
    fn it_ends_when_it_is_quiet_for_a_while() {
        let quiet = Noise::default();
        let (waited, told) = of(60, &[LOUD, quiet, LOUD, quiet, quiet, LOUD]);
        assert_eq!(waited, QuietWait { seconds: 5.0, limit_s: 60.0, quiet: true, last: "quiet".into() });
        assert_eq!(told.len(), 5);
        assert_eq!(told[2], "waiting for quiet, 3 of at most 60 s: others ran 40%");
        assert_eq!(waited.words(), "Waited 5 s until the machine was quiet.");
        // What is only waiting is another's, too: the lab does nothing.
        let waits = Noise { cpu_pressure: 0.3, ..quiet };
        assert!(!of(3, &[waits; 9]).0.quiet);
    }

    #[test]
    fn at_the_limit_or_when_told_it_goes_on_and_says_so() {
        let (waited, told) = of(3, &[LOUD; 60]);
        assert_eq!((waited.seconds, waited.quiet, told.len()), (3.0, false, 3));
        let words = "Waited 3 s for the machine to be quiet, in vain: others ran 40%. It was measured all the same.";
        assert_eq!(waited.words(), words);
        let (stopped, _) = of(60, &[LOUD]);
        assert_eq!((stopped.seconds, stopped.quiet), (1.0, false));
        let waited = wait_here(Duration::from_secs(3600), "", || true);
        assert_eq!((waited.quiet, waited.seconds), (false, 0.0));
    }
}
