//! Transactions: one that is open, what others know of it, views, what it logs, its end.

pub(crate) mod activity;
pub(crate) mod commit;
pub(crate) mod decisions;
pub(crate) mod open;
pub(crate) mod own_rows;
pub(crate) mod prepared;
pub(crate) mod redo;
pub(crate) mod state;
pub(crate) mod views;
pub(crate) mod writers;
pub(crate) mod written;
