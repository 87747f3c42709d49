//! The manifest's file: a base, written anew beside the old one and renamed over it, and edits appended behind it.
//!
//! Order of a base: written, synced, renamed, folder synced. Of an edit: written behind what is there, synced. Only then
//! may the log be shortened: a crash before leaves the state before and all of the log that it needs, whatever of the edit
//! reached the disk. Invariant: edits are appended only to a base that this process wrote, and only where all before them
//! is durable; after anything that failed the next state is a base. The file never becomes longer than an opening reads
//! ([`MAX_MANIFEST_BYTES`]): what would be is not written.

use crate::core::Core;
use crate::{Error, Result};
use esker_base::counters::{count, Counter};
use esker_format::manifest::{edit_offset, MAX_MANIFEST_BYTES};
use esker_format::{Manifest, TableId};
use esker_io::{AccessHint, Disk, IoKind, OpenMode};
use std::collections::BTreeMap;
use std::path::Path;

pub(crate) const MANIFEST: &str = "MANIFEST";
const FRESH: &str = "MANIFEST.new";
/// Edits may take so many bytes, or as many as the base if that has more.
const EDITS_BYTES: u64 = 64 << 10;

/// What this process knows of the manifest's file.
pub(crate) struct Written {
    /// Of the last durable state.
    pub(crate) generation: u64,
    /// The file behind which an edit can go; `None`: the next state is a base.
    tail: Option<Tail>,
    /// How long the file may become.
    pub(crate) most_bytes: u64,
}

struct Tail {
    base_bytes: u64,
    /// Where the file's content ends.
    end: u64,
    /// What it says of each table.
    tables: BTreeMap<TableId, u128>,
}

impl Written {
    /// A file that was found, or made before there was an engine.
    pub(crate) fn found(generation: u64) -> Self {
        Written { generation, tail: None, most_bytes: MAX_MANIFEST_BYTES }
    }

    /// Makes `state`, whose generation is the next, the durable one. Memory, space or handles that were missing can be
    /// there again later; after anything else nobody knows what is durable.
    pub(crate) fn write(&mut self, core: &Core, state: Manifest) -> Result<()> {
        let generation = state.generation;
        let tables: BTreeMap<_, _> = state.tables.iter().map(|(id, t)| (*id, t.digest())).collect();
        // Back only when all has gone well.
        let (base_bytes, end) = match self.tail.take().and_then(|t| t.edit(&state, &tables, self.most_bytes)) {
            Some((at, edit, base_bytes)) => {
                append(&*core.disk, &core.dir, &edit, at).map_err(|e| match e.kind {
                    IoKind::DiskFull | IoKind::Resources => e.into(),
                    _ => core.poison_by(e),
                })?;
                count(Counter::ManifestEdits, 1);
                (base_bytes, at + edit.len() as u64)
            }
            None => {
                let mut bytes = Vec::new();
                state.encode(&mut bytes);
                if bytes.len() as u64 > self.most_bytes {
                    // Nothing is written: manifest and log stay as they are, and say all of it.
                    let (what, max) = ("manifest", self.most_bytes);
                    return Err(Error::TooLong { what, bytes: bytes.len() as u64, max });
                }
                write_fresh(&*core.disk, &core.dir, &bytes).map_err(|e| match e.kind {
                    IoKind::DiskFull | IoKind::Resources => e.into(),
                    _ => core.poison_by(e),
                })?;
                take_fresh(&*core.disk, &core.dir).map_err(|e| core.poison_by(e))?;
                (bytes.len() as u64, bytes.len() as u64)
            }
        };
        self.tail = Some(Tail { base_bytes, end, tables });
        self.generation = generation;
        Ok(())
    }
}

impl Tail {
    /// The edit that makes `state` of what is there, where it goes, and the length of its base; `None` if a base is
    /// better. `tables`: what is to be said of each table; `most_bytes`: how long the file may become.
    fn edit(&self, state: &Manifest, tables: &BTreeMap<TableId, u128>, most_bytes: u64) -> Option<(u64, Vec<u8>, u64)> {
        let is_new = |id: &TableId| self.tables.get(id) != tables.get(id);
        let gone: Vec<_> = self.tables.keys().filter(|id| !tables.contains_key(id)).copied().collect();
        let changed: Vec<_> = state.tables.values().filter(|t| is_new(&t.entry.id)).collect();
        let mut edit = Vec::new();
        state.encode_edit(&changed, &gone, &mut edit);
        let at = edit_offset(self.end as usize) as u64;
        let end = at + edit.len() as u64;
        let fits = end - self.base_bytes <= self.base_bytes.max(EDITS_BYTES) && end <= most_bytes;
        fits.then_some((at, edit, self.base_bytes))
    }
}

/// Writes a folder's first manifest.
pub(crate) fn write_first(disk: &dyn Disk, dir: &Path, state: &Manifest) -> Result<()> {
    let mut bytes = Vec::new();
    state.encode(&mut bytes);
    write_fresh(disk, dir, &bytes)?;
    Ok(take_fresh(disk, dir)?)
}

fn append(disk: &dyn Disk, dir: &Path, edit: &[u8], at: u64) -> esker_io::Result<()> {
    let file = disk.open(&dir.join(MANIFEST), OpenMode::Write, AccessHint::Meta)?;
    file.write_at(edit, at)?;
    file.sync_data()
}

/// Writes a base under a name that counts for nothing. What could not be written wholly takes no room afterwards.
fn write_fresh(disk: &dyn Disk, dir: &Path, bytes: &[u8]) -> esker_io::Result<()> {
    remove_fresh(disk, dir)?;
    let write = || {
        let file = disk.open(&dir.join(FRESH), OpenMode::Create, AccessHint::Meta)?;
        file.write_at(bytes, 0)?;
        file.sync_all()
    };
    // If it cannot go now, the next one who writes or opens removes it.
    write().inspect_err(|_| _ = remove_fresh(disk, dir))
}

/// Removes what an attempt to write a base has left.
pub(crate) fn remove_fresh(disk: &dyn Disk, dir: &Path) -> esker_io::Result<()> {
    let fresh = dir.join(FRESH);
    match disk.exists(&fresh)? {
        true => disk.remove(&fresh),
        false => Ok(()),
    }
}

fn take_fresh(disk: &dyn Disk, dir: &Path) -> esker_io::Result<()> {
    disk.rename(&dir.join(FRESH), &dir.join(MANIFEST))?;
    disk.sync_dir(dir)
}
