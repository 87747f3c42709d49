//! What changes cost, in bytes written for each byte handed in: counted, with everything scaled down together (memtable,
//! runs, table), so that the shares are those of a large table.

use crate::sim_hooks::Entry;
use crate::tests::tables::{begin, open_on, options, Watched};
use crate::tree::key::ByBytes;
use crate::upkeep::{background, checkpoint, flush};
use crate::*;
use esker_format::{Column, ColumnKind, Compression, Layout, RowFormat, RowId};
use std::sync::atomic::Ordering;
use std::sync::Arc;

/// Bytes of a row.
const ROW: usize = 100;
/// Changes of a transaction.
const CHANGES: usize = 100;
/// What is flushed at once, in bytes of rows.
const MEMTABLE: usize = 256 << 10;

/// A table of incompressible rows, all of them in runs, where each flush is the test's own.
struct Costs {
    disk: Watched,
    engine: Engine,
    table: Arc<Table>,
    ids: Vec<RowId>,
    random: u64,
    unflushed: usize,
}

fn definition() -> TableDef {
    let column = Column { kind: ColumnKind::Fixed { width: ROW as u32 - 1 }, offset: 1, null: None };
    let layout = Layout { image_bytes: ROW as u32, head_bytes: 1, columns: vec![column] };
    TableDef {
        layout,
        format: RowFormat::Dynamic,
        compression: Compression::None,
        temporary: false,
        indexes: Vec::new(),
        extra: vec![],
    }
}

impl Costs {
    fn new(rows: usize) -> Self {
        let disk = Watched::new();
        let small =
            Options { run_bytes: 2 * MEMTABLE as u64, block_bytes: 8 << 10, wal_segment_bytes: 4 << 20, ..options() };
        let engine = open_on(Arc::new(disk.clone()), small);
        engine.create_table("t", &definition()).unwrap();
        let table = engine.open_table("t").unwrap();
        let mut costs = Costs { disk, engine, table, ids: Vec::new(), random: 1, unflushed: 0 };
        let mut s = costs.engine.session();
        while costs.ids.len() < rows {
            begin(&mut s);
            for _ in 0..CHANGES {
                let image = costs.image();
                // SAFETY: an image of the table's layout.
                costs.ids.push(unsafe { s.insert_image(&costs.table, image.as_ptr()).unwrap() });
            }
            s.commit().unwrap();
            costs.changed(CHANGES);
        }
        costs.idle();
        costs
    }

    /// A table with a key tree.
    fn keys(&self) -> Arc<Table> {
        self.engine.sim_create_table("k", &definition(), &[crate::tests::keys::index(1)]).unwrap();
        self.engine.open_table("k").unwrap()
    }

    fn next(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    fn image(&mut self) -> Vec<u8> {
        let mut image: Vec<u8> = (0..ROW.div_ceil(8)).flat_map(|_| self.next().to_le_bytes()).collect();
        image[0] = 0;
        image
    }

    /// So many rows were changed: a flush now and then, and what it makes worth merging.
    fn changed(&mut self, rows: usize) {
        self.unflushed += rows * ROW;
        if self.unflushed >= MEMTABLE {
            self.flush();
        }
    }

    fn flush(&mut self) {
        self.unflushed = 0;
        flush::tree(&self.engine.core, &self.table, &self.table.tree()).unwrap();
        self.settle();
    }

    /// Merges until there is nothing left to do.
    fn settle(&self) {
        let steps = (0..2000).take_while(|_| background::merge_somewhere(&self.engine.core).unwrap()).count();
        assert!(steps < 2000, "no end after {steps} steps");
    }

    fn idle(&mut self) {
        self.flush();
        checkpoint::write(&self.engine.core).unwrap();
    }

    /// Updates rows anywhere.
    fn update(&mut self, s: &mut Session, rows: usize) {
        begin(s);
        for _ in 0..rows {
            let at = self.next() as usize % self.ids.len();
            let id = self.ids[at];
            let image = self.image();
            // SAFETY: an image of the table's layout.
            unsafe { s.update_image(&self.table, id, image.as_ptr()).unwrap() };
        }
        s.commit().unwrap();
    }

    fn written(&self) -> [usize; 3] {
        std::array::from_fn(|i| self.disk.1.written[i].load(Ordering::Relaxed))
    }

    /// Bytes written since `before` for each byte handed in; told as the price of `what`.
    fn price(&self, what: &str, before: [usize; 3], handed: usize, deepest: usize) -> f64 {
        let written = self.written();
        let [log, runs, others] = std::array::from_fn(|i| (written[i] - before[i]) as f64 / handed as f64);
        let all = log + runs + others;
        eprintln!(
            "{what}: log {log:.2}, runs {runs:.2}, others {others:.2}: {all:.2}; at most {deepest} runs over a key"
        );
        all
    }

    fn deepest(&self) -> usize {
        let state = self.table.tree().snapshot();
        self.ids.iter().map(|id| state.runs_at(*id).count()).max().unwrap_or(0)
    }

    fn finish(self) {
        let mut s = self.engine.session();
        begin(&mut s);
        assert_eq!(s.count_rows(&self.table).unwrap(), self.ids.len() as u64);
        s.commit().unwrap();
        assert!(self.engine.check(&self.table, &mut |_, _| true).unwrap().damages.is_empty());
    }
}

/// Bytes written for each byte of uniform random updates, until as many were updated as the table holds.
fn uniform(memtables: usize) -> f64 {
    let mut costs = Costs::new(memtables * MEMTABLE / ROW);
    let before = costs.written();
    let (mut s, mut handed, mut deepest) = (costs.engine.session(), 0, 0);
    while handed < costs.ids.len() * ROW {
        costs.update(&mut s, CHANGES);
        handed += CHANGES * ROW;
        costs.changed(CHANGES);
        if costs.unflushed == 0 {
            deepest = deepest.max(costs.deepest());
        }
    }
    costs.idle();
    let all = costs.price(&format!("{memtables} memtables"), before, handed, deepest);
    costs.finish();
    all
}

#[test]
fn random_updates_of_a_table_of_20_memtables() {
    assert!(uniform(20) <= 12.0);
}

#[test]
fn random_updates_of_a_table_of_200_memtables() {
    assert!(uniform(200) <= 15.0);
}

#[test]
fn few_updates_in_many_flushes() {
    let mut costs = Costs::new((39 << 20) / ROW);
    let before = costs.written();
    let mut s = costs.engine.session();
    for _ in 0..60 {
        costs.update(&mut s, 1);
        costs.update(&mut s, 1);
        costs.flush();
    }
    costs.idle();
    let written: usize = costs.written().iter().sum::<usize>() - before.iter().sum::<usize>();
    eprintln!("60 flushes: {written} bytes");
    assert!(written <= 4 << 20, "{written} bytes");
    costs.finish();
}

/// Bytes written for each byte of entries with random keys, loaded into an empty key tree.
fn load_of_keys(memtables: usize) -> f64 {
    const ENTRY: usize = 100;
    let mut costs = Costs::new(CHANGES);
    let table = costs.keys();
    let before = costs.written();
    let (mut s, mut handed, mut unflushed, mut deepest) = (costs.engine.session(), 0, 0, 0);
    while handed < memtables * MEMTABLE {
        begin(&mut s);
        for _ in 0..CHANGES {
            let bytes: Vec<u8> = (0..12).flat_map(|_| costs.next().to_le_bytes()).collect();
            // The key, the payload and a row id are the entry.
            let entry = Entry { key: &bytes[..32], row: RowId(1), payload: Some(&bytes[..ENTRY - 32 - 8]) };
            s.sim_write_entry(&table, 0, entry).unwrap();
        }
        s.commit().unwrap();
        handed += CHANGES * ENTRY;
        unflushed += CHANGES * ENTRY;
        if unflushed >= MEMTABLE {
            unflushed = 0;
            costs.engine.sim_flush(&table).unwrap();
            costs.settle();
            let state = table.trees().keys[0].snapshot();
            let over = |run: &crate::tree::RunHandle<ByBytes>| state.runs_at(&run.first).count();
            deepest = deepest.max(state.runs.iter().map(over).max().unwrap_or(0));
        }
    }
    costs.engine.sim_flush(&table).unwrap();
    costs.settle();
    costs.idle();
    begin(&mut s);
    assert_eq!(s.sim_entries(&table, 0, &[]).unwrap().len(), handed / ENTRY);
    s.commit().unwrap();
    let all = costs.price(&format!("keys of {memtables} memtables"), before, handed, deepest);
    drop(s);
    costs.finish();
    all
}

#[test]
fn random_keys_into_an_empty_tree() {
    assert!(load_of_keys(20) <= 6.0);
}

mod skew;
