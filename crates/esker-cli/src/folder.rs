//! The data folder, opened for looking: nothing in it changes but its lock file.

use crate::failure::Failure;
use crate::text;
use esker::format::manifest::MAX_MANIFEST_BYTES;
use esker::format::{Manifest, ManifestFile};
use esker::io::{AccessHint, Disk, LockGuard, OpenMode};
use esker::{Engine, Error, Level, Notify, Options, PosixDisk, Table};
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::sync::Arc;

const MANIFEST: &str = "MANIFEST";
const LOCK: &str = "LOCK";

/// The engine on the folder, read-only.
pub fn open(dir: &Path) -> Result<Engine, Failure> {
    let disk = present(dir)?;
    let options = Options { read_only: true, ..Options::default() };
    Ok(Engine::open(disk, dir, options, notify())?)
}

/// The table of this name; or that which `esker info` shows by it, or SQL calls so, as `database.table`.
pub fn table(engine: &Engine, name: &str) -> Result<Arc<Table>, Failure> {
    let by_sql = name.replacen('.', "/", 1);
    let is_shown_so = |table: &String| {
        let shown = text::field(table.as_bytes(), true);
        shown == name || shown == by_sql
    };
    match engine.open_table(name) {
        Err(none @ Error::NoSuchTable(_)) => match engine.tables().into_iter().find(is_shown_so) {
            Some(name) => Ok(engine.open_table(&name)?),
            None => Err(none.into()),
        },
        table => Ok(table?),
    }
}

/// A folder that is locked, and what its manifest says: for what must be seen without replaying the log.
pub struct LockedFolder {
    /// Where it lies.
    pub disk: Arc<dyn Disk>,
    /// Its manifest, without what is not whole at its end.
    pub manifest: Manifest,
    /// What that is, if the log does not reach back to this manifest: a crash would not have left it so.
    pub torn: Option<Error>,
    _guard: Box<dyn LockGuard>,
}

/// Locks the folder and reads its manifest.
pub fn lock(dir: &Path) -> Result<LockedFolder, Failure> {
    let disk = present(dir)?;
    let path = dir.join(MANIFEST);
    if !disk.exists(&path).map_err(Error::from)? {
        return Err(Engine::without_manifest(&*disk, dir).into());
    }
    let _guard = disk.lock(&dir.join(LOCK)).map_err(Error::from)?;
    let file = disk.open(&path, OpenMode::Read, AccessHint::Meta).map_err(Error::from)?;
    let size = file.size_bytes().map_err(Error::from)?.min(MAX_MANIFEST_BYTES);
    let mut bytes = vec![0; size as usize];
    file.read_at(&mut bytes, 0).map_err(Error::from)?;
    let ManifestFile { manifest, torn, .. } = ManifestFile::decode(&bytes).map_err(|e| Error::damage(&path, 0, e))?;
    let torn = torn.map(|(at, why)| Error::damage(&path, at, why));
    Ok(LockedFolder { disk, manifest, torn, _guard })
}

/// Number and bytes of the files in a folder's part that end so.
pub fn files(dir: &Path, ending: &str) -> Result<(u64, u64), Failure> {
    let entries = PosixDisk::new().list(dir).map_err(Error::from)?;
    let sizes = entries.iter().filter(|e| e.name.ends_with(ending)).map(|e| e.size_bytes);
    Ok(sizes.fold((0, 0), |(files, bytes), size| (files + 1, bytes + size)))
}

fn present(dir: &Path) -> Result<Arc<dyn Disk>, Failure> {
    let disk = PosixDisk::new();
    match disk.exists(dir).map_err(Error::from)? {
        true => Ok(Arc::new(disk)),
        false => Err(Failure::NoFolder(dir.to_owned())),
    }
}

/// Messages of the engine: warnings always, the progress of the replay only to people.
fn notify() -> Notify {
    Arc::new(|message, level| {
        if level != Level::Info || std::io::stderr().is_terminal() {
            let _ = writeln!(std::io::stderr(), "esker: {}", text::line(message));
        }
    })
}
