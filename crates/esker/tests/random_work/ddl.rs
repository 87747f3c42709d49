//! One who changes tables while others work: they are emptied, renamed, dropped and made anew, get other indexes; checkpoints, checks
//! and merges are asked for.
//!
//! Invariants: a table changes behind its closed gate, and while nobody ends a transaction or opens a view; what a crash may leave of
//! the change is known before it begins.

use crate::model::{Stage, KINDS};
use crate::table::{create, index_def, some_kinds, Shape, Slot};
use crate::tally::Tally;
use crate::world::{Halt, World};
use esker::{CheckScope, Error, IndexPlan, Table};
use fastrand::Rng;
use std::sync::Arc;

/// Memory is short, now and then shorter.
const LIMITS: [u64; 3] = [512 << 10, 2 << 20, 8 << 20];
/// Operations that others do while a table is waited for.
const PATIENCE: i64 = 60;

pub fn change_tables(world: &World<'_>, seed: u64) {
    let mut rng = Rng::with_seed(seed);
    while world.wait_for_operations(rng.u64(5..25)) {
        let at = rng.usize(..world.shared.slots.len());
        let slot = &world.shared.slots[at];
        let done = match rng.u8(..10) {
            0 => checkpoint(world),
            1 => {
                world.engine.set_memory_limit(LIMITS[rng.usize(..LIMITS.len())]);
                Ok(())
            }
            2 | 3 => look_after(world, &mut rng, slot),
            _ if slot.gate.close(world.patience(PATIENCE)) => Change { world, slot }.some(&mut rng),
            _ => Ok(()),
        };
        match done {
            Ok(()) => {}
            Err(Halt::Cut) => return,
            Err(halt) => return world.fail(format!("a change of table {at}: {}", halt.told())),
        }
    }
}

fn checkpoint(world: &World<'_>) -> Result<(), Halt> {
    Tally::add(&world.shared.tally.checkpoints_asked, 1);
    world.engine.checkpoint().map_err(|e| world.halt("checkpoint", &e))
}

/// What may be done while others work in a table.
fn look_after(world: &World<'_>, rng: &mut Rng, slot: &Slot) -> Result<(), Halt> {
    if !slot.gate.enter() {
        return Ok(());
    }
    let (table, tally) = (slot.now().table.unwrap(), &world.shared.tally);
    let done = if rng.bool() {
        Tally::add(&tally.tables_optimized, 1);
        world.engine.optimize(&table, &mut |_, _| true).map_err(|e| world.halt("optimize", &e))
    } else {
        Tally::add(&tally.tables_checked, 1);
        check(world, &table)
    };
    slot.gate.leave();
    done
}

fn check(world: &World<'_>, table: &Arc<Table>) -> Result<(), Halt> {
    let report = world.engine.check_part(table, CheckScope::Extended, &mut |_, _| true);
    match report.map_err(|e| world.halt("check", &e))?.damages {
        _ if world.disk.is_power_cut() => Err(Halt::Cut),
        damages if damages.is_empty() => Ok(()),
        damages => Err(Halt::Wrong(format!("check: {damages:?}"))),
    }
}

/// A change of a table behind its gate, which opens if the change was done: else it was cut.
struct Change<'w> {
    world: &'w World<'w>,
    slot: &'w Slot,
}

impl Change<'_> {
    fn some(&self, rng: &mut Rng) -> Result<(), Halt> {
        let done = match rng.u8(..10) {
            0 | 1 => self.empty(),
            2 | 3 => self.rename(),
            4 => self.replace(rng),
            _ => self.alter(rng),
        };
        done.map_err(|e| self.world.halt("it", &e))?;
        self.slot.gate.open();
        Ok(())
    }

    fn count(&self, which: impl Fn(&Tally) -> &std::sync::atomic::AtomicU64) {
        Tally::add(which(&self.world.shared.tally), 1);
    }

    /// Does what leaves no row, or only in a crash.
    fn without_rows(&self, change: impl FnOnce() -> Result<(), Error>) -> Result<(), Error> {
        let txn = self.world.begin();
        txn.set_stage(Stage::Committing);
        self.slot.rows.lock().unwrap().empty(&txn, 1);
        self.slot.now.write().unwrap().changed = self.world.clock() + 1;
        change()?;
        self.world.committed(&txn);
        txn.set_stage(Stage::Open);
        Ok(())
    }

    fn empty(&self) -> Result<(), Error> {
        let _ends = self.world.ends.write().unwrap();
        self.without_rows(|| self.world.engine.truncate_table(&self.slot.now().shape.name))?;
        self.count(|tally| &tally.tables_emptied);
        Ok(())
    }

    fn rename(&self) -> Result<(), Error> {
        let _ends = self.world.ends.write().unwrap();
        let before = self.slot.now().shape;
        let after = Shape { name: format!("table {}", self.world.shared.number()), ..before.clone() };
        self.becomes(vec![Some(after.clone())]);
        self.world.engine.rename_table(&before.name, &after.name)?;
        self.is_now(after);
        self.count(|tally| &tally.tables_renamed);
        Ok(())
    }

    /// Drops it, and makes another of its name.
    fn replace(&self, rng: &mut Rng) -> Result<(), Error> {
        let _ends = self.world.ends.write().unwrap();
        let shape = Shape { name: self.slot.now().shape.name, kinds: some_kinds(rng) };
        self.becomes(vec![None, Some(shape.clone())]);
        self.without_rows(|| {
            self.world.engine.drop_table(&shape.name)?;
            let table = create(&self.world.engine, &shape)?;
            self.slot.now.write().unwrap().table = Some(table);
            Ok(())
        })?;
        self.is_now(shape);
        self.count(|tally| &tally.tables_replaced);
        Ok(())
    }

    fn becomes(&self, shapes: Vec<Option<Shape>>) {
        self.slot.now.write().unwrap().becomes = shapes;
    }

    fn is_now(&self, shape: Shape) {
        let mut now = self.slot.now.write().unwrap();
        (now.shape, now.becomes) = (shape, Vec::new());
    }

    /// Some indexes go, some come. They are built while others read.
    fn alter(&self, rng: &mut Rng) -> Result<(), Error> {
        let before = self.slot.now();
        let mut kinds = some_kinds(rng);
        rng.shuffle(&mut kinds[1..]);
        let place = |kind: &usize| before.shape.kinds.iter().position(|k| k == kind);
        let plan = |kind: &usize| match place(kind) {
            Some(index) => IndexPlan::Keep { index, name: KINDS[*kind].name.into() },
            None => IndexPlan::Add(index_def(*kind)),
        };
        let plan: Vec<_> = kinds.iter().map(plan).collect();
        let table = before.table.as_ref().unwrap();
        let rows = self.slot.rows.lock().unwrap().committed();
        let is_unique = kinds.iter().all(|kind| KINDS[*kind].is_unique_in(rows.values()));
        let built = match self.world.engine.build_indexes(table, &plan, &mut |_, _| true) {
            Err(Error::DuplicateKey { .. }) if !is_unique => {
                return Ok(());
            }
            built => built?,
        };
        assert!(is_unique, "an index was built over rows that are alike: {kinds:?}");
        let _ends = self.world.ends.write().unwrap();
        let after = Shape { kinds, ..before.shape };
        self.becomes(vec![Some(after.clone())]);
        self.slot.now.write().unwrap().changed = self.world.clock() + 1;
        self.world.engine.alter_indexes(vec![built])?;
        // A view from now on is newer than the indexes.
        self.world.shared.clock.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        self.is_now(after);
        self.count(|tally| &tally.indexes_altered);
        Ok(())
    }
}
