//! A file of the overlay: another file's bytes where nothing was written, its own pages where something was.
//!
//! Invariants: pages hold what is newest; below `base_bytes` a missing page is the base's, above it is zeros.

use crate::{File, IoError, IoKind, Result};
use esker_base::lock::{order, Mutex};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const PAGE_BYTES: usize = 4096;

type Page = Box<[u8; PAGE_BYTES]>;

pub(super) struct Layer {
    path: PathBuf,
    base: Option<Arc<dyn File>>,
    state: Mutex<State>,
}

struct State {
    pages: BTreeMap<u64, Page>,
    /// What of the base still counts.
    base_bytes: u64,
    size: u64,
}

impl Layer {
    /// An empty file.
    pub(super) fn new(path: &Path) -> Self {
        Self::with(path, None, 0)
    }

    /// A file that begins as `base` is.
    pub(super) fn above(base: Arc<dyn File>) -> Result<Self> {
        let size = base.size_bytes()?;
        let path = base.path().to_owned();
        Ok(Self::with(&path, Some(base), size))
    }

    fn with(path: &Path, base: Option<Arc<dyn File>>, size: u64) -> Self {
        let state = State { pages: BTreeMap::new(), base_bytes: size, size };
        Layer { path: path.to_owned(), base, state: Mutex::new(&order::IO_OVERLAY_FILE, state) }
    }

    /// Fills `buf` with what lies at `offset`, within one page.
    fn fill(&self, state: &State, buf: &mut [u8], offset: u64) -> Result<()> {
        let (page, at) = place(offset);
        if let Some(bytes) = state.pages.get(&page) {
            buf.copy_from_slice(&bytes[at..at + buf.len()]);
            return Ok(());
        }
        let below = state.base_bytes.saturating_sub(offset).min(buf.len() as u64) as usize;
        let (from_base, zeros) = buf.split_at_mut(below);
        zeros.fill(0);
        match &self.base {
            Some(base) if below > 0 => base.read_at(from_base, offset),
            _ => Ok(()),
        }
    }

    /// The page at `page`, ready for changes.
    fn page<'a>(&self, state: &'a mut State, page: u64) -> Result<&'a mut Page> {
        if !state.pages.contains_key(&page) {
            let mut bytes = Box::new([0; PAGE_BYTES]);
            self.fill(state, &mut bytes[..], page * PAGE_BYTES as u64)?;
            state.pages.insert(page, bytes);
        }
        Ok(state.pages.entry(page).or_insert_with(|| Box::new([0; PAGE_BYTES])))
    }
}

/// The page that holds `offset`, and where in it.
fn place(offset: u64) -> (u64, usize) {
    (offset / PAGE_BYTES as u64, (offset % PAGE_BYTES as u64) as usize)
}

impl File for Layer {
    fn path(&self) -> &Path {
        &self.path
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let state = self.state.lock();
        if offset.checked_add(buf.len() as u64).is_none_or(|end| end > state.size) {
            let short = "the file ends before";
            return Err(IoError::new("read", &self.path, Some(offset), IoKind::ShortRead, short));
        }
        let mut done = 0;
        while done < buf.len() {
            let at = offset + done as u64;
            let bytes = (PAGE_BYTES - place(at).1).min(buf.len() - done);
            self.fill(&state, &mut buf[done..done + bytes], at)?;
            done += bytes;
        }
        Ok(())
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        let mut state = self.state.lock();
        let mut done = 0;
        while done < buf.len() {
            let (page, at) = place(offset + done as u64);
            let bytes = (PAGE_BYTES - at).min(buf.len() - done);
            self.page(&mut state, page)?[at..at + bytes].copy_from_slice(&buf[done..done + bytes]);
            done += bytes;
        }
        state.size = state.size.max(offset + buf.len() as u64);
        Ok(())
    }

    fn sync_data(&self) -> Result<()> {
        Ok(())
    }

    fn sync_all(&self) -> Result<()> {
        Ok(())
    }

    fn size_bytes(&self) -> Result<u64> {
        Ok(self.state.lock().size)
    }

    fn set_size(&self, size_bytes: u64) -> Result<()> {
        let mut state = self.state.lock();
        if size_bytes < state.size {
            let (page, at) = place(size_bytes);
            if at > 0 {
                self.page(&mut state, page)?[at..].fill(0);
            }
            state.pages.split_off(&size_bytes.div_ceil(PAGE_BYTES as u64));
            state.base_bytes = state.base_bytes.min(size_bytes);
        }
        state.size = size_bytes;
        Ok(())
    }

    fn reserve(&self, _offset: u64, _size_bytes: u64) -> Result<()> {
        Ok(())
    }
}
