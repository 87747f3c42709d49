// SPDX-License-Identifier: MIT OR Apache-2.0
//! Prepared transactions by XID, and the question whether the log is durable.
//!
//! An XID's bytes, which the engine keeps as they are: format (8, little-endian), length of gtrid (1), length of bqual
//! (1), gtrid, bqual.

use crate::engine::EsEngine;
use crate::status::{report, EsError, Failure, Status};
use esker::Engine;
use std::collections::VecDeque;
use std::ffi::{c_char, c_void, CString};

const DATA_BYTES: usize = 128;
const HEAD_BYTES: usize = 10;
/// Neither part may be longer.
const PART_BYTES: u32 = 64;

/// `es_xid`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EsXid {
    pub(crate) format: i64,
    pub(crate) gtrid_bytes: u32,
    pub(crate) bqual_bytes: u32,
    pub(crate) data: [u8; DATA_BYTES],
}

impl EsXid {
    pub(crate) fn to_bytes(self) -> Result<Vec<u8>, Failure> {
        if self.gtrid_bytes > PART_BYTES || self.bqual_bytes > PART_BYTES {
            return Err(Failure::invalid("the XID is too long"));
        }
        let mut bytes = Vec::with_capacity(HEAD_BYTES + DATA_BYTES);
        bytes.extend_from_slice(&self.format.to_le_bytes());
        bytes.push(self.gtrid_bytes as u8);
        bytes.push(self.bqual_bytes as u8);
        bytes.extend_from_slice(&self.data[..(self.gtrid_bytes + self.bqual_bytes) as usize]);
        Ok(bytes)
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<EsXid> {
        let (format, rest) = bytes.split_first_chunk::<8>()?;
        let (&[gtrid, bqual], data) = rest.split_first_chunk::<2>()?;
        if data.len() != usize::from(gtrid) + usize::from(bqual) || data.len() > DATA_BYTES {
            return None;
        }
        let mut xid = EsXid {
            format: i64::from_le_bytes(*format),
            gtrid_bytes: gtrid.into(),
            bqual_bytes: bqual.into(),
            data: [0; DATA_BYTES],
        };
        xid.data[..data.len()].copy_from_slice(data);
        Some(xid)
    }
}

impl Default for EsXid {
    fn default() -> EsXid {
        EsXid { format: -1, gtrid_bytes: 0, bqual_bytes: 0, data: [0; DATA_BYTES] }
    }
}

/// XIDs not yet handed out.
pub(crate) type XidList = VecDeque<EsXid>;

/// Prepared transactions, a page at a time.
#[no_mangle]
pub unsafe extern "C" fn es_recover(
    engine: *mut EsEngine,
    restart: i32,
    xids: *mut EsXid,
    capacity: u32,
    count: *mut u32,
    error: *mut EsError,
) -> Status {
    // SAFETY: see the crate.
    let handle = unsafe { &*engine };
    let result = handle.guard.run(|| {
        let mut list = handle.recovered.lock().map_err(|_| Failure::invalid("the list of XIDs is lost"))?;
        if restart != 0 {
            // What another front end prepared is not ours to name.
            *list = handle.engine.prepared().iter().filter_map(|x| EsXid::from_bytes(x.as_ref())).collect();
        }
        let page = list.len().min(capacity as usize);
        for (i, xid) in list.drain(..page).enumerate() {
            // SAFETY: i < capacity.
            unsafe { xids.add(i).write(xid) };
        }
        // SAFETY: see the crate.
        unsafe { count.write(page as u32) };
        Ok(())
    });
    // SAFETY: see the crate.
    unsafe { report(result, error) }
}

/// Ends a prepared transaction that no session holds.
///
/// # Safety
/// As for the calls below.
unsafe fn decide(
    engine: *mut EsEngine,
    xid: *const EsXid,
    found: *mut i32,
    error: *mut EsError,
    how: fn(&Engine, &[u8]) -> esker::Result<bool>,
) -> Status {
    // SAFETY: see the crate.
    let (handle, xid) = unsafe { (&*engine, &*xid) };
    let result = handle.guard.run(|| {
        let known = how(&handle.engine, &xid.to_bytes()?)?;
        // SAFETY: see the crate.
        unsafe { found.write(i32::from(known)) };
        Ok(())
    });
    // SAFETY: see the crate.
    unsafe { report(result, error) }
}

/// Commits a prepared transaction that no session holds.
#[no_mangle]
pub unsafe extern "C" fn es_commit_xid(
    engine: *mut EsEngine,
    xid: *const EsXid,
    found: *mut i32,
    error: *mut EsError,
) -> Status {
    // SAFETY: see the crate.
    unsafe { decide(engine, xid, found, error, Engine::commit_xid) }
}

/// Rolls back a prepared transaction that no session holds.
#[no_mangle]
pub unsafe extern "C" fn es_rollback_xid(
    engine: *mut EsEngine,
    xid: *const EsXid,
    found: *mut i32,
    error: *mut EsError,
) -> Status {
    // SAFETY: see the crate.
    unsafe { decide(engine, xid, found, error, Engine::rollback_xid) }
}

/// `es_done_fn`.
pub type DoneFn = unsafe extern "C" fn(*mut c_void, Status, *const c_char);

/// The front end's callback and its cookie.
struct Done {
    call: DoneFn,
    cookie: *mut c_void,
}
// SAFETY: the header says that it is called from any thread.
unsafe impl Send for Done {}

impl Done {
    fn tell(self, result: Result<(), Failure>) {
        let failure = result.err().unwrap_or_default();
        let why = CString::new(failure.text).unwrap_or_default();
        // SAFETY: see the crate; the words are valid for the call.
        unsafe { (self.call)(self.cookie, failure.status, why.as_ptr()) }
    }
}

/// Calls back once the log is durable past now, or cannot become so.
#[no_mangle]
pub unsafe extern "C" fn es_request_checkpoint(engine: *mut EsEngine, done: DoneFn, cookie: *mut c_void) {
    // SAFETY: see the crate.
    let handle = unsafe { &*engine };
    let done = Done { call: done, cookie };
    // After a panic too: the engine is poisoned, and says so to who asks.
    let _ = handle.guard.clean_up(|| {
        handle.engine.request_checkpoint(Box::new(move |result| done.tell(result.map_err(Failure::from))));
        Ok(())
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip() {
        let mut data = [0; DATA_BYTES];
        data[..7].copy_from_slice(b"MySQLXI");
        let xid = EsXid { format: -2, gtrid_bytes: 4, bqual_bytes: 3, data };
        let bytes = xid.to_bytes().unwrap_or_default();
        assert_eq!(bytes.len(), HEAD_BYTES + 7);
        assert_eq!(EsXid::from_bytes(&bytes), Some(xid));
        assert_eq!(EsXid::from_bytes(&bytes[..bytes.len() - 1]), None);
        assert_eq!(EsXid::from_bytes(&[]), None);
        assert!(EsXid { gtrid_bytes: 65, ..xid }.to_bytes().is_err());
    }
}
