//! The dummy interface.

use std::net::IpAddr;

use imbl::OrdSet;

/// `kube-ipvs0`, there or not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Device {
    there: bool,
    addresses: OrdSet<IpAddr>,
}

/// Why `ip` refused a line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("ip: {1}, at `{0}`")]
pub struct AddressError(String, &'static str);

impl Device {
    /// Is the interface there?
    #[must_use]
    pub fn is_there(&self) -> bool {
        self.there
    }

    /// Its addresses.
    #[must_use]
    pub fn addresses(&self) -> &OrdSet<IpAddr> {
        &self.addresses
    }

    /// Does what one line of `ip -batch` says.
    ///
    /// # Errors
    /// What the tool or the kernel would refuse.
    pub fn run(&mut self, line: &str) -> Result<(), AddressError> {
        self.one(line).map_err(|why| AddressError(line.to_owned(), why))
    }

    fn one(&mut self, line: &str) -> Result<(), &'static str> {
        match *line.split_whitespace().collect::<Vec<_>>() {
            ["link", "add", "kube-ipvs0", "type", "dummy"] => {
                let there = std::mem::replace(&mut self.there, true);
                if there { Err("File exists") } else { Ok(()) }
            }
            ["link", "del", "kube-ipvs0"] => {
                let there = std::mem::take(self).there;
                if there { Ok(()) } else { Err("Cannot find device") }
            }
            ["address", what @ ("add" | "del"), address, "dev", "kube-ipvs0"] => {
                if !self.there {
                    return Err("Cannot find device");
                }
                let ip = single(address).ok_or("inet prefix is expected")?;
                match what {
                    "add" if self.addresses.insert(ip).is_some() => Err("File exists"),
                    "del" if self.addresses.remove(&ip).is_none() => Err("Cannot assign requested address"),
                    _ => Ok(()),
                }
            }
            _ => Err("not understood"),
        }
    }
}

/// An address with the length of one.
fn single(text: &str) -> Option<IpAddr> {
    let (ip, length) = text.split_once('/')?;
    let ip: IpAddr = ip.parse().ok()?;
    (length == if ip.is_ipv4() { "32" } else { "128" }).then_some(ip)
}
