//! backend-nftables
