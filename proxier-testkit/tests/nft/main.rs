//! The nft model and packet walker: whole rulesets, the meaning of single statements, what is refused, and the kernel.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "functions that tests share are no test functions"
)]

mod example;
mod kernel;
mod peer;
mod refusals;
#[path = "../support/rows.rs"]
mod rows;
mod semantics;
