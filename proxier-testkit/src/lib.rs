//! Test material that every backend shares: a model of nftables that answers where a packet goes, and more to come.

pub mod nft;
pub mod scale;
pub mod walk;
