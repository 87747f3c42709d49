//! What the tests inside this crate share: a small table on a disk, its rows, its files.

use crate::*;
use esker_format::{Column, ColumnKind, Compression, Layout, RowFormat, RowId};
use esker_io::{Disk, SimDisk};
use std::path::Path;
use std::sync::Arc;

/// One number of eight bytes, and sixteen more.
pub(crate) fn def() -> TableDef {
    let column = |width, offset| Column { kind: ColumnKind::Fixed { width }, offset, null: None };
    let layout = Layout { image_bytes: 25, head_bytes: 1, columns: vec![column(8, 1), column(16, 9)] };
    TableDef { layout, format: RowFormat::Dynamic, compression: Compression::None, temporary: false, extra: vec![] }
}

pub(crate) fn img(n: u64) -> Vec<u8> {
    let mut image = vec![0u8; 25];
    image[1..9].copy_from_slice(&n.to_le_bytes());
    image[9..17].copy_from_slice(&n.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes());
    image
}

pub(crate) fn options() -> Options {
    Options { background: Background::Inline, ..Options::default() }
}

pub(crate) fn open_on(disk: Arc<dyn Disk>, options: Options) -> Engine {
    Engine::open(disk, Path::new("/db"), options, Arc::new(|m, _| eprintln!("{m}"))).unwrap()
}

pub(crate) fn open(disk: &SimDisk, options: Options) -> Engine {
    open_on(Arc::new(disk.clone()), options)
}

pub(crate) fn begin(s: &mut Session) {
    s.begin(Isolation::RepeatableRead, BeginOptions::default());
    s.begin_statement();
}

pub(crate) fn insert(s: &mut Session, t: &Arc<Table>, n: u64) -> RowId {
    // SAFETY: an image of this table's layout.
    unsafe { s.insert_image(t, img(n).as_ptr()).unwrap() }
}

/// Inserts `rows` rows and commits.
pub(crate) fn commit_rows(s: &mut Session, t: &Arc<Table>, rows: u64) -> Vec<RowId> {
    begin(s);
    let ids = (0..rows).map(|n| insert(s, t, n)).collect();
    s.commit().unwrap();
    ids
}

/// Counts the rows that a new session sees.
pub(crate) fn rows_of(e: &Engine, t: &Arc<Table>) -> u64 {
    let mut s = e.session();
    begin(&mut s);
    let rows = s.count_rows(t).unwrap();
    s.commit().unwrap();
    rows
}

/// The names of all run files.
pub(crate) fn run_files(disk: &SimDisk) -> Vec<String> {
    disk.list(Path::new("/db/runs")).unwrap().into_iter().map(|f| f.name).collect()
}
