//! The proxier daemon: sources of Kubernetes objects in, data planes out.
//!
//! What it is: assembly. [`cli`] and [`config`] say what is wanted, a [`source`] delivers objects, the core decides, a backend
//! programs the kernel. What it is not: it holds no service semantics (those are `proxier-core`'s) and no kernel syntax (a backend's).

pub mod admin;
pub mod cli;
pub mod commands;
pub mod config;
pub mod conntrack;
pub mod events;
pub mod file_watch;
pub mod health;
pub mod host;
pub mod http;
pub mod lab;
pub mod metrics;
pub mod registry;
pub mod service_manager;
pub mod source;
pub mod sync;
pub mod telemetry;
pub mod world;
mod yaml;
