// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the service manager that has started the server is told: that recovery goes on, so that it does not take the server
//! for one that hangs. systemd kills a service that is not ready in 90 seconds, unless it says that it needs longer.

use esker::{Host, Machine};
use sd_notify::NotifyState;
use std::time::Duration;

/// How much longer than now the start may take, until it is said again.
const LONGER: Duration = Duration::from_secs(30);

/// The machine, under a service manager if `NOTIFY_SOCKET` names one.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Service(Machine);

impl Host for Service {
    fn now(&self) -> Duration {
        self.0.now()
    }

    fn unix(&self) -> Duration {
        self.0.unix()
    }

    fn sleep(&self, time: Duration) {
        self.0.sleep(time);
    }

    fn opening(&self, done: f64) {
        let status = format!("Esker: recovery, {:.0}%", done * 100.0);
        let longer = LONGER.as_micros() as u32;
        // Whether anybody hears it is no matter of the engine's.
        let _ = sd_notify::notify(&[NotifyState::ExtendTimeoutUsec(longer), NotifyState::Status(&status)]);
    }
}
