//! What keeps trees and log in shape beside the sessions: flushes, merges, checkpoints, checks, and who does them when.

pub(crate) mod background;
pub(crate) mod check;
pub(crate) mod checkpoint;
pub(crate) mod choose;
pub(crate) mod due;
pub(crate) mod flush;
pub(crate) mod manifest;
pub(crate) mod merge;
pub(crate) mod policy;
pub(crate) mod pressure;
