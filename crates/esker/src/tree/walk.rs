//! A memtable from its first key to its last.
//!
//! Each node points to the next, which lies anywhere in memory. So the walk goes twice: a little ahead of who looks at nodes, it
//! fetches their versions, and far ahead of that the nodes themselves, as far as fences tell where they are.

use crate::tree::key::Key;
use crate::tree::memtable::{Memtable, Node};
use esker_format::prefetch;

/// So many nodes before one is asked for its version is fetched; and as many fences before that the node.
const AHEAD: usize = 8;

/// See the module.
pub(crate) struct Walk<'a, K: Key> {
    mem: &'a Memtable<K>,
    next: Option<&'a Node<K>>,
    ahead: Option<&'a Node<K>>,
    fences: &'a [*const Node<K>],
}

impl<K: Key> Memtable<K> {
    /// All nodes in the order of their keys; those that come meanwhile, too, if they come before the walk does.
    pub(crate) fn walk(&self) -> Walk<'_, K> {
        let (first, fences) = (self.first(), self.fences.nodes());
        let mut walk = Walk { mem: self, next: first, ahead: first, fences };
        (0..AHEAD).for_each(|_| walk.fetch());
        walk
    }
}

impl<K: Key> Walk<'_, K> {
    fn fetch(&mut self) {
        let Some(node) = self.ahead else { return };
        node.prefetch_newest();
        if self.fences.first().is_some_and(|fence| std::ptr::eq(*fence, node)) {
            self.fences = &self.fences[1..];
            self.fences.get(AHEAD).into_iter().for_each(|fence| prefetch(*fence));
        }
        self.ahead = self.mem.after(node);
    }
}

impl<'a, K: Key> Iterator for Walk<'a, K> {
    type Item = &'a Node<K>;

    fn next(&mut self) -> Option<&'a Node<K>> {
        self.fetch();
        let node = self.next?;
        self.next = self.mem.after(node);
        Some(node)
    }
}
