//! What can be wrong with an input.

/// An input that the tool or the kernel would refuse, or that is outside of what the model knows.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {cause}, at `{text}`")]
pub struct RestoreError {
    /// Line, counted from 1. For what only a whole table has (a loop), the line of its `COMMIT`.
    pub line: usize,
    /// The line.
    pub text: String,
    /// What is wrong.
    pub cause: Cause,
}

/// Why a line was refused. Each was tried with both variants of iptables 1.8.9 on Linux 6.18; where only one of them refuses,
/// the model refuses as well. The words are those of the nft variant, which tells more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Cause {
    /// A word that belongs to nothing.
    #[error("Bad argument `{0}'")]
    BadArgument(String),
    /// An option that no match or target that was named has.
    #[error("unknown option \"{0}\"")]
    UnknownOption(String),
    /// The line ends where a value should be.
    #[error("option \"{0}\" requires an argument")]
    NeedsArgument(String),
    /// Given twice, or together with one that excludes it.
    #[error("option \"{0}\" can only be used once")]
    Repeated(String),
    /// Not given.
    #[error("option \"{0}\" must be specified")]
    Missing(&'static str),
    /// Malformed, or out of range.
    #[error("bad value `{value}' for option \"{option}\", or out of range")]
    BadValue {
        /// Which option.
        option: String,
        /// Its value.
        value: String,
    },
    /// The tool knows it, the model does not.
    #[error("not known to the model: {0}")]
    Unsupported(String),
    /// 29 characters or more.
    #[error("chain name `{0}' too long (must be under 29 chars)")]
    NameTooLong(String),
    /// Begins with `-` or `!`, or is the name of a target.
    #[error("chain name `{0}' is not allowed")]
    BadName(String),
    /// No such extension.
    #[error("Couldn't load match `{0}'")]
    NoMatch(String),
    /// Neither a target nor a chain that is there already.
    #[error("Chain '{0}' does not exist")]
    NoTarget(String),
    /// No such table, or one that the model does not have.
    #[error("table name '{0}' invalid")]
    NoTable(String),
    /// A match on ports without `-p`, or with another protocol.
    #[error("{0} match requires '-p {0}'")]
    NeedsProtocol(&'static str),
    /// `-o` in a chain of packets that come in, or `-i` in one of packets that go out.
    #[error("Can't use {flag} with {chain}")]
    WrongInterface {
        /// `-i` or `-o`.
        flag: &'static str,
        /// Built-in chain.
        chain: String,
    },
    /// A command, `COMMIT` or chain outside of a table.
    #[error("failed: no table is open")]
    OutsideTable,
    /// The input ends within a table.
    #[error("COMMIT expected")]
    CommitExpected,
    /// The chain of a command is not there.
    #[error("failed: No chain/target/match by that name ({0})")]
    NoChain(String),
    /// Nothing like the rule that is to be deleted.
    #[error("failed: Bad rule (does a matching rule exist in that chain?)")]
    NoRule,
    /// `-N` of a chain that is there.
    #[error("failed: Chain already exists ({0})")]
    ChainExists(String),
    /// A rule number beyond the end.
    #[error("failed: Index too big ({0})")]
    IndexTooBig(usize),
    /// A built-in chain cannot be deleted.
    #[error("failed: Directory not empty ({0})")]
    BuiltIn(String),
    /// Only built-in chains have a policy.
    #[error("failed: Bad built-in chain name ({0})")]
    NotBuiltIn(String),
    /// The chain has rules, or rules jump to it.
    #[error("CHAIN_DEL failed (Device or resource busy): chain {0}")]
    Busy(String),
    /// A rule jumps to a built-in chain.
    #[error("RULE_APPEND failed (Operation not supported): jump to {0}")]
    BuiltInTarget(String),
    /// A chain can be reached from itself and from a built-in one.
    #[error("RULE_APPEND failed (Too many links): loop through chain {0}")]
    Loop(String),
    /// More chains than the kernel follows lie between a built-in chain and this one.
    #[error("RULE_APPEND failed (Too many links): chain {0} is too deep")]
    TooDeep(String),
    /// The target is not for this table, or not for the packets that reach it.
    #[error("RULE_APPEND failed (Invalid argument): {target} in {place}")]
    WrongPlace {
        /// Target.
        target: &'static str,
        /// Table, or built-in chain.
        place: String,
    },
    /// No ipset of this name.
    #[error("Set {0} doesn't exist.")]
    NoSet(String),
    /// No nfacct object of this name.
    #[error("RULE_APPEND failed (No such file or directory): nfacct object {0}")]
    NoCounter(String),
}

impl Cause {
    /// The exit code of the nft variant: 1 for a command that failed, 2 for one that was not understood, 4 for what the kernel
    /// refused. The legacy variant never ends with 4: it is then 1.
    #[must_use]
    pub fn exit_code(&self) -> i32 {
        match self {
            Self::OutsideTable
            | Self::CommitExpected
            | Self::NoChain(_)
            | Self::NoRule
            | Self::ChainExists(_)
            | Self::IndexTooBig(_)
            | Self::BuiltIn(_)
            | Self::NotBuiltIn(_) => 1,
            Self::Busy(_)
            | Self::BuiltInTarget(_)
            | Self::Loop(_)
            | Self::TooDeep(_)
            | Self::WrongPlace { .. }
            | Self::NoCounter(_) => 4,
            _ => 2,
        }
    }
}
