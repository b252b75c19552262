//! The border to the kernel: everything in proxier that talks to the running system and is not the
//! Kubernetes API goes through this crate.
//!
//! What it is: transport and facts. It writes netlink messages and reads the answers, runs tools with a time
//! limit, runs code in another network namespace, reads and writes sysctls, makes virtual interfaces and gives them addresses, and names
//! the host's kernel and addresses.
//!
//! What it is not: it knows no Service, no rule and no virtual server. What an nftables message *means* lives
//! with the nftables backend; this crate only carries it.
//!
//! All calls block: a netfilter commit is one synchronous system call and a tool is a child process, so there
//! is nothing an async runtime could win here.
//!
//! ```no_run
//! use proxier_sys::netlink::{Batch, NetfilterSocket, flags, subsystem};
//!
//! # fn main() -> Result<(), proxier_sys::netlink::NetlinkError> {
//! const NEW_TABLE: u8 = 0; // NFT_MSG_NEWTABLE
//! const TABLE_NAME: u16 = 1; // NFTA_TABLE_NAME
//!
//! let mut batch = Batch::new(subsystem::NFTABLES);
//! let table = batch.message(NEW_TABLE, flags::CREATE, 2, |w| w.put_str(TABLE_NAME, "example"));
//! let answer = NetfilterSocket::open()?.send_batch(&batch)?;
//! assert!(answer.refused.iter().all(|refused| refused.index == table));
//! # Ok(())
//! # }
//! ```

pub mod addresses;
pub mod conntrack;
pub mod ipv6;
pub mod links;
pub mod netlink;
pub mod netns;
pub mod process;
pub mod runner;
pub mod sysctl;
pub mod version;
