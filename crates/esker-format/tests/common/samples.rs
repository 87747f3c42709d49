//! Random valid inputs of every decoder.

use super::decoders::{entry, layout_for};
use super::keys::{random_index, random_values, with_image, TwoCollations};
use super::{encode_frame, random_entries, random_layout, random_row, run_tail, Rng};
use esker_format::manifest::edit_offset;
use esker_format::run::{Part, RowIdSet};
use esker_format::{
    run, BlockEntry, CommitSeq, Compression, FileId, FolderId, IndexEntry, IndexState, IndexStatistics,
    KeyBlockBuilder, KeyBlockEntry, KeyBounds, KeyCodec, KeyPart, LayoutVersion, Lsn, Manifest, PreparedEntry,
    RangeTombstone, Record, RowBlockBuilder, RowFormat, RowId, RunEntry, RunHeader, RunOrigin, RunRef, RunStats,
    SegmentHeader, TableEntry, TableId, TableState, TreeEntry, TreeId, TreeKind, TreeState, TxnId, VersionTag,
};
use std::ops::Range;
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

fn bytes(rng: &mut Rng, most: u64) -> Vec<u8> {
    (0..rng.below(most + 1)).map(|_| if rng.chance(3) { 0xff } else { rng.next() as u8 }).collect()
}

fn bounds(rng: &mut Rng, stats: &RunStats) -> KeyBounds {
    if rng.chance(2) {
        return KeyBounds::of_rows(stats);
    }
    let shared = bytes(rng, 80);
    let (a, b) = ([&shared[..], &bytes(rng, 9)].concat(), [&shared[..], &bytes(rng, 9)].concat());
    KeyBounds::Keys((&a).min(&b).clone(), a.max(b))
}

fn folder(rng: &mut Rng) -> FolderId {
    FolderId(std::array::from_fn(|_| rng.next() as u8))
}

fn run_entry(rng: &mut Rng) -> RunEntry {
    let stats = stats(rng);
    RunEntry {
        origin: rng.chance(3).then(|| RunOrigin { folder: folder(rng), tree: TreeId(number(rng)) }),
        part: rng.below(3) as u32,
        layout: rng.below(3) as u32,
        bounds: bounds(rng, &stats),
        ..RunEntry::of_rows(FileId(number(rng)), CommitSeq(number(rng)), ranges(rng), stats)
    }
}

fn run_ref(rng: &mut Rng) -> RunRef {
    RunRef { tree: TreeId(number(rng)), run: run_entry(rng) }
}

fn ranges(rng: &mut Rng) -> Vec<Range<u64>> {
    list(rng, |r| number(r)..number(r))
}

fn index(rng: &mut Rng) -> IndexEntry {
    IndexEntry {
        id: number(rng) as u32,
        name: ["PRIMARY", "nach größe"][rng.below(2) as usize].to_owned(),
        unique: rng.chance(2),
        parts: list(rng, |r| KeyPart {
            column: r.below(9) as u32,
            prefix_bytes: r.below(2) as u32 * 20,
            descending: r.chance(2),
            encoding: r.below(300) as u32,
            collation: r.below(300) as u32,
        }),
        state: [IndexState::Building, IndexState::Ready, IndexState::Leaving][rng.below(3) as usize],
        usable_from: CommitSeq(number(rng)),
        weights: 0,
    }
}

fn layout_version(rng: &mut Rng, number: u32) -> LayoutVersion {
    let mut version = LayoutVersion::first(Arc::new(random_layout(rng, true)));
    version.number = number;
    for column in &mut version.columns {
        column.id += number;
        column.default = rng.chance(2).then(|| bytes(rng, 9));
    }
    version
}

fn table(rng: &mut Rng) -> TableEntry {
    let rows = TreeEntry { id: TreeId(number(rng)), kind: TreeKind::Rows };
    let mut trees = list(rng, |r| TreeEntry { id: TreeId(number(r)), kind: TreeKind::Keys(index(r)) });
    trees.insert(rng.below(trees.len() as u64 + 1) as usize, rows);
    let older = rng.below(3) as u32;
    TableEntry {
        id: TableId(number(rng)),
        name: ["", "db/t", "db/größe"][rng.below(3) as usize].to_owned(),
        trees,
        layout: layout_version(rng, older),
        older_layouts: (0..older).map(|n| layout_version(rng, n)).collect(),
        format: if rng.chance(2) { RowFormat::Dynamic } else { RowFormat::Fixed },
        compression: [Compression::None, Compression::Lz4, Compression::Zstd][rng.below(3) as usize],
        created_unix_s: number(rng),
        rebuilt_seq: CommitSeq(number(rng)),
        extra: list(rng, |r| r.next() as u8),
    }
}

fn index_statistics(rng: &mut Rng, tree: TreeId) -> IndexStatistics {
    IndexStatistics { tree, analyzed_unix_s: number(rng), rows: number(rng), groups: list(rng, number) }
}

/// Of some of the table's trees. By numbers of their own: without them the sample is what it was before there were any.
fn statistics(entry: &TableEntry) -> Vec<IndexStatistics> {
    let rng = &mut Rng(entry.id.0 | 1);
    let trees = entry.trees.iter().filter(|t| t.kind != TreeKind::Rows).map(|t| t.id);
    trees.filter(|_| !rng.chance(4)).collect::<Vec<_>>().into_iter().map(|tree| index_statistics(rng, tree)).collect()
}

fn table_state(rng: &mut Rng) -> TableState {
    let entry = table(rng);
    let trees = entry.trees.iter().map(|t| t.id);
    TableState {
        next_row_id: RowId(number(rng)),
        next_auto_increment: number(rng),
        live_rows: number(rng),
        counted_at: CommitSeq(number(rng)),
        range_deletes: list(rng, |r| RangeTombstone {
            up_to: RowId(number(r)),
            as_of: CommitSeq(number(r)),
            seq: CommitSeq(number(r)),
            ordinal: number(r),
        }),
        trees: trees.map(|tree| TreeState { tree, flushed_to: Lsn(number(rng)), runs: list(rng, run_entry) }).collect(),
        statistics: statistics(&entry),
        entry,
    }
}

pub fn manifest(rng: &mut Rng) -> Manifest {
    Manifest {
        folder: folder(rng),
        required_features: 0,
        generation: number(rng) >> 1,
        replay_from: Lsn(number(rng)),
        next_table: TableId(number(rng)),
        next_tree: TreeId(number(rng)),
        next_file: FileId(number(rng)),
        next_txn: TxnId(number(rng)),
        prepared: list(rng, |r| PreparedEntry { txn: TxnId(number(r)), xid: bytes(r, 20), logged_at: Lsn(number(r)) }),
        tables: list(rng, table_state).into_iter().map(|t| (t.entry.id, t)).collect(),
    }
}

/// With it [`manifest_with_edits`] makes tables and several edits.
pub const WITH_EDITS: u64 = 2;
/// With it the last of its states has a table with statistics of several indexes.
pub const WITH_STATISTICS: u64 = 7;

/// A manifest's file with a few edits, and the state before the first of them and behind each.
pub fn manifest_with_edits(rng: &mut Rng) -> (Vec<u8>, Vec<Manifest>) {
    let mut state = manifest(rng);
    let mut file = Vec::new();
    state.encode(&mut file);
    let mut states = vec![state.clone()];
    for _ in 0..rng.below(4) {
        let gone: Vec<_> = state.tables.keys().copied().filter(|_| rng.chance(3)).collect();
        let edit = Manifest { folder: state.folder, generation: state.generation + 1, ..manifest(rng) };
        gone.iter().for_each(|id| drop(state.tables.remove(id)));
        state.tables.extend(edit.tables.clone());
        state = Manifest { tables: state.tables, ..edit.clone() };
        file.resize(edit_offset(file.len()), 0);
        let changed: Vec<_> = edit.tables.values().collect();
        state.encode_edit(&changed, &gone, &mut file);
        states.push(state.clone());
    }
    (file, states)
}

/// A record of each kind, with random content.
pub fn records(rng: &mut Rng) -> Vec<Record<'static>> {
    let txn = TxnId(number(rng));
    let tree = TreeId(number(rng));
    let row = RowId(number(rng));
    let ordinal = number(rng);
    let table_id = TableId(number(rng));
    let (supersedes, layout) = (rng.chance(2), rng.below(2) as u32 * 200);
    let (key, payload) = (&b"memcomparable"[..], &b"beside"[..]);
    vec![
        Record::RowPut { txn, ordinal, tree, row, supersedes, layout, bytes: b"a packed row" },
        Record::RowDelete { txn, ordinal, tree, row },
        Record::KeyPut { txn, ordinal, tree, row, key, payload },
        Record::KeyDelete { txn, ordinal, tree, row, key },
        Record::RangeDelete { txn, ordinal, table: table_id, up_to: row, as_of: CommitSeq(number(rng)) },
        Record::Prepare {
            txn,
            xid: b"xid",
            attach: list(rng, run_ref),
            aborted: ranges(rng),
            deltas: list(rng, |r| (TableId(number(r)), number(r) as i64)),
        },
        Record::Commit {
            txn,
            attach: list(rng, run_ref),
            aborted: ranges(rng),
            deltas: list(rng, |r| (TableId(number(r)), number(r) as i64)),
        },
        Record::Rollback { txn },
        Record::CommitPrepared { txn },
        Record::CreateTable(table(rng)),
        Record::DropTable { table: table_id },
        Record::RenameTable { table: table_id, name: "db/other" },
        Record::TruncateTable { table: table_id, trees: list(rng, |r| (TreeId(number(r)), TreeId(number(r)))) },
        Record::TreeEdit {
            tree,
            add: list(rng, run_entry),
            remove: list(rng, |r| FileId(number(r))),
            flushed_to: Lsn(number(rng)),
        },
        Record::RowIdMark { tree, next: row },
        Record::AutoIncrementMark { table: table_id, next: number(rng) },
        Record::CreateSnapshot {
            id: number(rng),
            name: "before the import",
            seq: CommitSeq(number(rng)),
            created_unix_s: number(rng),
        },
        Record::DropSnapshot { id: number(rng) },
        Record::AlterIndexes { table: table_id, trees: table(rng).trees, attach: list(rng, run_ref) },
        Record::IndexStatistics {
            table: table_id,
            statistics: list(rng, |r| {
                let tree = TreeId(number(r));
                index_statistics(r, tree)
            }),
        },
    ]
}

pub fn segment_header(rng: &mut Rng) -> SegmentHeader {
    let generation = rng.next() as u32;
    let tag = if rng.next() % 2 == 0 { generation } else { rng.next() as u32 };
    SegmentHeader { generation, tag, first_lsn: Lsn(number(rng)), folder: folder(rng) }
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
    builder.finish(compression, 1, 5, &mut out).unwrap();
    out
}

fn key_block(rng: &mut Rng) -> Vec<u8> {
    let mut builder = KeyBlockBuilder::new();
    for (key, row, tag, payload) in random_entries(rng) {
        builder.push(&key, row, tag, &payload).unwrap();
    }
    let mut out = Vec::new();
    let compression = [Compression::None, Compression::Lz4, Compression::Zstd][rng.below(3) as usize];
    builder.finish(compression, 1, 5, &mut out).unwrap();
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
    let decoded = Part::decode(file, 0, &[place], part).unwrap();
    let section = |at: usize| {
        let section = decoded.sections[at];
        bytes[(section.offset - BASE) as usize..][..section.bytes as usize].to_vec()
    };
    let directory = (place.offset - BASE) as usize + place.bytes as usize;
    match rng.below(6) {
        0 => {
            let mut out = Vec::new();
            RunHeader { file, folder: folder(rng), created_unix_s: number(rng) }.encode(&mut out);
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
fn key_bytes(rng: &mut Rng) -> Vec<u8> {
    let seed = rng.next() as u8;
    let (layout, index) = random_index(&mut Rng(seed.into()));
    let codec = KeyCodec::new(&index, &layout, |column| Some(column as usize), &TwoCollations).unwrap();
    let (mut key, mut payload) = (Vec::new(), Vec::new());
    with_image(&layout, &random_values(&layout, &index, rng), |image| {
        // SAFETY: the image is of this layout.
        unsafe {
            codec.key_of_image(image.as_ptr(), &TwoCollations, &mut key).unwrap();
            codec.payload_of_image(image.as_ptr(), &mut payload);
        }
    });
    [&[seed, payload.len() as u8][..], &payload, &key].concat()
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
        "key_bytes" => out = key_bytes(rng),
        "run" => out = run_part(rng),
        "row_ids" => out = row_ids(rng),
        "record" => records(rng).iter().filter(|_| rng.chance(3)).for_each(|r| r.encode(&mut out)),
        "frame" if rng.chance(4) => {
            segment_header(rng).encode(&mut out);
        }
        "frame" => {
            let payload = packed_row(rng);
            encode_frame(Lsn(number(rng)), rng.next() as u32, &payload, &mut out);
        }
        _ => out = manifest_with_edits(rng).0,
    }
    out
}

/// Rows in a few places, dense or not.
fn row_ids(rng: &mut Rng) -> Vec<u8> {
    let (mut set, mut id) = (RowIdSet::default(), rng.below(1 << 20));
    for _ in 0..1 + rng.below(4) {
        let step = [1, 1, 2, 50, 70_000][rng.below(5) as usize];
        let most = if step == 1 && rng.chance(3) { 200_000 } else { 9000 };
        for _ in 0..rng.below(most) {
            set.add(RowId(id));
            id += if step == 1 { 1 } else { 1 + rng.below(step) };
        }
        id += rng.below(1 << 40);
    }
    set.add(RowId(id));
    set.finish()
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
