//! CHECK finds whatever a scan trusts: each test makes one thing wrong and seals it again.

use crate::tests::tables::{commit_rows, def, img, open, options};
use crate::tree::run::file::RunFile;
use crate::tree::run::writer::encode_tail;
use crate::tree::run::Run;
use crate::tree::RunHandle;
use crate::upkeep::{flush, new_run};
use crate::*;
use esker_format::block::flags;
use esker_format::{BlockEntry, CommitSeq, RowId, VersionTag};
use esker_io::{AccessHint, Disk, OpenMode, SimDisk};

const ROWS: u64 = 90;

/// What CHECK says of a run with these versions, rows in order, after `change` of its block index.
fn check(versions: &[(u64, VersionTag)], change: impl FnOnce(&mut [BlockEntry])) -> Vec<String> {
    let disk = SimDisk::new(1);
    let e = open(&disk, Options { block_bytes: 1 << 10, ..options() });
    e.create_table("t", &def()).unwrap();
    let t = e.open_table("t").unwrap();
    let tree = t.tree();
    let mut writer = new_run(&e.core, &t, &tree).unwrap();
    for (row, tag) in versions {
        let mut packed = Vec::new();
        if !tag.tombstone {
            // SAFETY: an image of this layout.
            unsafe { esker_format::row::pack(t.layout(), img(*row).as_ptr(), &mut packed) }.unwrap();
        }
        writer.push(RowId(*row), *tag, &packed).unwrap();
    }
    let run = writer.finish().unwrap();
    let mut entries = run.index().unwrap().entries().to_vec();
    assert!(entries.len() >= 3, "{} blocks", entries.len());
    change(&mut entries);
    let file = disk.open(&run.path(), OpenMode::Write, AccessHint::Meta).unwrap();
    // All is as long as before.
    let last = run.index().unwrap().entries()[entries.len() - 1];
    let base = last.offset + u64::from(last.stored_bytes);
    let tail = encode_tail(&e.core.runs.recipe(&t, &tree), run.file_id, &entries, &run.stats, base);
    assert_eq!(base + tail.len() as u64, run.size_bytes());
    file.write_at(&tail, base).unwrap();
    let (file, path) = (RunFile::new(&e.core.cache, run.file_id, 0), run.path());
    let run = Run::open(&e.core.runs.recipe(&t, &tree), &file, 0, &run.stats, run.bounds);
    run.index().unwrap();
    tree.edit(|s| s.add_run(RunHandle::committed(run)));
    if let Ok(rows) = e.session().count_rows(&t) {
        t.trees().live.counted(e.core.views.visible_seq(), rows as i64);
    }
    let damages = e.check(&t, &mut |_, _| true).unwrap().damages;
    for found in &damages {
        let Error::Damage { file, offset, .. } = found else { panic!("{found}") };
        assert!(*file == path && entries.iter().any(|e| e.offset == *offset), "{found}");
    }
    damages.iter().map(ToString::to_string).collect()
}

fn tag(seq: u64, ordinal: u64) -> VersionTag {
    VersionTag { seq: CommitSeq(seq), ordinal, ..VersionTag::default() }
}

/// One version a row; every seventh is a tombstone.
fn versions() -> Vec<(u64, VersionTag)> {
    (1..=ROWS)
        .map(|n| (n, VersionTag { tombstone: n % 7 == 0, supersedes: n % 7 == 0, ..tag(5000 + n % 11, 1 + n % 17) }))
        .collect()
}

#[track_caller]
fn finds(what: &str, change: impl FnOnce(&mut [BlockEntry])) {
    let found = check(&versions(), change);
    assert!(found.iter().any(|f| f.contains(what)), "{what}: {found:?}");
}

#[test]
fn what_is_whole_passes() {
    assert_eq!(check(&versions(), |_| {}), Vec::<String>::new());
    let many: Vec<_> = (1..=30).flat_map(|n| (1..=5).rev().map(move |v| (n, tag(4000 + v, v)))).collect();
    assert_eq!(check(&many, |_| {}), Vec::<String>::new());
    // Versions of one row over several blocks.
    let hot: Vec<_> = (1..=3000).rev().map(|v| (7, tag(4000 + v, v))).collect();
    assert_eq!(check(&hot, |_| {}), Vec::<String>::new());
}

#[test]
fn sequences_of_a_block() {
    finds("least sequence", |e| e[1].min_seq.0 += 1);
    finds("greatest sequence", |e| e[1].max_seq.0 -= 1);
}

#[test]
fn ordinals_of_a_block() {
    finds("least ordinal", |e| e[1].min_ordinal += 1);
    finds("greatest ordinal", |e| e[1].max_ordinal -= 1);
}

#[test]
fn tombstones_of_a_block() {
    finds("tombstones of a block", |e| {
        e[1].tombstones -= 1;
        e[2].tombstones += 1;
    });
}

#[test]
fn superseding_versions_of_a_block() {
    finds("superseding versions of a block", |e| {
        e[1].supersedes -= 1;
        e[2].supersedes += 1;
    });
}

#[test]
fn flags_of_a_block() {
    for flag in [flags::IDS_UNIQUE, flags::IDS_DENSE, flags::SEQ_ZERO, flags::SEQ_UNIFORM, flags::ORDINALS_DENSE] {
        finds("flags of a block", |e| e[1].flags ^= flag);
    }
}

#[test]
fn rows_of_a_block() {
    finds("rows of a block", |e| {
        e[1].rows -= 1;
        e[2].rows += 1;
    });
    finds("first row", |e| e[1].first_id.0 -= 1);
    finds("last row", |e| e[1].last_id.0 -= 1);
}

#[test]
fn order_of_a_rows_versions() {
    let mut versions: Vec<_> = (1..=ROWS).map(|n| (n, tag(5000, 1))).collect();
    versions.insert(30, (30, tag(6000, 1)));
    let found = check(&versions, |_| {});
    assert!(found.iter().any(|f| f.contains("order of the versions")), "{found:?}");
}

#[test]
fn sequences_that_do_not_fit_the_kind_of_run() {
    let found = check(&(1..=ROWS).map(|n| (n, tag(0, n))).collect::<Vec<_>>(), |_| {});
    assert!(found.iter().any(|f| f.contains("run of this kind")), "{found:?}");
}

#[test]
fn a_run_that_cannot_be_opened_is_a_finding() {
    let disk = SimDisk::new(1);
    let e = open(&disk, options());
    e.create_table("t", &def()).unwrap();
    let t = e.open_table("t").unwrap();
    let mut s = e.session();
    commit_rows(&mut s, &t, 10);
    flush::all(&e.core).unwrap();
    let path = t.tree().snapshot().runs[0].run.path();
    drop((s, t, e));
    disk.crash();
    disk.remove(&path).unwrap();
    let e = open(&disk, options());
    let t = e.open_table("t").unwrap();
    assert_eq!(e.check(&t, &mut |_, _| true).unwrap().damages.len(), 1);
}
