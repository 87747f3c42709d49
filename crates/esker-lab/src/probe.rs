//! Storage and machine, looked at without the engine's ways: files one call at a time, the kernel's figures, a process's
//! maps, a memory group for this process.
//!
//! Beside `esker-io` this is the only module that may call the operating system for files (`scripts/check_deps.py`):
//! what those calls cost is what the lab measures, and the engine needs none of them. Errors are `esker-io`'s.

pub mod host;
pub mod maps;
mod memory_group;
pub mod raw;

pub use memory_group::MemoryGroup;
