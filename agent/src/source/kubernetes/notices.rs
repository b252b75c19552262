//! What the log is told: a fault once, when it begins, and once when it is over.

use std::cell::RefCell;
use std::collections::BTreeMap;

use super::fault::{Fault, Sort};
use super::resource::Resource;

/// Failures in a row after which a fault that should pass by itself is worth a warning.
const PATIENCE: u32 = 3;

/// Faults that stand, by what they concern: a resource, or (empty) the server as a whole.
#[derive(Debug, Default)]
pub(super) struct Notices(RefCell<BTreeMap<&'static str, Sort>>);

/// A line for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Notice {
    /// Something that stops us until somebody acts.
    Error(String),
    /// Something that may pass.
    Warning(String),
    /// It is over.
    Over(String),
}

impl Notice {
    /// Logs it.
    pub(super) fn log(self) {
        match self {
            Self::Error(text) => tracing::error!(problem = %text, "kubernetes source; tried again"),
            Self::Warning(text) => tracing::warn!(problem = %text, "kubernetes source"),
            Self::Over(what) => tracing::info!(what = %what, "kubernetes source: well again"),
        }
    }
}

/// What a fault concerns.
fn scope(resource: &Resource, sort: Sort) -> &'static str {
    match sort {
        Sort::Unauthorized | Sort::Setup | Sort::Unreachable => "",
        Sort::Passing | Sort::Refused | Sort::Forbidden | Sort::Absent => resource.plural,
    }
}

impl Notices {
    /// A request for the resource failed, the `failures`th in a row. Returns what is to be said.
    pub(super) fn failed(
        &self,
        resource: &Resource,
        verb: &str,
        fault: &Fault,
        failures: u32,
    ) -> Option<Notice> {
        let sort = fault.sort();
        let mut standing = self.0.borrow_mut();
        if sort == Sort::Passing && (failures < PATIENCE || standing.contains_key("")) {
            return None;
        }
        if standing.insert(scope(resource, sort), sort) == Some(sort) {
            return None;
        }
        let text = fault.describe(verb, &resource.describe());
        Some(match sort {
            Sort::Forbidden | Sort::Absent if !resource.needed => {
                Notice::Warning(format!("{text}; going on without"))
            }
            Sort::Forbidden | Sort::Unauthorized | Sort::Setup | Sort::Absent | Sort::Refused => {
                Notice::Error(text)
            }
            Sort::Passing | Sort::Unreachable => Notice::Warning(format!("{text}; tried again")),
        })
    }

    /// The server answered a request for the resource. Returns what is to be said.
    pub(super) fn answered(&self, resource: &Resource) -> Vec<Notice> {
        let mut standing = self.0.borrow_mut();
        let server = standing.remove("").map(|_| "the API server".to_owned());
        let passing = standing.get(resource.plural) == Some(&Sort::Passing);
        let own = if passing { None } else { standing.remove(resource.plural) };
        server.into_iter().chain(own.map(|_| resource.describe())).map(Notice::Over).collect()
    }

    /// The resource made progress: a change came, or its list is complete. Returns what is to be said.
    pub(super) fn progressed(&self, resource: &Resource) -> Option<Notice> {
        self.0.borrow_mut().remove(resource.plural).map(|_| Notice::Over(resource.describe()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn forbidden() -> Fault {
        Fault::Forbidden { user: Some("proxier".into()) }
    }

    fn gone() -> Fault {
        Fault::Unreachable("refused".into())
    }

    #[test]
    fn a_missing_right_is_told_once_and_when_it_is_there() {
        let (notices, slices) = (Notices::default(), Resource::endpoint_slices());
        let told = notices.failed(&slices, "watch", &forbidden(), 1);
        assert_eq!(
            told,
            Some(Notice::Error(
                "not allowed: watch endpointslices in group discovery.k8s.io; grant it to proxier".into()
            ))
        );
        for failures in 2..50 {
            assert_eq!(notices.failed(&slices, "watch", &forbidden(), failures), None);
        }
        let over = Notice::Over("endpointslices in group discovery.k8s.io".into());
        assert_eq!(notices.answered(&slices), [over]);
        assert_eq!(notices.answered(&slices), []);
        assert!(notices.failed(&slices, "watch", &forbidden(), 1).is_some(), "again, since it was over");
    }

    #[test]
    fn a_lost_server_is_told_once_for_all_resources() {
        let notices = Notices::default();
        assert!(notices.failed(&Resource::services(), "watch", &gone(), 1).is_some());
        assert_eq!(notices.failed(&Resource::endpoint_slices(), "watch", &gone(), 1), None);
        let torn = Fault::Broken("torn".into());
        assert_eq!(
            notices.failed(&Resource::node(&proxier_core::ids::NodeName::new("n")), "watch", &torn, 9),
            None,
            "no wonder"
        );
        let again = notices.answered(&Resource::endpoint_slices());
        assert_eq!(again, [Notice::Over("the API server".into())]);
        assert_eq!(notices.answered(&Resource::services()), []);
    }

    #[test]
    fn what_passes_is_told_when_it_does_not() {
        let (notices, services) = (Notices::default(), Resource::services());
        let torn = Fault::Broken("torn".into());
        let told: Vec<_> = (1..10).map(|n| notices.failed(&services, "watch", &torn, n).is_some()).collect();
        assert_eq!(told, [false, false, true, false, false, false, false, false, false]);
        assert_eq!(notices.answered(&services), [], "an answer alone does not mend it");
        assert_eq!(notices.progressed(&services), Some(Notice::Over("services in the core group".into())));
    }

    #[test]
    fn what_can_be_done_without_is_a_warning() {
        let notices = Notices::default();
        let told = notices.failed(&Resource::service_cidrs(), "watch", &Fault::Absent, 1);
        assert_eq!(
            told,
            Some(Notice::Warning(
                "cannot watch servicecidrs in group networking.k8s.io: the server has no such API; going on without"
                    .into()
            ))
        );
    }
}
