//! Settings of this backend, validated; and, apart from them, what a probe found.

use proxier_xtables::saved::Saved;
use serde::Deserialize;

pub use proxier_xtables::tool::Variant;

/// Counts packets that connection tracking calls invalid and that are dropped therefore.
pub const INVALID_DROPPED: &str = "ct_state_invalid_dropped_pkts";
/// Counts packets to node ports on loopback addresses.
pub const LOCALHOST_ACCEPTED: &str = "localhost_nps_accepted_pkts";

/// Which of the two implementations of iptables is used (iptables spec 2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum VariantOption {
    /// The one that others on this host write to.
    #[default]
    Auto,
    /// `iptables-nft`.
    Nft,
    /// `iptables-legacy`.
    Legacy,
}

/// What is done with packets that connection tracking calls invalid.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CtInvalid {
    /// Dropped, unless a probe finds `nf_conntrack_tcp_be_liberal` set (iptables spec 5.2).
    #[default]
    Auto,
    /// Dropped where they are forwarded.
    Drop,
    /// Left alone.
    Ignore,
}

/// Settings of the iptables backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The packet mark bit that asks for masquerading, 0 to 31.
    pub masquerade_bit: u8,
    /// Masquerade all traffic to cluster IPs. It decides about traffic, so it belongs in the core's options; it is read here
    /// because the configuration keeps it in the backend's section (core spec 7.3).
    pub masquerade_all: bool,
    /// Node ports answer on IPv4 loopback (iptables spec 5.9). The core decides by it, as by `masquerade_all`.
    pub localhost_node_ports: bool,
    /// Which implementation.
    pub variant: VariantOption,
    /// Invalid packets.
    pub ct_invalid: CtInvalid,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            masquerade_bit: 14,
            masquerade_all: false,
            localhost_node_ports: true,
            variant: VariantOption::Auto,
            ct_invalid: CtInvalid::Auto,
        }
    }
}

/// The keys of this backend's section of the configuration.
pub const KEYS: [&str; 5] = ["masqueradeBit", "masqueradeAll", "localhostNodePorts", "variant", "ctInvalid"];

/// A value that cannot be used, with the key it belongs to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {message}")]
pub struct OptionError {
    /// The key.
    pub key: String,
    /// What is wrong.
    pub message: String,
}

impl Options {
    /// Sets one option from its configuration value.
    ///
    /// # Errors
    /// The key is unknown or the value unusable.
    pub fn set(&mut self, key: &str, value: &serde_json::Value) -> Result<(), OptionError> {
        let wrong = |what: &str| OptionError {
            key: key.to_owned(),
            message: format!("expected {what}, got {value}"),
        };
        let switch = || value.as_bool().ok_or_else(|| wrong("true or false"));
        match key {
            "masqueradeBit" => {
                self.masquerade_bit = value
                    .as_u64()
                    .and_then(|bit| u8::try_from(bit).ok())
                    .filter(|bit| *bit < 32)
                    .ok_or_else(|| wrong("a number from 0 to 31"))?;
            }
            "masqueradeAll" => self.masquerade_all = switch()?,
            "localhostNodePorts" => self.localhost_node_ports = switch()?,
            "variant" => {
                self.variant = VariantOption::deserialize(value).map_err(|_| wrong("auto, nft or legacy"))?;
            }
            "ctInvalid" => {
                self.ct_invalid = CtInvalid::deserialize(value).map_err(|_| wrong("auto, drop or ignore"))?;
            }
            _ => return Err(OptionError { key: key.to_owned(), message: "unknown key".to_owned() }),
        }
        Ok(())
    }

    /// The mark that asks for masquerading.
    #[must_use]
    pub fn masquerade_mark(&self) -> u32 {
        1 << u32::from(self.masquerade_bit & 31)
    }
}

/// What a probe found, as far as rules depend on it.
///
/// The default is what `render` shows where nothing was probed: a current tool, and none of what a kernel may lack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The implementation in use.
    pub variant: Variant,
    /// `MASQUERADE --random-fully` is known to the tool: 1.6.2 or newer.
    pub random_fully: bool,
    /// The accounting object [`INVALID_DROPPED`] exists and can be named.
    pub count_invalid: bool,
    /// The accounting object [`LOCALHOST_ACCEPTED`] exists and can be named.
    pub count_localhost: bool,
    /// `nf_conntrack_tcp_be_liberal` could be read and is set.
    pub tcp_be_liberal: bool,
    /// The `recent` match is there; without it session affinity is not.
    pub recent: bool,
    /// Most chains that one input creates, empties or drops; `None` for no bound. A single service port is never cut.
    pub chains_per_input: Option<usize>,
}

impl Facts {
    /// The same, with rules that count where those that were found do. No packet meets anything else for it.
    #[must_use]
    pub fn counting_like(self, found: &Saved) -> Self {
        // Nothing that a Service is called has an underscore.
        let counts = |object: &str| found.chains.values().flatten().any(|rule| rule.0.contains(object));
        Self { count_invalid: counts(INVALID_DROPPED), count_localhost: counts(LOCALHOST_ACCEPTED), ..self }
    }
}

impl Default for Facts {
    fn default() -> Self {
        Self {
            variant: Variant::Nft,
            random_fully: true,
            count_invalid: false,
            count_localhost: false,
            tcp_be_liberal: false,
            recent: true,
            chains_per_input: Some(CHAINS_PER_INPUT),
        }
    }
}

/// Chains of one input, in the nft variant. The tool's time grows with their square (1.8.9 looks names up one after the other), and the kernel
/// looks at all chains again after each input: at 10,000 services x 5 endpoints 500, 1,000, 2,000 and 4,000 chains took 10.6, 7.9, 7.2 and 10.3 s
/// of CPU time in all.
pub const CHAINS_PER_INPUT: usize = 2_000;

impl VariantOption {
    /// The variant that is asked for; `None` leaves the choice to what is found.
    #[must_use]
    pub fn wanted(self) -> Option<Variant> {
        match self {
            Self::Auto => None,
            Self::Nft => Some(Variant::Nft),
            Self::Legacy => Some(Variant::Legacy),
        }
    }
}

impl Facts {
    /// The default for an implementation: the old tables are exchanged as a whole, so there one input is the least work.
    #[must_use]
    pub fn of(variant: Variant) -> Self {
        let chains_per_input = match variant {
            Variant::Nft => Some(CHAINS_PER_INPUT),
            Variant::Legacy => None,
        };
        Self { variant, chains_per_input, ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_key_can_be_set_and_bad_values_are_refused() {
        let good = [json!(3), json!(true), json!(false), json!("legacy"), json!("ignore")];
        let bad = [json!(32), json!("yes"), json!(0), json!("ebtables"), json!(7)];
        for ((key, good), bad) in KEYS.iter().zip(good).zip(bad) {
            let mut options = Options::default();
            options.set(key, &good).unwrap();
            assert_ne!(options, Options::default(), "{key} changed nothing");
            assert_eq!(options.set(key, &bad).unwrap_err().key, *key);
        }
        assert!(Options::default().set("table", &json!("x")).is_err());
    }

    #[test]
    fn the_default_mark_is_kube_proxys() {
        assert_eq!(Options::default().masquerade_mark(), 0x4000);
        assert_eq!(Options { masquerade_bit: 31, ..Options::default() }.masquerade_mark(), 0x8000_0000);
    }

    #[test]
    fn the_old_tables_are_written_at_once() {
        assert_eq!(Facts::of(Variant::Legacy).chains_per_input, None);
        assert_eq!(Facts::of(Variant::Nft), Facts::default());
    }
}
