//! Notices of the kernel about the addresses of this host.

use std::io::{self, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};
use nix::errno::Errno;
use nix::net::if_::if_nametoindex;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::netlink::NetlinkError;

/// `RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR` of `linux/rtnetlink.h`: an address came or went.
const ADDRESSES: u32 = 0x10 | 0x100;

/// A change is told once nothing has happened for so long ...
const QUIET: Duration = Duration::from_millis(20);
/// ... and at the latest so long after the first notice.
const LIMIT: Duration = Duration::from_millis(200);

/// What [`AddressWatch::wait`] waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// Addresses came or went, or so much happened that the kernel could not tell all of it: list them again.
    Changed,
    /// Somebody called [`Waker::wake`].
    Woken,
}

/// Notices about addresses of one network namespace: that of the thread that opened it.
#[derive(Debug)]
pub struct AddressWatch {
    socket: Socket,
    ignored: Option<&'static str>,
    woken: UnixStream,
    waker: UnixStream,
}

/// Ends a wait from another thread.
#[derive(Debug)]
pub struct Waker(UnixStream);

impl Waker {
    /// Ends the wait that is under way, or the next one.
    pub fn wake(&self) {
        // A full pipe has been woken already; one without another end has nobody to wake.
        let _ = (&self.0).write(&[1]);
    }
}

impl AddressWatch {
    /// Begins to listen. What happens from now on is told by [`AddressWatch::wait`], so list the addresses after this.
    ///
    /// # Errors
    /// [`NetlinkError::Socket`].
    pub fn open() -> Result<Self, NetlinkError> {
        let failed = |call| move |source| NetlinkError::Socket { call, source };
        let mut socket = Socket::new(NETLINK_ROUTE).map_err(failed("open"))?;
        socket.bind(&SocketAddr::new(0, ADDRESSES)).map_err(failed("bind"))?;
        socket.set_non_blocking(true).map_err(failed("set option"))?;
        let (waker, woken) = UnixStream::pair().map_err(failed("open"))?;
        waker.set_nonblocking(true).map_err(failed("set option"))?;
        woken.set_nonblocking(true).map_err(failed("set option"))?;
        Ok(Self { socket, ignored: None, woken, waker })
    }

    /// What happens on the interface of this name is not told.
    #[must_use]
    pub fn ignoring(self, interface: &'static str) -> Self {
        Self { ignored: Some(interface), ..self }
    }

    /// What ends a wait.
    ///
    /// # Errors
    /// [`NetlinkError::Socket`] when there is no file descriptor left.
    pub fn waker(&self) -> Result<Waker, NetlinkError> {
        let clone = self.waker.try_clone();
        clone.map(Waker).map_err(|source| NetlinkError::Socket { call: "open", source })
    }

    /// Waits until something happens; several changes that follow one another are one notice.
    ///
    /// # Errors
    /// [`NetlinkError::Socket`].
    pub fn wait(&mut self) -> Result<Notice, NetlinkError> {
        loop {
            if self.poll(None)? == Some(Notice::Woken) {
                let _ = (&self.woken).read(&mut [0; 16]);
                return Ok(Notice::Woken);
            }
            if self.drain()? {
                break;
            }
        }
        let limit = Instant::now() + LIMIT;
        loop {
            let left = limit.saturating_duration_since(Instant::now()).min(QUIET);
            match self.poll(Some(left))? {
                Some(Notice::Changed) if !left.is_zero() => drop(self.drain()?),
                // Whoever woke us is told next.
                _ => return Ok(Notice::Changed),
            }
        }
    }

    /// What is there to be read; `None` when time is up.
    fn poll(&self, within: Option<Duration>) -> Result<Option<Notice>, NetlinkError> {
        let timeout = within
            .map_or(PollTimeout::NONE, |t| PollTimeout::try_from(t.as_millis()).unwrap_or(PollTimeout::MAX));
        loop {
            let mut sources =
                [self.woken.as_fd(), self.socket.as_fd()].map(|fd| PollFd::new(fd, PollFlags::POLLIN));
            match poll(&mut sources, timeout) {
                Ok(0) => return Ok(None),
                Ok(_) if sources[0].any() == Some(true) => return Ok(Some(Notice::Woken)),
                Ok(_) => return Ok(Some(Notice::Changed)),
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(NetlinkError::Socket { call: "receive", source: errno.into() }),
            }
        }
    }

    /// Takes out what waits; returns whether it concerns us. What it says does not matter otherwise: the addresses are listed afterwards.
    fn drain(&self) -> Result<bool, NetlinkError> {
        // An interface that is made anew has another number.
        let ignored = self.ignored.and_then(|name| if_nametoindex(name).ok());
        let mut buffer = Vec::with_capacity(8192);
        let mut concerned = false;
        loop {
            buffer.clear();
            match self.socket.recv(&mut buffer, 0) {
                Ok(_) => concerned |= ignored.is_none() || interface(&buffer) != ignored,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(concerned),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // More than the buffer held: what was lost may concern us.
                Err(error) if error.raw_os_error() == Some(Errno::ENOBUFS as i32) => concerned = true,
                Err(source) => return Err(NetlinkError::Socket { call: "receive", source }),
            }
        }
    }
}

/// The interface that a notice is about: `struct nlmsghdr`, 16 bytes, then `struct ifaddrmsg`, whose number stands after 4 bytes. The kernel sends
/// each notice as a datagram of its own.
fn interface(notice: &[u8]) -> Option<u32> {
    notice.get(20..24)?.try_into().ok().map(u32::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread;

    use super::*;
    use crate::netns;
    use crate::runner::{CommandSpec, Runner, SystemRunner};

    fn ip(args: &str) {
        let output = SystemRunner::new().run(&CommandSpec::new("ip", args.split(' '))).unwrap();
        assert!(output.success(), "{args}: {}", output.stderr_text());
    }

    #[test]
    #[ignore = "needs root and a network namespace: run by cargo xtask test"]
    fn what_comes_and_goes_is_told_and_nothing_else() {
        netns::enter_new().unwrap();
        ip("link add br0 type bridge");
        ip("link add ours type bridge");
        let mut watch = AddressWatch::open().unwrap().ignoring("ours");
        let waker = watch.waker().unwrap();
        let (told, notices) = channel();
        let thread = thread::spawn(move || {
            loop {
                let notice = watch.wait().unwrap();
                told.send(notice).unwrap();
                if notice == Notice::Woken {
                    return;
                }
            }
        });
        let next = || notices.recv_timeout(Duration::from_secs(30)).unwrap();
        for change in [
            "addr add 192.0.2.7/24 dev br0",
            "addr add 2001:db8::7/64 dev br0 nodad",
            "addr del 192.0.2.7/24 dev br0",
        ] {
            ip(change);
            assert_eq!(next(), Notice::Changed, "{change}");
        }
        // That of an interface that does not matter, and a route.
        ip("link set lo up");
        while notices.recv_timeout(LIMIT).is_ok() {}
        ip("addr add 192.0.2.9/24 dev ours");
        ip("addr add 2001:db8::9/64 dev ours nodad");
        ip("route add 198.51.100.0/24 dev lo");
        waker.wake();
        assert_eq!(next(), Notice::Woken);
        thread.join().unwrap();
    }

    #[test]
    #[ignore = "needs root and a network namespace: run by cargo xtask test"]
    fn a_link_that_goes_takes_its_addresses_with_it() {
        netns::enter_new().unwrap();
        ip("link add br0 type bridge");
        ip("addr add 192.0.2.7/24 dev br0");
        let mut watch = AddressWatch::open().unwrap();
        ip("link del br0");
        assert_eq!(watch.wait().unwrap(), Notice::Changed);
    }

    #[test]
    fn who_is_woken_before_the_wait_does_not_wait() {
        let mut watch = AddressWatch::open().unwrap();
        watch.waker().unwrap().wake();
        // Addresses of this machine may change meanwhile.
        assert!((0..100).any(|_| watch.wait().unwrap() == Notice::Woken));
    }
}
