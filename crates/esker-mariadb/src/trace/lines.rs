// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a trace's lines are made of.

use esker_base::trace::{Noted, Source, Wanted};
use esker_base::WaitEvent;
use esker_trace::format::{Wait, BLOCK_BYTES};
use std::borrow::Cow;

/// So many bytes of a text at most, whole characters.
pub(super) fn start_of(text: &str, bytes: usize) -> &str {
    let fits = |(at, c): &(usize, char)| at + c.len_utf8() <= bytes;
    let end = text.char_indices().take_while(fits).last().map_or(0, |(at, c)| at + c.len_utf8());
    &text[..end]
}

/// `wanted`: what the waits that were taken with this one wanted of others; `readable` tells a table's name.
pub(super) fn wait_line<'a>(
    wait: &Noted,
    wanted: &'a [Wanted],
    (connection, query, statement): (u64, u64, u64),
    readable: impl FnOnce(&str) -> String,
) -> Wait<'a> {
    let wanted = wait.wanted.and_then(|at| wanted.get(at));
    let (file, block, blocks) = match wait.place {
        Some(p) if p.bytes > 0 => {
            let (from, to) = (p.offset / BLOCK_BYTES, (p.offset + p.bytes).div_ceil(BLOCK_BYTES));
            (Some(p.file as u64 + 1), Some(from), Some(to - from))
        }
        Some(p) => (Some(p.file as u64 + 1), None, None),
        None => (None, None, None),
    };
    Wait {
        tim: wait.begin_ns,
        conn: Some(connection),
        q: Some(query),
        s: Some(statement),
        nam: wait.event.map_or("binlog", |event| event.title()).into(),
        ela: wait.ns,
        x: (wait.count > 1).then_some(wait.count),
        class: Some(wait.event.map_or("Commit", |event| event.class()).into()),
        obj: wanted.map(|w| readable(&w.table).into()),
        lock: wanted.map(|w| w.kind.into()),
        key: wanted.and_then(|w| w.key.as_deref()).map(Cow::Borrowed),
        by: wanted.map(|w| w.connection),
        others: wanted.map(|w| w.others).filter(|&n| n > 0),
        with: wanted.map(|w| w.with.clone()).filter(|w| !w.is_empty()),
        later: wanted.map(|w| w.later).filter(|&n| n > 0),
        then: wanted.map(|w| w.then.clone()).filter(|w| !w.is_empty()),
        file,
        block,
        blocks,
        bytes: wait.place.map(|p| p.bytes).filter(|&bytes| bytes > 0),
        from: wait.source.map(|source| match source {
            Source::PageCache => "pagecache".into(),
            Source::Device => "device".into(),
        }),
        cpu: (!wait.nested).then_some(wait.cpu_ns),
        ready: (!wait.nested).then_some(wait.ready_ns),
        within: wait.nested,
    }
}

/// A wait for a file of a temporary table has a name of its own: nobody else reads that file.
pub(super) fn of_temporary(line: Wait<'_>) -> Wait<'_> {
    let is = |event: WaitEvent| line.nam == event.title();
    if is(WaitEvent::RunRead) {
        Wait { nam: "temp read".into(), ..line }
    } else if is(WaitEvent::RunWrite) || is(WaitEvent::RunWriteQueue) {
        Wait { nam: "temp write".into(), ..line }
    } else {
        line
    }
}

/// A statement that speaks of passwords is written as far as the word: to know what is a value behind it, one would have to parse it
/// as the server does, comments and all.
pub(super) fn without_passwords(text: &str) -> Cow<'_, str> {
    let lower = text.to_ascii_lowercase();
    let words = ["identified", "password", "authentication_string"];
    match words.iter().filter_map(|word| Some(lower.find(word)? + word.len())).min() {
        Some(end) if end < text.len() => format!("{} ***", &text[..end]).into(),
        _ => text.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::{start_of, without_passwords};

    #[test]
    fn a_text_is_cut_between_characters() {
        assert_eq!(
            (start_of("aäb", 4), start_of("aäb", 3), start_of("aäb", 2), start_of("aä", 0)),
            ("aäb", "aä", "a", "")
        );
    }

    #[test]
    fn passwords_are_not_written() {
        for (text, masked) in [
            ("SELECT 'a'", "SELECT 'a'"),
            ("CREATE USER 'u' IDENTIFIED BY 'se\\'cr''et' x", "CREATE USER 'u' IDENTIFIED ***"),
            ("set password /* it's */ = PASSWORD(\"s'x\")", "set password ***"),
            ("ALTER USER u IDENTIFIED VIA ed25519 USING 'never ended", "ALTER USER u IDENTIFIED ***"),
            ("CHANGE MASTER TO MASTER_PASSWORD=0x61, MASTER_USER='ä'", "CHANGE MASTER TO MASTER_PASSWORD ***"),
            ("SELECT 'ä', 'PassWord", "SELECT 'ä', 'PassWord"),
        ] {
            assert_eq!(without_passwords(text), masked);
        }
    }
}
