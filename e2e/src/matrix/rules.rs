//! The second witness: the rules that the kernel lists, asked by the testkit's packet walker. It is the only one for protocols that
//! this kernel has no sockets for.

use std::collections::BTreeMap;

use anyhow::Context;
use proxier_core::ids::IpFamily;
use proxier_core::oracle::{Choice, Entry, Outcome};
use proxier_testkit::walk::{Walk, WalkError, WalkHost, normalise};
use proxier_testkit::{iptables, ipvs, nft};

use super::facts::NodeView;
use super::predict::Hop;
use super::variant::Rules;
use crate::{listing, saved, virtual_servers};

/// What a kernel lists of one family.
#[derive(Debug)]
enum Table {
    Nftables(nft::Ruleset),
    Iptables(iptables::Ruleset),
    VirtualServers(Box<ipvs::Host>),
}

impl Table {
    fn read(rules: Rules, node: &str, family: IpFamily) -> anyhow::Result<Self> {
        let name = name(family);
        Ok(match rules {
            Rules::Nftables => {
                Self::Nftables(nft::parse(&listing::table(node, name)?.context("there is no table")?)?)
            }
            Rules::Iptables(tables) => {
                let text = saved::save(node, tables, name, false)?;
                Self::Iptables(iptables::parse(family, &text)?)
            }
            Rules::VirtualServers => {
                let mut host = ipvs::Host::default();
                host.load_ipvsadm(&virtual_servers::saved_twice(node)?)?;
                host.load_ipset(&virtual_servers::sets(node)?)?;
                let addresses: Vec<String> = virtual_servers::device(node)?.into_iter().skip(1).collect();
                host.load_addresses(&addresses.join("\n"))?;
                host.load_rules(family, &saved::save(node, saved::Tables::Nft, name, false)?)?;
                Self::VirtualServers(Box::new(host))
            }
        })
    }

    fn walk(&self, hop: &Hop, host: &WalkHost) -> Result<Walk, WalkError> {
        match self {
            Self::Nftables(rules) => nft::walk(rules, &hop.packet, host),
            Self::Iptables(rules) => iptables::walk(rules, &hop.packet, host),
            Self::VirtualServers(servers) => servers.walk(&hop.packet, host),
        }
    }
}

/// How tools call a family.
fn name(family: IpFamily) -> &'static str {
    match family {
        IpFamily::Ipv4 => "ip",
        IpFamily::Ipv6 => "ip6",
    }
}

/// What every node's kernel lists.
#[derive(Debug)]
pub struct Listed<'a> {
    views: &'a [NodeView],
    tables: BTreeMap<(&'static str, IpFamily), Table>,
}

impl<'a> Listed<'a> {
    /// Lists the rules of every node.
    ///
    /// # Errors
    /// A listing that cannot be had or read.
    pub fn read(rules: Rules, views: &'a [NodeView]) -> anyhow::Result<Self> {
        let mut tables = BTreeMap::new();
        for view in views {
            for family in IpFamily::ALL {
                let about = || format!("the rules of {}, {family}", view.name);
                tables
                    .insert((view.name, family), Table::read(rules, view.name, family).with_context(about)?);
            }
        }
        Ok(Self { views, tables })
    }

    /// Do the rules treat the packet as the oracle says? Else what they do.
    ///
    /// # Errors
    /// What they do.
    pub fn agree(&self, hop: &Hop) -> Result<(), String> {
        let family = IpFamily::of(hop.packet.destination);
        let view = self.views.iter().find(|v| v.name == hop.node);
        let (Some(view), Some(table)) = (view, self.tables.get(&(hop.node, family))) else {
            return Err(format!("no rules of {}", hop.node));
        };
        let host = WalkHost::new(view.addresses.iter().copied());
        let walked = table.walk(hop, &host).and_then(|walk| walk.outcome());
        let walked = walked.map_err(|e| format!("the rules of {}: {e}", hop.node))?;
        let expected = delivered(view, &hop.packet.entry, normalise(hop.outcome.clone()));
        let stays = hop.decision.affinity.is_some() && among(&walked, &expected);
        if walked == expected || stays { Ok(()) } else { Err(format!("the rules of {}: {walked}", hop.node)) }
    }
}

/// Where a client may stay that was here before, in an earlier setting: agents keep that when they start.
fn among(walked: &Outcome, expected: &Outcome) -> bool {
    let (Outcome::Endpoints(walked), Outcome::Endpoints(expected)) = (walked, expected) else { return false };
    let known =
        |c: &Choice| expected.iter().any(|e| (e.endpoint, e.masquerade) == (c.endpoint, c.masquerade));
    !walked.is_empty() && walked.iter().all(known)
}

/// What comes from outside to the host itself does not pass postrouting, so that its source stays as it is.
fn delivered(view: &NodeView, entry: &Entry, outcome: Outcome) -> Outcome {
    let Outcome::Endpoints(choices) = outcome else { return outcome };
    let from_outside = *entry != Entry::Host;
    let change = |c: Choice| Choice {
        masquerade: c.masquerade && !(from_outside && view.is_local(c.endpoint.ip)),
        ..c
    };
    normalise(Outcome::Endpoints(choices.into_iter().map(change).collect()))
}
