//! Which merge comes next, as a function of what the runs of a tree look like, and nothing else
//! (`docs/design/0006-merging-has-a-price.md`).
//!
//! The *base* is runs that are apart, with the first versions of rows; what lies over it are *overlays*. Overlays of about
//! the same density are merged with each other; the base takes them in, one of its runs at a time, once they are a fixed
//! share of it. So a byte is written again a number of times that grows with the logarithm of the table.
//!
//! Invariant: merging comes to an end. Every step takes at least two pieces that lie over one row and leaves one there, or
//! joins neighbours into one, or drops rows for good; none undoes what another did.

use std::collections::BTreeMap;

/// The base takes overlays in once one in so many of its versions is dead.
const DEAD_SHARE: f64 = 4.0;
/// Each class of overlays is so many times as dense as the one before; so many of one class become one of the next.
const FACTOR: usize = 4;
/// More runs than this over one row are merged.
const MOST_SOURCES: usize = 12;
/// So many small neighbours in the base are joined.
const NEIGHBOURS: usize = 8;
/// The base takes ends of overlays in that lie in the gaps beside it, where they are no more than one in so many of its step's bytes.
const ENDS_SHARE: f64 = 4.0;
/// No more runs than this are merged at once, but for one of the base below them: a step has a block of each in memory, and
/// its record in the log names what is left of them.
pub(super) const MOST_AT_ONCE: usize = 64;

/// What choosing knows of a run, or of the part of one that counts.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Piece {
    /// The place of its least key among the bounds of all pieces.
    pub(crate) first: u64,
    /// That of its greatest key.
    pub(crate) last: u64,
    pub(crate) bytes: u64,
    /// With what its file has besides that counts no more, or is of other trees; zero: not known.
    pub(crate) file_bytes: u64,
    /// Row versions, tombstones included.
    pub(crate) rows: u64,
    /// No more than so many different keys lie in its bounds.
    pub(crate) most_keys: u64,
    /// Those that replaced or deleted an older version, tombstones included.
    pub(crate) superseding: u64,
    pub(crate) tombstones: u64,
    /// Versions that were rolled back before their transaction committed, about.
    pub(crate) aborted: u64,
    /// Least and greatest commit sequence.
    pub(crate) seqs: (u64, u64),
    /// Nothing that is no piece holds any of its rows: its tombstones can go with what they delete.
    pub(crate) alone: bool,
}

impl Piece {
    fn overlaps(&self, other: &Piece) -> bool {
        self.first <= other.last && other.first <= self.last
    }
}

/// What counts as lying over the base, in the two kinds of trees.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Weights {
    /// First versions of keys belong to the base, wherever they lie: new keys come behind all others.
    pub(crate) firsts_are_base: bool,
    /// The base takes overlays in once they are one in so many of its bytes.
    pub(crate) overlay_share: f64,
    /// It does so many times sooner, but what waits till then is no debt.
    pub(crate) sooner: f64,
    /// Small parts of files get one of their own.
    pub(crate) moves_out: bool,
}

impl Weights {
    /// Of a tree of rows.
    pub(crate) const ROWS: Weights =
        Weights { firsts_are_base: true, overlay_share: 4.0, sooner: 1.0, moves_out: false };
    /// Of a tree of keys: a load brings keys anywhere, so all that lies over the base is an overlay, and as many bytes
    /// as the base has may gather.
    pub(crate) const KEYS: Weights =
        Weights { firsts_are_base: false, overlay_share: 1.0, sooner: 1.0, moves_out: false };

    /// Of a tree that nobody writes to any more: whoever reads it from now on gains by what is written once.
    pub(crate) fn at_rest(self) -> Weights {
        Weights { sooner: 4.0, moves_out: true, ..self }
    }

    /// Versions that belong to the base.
    fn firsts(&self, piece: &Piece) -> u64 {
        match self.firsts_are_base {
            true => piece.rows.saturating_sub(piece.superseding),
            false => 0,
        }
    }

    /// Mostly first versions: as a load writes rows.
    fn is_chunk(&self, piece: &Piece) -> bool {
        self.firsts_are_base && piece.superseding * FACTOR as u64 <= piece.rows
    }
}

/// A merge to be done: of these pieces, in these bounds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Chosen {
    /// Places among the pieces.
    pub(crate) inputs: Vec<usize>,
    pub(crate) first: u64,
    pub(crate) last: u64,
    /// How many bytes it will write, about.
    pub(crate) bytes: u64,
}

/// The runs of a tree at a moment, by their first rows.
pub(crate) struct Policy<'a> {
    pieces: &'a [Piece],
    /// Which part of a piece lies between two rows.
    share: &'a dyn Fn(usize, u64, u64) -> f64,
    weights: Weights,
    horizon: u64,
    /// A run of the base is no larger than this, in bytes.
    run_bytes: u64,
    /// For each piece of the base what lies over it; by its first row.
    base: BTreeMap<u64, BasePiece>,
    /// Pieces that are not of the base, in order.
    overlays: Vec<usize>,
}

/// A piece of the base, and what lies over it.
struct BasePiece {
    piece: usize,
    over: Vec<usize>,
    /// Bytes of newer versions over it that can take the place of its own.
    newer_bytes: f64,
    /// Rows in its bounds, and those of them that can go.
    rows: f64,
    dead: f64,
}

impl<'a> Policy<'a> {
    pub(crate) fn new(
        pieces: &'a [Piece],
        share: &'a dyn Fn(usize, u64, u64) -> f64,
        weights: Weights,
        horizon: u64,
        run_bytes: u64,
    ) -> Self {
        let (base, overlays) = (BTreeMap::new(), Vec::new());
        let mut policy = Policy { pieces, share, weights, horizon, run_bytes, base, overlays };
        policy.find_base();
        policy.weigh();
        policy
    }

    /// Those with the most first versions, as long as they are apart.
    fn find_base(&mut self) {
        let pieces = self.pieces;
        let mut order: Vec<usize> = (0..pieces.len()).collect();
        order.sort_by_key(|&i| {
            (std::cmp::Reverse((self.weights.firsts(&pieces[i]), pieces[i].bytes)), pieces[i].seqs, i)
        });
        for i in order {
            let piece = &pieces[i];
            let before = self.base.range(..=piece.last).next_back();
            if before.is_some_and(|(_, under)| pieces[under.piece].overlaps(piece)) {
                self.overlays.push(i);
                continue;
            }
            let mut dead = 0;
            if piece.seqs.1 <= self.horizon {
                // Each version beyond the number of keys has a newer one beside it.
                dead = piece.rows.saturating_sub(piece.most_keys);
                dead += if piece.alone { piece.tombstones } else { 0 };
            }
            dead += piece.aborted;
            let (rows, dead) = (piece.rows as f64, dead as f64);
            self.base.insert(piece.first, BasePiece { piece: i, over: Vec::new(), newer_bytes: 0.0, rows, dead });
        }
        self.overlays.sort_unstable();
    }

    /// What lies over each piece of the base.
    fn weigh(&mut self) {
        for &i in &self.overlays {
            let over = &self.pieces[i];
            let from = self.base.range(..=over.first).next_back().map_or(over.first, |(first, _)| *first);
            for under in self.base.range_mut(from..=over.last).map(|(_, u)| u) {
                let piece = &self.pieces[under.piece];
                if !piece.overlaps(over) {
                    continue;
                }
                let share = (self.share)(i, piece.first, piece.last);
                let newer = over.rows.saturating_sub(self.weights.firsts(over)) as f64 / over.rows.max(1) as f64;
                under.over.push(i);
                under.rows += share * over.rows as f64;
                // What a view may still need takes nothing's place.
                if over.seqs.0 <= self.horizon {
                    under.newer_bytes += share * over.bytes as f64 * newer;
                    under.dead += share * (over.superseding + over.tombstones) as f64;
                }
                under.dead += share * over.aborted as f64;
            }
        }
    }

    /// Overlays below this are one class, in bytes.
    fn least_bytes(&self) -> u64 {
        self.run_bytes / 512
    }

    /// What to merge next, if anything.
    pub(crate) fn next(&self) -> Option<Chosen> {
        self.down_to_base()
            .or_else(|| self.too_deep())
            .or_else(|| self.of_one_class())
            .or_else(|| self.interleaved())
            .or_else(|| self.neighbours())
            .or_else(|| self.small_parts())
    }

    /// How much more lies over the base than there should, in bytes.
    pub(crate) fn debt_bytes(&self) -> u64 {
        let beyond = |u: &BasePiece| u.newer_bytes - self.pieces[u.piece].bytes as f64 / self.weights.overlay_share;
        self.base.values().map(beyond).filter(|b| *b > 0.0).sum::<f64>() as u64
    }

    /// How urgently a piece of the base wants to take in what lies over it: from 1 on.
    fn urgency(&self, under: &BasePiece) -> f64 {
        let bytes = self.pieces[under.piece].bytes.max(1) as f64;
        let newer = self.weights.sooner * self.weights.overlay_share * under.newer_bytes / bytes;
        newer.max(DEAD_SHARE * under.dead / under.rows.max(1.0))
    }

    fn down_to_base(&self) -> Option<Chosen> {
        let urgent = self.base.values().map(|u| (self.urgency(u), u)).filter(|(urgency, _)| *urgency >= 1.0);
        let (_, under) = urgent.max_by(|a, b| a.0.total_cmp(&b.0))?;
        Some(self.taken_in(under))
    }

    /// What makes readers of a key look into one run alone, or as much of that as a step does: of a key that lies in pieces that
    /// begin at `from` or before and end at `to` or behind.
    pub(crate) fn for_readers(&self, from: u64, to: u64) -> Option<Chosen> {
        let lies_in = |i: &usize| self.pieces[*i].first <= from && to <= self.pieces[*i].last;
        let over: Vec<usize> = self.overlays.iter().copied().filter(lies_in).collect();
        let under = self.base.range(..=from).next_back().map(|(_, under)| under);
        match under.filter(|under| lies_in(&under.piece)) {
            Some(under) => (!over.is_empty()).then(|| self.taken_in(under)),
            None => (over.len() > 1).then(|| self.of(self.small_ones(over))),
        }
    }

    /// A piece of the base takes in what lies over it.
    fn taken_in(&self, under: &BasePiece) -> Chosen {
        let piece = &self.pieces[under.piece];
        // In order: more than one step takes are left for the next, where that begins. If many lie over one row, fewer of
        // them first: else steps would come to an end after a few rows.
        let mut over = under.over.as_slice();
        let (first, last) = match over.get(MOST_AT_ONCE) {
            None => self.with_ends(under),
            Some(beyond) => {
                let deep = deepest(self.pieces, over);
                if deep.len() > MOST_AT_ONCE / 2 {
                    return self.of(self.small_ones(deep));
                }
                over = &over[..MOST_AT_ONCE];
                (piece.first, self.pieces[*beyond].first - 1)
            }
        };
        let mut inputs = over.to_vec();
        inputs.push(under.piece);
        inputs.sort_unstable();
        let inserted = |i: &usize| {
            let over = &self.pieces[*i];
            let new = match self.weights.firsts_are_base {
                true => self.weights.firsts(over) as f64 / over.rows.max(1) as f64,
                false => 1.0,
            };
            (self.share)(*i, first, last) * over.bytes as f64 * new
        };
        let own = (self.share)(under.piece, first, last) * piece.bytes as f64;
        let bytes = (own + over.iter().map(inserted).sum::<f64>()) as u64;
        Chosen { inputs, first, last, bytes }
    }

    /// The bounds of a piece of the base, with what lies over it in the gaps to its neighbours, if that is little: nothing
    /// would lie over a few keys that stay there, nor take them in, and they would keep their whole file.
    fn with_ends(&self, under: &BasePiece) -> (u64, u64) {
        let piece = &self.pieces[under.piece];
        let bytes = |first, last| {
            let of = |i: &usize| (self.share)(*i, first, last) * self.pieces[*i].bytes as f64;
            under.over.iter().map(of).sum::<f64>()
        };
        let within = bytes(piece.first, piece.last);
        let is_little = |with_end: f64| (with_end - within) * ENDS_SHARE <= piece.bytes as f64 + within;
        let before = self.base.range(..piece.first).next_back().map_or(0, |(_, u)| self.pieces[u.piece].last + 1);
        let behind = self.base.range(piece.first + 1..).next().map_or(u64::MAX, |(first, _)| first - 1);
        let over = || under.over.iter().map(|i| &self.pieces[*i]);
        let first = over().map(|o| o.first.max(before)).min().filter(|first| *first < piece.first);
        let last = over().map(|o| o.last.min(behind)).max().filter(|last| *last > piece.last);
        (
            first.filter(|first| is_little(bytes(*first, piece.last))).unwrap_or(piece.first),
            last.filter(|last| is_little(bytes(piece.first, *last))).unwrap_or(piece.last),
        )
    }

    /// Those that lie over the row with the most pieces over it, without the base.
    fn too_deep(&self) -> Option<Chosen> {
        let deepest = deepest(self.pieces, &self.overlays);
        (deepest.len() >= MOST_SOURCES).then(|| self.of(self.small_ones(deepest)))
    }

    /// Enough overlays of one class over one row.
    fn of_one_class(&self) -> Option<Chosen> {
        let mut classes: BTreeMap<i32, Vec<usize>> = BTreeMap::new();
        for &i in self.overlays.iter().filter(|i| !self.weights.is_chunk(&self.pieces[**i])) {
            classes.entry(self.class(i)).or_default().push(i);
        }
        let full = classes.values().map(|class| deepest(self.pieces, class)).find(|d| d.len() >= FACTOR);
        full.map(|inputs| self.of(self.small_ones(inputs)))
    }

    /// How dense an overlay is, against the base below it, in powers of the factor; small ones are one class. A part of a
    /// run is of the same class as the whole.
    fn class(&self, i: usize) -> i32 {
        let over = &self.pieces[i];
        if over.bytes < self.least_bytes() {
            return i32::MIN;
        }
        let from = self.base.range(..=over.first).next_back().map_or(over.first, |(first, _)| *first);
        let below = |u: &BasePiece| (self.share)(u.piece, over.first, over.last) * self.pieces[u.piece].bytes as f64;
        let bytes: f64 = self.base.range(from..=over.last).map(|(_, u)| below(u)).sum();
        (over.bytes as f64 / bytes.max(1.0)).log(FACTOR as f64).floor() as i32
    }

    /// Chunks of loads that went on beside each other.
    fn interleaved(&self) -> Option<Chosen> {
        let is_small = |p: &Piece| self.weights.is_chunk(p) && p.bytes < self.run_bytes / 4;
        let chunks: Vec<usize> = (0..self.pieces.len()).filter(|i| is_small(&self.pieces[*i])).collect();
        let core = self.small_ones(deepest(self.pieces, &chunks));
        if core.len() < FACTOR {
            return None;
        }
        // With them those that reach into them, and so on.
        let (mut first, mut last) = (u64::MAX, 0);
        let mut inputs: Vec<usize> = Vec::new();
        for &i in &core {
            (first, last) = (first.min(self.pieces[i].first), last.max(self.pieces[i].last));
        }
        for &i in &chunks {
            let piece = &self.pieces[i];
            let with = core.contains(&i)
                || (inputs.len() + core.len() < MOST_AT_ONCE && piece.first <= last && first <= piece.last);
            if with {
                inputs.push(i);
                last = last.max(piece.last);
            }
        }
        Some(self.of(inputs))
    }

    /// Small neighbours of the base, enough of them, none of which is most of what they are together: so a byte is joined
    /// again only into something several times as large.
    fn neighbours(&self) -> Option<Chosen> {
        let base: Vec<usize> = self.base.values().map(|u| u.piece).collect();
        let most = self.run_bytes / 4;
        let mut limit = self.least_bytes().max(1);
        loop {
            let small = |i: &usize| self.pieces[*i].bytes < limit.min(most);
            let stretches = base.split(|i| !small(i)).filter(|s| s.len() >= NEIGHBOURS);
            for stretch in stretches {
                let mut inputs: Vec<usize> = Vec::new();
                let (mut bytes, mut largest) = (0, 0);
                for &i in stretch.iter().take(MOST_AT_ONCE) {
                    let piece = &self.pieces[i];
                    if bytes + piece.bytes > self.run_bytes && inputs.len() >= NEIGHBOURS / 2 {
                        break;
                    }
                    inputs.push(i);
                    (bytes, largest) = (bytes + piece.bytes, largest.max(piece.bytes));
                }
                if bytes >= FACTOR as u64 * largest.min(limit) || inputs.len() == MOST_AT_ONCE {
                    return Some(self.of(inputs));
                }
            }
            if limit >= most {
                return None;
            }
            limit *= FACTOR as u64;
        }
    }

    /// Neighbours of the base that are small parts of their files, or one with what lies over it: what else is in such a file,
    /// and counts no more, takes room as long as they are there.
    fn small_parts(&self) -> Option<Chosen> {
        if !self.weights.moves_out {
            return None;
        }
        let is_small = |u: &&BasePiece| {
            let piece = &self.pieces[u.piece];
            piece.file_bytes.saturating_sub(piece.bytes) >= self.least_bytes().max(piece.bytes / 3)
        };
        let mut small = self.base.values().skip_while(|u| !is_small(u)).take_while(is_small);
        let first = small.next()?;
        if !first.over.is_empty() {
            return Some(self.taken_in(first));
        }
        let (mut inputs, mut bytes) = (vec![first.piece], self.pieces[first.piece].bytes);
        for under in small.take_while(|u| u.over.is_empty()).take(MOST_AT_ONCE - 1) {
            bytes += self.pieces[under.piece].bytes;
            if bytes > self.run_bytes {
                break;
            }
            inputs.push(under.piece);
        }
        Some(self.of(inputs))
    }

    /// As many of these as are merged at once.
    fn small_ones(&self, mut pieces: Vec<usize>) -> Vec<usize> {
        if pieces.len() > MOST_AT_ONCE {
            pieces.sort_by_key(|i| (self.pieces[*i].bytes, *i));
            pieces.truncate(MOST_AT_ONCE);
        }
        pieces
    }

    /// All of these pieces.
    fn of(&self, mut inputs: Vec<usize>) -> Chosen {
        inputs.sort_unstable();
        let pieces = || inputs.iter().map(|i| &self.pieces[*i]);
        let (first, last) = (pieces().map(|p| p.first).min(), pieces().map(|p| p.last).max());
        let bytes = pieces().map(|p| p.bytes).sum();
        Chosen { first: first.unwrap_or(0), last: last.unwrap_or(0), bytes, inputs }
    }
}

/// Those of `which` (in order) that lie over the row with the most of them over it.
fn deepest(pieces: &[Piece], which: &[usize]) -> Vec<usize> {
    deepest_of(which, |a, b| pieces[*a].last < pieces[*b].first)
}

/// The same of anything, by whether one ends before another that comes later begins.
pub(super) fn deepest_of<T: Copy>(which: &[T], ends_before: impl Fn(&T, &T) -> bool) -> Vec<T> {
    let (mut open, mut most): (Vec<T>, Vec<T>) = (Vec::new(), Vec::new());
    for i in which {
        open.retain(|o| !ends_before(o, i));
        open.push(*i);
        if open.len() > most.len() {
            most.clone_from(&open);
        }
    }
    most
}

#[cfg(test)]
mod tests;
