//! Traffic: servers that say which client address they see, and clients that say what came back.

mod client;
mod server;

pub use client::{Seen, connect, exchange};
pub use server::{Listen, Server};
