//! The machine under the files: what the kernel tells about itself, a process's time and I/O, mounts, memory.

use esker_io::{IoError, Result};
use std::fs;
use std::io::{self, IsTerminal, Read};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::time::Duration;

/// A text file of the kernel (`/proc`, `/sys`), whole.
///
/// # Errors
/// What the operating system says.
pub fn read_text(path: &Path) -> Result<String> {
    fs::read_to_string(path).map_err(|e| IoError::from_os("read", path, None, &e))
}

/// Bytes of a text that somebody gives: reports with all samples are shorter.
const LONGEST: u64 = 256 << 20;

/// Opens a file that somebody gives to be read, or what somebody writes to meanwhile: a device (/dev/zero) may never come to
/// an end.
///
/// # Errors
/// What the operating system says; that it is a device, but for a terminal.
pub fn open_given(path: &Path) -> io::Result<fs::File> {
    let kind = fs::metadata(path)?.file_type();
    let file = fs::File::open(path)?;
    match (kind.is_char_device() && !file.is_terminal()) || kind.is_block_device() {
        true => Err(io::Error::other("it is a device")),
        false => Ok(file),
    }
}

/// A text that somebody gives as a file, whole.
///
/// # Errors
/// What the operating system says; that it is a device, or too long.
pub fn read_given(path: &Path) -> Result<String> {
    let text = open_given(path).and_then(|file| text_of(file, LONGEST));
    text.map_err(|e| IoError::from_os("read", path, None, &e))
}

/// A text that somebody gives on the standard input, whole.
///
/// # Errors
/// What the operating system says; that it is too long.
pub fn read_standard_input() -> io::Result<String> {
    text_of(io::stdin(), LONGEST)
}

fn text_of(input: impl Read, most: u64) -> io::Result<String> {
    let mut bytes = Vec::new();
    input.take(most + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > most {
        true => Err(io::Error::other(format!("it is longer than {most} bytes"))),
        false => String::from_utf8(bytes).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e)),
    }
}

/// Where a path really lies: without links and dots.
///
/// # Errors
/// What the operating system says.
pub fn canonical(path: &Path) -> Result<std::path::PathBuf> {
    fs::canonicalize(path).map_err(|e| IoError::from_os("look at", path, None, &e))
}

/// Writes a text file as a whole; it is not synced.
///
/// # Errors
/// What the operating system says.
pub fn write_text(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).map_err(|e| IoError::from_os("write", path, None, &e))
}

/// Makes a folder that is not there yet.
///
/// # Errors
/// `AlreadyExists`; what the operating system says.
pub fn create_new_dir(path: &Path) -> Result<()> {
    fs::create_dir(path).map_err(|e| IoError::from_os("create folder", path, None, &e))
}

/// How every page begins.
const PAGE: &[u8] = b"<!doctype html>";

/// Refuses to write a page there, before anything is measured for it: where it cannot be, and over a file that is no page.
///
/// # Errors
/// What the operating system says; `AlreadyExists`.
pub fn may_be_page(path: &Path) -> Result<()> {
    let told = |e: io::Error| IoError::from_os("write", path, None, &e);
    let mut options = fs::OpenOptions::new();
    options.write(true);
    match fs::metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            options.create_new(true).open(path).map_err(told)?;
            fs::remove_file(path).map_err(told)
        }
        Err(e) => Err(told(e)),
        Ok(found) if found.is_dir() => Err(told(io::Error::from_raw_os_error(libc::EISDIR))),
        // A terminal, a pipe: it may wait for who opens it.
        Ok(found) if !found.is_file() => Ok(()),
        Ok(found) => {
            let mut begin = Vec::new();
            let file = options.read(true).open(path).map_err(told)?;
            file.take(PAGE.len() as u64).read_to_end(&mut begin).map_err(told)?;
            match found.len() == 0 || begin == PAGE {
                true => Ok(()),
                false => Err(told(io::Error::other("it is there already and is no page of HTML"))),
            }
        }
    }
}

/// What this process has used so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Processor time of the program.
    pub user: Duration,
    /// Processor time of the kernel on its behalf.
    pub system: Duration,
    /// Page faults that needed no storage: pages that the kernel found or made.
    pub minor_faults: u64,
    /// Bytes that read calls gave it.
    pub read_call_bytes: u64,
    /// Bytes that it gave write calls.
    pub write_call_bytes: u64,
    /// Read calls.
    pub read_calls: u64,
    /// Write calls.
    pub write_calls: u64,
    /// Bytes that the storage gave.
    pub device_read_bytes: u64,
    /// Bytes that the storage is to take: counted when a page becomes dirty, or written directly.
    pub device_write_bytes: u64,
}

/// Processor time of this process so far: of the program, and of the kernel on its behalf. What is not told is zero.
pub fn processor_time() -> (Duration, Duration) {
    let usage = resources();
    (duration(usage.ru_utime), duration(usage.ru_stime))
}

fn resources() -> libc::rusage {
    // SAFETY: plain numbers, filled in by the call.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: points to a rusage; an error leaves it as it is.
    unsafe { libc::getrusage(libc::RUSAGE_SELF, &mut usage) };
    usage
}

impl Usage {
    /// This process's usage now. What the kernel does not tell is zero.
    pub fn now() -> Usage {
        let mut usage = Usage::default();
        let times = resources();
        usage.user = duration(times.ru_utime);
        usage.system = duration(times.ru_stime);
        usage.minor_faults = times.ru_minflt as u64;
        for line in fs::read_to_string("/proc/self/io").unwrap_or_default().lines() {
            let Some((name, n)) = line.split_once(": ").and_then(|(name, n)| Some((name, n.parse().ok()?))) else {
                continue;
            };
            match name {
                "rchar" => usage.read_call_bytes = n,
                "wchar" => usage.write_call_bytes = n,
                "syscr" => usage.read_calls = n,
                "syscw" => usage.write_calls = n,
                "read_bytes" => usage.device_read_bytes = n,
                "write_bytes" => usage.device_write_bytes = n,
                _ => {}
            }
        }
        usage
    }

    /// What was used since `before`.
    #[must_use]
    pub fn since(&self, before: &Usage) -> Usage {
        Usage {
            user: self.user.saturating_sub(before.user),
            system: self.system.saturating_sub(before.system),
            minor_faults: self.minor_faults.saturating_sub(before.minor_faults),
            read_call_bytes: self.read_call_bytes.saturating_sub(before.read_call_bytes),
            write_call_bytes: self.write_call_bytes.saturating_sub(before.write_call_bytes),
            read_calls: self.read_calls.saturating_sub(before.read_calls),
            write_calls: self.write_calls.saturating_sub(before.write_calls),
            device_read_bytes: self.device_read_bytes.saturating_sub(before.device_read_bytes),
            device_write_bytes: self.device_write_bytes.saturating_sub(before.device_write_bytes),
        }
    }
}

/// What other processes and the kernel's threads have had so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OtherProcesses {
    /// Bytes that other processes had from storage and gave it, with their ended children's; the kernel's threads do not
    /// count, which write for whoever asked.
    pub bytes: u64,
    /// Clock ticks of the kernel's threads.
    pub kernel_ticks: u64,
    /// Other processes that may be asked for their bytes.
    pub asked: usize,
    /// And those that may not: another user's.
    pub hidden: usize,
}

/// Of a process's flags: it is a thread of the kernel (PF_KTHREAD).
const KERNEL_THREAD: u64 = 0x0020_0000;

impl OtherProcesses {
    /// Looks at all processes that can be seen, some ten microseconds each. What the kernel does not tell is zero.
    #[must_use]
    pub fn now() -> OtherProcesses {
        let mut all = OtherProcesses::default();
        let own = std::process::id();
        let names = fs::read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.file_name());
        let others = names.filter_map(|name| name.to_str()?.parse::<u32>().ok()).filter(|pid| *pid != own);
        for pid in others {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            // The name may hold spaces and brackets. Behind it come state, five numbers, and the flags.
            let after = stat.rsplit(')').next().unwrap_or("");
            let figure = |n: usize| after.split_whitespace().nth(n).and_then(|v| v.parse::<u64>().ok()).unwrap_or(0);
            if figure(6) & KERNEL_THREAD != 0 {
                all.kernel_ticks += figure(11) + figure(12);
                continue;
            }
            match fs::read_to_string(format!("/proc/{pid}/io")) {
                Ok(text) => {
                    all.asked += 1;
                    all.bytes += storage_bytes(&text);
                }
                Err(_) => all.hidden += usize::from(!stat.is_empty()),
            }
        }
        all
    }
}

/// Bytes from and to storage, of a process's `io`.
fn storage_bytes(text: &str) -> u64 {
    let of = |name: &str| {
        text.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(": ")?.parse::<u64>().ok()).unwrap_or(0)
    };
    (of("read_bytes") + of("write_bytes")).saturating_sub(of("cancelled_write_bytes"))
}

fn duration(t: libc::timeval) -> Duration {
    Duration::new(t.tv_sec as u64, t.tv_usec as u32 * 1000)
}

/// The mount that a path lies on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mount {
    /// Where it is mounted.
    pub point: String,
    /// File system type.
    pub kind: String,
    /// Device, as the kernel names it.
    pub source: String,
    /// Options of the mount and of the file system.
    pub options: String,
    /// "major:minor" of the device.
    pub device: String,
}

/// The mount of `path`, which must be canonical; the innermost one in the text of `/proc/self/mountinfo`.
#[must_use]
pub fn mount_of(path: &Path, mountinfo: &str) -> Option<Mount> {
    let parse = |line: &str| {
        let (left, right) = line.split_once(" - ")?;
        let left: Vec<&str> = left.split(' ').collect();
        let right: Vec<&str> = right.split(' ').collect();
        let [_, _, device, _, point, options, ..] = left[..] else { return None };
        let [kind, source, more, ..] = right[..] else { return None };
        Some(Mount {
            point: point.replace("\\040", " "),
            kind: kind.to_owned(),
            source: source.to_owned(),
            options: format!("{options},{more}"),
            device: device.to_owned(),
        })
    };
    // Later lines hide earlier ones.
    mountinfo.lines().filter_map(parse).filter(|m| path.starts_with(&m.point)).max_by_key(|m| m.point.len())
}

/// The last part of where a link points to.
#[must_use]
pub fn link_name(path: &str) -> Option<String> {
    Some(fs::read_link(path).ok()?.file_name()?.to_string_lossy().into_owned())
}

/// Seconds since 1970.
#[must_use]
pub fn unix_seconds() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |t| t.as_secs())
}

/// Writes that a block device has taken so far, from whomever: requests, and bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DeviceWrites {
    /// Write requests done.
    pub requests: u64,
    /// Bytes of them.
    pub bytes: u64,
}

impl DeviceWrites {
    /// Of the device that is "major:minor"; `None` where the kernel counts nothing for it (Documentation/block/stat.rst).
    #[must_use]
    pub fn now(device: &str) -> Option<DeviceWrites> {
        let text = fs::read_to_string(format!("/sys/dev/block/{device}/stat")).ok()?;
        let mut figures = text.split_whitespace().skip(4).map_while(|n| n.parse::<u64>().ok());
        let (requests, _merged, sectors) = (figures.next()?, figures.next()?, figures.next()?);
        Some(DeviceWrites { requests, bytes: sectors * 512 })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_mount_counts() {
        let text = "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,errors=remount-ro\n\
                    30 22 0:24 / /mnt/a\\040b rw - tmpfs none rw,size=1k\n";
        let at = |p: &str| mount_of(Path::new(p), text).map(|m| (m.kind, m.device));
        assert_eq!(at("/mnt/a b/c"), Some(("tmpfs".into(), "0:24".into())));
        assert_eq!(at("/mnt/other"), Some(("ext4".into(), "254:0".into())));
    }

    #[test]
    fn other_processes_are_asked_for_their_bytes() {
        let text = "rchar: 9\nwchar: 9\nread_bytes: 4096\nwrite_bytes: 8192\ncancelled_write_bytes: 1024\n";
        assert_eq!((storage_bytes(text), storage_bytes("")), (11_264, 0));
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let with = OtherProcesses::now();
        child.kill().unwrap();
        child.wait().unwrap();
        // A child of the same user may be asked.
        assert!(with.asked >= 1, "{with:?}");
    }

    #[test]
    fn what_has_no_end_is_no_text() {
        let zero = read_given(Path::new("/dev/zero")).unwrap_err().to_string();
        assert_eq!(zero, "cannot read /dev/zero: it is a device");
        let of = |bytes: &'static [u8]| text_of(bytes, 4).map_err(|e| e.to_string());
        assert_eq!((of(b"abcd"), of(b"abcde")), (Ok("abcd".into()), Err("it is longer than 4 bytes".into())));
        assert!(text_of(io::repeat(b'x'), 1 << 20).is_err() && of(b"\xff").is_err());
    }

    #[test]
    fn usage_only_grows() {
        let before = Usage::now();
        let now = Usage::now();
        assert!(now.read_calls >= before.read_calls && now.since(&before).user <= now.user);
    }
}
