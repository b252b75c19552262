//! Writing netlink attributes.

use thiserror::Error;

/// Length of an attribute's header: two bytes length, two bytes type.
pub(super) const ATTR_HEADER: usize = 4;
/// Set in the type of an attribute that holds attributes (`NLA_F_NESTED`).
pub(super) const NESTED: u16 = 1 << 15;
/// The bits of an attribute's type that are its type (`NLA_TYPE_MASK`); the others are
/// `NLA_F_NESTED` and `NLA_F_NET_BYTEORDER`.
pub(super) const TYPE_MASK: u16 = 0x3fff;

/// An attribute is longer than the 65,535 bytes its 16-bit length field can say.
///
/// The remedy is to spread the content (set elements, usually) over several messages of the same batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("netlink attribute {kind} is {bytes} bytes long, more than the 65535 an attribute can hold")]
pub struct AttrTooLong {
    /// Type of the attribute, without flags.
    pub kind: u16,
    /// Length in bytes it would have had, its own header included.
    pub bytes: usize,
}

/// Appends attributes to a buffer, each aligned to four bytes.
///
/// Writing never fails on the way; an attribute that grew too long is remembered and comes out of
/// [`AttrWriter::finish`], or out of [`Batch::bytes`](super::Batch::bytes) when the writer belongs to a batch.
/// Nothing is ever cut off.
#[derive(Debug)]
pub struct AttrWriter<'a> {
    buffer: &'a mut Vec<u8>,
    start: usize,
    error: Option<AttrTooLong>,
}

impl<'a> AttrWriter<'a> {
    /// A writer that appends to `buffer`; alignment counts from the buffer's present end.
    pub fn new(buffer: &'a mut Vec<u8>) -> Self {
        let start = buffer.len();
        Self { buffer, start, error: None }
    }

    /// Bytes written so far. A caller that fills a nest piece by piece compares this with its value before
    /// the nest to stay below 65,535 bytes.
    pub fn len(&self) -> usize {
        self.buffer.len() - self.start
    }

    /// True while nothing was written.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Ends writing.
    ///
    /// # Errors
    /// The first attribute that was too long to be written.
    pub fn finish(self) -> Result<(), AttrTooLong> {
        self.error.map_or(Ok(()), Err)
    }

    /// One byte.
    pub fn put_u8(&mut self, kind: u16, value: u8) {
        self.put_bytes(kind, &[value]);
    }

    /// 16 bits in host byte order.
    pub fn put_u16(&mut self, kind: u16, value: u16) {
        self.put_bytes(kind, &value.to_ne_bytes());
    }

    /// 16 bits in network byte order.
    pub fn put_u16_be(&mut self, kind: u16, value: u16) {
        self.put_bytes(kind, &value.to_be_bytes());
    }

    /// 32 bits in host byte order.
    pub fn put_u32(&mut self, kind: u16, value: u32) {
        self.put_bytes(kind, &value.to_ne_bytes());
    }

    /// 32 bits in network byte order.
    pub fn put_u32_be(&mut self, kind: u16, value: u32) {
        self.put_bytes(kind, &value.to_be_bytes());
    }

    /// 64 bits in host byte order.
    pub fn put_u64(&mut self, kind: u16, value: u64) {
        self.put_bytes(kind, &value.to_ne_bytes());
    }

    /// 64 bits in network byte order.
    pub fn put_u64_be(&mut self, kind: u16, value: u64) {
        self.put_bytes(kind, &value.to_be_bytes());
    }

    /// A string, with the NUL byte netfilter expects at its end.
    pub fn put_str(&mut self, kind: u16, value: &str) {
        let at = self.open(kind);
        self.buffer.extend_from_slice(value.as_bytes());
        self.buffer.push(0);
        self.close(at, kind);
    }

    /// Bytes as they are; an empty slice writes a flag attribute.
    pub fn put_bytes(&mut self, kind: u16, value: &[u8]) {
        let at = self.open(kind);
        self.buffer.extend_from_slice(value);
        self.close(at, kind);
    }

    /// An attribute that holds whatever attributes `fill` writes.
    pub fn nest(&mut self, kind: u16, fill: impl FnOnce(&mut AttrWriter<'_>)) {
        let at = self.open(kind | NESTED);
        fill(self);
        self.close(at, kind);
    }

    /// Writes a header whose length [`AttrWriter::close`] fills in; returns where it is.
    fn open(&mut self, kind: u16) -> usize {
        let at = self.buffer.len();
        self.buffer.extend_from_slice(&[0, 0]);
        self.buffer.extend_from_slice(&kind.to_ne_bytes());
        at
    }

    fn close(&mut self, at: usize, kind: u16) {
        let bytes = self.buffer.len() - at;
        match u16::try_from(bytes) {
            // A writer only ever appends, so the two bytes that `open` wrote are still there.
            Ok(length) => self.buffer[at..at + 2].copy_from_slice(&length.to_ne_bytes()),
            Err(_) => {
                self.error.get_or_insert(AttrTooLong { kind: kind & TYPE_MASK, bytes });
            }
        }
        let unaligned = self.len() % 4;
        if unaligned != 0 {
            self.buffer.resize(self.buffer.len() + 4 - unaligned, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::AttrIter;

    #[test]
    fn bytes_are_the_documented_layout() {
        let mut buffer = Vec::new();
        let mut writer = AttrWriter::new(&mut buffer);
        writer.put_u16_be(7, 0x1234);
        writer.put_str(3, "abcd");
        writer.finish().unwrap();
        let mut expected = Vec::new();
        expected.extend_from_slice(&6u16.to_ne_bytes());
        expected.extend_from_slice(&7u16.to_ne_bytes());
        expected.extend_from_slice(&[0x12, 0x34, 0, 0]);
        expected.extend_from_slice(&9u16.to_ne_bytes());
        expected.extend_from_slice(&3u16.to_ne_bytes());
        expected.extend_from_slice(b"abcd\0\0\0\0");
        assert_eq!(buffer, expected);
    }

    #[test]
    fn every_type_reads_back() {
        let mut buffer = vec![0xff; 20];
        let mut writer = AttrWriter::new(&mut buffer);
        assert!(writer.is_empty());
        writer.put_u8(1, 0xab);
        writer.put_u16(2, 0x1234);
        writer.put_u16_be(3, 0x1234);
        writer.put_u32(4, 0x1234_5678);
        writer.put_u32_be(5, 0x1234_5678);
        writer.put_u64(6, 0x1234_5678_9abc_def0);
        writer.put_u64_be(7, 0x1234_5678_9abc_def0);
        writer.put_str(8, "kube-proxy");
        writer.put_bytes(9, &[]);
        writer.finish().unwrap();

        let attrs: Vec<_> = AttrIter::new(&buffer[20..]).map(Result::unwrap).collect();
        assert_eq!(attrs.iter().map(|a| a.kind).collect::<Vec<_>>(), (1..=9).collect::<Vec<_>>());
        assert_eq!(attrs[0].u8().unwrap(), 0xab);
        assert_eq!(attrs[1].u16().unwrap(), 0x1234);
        assert_eq!(attrs[2].u16_be().unwrap(), 0x1234);
        assert_eq!(attrs[3].u32().unwrap(), 0x1234_5678);
        assert_eq!(attrs[4].u32_be().unwrap(), 0x1234_5678);
        assert_eq!(attrs[5].u64().unwrap(), 0x1234_5678_9abc_def0);
        assert_eq!(attrs[6].u64_be().unwrap(), 0x1234_5678_9abc_def0);
        assert_eq!(attrs[7].str().unwrap(), "kube-proxy");
        assert!(attrs[8].payload.is_empty());
    }

    #[test]
    fn nests_read_back_and_carry_the_flag() {
        let mut buffer = Vec::new();
        let mut writer = AttrWriter::new(&mut buffer);
        writer.nest(1, |w| {
            w.put_u8(2, 3);
            w.nest(4, |w| w.put_str(5, "deep"));
        });
        writer.put_u32_be(6, 7);
        writer.finish().unwrap();

        assert_eq!(u16::from_ne_bytes([buffer[2], buffer[3]]), 1 | NESTED);
        let outer: Vec<_> = AttrIter::new(&buffer).map(Result::unwrap).collect();
        assert_eq!((outer[0].kind, outer[1].kind, outer.len()), (1, 6, 2));
        let inner: Vec<_> = outer[0].nested().map(Result::unwrap).collect();
        assert_eq!((inner[0].kind, inner[1].kind, inner.len()), (2, 4, 2));
        assert_eq!(inner[1].nested().next().unwrap().unwrap().str().unwrap(), "deep");
    }

    #[test]
    fn a_nest_of_exactly_65535_bytes_fits_and_one_more_is_an_error() {
        let write = |payload: usize| {
            let mut buffer = Vec::new();
            let mut writer = AttrWriter::new(&mut buffer);
            writer.put_bytes(9, &vec![0; payload]);
            writer.finish()
        };
        assert_eq!(write(65_531), Ok(()));
        assert_eq!(write(65_532), Err(AttrTooLong { kind: 9, bytes: 65_536 }));

        let mut buffer = Vec::new();
        let mut writer = AttrWriter::new(&mut buffer);
        writer.nest(2, |w| {
            for _ in 0..8_192 {
                w.put_u32(1, 0);
            }
        });
        writer.put_u8(3, 0);
        assert_eq!(writer.finish(), Err(AttrTooLong { kind: 2, bytes: 65_540 }));
    }
}
