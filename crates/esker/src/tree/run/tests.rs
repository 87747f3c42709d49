//! Runs whose files are missing, cannot be read for a while, are not the right ones; and how few of them are open.

use crate::tests::tables::{begin, commit_rows, def, insert, open, open_on, options, rows_of, run_files, Watched};
use crate::tree::run::health::State;
use crate::tree::run::writer::{encode_tail, RunRecipe};
use crate::tree::run::Run;
use crate::tree::stored::RowShape;
use crate::upkeep::{checkpoint, flush, merge};
use crate::*;
use esker_format::run::RunHeader;
use esker_format::{ColumnMask, FolderId, FormatError, TreeId};
use esker_io::{AccessHint, Disk, IoKind, OpenMode, SimDisk};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::Arc;

/// A table of `runs` runs of ten rows each, side by side.
fn table_of(e: &Engine, name: &str, runs: u64) -> Arc<Table> {
    e.create_table(name, &def()).unwrap();
    let t = e.open_table(name).unwrap();
    let mut s = e.session();
    for _ in 0..runs {
        commit_rows(&mut s, &t, 10);
        flush::tree(&e.core, &t, &t.tree()).unwrap();
    }
    checkpoint::write(&e.core).unwrap();
    t
}

fn count(e: &Engine, t: &Arc<Table>) -> Result<u64> {
    let mut s = e.session();
    begin(&mut s);
    s.count_rows(t)
}

fn path(name: &str) -> PathBuf {
    Path::new("/db/runs").join(name)
}

#[test]
fn many_runs_need_few_handles() {
    let disk = Watched::new();
    let few = || Options { max_open_runs: 5, ..options() };
    let e = open_on(Arc::new(disk.clone()), few());
    let t = table_of(&e, "t", 40);
    assert_eq!(count(&e, &t).unwrap(), 400);
    drop((t, e));
    disk.0.crash();
    let e = open_on(Arc::new(disk.clone()), few());
    let t = e.open_table("t").unwrap();
    assert_eq!(count(&e, &t).unwrap(), 400);
    assert!(disk.most_open() <= 5, "{} run files were open at once", disk.most_open());
    // What is cached needs no handle; what is gone has none.
    let opened = disk.opened();
    assert_eq!(count(&e, &t).unwrap(), 400);
    assert_eq!(disk.opened(), opened);
    e.drop_table("t").unwrap();
    drop(t);
    assert_eq!(disk.1.open.load(Ordering::Relaxed), 0);
}

#[test]
fn where_others_took_the_handles_fewer_do() {
    let disk = Watched::new();
    let e = open_on(Arc::new(disk.clone()), Options { max_open_runs: 20, ..options() });
    let t = table_of(&e, "t", 15);
    disk.1.most_handles.store(4, Ordering::Relaxed);
    assert_eq!(count(&e, &t).unwrap(), 150);
    assert!(merge::once(&e.core, &t, &t.tree()).unwrap());
}

#[test]
fn a_file_that_failed_is_opened_anew() {
    let disk = Watched::new();
    let e = open_on(Arc::new(disk.clone()), options());
    let t = table_of(&e, "t", 1);
    let run = t.tree().snapshot().runs[0].run.clone();
    run.read_block(0).unwrap();
    let opened = disk.opened();
    run.read_block(0).unwrap();
    disk.break_reads(&run_files(&disk.0)[0], 0, IoKind::Failed);
    assert!(run.read_block(0).is_err() && disk.opened() == opened);
    disk.mend_reads();
    run.read_block(0).unwrap();
    assert_eq!(disk.opened(), opened + 1);
}

/// Merges that copy blocks read them so, and check them afterwards.
#[test]
fn bytes_that_nobody_has_checked_forgive_nothing() {
    let disk = Watched::new();
    let e = open_on(Arc::new(disk.clone()), options());
    let t = table_of(&e, "t", 1);
    let run = t.tree().snapshot().runs[0].run.clone();
    disk.break_reads(&run_files(&disk.0)[0], 0, IoKind::Failed);
    assert!(run.read_block(0).is_err());
    disk.mend_reads();
    run.stored_block(&run.index().unwrap(), 0).unwrap();
    assert_ne!(run.state(), State::Sound);
    run.read_block(0).unwrap();
    assert_eq!(run.state(), State::Sound);
}

#[test]
fn the_handle_used_last_is_closed_last() {
    let disk = Watched::new();
    let e = open_on(Arc::new(disk.clone()), Options { max_open_runs: 3, ..options() });
    let t = table_of(&e, "t", 4);
    let state = t.tree().snapshot();
    let read = |at: usize| state.runs[at].run.read_block(0).map(|_| ()).unwrap();
    [0, 1, 2, 0, 3].into_iter().for_each(read);
    let opened = disk.opened();
    [0, 2, 3].into_iter().for_each(read);
    assert_eq!(disk.opened(), opened, "the run that was closed is the one not used for longest");
    read(1);
    assert_eq!(disk.opened(), opened + 1);
}

#[test]
fn want_of_handles_costs_the_statement_and_nothing_else() {
    let disk = Watched::new();
    let e = open_on(Arc::new(disk.clone()), options());
    let t = table_of(&e, "t", 12);
    disk.1.no_handles.store(true, Ordering::Relaxed);
    assert!(matches!(count(&e, &t), Err(Error::Io(e)) if e.kind == IoKind::Resources));
    assert!(merge::once(&e.core, &t, &t.tree()).is_err());
    // Writing needs no handles of runs that are there, nor one to keep of its own.
    let mut s = e.session();
    commit_rows(&mut s, &t, 10);
    flush::tree(&e.core, &t, &t.tree()).unwrap();
    assert!(t.tree().snapshot().runs.iter().all(|h| h.run.state() == State::Sound));
    assert!(!e.poisoned());
    disk.1.no_handles.store(false, Ordering::Relaxed);
    assert_eq!(count(&e, &t).unwrap(), 130);
    while merge::once(&e.core, &t, &t.tree()).unwrap() {}
    assert_eq!(run_files(&disk.0).len(), 1);
}

/// A block in use is decompressed when a column is first read: there may be no memory then.
#[test]
fn want_of_memory_for_a_block_in_use_is_not_held_against_its_run() {
    let disk = Watched::new();
    let e = open_on(Arc::new(disk.clone()), options());
    let t = table_of(&e, "t", 2);
    let run = t.tree().snapshot().runs[0].run.clone();
    let refused = run.damage(4096, FormatError::OutOfMemory { bytes: 7 });
    assert_eq!(refused.to_string(), "out of memory: 7 bytes for a row or a block");
    assert_eq!(run.state(), State::Sound);
    assert!(matches!(run.damage(4096, FormatError::Reweighed), Error::Damage { .. }));
    assert_eq!(run.state(), State::Damaged);
}

#[test]
fn a_run_that_could_not_be_opened_is_tried_again() {
    let disk = Watched::new();
    let e = open_on(Arc::new(disk.clone()), options());
    drop(table_of(&e, "t", 3));
    drop(e);
    disk.0.crash();
    let bad = run_files(&disk.0)[1].clone();
    disk.break_reads(&bad, 0, IoKind::Failed);
    let e = open_on(Arc::new(disk.clone()), options());
    let t = e.open_table("t").unwrap();
    assert!(matches!(count(&e, &t), Err(Error::Io(_))));
    // Rows of other runs are read.
    let mut s = e.session();
    begin(&mut s);
    let mask = ColumnMask::all(2);
    let mut c = s.open_cursor(&t, ScanOptions { mask, ..ScanOptions::default() }).unwrap();
    let ids = |at: usize| t.tree().snapshot().runs[at].run.stats.min_id;
    assert!(c.fetch(&mut s, ids(0)).unwrap().is_some() && c.fetch(&mut s, ids(2)).unwrap().is_some());
    assert!(c.fetch(&mut s, ids(1)).is_err());
    disk.mend_reads();
    assert!(c.fetch(&mut s, ids(1)).unwrap().is_some());
    assert_eq!(count(&e, &t).unwrap(), 30);
    assert_eq!(t.tree().snapshot().runs[1].run.state(), State::Sound);
}

#[test]
fn a_file_of_another_run_is_not_taken_for_this_one() {
    let disk = SimDisk::new(1);
    let e = open(&disk, options());
    drop(table_of(&e, "t", 2));
    drop(e);
    let files = run_files(&disk);
    disk.rename(&path(&files[0]), &path("kept")).unwrap();
    disk.rename(&path(&files[1]), &path(&files[0])).unwrap();
    disk.rename(&path("kept"), &path(&files[1])).unwrap();
    disk.crash();
    let e = open(&disk, options());
    let t = e.open_table("t").unwrap();
    let why = t.tree().snapshot().runs[0].run.index().map(drop);
    let is_identity = |e: &Error| matches!(e, Error::Damage { reason: FormatError::Invalid { what, .. }, .. } if what.contains("file id"));
    assert!(why.as_ref().is_err_and(is_identity), "{why:?}");
    assert!(count(&e, &t).is_err());
}

#[test]
fn a_run_of_another_tree_or_layout_is_not_taken() {
    let disk = SimDisk::new(1);
    let e = open(&disk, options());
    let t = table_of(&e, "t", 1);
    let tree = t.tree();
    let run = tree.snapshot().runs[0].run.clone();
    let recipe = e.core.runs.recipe(&t, &tree);
    let file = disk.open(&run.path(), OpenMode::Write, AccessHint::Meta).unwrap();
    let mut bytes = vec![0; esker_format::run::RUN_HEADER_BYTES];
    file.read_at(&mut bytes, 0).unwrap();
    let header = RunHeader::decode(&bytes).unwrap();
    let own = e.core.folder;
    assert!(header.folder == own && own != FolderId::default());
    let refused = |expected: &str| match Run::open(&recipe, &run.file, 0, &run.stats, run.bounds).index().map(drop) {
        Err(Error::Damage { reason: FormatError::Invalid { what, .. }, .. }) => assert_eq!(what, expected),
        other => panic!("{expected}: {other:?}"),
    };
    let mut other = Vec::new();
    RunHeader { file: esker_format::FileId(header.file.0 + 1), ..header }.encode(&mut other);
    file.write_at(&other, 0).unwrap();
    refused("run's file id");
    // As another folder's table would have it, whose ids are the same.
    let folder = FolderId([9; 16]);
    let mut other = Vec::new();
    RunHeader { folder, ..header }.encode(&mut other);
    file.write_at(&other, 0).unwrap();
    match Run::open(&recipe, &run.file, 0, &run.stats, run.bounds).index().map(drop) {
        Err(e @ Error::Damage { offset: 0, reason: FormatError::Foreign { found, expected, .. }, .. }) => {
            assert_eq!((found, expected), (folder, own));
            assert!(e.to_string().contains("run is of the folder 09090909-0909-"), "{e}");
        }
        other => panic!("{other:?}"),
    }
    // Whoever knows that it came from there takes it.
    Run::open(&RunRecipe { folder, ..recipe.clone() }, &run.file, 0, &run.stats, run.bounds).index().unwrap();
    file.write_at(&bytes, 0).unwrap();
    // What follows the blocks, of another tree, of another layout, and as it was.
    let last = *run.index().unwrap().entries().last().unwrap();
    let base = last.offset + u64::from(last.stored_bytes);
    let mut layout = esker_format::Layout::clone(t.layout());
    layout.columns.pop();
    let changes = [
        ("run's tree", RunRecipe { tree: TreeId(tree.id.0 + 1), ..recipe.clone() }),
        (
            "run's layout",
            RunRecipe { shape: RowShape { layout: Arc::new(layout), ..recipe.shape.clone() }, ..recipe.clone() },
        ),
    ];
    let write_tail = |recipe: &RunRecipe| {
        let tail = encode_tail(recipe, run.file_id, run.index().unwrap().entries(), &run.stats, base);
        assert_eq!(base + tail.len() as u64, run.size_bytes());
        file.write_at(&tail, base).unwrap();
    };
    for (expected, recipe) in changes {
        write_tail(&recipe);
        refused(expected);
    }
    write_tail(&recipe);
    Run::open(&recipe, &run.file, 0, &run.stats, run.bounds).index().unwrap();
    // Nor one that holds something else than the log says.
    let stats = esker_format::RunStats { rows: run.stats.rows + 1, ..run.stats };
    assert!(Run::open(&recipe, &run.file, 0, &stats, run.bounds).index().is_err());
}

#[test]
fn a_missing_run_costs_its_own_rows() {
    let disk = SimDisk::new(1);
    let e = open(&disk, options());
    let t = table_of(&e, "t", 3);
    let u = table_of(&e, "u", 1);
    drop((t, u, e));
    disk.remove(&path(&run_files(&disk)[0])).unwrap();
    disk.crash();
    let e = open(&disk, options());
    let (t, u) = (e.open_table("t").unwrap(), e.open_table("u").unwrap());
    assert!(count(&e, &t).is_err());
    assert_eq!(rows_of(&e, &u), 10);
    let mut s = e.session();
    begin(&mut s);
    insert(&mut s, &t, 1);
    s.commit().unwrap();
    assert!(!e.poisoned());
}

#[test]
fn a_quarter_of_the_processs_handles_at_most() {
    let limit = esker_io::open_files_limit().unwrap_or(u64::MAX);
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1));
    let files = |max_open_runs| {
        let options = Options { max_open_runs, ..options() };
        crate::tree::run::files::RunFiles::new(&disk, Path::new("/db/runs"), &options).most()
    };
    assert!(files(usize::MAX) as u64 <= limit / 4);
    assert_eq!((files(3), files(0)), (3, 1));
}

#[test]
fn a_run_of_an_older_format_is_refused_by_name() {
    let disk = SimDisk::new(1);
    let e = open(&disk, options());
    let t = table_of(&e, "t", 1);
    let run = t.tree().snapshot().runs[0].run.clone();
    let old = include_bytes!("../../../../esker-format/tests/fixtures/v1/dynamic.run");
    let file = disk.open(&run.path(), OpenMode::Write, AccessHint::Meta).unwrap();
    file.write_at(&old[..esker_format::run::RUN_HEADER_BYTES], 0).unwrap();
    let refused = Run::open(&e.core.runs.recipe(&t, &t.tree()), &run.file, 0, &run.stats, run.bounds)
        .index()
        .map(drop)
        .unwrap_err();
    assert!(matches!(&refused, Error::OlderFormat { file, found: 1, needed: 2 } if *file == run.path()), "{refused}");
}
