//! What the tables hold, in the one spelling that `iptables-save` prints: equal rules are equal texts.

use std::fmt;
use std::sync::Arc;

use proxier_core::ids::ServicePortName;

/// How the names of all chains begin that service proxies and the kubelet make.
pub const KUBE: &str = "KUBE-";

/// Name of a chain.
pub type Name = Arc<str>;

/// A table that backends write to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Table {
    /// Refusals, source ranges, forwarding.
    Filter,
    /// Only the canary (iptables spec 8).
    Mangle,
    /// Translation.
    Nat,
}

impl Table {
    /// Its name, as the tool takes it after `*` and `-t`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Filter => "filter",
            Self::Mangle => "mangle",
            Self::Nat => "nat",
        }
    }
}

/// A chain of a table.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChainId {
    /// The table.
    pub table: Table,
    /// The chain.
    pub name: Name,
}

/// A rule as `iptables-save` prints it, without `-A` and the chain: addresses with prefix lengths first, then interfaces, protocol,
/// matches, target.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rule(pub Arc<str>);

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One line of an input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// `:CHAIN - [0:0]`: created, or emptied.
    Chain(ChainId),
    /// `-A`: at the end.
    Append(ChainId, Rule),
    /// `-I`: at the top.
    Insert(ChainId, Rule),
    /// `-D`: the first rule that is equal.
    Delete(ChainId, Rule),
    /// `-X`: the chain, which is empty and unreferenced by then.
    DropChain(ChainId),
}

impl Op {
    /// The chain that it is about.
    #[must_use]
    pub fn chain(&self) -> &ChainId {
        match self {
            Self::Chain(chain)
            | Self::Append(chain, _)
            | Self::Insert(chain, _)
            | Self::Delete(chain, _)
            | Self::DropChain(chain) => chain,
        }
    }

    /// The line, without an end of line.
    #[must_use]
    pub fn line(&self) -> String {
        match self {
            Self::Chain(chain) => format!(":{} - [0:0]", chain.name),
            Self::Append(chain, rule) => format!("-A {} {rule}", chain.name),
            Self::Insert(chain, rule) => format!("-I {} {rule}", chain.name),
            Self::Delete(chain, rule) => format!("-D {} {rule}", chain.name),
            Self::DropChain(chain) => format!("-X {}", chain.name),
        }
    }
}

/// An operation and the service port that it is for; `None` for what all share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The operation.
    pub op: Op,
    /// The service port.
    pub port: Option<ServicePortName>,
}

/// One input of `iptables-restore --noflush`: each table's part is taken or left as one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Input {
    /// Its steps; those of one table stand together.
    pub steps: Vec<Step>,
}

impl Input {
    /// The text, and for each of its lines the step that wrote it, as far as one did.
    #[must_use]
    pub fn text(&self) -> (String, Vec<Option<usize>>) {
        let mut text = String::new();
        let mut origins = Vec::new();
        let mut open: Option<Table> = None;
        let mut line = |text: &mut String, content: &str, origin: Option<usize>| {
            text.push_str(content);
            text.push('\n');
            origins.push(origin);
        };
        for (at, step) in self.steps.iter().enumerate() {
            let table = step.op.chain().table;
            if open != Some(table) {
                if open.is_some() {
                    line(&mut text, "COMMIT", None);
                }
                line(&mut text, &format!("*{}", table.name()), None);
                open = Some(table);
            }
            line(&mut text, &step.op.line(), Some(at));
        }
        if open.is_some() {
            line(&mut text, "COMMIT", None);
        }
        (text, origins)
    }
}
