//! What can be wrong with a text.

/// A text that could not be read, or that the kernel would refuse.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {cause}, at `{text}`")]
pub struct ParseError {
    /// Line, counted from 1. For an error that only the whole script has (a loop), its last line.
    pub line: usize,
    /// The offending text: the rest of the line for a syntax error, the command otherwise.
    pub text: String,
    /// What is wrong.
    pub cause: Cause,
}

/// Why a text was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Cause {
    /// Not understood.
    #[error("syntax: {0}")]
    Syntax(String),
    /// Understood, but impossible in the present state.
    #[error(transparent)]
    Model(#[from] ModelError),
}

/// What the kernel (or nft, before it sends anything) would refuse. Each was tried with nft 1.0.6 on Linux 6.18.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// The table is not there (ENOENT).
    #[error("no table {0}")]
    NoTable(String),
    /// The chain is not there (ENOENT).
    #[error("no chain {0}")]
    NoChain(String),
    /// The set or map is not there, or is of the other kind (ENOENT).
    #[error("no set or map {0} of this kind")]
    NoSet(String),
    /// The element is not there (ENOENT).
    #[error("no element {key} in {set}")]
    NoElement {
        /// Set or map.
        set: String,
        /// Key.
        key: String,
    },
    /// There already, and different (EEXIST, EOPNOTSUPP).
    #[error("{0} exists with another definition")]
    Exists(String),
    /// The element is there with another value, or overlaps one (EEXIST).
    #[error("element {key} conflicts with one in {set}")]
    ElementConflict {
        /// Set or map.
        set: String,
        /// Key.
        key: String,
    },
    /// The set or map has as many elements as its size allows (ENFILE).
    #[error("{0} is full")]
    Full(String),
    /// Still referred to (EBUSY).
    #[error("{0} is in use")]
    Busy(String),
    /// A value, a key or an expression is of another type than the set, map or statement wants.
    #[error("type mismatch: {0}")]
    Type(String),
    /// The statement or chain type is not allowed in this hook (EOPNOTSUPP).
    #[error("{what} is not allowed in base chain {chain}")]
    WrongHook {
        /// Statement or type.
        what: String,
        /// Base chain.
        chain: String,
    },
    /// A base chain cannot be the target of a verdict (EOPNOTSUPP).
    #[error("base chain {0} is the target of a verdict")]
    BaseChainTarget(String),
    /// The chain can be reached from itself (EMLINK).
    #[error("loop through chain {0}")]
    Loop(String),
    /// More than 15 chains lie between a base chain and this one (EMLINK).
    #[error("chain {0} is too deep below a base chain")]
    TooDeep(String),
    /// dnat with a port, but no transport protocol match before it (nftables spec 12, 40).
    #[error("dnat with a port needs a transport protocol match")]
    TransportUnknown,
}
