//! Traffic: servers that say which client address they see, and clients that say what came back.

mod client;
mod lasting;
mod sctp;
mod server;

pub use client::{Seen, connect, connect_here, exchange, exchange_here};
pub use lasting::Lasting;
pub use sctp::{associate_here, has_sctp};
pub use server::{Listen, Server};
