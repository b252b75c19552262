//! The Kubernetes source against an API server that answers as a real one does, and fails on demand.

#![allow(clippy::expect_used, clippy::panic, reason = "all of it is a test")]

mod access;
mod events;
mod faults;
mod lists;
mod outages;
mod rights;
mod stage;
