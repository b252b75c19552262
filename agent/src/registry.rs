//! The backends that are built in: the only place that names them. One entry each.

use proxier_core::cluster::TrafficOptions;
use proxier_core::driver::Instance;
use proxier_core::ids::IpFamily;
use serde_json::{Map, Value};

use crate::config::Section;
use crate::metrics::Figures;

/// A configured backend: makes instances, one for each family.
pub trait Factory: Send {
    /// An instance that has not talked to the kernel yet.
    fn instance(&self, family: IpFamily) -> Box<dyn Instance>;

    /// What the backend's own section says about traffic.
    fn adjust(&self, traffic: &mut TrafficOptions);

    /// Every key of the backend's section with the value that is in force.
    fn settings(&self) -> Vec<(&'static str, Value)>;
}

/// A value in a backend's section that it cannot use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {message}")]
pub struct Fault {
    /// The key.
    pub key: String,
    /// What is wrong with its value.
    pub message: String,
}

/// Reads a backend's section of the configuration.
type Build = fn(Option<&Map<String, Value>>) -> Result<Box<dyn Factory>, Vec<Fault>>;

/// A backend that is built in.
#[derive(Clone, Copy)]
pub struct Entry {
    /// Its name in `mode` and of its section, and the keys of that.
    pub section: Section,
    /// What it counts beside what every backend does (core spec 8).
    pub figures: Figures,
    /// Backends whose leftovers are removed once this one's rules are in force (iptables spec 9). One that is not built in is passed over.
    pub replaces: &'static [&'static str],
    /// Keys of the section under whose old value something would stay in the kernel: they change with a start only, after a clean-up.
    pub fixed: &'static [&'static str],
    build: Build,
}

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.section.name)
    }
}

impl Entry {
    /// Reads the backend's section of the configuration.
    ///
    /// # Errors
    /// Every fault in it.
    pub fn configure(&self, section: Option<&Map<String, Value>>) -> Result<Box<dyn Factory>, Vec<Fault>> {
        (self.build)(section)
    }
}

/// All backends that are built in; the first is the default.
pub const BACKENDS: &[Entry] = &[
    #[cfg(feature = "nftables")]
    Entry {
        section: Section { name: "nftables", keys: &backend_nftables::options::KEYS },
        figures: Figures { partial: true, transactions: true, ..Figures::NONE },
        replaces: &["iptables", "ipvs"],
        fixed: &["table"],
        build: nftables::build,
    },
    #[cfg(feature = "iptables")]
    Entry {
        section: Section { name: "iptables", keys: &backend_iptables::options::KEYS },
        figures: Figures {
            partial: true,
            tables: &["filter", "nat"],
            restores: true,
            partial_restores: true,
            packets: Some(iptables::packets),
            ..Figures::NONE
        },
        replaces: &["nftables", "ipvs"],
        fixed: &["variant"],
        build: iptables::build,
    },
    #[cfg(feature = "ipvs")]
    Entry {
        section: Section { name: "ipvs", keys: &backend_ipvs::options::KEYS },
        figures: Figures { restores: true, by_service: true, ..Figures::NONE },
        replaces: &["nftables", "iptables"],
        fixed: &["variant"],
        build: ipvs::build,
    },
];

/// Their sections.
#[must_use]
pub fn sections() -> Vec<Section> {
    BACKENDS.iter().map(|b| b.section).collect()
}

/// Sets every key of a section; `set` says what is wrong with a value.
#[cfg_attr(
    not(any(feature = "nftables", feature = "iptables", feature = "ipvs")),
    allow(dead_code, reason = "used by each backend's entry")
)]
fn read_section(
    section: Option<&Map<String, Value>>,
    mut set: impl FnMut(&str, &Value) -> Result<(), String>,
) -> Result<(), Vec<Fault>> {
    let fault = |(key, value): (&String, &Value)| {
        set(key, value).err().map(|message| Fault { key: key.clone(), message })
    };
    let faults: Vec<Fault> = section.into_iter().flatten().filter_map(fault).collect();
    if faults.is_empty() { Ok(()) } else { Err(faults) }
}

#[cfg(feature = "nftables")]
mod nftables {
    use backend_nftables::Nftables;
    use backend_nftables::options::{CtInvalid, Layout, Options};
    use proxier_core::driver::Driver;

    use super::{Factory, Fault, Instance, IpFamily, Map, TrafficOptions, Value, read_section};

    struct Configured(Options);

    impl Factory for Configured {
        fn instance(&self, family: IpFamily) -> Box<dyn Instance> {
            Box::new(Driver::new(Nftables::new(family, self.0.clone())))
        }

        fn adjust(&self, traffic: &mut TrafficOptions) {
            traffic.masquerade_all = self.0.masquerade_all;
        }

        fn settings(&self) -> Vec<(&'static str, Value)> {
            let layout = match self.0.layout {
                Layout::Maps => "maps",
                Layout::Chains => "chains",
            };
            let ct_invalid = match self.0.ct_invalid {
                CtInvalid::Auto => "auto",
                CtInvalid::Drop => "drop",
                CtInvalid::Ignore => "ignore",
            };
            vec![
                ("table", (&*self.0.table).into()),
                ("layout", layout.into()),
                ("masqueradeBit", self.0.masquerade_bit.into()),
                ("ctInvalid", ct_invalid.into()),
                ("masqueradeAll", self.0.masquerade_all.into()),
            ]
        }
    }

    pub(super) fn build(section: Option<&Map<String, Value>>) -> Result<Box<dyn Factory>, Vec<Fault>> {
        let mut options = Options::default();
        read_section(section, |key, value| options.set(key, value).map_err(|e| e.message))?;
        Ok(Box::new(Configured(options)))
    }
}

#[cfg(feature = "iptables")]
mod iptables {
    use backend_iptables::Iptables;
    use backend_iptables::options::{CtInvalid, Options, VariantOption};
    use proxier_core::driver::Driver;

    use super::{Factory, Fault, Instance, IpFamily, Map, TrafficOptions, Value, read_section};

    struct Configured(Options);

    /// What the kernel has counted; nothing where it cannot be asked, as at a scrape it must not be an error (core spec 8).
    pub(super) fn packets() -> Vec<(&'static str, u64)> {
        backend_iptables::counted_packets().unwrap_or_else(|error| {
            tracing::debug!(error = %error, "counting objects cannot be read");
            Vec::new()
        })
    }

    impl Factory for Configured {
        fn instance(&self, family: IpFamily) -> Box<dyn Instance> {
            Box::new(Driver::new(Iptables::new(family, self.0.clone())))
        }

        fn adjust(&self, traffic: &mut TrafficOptions) {
            traffic.masquerade_all = self.0.masquerade_all;
            traffic.localhost_node_ports = self.0.localhost_node_ports;
        }

        fn settings(&self) -> Vec<(&'static str, Value)> {
            let variant = match self.0.variant {
                VariantOption::Auto => "auto",
                VariantOption::Nft => "nft",
                VariantOption::Legacy => "legacy",
            };
            let ct_invalid = match self.0.ct_invalid {
                CtInvalid::Auto => "auto",
                CtInvalid::Drop => "drop",
                CtInvalid::Ignore => "ignore",
            };
            vec![
                ("masqueradeBit", self.0.masquerade_bit.into()),
                ("masqueradeAll", self.0.masquerade_all.into()),
                ("localhostNodePorts", self.0.localhost_node_ports.into()),
                ("variant", variant.into()),
                ("ctInvalid", ct_invalid.into()),
            ]
        }
    }

    pub(super) fn build(section: Option<&Map<String, Value>>) -> Result<Box<dyn Factory>, Vec<Fault>> {
        let mut options = Options::default();
        read_section(section, |key, value| options.set(key, value).map_err(|e| e.message))?;
        Ok(Box::new(Configured(options)))
    }
}

#[cfg(feature = "ipvs")]
mod ipvs {
    use std::time::Duration;

    use backend_ipvs::{Ipvs, Options};
    use proxier_core::driver::Driver;

    use super::{Factory, Fault, Instance, IpFamily, Map, TrafficOptions, Value, read_section};

    struct Configured(Options);

    impl Factory for Configured {
        fn instance(&self, family: IpFamily) -> Box<dyn Instance> {
            Box::new(Driver::new(Ipvs::new(family, self.0.clone())))
        }

        fn adjust(&self, traffic: &mut TrafficOptions) {
            traffic.masquerade_all = self.0.masquerade_all;
        }

        fn settings(&self) -> Vec<(&'static str, Value)> {
            let seconds = |d: Duration| Value::from(format!("{}s", d.as_secs()));
            let excluded: Vec<String> = self.0.exclude_cidrs.iter().map(ToString::to_string).collect();
            vec![
                ("scheduler", (&*self.0.scheduler).into()),
                ("excludeCIDRs", excluded.into()),
                ("strictARP", self.0.strict_arp.into()),
                ("tcpTimeout", seconds(self.0.tcp_timeout)),
                ("tcpFinTimeout", seconds(self.0.tcp_fin_timeout)),
                ("udpTimeout", seconds(self.0.udp_timeout)),
                ("drainTimeout", seconds(self.0.drain_timeout)),
                ("masqueradeBit", self.0.masquerade_bit.into()),
                ("masqueradeAll", self.0.masquerade_all.into()),
                ("variant", self.0.variant.map_or("auto", |v| v.name()).into()),
            ]
        }
    }

    pub(super) fn build(section: Option<&Map<String, Value>>) -> Result<Box<dyn Factory>, Vec<Fault>> {
        let mut options = Options::default();
        read_section(section, |key, value| options.set(key, value).map_err(|e| e.message))?;
        Ok(Box::new(Configured(options)))
    }
}

#[cfg(test)]
mod tests {
    #[cfg(feature = "nftables")]
    use serde_json::json;

    use super::*;

    #[cfg(feature = "nftables")]
    fn section(value: &Value) -> Map<String, Value> {
        value.as_object().expect("a mapping").clone()
    }

    #[test]
    fn every_entry_works_without_a_section() {
        for entry in BACKENDS {
            let factory = entry.configure(None).expect("defaults are sound");
            assert_eq!(factory.instance(IpFamily::Ipv6).family(), IpFamily::Ipv6);
            assert_eq!(factory.instance(IpFamily::Ipv6).name(), entry.section.name);
        }
    }

    #[test]
    fn every_setting_is_listed_as_its_section_takes_it() {
        for entry in BACKENDS {
            let settings = entry.configure(None).expect("defaults are sound").settings();
            let keys: Vec<&str> = settings.iter().map(|(key, _)| *key).collect();
            assert_eq!(keys, entry.section.keys);
            let said: Map<String, Value> =
                settings.iter().map(|(k, v)| ((*k).to_owned(), v.clone())).collect();
            assert_eq!(entry.configure(Some(&said)).expect("its own words").settings(), settings);
        }
    }

    #[cfg(feature = "nftables")]
    #[test]
    fn faults_in_a_section_are_told_together() {
        let said = section(&json!({"layout": "trees", "masqueradeBit": 99, "masqueradeAll": true}));
        let faults = BACKENDS[0].configure(Some(&said)).err().expect("refused");
        let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
        assert_eq!(
            faults,
            [
                "layout: expected maps or chains, got \"trees\"",
                "masqueradeBit: expected a number from 0 to 31, got 99"
            ]
        );
    }

    #[cfg(feature = "iptables")]
    #[test]
    fn node_ports_on_loopback_are_said_in_the_section_of_iptables() {
        let entry = BACKENDS.iter().find(|e| e.section.name == "iptables").expect("built in");
        for wanted in [true, false] {
            let said = serde_json::json!({"localhostNodePorts": wanted, "variant": "legacy"});
            let factory = entry.configure(said.as_object()).expect("good");
            let mut traffic = TrafficOptions::default();
            factory.adjust(&mut traffic);
            assert_eq!(traffic.localhost_node_ports, wanted);
            assert!(factory.settings().contains(&("variant", "legacy".into())));
        }
    }

    #[cfg(feature = "nftables")]
    #[test]
    fn masquerading_everything_is_said_in_the_section() {
        let said = section(&json!({"masqueradeAll": true, "layout": "chains", "ctInvalid": "ignore"}));
        let factory = BACKENDS[0].configure(Some(&said)).expect("good");
        let mut traffic = TrafficOptions::default();
        factory.adjust(&mut traffic);
        assert!(traffic.masquerade_all);
        let said: Vec<_> = factory.settings().into_iter().filter(|(k, _)| said.contains_key(*k)).collect();
        assert_eq!(
            said,
            [("layout", json!("chains")), ("ctInvalid", json!("ignore")), ("masqueradeAll", json!(true))]
        );
    }
}
