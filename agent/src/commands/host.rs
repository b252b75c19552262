//! What the program sets on its host and for itself when it starts (core spec 7.8).

use proxier_core::ids::IpFamily;
use proxier_core::model::{NodeFacts, PerFamily};

use crate::config::{Config, Severity, StartFacts};
use crate::host::conntrack::{self, Host};
use crate::source::SourceError;

/// Settings of connection tracking, written where they differ. What this process may not write is logged with the value wanted.
///
/// # Errors
/// Settings that the kernel does not take.
pub(super) fn prepare(config: &Config) -> anyhow::Result<()> {
    let host = Host::new();
    let mut refused = Vec::new();
    for outcome in conntrack::apply(&host, &conntrack::wanted(&config.conntrack, host.cores())) {
        outcome.log();
        if let Err(error) = &outcome.result
            && !error.is_tolerable()
        {
            refused.push(format!("{}: {error}", outcome.wanted.setting));
        }
    }
    anyhow::ensure!(refused.is_empty(), "settings of the kernel:\n{}", refused.join("\n"));
    Ok(())
}

/// How willing the kernel may be to end this process; a failure is told only (core spec 7.2).
pub(super) fn set_oom_score(config: &Config) {
    let score = config.oom_score_adj;
    match proxier_sys::process::set_oom_score_adj(score) {
        Ok(_) => {}
        Err(error) => {
            tracing::warn!(score, error = %error, "the OOM score stays; a lower one takes CAP_SYS_RESOURCE");
        }
    }
}

/// Looks whether configuration, node and host fit together, once the node is known (core spec 7.6). `served` are the families that this host and the
/// backend can do.
///
/// # Errors
/// The first finding with which the program must not run.
pub(super) fn check_start(config: &Config, served: &[IpFamily], node: &NodeFacts) -> Result<(), SourceError> {
    let facts = StartFacts {
        primary: node.first_family.unwrap_or(IpFamily::Ipv4),
        supported: PerFamily {
            ipv4: served.contains(&IpFamily::Ipv4),
            ipv6: served.contains(&IpFamily::Ipv6),
        },
        ips: node.ips.clone(),
        pod_cidrs: &node.pod_cidrs,
    };
    let mut fatal = None;
    for finding in config.start_findings(&facts) {
        match finding.severity {
            Severity::Warning => {
                tracing::warn!(setting = %finding.path, origin = %finding.origin, reason = %finding.message, "configuration");
            }
            Severity::Fatal => drop(fatal.get_or_insert(finding)),
        }
    }
    match fatal {
        None => Ok(()),
        Some(finding) => Err(SourceError::Unfit(finding.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Draft;
    use crate::registry;

    fn checked(text: &str, served: &[IpFamily], node: &NodeFacts) -> Result<(), String> {
        let text = format!("apiVersion: proxier.io/v1alpha1\nkind: ProxierConfiguration\n{text}");
        let sections = registry::sections();
        let config = Draft::parse(Some(("c.yaml", &text)), &[], &sections).finish().expect("good");
        check_start(&config, served, node).map_err(|e| e.to_string())
    }

    /// Cases: core-11.77
    #[test]
    fn a_node_whose_first_family_the_host_cannot_do_is_not_served() {
        let node = |first| NodeFacts { first_family: first, ..NodeFacts::default() };
        let (four, six) = (IpFamily::Ipv4, IpFamily::Ipv6);
        assert_eq!(checked("", &[four, six], &node(Some(six))), Ok(()));
        assert_eq!(checked("", &[four], &node(Some(four))), Ok(()), "single-stack");
        assert_eq!(checked("", &[four], &node(None)), Ok(()));
        let error = checked("", &[four], &node(Some(six))).expect_err("IPv6 comes first");
        assert!(error.contains("the node's first family is IPv6"), "{error}");
    }

    #[test]
    fn ranges_of_the_wrong_family_alone_end_a_single_stack_start() {
        let (four, six) = (IpFamily::Ipv4, IpFamily::Ipv6);
        let node = NodeFacts { first_family: Some(four), ..NodeFacts::default() };
        let error = checked("clusterCIDR: fd00::/48\n", &[four], &node).expect_err("no range of IPv4");
        assert!(error.contains("clusterCIDR"), "{error}");
        assert_eq!(
            checked("clusterCIDR: fd00::/48\n", &[four, six], &node),
            Ok(()),
            "a warning in dual-stack"
        );
    }
}
