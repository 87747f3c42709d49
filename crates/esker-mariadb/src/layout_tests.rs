// SPDX-License-Identifier: MIT OR Apache-2.0
//! The structs of the header have these sizes in C on 64-bit machines; here they must have the same.

use std::mem::size_of;

#[test]
fn sizes_are_those_of_c() {
    assert_eq!(size_of::<crate::status::EsError>(), 1024);
    assert_eq!(size_of::<crate::engine::EsOptions>(), 72);
    assert_eq!(size_of::<crate::table::EsColumn>(), 28);
    assert_eq!(size_of::<crate::table::EsLayout>(), 24);
    assert_eq!(size_of::<crate::table::EsTableDef>(), 40);
    assert_eq!(size_of::<crate::table::EsTableStats>(), 56);
    assert_eq!(size_of::<crate::session::EsWaitHooks>(), 32);
    assert_eq!(size_of::<crate::session::EsStage>(), 32);
    assert_eq!(size_of::<crate::xid::EsXid>(), 144);
    assert_eq!(size_of::<crate::activity::EsTransaction>(), 232);
    assert_eq!(size_of::<crate::activity::EsLockWait>(), 64);
    assert_eq!(size_of::<crate::cursor::EsScanOptions>(), 24);
    assert_eq!(size_of::<crate::cursor::EsBatch>(), 32);
}
