//! Numbers of the kernel's interface: `linux/netfilter/nf_tables.h` and the headers it refers to.
//!
//! Each module is one enum of that header; a number is named as there, without the enum's prefix.

/// `NFT_MSG_*`.
pub(super) mod msg {
    pub(crate) const NEW_TABLE: u8 = 0;
    pub(crate) const GET_TABLE: u8 = 1;
    pub(crate) const DEL_TABLE: u8 = 2;
    pub(crate) const NEW_CHAIN: u8 = 3;
    pub(crate) const GET_CHAIN: u8 = 4;
    pub(crate) const DEL_CHAIN: u8 = 5;
    pub(crate) const NEW_RULE: u8 = 6;
    pub(crate) const GET_RULE: u8 = 7;
    pub(crate) const DEL_RULE: u8 = 8;
    pub(crate) const NEW_SET: u8 = 9;
    pub(crate) const GET_SET: u8 = 10;
    pub(crate) const DEL_SET: u8 = 11;
    pub(crate) const NEW_SETELEM: u8 = 12;
    pub(crate) const GET_SETELEM: u8 = 13;
    pub(crate) const DEL_SETELEM: u8 = 14;
}

/// `NFPROTO_*` of `linux/netfilter.h`.
pub(super) mod family {
    pub(crate) const IPV4: u8 = 2;
    pub(crate) const IPV6: u8 = 10;
}

/// `NFTA_TABLE_*`.
pub(super) mod table {
    pub(crate) const NAME: u16 = 1;
    pub(crate) const FLAGS: u16 = 2;
    pub(crate) const USERDATA: u16 = 6;
    /// `NFT_TABLE_F_DORMANT`.
    pub(crate) const DORMANT: u32 = 1;
}

/// `NFTA_CHAIN_*`.
pub(super) mod chain {
    pub(crate) const TABLE: u16 = 1;
    pub(crate) const NAME: u16 = 3;
    pub(crate) const HOOK: u16 = 4;
    pub(crate) const POLICY: u16 = 5;
    pub(crate) const TYPE: u16 = 7;
    pub(crate) const FLAGS: u16 = 10;
    pub(crate) const USERDATA: u16 = 12;
    /// `NFT_CHAIN_BASE`, which newer kernels show.
    pub(crate) const FLAG_BASE: u32 = 1;
}

/// `NFTA_HOOK_*`.
pub(super) mod hook {
    pub(crate) const HOOKNUM: u16 = 1;
    pub(crate) const PRIORITY: u16 = 2;
    pub(crate) const DEV: u16 = 3;
    pub(crate) const DEVS: u16 = 4;
}

/// `NFTA_RULE_*`.
pub(super) mod rule {
    pub(crate) const TABLE: u16 = 1;
    pub(crate) const CHAIN: u16 = 2;
    pub(crate) const EXPRESSIONS: u16 = 4;
    pub(crate) const COMPAT: u16 = 5;
    pub(crate) const USERDATA: u16 = 7;
}

/// `NFTA_SET_*`.
pub(super) mod set {
    pub(crate) const TABLE: u16 = 1;
    pub(crate) const NAME: u16 = 2;
    pub(crate) const FLAGS: u16 = 3;
    pub(crate) const KEY_TYPE: u16 = 4;
    pub(crate) const KEY_LEN: u16 = 5;
    pub(crate) const DATA_TYPE: u16 = 6;
    pub(crate) const DATA_LEN: u16 = 7;
    pub(crate) const DESC: u16 = 9;
    pub(crate) const ID: u16 = 10;
    pub(crate) const TIMEOUT: u16 = 11;
    pub(crate) const USERDATA: u16 = 13;
    /// `NFTA_SET_DESC_SIZE`.
    pub(crate) const DESC_SIZE: u16 = 1;
}

/// `NFT_SET_*` flags.
pub(super) mod set_flags {
    pub(crate) const ANONYMOUS: u32 = 0x1;
    pub(crate) const CONSTANT: u32 = 0x2;
    pub(crate) const INTERVAL: u32 = 0x4;
    pub(crate) const MAP: u32 = 0x8;
    pub(crate) const TIMEOUT: u32 = 0x10;
    /// Packets may add elements; `dynamic` in nft.
    pub(crate) const EVAL: u32 = 0x20;
}

/// Type numbers of nft; the kernel only stores them. A concatenation is its parts' numbers, six bits each.
pub(super) mod datatype {
    pub(crate) const INTEGER: u32 = 4;
    pub(crate) const IPV4_ADDR: u32 = 7;
    pub(crate) const IPV6_ADDR: u32 = 8;
    pub(crate) const INET_PROTO: u32 = 12;
    pub(crate) const INET_SERVICE: u32 = 13;
    pub(crate) const BITS: u32 = 6;
    /// `NFT_DATA_VERDICT`.
    pub(crate) const VERDICT: u32 = 0xffff_ff00;
}

/// `NFTA_SET_ELEM_LIST_*`.
pub(super) mod elem_list {
    pub(crate) const TABLE: u16 = 1;
    pub(crate) const SET: u16 = 2;
    pub(crate) const ELEMENTS: u16 = 3;
    pub(crate) const SET_ID: u16 = 4;
    /// `NFTA_LIST_ELEM`.
    pub(crate) const ELEM: u16 = 1;
}

/// `NFTA_SET_ELEM_*`.
pub(super) mod elem {
    pub(crate) const KEY: u16 = 1;
    pub(crate) const DATA: u16 = 2;
    pub(crate) const FLAGS: u16 = 3;
    pub(crate) const TIMEOUT: u16 = 4;
    pub(crate) const EXPIRATION: u16 = 5;
    pub(crate) const USERDATA: u16 = 6;
    pub(crate) const EXPR: u16 = 7;
    pub(crate) const OBJREF: u16 = 9;
    pub(crate) const KEY_END: u16 = 10;
    pub(crate) const EXPRESSIONS: u16 = 11;
    /// `NFT_SET_ELEM_INTERVAL_END`.
    pub(crate) const INTERVAL_END: u32 = 1;
}

/// `NFTA_DATA_*` and `NFTA_VERDICT_*`.
pub(super) mod data {
    pub(crate) const VALUE: u16 = 1;
    pub(crate) const VERDICT: u16 = 2;
    pub(crate) const VERDICT_CODE: u16 = 1;
    pub(crate) const VERDICT_CHAIN: u16 = 2;
}

/// `NF_*` of `linux/netfilter.h` and `NFT_*` verdict codes.
pub(super) mod verdict {
    pub(crate) const DROP: u32 = 0;
    pub(crate) const ACCEPT: u32 = 1;
    /// -3
    pub(crate) const JUMP: u32 = 0xffff_fffd;
    /// -4
    pub(crate) const GOTO: u32 = 0xffff_fffc;
}

/// `NFTA_EXPR_*`.
pub(super) mod expr {
    pub(crate) const NAME: u16 = 1;
    pub(crate) const DATA: u16 = 2;
}

/// Attributes and values of the expressions we use.
pub(super) mod payload {
    pub(crate) const DREG: u16 = 1;
    pub(crate) const BASE: u16 = 2;
    pub(crate) const OFFSET: u16 = 3;
    pub(crate) const LEN: u16 = 4;
    pub(crate) const SREG: u16 = 5;
    /// `NFT_PAYLOAD_NETWORK_HEADER`.
    pub(crate) const NETWORK: u32 = 1;
    /// `NFT_PAYLOAD_TRANSPORT_HEADER`.
    pub(crate) const TRANSPORT: u32 = 2;
}

pub(super) mod meta {
    pub(crate) const DREG: u16 = 1;
    pub(crate) const KEY: u16 = 2;
    pub(crate) const SREG: u16 = 3;
    pub(crate) const MARK: u32 = 3;
    pub(crate) const IIFNAME: u32 = 6;
    pub(crate) const L4PROTO: u32 = 16;
}

pub(super) mod ct {
    pub(crate) const DREG: u16 = 1;
    pub(crate) const KEY: u16 = 2;
    pub(crate) const DIRECTION: u16 = 3;
    pub(crate) const SREG: u16 = 4;
    pub(crate) const STATE: u32 = 0;
    pub(crate) const STATUS: u32 = 2;
    /// `NF_CT_STATE_INVALID_BIT`.
    pub(crate) const STATE_INVALID: u32 = 1;
    /// `NF_CT_STATE_BIT(IP_CT_NEW)`.
    pub(crate) const STATE_NEW: u32 = 1 << 3;
    /// `IPS_DST_NAT`.
    pub(crate) const STATUS_DNAT: u32 = 1 << 5;
}

pub(super) mod bitwise {
    pub(crate) const SREG: u16 = 1;
    pub(crate) const DREG: u16 = 2;
    pub(crate) const LEN: u16 = 3;
    pub(crate) const MASK: u16 = 4;
    pub(crate) const XOR: u16 = 5;
    pub(crate) const OP: u16 = 6;
    /// `NFT_BITWISE_MASK_XOR`.
    pub(crate) const MASK_XOR: u32 = 0;
}

pub(super) mod cmp {
    pub(crate) const SREG: u16 = 1;
    pub(crate) const OP: u16 = 2;
    pub(crate) const DATA: u16 = 3;
    pub(crate) const EQ: u32 = 0;
    pub(crate) const NEQ: u32 = 1;
}

pub(super) mod immediate {
    pub(crate) const DREG: u16 = 1;
    pub(crate) const DATA: u16 = 2;
}

pub(super) mod lookup {
    pub(crate) const SET: u16 = 1;
    pub(crate) const SREG: u16 = 2;
    pub(crate) const DREG: u16 = 3;
    pub(crate) const SET_ID: u16 = 4;
    pub(crate) const FLAGS: u16 = 5;
    /// `NFT_LOOKUP_F_INV`.
    pub(crate) const INVERT: u32 = 1;
}

pub(super) mod numgen {
    pub(crate) const DREG: u16 = 1;
    pub(crate) const MODULUS: u16 = 2;
    pub(crate) const TYPE: u16 = 3;
    pub(crate) const OFFSET: u16 = 4;
    /// `NFT_NG_RANDOM`.
    pub(crate) const RANDOM: u32 = 1;
}

pub(super) mod nat {
    pub(crate) const TYPE: u16 = 1;
    pub(crate) const FAMILY: u16 = 2;
    pub(crate) const ADDR_MIN: u16 = 3;
    pub(crate) const ADDR_MAX: u16 = 4;
    pub(crate) const PROTO_MIN: u16 = 5;
    pub(crate) const PROTO_MAX: u16 = 6;
    pub(crate) const FLAGS: u16 = 7;
    /// `NFT_NAT_DNAT`.
    pub(crate) const DNAT: u32 = 1;
    /// `NF_NAT_RANGE_MAP_IPS`.
    pub(crate) const MAP_IPS: u32 = 1;
    /// `NF_NAT_RANGE_PROTO_SPECIFIED`.
    pub(crate) const PROTO_SPECIFIED: u32 = 2;
}

pub(super) mod masq {
    pub(crate) const FLAGS: u16 = 1;
    pub(crate) const PROTO_MIN: u16 = 2;
    /// `NF_NAT_RANGE_PROTO_RANDOM_FULLY`.
    pub(crate) const FULLY_RANDOM: u32 = 1 << 4;
}

pub(super) mod reject {
    pub(crate) const TYPE: u16 = 1;
    pub(crate) const ICMP_CODE: u16 = 2;
    /// `NFT_REJECT_ICMP_UNREACH`.
    pub(crate) const ICMP_UNREACH: u32 = 0;
    /// `NFT_REJECT_TCP_RST`.
    pub(crate) const TCP_RST: u32 = 1;
    /// `ICMP_PORT_UNREACH` of `linux/icmp.h`.
    pub(crate) const PORT_UNREACH_V4: u8 = 3;
    /// `ICMPV6_PORT_UNREACH` of `linux/icmpv6.h`.
    pub(crate) const PORT_UNREACH_V6: u8 = 4;
}

pub(super) mod fib {
    pub(crate) const DREG: u16 = 1;
    pub(crate) const RESULT: u16 = 2;
    pub(crate) const FLAGS: u16 = 3;
    /// `NFT_FIB_RESULT_ADDRTYPE`.
    pub(crate) const ADDRTYPE: u32 = 3;
    pub(crate) const SADDR: u32 = 1;
    pub(crate) const DADDR: u32 = 2;
    /// `RTN_LOCAL` of `linux/rtnetlink.h`.
    pub(crate) const LOCAL: u32 = 2;
}

pub(super) mod dynset {
    pub(crate) const SET: u16 = 1;
    pub(crate) const OP: u16 = 3;
    pub(crate) const SREG_KEY: u16 = 4;
    pub(crate) const SREG_DATA: u16 = 5;
    pub(crate) const TIMEOUT: u16 = 6;
    pub(crate) const EXPR: u16 = 7;
    pub(crate) const FLAGS: u16 = 9;
    pub(crate) const EXPRESSIONS: u16 = 10;
    /// `NFT_DYNSET_OP_UPDATE`.
    pub(crate) const UPDATE: u32 = 1;
}

/// Registers. They are 4 bytes wide, numbered from 8 (`NFT_REG32_00`); the older numbers 1 to 4 are the same
/// registers, four at a time. An address fits where it begins.
pub(super) mod reg {
    /// `NFT_REG_VERDICT`.
    pub(crate) const VERDICT: u32 = 0;
    /// `NFT_REG32_00`.
    pub(crate) const FIRST: u32 = 8;
}

/// `IFNAMSIZ` of `linux/if.h`: length of an interface name with its NUL byte.
pub(super) const IFNAMSIZ: usize = 16;
