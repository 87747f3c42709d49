//! What makes the format last: entries of newer versions are skipped where they say so and refused by name where not,
//! bodies may be longer than known, a manifest's edits count one after the other, and a row's record stays small.
#![allow(clippy::unwrap_used)]

mod common;

use common::samples::{manifest, manifest_with_edits, records};
use common::{entry_of, varint, Rng};
use esker_format::entry::SKIPPABLE;
use esker_format::key_block::MAX_KEY_BYTES;
use esker_format::manifest::{self as man, edit_offset};
use esker_format::{
    CommitSeq, FileId, FolderId, FormatError, KeyBounds, Lsn, Manifest, ManifestFile, Record, RecordReader, RowId,
    RunEntry, RunStats, TreeId, TxnId,
};
use proptest::prelude::*;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// A kind that nobody has.
const UNKNOWN: u8 = 120;

/// An entry's first byte and body.
fn taken_apart(entry: &[u8]) -> (u8, &[u8]) {
    let length = entry[1..].iter().position(|b| b & 0x80 == 0).unwrap() + 1;
    (entry[0], &entry[1 + length..])
}

fn encoded(record: &Record<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    record.encode(&mut out);
    out
}

fn read(bytes: &[u8]) -> Result<Vec<Record<'_>>, FormatError> {
    RecordReader::new(bytes).collect()
}

#[test]
fn records_that_may_be_skipped_are_skipped_and_others_refused_by_their_kind() {
    let records = records(&mut Rng(3));
    let (first, last) = (encoded(&records[0]), encoded(&records[records.len() - 1]));
    let skipped = [&first[..], &entry_of(UNKNOWN | SKIPPABLE, b"whatever"), &last].concat();
    assert_eq!(read(&skipped), Ok(vec![records[0].clone(), records[records.len() - 1].clone()]));
    let refused = [&first[..], &entry_of(UNKNOWN, b"whatever"), &last].concat();
    let unknown = FormatError::Unknown { what: "log record of kind", found: UNKNOWN.into() };
    assert_eq!(read(&refused), Err(unknown));
}

#[test]
fn records_that_have_grown_are_read() {
    for seed in 0..20 {
        for record in records(&mut Rng(seed)) {
            if matches!(record, Record::RowPut { .. } | Record::KeyPut { .. }) {
                // They end with a row or a payload and grow by flags.
                continue;
            }
            let bytes = encoded(&record);
            let (kind, body) = taken_apart(&bytes);
            let grown = entry_of(kind, &[body, b"a field of tomorrow"].concat());
            assert_eq!(read(&grown), Ok(vec![record.clone()]));
            // The same record from a version that allows to skip it.
            assert_eq!(read(&entry_of(kind | SKIPPABLE, body)), Ok(vec![record]));
        }
    }
}

/// A version from before there were any opens a folder in which ANALYZE TABLE was run.
#[test]
fn statistics_of_indexes_may_be_skipped_and_nothing_else() {
    for record in records(&mut Rng(4)) {
        let may_be_lost = matches!(record, Record::IndexStatistics { .. });
        assert_eq!(encoded(&record)[0], record.kind() | if may_be_lost { SKIPPABLE } else { 0 });
    }
}

#[test]
fn flags_of_tomorrow_are_refused() {
    let record = Record::RowPut {
        txn: TxnId(1),
        ordinal: 2,
        tree: TreeId(3),
        row: RowId(4),
        supersedes: true,
        layout: 0,
        bytes: b"",
    };
    let bytes = encoded(&record);
    let (kind, body) = taken_apart(&bytes);
    assert_eq!(body, [1, 2, 3, 4, 1]);
    let unknown = Err(FormatError::Unknown { what: "flags of a row's record", found: 4 });
    assert_eq!(read(&entry_of(kind, &[1, 2, 3, 4, 5])), unknown);
}

#[test]
fn a_rows_record_costs_at_most_two_bytes_more_than_its_fields() {
    let cost = |len: usize, supersedes: bool| {
        let bytes = vec![7; len];
        let (txn, ordinal, tree, row) = (TxnId(1), 1, TreeId(1), RowId(1));
        let record = Record::RowPut { txn, ordinal, tree, row, supersedes, layout: 0, bytes: &bytes };
        // The fields alone: a kind, four numbers, the row behind its length.
        encoded(&record).len() - (1 + 4 + varint(len as u64).len() + len)
    };
    for len in (0..300).chain(16_300..16_500) {
        assert!(cost(len, true) <= 2 && cost(len, false) <= 2, "{len}");
    }
    assert_eq!((cost(20, false), cost(100, true), cost(1000, true)), (1, 1, 1));
}

#[test]
fn key_bounds_are_whole_keys_in_order() {
    let record = |least: &[u8], greatest: &[u8]| Record::TreeEdit {
        tree: TreeId(1),
        add: vec![RunEntry {
            bounds: KeyBounds::Keys(least.to_vec(), greatest.to_vec()),
            ..RunEntry::of_rows(FileId(1), CommitSeq(1), Vec::new(), RunStats::default())
        }],
        remove: Vec::new(),
        flushed_to: Lsn(1),
    };
    let key = |bytes: usize, last: u8| [&vec![5; bytes - 1][..], &[last]].concat();
    for (least, greatest) in [
        (Vec::new(), Vec::new()),
        (key(MAX_KEY_BYTES, 1), key(MAX_KEY_BYTES, 2)),
        (key(100, 0xff), vec![0xff; MAX_KEY_BYTES]),
    ] {
        let record = record(&least, &greatest);
        assert_eq!(read(&encoded(&record)), Ok(vec![record]));
    }
    let falls = encoded(&record(&key(100, 2), &key(100, 1)));
    assert_eq!(read(&falls), Err(FormatError::Invalid { what: "key bounds of a run", found: 100 }));
    let (found, max) = (MAX_KEY_BYTES as u64 + 1, MAX_KEY_BYTES as u64);
    let long = Err(FormatError::TooLong { what: "key bound of a run", found, max });
    assert_eq!(read(&encoded(&record(b"", &key(MAX_KEY_BYTES + 1, 0)))), long);
    assert_eq!(read(&encoded(&record(&key(MAX_KEY_BYTES + 1, 0), &[6]))), long);
}

/// A base whose body is changed, sealed again.
fn with_body(base: &[u8], change: impl Fn(&mut Vec<u8>)) -> Vec<u8> {
    let mut body = base[man::MANIFEST_HEADER_BYTES..].to_vec();
    change(&mut body);
    let mut out = [&base[..man::MANIFEST_HEADER_BYTES], &body].concat();
    out[man::manifest_at::BODY_BYTES..][..8].copy_from_slice(&(body.len() as u64).to_le_bytes());
    let sum = xxh3_64_with_seed(&out[8..], man::MANIFEST_MAGIC);
    out[..8].copy_from_slice(&sum.to_le_bytes());
    out
}

#[test]
fn manifest_entries_are_skipped_or_refused() {
    let state = manifest(&mut Rng(5));
    let mut base = Vec::new();
    state.encode(&mut base);
    let add = |first: u8| with_body(&base, |body| body.extend_from_slice(&entry_of(first, b"of tomorrow")));
    assert_eq!(Manifest::decode(&add(UNKNOWN | SKIPPABLE)), Ok(state));
    let unknown = FormatError::Unknown { what: "manifest entry of kind", found: UNKNOWN.into() };
    assert_eq!(Manifest::decode(&add(UNKNOWN)), Err(unknown));
}

#[test]
fn a_folder_that_requires_unknown_features_is_refused() {
    let state = Manifest { required_features: 1 << 9, ..Manifest::default() };
    let mut base = Vec::new();
    state.encode(&mut base);
    let unknown = FormatError::Unknown { what: "required feature bits", found: 1 << 9 };
    assert_eq!(Manifest::decode(&base), Err(unknown));
    assert_eq!(FolderId(*b"0123456789abcdef").to_string(), "30313233-3435-3637-3839-616263646566");
}

#[test]
fn an_edit_that_does_not_follow_is_refused() {
    let state = manifest(&mut Rng(5));
    for (step, good) in [(0, false), (1, true), (2, false)] {
        let mut file = Vec::new();
        state.encode(&mut file);
        file.resize(edit_offset(file.len()), 0);
        let edit = Manifest { generation: state.generation + step, ..state.clone() };
        edit.encode_edit(&[], &[], &mut file);
        assert_eq!(ManifestFile::decode(&file).is_ok(), good, "{step}");
    }
}

proptest! {
    /// Cut or damaged anywhere behind the base, the file gives the last state before that, and says that there was more.
    #[test]
    fn a_torn_manifest_ends_with_its_last_whole_edit(seed: u64, at: usize, flip in 1..=255u8) {
        let (file, states) = manifest_with_edits(&mut Rng(seed));
        let whole = ManifestFile::decode(&file).unwrap();
        prop_assert_eq!((&whole.manifest, whole.edits, &whole.torn), (&states[states.len() - 1], states.len() as u64 - 1, &None));
        // Where each edit begins.
        let mut base = Vec::new();
        states[0].encode(&mut base);
        let from = edit_offset(base.len());
        prop_assume!(file.len() > from);
        let at = from + at % (file.len() - from);
        for damaged in [false, true] {
            let mut bytes = file.clone();
            if damaged { bytes[at] ^= flip } else { bytes.truncate(at) }
            let found = ManifestFile::decode(&bytes).unwrap();
            prop_assert_eq!(&found.manifest, &states[found.edits as usize]);
            match &found.torn {
                Some((torn, _)) => prop_assert!(*torn <= at as u64 && torn % man::EDIT_ALIGN as u64 == 0),
                // Between two edits, or cut where one would begin.
                None if damaged => prop_assert_eq!(found, whole.clone()),
                None => {}
            }
        }
    }
}
