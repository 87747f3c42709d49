//! `esker trace`: where the time of a session's statements went, from the files that the server wrote.

use crate::failure::Failure;
use clap::Args;
use esker_lab::probe::host::{may_be_page, open_given};
use esker_trace::report::File;
use std::fs;
use std::io::{self, BufReader, Read, Write};
use std::path::{Path, PathBuf};

const BUFFER: usize = 1 << 20;

/// Options of the command.
#[derive(Args)]
pub struct Options {
    /// Files of traced sessions; - is the standard input
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Shows only the statements of this query id in full
    #[arg(long, value_name = "Q")]
    query: Option<u64>,
    /// Shows so many of the slowest statements in full
    #[arg(long, value_name = "N", default_value = "3", conflicts_with = "query")]
    top: usize,
    /// Prints JSON for programs; times are in ns
    #[arg(long, conflicts_with = "html")]
    json: bool,
    /// Writes one page of HTML to OUT instead; only a page is overwritten
    #[arg(long, value_name = "OUT")]
    html: Option<PathBuf>,
}

/// Reads the files and prints the report.
pub fn run(options: &Options, out: &mut dyn Write) -> Result<(), Failure> {
    if let Some(page) = &options.html {
        may_be_page(page).map_err(|e| Failure::Trace(e.to_string()))?;
    }
    let wanted = esker_trace::Options { query: options.query, top: options.top };
    let files = options.files.iter().map(|path| one(path, &wanted)).collect::<Result<Vec<File>, _>>()?;
    if let Some(query) = options.query.filter(|_| files.iter().all(|f| f.statements.is_empty())) {
        return Err(Failure::Trace(format!("no statement has the query id {query}")));
    }
    if let Some(path) = &options.html {
        let told = |e: io::Error| Failure::Trace(format!("cannot write {}: {e}", path.display()));
        return fs::write(path, esker_trace::html::page(&files)).map_err(told);
    }
    if options.json {
        let json = esker_trace::json(&files).map_err(|e| Failure::Trace(e.to_string()))?;
        return Ok(writeln!(out, "{json}")?);
    }
    for (i, file) in files.iter().enumerate() {
        let mut text = String::from(if i == 0 { "" } else { "\n" });
        esker_trace::text::print(file, &mut text).map_err(|e| Failure::Trace(e.to_string()))?;
        out.write_all(text.as_bytes())?;
    }
    Ok(())
}

fn one(path: &Path, wanted: &esker_trace::Options) -> Result<File, Failure> {
    let told = |e: io::Error| Failure::Trace(format!("cannot read {}: {e}", path.display()));
    let standard = path == Path::new("-");
    let input: Box<dyn Read> = if standard { Box::new(io::stdin()) } else { Box::new(open_given(path).map_err(told)?) };
    let name = if standard { "standard input".into() } else { path.display().to_string() };
    let file = esker_trace::read(&name, &mut BufReader::with_capacity(BUFFER, input), wanted).map_err(told)?;
    if file.is_empty() {
        return Err(Failure::Trace(format!("{name} is no session trace: no line of it is one of a trace")));
    }
    Ok(file)
}
