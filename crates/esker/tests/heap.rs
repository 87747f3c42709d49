//! What blocks in memory take is on the account of the cache and in regions, not on the heap, whose arenas keep what was freed: a
//! cache whose blocks were decompressed into the heap took a server half as much again as its limit. A process of its own, since
//! allocator and accounts are the process's.

#![allow(clippy::unwrap_used)]

use esker::base::{global_total, Counter};
use esker::memory::{charged, charged_total, reserve, Account, Region};
use esker::{Background, Engine, IndexRange, Options, PosixDisk, Schema, TableDef, Type};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::Arc;

static LIVE: AtomicI64 = AtomicI64::new(0);

struct Counted;

// SAFETY: all is the system's; the counter changes nothing.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size() as i64, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size() as i64, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(place, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counted = Counted;

const ROWS: u64 = 60_000;
const LIMIT: u64 = 16 << 20;

/// Rows that compress well, all of them in runs.
fn load(engine: &Engine) {
    let text = |name: &'static str| (name, Type::Text(80));
    let schema = [text("a"), text("b"), text("c"), text("d")]
        .into_iter()
        .fold(Schema::new().column("id", Type::U64), |schema, (name, kind)| schema.column(name, kind));
    let def = TableDef::of(&schema).unwrap().unique("by_id", &["id"]).unwrap().index("by_text", &["a"]).unwrap();
    engine.create_table("t", &def).unwrap();
    let (table, mut session) = (engine.open_table("t").unwrap(), engine.session());
    for n in 0..ROWS {
        let texts = ["ab", "a", "cd", "e"].map(|of| format!("{of} of row {n}, {}", of.repeat(20 + (n % 9) as usize)));
        let row = [n.into(), (&*texts[0]).into(), (&*texts[1]).into(), (&*texts[2]).into(), (&*texts[3]).into()];
        session.insert(&table, &row).unwrap();
    }
    session.commit().unwrap();
    engine.checkpoint().unwrap();
}

#[test]
fn blocks_in_memory_are_on_the_account_and_off_the_heap() {
    let dir = std::env::temp_dir().join(format!("esker-heap-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    let options = |background| Options { memory_limit_bytes: LIMIT, background, ..Options::default() };
    let open = |background| {
        Engine::open(Arc::new(PosixDisk::default()), &dir, options(background), Arc::new(|_, _| {})).unwrap()
    };
    let engine = open(Background::Threads);
    load(&engine);
    engine.close().unwrap();

    let engine = open(Background::Inline);
    let table = engine.open_table("t").unwrap();
    let mut session = engine.session();
    // So that indexes, directories and what a thread keeps for itself are there before.
    let by_text = |session: &mut esker::Session, limit: usize| {
        let mut rows = session.rows_by(&table, "by_text", IndexRange::all()).unwrap();
        for _ in 0..limit {
            let row = rows.next().unwrap().unwrap();
            assert!(row.get::<String>("d").unwrap().starts_with("e of row"));
        }
    };
    by_text(&mut session, 1);
    let (heap, cache) = (LIVE.load(Ordering::Relaxed), charged(Account::BlockCache));
    by_text(&mut session, ROWS as usize);
    let (heap, cache) = (LIVE.load(Ordering::Relaxed) - heap, charged(Account::BlockCache) - cache);
    let evicted = global_total(Counter::BlocksEvicted);
    assert!(cache > LIMIT / 2 && evicted > 100, "cached {cache} bytes, evicted {evicted} blocks: too few to tell");
    assert!(heap < cache as i64 / 10, "{heap} bytes of the heap for {cache} bytes of cached blocks");
    // What the accounts say is what there is, as far as it lies in regions, and no more than the limit.
    let live = reserve().live_bytes;
    assert!(live <= charged_total() && charged_total() <= LIMIT, "{live} bytes live, {} on accounts", charged_total());
    assert!(live > charged_total() / 10 * 9, "{live} bytes live, {} on accounts", charged_total());
    // What somebody reads that the cache does not have, or has no longer, is on its account too: it gives way.
    let read_beside = Region::zeroed(Account::BlockCache, LIMIT as usize / 4).unwrap();
    by_text(&mut session, ROWS as usize);
    assert!(charged_total() <= LIMIT, "{} bytes on accounts", charged_total());
    drop((read_beside, session, table));
    engine.close().unwrap();
    drop(engine);
    assert_eq!(charged(Account::BlockCache), 0);
    let _ = std::fs::remove_dir_all(&dir);
}
