//! Test material that every backend shares: a model of nftables that answers where a packet goes, and more to come.

#[cfg(feature = "apiserver")]
pub mod apiserver;
pub mod nft;
pub mod scale;
pub mod walk;
