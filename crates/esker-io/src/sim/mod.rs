//! `SimDisk`: a disk in memory that loses power, tears writes, fails and fills up. Deterministic: the same seed and the
//! same operations give the same disk. For tests.
//!
//! It keeps what is durable apart from what is only written. Bytes become durable by a sync of their file, names by a
//! sync of their folder, and nothing else. [`SimDisk::after_power_cut`] tells what comes back: everything synced, and of
//! the rest whatever the seed decides (the modules `node` and `names` say how). Cheap clones share one disk;
//! [`SimDisk::snapshot`] copies it.
//!
//! *Operations* are what changes the disk or syncs it: create, write, set the size, reserve, sync, create folder,
//! rename, link, remove, remove folder, sync folder. They are numbered from 1. Reads, opening what exists and listing
//! are counted apart.

mod damage;
mod disk;
mod fate;
mod file;
mod names;
mod node;

use crate::{IoError, IoKind, Result};
use esker_base::lock::{order, Mutex};
use fastrand::Rng;
use names::{normal, Entry, Names};
use node::Node;
pub use node::SECTOR_BYTES;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Operations that the log remembers.
const LOG_OPERATIONS: usize = 1000;

/// Is told of an operation, or a reading, and of the file or folder.
pub type Watcher = Arc<dyn Fn(&'static str, &Path) + Send + Sync>;

/// See the module.
#[derive(Clone)]
pub struct SimDisk {
    state: Arc<Mutex<State>>,
    watcher: Arc<Mutex<Option<Watcher>>>,
}

/// One operation, for messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpRecord {
    /// Number, from 1.
    pub number: u64,
    /// What was done, as a verb.
    pub operation: &'static str,
    /// To which file or folder.
    pub path: PathBuf,
    /// From which byte on, where there is one.
    pub offset: Option<u64>,
    /// How many bytes, where that is known.
    pub bytes: Option<u64>,
}

impl std::fmt::Display for OpRecord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} {}", self.number, self.operation, self.path.display())?;
        if let Some(offset) = self.offset {
            write!(f, " at {offset}")?;
        }
        if let Some(bytes) = self.bytes {
            write!(f, ", {bytes} bytes")?;
        }
        Ok(())
    }
}

/// How an operation is to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Well,
    /// The power goes while it runs: its effect is under way, and may be lost.
    Cut,
    Fail(IoKind),
}

#[derive(Clone)]
struct State {
    random: Rng,
    names: Names,
    nodes: BTreeMap<u64, Node>,
    next_node: u64,
    operations: u64,
    reads: u64,
    full: u64,
    log: VecDeque<OpRecord>,
    power_cut_at: Option<u64>,
    power_cut: bool,
    faults: BTreeMap<u64, IoKind>,
    /// All operations from this one on fail.
    faults_from: Option<(u64, IoKind)>,
    read_faults: BTreeMap<u64, IoKind>,
    /// Parts of files that cannot be read.
    unreadable: Vec<(u64, Range<u64>, IoKind)>,
    capacity_bytes: Option<u64>,
    /// So many handles may be open.
    handle_limit: Option<usize>,
    lies: bool,
    /// Contents of sectors before their last sync are kept.
    keeps_old: bool,
    /// Rises when the process is killed: older handles are dead.
    process: u64,
    locked: BTreeSet<PathBuf>,
}

impl State {
    fn new(seed: u64) -> State {
        State {
            random: Rng::with_seed(seed),
            names: Names::default(),
            nodes: BTreeMap::new(),
            next_node: 1,
            operations: 0,
            reads: 0,
            full: 0,
            log: VecDeque::new(),
            power_cut_at: None,
            power_cut: false,
            faults: BTreeMap::new(),
            faults_from: None,
            read_faults: BTreeMap::new(),
            unreadable: Vec::new(),
            capacity_bytes: None,
            handle_limit: None,
            lies: false,
            keeps_old: false,
            process: 0,
            locked: BTreeSet::new(),
        }
    }
}

impl SimDisk {
    /// An empty disk. The seed decides what faults do (how much of a failed write lands).
    pub fn new(seed: u64) -> Self {
        SimDisk::of(State::new(seed))
    }

    fn of(state: State) -> Self {
        let watcher = Arc::new(Mutex::new(&order::SIM_WATCHER, None));
        SimDisk { state: Arc::new(Mutex::new(&order::SIM_DISK, state)), watcher }
    }

    /// Calls `watcher` before each operation and each reading, in the thread that does it; it holds no lock of the disk
    /// and may use it. What [`snapshot`](SimDisk::snapshot) and [`after_power_cut`](SimDisk::after_power_cut) give has
    /// none.
    pub fn watch(&self, watcher: Option<Watcher>) {
        *self.watcher.lock() = watcher;
    }

    fn tell(&self, operation: &'static str, path: &Path) {
        let watcher = self.watcher.lock().clone();
        if let Some(watcher) = watcher {
            watcher(operation, path);
        }
    }

    /// Operations so far.
    pub fn op_count(&self) -> u64 {
        self.state.lock().operations
    }

    /// Reads, openings and listings so far.
    pub fn read_count(&self) -> u64 {
        self.state.lock().reads
    }

    /// Operations so far that found no space.
    pub fn full_count(&self) -> u64 {
        self.state.lock().full
    }

    /// The last thousand operations, oldest first.
    pub fn op_log(&self) -> Vec<OpRecord> {
        self.state.lock().log.iter().cloned().collect()
    }

    /// Cuts the power at operation number `operation` (see [`op_count`](SimDisk::op_count)): it fails with its effect
    /// under way, and everything after it fails.
    pub fn power_cut_at(&self, operation: u64) {
        self.state.lock().power_cut_at = Some(operation);
    }

    /// Cuts the power now.
    pub fn cut_power(&self) {
        self.state.lock().power_cut = true;
    }

    /// Was the power cut?
    pub fn is_power_cut(&self) -> bool {
        self.state.lock().power_cut
    }

    /// The disk as it would come back if the power were, or was, cut now: a new one, without faults, of the same
    /// capacity. This one stays as it is, so that any number of outcomes can be tried.
    pub fn after_power_cut(&self, seed: u64) -> SimDisk {
        let state = self.state.lock();
        let mut random = Rng::with_seed(seed);
        let names = state.names.after_power_cut(&mut random);
        let files = names.files();
        let survivors = state.nodes.iter().filter(|(id, _)| files.contains(id));
        let nodes = survivors.map(|(id, node)| (*id, node.after_power_cut(&mut random))).collect();
        let mut after = State::new(random.u64(..));
        after.names = names;
        after.nodes = nodes;
        after.next_node = state.next_node;
        after.capacity_bytes = state.capacity_bytes;
        after.handle_limit = state.handle_limit;
        after.keeps_old = state.keeps_old;
        SimDisk::of(after)
    }

    /// A copy of everything, unsynced changes and planned faults too. Handles and locks stay with this one.
    pub fn snapshot(&self) -> SimDisk {
        let mut state = self.state.lock().clone();
        state.end_process();
        SimDisk::of(state)
    }

    /// The disk as a kill at the planned power cut, or now, leaves it: all that was written is there, nothing is planned.
    pub fn after_kill(&self) -> SimDisk {
        let mut state = self.state.lock().clone();
        state.power_cut = false;
        state.clear_plans();
        state.end_process();
        SimDisk::of(state)
    }

    /// Kills the process: all that was written stays, every handle dies, locks are free again.
    pub fn crash(&self) {
        self.state.lock().end_process();
    }

    /// Makes operation number `operation` fail. Of a write, some part lands; a failed sync loses some of what it should
    /// have kept, for good; any other operation has no effect.
    pub fn fail_once(&self, operation: u64, kind: IoKind) {
        self.state.lock().faults.insert(operation, kind);
    }

    /// Makes every operation from number `operation` on fail, as [`fail_once`](SimDisk::fail_once) does with one, until
    /// [`clear_plans`](SimDisk::clear_plans): a file system that went read-only, a device that is gone.
    pub fn fail_from(&self, operation: u64, kind: IoKind) {
        self.state.lock().faults_from = Some((operation, kind));
    }

    /// Lets no more than so many handles be open at once, or any number: opening and creating fail with
    /// [`IoKind::Resources`].
    pub fn handle_limit(&self, handles: Option<usize>) {
        self.state.lock().handle_limit = handles;
    }

    /// Handles that are open.
    pub fn open_handles(&self) -> usize {
        self.state.lock().open_handles()
    }

    /// Makes read, opening or listing number `read` fail (see [`read_count`](SimDisk::read_count)).
    pub fn fail_read_once(&self, read: u64, kind: IoKind) {
        self.state.lock().read_faults.insert(read, kind);
    }

    /// Takes back all planned faults and the planned power cut.
    pub fn clear_plans(&self) {
        self.state.lock().clear_plans();
    }

    /// Lets files take no more than so many bytes in all (counted in pages of 4096), or any number.
    pub fn capacity(&self, bytes: Option<u64>) {
        self.state.lock().capacity_bytes = bytes;
    }

    /// Bytes that files take.
    pub fn used_bytes(&self) -> u64 {
        self.state.lock().used_bytes()
    }

    /// Makes every sync say yes and keep nothing: a test that then finds no loss is worth nothing.
    pub fn lie_about_sync(&self, lie: bool) {
        self.state.lock().lies = lie;
    }

    /// Runs one operation. `work` has its effect for `Well` and `Cut`, and some or none of it for `Fail`.
    fn operate<T>(
        &self,
        operation: &'static str,
        path: &Path,
        (offset, bytes): (Option<u64>, Option<u64>),
        process: Option<u64>,
        work: impl FnOnce(&mut State, Way) -> Result<T>,
    ) -> Result<T> {
        self.tell(operation, path);
        let mut state = self.state.lock();
        state.check_alive(operation, path, process)?;
        state.operations += 1;
        let number = state.operations;
        if state.log.len() == LOG_OPERATIONS {
            state.log.pop_front();
        }
        state.log.push_back(OpRecord { number, operation, path: path.to_owned(), offset, bytes });
        let lasting = state.faults_from.filter(|(from, _)| *from <= number).map(|(_, kind)| kind);
        let way = match state.faults.remove(&number).or(lasting) {
            _ if state.power_cut_at == Some(number) => Way::Cut,
            Some(kind) => Way::Fail(kind),
            None => Way::Well,
        };
        let result = work(&mut state, way);
        match way {
            Way::Well => {
                state.full += u64::from(result.as_ref().is_err_and(|e| e.kind == IoKind::DiskFull));
                result
            }
            Way::Cut => {
                state.power_cut = true;
                Err(IoError::new(operation, path, offset, IoKind::Failed, "the power was cut"))
            }
            Way::Fail(kind) => {
                let message = format!("planned fault at operation {number}");
                Err(IoError::new(operation, path, offset, kind, message))
            }
        }
    }

    /// Runs something that changes nothing.
    fn look<T>(
        &self,
        operation: &'static str,
        path: &Path,
        process: Option<u64>,
        work: impl FnOnce(&mut State) -> Result<T>,
    ) -> Result<T> {
        self.tell(operation, path);
        let mut state = self.state.lock();
        state.check_alive(operation, path, process)?;
        state.reads += 1;
        let number = state.reads;
        if let Some(kind) = state.read_faults.remove(&number) {
            let message = format!("planned fault at read {number}");
            return Err(IoError::new(operation, path, None, kind, message));
        }
        work(&mut state)
    }
}

impl std::fmt::Debug for SimDisk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SimDisk").field("operations", &self.op_count()).finish_non_exhaustive()
    }
}

impl State {
    fn check_alive(&self, operation: &'static str, path: &Path, process: Option<u64>) -> Result<()> {
        let message = if self.power_cut {
            "the power was cut"
        } else if process.is_some_and(|process| process != self.process) {
            "the process of this handle was killed"
        } else {
            return Ok(());
        };
        Err(IoError::new(operation, path, None, IoKind::Failed, message))
    }

    fn find(&self, path: &Path, operation: &'static str) -> Result<u64> {
        let error = |kind, message| Err(IoError::new(operation, path, None, kind, message));
        match self.names.get(&normal(path)) {
            Some(Entry::File(id)) => Ok(id),
            Some(Entry::Folder) => error(IoKind::Failed, "it is a folder"),
            None => error(IoKind::NotFound, "no such file"),
        }
    }

    fn clear_plans(&mut self) {
        self.faults.clear();
        self.faults_from = None;
        self.read_faults.clear();
        self.unreadable.clear();
        self.power_cut_at = None;
    }

    fn open_handles(&self) -> usize {
        self.nodes.values().map(|node| node.handles).sum()
    }

    /// Is there a handle left?
    fn check_handles(&self, operation: &'static str, path: &Path) -> Result<()> {
        if self.handle_limit.is_some_and(|limit| self.open_handles() >= limit) {
            return Err(IoError::new(operation, path, None, IoKind::Resources, "too many open files"));
        }
        Ok(())
    }

    /// Can these bytes of a file be read?
    fn check_readable(&self, id: u64, path: &Path, range: Range<u64>) -> Result<()> {
        let touches =
            |bad: &&(u64, Range<u64>, IoKind)| bad.0 == id && bad.1.start < range.end && range.start < bad.1.end;
        match self.unreadable.iter().find(touches) {
            None => Ok(()),
            Some((_, _, kind)) => {
                Err(IoError::new("read", path, Some(range.start), *kind, "planned fault of these bytes"))
            }
        }
    }

    fn used_bytes(&self) -> u64 {
        let named = self.names.files();
        let takes_space = |(id, node): &(&u64, &Node)| named.contains(id) || node.handles > 0;
        self.nodes.iter().filter(takes_space).map(|(_, node)| node.allocated()).sum()
    }

    fn free_bytes(&self) -> u64 {
        match self.capacity_bytes {
            Some(capacity) => capacity.saturating_sub(self.used_bytes()),
            None => 1 << 50,
        }
    }

    /// Drops the contents that nothing leads to any more.
    fn drop_unreachable(&mut self) {
        let reachable = self.names.reachable();
        self.nodes.retain(|id, node| node.handles > 0 || reachable.contains(id));
    }

    fn end_process(&mut self) {
        self.process += 1;
        self.locked.clear();
        self.nodes.values_mut().for_each(|node| node.handles = 0);
        self.drop_unreachable();
    }
}

#[cfg(test)]
mod damage_tests;
#[cfg(test)]
mod tests;
