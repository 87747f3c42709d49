//! Several runs in one file: each is read by itself, and the file goes with the last of them.

use super::*;
use crate::tests::keys::index;
use crate::tests::tables::{def, open_on, options, run_files, Watched};
use crate::tree::run::file::RunFile;
use crate::tree::run::writer::{FileWriter, RunWriter};
use crate::tree::stored::entry_value;
use crate::Engine;
use esker_base::counters::{bind, SessionCounters};
use esker_format::row::{pack_values, Value};
use esker_format::{RowId, VersionTag};
use esker_io::Disk;
use std::sync::atomic::Ordering::Relaxed;

const ROWS: u64 = 3000;

/// Runs of two row trees, with one of a key tree between them.
struct Three {
    rows: Arc<Run>,
    keys: Arc<Run<ByBytes>>,
    others: Arc<Run>,
}

fn engine(disk: &Watched) -> Engine {
    let e = open_on(Arc::new(disk.clone()), options());
    e.sim_create_table("t", &def(), &[index(1)]).unwrap();
    e.create_table("u", &def()).unwrap();
    e
}

fn recipes(e: &Engine) -> (RunRecipe, RunRecipe<ByBytes>, RunRecipe) {
    let (t, u) = (e.open_table("t").unwrap(), e.open_table("u").unwrap());
    (e.core.runs.recipe(&t, &t.tree()), e.core.runs.recipe(&t, &t.trees().keys[0]), e.core.runs.recipe(&u, &u.tree()))
}

fn push_rows(mut writer: RunWriter, from: u64) -> RunWriter {
    let (layout, mut packed) = (def().layout, Vec::new());
    for n in from..from + ROWS {
        packed.clear();
        let (number, filling) = (n.to_le_bytes(), [n as u8; 16]);
        pack_values(&layout, &[Value::Bytes(&number), Value::Bytes(&filling)], &mut packed).unwrap();
        writer.push(RowId(n), VersionTag { ordinal: n, ..VersionTag::default() }, &packed).unwrap();
    }
    writer
}

fn write(e: &Engine) -> Three {
    let (rows, keys, others) = recipes(e);
    let out = FileWriter::of_session(&rows, e.core.ids.new_file()).unwrap();
    let (out, rows) = push_rows(RunWriter::next(rows, out), 1).end_part().unwrap();
    let mut writer = RunWriter::next(keys, out);
    for n in 0..ROWS {
        let value = entry_value(RowId(n + 1), b"more");
        writer.push(&n.to_be_bytes(), VersionTag { ordinal: n, ..VersionTag::default() }, &value).unwrap();
    }
    let (out, keys) = writer.end_part().unwrap();
    let (out, others) = push_rows(RunWriter::next(others, out), 100_000).end_part().unwrap();
    let file = out.finish().unwrap();
    Three { rows: rows.run(&file), keys: keys.run(&file), others: others.run(&file) }
}

/// As after a restart.
fn reopened(e: &Engine, three: &Three) -> Three {
    fn open<K: Stored>(recipe: &RunRecipe<K>, run: &Run<K>, file: &Arc<RunFile>) -> Arc<Run<K>> {
        Run::open(recipe, file, run.part, &run.stats, run.bounds.clone())
    }
    let (rows, keys, others) = recipes(e);
    let file = RunFile::new(&rows.cache, three.rows.file_id, three.rows.file.size_bytes());
    Three {
        rows: open(&rows, &three.rows, &file),
        keys: open(&keys, &three.keys, &file),
        others: open(&others, &three.others, &file),
    }
}

/// All its versions, if they can be read.
fn read<K: Stored>(run: &Arc<Run<K>>) -> Option<u64> {
    let index = run.index().ok()?;
    (0..index.entries().len()).map(|at| run.read_block_of(&index, at).ok().map(|b| u64::from(K::rows(&b)))).sum()
}

#[test]
fn runs_of_several_trees_lie_in_one_file() {
    let disk = Watched::new();
    let e = engine(&disk);
    let own = SessionCounters::new();
    let _bound = bind(&own);
    let syncs = disk.1.run_syncs.load(Relaxed);
    let written = write(&e);
    assert_eq!((own.get(Counter::RunsCreated), disk.1.run_syncs.load(Relaxed) - syncs), (1, 1), "one file, one sync");
    let size = Disk::list(&disk.0, Path::new("/db/runs")).unwrap()[0].size_bytes;
    for three in [&written, &reopened(&e, &written)] {
        assert_eq!((read(&three.rows), read(&three.keys), read(&three.others)), (Some(ROWS), Some(ROWS), Some(ROWS)));
        assert_eq!(three.rows.read_block(0).unwrap().row_id(0), RowId(1));
        assert_eq!(three.others.read_block(0).unwrap().row_id(0), RowId(100_000));
        let bytes = [three.rows.size_bytes(), three.keys.size_bytes(), three.others.size_bytes()];
        assert_eq!(bytes.iter().sum::<u64>(), size, "each byte of the file is one part's: {bytes:?}");
        assert_eq!(three.keys.file.size_bytes(), size);
    }
    // A part is known by its number, and is of its tree.
    let (recipe, _, others) = recipes(&e);
    let open =
        |part| Run::open(&recipe, &written.rows.file, part, &written.rows.stats, written.rows.bounds).index().map(drop);
    assert!(open(0).is_ok() && open(1).is_err() && open(2).is_err() && open(3).is_err());
    assert!(Run::open(&others, &written.rows.file, 0, &written.rows.stats, written.rows.bounds).index().is_err());
}

#[test]
fn damage_in_one_part_costs_that_part_alone() {
    let disk = Watched::new();
    let e = engine(&disk);
    let written = write(&e);
    let damage = |offset: u64| {
        disk.0.damage(&written.rows.path(), offset, &[0x5a; 8]).unwrap();
        reopened(&e, &written)
    };
    let index = written.keys.index().unwrap();
    // In a block; then in what says where the blocks are.
    let three = damage(index.entry(0).offset + 200);
    assert_eq!((read(&three.rows), read(&three.others)), (Some(ROWS), Some(ROWS)));
    assert!(read(&three.keys).is_none());
    assert!(three.keys.is_set_aside() && !three.rows.is_set_aside() && !three.others.is_set_aside());
    let last = index.entry(index.entries().len() - 1);
    let three = damage(last.offset + u64::from(last.stored_bytes) + 50);
    assert_eq!((read(&three.rows), read(&three.others)), (Some(ROWS), Some(ROWS)));
    assert!(three.keys.index().is_err());
}

#[test]
fn a_file_goes_with_its_last_part() {
    let disk = Watched::new();
    let e = engine(&disk);
    let own = SessionCounters::new();
    let _bound = bind(&own);
    for reopen in [false, true] {
        let mut three = write(&e);
        if reopen {
            three = reopened(&e, &three);
        }
        let there = || run_files(&disk.0).len() == 1;
        three.keys.remove_when_unused();
        // Said twice, it is one part's all the same.
        three.keys.remove_when_unused();
        drop(three.keys);
        three.others.remove_when_unused();
        assert_eq!(read(&three.others), Some(ROWS), "somebody reads it still");
        drop(three.others);
        assert!(there() && own.get(Counter::RunsRemoved) == u64::from(reopen));
        assert_eq!(read(&three.rows), Some(ROWS));
        three.rows.remove_when_unused();
        assert!(there(), "a reader has it");
        drop(three.rows);
        assert!(!there() && own.get(Counter::RunsRemoved) == u64::from(reopen) + 1);
    }
    // Whom nobody let go stays: the engine ended.
    let three = write(&e);
    three.rows.remove_when_unused();
    drop(three);
    assert_eq!(run_files(&disk.0).len(), 1);
}

/// What was not finished goes, with the parts that were.
#[test]
fn an_unfinished_file_goes() {
    let disk = Watched::new();
    let e = engine(&disk);
    let (rows, _, _) = recipes(&e);
    let out = FileWriter::of_session(&rows, e.core.ids.new_file()).unwrap();
    let (out, part) = push_rows(RunWriter::next(rows, out), 1).end_part().unwrap();
    assert_eq!(run_files(&disk.0).len(), 1);
    drop((out, part));
    assert_eq!(run_files(&disk.0).len(), 0);
}

/// A file of so many parts of a row each, as after a restart.
fn many_parts(e: &Engine, parts: u64) -> Vec<Arc<Run>> {
    let (rows, _, _) = recipes(e);
    let mut out = FileWriter::of_session(&rows, e.core.ids.new_file()).unwrap();
    let mut written = Vec::new();
    for n in 0..parts {
        let mut writer = RunWriter::next(rows.clone(), out);
        let (number, mut packed) = (n.to_le_bytes(), Vec::new());
        pack_values(&def().layout, &[Value::Bytes(&number), Value::Bytes(&[0; 16])], &mut packed).unwrap();
        writer.push(RowId(n + 1), VersionTag { ordinal: n, ..VersionTag::default() }, &packed).unwrap();
        let (next, part) = writer.end_part().unwrap();
        out = next;
        written.push(part);
    }
    let file = out.finish().unwrap();
    let written: Vec<_> = written.into_iter().map(|part| part.run(&file)).collect();
    let file = RunFile::new(&rows.cache, written[0].file_id, written[0].file.size_bytes());
    written.iter().map(|run| Run::open(&rows, &file, run.part, &run.stats, run.bounds)).collect()
}

#[test]
fn all_parts_of_a_file_are_opened_by_reading_it_once() {
    const PARTS: u64 = 2000;
    let disk = Watched::new();
    let e = engine(&disk);
    let indexes = &e.core.cache.indexes;
    let runs = many_parts(&e, PARTS);
    assert_eq!(indexes.bytes(), 0);
    let size = Disk::list(&disk.0, Path::new("/db/runs")).unwrap()[0].size_bytes;
    let read = || (disk.1.run_reads.load(Relaxed) as u64, disk.1.run_read_bytes.load(Relaxed) as u64);
    let before = read();
    runs.iter().for_each(|run| drop(run.index().unwrap()));
    let (reads, bytes) = (read().0 - before.0, read().1 - before.1);
    // Of the first the file's end, its header and the directory, which is longer than what is read at once.
    assert_eq!(reads, PARTS + 3);
    assert!(bytes < 2 * size, "{bytes} bytes of {size} were read");
    // It counts as indexes do, and goes with them.
    let of_runs: u64 = runs.iter().filter_map(|run| run.index_in_memory()).map(|index| index.bytes()).sum();
    let of_directory = indexes.bytes() - of_runs;
    assert!((24 * PARTS..25 * PARTS).contains(&of_directory), "{of_directory} bytes");
    e.set_memory_limit(8 * of_directory / 2);
    assert_eq!(indexes.bytes(), of_directory, "what was used last stays, if alone");
    let other = write(&e).rows;
    drop(other.index().unwrap());
    assert!(indexes.bytes() < of_directory);
    let before = read();
    drop(runs[0].index().unwrap());
    assert_eq!(read().0 - before.0, 4);
    assert!(indexes.bytes() < of_directory);
    e.set_memory_limit(1 << 30);
    runs.iter().for_each(|run| drop(run.index().unwrap()));
    assert!(indexes.bytes() > of_directory);
    drop((runs, other));
    assert_eq!(indexes.bytes(), 0);
}
