//! The trace file's lines: `KEYWORD key=value key=value ...`, UTF-8, one line an event.
//!
//! A value is a number, a bare word of `[A-Za-z0-9_./#@+-]`, or 'quoted' with `\\ \' \n \r \t`. Times are microseconds
//! with up to three decimals in the file, and nanoseconds in the program. Who reads passes over keywords and keys that it
//! does not know, so that both may come later; a key that is there twice has its last value.
//!
//! ```
//! use esker_trace::format::{Line, Wait};
//! let wait = Wait { tim: 1_500, nam: "db file sequential read".into(), ela: 253_412, block: Some(7), ..Wait::default() };
//! let text = wait.to_string();
//! assert_eq!(text, "WAIT tim=1.5 nam='db file sequential read' ela=253.412 block=7");
//! assert_eq!(Line::parse(&text), Ok(Line::Wait(wait)));
//! ```

mod value;

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use value::{bit, flag, keyword, may, must, number, numbers, text, us, word, Pairs};

/// The version of the format, in `TRACE version=`.
pub const VERSION: u64 = 1;
/// `block` and `blocks` of a [`Wait`] are in units of so many bytes.
pub const BLOCK_BYTES: u64 = 4096;

/// Text that is borrowed where it can be.
pub type Str<'a> = Cow<'a, str>;

/// Why a line cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("byte {at}: {what}")]
pub struct ParseError {
    /// Where in the line, in bytes from 1.
    pub at: usize,
    /// What is wrong there.
    pub what: String,
}

/// One kind of line: a struct that prints itself and can be read again. A field is `name: type = need kind "key"`.
macro_rules! line {
    ($(#[$doc:meta])* $name:ident $(<$life:lifetime>)? = $keyword:literal {
        $($(#[$field_doc:meta])* $field:ident: $type:ty = $need:ident $kind:ident $key:literal,)*
    }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Default, PartialEq, Eq)]
        pub struct $name $(<$life>)? {
            $($(#[$field_doc])* pub $field: $type,)*
        }

        impl $(<$life>)? fmt::Display for $name $(<$life>)? {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str($keyword)?;
                $($need::write(f, $key, &self.$field, $kind::write)?;)*
                Ok(())
            }
        }

        impl<'a> $name $(<$life>)? {
            fn read(pairs: Pairs<'a>) -> Result<Self, ParseError> {
                $(let mut $field = None;)*
                for pair in pairs {
                    let (key, value, at) = pair?;
                    match key {
                        $($key => {
                            let read = $kind::read(value);
                            $field = Some(read.map_err(|what| ParseError { at, what: format!("{key}: {what}") })?);
                        })*
                        _ => {}
                    }
                }
                Ok(Self { $($field: $need::take($field, $keyword, $key)?,)* })
            }
        }

        impl<'a> From<$name $(<$life>)?> for Line<'a> {
            fn from(line: $name $(<$life>)?) -> Self {
                Line::$name(line)
            }
        }

        impl<'a> $name $(<$life>)? {
            fn owned(self) -> Line<'static> {
                Line::$name($name { $($field: $need::own(self.$field, $kind::own),)* })
            }
        }
    };
}

line! {
    /// Tracing begins, or goes on after it was off.
    Trace<'a> = "TRACE" {
        /// Of the format: [`VERSION`].
        version: u64 = must number "version",
        /// The connection.
        conn: u64 = must number "conn",
        /// Whose session it is, `user@host`.
        user: Option<Str<'a>> = may text "user",
        /// The server's version.
        server: Option<Str<'a>> = may text "server",
        /// The engine's version.
        esker: Option<Str<'a>> = may text "esker",
        /// The server's process.
        pid: Option<u64> = may number "pid",
        /// When the file began: its zero of all `tim`, RFC 3339 in UTC.
        began: Option<Str<'a>> = may text "began",
        /// `FULL` or `WAITS`.
        level: Option<Str<'a>> = may word "level",
        /// ns since the file began.
        tim: Option<u64> = may us "tim",
    }
}

impl<'a> Trace<'a> {
    /// What can be read of a damaged line: its connection if that is told, and all keys whose values are whole; what is
    /// not, is as if it were not there. `None` if the line's keyword is another one.
    #[must_use]
    pub fn salvage(line: &'a str) -> Option<(Option<u64>, Trace<'a>)> {
        let (_, pairs) = keyword(line).ok().flatten().filter(|(keyword, _)| *keyword == "TRACE")?;
        let (mut conn, mut trace) = (None, Trace::default());
        for (key, value) in pairs.whole() {
            match key {
                "version" => trace.version = number::read(value).unwrap_or_default(),
                "conn" => conn = number::read(value).ok(),
                "user" => trace.user = Some(value),
                "server" => trace.server = Some(value),
                "esker" => trace.esker = Some(value),
                "pid" => trace.pid = number::read(value).ok(),
                "began" => trace.began = Some(value),
                "level" => trace.level = Some(value),
                "tim" => trace.tim = us::read(value).ok(),
                _ => {}
            }
        }
        trace.conn = conn.unwrap_or_default();
        Some((conn, trace))
    }
}

line! {
    /// A statement begins.
    Statement<'a> = "STATEMENT" {
        /// The server's number of the statement.
        q: u64 = must number "q",
        /// The number of the statement in the file.
        s: Option<u64> = may number "s",
        /// ns since the file began.
        tim: u64 = must us "tim",
        /// The session's database.
        db: Option<Str<'a>> = may text "db",
        /// The statement.
        text: Option<Str<'a>> = may text "text",
    }
}

line! {
    /// What a file's number stands for; before the first wait that names it.
    File<'a> = "FILE" {
        /// The number, in this file alone.
        file: u64 = must number "file",
        /// Its path.
        path: Option<Str<'a>> = may text "path",
        /// What it belongs to: `schema.table/index`.
        obj: Option<Str<'a>> = may text "obj",
    }
}

line! {
    /// Something was waited for.
    Wait<'a> = "WAIT" {
        /// When it began, ns since the file began.
        tim: u64 = must us "tim",
        /// The connection.
        conn: Option<u64> = may number "conn",
        /// The statement's number in the server.
        q: Option<u64> = may number "q",
        /// The statement's number in the file.
        s: Option<u64> = may number "s",
        /// What for: a name of the table of waits in docs/VISIBILITY.md, or `binlog`.
        nam: Str<'a> = must text "nam",
        /// How long, in ns.
        ela: u64 = must us "ela",
        /// How many waits these are, which `ela` is the sum of; 1 if it is not told.
        x: Option<u64> = may number "x",
        /// The name's class.
        class: Option<Str<'a>> = may text "class",
        /// What it was about: `schema.table/index`.
        obj: Option<Str<'a>> = may word "obj",
        /// What of that was waited for, that another one has: `row`, `key`, `range` and the like.
        lock: Option<Str<'a>> = may text "lock",
        /// Which row or key, as `KEY_TEXT` of the table of lock waits in docs/VISIBILITY.md.
        key: Option<Str<'a>> = may text "key",
        /// The connection of who had it when the wait began; 0: a transaction without one.
        by: Option<u64> = may number "by",
        /// So many besides had it, too.
        others: Option<u64> = may number "others",
        /// Their connections, the first of them.
        with: Option<Vec<u64>> = may numbers "with",
        /// So many came to have it while it was waited for.
        later: Option<u64> = may number "later",
        /// Their connections, in order, the first of them.
        then: Option<Vec<u64>> = may numbers "then",
        /// The file's number: see [`File`].
        file: Option<u64> = may number "file",
        /// The first block, in units of [`BLOCK_BYTES`].
        block: Option<u64> = may number "block",
        /// How many blocks of [`BLOCK_BYTES`].
        blocks: Option<u64> = may number "blocks",
        /// How many bytes.
        bytes: Option<u64> = may number "bytes",
        /// Where a read came from: `pagecache`, `device`, or what else is known.
        from: Option<Str<'a>> = may word "from",
        /// Processor time within it, in ns.
        cpu: Option<u64> = may us "cpu",
        /// Time ready but not run within it, in ns.
        ready: Option<u64> = may us "ready",
        /// It lies within another wait of the file, which comes after it: not to be added.
        within: bool = flag bit "in",
    }
}

line! {
    /// Calls of the engine; neighbours that are equal are one line.
    Call<'a> = "CALL" {
        /// When the first one came, ns since the file began.
        tim: u64 = must us "tim",
        /// The statement's number in the server.
        q: Option<u64> = may number "q",
        /// The statement's number in the file.
        s: Option<u64> = may number "s",
        /// The table: `schema.table`.
        tab: Option<Str<'a>> = may text "tab",
        /// The function of the server's handler interface.
        function: Str<'a> = must word "fn",
        /// How many times; 1 if it is not told.
        x: Option<u64> = may number "x",
        /// `end_bulk_insert`: buffers that were written full.
        full: Option<u64> = may number "full",
        /// `end_bulk_insert`: writes past the buffer.
        past: Option<u64> = may number "past",
        /// `end_bulk_insert`: buffers that were written at the end.
        last: Option<u64> = may number "last",
    }
}

line! {
    /// There were more calls than are written.
    Calls = "CALLS" {
        /// How many lines are missing.
        dropped: Option<u64> = may number "dropped",
        /// The statement's number in the server.
        q: Option<u64> = may number "q",
        /// The statement's number in the file.
        s: Option<u64> = may number "s",
    }
}

line! {
    /// A row of the server's plan; the first one is the heading.
    Plan<'a> = "PLAN" {
        /// The statement's number in the server.
        q: Option<u64> = may number "q",
        /// The statement's number in the file.
        s: Option<u64> = may number "s",
        /// Columns with tabs between them, as in the slow log's explain.
        text: Option<Str<'a>> = may text "text",
        /// The server had none to show.
        none: bool = flag bit "none",
    }
}

line! {
    /// A statement has ended. All times are ns; without a note they are of the session's thread.
    End<'a> = "END" {
        /// The statement's number in the server.
        q: u64 = must number "q",
        /// The statement's number in the file.
        s: Option<u64> = may number "s",
        /// When it ended, ns since the file began.
        tim: u64 = must us "tim",
        /// How long it took.
        ela: u64 = must us "ela",
        /// Processor time over the whole statement.
        cpu: Option<u64> = may us "cpu",
        /// Of `cpu` outside of waits, what the engine took.
        engine: Option<u64> = may us "engine",
        /// Ready but not run, over the whole statement.
        ready: Option<u64> = may us "ready",
        /// Of `cpu`, what lies within waits that lie in no other one.
        waits_cpu: Option<u64> = may us "waits_cpu",
        /// Of `ready`, what lies within waits that lie in no other one.
        waits_ready: Option<u64> = may us "waits_ready",
        /// Rows sent to the client.
        rows: Option<u64> = may number "rows",
        /// Rows changed.
        changed: Option<u64> = may number "changed",
        /// From the statement's begin to its first row.
        first_row: Option<u64> = may us "first_row",
        /// The server's number of the error it ended with.
        err: Option<u64> = may number "err",
        /// It was killed.
        killed: bool = flag bit "killed",
        /// Events that were written.
        events: Option<u64> = may number "events",
        /// Events that were not: lines with `x` have their sums.
        dropped: Option<u64> = may number "dropped",
        /// Of `cpu`, what tracing took.
        overhead: Option<u64> = may us "overhead",
        /// Blocks that were in Esker's cache.
        blocks_cached: Option<u64> = may number "blocks_cached",
        /// Blocks that were not.
        blocks_missed: Option<u64> = may number "blocks_missed",
        /// Blocks that were read along with one that was wanted, by the same call.
        blocks_ahead: Option<u64> = may number "blocks_ahead",
        /// The server's passes of merging sorted pieces.
        merge_passes: Option<u64> = may number "merge_passes",
        /// The server's temporary tables on disk.
        tmp_disk_tables: Option<u64> = may number "tmp_disk_tables",
        /// Their bytes.
        tmp_disk_bytes: Option<u64> = may number "tmp_disk_bytes",
        /// What other threads took for this statement.
        worker: Option<u64> = may us "worker",
        /// How it was committed, in words.
        commit: Option<Str<'a>> = may text "commit",
    }
}

line! {
    /// Tracing stopped by itself.
    Lost<'a> = "LOST" {
        /// When, ns since the file began.
        tim: Option<u64> = may us "tim",
        /// Why: a full disk, the greatest size.
        why: Option<Str<'a>> = may text "why",
    }
}

/// A line of the file. [`fmt::Display`] writes it without its end of line; so do the structs by themselves.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)] // each is said at its struct
#[allow(clippy::large_enum_variant)] // it lives for one line
pub enum Line<'a> {
    Trace(Trace<'a>),
    Statement(Statement<'a>),
    File(File<'a>),
    Wait(Wait<'a>),
    Call(Call<'a>),
    Calls(Calls),
    Plan(Plan<'a>),
    End(End<'a>),
    Lost(Lost<'a>),
    /// Of a keyword that is not known here: the whole line; empty for an empty one.
    Other(Str<'a>),
}

impl<'a> Line<'a> {
    /// Reads a line, without its end of line. What has no escapes is borrowed.
    ///
    /// # Errors
    /// What is wrong with it, and at which byte; a line without a key that must be there is told at byte 1.
    pub fn parse(line: &'a str) -> Result<Line<'a>, ParseError> {
        let Some((keyword, pairs)) = keyword(line)? else { return Ok(Line::Other("".into())) };
        Ok(match keyword {
            "TRACE" => Line::Trace(Trace::read(pairs)?),
            "STATEMENT" => Line::Statement(Statement::read(pairs)?),
            "FILE" => Line::File(File::read(pairs)?),
            "WAIT" => Line::Wait(Wait::read(pairs)?),
            "CALL" => Line::Call(Call::read(pairs)?),
            "CALLS" => Line::Calls(Calls::read(pairs)?),
            "PLAN" => Line::Plan(Plan::read(pairs)?),
            "END" => Line::End(End::read(pairs)?),
            "LOST" => Line::Lost(Lost::read(pairs)?),
            _ => Line::Other(line.into()),
        })
    }

    /// The same line, borrowing nothing.
    #[must_use]
    pub fn into_owned(self) -> Line<'static> {
        match self {
            Line::Trace(line) => line.owned(),
            Line::Statement(line) => line.owned(),
            Line::File(line) => line.owned(),
            Line::Wait(line) => line.owned(),
            Line::Call(line) => line.owned(),
            Line::Calls(line) => line.owned(),
            Line::Plan(line) => line.owned(),
            Line::End(line) => line.owned(),
            Line::Lost(line) => line.owned(),
            Line::Other(line) => Line::Other(text::own(line)),
        }
    }
}

impl FromStr for Line<'static> {
    type Err = ParseError;

    fn from_str(line: &str) -> Result<Self, ParseError> {
        Line::parse(line).map(Line::into_owned)
    }
}

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Line::Trace(line) => line.fmt(f),
            Line::Statement(line) => line.fmt(f),
            Line::File(line) => line.fmt(f),
            Line::Wait(line) => line.fmt(f),
            Line::Call(line) => line.fmt(f),
            Line::Calls(line) => line.fmt(f),
            Line::Plan(line) => line.fmt(f),
            Line::End(line) => line.fmt(f),
            Line::Lost(line) => line.fmt(f),
            Line::Other(line) => f.write_str(line),
        }
    }
}
