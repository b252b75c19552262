//! One netlink socket: buffers, one send, receiving, and the request-answer exchanges all families share.

use std::io;
use std::os::fd::AsFd;

use netlink_sys::{Socket, SocketAddr};
use nix::errno::Errno;
use nix::libc;
use nix::sys::socket::{GetSockOpt, SetSockOpt, getsockopt, setsockopt, sockopt};
use nix::sys::time::{TimeVal, TimeValLike};

use super::attr::AttrWriter;
use super::error::NetlinkError;
use super::flags;
use super::message::{
    self, BadMessage, DONE, DUMP_INTERRUPTED, ERROR, Head, Message, Messages, NOOP, OVERRUN, Verdict,
};

/// The kernel answers before `send` returns or while we receive; only a kernel that does not answer at all
/// meets this limit.
const ANSWER_SECONDS: i64 = 10;
/// Larger than any datagram the kernel makes for a dump (32 KiB).
const DATAGRAM: usize = 128 * 1024;
/// A socket buffer is accounted in a C int which the kernel doubles.
const LARGEST_BUFFER: usize = (i32::MAX / 2) as usize;
/// How often a dump is tried before its objects are said to change too fast.
pub(super) const DUMP_ATTEMPTS: u32 = 8;

/// What [`Transport::receive`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Received {
    /// A datagram is in [`Transport::messages`].
    Datagram,
    /// Nothing is waiting.
    Nothing,
    /// The kernel had to throw answers away; others may still be waiting.
    Overflow,
}

/// Whether [`Transport::receive`] waits for a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    Yes,
    No,
}

/// An answer that outlives the receive buffer.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) kind: u16,
    pub(crate) payload: Vec<u8>,
}

/// What went out through a socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Netlink messages.
    pub messages: usize,
    /// Their bytes.
    pub bytes: usize,
}

impl std::ops::AddAssign for Sent {
    fn add_assign(&mut self, other: Self) {
        self.messages += other.messages;
        self.bytes += other.bytes;
    }
}

/// A netlink socket connected to the kernel: nobody else can send to it.
#[derive(Debug)]
pub(crate) struct Transport {
    socket: Socket,
    sent: Sent,
    sequence: u32,
    send_buffer: usize,
    receive_buffer: usize,
    datagram: Vec<u8>,
}

impl Transport {
    /// Opens a socket of a netlink protocol (`NETLINK_ROUTE`, `NETLINK_NETFILTER`, ...) in the network
    /// namespace of the calling thread, to which it belongs from then on.
    pub(crate) fn open(protocol: isize) -> Result<Self, NetlinkError> {
        let mut socket = Socket::new(protocol).map_err(failed("open"))?;
        socket.bind_auto().map_err(failed("bind"))?;
        socket.connect(&SocketAddr::new(0, 0)).map_err(failed("connect"))?;
        // Linux 4.2 and 4.12; without them answers are longer and carry no explanation.
        socket.set_cap_ack(true).map_err(failed("set option"))?;
        socket.set_ext_ack(true).map_err(failed("set option"))?;
        let limit = TimeVal::seconds(ANSWER_SECONDS);
        set(&socket, sockopt::ReceiveTimeout, &limit).map_err(failed("set option"))?;
        let send_buffer = get(&socket, sockopt::SndBuf).map_err(failed("get option"))?;
        let receive_buffer = get(&socket, sockopt::RcvBuf).map_err(failed("get option"))?;
        Ok(Self {
            socket,
            sent: Sent::default(),
            sequence: 0,
            send_buffer,
            receive_buffer,
            datagram: Vec::with_capacity(DATAGRAM),
        })
    }

    /// Makes room for a message of `bytes` bytes; a failure shows in the send that follows.
    pub(super) fn grow_send_buffer(&mut self, bytes: usize) {
        // The kernel keeps 32 bytes back. It doubles what is asked, so asking for `bytes` is enough.
        let wanted = bytes.min(LARGEST_BUFFER);
        if wanted.saturating_add(32) <= self.send_buffer {
            return;
        }
        if let Err(error) = set(&self.socket, sockopt::SndBufForce, &wanted) {
            tracing::debug!(%error, bytes = wanted, "send buffer not forced, trying within the system's limit");
            let _ = set(&self.socket, sockopt::SndBuf, &wanted);
        }
        self.send_buffer = get(&self.socket, sockopt::SndBuf).unwrap_or(self.send_buffer);
    }

    /// Makes room for `bytes` bytes of answers, as far as the process may.
    pub(super) fn grow_receive_buffer(&mut self, bytes: usize) {
        let wanted = bytes.min(LARGEST_BUFFER);
        if wanted <= self.receive_buffer {
            return;
        }
        if let Err(error) = set(&self.socket, sockopt::RcvBufForce, &wanted) {
            tracing::debug!(%error, bytes = wanted, "receive buffer not forced, trying within the system's limit");
            let _ = set(&self.socket, sockopt::RcvBuf, &wanted);
        }
        self.receive_buffer = get(&self.socket, sockopt::RcvBuf).unwrap_or(self.receive_buffer);
    }

    /// Sends all of `bytes` with one system call, in which the kernel also processes them.
    pub(super) fn send(&mut self, bytes: &[u8]) -> Result<(), NetlinkError> {
        self.grow_send_buffer(bytes.len());
        loop {
            match self.socket.send(bytes, 0) {
                Ok(sent) if sent == bytes.len() => {
                    self.sent += Sent { messages: message::count(bytes), bytes: sent };
                    return Ok(());
                }
                Ok(_) => {
                    return Err(NetlinkError::Malformed { what: "the kernel took only part of a message" });
                }
                // Interrupted before the kernel took the message, so it is safe to send it again.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(failed("send")(error)),
            }
        }
    }

    /// What went out since this was asked last.
    pub(crate) fn take_sent(&mut self) -> Sent {
        std::mem::take(&mut self.sent)
    }

    /// Reads one datagram.
    pub(super) fn receive(&mut self, wait: Wait) -> Result<Received, NetlinkError> {
        let waiting = if wait == Wait::No { libc::MSG_DONTWAIT } else { 0 };
        loop {
            self.datagram.clear();
            let received = self.socket.recv(&mut self.datagram, waiting | libc::MSG_TRUNC);
            return match received {
                Ok(length) if length > self.datagram.len() => {
                    Err(NetlinkError::Malformed { what: "answer larger than the receive buffer" })
                }
                Ok(_) => Ok(Received::Datagram),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.raw_os_error() == Some(Errno::ENOBUFS as i32) => Ok(Received::Overflow),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => match wait {
                    Wait::No => Ok(Received::Nothing),
                    Wait::Yes => Err(NetlinkError::TimedOut),
                },
                Err(error) => Err(failed("receive")(error)),
            };
        }
    }

    /// The messages of the datagram received last.
    pub(super) fn messages(&self) -> Messages<'_> {
        Messages::new(&self.datagram)
    }

    /// Throws away what an exchange that failed left behind.
    pub(super) fn discard_stale(&mut self) -> Result<(), NetlinkError> {
        while self.receive(Wait::No)? != Received::Nothing {}
        Ok(())
    }

    /// One request with its answers, up to the acknowledgement.
    pub(crate) fn request(
        &mut self,
        kind: u16,
        flags: u16,
        fixed: &[u8],
        fill: impl FnOnce(&mut AttrWriter<'_>),
    ) -> Result<Vec<Answer>, NetlinkError> {
        let sequence = self.next_sequence();
        let head = Head { kind, flags: flags | flags::REQUEST | flags::ACK, sequence };
        let mut bytes = Vec::with_capacity(256);
        message::write(&mut bytes, head, fixed, fill)?;
        self.send(&bytes)?;
        Ok(self.collect(sequence)?.answers)
    }

    /// One dump, tried again when objects changed meanwhile.
    pub(crate) fn dump(
        &mut self,
        kind: u16,
        fixed: &[u8],
        fill: impl Fn(&mut AttrWriter<'_>),
    ) -> Result<Vec<Answer>, NetlinkError> {
        for attempt in 1..=DUMP_ATTEMPTS {
            let sequence = self.next_sequence();
            let head = Head { kind, flags: flags::REQUEST | flags::DUMP, sequence };
            let mut bytes = Vec::with_capacity(256);
            message::write(&mut bytes, head, fixed, &fill)?;
            self.send(&bytes)?;
            let collected = self.collect(sequence)?;
            if !collected.interrupted {
                return Ok(collected.answers);
            }
            tracing::debug!(attempt, "dump interrupted by changes, trying again");
        }
        Err(NetlinkError::DumpInterrupted { attempts: DUMP_ATTEMPTS })
    }

    /// One dump, tried once; each object is given to `each` as it comes and nothing is kept, so that memory does not grow with the
    /// dump. The kernel makes the next piece when the one before was read, so that nothing can overflow either.
    pub(super) fn stream(
        &mut self,
        kind: u16,
        fixed: &[u8],
        fill: impl FnOnce(&mut AttrWriter<'_>),
        mut each: impl FnMut(Message<'_>),
    ) -> Result<Walked, NetlinkError> {
        let sequence = self.next_sequence();
        let head = Head { kind, flags: flags::REQUEST | flags::DUMP, sequence };
        let mut bytes = Vec::with_capacity(256);
        message::write(&mut bytes, head, fixed, fill)?;
        self.send(&bytes)?;
        let mut walked = Walked::Whole;
        loop {
            match self.receive(Wait::Yes)? {
                Received::Datagram => {}
                // What was lost is not known; the rest and the end still come.
                Received::Nothing | Received::Overflow => {
                    walked = Walked::Interrupted;
                    continue;
                }
            }
            if walk(self.messages(), sequence, &mut walked, &mut each)? {
                return Ok(walked);
            }
        }
    }

    /// Room for answers, in bytes as the kernel counts them.
    pub(super) fn receive_buffer(&self) -> usize {
        self.receive_buffer
    }

    /// The first of `count` sequence numbers in a row.
    pub(super) fn reserve_sequences(&mut self, count: usize) -> u32 {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        let first =
            self.sequence.checked_add(1).filter(|first| first.checked_add(count).is_some()).unwrap_or(1);
        self.sequence = first.saturating_add(count);
        first
    }

    /// Never 0, which the kernel uses for what nobody asked for.
    fn next_sequence(&mut self) -> u32 {
        self.sequence = self.sequence.checked_add(1).unwrap_or(1);
        self.sequence
    }

    /// Reads until the end of the exchange `sequence`; answers to older ones are passed over.
    fn collect(&mut self, sequence: u32) -> Result<Collected, NetlinkError> {
        let mut collected = Collected::default();
        loop {
            match self.receive(Wait::Yes)? {
                Received::Datagram => {}
                Received::Nothing | Received::Overflow => {
                    return Err(NetlinkError::Overflow { refused: Vec::new() });
                }
            }
            for message in self.messages() {
                let message = message.map_err(malformed)?;
                if message.sequence != sequence {
                    continue;
                }
                collected.interrupted |= message.flags & DUMP_INTERRUPTED != 0;
                match message.kind {
                    NOOP => {}
                    OVERRUN => return Err(NetlinkError::Overflow { refused: Vec::new() }),
                    ERROR | DONE => return collected.end(Verdict::read(&message).map_err(malformed)?),
                    kind => collected.answers.push(Answer { kind, payload: message.payload.to_vec() }),
                }
            }
        }
    }
}

/// How a dump went that was read as it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Walked {
    /// To its end, and nothing came in between.
    Whole,
    /// Objects changed meanwhile (`NLM_F_DUMP_INTR`, `EINTR`) or answers were lost: some may not have been seen, some seen twice.
    Interrupted,
}

/// Reads one datagram of a dump; true if it was its last.
fn walk(
    messages: Messages<'_>,
    sequence: u32,
    walked: &mut Walked,
    each: &mut impl FnMut(Message<'_>),
) -> Result<bool, NetlinkError> {
    for message in messages {
        let message = message.map_err(malformed)?;
        if message.sequence != sequence {
            continue;
        }
        if message.flags & DUMP_INTERRUPTED != 0 {
            *walked = Walked::Interrupted;
        }
        match message.kind {
            NOOP => {}
            OVERRUN => *walked = Walked::Interrupted,
            ERROR | DONE => {
                let Verdict { errno, message, .. } = Verdict::read(&message).map_err(malformed)?;
                if errno == Errno::EINTR as i32 {
                    *walked = Walked::Interrupted;
                } else if errno != 0 {
                    return Err(NetlinkError::Refused { errno, message });
                }
                return Ok(true);
            }
            _ => each(message),
        }
    }
    Ok(false)
}

#[derive(Debug, Default)]
struct Collected {
    answers: Vec<Answer>,
    interrupted: bool,
}

impl Collected {
    fn end(self, verdict: Verdict) -> Result<Self, NetlinkError> {
        match verdict {
            Verdict { errno: 0, .. } => Ok(self),
            // Some dumps end with EINTR instead of the flag when their objects changed.
            Verdict { errno, .. } if errno == Errno::EINTR as i32 => Ok(Self { interrupted: true, ..self }),
            Verdict { errno, message, .. } => Err(NetlinkError::Refused { errno, message }),
        }
    }
}

pub(super) fn malformed(error: BadMessage) -> NetlinkError {
    NetlinkError::Malformed { what: error.0 }
}

fn failed(call: &'static str) -> impl Fn(io::Error) -> NetlinkError {
    move |source| NetlinkError::Socket { call, source }
}

fn set<O: SetSockOpt>(socket: &impl AsFd, option: O, value: &O::Val) -> io::Result<()> {
    setsockopt(socket, option, value).map_err(io::Error::from)
}

fn get<O: GetSockOpt>(socket: &impl AsFd, option: O) -> io::Result<O::Val> {
    getsockopt(socket, option).map_err(io::Error::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OBJECT: u16 = 0x0100;

    fn datagram(messages: &[(u16, u16, u32, i32)]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (kind, flags, sequence, errno) in messages.iter().copied() {
            let head = Head { kind, flags, sequence };
            message::write(&mut bytes, head, &(-errno).to_ne_bytes(), |_| {}).unwrap();
        }
        bytes
    }

    /// End reached, how, objects seen.
    fn read(messages: &[(u16, u16, u32, i32)]) -> (bool, Walked, usize) {
        let (mut walked, mut seen) = (Walked::Whole, 0);
        let bytes = datagram(messages);
        let ended = walk(Messages::new(&bytes), 7, &mut walked, &mut |_| seen += 1).unwrap();
        (ended, walked, seen)
    }

    #[test]
    fn a_walk_goes_to_the_end_of_its_own_dump() {
        assert_eq!(read(&[(OBJECT, 2, 7, 0), (OBJECT, 2, 7, 0)]), (false, Walked::Whole, 2));
        assert_eq!(read(&[(OBJECT, 2, 7, 0), (DONE, 2, 7, 0)]), (true, Walked::Whole, 1));
        assert_eq!(read(&[(OBJECT, 2, 6, 0), (DONE, 2, 6, 0)]), (false, Walked::Whole, 0), "of an older one");
    }

    #[test]
    fn every_way_to_be_interrupted_is_noticed_and_loses_nothing_that_came() {
        for messages in [
            &[(OBJECT, 2 | DUMP_INTERRUPTED, 7, 0), (DONE, 2, 7, 0)][..],
            &[(OBJECT, 2, 7, 0), (DONE, 2 | DUMP_INTERRUPTED, 7, 0)],
            &[(OBJECT, 2, 7, 0), (DONE, 2, 7, Errno::EINTR as i32)],
            &[(OBJECT, 2, 7, 0), (OVERRUN, 2, 7, 0), (DONE, 2, 7, 0)],
        ] {
            assert_eq!(read(messages), (true, Walked::Interrupted, 1), "{messages:?}");
        }
    }

    #[test]
    fn a_refusal_is_an_error() {
        let bytes = datagram(&[(ERROR, 0, 7, Errno::EPERM as i32)]);
        let error = walk(Messages::new(&bytes), 7, &mut Walked::Whole, &mut |_| {}).unwrap_err();
        assert!(error.is_permission(), "{error}");
    }
}
