//! Waits, added up by what they were for and where their bytes came from.

use crate::format::Wait;
use crate::times::{Sum, Times};

/// Kinds that are told apart at most, and objects of each; what is more goes to one that says so.
const KINDS: usize = 128;
const OBJECTS: usize = 64;
/// The name of what is more.
const OTHERS: &str = "others";

/// All waits of a kind.
#[derive(Debug, Clone)]
pub(crate) struct Kind {
    pub(crate) name: String,
    pub(crate) from: Option<String>,
    pub(crate) class: Option<String>,
    /// They lie in other waits: not to be added.
    pub(crate) within: bool,
    pub(crate) times: Times,
    pub(crate) cpu_ns: u64,
    pub(crate) ready_ns: u64,
    pub(crate) bytes: u64,
    /// By what they were about.
    pub(crate) objects: Vec<(String, Sum)>,
    /// By what lies within them.
    pub(crate) nested: Vec<(String, Sum)>,
}

/// See the module.
#[derive(Debug, Clone, Default)]
pub(crate) struct Waits {
    pub(crate) kinds: Vec<Kind>,
    /// Those within another wait, which will come.
    pending: Vec<(String, Sum)>,
}

/// What people call it.
pub(crate) fn label(name: &str, from: Option<&str>) -> String {
    let from = match from {
        None => return name.to_owned(),
        Some("pagecache") => "page cache",
        Some(other) => other,
    };
    match name {
        "db file sequential read" => format!("read {from}"),
        _ => format!("{name}, {from}"),
    }
}

fn add_to(sums: &mut Vec<(String, Sum)>, name: &str, sum: Sum) {
    let name = if sums.len() < OBJECTS || sums.iter().any(|(n, _)| n == name) { name } else { OTHERS };
    match sums.iter_mut().find(|(n, _)| n == name) {
        Some((_, mine)) => mine.merge(sum),
        None => sums.push((name.to_owned(), sum)),
    }
}

impl Waits {
    pub(crate) fn add(&mut self, wait: &Wait<'_>) {
        let count = wait.x.unwrap_or(1).max(1);
        let one = Sum { count, sum_ns: wait.ela, max_ns: wait.ela / count };
        if wait.within {
            add_to(&mut self.pending, &label(&wait.nam, wait.from.as_deref()), one);
        }
        let nested = if wait.within { Vec::new() } else { std::mem::take(&mut self.pending) };
        let kind = self.kind(&wait.nam, wait.from.as_deref(), wait.class.as_deref(), wait.within);
        match count {
            1 => kind.times.add(wait.ela),
            _ => kind.times.add_summed(wait.ela, count),
        }
        kind.cpu_ns = kind.cpu_ns.saturating_add(wait.cpu.unwrap_or(0));
        kind.ready_ns = kind.ready_ns.saturating_add(wait.ready.unwrap_or(0));
        kind.bytes = kind.bytes.saturating_add(wait.bytes.unwrap_or(0));
        if let Some(object) = &wait.obj {
            add_to(&mut kind.objects, object, one);
        }
        nested.iter().for_each(|(name, sum)| add_to(&mut kind.nested, name, *sum));
    }

    fn kind(&mut self, name: &str, from: Option<&str>, class: Option<&str>, within: bool) -> &mut Kind {
        let at = |kinds: &[Kind], name: &str, from: Option<&str>| {
            kinds.iter().position(|k| k.name == name && k.from.as_deref() == from && k.within == within)
        };
        let mut found = at(&self.kinds, name, from);
        let (mut name, mut from, mut class) = (name, from, class);
        if found.is_none() && self.kinds.len() >= KINDS {
            (name, from, class) = (OTHERS, None, None);
            found = at(&self.kinds, name, from);
        }
        let at = found.unwrap_or(self.kinds.len());
        if found.is_none() {
            self.kinds.push(Kind {
                name: name.to_owned(),
                from: from.map(str::to_owned),
                class: class.map(str::to_owned),
                within,
                times: Times::default(),
                cpu_ns: 0,
                ready_ns: 0,
                bytes: 0,
                objects: Vec::new(),
                nested: Vec::new(),
            });
        }
        &mut self.kinds[at]
    }

    pub(crate) fn merge(&mut self, other: &Waits) {
        for theirs in &other.kinds {
            let mine = self.kind(&theirs.name, theirs.from.as_deref(), theirs.class.as_deref(), theirs.within);
            mine.times.merge(&theirs.times);
            mine.cpu_ns = mine.cpu_ns.saturating_add(theirs.cpu_ns);
            mine.ready_ns = mine.ready_ns.saturating_add(theirs.ready_ns);
            mine.bytes = mine.bytes.saturating_add(theirs.bytes);
            theirs.objects.iter().for_each(|(name, sum)| add_to(&mut mine.objects, name, *sum));
            theirs.nested.iter().for_each(|(name, sum)| add_to(&mut mine.nested, name, *sum));
        }
    }

    /// Of those that lie in no other one: their time, processor time and time ready but not run within.
    pub(crate) fn outermost(&self) -> (i128, i128, i128) {
        let outer = self.kinds.iter().filter(|k| !k.within);
        outer.fold((0, 0, 0), |(ela, cpu, ready), k| {
            (ela + i128::from(k.times.all.sum_ns), cpu + i128::from(k.cpu_ns), ready + i128::from(k.ready_ns))
        })
    }

    /// Times of the reads that a device answered.
    pub(crate) fn device(&self) -> Times {
        let mut times = Times::default();
        let from_device = |k: &&Kind| k.from.as_deref() == Some("device");
        self.kinds.iter().filter(from_device).for_each(|k| times.merge(&k.times));
        times
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_that_were_summed_are_as_many_as_they_say() {
        let mut waits = Waits::default();
        waits.add(&Wait { nam: "a".into(), ela: 100, ..Wait::default() });
        waits.add(&Wait { nam: "a".into(), ela: 9_000, x: Some(3_000), ..Wait::default() });
        let times = &waits.kinds[0].times;
        assert_eq!(times.all, Sum { count: 3_001, sum_ns: 9_100, max_ns: 100 });
        assert_eq!(times.each(), [(3, 3_000), (100, 1)]);
    }

    #[test]
    fn kinds_and_objects_are_bounded_and_their_sums_whole() {
        let mut waits = Waits::default();
        for n in 0..1000 {
            let (nam, obj) = (format!("wait {n}").into(), None);
            waits.add(&Wait { nam, obj, ela: 3, ..Wait::default() });
            let (nam, obj) = ("one".into(), Some(format!("table {n}").into()));
            waits.add(&Wait { nam, obj, ela: 5, ..Wait::default() });
        }
        assert_eq!(waits.outermost(), (8000, 0, 0));
        let one = waits.kinds.iter().find(|k| k.name == "one").map(|k| (k.objects.len(), k.times.all.count));
        assert_eq!((waits.kinds.len(), one), (KINDS + 1, Some((OBJECTS + 1, 1000))));
    }

    #[test]
    fn what_lies_within_goes_to_the_one_that_follows() {
        let mut waits = Waits::default();
        let wait = |nam: &'static str, ela, within| Wait { nam: nam.into(), ela, within, ..Wait::default() };
        [wait("b", 2, true), wait("b", 3, true), wait("a", 10, false), wait("a", 1, false), wait("c", 4, false)]
            .iter()
            .for_each(|w| waits.add(w));
        assert_eq!(waits.outermost().0, 15);
        let nested: Vec<(&str, usize)> = waits.kinds.iter().map(|k| (k.name.as_str(), k.nested.len())).collect();
        assert_eq!(nested, [("b", 0), ("a", 1), ("c", 0)]);
        assert_eq!(waits.kinds[1].nested, [("b".to_owned(), Sum { count: 2, sum_ns: 5, max_ns: 3 })]);
    }

    #[test]
    fn reads_are_called_by_where_they_came_from() {
        assert_eq!(label("db file sequential read", Some("pagecache")), "read page cache");
        assert_eq!(label("temp read", Some("device")), "temp read, device");
        assert_eq!(label("log file sync", None), "log file sync");
    }
}
