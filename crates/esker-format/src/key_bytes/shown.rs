//! Owns how a column's value is shown to people: what its bytes mean beyond their order in keys.
//!
//! Invariant: nothing on disk depends on it, and bytes that are no value of what a column is shown as are told by its
//! key's encoding.

use super::text::quote;
use std::fmt::Write;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Local time, as a number of digits YYYYMMDDhhmmss, of a time in seconds since 1970.
pub type LocalTime = dyn Fn(i64) -> u64;

/// How dates and times lie in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TimeForm {
    /// Fields of bits, big-endian, with a bit for the sign; a timestamp is a big-endian number of seconds since 1970. Behind
    /// it a big-endian number of hundredths, of their hundredths, or of theirs.
    Bits,
    /// One number of which seconds, minutes, hours, days and months are remainders, big-endian, in units of the last digit;
    /// without fractions its decimal digits are the value, little-endian.
    Number,
}

/// How people see a column's values.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub enum Shown {
    /// As the encoding in a key tells.
    #[default]
    Plain,
    /// Bytes that are no text.
    Binary,
    /// A floating-point number with so many digits behind the point.
    Rounded(u8),
    /// Bits, big-endian.
    Bits,
    /// A year, counted from 1900; 0 is the year 0. Of two digits, its last ones.
    Year {
        /// Two, or four.
        digits: u8,
    },
    /// Little-endian: 5 bits of day, 4 of month, the rest of year.
    Date,
    /// Date and time, with so many digits of a second's fraction.
    DateTime(TimeForm, u8),
    /// The same of a time that is stored as seconds since 1970.
    Timestamp(TimeForm, u8),
    /// A time, which may be negative or longer than a day.
    Time(TimeForm, u8),
    /// A decimal number: nine digits in four bytes, fewer in as many as they need, the sign's bit inverted, a negative one wholly.
    Decimal {
        /// Digits in all.
        digits: u8,
        /// Those behind the point.
        decimals: u8,
    },
    /// The place of one of these, from 1 on; 0: none.
    Enum(Vec<String>),
    /// A bit for each of these.
    Set(Vec<String>),
    /// Four bytes of an address.
    Inet4,
    /// Sixteen.
    Inet6,
    /// Sixteen bytes, which may stand in the order in which they are sorted: the last group first.
    Uuid,
    /// A number, with zeros before it up to so many characters.
    Filled(Box<Shown>, u8),
}

impl Shown {
    /// Appends a value as SQL would write it; none: it is no value of this kind, or only its encoding tells it, and nothing was
    /// written.
    pub(super) fn tell(&self, value: &[u8], local_time: Option<&LocalTime>, out: &mut String) -> Option<()> {
        match self {
            Shown::Plain => return None,
            Shown::Binary => hex(value, out),
            Shown::Rounded(decimals) => {
                let value = match *value {
                    [a, b, c, d] => f32::from_le_bytes([a, b, c, d]).into(),
                    _ => f64::from_le_bytes(value.try_into().ok()?),
                };
                let _ = write!(out, "{value:.*}", usize::from(*decimals));
            }
            Shown::Bits => {
                let _ = write!(out, "b'{:b}'", big_endian(value)?);
            }
            Shown::Year { digits: 2 } => {
                let [year] = *value else { return None };
                let _ = write!(out, "{:02}", year % 100);
            }
            Shown::Year { .. } => {
                let [year] = *value else { return None };
                let _ = write!(out, "{:04}", if year == 0 { 0 } else { 1900 + u32::from(year) });
            }
            Shown::Date => {
                let [a, b, c] = *value else { return None };
                let packed = u64::from(u32::from_le_bytes([a, b, c, 0]));
                Moment { year: packed >> 9, month: packed >> 5 & 15, day: packed & 31, ..Moment::default() }
                    .tell_date(out);
            }
            Shown::DateTime(form, decimals) => date_time(value, *form, *decimals)?.tell(*decimals, "", out),
            Shown::Timestamp(form, decimals) => {
                let (moment, zone) = timestamp(value, *form, *decimals, local_time)?;
                moment.tell(*decimals, zone, out);
            }
            Shown::Time(form, decimals) => time(value, *form, *decimals)?.tell_time(*decimals, out),
            Shown::Decimal { digits, decimals } => out.push_str(&decimal(value, *digits, *decimals)?),
            Shown::Enum(names) => match little_endian(value)? {
                0 => out.push_str("''"),
                at => quote(names.get(usize::try_from(at).ok()? - 1)?, out),
            },
            Shown::Set(names) => {
                let bits = little_endian(value)?;
                if names.len() < 64 && bits >> names.len() != 0 {
                    return None;
                }
                let chosen = names.iter().take(64).enumerate().filter(|(at, _)| bits >> at & 1 == 1);
                quote(&chosen.map(|(_, name)| name.as_str()).collect::<Vec<_>>().join(","), out);
            }
            Shown::Inet4 => {
                let _ = write!(out, "'{}'", Ipv4Addr::from(<[u8; 4]>::try_from(value).ok()?));
            }
            Shown::Inet6 => {
                let _ = write!(out, "'{}'", Ipv6Addr::from(<[u8; 16]>::try_from(value).ok()?));
            }
            Shown::Uuid => uuid(value.try_into().ok()?, out),
            // Whoever knows the encoding fills it.
            Shown::Filled(number, _) => return number.tell(value, local_time, out),
        }
        Some(())
    }
}

/// Bytes as SQL writes them.
pub(super) fn hex(value: &[u8], out: &mut String) {
    out.push_str("X'");
    for byte in value {
        let _ = write!(out, "{byte:02X}");
    }
    out.push('\'');
}

/// The fewest digits that tell a floating-point number from others, or so many at most; a great or small one with an
/// exponent.
pub(super) fn float(value: f64, most_digits: Option<usize>, out: &mut String) {
    if value == 0.0 || !value.is_finite() {
        let _ = write!(out, "{}", if value == 0.0 { 0.0 } else { value });
        return;
    }
    let text = match most_digits {
        Some(most) => format!("{value:.*e}", most - 1),
        None => format!("{value:e}"),
    };
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    // The number is 0.DIGITS, times ten to the power of `point`.
    let point = 1 + exponent.parse::<i32>().unwrap_or_default();
    let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    let digits = digits.trim_end_matches('0');
    let count = digits.len() as i32;
    if value < 0.0 {
        out.push('-');
    }
    // Beyond fifteen digits zeros would look as if they were known.
    if point < -14 || (point > 15 && count <= point) {
        let (first, rest) = digits.split_at(1);
        let dot = if rest.is_empty() { "" } else { "." };
        let _ = write!(out, "{first}{dot}{rest}e{}", point - 1);
    } else if point <= 0 {
        let _ = write!(out, "0.{}{digits}", "0".repeat(point.unsigned_abs() as usize));
    } else if point < count {
        let (whole, fraction) = digits.split_at(point as usize);
        let _ = write!(out, "{whole}.{fraction}");
    } else {
        let _ = write!(out, "{digits}{}", "0".repeat((point - count) as usize));
    }
}

fn big_endian(value: &[u8]) -> Option<u64> {
    (value.len() <= 8).then(|| value.iter().fold(0, |n, byte| n << 8 | u64::from(*byte)))
}

fn little_endian(value: &[u8]) -> Option<u64> {
    (value.len() <= 8).then(|| value.iter().rev().fold(0, |n, byte| n << 8 | u64::from(*byte)))
}

/// A date, a time, or both. Months and days of 0 are values, too.
#[derive(Debug, Clone, Copy, Default)]
struct Moment {
    negative: bool,
    year: u64,
    month: u64,
    day: u64,
    hour: u64,
    minute: u64,
    second: u64,
    /// Millionths of a second.
    micros: u64,
}

impl Moment {
    /// Of the digits of a number.
    fn of_digits(digits: u64) -> Moment {
        let two = |from: u64| digits / from % 100;
        let (year, month, day) = (digits / 10_000_000_000, two(100_000_000), two(1_000_000));
        Moment { year, month, day, hour: two(10_000), minute: two(100), second: two(1), ..Moment::default() }
    }

    /// Of a time in UTC, as seconds since 1970.
    fn of_unix(seconds: u64) -> Moment {
        // Years that begin in March, so that a leap day is the last one; 400 of them have 146,097 days.
        let days = seconds / 86400 + 719_468;
        let (era, day) = (days / 146_097, days % 146_097);
        let year = (day - day / 1460 + day / 36524 - day / 146_096) / 365;
        let day = day - (365 * year + year / 4 - year / 100);
        let month = (5 * day + 2) / 153;
        let (day, month) = (day - (153 * month + 2) / 5 + 1, (month + 2) % 12 + 1);
        let year = 400 * era + year + u64::from(month <= 2);
        let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
        Moment { year, month, day, hour, minute, second, ..Moment::default() }
    }

    fn tell_date(&self, out: &mut String) {
        let _ = write!(out, "'{:04}-{:02}-{:02}'", self.year, self.month, self.day);
    }

    fn tell_time(&self, decimals: u8, out: &mut String) {
        let sign = if self.negative { "-" } else { "" };
        let _ = write!(out, "'{sign}{:02}:{:02}:{:02}", self.hour, self.minute, self.second);
        self.tell_fraction(decimals, out);
        out.push('\'');
    }

    fn tell(&self, decimals: u8, zone: &str, out: &mut String) {
        let Moment { year, month, day, hour, minute, second, .. } = self;
        let _ = write!(out, "'{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}");
        self.tell_fraction(decimals, out);
        let _ = write!(out, "{zone}'");
    }

    fn tell_fraction(&self, decimals: u8, out: &mut String) {
        if decimals > 0 {
            let digits = format!("{:06}", self.micros);
            let _ = write!(out, ".{}", digits.get(..usize::from(decimals)).unwrap_or(&digits));
        }
    }
}

/// Bytes of a fraction of a second.
fn fraction_bytes(decimals: u8) -> usize {
    usize::from(decimals.div_ceil(2))
}

/// Millionths of a fraction that is stored in hundredths, of their hundredths, or of theirs.
fn micros(fraction: u64, decimals: u8) -> u64 {
    fraction * 100u64.saturating_pow(3u32.saturating_sub(u32::from(decimals.div_ceil(2))))
}

/// The number that is stored big-endian in units of the last digit: a fraction of a second, and what lies over it.
fn split_number(number: u64, decimals: u8) -> Option<(u64, u64)> {
    let units = 10u64.checked_pow(decimals.into())?;
    Some((number / units, number % units * 10u64.checked_pow(6u32.checked_sub(decimals.into())?)?))
}

fn date_time(value: &[u8], form: TimeForm, decimals: u8) -> Option<Moment> {
    match form {
        TimeForm::Number if decimals == 0 => Some(Moment::of_digits(little_endian(value)?)),
        TimeForm::Number => {
            let (seconds, micros) = split_number(big_endian(value)?, decimals)?;
            let (days, hour) = (seconds / 86400, seconds / 3600 % 24);
            let (year, month, day) = (days / 32 / 13, days / 32 % 13, days % 32);
            let (minute, second) = (seconds / 60 % 60, seconds % 60);
            Some(Moment { year, month, day, hour, minute, second, micros, negative: false })
        }
        TimeForm::Bits => {
            let (whole, fraction) = value.split_at_checked(5).filter(|(_, f)| f.len() == fraction_bytes(decimals))?;
            // A date before the year 0 there is not.
            let bits = big_endian(whole)?.checked_sub(1 << 39)?;
            let (months, day, hour) = (bits >> 22, bits >> 17 & 31, bits >> 12 & 31);
            let (minute, second, micros) = (bits >> 6 & 63, bits & 63, micros(big_endian(fraction)?, decimals));
            Some(Moment { year: months / 13, month: months % 13, day, hour, minute, second, micros, negative: false })
        }
    }
}

/// With a zone's name behind it where it is not the reader's.
fn timestamp(
    value: &[u8],
    form: TimeForm,
    decimals: u8,
    local_time: Option<&LocalTime>,
) -> Option<(Moment, &'static str)> {
    let (whole, fraction) = value.split_at_checked(4).filter(|(_, f)| f.len() == fraction_bytes(decimals))?;
    let fraction = big_endian(fraction)?;
    let (seconds, micros) = match form {
        TimeForm::Number if decimals == 0 => (little_endian(whole)?, 0),
        TimeForm::Number => (big_endian(whole)?, split_number(fraction, decimals)?.1),
        TimeForm::Bits => (big_endian(whole)?, micros(fraction, decimals)),
    };
    Some(match local_time {
        // No time at all, wherever it is.
        _ if seconds == 0 && micros == 0 => (Moment::default(), ""),
        None => (Moment { micros, ..Moment::of_unix(seconds) }, " UTC"),
        Some(local) => (Moment { micros, ..Moment::of_digits(local(seconds.try_into().ok()?)) }, ""),
    })
}

fn time(value: &[u8], form: TimeForm, decimals: u8) -> Option<Moment> {
    /// A second more than a time may have.
    const MOST_SECONDS: i64 = 838 * 3600 + 59 * 60 + 60;
    let signed = |number: u64, zero: i64| i64::try_from(number).ok()?.checked_sub(zero);
    match form {
        TimeForm::Number if decimals == 0 => {
            let [a, b, c] = *value else { return None };
            let number = i32::from_le_bytes([0, a, b, c]) >> 8;
            let clock = Moment::of_digits(u64::from(number.unsigned_abs()) % 10_000);
            Some(Moment { negative: number < 0, hour: u64::from(number.unsigned_abs()) / 10_000, ..clock })
        }
        TimeForm::Number => {
            let zero = 10i64.checked_pow(decimals.into())?.checked_mul(MOST_SECONDS)?;
            let number = signed(big_endian(value)?, zero)?;
            let (seconds, micros) = split_number(number.unsigned_abs(), decimals)?;
            let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
            Some(Moment { negative: number < 0, hour, minute, second, micros, ..Moment::default() })
        }
        TimeForm::Bits => {
            let fraction_bits = 8 * fraction_bytes(decimals);
            if value.len() * 8 != 24 + fraction_bits || fraction_bits > 24 {
                return None;
            }
            let number = signed(big_endian(value)?, 1 << (23 + fraction_bits))?;
            let (bits, fraction) = {
                let all = number.unsigned_abs();
                (all >> fraction_bits, all & ((1 << fraction_bits) - 1))
            };
            let (hour, minute, second) = (bits >> 12 & 1023, bits >> 6 & 63, bits & 63);
            let micros = micros(fraction, decimals);
            Some(Moment { negative: number < 0, hour, minute, second, micros, ..Moment::default() })
        }
    }
}

fn decimal(value: &[u8], digits: u8, decimals: u8) -> Option<String> {
    /// Bytes of so many digits.
    const BYTES: [usize; 10] = [0, 1, 1, 2, 2, 3, 3, 4, 4, 4];
    let (whole, fraction) = (usize::from(digits.checked_sub(decimals)?), usize::from(decimals));
    let groups = [whole % 9].into_iter().chain([9].repeat(whole / 9));
    let groups = groups.chain([9].repeat(fraction / 9)).chain([fraction % 9]);
    let negative = value.first()? & 0x80 == 0;
    let mut bytes: Vec<u8> = value.iter().map(|b| if negative { !b } else { *b }).collect();
    bytes[0] ^= 0x80;
    let (mut all, mut rest) = (String::new(), &bytes[..]);
    for count in groups.filter(|count| *count > 0) {
        let (group, behind) = rest.split_at_checked(BYTES[count])?;
        let _ = write!(all, "{:0count$}", big_endian(group)?);
        rest = behind;
    }
    if !rest.is_empty() || all.len() != whole + fraction {
        return None;
    }
    let (whole, fraction) = all.split_at(whole);
    let whole = Some(whole.trim_start_matches('0')).filter(|w| !w.is_empty()).unwrap_or("0");
    let (sign, point) = (if negative { "-" } else { "" }, if fraction.is_empty() { "" } else { "." });
    Some(format!("{sign}{whole}{point}{fraction}"))
}

fn uuid(stored: [u8; 16], out: &mut String) {
    let mut bytes = stored;
    // Where the version would be there is a variant: it is one that is sorted by the place where it was made, then by time.
    if stored[6] & 0x80 != 0 && stored[8] != 0 && stored[8] <= 0x80 {
        let (node, clock, high, middle, low) = (0..6, 6..8, 8..10, 10..12, 12..16);
        let in_order = [low, middle, high, clock, node].map(|place| &stored[place]);
        bytes.copy_from_slice(&in_order.concat());
    }
    out.push('\'');
    for (at, byte) in bytes.iter().enumerate() {
        let dash = if matches!(at, 4 | 6 | 8 | 10) { "-" } else { "" };
        let _ = write!(out, "{dash}{byte:02x}");
    }
    out.push('\'');
}

#[cfg(test)]
mod tests;
