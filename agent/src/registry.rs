//! The backends that are built in: the only place that names them. One entry each.

use proxier_core::cluster::TrafficOptions;
use proxier_core::driver::Instance;
use proxier_core::ids::IpFamily;
use serde_json::Value;

use crate::config::nearest;

/// A configured backend: makes instances, one for each family.
pub trait Factory: Send {
    /// An instance that has not talked to the kernel yet.
    fn instance(&self, family: IpFamily) -> Box<dyn Instance>;

    /// What the backend's own section says about traffic.
    fn adjust(&self, traffic: &mut TrafficOptions);
}

/// Why a backend could not be configured: every fault, a line each.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.join("\n"))]
pub struct RegistryError(pub Vec<String>);

/// Reads a backend's section of the configuration.
type Build = fn(Option<&Value>) -> Result<Box<dyn Factory>, RegistryError>;

/// A backend that is built in.
#[derive(Clone, Copy)]
pub struct Entry {
    /// Its name in `mode` and of its section.
    pub name: &'static str,
    build: Build,
}

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl Entry {
    /// Reads the backend's section of the configuration.
    ///
    /// # Errors
    /// Every fault in it.
    pub fn configure(&self, section: Option<&Value>) -> Result<Box<dyn Factory>, RegistryError> {
        (self.build)(section)
    }
}

/// All backends that are built in; the first is the default.
pub const BACKENDS: &[Entry] = &[
    #[cfg(feature = "nftables")]
    Entry { name: "nftables", build: nftables::build },
];

/// Their names.
#[must_use]
pub fn names() -> Vec<&'static str> {
    BACKENDS.iter().map(|b| b.name).collect()
}

/// The backend of this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Entry> {
    BACKENDS.iter().find(|b| b.name == name)
}

/// Sets every key of a section; `set` says what is wrong with a value.
#[cfg_attr(not(feature = "nftables"), allow(dead_code, reason = "used by each backend's entry"))]
fn read_section(
    backend: &str,
    section: Option<&Value>,
    keys: &[&str],
    mut set: impl FnMut(&str, &Value) -> Result<(), String>,
) -> Result<(), RegistryError> {
    let entries = match section {
        None | Some(Value::Null) => return Ok(()),
        Some(Value::Object(entries)) => entries,
        Some(other) => return Err(RegistryError(vec![format!("{backend}: expected a section, got {other}")])),
    };
    let mut faults = Vec::new();
    for (key, value) in entries {
        if keys.contains(&key.as_str()) {
            if let Err(message) = set(key, value) {
                faults.push(format!("{backend}.{key}: {message}"));
            }
        } else {
            let hint = nearest(key, keys.iter().copied()).map(|k| format!("; did you mean {k}?"));
            faults.push(format!("{backend}.{key}: unknown key{}", hint.unwrap_or_default()));
        }
    }
    if faults.is_empty() { Ok(()) } else { Err(RegistryError(faults)) }
}

#[cfg(feature = "nftables")]
mod nftables {
    use backend_nftables::{Nftables, Options, options::KEYS};
    use proxier_core::driver::Driver;

    use super::{Factory, Instance, IpFamily, RegistryError, TrafficOptions, Value, read_section};

    struct Configured(Options);

    impl Factory for Configured {
        fn instance(&self, family: IpFamily) -> Box<dyn Instance> {
            Box::new(Driver::new(Nftables::new(family, self.0.clone())))
        }

        fn adjust(&self, traffic: &mut TrafficOptions) {
            traffic.masquerade_all |= self.0.masquerade_all;
        }
    }

    pub(super) fn build(section: Option<&Value>) -> Result<Box<dyn Factory>, RegistryError> {
        let mut options = Options::default();
        read_section("nftables", section, &KEYS, |key, value| {
            options.set(key, value).map_err(|e| e.message)
        })?;
        Ok(Box::new(Configured(options)))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_entry_is_found_by_its_name_and_works_without_a_section() {
        for entry in BACKENDS {
            let factory = find(entry.name).expect("found").configure(None).expect("defaults are sound");
            assert_eq!(factory.instance(IpFamily::Ipv6).family(), IpFamily::Ipv6);
        }
        assert!(find("nothing").is_none());
    }

    #[cfg(feature = "nftables")]
    #[test]
    fn faults_in_a_section_are_told_together_with_the_nearest_key() {
        let section = json!({"layuot": "maps", "masqueradeBit": 99, "masqueradeAll": true});
        let error = find("nftables").expect("there").configure(Some(&section)).err().expect("refused");
        assert_eq!(
            error.0,
            [
                "nftables.layuot: unknown key; did you mean layout?",
                "nftables.masqueradeBit: expected a number from 0 to 31, got 99"
            ]
        );
    }
}
