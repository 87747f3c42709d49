//! Files that are only appended to, by one who can do without them: traces. No data of the engine's lie in them; none of its
//! counters, figures and waits knows of them.

use crate::{IoError, Result};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// A file that grows at its end. What was appended is the kernel's at once.
#[derive(Debug)]
pub struct AppendFile {
    path: PathBuf,
    file: File,
}

impl AppendFile {
    /// A new file that its owner may read and write, and its group read. Its folder is made, not that one's parents.
    pub fn create(path: &Path) -> Result<AppendFile> {
        let fail = |operation, path: &Path, error: &std::io::Error| IoError::from_os(operation, path, None, error);
        if let Some(folder) = path.parent().filter(|f| !f.exists()) {
            let made = fs::DirBuilder::new().mode(0o750).create(folder);
            if let Err(error) = made.or_else(|e| if folder.is_dir() { Ok(()) } else { Err(e) }) {
                return Err(fail("create the folder", folder, &error));
            }
        }
        let opened = OpenOptions::new().append(true).create_new(true).mode(0o640).open(path);
        let file = opened.map_err(|error| fail("create", path, &error))?;
        Ok(AppendFile { path: path.to_owned(), file })
    }

    /// Appends all of `bytes`, or fails with some of them there.
    pub fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.write_all(bytes).map_err(|error| IoError::from_os("append to", &self.path, None, &error))
    }

    /// Where it lies.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Takes it away, whatever is in it.
    pub fn remove(self) -> Result<()> {
        fs::remove_file(&self.path).map_err(|error| IoError::from_os("remove", &self.path, None, &error))
    }

    /// Bytes of all files in a folder whose names end with this extension, of each of them so many at least; none if it is not
    /// there.
    pub fn bytes_in(folder: &Path, extension: &str, least: u64) -> u64 {
        let files = fs::read_dir(folder).into_iter().flatten().flatten();
        let named = files.filter(|f| f.path().extension().is_some_and(|e| e == extension));
        named.filter_map(|f| f.metadata().ok()).filter(fs::Metadata::is_file).map(|m| m.len().max(least)).sum()
    }

    /// A folder's true path, symbolic links followed, though it, or the end of its path, is not there yet. It has no `..` behind
    /// what is not there.
    pub fn true_folder(folder: &Path) -> PathBuf {
        let known = folder.ancestors().find_map(|above| Some((above, fs::canonicalize(above).ok()?)));
        let rest = |above| folder.strip_prefix(above).unwrap_or(folder);
        known.map_or_else(|| folder.to_owned(), |(above, path)| path.join(rest(above)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn its_folder_is_made_and_others_may_not_read_it() {
        let base = std::env::temp_dir().join(format!("esker-append-{}", std::process::id()));
        fs::create_dir_all(&base).unwrap();
        let (folder, path) = (base.join("traces"), base.join("traces/a.trc"));
        assert_eq!(AppendFile::bytes_in(&folder, "trc", 100), 0);
        let base_itself = fs::canonicalize(&base).unwrap();
        assert_eq!(AppendFile::true_folder(&folder), base_itself.join("traces"));
        std::os::unix::fs::symlink(".", base.join("itself")).unwrap();
        assert_eq!(AppendFile::true_folder(&base.join("itself")), base_itself);
        assert_eq!(AppendFile::true_folder(&base.join("itself/no/such")), base_itself.join("no/such"));
        let mut file = AppendFile::create(&path).unwrap();
        file.append(b"one\n").unwrap();
        file.append(b"two\n").unwrap();
        fs::write(folder.join("b.html"), "what people have made of it").unwrap();
        let there = (fs::read(file.path()).unwrap(), AppendFile::bytes_in(&folder, "trc", 0));
        assert_eq!((there.0.as_slice(), there.1), (&b"one\ntwo\n"[..], 8));
        assert_eq!(AppendFile::bytes_in(&folder, "trc", 100), 100);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777 & !0o640, 0);
        let again = AppendFile::create(&path).unwrap_err();
        assert!(again.to_string().contains("a.trc"), "{again}");
        file.remove().unwrap();
        assert!(!path.exists());
        let nowhere = AppendFile::create(&base.join("no/such/a.trc")).unwrap_err();
        assert!(nowhere.to_string().contains("no/such"), "{nowhere}");
        fs::remove_dir_all(&base).unwrap();
    }

    #[test]
    fn a_full_disk_is_told() {
        let file = OpenOptions::new().append(true).open("/dev/full").unwrap();
        let error = AppendFile { path: "/dev/full".into(), file }.append(b"x").unwrap_err();
        assert_eq!(error.kind, crate::IoKind::DiskFull, "{error}");
    }
}
