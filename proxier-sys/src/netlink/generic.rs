//! Generic netlink: families that are known by name.

use netlink_sys::protocols::NETLINK_GENERIC;

use super::attr::AttrWriter;
use super::error::NetlinkError;
use super::reader::AttrIter;
use super::requests::Requests;
use super::socket::RefusedMessage;
use super::transport::{Answer, Sent, Transport};

/// `struct genlmsghdr`: command, version, reserved.
const HEADER: usize = 4;
/// The family that knows the others, `GENL_ID_CTRL` of `linux/genetlink.h`, and its version.
const CONTROLLER: (u16, u8) = (16, 1);
/// `CTRL_CMD_GETFAMILY`.
const GET_FAMILY: u8 = 3;
/// `CTRL_ATTR_FAMILY_ID`.
const FAMILY_ID: u16 = 1;
/// `CTRL_ATTR_FAMILY_NAME`.
const FAMILY_NAME: u16 = 2;
/// `CTRL_ATTR_VERSION`.
const FAMILY_VERSION: u16 = 3;

pub(super) fn header(command: u8, version: u8) -> [u8; HEADER] {
    [command, version, 0, 0]
}

/// A generic netlink family as this kernel numbers it. The number holds until the module that made it is unloaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GenericFamily {
    id: u16,
    version: u8,
}

impl GenericFamily {
    /// A family whose number is known.
    pub const fn new(id: u16, version: u8) -> Self {
        Self { id, version }
    }

    /// Its number, the type of its messages.
    pub const fn id(&self) -> u16 {
        self.id
    }

    /// The version of its messages.
    pub const fn version(&self) -> u8 {
        self.version
    }
}

/// An answer of a generic netlink family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GenericMessage {
    /// The family's own command.
    pub command: u8,
    /// Its attributes, for [`AttrIter`].
    pub payload: Vec<u8>,
}

/// A socket to the generic netlink families in one network namespace: that of the thread that opened it.
#[derive(Debug)]
pub struct GenericSocket {
    transport: Transport,
}

impl GenericSocket {
    /// Opens a socket in the calling thread's network namespace.
    ///
    /// # Errors
    /// [`NetlinkError::Socket`].
    pub fn open() -> Result<Self, NetlinkError> {
        Ok(Self { transport: Transport::open(NETLINK_GENERIC)? })
    }

    /// What went out since this was asked last.
    pub fn take_sent(&mut self) -> Sent {
        self.transport.take_sent()
    }

    /// Looks a family up by its name; `None` if the kernel does not have it. A kernel that can load the module of the family does so.
    ///
    /// # Errors
    /// A failure of the socket, or [`NetlinkError::Malformed`].
    pub fn family(&mut self, name: &str) -> Result<Option<GenericFamily>, NetlinkError> {
        let fixed = header(GET_FAMILY, CONTROLLER.1);
        let answers = match self.transport.request(CONTROLLER.0, 0, &fixed, |w| w.put_str(FAMILY_NAME, name))
        {
            Err(error) if error.is_not_found() => return Ok(None),
            answers => answers?,
        };
        let message = answers.into_iter().next().map(read).transpose()?;
        let family = message.as_ref().and_then(|message| read_family(&message.payload));
        family.map(Some).ok_or(NetlinkError::Malformed { what: "generic netlink family without a number" })
    }

    /// One request, acknowledged by the kernel: a get, or a change. Returns what it answered with, nothing for a change.
    ///
    /// # Errors
    /// [`NetlinkError::Refused`], or a failure of the socket.
    pub fn request(
        &mut self,
        family: &GenericFamily,
        command: u8,
        flags: u16,
        fill: impl FnOnce(&mut AttrWriter<'_>),
    ) -> Result<Vec<GenericMessage>, NetlinkError> {
        let fixed = header(command, family.version);
        self.transport.request(family.id, flags, &fixed, fill)?.into_iter().map(read).collect()
    }

    /// All objects of a kind, as the request's attributes select them.
    ///
    /// # Errors
    /// [`NetlinkError::Refused`], [`NetlinkError::DumpInterrupted`], or a failure of the socket.
    pub fn dump(
        &mut self,
        family: &GenericFamily,
        command: u8,
        fill: impl Fn(&mut AttrWriter<'_>),
    ) -> Result<Vec<GenericMessage>, NetlinkError> {
        let fixed = header(command, family.version);
        self.transport.dump(family.id, &fixed, fill)?.into_iter().map(read).collect()
    }

    /// Sends changes together, each of which stands for itself; returns those that the kernel refused, in their order. The others are in.
    ///
    /// # Errors
    /// [`NetlinkError::Oversized`] before anything is sent; otherwise it is not known what was done.
    pub fn pipeline(&mut self, requests: &Requests) -> Result<Vec<RefusedMessage>, NetlinkError> {
        self.transport.pipeline(requests)
    }
}

fn read_family(attributes: &[u8]) -> Option<GenericFamily> {
    let mut family = GenericFamily { id: 0, version: 0 };
    for attr in AttrIter::new(attributes).map_while(Result::ok) {
        match attr.kind {
            FAMILY_ID => family.id = attr.u16().ok()?,
            FAMILY_VERSION => family.version = attr.u32().ok()?.try_into().ok()?,
            _ => {}
        }
    }
    (family.id != 0).then_some(family)
}

fn read(answer: Answer) -> Result<GenericMessage, NetlinkError> {
    let Answer { mut payload, .. } = answer;
    let Some(&[command, ..]) = payload.first_chunk::<HEADER>() else {
        return Err(NetlinkError::Malformed { what: "generic netlink header cut short" });
    };
    payload.drain(..HEADER);
    Ok(GenericMessage { command, payload })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::errno_name;
    use crate::netns;

    #[test]
    fn a_family_is_read_and_one_without_a_number_is_none() {
        let mut bytes = Vec::new();
        let mut writer = AttrWriter::new(&mut bytes);
        writer.put_str(FAMILY_NAME, "IPVS");
        writer.put_u16(FAMILY_ID, 32);
        writer.put_u32(FAMILY_VERSION, 1);
        writer.put_u32(99, 1);
        writer.finish().unwrap();
        assert_eq!(read_family(&bytes), Some(GenericFamily::new(32, 1)));
        assert_eq!(read_family(&bytes[..12]), None);
        assert!(read(Answer { kind: 32, payload: vec![1, 1] }).is_err());
    }

    #[test]
    #[ignore = "needs root and a network namespace: run by cargo xtask test"]
    fn families_are_found_by_name() {
        netns::enter_new().unwrap();
        let mut socket = GenericSocket::open().unwrap();
        assert_eq!(socket.family("nlctrl").unwrap().map(|f| f.id()), Some(CONTROLLER.0));
        assert_eq!(socket.family("no such family").unwrap(), None);
        // The controller lists itself among the others.
        let families =
            socket.dump(&GenericFamily::new(CONTROLLER.0, CONTROLLER.1), GET_FAMILY, |_| {}).unwrap();
        assert!(families.iter().any(|f| read_family(&f.payload).is_some_and(|f| f.id() == CONTROLLER.0)));
    }

    #[test]
    #[ignore = "needs root and a network namespace: run by cargo xtask test"]
    fn refused_requests_are_named_and_the_socket_stays_usable() {
        netns::enter_new().unwrap();
        let mut socket = GenericSocket::open().unwrap();
        let controller = GenericFamily::new(CONTROLLER.0, CONTROLLER.1);
        let mut requests = Requests::new();
        let found = requests.generic(&controller, GET_FAMILY, 0, |w| w.put_str(FAMILY_NAME, "nlctrl"));
        let unknown = requests.generic(&controller, GET_FAMILY, 0, |w| w.put_str(FAMILY_NAME, "no such"));
        let no_command = requests.generic(&controller, 200, 0, |_| {});
        for _ in 0..5000 {
            requests.generic(&controller, 200, 0, |_| {});
        }
        let refused = socket.pipeline(&requests).unwrap();
        assert_eq!(refused.len(), 5002);
        assert!(refused.iter().all(|r| r.index != found));
        assert_eq!((refused[0].index, errno_name(refused[0].errno)), (unknown, "ENOENT".to_owned()));
        assert_eq!((refused[1].index, errno_name(refused[1].errno)), (no_command, "EOPNOTSUPP".to_owned()));
        assert_eq!(refused[5001].index.get(), 5002);
        assert_eq!(socket.pipeline(&Requests::new()).unwrap(), []);
        assert!(socket.family("nlctrl").unwrap().is_some());
    }
}
