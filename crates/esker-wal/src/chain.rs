//! The segments in use, those prepared for what comes, and the spare files.
//!
//! Invariants: segments follow each other by position and generation; no generation is used twice, even if making its
//! segment failed; a segment is in the chain only when everything about it is durable; a file whose new name may not be
//! durable is never written again, only removed.

use crate::replay;
use crate::seal::SEAL_BIT;
use crate::segment::{self, Segment};
use crate::sync::{order, Mutex};
use crate::trial::Trial;
use crate::{sector_up, Result, WalError, WalOptions, SECTOR_BYTES};
use esker_base::{count, Counter};
use esker_format::frame::{SegmentHeader, SEGMENT_HEADER_BYTES};
use esker_format::Lsn;
use esker_io::{AccessHint, Disk, OpenMode};
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Room of the reserve, and what an opening on a full disk wants beside what it asks for.
const RESERVE_BYTES: u64 = 64 << 10;
/// With so little it goes on all the same where neither the last segment nor the reserve has more: a table can be dropped.
const LEAST_BYTES: u64 = 16 << 10;

pub(crate) struct Chain {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    options: WalOptions,
    state: Mutex<State>,
}

struct State {
    segments: VecDeque<Arc<Segment>>,
    spares: Vec<PathBuf>,
    next_generation: u32,
    /// The reserve is there, whole.
    reserved: bool,
}

/// What an opening begins the log's next segment with.
pub(crate) struct Begin<'a, 'o> {
    /// Where the segment begins, and where the log ended before.
    pub(crate) first: u64,
    pub(crate) end: u64,
    /// Bytes that it has to have room for, whatever else.
    pub(crate) asked: u64,
    /// What syncs it is tried on the file that becomes the segment.
    pub(crate) trial: &'a mut Trial<'o>,
}

/// Where a segment that is of use up to `end` may be cut.
fn kept_to(segment: &Segment, end: u64) -> u64 {
    sector_up(end).max(segment.first + SECTOR_BYTES)
}

impl Chain {
    pub(crate) fn new(
        disk: Arc<dyn Disk>,
        dir: &Path,
        options: WalOptions,
        segments: Vec<Arc<Segment>>,
        next_generation: u32,
    ) -> Self {
        let state = State { segments: segments.into(), spares: Vec::new(), next_generation, reserved: false };
        Chain { disk, dir: dir.to_owned(), options, state: Mutex::new(&order::WAL_CHAIN, state) }
    }

    /// Bytes of the stream in a new segment.
    pub(crate) fn capacity(&self) -> u64 {
        self.options.capacity()
    }

    /// Takes in the spare files found in the folder; those of another size, and those beyond the limit, go.
    pub(crate) fn adopt_spares(&self, found: &[(u32, u64)]) -> Result<()> {
        let wanted = self.capacity() + SEGMENT_HEADER_BYTES as u64;
        let mut state = self.state.lock();
        for (generation, size) in found {
            let path = segment::spare_path(&self.dir, *generation);
            if *size == wanted && state.spares.len() < self.options.spare_segments.max(1) {
                state.spares.push(path);
            } else {
                self.disk.remove(&path)?;
            }
        }
        Ok(())
    }

    /// Makes the segment that begins at `first`. One caller at a time.
    ///
    /// # Errors
    /// Whatever the disk says. The chain is as it was, nothing new takes space, and trying again is safe if the error
    /// is passing.
    pub(crate) fn add(&self, first: u64, start: Option<u64>) -> Result<Arc<Segment>> {
        self.add_of(first, start, self.capacity(), None)
    }

    /// Makes the segment with which a log goes on. On a full disk a smaller one than usual does: what is there must open, be read, and
    /// give space back.
    pub(crate) fn add_at_opening(&self, begin: &mut Begin<'_, '_>) -> Result<Arc<Segment>> {
        self.add_down_to(RESERVE_BYTES, begin)
    }

    fn add_down_to(&self, least: u64, begin: &mut Begin<'_, '_>) -> Result<Arc<Segment>> {
        // What is left of a sector is in the other ones.
        let least = least.min(self.capacity()) + begin.asked / SECTOR_BYTES * SECTOR_BYTES;
        let mut capacity = self.capacity().max(least);
        if least > self.capacity() {
            // None of them is long enough.
            self.drop_spares()?;
        }
        loop {
            match self.add_of(begin.first, Some(begin.end), capacity, Some(begin.trial)) {
                Err(WalError::DiskFull(_)) if capacity > least => capacity = sector_up(capacity / 4).max(least),
                made => return made,
            }
        }
    }

    /// As [`add_at_opening`](Self::add_at_opening), which has found no room. What the last segment has behind the end gives some: all
    /// that the credits of the last process might have taken. Else the reserve is the segment, or gives its space.
    pub(crate) fn add_in_need(&self, begin: &mut Begin<'_, '_>) -> Result<Arc<Segment>> {
        if self.cut(begin.end)? {
            match self.add_at_opening(begin) {
                Err(WalError::DiskFull(_)) => {}
                made => return made,
            }
        }
        let path = segment::reserve_path(&self.dir);
        if self.has_whole_reserve(&path)? {
            if begin.asked < SECTOR_BYTES {
                self.state.lock().spares.push(path);
                return self.add_of(begin.first, Some(begin.end), RESERVE_BYTES, Some(begin.trial));
            }
            self.disk.remove(&path)?;
        }
        self.add_down_to(LEAST_BYTES, begin)
    }

    /// Gives back what the last segment has behind `end`, where the log ends; was there anything?
    fn cut(&self, end: u64) -> Result<bool> {
        let mut state = self.state.lock();
        let Some(last) = state.segments.back_mut() else { return Ok(false) };
        // A frame that was begun there goes on in what it would then miss; the room that was set aside is behind it.
        let kept = kept_to(last, replay::begun_to(last, end)?);
        if kept >= last.space_end {
            return Ok(false);
        }
        last.file.set_size(last.offset(kept))?;
        *last = Arc::new(last.ending_at(kept));
        Ok(true)
    }

    fn has_whole_reserve(&self, path: &Path) -> Result<bool> {
        if !self.disk.exists(path)? {
            return Ok(false);
        }
        let file = self.disk.open(path, OpenMode::Read, AccessHint::Log)?;
        Ok(file.size_bytes()? == RESERVE_BYTES + SEGMENT_HEADER_BYTES as u64)
    }

    /// Makes the reserve if there is none. One caller at a time.
    ///
    /// # Errors
    /// Whatever the disk says; a passing one (there is no space for it now) is no harm.
    pub(crate) fn keep_reserve(&self) -> Result<()> {
        if self.state.lock().reserved {
            return Ok(());
        }
        let path = segment::reserve_path(&self.dir);
        if !self.has_whole_reserve(&path)? {
            segment::create_spare(&*self.disk, &path, RESERVE_BYTES)?;
        }
        self.state.lock().reserved = true;
        Ok(())
    }

    fn add_of(
        &self,
        first: u64,
        start: Option<u64>,
        capacity: u64,
        trial: Option<&mut Trial<'_>>,
    ) -> Result<Arc<Segment>> {
        let (generation, spare) = {
            let mut state = self.state.lock();
            let generation = state.next_generation;
            state.next_generation += 1;
            (generation, state.spares.pop())
        };
        assert!(generation < SEAL_BIT, "log generations are exhausted");
        let recycled = spare.is_some();
        let path = match spare {
            Some(path) => path,
            None => {
                let path = segment::spare_path(&self.dir, generation);
                segment::create_spare(&*self.disk, &path, capacity)?;
                path
            }
        };
        if let Some(trial) = trial {
            trial.on(&*self.disk, &path);
        }
        let tag = self.fresh_tag(generation);
        let header = SegmentHeader { generation, tag, first_lsn: Lsn(first), folder: self.options.folder };
        match segment::make(&*self.disk, &self.dir, &path, header, start) {
            Ok(made) => {
                if recycled {
                    count(Counter::WalSegmentsRecycled, 1);
                }
                let made = Arc::new(made);
                self.state.lock().segments.push_back(made.clone());
                Ok(made)
            }
            Err(e) => {
                // A spare that was there before stays one. All else goes, under whatever name: a failure takes no space.
                if recycled && e.is_passing() && self.disk.exists(&path).unwrap_or(false) {
                    self.state.lock().spares.push(path);
                } else {
                    let _ = self.disk.remove(&path);
                    let _ = self.disk.remove(&segment::wal_path(&self.dir, generation));
                }
                Err(e)
            }
        }
    }

    /// What the frames of a segment repeat: bytes that nobody could put into a row beforehand, so that what lies in its file since an
    /// earlier use is never taken for a frame, whatever it was made to look like.
    fn fresh_tag(&self, generation: u32) -> u32 {
        let [a, b, c, d, ..] = self.disk.fresh_id();
        (u32::from_le_bytes([a, b, c, d]) ^ generation) & (SEAL_BIT - 1)
    }

    /// The segment that holds `position`.
    pub(crate) fn find(&self, position: u64) -> Result<Arc<Segment>> {
        let state = self.state.lock();
        let found = state.segments.iter().rev().find(|s| s.first <= position && position < s.end);
        found.cloned().ok_or_else(|| WalError::Missing { folder: self.dir.clone(), lsn: Lsn(position) })
    }

    /// The log goes on in its last segment, which is durable: gives back what each one has behind the end with which a later one
    /// begins. A server that dies again and again soon after its start would keep a whole segment for each of them. That it fails
    /// costs space alone, and the next opening tries it again.
    pub(crate) fn shorten(&self) {
        let mut state = self.state.lock();
        let ends: Vec<_> = state.segments.iter().skip(1).map(|next| next.start).collect();
        for (segment, end) in state.segments.iter_mut().zip(ends) {
            let Some(kept) = end.map(|end| kept_to(segment, end)) else { continue };
            if kept < segment.space_end && segment.file.set_size(segment.offset(kept)).is_ok() {
                *segment = Arc::new(segment.ending_at(kept));
            }
        }
    }

    /// Turns segments wholly before `keep_from` into spares. One caller at a time.
    ///
    /// # Errors
    /// Whatever the disk says. If the error is passing, those that are left will go the next time.
    pub(crate) fn recycle(&self, keep_from: u64) -> Result<()> {
        let gone: Vec<_> = {
            let state = self.state.lock();
            let next = state.segments.iter().skip(1);
            let pairs = state.segments.iter().zip(next);
            pairs.take_while(|(s, next)| s.end <= keep_from && next.first <= keep_from).map(|p| p.0.clone()).collect()
        };
        let mut laid_down = 0;
        let retired = self.retire_some(&gone, &mut laid_down);
        self.state.lock().segments.drain(..laid_down);
        retired
    }

    /// Makes spares of segments that nobody needs and that are not in the chain.
    pub(crate) fn retire(&self, gone: &[Arc<Segment>]) -> Result<()> {
        self.retire_some(gone, &mut 0)
    }

    /// The names of those that could be laid down go durably before anything writes into the files: a segment's name
    /// always means a whole header.
    fn retire_some(&self, gone: &[Arc<Segment>], laid_down: &mut usize) -> Result<()> {
        let mut spares = Vec::new();
        let mut laid = Ok(());
        for old in gone {
            match self.lay_down(old, spares.len()) {
                Ok(spare) => spares.extend(spare),
                Err(e) => {
                    laid = Err(e);
                    break;
                }
            }
            *laid_down += 1;
        }
        if *laid_down > 0 {
            match segment::sync_names(&*self.disk, &self.dir) {
                Ok(()) => self.state.lock().spares.extend(spares),
                Err(e) => {
                    for spare in spares {
                        let _ = self.disk.remove(&spare);
                    }
                    return Err(e);
                }
            }
        }
        laid
    }

    /// Takes a segment's name away; the spare's, if there is use for it beside `more` others.
    fn lay_down(&self, old: &Segment, more: usize) -> Result<Option<PathBuf>> {
        let room = self.state.lock().spares.len() + more < self.options.spare_segments;
        if room && old.file.size_bytes()? == self.capacity() + old.offset(old.first) {
            let path = segment::spare_path(&self.dir, old.generation);
            self.disk.rename(&old.path, &path)?;
            return Ok(Some(path));
        }
        self.disk.remove(&old.path)?;
        Ok(None)
    }

    /// Removes the spare files. One caller at a time, and none that makes a segment.
    pub(crate) fn drop_spares(&self) -> Result<()> {
        loop {
            let Some(spare) = self.state.lock().spares.last().cloned() else { return Ok(()) };
            self.disk.remove(&spare)?;
            self.state.lock().spares.pop();
        }
    }

    /// Segments in use or prepared, and spare files.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let state = self.state.lock();
        (state.segments.len(), state.spares.len())
    }

    /// Position of the oldest byte kept.
    pub(crate) fn first(&self) -> u64 {
        self.state.lock().segments.front().map_or(0, |s| s.first)
    }
}
