//! The graph of waits: lines of those who want the same thing, and behind whom each line stands.
//!
//! A line is everybody who waits for one key behind the same holders, in order of arrival. To hand on what a line waits
//! for costs as much as is woken, not as waits: those who are not woken move behind those who are, as a line.
//!
//! Invariants: who waits stands in one line, unless it was woken and has yet to look; a line is never empty nor without
//! holders; its holders and its key list it. Whoever was woken either gets what it wants (the line behind it then waits
//! for its end), or enters again (the line moves behind whom it met), or gives up (it hands on): so no line is left
//! behind somebody who neither holds nor waits. An edge goes from a line to its holders; who enters looks for a
//! circle over them, and nothing else closes one.
//!
//! Of a circle, one is refused: nobody who has to end before another one of it, as far as the front end knows (that one would
//! wait on for it); of the others who has done least, as `LockOwner::work` counts, and among those alike the one who closes
//! it. Who is refused stands in no line any more and is woken; that it was lies with its wait, and goes with it.

#[cfg(test)]
mod tests;

use super::wait::{Blocker, LockMode, LockOwner, Parker, Released, Wait, WaitKey, Waiter};
use super::WaitHooks;
use esker_base::trace::{self, Holders, MOST_HOLDERS};
use esker_format::{RowId, TxnId};
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

type LineId = u64;

struct Waiting {
    owner: Arc<LockOwner>,
    parker: Arc<Parker>,
    key: WaitKey,
    row: Option<RowId>,
    mode: LockMode,
    reports: bool,
    since: Duration,
    /// Its place in the order of arrival, kept when it is woken and comes again.
    arrival: u64,
    /// None: it was woken, and has yet to look.
    line: Option<LineId>,
    /// It was the victim of a circle that somebody else closed.
    refused: bool,
    /// Its session is traced, and says in the end behind whom it stood.
    traced: Option<Visited>,
}

/// Behind whom a wait has stood, each transaction once.
#[derive(Default)]
struct Visited {
    /// Transactions and their connections, those of its begin first; a bounded part of them.
    holders: Vec<(TxnId, u64)>,
    /// So many of them were there when it began; the rest came later.
    first: Option<usize>,
    /// Of those who came later so many are not among them.
    untold: u64,
    /// Who was there when it looked last.
    last: Vec<TxnId>,
}

impl Visited {
    /// Of `me` these are now before; who has just been woken stands before its own line for a moment.
    fn meets(&mut self, me: TxnId, holders: &[Arc<LockOwner>]) {
        let most = self.first.unwrap_or(1) + MOST_HOLDERS;
        for holder in holders.iter().filter(|holder| holder.txn != me && !self.last.contains(&holder.txn)) {
            if self.holders.iter().any(|(txn, _)| *txn == holder.txn) {
                continue;
            }
            match self.holders.len() < most {
                true => self.holders.push((holder.txn, holder.activity.connection())),
                // One that comes back counts again: to know all would take memory without end.
                false => self.untold += u64::from(self.first.is_some()),
            }
        }
        self.last = holders.iter().map(|holder| holder.txn).collect();
        self.first.get_or_insert(self.holders.len());
    }

    fn told(&self) -> Holders {
        let (first, then) = self.holders.split_at(self.first.unwrap_or(0));
        let connections = |of: &[(TxnId, u64)]| of.iter().map(|(_, connection)| *connection).collect();
        Holders { first: connections(first), later: then.len() as u64 + self.untold, then: connections(then) }
    }
}

struct Line {
    key: WaitKey,
    holders: Vec<Arc<LockOwner>>,
    members: Members,
}

/// Waiters by arrival; apart, so that those who share are found without going over the others.
#[derive(Default)]
struct Members {
    exclusive: BTreeMap<u64, TxnId>,
    shared: BTreeMap<u64, TxnId>,
    /// Must be told whom they wait for, so they are woken instead of moved. In any mode.
    reporting: BTreeMap<u64, TxnId>,
}

impl Members {
    fn of(&mut self, w: &Waiting) -> &mut BTreeMap<u64, TxnId> {
        match w.mode {
            _ if w.reports => &mut self.reporting,
            LockMode::Shared => &mut self.shared,
            LockMode::Exclusive => &mut self.exclusive,
        }
    }

    fn len(&self) -> usize {
        self.exclusive.len() + self.shared.len() + self.reporting.len()
    }

    fn first(&self) -> Option<TxnId> {
        let firsts = [&self.exclusive, &self.shared, &self.reporting].into_iter().filter_map(|m| m.first_key_value());
        firsts.min().map(|(_, txn)| *txn)
    }

    fn all(&self) -> impl Iterator<Item = TxnId> + '_ {
        self.exclusive.values().chain(self.shared.values()).chain(self.reporting.values()).copied()
    }

    fn take(&mut self, other: Members) {
        self.exclusive.extend(other.exclusive);
        self.shared.extend(other.shared);
        self.reporting.extend(other.reporting);
    }
}

#[derive(Default)]
pub(super) struct Graph {
    waiting: HashMap<TxnId, Waiting>,
    lines: HashMap<LineId, Line>,
    /// The lines behind each holder.
    behind: HashMap<TxnId, BTreeSet<LineId>>,
    by_key: HashMap<WaitKey, Vec<LineId>>,
    next_line: LineId,
    arrivals: u64,
    /// Those who wait and are traced: few.
    traced: HashSet<TxnId>,
    /// The last circle that a wait closed, from its victim on, each behind the next.
    pub(super) closed: Vec<Waiter>,
    /// Waiters and holders that were touched: what waiting costs.
    #[cfg(test)]
    pub(super) steps: u64,
}

impl Graph {
    fn step(&mut self) {
        #[cfg(test)]
        {
            self.steps += 1;
        }
    }

    /// Enters (again) a wait, which began `since`, behind `blockers`. False: it is the victim of a circle, which this closes, or
    /// somebody else has closed; the wait is given up.
    pub(super) fn enter(&mut self, wait: &Wait<'_>, since: Duration, blockers: &[Blocker]) -> bool {
        let Wait { owner, parker, key, row, mode, hooks, event: _ } = *wait;
        let me = owner.txn;
        // It may have woken by itself, and stand in a line still.
        self.take_out(me);
        if self.waiting.get(&me).is_some_and(|w| w.refused) {
            self.give_up(me, key);
            return false;
        }
        let again = self.waiting.get(&me).map(|w| w.arrival);
        let arrival = again.unwrap_or_else(|| {
            self.arrivals += 1;
            self.arrivals
        });
        let (owner, parker) = (owner.clone(), parker.clone());
        let reports = hooks.reports();
        let met = self.waiting.get_mut(&me).and_then(|w| w.traced.take());
        let traced = met.or_else(|| trace::is_on().then(Visited::default));
        if traced.is_some() {
            self.traced.insert(me);
        }
        let wait =
            Waiting { owner, parker, key, row, mode, reports, since, arrival, line: None, refused: false, traced };
        self.waiting.insert(me, wait);
        let line = self.line_behind(key, blockers);
        self.join(line, me);
        // Before anybody moves: two who share a row and want it alone would wake each other instead. And no move closes
        // a circle later, since who moves stood behind `me`, who stands there already.
        if !self.break_circles(me, key, line, hooks) {
            return false;
        }
        if again.is_some() {
            self.overtaken(me, key, line, blockers);
        }
        true
    }

    /// Refuses a victim of each circle that `me`, who stands in `line`, closes. False: that is `me`, and so nobody else.
    fn break_circles(&mut self, me: TxnId, key: WaitKey, line: LineId, hooks: &dyn WaitHooks) -> bool {
        let mut victims = HashSet::new();
        while let Some(mut circle) = self.way_back(line, me, &victims) {
            let work = |w: &Waiter| self.waiting.get(&w.txn).map_or(u64::MAX, |w| w.owner.work());
            let reports = |w: &&Waiter| self.waiting.get(&w.txn).is_some_and(|w| w.reports);
            let ordered: Vec<TxnId> = circle.iter().filter(reports).map(|w| w.txn).collect();
            let goes_before = |w: &Waiter| {
                ordered.contains(&w.txn) && ordered.iter().any(|o| *o != w.txn && hooks.goes_before(w.txn, *o))
            };
            // The first of those alike, and the circle begins with `me`.
            let cost = |(_, w): &(usize, &Waiter)| (goes_before(w), work(w));
            let victim = circle.iter().enumerate().min_by_key(cost).map_or(0, |(at, _)| at);
            circle.rotate_left(victim);
            let victim = circle.first().map_or(me, |w| w.txn);
            self.closed = circle;
            if victim == me {
                self.give_up(me, key);
                return false;
            }
            victims.insert(victim);
        }
        victims.into_iter().for_each(|victim| self.refuse(victim));
        true
    }

    /// Wakes a victim, which gives up when it looks. It keeps what it holds until it is rolled back: others wait on for that.
    fn refuse(&mut self, victim: TxnId) {
        if let Some(w) = self.waiting.get_mut(&victim) {
            w.refused = true;
        }
        self.wake(victim);
    }

    fn line_of(&self, txn: TxnId) -> Option<LineId> {
        self.waiting.get(&txn)?.line
    }

    /// The line for `key` behind just these, made if there is none; a new one must be joined at once.
    fn line_behind(&mut self, key: WaitKey, blockers: &[Blocker]) -> LineId {
        let mut holders: Vec<Arc<LockOwner>> = Vec::with_capacity(blockers.len());
        let mut known = HashSet::with_capacity(blockers.len());
        for b in blockers.iter().filter(|b| known.insert(b.owner.txn)) {
            holders.push(b.owner.clone());
        }
        let same =
            |line: &Line| line.holders.len() == known.len() && line.holders.iter().all(|h| known.contains(&h.txn));
        let ids = self.by_key.get(&key).into_iter().flatten();
        if let Some(id) = ids.copied().find(|id| self.lines.get(id).is_some_and(same)) {
            return id;
        }
        self.next_line += 1;
        let id = self.next_line;
        self.lines.insert(id, Line { key, holders: Vec::new(), members: Members::default() });
        self.by_key.entry(key).or_default().push(id);
        self.hold(id, &holders);
        id
    }

    /// From now on the line stands behind these too.
    fn hold(&mut self, id: LineId, holders: &[Arc<LockOwner>]) {
        for holder in holders {
            self.step();
            if self.behind.entry(holder.txn).or_default().insert(id) {
                holder.set_has_waiters(true);
                if let Some(line) = self.lines.get_mut(&id) {
                    line.holders.push(holder.clone());
                }
            }
        }
        self.tell_traced(id);
    }

    /// The line no longer stands behind `holder`.
    fn unhold(&mut self, id: LineId, holder: TxnId) {
        self.step();
        let Some(line) = self.lines.get_mut(&id) else { return };
        let Some(at) = line.holders.iter().position(|h| h.txn == holder) else { return };
        let holder = line.holders.swap_remove(at);
        self.forget_behind(id, &holder);
    }

    fn forget_behind(&mut self, id: LineId, holder: &LockOwner) {
        if let Some(lines) = self.behind.get_mut(&holder.txn) {
            lines.remove(&id);
            if lines.is_empty() {
                self.behind.remove(&holder.txn);
                holder.set_has_waiters(false);
            }
        }
    }

    fn join(&mut self, id: LineId, txn: TxnId) {
        self.step();
        if let (Some(line), Some(w)) = (self.lines.get_mut(&id), self.waiting.get_mut(&txn)) {
            line.members.of(w).insert(w.arrival, txn);
            w.line = Some(id);
        }
        self.tell_traced(id);
    }

    /// Those in the line who are traced take note of its holders.
    fn tell_traced(&mut self, id: LineId) {
        let Some(line) = self.lines.get(&id).filter(|_| !self.traced.is_empty()) else { return };
        for txn in &self.traced {
            let stands = self.waiting.get_mut(txn).filter(|w| w.line == Some(id));
            if let Some(met) = stands.and_then(|w| w.traced.as_mut()) {
                met.meets(*txn, &line.holders);
            }
        }
    }

    /// Behind whom a traced wait has stood so far.
    pub(super) fn holders_met(&self, waiter: TxnId) -> Option<Holders> {
        self.waiting.get(&waiter).and_then(|w| w.traced.as_ref()).map(Visited::told)
    }

    /// Takes a waiter out of its line, if it stands in one; an emptied line goes.
    fn take_out(&mut self, txn: TxnId) {
        self.step();
        let Some(w) = self.waiting.get_mut(&txn) else { return };
        let Some(id) = w.line.take() else { return };
        let Some(line) = self.lines.get_mut(&id) else { return };
        line.members.of(w).remove(&w.arrival);
        if line.members.len() == 0 {
            self.remove_line(id);
        }
    }

    fn remove_line(&mut self, id: LineId) -> Option<Members> {
        let line = self.lines.remove(&id)?;
        for holder in &line.holders {
            self.step();
            self.forget_behind(id, holder);
        }
        if let Some(ids) = self.by_key.get_mut(&line.key) {
            ids.retain(|i| *i != id);
            if ids.is_empty() {
                self.by_key.remove(&line.key);
            }
        }
        Some(line.members)
    }

    fn wake(&mut self, txn: TxnId) {
        self.take_out(txn);
        if let Some(w) = self.waiting.get(&txn) {
            w.parker.unpark();
        }
    }

    /// A circle from `me`, who stands in the line `start`, back to `me`, if there is one that none of `victims` is in: each
    /// waits for the next, the last for the first. Goes over each line once.
    fn way_back(&mut self, start: LineId, me: TxnId, victims: &HashSet<TxnId>) -> Option<Vec<Waiter>> {
        // From which line each was found, and over which of those who stand in it.
        let (mut from, mut todo) = (HashMap::from([(start, None)]), VecDeque::from([start]));
        while let Some(id) = todo.pop_front() {
            let holders = self.lines.get(&id).map_or(&[][..], |line| &line.holders);
            #[cfg(test)]
            {
                self.steps += holders.len() as u64;
            }
            for holder in holders.iter().filter(|h| !victims.contains(&h.txn)) {
                if holder.txn == me {
                    let (mut way, mut at) = (Vec::new(), id);
                    while let Some(Some((before, over))) = from.get(&at) {
                        (at, _) = (*before, way.push(*over));
                    }
                    way.push(me);
                    let waiter = |txn: &TxnId| Some(self.waiter(*txn, self.waiting.get(txn)?));
                    return Some(way.iter().rev().filter_map(waiter).collect());
                }
                let Some(line) = self.line_of(holder.txn) else { continue };
                if let Entry::Vacant(new) = from.entry(line) {
                    new.insert(Some((id, holder.txn)));
                    todo.push_back(line);
                }
            }
        }
        None
    }

    /// The lines for `key` behind `holder`.
    fn lines_of(&self, key: WaitKey, holder: TxnId) -> Vec<LineId> {
        let Some(behind) = self.behind.get(&holder) else { return Vec::new() };
        self.by_key.get(&key).into_iter().flatten().copied().filter(|id| behind.contains(id)).collect()
    }

    /// Somebody took what `me` was woken for, and `me` stands in `line` again: who stood behind `me` moves there too,
    /// but for those who must, or might as well, look for themselves.
    fn overtaken(&mut self, me: TxnId, key: WaitKey, mut line: LineId, blockers: &[Blocker]) {
        for old in self.lines_of(key, me) {
            self.unhold(old, me);
            let Some(stood) = self.lines.get(&old) else { continue };
            let alike = matches!(stood.key, WaitKey::Row(..));
            let shared = blockers.iter().all(|b| !b.exclusive);
            let members = &stood.members;
            let look: Vec<TxnId> = match alike {
                // Behind whom one has to wait for a range depends on the range.
                false => members.all().collect(),
                true => members.reporting.values().chain(members.shared.values().filter(|_| shared)).copied().collect(),
            };
            look.into_iter().for_each(|txn| self.wake(txn));
            // Nobody waits for itself: one that shares the row and wants it alone.
            for b in blockers {
                if self.waiting.get(&b.owner.txn).is_some_and(|w| w.line == Some(old)) {
                    self.wake(b.owner.txn);
                }
            }
            if self.lines.contains_key(&old) {
                line = self.merge(line, old);
            }
        }
    }

    /// Puts all of `old` behind the holders of `line`: one line, whose id is given back. The fewer move to the more.
    fn merge(&mut self, line: LineId, old: LineId) -> LineId {
        let len = |id| self.lines.get(&id).map_or(0, |l: &Line| l.members.len());
        let (into, from) = if len(line) >= len(old) { (line, old) } else { (old, line) };
        let holders = self.lines.get(&line).map_or_else(Vec::new, |l| l.holders.clone());
        let stale = self.lines.get(&into).map_or_else(Vec::new, |l| l.holders.clone());
        let members = self.remove_line(from).unwrap_or_default();
        for txn in members.all() {
            self.step();
            if let Some(w) = self.waiting.get_mut(&txn) {
                w.line = Some(into);
            }
        }
        if let Some(line) = self.lines.get_mut(&into) {
            line.members.take(members);
        }
        if into == old {
            stale.iter().for_each(|h| self.unhold(into, h.txn));
            self.hold(into, &holders);
        }
        self.tell_traced(into);
        into
    }

    /// `holder` no longer stands before the line: its first are woken, and the others stand behind those.
    fn hand_on(&mut self, id: LineId, holder: TxnId) {
        self.unhold(id, holder);
        let Some(line) = self.lines.get(&id) else { return };
        let Some(first) = line.members.first().and_then(|txn| self.waiting.get(&txn)) else { return };
        let shares = first.mode == LockMode::Shared;
        let mut woken = vec![first.owner.clone()];
        let mut others = Vec::new();
        let together = line.members.shared.values().filter(|_| shares);
        for w in together.chain(line.members.reporting.values()).filter_map(|txn| self.waiting.get(txn)) {
            if w.owner.txn == woken[0].txn {
                continue;
            }
            match shares && w.mode == LockMode::Shared {
                true => woken.push(w.owner.clone()),
                false => others.push(w.owner.txn),
            }
        }
        // Before the first goes, or the line might be empty and without holders in between.
        self.hold(id, &woken);
        for txn in woken.iter().map(|w| w.txn).chain(others) {
            self.wake(txn);
        }
    }

    /// Ends a wait that was granted: who stands behind `me` now waits for what it holds. True: it was to be refused.
    pub(super) fn granted(&mut self, me: TxnId) -> bool {
        self.take_out(me);
        self.traced.remove(&me);
        self.waiting.remove(&me).is_some_and(|w| w.refused)
    }

    /// Ends a wait that was not granted: who stood behind `me` for it is not to wait for `me` any more. True: it was to be
    /// refused.
    pub(super) fn give_up(&mut self, me: TxnId, key: WaitKey) -> bool {
        let refused = self.granted(me);
        for id in self.lines_of(key, me) {
            self.hand_on(id, me);
        }
        refused
    }

    /// `owner` let go of something.
    pub(super) fn released(&mut self, owner: TxnId, released: Released) {
        let ids: Vec<LineId> = match released {
            Released::Row(tree, row) => {
                let mut ids = self.lines_of(WaitKey::Row(tree, row), owner);
                ids.extend(self.lines_of(WaitKey::Range(tree), owner));
                ids
            }
            Released::All | Released::Tree(_) | Released::Changes => {
                let concerns = |id: &LineId| self.lines.get(id).is_some_and(|line| released.concerns(line.key));
                self.behind.get(&owner).into_iter().flatten().copied().filter(concerns).collect()
            }
        };
        for id in ids {
            self.hand_on(id, owner);
        }
    }

    /// Who waits now, and for whom.
    pub(super) fn list(&self) -> Vec<Waiter> {
        self.waiting.iter().map(|(txn, w)| self.waiter(*txn, w)).collect()
    }

    fn waiter(&self, txn: TxnId, w: &Waiting) -> Waiter {
        let holders = w.line.and_then(|id| self.lines.get(&id)).map_or(&[][..], |line| &line.holders);
        let blockers = holders.iter().map(|h| h.txn).collect();
        Waiter { txn, key: w.key, row: w.row, mode: w.mode, since: w.since, blockers }
    }

    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    #[cfg(test)]
    /// Is everything as the invariants say?
    pub(super) fn check(&self) {
        for (id, line) in &self.lines {
            assert!(line.members.len() > 0 && !line.holders.is_empty());
            assert!(self.by_key[&line.key].contains(id));
            assert!(line.holders.iter().all(|h| self.behind[&h.txn].contains(id)));
            for txn in line.members.all() {
                assert_eq!((self.waiting[&txn].line, self.waiting[&txn].key), (Some(*id), line.key));
                assert!(line.holders.iter().all(|h| h.txn != txn), "it waits for itself");
            }
        }
        let listed: usize = self.by_key.values().map(Vec::len).sum();
        let behind: usize = self.behind.values().map(BTreeSet::len).sum();
        let holders: usize = self.lines.values().map(|l| l.holders.len()).sum();
        let members: usize = self.lines.values().map(|l| l.members.len()).sum();
        let standing = self.waiting.values().filter(|w| w.line.is_some()).count();
        assert_eq!((listed, behind, members), (self.lines.len(), holders, standing));
        let traced = self.waiting.values().filter(|w| w.traced.is_some()).map(|w| w.owner.txn).collect();
        assert_eq!(self.traced, traced);
    }
}
