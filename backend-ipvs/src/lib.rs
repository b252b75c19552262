//! Programs a snapshot of one IP family into IPVS: virtual servers with their real servers, the addresses of `kube-ipvs0`, ipsets, and the
//! few iptables rules that look into these (ipvs spec).

mod apply;
pub mod belief;
mod cleanup;
pub mod diff;
pub mod drain;
mod edits;
pub mod environment;
pub mod error;
pub mod fragment;
mod ipvs;
pub mod kernel;
pub mod objects;
mod observe;
pub mod observed;
pub mod ops;
pub mod options;
pub mod order;
pub mod plan;
pub mod probe;
pub mod render;
pub mod sets;
pub mod skeleton;
pub mod sysctls;
pub mod takeover;
pub mod wire;

pub use ipvs::Ipvs;
pub use options::Options;

#[cfg(test)]
mod tests;
