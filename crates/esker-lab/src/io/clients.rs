//! How many clients there are, and what they do.

use std::str::FromStr;

/// All the same, one job after the other; or readers and writers at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Clients {
    Alike(usize),
    Mixed { readers: usize, writers: usize },
}

impl Clients {
    /// At once, at the most.
    pub(super) fn all(self) -> usize {
        match self {
            Clients::Alike(n) => n,
            // One of both is needed; more than there may be is as wrong as none.
            Clients::Mixed { readers, writers } if readers > 0 && writers > 0 => readers.saturating_add(writers),
            Clients::Mixed { .. } => 0,
        }
    }

    /// Readers and writers, where both are at work.
    pub(super) fn mixed(self) -> Option<(usize, usize)> {
        match self {
            Clients::Alike(_) => None,
            Clients::Mixed { readers, writers } => Some((readers, writers)),
        }
    }

    pub(super) fn readers(self) -> usize {
        self.mixed().map_or(self.all(), |m| m.0)
    }

    pub(super) fn writers(self) -> usize {
        self.mixed().map_or(self.all(), |m| m.1)
    }
}

impl FromStr for Clients {
    type Err = String;

    fn from_str(text: &str) -> Result<Clients, String> {
        let number =
            |text: &str| text.parse().map_err(|_| "a number of clients, or readers:writers as in 3:1".to_owned());
        match text.split_once(':') {
            None => Ok(Clients::Alike(number(text)?)),
            Some((readers, writers)) => Ok(Clients::Mixed { readers: number(readers)?, writers: number(writers)? }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_come_before_the_colon_and_writers_after_it() {
        let of = |text: &str| text.parse::<Clients>().map(|c| (c.readers(), c.writers(), c.all(), c.mixed()));
        assert_eq!(of("3:1"), Ok((3, 1, 4, Some((3, 1)))));
        assert_eq!(of("5"), Ok((5, 5, 5, None)));
        // Too few are as wrong as too many.
        assert_eq!([of("0:1"), of("1:0")].map(|c| c.map(|c| c.2)), [Ok(0), Ok(0)]);
        assert!(of("2:").is_err() && of(":2").is_err() && of("1:2:3").is_err() && of("x").is_err());
    }
}
