//! The test API server: against recorded answers of a real one, and as the real clients see it.
#![cfg(feature = "apiserver")]

mod client;
mod faults;
mod kube_client;
mod protocol;
mod recorded;
mod scale;
mod tls;
