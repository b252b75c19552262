//! Sending requests together and reading what was refused.

use super::MessageIndex;
use super::error::NetlinkError;
use super::message::{ERROR, Verdict};
use super::requests::{Piece, Requests};
use super::socket::RefusedMessage;
use super::transport::{Received, Transport, Wait, malformed};

/// The most bytes of one send. The kernel works on them in one system call, and holds the lock of the family for each message.
const SEND_BYTES: usize = 256 * 1024;
/// The most receive buffer asked for; a process without the right gets less, and sends fewer at a time.
const MOST_ANSWER_BYTES: usize = 4 << 20;

impl Transport {
    /// Sends all requests, as many at a time as there is room for the refusals of all of them, and returns the refused ones in their order.
    ///
    /// The kernel has processed a message when its `send` returns, so all answers are there by then.
    ///
    /// # Errors
    /// [`NetlinkError::Oversized`] before anything is sent. In all others it is not known what was done: a failure of the socket,
    /// [`NetlinkError::Malformed`], or [`NetlinkError::Overflow`].
    pub(crate) fn pipeline(&mut self, requests: &Requests) -> Result<Vec<RefusedMessage>, NetlinkError> {
        self.grow_receive_buffer(requests.refusals().min(MOST_ANSWER_BYTES));
        let room = self.receive_buffer();
        let mut refused = Vec::new();
        for piece in requests.pieces(SEND_BYTES, room)? {
            self.discard_stale()?;
            let first = self.reserve_sequences(piece.len());
            self.send(&piece.numbered(first))?;
            self.read_refusals(&piece, first, &mut refused)?;
        }
        Ok(refused)
    }

    fn read_refusals(
        &mut self,
        piece: &Piece<'_>,
        first: u32,
        refused: &mut Vec<RefusedMessage>,
    ) -> Result<(), NetlinkError> {
        loop {
            match self.receive(Wait::No)? {
                Received::Nothing => break,
                Received::Overflow => {
                    return Err(NetlinkError::Overflow { refused: std::mem::take(refused) });
                }
                Received::Datagram => {
                    for answer in self.messages() {
                        let answer = answer.map_err(malformed)?;
                        let within = answer.sequence.checked_sub(first).and_then(|n| usize::try_from(n).ok());
                        let Some(within) = within.filter(|n| *n < piece.len() && answer.kind == ERROR) else {
                            continue; // an echoed change, or about something else
                        };
                        let Verdict { errno, message, offset } = Verdict::read(&answer).map_err(malformed)?;
                        if errno != 0 {
                            let index = MessageIndex(piece.first + within);
                            refused.push(RefusedMessage { index, errno, message, offset });
                        }
                    }
                }
            }
        }
        refused.sort_by_key(|refused| refused.index);
        Ok(())
    }
}
