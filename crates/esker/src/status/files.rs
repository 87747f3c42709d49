//! The engine's files, and what was done to them. Told from memory: no file is touched, and nobody is waited for who waits for
//! a disk.

use crate::catalog::table::{with_tree, Table};
use crate::engine::Engine;
use crate::tree::run::run_path;
use crate::tree::stored::Stored;
use crate::tree::Tree;
use crate::version::ACTIVE;
use esker_format::FileId;
use esker_io::{AccessHint, FileFigures};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

/// A file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileInfo {
    /// Where it lies.
    pub path: PathBuf,
    /// "log"; "run"; "private", a run that no other transaction has a part in yet, or that is being written or about to be
    /// removed; "temp", one of a temporary table; "manifest", and other metadata.
    pub kind: &'static str,
    /// The table, if it is of one alone.
    pub table: Option<String>,
    /// The index, if it is of one alone.
    pub index: Option<String>,
    /// What this process did to it, since it first opened it.
    pub figures: FileFigures,
}

/// What trees say of a run file.
struct Used {
    table: Option<Arc<Table>>,
    /// None: of rows, or of several.
    index: Option<String>,
    trees: usize,
    is_private: bool,
    bytes: u64,
}

fn add_runs<K: Stored>(
    used: &mut HashMap<FileId, Used>,
    (table, index): (&Arc<Table>, Option<&String>),
    tree: &Tree<K>,
) {
    let mut seen = std::collections::HashSet::new();
    for handle in &tree.snapshot().runs {
        // Several handles may be of one part.
        let is_new = seen.insert((handle.run.file_id, handle.run.part));
        let is_private = handle.owner.as_ref().is_some_and(|owner| owner.status() == ACTIVE);
        let file = used.entry(handle.run.file_id).or_insert_with(|| Used {
            table: Some(table.clone()),
            index: index.cloned(),
            trees: 0,
            is_private,
            bytes: 0,
        });
        file.is_private &= is_private;
        if is_new {
            file.trees += 1;
            file.bytes += handle.run.size_bytes();
        }
        if file.trees > 1 {
            file.index = None;
        }
        if file.table.as_ref().is_some_and(|known| known.id != table.id) {
            file.table = None;
        }
    }
}

impl Engine {
    /// All files: those of runs that a tree has, and whatever else was opened and is still there; by their paths. Bytes of a
    /// run file that nobody has opened yet are as its tables have them.
    pub fn files(&self) -> Vec<FileInfo> {
        let core = &self.core;
        let mut used = HashMap::new();
        for table in core.shown_tables() {
            let trees = table.trees();
            let names = std::iter::once(None).chain(trees.indexes.iter().map(|index| Some(&index.entry.name)));
            for (tree, index) in trees.all().zip(names) {
                with_tree!(tree, tree => add_runs(&mut used, (&table, index), &tree));
            }
        }
        let mut runs: HashMap<PathBuf, Used> =
            used.into_iter().map(|(id, used)| (run_path(core.runs.path(), id), used)).collect();
        let mut files = Vec::new();
        for known in core.disk.figures() {
            let used = runs.remove(&known.path);
            let kind = match known.hint {
                AccessHint::Log => "log",
                AccessHint::Meta => "manifest",
                AccessHint::Bulk | AccessHint::Kept | AccessHint::Blocks => "private",
            };
            files.push(file(known.path, used, kind, known.figures));
        }
        files.extend(runs.into_iter().map(|(path, used)| {
            let figures = FileFigures { size_bytes: used.bytes, ..FileFigures::default() };
            file(path, Some(used), "run", figures)
        }));
        files.sort_by(|a, b| a.path.cmp(&b.path));
        files
    }
}

fn file(path: PathBuf, used: Option<Used>, kind: &'static str, figures: FileFigures) -> FileInfo {
    let Some(used) = used else { return FileInfo { path, kind, table: None, index: None, figures } };
    let kind = match &used.table {
        Some(table) if table.temporary => "temp",
        _ if used.is_private => "private",
        _ => "run",
    };
    FileInfo { path, kind, table: used.table.map(|table| table.name()), index: used.index, figures }
}
