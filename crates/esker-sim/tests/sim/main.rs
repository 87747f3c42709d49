//! The simulation's tests, in one program: scenarios run one after the other (see `esker_sim::runner`).

mod binlog;
mod crash;
mod fault;
mod meta;
mod threads;
mod time;
