//! An index whose strings weigh otherwise since a new version of the front end: nobody reads or writes by it, nothing is lost.

use crate::tests::indexes::{def, image, Row};
use crate::tests::support::{begin, open_with, options};
use crate::*;
use esker_format::key_bytes::key_encoding;
use esker_format::FormatError;
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
