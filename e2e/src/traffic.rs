//! Traffic: servers that say which client address they see, and clients that say what came back.

mod client;
mod lasting;
mod server;

pub use client::{Seen, connect, connect_here, exchange, exchange_here};
pub use lasting::Lasting;
pub use server::{Listen, Server};
