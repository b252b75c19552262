//! Programs a snapshot of one IP family into IPVS: virtual servers with their real servers, the addresses of `kube-ipvs0`, ipsets, and the
//! few iptables rules that look into these (ipvs spec).

pub mod error;
pub mod kernel;
pub mod objects;
pub mod sets;
pub mod sysctls;
pub mod wire;
