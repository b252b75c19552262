//! What a backend counts, beside what every backend does.

/// Packets that the kernel has counted, by the name of the counting object; read anew each time. Nothing when it cannot be read.
pub type Packets = fn() -> Vec<(&'static str, u64)>;

/// What kube-proxy registers in a mode (core spec 8): said by the backend's entry in the registry.
#[derive(Clone, Copy, Debug, Default)]
pub struct Figures {
    /// Full and partial syncs are timed apart.
    pub partial: bool,
    /// Tables whose rules are counted.
    pub tables: &'static [&'static str],
    /// Plans that the tools refused are counted.
    pub restores: bool,
    /// Partial ones among them are counted apart.
    pub partial_restores: bool,
    /// Transactions that were refused, and leftovers that could not be removed, are counted.
    pub transactions: bool,
    /// Services without local endpoints are counted, not their ports.
    pub by_service: bool,
    /// What the kernel counts.
    pub packets: Option<Packets>,
}

impl Figures {
    /// Nothing beside what every backend counts.
    pub const NONE: Self = Self {
        partial: false,
        tables: &[],
        restores: false,
        partial_restores: false,
        transactions: false,
        by_service: false,
        packets: None,
    };
}
