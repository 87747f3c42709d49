//! A disk without a byte left: folders open, tables can be dropped, nothing grows while it lasts.

use crate::catalog::ddl;
use crate::tests::support::*;
use crate::tests::tables::run_files;
use crate::upkeep::{background, checkpoint, flush};
use crate::*;
use esker_format::{Record, RowId};
use esker_io::{Disk, SimDisk};
use std::path::Path;

/// A disk without a byte left: what is there opens, after a kill and after another one, and a table can be dropped.
#[test]
fn a_killed_engine_opens_on_a_disk_without_any_room() {
    let options = || Options { wal_segment_bytes: 256 << 10, ..roomy() };
    let mut disk = SimDisk::new(1);
    let e = open_with(&disk, options()).unwrap();
    let (t, other) = (make(&e, "t", &fixed(100)), make(&e, "other", &fixed(100)));
    let mut s = e.session();
    for (table, rows) in [(&t, 2000), (&other, 20_000)] {
        begin(&mut s);
        fill(&mut s, table, 0..rows);
        s.commit().unwrap();
        flush::tree(&e.core, table, &table.tree()).unwrap();
    }
    begin(&mut s);
    insert(&mut s, &t, 2000).unwrap();
    s.commit().unwrap();
    background::one_round(&e.core).unwrap();
    drop((s, t, other));
    std::mem::forget(e);
    for life in 0..3 {
        disk = disk.after_kill();
        for spare in disk
            .list("/db/wal".as_ref())
            .unwrap()
            .into_iter()
            .filter(|f| f.name.starts_with("00") && f.name.ends_with(".spare"))
        {
            disk.remove(&Path::new("/db/wal").join(spare.name)).unwrap();
        }
        disk.capacity(Some(disk.used_bytes()));
        let e = open_with(&disk, options()).unwrap_or_else(|e| panic!("life {life}: {e}"));
        assert_eq!((count(&e, "t"), count(&e, "other")), (2001, 20_000), "life {life}");
        std::mem::forget(e);
    }
    disk = disk.after_kill();
    disk.capacity(Some(disk.used_bytes()));
    let e = open_with(&disk, options()).unwrap();
    // Whatever is written then, the space of one DROP TABLE is kept from the first round on.
    let round = background::one_round(&e.core);
    assert!(matches!(round, Err(Error::DiskFull(_))), "{round:?}");
    fill_up(&disk, &e, "t");
    e.drop_table("other").unwrap();
    disk.capacity(None);
    background::one_round(&e.core).unwrap();
    let t = e.open_table("t").unwrap();
    let mut s = e.session();
    begin(&mut s);
    insert(&mut s, &t, 2001).unwrap();
    s.commit().unwrap();
    assert_eq!(count(&e, "t"), 2002, "writing goes on once there is space");
}

/// Each prepared transaction has space for its decision; where there is none left the folder opens all the same, any number of times,
/// and each can be decided. Temporary tables, however many, go without a record.
#[test]
fn any_number_of_prepared_transactions_comes_back_on_a_full_disk() {
    // Their space is in one segment, or in several, of which all but the first are spares then.
    for (segment_bytes, without_spares) in [(256 << 10, true), (64 << 10, false)] {
        prepared_come_back(segment_bytes, without_spares);
    }
}

fn prepared_come_back(wal_segment_bytes: u64, without_spares: bool) {
    const PREPARED: u64 = 40;
    let options = || Options { wal_segment_bytes, ..roomy() };
    let (mut disk, e, t) = one_table(options());
    background::one_round(&e.core).unwrap();
    for n in 0..PREPARED {
        let mut s = e.session();
        begin(&mut s);
        insert(&mut s, &t, n).unwrap();
        s.prepare(n.to_string().as_bytes()).unwrap();
        s.detach_prepared();
    }
    for n in 0..1500 {
        make(&e, &format!("temporary{n}"), &TableDef { temporary: true, ..fixed(8) });
    }
    fill_up(&disk, &e, "t");
    e.core.wal.sync_all().unwrap();
    std::mem::forget((t, e));
    for life in 0..3 {
        disk = disk.after_kill();
        for spare in disk.list("/db/wal".as_ref()).unwrap() {
            if without_spares && spare.name.starts_with("00") && spare.name.ends_with(".spare") {
                disk.remove(&Path::new("/db/wal").join(spare.name)).unwrap();
            }
        }
        disk.capacity(Some(disk.used_bytes()));
        let e = open_with(&disk, options()).unwrap_or_else(|e| panic!("life {life}: {e}"));
        assert_eq!((count(&e, "t"), e.prepared().len(), e.tables().len()), (0, PREPARED as usize, 1), "life {life}");
        if life == 2 {
            for n in 0..PREPARED {
                let xid = n.to_string();
                let decided = if n % 2 == 0 { e.commit_xid(xid.as_bytes()) } else { e.rollback_xid(xid.as_bytes()) };
                assert!(decided.unwrap());
            }
        }
        std::mem::forget(e);
    }
    let disk = disk.after_kill();
    disk.capacity(None);
    let e = open_with(&disk, options()).unwrap();
    assert_eq!((count(&e, "t"), e.prepared().len()), (PREPARED / 2, 0));
}

/// A checkpoint that cannot log an old prepared transaction again, for want of space, shortens the log as far as it begins with that one;
/// where that gains nothing it says why.
#[test]
fn what_finds_no_space_to_be_logged_again_stays_where_it_is() {
    let options = || Options { wal_segment_bytes: 64 << 10, ..roomy() };
    let (disk, e, t) = one_table(options());
    let mut s = e.session();
    begin(&mut s);
    fill(&mut s, &t, 0..2000);
    s.commit().unwrap();
    // The younger one, which needs less, comes first by its XID: that it goes on would gain nothing.
    for (rows, xid) in [(2000..3000, b"x"), (9000..9100, b"a")] {
        let mut prepared = e.session();
        begin(&mut prepared);
        fill(&mut prepared, &t, rows);
        prepared.prepare(xid).unwrap();
        prepared.detach_prepared();
    }
    begin(&mut s);
    fill(&mut s, &t, 3000..9000);
    s.commit().unwrap();
    flush::tree(&e.core, &t, &t.tree()).unwrap();
    fill_up(&disk, &e, "t");
    let (begins, first) = (e.core.signals.replay_from(), e.core.wal.stats().first);
    disk.capacity(Some(disk.used_bytes() + (16 << 10)));
    checkpoint::write(&e.core).unwrap();
    assert!(e.core.signals.replay_from() > begins && e.core.wal.stats().first > first, "the log is as long as before");
    fill_up(&disk, &e, "t");
    disk.capacity(Some(disk.used_bytes() + (16 << 10)));
    let end = e.core.wal.end_lsn();
    let full = checkpoint::write(&e.core);
    assert!(matches!(full, Err(Error::DiskFull(_))), "{full:?}");
    assert_eq!(e.core.wal.end_lsn(), end, "one was logged again for nothing");
    std::mem::forget((s, t, e));
    let disk = disk.after_kill();
    disk.capacity(None);
    let e = open_with(&disk, options()).unwrap();
    assert_eq!(count(&e, "t"), 8000);
    assert!(e.commit_xid(b"x").unwrap() && e.commit_xid(b"a").unwrap());
    assert_eq!(count(&e, "t"), 9100);
}

/// The files of a load that a kill cut short are the space in which a full disk's log goes on.
#[test]
fn files_of_nobody_make_room_for_the_log() {
    let (disk, e, t) = one_table(roomy());
    let mut s = e.session();
    begin(&mut s);
    fill(&mut s, &t, 0..20_000);
    std::mem::forget((s, t, e));
    let disk = disk.after_kill();
    for file in disk.list("/db/wal".as_ref()).unwrap().into_iter().filter(|f| f.name.ends_with(".spare")) {
        disk.remove(&Path::new("/db/wal").join(file.name)).unwrap();
    }
    assert!(!run_files(&disk).is_empty(), "no load was cut short");
    disk.capacity(Some(disk.used_bytes()));
    let e = open_with(&disk, roomy()).unwrap();
    assert_eq!(count(&e, "t"), 0);
    assert_eq!(run_files(&disk), Vec::<String>::new());
}

/// No room for the reserve of an opening: the space of one DROP TABLE, which needs none of the disk, is there all the same.
#[test]
fn a_disk_too_full_for_the_reserve_lets_tables_be_dropped() {
    let (disk, e, t) = one_table(roomy());
    drop((t, e));
    disk.crash();
    let reserve = Path::new("/db/wal/reserve.spare");
    if disk.exists(reserve).unwrap() {
        disk.remove(reserve).unwrap();
    }
    let e = open_with(&disk, roomy()).unwrap();
    disk.capacity(Some(disk.used_bytes()));
    let kept = ddl::keep_space_in_need(&e.core);
    assert!(matches!(kept, Err(Error::DiskFull(_))), "{kept:?}");
    assert!(e.core.drop_space.lock().is_some(), "no space was set aside");
    e.drop_table("t").unwrap();
}

/// Of three tables in one statement the last one is not renamed: the others get their names back without a byte of the disk's, more
/// than the log's space would hold without what was set aside.
#[test]
fn tables_get_their_names_back_on_a_full_disk() {
    let options = || Options { wal_segment_bytes: 64 << 10, ..roomy() };
    let (disk, e, _) = one_table(options());
    let long = |name: &str| format!("{name}{}", "n".repeat(4000));
    e.rename_table("t", &long("t")).unwrap();
    make(&e, &long("u"), &fixed(100));
    // The first ones are renamed twice.
    for (from, to) in [("t", "v"), ("u", "w"), ("v", "x")] {
        e.rename_table(&long(from), &long(to)).unwrap();
    }
    fill_up(&disk, &e, &long("x"));
    let full = e.rename_table(&long("w"), &long("y"));
    assert!(matches!(full, Err(Error::DiskFull(_))), "{full:?}");
    for (from, to) in [("x", "v"), ("w", "u"), ("v", "t")] {
        e.rename_table(&long(from), &long(to)).unwrap_or_else(|e| panic!("{from} to {to}: {e}"));
    }
    std::mem::forget(e);
    let disk = disk.after_kill();
    disk.capacity(None);
    let e = open_with(&disk, options()).unwrap();
    // A way back that is gone has its own way back.
    for (from, to) in [("t", "v"), ("v", "t")] {
        e.rename_table(&long(from), &long(to)).unwrap();
    }
    fill_up(&disk, &e, &long("t"));
    e.rename_table(&long("t"), &long("v")).unwrap();
    e.open_table(&long("u")).unwrap();
}

/// The log cannot take the edit: each try carries what is open once more.
#[test]
fn tries_of_a_flush_do_not_add_up() {
    let (disk, e, t) = one_table(Options { wal_segment_bytes: 64 << 10, ..roomy() });
    let mut s = e.session();
    begin(&mut s);
    fill(&mut s, &t, 0..200);
    fill_up(&disk, &e, "t");
    let mut used = Vec::new();
    for _ in 0..50 {
        flush::tree(&e.core, &t, &t.tree()).unwrap_err();
        used.push(t.tree().snapshot().active.used_bytes());
    }
    assert!(*used.last().unwrap() < 3 * used[0].max(4096), "memory grows with every try");
}

/// Fills the disk, and the log's prepared space with marks that say nothing of a table.
fn fill_up(disk: &SimDisk, e: &Engine, table: &str) {
    disk.capacity(Some(disk.used_bytes()));
    let mut filler = Vec::new();
    Record::RowIdMark { tree: e.open_table(table).unwrap().tree().id, next: RowId(1) }.encode(&mut filler);
    while e.core.wal.append(&filler).is_ok() {}
}
