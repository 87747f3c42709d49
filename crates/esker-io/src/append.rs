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

    /// Bytes of all files in a folder; none if it is not there.
    pub fn bytes_in(folder: &Path) -> u64 {
        let files = fs::read_dir(folder).into_iter().flatten().flatten();
        files.filter_map(|f| f.metadata().ok()).filter(fs::Metadata::is_file).map(|m| m.len()).sum()
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
        assert_eq!(AppendFile::bytes_in(&folder), 0);
        let mut file = AppendFile::create(&path).unwrap();
        file.append(b"one\n").unwrap();
        file.append(b"two\n").unwrap();
        assert_eq!((fs::read(file.path()).unwrap().as_slice(), AppendFile::bytes_in(&folder)), (&b"one\ntwo\n"[..], 8));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777 & !0o640, 0);
        let again = AppendFile::create(&path).unwrap_err();
        assert!(again.to_string().contains("a.trc"), "{again}");
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
