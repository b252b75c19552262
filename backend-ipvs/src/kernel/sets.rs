//! Sets and their entries.

use std::collections::BTreeMap;
use std::sync::Arc;

use proxier_core::ids::IpFamily;
use proxier_sys::netlink::{
    AttrWriter, Errno, MessageType, NetfilterSocket, NetlinkError, RefusedMessage, Requests, subsystem,
};

use super::Refusal;
use crate::error::{Error, answer, netlink};
use crate::sets::{Entry, SetType};
use crate::wire::family_number;
use crate::wire::ipset::{self, Definition, EntryChange, Revisions, SeenSet, Strange, Verb, command};

/// Entries of one message. A refused message is quoted in full, so that they are not too many.
const AT_ONCE: usize = 128;
/// Bytes of an entry in a message, roughly.
const ENTRY: usize = 64;

/// The name of the set that a rebuild of another one fills, per family. It is gone when the rebuild is.
pub const fn temporary(family: IpFamily) -> &'static str {
    match family {
        IpFamily::Ipv4 => "KUBE-PROXIER-TMP",
        IpFamily::Ipv6 => "KUBE-6-PROXIER-TMP",
    }
}

/// The sets of one network namespace: that of the thread that opened the socket.
#[derive(Debug)]
pub struct Sets {
    socket: NetfilterSocket,
    revisions: BTreeMap<(SetType, IpFamily), u8>,
}

impl Sets {
    /// Opens the socket.
    ///
    /// # Errors
    /// [`Error::NoIpset`] on a kernel without netfilter's netlink, or a failure of the socket.
    pub fn open() -> Result<Self, Error> {
        match NetfilterSocket::open() {
            Ok(socket) => Ok(Self { socket, revisions: BTreeMap::new() }),
            Err(error) if error.errno() == Some(Errno::EPROTONOSUPPORT as i32) => Err(Error::NoIpset),
            Err(error) => Err(netlink("look for ipset")(error)),
        }
    }

    /// Which revisions of a type the kernel has; it loads the module of the type if it can.
    ///
    /// # Errors
    /// [`Error::NoIpset`], [`Error::NoSetType`], or a failure of the socket.
    pub fn revisions(&mut self, kind: SetType, family: IpFamily) -> Result<Revisions, Error> {
        const DOING: &str = "look for a type of set";
        let payload = match self.request(command::TYPE, |w| ipset::put_type(w, kind, family)) {
            Ok(payload) => payload,
            Err(error) if error.errno() == Some(ipset::NO_TYPE) => {
                return Err(Error::NoSetType { kind, family });
            }
            // Nobody listens for messages of ipset.
            Err(error) if is(&error, &[Errno::EINVAL, Errno::EOPNOTSUPP]) => return Err(Error::NoIpset),
            Err(error) => return Err(netlink(DOING)(error)),
        };
        ipset::read_revisions(&payload).map_err(answer(DOING))
    }

    /// Makes sets, together, those that are not there. A set of the same type and family is taken as it is, whatever its size; one of our names that is
    /// something else, and that no rule uses, is replaced.
    ///
    /// # Errors
    /// [`Error::OtherSet`], [`Error::NoSetType`], [`Error::NoIpset`], a refused request, or a failure of the socket.
    pub fn create(&mut self, sets: &[Definition]) -> Result<(), Error> {
        let refused = self.try_create(sets)?;
        let mut replaced = Vec::new();
        for refused in &refused {
            let Some(set) = sets.get(refused.index.get()) else { continue };
            if Errno::from_raw(refused.errno) != Errno::EEXIST {
                return Err(refusal("make a set", refused));
            }
            match self.header(&set.name)? {
                Some(seen) if seen.is_a(set) => {}
                Some(seen) if seen.references > 0 => return Err(other_set(set, &seen)),
                // Gone meanwhile, or of no use to anybody.
                _ => replaced.push(set.clone()),
            }
        }
        let names: Vec<&str> = replaced.iter().map(|set| &*set.name).collect();
        self.destroy(&names)?;
        self.try_create(&replaced)?.first().map_or(Ok(()), |refused| Err(refusal("make a set", refused)))
    }

    fn try_create(&mut self, sets: &[Definition]) -> Result<Vec<RefusedMessage>, Error> {
        let mut requests = Requests::new();
        for set in sets {
            let of = (set.kind, set.family);
            let revision = match self.revisions.get(&of) {
                Some(revision) => *revision,
                None => self.revisions(set.kind, set.family)?.choose(set.kind),
            };
            self.revisions.insert(of, revision);
            ipset::push_create(&mut requests, set, revision);
        }
        self.pipeline(&requests, "make sets")
    }

    /// Deletes sets, together, with their entries; returns those that were refused. One that is not there is no refusal; one that a rule still looks into
    /// is refused with [`ipset::IN_USE`]. A rule that was just deleted may still hold its set for a moment.
    ///
    /// # Errors
    /// A failure of the socket, after which it is not known which are there.
    pub fn destroy(&mut self, names: &[&str]) -> Result<Vec<Refusal>, Error> {
        let mut requests = Requests::new();
        for name in names {
            ipset::push_destroy(&mut requests, name);
        }
        let refused = self.pipeline(&requests, "delete sets")?;
        let faults = refused.iter().filter(|refused| Errno::from_raw(refused.errno) != Errno::ENOENT);
        Ok(faults.map(|r| Refusal::new(r, r.index.get(), ipset::describe(r.errno, None))).collect())
    }

    /// The names of all sets, whoever made them.
    ///
    /// # Errors
    /// A failure of the socket.
    pub fn names(&mut self) -> Result<Vec<String>, Error> {
        const DOING: &str = "list sets";
        let messages = self.dump(ipset::put_names).map_err(netlink(DOING))?;
        ipset::read_names(messages.iter().map(Vec::as_slice)).map_err(answer(DOING))
    }

    /// A set with its entries; `None` if it is not there.
    ///
    /// # Errors
    /// A failure of the socket.
    pub fn read(&mut self, name: &str) -> Result<Option<SeenSet>, Error> {
        self.list(name, |w| ipset::put_list(w, name))
    }

    /// A set without its entries; `None` if it is not there.
    ///
    /// # Errors
    /// A failure of the socket.
    pub fn header(&mut self, name: &str) -> Result<Option<SeenSet>, Error> {
        self.list(name, |w| ipset::put_header(w, name))
    }

    fn list(&mut self, name: &str, fill: impl Fn(&mut AttrWriter<'_>)) -> Result<Option<SeenSet>, Error> {
        const DOING: &str = "read a set";
        let messages = match self.dump(fill) {
            Err(error) if error.is_not_found() => return Ok(None),
            messages => messages.map_err(netlink(DOING))?,
        };
        let sets = ipset::read_sets(messages.iter().map(Vec::as_slice)).map_err(answer(DOING))?;
        Ok(sets.into_iter().find(|set| set.name == name))
    }

    /// Adds and takes out entries in this order, together; returns those that were refused. `kind` tells the type of a set, for the words of a refusal.
    ///
    /// Entries of one set that follow each other share messages. Where such a message is refused, its entries are sent once more, each alone, so that all
    /// but those at fault are in. An entry must not occur twice.
    ///
    /// # Errors
    /// A failure of the socket, after which it is not known what was done.
    pub fn change(
        &mut self,
        changes: &[EntryChange],
        kind: impl Fn(&str) -> Option<SetType>,
    ) -> Result<Vec<Refusal>, Error> {
        let runs = runs(changes);
        let refused = self.send(changes, &runs)?;
        let alone: Vec<_> = refused
            .iter()
            .filter_map(|refused| runs.get(refused.index.get()))
            .flat_map(|run| run.clone().map(|place| place..place + 1))
            .collect();
        let refused = if runs.len() == changes.len() { refused } else { self.send(changes, &alone)? };
        let places = if runs.len() == changes.len() { &runs } else { &alone };
        let told = refused.iter().filter_map(|refused| {
            let index = places.get(refused.index.get())?.start;
            let kind = kind(&changes.get(index)?.set);
            Some(Refusal::new(refused, index, ipset::describe(refused.errno, kind)))
        });
        Ok(told.collect())
    }

    fn send(
        &mut self,
        changes: &[EntryChange],
        runs: &[std::ops::Range<usize>],
    ) -> Result<Vec<RefusedMessage>, Error> {
        let mut requests = Requests::with_capacity(changes.len() * ENTRY);
        for run in runs {
            if let Some([first, ..]) = changes.get(run.clone()) {
                let entries = changes[run.clone()].iter().map(|change| &change.entry);
                ipset::push_change(&mut requests, &first.set, first.verb, entries);
            }
        }
        self.pipeline(&requests, "change sets")
    }

    /// Takes out entries of forms that this backend never writes; returns those that were refused.
    ///
    /// # Errors
    /// A failure of the socket.
    pub fn delete_strange(&mut self, set: &str, entries: &[Strange]) -> Result<Vec<Refusal>, Error> {
        let mut requests = Requests::new();
        for entry in entries {
            ipset::push_delete_strange(&mut requests, set, entry);
        }
        let refused = self.pipeline(&requests, "change sets")?;
        Ok(refused.iter().map(|r| Refusal::new(r, r.index.get(), ipset::describe(r.errno, None))).collect())
    }

    /// Gives a set exactly these entries, and the size of its definition, at one stroke: a new set is filled and takes the place of the old one, with
    /// all rules that look into it. The set must be there and of this type and family. With refusals, everything stays as it was.
    ///
    /// # Errors
    /// A refused request, or a failure of the socket; the set then holds what it held, unless the last step failed.
    pub fn rebuild(&mut self, set: &Definition, entries: &[Entry]) -> Result<Vec<Refusal>, Error> {
        let name: Arc<str> = temporary(set.family).into();
        // What a rebuild that was cut off left.
        self.destroy(&[&name])?;
        self.create(&[Definition { name: Arc::clone(&name), ..set.clone() }])?;
        let changes: Vec<_> = entries
            .iter()
            .map(|entry| EntryChange { set: Arc::clone(&name), verb: Verb::Add, entry: *entry })
            .collect();
        let filled = self.change(&changes, |_| Some(set.kind));
        let swapped = match &filled {
            Ok(refusals) if refusals.is_empty() => self
                .request(command::SWAP, |w| ipset::put_swap(w, &name, &set.name))
                .map(drop)
                .map_err(netlink("exchange two sets")),
            _ => Ok(()),
        };
        let destroyed = self.destroy(&[&name]);
        let refusals = filled?;
        swapped?;
        destroyed?;
        Ok(refusals)
    }

    fn pipeline(&mut self, requests: &Requests, doing: &'static str) -> Result<Vec<RefusedMessage>, Error> {
        self.socket.pipeline(requests).map_err(netlink(doing))
    }

    fn request(
        &mut self,
        command: u8,
        fill: impl FnOnce(&mut AttrWriter<'_>),
    ) -> Result<Vec<u8>, NetlinkError> {
        let answers = self.socket.request(message(command), 0, family_number(IpFamily::Ipv4), fill)?;
        Ok(answers.into_iter().next().map(|answer| answer.payload).unwrap_or_default())
    }

    fn dump(&mut self, fill: impl Fn(&mut AttrWriter<'_>)) -> Result<Vec<Vec<u8>>, NetlinkError> {
        let messages = self.socket.dump(message(command::LIST), family_number(IpFamily::Ipv4), fill)?;
        Ok(messages.into_iter().map(|message| message.payload).collect())
    }
}

const fn message(command: u8) -> MessageType {
    MessageType::new(subsystem::IPSET, command)
}

/// Changes that fit one message: of one set, with one verb, and not too many.
fn runs(changes: &[EntryChange]) -> Vec<std::ops::Range<usize>> {
    let mut runs: Vec<std::ops::Range<usize>> = Vec::new();
    for (place, change) in changes.iter().enumerate() {
        match runs.last_mut() {
            Some(run)
                if run.len() < AT_ONCE
                    && changes
                        .get(run.start)
                        .is_some_and(|c| c.set == change.set && c.verb == change.verb) =>
            {
                run.end = place + 1;
            }
            _ => runs.push(place..place + 1),
        }
    }
    runs
}

fn is(error: &NetlinkError, any: &[Errno]) -> bool {
    error.errno().is_some_and(|errno| any.contains(&Errno::from_raw(errno)))
}

fn refusal(doing: &'static str, refused: &RefusedMessage) -> Error {
    let message = Some(ipset::describe(refused.errno, None));
    netlink(doing)(NetlinkError::Refused { errno: refused.errno, message })
}

fn other_set(set: &Definition, seen: &SeenSet) -> Error {
    let shown = |kind: &str, family: Option<IpFamily>| match family {
        Some(family) => format!("{kind} ({family})"),
        None => kind.to_owned(),
    };
    let family = (set.kind != SetType::BitmapPort).then_some(set.family);
    Error::OtherSet {
        name: seen.name.clone(),
        found: shown(&seen.type_name, seen.family),
        wanted: shown(ipset::type_name(set.kind), family),
        references: seen.references,
    }
}
