//! What this backend does to the kernel, and reads from it: typed calls over [`wire`](crate::wire), each with as few messages as it takes.
//!
//! Nothing here is a transaction. Changes stand each for itself: many go out together, those that are refused are named by their place, and the
//! others are in force. What is there already when it is to be added, or gone when it is to be deleted, is no refusal.

mod device;
mod ipvs;
mod sets;
#[cfg(test)]
mod tests;

use proxier_sys::netlink::{RefusedMessage, Sent};
use proxier_sys::runner::{CommandSpec, Runner};

use crate::error::Error;

pub use device::{DEVICE, Device};
pub use ipvs::{Dump, Ipvs, Listing, RealServers};
pub use sets::{Sets, temporary};

/// A change that the kernel refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Its place among those that were asked for.
    pub index: usize,
    /// The kernel's error number, positive.
    pub errno: i32,
    /// What it means.
    pub reason: String,
}

impl Refusal {
    fn new(refused: &RefusedMessage, index: usize, reason: String) -> Self {
        let reason = match &refused.message {
            Some(words) => format!("{reason}: {words}"),
            None => reason,
        };
        Self { index, errno: refused.errno, reason }
    }
}

/// Sockets to everything that this backend programs, in the network namespace of the thread that opened them.
#[derive(Debug)]
pub struct Kernel {
    ipvs: Option<Ipvs>,
    /// The ipsets.
    pub sets: Sets,
    /// The interface of the service addresses.
    pub device: Device,
}

impl Kernel {
    /// Opens the sockets. A kernel without IPVS is no error: its leftovers can be removed.
    ///
    /// # Errors
    /// A failure of a socket; [`Error::NoIpset`].
    pub fn open() -> Result<Self, Error> {
        Ok(Self { ipvs: None, sets: Sets::open()?, device: Device::open()? })
    }

    /// How many netlink messages and bytes went out since this was asked last.
    pub fn take_sent(&mut self) -> Sent {
        let mut sent = self.sets.take_sent();
        sent += self.device.take_sent();
        if let Some(ipvs) = &mut self.ipvs {
            sent += ipvs.take_sent();
        }
        sent
    }

    /// The kernel's IPVS, looked for again until it is there. A kernel that has it as a module may load it now.
    ///
    /// # Errors
    /// [`Error::NoIpvs`], or a failure of the socket.
    pub fn ipvs(&mut self) -> Result<&mut Ipvs, Error> {
        match &mut self.ipvs {
            Some(ipvs) => Ok(ipvs),
            ipvs => Ok(ipvs.insert(Ipvs::open()?)),
        }
    }
}

/// Asks for the modules of IPVS and of a scheduler, before either is used. A host without `modprobe`, or with everything built in, is no error; what is
/// there shows in what the kernel then answers.
///
/// A kernel may load both by itself when they are first used, but a scheduler that it loads so can stop it for good: it holds IPVS's lock meanwhile, the
/// modules of `lblc` and `lblcr` wait until no network namespace is being taken down, and that waits for the lock (seen on Linux 6.1; from then on no
/// namespace is made or ended on that host).
///
/// Returns what `modprobe` said against it, for the log.
pub fn load_modules(runner: &dyn Runner, scheduler: &str) -> Option<String> {
    let scheduler = format!("ip_vs_{scheduler}");
    match runner.run(&CommandSpec::new("modprobe", ["-va", "ip_vs", &scheduler])) {
        Ok(output) if output.success() => None,
        Ok(output) => Some(output.first_error_line()),
        Err(error) => Some(error.to_string()),
    }
}
