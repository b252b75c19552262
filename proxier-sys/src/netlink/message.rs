//! Netlink message headers: writing a message, walking the messages of a datagram, reading error answers.

use super::attr::{AttrTooLong, AttrWriter};
use super::reader::AttrIter;

/// `struct nlmsghdr`.
pub(super) const HEADER: usize = 16;
/// `struct nfgenmsg`.
pub(super) const NFGEN_HEADER: usize = 4;

pub(super) const NOOP: u16 = 1;
pub(super) const ERROR: u16 = 2;
pub(super) const DONE: u16 = 3;
pub(super) const OVERRUN: u16 = 4;

/// On an answer of a dump: objects changed meanwhile, the dump may be inconsistent.
pub(super) const DUMP_INTERRUPTED: u16 = 0x10;
/// On an error answer: only the header of the refused message is quoted.
const CAPPED: u16 = 0x100;
/// On an error answer: attributes follow.
const ACK_TLVS: u16 = 0x200;
/// Explanation in words.
const ACK_MESSAGE: u16 = 1;
/// Offset of the attribute that was refused.
const ACK_OFFSET: u16 = 2;

/// What goes into a message's header.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    pub(crate) kind: u16,
    pub(crate) flags: u16,
    pub(crate) sequence: u32,
}

/// Appends one message: header, `fixed` (the family's own header), attributes.
pub(super) fn write(
    buffer: &mut Vec<u8>,
    head: Head,
    fixed: &[u8],
    fill: impl FnOnce(&mut AttrWriter<'_>),
) -> Result<(), AttrTooLong> {
    let at = buffer.len();
    buffer.extend_from_slice(&[0; 4]);
    buffer.extend_from_slice(&head.kind.to_ne_bytes());
    buffer.extend_from_slice(&head.flags.to_ne_bytes());
    buffer.extend_from_slice(&head.sequence.to_ne_bytes());
    buffer.extend_from_slice(&[0; 4]); // sender's port, the kernel knows it
    buffer.extend_from_slice(fixed);
    let mut writer = AttrWriter::new(buffer);
    fill(&mut writer);
    let written = writer.finish();
    let bytes = buffer.len() - at;
    let length = u32::try_from(bytes).map_err(|_| AttrTooLong { kind: 0, bytes })?;
    buffer[at..at + 4].copy_from_slice(&length.to_ne_bytes());
    written
}

/// `struct nfgenmsg`: family, version 0, resource id in network byte order.
pub(super) fn nfgen(family: u8, resource: u16) -> [u8; NFGEN_HEADER] {
    let [high, low] = resource.to_be_bytes();
    [family, 0, high, low]
}

/// How many messages stand in what is sent.
pub(super) fn count(bytes: &[u8]) -> usize {
    Messages::new(bytes).take_while(Result::is_ok).count()
}

/// One message of a received datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Message<'a> {
    pub(crate) kind: u16,
    pub(crate) flags: u16,
    pub(crate) sequence: u32,
    pub(crate) payload: &'a [u8],
}

/// The bytes are no netlink message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BadMessage(pub(crate) &'static str);

/// Walks the messages of a datagram; after an error it ends.
pub(crate) struct Messages<'a> {
    rest: &'a [u8],
}

impl<'a> Messages<'a> {
    pub(crate) fn new(datagram: &'a [u8]) -> Self {
        Self { rest: datagram }
    }

    fn split(&mut self) -> Result<Message<'a>, BadMessage> {
        let Some((head, _)) = self.rest.split_first_chunk::<HEADER>() else {
            return Err(BadMessage("message header cut short"));
        };
        let &[l0, l1, l2, l3, k0, k1, f0, f1, s0, s1, s2, s3, ..] = head;
        let length = usize::try_from(u32::from_ne_bytes([l0, l1, l2, l3])).unwrap_or(usize::MAX);
        let Some(payload) = self.rest.get(HEADER..length) else {
            return Err(BadMessage("message length does not fit the datagram"));
        };
        self.rest = self.rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Ok(Message {
            kind: u16::from_ne_bytes([k0, k1]),
            flags: u16::from_ne_bytes([f0, f1]),
            sequence: u32::from_ne_bytes([s0, s1, s2, s3]),
            payload,
        })
    }
}

impl<'a> Iterator for Messages<'a> {
    type Item = Result<Message<'a>, BadMessage>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let message = self.split();
        if message.is_err() {
            self.rest = &[];
        }
        Some(message)
    }
}

/// What an error answer, or the end of a dump, says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// 0 for success, else the error number, positive.
    pub(crate) errno: i32,
    /// The kernel's words.
    pub(crate) message: Option<String>,
    /// Offset in bytes of the refused attribute from the beginning of the refused message.
    pub(crate) offset: Option<u32>,
}

impl Verdict {
    /// Reads an `NLMSG_ERROR` (error number, quoted message, attributes) or an `NLMSG_DONE` (error number,
    /// attributes; some families send none of it).
    pub(crate) fn read(answer: &Message<'_>) -> Result<Self, BadMessage> {
        let Some((code, rest)) = answer.payload.split_first_chunk::<4>() else {
            return match answer.kind {
                DONE => Ok(Self { errno: 0, message: None, offset: None }),
                _ => Err(BadMessage("error answer without error number")),
            };
        };
        let errno = i32::from_ne_bytes(*code).checked_neg().unwrap_or(i32::MAX);
        let mut verdict = Self { errno, message: None, offset: None };
        if answer.flags & ACK_TLVS != 0 {
            verdict.read_attributes(extended(answer, rest));
        }
        Ok(verdict)
    }

    /// The explanation is a courtesy: one that cannot be read is left out, the error number stands.
    fn read_attributes(&mut self, bytes: &[u8]) {
        for attr in AttrIter::new(bytes).map_while(Result::ok) {
            match attr.kind {
                ACK_MESSAGE => self.message = attr.str().ok().map(str::to_owned),
                ACK_OFFSET => self.offset = attr.u32().ok(),
                _ => {}
            }
        }
    }
}

/// The attributes behind the quoted message.
fn extended<'a>(answer: &Message<'_>, rest: &'a [u8]) -> &'a [u8] {
    if answer.kind == DONE {
        return rest;
    }
    let quoted = match rest.split_first_chunk::<4>() {
        Some((length, _)) if answer.flags & CAPPED == 0 => {
            usize::try_from(u32::from_ne_bytes(*length)).unwrap_or(usize::MAX)
        }
        _ => HEADER,
    };
    quoted.checked_next_multiple_of(4).and_then(|at| rest.get(at..)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(kind: u16, flags: u16, fixed: &[u8], fill: impl FnOnce(&mut AttrWriter<'_>)) -> Vec<u8> {
        let mut bytes = Vec::new();
        write(&mut bytes, Head { kind, flags, sequence: 7 }, fixed, fill).unwrap();
        bytes
    }

    fn verdict(bytes: &[u8]) -> Result<Verdict, BadMessage> {
        Verdict::read(&Messages::new(bytes).next().unwrap().unwrap())
    }

    #[test]
    fn messages_read_back_one_after_the_other() {
        let mut bytes = written(0x0a00, 0x401, &nfgen(2, 0x0102), |w| w.put_u8(1, 9));
        bytes.extend_from_slice(&written(DONE, 2, &[], |_| {}));
        let messages: Vec<_> = Messages::new(&bytes).map(Result::unwrap).collect();
        assert_eq!(messages.len(), 2);
        assert_eq!((messages[0].kind, messages[0].flags, messages[0].sequence), (0x0a00, 0x401, 7));
        assert_eq!(messages[0].payload[..4], [2, 0, 1, 2]);
        assert_eq!((messages[1].kind, messages[1].payload.len()), (DONE, 0));
    }

    #[test]
    fn cut_and_lying_messages_are_one_error() {
        let good = written(3, 0, &[0; 4], |_| {});
        for bytes in [&good[..15], &good[..18]] {
            let read: Vec<_> = Messages::new(bytes).collect();
            assert!(matches!(read[..], [Err(_)]), "{read:?}");
        }
        let mut short = good;
        short[..4].copy_from_slice(&8u32.to_ne_bytes());
        assert!(matches!(Messages::new(&short).collect::<Vec<_>>()[..], [Err(_)]));
    }

    #[test]
    fn a_capped_answer_gives_number_words_and_offset() {
        let mut fixed = (-22i32).to_ne_bytes().to_vec();
        fixed.extend_from_slice(&[0; HEADER]);
        let bytes = written(ERROR, CAPPED | ACK_TLVS, &fixed, |w| {
            w.put_str(ACK_MESSAGE, "bad hook");
            w.put_u32(ACK_OFFSET, 20);
        });
        assert_eq!(
            verdict(&bytes).unwrap(),
            Verdict { errno: 22, message: Some("bad hook".into()), offset: Some(20) }
        );
    }

    #[test]
    fn an_answer_that_quotes_the_whole_message_is_read_behind_it() {
        let quoted = written(0x0a00, 1, &nfgen(2, 0), |w| w.put_str(1, "a table"));
        let mut fixed = (-2i32).to_ne_bytes().to_vec();
        fixed.extend_from_slice(&quoted);
        let bytes = written(ERROR, ACK_TLVS, &fixed, |w| w.put_str(ACK_MESSAGE, "gone"));
        assert_eq!(verdict(&bytes).unwrap().message.as_deref(), Some("gone"));
    }

    #[test]
    fn damaged_explanations_leave_the_number() {
        let mut fixed = (-2i32).to_ne_bytes().to_vec();
        fixed.extend_from_slice(&u32::MAX.to_ne_bytes());
        let bytes = written(ERROR, ACK_TLVS, &fixed, |_| {});
        assert_eq!(verdict(&bytes).unwrap(), Verdict { errno: 2, message: None, offset: None });
        assert!(verdict(&written(ERROR, 0, &[1, 2], |_| {})).is_err());
        assert_eq!(verdict(&written(DONE, 0, &[], |_| {})).unwrap().errno, 0);
    }
}
