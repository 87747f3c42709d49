// SPDX-License-Identifier: MIT OR Apache-2.0
//! The layout of every struct that crosses: its size here, each field's place in the header.
//!
//! Invariant: sizes are these on every machine that it is built for, and no struct has a field that is not listed; so
//! the header's assertions, which C++ checks, speak of all that Rust has.

use crate::activity::{EsLock, EsLockWait, EsTransaction};
use crate::alter::{EsBuiltIndexes, EsIndexPlan};
use crate::counters::EsWork;
use crate::cursor::{EsBatch, EsScanOptions};
use crate::engine::{EsEngine, EsOptions};
use crate::index::{EsIndex, EsKeyPart};
use crate::index_cursor::{EsKeyBound, EsKeyRange};
use crate::metrics::EsMetric;
use crate::mutexes::{EsMutex, EsMutexFrame};
use crate::session::{EsKiller, EsSession, EsWaitHooks};
use crate::shown::EsShown;
use crate::stage::EsStage;
use crate::status::EsError;
use crate::table::{EsColumn, EsLayout, EsTable, EsTableDef, EsTableStats};
use crate::table_work::EsTableWork;
use crate::trace::{EsTraceCall, EsTraceEnd, EsTraceFile};
use crate::visible::{EsFile, EsMemory, EsWait, EsWaitBucket};
use crate::xid::EsXid;

macro_rules! crossing {
    ($($name:ident $size:literal { $($field:ident),+ })+) => {
        $(
            const _: () = assert!(size_of::<$name>() == $size && align_of::<$name>() <= 8);
            const _: fn(&$name) = |$name { $($field: _),+ }| ();
        )+

        /// What C++ has to find the same: sizes, and where each field lies.
        #[cfg(test)]
        pub(crate) fn static_asserts() -> String {
            use std::mem::offset_of;
            let mut text = String::new();
            $(
                let places = [$((stringify!($field), offset_of!($name, $field))),+];
                let places = places.map(|(field, at)| format!("offsetof({}, {field}) == {at}", stringify!($name)));
                let (name, size) = (stringify!($name), size_of::<$name>());
                let all = places.join(" &&\n              ");
                text += &format!("static_assert(sizeof({name}) == {size} &&\n              {all},\n              ");
                text += &format!("\"{name} lies otherwise than in Rust\");\n");
            )+
            text
        }
    };
}

crossing! {
    EsError 1024 { text }
    EsOptions 120 {
        data_dir, memory_limit_bytes, bulk_buffer_bytes, bulk_threshold_bytes, wal_segment_bytes, recovery_target_bytes,
        recovery_target_seconds, flush_mode, sync_method, log, log_context, weights, weights_version, collation_text,
        weights_context, waiting
    }
    EsColumn 28 { kind, offset, width, null_byte, null_mask, len_bytes, pad, type_number, earlier_type_number }
    EsLayout 24 { image_bytes, head_bytes, column_count, columns }
    EsKeyPart 20 { column, prefix_bytes, encoding, collation, descending }
    EsIndex 24 { name, parts, part_count, unique }
    EsIndexPlan 32 { index, place }
    EsTableDef 56 { layout, row_format, compression, indexes, index_count, temporary, auto_increment }
    EsShown 24 { shown_as, name_count, names, digits, decimals, filled }
    EsTableStats 64 { rows, data_bytes, row_bytes, free_bytes, runs, create_time, update_time, row_format, compression }
    EsMetric 40 { name, unit, meaning, value, per_session }
    EsWork 48 { blocks, reads, read_ns, blocks_ahead, buffers, versions_passed }
    EsWaitHooks 56 { context, before, longest, after, waits_for, goes_before, statement }
    EsStage 32 { table, next, end, row_id }
    EsXid 144 { format, gtrid_bytes, bqual_bytes, data }
    EsTransaction 232 {
        id, connection, started_unix_us, age_us, rows_changed, rows_locked, redo_bytes, view_seq, state, isolation,
        has_xid, xid
    }
    EsLockWait 64 {
        waiting_connection, blocking_connection, waited_us, blocker_idle_us, root_blocker, kind, table, key_text
    }
    EsLock 64 { txn, connection, kind, mode, table, key_name, key_text, waiting }
    EsTraceFile 72 { folder, name, user, server, began, level, connection, process, table_for_people }
    EsTraceCall 48 { at_ns, count, table, function, is_bulk_end, full }
    EsTraceEnd 72 {
        rows, changed, first_row_ns, error, merge_passes, disk_tables, disk_bytes, calls_dropped, killed
    }
    EsFile 104 {
        path, kind, table, index, size_bytes, reads, read_bytes, read_ns, writes, write_bytes, write_ns, syncs, sync_ns
    }
    EsMemory 72 { owner, kind, table, of_session, connection, bytes, peak_bytes, has_peak, objects }
    EsWait 72 { kind, name, of_session, connection, count, sum_ns, max_ns, p50_ns, p99_ns }
    EsWaitBucket 32 { name, from_ns, to_ns, count }
    EsMutex 104 {
        name, rank, acquired, contended, spins, wait_ns, wait_max_ns, hold_ns, hold_max_ns, unlock_ns, rewake_ns, has_rewake,
        sampled_one_in
    }
    EsMutexFrame 56 { name, role, stack_id, samples, sum_ns, frame_no, frame }
    EsTableWork 96 {
        table, index, rows_read, rows_changed, blocks_cached, blocks_read, has_source, blocks_pagecache, blocks_device,
        blocks_read_by_changes, lock_waits, lock_wait_us
    }
    EsScanOptions 24 { columns, columns_bytes, lock, skip_locked, semi_consistent, passes_gone }
    EsKeyBound 16 { image, parts, behind }
    EsKeyRange 32 { from, to }
    EsBatch 32 { images, stride, row_ids, count }
}

/// What the header says of threads: any may use these, and hand a session on.
const _: () = {
    const fn any_thread<T: Send + Sync>() {}
    const fn one_at_a_time<T: Send>() {}
    any_thread::<EsEngine>();
    any_thread::<EsTable>();
    any_thread::<EsKiller>();
    one_at_a_time::<EsSession>();
    one_at_a_time::<EsBuiltIndexes>();
};
