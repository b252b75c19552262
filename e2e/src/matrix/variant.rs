//! The backends under test, each with what it is known not to do.

use serde_json::Value;

/// How the rules of a backend can be read back and asked, besides sending traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rules {
    /// `nft list table`, asked by the testkit's packet walker.
    Nftables,
}

/// One way to run the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variant {
    /// Name in the table.
    pub name: &'static str,
    /// The agent's `--backend`.
    pub backend: &'static str,
    /// The backend's part of the configuration, as a JSON object.
    section: &'static str,
    /// How its rules are read.
    pub rules: Rules,
    /// What it does not do.
    pub gaps: &'static [Gap],
}

impl Variant {
    /// The backend's part of the configuration.
    ///
    /// # Errors
    /// A text that is no JSON: a fault of the table below.
    pub fn section(&self) -> serde_json::Result<Value> {
        serde_json::from_str(self.section)
    }
}

/// Something that a user of another proxy may expect and that a backend does not do. What holds instead is checked: by the rows or the
/// scenario named here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// What is missing.
    pub what: &'static str,
    /// What holds now.
    pub now: &'static str,
    /// The group or scenario that checks that.
    pub checked_by: &'static str,
}

const NFTABLES_GAPS: &[Gap] = &[
    Gap {
        what: "node ports on loopback addresses (localhostNodePorts)",
        now: "left alone: a process of the host answers there, no service",
        checked_by: "node-ports",
    },
    Gap {
        what: "UDP flows of an endpoint that went away are cleared from connection tracking",
        now: "a flow keeps its old endpoint for as long as it is used",
        checked_by: "udp-flow-of-removed-endpoint",
    },
    Gap {
        what: "UDP flows to a node port that began before its service are cleared from connection tracking",
        now: "such a flow finds the closed port for as long as connection tracking remembers it",
        checked_by: "udp-flow-before-service",
    },
];

/// Every backend and layout.
pub const VARIANTS: [Variant; 2] = [
    Variant {
        name: "maps",
        backend: "nftables",
        section: r#"{"nftables": {"layout": "maps"}}"#,
        rules: Rules::Nftables,
        gaps: NFTABLES_GAPS,
    },
    Variant {
        name: "chains",
        backend: "nftables",
        section: r#"{"nftables": {"layout": "chains"}}"#,
        rules: Rules::Nftables,
        gaps: NFTABLES_GAPS,
    },
];
