//! The main paths, end to end on the simulated disk: write, read, commit, roll back, flush, merge, reopen.

#![allow(clippy::unwrap_used)]

use esker::format::{Column, ColumnKind, ColumnMask, Compression, Layout, RowFormat, RowId};
use esker::{BeginOptions, Engine, Isolation, Options, ScanOptions, Session, Table, TableDef};
use esker_io::SimDisk;
use std::path::Path;
use std::sync::Arc;

fn layout() -> Layout {
    Layout {
        image_bytes: 1 + 8 + 10 + 1 + 20,
        head_bytes: 1,
        columns: vec![
            Column { kind: ColumnKind::Fixed { width: 8 }, offset: 1, null: None },
            Column { kind: ColumnKind::Padded { width: 10, pad: b' ' }, offset: 9, null: None },
            Column { kind: ColumnKind::Var { len_bytes: 1, max: 20 }, offset: 19, null: None },
        ],
    }
}

fn image(n: u64) -> Vec<u8> {
    let mut image = vec![0u8; 40];
    image[1..9].copy_from_slice(&n.to_le_bytes());
    image[9..19].copy_from_slice(format!("{:<10}", n % 1000).as_bytes());
    let text = format!("text {}", n % 777);
    image[19] = text.len() as u8;
    image[20..20 + text.len()].copy_from_slice(text.as_bytes());
    image
}

fn def(format: RowFormat, compression: Compression) -> TableDef {
    TableDef { layout: layout(), format, compression, temporary: false, indexes: Vec::new(), extra: vec![] }
}

fn options() -> Options {
    Options {
        background: esker::Background::Inline,
        bulk_threshold_bytes: 4 << 10,
        min_run_bytes: 32 << 10,
        block_bytes: 8 << 10,
        wal_segment_bytes: 256 << 10,
        memory_limit_bytes: 64 << 20,
        ..Options::default()
    }
}

fn open(disk: &SimDisk) -> Engine {
    Engine::open(Arc::new(disk.clone()), Path::new("/db"), options(), Arc::new(|_, _| {})).unwrap()
}

fn begin(s: &mut Session) {
    s.begin(Isolation::RepeatableRead, BeginOptions::default());
    s.begin_statement();
}

fn insert(s: &mut Session, t: &Arc<Table>, from: u64, to: u64) {
    begin(s);
    for n in from..to {
        unsafe { s.insert_image(t, image(n).as_ptr()).unwrap() };
    }
}

fn read(s: &mut Session, t: &Arc<Table>) -> Vec<(RowId, u64)> {
    let mut out = Vec::new();
    begin(s);
    let mut c = s.scan(t, ScanOptions { mask: ColumnMask::all(3), ..ScanOptions::default() }).unwrap();
    loop {
        let b = c.next_batch(s).unwrap();
        if b.ids.is_empty() {
            break;
        }
        for (i, id) in b.ids.iter().enumerate() {
            let row = unsafe { std::slice::from_raw_parts(b.images.add(i * b.stride), 40) };
            let n = u64::from_le_bytes(row[1..9].try_into().unwrap());
            let want = image(n);
            let end = 20 + want[19] as usize;
            assert_eq!(row[9..end], want[9..end], "row {id}");
            out.push((*id, n));
        }
    }
    s.end_statement();
    out
}

fn numbers(s: &mut Session, t: &Arc<Table>) -> Vec<u64> {
    let mut n: Vec<u64> = read(s, t).into_iter().map(|r| r.1).collect();
    n.sort_unstable();
    n
}

#[test]
fn rows_survive_commit_flush_merge_and_reopen() {
    for format in [RowFormat::Dynamic, RowFormat::Fixed] {
        for compression in [Compression::None, Compression::Lz4, Compression::Zstd] {
            for rows in [3u64, 300, 20_000] {
                let disk = SimDisk::new(1);
                let e = open(&disk);
                e.create_table("d/t", &def(format, compression)).unwrap();
                let t = e.open_table("d/t").unwrap();
                let mut s = e.session();
                insert(&mut s, &t, 0, rows);
                assert_eq!(numbers(&mut s, &t), (0..rows).collect::<Vec<_>>(), "own, before commit");
                insert(&mut s, &t, rows, rows + 10);
                s.commit().unwrap();
                let all: Vec<u64> = (0..rows + 10).collect();
                assert_eq!(numbers(&mut s, &t), all);
                s.commit().unwrap();
                e.checkpoint().unwrap();
                assert_eq!(numbers(&mut s, &t), all);
                assert_eq!(s.count_rows(&t).unwrap(), rows + 10);
                drop((s, t));
                drop(e);
                let e = {
                    disk.crash();
                    open(&disk)
                };
                let t = e.open_table("d/t").unwrap();
                let mut s = e.session();
                assert_eq!(numbers(&mut s, &t), all, "after reopening");
                s.commit().unwrap();
                e.optimize(&t, &mut |_, _| true).unwrap();
                assert_eq!(numbers(&mut s, &t), all, "after optimize");
                assert!(e.check(&t, &mut |_, _| true).unwrap().damages.is_empty());
            }
        }
    }
}

#[test]
fn updates_and_deletes_small_and_large() {
    for rows in [50u64, 5000] {
        let disk = SimDisk::new(2);
        let e = open(&disk);
        e.create_table("d/t", &def(RowFormat::Dynamic, Compression::Lz4)).unwrap();
        let t = e.open_table("d/t").unwrap();
        let mut s = e.session();
        insert(&mut s, &t, 0, rows);
        s.commit().unwrap();
        let ids = read(&mut s, &t);
        s.commit().unwrap();
        let mut old = e.session();
        begin(&mut old);
        old.take_view();
        begin(&mut s);
        for (id, n) in &ids {
            if n % 3 == 0 {
                s.delete(&t, *id).unwrap();
            } else {
                unsafe { s.update_image(&t, *id, image(n + 1_000_000).as_ptr()).unwrap() };
            }
        }
        let want: Vec<u64> = (0..rows).filter(|n| n % 3 != 0).map(|n| n + 1_000_000).collect();
        assert_eq!(numbers(&mut s, &t), want, "own");
        assert_eq!(numbers(&mut old, &t), (0..rows).collect::<Vec<_>>());
        s.commit().unwrap();
        assert_eq!(numbers(&mut s, &t), want);
        s.commit().unwrap();
        e.checkpoint().unwrap();
        e.optimize(&t, &mut |_, _| true).unwrap();
        assert_eq!(numbers(&mut old, &t), (0..rows).collect::<Vec<_>>(), "old view after merge");
        old.commit().unwrap();
        e.optimize(&t, &mut |_, _| true).unwrap();
        assert_eq!(numbers(&mut s, &t), want);
        s.commit().unwrap();
        begin(&mut s);
        s.delete_all(&t).unwrap();
        assert!(numbers(&mut s, &t).is_empty());
        s.rollback().unwrap();
        assert_eq!(numbers(&mut s, &t), want);
        s.commit().unwrap();
        begin(&mut s);
        s.delete_all(&t).unwrap();
        insert(&mut s, &t, 5, 8);
        s.commit().unwrap();
        assert_eq!(numbers(&mut s, &t), vec![5, 6, 7]);
        s.commit().unwrap();
        e.checkpoint().unwrap();
        drop((s, old));
        let e = {
            disk.crash();
            open(&disk)
        };
        let t = e.open_table("d/t").unwrap();
        assert_eq!(numbers(&mut e.session(), &t), vec![5, 6, 7]);
    }
}

#[test]
fn savepoints_and_statements() {
    let disk = SimDisk::new(3);
    let e = open(&disk);
    e.create_table("d/t", &def(RowFormat::Dynamic, Compression::None)).unwrap();
    let t = e.open_table("d/t").unwrap();
    let mut s = e.session();
    for bulk in [10u64, 3000] {
        begin(&mut s);
        s.delete_all(&t).unwrap();
        insert(&mut s, &t, 0, bulk);
        let point = s.savepoint();
        insert(&mut s, &t, bulk, 2 * bulk);
        s.rollback_to(&point);
        assert_eq!(numbers(&mut s, &t), (0..bulk).collect::<Vec<_>>());
        s.begin_statement();
        for n in 0..bulk {
            unsafe { s.insert_image(&t, image(n).as_ptr()).unwrap() };
        }
        s.rollback_statement();
        s.end_statement();
        s.commit().unwrap();
        assert_eq!(numbers(&mut s, &t), (0..bulk).collect::<Vec<_>>());
        s.commit().unwrap();
    }
    drop((s, t, e));
    let e = {
        disk.crash();
        open(&disk)
    };
    let t = e.open_table("d/t").unwrap();
    assert_eq!(numbers(&mut e.session(), &t), (0..3000).collect::<Vec<_>>());
}

#[test]
fn prepared_transactions_survive() {
    for rows in [5u64, 4000] {
        let disk = SimDisk::new(4);
        let e = open(&disk);
        e.create_table("d/t", &def(RowFormat::Dynamic, Compression::None)).unwrap();
        let t = e.open_table("d/t").unwrap();
        let mut s = e.session();
        insert(&mut s, &t, 0, rows);
        s.prepare(b"one").unwrap();
        s.commit_ordered();
        s.commit().unwrap();
        insert(&mut s, &t, rows, 2 * rows);
        s.prepare(b"two").unwrap();
        s.detach_prepared();
        insert(&mut s, &t, 2 * rows, 3 * rows);
        s.prepare(b"three").unwrap();
        s.detach_prepared();
        e.checkpoint().unwrap();
        drop((s, t, e));
        disk.crash();
        let e = open(&disk);
        let mut xids = e.prepared();
        xids.sort();
        assert_eq!(xids, vec![b"three".to_vec(), b"two".to_vec()]);
        let t = e.open_table("d/t").unwrap();
        assert!(e.drop_table("d/t").is_err());
        let mut s = e.session();
        assert_eq!(numbers(&mut s, &t).len() as u64, rows);
        s.commit().unwrap();
        assert!(e.commit_xid(b"two").unwrap());
        assert!(e.rollback_xid(b"three").unwrap());
        assert!(!e.rollback_xid(b"three").unwrap());
        assert_eq!(numbers(&mut s, &t), (0..2 * rows).collect::<Vec<_>>());
        drop((s, t, e));
        let e = {
            disk.crash();
            open(&disk)
        };
        let t = e.open_table("d/t").unwrap();
        assert_eq!(numbers(&mut e.session(), &t), (0..2 * rows).collect::<Vec<_>>());
        assert!(e.prepared().is_empty());
    }
}

#[test]
fn a_damaged_or_missing_run_spoils_its_own_rows_only() {
    for how in ["footer", "header", "block", "missing"] {
        let disk = SimDisk::new(5);
        let e = open(&disk);
        for name in ["d/bad", "d/good"] {
            e.create_table(name, &def(RowFormat::Dynamic, Compression::None)).unwrap();
            let t = e.open_table(name).unwrap();
            let mut s = e.session();
            insert(&mut s, &t, 0, 5000);
            s.commit().unwrap();
            e.checkpoint().unwrap();
        }
        drop(e);
        disk.crash();
        let dir = Path::new("/db/runs");
        let first = esker_io::Disk::list(&disk, dir).unwrap().remove(0);
        let path = dir.join(&first.name);
        match how {
            "footer" => disk.damage(&path, first.size_bytes - 20, &[1]).unwrap(),
            "header" => disk.damage(&path, 40, &[1]).unwrap(),
            "block" => disk.damage(&path, 4096 + 100, &[1]).unwrap(),
            _ => esker_io::Disk::remove(&disk, &path).unwrap(),
        }
        let e = open(&disk);
        let (bad, good) = (e.open_table("d/bad").unwrap(), e.open_table("d/good").unwrap());
        let mut s = e.session();
        assert_eq!(numbers(&mut s, &good).len(), 5000);
        s.commit().unwrap();
        begin(&mut s);
        let mut c = s.scan(&bad, ScanOptions { mask: ColumnMask::all(3), ..ScanOptions::default() }).unwrap();
        let error = loop {
            match c.next_batch(&mut s) {
                Ok(batch) => assert!(!batch.ids.is_empty(), "{how}: not found"),
                Err(e) => break e.to_string(),
            }
        };
        assert!(error.contains(&first.name), "{how}: {error}");
        s.rollback().unwrap();
        assert_eq!(e.check(&bad, &mut |_, _| true).unwrap().damages.len(), 1, "{how}");
        assert!(e.check(&good, &mut |_, _| true).unwrap().damages.is_empty());
        e.checkpoint().unwrap();
        insert(&mut s, &bad, 0, 10);
        s.commit().unwrap();
        e.drop_table("d/bad").unwrap();
    }
}
