//! The colours of lines: a name has the same one in all plots of a page.

use super::draw::COLOURS;
use super::layout::Layout;
use super::plots::rows;
use super::NamedReport;

/// A command's lines and their colours, which are the same in all of its plots.
#[derive(Debug)]
pub(super) struct LineColours {
    pub(super) command: String,
    pub(super) lines: Vec<(String, usize)>,
    /// Something is drawn in them.
    drawn: bool,
}

impl LineColours {
    /// Does the page's legend tell them? More than there are colours have one beside their plot.
    pub(super) fn is_told(&self) -> bool {
        self.drawn && self.lines.len() > 1 && self.lines.len() <= COLOURS
    }

    pub(super) fn of(&self, line: &str) -> usize {
        self.lines.iter().find(|l| l.0 == line).map_or(0, |l| l.1)
    }
}

/// The colours of each command's lines: a name that another command has, too, has the same one, if it is free.
pub(super) fn colours(commands: &[(String, Vec<NamedReport<'_>>)]) -> Vec<LineColours> {
    let mut known: Vec<(String, usize)> = Vec::new();
    let mut paint = |(command, reports): &(String, Vec<NamedReport<'_>>)| {
        let Some((_, first)) = reports.first() else {
            return LineColours { command: command.clone(), lines: Vec::new(), drawn: false };
        };
        let layout = Layout::of(first);
        let mut taken = Vec::new();
        let of = |name: &String| known.iter().find(|k| k.0 == *name).map(|k| k.1);
        taken.extend(layout.lines.iter().filter_map(of));
        let mut lines: Vec<(String, usize)> = Vec::new();
        for (n, name) in layout.lines.iter().enumerate() {
            let mine = of(name).filter(|c| !lines.iter().any(|l| l.1 == *c));
            let free = || (0..COLOURS).find(|c| !taken.contains(c) && !lines.iter().any(|l| l.1 == *c));
            lines.push((name.clone(), mine.or_else(free).unwrap_or(n % COLOURS)));
        }
        known.extend(lines.iter().filter(|l| of(&l.0).is_none()).cloned().collect::<Vec<_>>());
        let parts = ["times", "histograms", "groups", "processor"];
        let drawn = layout.axis.is_some() || rows(first).any(|r| parts.iter().any(|p| r[*p].is_object()));
        LineColours { command: command.clone(), lines, drawn }
    };
    commands.iter().map(&mut paint).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_name_has_one_colour_in_all_commands() {
        let report = |names: &[&str]| {
            let row = |way: &&str| json!({ "params": { "way": way }, "times": {}, "status": "good" });
            json!({ "params": ["way"], "rows": names.iter().map(row).collect::<Vec<_>>() })
        };
        let many: Vec<String> = (0..=COLOURS).map(|n| format!("way {n}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let all = [report(&["a", "b"]), report(&["c", "b", "d"]), report(&["a"]), report(&many)];
        let commands: Vec<(String, Vec<NamedReport<'_>>)> =
            all.iter().enumerate().map(|(n, r)| (n.to_string(), vec![("x", r)])).collect();
        let line_colours = colours(&commands);
        let of = |n: usize| line_colours[n].lines.iter().map(|l| l.1).collect::<Vec<_>>();
        // c is not given b's, which comes after it.
        assert_eq!((of(0), of(1), of(2)), (vec![0, 1], vec![0, 1, 2], vec![0]));
        assert_eq!(line_colours.iter().map(LineColours::is_told).collect::<Vec<_>>(), [true, true, false, false]);
    }
}
