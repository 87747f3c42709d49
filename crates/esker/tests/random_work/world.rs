//! What the threads of one generation share: the engine from one opening to the next end, tables, transactions, the clock, how much
//! is still to be done, and the first thing that was wrong.
//!
//! Invariants: a view is opened, and a table changed, while nobody is ending a transaction (`ends`), so that each view is from a
//! moment of the model's clock. Once the power is cut nothing that a thread finds counts: what others had is being undone then.

use crate::model::{Txn, ACTIVE};
use crate::table::Slot;
use crate::tally::Tally;
use esker::io::SimDisk;
use esker::{Engine, Error};
use fastrand::Rng;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

/// Rises with every operation of every seed.
pub static PULSE: AtomicU64 = AtomicU64::new(0);

/// Of one generation.
const OPERATIONS: i64 = 350;
/// So many of a hundred generations end by a cut.
const CUTS: u8 = 75;

/// Why a thread does not go on with what it does.
#[derive(Debug)]
pub enum Halt {
    /// Somebody has a lock: the statement is undone.
    Refused,
    /// The transaction has to be rolled back.
    Lost,
    /// The table was changed since the view was opened.
    Changed,
    /// The power is cut.
    Cut,
    /// The engine did what it must not.
    Wrong(String),
}

impl Halt {
    /// What is wrong: whoever reports it expected nothing else.
    pub fn told(self) -> String {
        match self {
            Halt::Wrong(why) => why,
            halt => format!("{halt:?} for no reason"),
        }
    }
}

/// Where somebody is when the power is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum At {
    Operation,
    /// Between prepare and decision.
    Prepared,
    /// Between the decision and its being carried out.
    Decision,
}

/// When the power is cut.
#[derive(Debug, Clone, Copy)]
pub struct Cut {
    /// The first time, once only so many operations are left,
    pub left: i64,
    pub at: At,
    /// after so many operations of the disk from then on.
    pub soon: u64,
}

/// Tables and transactions, from the first generation to the last.
pub struct Shared {
    pub slots: Vec<Slot>,
    pub clock: AtomicU64,
    /// The last number that was given to a transaction or a write.
    pub numbers: AtomicU64,
    pub tally: Arc<Tally>,
}

impl Shared {
    pub fn number(&self) -> u64 {
        self.numbers.fetch_add(1, SeqCst) + 1
    }
}

pub struct World<'s> {
    pub shared: &'s Shared,
    pub engine: Engine,
    pub disk: SimDisk,
    /// Held together by those who end transactions, alone by who opens a view or changes a table.
    pub ends: RwLock<()>,
    pub txns: Mutex<Vec<Arc<Txn>>>,
    /// Prepared ones that no session has.
    pub detached: Mutex<Vec<Arc<Txn>>>,
    /// Ids of rows that few transactions share, and many rows.
    pub ids: u64,
    /// Operations that are left.
    left: AtomicI64,
    pub cut: Option<Cut>,
    is_cut: AtomicBool,
    wrong: Mutex<Option<String>>,
}

impl<'s> World<'s> {
    pub fn new(shared: &'s Shared, engine: Engine, disk: SimDisk, left: &[Arc<Txn>], rng: &mut Rng) -> World<'s> {
        let at = [At::Operation, At::Operation, At::Prepared, At::Decision][rng.usize(..4)];
        let soon = rng.u64(..if at == At::Operation { 30 } else { 4 });
        let cut = (rng.u8(..100) < CUTS).then(|| Cut { left: rng.i64(OPERATIONS / 10..OPERATIONS / 2), at, soon });
        World {
            shared,
            engine,
            disk,
            ends: RwLock::default(),
            txns: Mutex::new(left.to_vec()),
            detached: Mutex::new(left.to_vec()),
            ids: [20, 80, 300][rng.usize(..3)],
            left: AtomicI64::new(OPERATIONS),
            cut,
            is_cut: AtomicBool::new(false),
            wrong: Mutex::default(),
        }
    }

    /// Takes one of the operations that are left; false if there are no more.
    pub fn take_operation(&self) -> bool {
        self.left.fetch_sub(1, SeqCst);
        PULSE.fetch_add(1, SeqCst);
        self.comes_to(At::Operation);
        !self.is_over()
    }

    /// Somebody comes to where the power is to be cut.
    pub fn comes_to(&self, at: At) {
        let due = self.cut.filter(|cut| cut.at == at && self.left.load(SeqCst) <= cut.left);
        if let Some(cut) = due.filter(|_| !self.is_cut.swap(true, SeqCst)) {
            self.disk.power_cut_at(self.disk.op_count() + 1 + cut.soon);
        }
    }

    pub fn is_over(&self) -> bool {
        self.left.load(SeqCst) <= 0 || self.disk.is_power_cut() || self.wrong.lock().unwrap().is_some()
    }

    /// Waits until others have done so many operations; false if this is over before.
    pub fn wait_for_operations(&self, many: u64) -> bool {
        let mut others_are_to_go_on = self.patience(many as i64);
        while others_are_to_go_on() {}
        !self.is_over()
    }

    /// Polls while others do so many operations, and so do those who hold what is polled for.
    pub fn patience(&self, many: i64) -> impl FnMut() -> bool + use<'_, 's> {
        let until = self.left.load(SeqCst) - many;
        move || {
            std::thread::sleep(Duration::from_micros(300));
            !self.is_over() && self.left.load(SeqCst) > until
        }
    }

    pub fn begin(&self) -> Arc<Txn> {
        let txn = Txn::new(self.shared.number());
        self.txns.lock().unwrap().push(txn.clone());
        txn
    }

    pub fn clock(&self) -> u64 {
        self.shared.clock.load(SeqCst)
    }

    /// It is committed, in the engine too. `ends` is held.
    pub fn committed(&self, txn: &Txn) {
        debug_assert_eq!(txn.status(), ACTIVE);
        txn.set_status(self.shared.clock.fetch_add(1, SeqCst) + 1);
    }

    /// It lets go of the tables that it has worked in.
    pub fn leave_tables(&self, txn: &Txn) {
        std::mem::take(&mut *txn.tables.lock().unwrap()).iter().for_each(|at| self.shared.slots[*at].gate.leave());
    }

    /// What an error means for who gets it.
    pub fn halt(&self, what: &str, error: &Error) -> Halt {
        let tally = &self.shared.tally;
        match error {
            _ if self.disk.is_power_cut() => Halt::Cut,
            Error::LockTimeout | Error::WouldBlock => Halt::Refused,
            Error::Deadlock => Halt::Lost,
            Error::RecordChanged => {
                Tally::add(&tally.conflicts, 1);
                Halt::Lost
            }
            Error::TableChanged(_) | Error::NoSuchTable(_) => Halt::Changed,
            _ => Halt::Wrong(format!("{what}: {error}")),
        }
    }

    /// Notes what is wrong, if nothing was before.
    pub fn fail(&self, why: String) {
        if !self.disk.is_power_cut() {
            self.wrong.lock().unwrap().get_or_insert(why);
        }
    }

    pub fn wrong(&self) -> Option<String> {
        self.wrong.lock().unwrap().clone()
    }
}
