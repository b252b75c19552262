//! Settings of this backend, validated; and, apart from them, what a probe found.

use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use proxier_xtables::tool::Variant;
use serde_json::Value;

/// The schedulers of the kernel (`net/netfilter/ipvs/Kconfig`), by the names that it knows them by; `twos` is the youngest, of 5.13. Whether
/// one is there is asked by a probe: many kernels lack some.
pub const SCHEDULERS: [&str; 14] =
    ["rr", "wrr", "lc", "wlc", "fo", "ovf", "lblc", "lblcr", "dh", "sh", "mh", "sed", "nq", "twos"];

/// The longest timeout that the kernel takes, in seconds (`ip_vs_set_timeout`: `INT_MAX / HZ` with the largest `HZ` of 1000).
const LONGEST_TIMEOUT: u64 = 2_147_483;

/// Settings of the IPVS backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The scheduler of all virtual servers, one of [`SCHEDULERS`].
    pub scheduler: Arc<str>,
    /// Virtual servers at these addresses are never deleted (ipvs spec 6.4).
    pub exclude_cidrs: Vec<IpNet>,
    /// This host does not answer ARP for the addresses of `kube-ipvs0` on its other interfaces (ipvs spec 1.2).
    pub strict_arp: bool,
    /// How long idle TCP connections are known; whole seconds, zero leaves the kernel's setting.
    pub tcp_timeout: Duration,
    /// The same after a FIN.
    pub tcp_fin_timeout: Duration,
    /// The same for UDP.
    pub udp_timeout: Duration,
    /// How long a real server that is not wanted any more keeps the connections that it has.
    pub drain_timeout: Duration,
    /// The packet mark bit that asks for masquerading, 0 to 31.
    pub masquerade_bit: u8,
    /// Masquerade all traffic to cluster IPs. It decides about traffic, so it belongs in the core's options; it is read here because the
    /// configuration keeps it in the backend's section (core spec 7.3).
    pub masquerade_all: bool,
    /// Which implementation of iptables; `None` for the one that others on this host write to (iptables spec 2).
    pub variant: Option<Variant>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            scheduler: "rr".into(),
            exclude_cidrs: Vec::new(),
            strict_arp: false,
            tcp_timeout: Duration::ZERO,
            tcp_fin_timeout: Duration::ZERO,
            udp_timeout: Duration::ZERO,
            drain_timeout: Duration::from_secs(15 * 60),
            masquerade_bit: 14,
            masquerade_all: false,
            variant: None,
        }
    }
}

/// The keys of this backend's section of the configuration.
pub const KEYS: [&str; 10] = [
    "scheduler",
    "excludeCIDRs",
    "strictARP",
    "tcpTimeout",
    "tcpFinTimeout",
    "udpTimeout",
    "drainTimeout",
    "masqueradeBit",
    "masqueradeAll",
    "variant",
];

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
    pub fn set(&mut self, key: &str, value: &Value) -> Result<(), OptionError> {
        let wrong = |what: &str| OptionError {
            key: key.to_owned(),
            message: format!("expected {what}, got {value}"),
        };
        let switch = || value.as_bool().ok_or_else(|| wrong("true or false"));
        let timeout = || timeout(value).ok_or_else(|| wrong("whole seconds such as 15m, or 0"));
        match key {
            "scheduler" => {
                let known = |name: &&str| SCHEDULERS.contains(name);
                // Empty is the reference's default (ipvs spec 1.1).
                let name = value.as_str().map(|name| if name.is_empty() { "rr" } else { name }).filter(known);
                let what = || format!("one of {}", SCHEDULERS.join(", "));
                self.scheduler = name.ok_or_else(|| wrong(&what()))?.into();
            }
            "excludeCIDRs" => {
                self.exclude_cidrs =
                    ranges(value).ok_or_else(|| wrong("a list of ranges such as 10.0.0.0/8"))?;
            }
            "strictARP" => self.strict_arp = switch()?,
            "tcpTimeout" => self.tcp_timeout = timeout()?,
            "tcpFinTimeout" => self.tcp_fin_timeout = timeout()?,
            "udpTimeout" => self.udp_timeout = timeout()?,
            "drainTimeout" => self.drain_timeout = timeout()?,
            "masqueradeBit" => {
                self.masquerade_bit = value
                    .as_u64()
                    .and_then(|bit| u8::try_from(bit).ok())
                    .filter(|bit| *bit < 32)
                    .ok_or_else(|| wrong("a number from 0 to 31"))?;
            }
            "masqueradeAll" => self.masquerade_all = switch()?,
            "variant" => {
                self.variant = match value.as_str() {
                    Some("auto") => None,
                    Some("nft") => Some(Variant::Nft),
                    Some("legacy") => Some(Variant::Legacy),
                    _ => return Err(wrong("auto, nft or legacy")),
                };
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

/// A list of ranges; bits of hosts are cleared.
fn ranges(value: &Value) -> Option<Vec<IpNet>> {
    let one = |v: &Value| v.as_str()?.parse::<IpNet>().ok().map(|net| net.trunc());
    value.as_array()?.iter().map(one).collect()
}

/// `0`, or whole numbers with the units h, m and s, the largest first; at most what the kernel takes.
fn timeout(value: &Value) -> Option<Duration> {
    if value.as_u64() == Some(0) {
        return Some(Duration::ZERO);
    }
    let mut rest = value.as_str()?;
    if rest == "0" {
        return Some(Duration::ZERO);
    }
    let mut seconds: u64 = 0;
    for (unit, scale) in [('h', 3600), ('m', 60), ('s', 1)] {
        if let Some((number, after)) = rest.split_once(unit) {
            let digits = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
            let number: u64 = number.parse().ok().filter(|_| digits)?;
            seconds = seconds.checked_add(number.checked_mul(scale)?)?;
            rest = after;
        }
    }
    let read = rest.is_empty() && !value.as_str()?.is_empty();
    (read && seconds <= LONGEST_TIMEOUT).then(|| Duration::from_secs(seconds))
}

/// What a probe found, as far as rules depend on it. The default is what `render` shows where nothing was probed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// `MASQUERADE --random-fully` is known to the tool: 1.6.2 or newer.
    pub random_fully: bool,
}

impl Default for Facts {
    fn default() -> Self {
        Self { random_fully: true }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_key_can_be_set_and_bad_values_are_refused() {
        let good = [
            json!("mh"),
            json!(["10.1.2.3/8", "fd00::/8"]),
            json!(true),
            json!("15m"),
            json!("1m30s"),
            json!("300s"),
            json!("0s"),
            json!(3),
            json!(true),
            json!("legacy"),
        ];
        let bad = [
            json!("random"),
            json!(["10.0.0.0"]),
            json!("yes"),
            json!("-1s"),
            json!("500ms"),
            json!(7),
            json!("1000h"),
            json!(32),
            json!(0),
            json!("ebtables"),
        ];
        for ((key, good), bad) in KEYS.iter().zip(good).zip(bad) {
            let mut options = Options::default();
            options.set(key, &good).unwrap();
            assert_ne!(options, Options::default(), "{key} changed nothing");
            assert_eq!(options.set(key, &bad).unwrap_err().key, *key);
        }
        assert!(Options::default().set("syncPeriod", &json!("30s")).is_err());
    }

    #[test]
    fn unknown_schedulers_are_told_the_known_ones() {
        let mut options = Options::default();
        let error = options.set("scheduler", &json!("roundrobin")).unwrap_err().to_string();
        assert!(SCHEDULERS.iter().all(|name| error.contains(name)), "{error}");
        for name in SCHEDULERS {
            options.set("scheduler", &json!(name)).unwrap();
        }
        options.set("scheduler", &json!("")).unwrap();
        assert_eq!(&*options.scheduler, "rr");
    }

    #[test]
    fn timeouts() {
        let texts = [
            ("0", 0),
            ("90s", 90),
            ("15m", 900),
            ("1h2m3s", 3723),
            ("10m0s", 600),
            ("596h31m23s", 2_147_483),
        ];
        for (text, seconds) in texts {
            assert_eq!(timeout(&json!(text)), Some(Duration::from_secs(seconds)), "{text}");
        }
        assert_eq!(timeout(&json!(0)), Some(Duration::ZERO));
        for text in ["", "5", "m", "1s1m", "1.5m", "+1s", "596h31m24s", "s1", "99999999999999999999h"] {
            assert_eq!(timeout(&json!(text)), None, "{text}");
        }
    }

    #[test]
    fn ranges_are_masked() {
        let mut options = Options::default();
        options.set("excludeCIDRs", &json!(["10.1.2.3/8"])).unwrap();
        assert_eq!(options.exclude_cidrs, ["10.0.0.0/8".parse::<IpNet>().unwrap()]);
    }
}
