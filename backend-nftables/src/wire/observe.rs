//! Reads our table back: one request for the table, a dump each of its chains, sets and rules, one per set of its
//! elements. Other tables are never asked for, except that kernels list the chains of all tables of a family.

use std::collections::BTreeMap;

use proxier_core::ids::IpFamily;
use proxier_sys::netlink::{
    AttrIter, AttrWriter, DumpMessage, MessageType, NetfilterSocket, NetlinkError, subsystem,
};

use super::decode::{Names, content_of, foreign_set, read_chain, read_elements, read_set};
use super::numbers::{chain, elem_list, msg, rule, set, set_flags, table};
use super::parse::{Attrs, RawChain, RawRule, RawSet};
use super::raise::{Content, Raiser};
use super::{WireError, nfproto};
use crate::objects::{Key, Observed, ObservedElement, Set, Table};

/// How often a reading is begun anew because the ruleset changed meanwhile.
const ATTEMPTS: u32 = 8;

/// Reads what the kernel holds of our table.
///
/// Rules keep their order; elements come in the kernel's, which means nothing. Elements of sets with a timeout are not
/// read. What this backend never writes is described in words: a foreign rule or element in its place, a foreign chain
/// or set as a plain one whose only rule or element says so. A dormant table, which holds up no packet, counts as not
/// there.
///
/// # Errors
/// A failure of the socket, or [`WireError::Changing`] if other transactions came in between every time.
pub fn observe(socket: &mut NetfilterSocket, table: &Table) -> Result<Observed, WireError> {
    for _ in 0..ATTEMPTS {
        let before = socket.ruleset_generation()?;
        match Reader::new(socket, table).read() {
            Ok(observed) if socket.ruleset_generation()? == before && !repeats(&observed) => {
                return Ok(observed);
            }
            Ok(_) => {}
            // Something was deleted after it was listed.
            Err(error) if error.is_not_found() => {}
            Err(NetlinkError::DumpInterrupted { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(WireError::Changing { attempts: ATTEMPTS })
}

/// An element is there twice. While a transaction is being prepared, which makes no generation yet, its new elements take places in the
/// kernel's table, and a dump that goes on behind them meets some a second time.
fn repeats(observed: &Observed) -> bool {
    observed.sets.values().any(|(_, elements)| {
        let mut keys: Vec<&Key> = elements
            .iter()
            .filter_map(|e| match e {
                ObservedElement::Known(element) => Some(&element.key),
                ObservedElement::Foreign(_) => None,
            })
            .collect();
        keys.sort_unstable();
        keys.windows(2).any(|pair| pair[0] == pair[1])
    })
}

fn kind(message: u8) -> MessageType {
    MessageType::new(subsystem::NFTABLES, message)
}

struct Reader<'a> {
    socket: &'a mut NetfilterSocket,
    family: IpFamily,
    table: &'a str,
    names: Names,
}

impl<'a> Reader<'a> {
    fn new(socket: &'a mut NetfilterSocket, table: &'a Table) -> Self {
        Self { socket, family: table.family, table: &table.name, names: Names::default() }
    }

    fn read(mut self) -> Result<Observed, NetlinkError> {
        if !self.table_is_awake()? {
            return Ok(Observed::default());
        }
        let mut observed = Observed { exists: true, ..Observed::default() };
        for message in self.dump(msg::GET_CHAIN, chain::TABLE)? {
            if let Some(raw) = RawChain::read(&message.payload).filter(|raw| raw.table == self.table) {
                let (chain, foreign) = read_chain(&raw, &mut self.names);
                observed.chains.insert(chain.name.clone(), (chain, Vec::from_iter(foreign)));
            }
        }
        let anonymous = self.sets(&mut observed)?;
        let raiser = Raiser { family: self.family, anonymous: &anonymous };
        for message in self.dump(msg::GET_RULE, rule::TABLE)? {
            let Some(raw) = RawRule::read(&message.payload).filter(|raw| raw.table == self.table) else {
                continue;
            };
            if let Some((_, rules)) = observed.chains.get_mut(raw.chain) {
                rules.push(raiser.rule(&raw));
            }
        }
        Ok(observed)
    }

    fn table_is_awake(&mut self) -> Result<bool, NetlinkError> {
        let name = self.table;
        let fill = |w: &mut AttrWriter<'_>| w.put_str(table::NAME, name);
        match self.socket.request(kind(msg::GET_TABLE), 0, nfproto(self.family), fill) {
            Ok(answer) => {
                let flags = answer
                    .first()
                    .and_then(|m| Attrs::<8>::read(AttrIter::new(&m.payload))?.u32(table::FLAGS));
                Ok(flags.unwrap_or(0) & table::DORMANT == 0)
            }
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Objects of our table: `name_attr` is where their request names it.
    fn dump(&mut self, message: u8, name_attr: u16) -> Result<Vec<DumpMessage>, NetlinkError> {
        let name = self.table;
        self.socket.dump(kind(message), nfproto(self.family), |w| w.put_str(name_attr, name))
    }

    /// Reads the sets; returns those that belong to rules.
    fn sets(&mut self, observed: &mut Observed) -> Result<BTreeMap<String, Content>, NetlinkError> {
        let mut anonymous = BTreeMap::new();
        for message in self.dump(msg::GET_SET, set::TABLE)? {
            let Some(raw) = RawSet::read(&message.payload).filter(|raw| raw.table == self.table) else {
                continue;
            };
            if raw.flags & set_flags::ANONYMOUS != 0 {
                let content = self.content(&raw)?;
                anonymous.insert(raw.name.to_owned(), content);
                continue;
            }
            let read = match read_set(self.family, &raw, &mut self.names) {
                Some(set) if set.timeout.is_some() => (set, Vec::new()),
                Some(set) => {
                    let elements = self.elements(&set)?;
                    (set, elements)
                }
                None => foreign_set(&raw, &mut self.names),
            };
            observed.sets.insert(read.0.name.clone(), read);
        }
        Ok(anonymous)
    }

    fn dump_elements(&mut self, set: &str) -> Result<Vec<DumpMessage>, NetlinkError> {
        let name = self.table;
        self.socket.dump(kind(msg::GET_SETELEM), nfproto(self.family), |w| {
            w.put_str(elem_list::TABLE, name);
            w.put_str(elem_list::SET, set);
        })
    }

    fn elements(&mut self, set: &Set) -> Result<Vec<ObservedElement>, NetlinkError> {
        let mut out = Vec::new();
        for message in self.dump_elements(&set.name)? {
            out.extend(read_elements(self.family, set, &message.payload, &mut self.names));
        }
        Ok(out)
    }

    fn content(&mut self, raw: &RawSet<'_>) -> Result<Content, NetlinkError> {
        let messages = self.dump_elements(raw.name)?;
        let payloads: Vec<&[u8]> = messages.iter().map(|message| &message.payload[..]).collect();
        Ok(content_of(self.family, raw, &payloads).unwrap_or(Content::Foreign))
    }
}
