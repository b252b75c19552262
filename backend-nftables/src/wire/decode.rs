//! Dumped chains, sets and elements as objects, or in words.

use std::collections::{BTreeMap, BTreeSet};

use proxier_core::ids::IpFamily;
use proxier_sys::netlink::AttrIter;

use super::elements::{self, Point};
use super::encode::{chain_type, hook_number};
use super::numbers::{chain, datatype, elem, elem_list, set_flags, verdict};
use super::parse::{Attrs, RawChain, RawSet, our_verdict};
use super::raise::Content;
use super::ranges::{self, Range};
use super::{sets, userdata};
use crate::objects::{
    Base, Chain, ChainType, Data, Element, Field, Hook, Name, ObservedElement, ObservedRule, Set, Value,
    Verdict,
};

/// Names that many elements share.
#[derive(Default)]
pub(super) struct Names(BTreeSet<Name>);

impl Names {
    fn get(&mut self, name: &str) -> Name {
        if let Some(known) = self.0.get(name) {
            return known.clone();
        }
        let new = Name::from(name);
        self.0.insert(new.clone());
        new
    }
}

pub(super) fn read_chain(raw: &RawChain<'_>, names: &mut Names) -> (Chain, Option<ObservedRule>) {
    let comment = raw.userdata.and_then(userdata::comment_of).map(Name::from);
    let base = read_base(raw);
    let foreign = (base.is_none() && raw.hook.is_some()) || raw.flags & !chain::FLAG_BASE != 0;
    let words = foreign.then(|| {
        let (hook, priority) = raw.hook.unwrap_or_default();
        let (kind, policy) = (raw.kind.unwrap_or("none"), raw.policy.unwrap_or(verdict::ACCEPT));
        ObservedRule::Foreign(format!(
            "not a chain of this backend: type {kind} hook {hook} priority {priority} policy {policy} flags {:#x}",
            raw.flags
        ))
    });
    (Chain { name: names.get(raw.name), base, comment }, words)
}

fn read_base(raw: &RawChain<'_>) -> Option<Base> {
    let (hook, priority) = raw.hook?;
    let kind =
        [ChainType::Filter, ChainType::Nat].into_iter().find(|kind| raw.kind == Some(chain_type(*kind)))?;
    let hook = [Hook::Prerouting, Hook::Input, Hook::Forward, Hook::Output, Hook::Postrouting]
        .into_iter()
        .find(|known| hook_number(*known) == hook)?;
    (!raw.devices && raw.policy == Some(verdict::ACCEPT)).then_some(Base { kind, hook, priority })
}

/// A declaration of ours; `None` for other types, flags or parts of seconds.
pub(super) fn read_set(family: IpFamily, raw: &RawSet<'_>, names: &mut Names) -> Option<Set> {
    let timeout = match (raw.flags & !set_flags::MAP, raw.timeout.unwrap_or(0)) {
        (0, 0) => None,
        (flags, millis) if flags == set_flags::TIMEOUT | set_flags::EVAL && millis % 1000 == 0 => {
            Some(u32::try_from(millis / 1000).ok()?)
        }
        _ => return None,
    };
    let data = match (raw.flags & set_flags::MAP != 0, raw.data_type) {
        (false, _) => Data::None,
        (true, Some(datatype::VERDICT)) => Data::Verdict,
        (true, id) => Data::Fields(sets::fields_of(family, id?)?),
    };
    Some(Set {
        name: names.get(raw.name),
        key: sets::fields_of(family, raw.key_type)?,
        data,
        // What the kernel writes into a dynamic set for which none was given.
        size: raw.size.filter(|size| timeout.is_none() || *size != sets::DYNAMIC_SIZE),
        timeout,
        comment: raw.userdata.and_then(userdata::set_comment_of).map(Name::from),
    })
}

pub(super) fn foreign_set(raw: &RawSet<'_>, names: &mut Names) -> (Set, Vec<ObservedElement>) {
    let words = format!(
        "not a set of this backend: key type {:#x} data type {:#x} flags {:#x} timeout {} ms",
        raw.key_type,
        raw.data_type.unwrap_or(0),
        raw.flags,
        raw.timeout.unwrap_or(0)
    );
    let set = Set {
        name: names.get(raw.name),
        key: Vec::new(),
        data: Data::None,
        size: raw.size,
        timeout: None,
        comment: None,
    };
    (set, vec![ObservedElement::Foreign(words)])
}

/// An entry of an element list.
type RawElement<'a> = Attrs<'a, 12>;

/// The entries of a message; `None` for what cannot be read.
fn entries<'a>(payload: &'a [u8]) -> impl Iterator<Item = Option<RawElement<'a>>> {
    let list = Attrs::<5>::read(AttrIter::new(payload)).and_then(|attrs| attrs.nested(elem_list::ELEMENTS));
    list.into_iter().flatten().map(|entry| RawElement::read(entry.ok()?.nested()))
}

/// The elements of a message.
pub(super) fn read_elements(
    family: IpFamily,
    set: &Set,
    payload: &[u8],
    names: &mut Names,
) -> Vec<ObservedElement> {
    entries(payload)
        .map(|raw| match raw.as_ref().and_then(|raw| read_element(family, set, raw, names)) {
            Some(element) => ObservedElement::Known(element),
            None => foreign_element(raw.as_ref()),
        })
        .collect()
}

/// Nothing but key, value and comment.
fn is_plain(raw: &RawElement<'_>) -> bool {
    let others =
        [elem::TIMEOUT, elem::EXPIRATION, elem::EXPR, elem::OBJREF, elem::KEY_END, elem::EXPRESSIONS];
    !others.into_iter().any(|kind| raw.has(kind))
}

fn read_element(family: IpFamily, set: &Set, raw: &RawElement<'_>, names: &mut Names) -> Option<Element> {
    (is_plain(raw) && raw.u32(elem::FLAGS).unwrap_or(0) == 0).then_some(())?;
    let key = elements::read_key(family, &set.key, raw.value(elem::KEY)?)?;
    let value = match &set.data {
        Data::None if raw.has(elem::DATA) => return None,
        Data::None => Value::None,
        Data::Verdict => Value::Verdict(our_verdict(raw.verdict(elem::DATA)?, |name| names.get(name))?),
        Data::Fields(fields) if fields[..] == [Field::Addr, Field::Service] => {
            let (addr, port) = elements::read_endpoint(family, raw.value(elem::DATA)?)?;
            Value::Endpoint(addr, port)
        }
        Data::Fields(_) => return None,
    };
    let comment = raw.bytes(elem::USERDATA).and_then(userdata::comment_of).map(Name::from);
    Some(Element { key, value, comment })
}

fn foreign_element(raw: Option<&RawElement<'_>>) -> ObservedElement {
    use std::fmt::Write as _;
    let mut words = String::from("not an element of this backend: key 0x");
    for byte in raw.and_then(|raw| raw.value(elem::KEY)).unwrap_or_default() {
        // Writing to a String cannot fail.
        let _ = write!(words, "{byte:02x}");
    }
    ObservedElement::Foreign(words)
}

/// What a set that belongs to a rule holds, from the messages of its elements.
pub(super) fn content_of(family: IpFamily, raw: &RawSet<'_>, payloads: &[&[u8]]) -> Option<Content> {
    let constant = set_flags::ANONYMOUS | set_flags::CONSTANT;
    let key = sets::fields_of(family, raw.key_type)?;
    let elements: Vec<RawElement<'_>> =
        payloads.iter().flat_map(|payload| entries(payload)).collect::<Option<_>>()?;
    elements.iter().all(is_plain).then_some(())?;
    match (raw.flags & !constant, &key[..]) {
        (0, [Field::Addr]) => {
            let mut hosts = Vec::with_capacity(elements.len());
            for element in &elements {
                hosts.push(ranges::host(elements::read_addr(family, element.value(elem::KEY)?)?));
            }
            hosts.sort_unstable();
            Some(Content::Networks(hosts))
        }
        (set_flags::INTERVAL, [Field::Addr]) => {
            let mut points = Vec::with_capacity(elements.len());
            for element in &elements {
                let addr = elements::read_addr(family, element.value(elem::KEY)?)?;
                let end = element.u32(elem::FLAGS).unwrap_or(0) & elem::INTERVAL_END != 0;
                points.push(Point { at: ranges::number(addr), end, open: false });
            }
            Some(Content::Networks(ranges::networks(family, &ranges_of(family, points)?)))
        }
        (set_flags::MAP, [Field::Index]) => match sets_data(family, raw)? {
            Data::Verdict => by_index(&elements, |element| {
                match our_verdict(element.verdict(elem::DATA)?, |name| name.into())? {
                    Verdict::Goto(chain) => Some(chain),
                    Verdict::Accept | Verdict::Drop | Verdict::Jump(_) => None,
                }
            })
            .map(Content::Chains),
            Data::Fields(fields) if fields[..] == [Field::Addr, Field::Service] => {
                by_index(&elements, |element| elements::read_endpoint(family, element.value(elem::DATA)?))
                    .map(Content::Endpoints)
            }
            Data::None | Data::Fields(_) => None,
        },
        _ => None,
    }
}

fn sets_data(family: IpFamily, raw: &RawSet<'_>) -> Option<Data> {
    match raw.data_type? {
        datatype::VERDICT => Some(Data::Verdict),
        id => sets::fields_of(family, id).map(Data::Fields),
    }
}

/// Values in the order of their indices, which must be 0, 1, ... without a gap.
fn by_index<T>(
    elements: &[RawElement<'_>],
    mut value: impl FnMut(&RawElement<'_>) -> Option<T>,
) -> Option<Vec<T>> {
    let mut out = BTreeMap::new();
    for element in elements {
        out.insert(elements::read_index(element.value(elem::KEY)?)?, value(element)?);
    }
    let complete = out.keys().copied().eq(0..u32::try_from(elements.len()).ok()?);
    complete.then(|| out.into_values().collect())
}

/// Ranges from their points: each begins at a start and ends below the next end, or at the highest address.
fn ranges_of(family: IpFamily, mut points: Vec<Point>) -> Option<Vec<Range>> {
    // Where one range ends and the next begins, the end comes first.
    points.sort_unstable_by_key(|point| (point.at, !point.end));
    let mut out = Vec::new();
    let mut first = None;
    for point in points {
        match (point.end, first) {
            (false, None) => first = Some(point.at),
            (true, Some(begun)) => {
                out.push(Range { first: begun, last: point.at.checked_sub(1)? });
                first = None;
            }
            // The end at the lowest address, in front of all ranges.
            (true, None) if out.is_empty() && point.at == 0 => {}
            (true, None) | (false, Some(_)) => return None,
        }
    }
    if let Some(begun) = first {
        out.push(Range { first: begun, last: ranges::highest(family) });
    }
    Some(out)
}
