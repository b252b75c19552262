//! A host with IPVS as a kernel model.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use proxier_core::oracle::Packet;

use super::Model;
use crate::ipvs::{Host, NoTemplate};
use crate::walk::{Walk, WalkHost};

impl Model for Host {
    /// See [`Host::apply`]: what stands before a line that is refused has happened.
    fn apply(&mut self, script: &str) -> Result<(), String> {
        Self::apply(self, script).map_err(|e| e.to_string())
    }

    fn walk(&self, packet: &Packet, host: &WalkHost) -> Result<Walk, String> {
        Self::walk(self, packet, host).map_err(|e| e.to_string())
    }

    /// The record is a real server: every persistent virtual server that has it remembers the client there. Where none has it, since all have
    /// the endpoints of another scope, no client can have been sent there, and none is remembered.
    fn remember(&mut self, record: &str, client: IpAddr) -> Result<(), String> {
        let real: SocketAddr = record.parse().map_err(|_| format!("not an address: {record}"))?;
        match self.servers_mut().remember(real, client) {
            Ok(()) | Err(NoTemplate(_)) => Ok(()),
        }
    }

    /// Real servers of weight 0 do not count: they only wait for their connections to end.
    fn objects(&self) -> BTreeSet<String> {
        let mut out = self.rules().objects();
        for (key, service) in self.servers().iter() {
            out.insert(format!("virtual server {key:?} {}", service.flags));
            let taking = service.real.iter().filter(|(_, weight)| **weight > 0);
            out.extend(taking.map(|(real, weight)| format!("real server {key:?} {real} {weight}")));
        }
        for (name, set) in self.sets().iter() {
            out.insert(format!("set {name} {set}"));
            out.extend(set.entries.iter().map(|entry| format!("entry {name} {entry}")));
        }
        out.extend(self.addresses().iter().map(|ip| format!("address {ip}")));
        out.extend(self.device().is_there().then(|| "kube-ipvs0".to_owned()));
        out
    }
}
