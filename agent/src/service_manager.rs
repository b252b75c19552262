//! Tells the service manager how far we are: `READY=1` when the rules are in force, and a line of status meanwhile.
//!
//! The protocol is that of `sd_notify(3)`: datagrams of `KEY=VALUE` lines to the socket that `NOTIFY_SOCKET` names, a path or, with
//! `@` before it, an abstract name. Without the variable nothing is sent. A message that cannot be sent is logged and does no harm.

use std::ffi::OsString;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// A service manager that listens, or none.
#[derive(Debug, Default)]
pub struct Notifier(Option<(UnixDatagram, SocketAddr)>);

impl Notifier {
    /// The one that the environment names.
    #[must_use]
    pub fn from_environment() -> Self {
        match std::env::var_os("NOTIFY_SOCKET") {
            Some(name) if !name.is_empty() => Self::at(&name).unwrap_or_else(|error| {
                tracing::warn!(socket = %name.display(), error = %error, "cannot reach the service manager");
                Self::default()
            }),
            _ => Self::default(),
        }
    }

    /// The one that listens at this name.
    ///
    /// # Errors
    /// No socket can be made, or the name is none.
    pub fn at(name: &OsString) -> io::Result<Self> {
        let address = match name.as_bytes() {
            [b'@', rest @ ..] => SocketAddr::from_abstract_name(rest)?,
            _ => SocketAddr::from_pathname(name)?,
        };
        Ok(Self(Some((UnixDatagram::unbound()?, address))))
    }

    /// Another handle on the same service manager; one that tells nobody when that cannot be.
    #[must_use]
    pub fn another(&self) -> Self {
        let clone = |(socket, address): &(UnixDatagram, SocketAddr)| {
            Some((socket.try_clone().ok()?, address.clone()))
        };
        Self(self.0.as_ref().and_then(clone))
    }

    /// What is being done, in a line.
    pub fn status(&self, line: &str) {
        self.send(&format!("STATUS={}", one_line(line)));
    }

    /// The rules are in force.
    pub fn ready(&self, line: &str) {
        self.send(&format!("READY=1\nSTATUS={}", one_line(line)));
    }

    /// The configuration is read again. The manager waits for [`Notifier::ready`]; it knows by the time, in microseconds of the monotonic clock, which
    /// request this answers (`systemd.service(5)`, `Type=notify-reload`).
    pub fn reloading(&self) {
        let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC);
        let micros = now.map_or(0, |t| t.tv_sec() * 1_000_000 + t.tv_nsec() / 1000);
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={micros}\nSTATUS=reading the configuration again"));
    }

    /// About to end; the rules stay.
    pub fn stopping(&self) {
        self.send("STOPPING=1\nSTATUS=stopping; the rules stay in force");
    }

    fn send(&self, message: &str) {
        let Some((socket, address)) = &self.0 else { return };
        if let Err(error) = socket.send_to_addr(message.as_bytes(), address) {
            tracing::debug!(error = %error, "cannot tell the service manager");
        }
    }
}

fn one_line(text: &str) -> String {
    text.replace(['\n', '\r'], " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(socket: &UnixDatagram) -> String {
        let mut buffer = [0; 256];
        let length = socket.recv(&mut buffer).expect("a message");
        String::from_utf8(buffer[..length].to_vec()).expect("text")
    }

    #[test]
    fn states_are_sent_to_a_path() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("notify");
        let manager = UnixDatagram::bind(&path).expect("bound");
        let notifier = Notifier::at(&path.into_os_string()).expect("a path");
        notifier.status("4 of\n10");
        assert_eq!(heard(&manager), "STATUS=4 of 10");
        notifier.another().ready("in force");
        assert_eq!(heard(&manager), "READY=1\nSTATUS=in force");
        notifier.stopping();
        assert!(heard(&manager).starts_with("STOPPING=1\n"));
    }

    #[test]
    fn a_name_may_be_abstract() {
        let name = format!("proxier-notify-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).expect("a name");
        let manager = UnixDatagram::bind_addr(&address).expect("bound");
        Notifier::at(&format!("@{name}").into()).expect("a name").status("x");
        assert_eq!(heard(&manager), "STATUS=x");
    }

    #[test]
    fn a_reload_says_when_it_began() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("notify");
        let manager = UnixDatagram::bind(&path).expect("bound");
        let notifier = Notifier::at(&path.into_os_string()).expect("a path");
        let micros = |said: &str| {
            let line = said.lines().find_map(|l| l.strip_prefix("MONOTONIC_USEC=")).expect("a time");
            line.parse::<u64>().expect("a number")
        };
        notifier.reloading();
        let first = heard(&manager);
        assert!(first.starts_with("RELOADING=1\n"), "{first}");
        notifier.reloading();
        assert!(micros(&heard(&manager)) >= micros(&first));
        assert!(micros(&first) > 0);
    }

    #[test]
    fn nobody_needs_to_listen() {
        Notifier::default().ready("x");
        Notifier::at(&"/nowhere/at/all".into()).expect("a path").ready("x");
    }
}
