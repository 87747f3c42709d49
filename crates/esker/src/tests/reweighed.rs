//! An index whose strings weigh otherwise since a new version of the front end: nobody reads or writes by it, nothing is lost.

use crate::tests::indexes::{def, image, Row};
use crate::tests::support::{begin, count, make, open_with, options, table};
use crate::*;
use esker_format::key_bytes::key_encoding;
use esker_format::{Column, ColumnKind, FormatError, Layout};
use esker_io::SimDisk;
use std::sync::Arc;

/// Strings weigh their bytes; the version of all collations.
#[derive(Debug)]
struct Version(u64);

impl Collations for Version {
    fn weights(&self, _: u32, value: &[u8], _: u32, weights: &mut Vec<u8>) -> std::result::Result<(), FormatError> {
        weights.extend_from_slice(value);
        Ok(())
    }

    fn version(&self, collation: u32) -> u64 {
        self.0 * u64::from(collation)
    }
}

fn open(disk: &SimDisk, version: u64) -> Engine {
    open_with(disk, Options { collations: Arc::new(Version(version)), ..options() }).unwrap()
}

fn insert(e: &Engine, a: u32) -> Result<()> {
    let t = e.open_table("t")?;
    let mut s = e.session();
    begin(&mut s);
    // SAFETY: an image of this layout.
    unsafe { s.insert_image(&t, image(&Row { a, c: None, text: b"x".to_vec() }).as_ptr()) }?;
    s.commit().map(drop)
}

fn rows(e: &Engine) -> u64 {
    let mut s = e.session();
    begin(&mut s);
    s.count_rows(&e.open_table("t").unwrap()).unwrap()
}

/// By the index over text, which has weights, and by one that has none.
fn reads(e: &Engine) -> [Result<bool>; 2] {
    let t = e.open_table("t").unwrap();
    [1, 0].map(|index| {
        let mut s = e.session();
        begin(&mut s);
        s.check_index(&t, index).map(|report| report.wrong.is_empty())
    })
}

/// Strings weigh their first byte.
#[derive(Debug)]
struct First;

impl Collations for First {
    fn weights(&self, _: u32, value: &[u8], _: u32, weights: &mut Vec<u8>) -> std::result::Result<(), FormatError> {
        weights.extend(value.first());
        Ok(())
    }
}

/// A string may weigh little and be longer than an entry can tell: its row is refused before anything of it is written.
#[test]
fn a_value_that_no_entry_can_hold_undoes_nothing() {
    const MOST: u32 = 65_535;
    let kind = ColumnKind::Var { len_bytes: 2, max: MOST };
    let layout = Layout { image_bytes: 3 + MOST, head_bytes: 1, columns: vec![Column { kind, offset: 1, null: None }] };
    let part = KeyPart { column: 0, prefix_bytes: 0, descending: false, encoding: key_encoding::WEIGHTS, collation: 5 };
    let indexes = vec![IndexDef { name: "text".into(), unique: false, parts: vec![part] }];
    let def = TableDef { indexes, ..table(layout) };
    let e = open_with(&SimDisk::new(1), Options { collations: Arc::new(First), ..options() }).unwrap();
    let (t, mut s) = (make(&e, "t", &def), e.session());
    let insert = |s: &mut Session, length: u32| {
        let mut image = vec![b'x'; 3 + MOST as usize];
        image[0] = 0;
        image[1..3].copy_from_slice(&(length as u16).to_le_bytes());
        // SAFETY: an image of this layout.
        unsafe { s.insert_image(&t, image.as_ptr()) }
    };
    begin(&mut s);
    insert(&mut s, 60_000).unwrap();
    let refused = insert(&mut s, MOST);
    assert!(matches!(refused, Err(Error::TooLong { what: "payload of a key", .. })), "{refused:?}");
    s.commit().unwrap();
    assert_eq!(count(&e, "t"), 1);
}

#[test]
fn an_index_of_other_weights_is_not_used() {
    let mut def = def();
    let text = &mut def.indexes[1].parts[0];
    (text.encoding, text.collation) = (key_encoding::WEIGHTS, 5);
    let disk = SimDisk::new(1);
    let e = open(&disk, 1);
    e.create_table("t", &def).unwrap();
    insert(&e, 1).unwrap();
    drop(e);
    for version in [1, 0] {
        let e = open(&disk, version);
        assert!(matches!(reads(&e), [Ok(true), Ok(true)]), "version {version}");
        insert(&e, 10 + version as u32).unwrap();
        e.checkpoint().unwrap();
    }
    let e = open(&disk, 2);
    let [text, number] = reads(&e);
    assert!(text.unwrap_err().to_string().contains("index 'text': its strings weigh otherwise"));
    assert!(number.unwrap());
    assert!(insert(&e, 3).unwrap_err().to_string().contains("ALTER TABLE"));
    assert_eq!(rows(&e), 3);
    // As a copy does it.
    e.create_table("u", &def).unwrap();
    e.drop_table("t").unwrap();
    e.rename_table("u", "t").unwrap();
    drop(e);
    let e = open(&disk, 2);
    insert(&e, 3).unwrap();
    assert!(matches!(reads(&e), [Ok(true), Ok(true)]));
}
