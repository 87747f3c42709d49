//! Esker inside a program: loads a table in one transaction, scans it, and says how fast both went.
//!
//! `cargo run --release -p esker --example embedded -- [ROWS] [DIR]`: a million rows, and a folder under the system's
//! temporary folder that is removed at the end, unless told otherwise.

use esker::{Engine, Notify, Options, PosixDisk, Schema, Table, Type};
use std::error::Error;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

const TABLE: &str = "events";
/// Rows between two looks at the clock.
const STRIDE: u64 = 10_000;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let rows: u64 = args.next().map_or(Ok(1_000_000), |n| n.parse())?;
    let wanted = args.next().map(PathBuf::from);
    let dir = match &wanted {
        Some(dir) => dir.clone(),
        None => std::env::temp_dir().join(format!("esker-embedded-{}", std::process::id())),
    };
    let result = work(&dir, rows);
    if wanted.is_none() {
        std::fs::remove_dir_all(&dir)?;
    }
    result
}

fn work(dir: &Path, rows: u64) -> Result<(), Box<dyn Error>> {
    let log: Notify = Arc::new(|message, level| eprintln!("{level:?}: {message}"));
    let engine = Engine::open(Arc::new(PosixDisk::with_uring(8)), dir, Options::default(), log)?;
    if engine.tables().iter().any(|t| t == TABLE) {
        engine.drop_table(TABLE)?;
    }
    let schema = Schema::new().column("at", Type::U64).column("host", Type::Text(16)).nullable("what", Type::Text(200));
    let table = engine.create(TABLE, &schema)?;
    load(&engine, &table, rows)?;
    scan(&engine, &table)?;
    engine.close()?;
    let stats = table.stats();
    println!("{} runs, {} MB on disk", stats.runs, stats.data_bytes / 1_000_000);
    Ok(())
}

/// Inserts all rows in one transaction: what is large becomes runs, written once, while the loop goes on.
fn load(engine: &Engine, table: &Arc<Table>, rows: u64) -> Result<(), Box<dyn Error>> {
    let mut session = engine.session();
    let mut progress = Progress::new("load");
    let mut bytes = 0;
    for n in 0..rows {
        let host = format!("host-{}", n % 100);
        let what = (n % 10 != 0).then(|| format!("request {n} answered in {} us", n * 7919 % 100_000));
        bytes += 8 + host.len() as u64 + what.as_ref().map_or(0, |w| w.len() as u64);
        session.insert(table, &[n.into(), (&host).into(), what.as_ref().into()])?;
        if n % STRIDE == 0 {
            progress.tell(n, Some(rows))?;
        }
    }
    session.commit()?;
    progress.end(rows, bytes)
}

/// Reads every row.
fn scan(engine: &Engine, table: &Arc<Table>) -> Result<(), Box<dyn Error>> {
    let mut session = engine.session();
    let mut progress = Progress::new("scan");
    let mut rows = session.rows(table)?;
    let (mut count, mut bytes) = (0, 0);
    while let Some(row) = rows.next()? {
        count += 1;
        bytes += row.packed().len() as u64;
        if count % STRIDE == 0 {
            progress.tell(count, None)?;
        }
    }
    session.commit()?;
    progress.end(count, bytes)
}

/// A line on the terminal that says how far it is, ten times a second.
struct Progress {
    what: &'static str,
    started: Instant,
    told: Instant,
}

impl Progress {
    fn new(what: &'static str) -> Self {
        let now = Instant::now();
        Progress { what, started: now, told: now }
    }

    fn tell(&mut self, rows: u64, of: Option<u64>) -> std::io::Result<()> {
        let mut out = std::io::stderr();
        if self.told.elapsed() < Duration::from_millis(100) || !out.is_terminal() {
            return Ok(());
        }
        self.told = Instant::now();
        let share = of.map_or(String::new(), |of| format!(", {}%", rows * 100 / of.max(1)));
        write!(out, "\r{}: {rows} rows{share} ", self.what)?;
        out.flush()
    }

    fn end(&self, rows: u64, bytes: u64) -> Result<(), Box<dyn Error>> {
        let seconds = self.started.elapsed().as_secs_f64().max(1e-9);
        if std::io::stderr().is_terminal() {
            eprint!("\r\x1b[K");
        }
        let (millions, mb) = (rows as f64 / seconds / 1e6, bytes as f64 / seconds / 1e6);
        println!("{}: {rows} rows in {seconds:.2} s, {millions:.2} million rows and {mb:.0} MB a second", self.what);
        Ok(())
    }
}
