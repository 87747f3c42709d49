// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where traces may lie.

use crate::status::Failure;
use esker_io::AppendFile;
use std::path::{Component, Path};

/// May they lie in `folder`, relative to the server's data folder `home`? `own` is Esker's. Fails with words that say why not.
pub(super) fn check(folder: &str, home: &Path, own: &Path) -> Result<(), Failure> {
    let refused = |why: &str| Err(Failure::invalid(format!("esker_trace_dir '{folder}' {why}")));
    if folder.is_empty() {
        return refused("is no folder");
    }
    if Path::new(folder).components().any(|part| part == Component::ParentDir) {
        return refused("has '..' in it: give its true path");
    }
    let (place, own) = (home.join(folder), home.join(own));
    let [place, home, own] = [place.as_path(), home, own.as_path()].map(AppendFile::true_folder);
    if home.starts_with(&place) {
        return refused("is the server's data folder, or above it");
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

#[cfg(test)]
mod tests {
    use super::check;
    use std::path::Path;

    #[test]
    fn traces_lie_where_nobody_looks_for_something_else() {
        let home = std::env::temp_dir().join(format!("esker-trace-folder-{}", std::process::id()));
        let inside = |name: &str| home.join(name).to_string_lossy().into_owned();
        let why = |folder: &str| check(folder, &home, Path::new("#esker")).err().map(|failure| failure.text);
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
}
