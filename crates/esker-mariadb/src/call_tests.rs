// SPDX-License-Identifier: MIT OR Apache-2.0
//! The calls as a front end makes them: through pointers, with numbers that are members and numbers that are not.

use crate::boundary::Unchecked;
use crate::cursor::*;
use crate::engine::*;
use crate::session::*;
use crate::shown::*;
use crate::stage::*;
use crate::status::*;
use crate::table::*;
use crate::transaction::*;
use crate::write::*;
use std::ffi::{c_char, CStr, CString};
use std::mem::MaybeUninit;
use std::path::PathBuf;
use std::ptr::{null, null_mut};

const IMAGE_BYTES: usize = 9;
/// Rows from which on they come in bulk, with the threshold below.
const BULK_ROWS: u64 = 1000;

/// A number that C++ gives for an enum.
fn number<E: Copy>(number: i32) -> Unchecked<E> {
    assert_eq!(size_of::<Unchecked<E>>(), 4);
    // SAFETY: of the same size, and allowed to be any bytes.
    unsafe { std::mem::transmute_copy(&number) }
}

fn column(kind: i32) -> EsColumn {
    EsColumn {
        kind: number(kind),
        offset: 1,
        width: 8,
        null_byte: 0,
        null_mask: 0,
        len_bytes: 0,
        pad: 0,
        type_number: 9,
        earlier_type_number: 0,
    }
}

fn layout(columns: &[EsColumn]) -> EsLayout {
    EsLayout {
        image_bytes: IMAGE_BYTES as u32,
        head_bytes: 1,
        column_count: columns.len() as u32,
        columns: columns.as_ptr(),
    }
}

fn table_def(
    columns: &[EsColumn],
    row_format: Unchecked<EsRowFormat>,
    compression: Unchecked<EsCompression>,
) -> EsTableDef {
    let (indexes, index_count) = (null(), 0);
    let layout = layout(columns);
    EsTableDef { layout, row_format, compression, indexes, index_count, temporary: false, auto_increment: 0 }
}

fn image(value: u64) -> [u8; IMAGE_BYTES] {
    let mut image = [0; IMAGE_BYTES];
    image[1..].copy_from_slice(&value.to_le_bytes());
    image
}

/// An engine with a table of one number, open in a session.
struct Opened {
    folder: PathBuf,
    engine: *mut EsEngine,
    table: *mut EsTable,
    session: *mut EsSession,
}

impl Opened {
    fn new(name: &str) -> Opened {
        let folder = std::env::temp_dir().join(format!("esker-calls-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        let path = CString::new(folder.to_str().unwrap()).unwrap();
        let mut opened = Opened { folder, engine: null_mut(), table: null_mut(), session: null_mut() };
        let mut options = MaybeUninit::uninit();
        let columns = [column(0)];
        let def = table_def(&columns, number(0), number(0));
        // SAFETY: as the header asks.
        unsafe {
            es_default_options(options.as_mut_ptr());
            let mut options = options.assume_init();
            options.data_dir = path.as_ptr();
            options.wal_segment_bytes = 1 << 20;
            options.bulk_threshold_bytes = 4096;
            assert_eq!(es_engine_open(&options, &mut opened.engine, null_mut()), EsStatus::Ok);
            assert_eq!(es_create_table(opened.engine, c"t".as_ptr(), &def, null_mut()), EsStatus::Ok);
            let open =
                es_table_open(opened.engine, c"t".as_ptr(), &def.layout, null(), 0, &mut opened.table, null_mut());
            assert_eq!(open, EsStatus::Ok);
            assert_eq!(es_session_open(opened.engine, null(), &mut opened.session, null_mut()), EsStatus::Ok);
        }
        opened
    }

    fn begin(&self) {
        // SAFETY: as the header asks.
        unsafe {
            assert_eq!(es_begin(self.session, number(0), false), EsStatus::Ok);
            assert_eq!(es_begin_statement(self.session), EsStatus::Ok);
        }
    }

    /// Inserts rows by calls, until there is a stage for more.
    fn insert_until_staged(&self) -> (u64, *mut EsStage) {
        // SAFETY: as the header asks.
        let stage = unsafe { es_session_stage(self.session) };
        for value in 0..BULK_ROWS {
            let mut row_id = 0;
            // SAFETY: as the header asks.
            let staged = unsafe {
                assert_eq!(
                    es_insert(self.session, self.table, image(value).as_ptr(), false, &mut row_id),
                    EsStatus::Ok
                );
                (*stage).table == self.table
            };
            if staged {
                return (value + 1, stage);
            }
        }
        panic!("no stage after {BULK_ROWS} rows");
    }

    fn last_error(&self) -> (EsStatus, String) {
        let mut error = MaybeUninit::uninit();
        // SAFETY: as the header asks.
        unsafe {
            let status = es_last_error(self.session, error.as_mut_ptr());
            (status, CStr::from_ptr(error.assume_init_ref().text.as_ptr()).to_str().unwrap().to_owned())
        }
    }

    /// Opens a scan of all rows, of these columns.
    fn scan(&self, columns: &[u8], lock: i32) -> (EsStatus, *mut EsCursor) {
        let options = EsScanOptions {
            columns: columns.as_ptr(),
            columns_bytes: columns.len(),
            lock: number(lock),
            skip_locked: false,
            semi_consistent: false,
            passes_gone: false,
        };
        let mut cursor = null_mut();
        // SAFETY: as the header asks.
        let status = unsafe { es_scan_open(self.session, self.table, 0, &options, &mut cursor) };
        (status, cursor)
    }

    fn close(self) -> EsStatus {
        // SAFETY: as the header asks.
        let status = unsafe {
            es_session_close(self.session);
            es_table_close(self.table);
            es_engine_close(self.engine, null_mut())
        };
        std::fs::remove_dir_all(&self.folder).unwrap();
        status
    }
}

#[test]
fn rows_go_in_by_calls_and_by_the_stage_and_come_out() {
    let opened = Opened::new("rows");
    opened.begin();
    let (mut rows, stage) = opened.insert_until_staged();
    // SAFETY: as the header asks.
    unsafe {
        while (*stage).next != (*stage).end && rows < 2 * BULK_ROWS {
            (*stage).next.copy_from_nonoverlapping(image(rows).as_ptr(), IMAGE_BYTES);
            (*stage).next = (*stage).next.add(IMAGE_BYTES);
            (*stage).row_id += 1;
            rows += 1;
        }
        assert_eq!(es_commit(opened.session), EsStatus::Ok);
        assert!((*stage).table.is_null());

        opened.begin();
        let mut count = 0;
        assert_eq!(es_count_rows(opened.session, opened.table, &mut count), EsStatus::Ok);
        assert_eq!(count, rows);
        let (status, cursor) = opened.scan(&[1], 0);
        assert_eq!(status, EsStatus::Ok);
        let mut values = Vec::new();
        loop {
            let mut batch = MaybeUninit::uninit();
            assert_eq!(es_cursor_next_batch(cursor, opened.session, batch.as_mut_ptr()), EsStatus::Ok);
            let batch = batch.assume_init();
            if batch.count == 0 {
                break;
            }
            for i in 0..batch.count {
                let value = batch.images.add(i * batch.stride + 1).cast::<u64>().read_unaligned();
                values.push((*batch.row_ids.add(i), value));
            }
        }
        es_cursor_close(cursor);
        assert!(values.windows(2).all(|pair| pair[0].0 < pair[1].0));
        assert!(values.iter().map(|&(_, value)| value).eq(0..rows));
        assert_eq!(es_rollback(opened.session), EsStatus::Ok);
    }
    assert_eq!(opened.close(), EsStatus::Ok);
}

#[test]
fn numbers_that_are_no_members_are_refused() {
    let opened = Opened::new("numbers");
    // SAFETY: as the header asks, but for the numbers.
    unsafe {
        assert_eq!(es_begin(opened.session, number(2), false), EsStatus::Invalid);
        assert!(!es_in_transaction(opened.session));
        assert_eq!(opened.last_error(), (EsStatus::Invalid, "isolation level 2".to_owned()));
        assert_eq!(es_set_flush_mode(opened.engine, number(3)), EsStatus::Invalid);
        for (kind, row_format, compression) in [(4, 0, 0), (0, 2, 0), (0, 0, 3), (-1, 0, 0)] {
            let columns = [column(kind)];
            let (row_format, compression) = (number(row_format), number(compression));
            let def = table_def(&columns, row_format, compression);
            let created = es_create_table(opened.engine, c"u".as_ptr(), &def, null_mut());
            assert_eq!(created, EsStatus::Invalid);
        }
        let mut figures = [0; 2];
        let [blocks, damaged] = &mut figures;
        let checked = es_table_check(opened.table, number(4), None, null_mut(), blocks, damaged, null_mut());
        assert_eq!(checked, EsStatus::Invalid);
        assert_eq!(es_drop_table(opened.engine, null(), false, null_mut()), EsStatus::Invalid);
    }
    opened.begin();
    assert_eq!(opened.scan(&[1], 3), (EsStatus::Invalid, null_mut()));
    assert_eq!(opened.scan(&[], 0), (EsStatus::Invalid, null_mut()));
    assert_eq!(opened.close(), EsStatus::Ok);
}

#[test]
fn a_stage_that_was_not_kept_by_its_rules_stops_the_engine() {
    let opened = Opened::new("stage");
    opened.begin();
    let (_, stage) = opened.insert_until_staged();
    // SAFETY: as the header asks, but for the row's id.
    unsafe {
        (*stage).next.copy_from_nonoverlapping(image(0).as_ptr(), IMAGE_BYTES);
        (*stage).next = (*stage).next.add(IMAGE_BYTES);
        assert_eq!(es_commit(opened.session), EsStatus::Panic);
        assert!(opened.last_error().1.contains("1 rows, 0 bytes more, and 0 ids"));
        assert_eq!(es_begin(opened.session, number(0), false), EsStatus::Panic);
    }
    assert_eq!(opened.close(), EsStatus::Poisoned);
}

#[test]
fn a_kill_wakes_and_a_panic_in_it_stops_the_engine() {
    let opened = Opened::new("kill");
    let (mut other, mut killer, mut row_id) = (null_mut(), null_mut(), 0);
    // SAFETY: as the header asks.
    unsafe {
        assert_eq!(es_session_open(opened.engine, null(), &mut other, null_mut()), EsStatus::Ok);
        assert_eq!(es_begin(other, number(0), false), EsStatus::Ok);
        assert_eq!(es_begin_statement(other), EsStatus::Ok);
        assert_eq!(es_insert(other, opened.table, image(1).as_ptr(), false, &mut row_id), EsStatus::Ok);
        assert_eq!(es_commit(other), EsStatus::Ok);
        assert_eq!(es_begin(other, number(0), false), EsStatus::Ok);
        assert_eq!(es_begin_statement(other), EsStatus::Ok);
        assert_eq!(es_delete(other, opened.table, row_id), EsStatus::Ok);
        assert_eq!(es_killer_open(opened.session, &mut killer), EsStatus::Ok);
        opened.begin();
        es_kill(killer);
        assert_eq!(es_delete(opened.session, opened.table, row_id), EsStatus::Interrupted);
        (*killer).use_it(|_| panic!("nobody is woken"));
        assert_eq!(es_delete(opened.session, opened.table, row_id), EsStatus::Panic);
        es_killer_close(killer);
        es_session_close(other);
    }
    assert_eq!(opened.close(), EsStatus::Poisoned);
}

#[test]
fn a_layout_that_is_not_the_tables_is_refused() {
    let opened = Opened::new("layout");
    let columns = [EsColumn { null_mask: 1, ..column(0) }];
    let mut table = null_mut();
    let mut error = MaybeUninit::<EsError>::uninit();
    // SAFETY: as the header asks.
    unsafe {
        let status =
            es_table_open(opened.engine, c"t".as_ptr(), &layout(&columns), null(), 0, &mut table, error.as_mut_ptr());
        assert_eq!((status, table), (EsStatus::Layout, null_mut()));
        let words = CStr::from_ptr(error.assume_init_ref().text.as_ptr());
        assert_eq!(words, c"table 't' was created with other columns or keys");
        let columns = [EsColumn { type_number: 10, ..column(0) }];
        let status =
            es_table_open(opened.engine, c"t".as_ptr(), &layout(&columns), null(), 0, &mut table, error.as_mut_ptr());
        assert_eq!((status, table), (EsStatus::Layout, null_mut()));
        let words = CStr::from_ptr(error.assume_init_ref().text.as_ptr()).to_str().unwrap();
        assert!(words.contains("another type of stored column 1"), "{words}");
        // One of which less was told when the table was created.
        for (earlier_type_number, opens) in [(8, false), (0, false), (9, true)] {
            let columns = [EsColumn { type_number: 10, earlier_type_number, ..column(0) }];
            let status = es_table_open(
                opened.engine,
                c"t".as_ptr(),
                &layout(&columns),
                null(),
                0,
                &mut table,
                error.as_mut_ptr(),
            );
            assert_eq!((status == EsStatus::Ok, !table.is_null()), (opens, opens), "{earlier_type_number}");
        }
        es_table_close(table);
    }
    assert_eq!(opened.close(), EsStatus::Ok);
}

fn shown(shown_as: i32, names: &[*const c_char]) -> EsShown {
    let (name_count, names) = (names.len() as u32, names.as_ptr());
    EsShown { shown_as: number(shown_as), name_count, names, digits: 0, decimals: 0, filled: 0 }
}

#[test]
fn columns_are_shown_by_names_that_need_not_be_sound() {
    let opened = Opened::new("shown");
    let names = [c"red".as_ptr(), c"".as_ptr(), c"\xff".as_ptr()];
    // SAFETY: as the header asks.
    unsafe {
        let show = |column| es_table_show_as(opened.table, &column, 1, null_mut());
        assert_eq!(show(shown(EsShownAs::Enum as i32, &names)), EsStatus::Ok);
        assert_eq!(show(shown(EsShownAs::Uuid as i32, &[])), EsStatus::Ok);
        assert_eq!(show(shown(EsShownAs::Uuid as i32 + 1, &[])), EsStatus::Invalid);
        assert_eq!(es_table_show_as(opened.table, null(), 0, null_mut()), EsStatus::Ok);
    }
    assert_eq!(opened.close(), EsStatus::Ok);
}

#[test]
fn another_null_stops_the_process() {
    const ASKED: &str = "ESKER_CALL_WITH_NULL";
    if std::env::var_os(ASKED).is_some() {
        // SAFETY: none, which is what is to be seen.
        let _ = unsafe { es_begin(null_mut(), number(0), false) };
        return;
    }
    let name = "call_tests::another_null_stops_the_process";
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    let output = command.args(["--exact", name, "--nocapture"]).env(ASKED, "1").output().unwrap();
    assert!(!output.status.success());
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(words.contains("came through the C boundary is null") && words.contains("cannot unwind"), "{words}");
}

#[test]
fn null_handles_are_closed() {
    // SAFETY: all of them may be null.
    unsafe {
        es_session_close(null_mut());
        es_table_close(null_mut());
        es_cursor_close(null_mut());
        es_killer_close(null_mut());
        assert_eq!(es_engine_close(null_mut(), null_mut()), EsStatus::Ok);
    }
}
