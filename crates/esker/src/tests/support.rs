//! What unit tests of the engine have in common: an engine in memory with one small table, sessions, patience.

use crate::{Background, BeginOptions, Engine, Isolation, LockMode, Options, ScanOptions, Session, Table, TableDef};
use esker_format::row::{pack_values, Value};
use esker_format::{Column, ColumnKind, ColumnMask, Compression, Layout, RowFormat, RowId};
use esker_io::SimDisk;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// An engine without threads, and its table.
pub(crate) fn engine() -> (Engine, Arc<Table>) {
    let options = Options { background: Background::Inline, wal_segment_bytes: 256 << 10, ..Options::default() };
    let engine = Engine::open(Arc::new(SimDisk::new(1)), Path::new("/db"), options, Arc::new(|_, _| {})).unwrap();
    let column = Column { kind: ColumnKind::Fixed { width: 8 }, offset: 1, null: None };
    let layout = Layout { image_bytes: 9, head_bytes: 1, columns: vec![column] };
    let (format, compression) = (RowFormat::Dynamic, Compression::None);
    engine.create_table("t", &TableDef { layout, format, compression, temporary: false, extra: vec![] }).unwrap();
    let table = engine.open_table("t").unwrap();
    (engine, table)
}

pub(crate) fn packed(table: &Table, n: u64) -> Vec<u8> {
    let mut packed = Vec::new();
    pack_values(table.layout(), &[Value::Bytes(&n.to_le_bytes())], &mut packed).unwrap();
    packed
}

pub(crate) fn insert(session: &mut Session, table: &Arc<Table>) -> RowId {
    session.insert_row(table, &packed(table, 7)).unwrap()
}

/// Rows that are there, committed; the first id.
pub(crate) fn fill(engine: &Engine, table: &Arc<Table>, rows: usize) -> RowId {
    let mut session = begin(engine, false);
    let first = insert(&mut session, table);
    for _ in 1..rows {
        insert(&mut session, table);
    }
    session.commit().unwrap();
    first
}

/// A session in a statement of a REPEATABLE READ transaction.
pub(crate) fn begin(engine: &Engine, snapshot_isolation: bool) -> Session {
    let mut session = engine.session();
    session.begin(Isolation::RepeatableRead, BeginOptions { snapshot_isolation });
    session.begin_statement();
    session
}

/// Options of a scan that locks.
pub(crate) fn locking() -> ScanOptions {
    ScanOptions { mask: ColumnMask::all(1), lock: Some(LockMode::Exclusive), ..ScanOptions::default() }
}

/// Waits until `what` is true; a test must not hang.
pub(crate) fn until(mut what: impl FnMut() -> bool) {
    let start = Instant::now();
    while !what() {
        assert!(start.elapsed() < Duration::from_secs(60), "it did not happen");
        std::thread::sleep(Duration::from_millis(1));
    }
}
