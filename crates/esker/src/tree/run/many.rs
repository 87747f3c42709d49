//! Far more runs than handles, and than memory for their indexes.

use crate::tests::tables::{begin, commit_rows, def, img, open_on, options, rows_of, run_files, Watched};
use crate::tree::key::ByBytes;
use crate::tree::run::file::RunFile;
use crate::tree::run::health::State;
use crate::tree::run::index::{Held, Indexes};
use crate::tree::run::writer::{RunRecipe, RunWriter};
use crate::tree::run::Run;
use crate::tree::RunHandle;
use crate::upkeep::{background, checkpoint, merge};
use crate::*;
use esker_base::counters::{bind, Counter, SessionCounters};
use esker_format::{ColumnMask, RowId};
use esker_io::{IoKind, SimDisk};
use std::path::Path;
use std::sync::{Arc, Mutex};

/// A table of `runs` runs of a row each, as loads of one row would leave it.
pub(crate) fn loaded(e: &Engine, name: &str, runs: u64) -> Arc<Table> {
    e.create_table(name, &def()).unwrap();
    let t = e.open_table(name).unwrap();
    let (tree, core) = (t.tree(), &e.core);
    let first = tree.reserve_rows(runs);
    let recipe = RunRecipe { write_bytes: 4 << 10, ..core.runs.recipe(&t, &tree) };
    let run = |n: u64| {
        let mut w = RunWriter::create(&recipe, core.ids.new_file()).unwrap();
        // SAFETY: an image of this table's layout.
        unsafe { w.push_image(RowId(first.0 + n), 1, img(n).as_ptr()).unwrap() };
        let run = w.finish().unwrap();
        // Names that wait for a sync cost the simulated disk more the more there are.
        if n % 128 == 127 {
            core.runs.sync(&core.writable).unwrap();
        }
        run
    };
    let seq = core.views.visible_seq();
    let runs: Vec<_> = (0..runs).map(|n| RunHandle { seq, ..RunHandle::committed(run(n)) }).collect();
    core.runs.sync(&core.writable).unwrap();
    t.trees().live.counted(seq, runs.len() as i64);
    tree.edit(|s| s.runs.extend(runs));
    checkpoint::write(core).unwrap();
    t
}

fn indexes(e: &Engine) -> &Indexes {
    &e.core.cache.indexes
}

/// Bytes of the indexes that hang in the runs of a table, and how many do.
fn hanging(t: &Table) -> (u64, usize) {
    let state = t.tree().snapshot();
    let there = state.runs.iter().filter_map(|h| h.run.index_in_memory());
    there.fold((0, 0), |(bytes, n), index| (bytes + index.bytes(), n + 1))
}

const HANDLES: usize = 1024;

/// A run that nobody reads costs this much memory, with its handle in the tree and a file for itself; docs/ARCHITECTURE.md
/// says so.
#[test]
fn a_run_itself_is_small() {
    let file = size_of::<RunFile>() + 2 * size_of::<usize>();
    let rows = size_of::<Run>() + size_of::<RunHandle>() + file;
    let keys = size_of::<Run<ByBytes>>() + size_of::<RunHandle<ByBytes>>() + file;
    assert!(rows <= 340 && keys <= 370, "{rows} bytes of a run of rows, {keys} of keys");
}

#[test]
fn of_very_many_runs_few_are_in_memory_and_fewer_open() {
    // A hundred thousand take a while where the compiler does not help.
    let runs = std::env::var("ESKER_MANY_RUNS").map_or(6_000, |n| n.parse().unwrap());
    let disk = Watched::new();
    let few = || Options { memory_limit_bytes: 2 << 20, max_open_runs: HANDLES, block_bytes: 4 << 10, ..options() };
    let e = open_on(Arc::new(disk.clone()), few());
    let (small, great) = (loaded(&e, "small", 10), loaded(&e, "great", runs));
    let bounded = |e: &Engine, tables: &[&Table]| {
        let (bytes, most) = (indexes(e).bytes(), indexes(e).most_bytes());
        assert!(bytes <= most, "indexes of {bytes} bytes, {most} are allowed");
        assert_eq!(bytes, tables.iter().map(|t| hanging(t).0).sum::<u64>());
        assert!(disk.most_open() <= HANDLES, "{} run files were open at once", disk.most_open());
    };
    bounded(&e, &[&small, &great]);
    let (_, hang) = hanging(&great);
    assert!(hang > 0 && hang < runs as usize / 2, "{hang} indexes hang in {runs} runs that were just written");
    drop((small, great, e));
    disk.0.crash();

    // Opening reads no run.
    let opened = disk.opened();
    let e = open_on(Arc::new(disk.clone()), few());
    assert_eq!(disk.opened(), opened, "files were opened");
    let (small, great) = (e.open_table("small").unwrap(), e.open_table("great").unwrap());
    assert_eq!((indexes(&e).bytes(), great.stats().runs), (0, runs));
    assert_eq!(disk.opened(), opened);
    // A table needs its own.
    assert_eq!(rows_of(&e, &small), 10);
    assert_eq!((disk.opened() - opened, hanging(&small).1), (10, 10));
    bounded(&e, &[&small, &great]);
    assert_eq!(rows_of(&e, &great), runs);
    bounded(&e, &[&small, &great]);
    // Single rows, near and far from each other.
    let mut s = e.session();
    begin(&mut s);
    let scan = ScanOptions { mask: ColumnMask::all(2), ..ScanOptions::default() };
    let mut c = s.open_cursor(&great, scan).unwrap();
    for at in (0..runs).step_by(runs as usize / 100) {
        let id = great.tree().snapshot().runs[at as usize].first;
        assert!(c.fetch(&mut s, id).unwrap().is_some());
    }
    drop(c);
    s.commit().unwrap();
    bounded(&e, &[&small, &great]);
    // What was merged is whole, and names itself.
    assert!(merge::once(&e.core, &great, &great.tree()).unwrap());
    checkpoint::write(&e.core).unwrap();
    let left = great.stats().runs;
    assert!(left < runs);
    bounded(&e, &[&small, &great]);
    drop((small, great, s, e));
    disk.0.crash();
    let e = open_on(Arc::new(disk.clone()), few());
    let (small, great) = (e.open_table("small").unwrap(), e.open_table("great").unwrap());
    assert_eq!((great.stats().runs, rows_of(&e, &great)), (left, runs));
    assert!(e.check_part(&great, CheckScope::Quick, &mut |_, _| true).unwrap().damages.is_empty());
    bounded(&e, &[&small, &great]);
    // What goes is counted no longer.
    assert_eq!(rows_of(&e, &small), 10);
    assert!(hanging(&small).0 > 0);
    e.drop_table("small").unwrap();
    drop(small);
    bounded(&e, &[&great]);
    drop((great, e));
}

#[test]
fn a_reader_keeps_the_index_that_it_stands_in() {
    let disk = Watched::new();
    let e = open_on(Arc::new(disk.clone()), Options { memory_limit_bytes: 24 << 10, ..options() });
    let t = loaded(&e, "t", 20);
    let state = t.tree().snapshot();
    let first = &state.runs[0].run;
    let mut index = first.index().unwrap().keep();
    // Reading all others lets it go, with the block in it, which counts until then.
    let block = first.block(&index, 0).unwrap();
    let others = || state.runs[1..].iter().for_each(|h| drop(h.run.index().unwrap()));
    (0..3).for_each(|_| others());
    assert!(first.index_in_memory().is_none());
    assert!(Arc::ptr_eq(&first.block(&index, 0).unwrap(), &block), "the block hangs in what the reader has");
    let bytes = e.core.cache.bytes();
    assert!(bytes > 0);
    // A second index of the run has blocks of its own; each goes with its own.
    let again = first.index().unwrap().keep();
    assert!(!Arc::ptr_eq(&again, &index));
    drop(std::mem::replace(&mut index, again));
    assert!(e.core.cache.bytes() < bytes);
    // The more memory, the more of them.
    let before = hanging(&t).1;
    e.set_memory_limit(1 << 20);
    state.runs.iter().for_each(|h| drop(h.run.index().unwrap()));
    assert!(before < 20 && hanging(&t).1 == 20);
    e.set_memory_limit(24 << 10);
    assert!(hanging(&t).1 <= before + 1 && indexes(&e).bytes() <= indexes(&e).most_bytes());
}

#[test]
fn the_index_used_last_is_let_go_last() {
    let disk = Watched::new();
    let e = open_on(Arc::new(disk.clone()), options());
    let t = loaded(&e, "t", 30);
    let state = t.tree().snapshot();
    // Room for half of them. The first is used all the time.
    e.set_memory_limit(indexes(&e).bytes() / 2 * 8);
    let first = &state.runs[0].run;
    drop(first.index().unwrap());
    for h in &state.runs[1..] {
        drop(h.run.index().unwrap());
        assert!(first.index_in_memory().is_some());
        drop(first.index().unwrap());
    }
    assert!((5..20).contains(&hanging(&t).1), "{}", hanging(&t).1);
}

#[test]
fn what_cannot_be_read_is_told_when_it_is_first_read() {
    let disk = Watched::new();
    let e = open_on(Arc::new(disk.clone()), options());
    let t = loaded(&e, "t", 3);
    drop((t, e));
    let files = run_files(&disk.0);
    esker_io::Disk::remove(&disk, &Path::new("/db/runs").join(&files[2])).unwrap();
    disk.0.crash();
    disk.break_reads(&files[1], 0, IoKind::Failed);
    let said: Arc<Mutex<Vec<String>>> = Arc::default();
    let notes = said.clone();
    let notify: Notify = Arc::new(move |m, _| notes.lock().unwrap().push(m.to_owned()));
    let e = Engine::open(Arc::new(disk.clone()), Path::new("/db"), options(), notify).unwrap();
    let told = || std::mem::take(&mut *said.lock().unwrap());
    let lost = |m: &[String], file: &str| {
        m.len() == 1 && m[0].starts_with("table 't'") && m[0].contains(file) && m[0].contains("what it has there")
    };
    // One that is not there is known from the folder alone.
    let at_opening: Vec<_> = told().into_iter().filter(|m| m.contains("cannot be read")).collect();
    assert!(lost(&at_opening, &files[2]), "{at_opening:?}");
    let t = e.open_table("t").unwrap();
    let state = t.tree().snapshot();
    (0..2).for_each(|_| assert!(state.runs[1].run.index().is_err() && state.runs[2].run.index().is_err()));
    background::one_round(&e.core).unwrap();
    let later = told();
    assert!(lost(&later, &files[1]), "{later:?}");
    assert_ne!(state.runs[1].run.state(), State::Sound);
    disk.mend_reads();
    assert!(state.runs[1].run.index().is_ok());
    commit_rows(&mut e.session(), &t, 1);
    background::one_round(&e.core).unwrap();
    assert!(told().is_empty());
}

/// Damage that a statement meets is told of, and counted, without any check; once, however often it is met.
#[test]
fn damage_that_a_reader_meets_is_told_of_once() {
    let own = SessionCounters::new();
    let _bound = bind(&own);
    let disk = SimDisk::new(1);
    let e = crate::tests::tables::open(&disk, options());
    let t = loaded(&e, "t", 2);
    let at = t.tree().snapshot().runs[1].run.index().unwrap().entry(0).offset;
    drop((t, e));
    disk.crash();
    let file = run_files(&disk).remove(1);
    disk.damage(&Path::new("/db/runs").join(&file), at + 200, &[0x5a; 8]).unwrap();
    let said: Arc<Mutex<Vec<String>>> = Arc::default();
    let notes = said.clone();
    let notify: Notify = Arc::new(move |m, _| notes.lock().unwrap().push(m.to_owned()));
    let e = Engine::open(Arc::new(disk.clone()), Path::new("/db"), options(), notify).unwrap();
    let t = e.open_table("t").unwrap();
    let before = own.get(Counter::BlocksDamaged);
    for _ in 0..3 {
        let mut s = e.session();
        assert!(matches!(s.count_rows(&t), Err(Error::Damage { .. })));
        background::one_round(&e.core).unwrap();
    }
    let said = said.lock().unwrap();
    let of_it: Vec<_> = said.iter().filter(|m| m.starts_with("table 't'") && m.contains(&file)).collect();
    assert_eq!((of_it.len(), own.get(Counter::BlocksDamaged) - before), (1, 1), "{said:?}");
}
