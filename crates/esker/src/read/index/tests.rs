//! Reads by an index against a model; how much they read; what locking reads wait for.

mod alike;
mod amount;
mod chosen;
mod followed;
mod locked;
mod model;
mod near;
mod read_ahead;
mod seeks;
mod snapshot;
mod whole_keys;

use super::*;
use crate::tests::support::{open_with, options, table};
use crate::write::keys::Entry;
use crate::{Collations, Engine, IndexDef, KeyPart, LockMode, Options, TableDef};
use esker_format::key_bytes::{append_row, key_encoding};
use esker_format::{Column, ColumnKind, ColumnMask, Layout, NullBit};
use esker_io::SimDisk;

/// What a row has: a number that no other has, one of few that may be NULL, a text that may be.
type Values = (u64, Option<i32>, Option<Vec<u8>>);

/// The longest text.
const TEXT: u32 = 120;
/// The places of the columns in the layout.
const NUMBER: usize = 0;
const FEW: usize = 1;
const NAME: usize = 2;
/// Indexes of the table.
const BY_FEW: usize = 0;
const BY_NAME: usize = 1;

/// Letters weigh the same in either case.
#[derive(Debug)]
struct NoCase;

impl Collations for NoCase {
    fn weights(&self, _: u32, value: &[u8], _: u32, weights: &mut Vec<u8>) -> std::result::Result<(), FormatError> {
        weights.extend(value.iter().map(u8::to_ascii_uppercase));
        Ok(())
    }
}

/// A table with an index that is not unique, over a descending number, and a unique one over text and number.
fn def() -> TableDef {
    let null = |mask| Some(NullBit { byte: 0, mask });
    let column = |kind, offset, null| Column { kind, offset, null };
    let columns = vec![
        column(ColumnKind::Fixed { width: 8 }, 1, None),
        column(ColumnKind::Fixed { width: 4 }, 9, null(1)),
        column(ColumnKind::Var { len_bytes: 1, max: TEXT }, 13, null(2)),
        column(ColumnKind::Fixed { width: 16 }, 14 + TEXT, None),
    ];
    let part = |column, encoding, descending| {
        let collation = u32::from(encoding == key_encoding::WEIGHTS);
        KeyPart { column, prefix_bytes: 0, descending, encoding, collation }
    };
    let few = vec![part(FEW as u32, key_encoding::SIGNED, true)];
    let name = vec![part(NAME as u32, key_encoding::WEIGHTS, false), part(0, key_encoding::UNSIGNED, true)];
    let indexes = vec![
        IndexDef { name: "few".into(), unique: false, parts: few },
        IndexDef { name: "name".into(), unique: true, parts: name },
    ];
    TableDef { indexes, ..table(Layout { image_bytes: 30 + TEXT, head_bytes: 1, columns }) }
}

fn small_blocks() -> Options {
    Options { run_bytes: 24 << 10, block_bytes: 1 << 10, collations: Arc::new(NoCase), ..options() }
}

fn made(options: Options) -> (SimDisk, Engine, Arc<Table>) {
    let disk = SimDisk::new(1);
    let e = open_with(&disk, options).unwrap();
    e.create_table("t", &def()).unwrap();
    let t = e.open_table("t").unwrap();
    (disk, e, t)
}

fn image((number, few, name): &Values) -> Vec<u8> {
    let mut image = vec![0; (30 + TEXT) as usize];
    image[0] = u8::from(few.is_none()) | (u8::from(name.is_none()) << 1);
    image[1..9].copy_from_slice(&number.to_le_bytes());
    image[9..13].copy_from_slice(&few.unwrap_or(0).to_le_bytes());
    let name = name.as_deref().unwrap_or_default();
    image[13] = name.len() as u8;
    image[14..14 + name.len()].copy_from_slice(name);
    image
}

/// The values in an image, of the columns that were asked for.
fn values_of(image: &[u8], mask: &ColumnMask) -> Values {
    let number = if mask.get(NUMBER) { u64::from_le_bytes(image[1..9].try_into().unwrap()) } else { 0 };
    let few = (mask.get(FEW) && image[0] & 1 == 0).then(|| i32::from_le_bytes(image[9..13].try_into().unwrap()));
    let name = (mask.get(NAME) && image[0] & 2 == 0).then(|| image[14..14 + image[13] as usize].to_vec());
    (number, few, name)
}

/// Those that are asked for.
fn masked((number, few, name): &Values, mask: &ColumnMask) -> Values {
    let number = if mask.get(NUMBER) { *number } else { 0 };
    (number, few.filter(|_| mask.get(FEW)), name.clone().filter(|_| mask.get(NAME)))
}

/// Key and payload of a row in an index.
fn entry_of(t: &Table, index: usize, row: RowId, values: &Values) -> (Vec<u8>, Vec<u8>) {
    let (image, mut key, mut payload) = (image(values), Vec::new(), Vec::new());
    let definition = t.trees().index(index).unwrap().clone();
    let codec = definition.codec().unwrap();
    // SAFETY: an image of this layout.
    let has_null = unsafe {
        codec.payload_of_image(image.as_ptr(), &mut payload);
        codec.key_of_image(image.as_ptr(), &*definition.collations, &mut key).unwrap()
    };
    if has_null || !definition.entry.unique {
        append_row(&mut key, row);
    }
    (key, payload)
}

fn insert(s: &mut Session, t: &Arc<Table>, values: &Values) -> RowId {
    // SAFETY: an image of this layout.
    unsafe { s.insert_image(t, image(values).as_ptr()).unwrap() }
}

fn update(s: &mut Session, t: &Arc<Table>, row: RowId, new: &Values) {
    // SAFETY: an image of this layout.
    unsafe { s.update_image(t, row, image(new).as_ptr()).unwrap() };
}

/// A key, its row, and what was asked for of it.
type Given = (Vec<u8>, RowId, Values);

/// The rows of a batch.
fn given(batch: &IndexBatch<'_>, mask: &ColumnMask) -> Vec<Given> {
    let row = |at: usize| {
        // SAFETY: an image for each id.
        let image = unsafe { std::slice::from_raw_parts(batch.images.add(at * batch.stride), batch.stride) };
        (batch.key(at).to_vec(), batch.ids[at], values_of(image, mask))
    };
    (0..batch.ids.len()).map(row).collect()
}

/// All that a cursor gives from here on.
fn rest(s: &mut Session, c: &mut IndexCursor, mask: &ColumnMask) -> Vec<Given> {
    let mut all = Vec::new();
    loop {
        match given(&c.next_batch(s).unwrap(), mask) {
            rows if rows.is_empty() => return all,
            rows => all.extend(rows),
        }
    }
}

fn mask_of(columns: &[usize]) -> ColumnMask {
    let mut mask = ColumnMask::none(4);
    columns.iter().for_each(|c| mask.set(*c));
    mask
}

fn plain(mask: &ColumnMask) -> ScanOptions {
    ScanOptions { mask: mask.clone(), ..ScanOptions::default() }
}

fn locking() -> ScanOptions {
    ScanOptions { mask: mask_of(&[NUMBER, FEW, NAME]), lock: Some(LockMode::Exclusive), ..ScanOptions::default() }
}

/// A key of the index over few numbers begins with these bytes.
fn few(n: i32) -> Vec<u8> {
    let mut key = vec![!1];
    key.extend((n as u32 ^ 0x8000_0000).to_be_bytes().map(|b| !b));
    key
}

#[test]
fn an_index_that_is_not_kept_is_not_read() {
    let (_disk, e, _) = made(small_blocks());
    e.sim_create_table("u", &table(def().layout), &[crate::tests::keys::index(1)]).unwrap();
    let t = e.open_table("u").unwrap();
    let mut s = e.session();
    for index in 0..2 {
        let answer = s.open_index_cursor(&t, index, plain(&mask_of(&[])));
        assert!(matches!(answer, Err(Error::InvalidArgument(_))));
    }
}

#[test]
fn ranges_are_of_prefixes_and_of_what_is_left() {
    let range = |from: &[u8], to: Option<&[u8]>| KeyRange { from: from.to_vec(), to: to.map(<[u8]>::to_vec) };
    assert_eq!(KeyRange::of_prefix(b"a\xff"), range(b"a\xff", Some(b"b")));
    assert_eq!(KeyRange::of_prefix(b"\xff"), range(b"\xff", None));
    let all = range(b"b", Some(b"f"));
    assert_eq!(all.rest(b"c", Direction::Forward), range(b"c\0", Some(b"f")));
    assert_eq!(all.rest(b"a", Direction::Forward), all);
    assert_eq!(all.rest(b"c", Direction::Backward), range(b"b", Some(b"c")));
    assert_eq!(all.rest(b"g", Direction::Backward), all);
    assert!(all.rest(b"b", Direction::Backward).is_empty() && !all.rest_with(b"b", Direction::Backward).is_empty());
}
