//! The session trace of the Esker storage engine: what a session's statements did and waited for, event by event.
//!
//! Owns the file's [`format`], and the report of `esker trace`: [`read`] makes one of a file, in memory that grows with
//! what is shown and not with the events; [`text`], [`json`] and [`html`] print it. It depends on nothing of the engine:
//! the server's plugin prints lines with it, without the feature `report`.

pub mod format;

#[cfg(feature = "report")]
mod calls;
#[cfg(feature = "report")]
mod early;
#[cfg(feature = "report")]
mod gather;
#[cfg(feature = "report")]
pub mod html;
#[cfg(feature = "report")]
mod lines;
#[cfg(feature = "report")]
mod modes;
#[cfg(feature = "report")]
pub mod plan;
#[cfg(feature = "report")]
pub mod report;
#[cfg(feature = "report")]
mod statement;
#[cfg(feature = "report")]
pub mod text;
#[cfg(feature = "report")]
mod times;
#[cfg(feature = "report")]
mod top;
#[cfg(feature = "report")]
mod waits;
#[cfg(feature = "report")]
mod words;

/// What of a file is wanted.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Only statements of this number of the server are shown in full.
    pub query: Option<u64>,
    /// So many of the slowest statements are shown in full.
    pub top: usize,
}

/// Reads a file, as a stream.
///
/// # Errors
/// When it cannot be read. What is wrong in it is told in the report.
#[cfg(feature = "report")]
pub fn read(name: &str, input: &mut dyn std::io::BufRead, options: &Options) -> std::io::Result<report::File> {
    Ok(report::File::new(name, &gather::gather(input, options)?))
}

/// The report for programs, of one or several files.
///
/// # Errors
/// None that is known: a report has nothing that JSON cannot say.
#[cfg(feature = "report")]
pub fn json(files: &[report::File]) -> serde_json::Result<String> {
    #[derive(serde::Serialize)]
    struct Report<'a> {
        schema: &'static str,
        schema_version: u32,
        files: &'a [report::File],
    }
    serde_json::to_string(&Report { schema: "esker-trace", schema_version: report::SCHEMA_VERSION, files })
}
