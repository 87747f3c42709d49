//! [`File`] for the simulated disk.

use super::names::{normal, Entry};
use super::node::{Node, SECTOR_BYTES};
use super::{SimDisk, State, Way};
use crate::accounting::FileKind;
use crate::figures::Figures;
use crate::{AccessHint, File, IoError, IoKind, OpenMode, Result, SyncMethod};
use std::path::{Path, PathBuf};

/// What bulk files ask for, so that tests see what O_DIRECT asks for.
const BULK_ALIGNMENT: usize = 4096;

pub(super) struct SimFile {
    disk: SimDisk,
    id: u64,
    process: u64,
    path: PathBuf,
    kind: FileKind,
    writable: bool,
    alignment: usize,
    figures: Figures,
}

impl SimFile {
    pub(super) fn new(disk: SimDisk, id: u64, process: u64, path: &Path, mode: OpenMode, hint: AccessHint) -> Self {
        let alignment = if matches!(hint, AccessHint::Bulk | AccessHint::Kept) { BULK_ALIGNMENT } else { 1 };
        let writable = mode != OpenMode::Read;
        let (path, figures) = (path.to_owned(), Figures::default());
        SimFile { disk, id, process, path, kind: hint.into(), writable, alignment, figures }
    }

    fn error(&self, operation: &'static str, kind: IoKind, message: &str) -> IoError {
        IoError::new(operation, &self.path, None, kind, message)
    }

    fn node<'a>(&self, state: &'a mut State, operation: &'static str) -> Result<&'a mut Node> {
        let node = state.nodes.get_mut(&self.id);
        node.ok_or_else(|| self.error(operation, IoKind::Failed, "the file is gone"))
    }

    fn change(
        &self,
        operation: &'static str,
        sizes: (Option<u64>, Option<u64>),
        work: impl FnOnce(&mut State, Way) -> Result<()>,
    ) -> Result<()> {
        if !self.writable {
            return Err(self.error(operation, IoKind::ReadOnly, "opened for reading only"));
        }
        self.disk.operate(operation, &self.path, sizes, Some(self.process), work)
    }

    fn sync(&self) -> Result<()> {
        self.kind.sync(&self.figures, || {
            let process = Some(self.process);
            self.disk.operate("sync", &self.path, (None, None), process, |state, way| {
                let (lies, keeps_old, mut random) = (state.lies, state.keeps_old, state.random.clone());
                let node = self.node(state, "sync")?;
                match way {
                    Way::Well if !lies => node.sync(keeps_old),
                    Way::Well | Way::Cut => {}
                    Way::Fail(_) => node.fail_sync(&mut random),
                }
                state.random = random;
                Ok(())
            })
        })
    }
}

impl File for SimFile {
    fn path(&self) -> &Path {
        &self.path
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.kind.read(&self.figures, buf.len(), || {
            self.disk.look("read", &self.path, Some(self.process), |state| {
                state.check_readable(self.id, &self.path, offset..offset.saturating_add(buf.len() as u64))?;
                let bytes = self.node(state, "read")?.read(offset, buf.len());
                let Some(bytes) = bytes else {
                    let message = "the file ends before";
                    let (path, kind) = (&self.path, IoKind::ShortRead);
                    return Err(IoError::new("read", path, Some(offset), kind, message));
                };
                buf.copy_from_slice(bytes);
                Ok(())
            })
        })
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        let bits = buf.as_ptr() as usize | buf.len() | offset as usize;
        if self.alignment > 1 && bits % self.alignment != 0 {
            return Err(self.error("write", IoKind::Failed, "buffer, offset or length unaligned"));
        }
        self.kind.wrote(&self.figures, buf.len(), offset);
        let end = offset + buf.len() as u64;
        self.kind.timed_write(&self.figures, || {
            self.change("write", (Some(offset), Some(buf.len() as u64)), |state, way| {
                let free = state.free_bytes();
                let mut random = state.random.clone();
                let node = self.node(state, "write")?;
                let fits = node.fits_until(offset, end, free);
                let until = match way {
                    Way::Well | Way::Cut => fits,
                    Way::Fail(_) => {
                        let sectors = (buf.len() as u64).div_ceil(SECTOR_BYTES);
                        let kept = random.u64(..sectors.max(1)) * SECTOR_BYTES;
                        fits.min(offset + kept)
                    }
                };
                node.write(offset, &buf[..(until - offset) as usize]);
                state.random = random;
                if fits < end {
                    let message = "no space left on the simulated disk";
                    let (path, kind) = (&self.path, IoKind::DiskFull);
                    return Err(IoError::new("write", path, Some(fits), kind, message));
                }
                Ok(())
            })
        })
    }

    fn write_durably(&self, buf: &[u8], offset: u64, method: SyncMethod) -> Result<()> {
        let operation = match method {
            SyncMethod::Fdatasync => {
                self.write_at(buf, offset)?;
                return self.sync_data();
            }
            SyncMethod::Dsync => "write durably",
            SyncMethod::Uring => "write and sync",
        };
        self.kind.wrote_durably(&self.figures, buf.len(), offset, method);
        let end = offset + buf.len() as u64;
        self.kind.timed_sync(&self.figures, || {
            self.change(operation, (Some(offset), Some(buf.len() as u64)), |state, way| {
                let (lies, keeps_old, free) = (state.lies, state.keeps_old, state.free_bytes());
                let mut random = state.random.clone();
                let node = self.node(state, operation)?;
                let fits = node.fits_until(offset, end, free);
                let written = &buf[..(fits - offset) as usize];
                match way {
                    Way::Well if !lies && fits == end => node.write_durably(offset, buf, method, keeps_old),
                    Way::Well | Way::Cut => node.write(offset, written),
                    Way::Fail(_) => {
                        node.write(offset, written);
                        node.fail_sync(&mut random);
                    }
                }
                state.random = random;
                if fits < end {
                    let message = "no space left on the simulated disk";
                    return Err(IoError::new(operation, &self.path, Some(fits), IoKind::DiskFull, message));
                }
                Ok(())
            })
        })
    }

    fn sync_data(&self) -> Result<()> {
        self.sync()
    }

    fn sync_all(&self) -> Result<()> {
        self.sync()
    }

    fn size_bytes(&self) -> Result<u64> {
        self.disk.look("ask for the size of", &self.path, Some(self.process), |state| {
            Ok(self.node(state, "ask for the size of")?.size())
        })
    }

    fn set_size(&self, size_bytes: u64) -> Result<()> {
        self.change("set the size of", (Some(size_bytes), None), |state, way| {
            if !matches!(way, Way::Fail(_)) {
                self.node(state, "set the size of")?.resize(size_bytes);
            }
            Ok(())
        })
    }

    fn reserve(&self, offset: u64, size_bytes: u64) -> Result<()> {
        self.change("reserve", (Some(offset), Some(size_bytes)), |state, way| {
            let free = state.free_bytes();
            let node = self.node(state, "reserve")?;
            let end = offset + size_bytes;
            if node.fits_until(offset, end, free) < end {
                let message = "no space left on the simulated disk";
                return Err(self.error("reserve", IoKind::DiskFull, message));
            }
            if !matches!(way, Way::Fail(_)) {
                node.allocate(offset, end);
            }
            Ok(())
        })
    }

    fn write_back(&self, offset: u64, bytes: u64, _wait: bool) -> Result<()> {
        self.change("write back", (Some(offset), Some(bytes)), |state, way| {
            let mut random = state.random.clone();
            if let Way::Fail(_) = way {
                self.node(state, "write back")?.fail_sync(&mut random);
            }
            state.random = random;
            Ok(())
        })
    }

    fn write_alignment(&self) -> usize {
        self.alignment
    }
}

impl Drop for SimFile {
    fn drop(&mut self) {
        let mut state = self.disk.state.lock();
        if state.process == self.process {
            if let Some(node) = state.nodes.get_mut(&self.id) {
                node.handles = node.handles.saturating_sub(1);
            }
            // Of very many files most are where they were opened.
            if state.names.get(&normal(&self.path)) != Some(Entry::File(self.id)) {
                state.drop_unreachable();
            }
        }
    }
}
