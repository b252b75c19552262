//! Programs a snapshot of one IP family into IPVS: virtual servers with their real servers, the addresses of `kube-ipvs0`, ipsets, and the
//! few iptables rules that look into these (ipvs spec).

pub mod belief;
pub mod diff;
pub mod drain;
mod edits;
pub mod environment;
pub mod fragment;
pub mod objects;
pub mod observed;
pub mod ops;
pub mod options;
pub mod order;
pub mod plan;
pub mod render;
pub mod sets;
pub mod skeleton;
pub mod takeover;
pub mod wire;
