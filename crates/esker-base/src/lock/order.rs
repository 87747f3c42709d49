//! The lock order: every lock of the engine has its place here, the outermost first. Builds with assertions hold each
//! acquisition against it.
//!
//! A lock is made with its place ([`Mutex::new`](super::Mutex::new)), so none is without one. Invariant: a thread waits
//! only for a lock that stands below all that it holds; then no threads can wait for each other in a circle. Who breaks
//! this panics, though nobody may be waiting at that moment. A lock that is only tried waits for nobody, and may be
//! taken in any order; what is waited for while it is held counts. Nobody waits for a lock while he holds another of the
//! same place, unless all who take several of them take them in turn
//! ([`Mutex::lock_in_turn`](super::Mutex::lock_in_turn)).
//!
//! To this crate these are names. What each guards stands where it is made.

use super::Site;

macro_rules! outermost_first {
    ($($place:ident $name:literal,)+) => {
        #[allow(non_camel_case_types, clippy::upper_case_acronyms)]
        enum Place {
            $($place,)+
        }

        $(
            #[doc = concat!("`", $name, "`")]
            pub static $place: Site = Site::new($name, Place::$place as usize);
        )+

        /// How many they are.
        pub(super) const PLACES: usize = [$(Place::$place as usize,)+].len();

        /// All of them, the outermost first.
        pub(super) static ALL: &[&Site] = &[$(&$place,)+];
    };
}

outermost_first! {
    // An engine's beginning and end.
    BACKGROUND_THREADS "background.threads",
    // Work on one tree. Whoever merges or flushes has the only long locks.
    TREE_MERGING "tree.merging",
    TREE_FLUSHING "tree.flushing",
    BACKGROUND_FLUSHING "background.flushing",
    // What the log and the manifest say. Under the lock of its moves a transaction ends, or a flush takes of it.
    MANIFEST "manifest",
    TXN_MOVES "txn.moves",
    CATALOG "catalog",
    CATALOG_SHOWN "catalog.shown",
    DROP_SPACE "drop_space",
    WAYS_BACK "ways_back",
    COMMIT "commit",
    PREPARED "prepared",
    // A table and its trees.
    TABLE_TREES "table.trees",
    TABLE_NAME "table.name",
    TABLE_SHOWN "table.shown",
    TABLE_FORMER "table.former",
    TREE_STATE "tree.state",
    TREE_DEAD_IN_RUNS "tree.dead_in_runs",
    TREE_LOOKS "tree.looks",
    DUE_IN_MEMORY "due.in_memory",
    DUE_TO_MERGE "due.to_merge",
    DUE_TO_SAVE "due.to_save",
    LIVE_ROWS "live_rows",
    AUTO_INCREMENT "auto_increment",
    // Transactions, and what memtables know of them.
    PRIVATE_UNSORTED "private.unsorted",
    WRITERS "writers",
    TXN_SLOTS "txn.slots",
    MEMTABLE_ABORTED "memtable.aborted",
    ARENA_CHUNKS "arena.chunks",
    VIEWS_SLOTS "views.slots",
    SESSIONS "sessions",
    SESSION_PRESENCE "session.presence",
    LAST_DEADLOCK "last_deadlock",
    // Nothing is done under it: whoever holds anything may begin to write.
    FOLDER "folder",
    // Large writes.
    BULK_STREAM "bulk.stream",
    BULK_QUEUE "bulk.queue",
    // What background threads and sessions tell each other.
    BACKGROUND_TROUBLE "background.trouble",
    BACKGROUND_REQUESTS "background.requests",
    BACKGROUND_MERGED "background.merged",
    BACKGROUND_TRASH "background.trash",
    BACKGROUND_FLUSH_WANTED "background.flush_wanted",
    BACKGROUND_LOG_WANTED "background.log_wanted",
    // Row locks.
    LOCK_SHARD "lock.shard",
    LOCK_OWNER "lock.owner",
    TXN_ABORTED "txn.aborted",
    LOCK_WAITS "lock.waits",
    LOCK_PARKER "lock.parker",
    // Runs: their names, and what of them is in memory.
    RUNS_SYNC "runs_sync",
    CACHE_INDEXES "cache.indexes",
    CACHE_QUEUES "cache.queues",
    CACHE_UNREAD "cache.unread",
    HEALTH "health",
    RUN_FILES "run.files",
    // The log.
    WAL_TURN "wal.turn",
    WAL_MAKING "wal.making",
    WAL_WRITER "wal.writer",
    WAL_TAIL "wal.tail",
    WAL_GROUP "wal.group",
    WAL_WAITER "wal.waiter",
    WAL_CHAIN "wal.chain",
    // Files.
    IO_OVERLAY "io.overlay",
    IO_OVERLAY_FILE "io.overlay_file",
    IO_WRITE_QUEUE "io.write_queue",
    IO_RING_POOL "io.ring_pool",
    IO_LINKED "io.linked",
    IO_FIGURES "io.figures",
    SIM_WATCHER "sim.watcher",
    SIM_DISK "sim.disk",
    // What the lab measures.
    LAB "lab.lock",
}

/// What each thread holds: places, and turns within them.
#[cfg(debug_assertions)]
mod held {
    use super::ALL;
    use crate::lock::Site;
    use std::cell::RefCell;

    thread_local! {
        static HELD: RefCell<Vec<(usize, u64)>> = const { RefCell::new(Vec::new()) };
    }

    /// This thread is about to wait for a lock of this site.
    ///
    /// # Panics
    /// If it holds one that is not above it.
    pub(in crate::lock) fn before_wait(site: &Site, turn: u64) {
        let wanted = (site.place, turn);
        // A thread that ends has no list any more.
        let wrong = HELD.try_with(|held| held.borrow().iter().copied().find(|h| *h >= wanted));
        if let Ok(Some((place, _))) = wrong {
            let order: Vec<_> = ALL[site.place..=place].iter().map(|site| site.name).collect();
            panic!("'{}' is held and '{}' wanted; the order is {}", ALL[place].name, site.name, order.join(", "));
        }
    }

    /// This thread has the lock.
    pub(in crate::lock) fn taken(site: &Site, turn: u64) {
        let _ = HELD.try_with(|held| held.borrow_mut().push((site.place, turn)));
    }

    /// This thread lets go of a lock of this site.
    pub(in crate::lock) fn released(site: &Site, turn: u64) {
        let _ = HELD.try_with(|held| {
            let mut held = held.borrow_mut();
            let at = held.iter().rposition(|h| *h == (site.place, turn));
            at.map(|at| held.remove(at));
        });
    }
}

#[cfg(debug_assertions)]
pub(super) use held::{before_wait, released, taken};
