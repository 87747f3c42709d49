//! Who syncs what, and what a transaction takes by that.

/// Bytes of a decision, and of an entry in the coordinator's log besides the redo.
pub(super) const DECISION_BYTES: usize = 16;

/// Who syncs what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mode {
    pub(super) name: &'static str,
    /// With a coordinator.
    pub(super) two_phases: bool,
    /// Through the engine's sessions, not by its log alone.
    pub(super) engine: bool,
    /// A transaction has the log for itself from its record to its sync: as if there were no groups, on the same file.
    pub(super) alone: bool,
    /// A prepared transaction is durable before it queues.
    pub(super) prepare_sync: bool,
    /// The coordinator's log is synced before its transactions commit.
    pub(super) coordinator_sync: bool,
    /// The queue's leader makes all prepared transactions durable at once, before the coordinator's log.
    pub(super) group_prepare: bool,
    /// The commit record is durable before the commit is acknowledged.
    pub(super) commit_sync: bool,
}

const ALONE: Mode = Mode {
    name: "group commit",
    two_phases: false,
    engine: false,
    alone: false,
    coordinator_sync: true,
    prepare_sync: false,
    group_prepare: false,
    commit_sync: true,
};
pub(super) const TWO: Mode =
    Mode { name: "2pc, no sync of the engine's", two_phases: true, commit_sync: false, ..ALONE };

const SESSIONS: Mode = Mode { name: "engine's sessions", engine: true, ..ALONE };
/// As the server's binlog drives them: what is prepared is durable, the decision is the binlog's.
const SESSIONS_TWO: Mode =
    Mode { name: "engine's sessions, 2pc", two_phases: true, prepare_sync: true, commit_sync: false, ..SESSIONS };

/// All that is measured; the first one is 100 percent.
pub(super) const MODES: [Mode; 15] = [
    Mode { name: "one sync per commit", alone: true, ..ALONE },
    ALONE,
    Mode { name: "no sync", commit_sync: false, ..ALONE },
    Mode { name: "2pc, prepare synced", prepare_sync: true, ..TWO },
    Mode { name: "2pc, commit synced", commit_sync: true, ..TWO },
    Mode { name: "2pc, prepare and commit synced", prepare_sync: true, commit_sync: true, ..TWO },
    Mode { name: "2pc, prepares synced by the group", group_prepare: true, ..TWO },
    TWO,
    Mode {
        name: "2pc, coordinator not synced, prepare and commit synced",
        coordinator_sync: false,
        prepare_sync: true,
        commit_sync: true,
        ..TWO
    },
    Mode { name: "2pc, nothing synced", coordinator_sync: false, ..TWO },
    Mode { name: "engine's sessions, one sync per commit", alone: true, ..SESSIONS },
    SESSIONS,
    Mode { name: "engine's sessions, no sync", commit_sync: false, ..SESSIONS },
    SESSIONS_TWO,
    Mode { name: "engine's sessions, 2pc, coordinator not synced", coordinator_sync: false, ..SESSIONS_TWO },
];

impl Mode {
    /// What a transaction takes of both logs at the most; the engine makes a segment ahead, and writes rows to files.
    pub(super) fn each_bytes(&self, bytes: usize) -> u64 {
        if self.engine {
            return 3 * self.commit_bytes(bytes) + bytes as u64;
        }
        self.commit_bytes(bytes) + bytes as u64
    }

    /// What a transaction takes of the engine's log at the most: frames, and padding where it is synced.
    pub(super) fn commit_bytes(&self, bytes: usize) -> u64 {
        let frame = |bytes: usize| bytes as u64 + 128;
        let all = frame(bytes) + if self.two_phases { frame(DECISION_BYTES) } else { 0 };
        let synced = self.alone || self.prepare_sync || self.group_prepare || self.commit_sync;
        all + if synced { 2 * esker_wal::SECTOR_BYTES } else { 0 }
    }
}
