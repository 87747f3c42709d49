// SPDX-License-Identifier: MIT OR Apache-2.0
//! Prepared transactions by XID, and the question whether the log is durable.
//!
//! An XID's bytes, which the engine keeps as they are: format (8, little-endian), length of gtrid (1), length of bqual
//! (1), gtrid, bqual.

use crate::boundary::{needed, out, out_slice, shared};
use crate::engine::EsEngine;
use crate::status::{report, EsError, EsStatus, Failure};
use esker::Engine;
use std::collections::VecDeque;
use std::ffi::{c_char, c_void, CString};

/// Bytes of an XID's parts together.
pub const ES_XID_DATA_BYTES: usize = 128;
const HEAD_BYTES: usize = 10;
/// Neither part may be longer.
const PART_BYTES: u32 = 64;

/// An XA transaction id, as the server has it.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EsXid {
    pub(crate) format: i64,
    /// At most 64, as `bqual_bytes`.
    pub(crate) gtrid_bytes: u32,
    pub(crate) bqual_bytes: u32,
    /// First the gtrid, then the bqual.
    pub(crate) data: [u8; ES_XID_DATA_BYTES],
}

impl EsXid {
    pub(crate) fn to_bytes(self) -> Result<Vec<u8>, Failure> {
        if self.gtrid_bytes > PART_BYTES || self.bqual_bytes > PART_BYTES {
            return Err(Failure::invalid("the XID is too long"));
        }
        let mut bytes = Vec::with_capacity(HEAD_BYTES + ES_XID_DATA_BYTES);
        bytes.extend_from_slice(&self.format.to_le_bytes());
        bytes.push(self.gtrid_bytes as u8);
        bytes.push(self.bqual_bytes as u8);
        bytes.extend_from_slice(&self.data[..(self.gtrid_bytes + self.bqual_bytes) as usize]);
        Ok(bytes)
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<EsXid> {
        let (format, rest) = bytes.split_first_chunk::<8>()?;
        let (&[gtrid, bqual], data) = rest.split_first_chunk::<2>()?;
        if data.len() != usize::from(gtrid) + usize::from(bqual) || data.len() > ES_XID_DATA_BYTES {
            return None;
        }
        let mut xid = EsXid {
            format: i64::from_le_bytes(*format),
            gtrid_bytes: gtrid.into(),
            bqual_bytes: bqual.into(),
            data: [0; ES_XID_DATA_BYTES],
        };
        xid.data[..data.len()].copy_from_slice(data);
        Some(xid)
    }
}

impl Default for EsXid {
    fn default() -> EsXid {
        EsXid { format: -1, gtrid_bytes: 0, bqual_bytes: 0, data: [0; ES_XID_DATA_BYTES] }
    }
}

/// XIDs not yet handed out.
pub(crate) type XidList = VecDeque<EsXid>;

/// Prepared transactions that no session owns. `restart` begins a new list; then each call gives the next ones, `*count`
/// of them: fewer than `capacity` at the end.
///
/// # Safety
/// `xids` is room for `capacity` of them.
#[no_mangle]
pub unsafe extern "C" fn es_recover(
    engine: *const EsEngine,
    restart: bool,
    xids: *mut EsXid,
    capacity: u32,
    count: *mut u32,
    error: *mut EsError,
) -> EsStatus {
    // SAFETY: the caller's promise.
    let (handle, xids, count) = unsafe { (shared(engine), out_slice(xids, capacity as usize), out(count)) };
    let result = handle.guard.run(|| {
        let mut list = handle.recovered.lock().map_err(|_| Failure::invalid("the list of XIDs is lost"))?;
        if restart {
            // What another front end prepared is not ours to name.
            *list = handle.engine.prepared().iter().filter_map(|x| EsXid::from_bytes(x.as_ref())).collect();
        }
        let page = list.len().min(xids.len());
        for (to, xid) in xids.iter_mut().zip(list.drain(..page)) {
            to.write(xid);
        }
        count.write(page as u32);
        Ok(())
    });
    // SAFETY: the caller's promise.
    unsafe { report(result, error) }
}

/// Ends a prepared transaction that no session holds.
///
/// # Safety
/// As for [`es_commit_xid`].
unsafe fn decide(
    engine: *const EsEngine,
    xid: *const EsXid,
    found: *mut bool,
    error: *mut EsError,
    how: fn(&Engine, &[u8]) -> esker::Result<bool>,
) -> EsStatus {
    // SAFETY: the caller's promise.
    let (handle, xid, found) = unsafe { (shared(engine), shared(xid), out(found)) };
    let result = handle.guard.run(|| {
        found.write(how(&handle.engine, &xid.to_bytes()?)?);
        Ok(())
    });
    // SAFETY: the caller's promise.
    unsafe { report(result, error) }
}

/// Commits a prepared transaction that no session holds, durable on return. `*found` is written only if it succeeds;
/// false: there is none of that XID.
///
/// # Safety
/// `engine` is open.
#[no_mangle]
pub unsafe extern "C" fn es_commit_xid(
    engine: *const EsEngine,
    xid: *const EsXid,
    found: *mut bool,
    error: *mut EsError,
) -> EsStatus {
    // SAFETY: the caller's promise.
    unsafe { decide(engine, xid, found, error, Engine::commit_xid) }
}

/// Rolls back a prepared transaction that no session holds; otherwise as `es_commit_xid`.
///
/// # Safety
/// `engine` is open.
#[no_mangle]
pub unsafe extern "C" fn es_rollback_xid(
    engine: *const EsEngine,
    xid: *const EsXid,
    found: *mut bool,
    error: *mut EsError,
) -> EsStatus {
    // SAFETY: the caller's promise.
    unsafe { decide(engine, xid, found, error, Engine::rollback_xid) }
}

/// Called once, from any thread: with `Ok` when all that was committed before the call is durable; with an error and
/// its words, valid for the call, if writing has stopped, and it will not become durable before the engine is opened
/// again.
pub type EsDoneFn = Option<unsafe extern "C" fn(cookie: *mut c_void, status: EsStatus, why: *const c_char)>;

/// Calls back once the log is durable past now, or cannot become so.
///
/// # Safety
/// `done` may be called with `cookie` from any thread, until it has been called.
#[no_mangle]
pub unsafe extern "C" fn es_request_checkpoint(engine: *const EsEngine, done: EsDoneFn, cookie: *mut c_void) {
    // SAFETY: the caller's promise.
    let (handle, done) = unsafe { (shared(engine), needed(done)) };
    // An address, which may go to another thread.
    let cookie = cookie as usize;
    let tell = move |result: Result<(), Failure>| {
        let failure = result.err().unwrap_or_default();
        let why = CString::new(failure.text).unwrap_or_default();
        // SAFETY: the caller's promise; the words are valid for the call.
        unsafe { done(cookie as *mut c_void, failure.status, why.as_ptr()) }
    };
    // After a panic too: the engine is poisoned, and says so to who asks.
    let _ = handle.guard.clean_up(|| {
        handle.engine.request_checkpoint(Box::new(move |result| tell(result.map_err(Failure::from))));
        Ok(())
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip() {
        let mut data = [0; ES_XID_DATA_BYTES];
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
