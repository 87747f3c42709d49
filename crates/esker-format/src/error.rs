//! Owns the one error of every decoder. Invariant: an error names what was being read and the numbers that disagree,
//! never a position in a file, which only the caller knows.

use crate::ids::FolderId;

/// Why bytes could not be decoded, or a row could not be encoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FormatError {
    /// The checksum of the bytes is not the one stored with them: they are damaged, or belong elsewhere.
    #[error("checksum mismatch: expected {expected:#018x}, found {found:#018x}")]
    Checksum {
        /// The checksum stored with the bytes.
        expected: u64,
        /// The checksum computed from the bytes.
        found: u64,
    },
    /// Fewer bytes than the thing needs.
    #[error("{what} is truncated: needs {need} bytes, has {have}")]
    Truncated {
        /// What was being read.
        what: &'static str,
        /// How many bytes it needs.
        need: u64,
        /// How many there are.
        have: u64,
    },
    /// A value that the format does not allow.
    #[error("{what} is invalid: found {found}")]
    Invalid {
        /// What was being read.
        what: &'static str,
        /// The value found.
        found: u64,
    },
    /// A length above its bound.
    #[error("{what} is too long: {found} is above {max}")]
    TooLong {
        /// What was being read or written.
        what: &'static str,
        /// The length found.
        found: u64,
        /// The longest allowed.
        max: u64,
    },
    /// Written by a newer version of Esker than this one can read.
    #[error("{what} has format version {found}, this program reads up to {supported}")]
    NewerVersion {
        /// What was being read.
        what: &'static str,
        /// The version found.
        found: u32,
        /// The newest version this program reads.
        supported: u32,
    },
    /// Written by an older version of Esker, in a format that this one does not read.
    #[error("{what} has format version {found}, this program needs {needed}")]
    OlderVersion {
        /// What was being read.
        what: &'static str,
        /// The version found.
        found: u32,
        /// The version that this program reads.
        needed: u32,
    },
    /// Only a newer version of Esker knows it, and it must not be skipped.
    #[error("{what} {found} is not known here")]
    Unknown {
        /// What was being read.
        what: &'static str,
        /// Its number.
        found: u64,
    },
    /// Keys were made of what strings weighed then.
    #[error("its strings weigh otherwise than when it was made: rebuild its table (ALTER TABLE ... FORCE)")]
    Reweighed,
    /// It is a file of another folder.
    #[error("{what} is of the folder {found}, not of {expected}")]
    Foreign {
        /// What was being read.
        what: &'static str,
        /// The folder it says it is of.
        found: FolderId,
        /// The folder it was found in.
        expected: FolderId,
    },
    /// Compressed bytes that do not decompress to the length they should have.
    #[error("{what} does not decompress to {raw_bytes} bytes")]
    Decompress {
        /// What was being read.
        what: &'static str,
        /// The length it should have had.
        raw_bytes: u64,
    },
    /// There is no memory for a row, or for a block or what it decodes to.
    #[error("out of memory: {bytes} bytes for a row or a block")]
    OutOfMemory {
        /// How many bytes were asked for.
        bytes: u64,
    },
}
