//! Reading netlink attributes.

use thiserror::Error;

use super::attr::{ATTR_HEADER, TYPE_MASK};

/// Bytes that are not what netlink attributes look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AttrError {
    /// An attribute says it is longer than what is left, or shorter than its own header.
    #[error("netlink attribute says it is {said} bytes long, {left} are left")]
    BadLength {
        /// Length in bytes from the header; 0 if not even the header was there.
        said: usize,
        /// Bytes left.
        left: usize,
    },
    /// The payload does not have the size of the type that was asked for.
    #[error("netlink attribute {kind} has {bytes} bytes where {expected} are expected")]
    WrongSize {
        /// Type of the attribute, without flags.
        kind: u16,
        /// Size of the payload in bytes.
        bytes: usize,
        /// Size asked for in bytes.
        expected: usize,
    },
    /// The payload is not UTF-8 text.
    #[error("netlink attribute {kind} is not text")]
    NotText {
        /// Type of the attribute, without flags.
        kind: u16,
    },
}

/// One attribute as it was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attr<'a> {
    /// Its type, without `NLA_F_NESTED` and `NLA_F_NET_BYTEORDER`.
    pub kind: u16,
    /// Its content, without header and padding.
    pub payload: &'a [u8],
}

impl<'a> Attr<'a> {
    /// One byte.
    ///
    /// # Errors
    /// [`AttrError::WrongSize`] if the payload is not one byte.
    pub fn u8(&self) -> Result<u8, AttrError> {
        self.array().map(u8::from_ne_bytes)
    }

    /// 16 bits in host byte order.
    ///
    /// # Errors
    /// [`AttrError::WrongSize`] if the payload is not two bytes.
    pub fn u16(&self) -> Result<u16, AttrError> {
        self.array().map(u16::from_ne_bytes)
    }

    /// 16 bits in network byte order.
    ///
    /// # Errors
    /// [`AttrError::WrongSize`] if the payload is not two bytes.
    pub fn u16_be(&self) -> Result<u16, AttrError> {
        self.array().map(u16::from_be_bytes)
    }

    /// 32 bits in host byte order.
    ///
    /// # Errors
    /// [`AttrError::WrongSize`] if the payload is not four bytes.
    pub fn u32(&self) -> Result<u32, AttrError> {
        self.array().map(u32::from_ne_bytes)
    }

    /// 32 bits in network byte order.
    ///
    /// # Errors
    /// [`AttrError::WrongSize`] if the payload is not four bytes.
    pub fn u32_be(&self) -> Result<u32, AttrError> {
        self.array().map(u32::from_be_bytes)
    }

    /// 64 bits in host byte order.
    ///
    /// # Errors
    /// [`AttrError::WrongSize`] if the payload is not eight bytes.
    pub fn u64(&self) -> Result<u64, AttrError> {
        self.array().map(u64::from_ne_bytes)
    }

    /// 64 bits in network byte order.
    ///
    /// # Errors
    /// [`AttrError::WrongSize`] if the payload is not eight bytes.
    pub fn u64_be(&self) -> Result<u64, AttrError> {
        self.array().map(u64::from_be_bytes)
    }

    /// Text up to the first NUL byte, or all of it if there is none.
    ///
    /// # Errors
    /// [`AttrError::NotText`] if it is not UTF-8.
    pub fn str(&self) -> Result<&'a str, AttrError> {
        let text = self.payload.split(|byte| *byte == 0).next().unwrap_or_default();
        str::from_utf8(text).map_err(|_| AttrError::NotText { kind: self.kind })
    }

    /// The attributes inside this one.
    pub fn nested(&self) -> AttrIter<'a> {
        AttrIter::new(self.payload)
    }

    fn array<const N: usize>(&self) -> Result<[u8; N], AttrError> {
        self.payload.try_into().map_err(|_| AttrError::WrongSize {
            kind: self.kind,
            bytes: self.payload.len(),
            expected: N,
        })
    }
}

/// Walks the attributes in a piece of a message.
///
/// Malformed input yields one error, after which the iterator ends; it never panics.
#[derive(Clone, Debug)]
pub struct AttrIter<'a> {
    rest: &'a [u8],
}

impl<'a> AttrIter<'a> {
    /// Over the attributes in `bytes`, the first at its beginning.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    fn split(&mut self) -> Result<Attr<'a>, AttrError> {
        let left = self.rest.len();
        let Some((&[l0, l1, k0, k1], _)) = self.rest.split_first_chunk::<ATTR_HEADER>() else {
            return Err(AttrError::BadLength { said: 0, left });
        };
        let said = usize::from(u16::from_ne_bytes([l0, l1]));
        let Some(payload) = self.rest.get(ATTR_HEADER..said) else {
            return Err(AttrError::BadLength { said, left });
        };
        // The last attribute's padding may be missing.
        self.rest = self.rest.get(said.next_multiple_of(4)..).unwrap_or_default();
        Ok(Attr { kind: u16::from_ne_bytes([k0, k1]) & TYPE_MASK, payload })
    }
}

impl<'a> Iterator for AttrIter<'a> {
    type Item = Result<Attr<'a>, AttrError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let attr = self.split();
        if attr.is_err() {
            self.rest = &[];
        }
        Some(attr)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attr(length: u16, kind: u16, payload: &[u8]) -> Vec<u8> {
        let mut bytes = length.to_ne_bytes().to_vec();
        bytes.extend_from_slice(&kind.to_ne_bytes());
        bytes.extend_from_slice(payload);
        bytes
    }

    #[test]
    fn malformed_lengths_are_one_error_and_then_the_end() {
        for (bytes, expected) in [
            (vec![1], AttrError::BadLength { said: 0, left: 1 }),
            (vec![4, 0, 0], AttrError::BadLength { said: 0, left: 3 }),
            (attr(0, 1, &[0; 8]), AttrError::BadLength { said: 0, left: 12 }),
            (attr(3, 1, &[0; 4]), AttrError::BadLength { said: 3, left: 8 }),
            (attr(9, 1, &[0; 4]), AttrError::BadLength { said: 9, left: 8 }),
            (attr(u16::MAX, 1, &[]), AttrError::BadLength { said: 65_535, left: 4 }),
        ] {
            let mut iter = AttrIter::new(&bytes);
            assert_eq!(iter.next(), Some(Err(expected)), "{bytes:?}");
            assert_eq!(iter.next(), None);
        }
    }

    #[test]
    fn good_attributes_before_a_bad_one_are_yielded() {
        let mut bytes = attr(8, 1, &[1, 2, 3, 4]);
        bytes.extend_from_slice(&attr(40, 2, &[]));
        let mut iter = AttrIter::new(&bytes);
        assert_eq!(iter.next(), Some(Ok(Attr { kind: 1, payload: &[1, 2, 3, 4] })));
        assert_eq!(iter.next(), Some(Err(AttrError::BadLength { said: 40, left: 4 })));
        assert_eq!(iter.next(), None);
    }

    #[test]
    fn missing_padding_at_the_end_is_accepted_and_flags_are_masked() {
        let bytes = attr(5, 0xc002, &[7]);
        let attrs: Vec<_> = AttrIter::new(&bytes).map(Result::unwrap).collect();
        assert_eq!(attrs, [Attr { kind: 2, payload: &[7] }]);
    }

    #[test]
    fn wrong_sizes_and_bytes_that_are_no_text_are_errors() {
        let attr = Attr { kind: 5, payload: &[0xff, 0xfe, 0] };
        assert_eq!(attr.u32_be(), Err(AttrError::WrongSize { kind: 5, bytes: 3, expected: 4 }));
        assert_eq!(attr.u8(), Err(AttrError::WrongSize { kind: 5, bytes: 3, expected: 1 }));
        assert_eq!(attr.str(), Err(AttrError::NotText { kind: 5 }));
        assert_eq!(Attr { kind: 5, payload: b"a\0b" }.str(), Ok("a"));
        assert_eq!(Attr { kind: 5, payload: b"" }.str(), Ok(""));
    }

    /// Walks everything reachable, returns how many attributes there were.
    fn walk(iter: AttrIter<'_>, depth: usize) -> usize {
        let mut seen = 0;
        for attr in iter.flatten() {
            seen += 1;
            let _ = (attr.u8(), attr.u16_be(), attr.u32(), attr.u64_be(), attr.str());
            if depth > 0 {
                seen += walk(attr.nested(), depth - 1);
            }
        }
        seen
    }

    #[test]
    fn random_bytes_never_panic_and_always_end() {
        let mut state: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as u8
        };
        let mut seen = 0;
        for round in 0..20_000 {
            let length = usize::from(next()) % 64;
            // Every other round has plausible lengths, so that the walk gets past the first header.
            let plausible = round % 2 == 1;
            let bytes: Vec<u8> = (0..length)
                .map(|at| match (plausible, at % 4) {
                    (true, 0) => 4 + next() % 20,
                    (true, 1) => 0,
                    _ => next(),
                })
                .collect();
            seen += walk(AttrIter::new(&bytes), 4);
        }
        assert!(seen > 10_000, "only {seen} attributes were reached");
    }
}
