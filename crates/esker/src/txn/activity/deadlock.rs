//! The last deadlock, for the status page: who waited for whom, and with which statements, as it was then.

use super::locks::{connections, mode_of, Trees};
use crate::host::Host;
use crate::lock::{LockError, LockMode};
use crate::session::Session;
use crate::Error;
use esker_format::TxnId;
use std::fmt::Write;
use std::time::Duration;

/// Of a longer circle so many are told.
const MOST: usize = 20;

/// See the module.
#[derive(Clone)]
pub(crate) struct Deadlock {
    at: Duration,
    /// Each waits for the next, the last for the first, who is the victim.
    waits: Vec<Side>,
    more: usize,
}

#[derive(Clone)]
struct Side {
    txn: TxnId,
    connection: u64,
    wants: String,
    table: String,
    text: String,
    statement: Option<String>,
}

impl Deadlock {
    /// Appends it as text, with tables called as `name` calls them.
    pub(crate) fn tell(&self, host: &dyn Host, name: &dyn Fn(&str) -> String, out: &mut String) {
        let _ = writeln!(out, "{} s ago", host.now().saturating_sub(self.at).as_secs());
        for side in &self.waits {
            let Side { txn, connection, wants, text, .. } = side;
            let _ = write!(out, "transaction {txn}, connection {connection}, waits for {wants} of ");
            let _ = writeln!(out, "{}: {text}, behind the next", name(&side.table));
            let _ = writeln!(out, "    {}", side.statement.as_deref().unwrap_or("(statement not known)"));
        }
        if self.more > 0 {
            let _ = writeln!(out, "and {} more", self.more);
        }
        if let Some(victim) = self.waits.first() {
            let _ = writeln!(out, "the last waits for the first; transaction {} was refused", victim.txn);
        }
    }
}

impl Session {
    /// The error of a lock that was not granted. The victim of a deadlock tells what it was about.
    pub(crate) fn lock_failed(&self, e: LockError) -> Error {
        if e == LockError::Deadlock {
            self.tell_deadlock();
        }
        e.into()
    }

    fn tell_deadlock(&self) {
        let (Some(me), core) = (self.txn_id(), &self.core) else { return };
        let circle = core.locks.closed_by(me);
        if circle.is_empty() {
            return;
        }
        // Who will read it is not known.
        let trees = Trees::of(core, circle.iter().map(|w| w.key.tree()).collect(), None);
        let connections = connections(core);
        let side = |wait: &crate::lock::Waiter| {
            let (what, connection) = (trees.wanted(wait), connections.get(&wait.txn).copied().unwrap_or_default());
            let mode = match mode_of(wait) {
                None => "",
                Some(LockMode::Shared) => "a shared ",
                Some(LockMode::Exclusive) => "an exclusive ",
            };
            let text = what.named_text().unwrap_or_default();
            Side {
                txn: wait.txn,
                connection,
                wants: format!("{mode}{}", what.kind),
                table: what.table,
                text,
                statement: self.hooks.statement(connection),
            }
        };
        let waits: Vec<Side> = circle.iter().take(MOST).map(side).collect();
        let more = circle.len() - waits.len();
        *core.sessions.last_deadlock.lock() = Some(Deadlock { at: core.host.now(), waits, more });
    }
}
