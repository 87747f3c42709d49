//! Keys and values of a line: how each kind of value is written and read.

use super::{ParseError, Str};
use std::borrow::Cow;
use std::fmt::{self, Write};

/// May it be in a word without quotes?
fn is_bare(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b"_./#@+-".contains(&b)
}

/// The line's keyword and what follows it; `None` for an empty line.
pub(super) fn keyword(line: &str) -> Result<Option<(&str, Pairs<'_>)>, ParseError> {
    let mut pairs = Pairs { line, at: 0 };
    pairs.pass(is_blank);
    if pairs.at == line.len() {
        return Ok(None);
    }
    let start = pairs.at;
    let keyword = pairs.pass(|b| b.is_ascii_uppercase() || b == b'_');
    if keyword.is_empty() || pairs.peek().is_some_and(|b| !is_blank(b)) {
        return Err(ParseError { at: start + 1, what: "a line begins with a keyword in capital letters".into() });
    }
    Ok(Some((keyword, pairs)))
}

fn is_blank(b: u8) -> bool {
    b == b' ' || b == b'\r'
}

/// The line's keys and values, each value with its place in bytes from 1.
pub(super) struct Pairs<'a> {
    line: &'a str,
    at: usize,
}

impl<'a> Pairs<'a> {
    fn peek(&self) -> Option<u8> {
        self.line.as_bytes().get(self.at).copied()
    }

    /// Takes bytes while they are of a kind, which must be of ASCII.
    fn pass(&mut self, of: impl Fn(u8) -> bool) -> &'a str {
        let rest = &self.line[self.at..];
        let length = rest.bytes().position(|b| !of(b)).unwrap_or(rest.len());
        self.at += length;
        &rest[..length]
    }

    /// Those that are whole; after one that is not, it goes on at the next space.
    pub(super) fn whole(mut self) -> impl Iterator<Item = (&'a str, Str<'a>)> {
        std::iter::from_fn(move || loop {
            match self.next()? {
                Ok((key, value, _)) => return Some((key, value)),
                Err(_) => drop(self.pass(|b| !is_blank(b))),
            }
        })
    }

    fn error(&self, what: &str) -> ParseError {
        ParseError { at: self.at + 1, what: what.into() }
    }

    fn pair(&mut self) -> Result<(&'a str, Str<'a>, usize), ParseError> {
        let key = self.pass(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
        if key.is_empty() || self.peek() != Some(b'=') {
            return Err(self.error("expected key=value"));
        }
        self.at += 1;
        let at = self.at + 1;
        let value = if self.peek() == Some(b'\'') { self.quoted()? } else { self.bare()? };
        match self.peek() {
            Some(b) if !is_blank(b) => Err(self.error("expected a space after the value")),
            _ => Ok((key, value, at)),
        }
    }

    fn bare(&mut self) -> Result<Str<'a>, ParseError> {
        match self.pass(is_bare) {
            "" => Err(self.error("expected a value")),
            word => Ok(word.into()),
        }
    }

    fn quoted(&mut self) -> Result<Str<'a>, ParseError> {
        self.at += 1;
        let mut unescaped = String::new();
        loop {
            let rest = &self.line[self.at..];
            let Some(length) = rest.bytes().position(|b| b == b'\'' || b == b'\\') else {
                return Err(ParseError { at: self.line.len() + 1, what: "the line ends within quotes".into() });
            };
            let piece = &rest[..length];
            self.at += length + 1;
            if rest.as_bytes()[length] == b'\'' {
                return Ok(if unescaped.is_empty() { piece.into() } else { (unescaped + piece).into() });
            }
            unescaped += piece;
            unescaped.push(match self.peek() {
                Some(b'\\') => '\\',
                Some(b'\'') => '\'',
                Some(b'n') => '\n',
                Some(b'r') => '\r',
                Some(b't') => '\t',
                _ => return Err(self.error("expected one of \\ ' n r t after a backslash")),
            });
            self.at += 1;
        }
    }
}

impl<'a> Iterator for Pairs<'a> {
    type Item = Result<(&'a str, Str<'a>, usize), ParseError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.pass(is_blank);
        (self.at < self.line.len()).then(|| self.pair())
    }
}

/// A key that must be there.
pub(super) mod must {
    use super::*;

    pub(in super::super) fn write<T: ?Sized>(
        f: &mut fmt::Formatter<'_>,
        key: &str,
        value: &T,
        kind: fn(&mut fmt::Formatter<'_>, &T) -> fmt::Result,
    ) -> fmt::Result {
        f.write_char(' ')?;
        f.write_str(key)?;
        f.write_char('=')?;
        kind(f, value)
    }

    pub(in super::super) fn take<T>(value: Option<T>, keyword: &str, key: &str) -> Result<T, ParseError> {
        value.ok_or_else(|| ParseError { at: 1, what: format!("{keyword} without {key}") })
    }

    pub(in super::super) fn own<T, O>(value: T, kind: fn(T) -> O) -> O {
        kind(value)
    }
}

/// A key that need not be there.
pub(super) mod may {
    use super::*;

    pub(in super::super) fn write<T>(
        f: &mut fmt::Formatter<'_>,
        key: &str,
        value: &Option<T>,
        kind: fn(&mut fmt::Formatter<'_>, &T) -> fmt::Result,
    ) -> fmt::Result {
        value.as_ref().map_or(Ok(()), |value| must::write(f, key, value, kind))
    }

    #[allow(clippy::unnecessary_wraps)] // as must::take
    pub(in super::super) fn take<T>(value: Option<T>, _: &str, _: &str) -> Result<Option<T>, ParseError> {
        Ok(value)
    }

    pub(in super::super) fn own<T, O>(value: Option<T>, kind: fn(T) -> O) -> Option<O> {
        value.map(kind)
    }
}

/// A key that is there as 1, or not at all.
pub(super) mod flag {
    use super::*;

    pub(in super::super) fn write(
        f: &mut fmt::Formatter<'_>,
        key: &str,
        value: &bool,
        kind: fn(&mut fmt::Formatter<'_>, &bool) -> fmt::Result,
    ) -> fmt::Result {
        if *value {
            must::write(f, key, value, kind)
        } else {
            Ok(())
        }
    }

    #[allow(clippy::unnecessary_wraps)] // as must::take
    pub(in super::super) fn take(value: Option<bool>, _: &str, _: &str) -> Result<bool, ParseError> {
        Ok(value.unwrap_or(false))
    }

    pub(in super::super) fn own(value: bool, kind: fn(bool) -> bool) -> bool {
        kind(value)
    }
}

/// Digits alone.
fn digits(text: &str) -> Option<u64> {
    if text.bytes().all(|b| b.is_ascii_digit()) {
        text.parse().ok()
    } else {
        None
    }
}

/// u64.
pub(super) mod number {
    use super::*;

    pub(in super::super) fn write(f: &mut fmt::Formatter<'_>, value: &u64) -> fmt::Result {
        fmt::Display::fmt(value, f)
    }

    pub(in super::super) fn read(value: Str<'_>) -> Result<u64, &'static str> {
        digits(&value).ok_or("not a number from 0 to 2^64-1")
    }

    pub(in super::super) fn own(value: u64) -> u64 {
        value
    }
}

/// One u64 or more, with `+` between them.
pub(super) mod numbers {
    use super::*;

    // As the other kinds.
    #[allow(clippy::ptr_arg)]
    pub(in super::super) fn write(f: &mut fmt::Formatter<'_>, value: &Vec<u64>) -> fmt::Result {
        for (at, number) in value.iter().enumerate() {
            let sign = if at > 0 { "+" } else { "" };
            write!(f, "{sign}{number}")?;
        }
        Ok(())
    }

    pub(in super::super) fn read(value: Str<'_>) -> Result<Vec<u64>, &'static str> {
        value.split('+').map(digits).collect::<Option<_>>().ok_or("not numbers with + between them")
    }

    pub(in super::super) fn own(value: Vec<u64>) -> Vec<u64> {
        value
    }
}

/// ns in the program, us with up to three decimals in the file.
pub(super) mod us {
    use super::*;

    pub(in super::super) fn write(f: &mut fmt::Formatter<'_>, ns: &u64) -> fmt::Result {
        fmt::Display::fmt(&(ns / 1000), f)?;
        match ns % 1000 {
            0 => Ok(()),
            part if part % 100 == 0 => write!(f, ".{}", part / 100),
            part if part % 10 == 0 => write!(f, ".{:02}", part / 10),
            part => write!(f, ".{part:03}"),
        }
    }

    pub(in super::super) fn read(value: Str<'_>) -> Result<u64, &'static str> {
        let (whole, part) = value.split_once('.').unwrap_or((&value, "0"));
        let ns = || {
            let scale = [0, 100, 10, 1].get(part.len()).filter(|s| **s > 0)?;
            digits(whole)?.checked_mul(1000)?.checked_add(digits(part)? * scale)
        };
        ns().ok_or("not a time in microseconds with up to three decimals")
    }

    pub(in super::super) fn own(ns: u64) -> u64 {
        ns
    }
}

/// 0 or 1.
pub(super) mod bit {
    use super::*;

    pub(in super::super) fn write(f: &mut fmt::Formatter<'_>, value: &bool) -> fmt::Result {
        f.write_char(if *value { '1' } else { '0' })
    }

    pub(in super::super) fn read(value: Str<'_>) -> Result<bool, &'static str> {
        match &*value {
            "0" => Ok(false),
            "1" => Ok(true),
            _ => Err("neither 0 nor 1"),
        }
    }

    pub(in super::super) fn own(value: bool) -> bool {
        value
    }
}

/// Text, always in quotes.
pub(super) mod text {
    use super::*;

    pub(in super::super) fn write(f: &mut fmt::Formatter<'_>, value: &Str<'_>) -> fmt::Result {
        f.write_char('\'')?;
        let mut rest: &str = value;
        while let Some(length) = rest.bytes().position(|b| b"\\'\n\r\t".contains(&b)) {
            f.write_str(&rest[..length])?;
            f.write_str(match rest.as_bytes()[length] {
                b'\\' => "\\\\",
                b'\'' => "\\'",
                b'\n' => "\\n",
                b'\r' => "\\r",
                _ => "\\t",
            })?;
            rest = &rest[length + 1..];
        }
        f.write_str(rest)?;
        f.write_char('\'')
    }

    #[allow(clippy::unnecessary_wraps)] // as the other kinds
    pub(in super::super) fn read(value: Str<'_>) -> Result<Str<'_>, &'static str> {
        Ok(value)
    }

    pub(in super::super) fn own(value: Str<'_>) -> Str<'static> {
        Cow::Owned(value.into_owned())
    }
}

/// Text, in quotes where it must be.
pub(super) mod word {
    use super::*;
    pub(in super::super) use text::{own, read};

    pub(in super::super) fn write(f: &mut fmt::Formatter<'_>, value: &Str<'_>) -> fmt::Result {
        if !value.is_empty() && value.bytes().all(is_bare) {
            f.write_str(value)
        } else {
            text::write(f, value)
        }
    }
}
