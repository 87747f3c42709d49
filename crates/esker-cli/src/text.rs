//! How bytes, sizes and values look to people and to programs.

use serde_json::{json, Value as Json};
use std::fmt::{Display, Write};
use std::path::Path;

/// Hexadecimal digits of `bytes`.
pub fn hex(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        let _ = write!(out, "{byte:02x}");
    }
    out
}

/// `bytes` as text, if people can read it.
pub fn printable(bytes: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(bytes).ok()?;
    text.chars().all(|c| !c.is_control() || matches!(c, '\t' | '\n' | '\r')).then_some(text)
}

/// `bytes` in a line whose fields are divided by tabs.
pub fn field(bytes: &[u8], as_text: bool) -> String {
    let Some(text) = printable(bytes).filter(|_| as_text) else {
        return format!("0x{}", hex(bytes));
    };
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\t' => out.push_str("\\t"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\\' => out.push_str("\\\\"),
            c => out.push(c),
        }
    }
    out
}

/// What is said, in one line: names and paths in it may hold what moves a terminal's cursor, or more.
pub fn line(said: impl Display) -> String {
    said.to_string().replace(char::is_control, " ")
}

/// `bytes` as JSON: a string, or an object that says it is hexadecimal.
pub fn json_field(bytes: &[u8], as_text: bool) -> Json {
    match printable(bytes).filter(|_| as_text) {
        Some(text) => json!(text),
        None => json!({ "hex": hex(bytes) }),
    }
}

/// A path as JSON, as people see it: a name may be any bytes, a string of JSON may not.
pub fn json_path(path: &Path) -> Json {
    json!(path.to_string_lossy())
}

/// A size for people.
pub fn size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} bytes");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields() {
        assert_eq!(field("größe\t\\".as_bytes(), true), "größe\\t\\\\");
        assert_eq!(field(b"abc", false), "0x616263");
        assert_eq!(field(&[0, 255], true), "0x00ff");
        assert_eq!(field(b"a\0", true), "0x6100");
        assert_eq!(json_field(&[0xff], true), json!({ "hex": "ff" }));
        assert_eq!(json_field(b"", true), json!(""));
        assert_eq!(line("a\u{1b}[2J\n\u{9b}\u{7f}  größe"), "a [2J     größe");
    }

    #[test]
    fn sizes() {
        assert_eq!(size(0), "0 bytes");
        assert_eq!(size(1023), "1023 bytes");
        assert_eq!(size(1536), "1.5 KiB");
        assert_eq!(size(5 << 30), "5.0 GiB");
        assert_eq!(size(u64::MAX), "16.0 EiB");
    }
}
