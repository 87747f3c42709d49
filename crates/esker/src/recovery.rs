//! Opening a folder: manifest, log, runs.
//!
//! The manifest says what there was at a position of the log; the log from there on is replayed (`replay.rs`). Only then is
//! removed what nothing refers to (`orphans.rs`), and prepared transactions get their place back (`prepared.rs`). Nothing is
//! undone: the log holds only what was committed or prepared. No run is read but those of prepared transactions.

mod count;
mod known;
mod orphans;
mod prepared;
mod replay;
mod tree;

use crate::catalog::auto_increment::AutoIncrement;
use crate::catalog::live_rows::LiveRows;
use crate::catalog::table::{index_columns, indexes_of, key_shape, key_trees, Table, Trees};
use crate::core::{Core, CoreParts};
use crate::options::{Level, Notify, Options, Settings};
use crate::tree::key::ByBytes;
use crate::tree::run::cache::BlockCache;
use crate::tree::run::file::OpenedFiles;
use crate::tree::run::folder::RunFolder;
use crate::txn::commit::DECISION_BYTES;
use crate::upkeep::manifest::{self, MANIFEST};
use crate::upkeep::{background, checkpoint};
use crate::{Error, Result};
use esker_base::counters::{count, Counter};
use esker_format::{Collations, FileId, FolderId, IndexEntry, Lsn, Manifest, RowId, TableId, TreeId, TxnId};
use esker_io::{Disk, IoKind};
use esker_wal::Wal;
use replay::{Replay, Replayed};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tree::ReplayedTree;

/// A log begins here, so that no commit sequence is zero.
const FIRST_LSN: Lsn = Lsn(4096);

/// Opens the engine in `dir`, recovering what the last process left.
pub(crate) fn open(disk: Arc<dyn Disk>, dir: &Path, options: Options, notify: Notify) -> Result<Arc<Core>> {
    disk.create_dir(dir)?;
    let lock_guard = disk.lock(&dir.join("LOCK"))?;
    let (runs_dir, wal_dir) = (dir.join("runs"), dir.join("wal"));
    manifest::remove_fresh(&*disk, dir)?;
    let (manifest, torn, fresh) = match manifest::read(&*disk, dir)? {
        Some(file) => (file.manifest, file.torn, false),
        None => (first_manifest(&*disk, dir, &runs_dir)?, None, true),
    };
    let generation = manifest.generation;
    if generation == 1 {
        // A power cut in the first opening may have kept the manifest's name and not this one.
        disk.create_dir(&runs_dir)?;
    }
    keep_names(&*disk, dir, generation == 1)?;
    let mut replay = Replay::new(manifest, &dir.join(MANIFEST), &wal_dir)?;
    let host = options.host.clone();
    let started = host.now();
    // Only a folder whose first opening did not get to its second manifest may lack a log.
    let log = replay.run(&disk, &options, &notify, generation == 1).map_err(|e| match (e, &torn) {
        // The log was shortened after an edit that is not whole any more.
        (Error::LogMissing { .. }, Some((at, why))) => Error::damage(&dir.join(MANIFEST), *at, why.clone()),
        (e, _) => e,
    })?;
    if let Some((at, why)) = torn {
        let file = dir.join(MANIFEST);
        let text = "no whole edit, as a crash leaves it: the state before it and the log count";
        notify(&format!("{}, byte {at}: {why}; {text}", file.display()), Level::Warning);
    }
    replay.forget_temporary();
    // Each of those that are prepared gets the space of its end again.
    let credits = (replay.prepared.len(), DECISION_BYTES);
    let wal = log.begin(credits, &mut || orphans::remove(&replay, &*disk, &runs_dir).map(drop))?;
    tell_replayed(&wal, host.now() - started, (!fresh).then_some(&notify));
    tell_syncing(&wal, &notify);
    replay.prepared.keys().for_each(|txn| replay.ids.txn_seen(*txn));
    let there = orphans::remove(&replay, &*disk, &runs_dir)?;
    let cache = BlockCache::new(&disk, &runs_dir, &options);
    let (files, settings) = (OpenedFiles::new(&cache, there), Settings::of(&options));
    let runs = RunFolder::new(&disk, &runs_dir, replay.folder, &cache, &options, &settings);
    let Replay { folder, from, tables, ids, prepared, .. } = replay;
    let tables: BTreeMap<_, _> = tables
        .into_values()
        .map(|t| (t.entry.name.clone(), open_table(t, &runs, &files, &options.collations)))
        .collect();
    let dir = dir.to_owned();
    let core = Core::new(CoreParts {
        disk,
        dir,
        folder,
        options,
        settings,
        notify,
        wal,
        ids,
        runs,
        cache,
        tables,
        generation,
        lock_guard,
    });
    core.signals.set_replay_from(from);
    background::tell_unread(&core);
    prepared::bring_back(&core, prepared, &files)?;
    if generation == 1 {
        checkpoint::write(&core)?;
    }
    Ok(core)
}

/// The log is replayed: counts it, and tells of it where there was one.
fn tell_replayed(wal: &Wal, time: Duration, notify: Option<&Notify>) {
    let found = wal.replayed();
    count(Counter::RecoveryRecords, found.frames);
    if let Some(notify) = notify.filter(|_| found.frames > 0) {
        let (frames, bytes, ms) = (found.frames, found.size_bytes, time.as_millis());
        notify(&format!("recovery: 100%, {frames} log frames, {bytes} bytes replayed in {ms} ms"), Level::Info);
    }
}

/// What a trial of the ways to sync has found, or that the one asked for is not to be had.
fn tell_syncing(wal: &Wal, notify: &Notify) {
    let syncing = wal.syncing();
    if let Some(found) = &syncing.found {
        let level = if syncing.refused { Level::Warning } else { Level::Info };
        notify(&format!("sync method of the log: {found}"), level);
    }
}

/// Refuses a folder without a manifest that holds data all the same.
pub(crate) fn holds_no_data(disk: &dyn Disk, dir: &Path) -> Result<()> {
    for holds in [dir.join("runs"), dir.join("wal")] {
        if disk.exists(&holds)? && !disk.list(&holds)?.is_empty() {
            return Err(Error::ManifestMissing { file: dir.join(MANIFEST), holds });
        }
    }
    Ok(())
}

/// Begins a new folder.
fn first_manifest(disk: &dyn Disk, dir: &Path, runs_dir: &Path) -> Result<Manifest> {
    holds_no_data(disk, dir)?;
    disk.create_dir(runs_dir)?;
    let manifest = Manifest {
        folder: FolderId(disk.fresh_id()),
        generation: 1,
        replay_from: FIRST_LSN,
        next_table: TableId(1),
        next_tree: TreeId(1),
        next_file: FileId(1),
        next_txn: TxnId(1),
        ..Manifest::default()
    };
    manifest::write_first(disk, dir, &manifest)?;
    Ok(manifest)
}

/// Makes durable what was found or made, before anything is built upon it: a process that died may have renamed the
/// manifest and not come to sync its folder, or made the folder itself.
fn keep_names(disk: &dyn Disk, dir: &Path, first: bool) -> Result<()> {
    disk.sync_dir(dir)?;
    if first {
        let mut above = dir.ancestors().skip(1).filter(|p| !p.as_os_str().is_empty());
        if let Some(parent) = above.next() {
            disk.sync_dir(parent)?;
        }
        for folder in above {
            // Made together with `dir`, or there since long and perhaps not ours to open.
            match disk.sync_dir(folder) {
                Err(e) if e.kind != IoKind::ReadOnly => return Err(e.into()),
                _ => {}
            }
        }
    }
    Ok(())
}

/// A table, and its trees with what was replayed of them.
fn open_table(mut t: Replayed, runs: &RunFolder, files: &OpenedFiles, collations: &Arc<dyn Collations>) -> Arc<Table> {
    let max_ids = t.rows.runs.values().flatten().map(|r| r.stats.max_id.next());
    t.next_row = max_ids.fold(t.next_row, RowId::max);
    let compression = t.entry.compression;
    let recipe = runs.recipe_of(t.rows.id, Table::row_shape(&t.entry), compression, !t.keys.is_empty());
    let rows = t.rows.open(&recipe, files, &t);
    let open = |(k, (_, index)): (&ReplayedTree<ByBytes>, (TreeId, &IndexEntry))| {
        k.open(&runs.recipe_of(k.id, key_shape(index), compression, true), files, &t)
    };
    let keys = t.keys.iter().zip(key_trees(&t.entry)).map(open).collect();
    let indexes: Vec<_> = indexes_of(&t.entry, collations).into_iter().map(Arc::new).collect();
    let trees = Trees {
        rows,
        keys,
        index_columns: index_columns(&t.entry.layout.layout, &indexes),
        indexes,
        auto_increment: Arc::new(AutoIncrement::new(t.next_auto_increment)),
        live: LiveRows::new(t.count.rows, t.count.seq, t.count.known),
    };
    trees.learn(std::mem::take(&mut t.statistics));
    Table::new(&t.entry, trees)
}

#[cfg(test)]
mod tests;
