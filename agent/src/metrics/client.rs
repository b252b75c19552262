//! Requests to the API server, under the names of Kubernetes' client library.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::page::{Family, Page};
use super::values::Histogram;

const REQUESTS: Family = Family::counter(
    "rest_client_requests_total",
    "[ALPHA] Requests to the API server, by status code (\"<error>\" without an answer), method and host.",
);
const DURATION: Family = Family::histogram(
    "rest_client_request_duration_seconds",
    "[ALPHA] Time until the API server began to answer, by verb and host.",
);

/// Buckets of the client library's request durations.
const BOUNDS: &[f64] = &[0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0];

/// Servers that are told apart; a process that went through more of them counts the others as one.
const HOSTS: usize = 8;
const OTHER_HOSTS: &str = "<other>";

#[derive(Debug, Default)]
struct Seen {
    /// By host, method and code.
    requests: BTreeMap<(String, String, String), u64>,
    /// By host and verb.
    durations: BTreeMap<(String, String), Histogram>,
}

/// Counts requests. What it keeps is bounded by the number of methods, codes and hosts that are told apart.
#[derive(Debug, Default)]
pub struct ClientMetrics(Mutex<Seen>);

impl ClientMetrics {
    /// A request was answered with this status code, or, with `None`, not at all.
    pub fn request(&self, method: &str, host: &str, code: Option<u16>, took: Duration) {
        let code = code.map_or_else(|| "<error>".to_owned(), |c| c.to_string());
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = seen.durations.keys().any(|(h, _)| h == host);
        let hosts = || seen.durations.keys().map(|(h, _)| h).collect::<std::collections::BTreeSet<_>>().len();
        let host = if known || hosts() < HOSTS { host } else { OTHER_HOSTS }.to_owned();
        let durations = seen.durations.entry((host.clone(), method.to_owned()));
        durations.or_insert_with(|| Histogram::new(BOUNDS)).observe_duration(took);
        *seen.requests.entry((host, method.to_owned(), code)).or_default() += 1;
    }

    /// Requests so far, and those of them that were not answered with success.
    #[must_use]
    pub fn totals(&self) -> (u64, u64) {
        let seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let failed = seen.requests.iter().filter(|((_, _, code), _)| !code.starts_with('2'));
        (seen.requests.values().sum(), failed.map(|(_, n)| n).sum())
    }

    /// Adds them to a scrape.
    pub fn collect(&self, page: &mut Page) {
        let seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for ((host, method, code), count) in &seen.requests {
            let labels = [("code", code.as_str()), ("host", host), ("method", method)];
            page.sample(REQUESTS, &labels, *count as f64);
        }
        for ((host, verb), durations) in &seen.durations {
            page.histogram(DURATION, &[("host", host), ("verb", verb)], &durations.observed());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_by_what_came_of_them() {
        let client = ClientMetrics::default();
        client.request("GET", "a:6443", Some(200), Duration::from_millis(5));
        client.request("GET", "a:6443", Some(200), Duration::from_millis(6));
        client.request("GET", "a:6443", None, Duration::from_secs(61));
        let mut page = Page::new();
        client.collect(&mut page);
        let text = page.text();
        for line in [
            "# TYPE rest_client_requests_total counter",
            "rest_client_requests_total{code=\"200\",host=\"a:6443\",method=\"GET\"} 2",
            "rest_client_requests_total{code=\"<error>\",host=\"a:6443\",method=\"GET\"} 1",
            "rest_client_request_duration_seconds_bucket{host=\"a:6443\",verb=\"GET\",le=\"0.005\"} 1",
            "rest_client_request_duration_seconds_bucket{host=\"a:6443\",verb=\"GET\",le=\"60\"} 2",
            "rest_client_request_duration_seconds_bucket{host=\"a:6443\",verb=\"GET\",le=\"+Inf\"} 3",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} not in\n{text}");
        }
        assert_eq!(client.totals(), (3, 1));
    }

    #[test]
    fn many_servers_become_one() {
        let client = ClientMetrics::default();
        for host in 0..1000 {
            client.request("GET", &format!("h{host}"), Some(200), Duration::ZERO);
        }
        let mut page = Page::new();
        client.collect(&mut page);
        let text = page.text();
        let hosts = text.lines().filter(|l| l.starts_with("rest_client_requests_total{")).count();
        assert_eq!(hosts, HOSTS + 1);
        assert!(text.contains("host=\"<other>\",method=\"GET\"} 992"), "{text}");
    }
}
