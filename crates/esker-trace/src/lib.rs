//! The session trace of the Esker storage engine: what a session's statements did and waited for, event by event.
//!
//! Owns the file's [`format`]. It depends on nothing of the engine: the server's plugin prints lines with it.

pub mod format;
