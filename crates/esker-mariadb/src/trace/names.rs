// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a trace calls tables and files.

use super::EsTableForPeopleFn;
use crate::engine::EsEngine;
use std::collections::HashMap;
use std::ffi::CString;
use std::path::PathBuf;

/// The table and index that a file is of, and is that a temporary table?
pub(super) type OwnerOfFile = (Option<(String, Option<String>)>, bool);

/// Of each file of the engine.
pub(super) fn names_of_files(engine: &EsEngine) -> HashMap<PathBuf, OwnerOfFile> {
    let name = |file: esker::FileInfo| (file.path, (file.table.map(|table| (table, file.index)), file.kind == "temp"));
    engine.engine.files().into_iter().map(name).collect()
}

/// A table as people know it.
pub(crate) fn readable(told: EsTableForPeopleFn, table: &str) -> String {
    /// Schema, table, partition and subpartition of 64 characters each, and what is between them.
    const MOST_BYTES: usize = 4 * (64 * 4 + 8);
    let (mut text, name) = ([0; MOST_BYTES], CString::new(table));
    let length = match (told, &name) {
        // SAFETY: as the type asks.
        (Some(told), Ok(name)) => unsafe { told(name.as_ptr(), text.as_mut_ptr(), MOST_BYTES) },
        _ => 0,
    };
    match text.get(..length) {
        None | Some([]) => table.replacen('/', ".", 1),
        Some(text) => String::from_utf8_lossy(text).into_owned(),
    }
}
