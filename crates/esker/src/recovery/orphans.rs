//! Run files that nothing refers to: of loads that did not commit, or whose removal did not get done.

use super::replay::Replay;
use crate::Result;
use esker_format::FileId;
use esker_io::Disk;
use std::collections::HashSet;
use std::path::Path;

/// Removes them. Which others there are; ids that any file has are never given again.
pub(super) fn remove(replay: &Replay, disk: &dyn Disk, runs_dir: &Path) -> Result<HashSet<FileId>> {
    let known: HashSet<FileId> = replay.files().collect();
    let mut there = HashSet::new();
    for entry in disk.list(runs_dir)? {
        let id = entry.name.strip_suffix(".run").and_then(|n| u64::from_str_radix(n, 16).ok());
        let Some(id) = id.map(FileId) else { continue };
        replay.ids.file_seen(id);
        if known.contains(&id) {
            there.insert(id);
        } else {
            disk.remove(&runs_dir.join(&entry.name))?;
        }
    }
    Ok(there)
}
