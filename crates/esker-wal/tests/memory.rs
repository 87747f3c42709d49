//! Memory that is missing stops no log: an append fails and leaves no trace, and what was appended becomes durable all the same. A process
//! of its own, since regions are refused in all of it.

#![allow(clippy::unwrap_used)]

mod common;

use common::{disk, frames, open, small, Frames, Watch};
use esker_format::Lsn;
use esker_memory::scarce::{have_enough, refuse};
use esker_memory::{charged, Account};
use esker_wal::{Wal, WalError, WalOptions};

/// Longer than the log keeps memory for.
const LONG: usize = 200 << 10;

fn options() -> WalOptions {
    WalOptions { segment_bytes: 2 << 20, buffer_bytes: 64 << 10, ..small() }
}

/// How a frame came: with a credit, with one beside others that are used later, or without.
fn append(wal: &Wal, all: &mut Frames, how: usize, payload: Vec<u8>) -> Result<Lsn, WalError> {
    let appended = match how % 3 {
        0 => wal.append(&payload)?,
        1 => {
            let credit = wal.reserve_commit(payload.len())?;
            wal.append_reserved(credit, &payload)
        }
        _ => {
            let credits = [wal.reserve_commit(payload.len())?, wal.reserve_commit(100)?];
            // Somebody else's sync, before they are used.
            wal.sync_all().unwrap();
            let [first, second] = credits;
            let appended = wal.append_reserved(second, &payload[..50]);
            all.push((appended.lsn, payload[..50].to_vec()));
            wal.write_out().unwrap();
            wal.append_reserved(first, &payload)
        }
    };
    all.push((appended.lsn, payload));
    Ok(appended.end)
}

/// One long frame's memory is not the log's for ever.
fn long_frames_leave_no_memory_behind() {
    let (wal, _) = open(&Watch::new(disk(1)), options(), Lsn(1)).unwrap();
    let before = charged(Account::Wal);
    for how in [0, 1, 2] {
        let mut all = Frames::new();
        let end = append(&wal, &mut all, how, vec![1; 8 * LONG]).unwrap();
        assert!(charged(Account::Wal) > before + 4 * LONG as u64);
        wal.wait_durable(end).unwrap();
        for n in 0..3 {
            let end = append(&wal, &mut all, 0, vec![n; 100]).unwrap();
            wal.wait_durable(end).unwrap();
        }
        assert_eq!(charged(Account::Wal), before, "a frame appended in way {how}");
    }
}

#[test]
fn a_log_goes_on_though_memory_was_missing() {
    long_frames_leave_no_memory_behind();
    let (mut refusals, mut failed) = (0, 0);
    for most in [1, 2, u64::MAX] {
        for number in 0.. {
            let watch = Watch::new(disk(1));
            let (wal, _) = open(&watch, options(), Lsn(1)).unwrap();
            let mut all = Frames::new();
            // Segments are there, so that what is refused is memory of the log's buffers.
            wal.prepare_segments().unwrap();
            refuse(number..number.saturating_add(most));
            for (how, bytes) in [(0, 100), (0, LONG), (0, 100), (1, LONG), (1, 100), (2, 3000), (2, LONG), (0, 200)] {
                match append(&wal, &mut all, how, vec![bytes as u8 ^ 7; bytes]) {
                    Ok(end) => wal.wait_durable(end).unwrap(),
                    Err(e) => {
                        assert!(matches!(e, WalError::OutOfMemory(_)), "{e}");
                        failed += 1;
                    }
                }
            }
            let was_refused = have_enough();
            assert!(wal.poisoned().is_none());
            let end = append(&wal, &mut all, 0, vec![9; 100]).unwrap();
            wal.wait_durable(end).unwrap();
            assert_eq!(frames(&watch.disk.after_power_cut(number), Lsn(1)).unwrap(), all);
            if !was_refused {
                break;
            }
            refusals += 1;
        }
    }
    assert!(refusals > 20 && failed > 20, "{refusals} refused, {failed} appends failed");
}
