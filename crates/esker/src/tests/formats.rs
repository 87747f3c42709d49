//! What a folder of another version or of another origin meets when it is opened, and what small writes leave in the log.

use crate::tests::support::{begun, insert_seven, make, number, packed};
use crate::{Background, Engine, Error, Notify, Options, Table};
use esker_format::catalog::tree_kind;
use esker_format::entry::SKIPPABLE;
use esker_format::{
    CommitSeq, FolderId, FormatError, IndexEntry, IndexState, Manifest, Record, RecordReader, TableEntry, TableId,
    TreeEntry, TreeId, TreeKind,
};
use esker_io::{AccessHint, Disk, OpenMode, SimDisk};
use std::path::Path;
use std::sync::Arc;

const DIR: &str = "/db";

pub(crate) fn open(disk: &SimDisk) -> crate::Result<Engine> {
    open_with(disk, Arc::new(|_, _| {}))
}

pub(crate) fn open_with(disk: &SimDisk, notify: Notify) -> crate::Result<Engine> {
    let options = Options { background: Background::Inline, wal_segment_bytes: 64 << 10, ..Options::default() };
    Engine::open(Arc::new(disk.clone()), Path::new(DIR), options, notify)
}

pub(crate) fn create(engine: &Engine, name: &str) -> Arc<Table> {
    make(engine, name, &number())
}

pub(crate) fn content(disk: &SimDisk, name: &str) -> Vec<u8> {
    let file = disk.open(&Path::new(DIR).join(name), OpenMode::Read, AccessHint::Meta).unwrap();
    let mut bytes = vec![0; file.size_bytes().unwrap() as usize];
    file.read_at(&mut bytes, 0).unwrap();
    bytes
}

pub(crate) fn put(disk: &SimDisk, name: &str, bytes: &[u8]) {
    let path = Path::new(DIR).join(name);
    if disk.exists(&path).unwrap() {
        disk.remove(&path).unwrap();
    }
    let file = disk.open(&path, OpenMode::Create, AccessHint::Meta).unwrap();
    file.write_at(bytes, 0).unwrap();
    file.sync_all().unwrap();
}

/// The engine's process is gone; what it wrote is there.
pub(crate) fn kill(engine: Engine, disk: &SimDisk) -> SimDisk {
    let left = disk.after_kill();
    drop(engine);
    left
}

/// What a folder meets whose log ends with `record`.
fn opened_with(record: &[u8]) -> crate::Result<Engine> {
    let disk = SimDisk::new(1);
    let engine = open(&disk).unwrap();
    create(&engine, "t");
    let end = engine.core.wal.append(record).unwrap().end;
    engine.core.wal.wait_durable(end).unwrap();
    open(&kill(engine, &disk))
}

#[test]
fn a_folder_of_the_first_version_is_refused_and_told_what_to_do() {
    let disk = SimDisk::new(1);
    disk.create_dir(Path::new(DIR)).unwrap();
    let old = include_bytes!("../../../esker-format/tests/fixtures/v1/manifest");
    put(&disk, "MANIFEST", old);
    let said = open(&disk).map(drop).unwrap_err();
    assert!(matches!(said, Error::OlderFormat { found: 1, needed: 2, .. }), "{said:?}");
    let text = said.to_string();
    for part in ["/db/MANIFEST", "format version 1", "needs 2", "dump", "load"] {
        assert!(text.contains(part), "{text}");
    }
    assert_eq!(content(&disk, "MANIFEST"), old);
}

#[test]
fn what_only_a_newer_version_knows_is_refused_unless_it_may_be_skipped() {
    let engine = opened_with(&[100 | SKIPPABLE, 2, 7, 7]).unwrap();
    assert_eq!(engine.tables(), ["t"]);
    let mut snapshot = Vec::new();
    Record::CreateSnapshot { id: 1, name: "s", seq: CommitSeq(1), created_unix_s: 0 }.encode(&mut snapshot);
    for (record, kind) in [(&[100, 2, 7, 7][..], 100), (&snapshot, snapshot[0].into())] {
        let said = opened_with(record).map(drop).unwrap_err();
        let reason = FormatError::Unknown { what: "log record of kind", found: kind };
        assert!(matches!(&said, Error::UnknownContent { reason: r, .. } if *r == reason), "{said:?}");
    }
}

/// A table of a newer version: between its row tree, 50, and its name is a tree that may be skipped, 51. And it is emptied,
/// with these pairs of trees.
fn created_and_emptied(pairs: &[(u64, u64)]) -> crate::Result<Engine> {
    let disk = SimDisk::new(1);
    let engine = open(&disk).unwrap();
    let rows = TreeEntry { id: TreeId(50), kind: TreeKind::Rows };
    let index = IndexEntry {
        id: 1,
        name: "i".to_owned(),
        unique: false,
        parts: Vec::new(),
        state: IndexState::Ready,
        usable_from: CommitSeq(1),
        weights: 0,
    };
    let keys = TreeEntry { id: TreeId(51), kind: TreeKind::Keys(index) };
    let entry = create(&engine, "t").entry();
    let mut record = Vec::new();
    let entry = TableEntry { id: TableId(40), name: "u".to_owned(), trees: vec![rows, keys], ..entry };
    Record::CreateTable(entry).encode(&mut record);
    let rows = [tree_kind::ROWS, 1, 50];
    let at = record.windows(3).position(|w| w == rows).unwrap() + rows.len();
    assert_eq!(record[at], tree_kind::KEYS);
    record[at] = 100 | SKIPPABLE;
    let trees = pairs.iter().map(|(old, new)| (TreeId(*old), TreeId(*new))).collect();
    Record::TruncateTable { table: TableId(40), trees }.encode(&mut record);
    let end = engine.core.wal.append(&record).unwrap().end;
    engine.core.wal.wait_durable(end).unwrap();
    open(&kill(engine, &disk))
}

#[test]
fn a_table_with_a_tree_that_was_skipped_is_emptied() {
    for pairs in [[(50, 60), (51, 61)], [(51, 61), (50, 60)]] {
        let engine = created_and_emptied(&pairs).unwrap();
        let table = engine.open_table("u").unwrap();
        assert_eq!((table.tree().id, table.entry().trees.len()), (TreeId(60), 1));
        assert!(engine.core.ids.next_tree().0 > 61);
        let mut session = begun(&engine, false);
        insert_seven(&mut session, &table);
        session.commit().unwrap();
    }
    let refused = created_and_emptied(&[(51, 61)]).map(drop).unwrap_err();
    let what = "emptied table without its tree";
    assert!(
        matches!(&refused, Error::Damage { reason: FormatError::Invalid { what: w, found: 50 }, .. } if *w == what),
        "{refused}"
    );
}

#[test]
fn the_log_of_another_folder_is_refused() {
    let disk = SimDisk::new(1);
    let disk = kill(open(&disk).unwrap(), &disk);
    let mut manifest = Manifest::decode(&content(&disk, "MANIFEST")).unwrap();
    assert_eq!(manifest.folder, FolderId(disk.fresh_id()));
    manifest.folder.0[3] ^= 1;
    let mut bytes = Vec::new();
    manifest.encode(&mut bytes);
    put(&disk, "MANIFEST", &bytes);
    let said = open(&disk).map(drop).unwrap_err();
    let foreign = matches!(said, Error::Damage { reason: FormatError::Foreign { expected, .. }, .. } if expected == manifest.folder);
    assert!(foreign, "{said:?}");
}

#[test]
fn redo_says_which_versions_supersede_others() {
    let disk = SimDisk::new(1);
    let engine = open(&disk).unwrap();
    let table = create(&engine, "t");
    let mut session = begun(&engine, false);
    let row = insert_seven(&mut session, &table);
    session.commit().unwrap();
    let mut session = begun(&engine, false);
    session.update_row(&table, row, &packed(&table, 8)).unwrap();
    session.delete_all(&table).unwrap();
    session.commit().unwrap();
    drop(session);
    let disk = kill(engine, &disk);
    let (mut puts, mut emptied) = (Vec::new(), Vec::new());
    let manifest = Manifest::decode(&content(&disk, "MANIFEST")).unwrap();
    let mut frame = |_, payload: &[u8]| {
        for record in RecordReader::new(payload) {
            match record.unwrap() {
                Record::RowPut { supersedes, layout, .. } => puts.push((supersedes, layout)),
                Record::RangeDelete { table, .. } => emptied.push(table),
                _ => {}
            }
        }
        Ok::<_, esker_wal::WalError>(())
    };
    let wal = Path::new(DIR).join("wal");
    esker_wal::replay(&disk, &wal, manifest.folder, manifest.replay_from, &mut frame, &mut |_, _| {}).unwrap();
    assert_eq!((puts, emptied), (vec![(false, 0), (true, 0)], vec![TableId(1)]));
    let engine = open(&disk).unwrap();
    let table = engine.open_table("t").unwrap();
    assert_eq!(engine.session().count_rows(&table).unwrap(), 0);
}
