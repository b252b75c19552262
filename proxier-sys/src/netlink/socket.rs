//! The netfilter socket: transactions, dumps and single requests.

use std::fmt;

use netlink_sys::protocols::NETLINK_NETFILTER;

use super::attr::AttrWriter;
use super::batch::{Batch, MessageIndex};
use super::error::{NetlinkError, describe};
use super::message::{self, ERROR, NFGEN_HEADER, Verdict};
use super::reader::AttrIter;
use super::requests::Requests;
use super::subsystem;
use super::transport::{Answer, DUMP_ATTEMPTS, Received, Sent, Transport, Wait, Walked, malformed};

/// `NFT_MSG_GETGEN`.
const GET_GENERATION: u8 = 16;
/// `NFTA_GEN_ID`.
const GENERATION_ID: u16 = 1;
/// Receive buffer per message of a batch: a refusal with its explanation is accounted with less than this.
const ANSWER_BYTES: usize = 1024;
/// The most receive buffer asked for; 65,536 refusals at once are enough to know what is wrong.
const MOST_ANSWER_BYTES: usize = 64 << 20;

/// An nfnetlink message type: subsystem in the upper byte, its own message in the lower one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageType(pub u16);

impl MessageType {
    /// The type of `message` in one of the [`subsystem`](super::subsystem)s.
    pub const fn new(subsystem: u8, message: u8) -> Self {
        Self(u16::from_be_bytes([subsystem, message]))
    }

    /// The subsystem.
    pub const fn subsystem(self) -> u8 {
        self.0.to_be_bytes()[0]
    }

    /// The subsystem's own message type (`NFT_MSG_*`, `IPCTNL_MSG_*`, ...).
    pub const fn message(self) -> u8 {
        self.0.to_be_bytes()[1]
    }
}

/// One message of a batch that the kernel refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedMessage {
    /// Which message.
    pub index: MessageIndex,
    /// The kernel's error number, positive.
    pub errno: i32,
    /// The kernel's explanation (extended acknowledgement), where it gave one.
    pub message: Option<String>,
    /// Where in the message the refused attribute begins, in bytes from the message's header, where the
    /// kernel says so.
    pub offset: Option<u32>,
}

impl fmt::Display for RefusedMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "message {}: {}", self.index, describe(self.errno, self.message.as_deref()))
    }
}

/// The kernel's answer to a batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BatchAnswer {
    /// The messages it refused, in the order of the batch. Empty: all is committed. Otherwise nothing is.
    pub refused: Vec<RefusedMessage>,
}

impl BatchAnswer {
    /// True if the transaction took effect.
    pub fn is_committed(&self) -> bool {
        self.refused.is_empty()
    }
}

/// One object of a dump or of a get request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DumpMessage {
    /// What it is.
    pub msg_type: MessageType,
    /// `NFPROTO_*` number of the family it belongs to.
    pub family: u8,
    /// Resource id; for nftables the lower 16 bits of the ruleset's generation.
    pub resource: u16,
    /// Its attributes, for [`AttrIter`](super::AttrIter).
    pub payload: Vec<u8>,
}

/// A socket to netfilter in one network namespace: that of the thread that opened it, wherever it is used
/// later.
#[derive(Debug)]
pub struct NetfilterSocket {
    transport: Transport,
    most_answer_bytes: usize,
}

impl NetfilterSocket {
    /// Opens a socket in the calling thread's network namespace.
    ///
    /// # Errors
    /// [`NetlinkError::Socket`], with `EPROTONOSUPPORT` on a kernel without nfnetlink.
    pub fn open() -> Result<Self, NetlinkError> {
        let transport = Transport::open(NETLINK_NETFILTER)?;
        Ok(Self { transport, most_answer_bytes: MOST_ANSWER_BYTES })
    }

    /// What went out since this was asked last.
    pub fn take_sent(&mut self) -> Sent {
        self.transport.take_sent()
    }

    /// Sends a transaction with one system call and reads the kernel's verdict.
    ///
    /// The kernel processes the whole batch, commit included, before `send` returns, and it answers only what
    /// it refuses. So a send that succeeded was processed, and no answer waiting afterwards means committed.
    ///
    /// # Errors
    /// In all of them nothing is committed: [`NetlinkError::Oversized`] before anything is sent;
    /// [`NetlinkError::Socket`] if sending failed; [`NetlinkError::BatchRefused`] if the answer names the batch
    /// and no single message; [`NetlinkError::Overflow`] if there were more refusals than could be received;
    /// [`NetlinkError::Malformed`] if an answer could not be understood.
    pub fn send_batch(&mut self, batch: &Batch) -> Result<BatchAnswer, NetlinkError> {
        self.exchange(batch, batch.bytes()?)
    }

    /// Asks the kernel whether it would take a transaction, and changes nothing.
    ///
    /// A batch that lacks its end message is looked at message by message like any other, checked as a whole,
    /// and then undone (nfnetlink's abort with validation).
    ///
    /// # Errors
    /// As [`NetfilterSocket::send_batch`].
    pub fn check_batch(&mut self, batch: &Batch) -> Result<BatchAnswer, NetlinkError> {
        self.exchange(batch, batch.bytes_without_end()?)
    }

    fn exchange(&mut self, batch: &Batch, bytes: &[u8]) -> Result<BatchAnswer, NetlinkError> {
        let answers = batch.len().saturating_mul(ANSWER_BYTES).min(self.most_answer_bytes);
        self.transport.grow_receive_buffer(answers);
        self.transport.discard_stale()?;
        self.transport.send(bytes)?;
        self.read_verdict(batch)
    }

    /// All objects of a type, as the request's attributes select them.
    ///
    /// A dump during which the objects changed is tried again, up to eight times; the result is always one
    /// consistent state. Of nftables objects the kernel's own mark is not enough: it numbers a new ruleset before it
    /// has put away the old one, and a dump that starts in between and goes on with the position where it left off
    /// lists objects twice. So such a dump starts behind every transaction under way, and counts only if the ruleset
    /// still has the number it had before that.
    ///
    /// # Errors
    /// [`NetlinkError::Refused`] (for a dump inside something that does not exist: `is_not_found`),
    /// [`NetlinkError::DumpInterrupted`], or a failure of the socket.
    pub fn dump(
        &mut self,
        msg_type: MessageType,
        family: u8,
        fill: impl Fn(&mut AttrWriter<'_>),
    ) -> Result<Vec<DumpMessage>, NetlinkError> {
        let nfgen = message::nfgen(family, 0);
        if msg_type.subsystem() != subsystem::NFTABLES {
            let answers = self.transport.dump(msg_type.0, &nfgen, fill)?;
            return answers.into_iter().map(read_object).collect();
        }
        for _ in 0..DUMP_ATTEMPTS {
            let before = self.ruleset_generation()?;
            self.wait_for_transactions()?;
            let answers = self.transport.dump(msg_type.0, &nfgen, &fill)?;
            if self.ruleset_generation()? == before {
                return answers.into_iter().map(read_object).collect();
            }
        }
        Err(NetlinkError::DumpInterrupted { attempts: DUMP_ATTEMPTS })
    }

    /// All objects of a type, as the request's attributes select them, each given to `each` as it comes: its type and its attributes
    /// (for [`AttrIter`](super::AttrIter)). Nothing is kept, so that memory does not grow with the number of objects. Tried
    /// once: what came before an interruption was given out already.
    ///
    /// # Errors
    /// [`NetlinkError::Refused`], or a failure of the socket, which must not be used any more then: the dump may be under way.
    pub fn stream(
        &mut self,
        msg_type: MessageType,
        family: u8,
        fill: impl FnOnce(&mut AttrWriter<'_>),
        mut each: impl FnMut(MessageType, &[u8]),
    ) -> Result<Walked, NetlinkError> {
        let mut short = false;
        let walked = self.transport.stream(msg_type.0, &message::nfgen(family, 0), fill, |object| {
            match object.payload.get(NFGEN_HEADER..) {
                Some(attributes) => each(MessageType(object.kind), attributes),
                None => short = true,
            }
        })?;
        if short {
            return Err(NetlinkError::Malformed { what: "nfnetlink header cut short" });
        }
        Ok(walked)
    }

    /// Number of the nftables ruleset's generation: each transaction of the network namespace makes a new one.
    /// It changes while that transaction is being committed, a little before the new ruleset is in place.
    ///
    /// # Errors
    /// A failure of the socket, or [`NetlinkError::Malformed`].
    pub fn ruleset_generation(&mut self) -> Result<u32, NetlinkError> {
        let kind = MessageType::new(subsystem::NFTABLES, GET_GENERATION);
        let answer = self.request(kind, 0, 0, |_| {})?;
        let read = |object: &DumpMessage| {
            let attr =
                AttrIter::new(&object.payload).find_map(|a| a.ok().filter(|a| a.kind == GENERATION_ID));
            attr.and_then(|attr| attr.u32_be().ok())
        };
        answer.first().and_then(read).ok_or(NetlinkError::Malformed { what: "generation without a number" })
    }

    /// Returns when the nftables transactions that were under way have ended: an empty one takes its turn behind
    /// them, and changes nothing, the generation included.
    fn wait_for_transactions(&mut self) -> Result<(), NetlinkError> {
        self.send_batch(&Batch::with_capacity(subsystem::NFTABLES, 0)).map(drop)
    }

    /// One request outside of a batch, acknowledged by the kernel: a get, or a change in a subsystem without
    /// transactions. Returns the objects it answered with, none for a change.
    ///
    /// `flags` are [`flags`](super::flags); request and acknowledgement are added.
    ///
    /// # Errors
    /// [`NetlinkError::Refused`], where `is_not_found` tells the object that does not exist; or a failure of
    /// the socket.
    pub fn request(
        &mut self,
        msg_type: MessageType,
        flags: u16,
        family: u8,
        fill: impl FnOnce(&mut AttrWriter<'_>),
    ) -> Result<Vec<DumpMessage>, NetlinkError> {
        let answers = self.transport.request(msg_type.0, flags, &message::nfgen(family, 0), fill)?;
        answers.into_iter().map(read_object).collect()
    }

    /// Sends changes together, outside of a transaction, each of which stands for itself; returns those that the kernel refused, in their
    /// order. The others are in.
    ///
    /// # Errors
    /// [`NetlinkError::Oversized`] before anything is sent; otherwise it is not known what was done.
    pub fn pipeline(&mut self, requests: &Requests) -> Result<Vec<RefusedMessage>, NetlinkError> {
        self.transport.pipeline(requests)
    }

    /// Reads everything that is waiting after a batch.
    fn read_verdict(&mut self, batch: &Batch) -> Result<BatchAnswer, NetlinkError> {
        let mut refused = Vec::new();
        let mut overflow = false;
        let mut whole = None;
        loop {
            match self.transport.receive(Wait::No)? {
                Received::Nothing => break,
                Received::Overflow => overflow = true,
                Received::Datagram => {
                    for answer in self.transport.messages() {
                        let answer = answer.map_err(malformed)?;
                        if answer.kind != ERROR {
                            continue; // an echoed change
                        }
                        let verdict = Verdict::read(&answer).map_err(malformed)?;
                        if verdict.errno == 0 {
                            continue; // an acknowledgement
                        }
                        let Verdict { errno, message, offset } = verdict;
                        match batch.index_of(answer.sequence) {
                            Some(index) => refused.push(RefusedMessage { index, errno, message, offset }),
                            None => whole = Some(NetlinkError::BatchRefused { errno, message }),
                        }
                    }
                }
            }
        }
        refused.sort_by_key(|refused| refused.index);
        match (whole, overflow) {
            (Some(error), _) => Err(error),
            (None, true) => Err(NetlinkError::Overflow { refused }),
            (None, false) => Ok(BatchAnswer { refused }),
        }
    }

    /// Lets a test meet the overflow without sending 65,536 bad messages.
    #[cfg(test)]
    pub(super) fn limit_answers(&mut self, bytes: usize) {
        self.most_answer_bytes = bytes;
    }
}

fn read_object(answer: Answer) -> Result<DumpMessage, NetlinkError> {
    let Answer { kind, mut payload } = answer;
    let Some(&[family, _version, high, low]) = payload.first_chunk::<NFGEN_HEADER>() else {
        return Err(NetlinkError::Malformed { what: "nfnetlink header cut short" });
    };
    payload.drain(..NFGEN_HEADER);
    Ok(DumpMessage {
        msg_type: MessageType(kind),
        family,
        resource: u16::from_be_bytes([high, low]),
        payload,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_types_are_subsystem_and_message() {
        let get_rule = MessageType::new(10, 7);
        assert_eq!(get_rule.0, 0x0a07);
        assert_eq!((get_rule.subsystem(), get_rule.message()), (10, 7));
    }

    #[test]
    fn objects_lose_their_header_and_short_ones_are_errors() {
        let object = read_object(Answer { kind: 0x0a00, payload: vec![2, 0, 1, 2, 9, 9] }).unwrap();
        let expected =
            DumpMessage { msg_type: MessageType(0x0a00), family: 2, resource: 0x0102, payload: vec![9, 9] };
        assert_eq!(object, expected);
        assert!(read_object(Answer { kind: 0x0a00, payload: vec![2, 0] }).is_err());
    }

    #[test]
    fn a_refusal_reads_as_one_line() {
        let refused = RefusedMessage {
            index: MessageIndex(4),
            errno: 2,
            message: Some("no table".into()),
            offset: None,
        };
        assert_eq!(refused.to_string(), "message 4: ENOENT: no table");
    }
}
