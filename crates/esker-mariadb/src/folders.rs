// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where Esker's files and traces may lie.

use crate::status::Failure;
use esker_io::{AppendFile, Disk, PosixDisk};
use std::path::{Component, Path, PathBuf};

const HOME: &str = "is the server's data folder, or above it";
const NO_FOLDER: &str = "is no folder";

/// May Esker's files lie in `folder`, relative to the server's data folder `home`? Where they lie already, yes. Fails with
/// words that say why not.
pub(crate) fn check_data(folder: &str, home: &Path) -> Result<(), Failure> {
    let refused = |why: &str| Err(Failure::invalid(format!("esker_data_dir '{folder}' {why}")));
    if folder.is_empty() {
        return refused(NO_FOLDER);
    }
    let (place, home) = (true_place(folder, home), AppendFile::true_folder(home));
    if home.starts_with(&place) {
        return refused(HOME);
    }
    let disk = PosixDisk::default();
    let Ok(inside) = place.strip_prefix(&home) else { return Ok(()) };
    if disk.exists(&place.join("LOCK")).unwrap_or(false) {
        return Ok(());
    }
    // The server does not list it among the databases, so it must not be one; those of '#' never are.
    let a_database = || disk.list(&place).is_ok_and(|entries| !entries.is_empty());
    if inside.components().count() != 1 || !inside.to_string_lossy().starts_with('#') && a_database() {
        return refused("is a database's folder, or lies in one that is, or could be");
    }
    Ok(())
}

/// May traces lie in `folder`, relative to the server's data folder `home`? `own` is Esker's. Fails with words that say why not.
pub(crate) fn check_traces(folder: &str, home: &Path, own: &Path) -> Result<(), Failure> {
    let refused = |why: &str| Err(Failure::invalid(format!("esker_trace_dir '{folder}' {why}")));
    if folder.is_empty() {
        return refused(NO_FOLDER);
    }
    if Path::new(folder).components().any(|part| part == Component::ParentDir) {
        return refused("has '..' in it: give its true path");
    }
    let (place, own) = (true_place(folder, home), AppendFile::true_folder(&home.join(own)));
    let home = AppendFile::true_folder(home);
    if home.starts_with(&place) {
        return refused(HOME);
    }
    if place.starts_with(&own) || own.starts_with(&place) {
        return refused("is Esker's own folder, or in it, or above it");
    }
    let Ok(inside) = place.strip_prefix(&home) else { return Ok(()) };
    if inside.components().count() != 1 || !inside.to_string_lossy().starts_with('#') {
        return refused(
            "is a database's folder, or could be: in the data folder its name begins with '#', and has no '/'",
        );
    }
    Ok(())
}

/// Where `folder` is, without links.
fn true_place(folder: &str, home: &Path) -> PathBuf {
    AppendFile::true_folder(&home.join(folder))
}

#[cfg(test)]
mod tests {
    use super::{check_data, check_traces};
    use std::path::Path;

    #[test]
    fn traces_lie_where_nobody_looks_for_something_else() {
        let home = std::env::temp_dir().join(format!("esker-trace-folder-{}", std::process::id()));
        let inside = |name: &str| home.join(name).to_string_lossy().into_owned();
        let why = |folder: &str| check_traces(folder, &home, Path::new("#esker")).err().map(|failure| failure.text);
        for good in [
            "#esker_trace",
            "#esker_trace/",
            "#x",
            "/nowhere/traces",
            &inside("#y"),
            &format!("{}-beside", home.display()),
        ] {
            assert_eq!(why(good), None, "{good}");
        }
        for (bad, words) in [
            ("", "is no folder"),
            (".", "data folder, or above"),
            ("..", "has '..'"),
            ("#x/..", "has '..'"),
            ("/", "data folder, or above"),
            ("#esker", "Esker's own"),
            ("#esker/", "Esker's own"),
            ("#esker/traces", "Esker's own"),
            ("mysql", "a database's"),
            ("#x/y", "a database's"),
            (&inside(""), "data folder, or above"),
            (&inside("#esker"), "Esker's own"),
            (&inside("test"), "a database's"),
        ] {
            assert!(why(bad).is_some_and(|why| why.contains(words) && why.contains(bad)), "{bad}: {:?}", why(bad));
        }
    }

    #[test]
    fn no_database_becomes_the_folder_of_files() {
        let home = std::env::temp_dir().join(format!("esker-data-folder-{}", std::process::id()));
        let inside = |name: &str| home.join(name).to_string_lossy().into_owned();
        for made in ["shop", "old", "empty", "#esker/runs", "old/runs"] {
            std::fs::create_dir_all(home.join(made)).unwrap();
        }
        for made in ["shop/db.opt", "old/LOCK", "#esker/LOCK"] {
            std::fs::write(home.join(made), "").unwrap();
        }
        std::os::unix::fs::symlink("shop", home.join("#link")).unwrap();
        let why = |folder: &str| check_data(folder, &home).err().map(|failure| failure.text);
        let beside = format!("{}-beside", home.display());
        for good in ["#esker", "#new", "new", "empty", "old", "../up", "/nowhere/esker", &inside("#esker"), &beside] {
            assert_eq!(why(good), None, "{good}");
        }
        for (bad, words) in [
            ("", "is no folder"),
            (".", "data folder, or above"),
            ("shop/..", "data folder, or above"),
            ("/", "data folder, or above"),
            (&inside(""), "data folder, or above"),
            ("shop", "a database's"),
            ("shop/esker", "a database's"),
            ("new/esker", "a database's"),
            ("#link", "a database's"),
            ("#esker/runs", "a database's"),
            (&inside("shop"), "a database's"),
        ] {
            assert!(why(bad).is_some_and(|why| why.contains(words) && why.contains(bad)), "{bad}: {:?}", why(bad));
        }
        std::fs::remove_dir_all(&home).unwrap();
    }
}
