//! Lines of a file that may be long and broken: read as a stream, one at a time.

use std::io::{self, BufRead, Read};

/// A line is not longer than that, or it is not read.
const LONGEST: u64 = 32 << 20;

/// What a line is.
pub(crate) enum RawLine<'a> {
    /// Text, and whether every byte of it was.
    Text(std::borrow::Cow<'a, str>, bool),
    /// Longer than any line of a trace.
    Long,
    /// The file ends within it.
    Cut,
}

/// Gives each line and its number, from 1.
///
/// # Errors
/// When it cannot be read.
pub(crate) fn each(input: &mut dyn BufRead, mut take: impl FnMut(u64, RawLine<'_>)) -> io::Result<()> {
    let (mut line, mut number) = (Vec::new(), 0);
    loop {
        line.clear();
        let length = Read::take(&mut *input, LONGEST).read_until(b'\n', &mut line)?;
        if length == 0 {
            return Ok(());
        }
        number += 1;
        if line.last() == Some(&b'\n') {
            line.pop();
            let whole = std::str::from_utf8(&line).is_ok();
            take(number, RawLine::Text(String::from_utf8_lossy(&line), whole));
            if line.capacity() > 1 << 20 {
                line = Vec::new();
            }
        } else if length as u64 == LONGEST {
            take(number, RawLine::Long);
            pass_line(input)?;
        } else {
            take(number, RawLine::Cut);
        }
    }
}

/// Passes over the rest of a line.
fn pass_line(input: &mut dyn BufRead) -> io::Result<()> {
    loop {
        let buffer = input.fill_buf()?;
        let (length, end) = (buffer.len(), buffer.iter().position(|b| *b == b'\n'));
        input.consume(end.map_or(length, |i| i + 1));
        if length == 0 || end.is_some() {
            return Ok(());
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn told(bytes: &[u8]) -> Vec<String> {
        let mut told = Vec::new();
        each(&mut io::BufReader::with_capacity(64, bytes), |n, raw| {
            told.push(match raw {
                RawLine::Text(text, whole) => format!("{n} {text} {whole}"),
                RawLine::Long => format!("{n} long"),
                RawLine::Cut => format!("{n} cut"),
            });
        })
        .unwrap();
        told
    }

    #[test]
    fn a_file_that_ends_within_a_line_says_so() {
        assert_eq!(told(b"a\n\nb"), ["1 a true", "2  true", "3 cut"]);
        assert_eq!(told(b"\xffa\n"), ["1 \u{fffd}a false"]);
        assert!(told(b"").is_empty());
    }

    #[test]
    fn what_is_no_line_is_passed_over() {
        let mut bytes = vec![b'x'; LONGEST as usize + 100];
        bytes.extend(b"\nend\n");
        assert_eq!(told(&bytes), ["1 long", "2 end true"]);
    }
}
