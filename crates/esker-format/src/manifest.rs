//! Owns the manifest: the state of the catalog and of all trees at one position of the log. Its file is a base, the whole
//! state, and behind it edits, each of which makes the next state of the one before by naming what is new of it: so a
//! checkpoint writes in proportion to what changed.
//!
//! Invariants: base and edits are read wholly or not at all, by one checksum each; an edit counts only directly behind
//! what it was made for (generations follow each other); edits begin at multiples of [`EDIT_ALIGN`], so that writing one
//! cannot tear another. An edit that does not fit ends the file. Whether it was torn, and never durable, or damaged only
//! the log knows: as long as it reaches back to the last whole state, that state and the log say the same.

use crate::codec::{self, get_u32, get_u64, put_bytes, put_varint, set_u32, set_u64, Reader};
use crate::entry::{put_entry, SKIPPABLE};
use crate::error::FormatError;
use crate::ids::{FileId, FolderId, Lsn, TableId, TreeId, TxnId};
use crate::run::RunStats;
use crate::table_state::TableState;
use std::collections::BTreeMap;

/// Format version of the manifest.
pub const MANIFEST_VERSION: u32 = 2;
/// Length of the base before its body.
pub const MANIFEST_HEADER_BYTES: usize = 32;
/// Length of an edit before its body.
pub const EDIT_HEADER_BYTES: usize = 24;
/// Edits begin at multiples of this in the file, in bytes: no device writes larger sectors.
pub const EDIT_ALIGN: usize = 4096;
/// The longest file, 1 GiB, edits included.
pub const MAX_MANIFEST_BYTES: u64 = 1 << 30;
/// "ESKMAN" and two zero bytes.
pub const MANIFEST_MAGIC: u64 = u64::from_le_bytes(*b"ESKMAN\0\0");
/// "ESKMED" and two zero bytes.
pub const EDIT_MAGIC: u64 = u64::from_le_bytes(*b"ESKMED\0\0");
/// Features that this version knows of those that a folder may require: none yet.
pub const KNOWN_FEATURES: u64 = 0;

/// Offsets in the base (checksum at 0, of all that follows up to the end of the body).
pub mod manifest_at {
    #![allow(missing_docs)]
    pub const CHECKSUM: usize = 0;
    pub const MAGIC: usize = 8;
    pub const VERSION: usize = 16;
    pub const ZERO: usize = 20;
    pub const BODY_BYTES: usize = 24;
    pub const BODY: usize = 32;
}

/// Offsets in an edit (checksum at 0, of all that follows up to the end of the body).
pub mod edit_at {
    #![allow(missing_docs)]
    pub const CHECKSUM: usize = 0;
    pub const MAGIC: usize = 8;
    pub const BODY_BYTES: usize = 16;
    pub const BODY: usize = 24;
}

/// The numbers that the entries of a body begin with.
pub mod manifest_kind {
    #![allow(missing_docs)]
    pub const FOLDER: u8 = 1;
    pub const NUMBERS: u8 = 2;
    pub const TABLE: u8 = 3;
    pub const TABLE_GONE: u8 = 4;
    pub const PREPARED: u8 = 5;
}

/// A transaction that is prepared. Its rows are in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PreparedEntry {
    /// The transaction.
    pub txn: TxnId,
    /// Its name in the front end's two-phase commit.
    pub xid: Vec<u8>,
    /// Where its PREPARE is in the log.
    pub logged_at: Lsn,
}

/// The state of everything at one position of the log.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Manifest {
    /// The folder that it is of.
    pub folder: FolderId,
    /// A bit for each feature that a reader must know; see [`KNOWN_FEATURES`].
    pub required_features: u64,
    /// Counts the states, edits included.
    pub generation: u64,
    /// The log is replayed from here.
    pub replay_from: Lsn,
    /// The next free table id.
    pub next_table: TableId,
    /// The next free tree id.
    pub next_tree: TreeId,
    /// The next free file id.
    pub next_file: FileId,
    /// The next free transaction id.
    pub next_txn: TxnId,
    /// The transactions that are prepared, as far as they are listed: the log knows them all.
    pub prepared: Vec<PreparedEntry>,
    /// The tables.
    pub tables: BTreeMap<TableId, TableState>,
}

/// What a manifest's file says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManifestFile {
    /// The last whole state.
    pub manifest: Manifest,
    /// Edits that made it from the base.
    pub edits: u64,
    /// Where the file holds something that is no whole edit, and why not.
    pub torn: Option<(u64, FormatError)>,
}

impl Manifest {
    /// Appends a base.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.resize(start + MANIFEST_HEADER_BYTES, 0);
        put_entry(out, manifest_kind::FOLDER, |out| {
            out.extend_from_slice(&self.folder.0);
            put_varint(out, self.required_features);
        });
        self.encode_entries(&[], self.tables.values(), out);
        let b = &mut out[start..];
        let body = (b.len() - MANIFEST_HEADER_BYTES) as u64;
        set_u64(b, manifest_at::MAGIC, MANIFEST_MAGIC);
        set_u32(b, manifest_at::VERSION, MANIFEST_VERSION);
        set_u64(b, manifest_at::BODY_BYTES, body);
        codec::seal(b, MANIFEST_MAGIC);
    }

    /// Appends an edit that makes this state of the one before. `changed` are the tables that are new or not as they were,
    /// `gone` those that are there no more.
    pub fn encode_edit(&self, changed: &[&TableState], gone: &[TableId], out: &mut Vec<u8>) {
        let start = out.len();
        out.resize(start + EDIT_HEADER_BYTES, 0);
        self.encode_entries(gone, changed.iter().copied(), out);
        let b = &mut out[start..];
        let body = (b.len() - EDIT_HEADER_BYTES) as u64;
        set_u64(b, edit_at::MAGIC, EDIT_MAGIC);
        set_u64(b, edit_at::BODY_BYTES, body);
        codec::seal(b, EDIT_MAGIC);
    }

    /// Appends what bases and edits have in common.
    fn encode_entries<'a>(&self, gone: &[TableId], tables: impl Iterator<Item = &'a TableState>, out: &mut Vec<u8>) {
        let numbers = [
            self.generation,
            self.replay_from.0,
            self.next_table.0,
            self.next_tree.0,
            self.next_file.0,
            self.next_txn.0,
        ];
        put_entry(out, manifest_kind::NUMBERS, |out| numbers.iter().for_each(|&n| put_varint(out, n)));
        for table in gone {
            put_entry(out, manifest_kind::TABLE_GONE, |out| put_varint(out, table.0));
        }
        for table in tables {
            put_entry(out, manifest_kind::TABLE, |out| table.encode(out));
        }
        for p in &self.prepared {
            put_entry(out, manifest_kind::PREPARED | SKIPPABLE, |out| {
                put_varint(out, p.txn.0);
                put_bytes(out, &p.xid);
                put_varint(out, p.logged_at.0);
            });
        }
    }

    /// The last whole state that a manifest's file holds.
    ///
    /// # Errors
    /// The base is damaged or of another version, or a whole edit is not one of this manifest.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        ManifestFile::decode(bytes).map(|file| file.manifest)
    }

    /// Takes in the entries of the body of a base or of an edit.
    fn apply(&mut self, body: &[u8], is_base: bool) -> Result<(), FormatError> {
        let invalid = |what, found| Err(FormatError::Invalid { what, found });
        let mut r = Reader::new("manifest", body);
        let (before, mut folders, mut numbers) = (self.generation, 0, 0);
        self.prepared.clear();
        while !r.rest().is_empty() {
            let mut e = r.entry()?;
            let r = &mut e.body;
            match e.kind {
                manifest_kind::FOLDER => {
                    folders += 1;
                    self.folder = FolderId(r.array()?);
                    self.required_features = r.varint()?;
                    codec::check_bits("required feature bits", self.required_features, KNOWN_FEATURES)?;
                }
                manifest_kind::NUMBERS => {
                    self.generation = r.varint()?;
                    self.replay_from = Lsn(r.varint()?);
                    self.next_table = TableId(r.varint()?);
                    self.next_tree = TreeId(r.varint()?);
                    self.next_file = FileId(r.varint()?);
                    self.next_txn = TxnId(r.varint()?);
                    numbers += 1;
                }
                manifest_kind::TABLE => {
                    let table = TableState::decode(r)?;
                    let id = table.entry.id;
                    if self.tables.insert(id, table).is_some() && is_base {
                        return invalid("table that is twice in a manifest, table", id.0);
                    }
                }
                manifest_kind::TABLE_GONE => {
                    let id = TableId(r.varint()?);
                    if self.tables.remove(&id).is_none() {
                        return invalid("table that is gone and was not there, table", id.0);
                    }
                }
                manifest_kind::PREPARED => self.prepared.push(PreparedEntry {
                    txn: TxnId(r.varint()?),
                    xid: r.bytes()?.to_vec(),
                    logged_at: Lsn(r.varint()?),
                }),
                _ => e.skip("manifest entry of kind")?,
            }
        }
        match (folders == u64::from(is_base), numbers) {
            (true, 1) => Ok(()),
            (false, _) => {
                invalid(if is_base { "folders of a manifest's base" } else { "folders of a manifest's edit" }, folders)
            }
            (true, 0) => invalid("manifest without numbers, after generation", before),
            (true, _) => invalid("numbers of a manifest, how often", numbers),
        }
    }

    /// What all runs of all tables hold together.
    #[must_use]
    pub fn totals(&self) -> RunStats {
        let mut stats = RunStats::default();
        for run in self.tables.values().flat_map(|t| &t.trees).flat_map(|t| &t.runs) {
            stats.merge(&run.stats);
        }
        stats
    }
}

impl ManifestFile {
    /// Reads a manifest's file: the base, and the edits behind it up to the first that does not fit.
    ///
    /// # Errors
    /// As [`Manifest::decode`].
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        codec::need("manifest", bytes, MANIFEST_HEADER_BYTES)?;
        let magic = get_u64(bytes, manifest_at::MAGIC);
        if magic != MANIFEST_MAGIC {
            return Err(FormatError::Invalid { what: "manifest magic", found: magic });
        }
        let base = sealed("manifest", bytes, manifest_at::BODY_BYTES, MANIFEST_HEADER_BYTES, MANIFEST_MAGIC)?;
        codec::check_version("manifest", get_u32(base, manifest_at::VERSION), MANIFEST_VERSION)?;
        let mut file = ManifestFile { manifest: Manifest::default(), edits: 0, torn: None };
        file.manifest.apply(&base[manifest_at::BODY..], true)?;
        let mut at = edit_offset(base.len());
        while at < bytes.len() {
            let edit = match edit(&bytes[at..]) {
                Ok(edit) => edit,
                Err(why) => {
                    file.torn = Some((at as u64, why));
                    break;
                }
            };
            let before = file.manifest.generation;
            file.manifest.apply(&edit[edit_at::BODY..], false)?;
            let found = file.manifest.generation;
            if Some(found) != before.checked_add(1) {
                return Err(FormatError::Invalid { what: "generation of a manifest edit", found });
            }
            file.edits += 1;
            at = edit_offset(at + edit.len());
        }
        Ok(file)
    }
}

/// Where the edit behind something that ends at `end` begins.
#[must_use]
pub const fn edit_offset(end: usize) -> usize {
    end.next_multiple_of(EDIT_ALIGN)
}

/// The edit at the start of `bytes`.
fn edit(bytes: &[u8]) -> Result<&[u8], FormatError> {
    codec::need("manifest edit", bytes, EDIT_HEADER_BYTES)?;
    let magic = get_u64(bytes, edit_at::MAGIC);
    if magic != EDIT_MAGIC {
        return Err(FormatError::Invalid { what: "manifest edit magic", found: magic });
    }
    sealed("manifest edit", bytes, edit_at::BODY_BYTES, EDIT_HEADER_BYTES, EDIT_MAGIC)
}

/// What is sealed at the start of `bytes`: `header` bytes, and as many as they say at `length_at`.
fn sealed<'a>(
    what: &'static str,
    bytes: &'a [u8],
    length_at: usize,
    header: usize,
    magic: u64,
) -> Result<&'a [u8], FormatError> {
    let have = bytes.len() as u64;
    let need = get_u64(bytes, length_at).saturating_add(header as u64);
    if need > have {
        return Err(FormatError::Truncated { what, need, have });
    }
    let sealed = &bytes[..need as usize];
    codec::check_seal(sealed, magic)?;
    Ok(sealed)
}
