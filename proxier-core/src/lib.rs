//! The decision core of proxier.
//!
//! What it is: a pure library. Kubernetes objects go in ([`model`], or [`intake`] for API types), a [`cluster::Cluster`]
//! tracks them, decides which endpoints each kind of traffic may reach ([`categorize`]), and publishes immutable
//! [`snapshot::Snapshot`]s, one per IP family. A [`backend::Backend`] turns a snapshot into kernel state;
//! [`driver::Driver`] runs one backend instance and [`reconcile`] says when. [`oracle`] answers what must happen
//! to a packet, which is the meaning every backend is tested against.
//!
//! What it is not: it reads no clock, opens no socket or file, starts no thread, logs nothing, and knows no chain,
//! set or virtual server.
//!
//! ```
//! use proxier_core::cluster::{Cluster, TrafficOptions};
//! use proxier_core::ids::{IpFamily, NodeName};
//!
//! let mut cluster = Cluster::new(NodeName::new("node-a"), TrafficOptions::default());
//! let commit = cluster.commit();
//! assert_eq!(commit.snapshot(IpFamily::Ipv4).ports().count(), 0);
//! ```

pub mod backend;
pub mod categorize;
pub mod changes;
pub mod cluster;
pub mod driver;
pub mod health;
pub mod ids;
#[cfg(feature = "k8s")]
pub mod intake;
mod intern;
pub mod ip;
pub mod model;
pub mod names;
pub mod oracle;
pub mod reconcile;
pub mod snapshot;
pub mod stale;
pub mod track;

#[cfg(test)]
mod tests;
