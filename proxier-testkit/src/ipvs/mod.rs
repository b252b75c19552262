//! A model of a host that has IPVS: virtual servers, `kube-ipvs0`, ipsets, and the iptables rules that look into these.
//!
//! What it is: [`Host::apply`] runs a text of sections, each for one of the tools `ipvsadm --restore`, `ipset restore`, `ip -batch -` and
//! `iptables-restore`, line by line, and refuses what tool or kernel would refuse; [`Host::walk`] asks where the first packet of a
//! connection goes, in the order of the kernel's hooks; `load_*` reads what the tools print of a host. It shares no code with any backend.
//!
//! What it is not: connections. A real server of weight 0 gets none, all others the same share, whatever the scheduler.

use std::collections::BTreeSet;
use std::net::IpAddr;

use imbl::OrdSet;
use proxier_core::ids::IpFamily;
use proxier_core::oracle::Packet;

use crate::ipset::Sets;
use crate::iptables::{Families, walk_balanced};
use crate::walk::{BranchOutcome, Delivery, Walk, WalkError, WalkHost};

mod address;
mod servers;
#[cfg(test)]
mod tests;

pub use address::Device;
pub use servers::{Flags, Key, NoTemplate, Servers, Service};

/// A host. Cheap to clone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Host {
    servers: Servers,
    sets: Sets,
    device: Device,
    rules: Families,
}

/// Why a text was refused. What stands before the line has happened, line by line; of rules, table by table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {why}")]
pub struct HostError {
    /// Line, counted from 1.
    pub line: usize,
    /// What was refused, and why.
    pub why: String,
}

/// Who reads a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Section {
    Ipvsadm,
    Ipset,
    Ip,
    Iptables,
}

impl Section {
    /// The section that a comment begins.
    fn begun_by(line: &str) -> Option<Self> {
        let command = line.strip_prefix("# ")?;
        match command.split_whitespace().next()? {
            "ipvsadm" => Some(Self::Ipvsadm),
            "ipset" => Some(Self::Ipset),
            "ip" => Some(Self::Ip),
            "iptables-restore" | "ip6tables-restore" => Some(Self::Iptables),
            _ => None,
        }
    }
}

impl Host {
    /// IPVS.
    #[must_use]
    pub fn servers(&self) -> &Servers {
        &self.servers
    }

    /// IPVS, to be changed: by what it remembers of clients, for example.
    pub fn servers_mut(&mut self) -> &mut Servers {
        &mut self.servers
    }

    /// The ipsets.
    #[must_use]
    pub fn sets(&self) -> &Sets {
        &self.sets
    }

    /// `kube-ipvs0`.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The iptables rules.
    #[must_use]
    pub fn rules(&self) -> &Families {
        &self.rules
    }

    /// The iptables rules, to be changed by somebody else.
    pub fn rules_mut(&mut self) -> &mut Families {
        &mut self.rules
    }

    /// Runs a text of sections. A comment `# TOOL ...` begins one.
    ///
    /// # Errors
    /// The first line that is refused.
    pub fn apply(&mut self, text: &str) -> Result<(), HostError> {
        let mut section = None;
        let mut input: Vec<&str> = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            let begun = Section::begun_by(line);
            if begun.is_some() {
                self.restore(number, &std::mem::take(&mut input))?;
                section = begun;
            }
            match section {
                Some(Section::Iptables) => input.push(line),
                _ if begun.is_some() => {}
                Some(section) => {
                    self.line(section, line).map_err(|why| HostError { line: number, why })?;
                }
                None => return Err(HostError { line: number, why: format!("in no section: {line}") }),
            }
        }
        self.restore(text.lines().count(), &input)
    }

    /// An input for `iptables-restore`, which ended before line `end`.
    fn restore(&mut self, end: usize, lines: &[&str]) -> Result<(), HostError> {
        if lines.is_empty() {
            return Ok(());
        }
        let start = end - lines.len();
        self.share_sets();
        self.rules
            .apply(&lines.join("\n"))
            .map_err(|e| HostError { line: start + e.line, why: e.to_string() })
    }

    fn line(&mut self, section: Section, line: &str) -> Result<(), String> {
        match section {
            Section::Ipvsadm => self.servers.run(line).map_err(|e| e.to_string()),
            Section::Ip => self.device.run(line).map_err(|e| e.to_string()),
            Section::Ipset => {
                let used = self.used_sets();
                self.sets.run(line, &used).map_err(|e| e.to_string())
            }
            Section::Iptables => Err("not one line".to_owned()),
        }
    }

    fn used_sets(&self) -> BTreeSet<String> {
        IpFamily::ALL.into_iter().flat_map(|family| self.rules.get(family).named_sets()).collect()
    }

    /// Rules see the sets as they are.
    fn share_sets(&mut self) {
        for family in IpFamily::ALL {
            self.rules.get_mut(family).set_sets(self.sets.clone());
        }
    }

    /// Loads what `ipvsadm -Sn` prints.
    ///
    /// # Errors
    /// A line that does not belong there.
    pub fn load_ipvsadm(&mut self, text: &str) -> Result<(), HostError> {
        self.apply(&format!("# ipvsadm\n{text}"))
    }

    /// Loads what `ipset save` prints.
    ///
    /// # Errors
    /// A line that does not belong there.
    pub fn load_ipset(&mut self, text: &str) -> Result<(), HostError> {
        self.apply(&format!("# ipset\n{text}"))
    }

    /// Loads the addresses of `kube-ipvs0`, one a line.
    ///
    /// # Errors
    /// A line that does not belong there.
    pub fn load_addresses(&mut self, text: &str) -> Result<(), HostError> {
        let add = |line: &str| format!("address add {line} dev kube-ipvs0\n");
        let lines: String = text.lines().map(add).collect();
        self.apply(&format!("# ip\nlink add kube-ipvs0 type dummy\n{lines}"))
    }

    /// Loads what `iptables-save` prints of a family.
    ///
    /// # Errors
    /// A line that is refused.
    pub fn load_rules(&mut self, family: IpFamily, text: &str) -> Result<(), HostError> {
        let tool = if family == IpFamily::Ipv4 { "iptables-restore" } else { "ip6tables-restore" };
        self.apply(&format!("# {tool}\n{text}"))
    }

    /// Follows the first packet of a connection. The addresses of `kube-ipvs0` are the host's, too.
    ///
    /// Some packets whose source is replaced, though they are not translated, count as left alone: what this host sends to itself gets another
    /// address of its own, which nobody else sees; what has the same source and destination is sent by nobody; and no reply would come to
    /// a source that `kube-ipvs0` has.
    ///
    /// # Errors
    /// See [`WalkError`].
    pub fn walk(&self, packet: &Packet, host: &WalkHost) -> Result<Walk, WalkError> {
        let host = host.clone().with_addresses(self.device.addresses().iter().copied());
        let mut rules = self.rules.get(IpFamily::of(packet.destination)).clone();
        rules.set_sets(self.sets.clone());
        let mut walk = walk_balanced(&rules, packet, &host, Some(&self.servers))?;
        for branch in &mut walk.branches {
            if let BranchOutcome::Accepted { dnat: None, masquerade, delivery } = &mut branch.outcome
                && (*delivery == Delivery::Local
                    || packet.source == packet.destination
                    || self.addresses().contains(&packet.source))
            {
                *masquerade = false;
            }
        }
        Ok(walk)
    }

    /// All addresses of `kube-ipvs0`.
    #[must_use]
    pub fn addresses(&self) -> &OrdSet<IpAddr> {
        self.device.addresses()
    }
}
