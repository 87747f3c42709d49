//! Keys of one memtable that come before those of all other sources, handed out together: without a copy of a key, or a count
//! of references, for each.

use super::{Lead, MergeRead, Source};
use crate::tree::memtable::Memtable;
use crate::tree::stored::Stored;
use crate::{Error, Result};
use esker_base::counters::{count, Counter};
use std::sync::Arc;

/// Room for so many keys is made at once.
const AT_ONCE: usize = 128;

/// Consecutive keys of a memtable, of each the version that is seen.
pub(crate) struct MemSpan<K: Stored> {
    /// Keeps them.
    pub(crate) mem: Arc<Memtable<K>>,
    found: Vec<(K::Ref<'static>, &'static [u8])>,
}

impl<K: Stored> MemSpan<K> {
    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.found.len()
    }

    /// Keys and values.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (K::Ref<'_>, &[u8])> {
        self.found.iter().map(|(key, value)| (K::short(*key), *value))
    }
}

impl<K: Stored> MergeRead<K> {
    /// What comes next, if that is keys of one memtable, of each of which the view sees a value: `most` of them. Else
    /// [`next`](Self::next) tells. Not for who watches.
    pub(crate) fn next_in_memory(&mut self, most: usize) -> Result<Option<MemSpan<K>>> {
        debug_assert!(!self.watches && self.led.is_none());
        if self.parker.is_killed() {
            self.passed.end(&self.state, self.view.seq);
            return Err(Error::Interrupted);
        }
        let led = self.lead()?;
        let found = match &led {
            // What marks hide is told by the order of each version.
            Some(Lead::Alone(lead, next)) if self.marks.is_empty() => self.together(*lead, *next, most),
            _ => None,
        };
        match found {
            Some(span) => {
                self.passed.end(&self.state, self.view.seq);
                Ok(Some(span))
            }
            None => {
                self.led = Some(led);
                Ok(None)
            }
        }
    }

    fn together(&mut self, lead: usize, next: Option<usize>, most: usize) -> Option<MemSpan<K>> {
        let mut bounds = [self.to.as_ref().map(K::lend), self.next_run().map(|run| K::lend(&run.first)), None];
        bounds[2] = next.map(|next| self.open[next].key());
        let Source::Mem(source) = &self.open[lead] else { return None };
        let mem = source.mem.clone();
        let (mut found, mut at, mut own) = (Vec::new(), source.at, None);
        // SAFETY: null, or a node of the memtable.
        while let Some(node) = unsafe { at.as_ref() }.filter(|_| found.len() < most) {
            node.prefetch_behind();
            let is_behind = |bound: &Option<K::Ref<'_>>| bound.is_some_and(|b| K::cmp(node.key(), K::short(b)).is_ge());
            if bounds.iter().any(is_behind) {
                break;
            }
            let Some((order, version)) = mem.visible(node, self.view).filter(|(_, v)| !v.tombstone) else { break };
            if *own.get_or_insert(order.is_own()) != order.is_own() {
                break;
            }
            if found.is_empty() {
                found.reserve(most.min(AT_ONCE));
            }
            // SAFETY: keys and versions live as long as the memtable, which the span holds.
            found.push(unsafe { (node.key_for_ever(), std::mem::transmute::<&[u8], &'static [u8]>(version.value())) });
            at = mem.after(node).map_or(std::ptr::null(), std::ptr::from_ref);
        }
        let own = own?;
        if let Source::Mem(source) = &mut self.open[lead] {
            source.at = at;
        }
        self.drop_if_done(lead);
        (self.own, self.unseen) = (own, None);
        count(Counter::RowsExamined, found.len() as u64);
        #[cfg(test)]
        together::count(found.len());
        Some(MemSpan { mem, found })
    }
}

/// Counts the keys that this thread's readings handed out so.
#[cfg(test)]
pub(crate) mod together {
    use std::cell::Cell;

    thread_local! {
        static KEYS: Cell<usize> = const { Cell::new(0) };
    }

    pub(super) fn count(keys: usize) {
        KEYS.with(|k| k.set(k.get() + keys));
    }

    /// How many since the last call.
    pub(crate) fn take() -> usize {
        KEYS.with(|k| k.replace(0))
    }
}
