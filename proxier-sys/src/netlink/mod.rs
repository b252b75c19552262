//! Our own netlink writer and reader, in safe code.
//!
//! * [`AttrWriter`] and [`AttrIter`] write and read attributes, nested or not.
//! * [`Batch`] is one nfnetlink transaction as bytes.
//! * [`NetfilterSocket`] sends a batch with one system call and says which message was refused and why; it
//!   also dumps and asks for single objects.
//! * [`Requests`] are changes in families without transactions, sent together: what is refused is named, the rest goes in.
//!   [`GenericSocket`] sends them to generic netlink families, [`NetfilterSocket`] to ipset.
//!
//! The layout of headers and attributes is the one of the kernel's user interface headers `linux/netlink.h`
//! and `linux/netfilter/nfnetlink.h`.

mod attr;
mod batch;
mod error;
mod generic;
mod message;
mod pipeline;
mod reader;
mod requests;
mod socket;
#[cfg(test)]
mod tests;
mod transport;

/// The system's error numbers by their symbols; `Errno::from_raw` reads one.
pub use nix::errno::Errno;

pub use attr::{AttrTooLong, AttrWriter};
pub use batch::{Batch, MessageIndex, OversizedMessage};
pub use error::{NetlinkError, errno_name};
pub use generic::{GenericFamily, GenericMessage, GenericSocket};
pub use reader::{Attr, AttrError, AttrIter};
pub use requests::Requests;
pub use socket::{BatchAnswer, DumpMessage, MessageType, NetfilterSocket, RefusedMessage};

pub use transport::{Sent, Walked};

pub(crate) use transport::Transport;

/// Message flags, `NLM_F_*` in `linux/netlink.h`.
pub mod flags {
    /// The message asks the kernel for something; set on every message this crate writes.
    pub const REQUEST: u16 = 0x1;
    /// Answer with an acknowledgement even on success. Never set inside a batch, where one answer per
    /// message overflows the receive buffer.
    pub const ACK: u16 = 0x4;
    /// Send the notification of the change back to the sender.
    pub const ECHO: u16 = 0x8;
    /// On a new-object message: replace what exists.
    pub const REPLACE: u16 = 0x100;
    /// On a delete message: do not delete what is inside.
    pub const NONREC: u16 = 0x100;
    /// On a new-object message: refuse with EEXIST what exists.
    pub const EXCL: u16 = 0x200;
    /// On a new-object message: create what does not exist.
    pub const CREATE: u16 = 0x400;
    /// On a new-object message: add to the end of the list.
    pub const APPEND: u16 = 0x800;
    /// On a get message: answer with all objects.
    pub const DUMP: u16 = 0x300;
}

/// nfnetlink subsystems, `NFNL_SUBSYS_*` in `linux/netfilter/nfnetlink.h`.
pub mod subsystem {
    /// Connection tracking table.
    pub const CTNETLINK: u8 = 1;
    /// ipset.
    pub const IPSET: u8 = 6;
    /// Counting objects (nfnetlink accounting).
    pub const ACCOUNTING: u8 = 7;
    /// nftables.
    pub const NFTABLES: u8 = 10;
}
