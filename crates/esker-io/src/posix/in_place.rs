//! A log that is written over where it lies needs no space for it. Btrfs copies what is written over, unless a file was marked
//! when it was new: on a full disk it would refuse to write to a log whose space was taken long ago.

use std::fs::File;
use std::os::fd::AsRawFd;

/// "No copy on write", as the kernel's headers have it (FS_NOCOW_FL).
const NO_COPY: libc::c_int = 0x0080_0000;

/// Marks a new, empty file so, where that has a meaning. Where it does not work the file is as any other.
pub(super) fn keep_in_place(file: &File) {
    if !is_on_btrfs(file) {
        return;
    }
    if let Some(flags) = flags(file) {
        let wanted = flags | NO_COPY;
        // SAFETY: the descriptor is open, the call reads an int.
        unsafe { libc::ioctl(file.as_raw_fd(), libc::FS_IOC_SETFLAGS, &raw const wanted) };
    }
}

fn is_on_btrfs(file: &File) -> bool {
    // SAFETY: all zeros are a statfs.
    let mut found: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: the descriptor is open, the call writes a statfs.
    let known = unsafe { libc::fstatfs(file.as_raw_fd(), &raw mut found) } == 0;
    known && found.f_type == libc::BTRFS_SUPER_MAGIC
}

fn flags(file: &File) -> Option<libc::c_int> {
    let mut flags = 0;
    // SAFETY: the descriptor is open, the call writes an int.
    let known = unsafe { libc::ioctl(file.as_raw_fd(), libc::FS_IOC_GETFLAGS, &raw mut flags) } == 0;
    known.then_some(flags)
}
