//! What the format can say and this engine does not do yet is refused when a folder is opened, before anything is built
//! upon it: ignored, it would be lost. Whoever teaches the engine one of these takes its line out here.

use esker_format::{FormatError, KeyBounds, Record, RunEntry, TableEntry, TableState};

type Known = Result<(), FormatError>;

fn unless(known: bool, what: &'static str, found: u64) -> Known {
    match known {
        true => Ok(()),
        false => Err(FormatError::Unknown { what, found }),
    }
}

/// May the log say this?
pub(super) fn record(record: &Record<'_>) -> Known {
    match record {
        Record::CreateSnapshot { .. } | Record::DropSnapshot { .. } => {
            unless(false, "log record of kind", record.kind().into())
        }
        Record::RowPut { layout, .. } => unless(*layout == 0, "layout version", (*layout).into()),
        Record::CreateTable(entry) => table(entry),
        Record::TreeEdit { add, .. } => add.iter().try_for_each(run),
        Record::Prepare { attach, .. } | Record::Commit { attach, .. } | Record::AlterIndexes { attach, .. } => {
            attach.iter().try_for_each(|r| run(&r.run))
        }
        _ => Ok(()),
    }
}

/// May the manifest say this?
pub(super) fn table_state(state: &TableState) -> Known {
    table(&state.entry)?;
    state.trees.iter().flat_map(|t| &t.runs).try_for_each(run)
}

fn table(entry: &TableEntry) -> Known {
    let layouts = std::iter::once(&entry.layout).chain(&entry.older_layouts);
    layouts.into_iter().try_for_each(|l| unless(l.number == 0, "layout version", l.number.into()))
}

fn run(run: &RunEntry) -> Known {
    unless(run.origin.is_none(), "run from elsewhere, file", run.file.0)?;
    unless(run.layout == 0, "layout version", run.layout.into())?;
    let within = |first, last| run.stats.min_id <= first && last <= run.stats.max_id;
    // Each tree knows which kind is its own.
    let known = match run.bounds {
        KeyBounds::Rows(first, last) => within(first, last),
        KeyBounds::Keys(..) => true,
    };
    unless(known, "bounds of a run, file", run.file.0)
}
