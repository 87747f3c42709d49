//! How written bytes are made durable, for those who may choose.

/// What makes a write durable. See [`File::write_durably`](crate::File::write_durably).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SyncMethod {
    /// Written, then synced by fdatasync: two calls.
    #[default]
    Fdatasync,
    /// One write that is durable when it returns (RWF_DSYNC).
    Dsync,
    /// Written and synced by one call: io_uring takes both, the fdatasync begins when the write is done.
    Uring,
}

impl SyncMethod {
    /// Every method, in the order of the enum.
    pub const ALL: [SyncMethod; 3] = [SyncMethod::Fdatasync, SyncMethod::Dsync, SyncMethod::Uring];

    /// Name for people and settings.
    pub const fn name(self) -> &'static str {
        match self {
            SyncMethod::Fdatasync => "fdatasync",
            SyncMethod::Dsync => "dsync",
            SyncMethod::Uring => "uring",
        }
    }

    /// Is what was written to the same file before durable with it? A sync is the whole file's; a write that is durable
    /// answers for its own bytes and for no others.
    pub const fn covers_earlier(self) -> bool {
        !matches!(self, SyncMethod::Dsync)
    }
}

impl std::fmt::Display for SyncMethod {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
