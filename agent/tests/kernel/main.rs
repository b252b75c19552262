//! The program on the real kernel, each test in a network namespace of its own.

#![allow(clippy::expect_used, clippy::panic, reason = "all of it is a test")]

#[path = "../program/mod.rs"]
mod program;

mod answers;
mod api;
mod conntrack;
mod drift;
mod ends;
mod health;
mod input;
mod life;
mod live;
mod rights;
mod stage;
mod watched;
