//! Tables of plain text: two blanks between columns, figures to the right.

use comfy_table::{presets::NOTHING, CellAlignment, Table};
use std::ops::RangeBounds;

/// A table of these lines; columns in `figures` are numbers.
pub(crate) fn table(
    head: Vec<String>,
    lines: impl IntoIterator<Item = Vec<String>>,
    figures: impl RangeBounds<usize>,
) -> String {
    let mut table = Table::new();
    table.load_preset(NOTHING).set_header(head);
    for line in lines {
        table.add_row(line);
    }
    for (c, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 2));
        column.set_cell_alignment(if figures.contains(&c) { CellAlignment::Right } else { CellAlignment::Left });
    }
    table.trim_fmt()
}
