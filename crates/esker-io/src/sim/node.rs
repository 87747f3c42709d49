//! The contents of one simulated file: what is durable, what is only written, and what a power cut makes of them.
//!
//! An unsynced write is kept or lost sector by sector. A sector is written as the cache held it after the write, so a
//! later write of the same sector carries the earlier one's bytes, as a real page cache does. Sizes are metadata: of
//! the sizes that a file went through since its last sync, a power cut keeps some prefix; bytes that a kept size
//! covers and no kept sector wrote are zeros.

use super::random::{Fate, Random};
use std::sync::Arc;

/// What the medium writes as a whole, in bytes.
pub(super) const SECTOR_BYTES: u64 = 512;
/// What space is counted in, in bytes.
pub(super) const PAGE_BYTES: u64 = 4096;

#[derive(Debug, Clone)]
enum Change {
    /// Sectors from `start` on; the last one may end with the file.
    Sectors {
        start: u64,
        image: Arc<[u8]>,
    },
    Size(u64),
}

#[derive(Debug, Clone, Default)]
pub(super) struct Node {
    /// What readers see.
    written: Arc<Vec<u8>>,
    /// What the last honest sync left.
    durable: Arc<Vec<u8>>,
    /// What turns `durable` into `written`.
    pending: Vec<Change>,
    /// Which pages have space, by number.
    pages: Arc<Vec<bool>>,
    /// Open handles.
    pub(super) handles: usize,
}

impl Node {
    pub(super) fn size(&self) -> u64 {
        self.written.len() as u64
    }

    /// Bytes from `offset`, or none when the file ends before.
    pub(super) fn read(&self, offset: u64, bytes: usize) -> Option<&[u8]> {
        let start = usize::try_from(offset).ok()?;
        self.written.get(start..start.checked_add(bytes)?)
    }

    pub(super) fn write(&mut self, offset: u64, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let end = offset + bytes.len() as u64;
        if end > self.size() {
            self.change_size(end);
        }
        self.allocate(offset, end);
        let written = Arc::make_mut(&mut self.written);
        written[offset as usize..end as usize].copy_from_slice(bytes);
        let start = offset / SECTOR_BYTES * SECTOR_BYTES;
        let stop = end.next_multiple_of(SECTOR_BYTES).min(written.len() as u64);
        let image = written[start as usize..stop as usize].into();
        self.pending.push(Change::Sectors { start, image });
    }

    pub(super) fn resize(&mut self, size: u64) {
        if size == self.size() && self.pages.len() as u64 <= size.div_ceil(PAGE_BYTES) {
            return;
        }
        // What was reserved beyond the end goes too.
        Arc::make_mut(&mut self.pages).truncate(size.div_ceil(PAGE_BYTES) as usize);
        self.change_size(size);
    }

    fn change_size(&mut self, size: u64) {
        Arc::make_mut(&mut self.written).resize(size as usize, 0);
        self.pending.push(Change::Size(size));
    }

    pub(super) fn allocate(&mut self, start: u64, end: u64) {
        let (first, last) = ((start / PAGE_BYTES) as usize, end.div_ceil(PAGE_BYTES) as usize);
        let pages = Arc::make_mut(&mut self.pages);
        if pages.len() < last {
            pages.resize(last, false);
        }
        pages[first..last].fill(true);
    }

    /// Bytes of space that the file has.
    pub(super) fn allocated(&self) -> u64 {
        self.pages.iter().filter(|&&page| page).count() as u64 * PAGE_BYTES
    }

    /// Where in `start..end` the space ends if only `free` bytes can be had.
    pub(super) fn fits_until(&self, start: u64, end: u64, mut free: u64) -> u64 {
        for page in start / PAGE_BYTES..end.div_ceil(PAGE_BYTES) {
            if !self.pages.get(page as usize).copied().unwrap_or(false) {
                if free < PAGE_BYTES {
                    return (page * PAGE_BYTES).max(start);
                }
                free -= PAGE_BYTES;
            }
        }
        end
    }

    pub(super) fn sync(&mut self) {
        let durable = Arc::make_mut(&mut self.durable);
        for change in self.pending.drain(..) {
            change.apply(durable, |_| true);
        }
    }

    /// A sync that fails: some of the writes are dropped for good, though readers still see them and the next sync
    /// succeeds, as Linux does it.
    pub(super) fn fail_sync(&mut self, random: &mut Random) {
        self.pending.retain(|change| matches!(change, Change::Size(_)) || random.chance(50));
    }

    /// The file as a power cut leaves it.
    pub(super) fn after_power_cut(&self, random: &mut Random) -> Node {
        let fate = Fate::choose(random);
        let mut content = self.durable.clone();
        if !self.pending.is_empty() && fate != Fate::Lost {
            self.keep_some(Arc::make_mut(&mut content), fate, random);
        }
        let mut node = Node { written: content.clone(), durable: content, ..Node::default() };
        node.pages = self.pages.clone();
        let pages = node.size().div_ceil(PAGE_BYTES);
        Arc::make_mut(&mut node.pages).truncate(pages as usize);
        node
    }

    fn keep_some(&self, content: &mut Vec<u8>, fate: Fate, random: &mut Random) {
        let (sizes, edge) = match fate {
            Fate::Prefix => (usize::MAX, random.up_to(self.pending.len() as u64) as usize),
            Fate::Each(_) => {
                let sizes = self.pending.iter().filter(|c| matches!(c, Change::Size(_))).count();
                (random.up_to(sizes as u64) as usize, usize::MAX)
            }
            Fate::Lost | Fate::Kept => (usize::MAX, usize::MAX),
        };
        let mut sizes_seen = 0;
        for (i, change) in self.pending.iter().enumerate() {
            if i > edge {
                break;
            }
            if matches!(change, Change::Size(_)) {
                sizes_seen += 1;
                if sizes_seen > sizes || i == edge {
                    continue;
                }
            }
            change.apply(content, |_| match fate {
                Fate::Each(percent) => random.chance(percent),
                _ => i < edge || random.chance(50),
            });
        }
    }

    /// Changes bytes behind everybody's back, on the medium and in the cache.
    pub(super) fn damage(&mut self, offset: u64, xor: &[u8]) {
        for content in [&mut self.written, &mut self.durable] {
            let content = Arc::make_mut(content).iter_mut().skip(offset as usize);
            content.zip(xor).for_each(|(byte, x)| *byte ^= x);
        }
    }
}

impl Change {
    /// Applies a size, or those sectors that `keep` says; what lies beyond the end is dropped.
    fn apply(&self, content: &mut Vec<u8>, mut keep: impl FnMut(u64) -> bool) {
        match self {
            Change::Size(size) => content.resize(*size as usize, 0),
            Change::Sectors { start, image } => {
                for (i, sector) in (0u64..).zip(image.chunks(SECTOR_BYTES as usize)) {
                    let at = (start + i * SECTOR_BYTES) as usize;
                    if keep(at as u64) && at < content.len() {
                        let n = sector.len().min(content.len() - at);
                        content[at..at + n].copy_from_slice(&sector[..n]);
                    }
                }
            }
        }
    }
}
