//! Counting objects of the kernel (nfnetlink accounting), which rules may mention: `-m nfacct` (iptables spec 5.2).

use proxier_sys::netlink::{
    AttrIter, MessageType, NetfilterSocket, NetlinkError, errno_name, flags, subsystem,
};

/// `NFNL_MSG_ACCT_NEW` and `NFNL_MSG_ACCT_GET` of `linux/netfilter/nfnetlink_acct.h`.
const NEW: u8 = 0;
const GET: u8 = 1;
/// `NFACCT_NAME`
const NAME: u16 = 1;
/// `NFACCT_PKTS`
const PACKETS: u16 = 2;

/// Makes sure that counting objects exist, and returns the names of those that do: only these may be mentioned by a rule, since one that
/// is missing makes a whole input fail. Those that exist keep their counts. A kernel without them returns none.
///
/// # Errors
/// When the kernel does not answer, or this process may not ask it.
pub fn ensure<'n>(names: &[&'n str]) -> Result<Vec<&'n str>, NetlinkError> {
    let mut socket = NetfilterSocket::open()?;
    let mut there = Vec::new();
    for name in names {
        match ensure_one(&mut socket, name) {
            Ok(()) => there.push(*name),
            Err(error) if is_lacking(&error) => {
                tracing::debug!(name, error = %error, "no counting object");
            }
            Err(error) => return Err(error),
        }
    }
    Ok(there)
}

fn ensure_one(socket: &mut NetfilterSocket, name: &str) -> Result<(), NetlinkError> {
    let mut ask = |message, flags| {
        let kind = MessageType::new(subsystem::ACCOUNTING, message);
        socket.request(kind, flags, 0, |w| w.put_str(NAME, name)).map(drop)
    };
    match ask(GET, 0) {
        Err(error) if error.is_not_found() => match ask(NEW, flags::CREATE) {
            // Someone was faster.
            Err(error) if error.is_exists() || error.is_busy() => Ok(()),
            made => made,
        },
        found => found,
    }
}

/// Packets that counting objects have counted so far, of those that exist. A kernel without them returns none.
///
/// # Errors
/// When the kernel does not answer, or this process may not ask it.
pub fn packets<'n>(names: &[&'n str]) -> Result<Vec<(&'n str, u64)>, NetlinkError> {
    let mut socket = NetfilterSocket::open()?;
    let mut out = Vec::new();
    for name in names {
        let kind = MessageType::new(subsystem::ACCOUNTING, GET);
        match socket.request(kind, 0, 0, |w| w.put_str(NAME, name)) {
            Ok(objects) => {
                out.extend(objects.first().and_then(|o| read_packets(&o.payload)).map(|n| (*name, n)));
            }
            Err(error) if error.is_not_found() || is_lacking(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(out)
}

/// The count in an object's attributes.
fn read_packets(payload: &[u8]) -> Option<u64> {
    AttrIter::new(payload).find_map(|a| a.ok().filter(|a| a.kind == PACKETS)).and_then(|a| a.u64_be().ok())
}

/// The kernel has no accounting: an unknown subsystem is `EINVAL`, an unknown netlink family the socket's error.
fn is_lacking(error: &NetlinkError) -> bool {
    let lacking = ["EINVAL", "EOPNOTSUPP", "EPROTONOSUPPORT", "ERANGE"];
    error.errno().is_some_and(|errno| lacking.contains(&errno_name(errno).as_str()))
}
