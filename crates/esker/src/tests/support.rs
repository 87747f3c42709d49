//! What unit tests of the engine have in common: engines on a simulated disk, tables, rows, sessions, patience.

use crate::host::{Host, SimHost};
use crate::upkeep::flush;
use crate::{
    Background, BeginOptions, Engine, Isolation, LockMode, Options, Result, ScanOptions, Session, Table, TableDef,
};
use esker_format::row::{pack_values, Value};
use esker_format::{Column, ColumnKind, ColumnMask, Compression, Layout, RowFormat, RowId};
use esker_io::SimDisk;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The most bytes of a text in [`wide`].
const WIDTH: u32 = 60_000;

pub(crate) fn options() -> Options {
    Options { background: Background::Inline, ..Options::default() }
}

/// A budget of memtables of 1 MiB, of which 64 KiB may be carried; of large writes of 1 MiB.
pub(crate) fn small() -> Options {
    Options {
        memory_limit_bytes: 4 << 20,
        bulk_buffer_bytes: 256 << 10,
        bulk_threshold_bytes: 128 << 10,
        min_run_bytes: 128 << 10,
        block_bytes: 16 << 10,
        ..options()
    }
}

/// With room for more small writes than [`small`].
pub(crate) fn roomy() -> Options {
    Options { bulk_threshold_bytes: 512 << 10, ..small() }
}

/// A clock that goes on at each look at it; and threads that do nothing.
#[derive(Debug)]
pub(crate) struct Slow(pub(crate) Arc<SimHost>);

impl Host for Slow {
    fn now(&self) -> Duration {
        self.0.pass(Duration::from_millis(10));
        self.0.now()
    }

    fn unix(&self) -> Duration {
        self.0.unix()
    }

    fn sleep(&self, time: Duration) {
        self.0.sleep(time);
    }

    fn spawn(&self, name: &str, _: Box<dyn FnOnce() + Send>) -> std::io::Result<JoinHandle<()>> {
        std::thread::Builder::new().name(name.to_owned()).spawn(|| {})
    }
}

pub(crate) fn open_with(disk: &SimDisk, options: Options) -> Result<Engine> {
    Engine::open(Arc::new(disk.clone()), Path::new("/db"), options, Arc::new(|m, _| eprintln!("{m}")))
}

pub(crate) fn open(disk: &SimDisk) -> Result<Engine> {
    open_with(disk, options())
}

/// An engine without threads, and its table.
pub(crate) fn engine() -> (Engine, Arc<Table>) {
    let options = Options { wal_segment_bytes: 256 << 10, ..options() };
    let engine = Engine::open(Arc::new(SimDisk::new(1)), Path::new("/db"), options, Arc::new(|_, _| {})).unwrap();
    engine.create_table("t", &number()).unwrap();
    let table = engine.open_table("t").unwrap();
    (engine, table)
}

/// A table of this layout.
pub(crate) fn table(layout: Layout) -> TableDef {
    let (format, compression) = (RowFormat::Dynamic, Compression::None);
    TableDef { layout, format, compression, temporary: false, indexes: Vec::new(), extra: vec![] }
}

/// A number.
pub(crate) fn number() -> TableDef {
    let column = Column { kind: ColumnKind::Fixed { width: 8 }, offset: 1, null: None };
    table(Layout { image_bytes: 9, head_bytes: 1, columns: vec![column] })
}

/// A number and so many bytes of filling.
pub(crate) fn fixed(filling: u32) -> TableDef {
    let column = |kind, offset| Column { kind, offset, null: None };
    let columns = vec![column(ColumnKind::Fixed { width: 8 }, 1), column(ColumnKind::Fixed { width: filling }, 9)];
    table(Layout { image_bytes: 9 + filling, head_bytes: 1, columns })
}

/// A number, and a text of up to so many bytes.
pub(crate) fn wide() -> TableDef {
    let number = Column { kind: ColumnKind::Fixed { width: 8 }, offset: 1, null: None };
    let text = Column { kind: ColumnKind::Var { len_bytes: 2, max: WIDTH }, offset: 11, null: None };
    table(Layout { image_bytes: 13 + WIDTH, head_bytes: 1, columns: vec![number, text] })
}

pub(crate) fn make(e: &Engine, name: &str, def: &TableDef) -> Arc<Table> {
    e.create_table(name, def).unwrap();
    e.open_table(name).unwrap()
}

/// A new disk, an engine on it, and a table of a number and 100 bytes.
pub(crate) fn one_table(options: Options) -> (SimDisk, Engine, Arc<Table>) {
    let disk = SimDisk::new(1);
    let e = open_with(&disk, options).unwrap();
    let t = make(&e, "t", &fixed(100));
    (disk, e, t)
}

/// A row of a number and, if there is more, filling.
pub(crate) fn image(t: &Table, n: u64) -> Vec<u8> {
    let mut image = vec![0x5a; t.layout().image_bytes as usize];
    image[0] = 0;
    image[1..9].copy_from_slice(&n.to_le_bytes());
    image
}

/// A row of [`wide`].
pub(crate) fn wide_image(n: u64, len: usize) -> Vec<u8> {
    let mut image = vec![0; 13 + WIDTH as usize];
    image[1..9].copy_from_slice(&n.to_le_bytes());
    image[11..13].copy_from_slice(&(len as u16).to_le_bytes());
    image
}

pub(crate) fn begin(s: &mut Session) {
    s.begin(Isolation::RepeatableRead, BeginOptions::default());
    s.begin_statement();
}

pub(crate) fn insert(s: &mut Session, t: &Arc<Table>, n: u64) -> Result<RowId> {
    unsafe { s.insert_image(t, image(t, n).as_ptr()) }
}

pub(crate) fn insert_wide(s: &mut Session, t: &Arc<Table>, n: u64, len: usize) -> RowId {
    // SAFETY: an image of this table's layout.
    unsafe { s.insert_image(t, wide_image(n, len).as_ptr()).unwrap() }
}

pub(crate) fn fill(s: &mut Session, t: &Arc<Table>, numbers: std::ops::Range<u64>) {
    for n in numbers {
        insert(s, t, n).unwrap();
    }
}

pub(crate) fn count(e: &Engine, name: &str) -> u64 {
    let t = e.open_table(name).unwrap();
    let mut s = e.session();
    let rows = s.count_rows(&t).unwrap();
    assert_eq!(s.count(&t).unwrap(), rows, "the number that is kept");
    s.commit().unwrap();
    rows
}

pub(crate) fn flush(e: &Engine, t: &Table) {
    flush::tree(&e.core, t, &t.tree()).unwrap();
}

pub(crate) fn packed(table: &Table, n: u64) -> Vec<u8> {
    let mut packed = Vec::new();
    pack_values(table.layout(), &[Value::Bytes(&n.to_le_bytes())], &mut packed).unwrap();
    packed
}

pub(crate) fn insert_seven(session: &mut Session, table: &Arc<Table>) -> RowId {
    session.insert_row(table, &packed(table, 7)).unwrap()
}

/// Rows that are there, committed; the first id.
pub(crate) fn fill_and_commit(engine: &Engine, table: &Arc<Table>, rows: usize) -> RowId {
    let mut session = begun(engine, false);
    let first = insert_seven(&mut session, table);
    for _ in 1..rows {
        insert_seven(&mut session, table);
    }
    session.commit().unwrap();
    first
}

/// A session in a statement of a REPEATABLE READ transaction.
pub(crate) fn begun(engine: &Engine, snapshot_isolation: bool) -> Session {
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
