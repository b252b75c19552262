//! Health without the loop: states over a clock of their own, answers over real sockets on loopback addresses that nobody else uses.

mod answers;
mod ports;
mod timeline;

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU8, AtomicU64};

use super::*;

/// A clock that stands still until it is moved.
#[derive(Clone, Default)]
struct Hand(Arc<AtomicU64>);

impl Hand {
    fn set(&self, seconds: u64) {
        self.0.store(seconds, Ordering::SeqCst);
    }

    fn now(&self) -> Moment {
        moment(self.0.load(Ordering::SeqCst))
    }

    fn clock(&self) -> Clock {
        let hand = self.clone();
        Box::new(move || hand.now())
    }
}

/// The spec's timeline begins on the first of January 2025.
fn moment(seconds: u64) -> Moment {
    let wall = "2025-01-01T00:00:00Z".parse::<Timestamp>().expect("a time");
    let since = Duration::from_secs(seconds);
    Moment { since, wall: wall + since }
}

/// An address of loopback for one test.
fn address() -> Ipv4Addr {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let process = u8::try_from(std::process::id() % 200).expect("below 200");
    Ipv4Addr::new(127, 20 + process, NEXT.fetch_add(1, Ordering::SeqCst), 1)
}

/// What is answered to a request; `None` where nobody listens.
fn ask(ip: impl Into<IpAddr>, port: u16, request: &str) -> Option<String> {
    let mut stream = TcpStream::connect(SocketAddr::new(ip.into(), port)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(10))).expect("set");
    write!(stream, "{request} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").expect("sent");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("an answer");
    Some(text)
}

fn status(answer: &str) -> u16 {
    answer.split(' ').nth(1).and_then(|s| s.parse().ok()).expect("a status")
}

fn body(answer: &str) -> &str {
    answer.split_once("\r\n\r\n").expect("a body").1
}

#[derive(Default)]
struct Recorded(Mutex<Vec<Event>>);

impl Recorded {
    fn take(&self) -> Vec<Event> {
        std::mem::take(&mut *self.0.lock().expect("no test panics while it holds this"))
    }
}

impl EventRecorder for Recorded {
    fn record(&self, event: Event) {
        self.0.lock().expect("no test panics while it holds this").push(event);
    }
}
