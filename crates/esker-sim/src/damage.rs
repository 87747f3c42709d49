//! Damage: bytes of a file change behind the engine's back, sectors are lost or stale, files are cut short, swapped or
//! missing. The engine names the file, or reads the rows right; it never gives a wrong row, and other tables go on. A bad
//! run never keeps it from opening.

use crate::keys::{trees, write_entries, Rewrite};
use crate::model::{Row, State};
use crate::recover::rows_differ;
use crate::sim::{Config, Failure, Flow, Sim, Stats, FOLDER};
use crate::Rng;
use esker::io::{Disk, IoKind, SimDisk};
use esker::{Engine, Error};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

const SECTOR: u64 = 512;
const MANIFEST: &str = "MANIFEST";

/// Builds a folder on one seed and damages copies of it in `tries` ways.
pub fn damage_seed(seed: u64, tries: u64, hold: &mut Option<Sim>) -> Result<Stats, Failure> {
    let mut chance = Rng::new(seed ^ 0xDA4A);
    let sim = hold.insert(Sim::new(seed, Config { most_rows: 800, ..Config::default() }));
    sim.disk.keep_old_sectors(true);
    sim.reopen()?;
    sim.run(90)?;
    sim.settle()?;
    sim.run(8)?;
    // With a tail of the log, or with all in runs.
    if chance.chance(50) && sim.clean_restart()? == Flow::Stop {
        return sim.fail("the engine does not open after a clean end");
    }
    sim.kill();
    let good = sim.disk.snapshot();
    // The last frames of a log, damaged, look like a write that power loss has torn.
    let torn: Vec<State> = (sim.model.durable_before..=sim.model.events.len()).map(|n| sim.model.state(n)).collect();
    if sim.reopen()? == Flow::Stop {
        return sim.fail("the engine does not open");
    }
    let state = sim.model.base.clone();
    sim.drop_engine();
    for _ in 0..tries {
        let disk = good.snapshot();
        let (paths, what) = harm(&disk, &mut chance)?;
        sim.note(|| what.clone());
        sim.stats.faults += 1;
        judge(sim, &disk, &paths, &state, &torn).map_err(|f| Failure(format!("{what}: {}", f.0)))?;
    }
    Ok(sim.stats)
}

/// A file of the folder.
struct Victim {
    path: PathBuf,
    size: u64,
    /// A run's file; the others are the log's and the manifest.
    run: bool,
}

fn victims(disk: &SimDisk) -> Result<Vec<Victim>, Failure> {
    let folder = Path::new(FOLDER);
    let mut files = Vec::new();
    for part in ["runs", "wal", ""] {
        for entry in disk.list(&folder.join(part))?.into_iter().filter(|e| !e.is_dir && e.size_bytes > 0) {
            let path = folder.join(part).join(&entry.name);
            files.push(Victim { path, size: entry.size_bytes, run: part == "runs" });
        }
    }
    Ok(files)
}

/// Harms some file, in some way; which, and how.
fn harm(disk: &SimDisk, chance: &mut Rng) -> Result<(Vec<PathBuf>, String), Failure> {
    let files = victims(disk)?;
    let runs: Vec<&Victim> = files.iter().filter(|f| f.run).collect();
    // Every second time a run, if there is one.
    let victim = if chance.chance(50) && !runs.is_empty() { *chance.pick(&runs) } else { chance.pick(&files) };
    let (path, size) = (victim.path.clone(), victim.size);
    let name = path.display().to_string();
    // Of the log only single sectors: what lacks at its end was never written, as far as anybody can know.
    let what = match chance.below(if victim.run { 10 } else { 6 }) {
        0..=2 => {
            let (offset, bytes) = flip(disk, &path, size, chance)?;
            format!("{bytes} bytes flipped at {offset} of {name} ({size} bytes)")
        }
        3 if !victim.run => {
            let at = chance.below(size.div_ceil(SECTOR)) * SECTOR;
            let stale = disk.stale_sector(&path, at)?;
            format!("sector at {at} of {name} is as it was before: {stale}")
        }
        5 if path.ends_with(MANIFEST) => {
            disk.lose_file(&path)?;
            format!("{name} lost")
        }
        3..=5 => {
            let at = chance.below(size.div_ceil(SECTOR)) * SECTOR;
            let sectors = if victim.run { 1 + chance.below(4) } else { 1 };
            disk.zero_sectors(&path, at, sectors)?;
            format!("{sectors} sectors of zeros at {at} of {name}")
        }
        6 => {
            let (a, b) = (chance.below(size / SECTOR + 1) * SECTOR, chance.below(size / SECTOR + 1) * SECTOR);
            let bytes = (2 * SECTOR).min(size - a.max(b));
            disk.swap_bytes((&path, a), (&path, b), bytes)?;
            format!("{bytes} bytes at {a} and {b} of {name} swapped")
        }
        7 => {
            let left = chance.below(size);
            disk.cut_short(&path, left)?;
            format!("{name} cut short from {size} to {left} bytes")
        }
        8 if chance.chance(50) => {
            let end = size.min(1 + chance.below(size));
            disk.fail_reads_of(&path, chance.below(end)..end, IoKind::Failed)?;
            format!("{name} cannot be read before {end}, for ever")
        }
        8 => {
            disk.lose_file(&path)?;
            format!("{name} lost")
        }
        _ => {
            let other = chance.pick(&runs).path.clone();
            disk.swap_files(&path, &other)?;
            let what = format!("{name} and {} swapped", other.display());
            return Ok((vec![path, other], what));
        }
    };
    Ok((vec![path], what))
}

fn flip(disk: &SimDisk, path: &Path, size: u64, chance: &mut Rng) -> Result<(u64, usize), Failure> {
    // Ends and beginnings are worth more than their share.
    let offset = match chance.below(4) {
        0 => chance.below(size.min(64)),
        1 => size - 1 - chance.below(size.min(64)),
        _ => chance.below(size),
    };
    let xor: Vec<u8> = match chance.below(3) {
        0 => vec![1 << chance.below(8)],
        1 => (0..=chance.below(16)).map(|_| chance.number() as u8 | 1).collect(),
        _ => vec![0xFF; 1 + chance.below(600) as usize],
    };
    disk.damage(path, offset, &xor)?;
    Ok((offset, xor.len()))
}

fn judge(sim: &mut Sim, disk: &SimDisk, paths: &[PathBuf], state: &State, torn: &[State]) -> Result<(), Failure> {
    let options = sim.config.options.clone();
    let opened = Engine::open(Arc::new(disk.clone()), Path::new(FOLDER), options, Arc::new(|_, _| {}));
    let engine = match opened {
        Ok(engine) => engine,
        Err(e) if of_runs(paths) => return sim.fail(format!("a bad run keeps the engine from opening: {e}")),
        Err(e) => return names_it(&e, paths),
    };
    if paths.iter().any(|p| p.ends_with(MANIFEST) && !disk.exists(p).unwrap_or(true)) {
        return sim.fail("a folder without its manifest opens");
    }
    sim.engine = Some(engine);
    let result = judge_open(sim, paths, state, torn);
    sim.drop_engine();
    result
}

fn judge_open(sim: &mut Sim, paths: &[PathBuf], state: &State, torn: &[State]) -> Result<(), Failure> {
    let engine = sim.engine()?.clone();
    let (mut whole, mut rows_only) = (BTreeMap::new(), BTreeMap::new());
    let log = paths.iter().any(|p| p.parent().is_some_and(|p| p.ends_with("wal")));
    let names = engine.tables();
    if !log && names != state.tables.keys().cloned().collect::<Vec<_>>() {
        return sim.fail(format!("tables are {names:?}"));
    }
    for name in names {
        let known = std::iter::once(state).chain(torn).find_map(|s| s.tables.get(&name));
        let Some(table) = known else { return sim.fail(format!("table {name} came from nowhere")) };
        let rows = match sim.read_rows(&name, table.kind) {
            Ok(rows) => Some(rows),
            Err(e) => names_it(&e, paths).map(|()| None)?,
        };
        // Entries are right by themselves, too, where the rows cannot be read.
        let known_rows = state.tables.get(&name).filter(|_| !log).map(|t| &t.rows);
        let keys = match rows.as_ref().or(known_rows) {
            Some(rows) => sim.committed_keys_differ(&name, table.kind, rows),
            None => Ok(None),
        };
        match (keys, rows) {
            (Ok(Some(why)), _) => return sim.fail(format!("{name} was read wrong: {why}")),
            (Ok(None), Some(rows)) => drop(whole.insert(name, rows)),
            (Ok(None), None) => {}
            (Err(e), rows) => {
                names_it(&e, paths)?;
                sim.stats.keys_damaged += 1;
                rows_only.extend(rows.map(|rows| (name, rows)));
            }
        }
    }
    let wrong = |state: &State| {
        whole.iter().chain(&rows_only).find_map(|(name, rows)| {
            let table = state.tables.get(name)?;
            rows_differ(rows, &table.rows).map(|why| format!("{name} was read wrong: {why}"))
        })
    };
    if let Some(why) = wrong(state) {
        if !log || torn.iter().all(|t| wrong(t).is_some()) {
            return sim.fail(why);
        }
    }
    // Damage found or not, the engine goes on: sound tables can be written, and background work loses nothing.
    if let Some((name, rows)) = whole.iter_mut().next() {
        write_one(sim, name, rows, paths)?;
    }
    match engine.checkpoint() {
        Ok(()) => {}
        Err(e) => names_it(&e, paths)?,
    }
    for name in engine.tables() {
        let table = engine.open_table(&name).map_err(|e| Failure::new(e.to_string()))?;
        match engine.check(&table, &mut |_, _| true) {
            Ok(report) => report.damages.iter().try_for_each(|e| names_it(e, paths))?,
            Err(e) => names_it(&e, paths)?,
        }
    }
    for (name, rows) in &whole {
        let Some(table) = state.tables.get(name) else { continue };
        match sim.read_committed(name, table.kind) {
            Ok(now) => {
                if let Some(why) = rows_differ(&now, rows) {
                    return sim.fail(format!("{name} after a checkpoint: {why}"));
                }
            }
            Err(e) => return sim.fail(format!("{name} could be read before a checkpoint, and now cannot: {e}")),
        }
    }
    Ok(())
}

/// Adds one row to a table that was found whole, and to what it must hold.
fn write_one(sim: &mut Sim, name: &str, rows: &mut BTreeMap<u64, Row>, paths: &[PathBuf]) -> Result<(), Failure> {
    let engine = sim.engine()?.clone();
    let table = engine.open_table(name).map_err(|e| Failure::new(e.to_string()))?;
    let kind = sim.model.base.tables.get(name).map_or(0, |t| t.kind);
    let mut session = engine.session();
    session.set_lock_wait(Duration::ZERO, true);
    let mut rng = Rng::new(7);
    let (row, written) = loop {
        let row: Row = sim.kinds[kind].row(&mut rng)?.into();
        match session.insert_row(&table, &row) {
            // Others have its keys.
            Err(Error::DuplicateKey { .. } | Error::WouldBlock) => {}
            // No view sees the runs of prepared transactions, but a unique key is looked for there, too.
            Err(e) if !engine.sim_indexes(&table).is_empty() => return names_it(&e, paths),
            written => break (row, written),
        }
    };
    let written = written.and_then(|id| {
        write_entries(&mut session, &table, trees(kind), Rewrite::insert(id.0, &row))?;
        session.commit().map(|()| id)
    });
    let id = written.map_err(|e| Failure::new(format!("a sound table cannot be written: {e}")))?;
    match rows.insert(id.0, row) {
        None => Ok(()),
        Some(_) => sim.fail(format!("row id {} of {name} was given out twice", id.0)),
    }
}

fn of_runs(paths: &[PathBuf]) -> bool {
    paths.iter().all(|p| p.parent().is_some_and(|p| p.ends_with("runs")))
}

/// The error is about damage and says in which file.
fn names_it(e: &Error, paths: &[PathBuf]) -> Result<(), Failure> {
    let names: Vec<String> = paths.iter().filter_map(|p| Some(p.file_name()?.to_string_lossy().into_owned())).collect();
    let text = e.to_string();
    let fitting = matches!(
        e,
        Error::Damage { .. }
            | Error::NewerFormat { .. }
            | Error::OlderFormat { .. }
            | Error::UnknownContent { .. }
            | Error::Io(_)
            | Error::ManifestMissing { .. }
    );
    if fitting && names.iter().any(|name| text.contains(name)) {
        return Ok(());
    }
    // A frame may go on in the next segment: what is damaged there shows where the frame begins.
    let segment = |path: &Path| path.file_stem()?.to_str()?.parse::<u64>().ok();
    let goes_on = |file: &Path| {
        let next = segment(file).map(|n| n + 1);
        file.extension().is_some_and(|x| x == "wal") && paths.iter().any(|p| next.is_some() && segment(p) == next)
    };
    if matches!(e, Error::Damage { file, .. } if goes_on(Path::new(file))) {
        return Ok(());
    }
    // A log that ends early, as far as anybody can know, names runs that what it has lost replaced, and that are gone.
    let of_log = paths.iter().any(|p| p.parent().is_some_and(|p| p.ends_with("wal")));
    if of_log
        && matches!(e, Error::Io(e) if e.kind == IoKind::NotFound && e.path.extension().is_some_and(|x| x == "run"))
    {
        return Ok(());
    }
    Err(Failure(format!("the error does not name {names:?}: {text} ({e:?})")))
}
