//! The log itself: appending, waiting for durability, and the care of its segments.
//!
//! Locks, in the order in which they may be taken: `turn` (who finds no room in the buffer makes some), `making` (segments are made,
//! recycled), the group's leadership,
//! `tail` (positions and the buffer; never held across I/O), the chain's own, the group's state. An append takes `tail`
//! alone.

use crate::buffer::{self, LogBuffer, FIRST_BUFFER_BYTES};
use crate::chain::{Begin, Chain};
use crate::group::{Goal, Group};
use crate::options::{FlushMode, WalOptions};
use crate::replay::{self, OnFrame, Replayed};
use crate::seal::SEAL_MAX_BYTES;
use crate::segment::{self, Segment};
use crate::sync::{order, Mutex};
use crate::tail::{Appended, Tail};
use crate::trial::{Syncing, Trial};
use crate::writer::Writer;
use crate::{frame_space, sector_up, Committer, Result, WalError};
use esker_base::phase::{CommitPhase, Moment};
use esker_base::{count, timed, Counter, WaitEvent};
use esker_format::frame::MAX_PAYLOAD_BYTES;
use esker_format::Lsn;
use esker_io::{Disk, OpenMode};
use std::path::Path;
use std::sync::Arc;

struct Shared {
    options: WalOptions,
    chain: Chain,
    tail: Mutex<Tail>,
    group: Group,
    writer: Mutex<Writer>,
    making: Mutex<()>,
    turn: Mutex<()>,
    replayed: Replayed,
    syncing: Syncing,
}

/// A log that is open for appending. Clones are the same log.
///
/// Who may call what under a lock of theirs: [`append_reserved`](Wal::append_reserved), [`end_lsn`](Wal::end_lsn),
/// [`durable_lsn`](Wal::durable_lsn), [`needs_segments`](Wal::needs_segments), [`stats`](Wal::stats), [`poison`](Wal::poison)
/// and a credit's drop do no I/O and wait for nobody's. [`append`](Wal::append) and [`reserve_commit`](Wal::reserve_commit) do neither as a rule, but may make a segment
/// and write when none is ready or the buffer is full. All others do I/O or wait for it.
#[derive(Clone)]
pub struct Wal(Arc<Shared>);

/// Space set aside for one frame that must not fail. Dropping it gives the space back.
pub struct Credit {
    shared: Arc<Shared>,
    /// Longest payload, until the frame is appended.
    payload: Option<usize>,
}

impl Credit {
    /// Gives back what was set aside.
    fn settle(&mut self, tail: &mut Tail) {
        if let Some(payload) = self.payload.take() {
            tail.unreserve(frame_space(payload) as u64);
        }
    }
}

impl Drop for Credit {
    fn drop(&mut self) {
        if self.payload.is_some() {
            let shared = self.shared.clone();
            self.settle(&mut shared.tail.lock());
        }
    }
}

/// How the log stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WalStats {
    /// Position of the oldest byte kept.
    pub first: Lsn,
    /// Position after the last byte written to the operating system.
    pub written: Lsn,
    /// Position before which everything is durable.
    pub durable: Lsn,
    /// Position after the last frame.
    pub end: Lsn,
    /// Segments in use or prepared.
    pub segments: usize,
    /// Files kept for later segments.
    pub spares: usize,
}

/// A log that was replayed and is not written yet.
pub struct Opening {
    options: WalOptions,
    chain: Chain,
    replayed: Replayed,
}

impl Opening {
    /// Gives every frame of the log in `dir` from `from` on to `on_frame`. For a log that is not there yet
    /// ([`WalOptions::create`]), `from` is where it begins.
    ///
    /// Everything replayed is durable when this returns, even if a crash came before its sync.
    ///
    /// # Errors
    /// As [`replay`](crate::replay).
    pub fn replay<E: From<WalError>>(
        disk: Arc<dyn Disk>,
        dir: &Path,
        options: WalOptions,
        from: Lsn,
        on_frame: &mut OnFrame<'_, E>,
        progress: &mut dyn FnMut(u64, u64),
    ) -> std::result::Result<Opening, E> {
        if options.create {
            create_dir(&*disk, dir)?;
        }
        let mut found = replay::find(&*disk, dir, options.folder, from, OpenMode::Write)?;
        let replayed = if found.segments.is_empty() && options.create {
            Replayed { end: from, ..Replayed::default() }
        } else {
            replay::run(dir, &found.segments, (from, options.durable), on_frame, progress)?
        };
        Ok(Self::settle(disk, dir, options, from, &mut found, replayed)?)
    }

    fn settle(
        disk: Arc<dyn Disk>,
        dir: &Path,
        options: WalOptions,
        from: Lsn,
        found: &mut replay::Found,
        replayed: Replayed,
    ) -> Result<Opening> {
        let mut replayed = replayed;
        // Openings that came to nothing: the log goes on where they did, and their files are space on a full disk.
        let mut fruitless = Vec::new();
        while let Some(start) = before_fruitless(&found.segments, from, replayed.end) {
            fruitless.extend(found.segments.pop());
            (replayed.end, replayed.durable) = (start, replayed.durable.min(start));
        }
        let end = replayed.end.0;
        // What was prepared for a stream that ends here is of no use any more; but the one that holds the position where
        // the replay began stays until another does, or a crash in between leaves a log that does not open.
        let is_used = |s: &&Arc<Segment>| s.first < end || s.start.is_some() || s.first <= from.0;
        let used = found.segments.iter().take_while(is_used).count();
        for (i, segment) in found.segments.iter().enumerate() {
            let torn = end <= segment.end && replay::goes_on_behind(segment, end)?;
            if torn || (i < used && segment.end > replayed.durable.0) {
                // Frames that were written and not synced are about to be built upon.
                segment::keep(segment, replayed.durable.0.max(segment.first).min(end), end.min(segment.end), torn)?;
            }
        }
        let unused = found.segments.split_off(used);
        let generation = found.next_generation();
        // Names that a killed process gave may not be durable: a spare's file may yet come back as the segment it was.
        crate::segment::sync_names(&*disk, dir)?;
        let chain = Chain::new(disk, dir, options.clone(), std::mem::take(&mut found.segments), generation);
        chain.adopt_spares(&found.listing.spares)?;
        // First, so that a full disk is no reason not to open: a new segment can take their place.
        // The last one first, each durably: a crash in between must leave no hole.
        for segment in fruitless.chunks(1).chain(unused.rchunks(1)) {
            chain.retire(segment)?;
        }
        chain.retire(&found.void)?;
        Ok(Opening { options, chain, replayed })
    }

    /// Continues behind the last frame in a new segment, with room for `credits` of [`Wal::reserve_commit`], each of up to so many
    /// bytes: as many as the last process had given out can be had on a full disk, too. There `make_room` may remove what the replay
    /// has shown to be of no use; if that does not help, the log takes what its last segment has behind its end, and the reserve
    /// that it keeps for this.
    ///
    /// # Errors
    /// `DiskFull`, and whatever the disk or `make_room` says.
    pub fn begin<E: From<WalError>>(
        self,
        (credits, payload): (usize, usize),
        make_room: &mut dyn FnMut() -> std::result::Result<(), E>,
    ) -> std::result::Result<Wal, E> {
        let Opening { options, chain, replayed } = self;
        let end = replayed.end.0;
        let first = sector_up(end);
        let asked = credits as u64 * (checked_bytes(payload)? + SEAL_MAX_BYTES);
        let mut trial = Trial::new(&options);
        let mut begin = Begin { first, end, asked, trial: &mut trial };
        let mut made = chain.add_at_opening(&mut begin);
        if matches!(made, Err(WalError::DiskFull(_))) {
            make_room()?;
            made = chain.add_at_opening(&mut begin);
        }
        if matches!(made, Err(WalError::DiskFull(_))) {
            made = chain.add_in_need(&mut begin);
        }
        let segment = made?;
        chain.shorten();
        let syncing = trial.done.unwrap_or_default();
        let at = first + crate::SECTOR_BYTES;
        let memory = || buffer::region(FIRST_BUFFER_BYTES).map_err(WalError::from);
        let mut tail = Tail::new(memory()?, memory()?, at);
        tail.add_segment(first, segment.tag, segment.end);
        Ok(Wal(Arc::new(Shared {
            options,
            chain,
            tail: Mutex::new(&order::WAL_TAIL, tail),
            group: Group::new(at),
            writer: Mutex::new(&order::WAL_WRITER, Writer::new(syncing.method)),
            making: Mutex::new(&order::WAL_MAKING, ()),
            turn: Mutex::new(&order::WAL_TURN, ()),
            replayed,
            syncing,
        })))
    }
}

impl Wal {
    /// Opens the log in `dir`: [`Opening::replay`], then [`Opening::begin`].
    ///
    /// # Errors
    /// As of both.
    pub fn open<E: From<WalError>>(
        disk: Arc<dyn Disk>,
        dir: &Path,
        options: WalOptions,
        from: Lsn,
        on_frame: &mut OnFrame<'_, E>,
        progress: &mut dyn FnMut(u64, u64),
    ) -> std::result::Result<Wal, E> {
        Opening::replay(disk, dir, options, from, on_frame, progress)?.begin((0, 0), &mut || Ok(()))
    }

    /// What opening the log found.
    pub fn replayed(&self) -> Replayed {
        self.0.replayed
    }

    /// How its groups are made durable, and how it came to that.
    pub fn syncing(&self) -> &Syncing {
        &self.0.syncing
    }

    /// Appends a frame: copies it into the buffer, no more. Makes a segment if none is prepared, and writes if the
    /// buffer is full; with [`Wal::prepare_segments`] called in time, and commits that wait, neither happens.
    ///
    /// # Errors
    /// A passing one ([`WalError::is_passing`]) or `TooLong`: nothing was appended, the log goes on. `Poisoned`.
    pub fn append(&self, payload: &[u8]) -> Result<Appended> {
        let bytes = checked_bytes(payload.len())?;
        self.0.with_space(bytes, bytes, |tail| tail.put(payload))
    }

    /// Sets aside what one frame with a payload of up to `payload` bytes needs: memory for the frame, and space on disk
    /// for it and its seal. May do I/O, as [`Wal::append`].
    ///
    /// # Errors
    /// As [`Wal::append`].
    pub fn reserve_commit(&self, payload: usize) -> Result<Credit> {
        let bytes = checked_bytes(payload)?;
        self.0.with_space(bytes, bytes + SEAL_MAX_BYTES, |tail| tail.reserve(bytes))??;
        Ok(Credit { shared: self.0.clone(), payload: Some(payload) })
    }

    /// Appends the frame that `credit` was taken for: no I/O, no wait, no failure. In a poisoned log the frame gets a
    /// position and is otherwise forgotten.
    ///
    /// # Panics
    /// If the payload is longer than the credit allows.
    pub fn append_reserved(&self, mut credit: Credit, payload: &[u8]) -> Appended {
        assert!(credit.payload.is_some_and(|most| payload.len() <= most), "a frame is longer than its credit");
        let mut tail = self.0.tail.lock();
        // Asked under the lock under which the leader asks before it takes: a frame that is forgotten gets a position that
        // no sync ever covers.
        let appended = match self.0.group.is_poisoned() {
            false => tail.put(payload),
            true => tail.lose(payload),
        };
        credit.settle(&mut tail);
        appended
    }

    /// Returns when everything before `upto` is durable. Writes and syncs for all who wait, or waits for the one who
    /// does.
    ///
    /// # Errors
    /// `Poisoned`: it may or may not be durable; opening the log again tells.
    pub fn wait_durable(&self, upto: Lsn) -> Result<()> {
        self.durable_for(Committer::No, upto)
    }

    fn durable_for(&self, who: Committer, upto: Lsn) -> Result<()> {
        let shared = &self.0;
        count(Counter::WalSyncRequests, 1);
        if shared.group.durable() >= upto.0 {
            count(Counter::WalSyncsCovered, 1);
            shared.group.passed(who);
            return Ok(());
        }
        let mut led = false;
        timed(WaitEvent::WalDurable, || {
            shared.group.until(Goal::Durable(upto.0), who, || {
                led = true;
                count(Counter::WalSyncs, 1);
                shared.flush(true)?;
                assert!(shared.group.durable() >= upto.0, "waiting for a position that was never appended");
                Ok(())
            })
        })?;
        count(Counter::WalSyncsCovered, u64::from(!led));
        Ok(())
    }

    /// A transaction has ended that waited for the log as `who`: if it [prepared](Committer::Prepares) whoever gathers a group
    /// may expect its session again. No lock, no system call.
    pub fn ended(&self, who: Committer) {
        if who == Committer::Prepares {
            self.0.group.ended_prepared(1);
        }
    }

    /// Writes what is buffered to the operating system, without a sync: it survives the process, not a power cut.
    ///
    /// # Errors
    /// `Poisoned`.
    pub fn write_out(&self) -> Result<()> {
        self.0.write_out()
    }

    /// Does for `who`, whose records end at `end`, what the mode asks for.
    ///
    /// # Errors
    /// `Poisoned`.
    pub fn finish(&self, mode: FlushMode, who: Committer, end: Lsn) -> Result<()> {
        match mode {
            FlushMode::EveryCommit => self.durable_for(who, end),
            FlushMode::WriteOnly if self.0.group.written() >= end.0 => Ok(()),
            FlushMode::WriteOnly => self.write_out(),
            FlushMode::Lazy => Ok(()),
        }
    }

    /// Makes everything appended so far durable.
    ///
    /// # Errors
    /// `Poisoned`.
    pub fn sync_all(&self) -> Result<()> {
        let end = self.end_lsn();
        self.wait_durable(end)
    }

    /// Position after the last frame: that of the next one, or of padding before it.
    pub fn end_lsn(&self) -> Lsn {
        Lsn(self.0.tail.lock().end())
    }

    /// Everything before this position is durable.
    pub fn durable_lsn(&self) -> Lsn {
        Lsn(self.0.group.durable())
    }

    /// Nothing before `keep_from` will be replayed any more, durably so: segments wholly before it become spares.
    ///
    /// # Errors
    /// What the disk says. A passing error does no harm: what is left goes with the next call. Any other poisons the
    /// log, since names may not be what they seem.
    pub fn recycle(&self, keep_from: Lsn) -> Result<()> {
        let shared = &self.0;
        let _making = shared.making.lock();
        shared.group.check()?;
        let keep_from = keep_from.0.min(shared.group.durable());
        shared.chain.recycle(keep_from).inspect_err(|e| shared.poison_unless_passing(e))
    }

    /// Removes the spare segment files, which only save the making of new ones: on a full disk their space serves better
    /// elsewhere. Does I/O.
    ///
    /// # Errors
    /// What the disk says, and then some are still there; `Poisoned`.
    pub fn drop_spares(&self) -> Result<()> {
        let _making = self.0.making.lock();
        self.0.group.check()?;
        self.0.chain.drop_spares()
    }

    /// Is it time for [`Wal::prepare_segments`]?
    pub fn needs_segments(&self) -> bool {
        let tail = self.0.tail.lock();
        !self.0.group.is_poisoned() && tail.space_end() < self.0.wanted_space(&tail)
    }

    /// Makes the segments that will be needed next, so that no append has to.
    ///
    /// # Errors
    /// A passing one ([`WalError::is_passing`]): harmless as long as there is space in those that are ready, and nothing
    /// is left behind that takes space. `Poisoned`.
    pub fn prepare_segments(&self) -> Result<()> {
        while self.needs_segments() {
            let wanted = self.0.wanted_space(&self.0.tail.lock());
            self.0.make_space(wanted)?;
        }
        self.0.group.check()
    }

    /// Keeps a file from which the segment of an opening on a full disk is made; makes it if there is none.
    ///
    /// # Errors
    /// Whatever the disk says. It may be tried again, and whatever it is does no harm but that the reserve is missing.
    pub fn keep_reserve(&self) -> Result<()> {
        let _making = self.0.making.lock();
        self.0.chain.keep_reserve()
    }

    /// Stops the log: nothing more is acknowledged, everybody who waits gets an error.
    pub fn poison(&self, reason: &str) {
        self.0.group.poison(reason);
    }

    /// Why the log stopped, if it did.
    pub fn poisoned(&self) -> Option<String> {
        self.0.group.poisoned()
    }

    /// Bytes that a replay from `from` would read.
    pub fn tail_bytes(&self, from: Lsn) -> u64 {
        self.end_lsn().0.saturating_sub(from.0)
    }

    /// How the log stands.
    pub fn stats(&self) -> WalStats {
        let shared = &self.0;
        let (segments, spares) = shared.chain.counts();
        let durable = self.durable_lsn();
        let written = Lsn(shared.group.written());
        WalStats { first: Lsn(shared.chain.first()), written, durable, end: self.end_lsn(), segments, spares }
    }
}

/// If the last segment was begun by an opening after which nothing was written, and what is before it tells all from `from`
/// on: where the log ended before that opening.
fn before_fruitless(segments: &[Arc<Segment>], from: Lsn, end: Lsn) -> Option<Lsn> {
    let [before @ .., last] = segments else { return None };
    let told = before.first()?.first <= from.0;
    let start = last.start.filter(|start| told && from.0 <= *start && *start <= before[before.len() - 1].end)?;
    (end.0 <= last.first + crate::SECTOR_BYTES).then_some(Lsn(start))
}

fn create_dir(disk: &dyn Disk, dir: &Path) -> Result<()> {
    if !disk.exists(dir)? {
        disk.create_dir(dir)?;
        if let Some(parent) = dir.parent().filter(|p| !p.as_os_str().is_empty()) {
            disk.sync_dir(parent)?;
        }
    }
    Ok(())
}

fn checked_bytes(payload: usize) -> Result<u64> {
    if payload > MAX_PAYLOAD_BYTES as usize {
        return Err(WalError::TooLong { bytes: payload as u64, max: u64::from(MAX_PAYLOAD_BYTES) });
    }
    Ok(frame_space(payload) as u64)
}

impl Shared {
    /// Runs `with` on the tail once it has space for `space` bytes more, and room and memory for `bytes`. Who finds no room
    /// waits for those before, writes once, and goes in, whatever others have brought meanwhile: however long a frame is,
    /// it does not wait for a buffer that never is empty, and one at a time makes the buffer longer than it should be.
    fn with_space<T>(&self, bytes: u64, space: u64, with: impl FnOnce(&mut Tail) -> T) -> Result<T> {
        let (mut turn, mut written) = (None, false);
        loop {
            let mut tail = self.tail.lock();
            self.group.check()?;
            if let Some(upto) = tail.lacks_space(space) {
                drop(tail);
                timed(WaitEvent::WalSpace, || self.make_space(upto))?;
            } else if written || tail.has_room(bytes, self.options.buffer_bytes) {
                tail.grow(bytes)?;
                return Ok(with(&mut tail));
            } else if turn.is_none() {
                drop(tail);
                turn = Some(timed(WaitEvent::WalSpace, || self.turn.lock()));
            } else {
                drop(tail);
                timed(WaitEvent::WalSpace, || self.write_out())?;
                written = true;
            }
        }
    }

    fn wanted_space(&self, tail: &Tail) -> u64 {
        tail.end() + tail.reserved_space() + self.options.prepared_segments as u64 * self.chain.capacity()
    }

    /// Makes segments until the prepared space goes to `upto`.
    fn make_space(&self, upto: u64) -> Result<()> {
        let _making = self.making.lock();
        loop {
            self.group.check()?;
            let first = self.tail.lock().space_end();
            if first >= upto {
                return Ok(());
            }
            let segment = self.chain.add(first, None).inspect_err(|e| self.poison_unless_passing(e))?;
            self.tail.lock().add_segment(segment.first, segment.tag, segment.end);
        }
    }

    /// After a failure away from the commit path: nothing depends on a file that could not be made.
    fn poison_unless_passing(&self, e: &WalError) {
        if !e.is_passing() {
            self.group.poison(&e.to_string());
        }
    }

    fn write_out(&self) -> Result<()> {
        self.group.check()?;
        let target = self.tail.lock().end();
        self.group.until(Goal::Written(target), Committer::No, || self.flush(false))
    }

    /// The leader's work. Any failure poisons: frames that were taken may or may not be on disk.
    fn flush(&self, sync: bool) -> Result<()> {
        self.write(sync).inspect_err(|e| self.group.poison(&e.to_string()))
    }

    /// What is to be written, if anything.
    fn take(&self, seal: bool) -> Result<Option<LogBuffer>> {
        let mut tail = self.tail.lock();
        // Nothing is taken from a poisoned log: positions after its end are nobody's.
        self.group.check()?;
        Ok(tail.take(seal, self.group.durable()))
    }

    fn write(&self, sync: bool) -> Result<()> {
        let mut writer = self.writer.lock();
        let Some(mut taken) = self.take(sync)? else { return Ok(()) };
        let (at, end) = (taken.base(), taken.end());
        let began = Moment::now();
        writer.write(&self.chain, taken.sectors(), at, sync)?;
        let written = match sync && !writer.awaits_sync() {
            true => began,
            false => began.until_now(CommitPhase::LogWrite),
        };
        self.group.set_written(end);
        if sync {
            writer.sync()?;
            written.until_now(CommitPhase::LogSync);
            self.group.set_durable(end);
        }
        // One large transaction must not hold its memory for ever.
        let most = 2 * self.options.buffer_bytes.max(FIRST_BUFFER_BYTES);
        let unused = self.tail.lock().give_back(taken.into_region(), most);
        drop(unused);
        Ok(())
    }
}
