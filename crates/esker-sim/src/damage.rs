//! Damage: bytes of a file change behind the engine's back. It names the file, or reads the rows right; it never gives
//! a wrong row, and other tables go on.

use crate::model::{Row, State};
use crate::recover::rows_differ;
use crate::sim::{small_options, Config, Failure, Flow, Sim, Stats, FOLDER};
use crate::Rng;
use esker::io::{Disk, SimDisk};
use esker::{Engine, Error};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Builds a folder on one seed and damages copies of it in `tries` ways.
pub fn damage_seed(seed: u64, tries: u64, hold: &mut Option<Sim>) -> Result<Stats, Failure> {
    let mut chance = Rng::new(seed ^ 0xDA4A);
    let sim = hold.insert(Sim::new(seed, Config { most_rows: 800, ..Config::default() }));
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
        let (path, what) = harm(&disk, &mut chance)?;
        sim.note(|| what.clone());
        sim.stats.faults += 1;
        judge(sim, &disk, &path, &state, &torn).map_err(|f| Failure(format!("{what}: {}", f.0)))?;
    }
    Ok(sim.stats)
}

/// Changes some bytes of some file.
fn harm(disk: &SimDisk, chance: &mut Rng) -> Result<(PathBuf, String), Failure> {
    let folder = Path::new(FOLDER);
    let mut files = Vec::new();
    for part in ["runs", "runs", "wal", ""] {
        for entry in disk.list(&folder.join(part))?.into_iter().filter(|e| !e.is_dir && e.size_bytes > 0) {
            files.push((folder.join(part).join(&entry.name), entry.size_bytes));
        }
    }
    let (path, size) = chance.pick(&files).clone();
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
    disk.damage(&path, offset, &xor)?;
    let what = format!("damage of {} bytes at {offset} of {} ({size} bytes)", xor.len(), path.display());
    Ok((path, what))
}

fn judge(sim: &mut Sim, disk: &SimDisk, path: &Path, state: &State, torn: &[State]) -> Result<(), Failure> {
    let opened = Engine::open(Arc::new(disk.clone()), Path::new(FOLDER), small_options(), Arc::new(|_, _| {}));
    let engine = match opened {
        Ok(engine) => engine,
        Err(e) => return names_it(&e, path),
    };
    sim.engine = Some(engine);
    let result = judge_open(sim, path, state, torn);
    sim.drop_engine();
    result
}

fn judge_open(sim: &mut Sim, path: &Path, state: &State, torn: &[State]) -> Result<(), Failure> {
    let engine = sim.engine()?.clone();
    let mut whole = BTreeMap::new();
    let log = path.parent().is_some_and(|p| p.ends_with("wal"));
    let names = engine.tables();
    if !log && names != state.tables.keys().cloned().collect::<Vec<_>>() {
        return sim.fail(format!("tables are {names:?}"));
    }
    for name in names {
        let known = std::iter::once(state).chain(torn).find_map(|s| s.tables.get(&name));
        let Some(table) = known else { return sim.fail(format!("table {name} came from nowhere")) };
        match sim.read_committed(&name, table.kind) {
            Ok(rows) => drop(whole.insert(name, rows)),
            Err(e) => names_it(&e, path)?,
        }
    }
    let wrong = |state: &State| {
        whole.iter().find_map(|(name, rows)| {
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
    write_one(sim, whole.keys().next())?;
    match engine.checkpoint() {
        Ok(()) => {}
        Err(e) => names_it(&e, path)?,
    }
    for name in engine.tables() {
        let table = engine.open_table(&name).map_err(|e| Failure::new(e.to_string()))?;
        match engine.check(&table, &mut |_, _| true) {
            Ok(report) => report.damages.iter().try_for_each(|e| names_it(e, path))?,
            Err(e) => names_it(&e, path)?,
        }
    }
    for (name, rows) in &whole {
        let Some(table) = state.tables.get(name) else { continue };
        match sim.read_committed(name, table.kind) {
            Ok(now) if now.len() >= rows.len() => {}
            Ok(now) => {
                return sim.fail(format!("{name} had {} rows, and {} after a checkpoint", rows.len(), now.len()))
            }
            Err(e) => names_it(&e, path)?,
        }
    }
    Ok(())
}

fn write_one(sim: &mut Sim, name: Option<&String>) -> Result<(), Failure> {
    let Some(name) = name else { return Ok(()) };
    let engine = sim.engine()?.clone();
    let table = engine.open_table(name).map_err(|e| Failure::new(e.to_string()))?;
    let kind = sim.model.base.tables.get(name).map_or(0, |t| t.kind);
    let row: Row = sim.kinds[kind].row(&mut Rng::new(7))?.into();
    let mut session = engine.session();
    let written = session.insert_row(&table, &row).and_then(|_| session.commit());
    written.map_err(|e| Failure::new(format!("a sound table cannot be written: {e}")))
}

/// The error is about damage and says in which file.
fn names_it(e: &Error, path: &Path) -> Result<(), Failure> {
    let file = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let text = e.to_string();
    let fitting =
        matches!(e, Error::Damage { .. } | Error::NewerFormat { .. } | Error::Io(_) | Error::InvalidArgument(_));
    if fitting && text.contains(&file) {
        return Ok(());
    }
    Err(Failure(format!("the error does not name {file}: {text} ({e:?})")))
}
