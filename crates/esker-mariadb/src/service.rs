// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the service manager that has started the server is told: that recovery goes on, so that it does not take the server
//! for one that hangs. systemd kills a service that is not ready in 90 seconds, unless it says that it needs longer.

use esker::{Host, Machine};
use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
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
        let Some(manager) = std::env::var_os("NOTIFY_SOCKET") else { return };
        let longer = LONGER.as_micros();
        let news = format!("EXTEND_TIMEOUT_USEC={longer}\nSTATUS=Esker: recovery, {:.0}%\n", done * 100.0);
        // Whether anybody hears it is no matter of the engine's.
        let _ = tell(&manager, &news);
    }
}

/// As sd_notify(3) does, but for waiting: recovery goes on, whether a manager reads what it is told or not.
fn tell(manager: &OsStr, news: &str) -> io::Result<()> {
    let address = match manager.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(manager)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    socket.send_to_addr(news.as_bytes(), &address)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(by: &UnixDatagram) -> String {
        let mut room = [0; 100];
        let length = by.recv(&mut room).unwrap();
        String::from_utf8_lossy(&room[..length]).into_owned()
    }

    #[test]
    fn a_manager_is_told_at_its_path_or_abstract_name() {
        let path = std::env::temp_dir().join(format!("esker-notify-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let manager = UnixDatagram::bind(&path).unwrap();
        tell(path.as_os_str(), "READY=1").unwrap();
        assert_eq!(heard(&manager), "READY=1");
        // Nobody there, no socket, too long, empty.
        std::fs::remove_file(&path).unwrap();
        let long = format!("/{}", "x".repeat(200));
        for nowhere in [path.to_str().unwrap(), "/dev/null", &long, &format!("@{long}"), "", "@"] {
            assert!(tell(OsStr::new(nowhere), "READY=1").is_err(), "{nowhere}");
        }
        let name = format!("@esker-notify-{}", std::process::id());
        let abstracted = SocketAddr::from_abstract_name(&name[1..]).unwrap();
        let manager = UnixDatagram::bind_addr(&abstracted).unwrap();
        tell(OsStr::new(&name), "READY=1").unwrap();
        assert_eq!(heard(&manager), "READY=1");
    }

    /// A datagram more than its queue holds would wait for it.
    #[test]
    fn a_manager_that_reads_nothing_holds_nobody_up() {
        let path = std::env::temp_dir().join(format!("esker-deaf-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let _manager = UnixDatagram::bind(&path).unwrap();
        let (done, told) = std::sync::mpsc::channel();
        let to = path.clone();
        #[allow(clippy::disallowed_methods)]
        std::thread::spawn(move || {
            let refused = (0..5000).filter(|_| tell(to.as_os_str(), "STATUS=busy").is_err()).count();
            let _ = done.send(refused);
        });
        let refused = told.recv_timeout(Duration::from_secs(60));
        std::fs::remove_file(&path).unwrap();
        assert!(refused.expect("it waits") > 0);
    }
}
