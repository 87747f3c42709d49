//! Very many tables and runs on a real disk, in a process that may have few file handles.
//!
//! The limit is the process's, so the test runs itself once more, alone, in a process of its own. Ten thousand of each take a
//! while where the compiler does not help: `ESKER_MANY_RUNS` says how many.

use crate::tests::tables::{commit_rows, def, options, rows_of};
use crate::tree::run::many::loaded;
use crate::upkeep::{background, checkpoint, flush};
use crate::*;
use esker_io::{Disk, PosixDisk};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::Ordering;
use std::sync::Arc;

const HANDLES: u64 = 1024;
/// Set where the test is the process that is limited.
const LIMITED: &str = "ESKER_LIMITED";

/// A folder that goes with the test. In memory if it can be: it is about handles, not about a disk.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let memory = Path::new("/dev/shm");
        let parent = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        Folder(parent.join(format!("esker-limits-{}", std::process::id())))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// File handles that the process has; runs may take a quarter of them.
#[track_caller]
fn few_handles() {
    let open = std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    assert!(open <= HANDLES as usize / 4 + 32, "{open} file handles are open");
}

/// What rounds of background work and a checkpoint look at where nothing is left to be done: trees, tables.
fn looked_at(e: &Engine) -> (u64, u64) {
    let due = &e.core.due;
    let settle = || {
        background::one_round(&e.core).unwrap();
        while background::merge_somewhere(&e.core).unwrap() {}
        checkpoint::write(&e.core).unwrap();
    };
    (0..2).for_each(|_| settle());
    let before = (due.looks.load(Ordering::Relaxed), due.saved.load(Ordering::Relaxed));
    settle();
    (due.looks.load(Ordering::Relaxed) - before.0, due.saved.load(Ordering::Relaxed) - before.1)
}

fn limited(many: u64) {
    assert_eq!(esker_io::open_files_limit(), Some(HANDLES));
    let folder = Folder::new();
    let disk: Arc<dyn Disk> = Arc::new(PosixDisk::new());
    let open = || {
        // Indexes of some hundreds of runs have room.
        let options = Options { memory_limit_bytes: 4 << 20, block_bytes: 4 << 10, ..options() };
        Engine::open(disk.clone(), &folder.0, options, Arc::new(|m, _| eprintln!("{m}"))).unwrap()
    };
    let e = open();
    let mut s = e.session();
    for n in 0..many {
        let name = format!("t{n}");
        e.create_table(&name, &def()).unwrap();
        let t = e.open_table(&name).unwrap();
        commit_rows(&mut s, &t, 3);
        flush::tree(&e.core, &t, &t.tree()).unwrap();
    }
    drop(loaded(&e, "great", many));
    few_handles();
    drop((s, e));

    let e = open();
    assert_eq!(e.tables().len() as u64, many + 1);
    few_handles();
    let great = e.open_table("great").unwrap();
    assert_eq!((great.stats().runs, rows_of(&e, &great)), (many, many));
    assert!(e.check(&great, &mut |_, _| true).unwrap().damages.is_empty());
    few_handles();
    for n in 0..many {
        let t = e.open_table(&format!("t{n}")).unwrap();
        assert_eq!((t.stats().runs, rows_of(&e, &t)), (1, 3));
        assert!(e.check_part(&t, CheckScope::Unchecked, &mut |_, _| true).unwrap().damages.is_empty());
    }
    few_handles();
    let indexes = &e.core.cache.indexes;
    let (bytes, most) = (indexes.bytes(), indexes.most_bytes());
    assert!(0 < bytes && bytes <= most);
    assert_eq!(looked_at(&e), (0, 0), "idle rounds look at no tree, a checkpoint at no table");
    let left = great.stats().runs;
    assert!(left < many / 8, "{left} runs of {many} are left when all is merged");
    assert_eq!(rows_of(&e, &great), many);
    // Of all these one is written to.
    let t = e.open_table("t0").unwrap();
    commit_rows(&mut e.session(), &t, 1);
    flush::tree(&e.core, &t, &t.tree()).unwrap();
    let before = e.core.due.saved.load(Ordering::Relaxed);
    checkpoint::write(&e.core).unwrap();
    assert_eq!(e.core.due.saved.load(Ordering::Relaxed) - before, 1);
    few_handles();
    drop((t, great, e));
    let e = open();
    let (t, great) = (e.open_table("t0").unwrap(), e.open_table("great").unwrap());
    assert_eq!((rows_of(&e, &t), rows_of(&e, &great), great.stats().runs), (4, many, left));
}

#[test]
fn few_handles_do_for_very_many_tables_and_runs() {
    let many = std::env::var("ESKER_MANY_RUNS").map_or(1_500, |n| n.parse().unwrap());
    if std::env::var_os(LIMITED).is_some() {
        return limited(many);
    }
    let test = "tests::limits::few_handles_do_for_very_many_tables_and_runs";
    let shell = format!("ulimit -n {HANDLES} && exec \"$0\" --exact {test} --nocapture");
    let exe = std::env::current_exe().unwrap();
    let child = Command::new("sh").arg("-c").arg(shell).arg(exe).env(LIMITED, "1").output().unwrap();
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (said(&child.stdout), said(&child.stderr));
    assert!(child.status.success() && out.contains("1 passed"), "{}: {out}\n{err}", child.status);
}
