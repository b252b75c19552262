//! ipset's own error numbers (`IPSET_ERR_*` of `linux/netfilter/ipset/ip_set*.h`) in words.

use proxier_sys::netlink::errno_name;

use crate::sets::SetType;

/// `IPSET_ERR_FIND_TYPE`: the kernel does not have the type.
pub const NO_TYPE: i32 = 4098;
/// `IPSET_ERR_BUSY`: rules look into the set.
pub const IN_USE: i32 = 4100;
/// `IPSET_ERR_HASH_FULL`: no room for one more entry.
pub const FULL: i32 = 4352;

/// What the kernel means by an error number of ipset's own; `None` for the others. From 4352 on the meaning depends on the type of the set.
pub fn words(errno: i32, kind: Option<SetType>) -> Option<&'static str> {
    let bitmap = kind == Some(SetType::BitmapPort);
    Some(match errno {
        4097 => "the kernel does not understand the message",
        NO_TYPE => "the kernel has no such type of set",
        4099 => "the kernel has no room for another set",
        IN_USE => "the set is in use by a rule",
        4101 => "a set with the second name exists",
        4102 => "the two sets are of different types",
        4103 => "the entry is there already, or is not there",
        4104 => "the length of the range is not possible",
        4105 => "the mask is not possible",
        4106 => "the set is of the other family",
        4107 => "the set has no timeouts",
        4108 => "the set is part of another one",
        4109 => "not an IPv4 address",
        4110 => "not an IPv6 address",
        4111 => "the set has no counters",
        4112 => "the set has no comments",
        4113 => "the mask of marks is not possible",
        4114 => "the set has no packet marks",
        FULL if bitmap => "the port is outside of the set's range",
        4353 if bitmap => "the range of the set is too large",
        FULL => "the set is full",
        4353 => "an entry of zeros cannot be held",
        4354 => "the protocol is not possible",
        4355 => "the protocol is missing",
        4356 => "ranges are not possible in this set",
        4357 => "the range is not possible",
        _ => return None,
    })
}

/// An error number with its words or its symbol.
pub fn describe(errno: i32, kind: Option<SetType>) -> String {
    match words(errno, kind) {
        Some(words) => format!("{words} (ipset error {errno})"),
        None => errno_name(errno),
    }
}
