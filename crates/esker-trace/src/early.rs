//! Could a statement have ended before its scans did? Then it says nothing of an estimate that fewer rows came.

use crate::format::End;

/// Words that end a scan when enough rows are there.
const ENOUGH: [&str; 3] = ["LIMIT", "FETCH", "ROWNUM"];

/// Why it could; `None` if nothing tells so.
pub(crate) fn why(text: Option<&str>, end: Option<&End<'_>>) -> Option<&'static str> {
    let Some(end) = end else { return Some("no end") };
    if end.killed {
        return Some("killed");
    }
    if end.err.is_some_and(|e| e != 0) {
        return Some("error");
    }
    let Some(text) = text else { return Some("text not known") };
    let all = words(text);
    let is = |word: &str, of: &str| word.eq_ignore_ascii_case(of);
    // The plan is of a statement within, whose text is not told.
    if all.first().is_some_and(|w| is(w, "CALL")) {
        return Some("a routine's");
    }
    ENOUGH.into_iter().find(|enough| all.iter().any(|w| is(w, enough)))
}

/// Is it enough rows that end it? What is sorted has been read to its end by then.
pub(crate) fn is_enough(why: &str) -> bool {
    ENOUGH.contains(&why)
}

/// A statement's words without what is quoted or a comment; a comment that is executed counts.
fn words(text: &str) -> Vec<&str> {
    let bytes = text.as_bytes();
    let is_word = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'$' || b >= 0x80;
    let after = |from: usize, end: &str| text[from..].find(end).map_or(text.len(), |n| from + n + end.len());
    let (mut at, mut found) = (0, Vec::new());
    while let Some(b) = bytes.get(at) {
        match b {
            b'\'' | b'"' | b'`' => at = quoted(bytes, at),
            b'#' => at = after(at, "\n"),
            b'-' if text[at..].starts_with("-- ") => at = after(at, "\n"),
            b'/' if text[at..].starts_with("/*")
                && !text[at..].starts_with("/*!")
                && !text[at..].starts_with("/*M!") =>
            {
                at = after(at + 2, "*/");
            }
            b if is_word(*b) => {
                let length = bytes[at..].iter().position(|b| !is_word(*b)).unwrap_or(bytes.len() - at);
                found.push(&text[at..at + length]);
                at += length;
            }
            _ => at += 1,
        }
    }
    found
}

/// The place after what is quoted from a place on; a quote within it is there twice, which is two quoted texts.
fn quoted(bytes: &[u8], from: usize) -> usize {
    let (quote, mut at) = (bytes[from], from + 1);
    while let Some(b) = bytes.get(at) {
        at += 1;
        match b {
            b'\\' if quote != b'`' => at += 1,
            b if *b == quote => break,
            _ => {}
        }
    }
    // A letter of several bytes after a backslash is not parted.
    while at < bytes.len() && bytes[at] & 0xc0 == 0x80 {
        at += 1;
    }
    at.min(bytes.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_a_word_of_the_statement_itself() {
        let told = |text: &str| why(Some(text), Some(&End::default()));
        for text in
            ["SELECT 1 limit 5", "a\tLIMIT\n1", "x /*! LIMIT 2 */", "'it''s' LIMIT 1", "'\\'' LIMIT 1", "'\\ü' LIMIT 1"]
        {
            assert_eq!(told(text), Some("LIMIT"), "{text}");
        }
        for text in
            ["SELECT 'LIMIT 1'", "`limit`", "a -- LIMIT\nb", "a # LIMIT", "/* LIMIT */ b", "max_limit", "'LIMIT", ""]
        {
            assert_eq!(told(text), None, "{text}");
        }
        assert_eq!(told("x FETCH FIRST 3 ROWS ONLY"), Some("FETCH"));
        assert_eq!(told("call p()"), Some("a routine's"));
    }

    #[test]
    fn what_did_not_end_by_itself_ended_early() {
        let text = Some("SELECT 1");
        assert_eq!((why(text, None), why(None, Some(&End::default()))), (Some("no end"), Some("text not known")));
        assert_eq!(why(text, Some(&End { killed: true, ..End::default() })), Some("killed"));
        assert_eq!(why(text, Some(&End { err: Some(1205), ..End::default() })), Some("error"));
        assert_eq!(why(text, Some(&End { err: Some(0), ..End::default() })), None);
    }
}
