//! What keeps trees and log in shape beside the sessions: flushes, merges, checkpoints, checks, and who does them when.

pub(crate) mod background;
pub(crate) mod check;
pub(crate) mod checkpoint;
pub(crate) mod choose;
pub(crate) mod discard;
pub(crate) mod due;
pub(crate) mod flush;
pub(crate) mod manifest;
pub(crate) mod merge;
pub(crate) mod next_flush;
pub(crate) mod policy;
pub(crate) mod pressure;

use crate::catalog::table::Table;
use crate::core::Core;
use crate::tree::run::writer::RunWriter;
use crate::tree::stored::Stored;
use crate::tree::Tree;

/// A new run of a tree, to be written.
fn new_run<K: Stored>(core: &Core, table: &Table, tree: &Tree<K>) -> crate::Result<RunWriter<K>> {
    RunWriter::create(&core.runs.recipe(table, tree), core.ids.new_file())
}
