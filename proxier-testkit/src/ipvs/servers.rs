//! Virtual servers and real servers, and the language of `ipvsadm --restore`.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use imbl::OrdMap;
use proxier_core::ids::Protocol;

use crate::iptables::{Balance, Balancer};

/// What names a virtual server: IANA number of its protocol, and its address.
pub type Key = (u8, SocketAddr);

/// Settings of a virtual server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flags {
    /// Scheduler.
    pub scheduler: Arc<str>,
    /// Seconds that a client is remembered.
    pub persistence: Option<u32>,
    /// `-b`.
    pub scheduler_flags: Option<Arc<str>>,
}

/// A virtual server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// Settings.
    pub flags: Flags,
    /// Real servers with their weights.
    pub real: OrdMap<SocketAddr, u32>,
    /// Where clients that are remembered go.
    templates: OrdMap<IpAddr, SocketAddr>,
}

/// All virtual servers. Cheap to clone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Servers(OrdMap<Key, Service>);

/// Why `ipvsadm` refused a line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("ipvsadm: {why}, at `{line}`")]
pub struct ServerError {
    /// The line.
    pub line: String,
    /// Why.
    pub why: &'static str,
}

/// Nobody remembers clients of such a real server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no persistent virtual server has the real server {0}")]
pub struct NoTemplate(pub SocketAddr);

/// A line, taken apart.
#[derive(Debug, Default)]
struct Line<'l> {
    command: Option<char>,
    key: Option<Key>,
    real: Option<SocketAddr>,
    scheduler: Option<&'l str>,
    persistence: Option<u32>,
    flags: Option<&'l str>,
    masquerading: bool,
    weight: Option<u32>,
}

impl<'l> Line<'l> {
    fn parse(text: &'l str) -> Result<Self, &'static str> {
        let mut out = Self::default();
        let mut words = text.split_whitespace();
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or("option requires an argument");
            match word {
                "-A" | "-E" | "-D" | "-a" | "-e" | "-d" => {
                    let command = word.chars().nth(1);
                    if out.command.replace(command.unwrap_or('?')).is_some() {
                        return Err("multiple commands specified");
                    }
                }
                "-t" => out.key = Some((Protocol::Tcp.number(), socket(value()?)?)),
                "-u" => out.key = Some((Protocol::Udp.number(), socket(value()?)?)),
                "--sctp-service" => out.key = Some((Protocol::Sctp.number(), socket(value()?)?)),
                "-r" => out.real = Some(socket(value()?)?),
                "-s" => out.scheduler = Some(value()?),
                "-b" => out.flags = Some(value()?),
                "-m" => out.masquerading = true,
                "-p" => out.persistence = Some(number(value()?, 1)?),
                "-w" => out.weight = Some(number(value()?, 0)?),
                _ => return Err("unexpected argument"),
            }
        }
        Ok(out)
    }

    fn service(&self) -> Result<Flags, &'static str> {
        if self.real.is_some() || self.weight.is_some() || self.masquerading {
            return Err("illegal option for a virtual server");
        }
        Ok(Flags {
            scheduler: self.scheduler.unwrap_or("wlc").into(),
            persistence: self.persistence,
            scheduler_flags: self.flags.map(Into::into),
        })
    }
}

/// `address:port` or `[address]:port`; a port of 0 would be all ports.
fn socket(text: &str) -> Result<SocketAddr, &'static str> {
    let socket: SocketAddr = text.parse().map_err(|_| "illegal address:port")?;
    if socket.port() == 0 { Err("illegal address:port") } else { Ok(socket) }
}

fn number(text: &str, least: u32) -> Result<u32, &'static str> {
    text.parse().ok().filter(|n| *n >= least).ok_or("illegal number")
}

impl Servers {
    /// A virtual server.
    #[must_use]
    pub fn get(&self, key: &Key) -> Option<&Service> {
        self.0.get(key)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (&Key, &Service)> {
        self.0.iter()
    }

    /// Does what one line of `ipvsadm --restore` says.
    ///
    /// # Errors
    /// What the tool or the kernel would refuse.
    pub fn run(&mut self, line: &str) -> Result<(), ServerError> {
        self.one(line).map_err(|why| ServerError { line: line.to_owned(), why })
    }

    fn one(&mut self, line: &str) -> Result<(), &'static str> {
        let line = Line::parse(line)?;
        let key = line.key.ok_or("no virtual server")?;
        let there = self.0.get_mut(&key);
        match (line.command, there) {
            (Some('A'), Some(_)) => Err("Service already exists"),
            (Some('A'), None) => {
                let service =
                    Service { flags: line.service()?, real: OrdMap::new(), templates: OrdMap::new() };
                self.0.insert(key, service);
                Ok(())
            }
            (Some(_), None) => Err("No such service"),
            (Some('E'), Some(service)) => {
                service.flags = line.service()?;
                if service.flags.persistence.is_none() {
                    service.templates.clear();
                }
                Ok(())
            }
            (Some('D'), Some(_)) => {
                self.0.remove(&key);
                Ok(())
            }
            (Some(command), Some(service)) => service.real_server(command, &line),
            (None, _) => Err("no command"),
        }
    }

    /// Has virtual servers remember a client: those that are persistent and have this real server.
    ///
    /// # Errors
    /// There is none.
    pub fn remember(&mut self, real: SocketAddr, client: IpAddr) -> Result<(), NoTemplate> {
        let having = |(_, s): &(&Key, &Service)| s.flags.persistence.is_some() && s.real.contains_key(&real);
        let keys: Vec<Key> = self.0.iter().filter(having).map(|(key, _)| *key).collect();
        for key in &keys {
            if let Some(service) = self.0.get_mut(key) {
                service.templates.insert(client, real);
            }
        }
        if keys.is_empty() { Err(NoTemplate(real)) } else { Ok(()) }
    }
}

impl Service {
    fn real_server(&mut self, command: char, line: &Line<'_>) -> Result<(), &'static str> {
        let real = line.real.ok_or("no real server")?;
        let there = self.real.contains_key(&real);
        match command {
            'a' if there => Err("Destination already exists"),
            'e' | 'd' if !there => Err("No such destination"),
            'd' => {
                self.real.remove(&real);
                self.templates = self.templates.iter().filter(|(_, to)| **to != real).map(own).collect();
                Ok(())
            }
            _ if !line.masquerading => {
                Err("forwarded otherwise than by translation, which the model does not know")
            }
            _ => {
                self.real.insert(real, line.weight.unwrap_or(1));
                Ok(())
            }
        }
    }

    /// Real servers that get new connections.
    fn taking(&self) -> Vec<SocketAddr> {
        self.real.iter().filter(|(_, weight)| **weight > 0).map(|(real, _)| *real).collect()
    }
}

fn own<K: Clone, V: Clone>((key, value): (&K, &V)) -> (K, V) {
    (key.clone(), value.clone())
}

impl Balancer for Servers {
    /// With `expire_quiescent_template`, who was remembered at a real server of weight 0 is sent anywhere.
    fn balance(&self, source: IpAddr, destination: IpAddr, protocol: u8, port: u16) -> Balance {
        let Some(service) = self.0.get(&(protocol, SocketAddr::new(destination, port))) else {
            return Balance::NotOurs;
        };
        let taking = service.taking();
        if taking.is_empty() {
            return Balance::Refused;
        }
        let remembered = service.templates.get(&source).filter(|real| taking.contains(real));
        let to = remembered.map_or(taking.as_slice(), std::slice::from_ref);
        Balance::To(to.iter().map(|real| (real.ip(), real.port())).collect())
    }
}

impl fmt::Display for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "-s {}", self.scheduler)?;
        if let Some(seconds) = self.persistence {
            write!(f, " -p {seconds}")?;
        }
        if let Some(flags) = &self.scheduler_flags {
            write!(f, " -b {flags}")?;
        }
        Ok(())
    }
}
