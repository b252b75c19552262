//! An API server for tests: it answers the Kubernetes API of the resources a service proxier reads as a real server of
//! version 1.36 does, and fails on demand.
//!
//! What it is: lists with pages, selectors and versions, watches with bookmarks and streaming lists, Events, tokens,
//! client certificates and RBAC rules, over HTTP/1.1 and 2, with or without TLS. The test writes the state through its
//! handle and may fix versions, uids and times; recorded answers of a real server are compared byte for byte.
//!
//! What it is not: a cluster. It validates, defaults and allocates nothing that the test puts in, clients can write
//! Events only, there are no tables, no protobuf and no OpenAPI.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use proxier_testkit::apiserver::{Action, ApiServer, Fault, Verb};
//!
//! let server = ApiServer::builder().start().await?;
//! server.put_yaml("{apiVersion: v1, kind: Node, metadata: {name: worker}}")?;
//! server.fault(Fault::on(Verb::Watch, "services", Action::Close).times(2));
//! let _kubeconfig = server.kubeconfig(None);
//! server.stop().await;
//! # Ok(())
//! # }
//! ```

mod access;
mod blocking;
mod body;
mod builder;
mod clock;
mod discovery;
mod error;
mod events;
mod faults;
mod json;
mod line;
mod list;
mod listen;
mod object;
mod request;
mod resource;
mod selector;
mod serve;
mod server;
mod shape;
mod shared;
mod status;
mod store;
mod tls;
mod token;
mod watch;

pub use blocking::BlockingApiServer;
pub use builder::Builder;
pub use error::Error;
pub use faults::{Action, Fault, Place, Then};
pub use resource::Verb;
pub use server::ApiServer;
pub use shared::{Protocols, Seen};
pub use tls::{ClientIdentity, ServerCertificate};
