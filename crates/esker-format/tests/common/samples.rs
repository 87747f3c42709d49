//! Random valid inputs of every decoder.

use super::decoders::{entry, layout_for};
use super::{random_entries, random_layout, random_row, run_tail, Rng};
use esker_format::run::Part;
use esker_format::{
    frame, run, BlockEntry, CommitSeq, Compression, FileId, KeyBlockBuilder, KeyBlockEntry, Lsn, Manifest,
    RangeTombstone, Record, RowBlockBuilder, RowFormat, RowId, RunEntry, RunHeader, RunRef, RunStats, SegmentHeader,
    TableEntry, TableId, TableState, TreeId, TxnId, VersionTag,
};
use std::sync::Arc;

fn number(rng: &mut Rng) -> u64 {
    let bits = rng.below(64);
    rng.next() >> bits
}

fn list<T>(rng: &mut Rng, mut one: impl FnMut(&mut Rng) -> T) -> Vec<T> {
    (0..rng.below(4)).map(|_| one(rng)).collect()
}

fn stats(rng: &mut Rng) -> RunStats {
    let mut stats = RunStats::default();
    for i in 0..rng.below(4) {
        let at = number(rng) >> 8;
        let block = BlockEntry { min_ordinal: i, max_seq: CommitSeq(number(rng)), supersedes: 2, ..entry(0, at) };
        stats.add(&block);
    }
    stats
}

fn run_ref(rng: &mut Rng) -> RunRef {
    RunRef { tree: TreeId(number(rng)), file: FileId(number(rng)), stats: stats(rng) }
}

fn run_entry(rng: &mut Rng) -> RunEntry {
    let aborted = list(rng, |r| (number(r), number(r)));
    RunEntry { file: FileId(number(rng)), seq: CommitSeq(number(rng)), stats: stats(rng), aborted }
}

fn table(rng: &mut Rng) -> TableEntry {
    TableEntry {
        id: TableId(number(rng)),
        tree: TreeId(number(rng)),
        name: ["", "db/t", "db/größe"][rng.below(3) as usize].to_owned(),
        layout: Arc::new(random_layout(rng, true)),
        format: if rng.chance(2) { RowFormat::Dynamic } else { RowFormat::Fixed },
        compression: [Compression::None, Compression::Lz4, Compression::Zstd][rng.below(3) as usize],
        created_unix_s: number(rng),
        rebuilt_seq: CommitSeq(number(rng)),
        extra: list(rng, |r| r.next() as u8),
    }
}

pub fn manifest(rng: &mut Rng) -> Manifest {
    Manifest {
        generation: number(rng),
        replay_from: Lsn(number(rng)),
        next_table: TableId(number(rng)),
        next_tree: TreeId(number(rng)),
        next_file: FileId(number(rng)),
        next_txn: TxnId(number(rng)),
        tables: list(rng, |rng| TableState {
            entry: table(rng),
            next_row_id: RowId(number(rng)),
            live_rows: number(rng),
            flushed_to: Lsn(number(rng)),
            runs: list(rng, run_entry),
            range_deletes: list(rng, |r| RangeTombstone {
                up_to: RowId(number(r)),
                as_of: CommitSeq(number(r)),
                seq: CommitSeq(number(r)),
                ordinal: number(r),
            }),
        }),
    }
}

/// A record of each kind, with random content.
pub fn records(rng: &mut Rng) -> Vec<Record<'static>> {
    let txn = TxnId(number(rng));
    let tree = TreeId(number(rng));
    let row = RowId(number(rng));
    let ordinal = number(rng);
    let table_id = TableId(number(rng));
    vec![
        Record::RowPut { txn, ordinal, tree, row, bytes: b"a packed row" },
        Record::RowDelete { txn, ordinal, tree, row },
        Record::RangeDelete { txn, ordinal, tree, up_to: row, as_of: CommitSeq(number(rng)) },
        Record::Prepare {
            txn,
            xid: b"xid",
            attach: list(rng, run_ref),
            aborted: list(rng, |r| (number(r), number(r))),
        },
        Record::Commit { txn, attach: list(rng, run_ref), aborted: list(rng, |r| (number(r), number(r))) },
        Record::Rollback { txn },
        Record::CommitPrepared { txn },
        Record::CreateTable(table(rng)),
        Record::DropTable { table: table_id },
        Record::RenameTable { table: table_id, name: "db/other" },
        Record::TruncateTable { table: table_id, tree },
        Record::TreeEdit {
            tree,
            add: list(rng, run_entry),
            remove: list(rng, |r| FileId(number(r))),
            flushed_to: Lsn(number(rng)),
        },
        Record::RowIdMark { tree, next: row },
    ]
}

fn packed_row(rng: &mut Rng) -> Vec<u8> {
    let seed = rng.next() as u8;
    let (layout, _) = layout_for(seed);
    [&[seed][..], &random_row(&layout, rng, 20)].concat()
}

fn block(rng: &mut Rng) -> Vec<u8> {
    let seed = rng.next() as u8;
    let (layout, format) = layout_for(seed);
    let mut builder = RowBlockBuilder::new(Arc::clone(&layout), format);
    let variety = 1 + rng.below(20);
    let mut id = 0;
    for i in 0..1 + rng.below(80) {
        let tombstone = rng.chance(9);
        let tag = VersionTag { seq: CommitSeq(rng.below(3)), ordinal: i, tombstone, supersedes: rng.chance(3) };
        id += rng.below(3);
        let packed = random_row(&layout, rng, variety);
        builder.push_packed(RowId(id), tag, &packed).unwrap();
    }
    let mut out = vec![seed];
    let compression = [Compression::None, Compression::Lz4, Compression::Zstd][rng.below(3) as usize];
    builder.finish(compression, 1, 5, &mut out);
    out
}

fn key_block(rng: &mut Rng) -> Vec<u8> {
    let mut builder = KeyBlockBuilder::new();
    for (key, row, tag, payload) in random_entries(rng) {
        builder.push(&key, row, tag, &payload).unwrap();
    }
    let mut out = Vec::new();
    let compression = [Compression::None, Compression::Lz4, Compression::Zstd][rng.below(3) as usize];
    builder.finish(compression, 1, 5, &mut out);
    out
}

/// A key bound's entry, as an index has it.
pub fn key_entry(offset: u64, first: &[u8], last: &[u8]) -> KeyBlockEntry {
    KeyBlockEntry { block: entry(offset, offset), first_key: first.to_vec(), last_key: last.to_vec() }
}

fn run_part(rng: &mut Rng) -> Vec<u8> {
    const BASE: u64 = 1 << 20;
    let (file, tree, blocks) = (FileId(3), TreeId(number(rng)), 1 + rng.below(5));
    let (bytes, place) = if rng.chance(3) {
        let keys = random_entries(rng);
        let (first, last) = (&keys[0].0, &keys[keys.len() - 1].0);
        let (bytes, places) = run_tail(file, &[(tree, vec![key_entry(4096, first, last)])], BASE);
        (bytes, places[0])
    } else {
        let entries: Vec<_> = (0..blocks).map(|i| entry(4096 + 100 * i, 3 * i)).collect();
        let (bytes, places) = run_tail(file, &[(tree, entries)], BASE);
        (bytes, places[0])
    };
    let part = &bytes[(place.offset - BASE) as usize..][..place.bytes as usize];
    let decoded = Part::decode(file, 0, &place, part).unwrap();
    let section = |at: usize| {
        let section = decoded.sections[at];
        bytes[(section.offset - BASE) as usize..][..section.bytes as usize].to_vec()
    };
    let directory = (place.offset - BASE) as usize + place.bytes as usize;
    match rng.below(6) {
        0 => {
            let mut out = Vec::new();
            RunHeader { file, folder: [rng.next() as u8; 16], created_unix_s: number(rng) }.encode(&mut out);
            out
        }
        1 => section(0),
        2 => section(1),
        3 => part.to_vec(),
        4 => bytes[directory..directory + run::PART_ENTRY_BYTES].to_vec(),
        _ => bytes[bytes.len() - run::RUN_FOOTER_BYTES..].to_vec(),
    }
}

/// A schema.
fn schema(rng: &mut Rng) -> esker_format::Schema {
    use esker_format::Type;
    (0..1 + rng.next() % 9).fold(esker_format::Schema::new(), |schema, i| {
        let max = (rng.next() % 100_000) as u32;
        let kind = [Type::I64, Type::U64, Type::F64, Type::Text(max), Type::Bytes(max)][(rng.next() % 5) as usize];
        match rng.chance(2) {
            true => schema.nullable(&format!("c{i}"), kind),
            false => schema.column(&format!("c{i}"), kind),
        }
    })
}
/// A valid input of the decoder of this name.
pub fn valid(decoder: &str, rng: &mut Rng) -> Vec<u8> {
    let mut out = Vec::new();
    match decoder {
        "layout" => random_layout(rng, true).encode(&mut out),
        "schema" => schema(rng).encode(&mut out),
        "packed_row" => out = packed_row(rng),
        "block" => out = block(rng),
        "key_block" => out = key_block(rng),
        "run" => out = run_part(rng),
        "record" => records(rng).iter().filter(|_| rng.chance(3)).for_each(|r| r.encode(&mut out)),
        "frame" if rng.chance(4) => {
            SegmentHeader { generation: rng.next() as u32, first_lsn: Lsn(number(rng)) }.encode(&mut out);
        }
        "frame" => {
            let payload = packed_row(rng);
            frame::encode_frame(Lsn(number(rng)), rng.next() as u32, &payload, &mut out);
        }
        _ => manifest(rng).encode(&mut out),
    }
    out
}

/// The bytes with a few random changes.
pub fn mutate(bytes: &mut Vec<u8>, rng: &mut Rng) {
    for _ in 0..1 + rng.below(4) {
        let n = bytes.len() as u64;
        if n == 0 {
            return;
        }
        let at = rng.below(n) as usize;
        match rng.below(8) {
            0 => bytes.truncate(at),
            1 => bytes[at] = 0xff,
            2 => bytes[at] = 0,
            3 => bytes[at] = bytes[at].wrapping_add(1),
            4 => bytes.insert(at, rng.next() as u8),
            5 => {
                bytes.remove(at);
            }
            6 => {
                let from = rng.below(n) as usize;
                let len = (rng.below(9) as usize).min(bytes.len() - at.max(from));
                bytes.copy_within(from..from + len, at);
            }
            _ => bytes[at] ^= 1 << rng.below(8),
        }
    }
}
