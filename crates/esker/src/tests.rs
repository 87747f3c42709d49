//! Tests of the whole crate from within, and what tests share.

pub(crate) mod alike;
mod alter;
pub(crate) mod auto_increment;
pub(crate) mod boundary;
pub(crate) mod checkpoint;
pub(crate) mod counts;
pub(crate) mod filters;
pub(crate) mod formats;
pub(crate) mod full_disk;
pub(crate) mod hooks;
pub(crate) mod indexes;
pub(crate) mod keys;
pub(crate) mod large;
pub(crate) mod large_keys;
pub(crate) mod limits;
pub(crate) mod manifest;
pub(crate) mod moved;
pub(crate) mod one_writer;
pub(crate) mod prepared;
pub(crate) mod regression;
mod reweighed;
pub(crate) mod spilled;
mod statistics;
pub(crate) mod support;
pub(crate) mod tables;
pub(crate) mod temporary;
pub(crate) mod unique;
