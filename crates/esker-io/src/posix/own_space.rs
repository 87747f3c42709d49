//! Whether a file can be written over where it lies without new space: not where it has holes, as a copy may, nor where its
//! blocks belong to another file too, as they do after `cp` on XFS or a snapshot on btrfs.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// The kernel's `FS_IOC_FIEMAP`: which extents a file has.
const MAP: libc::Ioctl = 0xC020_660B;
/// Asks that what is only in memory is given its place first.
const SYNC: u32 = 1;
const LAST: u32 = 1;
const SHARED: u32 = 0x2000;
const AT_ONCE: usize = 64;

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Extent {
    logical: u64,
    physical: u64,
    length: u64,
    reserved64: [u64; 2],
    flags: u32,
    reserved: [u32; 3],
}

#[repr(C)]
struct Map {
    start: u64,
    length: u64,
    flags: u32,
    mapped: u32,
    count: u32,
    reserved: u32,
    extents: [Extent; AT_ONCE],
}

/// Has the file all its first `size` bytes on the disk, and for itself? A file system that cannot say is taken to say so.
pub(super) fn is_its_own(file: &File, size: u64) -> io::Result<bool> {
    let mut at = 0;
    while at < size {
        let extents = [Extent::default(); AT_ONCE];
        let count = AT_ONCE as u32;
        let mut map = Map { start: at, length: size - at, flags: SYNC, mapped: 0, count, reserved: 0, extents };
        // SAFETY: the descriptor is open, the call writes at most `count` extents.
        if unsafe { libc::ioctl(file.as_raw_fd(), MAP, &raw mut map) } != 0 {
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                Some(libc::EINTR) => continue,
                Some(libc::EIO) => return Err(error),
                // It does not know the call, or nobody may ask.
                _ => return Ok(true),
            }
        }
        let found = &map.extents[..AT_ONCE.min(map.mapped as usize)];
        let before = at;
        for extent in found {
            if extent.flags & SHARED != 0 || extent.logical > at {
                return Ok(false);
            }
            at = at.max(extent.logical.saturating_add(extent.length));
        }
        let last = found.last().is_none_or(|extent| extent.flags & LAST != 0);
        if last || at == before {
            return Ok(at >= size);
        }
    }
    Ok(true)
}
