//! The lab: Kubernetes nodes out of network namespaces, real traffic through them, and the `proxier` agent binary under test.
//!
//! [`isolate`] puts the lab into namespaces of its own, so that nothing is seen or left outside; [`topology`] describes a
//! cluster as data and renders it to `ip` commands; [`world`] builds it; [`traffic`] opens connections and tells which
//! source address the endpoint saw; [`agent`] runs one agent per node; [`scenario`] lists the experiments as data;
//! [`experiment`] runs them; [`report`] prints what came out. [`matrix`] runs many more against the core's oracle.
//!
//! It drives the agent only by its command line, its manifests folder and the kernel state it leaves, and depends on no
//! backend crate. It is not a benchmark: it checks what happens to packets, not how fast.

pub mod agent;
pub mod cli;
pub mod experiment;
pub mod isolate;
pub mod lab;
pub mod listing;
pub mod manifests;
pub mod matrix;
pub mod pace;
pub mod process;
pub mod report;
pub mod saved;
pub mod scenario;
pub mod topology;
pub mod traffic;
pub mod virtual_servers;
pub mod world;
