//! Run files that nothing refers to: of loads that did not commit, or whose removal did not get done.

use super::replay::Replay;
use crate::tree::run::run_path;
use crate::Result;
use esker_format::FileId;
use esker_io::Disk;
use std::collections::{HashMap, HashSet};
use std::path::Path;

/// No file is given an id from here on: names with such are nobody's.
const ENDLESS: u64 = 1 << 63;

/// The file that has this name in a folder of runs, if it is the name of one.
fn file_named(name: &str) -> Option<FileId> {
    let id = name.strip_suffix(".run").and_then(|id| u64::from_str_radix(id, 16).ok()).map(FileId)?;
    let is_whole = run_path(Path::new(""), id).to_str() == Some(name);
    (is_whole && id.0 < ENDLESS).then_some(id)
}

/// Removes them. Which others there are, and how long; ids that any file has are never given again.
pub(super) fn remove(replay: &Replay, disk: &dyn Disk, runs_dir: &Path) -> Result<HashMap<FileId, u64>> {
    let known: HashSet<FileId> = replay.files().collect();
    let mut there = HashMap::new();
    for entry in disk.list(runs_dir)? {
        let Some(id) = file_named(&entry.name) else { continue };
        replay.ids.file_seen(id);
        if known.contains(&id) {
            there.insert(id, entry.size_bytes);
        } else {
            disk.remove(&runs_dir.join(&entry.name))?;
        }
    }
    Ok(there)
}
