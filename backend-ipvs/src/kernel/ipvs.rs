//! Virtual servers and real servers.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::io::{self, Read};
use std::panic::resume_unwind;
use std::thread::{self, Scope, ScopedJoinHandle};

use proxier_core::ids::IpFamily;
use proxier_sys::netlink::{
    AttrWriter, Errno, GenericFamily, GenericMessage, GenericSocket, MessageIndex, NetlinkError,
    RefusedMessage, Requests, Sent, errno_name,
};

use super::Refusal;
use crate::error::{Error, answer, netlink};
use crate::objects::ServiceKey;
use crate::wire::ipvs::{self, Change, Info, SeenReal, SeenService, ServiceId, Timeouts, command};
use crate::wire::proc::{Listed, Reading};

/// The listing of all virtual servers of the calling thread's network namespace.
const LISTING: &str = "/proc/thread-self/net/ip_vs";
/// How many dumps are made at most until two are the same.
const DUMPS: usize = 16;
/// Bytes of the listing that are asked for at once. The kernel gives a page at most, always of whole virtual servers; where less is asked for than one of
/// them takes, it loses its place.
const PIECE: usize = 1 << 16;
/// Bytes of the message of a change, roughly.
const MESSAGE: usize = 128;

/// The real servers of all virtual servers.
pub type RealServers = BTreeMap<ServiceKey, Vec<SeenReal>>;

/// The kernel's IPVS in one network namespace: that of the thread that opened it.
#[derive(Debug)]
pub struct Ipvs {
    socket: GenericSocket,
    family: GenericFamily,
}

impl Ipvs {
    /// Looks for it.
    ///
    /// # Errors
    /// [`Error::NoIpvs`], or a failure of the socket.
    pub fn open() -> Result<Self, Error> {
        const DOING: &str = "look for IPVS";
        let mut socket = GenericSocket::open().map_err(netlink(DOING))?;
        let family = socket.family(ipvs::NAME).map_err(netlink(DOING))?.ok_or(Error::NoIpvs)?;
        Ok(Self { socket, family })
    }

    /// What went out since this was asked last.
    pub fn take_sent(&mut self) -> Sent {
        self.socket.take_sent()
    }

    /// Version and size of the connection table.
    ///
    /// # Errors
    /// A refused request, or a failure of the socket.
    pub fn info(&mut self) -> Result<Info, Error> {
        const DOING: &str = "read IPVS's version";
        let payload = self.one(command::GET_INFO, DOING, |_| {})?;
        ipvs::read_info(&payload).map_err(answer(DOING))
    }

    /// Carries changes out in this order, together; returns those that were refused.
    ///
    /// A virtual server or real server that is to be new and is there already is given what was asked for. One that is to be deleted and is not there is
    /// deleted.
    ///
    /// # Errors
    /// A failure of the socket, after which it is not known what was done.
    pub fn change(&mut self, changes: &[Change]) -> Result<Vec<Refusal>, Error> {
        let mut refusals = Vec::new();
        let mut again: Vec<(usize, Change)> = Vec::new();
        for refused in self.send(changes.iter())? {
            let index = refused.index.get();
            let Some(change) = changes.get(index) else { continue };
            match (change, Errno::from_raw(refused.errno)) {
                (Change::DeleteService(_) | Change::DeleteReal(..), Errno::ESRCH | Errno::ENOENT) => {}
                (Change::NewService(server), Errno::EEXIST) => {
                    again.push((index, Change::SetService(server.clone())));
                }
                (Change::NewReal(key, real, weight), Errno::EEXIST) => {
                    again.push((index, Change::SetReal(*key, *real, *weight)));
                }
                _ => refusals.push(Refusal::new(&refused, index, reason(change, refused.errno))),
            }
        }
        for refused in self.send(again.iter().map(|(_, change)| change))? {
            if let Some((index, change)) = again.get(refused.index.get()) {
                refusals.push(Refusal::new(&refused, *index, reason(change, refused.errno)));
            }
        }
        refusals.sort_by_key(|refusal| refusal.index);
        Ok(refusals)
    }

    fn send<'a>(
        &mut self,
        changes: impl ExactSizeIterator<Item = &'a Change>,
    ) -> Result<Vec<RefusedMessage>, Error> {
        let mut requests = Requests::with_capacity(changes.len() * MESSAGE);
        for (place, change) in changes.enumerate() {
            let index = ipvs::push(&mut requests, &self.family, change);
            debug_assert_eq!(index, MessageIndex(place));
        }
        self.socket.pipeline(&requests).map_err(netlink("change virtual servers"))
    }

    /// Every virtual server, of both families and whoever made it, sorted.
    ///
    /// The kernel keeps those of all network namespaces in one table, goes on in a dump by counting, and marks none that somebody wrote beside: what comes or
    /// goes anywhere meanwhile has it name some twice or pass over some. So a dump counts when it names each once and another one named the same.
    ///
    /// # Errors
    /// [`Error::Changing`], or a failure of the socket.
    pub fn services(&mut self) -> Result<Vec<SeenService>, Error> {
        let mut before = None;
        for _ in 0..DUMPS {
            let mut now = self.dump_services()?;
            now.sort_by(|a, b| a.id.cmp(&b.id));
            let once = now.windows(2).all(|pair| matches!(pair, [a, b] if a.id != b.id));
            if once && before.as_ref() == Some(&now) {
                return Ok(now);
            }
            before = once.then_some(now);
        }
        Err(Error::Changing { dumps: DUMPS })
    }

    fn dump_services(&mut self) -> Result<Vec<SeenService>, Error> {
        const DOING: &str = "list virtual servers";
        let messages =
            self.socket.dump(&self.family, command::GET_SERVICE, |_| {}).map_err(netlink(DOING))?;
        messages.iter().map(|m| ipvs::read_service(&m.payload).map_err(answer(DOING))).collect()
    }

    /// One virtual server; `None` if it is not there.
    ///
    /// # Errors
    /// A failure of the socket.
    pub fn service(&mut self, key: &ServiceKey) -> Result<Option<SeenService>, Error> {
        const DOING: &str = "read a virtual server";
        match self.one(command::GET_SERVICE, DOING, |w| ipvs::put_key(w, key)) {
            Err(Error::Netlink { source: NetlinkError::Refused { errno, .. }, .. })
                if Errno::from_raw(errno) == Errno::ESRCH =>
            {
                Ok(None)
            }
            payload => Ok(Some(ipvs::read_service(&payload?).map_err(answer(DOING))?)),
        }
    }

    /// The real servers of one virtual server; none as well if that is not there.
    ///
    /// # Errors
    /// A failure of the socket.
    pub fn reals(&mut self, key: &ServiceKey) -> Result<Vec<SeenReal>, Error> {
        const DOING: &str = "list real servers";
        let family = IpFamily::of(key.ip);
        let fill = |w: &mut AttrWriter<'_>| ipvs::put_key(w, key);
        let messages =
            self.socket.dump(&self.family, command::GET_DESTINATION, fill).map_err(netlink(DOING))?;
        messages.iter().map(|m| ipvs::read_real(&m.payload, family).map_err(answer(DOING))).collect()
    }

    /// One dump of virtual servers, which may name some twice or pass over some: see [`agreed`](Self::agreed).
    ///
    /// # Errors
    /// A failure of the socket.
    pub fn dump(&mut self) -> Result<Dump, Error> {
        self.dump_services().map(Dump)
    }

    /// Every virtual server as [`services`](Self::services) has them, with the real servers of all but those of forms that this backend never makes, out of
    /// a dump and a listing that were made at the same time.
    ///
    /// When both name the same virtual servers, each once, the listing is the second witness that a dump needs. Else dumps are compared, and the real
    /// servers that the listing lacks are asked for one by one: the kernel loses its place there when other network namespaces have virtual servers, too (it
    /// counts them when it goes on, and not when it looks for where it left off).
    ///
    /// # Errors
    /// [`Error::Changing`], or a failure of the socket.
    pub fn agreed(&mut self, dump: Dump, listed: Listed) -> Result<(Vec<SeenService>, RealServers), Error> {
        let Dump(mut services) = dump;
        services.sort_by(|a, b| a.id.cmp(&b.id));
        let is_key = |id: &&ServiceId| matches!(id, ServiceId::Key(_));
        let named: HashSet<&ServiceId> = services.iter().map(|s| &s.id).filter(is_key).collect();
        let dumped = services.iter().map(|s| &s.id).filter(is_key).count();
        let lines = listed.iter().map(|(id, _)| id).filter(is_key).count();
        let mut reals: HashMap<ServiceId, Vec<SeenReal>> = listed.into_iter().collect();
        let same = named.len() == dumped && lines == dumped && named.iter().all(|id| reals.contains_key(*id));
        if !same {
            services = self.services()?;
        }
        let all = self.all_reals(&services, &mut reals)?;
        Ok((services, all))
    }

    /// As [`agreed`](Self::agreed), of a dump and a listing that are made now.
    ///
    /// # Errors
    /// As that, and [`Error::Read`], [`Error::Answer`].
    pub fn everything(&mut self) -> Result<(Vec<SeenService>, RealServers), Error> {
        thread::scope(|scope| {
            let listing = Listing::begin(scope);
            let dump = self.dump()?;
            self.agreed(dump, listing.end()?)
        })
    }

    /// The real servers of these, as they were listed or else as they are asked for.
    fn all_reals(
        &mut self,
        services: &[SeenService],
        listed: &mut HashMap<ServiceId, Vec<SeenReal>>,
    ) -> Result<RealServers, Error> {
        let mut all = RealServers::new();
        for service in services {
            let ServiceId::Key(key) = &service.id else { continue };
            let reals = match listed.remove(&service.id) {
                Some(reals) => reals,
                None => self.reals(key)?,
            };
            all.insert(*key, reals);
        }
        Ok(all)
    }

    /// How long idle connections are remembered.
    ///
    /// # Errors
    /// A refused request, or a failure of the socket.
    pub fn timeouts(&mut self) -> Result<Timeouts, Error> {
        const DOING: &str = "read IPVS's timeouts";
        let payload = self.one(command::GET_CONFIG, DOING, |_| {})?;
        ipvs::read_timeouts(&payload).map_err(answer(DOING))
    }

    /// Sets timeouts; 0 keeps what is (ipvs spec 1.3).
    ///
    /// # Errors
    /// A refused request, or a failure of the socket.
    pub fn set_timeouts(&mut self, timeouts: &Timeouts) -> Result<(), Error> {
        let fill = |w: &mut AttrWriter<'_>| ipvs::put_timeouts(w, timeouts);
        let answered = self.socket.request(&self.family, command::SET_CONFIG, 0, fill);
        answered.map(drop).map_err(netlink("set IPVS's timeouts"))
    }

    /// A request with one answer.
    fn one(
        &mut self,
        command: u8,
        doing: &'static str,
        fill: impl FnOnce(&mut AttrWriter<'_>),
    ) -> Result<Vec<u8>, Error> {
        let answers = self.socket.request(&self.family, command, 0, fill).map_err(netlink(doing))?;
        let none = NetlinkError::Malformed { what: "no answer but an acknowledgement" };
        answers
            .into_iter()
            .next()
            .map(|GenericMessage { payload, .. }| payload)
            .ok_or(none)
            .map_err(netlink(doing))
    }
}

/// Virtual servers as they were dumped.
#[derive(Debug)]
pub struct Dump(Vec<SeenService>);

/// `/proc/net/ip_vs`: virtual servers with their real servers, five times as fast as asking for each. The kernel takes its time to print it; a thread
/// waits for that and reads each piece as it comes, and whoever began it does other work meanwhile.
#[derive(Debug)]
pub struct Listing<'scope>(ScopedJoinHandle<'scope, Result<Listed, Error>>);

impl<'scope> Listing<'scope> {
    /// Begins to read that of the calling thread's network namespace.
    pub fn begin<'env>(scope: &'scope Scope<'scope, 'env>) -> Self {
        // A new thread is in the namespace of the one that makes it.
        Self(scope.spawn(read_listing))
    }

    /// All of it.
    ///
    /// # Errors
    /// [`Error::NoIpvs`], [`Error::Read`], [`Error::Answer`].
    pub fn end(self) -> Result<Listed, Error> {
        self.0.join().unwrap_or_else(|panic| resume_unwind(panic))
    }
}

fn read_listing() -> Result<Listed, Error> {
    let wrong = || answer("list real servers");
    let mut reading = Reading::default();
    let mut file = File::open(LISTING).map_err(unread)?;
    let mut buffer = vec![0; PIECE];
    loop {
        let length = match file.read(&mut buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            length => length.map_err(unread)?,
        };
        match buffer.get(..length) {
            None | Some([]) => return reading.end().map_err(wrong()),
            Some(piece) => reading.push(piece).map_err(wrong())?,
        }
    }
}

fn unread(source: io::Error) -> Error {
    match source.kind() {
        io::ErrorKind::NotFound => Error::NoIpvs,
        _ => Error::Read { path: LISTING, source },
    }
}

/// What an error number means for a change.
fn reason(change: &Change, errno: i32) -> String {
    match (change, Errno::from_raw(errno)) {
        (Change::NewService(server) | Change::SetService(server), Errno::ENOENT) => {
            format!("the kernel has no scheduler {} (ENOENT)", server.scheduler)
        }
        (_, Errno::ENOENT) => "no such real server (ENOENT)".to_owned(),
        (_, Errno::ESRCH) => "no such virtual server (ESRCH)".to_owned(),
        (_, Errno::EAFNOSUPPORT) => "the kernel's IPVS does not serve this family (EAFNOSUPPORT)".to_owned(),
        _ => errno_name(errno),
    }
}
