//! What is done to the kernel, one object at a time, and the text that a tool would be given for it.

use std::net::IpAddr;

use proxier_core::backend::PlanEntry;
use proxier_core::ids::{IpFamily, Protocol, ServicePortName};
use proxier_xtables::objects::Input;

use crate::objects::{DRAINING, RealServer, ServiceKey, VirtualServer, WEIGHT};
use crate::sets::{Entry, SetId, SetType};

/// The dummy interface that makes service addresses local (ipvs spec 3).
pub const DEVICE: &str = "kube-ipvs0";

/// One operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Creates a set that is not there. One of the same name and type is as good.
    CreateSet(SetId),
    /// Creates the interface, which is never brought up.
    CreateDevice,
    /// Adds an entry; one that is there is as good.
    AddEntry(SetId, Entry),
    /// Removes an entry; one that is not there is as good.
    DeleteEntry(SetId, Entry),
    /// One input of `iptables-restore --noflush`.
    Rules(Input),
    /// Creates a virtual server, without real servers.
    AddService(VirtualServer),
    /// Gives an existing virtual server other settings, in place.
    EditService(VirtualServer),
    /// Deletes a virtual server with its real servers, at once.
    DeleteService(ServiceKey),
    /// Adds a real server that takes part.
    AddServer(ServiceKey, RealServer),
    /// Lets a real server that is there take part, with the connections that it has.
    Revive(ServiceKey, RealServer),
    /// A real server gets no new connections, and goes: at once if it is UDP's or has none, else when it has none any more or
    /// its time is up (see [`drain`](crate::drain)).
    Retire(ServiceKey, RealServer),
    /// Makes an address local; one that is there is as good.
    Bind(IpAddr),
    /// The opposite; one that is not there is as good.
    Unbind(IpAddr),
}

/// An operation and the service port that it is for; `None` for what all share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Action {
    /// The operation.
    pub op: Op,
    /// The service port.
    pub port: Option<ServicePortName>,
}

/// Who is given an operation's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tool {
    /// `ipset restore`.
    Ipset,
    /// `ipvsadm --restore`.
    Ipvsadm,
    /// `ip -batch -`.
    Ip,
    /// `iptables-restore --noflush`, or its IPv6 form.
    Iptables,
}

impl Tool {
    /// Its command line.
    #[must_use]
    pub fn command(self, family: IpFamily) -> &'static str {
        match (self, family) {
            (Self::Ipset, _) => "ipset restore",
            (Self::Ipvsadm, _) => "ipvsadm --restore",
            (Self::Ip, _) => "ip -batch -",
            (Self::Iptables, IpFamily::Ipv4) => "iptables-restore --noflush",
            (Self::Iptables, IpFamily::Ipv6) => "ip6tables-restore --noflush",
        }
    }
}

impl Op {
    /// Who would be given its text.
    #[must_use]
    pub fn tool(&self) -> Tool {
        match self {
            Self::CreateSet(_) | Self::AddEntry(..) | Self::DeleteEntry(..) => Tool::Ipset,
            Self::CreateDevice | Self::Bind(_) | Self::Unbind(_) => Tool::Ip,
            Self::Rules(_) => Tool::Iptables,
            Self::AddService(_)
            | Self::EditService(_)
            | Self::DeleteService(_)
            | Self::AddServer(..)
            | Self::Revive(..)
            | Self::Retire(..) => Tool::Ipvsadm,
        }
    }

    /// Its lines: one, or those of a whole input.
    #[must_use]
    pub fn text(&self, family: IpFamily) -> String {
        match self {
            Self::CreateSet(id) => create_set(*id, family),
            Self::CreateDevice => format!("link add {DEVICE} type dummy"),
            Self::AddEntry(id, entry) => format!("add {} {entry} -exist", id.name(family)),
            Self::DeleteEntry(id, entry) => format!("del {} {entry} -exist", id.name(family)),
            Self::Rules(input) => input.text().0.trim_end().to_owned(),
            Self::AddService(server) => format!("-A {}", server_text(server)),
            Self::EditService(server) => format!("-E {}", server_text(server)),
            Self::DeleteService(key) => format!("-D {}", key_text(key)),
            Self::AddServer(key, real) => format!("-a {}", real_text(key, *real, WEIGHT)),
            Self::Revive(key, real) => format!("-e {}", real_text(key, *real, WEIGHT)),
            Self::Retire(key, real) if !drains(key) => format!("-d {} -r {real}", key_text(key)),
            Self::Retire(key, real) => format!("-e {}", real_text(key, *real, DRAINING)),
            Self::Bind(ip) => format!("address add {} dev {DEVICE}", whole(*ip)),
            Self::Unbind(ip) => format!("address del {} dev {DEVICE}", whole(*ip)),
        }
    }
}

/// Do connections to real servers of this virtual server outlive their being wanted? UDP has none that anybody would miss (ipvs spec 6.3).
#[must_use]
pub fn drains(key: &ServiceKey) -> bool {
    key.protocol != Protocol::Udp
}

/// An address with the length of one.
fn whole(ip: IpAddr) -> String {
    format!("{ip}/{}", if ip.is_ipv4() { 32 } else { 128 })
}

fn create_set(id: SetId, family: IpFamily) -> String {
    let (name, kind) = (id.name(family), id.set_type());
    match (kind, family) {
        (SetType::BitmapPort, _) => format!("create {name} {} range 0-65535 -exist", kind.name()),
        (_, family) => {
            let inet = if family == IpFamily::Ipv4 { "inet" } else { "inet6" };
            format!("create {name} {} family {inet} hashsize 1024 maxelem 65536 -exist", kind.name())
        }
    }
}

/// How `ipvsadm -Sn` names a virtual server: `-t 10.96.0.1:443`.
#[must_use]
pub fn key_text(key: &ServiceKey) -> String {
    let option = match key.protocol {
        Protocol::Tcp => "-t",
        Protocol::Udp => "-u",
        Protocol::Sctp => "--sctp-service",
    };
    format!("{option} {}", RealServer { ip: key.ip, port: key.port })
}

/// What stands behind `-A` in what `ipvsadm -Sn` prints.
#[must_use]
pub fn server_text(server: &VirtualServer) -> String {
    let persistence = server.persistence.map(|d| format!(" -p {}", d.as_secs())).unwrap_or_default();
    let flags = if server.hash_port { " -b mh-port" } else { "" };
    format!("{} -s {}{persistence}{flags}", key_text(&server.key), server.scheduler)
}

/// What stands behind `-a` in what `ipvsadm -Sn` prints.
#[must_use]
pub fn real_text(key: &ServiceKey, real: RealServer, weight: u32) -> String {
    format!("{} -r {real} -m -w {weight}", key_text(key))
}

/// Every line, each with the service port it is for. Where another tool is given what follows, a comment says which.
#[must_use]
pub fn entries<'a>(family: IpFamily, actions: impl IntoIterator<Item = &'a Action>) -> Vec<PlanEntry> {
    let mut out = Vec::new();
    let mut open = None;
    for Action { op, port } in actions {
        let tool = op.tool();
        // Each input of rules is one for itself.
        if open != Some(tool) || tool == Tool::Iptables {
            out.push(PlanEntry { text: format!("# {}", tool.command(family)), port: None });
            open = Some(tool);
        }
        if let Op::Rules(_) = op {
            out.extend(op.text(family).lines().map(|l| PlanEntry { text: l.to_owned(), port: port.clone() }));
        } else {
            out.push(PlanEntry { text: op.text(family), port: port.clone() });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proxier_core::ids::Port;

    use super::*;

    fn key(protocol: Protocol, ip: &str) -> ServiceKey {
        ServiceKey { protocol, ip: ip.parse().unwrap(), port: Port::new(80).unwrap() }
    }

    #[test]
    fn texts_of_the_tools() {
        let (v4, v6) = (IpFamily::Ipv4, IpFamily::Ipv6);
        let tcp = key(Protocol::Tcp, "10.96.0.1");
        let server = VirtualServer { key: tcp, scheduler: "rr".into(), persistence: None, hash_port: false };
        let sticky = VirtualServer {
            persistence: Some(Duration::from_secs(600)),
            hash_port: true,
            scheduler: "mh".into(),
            ..server.clone()
        };
        let real = RealServer { ip: "10.244.1.1".parse().unwrap(), port: Port::new(8080).unwrap() };
        let six = RealServer { ip: "fd00::1".parse().unwrap(), port: Port::new(8080).unwrap() };
        let texts = [
            (Op::AddService(server), v4, "-A -t 10.96.0.1:80 -s rr"),
            (Op::EditService(sticky), v4, "-E -t 10.96.0.1:80 -s mh -p 600 -b mh-port"),
            (Op::DeleteService(key(Protocol::Sctp, "fd00::9")), v6, "-D --sctp-service [fd00::9]:80"),
            (Op::AddServer(tcp, real), v4, "-a -t 10.96.0.1:80 -r 10.244.1.1:8080 -m -w 1"),
            (Op::Retire(tcp, real), v4, "-e -t 10.96.0.1:80 -r 10.244.1.1:8080 -m -w 0"),
            (Op::Retire(key(Protocol::Udp, "fd00::9"), six), v6, "-d -u [fd00::9]:80 -r [fd00::1]:8080"),
            (Op::Bind(six.ip), v6, "address add fd00::1/128 dev kube-ipvs0"),
            (Op::Unbind(real.ip), v4, "address del 10.244.1.1/32 dev kube-ipvs0"),
            (
                Op::CreateSet(SetId::HealthCheck),
                v4,
                "create KUBE-HEALTH-CHECK-NODE-PORT bitmap:port range 0-65535 -exist",
            ),
            (
                Op::CreateSet(SetId::IpvsIps),
                v6,
                "create KUBE-6-IPVS-IPS hash:ip family inet6 hashsize 1024 maxelem 65536 -exist",
            ),
            (Op::DeleteEntry(SetId::IpvsIps, Entry::Ip(six.ip)), v6, "del KUBE-6-IPVS-IPS fd00::1 -exist"),
        ];
        for (op, family, text) in texts {
            assert_eq!(op.text(family), text);
        }
    }
}
