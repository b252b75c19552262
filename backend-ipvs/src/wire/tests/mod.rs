//! The codec against bytes that kernels and tools exchanged: what is written is what the tool sent, and what the kernel answered is read.

mod ipset;
mod ipvs;
mod proc;

/// `struct nlmsghdr` and the family's own header behind it.
const HEADERS: usize = 20;
const ACK: u16 = 0x4;
const NESTED: u16 = 1 << 15;

/// What a tool and the kernel said to each other.
struct Exchange {
    sent: Vec<Vec<u8>>,
    answered: Vec<Vec<u8>>,
}

impl Exchange {
    /// The last message that was sent: the one the command is about.
    fn request(&self) -> &[u8] {
        self.sent.last().unwrap()
    }

    /// The attributes of the answers with objects.
    fn objects(&self) -> Vec<&[u8]> {
        const DONE: u8 = 3;
        let objects = self.answered.iter().filter(|m| m[4..6] != [DONE, 0] && m[4..6] != [2, 0]);
        objects.map(|m| &m[HEADERS..]).collect()
    }

    /// The error number of the answer, positive.
    fn errno(&self) -> i32 {
        let code = self.answered.last().unwrap()[16..20].try_into().unwrap();
        -i32::from_ne_bytes(code)
    }
}

/// The exchange of a command in one of the files beside this one.
fn captured(file: &str, command: &str) -> Exchange {
    captured_all(file, command)
        .into_iter()
        .next()
        .unwrap_or_else(|| panic!("nothing was captured of {command:?}"))
}

fn captured_all(file: &str, command: &str) -> Vec<Exchange> {
    let mut found = Vec::new();
    let mut inside = false;
    for line in file.lines() {
        let (mark, text) = line.split_at(2);
        match mark {
            "# " => {
                inside = text == command;
                if inside {
                    found.push(Exchange { sent: Vec::new(), answered: Vec::new() });
                }
            }
            "> " if inside => found.last_mut().unwrap().sent.push(hex(text)),
            "< " if inside => found.last_mut().unwrap().answered.push(hex(text)),
            _ => {}
        }
    }
    found
}

fn hex(text: &str) -> Vec<u8> {
    text.as_bytes()
        .chunks(2)
        .map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

/// Attributes as a flat list: the way to each and its bytes, flags included.
fn flat(attributes: &[u8]) -> Vec<(Vec<u16>, Vec<u8>)> {
    let mut found = Vec::new();
    walk(attributes, &[], &mut found);
    found
}

fn walk(mut rest: &[u8], way: &[u16], found: &mut Vec<(Vec<u16>, Vec<u8>)>) {
    while rest.len() >= 4 {
        let length = usize::from(u16::from_ne_bytes([rest[0], rest[1]]));
        let kind = u16::from_ne_bytes([rest[2], rest[3]]);
        let here = [way, &[kind & !NESTED]].concat();
        match kind & NESTED {
            0 => found.push((here, rest[4..length].to_vec())),
            _ => walk(&rest[4..length], &here, found),
        }
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
}

/// Type and flags of a message, without the wish for an acknowledgement.
fn head(message: &[u8]) -> (u16, u16) {
    let number = |at: usize| u16::from_ne_bytes([message[at], message[at + 1]]);
    (number(4), number(6) & !ACK)
}

/// Every beginning of `bytes`, and every byte of it flipped, is read without a panic.
fn survives_damage<T>(bytes: &[u8], read: impl Fn(&[u8]) -> T) {
    for end in 0..bytes.len() {
        read(&bytes[..end]);
    }
    for at in 0..bytes.len() {
        let mut damaged = bytes.to_vec();
        damaged[at] ^= 0xff;
        read(&damaged);
    }
}
