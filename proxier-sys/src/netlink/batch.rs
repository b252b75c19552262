//! One nfnetlink transaction as bytes.

use std::fmt;

use thiserror::Error;

use super::attr::{AttrTooLong, AttrWriter};
use super::flags;
use super::message::{self, HEADER, Head, NFGEN_HEADER};

/// `NFNL_MSG_BATCH_BEGIN`.
const BATCH_BEGIN: u16 = 16;
/// `NFNL_MSG_BATCH_END`.
const BATCH_END: u16 = 17;
/// Bytes of the message that ends the batch.
const TRAILER: usize = HEADER + NFGEN_HEADER;

/// Which message of a batch: 0 for the first one after the batch's own begin message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageIndex(pub usize);

impl MessageIndex {
    /// The index as a number, to look up what the message stood for.
    pub fn get(self) -> usize {
        self.0
    }
}

impl fmt::Display for MessageIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A message of a batch that holds an attribute too long to be expressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("message {index} of the batch cannot be written: {source}")]
pub struct OversizedMessage {
    /// The message.
    pub index: MessageIndex,
    /// The attribute.
    pub source: AttrTooLong,
}

/// An nfnetlink transaction: the kernel takes all of its messages or none.
///
/// A batch is complete at any time: its end message is rewritten behind every message added. Messages are
/// numbered from 1, so the sequence number in an answer of the kernel names the message; the begin message
/// has number 0. No message asks for an acknowledgement, since a batch of 20,000 would overflow the receive
/// buffer with them; refusals are answered anyway.
#[derive(Clone, Debug)]
pub struct Batch {
    subsystem: u8,
    count: u32,
    bytes: Vec<u8>,
    oversized: Option<OversizedMessage>,
}

impl Batch {
    /// An empty transaction of one of the [`subsystem`](super::subsystem)s.
    pub fn new(subsystem: u8) -> Self {
        Self::with_capacity(subsystem, 4096)
    }

    /// The same, with room for `bytes` bytes of messages.
    pub fn with_capacity(subsystem: u8, bytes: usize) -> Self {
        let mut batch =
            Self { subsystem, count: 0, bytes: Vec::with_capacity(bytes + 2 * TRAILER), oversized: None };
        batch.frame(BATCH_BEGIN, 0);
        batch.frame(BATCH_END, 1);
        batch
    }

    /// Appends a message of the batch's subsystem.
    ///
    /// `msg_type` is the subsystem's own message type (`NFT_MSG_NEWTABLE` = 0, ...), `flags` are
    /// [`flags`](super::flags) to which [`flags::REQUEST`] is added, `family` is the `NFPROTO_*` number (2 for
    /// IPv4, 10 for IPv6, 1 for inet), and `fill` writes the attributes.
    pub fn message(
        &mut self,
        msg_type: u8,
        flags: u16,
        family: u8,
        fill: impl FnOnce(&mut AttrWriter<'_>),
    ) -> MessageIndex {
        let index = MessageIndex(self.len());
        self.bytes.truncate(self.bytes.len() - TRAILER);
        self.count += 1;
        let head = Head {
            kind: u16::from(self.subsystem) << 8 | u16::from(msg_type),
            flags: flags | flags::REQUEST,
            sequence: self.count,
        };
        if let Err(source) = message::write(&mut self.bytes, head, &message::nfgen(family, 0), fill) {
            self.oversized.get_or_insert(OversizedMessage { index, source });
        }
        self.frame(BATCH_END, self.count + 1);
        index
    }

    /// Number of messages, without begin and end.
    pub fn len(&self) -> usize {
        // A u32 always fits the usize of a Linux target.
        usize::try_from(self.count).unwrap_or(usize::MAX)
    }

    /// True if there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Size in bytes, begin and end included.
    pub fn byte_len(&self) -> usize {
        self.bytes.len()
    }

    /// The transaction as it is sent.
    ///
    /// # Errors
    /// The first message with an attribute of more than 65,535 bytes.
    pub fn bytes(&self) -> Result<&[u8], OversizedMessage> {
        self.oversized.map_or(Ok(&self.bytes), Err)
    }

    /// The transaction without its end message: the kernel looks at all of it and takes nothing.
    ///
    /// # Errors
    /// As [`Batch::bytes`].
    pub fn bytes_without_end(&self) -> Result<&[u8], OversizedMessage> {
        self.bytes().map(|bytes| bytes.get(..bytes.len() - TRAILER).unwrap_or(bytes))
    }

    /// The message an answer with this sequence number is about; nothing for the batch's own begin and end.
    pub(super) fn index_of(&self, sequence: u32) -> Option<MessageIndex> {
        let index = usize::try_from(sequence.checked_sub(1)?).ok()?;
        (index < self.len()).then_some(MessageIndex(index))
    }

    /// Appends a begin or end message, whose resource id is the subsystem.
    fn frame(&mut self, kind: u16, sequence: u32) {
        let head = Head { kind, flags: flags::REQUEST, sequence };
        // Without attributes there is nothing that could be too long.
        let written =
            message::write(&mut self.bytes, head, &message::nfgen(0, self.subsystem.into()), |_| {});
        debug_assert!(written.is_ok());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::message::Messages;
    use crate::netlink::{AttrIter, subsystem};

    #[test]
    fn an_empty_batch_is_begin_and_end() {
        let batch = Batch::new(subsystem::NFTABLES);
        let messages: Vec<_> = Messages::new(batch.bytes().unwrap()).map(Result::unwrap).collect();
        let seen: Vec<_> = messages.iter().map(|m| (m.kind, m.flags, m.sequence, m.payload)).collect();
        assert_eq!(seen, [(16, 1, 0, &[0, 0, 0, 10][..]), (17, 1, 1, &[0, 0, 0, 10][..])]);
        assert!(batch.is_empty());
        assert_eq!(batch.byte_len(), 40);
    }

    #[test]
    fn messages_are_numbered_from_one_between_begin_and_end() {
        let mut batch = Batch::new(subsystem::NFTABLES);
        let first = batch.message(0, flags::CREATE, 2, |w| w.put_str(1, "t"));
        let second = batch.message(3, flags::CREATE | flags::EXCL, 10, |w| w.put_str(3, "c"));
        assert_eq!((first.get(), second.get(), batch.len()), (0, 1, 2));

        let messages: Vec<_> = Messages::new(batch.bytes().unwrap()).map(Result::unwrap).collect();
        let seen: Vec<_> = messages.iter().map(|m| (m.kind, m.flags, m.sequence)).collect();
        assert_eq!(seen, [(16, 1, 0), (0x0a00, 0x401, 1), (0x0a03, 0x601, 2), (17, 1, 3)]);
        assert_eq!(messages[2].payload[..4], [10, 0, 0, 0]);
        let attr = AttrIter::new(&messages[2].payload[4..]).next().unwrap().unwrap();
        assert_eq!((attr.kind, attr.str().unwrap()), (3, "c"));
        for message in messages {
            assert_eq!(message.flags & flags::ACK, 0);
        }
    }

    #[test]
    fn sequence_numbers_name_messages_and_not_the_frame() {
        let mut batch = Batch::new(subsystem::NFTABLES);
        let index = batch.message(0, 0, 2, |_| {});
        assert_eq!(batch.index_of(0), None);
        assert_eq!(batch.index_of(1), Some(index));
        assert_eq!(batch.index_of(2), None);
    }

    #[test]
    fn an_oversized_nest_makes_the_batch_unsendable_and_names_the_message() {
        let mut batch = Batch::new(subsystem::NFTABLES);
        batch.message(0, 0, 2, |w| w.put_str(1, "fine"));
        let bad = batch.message(0, 0, 2, |w| w.nest(3, |w| w.put_bytes(1, &vec![0; 65_530])));
        batch.message(0, 0, 2, |w| w.put_str(1, "fine"));
        let error = batch.bytes().unwrap_err();
        assert_eq!(error.index, bad);
        assert_eq!(error.source.kind, 3);
    }

    #[test]
    fn thirty_megabytes_are_a_well_formed_batch() {
        let mut batch = Batch::new(subsystem::NFTABLES);
        let content = vec![0x55; 30_000];
        for _ in 0..1_000 {
            batch.message(12, 0, 2, |w| w.put_bytes(3, &content));
        }
        let bytes = batch.bytes().unwrap();
        assert!(bytes.len() > 30_000_000);
        let mut next = 0;
        for message in Messages::new(bytes) {
            assert_eq!(message.unwrap().sequence, next);
            next += 1;
        }
        assert_eq!(next, 1_002);
    }
}
