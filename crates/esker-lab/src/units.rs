//! Times, sizes and counts as people write and read them.

use std::time::Duration;

/// A time such as 90, 90s, 5m or 2h.
///
/// # Errors
/// When it is none.
pub fn time(text: &str) -> std::result::Result<Duration, String> {
    let (number, unit) =
        text.split_at(text.len() - text.chars().last().filter(|c| c.is_alphabetic()).map_or(0, char::len_utf8));
    let unit = match unit {
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err("a time is a number of seconds, or ends in s, m or h".into()),
    };
    match number.parse::<f64>() {
        Ok(n) if n > 0.0 && n * unit < 1e9 => Ok(Duration::from_secs_f64(n * unit)),
        _ => Err("a time is a positive number, as in 90, 90s, 5m, 2h".into()),
    }
}

/// A size such as 1000, 128K, 64M or 1G, in bytes; K is 1024.
///
/// # Errors
/// When it is none.
pub fn size(text: &str) -> std::result::Result<u64, String> {
    let shift = match text.chars().last().map(|c| c.to_ascii_uppercase()) {
        Some('K') => 10,
        Some('M') => 20,
        Some('G') => 30,
        Some('T') => 40,
        _ => 0,
    };
    let digits = if shift == 0 { text } else { &text[..text.len() - 1] };
    let bytes = digits.parse::<u64>().ok().and_then(|n| n.checked_mul(1 << shift));
    bytes.ok_or_else(|| "a size is a whole number of bytes, or ends in K, M, G or T".into())
}

/// A number of things such as 1000, 500K, 10M or 1G; K is 1000.
///
/// # Errors
/// When it is none.
pub fn count(text: &str) -> std::result::Result<u64, String> {
    let zeros = match text.chars().last().map(|c| c.to_ascii_uppercase()) {
        Some('K') => 3,
        Some('M') => 6,
        Some('G') => 9,
        _ => 0,
    };
    let digits = if zeros == 0 { text } else { &text[..text.len() - 1] };
    let number = digits.parse::<u64>().ok().and_then(|n| n.checked_mul(10u64.pow(zeros)));
    number.ok_or_else(|| "a whole number, or one that ends in K, M or G (thousands, millions, milliards)".into())
}

/// Bytes for people.
#[must_use]
pub fn size_text(bytes: u64) -> String {
    let unit = [("T", 40), ("G", 30), ("M", 20), ("K", 10)].into_iter().find(|(_, s)| bytes >> s > 0);
    match unit {
        Some((name, shift)) if bytes % (1 << shift) == 0 => format!("{}{name}", bytes >> shift),
        Some((name, shift)) => format!("{:.1}{name}", bytes as f64 / (1u64 << shift) as f64),
        None => bytes.to_string(),
    }
}

/// Bytes as an option or a setting takes them: a whole number of the largest unit that fits.
#[must_use]
pub fn size_value(bytes: u64) -> String {
    let fits = |&(_, shift): &(&str, u32)| bytes > 0 && bytes % (1 << shift) == 0;
    let unit = [("T", 40), ("G", 30), ("M", 20), ("K", 10)].into_iter().find(fits);
    unit.map_or_else(|| bytes.to_string(), |(name, shift)| format!("{}{name}", bytes >> shift))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times() {
        assert_eq!((size("0"), size("128K"), size("3g")), (Ok(0), Ok(131_072), Ok(3 << 30)));
        assert!(size("").is_err() && size("x").is_err() && size("1.5M").is_err() && size("99999999999999T").is_err());
        let values = [0, 1000, 131_072, 6013 << 20, 2 << 30].map(size_value);
        assert_eq!(values, ["0", "1000", "128K", "6013M", "2G"]);
        assert_eq!(
            (count("0"), count("10M"), count("5k"), count("1G")),
            (Ok(0), Ok(10_000_000), Ok(5000), Ok(1_000_000_000))
        );
        assert!(count("").is_err() && count("M").is_err() && count("1.5M").is_err() && count("-1").is_err());
        assert_eq!(time("90").unwrap(), Duration::from_secs(90));
        assert_eq!(time("1.5m").unwrap(), Duration::from_secs(90));
        assert!(time("").is_err() && time("-1").is_err() && time("5x").is_err() && time("inf").is_err());
        // A letter may be of several bytes.
        assert!(time("5м").is_err() && time("м").is_err() && size("5м").is_err() && count("5м").is_err());
        assert_eq!(
            (size_text(128), size_text(131_072), size_text(1_500_000)),
            ("128".into(), "128K".into(), "1.4M".into())
        );
    }
}
