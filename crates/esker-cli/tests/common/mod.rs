//! Folders that go with their tests; some made through the engine, and the command run on them.

// Each test program uses a part of it.
#![allow(dead_code)]

use esker::format::row::{pack_values, Value};
use esker::format::{Column, ColumnKind, Compression, Layout, NullBit, RowFormat};
use esker::{BeginOptions, Engine, Isolation, Options, PosixDisk, Table, TableDef};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;

static NUMBER: AtomicU32 = AtomicU32::new(0);

/// A folder that goes with its test.
pub struct Scratch(PathBuf);

impl Scratch {
    pub fn new() -> Self {
        Scratch::named("test")
    }

    pub fn named(name: &str) -> Self {
        let name = format!("esker-cli-{name}-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn name(&self) -> &str {
        self.0.to_str().unwrap()
    }

    /// The name of a file with this text.
    pub fn file(&self, name: &str, text: &str) -> String {
        let path = self.0.join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }

    pub fn assert_empty(&self) {
        let left: Vec<_> = fs::read_dir(&self.0).unwrap().map(|e| e.unwrap().path()).collect();
        assert!(left.is_empty(), "left behind: {left:?}");
    }

    pub fn db(&self) -> PathBuf {
        self.0.join("db")
    }

    /// What a crash would leave of the folder now: a copy of an open one.
    pub fn crashed(&self) -> PathBuf {
        let copy = self.0.join("crashed");
        copy_dir(&self.db(), &copy);
        copy
    }
}

impl AsRef<Path> for Scratch {
    fn as_ref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn copy_dir(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_dir(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// All files of a folder but its lock, with their bytes.
pub fn contents(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            all.extend(contents(&entry.path()));
        } else if entry.file_name() != "LOCK" {
            all.insert(entry.path(), fs::read(entry.path()).unwrap());
        }
    }
    all
}

pub fn runs(dir: &Path) -> Vec<PathBuf> {
    let mut runs: Vec<_> = fs::read_dir(dir.join("runs")).unwrap().map(|e| e.unwrap().path()).collect();
    runs.sort();
    runs
}

pub fn flip(file: &Path, offset: u64) {
    let mut bytes = fs::read(file).unwrap();
    bytes[offset as usize] ^= 0x10;
    fs::write(file, bytes).unwrap();
}

pub fn options() -> Options {
    Options { wal_segment_bytes: 256 << 10, block_bytes: 8 << 10, ..Options::default() }
}

pub fn open(dir: &Path) -> Engine {
    Engine::open(Arc::new(PosixDisk::new()), dir, options(), Arc::new(|_, _| {})).unwrap()
}

/// A table (number, CHAR(10), VARCHAR(60) that may be NULL).
pub fn create(engine: &Engine, name: &str) -> Arc<Table> {
    let null = Some(NullBit { byte: 0, mask: 1 });
    let columns = vec![
        Column { kind: ColumnKind::Fixed { width: 4 }, offset: 1, null: None },
        Column { kind: ColumnKind::Padded { width: 10, pad: b' ' }, offset: 5, null: None },
        Column { kind: ColumnKind::Var { len_bytes: 1, max: 60 }, offset: 15, null },
    ];
    let layout = Layout { image_bytes: 76, head_bytes: 1, columns };
    let (format, compression) = (RowFormat::Dynamic, Compression::None);
    let def = TableDef { layout, format, compression, temporary: false, indexes: Vec::new(), extra: Vec::new() };
    engine.create_table(name, &def).unwrap();
    engine.open_table(name).unwrap()
}

pub fn packed(table: &Table, n: u32) -> Vec<u8> {
    let (number, code, text) = (n.to_le_bytes(), format!("code {}", n % 100), format!("text\tof row {n}"));
    let text = if n % 3 == 0 { Value::Null } else { Value::Bytes(text.as_bytes()) };
    let mut out = Vec::new();
    pack_values(table.layout(), &[Value::Bytes(&number), Value::Bytes(code.as_bytes()), text], &mut out).unwrap();
    out
}

pub fn insert(engine: &Engine, table: &Arc<Table>, numbers: std::ops::Range<u32>) {
    let mut session = engine.session();
    session.begin(Isolation::RepeatableRead, BeginOptions::default());
    for n in numbers {
        session.insert_row(table, &packed(table, n)).unwrap();
    }
    session.commit().unwrap();
}

pub struct Said {
    pub code: i32,
    pub out: String,
    pub err: String,
}

pub fn esker(dir: &Path, args: &[&str]) -> Said {
    let (job, more) = args.split_first().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_esker")).arg(job).arg(dir).args(more).output().unwrap();
    Said {
        code: output.status.code().unwrap(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}
