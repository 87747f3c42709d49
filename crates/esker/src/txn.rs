//! Transactions: what others know of one, views, what it logs, its end.

pub(crate) mod activity;
pub(crate) mod commit;
pub(crate) mod redo;
pub(crate) mod state;
pub(crate) mod views;
