//! The test API server: against recorded answers of a real one, and as the real clients see it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "functions that tests share are no test functions"
)]

mod client;
mod faults;
mod kube_client;
mod protocol;
mod recorded;
mod scale;
mod tls;
