//! A process's memory as the kernel tells it: its maps, what of them is resident, and whose `malloc` it uses.
//!
//! Invariant: nothing is changed; a process is only looked at. Looking at all maps makes the kernel walk their pages, and
//! the process cannot map memory meanwhile: of a large server it is asked once, not in a loop.

use super::host::read_text;
use esker_io::{IoError, IoKind, Result};
use std::path::{Path, PathBuf};

/// Bytes of a process's memory, by what the kernel could do with them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Memory {
    /// In memory.
    pub resident: u64,
    /// In memory or not: of no file, so nobody but the process has it.
    pub anonymous: u64,
    /// In the swap space: given away by the kernel, not by the process.
    pub swapped: u64,
    /// Resident, but the process has said that it does not need the contents: the kernel takes it when it is short
    /// (MADV_FREE).
    pub lazy_free: u64,
}

impl Memory {
    /// Takes a line of `/proc/PID/smaps` or `smaps_rollup` into account.
    fn add_line(&mut self, line: &str) {
        let Some((name, value)) = line.split_once(':') else { return };
        let kib = || value.trim().strip_suffix(" kB").and_then(|n| n.trim().parse::<u64>().ok()).unwrap_or(0);
        match name {
            "Rss" => self.resident += kib() << 10,
            "Anonymous" => self.anonymous += kib() << 10,
            "Swap" => self.swapped += kib() << 10,
            "LazyFree" => self.lazy_free += kib() << 10,
            _ => {}
        }
    }

    /// Both together.
    #[must_use]
    pub fn and(self, other: Memory) -> Memory {
        Memory {
            resident: self.resident + other.resident,
            anonymous: self.anonymous + other.anonymous,
            swapped: self.swapped + other.swapped,
            lazy_free: self.lazy_free + other.lazy_free,
        }
    }
}

/// One map: a run of addresses of one kind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Map {
    /// First address.
    pub start: u64,
    /// The address after the last one.
    pub end: u64,
    /// Can the process use it? Guard pages and address space kept for later cannot be.
    pub usable: bool,
    /// Mapped without a claim to swap space (MAP_NORESERVE).
    pub no_reserve: bool,
    /// The file's path, or "[heap]", "[stack]", "[anon:name]"; empty for anonymous memory without a name.
    pub name: String,
    /// What of it is where.
    pub memory: Memory,
}

impl Map {
    /// Its length in bytes of address space.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.end - self.start
    }
}

/// The first line of a map, "start-end permissions offset device inode name", or none if it is no such line.
fn head(line: &str) -> Option<Map> {
    let mut words = line.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let address = |text: &str| u64::from_str_radix(text, 16).ok();
    let (start, end, permissions) = (address(start)?, address(end)?, words.next()?);
    // A name may hold blanks; the four words before it do not.
    let name = (0..5).try_fold(line, |rest, _| Some(rest.trim_start().split_once(' ')?.1)).unwrap_or("");
    let usable = !permissions.starts_with("---");
    (start < end).then(|| Map { start, end, usable, name: name.trim().to_owned(), ..Map::default() })
}

fn parse(text: &str) -> Vec<Map> {
    let mut maps: Vec<Map> = Vec::new();
    for line in text.lines() {
        if let Some(map) = head(line) {
            maps.push(map);
        } else if let Some(map) = maps.last_mut() {
            map.no_reserve |= line.strip_prefix("VmFlags:").is_some_and(|flags| flags.split(' ').any(|f| f == "nr"));
            map.memory.add_line(line);
        }
    }
    maps
}

/// All maps of a process, by address.
///
/// # Errors
/// `NotFound` if there is no such process; `ReadOnly` if it is somebody else's; what the operating system says.
pub fn maps(pid: u32) -> Result<Vec<Map>> {
    let path = PathBuf::from(format!("/proc/{pid}/smaps"));
    let maps = parse(&read_text(&path)?);
    if maps.is_empty() {
        let message = "it has no memory of its own: it has ended, or is the kernel's";
        return Err(IoError::new("read", &path, None, IoKind::NotFound, message));
    }
    Ok(maps)
}

/// What this process has in memory now.
///
/// # Errors
/// What the operating system says; Linux has it since 4.14.
pub fn own_memory() -> Result<Memory> {
    let mut memory = Memory::default();
    read_text(Path::new("/proc/self/smaps_rollup"))?.lines().for_each(|line| memory.add_line(line));
    Ok(memory)
}

/// The file that this process's `malloc` lies in: the C library, a preloaded allocator, or the program itself.
///
/// # Errors
/// What the operating system says.
pub fn malloc_file() -> Result<String> {
    let address = libc::malloc as *const () as u64;
    let text = read_text(Path::new("/proc/self/maps"))?;
    let map = text.lines().filter_map(head).find(|map| (map.start..map.end).contains(&address));
    Ok(map.map_or_else(String::new, |map| map.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
7f0000000000-7f0000021000 rw-p 00000000 00:00 0 \n\
Size:                132 kB\nRss:                   8 kB\nAnonymous:             8 kB\nLazyFree:              4 kB\n\
Swap:                  4 kB\nVmFlags: rd wr mr mw me nr \n\
7f0000021000-7f0004000000 ---p 00000000 00:00 0 \n\
Rss:                   0 kB\nVmFlags: mr mw me nr sd \n\
7f1000000000-7f1000001000 rw-p 00000000 00:00 0                          [anon:esker]\n\
Rss:                   4 kB\nAnonymous:             4 kB\nVmFlags: rd wr mr mw me \n\
7f2000000000-7f2000002000 r-xp 00002000 fe:00 247278                     /opt/a b/lib.so\n\
Rss:                   8 kB\nAnonymous:             0 kB\nVmFlags: rd ex mr mw me \n";

    #[test]
    fn maps_are_told_by_name_and_flags() {
        let maps = parse(TEXT);
        let names: Vec<&str> = maps.iter().map(|m| m.name.as_str()).collect();
        assert_eq!(names, ["", "", "[anon:esker]", "/opt/a b/lib.so"]);
        let first = Memory { resident: 8 << 10, anonymous: 8 << 10, swapped: 4 << 10, lazy_free: 4 << 10 };
        assert_eq!((maps[0].bytes(), maps[0].memory), (0x21000, first));
        let flags: Vec<_> = maps.iter().map(|m| (m.usable, m.no_reserve)).collect();
        assert_eq!(flags, [(true, true), (false, true), (true, false), (true, false)]);
        let all = maps.iter().fold(Memory::default(), |sum, m| sum.and(m.memory));
        assert_eq!((all.resident, all.anonymous), (20 << 10, 12 << 10));
    }

    #[test]
    fn this_process_has_memory_and_a_malloc() {
        let maps = maps(std::process::id()).unwrap();
        assert!(maps.windows(2).all(|w| w[0].end <= w[1].start));
        assert!(own_memory().unwrap().resident > 0);
        let file = malloc_file().unwrap();
        assert!(maps.iter().any(|m| m.name == file) && !file.is_empty(), "{file}");
    }

    #[test]
    fn no_process_is_an_error() {
        // Process ids are below 2^22.
        let error = maps(u32::MAX >> 1).unwrap_err();
        assert_eq!(error.kind, IoKind::NotFound);
    }
}
