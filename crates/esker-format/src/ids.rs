//! The identities that cross crates, one newtype each, so that none is taken for another.

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        #[repr(transparent)]
        pub struct $name(pub u64);
        impl $name {
            /// The smallest value; never given out as an identity.
            pub const ZERO: $name = $name(0);
            /// The largest value.
            pub const MAX: $name = $name(u64::MAX);
            /// The next one.
            #[must_use]
            pub const fn next(self) -> Self { $name(self.0 + 1) }
        }
        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result { self.0.fmt(f) }
        }
    };
}

id!(/// Identity of a row in its table, given in rising order, kept by updates.
    RowId);
id!(/// Position in the log's byte stream.
    Lsn);
id!(/// Visibility order: the LSN of the commit record. Zero means "that of the run's owner".
    CommitSeq);
id!(/// Identity of a transaction.
    TxnId);
id!(/// Identity of a table, never used twice.
    TableId);
id!(/// Identity of a tree; TRUNCATE gives a table a new one.
    TreeId);
id!(/// Identity of a run file, never used twice.
    FileId);

/// Identity of a data folder, made with it: files of one are not taken for another's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct FolderId(pub [u8; 16]);

impl std::fmt::Display for FolderId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (i, byte) in self.0.iter().enumerate() {
            let dash = if matches!(i, 4 | 6 | 8 | 10) { "-" } else { "" };
            write!(f, "{dash}{byte:02x}")?;
        }
        Ok(())
    }
}
