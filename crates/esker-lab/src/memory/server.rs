//! A running process's memory: its maps in groups, and Esker's accounts held against them.
//!
//! Esker's regions are maps of their own, which the kernel shows as `[anon:esker]` where it gives anonymous maps names;
//! elsewhere they are among the anonymous maps without a claim to swap space, and so are malloc's for threads.
//! Invariant: the process is looked at once and not stopped, so accounts and maps are of two moments.

use super::MIB;
use crate::details::Details;
use crate::doctor;
use crate::error::{LabError, Result};
use crate::experiment::Experiment;
use crate::noise::Noise;
use crate::options::CommonOptions;
use crate::probe::host::{read_given, read_standard_input};
use crate::probe::maps::{maps, Map, Memory};
use crate::report::{Metric, Report, Row, Status};
use esker_io::IoKind;
use esker_memory::Account;
use serde_json::json;
use std::collections::BTreeMap;
use std::path::Path;

/// Groups of maps, in the order of the report.
const GROUPS: [&str; 8] = [
    "Esker's regions",
    "malloc's heap (brk)",
    "anonymous",
    "anonymous, no swap claimed",
    "anonymous, with other names",
    "main thread's stack",
    "files",
    "guards and address space kept for later",
];
const ESKER: usize = 0;
const NO_SWAP: usize = 3;
/// How the kernel shows the regions' maps.
const ESKER_MAP: &str = "[anon:esker]";

/// The index of a map's group.
fn group(map: &Map) -> usize {
    match map.name.as_str() {
        ESKER_MAP => ESKER,
        _ if !map.usable => 7,
        "[heap]" => 1,
        "" if map.no_reserve => NO_SWAP,
        "" => 2,
        "[stack]" => 5,
        name if name.starts_with("[anon") => 4,
        _ => 6,
    }
}

/// Maps of one group, added up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Sum {
    maps: u64,
    mapped: u64,
    memory: Memory,
}

impl Sum {
    fn and(self, other: Sum) -> Sum {
        Sum { maps: self.maps + other.maps, mapped: self.mapped + other.mapped, memory: self.memory.and(other.memory) }
    }

    fn row(&self, what: &str) -> Row {
        let m = self.memory;
        let sizes = [
            ("mapped", self.mapped),
            ("resident", m.resident),
            ("anonymous", m.anonymous),
            ("swapped", m.swapped),
            ("lazy_free", m.lazy_free),
        ];
        let mut row = row(what, sizes.map(|(name, bytes)| (name, bytes as f64)));
        row.metrics.insert("maps", Metric { unit: "", samples: vec![self.maps as f64] });
        row
    }
}

/// The groups' sums.
fn sums(maps: &[Map]) -> [Sum; GROUPS.len()] {
    let mut sums = [Sum::default(); GROUPS.len()];
    for map in maps {
        let sum = &mut sums[group(map)];
        *sum = sum.and(Sum { maps: 1, mapped: map.bytes(), memory: map.memory });
    }
    sums
}

/// A row of sizes, given in bytes, printed in MiB.
fn row<const N: usize>(what: &str, sizes: [(&'static str, f64); N]) -> Row {
    let metrics = sizes.map(|(name, bytes)| (name, Metric { unit: "MiB", samples: vec![bytes / MIB] }));
    Row {
        params: vec![what.into()],
        metrics: BTreeMap::from(metrics),
        counts: BTreeMap::new(),
        base: None,
        noise: Noise::default(),
        status: Status::Good,
        details: Details::default(),
    }
}

/// What the server's status variables say, in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Accounts {
    /// Accounts by name.
    each: Vec<(&'static str, u64)>,
    /// All of them.
    total: u64,
    /// Regions that live, kept for the next ones, and mapped; servers of before this lab do not tell.
    regions: Option<Regions>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Regions {
    live: u64,
    hot: u64,
    mapped: u64,
}

impl Accounts {
    /// From lines of a name and a number, as the client prints them; other lines are passed over.
    fn parse(text: &str, file: &str) -> Result<Accounts> {
        let mut figures = BTreeMap::new();
        for line in text.lines() {
            let mut words = line.split(['\t', ' ', '|']).filter(|w| !w.is_empty());
            let (Some(name), Some(value)) = (words.next(), words.next()) else { continue };
            let name = name.to_ascii_lowercase();
            if let Some(name) = name.strip_prefix("esker_memory_") {
                let bytes = value.parse::<u64>();
                let why = || LabError::Invalid(format!("{file}: '{value}' is no number of bytes of {name}"));
                figures.insert(name.to_owned(), bytes.map_err(|_| why())?);
            }
        }
        let get = |name: &str| figures.get(name).copied();
        let each: Vec<_> = Account::ALL.iter().filter_map(|a| Some((a.name(), get(a.name())?))).collect();
        if each.len() < Account::ALL.len() {
            let why = format!(
                "{file} has {} of {} accounts; it should be the output of \
                 mariadb -e \"SHOW GLOBAL STATUS LIKE 'Esker_memory%'\"",
                each.len(),
                Account::ALL.len()
            );
            return Err(LabError::Invalid(why));
        }
        let total = get("total").unwrap_or_else(|| each.iter().map(|a| a.1).sum());
        let regions = (get("regions"), get("hot"), get("mapped"));
        let regions = match regions {
            (Some(live), Some(hot), Some(mapped)) => Some(Regions { live, hot, mapped }),
            _ => None,
        };
        Ok(Accounts { each, total, regions })
    }

    fn read(path: &Path) -> Result<Accounts> {
        if path != Path::new("-") {
            return Accounts::parse(&read_given(path)?, &path.display().to_string());
        }
        let text = read_standard_input().map_err(|e| LabError::Failed(format!("standard input: {e}")))?;
        Accounts::parse(&text, "standard input")
    }

    fn rows(&self) -> Vec<Row> {
        let mut rows: Vec<Row> =
            self.each.iter().map(|(name, n)| row(&format!("account {name}"), [("accounted", *n as f64)])).collect();
        rows.push(row("accounts together", [("accounted", self.total as f64)]));
        if let Some(r) = self.regions {
            let of_malloc = self.total.saturating_sub(r.live);
            rows.push(row("  of them in regions", [("accounted", r.live as f64)]));
            rows.push(row("  of them from malloc", [("accounted", of_malloc as f64)]));
            rows.push(row("kept for the next regions", [("accounted", r.hot as f64)]));
        }
        rows
    }
}

/// Resident and swapped bytes beside those accounted for, and what is more than they.
fn against(what: &str, held: u64, accounted: u64) -> Row {
    let rest = held as f64 - accounted as f64;
    row(what, [("resident", held as f64), ("accounted", accounted as f64), ("rest", rest)])
}

/// Accounts held against maps: Esker's own, where they can be told, and all anonymous memory.
fn reconcile(sums: &[Sum], accounts: &Accounts) -> (Vec<Row>, Vec<String>) {
    let held = |memory: Memory| memory.anonymous + memory.swapped;
    let all = sums.iter().fold(Sum::default(), |sum, s| sum.and(*s));
    let hot = accounts.regions.map_or(0, |r| r.hot);
    let everything = against("all of no file, against accounts", held(all.memory), accounts.total + hot);
    let mut notes = vec!["'rest' is what the maps hold beyond the accounts: of all memory of no file, the server's own and \
                          malloc's; of Esker's regions, memory that nobody answers for. Less than nothing: memory that was \
                          asked for and not touched yet, or freed between the two looks."
        .to_owned()];
    let (esker, no_swap) = (sums[ESKER], sums[NO_SWAP]);
    let own = "Esker's regions, against accounts";
    let mut rows = Vec::new();
    match accounts.regions {
        None => rows.push(refused(own, "the server does not tell Esker_memory_regions, _hot and _mapped")),
        Some(r) if esker.maps == 0 => {
            rows.push(refused(
                own,
                "no map is named [anon:esker]: the kernel gives no names (CONFIG_ANON_VMA_NAME), or there are no regions",
            ));
            if no_swap.maps > 0 {
                rows.push(against("no swap claimed, against regions", held(no_swap.memory), r.live + r.hot));
                notes.push(NO_NAMES.to_owned());
            }
        }
        Some(r) => {
            rows.push(against(own, held(esker.memory), r.live + r.hot));
            let (kernel, server) = (esker.mapped, r.mapped);
            notes.push(format!("Address space of Esker's maps: {kernel} bytes by the kernel, {server} by the server."));
        }
    }
    rows.push(everything);
    (rows, notes)
}

const NO_NAMES: &str =
    "Without names Esker's regions are among the maps that claim no swap, with malloc's for threads: \
                        what nobody answers for is at most the 'rest' of these.";

fn refused(what: &str, why: &str) -> Row {
    Row { status: Status::Unsupported(why.into()), ..row(what, []) }
}

/// The maps of a process.
fn maps_of(pid: u32) -> Result<Vec<Map>> {
    maps(pid).map_err(|e| match e.kind {
        IoKind::NotFound => LabError::Invalid(format!("there is no process {pid} with memory of its own")),
        IoKind::ReadOnly => {
            LabError::Unsupported(format!("process {pid} is somebody else's; its user and root may look at it"))
        }
        _ => e.into(),
    })
}

/// Looks at a process, and at the accounts if there are any.
///
/// # Errors
/// No such process, or not ours; accounts that are none; a folder that cannot be written.
pub(super) fn report(common: &CommonOptions, pid: u32, accounts: Option<&Path>) -> Result<Report> {
    let experiment = Experiment::begin(common, "memory")?;
    let accounts_read = accounts.map(Accounts::read).transpose()?;
    let sums = sums(&maps_of(pid)?);
    let all = sums.iter().fold(Sum::default(), |sum, s| sum.and(*s));
    let some = GROUPS.iter().zip(&sums).filter(|(_, sum)| sum.maps > 0);
    let mut rows: Vec<Row> = some.map(|(name, sum)| sum.row(name)).collect();
    rows.push(all.row("all maps"));
    let mut notes = vec![format!(
        "Process {pid}, looked at once, whatever --runs says. Stacks of threads other than the first are anonymous; \
         malloc's memory for other threads claims no swap."
    )];
    if let Some(accounts) = &accounts_read {
        rows.extend(accounts.rows());
        let (more, words) = reconcile(&sums, accounts);
        rows.extend(more);
        notes.extend(words);
    }
    Ok(Report {
        command: "memory",
        options: experiment.options(json!({ "pid": pid, "accounts": accounts.map(|p| p.display().to_string()) })),
        machine: doctor::machine(&common.dir),
        params: vec!["what"],
        shown: vec![
            ("maps", "maps"),
            ("mapped", "MiB mapped"),
            ("resident", "resident"),
            ("anonymous", "of no file"),
            ("swapped", "swapped"),
            ("lazy_free", "lazily free"),
            ("accounted", "accounted"),
            ("rest", "rest"),
        ],
        shown_counts: vec![],
        relative: None,
        null_difference: None,
        rows,
        notes,
        ..Report::default()
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn map(name: &str, no_reserve: bool, mib: u64) -> Map {
        let memory = Memory { resident: mib << 20, anonymous: mib << 20, ..Memory::default() };
        Map { start: 0, end: mib << 21, usable: true, no_reserve, name: name.into(), memory }
    }

    fn status(more: &str) -> String {
        let each: Vec<String> = Account::ALL.iter().map(|a| format!("Esker_memory_{}\t1048576\n", a.name())).collect();
        format!("Variable_name\tValue\n{}Esker_memory_limit\t9\n{more}", each.concat())
    }

    fn figure(row: &Row, name: &str) -> f64 {
        row.summary(name).unwrap().median
    }

    #[test]
    fn maps_go_to_their_groups() {
        let named = ["[anon:esker]", "[heap]", "", "", "[anon:other]", "[stack]", "/usr/bin/x"];
        let mut maps: Vec<Map> = named.iter().enumerate().map(|(i, n)| map(n, i == 3, 1)).collect();
        maps.push(Map { usable: false, ..map("", true, 1) });
        assert!(sums(&maps).iter().all(|s| s.maps == 1 && s.mapped == 2 << 20), "{:?}", sums(&maps));
    }

    #[test]
    fn named_regions_are_held_against_their_own_figures() {
        let told = "Esker_memory_total\t8388608\nEsker_memory_regions\t6291456\nEsker_memory_hot\t1048576\n\
                    Esker_memory_mapped\t20971520\n";
        let accounts = Accounts::parse(&status(told), "file").unwrap();
        assert_eq!(accounts.regions, Some(Regions { live: 6 << 20, hot: 1 << 20, mapped: 20 << 20 }));
        let sums = sums(&[map("[anon:esker]", false, 10), map("", false, 5)]);
        let (rows, notes) = reconcile(&sums, &accounts);
        // 10 MiB resident, 6 live and 1 kept: 3 that nobody answers for. Of all 15, 8 on accounts and 1 kept.
        assert_eq!((figure(&rows[0], "rest"), figure(&rows[1], "rest")), (3.0, 6.0));
        assert!(notes[1].contains("20971520 bytes by the kernel, 20971520 by the server"), "{notes:?}");
    }

    #[test]
    fn maps_without_names_are_not_guessed_at() {
        let accounts = Accounts::parse(&status(""), "file").unwrap();
        assert_eq!((accounts.total, accounts.regions), (8 << 20, None));
        let (rows, _) = reconcile(&sums(&[map("[anon:esker]", true, 10)]), &accounts);
        assert!(matches!(&rows[0].status, Status::Unsupported(why) if why.contains("_hot")));
        assert_eq!((rows.len(), figure(&rows[1], "rest")), (2, 2.0));
        let told = "Esker_memory_regions\t4194304\nEsker_memory_hot\t0\nEsker_memory_mapped\t9\n";
        let accounts = Accounts::parse(&status(told), "file").unwrap();
        let (rows, _) = reconcile(&sums(&[map("", true, 10), map("", false, 1)]), &accounts);
        assert!(matches!(&rows[0].status, Status::Unsupported(why) if why.contains("CONFIG_ANON_VMA_NAME")));
        // At most 10 - 4 MiB of Esker's that nobody answers for.
        assert_eq!((figure(&rows[1], "rest"), figure(&rows[2], "rest")), (6.0, 3.0));
    }

    #[test]
    fn accounts_that_are_none_are_refused() {
        let why = |text: &str| Accounts::parse(text, "file").unwrap_err().to_string();
        assert!(why("").contains("0 of 8 accounts"));
        assert!(why(&status("Esker_memory_total\tmuch\n")).contains("'much' is no number"));
    }
}
