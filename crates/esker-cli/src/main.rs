//! The command `esker`: looks into a data folder without changing it, tells where a traced session's time went, and
//! measures storage (`esker lab`, a crate of its own). Owns the arguments and the exit code; each subcommand has a module of its own.
//!
//! Exit codes: 0 all is well, 2 damage was found, 1 anything else (wrong arguments, folder in use, no such table); the
//! lab's are its own.

mod check;
mod dump;
mod failure;
mod folder;
mod info;
mod text;
mod trace;
mod wal;

use clap::{Args, Parser, Subcommand};
use failure::Failure;
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;

const EXIT_CODES: &str = "\
Exit codes:
  0  all is well
  1  it could not be done: wrong arguments, the folder is in use, no such table, an I/O error
  2  damage was found; file and byte offset are named

The folder is only read: what the log holds beyond the files is replayed in memory. It is locked meanwhile, so that no
server changes it; a server that has it open must be stopped first.";

const TRACE_EXIT_CODES: &str = "\
Exit codes:
  0  all is well; lines that are cut or broken are warnings of the report
  1  it could not be done: wrong arguments, a file that cannot be read or is no trace, no statement of that query id";

/// Looks into an Esker data folder, tells where a session's time went, and measures what a machine's storage does for a database.
#[derive(Parser)]
#[command(name = "esker", version, after_help = EXIT_CODES, arg_required_else_help = true)]
struct Command {
    #[command(subcommand)]
    job: Job,
}

#[derive(Subcommand)]
#[allow(clippy::large_enum_variant)] // there is one
enum Job {
    /// Reads and verifies manifest, log and every block of the tables
    #[command(after_help = EXIT_CODES)]
    Check {
        #[command(flatten)]
        folder: FolderOptions,
        /// Tables to check, as 'esker info' names them; all if none is given
        #[arg(value_name = "TABLE")]
        tables: Vec<String>,
    },
    /// Tells what is in the folder: tables, rows, runs, sizes, log positions, prepared transactions; warns of runs that are missing
    #[command(after_help = EXIT_CODES)]
    Info {
        #[command(flatten)]
        folder: FolderOptions,
    },
    /// Prints a table's committed rows, one a line: row id and the columns' stored bytes
    ///
    /// Text is printed as it is, with \t, \n, \r and \\ for the characters that would break the line; NULL as \N;
    /// everything else, text that begins with 0x too, and all columns of fixed width (numbers, dates), as 0x and hexadecimal
    /// digits in stored order.
    /// With --json a line is {"row":1,"values":["text",{"hex":"0100"},null]}.
    #[command(after_help = EXIT_CODES)]
    Dump {
        #[command(flatten)]
        folder: FolderOptions,
        /// The table, as 'esker info' names it
        table: String,
        /// Prints at most so many rows
        #[arg(long, value_name = "N")]
        limit: Option<u64>,
    },
    /// Prints the log's records, one a line, from where a restart would begin to replay
    #[command(after_help = EXIT_CODES)]
    Wal {
        #[command(flatten)]
        folder: FolderOptions,
        /// Begins at this position, which must be a record's, if the log still reaches back so far
        #[arg(long, value_name = "LSN")]
        from: Option<u64>,
        /// Prints at most so many records
        #[arg(long, value_name = "N")]
        limit: Option<u64>,
    },
    /// Tells where the time of a session's statements went, from the trace files that the server wrote
    ///
    /// The session was traced by the server (SET esker_trace): this reads its files and shows, of each statement, what it
    /// waited for, the processor's time, and what is unaccounted for. docs/TRACE.md says how to read it. Another thing is
    /// 'esker lab trace', which itself reads a file and times each read, to tell what the storage does; no server is in it.
    #[command(after_help = TRACE_EXIT_CODES)]
    Trace(trace::Options),
    /// Measures what this machine's storage does for a database
    #[command(subcommand)]
    Lab(esker_lab::Lab),
}

#[derive(Args)]
struct FolderOptions {
    /// The data folder: the one with the file MANIFEST
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Prints JSON for programs
    #[arg(long)]
    json: bool,
}

fn run(job: &Job, out: &mut dyn Write) -> Result<(), Failure> {
    match job {
        Job::Check { folder, tables } => check::run(&folder.dir, tables, folder.json, out),
        Job::Info { folder } => info::run(&folder.dir, folder.json, out),
        Job::Dump { folder, table, limit } => dump::run(&folder.dir, table, *limit, folder.json, out),
        Job::Wal { folder, from, limit } => wal::run(&folder.dir, *from, *limit, folder.json, out),
        Job::Trace(options) => trace::run(options, out),
        Job::Lab(lab) => {
            esker_lab::report::built_from(option_env!("ESKER_COMMIT"));
            match esker_lab::run(lab, out)? {
                esker_lab::Verdict::Good => Ok(()),
                verdict => Err(Failure::Lab(verdict)),
            }
        }
    }
}

/// Says what is wrong with the arguments, or prints the help or the version, which are no errors. Clap's own code for wrong
/// arguments, 2, is taken by damage.
fn say(told: &clap::Error) -> ExitCode {
    let wrong = told.use_stderr();
    match told.print() {
        Err(e) if !wrong => fail(&Failure::Output(e)),
        _ => ExitCode::from(u8::from(wrong)),
    }
}

/// Tells why it did not end well, if that is news.
fn fail(failure: &Failure) -> ExitCode {
    if failure.is_news() {
        let _ = writeln!(std::io::stderr(), "esker: {}", text::line(failure));
    }
    ExitCode::from(failure.exit_code())
}

fn main() -> ExitCode {
    let command = match Command::try_parse() {
        Ok(command) => command,
        Err(told) => return say(&told),
    };
    let mut out = BufWriter::new(std::io::stdout().lock());
    let result = run(&command.job, &mut out).and_then(|()| Ok(out.flush()?));
    let Err(failure) = result else {
        return ExitCode::SUCCESS;
    };
    // What came before the failure is worth having; whether it can be written is no news any more.
    let _ = out.flush();
    fail(&failure)
}
