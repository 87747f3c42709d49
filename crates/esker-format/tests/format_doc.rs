//! docs/FORMAT.md says what the code does: every offset, length and number in its tables is compared with the constants.
#![allow(clippy::unwrap_used)]

use esker_format::{block, catalog, frame, index, key_block, key_bytes, manifest, record, run, run_entry, schema};

const DOC: &str = include_str!("../../../docs/FORMAT.md");

/// The rows of the table that follows the marker: its first cells.
fn table(marker: &str) -> Vec<Vec<&'static str>> {
    let (_, rest) = DOC.split_once(&format!("<!-- {marker} -->\n")).unwrap_or_else(|| panic!("no {marker}"));
    rest.lines()
        .take_while(|line| line.starts_with('|'))
        .skip(2)
        .map(|line| line.split('|').skip(1).map(str::trim).collect())
        .collect()
}

/// Checks that a table lists exactly these offsets, and that its fields neither overlap nor (unless `gaps`) leave gaps.
fn check_offsets(name: &str, expected: &[(&str, usize)], total: usize, gaps: bool) {
    let rows = table(&format!("table {name}"));
    let number = |cell: &str| cell.parse::<usize>().unwrap_or_else(|_| panic!("{name}: {cell} is no number"));
    let found: Vec<_> = rows.iter().map(|row| (row[2], number(row[0]))).collect();
    assert_eq!(found, expected, "table {name}");
    let mut end = 0;
    for row in &rows {
        let at = number(row[0]);
        assert!(at == end || (gaps && at > end), "{name}: {} begins at {at}, not at {end}", row[2]);
        end = at + number(row[1]);
    }
    assert!(end == total || (gaps && end < total), "{name} ends at {end}, not at {total}");
}

/// Checks that a table lists exactly these numbers.
fn check_numbers(name: &str, expected: &[(&str, u32)]) {
    let rows = table(&format!("numbers {name}"));
    let found: Vec<_> = rows.iter().map(|row| (row[1], row[0].parse::<u32>().unwrap())).collect();
    assert_eq!(found, expected, "numbers {name}");
}

macro_rules! names {
    ($a:ident::$b:ident: $($name:ident)*) => {
        &[$((stringify!($name), $a::$b::$name.into())),*]
    };
}

macro_rules! flags {
    ($a:ident::$b:ident: $($name:ident)*) => {
        &[$((stringify!($name), $a::$b::$name as u32)),*]
    };
}

#[test]
fn blocks() {
    let at = names!(block::block_at: CHECKSUM MAGIC VERSION FORMAT ZERO STORED_BYTES ROWS FIRST_ID LAST_ID MIN_SEQ MAX_SEQ
        TOMBSTONES SUPERSEDES RAW_BYTES FLAGS REQUIRED SEGMENTS KEY_ID KEY_VERSION AUTH_TAG RESERVED DIRECTORY);
    check_offsets("block_at", at, block::BLOCK_HEADER_BYTES, false);
    let at = names!(block::segment_at: KIND ENCODING COMPRESSION ZERO COLUMN UNIT OFFSET STORED_BYTES RAW_BYTES
        CHECKSUM);
    check_offsets("block::segment_at", at, block::SEGMENT_ENTRY_BYTES, false);
    check_numbers("flags", names!(block::flags: IDS_UNIQUE IDS_DENSE SEQ_ZERO SEQ_UNIFORM ORDINALS_DENSE));
    check_numbers("block_features", flags!(block::features: DELTA_WIDTHS));
    check_numbers("column_type", names!(schema::column_type: I64 U64 F64 TEXT BYTES));
    check_numbers(
        "segment_kind",
        names!(block::segment_kind: IDS SEQS ORDINALS TOMBSTONES SUPERSEDES HEADS IMAGES COLUMN
        SHARED KEYS PAYLOADS),
    );
    check_numbers(
        "encoding",
        names!(block::encoding: EMPTY CONSTANT UNIFORM VAR INT_CONSTANT INT_LINEAR INT_DELTA BITMAP OUTSIDE),
    );
}

#[test]
fn runs() {
    let at = names!(run::header_at: MAGIC CHECKSUM VERSION REQUIRED FILE FOLDER CREATED KEY_ID KEY_VERSION);
    check_offsets("header_at", at, run::RUN_HEADER_BYTES, true);
    let at = names!(run::leaf_at: CHECKSUM MAGIC BLOCKS ZERO ENTRIES);
    check_offsets("leaf_at", at, run::LEAF_HEADER_BYTES, false);
    let at = names!(run::entry_at: OFFSET STORED_BYTES ROWS FIRST_ID LAST_ID MIN_SEQ MAX_SEQ MIN_ORDINAL MAX_ORDINAL
        TOMBSTONES SUPERSEDES RAW_BYTES FLAGS FIRST_KEY_BYTES LAST_KEY_BYTES ZERO KEYS);
    check_offsets("entry_at", at, run::INDEX_ENTRY_BYTES, false);
    let at = names!(run::top_at: OFFSET BYTES BLOCKS FIRST_ID LAST_ID FIRST_KEY_BYTES LAST_KEY_BYTES ZERO KEYS);
    check_offsets("top_at", at, run::TOP_ENTRY_BYTES, false);
    let at = names!(run::part_at: CHECKSUM MAGIC VERSION PART FILE TREE FINGERPRINT FIRST_BLOCK BLOCK_KIND ZERO SECTIONS
        TABLE);
    check_offsets("part_at", at, run::PART_FOOTER_BYTES, false);
    let at = names!(run::section_at: KIND VERSION REQUIRED ZERO OFFSET BYTES CHECKSUM);
    check_offsets("section_at", at, run::SECTION_ENTRY_BYTES, false);
    check_numbers(
        "section_kind",
        names!(run::section_kind: INDEX_LEAVES INDEX_TOP STATISTICS FILTERS ROW_IDS ROW_FILTERS),
    );
    check_numbers("container_kind", names!(run::container_kind: FULL RANGES LIST BITS));
    let at = names!(run::place_at: TREE OFFSET BYTES ZERO);
    check_offsets("place_at", at, run::PART_ENTRY_BYTES, false);
    let at = names!(run::footer_at: CHECKSUM MAGIC VERSION PARTS FILE DIRECTORY_OFFSET DIRECTORY_SUM);
    check_offsets("footer_at", at, run::RUN_FOOTER_BYTES, true);
    assert_eq!((run::LEAF_BYTES, run::BOUND_BYTES, run::SECTION_VERSION), (4096, 64, 1));
    assert_eq!((run::MAX_PARTS, run::MAX_SECTIONS), (1_048_576, 65_536));
    assert!(DOC.contains("at most 4096 bytes") && DOC.contains("first 64 bytes"));
    assert!(DOC.contains("at most 1048576 parts") && DOC.contains("at most 65536 sections"));
}

#[test]
fn log_and_manifest() {
    let at = names!(frame::segment_at: CHECKSUM MAGIC VERSION GENERATION FIRST_LSN FOLDER REQUIRED_FEATURES KEY
        KEY_VERSION TAG);
    check_offsets("frame::segment_at", at, frame::SEGMENT_HEADER_BYTES, true);
    let at = names!(frame::frame_at: CHECKSUM LEN TAG LSN PAYLOAD);
    check_offsets("frame_at", at, frame::FRAME_HEADER_BYTES, false);
    let at = names!(manifest::manifest_at: CHECKSUM MAGIC VERSION ZERO BODY_BYTES BODY);
    check_offsets("manifest_at", at, manifest::MANIFEST_HEADER_BYTES, false);
    let at = names!(manifest::edit_at: CHECKSUM MAGIC BODY_BYTES BODY);
    check_offsets("edit_at", at, manifest::EDIT_HEADER_BYTES, false);
    assert!(DOC.contains("at most 1 GiB in all") && manifest::MAX_MANIFEST_BYTES == 1 << 30);
    check_numbers("manifest_kind", names!(manifest::manifest_kind: FOLDER NUMBERS TABLE TABLE_GONE PREPARED));
    check_numbers(
        "kind",
        names!(record::kind: PADDING ROW_PUT ROW_DELETE RANGE_DELETE PREPARE COMMIT ROLLBACK COMMIT_PREPARED CREATE_TABLE
            DROP_TABLE RENAME_TABLE TRUNCATE_TABLE TREE_EDIT ROW_ID_MARK KEY_PUT KEY_DELETE AUTO_INCREMENT_MARK
            CREATE_SNAPSHOT DROP_SNAPSHOT ALTER_INDEXES INDEX_STATISTICS),
    );
    check_numbers("put_flags", flags!(record::put_flags: SUPERSEDES LAYOUT));
}

#[test]
fn catalog() {
    check_numbers("run_flags", flags!(run_entry::run_flags: ORIGIN KEYS));
    check_numbers("tree_kind", names!(catalog::tree_kind: ROWS KEYS));
    let numbers = names!(key_bytes::key_encoding: UNSIGNED SIGNED FLOAT FIXED BYTES WEIGHTS PADDED_WEIGHTS);
    check_numbers("key_encoding", numbers);
    check_numbers("index_flags", flags!(index::index_flags: UNIQUE));
    check_numbers("part_flags", flags!(index::part_flags: DESCENDING));
    check_numbers("index_state", names!(index::index_state: BUILDING READY LEAVING));
    assert!(DOC.contains("whole keys of at most 65535 bytes each") && key_block::MAX_KEY_BYTES == 65535);
    assert!(DOC.contains("next multiple of 4096 bytes of the file") && manifest::EDIT_ALIGN == 4096);
    assert_eq!((manifest::KNOWN_FEATURES, frame::KNOWN_FEATURES, frame::TAGGED), (0, 1, 1));
}

#[test]
fn limits_and_magic_numbers() {
    assert_eq!(esker_format::MAX_ROW_BYTES, 64 << 20);
    assert_eq!((esker_format::MAX_BLOCK_BYTES, frame::MAX_PAYLOAD_BYTES), (128 << 20, 128 << 20));
    assert!(DOC.contains("a row is at most 64 MiB, a block (stored, and before compression) and a log"));
    assert_eq!(block::MAX_BLOCK_ROWS, 1_048_576);
    assert_eq!((key_block::MAX_KEY_BYTES, key_block::MAX_KEY_PAYLOAD_BYTES), (65535, 65535));
    assert!(DOC.contains("at most 65535 bytes long") && DOC.contains("at most 65535 bytes"));
    let magics = [
        ("ESKRUN", run::RUN_MAGIC),
        ("ESKRIX", run::INDEX_MAGIC),
        ("ESKRPT", run::PART_MAGIC),
        ("ESKRFT", run::FOOTER_MAGIC),
        ("ESKWAL", frame::SEGMENT_MAGIC),
        ("ESKMAN", manifest::MANIFEST_MAGIC),
        ("ESKMED", manifest::EDIT_MAGIC),
        ("EBLK", block::BLOCK_MAGIC.into()),
        ("EKBL", block::KEY_BLOCK_MAGIC.into()),
    ];
    for (text, magic) in magics {
        assert!(DOC.contains(&format!("`{text}`")), "{text}");
        assert_eq!(std::str::from_utf8(&magic.to_le_bytes()).unwrap().trim_end_matches('\0'), text);
    }
    let versions = [u32::from(block::BLOCK_VERSION), run::RUN_VERSION, frame::WAL_VERSION, manifest::MANIFEST_VERSION];
    assert!(versions.iter().all(|&v| DOC.contains(&format!("format version {v}"))));
}
