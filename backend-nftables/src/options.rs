//! Settings of this backend, validated.

use std::sync::Arc;

use serde::Deserialize;

/// How service ports are laid out in the table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Layout {
    /// Service ports are elements of a few sized maps. Loads and changes orders of magnitude faster.
    #[default]
    Maps,
    /// A chain per service port and one per endpoint, in the shape and with the names of kube-proxy 1.35.
    Chains,
}

/// What is done with packets that connection tracking calls invalid.
///
/// Such a packet is not translated back; a client that sees it from the endpoint's own address resets the connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CtInvalid {
    /// Dropped, unless a probe finds `nf_conntrack_tcp_be_liberal` set: then they are left alone (iptables spec 5.2).
    #[default]
    Auto,
    /// Dropped where they are forwarded or delivered to this host.
    Drop,
    /// Left alone.
    Ignore,
}

/// Settings of the nftables backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Name of our table in both families.
    pub table: Arc<str>,
    /// Layout.
    pub layout: Layout,
    /// The packet mark bit that asks for masquerading, 0 to 31.
    pub masquerade_bit: u8,
    /// Invalid packets.
    pub ct_invalid: CtInvalid,
    /// Masquerade all traffic to cluster IPs. It decides about traffic, so it belongs in the core's options; it is read here
    /// because the configuration keeps it in the backend's section (core spec 7.3).
    pub masquerade_all: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            table: Arc::from("kube-proxy"),
            layout: Layout::Maps,
            masquerade_bit: 14,
            ct_invalid: CtInvalid::Auto,
            masquerade_all: false,
        }
    }
}

/// The keys of this backend's section of the configuration.
pub const KEYS: [&str; 5] = ["table", "layout", "masqueradeBit", "ctInvalid", "masqueradeAll"];

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
        let wrong = |message: String| OptionError { key: key.to_owned(), message };
        match key {
            "table" => {
                let name = value.as_str().ok_or_else(|| wrong(format!("expected a string, got {value}")))?;
                self.table = table_name(name).map_err(wrong)?;
            }
            "layout" => {
                self.layout = Layout::deserialize(value)
                    .map_err(|_| wrong(format!("expected maps or chains, got {value}")))?;
            }
            "ctInvalid" => {
                self.ct_invalid = CtInvalid::deserialize(value)
                    .map_err(|_| wrong(format!("expected auto, drop or ignore, got {value}")))?;
            }
            "masqueradeBit" => {
                self.masquerade_bit = value
                    .as_u64()
                    .and_then(|bit| u8::try_from(bit).ok())
                    .filter(|bit| *bit < 32)
                    .ok_or_else(|| wrong(format!("expected a number from 0 to 31, got {value}")))?;
            }
            "masqueradeAll" => {
                self.masquerade_all =
                    value.as_bool().ok_or_else(|| wrong(format!("expected true or false, got {value}")))?;
            }
            _ => return Err(wrong("unknown key".to_owned())),
        }
        Ok(())
    }

    /// The mark that asks for masquerading.
    #[must_use]
    pub fn masquerade_mark(&self) -> u32 {
        1 << u32::from(self.masquerade_bit & 31)
    }
}

/// nft reads a name as a word: a letter, then letters, digits and `/ \ _ . -` (nft's scanner). The kernel takes 255 bytes
/// (`NFT_TABLE_MAXNAMELEN`).
fn table_name(name: &str) -> Result<Arc<str>, String> {
    let mut chars = name.chars();
    let first = chars.next().is_some_and(|c| c.is_ascii_alphabetic());
    let rest = chars.all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-'));
    if first && rest && name.len() < 128 {
        Ok(Arc::from(name))
    } else {
        Err(format!(
            "{name:?} is no table name: a letter, then letters, digits, '_', '.' and '-', at most 127"
        ))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_key_can_be_set_and_bad_values_are_refused() {
        let good = [json!("my-table"), json!("chains"), json!(3), json!("ignore"), json!(true)];
        let bad = [json!("3;drop"), json!("trees"), json!(32), json!(7), json!("yes")];
        for ((key, good), bad) in KEYS.iter().zip(good).zip(bad) {
            let mut options = Options::default();
            options.set(key, &good).unwrap();
            assert_ne!(options, Options::default(), "{key} changed nothing");
            assert_eq!(options.set(key, &bad).unwrap_err().key, *key);
        }
        assert!(Options::default().set("size", &json!(1)).is_err());
    }

    #[test]
    fn the_default_mark_is_kube_proxys() {
        assert_eq!(Options::default().masquerade_mark(), 0x4000);
    }
}
