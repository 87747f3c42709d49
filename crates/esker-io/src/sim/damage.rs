//! What a medium does to a file behind everybody's back: rot, lost and misplaced writes, sectors that cannot be read.
//!
//! Everything here changes what is durable and what readers see alike, and nothing of it is an operation: no count rises.
//! Sectors are [`SECTOR_BYTES`] long. Offsets and lengths beyond a file's end are cut off there.

use super::names::normal;
use super::node::{Node, SECTOR_BYTES};
use super::SimDisk;
use crate::{IoError, IoKind, Result};
use std::ops::Range;
use std::path::Path;

impl SimDisk {
    /// Changes bytes of a file, by exclusive or, from `offset` on: bits that rot.
    pub fn damage(&self, path: &Path, offset: u64, xor: &[u8]) -> Result<()> {
        let range = offset..offset.saturating_add(xor.len() as u64);
        self.rewrite(path, |node| node.overwrite(range, |at, byte| byte ^ xor[at]))
    }

    /// Makes zeros of so many sectors, from the one that holds `offset` on: writes that a device forgot.
    pub fn zero_sectors(&self, path: &Path, offset: u64, sectors: u64) -> Result<()> {
        let start = offset / SECTOR_BYTES * SECTOR_BYTES;
        let range = start..start.saturating_add(sectors.saturating_mul(SECTOR_BYTES));
        self.rewrite(path, |node| node.overwrite(range, |_, _| 0))
    }

    /// From now on each sector's content before the sync that last changed it is remembered, for
    /// [`stale_sector`](SimDisk::stale_sector).
    pub fn keep_old_sectors(&self, keep: bool) {
        self.state.lock().keeps_old = keep;
    }

    /// Gives the sector that holds `offset` the content that it had before the sync that last changed it: a write that
    /// a device forgot, of a sector that had been written before. False, and no change, if none is known or it is the
    /// same.
    pub fn stale_sector(&self, path: &Path, offset: u64) -> Result<bool> {
        let mut stale = false;
        self.rewrite(path, |node| stale = node.go_back(offset / SECTOR_BYTES))?;
        Ok(stale)
    }

    /// Swaps `bytes` bytes of two files, or of two places of one file: writes that went where the other should. Both
    /// places must lie within their files, and not overlap.
    pub fn swap_bytes(&self, a: (&Path, u64), b: (&Path, u64), bytes: u64) -> Result<()> {
        let first = self.peek(a.0, a.1, bytes)?;
        let second = self.peek(b.0, b.1, bytes)?;
        let put = |(path, offset): (&Path, u64), content: Vec<u8>| {
            self.rewrite(path, |node| node.overwrite(offset..offset + bytes, |at, _| content[at]))
        };
        put(a, second)?;
        put(b, first)
    }

    /// Swaps the contents of two files: each is found under the other's name.
    pub fn swap_files(&self, a: &Path, b: &Path) -> Result<()> {
        let mut state = self.state.lock();
        let (a, b) = (state.find(a, "swap")?, state.find(b, "swap")?);
        let (Some(mut first), Some(mut second)) = (state.nodes.get(&a).cloned(), state.nodes.get(&b).cloned()) else {
            return Ok(());
        };
        std::mem::swap(&mut first.handles, &mut second.handles);
        state.nodes.insert(a, second);
        state.nodes.insert(b, first);
        Ok(())
    }

    /// Lets a file be gone, as if it had never had this name. Open handles stay usable.
    pub fn lose_file(&self, path: &Path) -> Result<()> {
        let mut state = self.state.lock();
        state.find(path, "lose")?;
        state.names.lose(&normal(path));
        state.drop_unreachable();
        Ok(())
    }

    /// Cuts a file short.
    pub fn cut_short(&self, path: &Path, size_bytes: u64) -> Result<()> {
        self.rewrite(path, |node| node.cut_short(size_bytes))
    }

    /// Makes every read that touches `range` of a file fail, until [`clear_plans`](SimDisk::clear_plans); the whole
    /// file with `0..u64::MAX`. Opening it and asking for its size go on. The file must be there; it stays unreadable
    /// under another name.
    pub fn fail_reads_of(&self, path: &Path, range: Range<u64>, kind: IoKind) -> Result<()> {
        let mut state = self.state.lock();
        let id = state.find(path, "make unreadable")?;
        state.unreadable.push((id, range, kind));
        Ok(())
    }

    fn peek(&self, path: &Path, offset: u64, bytes: u64) -> Result<Vec<u8>> {
        let state = self.state.lock();
        let id = state.find(path, "swap")?;
        let content = state.nodes.get(&id).and_then(|node| node.read(offset, usize::try_from(bytes).ok()?));
        let outside = || IoError::new("swap", path, Some(offset), IoKind::ShortRead, "the file ends before");
        content.map(<[u8]>::to_vec).ok_or_else(outside)
    }

    fn rewrite(&self, path: &Path, change: impl FnOnce(&mut Node)) -> Result<()> {
        let mut state = self.state.lock();
        let id = state.find(path, "damage")?;
        if let Some(node) = state.nodes.get_mut(&id) {
            change(node);
        }
        Ok(())
    }
}
