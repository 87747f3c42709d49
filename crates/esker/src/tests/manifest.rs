//! The manifest's file: edits instead of the whole, what a torn one costs, and what a damaged one.

use crate::tests::formats::{content, create, kill, open, open_with, put};
use crate::tests::hooks;
use crate::tests::support::{begun, insert_seven};
use crate::tree::RunHandle;
use crate::upkeep::flush::run_entry;
use crate::upkeep::{checkpoint, flush};
use crate::version::OrdinalRanges;
use crate::{Engine, Error, Level, Table};
use esker_format::manifest::{edit_offset, EDIT_ALIGN};
use esker_format::{CommitSeq, ManifestFile};
use esker_io::{Disk, SimDisk};
use std::path::Path;
use std::sync::{Arc, Mutex};

const MANIFEST: &str = "MANIFEST";

fn file(disk: &SimDisk) -> ManifestFile {
    ManifestFile::decode(&content(disk, MANIFEST)).unwrap()
}

fn insert_one(engine: &Engine, table: &Arc<Table>) {
    let mut session = begun(engine, false);
    insert_seven(&mut session, table);
    session.commit().unwrap();
}

fn rows(engine: &Engine, name: &str) -> u64 {
    engine.session().count_rows(&engine.open_table(name).unwrap()).unwrap()
}

/// Bytes written to the manifest's file, under whatever name, since operation number `since`.
fn written_to_manifest(disk: &SimDisk, since: u64) -> u64 {
    let ops = disk.op_log().into_iter().filter(|op| op.number > since);
    let of_manifest = ops.filter(|op| op.path.to_string_lossy().contains(MANIFEST));
    of_manifest.filter_map(|op| op.bytes).sum()
}

#[test]
fn a_checkpoint_writes_what_changed() {
    let disk = SimDisk::new(1);
    let engine = open(&disk).unwrap();
    let tables: Vec<_> = (0..1000).map(|n| create(&engine, &format!("t{n}"))).collect();
    engine.checkpoint().unwrap();
    // Until the edits that made a thousand tables have become a base.
    for _ in 0..3 {
        insert_one(&engine, &tables[999]);
        checkpoint::write(&engine.core).unwrap();
        if file(&disk).edits == 0 {
            break;
        }
    }
    assert_eq!(file(&disk).edits, 0);
    assert!(content(&disk, MANIFEST).len() > 40 << 10);
    for (n, table) in tables.iter().take(10).enumerate() {
        insert_one(&engine, table);
        flush::tree(&engine.core, table, &table.tree()).unwrap();
        let before = disk.op_count();
        checkpoint::write(&engine.core).unwrap();
        let written = written_to_manifest(&disk, before);
        assert!((1..4096).contains(&written), "{written} bytes for table {n}");
        let file = file(&disk);
        assert_eq!((file.edits, file.torn), (n as u64 + 1, None));
    }
    engine.drop_table("t500").unwrap();
    checkpoint::write(&engine.core).unwrap();
    assert_eq!(file(&disk).manifest.tables.len(), 999);
    let engine = open(&kill(engine, &disk)).unwrap();
    assert_eq!(engine.tables().len(), 999);
    assert_eq!((rows(&engine, "t0"), rows(&engine, "t9"), rows(&engine, "t10")), (1, 1, 0));
}

/// A checkpoint looks what is to be saved just as a table that is emptied has told of its new tree and has the old one still: it
/// took the new one for one of before, and what changed there was told to no later one.
#[test]
fn a_table_that_is_emptied_while_a_checkpoint_looks_is_saved_by_later_ones() {
    let disk = SimDisk::new(1);
    let engine = open(&disk).unwrap();
    let table = create(&engine, "t");
    for _ in 0..2 {
        insert_one(&engine, &table);
        checkpoint::write(&engine.core).unwrap();
    }
    let due = engine.core.due.clone();
    hooks::at("a table is about to have other trees", move || drop(due.take_to_save()));
    engine.truncate_table("t").unwrap();
    assert!(hooks::all_done());
    // The old tree, which is discarded, tells the next one that there is another.
    checkpoint::write(&engine.core).unwrap();
    insert_one(&engine, &table);
    flush::tree(&engine.core, &table, &table.tree()).unwrap();
    checkpoint::write(&engine.core).unwrap();
    let engine = open(&kill(engine, &disk)).unwrap();
    assert_eq!(rows(&engine, "t"), 1);
}

#[test]
fn edits_do_not_outgrow_their_base() {
    let disk = SimDisk::new(1);
    let engine = open(&disk).unwrap();
    let table = create(&engine, "t");
    let (mut most, mut bases) = (0, 0);
    for n in 0..100 {
        insert_one(&engine, &table);
        checkpoint::write(&engine.core).unwrap();
        let file = file(&disk);
        assert_eq!(file.manifest.tables.values().next().unwrap().live_rows, n + 1);
        bases += u64::from(file.edits == 0);
        most = most.max(content(&disk, MANIFEST).len());
    }
    assert!(most <= 80 << 10 && (4..20).contains(&bases), "{most} bytes, {bases} bases");
}

#[test]
fn an_opening_begins_with_a_base() {
    let disk = SimDisk::new(1);
    let engine = open(&disk).unwrap();
    insert_one(&engine, &create(&engine, "t"));
    checkpoint::write(&engine.core).unwrap();
    assert!(file(&disk).edits > 0);
    let disk = kill(engine, &disk);
    let engine = open(&disk).unwrap();
    checkpoint::write(&engine.core).unwrap();
    assert_eq!(file(&disk).edits, 0);
    assert_eq!(rows(&engine, "t"), 1);
}

/// A folder whose manifest ends with an edit, and where that begins.
fn with_an_edit(commits: u64) -> (SimDisk, usize) {
    let disk = SimDisk::new(1);
    let engine = open(&disk).unwrap();
    let table = create(&engine, "t");
    checkpoint::write(&engine.core).unwrap();
    let at = edit_offset(content(&disk, MANIFEST).len());
    for _ in 0..commits {
        insert_one(&engine, &table);
    }
    create(&engine, "u");
    flush::tree(&engine.core, &table, &table.tree()).unwrap();
    checkpoint::write(&engine.core).unwrap();
    let bytes = content(&disk, MANIFEST);
    assert!(bytes.len() > at && at % EDIT_ALIGN == 0);
    (kill(engine, &disk), at)
}

#[test]
fn a_torn_edit_costs_nothing_while_the_log_reaches_back() {
    let (whole, at) = with_an_edit(3);
    let bytes = content(&whole, MANIFEST);
    for left in [at + 1, at + 30, bytes.len() - 1] {
        let disk = whole.snapshot();
        put(&disk, MANIFEST, &bytes[..left]);
        let (engine, warnings) = open_and_listen(&disk);
        let [warning] = &warnings[..] else { panic!("{warnings:?}") };
        assert!(warning.starts_with(&format!("/db/MANIFEST, byte {at}: manifest edit")), "{warning}");
        assert_eq!((engine.tables(), rows(&engine, "t")), (vec!["t".to_owned(), "u".to_owned()], 3));
        checkpoint::write(&engine.core).unwrap();
        assert_eq!(file(&disk).torn, None);
    }
    assert_eq!(open_and_listen(&whole).1, Vec::<String>::new());
}

/// An engine, and the warnings of its opening.
fn open_and_listen(disk: &SimDisk) -> (Engine, Vec<String>) {
    let said = Arc::new(Mutex::new(Vec::new()));
    let sink = said.clone();
    let listen = move |text: &str, level| {
        if level != Level::Info {
            sink.lock().unwrap().push(text.to_owned());
        }
    };
    let engine = open_with(disk, Arc::new(listen)).unwrap();
    let said = said.lock().unwrap().clone();
    (engine, said)
}

const FRESH: &str = "MANIFEST.new";

fn is_there(disk: &SimDisk, name: &str) -> bool {
    disk.exists(&Path::new("/db").join(name)).unwrap()
}

#[test]
fn a_base_that_finds_no_room_leaves_nothing() {
    let disk = SimDisk::new(1);
    let engine = open(&disk).unwrap();
    for n in 0..200 {
        create(&engine, &format!("t{n}"));
    }
    let disk = kill(engine, &disk);
    let engine = open(&disk).unwrap();
    let before = content(&disk, MANIFEST);
    disk.capacity(Some(disk.used_bytes() + 4096));
    let ops = disk.op_count();
    let full = checkpoint::write(&engine.core).unwrap_err();
    assert!(matches!(full, Error::DiskFull(_)), "{full}");
    assert!(disk.op_log().iter().any(|op| op.number > ops && op.path.ends_with(FRESH)), "it was begun");
    assert!(!is_there(&disk, FRESH) && content(&disk, MANIFEST) == before);
    disk.capacity(None);
    checkpoint::write(&engine.core).unwrap();
    assert_eq!(file(&disk).manifest.tables.len(), 200);
}

#[test]
fn what_is_left_of_a_base_is_removed_by_an_opening() {
    let disk = SimDisk::new(1);
    let engine = open(&disk).unwrap();
    create(&engine, "t");
    checkpoint::write(&engine.core).unwrap();
    let whole = content(&disk, MANIFEST);
    let disk = kill(engine, &disk);
    put(&disk, FRESH, &whole[..100]);
    let engine = open(&disk).unwrap();
    assert!(!is_there(&disk, FRESH));
    assert_eq!((engine.tables(), content(&disk, MANIFEST)), (vec!["t".to_owned()], whole));
}

#[test]
fn a_manifest_never_outgrows_what_an_opening_reads() {
    let disk = SimDisk::new(1);
    let engine = open(&disk).unwrap();
    let tables: Vec<_> = (0..200).map(|n| create(&engine, &format!("t{n}"))).collect();
    let disk = kill(engine, &disk);
    drop(tables);
    let engine = open(&disk).unwrap();
    let table = engine.open_table("t0").unwrap();
    checkpoint::write(&engine.core).unwrap();
    let base = content(&disk, MANIFEST).len() as u64;
    // Edits: a base is written in time.
    let most = edit_offset(base as usize) as u64 + 3 * EDIT_ALIGN as u64;
    engine.core.manifest.lock().most_bytes = most;
    let mut edits = Vec::new();
    for _ in 0..20 {
        insert_one(&engine, &table);
        checkpoint::write(&engine.core).unwrap();
        assert!(content(&disk, MANIFEST).len() as u64 <= most);
        edits.push(file(&disk).edits);
    }
    assert!(edits.contains(&2) && edits[5..].contains(&0), "{edits:?}");
    // A base: nothing is written, and nothing is lost.
    engine.core.manifest.lock().most_bytes = base / 2;
    let (before, ops) = (content(&disk, MANIFEST), disk.op_count());
    insert_one(&engine, &table);
    let long = checkpoint::write(&engine.core).unwrap_err();
    assert!(matches!(long, Error::TooLong { what: "manifest", bytes, max } if bytes > base / 2 && max == base / 2));
    assert!(!long.stops_writing() && !engine.poisoned());
    assert!(content(&disk, MANIFEST) == before && written_to_manifest(&disk, ops) == 0);
    let other = open(&disk.after_kill()).unwrap();
    assert_eq!((other.tables().len(), rows(&other, "t0")), (200, 21));
    engine.core.manifest.lock().most_bytes = 1 << 30;
    checkpoint::write(&engine.core).unwrap();
    assert_eq!(file(&disk).edits, 0);
}

#[test]
fn a_log_record_that_is_too_long_is_refused_as_that() {
    let disk = SimDisk::new(1);
    let engine = open(&disk).unwrap();
    let long = vec![0; (128 << 20) + 1];
    let refused = Error::from(engine.core.wal.append(&long).unwrap_err());
    let words = "log record of 134217729 bytes would be too long, the limit is 134217728 bytes";
    assert_eq!((refused.to_string().as_str(), refused.stops_writing()), (words, false));
    insert_one(&engine, &create(&engine, "t"));
}

#[test]
fn a_damaged_edit_is_damage_of_the_manifest_once_the_log_was_shortened() {
    // Segments are of 64 KiB, and each commit takes a sector.
    let (disk, at) = with_an_edit(60);
    let mut bytes = content(&disk, MANIFEST);
    assert_eq!(rows(&open(&disk.snapshot()).unwrap(), "t"), 60);
    bytes[at + 30] ^= 1;
    put(&disk, MANIFEST, &bytes);
    let said = open(&disk).map(drop).unwrap_err();
    assert!(
        matches!(&said, Error::Damage { file, offset, .. } if file.ends_with(MANIFEST) && *offset == at as u64),
        "{said}"
    );
}

#[test]
fn an_edit_is_durable_before_the_log_is_shortened() {
    let (disk, at) = with_an_edit(60);
    for seed in 0..30 {
        let engine = open(&disk.after_power_cut(seed)).unwrap();
        assert_eq!((engine.tables().len(), rows(&engine, "t")), (2, 60), "seed {seed}, edit at {at}");
    }
}

#[test]
fn a_run_keeps_the_rolled_back_ordinals_that_it_may_hold() {
    let disk = SimDisk::new(1);
    let engine = open(&disk).unwrap();
    let table = create(&engine, "t");
    insert_one(&engine, &table);
    flush::tree(&engine.core, &table, &table.tree()).unwrap();
    let handle = table.tree().snapshot().runs[0].clone();
    let (least, greatest) = (handle.run.stats.min_ordinal, handle.run.stats.max_ordinal);
    let ranges = vec![least..least + 1, greatest + 10..greatest + 20, greatest + 30..greatest + 31];
    let first = ranges[..1].to_vec();
    let handle = RunHandle { aborted: Arc::new(OrdinalRanges(ranges)), ..handle };
    assert_eq!(run_entry(&handle, CommitSeq(1)).aborted, first);
}

/// All of the log up to the newest commit that the manifest names was durable before it: a log that ends there is damaged, though
/// nothing in it says so.
#[test]
fn a_log_that_ends_before_what_the_manifest_names_is_refused() {
    let disk = SimDisk::new(1);
    let engine = open(&disk).unwrap();
    let table = create(&engine, "t");
    (0..3).for_each(|_| insert_one(&engine, &table));
    checkpoint::write(&engine.core).unwrap();
    let named = file(&disk).manifest.tables.values().map(|t| t.counted_at.0).max().unwrap();
    insert_one(&engine, &table);
    let newest = engine.core.views.visible_seq().0;
    assert!(named > 0 && newest > named);
    let left = kill(engine, &disk);
    let segments = left.list(Path::new("/db/wal")).unwrap().into_iter().map(|e| format!("wal/{}", e.name));
    let first = |name: &String| u64::from_le_bytes(content(&left, name)[24..32].try_into().unwrap());
    let holds = |name: &String| name.ends_with(".wal") && (first(name)..=named).contains(&named);
    let segment = segments.filter(holds).max_by_key(|name| first(name)).unwrap();
    let before = |frame: u64| {
        let (disk, mut bytes) = (left.snapshot(), content(&left, &segment));
        let at = 4096 + (frame - first(&segment)) as usize;
        // What lies behind may prove that it was durable.
        bytes[at..].fill(0);
        put(&disk, &segment, &bytes);
        open(&disk)
    };
    assert_eq!(rows(&open(&left.snapshot()).unwrap(), "t"), 4);
    // Nobody can tell that from a commit that was torn.
    assert_eq!(rows(&before(newest).unwrap(), "t"), 3);
    match before(named) {
        Err(Error::Damage { file, .. }) => assert!(file.ends_with(&segment), "{}", file.display()),
        other => panic!("{:?}", other.map(|e| rows(&e, "t"))),
    }
}
