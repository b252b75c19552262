//! Differences of virtual servers and entries, and the operations that they need.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use proxier_core::ids::ServicePortName;

use crate::drain::Drains;
use crate::fragment::Balanced;
use crate::objects::{RealServer, ServiceKey, VirtualServer};
use crate::ops::{Op, drains};
use crate::order::{Phase, Sequence};
use crate::sets::{Entry, SetId};

/// How a real server stands in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It takes part, as we write it.
    Taking,
    /// It has weight 0.
    Draining,
    /// It takes part otherwise than we write it.
    Otherwise,
}

/// A virtual server as it is.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    /// Its settings; `None` if they are none that we write.
    pub(crate) server: Option<VirtualServer>,
    pub(crate) real: BTreeMap<RealServer, Standing>,
    /// Who has it, if that is known.
    pub(crate) port: Option<ServicePortName>,
}

/// A virtual server before and after.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServiceEdit {
    pub(crate) held: Option<Held>,
    pub(crate) wanted: Option<(Balanced, ServicePortName)>,
}

/// An entry that comes or goes, and whose it is.
pub(crate) type Entries = BTreeMap<(SetId, Entry), Option<ServicePortName>>;

/// Everything that differs, but for rules.
#[derive(Debug, Default)]
pub(crate) struct Edits {
    pub(crate) services: BTreeMap<ServiceKey, ServiceEdit>,
    pub(crate) added: Entries,
    pub(crate) removed: Entries,
    pub(crate) bound: Addresses,
    pub(crate) unbound: Addresses,
}

/// Addresses of `kube-ipvs0` that come or go, and whose they are.
pub(crate) type Addresses = BTreeMap<IpAddr, Option<ServicePortName>>;

/// What must be asked about entries that do not differ.
pub(crate) trait Members {
    /// Is it there in the end?
    fn stays(&self, id: SetId, entry: &Entry) -> bool;
    /// Is it there now?
    fn is_there(&self, id: SetId, entry: &Entry) -> bool;
}

impl Edits {
    /// Puts the operations in their places. Real servers that begin to drain are put down, and those that end it are not any more.
    pub(crate) fn write(self, members: &impl Members, waiting: &mut Drains, out: &mut Sequence) {
        for (key, edit) in &self.services {
            match (&edit.held, &edit.wanted) {
                (held, Some((wanted, port))) => change(held.as_ref(), wanted, port, waiting, out),
                (Some(held), None) => {
                    delete(*key, held.port.as_ref(), members, out);
                    waiting.forget(key);
                }
                (None, None) => {}
            }
        }
        self.write_entries(members, out);
        for (ip, port) in &self.bound {
            out.add(Phase::Bound, Op::Bind(*ip), port.as_ref());
        }
        for (ip, port) in &self.unbound {
            out.add(Phase::Unbound, Op::Unbind(*ip), port.as_ref());
        }
    }

    /// Addresses as the entries that name them: where both are believed to be alike.
    pub(crate) fn bind_as_named(&mut self) {
        let named = |entries: &Entries| -> Addresses {
            entries
                .iter()
                .filter_map(|((id, entry), port)| Some((address(*id, entry)?, port.clone())))
                .collect()
        };
        self.bound = named(&self.added);
        self.unbound = named(&self.removed);
    }

    fn write_entries(&self, members: &impl Members, out: &mut Sequence) {
        for ((id, entry), port) in &self.added {
            // A frontend that is new has no real server yet; of another one those that may not be reached must go first.
            let known = id.whole().is_some_and(|whole| !self.added.contains_key(&(whole, *entry)));
            let phase = match id {
                SetId::LoadBalancerSourceCidr | SetId::LoadBalancerSourceIp => Phase::Qualifying,
                SetId::IpvsIps | SetId::Servers => Phase::Recorded,
                _ if known => Phase::Kept,
                _ if id.whole().is_some() => Phase::Qualifying,
                _ => Phase::Entries,
            };
            out.add(phase, Op::AddEntry(*id, *entry), port.as_ref());
        }
        for ((id, entry), port) in &self.removed {
            let stays = id.whole().is_some_and(|whole| members.stays(whole, entry));
            let phase = match id {
                SetId::LoadBalancerSourceCidr | SetId::LoadBalancerSourceIp => Phase::Unqualified,
                SetId::Reject | SetId::Drop | SetId::DropOutside => Phase::Admitted,
                _ if stays => Phase::Unkept,
                _ if id.whole().is_some() => Phase::Unqualified,
                _ => Phase::Cleared,
            };
            out.add(phase, Op::DeleteEntry(*id, *entry), port.as_ref());
        }
    }
}

/// The address that an entry has bound.
pub(crate) fn address(id: SetId, entry: &Entry) -> Option<IpAddr> {
    match (id, entry) {
        (SetId::IpvsIps, Entry::Ip(ip)) => Some(*ip),
        _ => None,
    }
}

fn change(
    held: Option<&Held>,
    wanted: &Balanced,
    port: &ServicePortName,
    waiting: &mut Drains,
    out: &mut Sequence,
) {
    let (server, key, port) = (&wanted.server, wanted.server.key, Some(port));
    match held {
        None => out.add(Phase::Services, Op::AddService(server.clone()), port),
        Some(held) if held.server.as_ref() != Some(server) => {
            out.add(Phase::Services, Op::EditService(server.clone()), port);
        }
        Some(_) => {}
    }
    let none = BTreeMap::new();
    let there = held.map_or(&none, |h| &h.real);
    for real in &wanted.real {
        match there.get(real) {
            None => out.add(Phase::Servers, Op::AddServer(key, *real), port),
            Some(Standing::Taking) => {}
            Some(Standing::Draining | Standing::Otherwise) => {
                out.add(Phase::Servers, Op::Revive(key, *real), port);
            }
        }
        waiting.remove(&key, real);
    }
    let wanted: BTreeSet<&RealServer> = wanted.real.iter().collect();
    for (real, standing) in there.iter().filter(|(real, _)| !wanted.contains(real)) {
        if *standing != Standing::Draining || !drains(&key) {
            out.add(Phase::Retired, Op::Retire(key, *real), port);
        }
        if drains(&key) {
            waiting.insert(key, *real);
        }
    }
}

/// While the address stays local and no entry tells that it is a frontend, or one does and no virtual server is there, this host would answer
/// itself.
fn delete(key: ServiceKey, port: Option<&ServicePortName>, members: &impl Members, out: &mut Sequence) {
    let guard = Entry::IpPort(key.ip, key.protocol, key.port);
    let local = members.stays(SetId::IpvsIps, &Entry::Ip(key.ip));
    if local && !members.is_there(SetId::Reject, &guard) {
        out.add(Phase::Guarded, Op::AddEntry(SetId::Reject, guard), port);
        out.add(Phase::Admitted, Op::DeleteEntry(SetId::Reject, guard), port);
    }
    out.add(Phase::Deleted, Op::DeleteService(key), port);
}
