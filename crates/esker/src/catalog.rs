//! Which tables there are: their definitions, names and trees, and the statements that change them.

pub(crate) mod alter;
pub(crate) mod auto_increment;
pub(crate) mod ddl;
pub(crate) mod ids;
pub(crate) mod index;
pub(crate) mod live_rows;
pub(crate) mod statistics;
pub(crate) mod table;
