//! One pass: list, judge, delete.

use std::collections::BTreeSet;

use proxier_core::ids::{IpFamily, Protocol};
use proxier_core::stale::{self, Look, Looks, Search, Verdict};
use proxier_sys::conntrack::{Conntrack, Deletion, Family, Filter, Flow, Listing};
use proxier_sys::netlink::{Errno, NetlinkError, Sent, Walked};

/// Places to look at that the kernel is asked for one by one; with more, it lists all UDP flows once. A walk through the table costs about
/// 0.3 us of processor time for each flow in it, and each UDP flow that is listed another 1.6 us (docs/bench.md): where every flow is UDP that
/// is as dear as six walks, where half of them are it is as dear as four.
const MOST_LOOKS: usize = 4;
/// How often a listing is tried that the kernel interrupts (core spec 5.2).
const ATTEMPTS: u32 = 5;
/// Flows that are deleted together, while the listing goes on: no more than these are held.
const DELETE_TOGETHER: usize = 1024;

/// Lists flows.
pub trait List {
    /// See [`Conntrack::list`].
    ///
    /// # Errors
    /// As there.
    fn list(
        &mut self,
        family: Family,
        filter: Option<&Filter>,
        each: &mut dyn FnMut(&Flow),
    ) -> Result<Listing, NetlinkError>;

    /// What went out since this was asked last.
    fn take_sent(&mut self) -> Sent;
}

/// Deletes flows.
pub trait Delete {
    /// See [`Conntrack::delete`].
    ///
    /// # Errors
    /// As there.
    fn delete(&mut self, flows: &[Flow]) -> Result<Deletion, NetlinkError>;

    /// What went out since this was asked last.
    fn take_sent(&mut self) -> Sent;
}

impl List for Conntrack {
    fn list(
        &mut self,
        family: Family,
        filter: Option<&Filter>,
        each: &mut dyn FnMut(&Flow),
    ) -> Result<Listing, NetlinkError> {
        Self::list(self, family, filter, each)
    }

    fn take_sent(&mut self) -> Sent {
        Self::take_sent(self)
    }
}

impl Delete for Conntrack {
    fn delete(&mut self, flows: &[Flow]) -> Result<Deletion, NetlinkError> {
        Self::delete(self, flows)
    }

    fn take_sent(&mut self) -> Sent {
        Self::take_sent(self)
    }
}

/// The same table twice: flows are deleted while they are listed.
pub struct Tables {
    /// To list from.
    pub list: Box<dyn List>,
    /// To delete from.
    pub delete: Box<dyn Delete>,
}

impl Tables {
    /// Those of the calling thread's network namespace.
    ///
    /// # Errors
    /// When there can be no socket.
    pub fn of_the_kernel() -> Result<Self, NetlinkError> {
        Ok(Self { list: Box::new(Conntrack::open()?), delete: Box::new(Conntrack::open()?) })
    }
}

/// A pass that did not come to its end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SweepError {
    /// The process may not.
    #[error("connection tracking may not be read or changed: {0}")]
    Permission(#[source] NetlinkError),
    /// The kernel cannot list flows.
    #[error("this kernel cannot list tracked flows ({0}): is the module nf_conntrack_netlink there?")]
    Unsupported(#[source] NetlinkError),
    /// Anything else while listing.
    #[error("cannot list tracked flows: {0}")]
    List(#[source] NetlinkError),
    /// Anything else while deleting.
    #[error("cannot delete tracked flows: {0}")]
    Delete(#[source] NetlinkError),
}

impl SweepError {
    fn listing(error: NetlinkError) -> Self {
        match error.errno().map(Errno::from_raw) {
            _ if error.is_permission() => Self::Permission(error),
            // An unknown subsystem is an invalid message.
            Some(Errno::EINVAL | Errno::EOPNOTSUPP | Errno::EPROTONOSUPPORT) => Self::Unsupported(error),
            _ => Self::List(error),
        }
    }

    fn deleting(error: NetlinkError) -> Self {
        if error.is_permission() { Self::Permission(error) } else { Self::Delete(error) }
    }
}

/// What a pass did, complete or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) walks: u32,
    pub(super) examined: u64,
    pub(super) deleted: u64,
    pub(super) refused: u64,
    pub(super) partial: bool,
    pub(super) sent: Sent,
}

/// Looks where the search says and deletes what is stale. `filters` is what is known of the kernel: can it leave out flows itself?
pub(super) fn sweep(
    tables: &mut Tables,
    family: IpFamily,
    search: &Search,
    filters: &mut bool,
) -> (Tally, Result<(), SweepError>) {
    let mut sweep =
        Sweep { tables, family: sys_family(family), search, tally: Tally::default(), refusal: None };
    let mut result = sweep.all(filters);
    if let (Ok(()), Some(error)) = (&result, sweep.refusal.take()) {
        result = Err(SweepError::deleting(error));
    }
    let mut tally = sweep.tally;
    tally.sent += tables.list.take_sent();
    tally.sent += tables.delete.take_sent();
    (tally, result)
}

struct Sweep<'a> {
    tables: &'a mut Tables,
    family: Family,
    search: &'a Search,
    tally: Tally,
    /// Deletions do not work.
    refusal: Option<NetlinkError>,
}

impl Sweep<'_> {
    fn all(&mut self, filters: &mut bool) -> Result<(), SweepError> {
        let questions = questions(self.search.looks(), self.family);
        if *filters {
            for filter in &questions {
                match self.thoroughly(Some(filter)) {
                    Ok(unasked) => *filters &= unasked == 0,
                    Err(error) if knows_no_filter(&error) => *filters = false,
                    Err(error) => return Err(SweepError::listing(error)),
                }
                if !*filters {
                    tracing::debug!("this kernel cannot leave out flows; all are listed from now on");
                    break;
                }
            }
        }
        if !*filters && !questions.is_empty() {
            self.thoroughly(None).map_err(SweepError::listing)?;
        }
        Ok(())
    }

    /// One listing, tried again while it is interrupted; what was seen before counts. Returns how many flows were listed against the filter.
    fn thoroughly(&mut self, filter: Option<&Filter>) -> Result<u64, NetlinkError> {
        let mut unasked = 0;
        for _ in 0..ATTEMPTS {
            let listing = self.once(filter)?;
            unasked += listing.unasked;
            if listing.walked == Walked::Whole {
                return Ok(unasked);
            }
        }
        self.tally.partial = true;
        Ok(unasked)
    }

    fn once(&mut self, filter: Option<&Filter>) -> Result<Listing, NetlinkError> {
        let Self { tables, search, tally, refusal, .. } = self;
        let mut stale = Vec::new();
        tally.walks += 1;
        let mut delete = |stale: &mut Vec<Flow>, refusal: &mut Option<NetlinkError>| {
            if stale.is_empty() || refusal.is_some() {
                stale.clear();
                return;
            }
            match tables.delete.delete(stale) {
                Ok(deletion) => {
                    tally.deleted += deletion.deleted;
                    for refused in &deletion.refused {
                        tracing::debug!(error = %refused, "a stale flow stays");
                    }
                    tally.refused += u64::try_from(deletion.refused.len()).unwrap_or(u64::MAX);
                }
                Err(error) => *refusal = Some(error),
            }
            stale.clear();
        };
        let listing = tables.list.list(self.family, filter, &mut |flow| {
            if search.judge(&seen(flow)) == Verdict::Stale {
                stale.push(*flow);
                if stale.len() >= DELETE_TOGETHER {
                    delete(&mut stale, refusal);
                }
            }
        });
        delete(&mut stale, refusal);
        let listing = listing?;
        tally.examined += listing.flows;
        Ok(listing)
    }
}

/// What the core wants to know of a flow.
fn seen(flow: &Flow) -> stale::Flow {
    stale::Flow {
        protocol: flow.protocol,
        default_zone: flow.in_default_zone(),
        destination: flow.original.destination,
        answers_from: flow.reply.source,
    }
}

/// What the kernel is asked, one walk through its table for each.
fn questions(looks: &Looks, family: Family) -> BTreeSet<Filter> {
    let udp = Filter::protocol(Protocol::Udp.number());
    let Looks::At(looks) = looks else { return BTreeSet::from([udp]) };
    let question = |look: &Look| {
        let (ip, port) = match *look {
            Look::Source(place) => (Some(place.ip), Some(place.port.get())),
            Look::Port(port) => (None, Some(port.get())),
            Look::Address(ip) => (Some(ip), None),
        };
        Filter { reply_source: ip, reply_source_port: port, ..udp }.for_the_kernel(family)
    };
    let questions: BTreeSet<Filter> = looks.iter().map(question).collect();
    if questions.len() > MOST_LOOKS || questions.contains(&udp) { BTreeSet::from([udp]) } else { questions }
}

/// From a kernel with filters, but not with this one, or whose filter means something else.
fn knows_no_filter(error: &NetlinkError) -> bool {
    let errno = error.errno().map(Errno::from_raw);
    matches!(error, NetlinkError::Refused { .. }) && matches!(errno, Some(Errno::EINVAL | Errno::EOPNOTSUPP))
}

fn sys_family(family: IpFamily) -> Family {
    match family {
        IpFamily::Ipv4 => Family::Ipv4,
        IpFamily::Ipv6 => Family::Ipv6,
    }
}
