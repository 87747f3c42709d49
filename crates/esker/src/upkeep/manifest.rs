//! The manifest's file: a base, written anew beside the old one and renamed over it, and edits appended behind it.
//!
//! Order of a base: written, synced, renamed, folder synced. Of an edit: written behind what is there, synced. Only then
//! may the log be shortened: a crash before leaves the state before and all of the log that it needs, whatever of the edit
//! reached the disk. Invariant: edits are appended only to a base that this process wrote, and only where all before them
//! is durable; after anything that failed the next state is a base. A base whose name may not be durable yet does no harm:
//! either file counts, the log has what both need, and what the one names and the other does not is in the log's edits.
//! The file never becomes longer than an opening reads
//! ([`MAX_MANIFEST_BYTES`]): what would be is not written.

use crate::core::Core;
use crate::{Error, Result};
use esker_base::counters::{count, Counter};
use esker_format::manifest::{edit_offset, MAX_MANIFEST_BYTES};
use esker_format::{FormatError, Manifest, ManifestFile, TableId, TableState};
use esker_io::{AccessHint, Disk, IoError, IoKind, OpenMode};
use std::collections::BTreeMap;
use std::path::Path;

pub(crate) const MANIFEST: &str = "MANIFEST";
const FRESH: &str = "MANIFEST.new";
/// Edits may take so many bytes, or as many as the base if that has more.
const EDITS_BYTES: u64 = 64 << 10;

/// What this process knows of the manifest's file.
pub(crate) struct ManifestWriter {
    /// Of the last durable state.
    pub(crate) generation: u64,
    /// The file behind which an edit can go; `None`: the next state is a base.
    pub(crate) tail: Option<DurableState>,
    /// How long the file may become.
    pub(crate) most_bytes: u64,
}

/// A file whose last state is durable.
pub(crate) struct DurableState {
    base_bytes: u64,
    /// Where the file's content ends.
    end: u64,
    /// What it says of each table.
    pub(crate) tables: BTreeMap<TableId, u128>,
}

/// The next state, as it is to be written.
pub(crate) struct NextState {
    bytes: Vec<u8>,
    /// Where an edit goes; a base has a file for itself.
    at: Option<u64>,
    /// What there is once it is durable.
    tail: DurableState,
}

impl ManifestWriter {
    /// A file that was found, or made before there was an engine.
    pub(crate) fn found(generation: u64) -> Self {
        ManifestWriter { generation, tail: None, most_bytes: MAX_MANIFEST_BYTES }
    }

    /// Makes `next` the durable state. Memory, space or handles that were missing can be there again later; after anything
    /// else nobody knows what is durable.
    pub(crate) fn write(&mut self, core: &Core, next: NextState) -> Result<()> {
        let NextState { bytes, at, tail } = next;
        let failed = |e: IoError| match e.kind {
            IoKind::DiskFull | IoKind::Resources => e.into(),
            _ => core.writable.poison_by(e),
        };
        match at {
            Some(at) => {
                append(&*core.disk, &core.dir, &bytes, at).map_err(failed)?;
                count(Counter::ManifestEdits, 1);
            }
            None => {
                if bytes.len() as u64 > self.most_bytes {
                    // Nothing is written: manifest and log stay as they are, and say all of it.
                    let (what, max) = ("manifest", self.most_bytes);
                    return Err(Error::TooLong { what, bytes: bytes.len() as u64, max });
                }
                write_fresh(&*core.disk, &core.dir, &bytes).map_err(failed)?;
                let (disk, dir) = (&*core.disk, &core.dir);
                let renamed = disk.rename(&dir.join(FRESH), &dir.join(MANIFEST));
                renamed.inspect_err(|_| _ = remove_fresh(disk, dir)).map_err(failed)?;
                disk.sync_dir(dir).map_err(|e| match e.kind {
                    // It was not begun.
                    IoKind::Resources => e.into(),
                    _ => core.writable.poison_by(e),
                })?;
            }
        }
        self.tail = Some(tail);
        self.generation += 1;
        Ok(())
    }
}

impl DurableState {
    /// The edit that makes `state` of what is there; `None` if a base is better. `state` has the tables that may have changed
    /// and no others; `gone`: those that were there, or came and went, and are there no more; `most_bytes`: how long the file
    /// may become.
    pub(crate) fn edit(mut self, state: &Manifest, gone: &[TableId], most_bytes: u64) -> Option<NextState> {
        let gone: Vec<_> = gone.iter().filter(|id| self.tables.remove(id).is_some()).copied().collect();
        // What a table says twice it says once.
        let mut is_new = |t: &&TableState| {
            let digest = t.digest();
            self.tables.insert(t.entry.id, digest) != Some(digest)
        };
        let changed: Vec<_> = state.tables.values().filter(&mut is_new).collect();
        let mut bytes = Vec::new();
        state.encode_edit(&changed, &gone, &mut bytes);
        let at = edit_offset(self.end as usize) as u64;
        self.end = at + bytes.len() as u64;
        let edits_bytes = self.end - self.base_bytes;
        let fits = edits_bytes <= self.base_bytes.max(EDITS_BYTES) && self.end <= most_bytes;
        fits.then_some(NextState { bytes, at: Some(at), tail: self })
    }
}

impl NextState {
    /// A base, of a state with all its tables.
    pub(crate) fn base(state: &Manifest) -> Self {
        let tables = state.tables.iter().map(|(id, t)| (*id, t.digest())).collect();
        let mut bytes = Vec::new();
        state.encode(&mut bytes);
        let end = bytes.len() as u64;
        NextState { bytes, at: None, tail: DurableState { base_bytes: end, end, tables } }
    }
}

/// What the file says; `None` if there is none.
pub(crate) fn read(disk: &dyn Disk, dir: &Path) -> Result<Option<ManifestFile>> {
    let path = dir.join(MANIFEST);
    let file = match disk.open(&path, OpenMode::Read, AccessHint::Meta) {
        Ok(file) => file,
        Err(e) if e.kind == IoKind::NotFound => return Ok(None),
        Err(e) => return Err(e.into()),
    };
    let size = file.size_bytes()?;
    if size > MAX_MANIFEST_BYTES {
        let reason = FormatError::TooLong { what: "manifest", found: size, max: MAX_MANIFEST_BYTES };
        return Err(Error::damage(&path, 0, reason));
    }
    let mut bytes = vec![0; size as usize];
    file.read_at(&mut bytes, 0)?;
    ManifestFile::decode(&bytes).map(Some).map_err(|e| Error::damage(&path, 0, e))
}

/// Writes a folder's first manifest.
pub(crate) fn write_first(disk: &dyn Disk, dir: &Path, state: &Manifest) -> Result<()> {
    let mut bytes = Vec::new();
    state.encode(&mut bytes);
    write_fresh(disk, dir, &bytes)?;
    disk.rename(&dir.join(FRESH), &dir.join(MANIFEST))?;
    Ok(disk.sync_dir(dir)?)
}

fn append(disk: &dyn Disk, dir: &Path, edit: &[u8], at: u64) -> esker_io::Result<()> {
    let file = disk.open(&dir.join(MANIFEST), OpenMode::Write, AccessHint::Meta)?;
    file.write_at(edit, at)?;
    file.sync_data()
}

/// Writes a base under a name that counts for nothing. What could not be written wholly takes no room afterwards.
fn write_fresh(disk: &dyn Disk, dir: &Path, bytes: &[u8]) -> esker_io::Result<()> {
    let fresh = dir.join(FRESH);
    let create = || disk.open(&fresh, OpenMode::Create, AccessHint::Meta);
    let write = || {
        let file = match create() {
            // Left by an attempt that failed.
            Err(e) if e.kind == IoKind::AlreadyExists => {
                disk.remove(&fresh)?;
                create()?
            }
            file => file?,
        };
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
