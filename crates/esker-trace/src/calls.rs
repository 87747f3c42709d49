//! Calls of the engine, in order, folded: of each table a line.

use crate::format::Call;

/// Tables of a statement, steps of each that are told in their order, and functions of what comes after.
const TABLES: usize = 32;
const STEPS: usize = 40;
const FUNCTIONS: usize = 64;

/// A function, how many times, and what it told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) function: String,
    pub(crate) times: u64,
    pub(crate) full: Option<u64>,
    pub(crate) past: Option<u64>,
    pub(crate) last: Option<u64>,
}

/// The calls for a table.
#[derive(Debug, Clone, Default)]
pub(crate) struct Table {
    /// Empty for calls for no table.
    pub(crate) name: String,
    /// The first ones, in order.
    pub(crate) steps: Vec<Step>,
    /// Those after them, by function.
    pub(crate) rest: Vec<Step>,
}

/// See the module.
#[derive(Debug, Clone, Default)]
pub(crate) struct Calls {
    pub(crate) tables: Vec<Table>,
    /// Lines that are not in the file.
    pub(crate) dropped: u64,
}

impl Step {
    fn is_like(&self, other: &Step) -> bool {
        let told = |s: &Step| s.full.is_some() || s.past.is_some() || s.last.is_some();
        self.function == other.function && !told(self) && !told(other)
    }

    fn join(&mut self, other: &Step) {
        let both = |a: Option<u64>, b: Option<u64>| a.map_or(b, |a| Some(a.saturating_add(b.unwrap_or(0))));
        self.times = self.times.saturating_add(other.times);
        self.full = both(self.full, other.full);
        self.past = both(self.past, other.past);
        self.last = both(self.last, other.last);
    }
}

impl Calls {
    pub(crate) fn add(&mut self, call: &Call<'_>) {
        let step = Step {
            function: call.function.to_string(),
            times: call.x.unwrap_or(1),
            full: call.full,
            past: call.past,
            last: call.last,
        };
        let name = call.tab.as_deref().unwrap_or("");
        let full = self.tables.len() >= TABLES && !self.tables.iter().any(|t| t.name == name);
        let name = if full { "other tables" } else { name };
        let at = self.tables.iter().position(|t| t.name == name).unwrap_or_else(|| {
            self.tables.push(Table { name: name.to_owned(), ..Table::default() });
            self.tables.len() - 1
        });
        self.tables[at].add(step);
    }
}

impl Table {
    fn add(&mut self, mut step: Step) {
        if self.rest.is_empty() {
            let room = self.steps.len() < STEPS;
            match self.steps.last_mut() {
                Some(last) if last.is_like(&step) => return last.join(&step),
                _ if room => return self.steps.push(step),
                _ => {}
            }
        }
        if self.rest.len() >= FUNCTIONS && !self.rest.iter().any(|s| s.function == step.function) {
            step.function = "others".into();
        }
        match self.rest.iter_mut().find(|s| s.function == step.function) {
            Some(mine) => mine.join(&step),
            None => self.rest.push(step),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_folded_and_the_rest_is_counted() {
        let mut calls = Calls::default();
        let call = |function: &'static str, x| Call { function: function.into(), x, ..Call::default() };
        ["index_init", "index_next", "index_next"].iter().for_each(|f| calls.add(&call(f, Some(2))));
        for _ in 0..1000 {
            calls.add(&call("index_read_map", None));
            calls.add(&call("index_next", Some(3)));
        }
        let [table] = &calls.tables[..] else { panic!("{calls:?}") };
        let told: Vec<(&str, u64)> = table.steps.iter().take(3).map(|s| (s.function.as_str(), s.times)).collect();
        assert_eq!(told, [("index_init", 2), ("index_next", 4), ("index_read_map", 1)]);
        let times = |steps: &[Step]| steps.iter().map(|s| s.times).sum::<u64>();
        assert_eq!(times(&table.steps) + times(&table.rest), 2 + 4 + 1000 + 3000);
        assert_eq!((table.steps.len(), table.rest.len()), (STEPS, 2));
    }

    #[test]
    fn what_a_call_told_stays_its_own() {
        let mut calls = Calls::default();
        for full in [3, 4] {
            calls.add(&Call { function: "end_bulk_insert".into(), full: Some(full), ..Call::default() });
        }
        assert_eq!(calls.tables[0].steps.iter().map(|s| s.full).collect::<Vec<_>>(), [Some(3), Some(4)]);
    }
}
