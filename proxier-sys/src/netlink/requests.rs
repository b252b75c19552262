//! Requests of families without transactions, sent together.

use super::attr::AttrWriter;
use super::batch::{MessageIndex, OversizedMessage};
use super::flags;
use super::generic::{self, GenericFamily};
use super::message::{self, HEADER, Head};
use super::socket::MessageType;

/// Changes that are sent together and stand each for itself: what is refused is left out, the rest goes in, in this order.
///
/// This is for the families that know no transaction: generic netlink (IPVS), ipset, links and addresses. No message asks for an
/// acknowledgement, since the kernel answers what it refuses in any case; an answer's sequence number names the message.
#[derive(Clone, Debug, Default)]
pub struct Requests {
    bytes: Vec<u8>,
    /// Where each message ends.
    ends: Vec<usize>,
    oversized: Option<OversizedMessage>,
}

impl Requests {
    /// None.
    pub fn new() -> Self {
        Self::default()
    }

    /// None, with room for `bytes` bytes of messages.
    pub fn with_capacity(bytes: usize) -> Self {
        Self { bytes: Vec::with_capacity(bytes), ..Self::default() }
    }

    /// Appends a message of a generic netlink family. `command` is the family's own, `flags` are [`flags`](super::flags) to which
    /// [`flags::REQUEST`] is added, `fill` writes the attributes.
    pub fn generic(
        &mut self,
        family: &GenericFamily,
        command: u8,
        flags: u16,
        fill: impl FnOnce(&mut AttrWriter<'_>),
    ) -> MessageIndex {
        self.push(family.id(), flags, &generic::header(command, family.version()), fill)
    }

    /// Appends an nfnetlink message outside of a transaction. `family` is the `NFPROTO_*` number.
    pub fn netfilter(
        &mut self,
        msg_type: MessageType,
        flags: u16,
        family: u8,
        fill: impl FnOnce(&mut AttrWriter<'_>),
    ) -> MessageIndex {
        self.push(msg_type.0, flags, &message::nfgen(family, 0), fill)
    }

    /// Appends any message; `fixed` is the family's own header.
    pub(crate) fn push(
        &mut self,
        kind: u16,
        flags: u16,
        fixed: &[u8],
        fill: impl FnOnce(&mut AttrWriter<'_>),
    ) -> MessageIndex {
        let index = MessageIndex(self.ends.len());
        // The number is written when it is sent.
        let head = Head { kind, flags: flags | flags::REQUEST, sequence: 0 };
        if let Err(source) = message::write(&mut self.bytes, head, fixed, fill) {
            self.oversized.get_or_insert(OversizedMessage { index, source });
        }
        self.ends.push(self.bytes.len());
        index
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// True if there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Size in bytes of all messages.
    pub fn byte_len(&self) -> usize {
        self.bytes.len()
    }

    /// The bytes of one message, its sequence number 0.
    pub fn message_bytes(&self, index: MessageIndex) -> Option<&[u8]> {
        let end = *self.ends.get(index.0)?;
        self.bytes.get(self.start(index.0)..end)
    }

    fn start(&self, index: usize) -> usize {
        index.checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or(0)
    }

    /// Cuts the messages into pieces to be sent one after the other, each of at most `bytes` bytes and so that the refusals of all its messages
    /// take at most `room`; or of one message.
    ///
    /// # Errors
    /// The first message with an attribute of more than 65,535 bytes.
    pub(super) fn pieces(
        &self,
        bytes: usize,
        room: usize,
    ) -> Result<impl Iterator<Item = Piece<'_>>, OversizedMessage> {
        self.oversized.map_or(Ok(()), Err)?;
        let mut first = 0;
        Ok(std::iter::from_fn(move || {
            let start = self.start(first);
            let all = self.ends.get(first..)?;
            let fits = |(place, end): &(usize, &usize)| {
                let (length, messages) = (*end - start, place + 1);
                length <= bytes && refusals(messages, length) <= room
            };
            let fitting = all.iter().enumerate().take_while(fits).count();
            let piece = Piece { first, start, ends: all.get(..fitting.max(1))?, bytes: &self.bytes };
            first += piece.len();
            Some(piece)
        }))
    }

    /// What the refusals of all messages would be accounted with in a receive buffer, at most.
    pub(super) fn refusals(&self) -> usize {
        refusals(self.len(), self.byte_len())
    }
}

/// What the refusals of some messages are accounted with in a receive buffer, at most. ipset quotes a refused message in full, and the kernel rounds
/// the size of a buffer up.
fn refusals(messages: usize, bytes: usize) -> usize {
    messages * 1024 + bytes * 2
}

/// Messages that are sent with one system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece<'a> {
    /// Index of the first of them.
    pub(super) first: usize,
    start: usize,
    ends: &'a [usize],
    bytes: &'a [u8],
}

impl Piece<'_> {
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// The piece as it is sent: its messages numbered from `sequence`.
    pub(super) fn numbered(&self, sequence: u32) -> Vec<u8> {
        const SEQUENCE: std::ops::Range<usize> = 8..12;
        let end = self.ends.last().copied().unwrap_or(self.start);
        let mut bytes = self.bytes.get(self.start..end).unwrap_or_default().to_vec();
        let mut at = 0;
        for (end, number) in self.ends.iter().map(|end| end - self.start).zip(sequence..) {
            if let Some(field) = bytes.get_mut(at..at + HEADER).and_then(|head| head.get_mut(SEQUENCE)) {
                field.copy_from_slice(&number.to_ne_bytes());
            }
            at = end;
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::message::Messages;

    fn three() -> Requests {
        let mut requests = Requests::new();
        for name in ["a", "a longer name", "c"] {
            requests.netfilter(MessageType::new(6, 2), flags::EXCL, 2, |w| w.put_str(2, name));
        }
        requests
    }

    fn cut(requests: &Requests, bytes: usize, room: usize) -> Vec<(usize, usize)> {
        requests.pieces(bytes, room).unwrap().map(|piece| (piece.first, piece.len())).collect()
    }

    #[test]
    fn messages_are_numbered_when_they_are_sent() {
        let requests = three();
        let pieces: Vec<_> = requests.pieces(usize::MAX, usize::MAX).unwrap().collect();
        assert_eq!(pieces.len(), 1);
        let sent = pieces[0].numbered(7);
        let seen: Vec<_> = Messages::new(&sent).map(|m| m.unwrap()).collect();
        assert_eq!(
            seen.iter().map(|m| (m.kind, m.flags, m.sequence)).collect::<Vec<_>>(),
            [(0x0602, 0x201, 7), (0x0602, 0x201, 8), (0x0602, 0x201, 9)]
        );
        assert_eq!(requests.message_bytes(MessageIndex(1)).unwrap()[16..20], [2, 0, 0, 0]);
        assert_eq!(requests.message_bytes(MessageIndex(3)), None);
        assert_eq!((requests.len(), requests.byte_len()), (3, sent.len()));
    }

    #[test]
    fn pieces_hold_what_fits_and_at_least_one() {
        let requests = three();
        assert_eq!(cut(&requests, usize::MAX, usize::MAX), [(0, 3)]);
        assert_eq!(cut(&requests, usize::MAX, 2 * 1024 + 200), [(0, 2), (2, 1)]);
        assert_eq!(cut(&requests, usize::MAX, 0), [(0, 1), (1, 1), (2, 1)]);
        assert_eq!(cut(&requests, 1, usize::MAX), [(0, 1), (1, 1), (2, 1)]);
        let first_two = requests.message_bytes(MessageIndex(0)).unwrap().len()
            + requests.message_bytes(MessageIndex(1)).unwrap().len();
        assert_eq!(cut(&requests, first_two, usize::MAX), [(0, 2), (2, 1)]);
        assert_eq!(cut(&requests, first_two - 1, usize::MAX), [(0, 1), (1, 1), (2, 1)]);
        assert_eq!(cut(&Requests::new(), 9, 9999), []);
        let second = requests.pieces(usize::MAX, 0).unwrap().nth(1).unwrap();
        assert_eq!(Messages::new(&second.numbered(1)).map(|m| m.unwrap().sequence).collect::<Vec<_>>(), [1]);
    }

    #[test]
    fn what_cannot_be_written_is_named_and_nothing_is_sent() {
        let mut requests = three();
        requests.netfilter(MessageType::new(6, 2), 0, 2, |w| w.put_bytes(1, &[0; 70_000]));
        let error = requests.pieces(usize::MAX, 1).err().unwrap();
        assert_eq!((error.index, error.source.bytes), (MessageIndex(3), 70_004));
    }
}
