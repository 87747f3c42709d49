//! The contents of one simulated file: what is durable, what is only written, and what a power cut makes of them.
//!
//! An unsynced write is kept or lost sector by sector; a durable one covers whole sectors. A sector is written as the cache held it after the write, so a
//! later write of the same sector carries the earlier one's bytes, as a real page cache does. Sizes are metadata: of
//! the sizes that a file went through since its last sync, a power cut keeps some prefix; bytes that a kept size
//! covers and no kept sector wrote are zeros.

use super::fate::Fate;
use crate::SyncMethod;
use fastrand::Rng;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// What the medium writes as a whole, in bytes.
pub const SECTOR_BYTES: u64 = 512;
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
    /// What sectors held before the sync that last changed them, by number; only where that is to be kept.
    older: Arc<BTreeMap<u64, Arc<[u8]>>>,
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

    pub(super) fn sync(&mut self, keeps_old: bool) {
        let before = keeps_old.then(|| self.durable.clone());
        let durable = Arc::make_mut(&mut self.durable);
        for change in self.pending.drain(..) {
            change.apply(durable, |_| true);
        }
        let Some(before) = before else { return };
        for (number, sector) in (0..).zip(before.chunks(SECTOR_BYTES as usize)) {
            let now = durable.get(sector_range(number, durable.len())).unwrap_or_default();
            if now != sector {
                Arc::make_mut(&mut self.older).insert(number, sector.into());
            }
        }
    }

    /// A write that is durable when it returns. By [`SyncMethod::Dsync`] its own sectors are and nothing else is, unless a size
    /// is on its way, with which a file system's journal takes the whole file.
    pub(super) fn write_durably(&mut self, offset: u64, bytes: &[u8], method: SyncMethod, keeps_old: bool) {
        self.write(offset, bytes);
        if method.covers_earlier() || self.pending.iter().any(|change| matches!(change, Change::Size(_))) {
            return self.sync(keeps_old);
        }
        let Some(Change::Sectors { start, image }) = self.pending.pop() else { return };
        let range = start..start + image.len() as u64;
        // There is one sector in the cache: what was in it before is never written after this.
        for change in &mut self.pending {
            if let Change::Sectors { start: at, image: older } = change {
                overwrite(Arc::make_mut(older), *at, &range, |place, _| image[place]);
            }
        }
        let later = std::mem::replace(&mut self.pending, vec![Change::Sectors { start, image }]);
        self.sync(keeps_old);
        self.pending = later;
    }

    /// A sync that fails: some of the writes are dropped for good, though readers still see them and the next sync
    /// succeeds, as Linux does it.
    pub(super) fn fail_sync(&mut self, random: &mut Rng) {
        self.pending.retain(|change| matches!(change, Change::Size(_)) || random.bool());
    }

    /// The file as a power cut leaves it.
    pub(super) fn after_power_cut(&self, random: &mut Rng) -> Node {
        let fate = Fate::choose(random);
        let mut content = self.durable.clone();
        if !self.pending.is_empty() && fate != Fate::Lost {
            self.keep_some(Arc::make_mut(&mut content), fate, random);
        }
        let mut node = Node { written: content.clone(), durable: content, ..Node::default() };
        node.pages = self.pages.clone();
        node.older = self.older.clone();
        let pages = node.size().div_ceil(PAGE_BYTES);
        Arc::make_mut(&mut node.pages).truncate(pages as usize);
        node
    }

    fn keep_some(&self, content: &mut Vec<u8>, fate: Fate, random: &mut Rng) {
        let (sizes, edge) = match fate {
            Fate::Prefix => (usize::MAX, random.u64(..=self.pending.len() as u64) as usize),
            Fate::Each(_) => {
                let sizes = self.pending.iter().filter(|c| matches!(c, Change::Size(_))).count();
                (random.u64(..=sizes as u64) as usize, usize::MAX)
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
                Fate::Each(percent) => random.u64(..100) < percent,
                _ => i < edge || random.bool(),
            });
        }
    }

    /// Makes each byte of `range` what `make` says: on the medium, in the cache, and on the way between. `make` gets the
    /// byte's place in the range, and the byte.
    pub(super) fn overwrite(&mut self, range: Range<u64>, make: impl Fn(usize, u8) -> u8) {
        for content in [&mut self.written, &mut self.durable] {
            overwrite(&mut Arc::make_mut(content)[..], 0, &range, &make);
        }
        for change in &mut self.pending {
            if let Change::Sectors { start, image } = change {
                overwrite(Arc::make_mut(image), *start, &range, &make);
            }
        }
    }

    /// Brings a sector's older content back, if one is known that differs.
    pub(super) fn go_back(&mut self, sector: u64) -> bool {
        let Some(old) = self.older.get(&sector).cloned() else { return false };
        let range = sector_range(sector, self.written.len());
        if self.written[range.clone()] == old[..old.len().min(range.len())] {
            return false;
        }
        let whole = range.start as u64..range.end as u64;
        self.overwrite(whole, |at, byte| old.get(at).copied().unwrap_or(byte));
        true
    }

    pub(super) fn cut_short(&mut self, size: u64) {
        let size = size.min(self.size());
        for content in [&mut self.written, &mut self.durable] {
            Arc::make_mut(content).truncate(size as usize);
        }
        for change in &mut self.pending {
            if let Change::Size(then) = change {
                *then = size.min(*then);
            }
        }
        Arc::make_mut(&mut self.pages).truncate(size.div_ceil(PAGE_BYTES) as usize);
    }
}

/// The part of `content`, which lies at `start` of its file, that `range` covers.
fn overwrite(content: &mut [u8], start: u64, range: &Range<u64>, make: impl Fn(usize, u8) -> u8) {
    for (place, byte) in (start..).zip(content.iter_mut()).skip_while(|(place, _)| *place < range.start) {
        if place >= range.end {
            break;
        }
        *byte = make((place - range.start) as usize, *byte);
    }
}

/// Where sector `number` lies in a file of `size` bytes.
fn sector_range(number: u64, size: usize) -> Range<usize> {
    let place = |n: u64| usize::try_from(n * SECTOR_BYTES).unwrap_or(size).min(size);
    place(number)..place(number + 1)
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
