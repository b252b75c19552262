//! Words to rules and commands.

use proxier_core::ids::{IpFamily, Protocol};

use super::ast::{Match, Maybe, Rule, Target};
use super::error::Cause;
use super::print;
use module::{MATCHES, Module, TARGETS};

mod command;
mod extension;
mod module;
mod value;

pub(super) use command::{Command, Line, Position, command};

/// Names that no chain can have: verdicts, and targets of the model.
pub(super) fn is_target(name: &str) -> bool {
    matches!(name, "ACCEPT" | "DROP" | "QUEUE" | "RETURN")
        || TARGETS.iter().any(|(target, _)| *target == name)
}

/// What is gathered of a rule, word by word.
struct Builder {
    family: IpFamily,
    rule: Rule,
    modules: Vec<Module>,
    target: Option<Module>,
    jumped: bool,
}

type Words<'w> = &'w mut std::vec::IntoIter<String>;

/// A rule from what stands behind its chain. That the chain it jumps to is there, the caller checks.
pub(super) fn rule(family: IpFamily, words: Words<'_>) -> Result<Rule, Cause> {
    let rule = Rule {
        source: None,
        destination: None,
        incoming: None,
        outgoing: None,
        protocol: None,
        matches: Vec::new(),
        target: Target::None,
        text: "".into(),
    };
    let mut builder = Builder { family, rule, modules: Vec::new(), target: None, jumped: false };
    let mut negated = false;
    while let Some(word) = words.next() {
        if word == "!" {
            if std::mem::replace(&mut negated, true) {
                return Err(Cause::BadArgument(word));
            }
            continue;
        }
        builder.option(&word, negated, words)?;
        negated = false;
    }
    if negated {
        return Err(Cause::BadArgument("!".into()));
    }
    builder.finish()
}

/// Puts a value where none was; one that stands for everything is none.
fn once<T>(place: &mut Option<Maybe<T>>, option: &str, negated: bool, value: Option<T>) -> Result<(), Cause> {
    if place.is_some() {
        return Err(Cause::Repeated(option.into()));
    }
    if negated && value.is_none() {
        // The variants of the tool do not agree on the opposite of everything.
        return Err(Cause::Unsupported(format!("! {option} of everything")));
    }
    *place = value.map(|value| Maybe { negated, value });
    Ok(())
}

impl Builder {
    fn option(&mut self, option: &str, negated: bool, words: Words<'_>) -> Result<(), Cause> {
        let mut next = || words.next().ok_or_else(|| Cause::NeedsArgument(option.into()));
        let (family, rule) = (self.family, &mut self.rule);
        match option {
            "-s" | "--source" | "--src" => {
                let net = value::net(family, option, &next()?)?;
                once(&mut rule.source, option, negated, (net.prefix_len() > 0).then_some(net))
            }
            "-d" | "--destination" | "--dst" => {
                let net = value::net(family, option, &next()?)?;
                once(&mut rule.destination, option, negated, (net.prefix_len() > 0).then_some(net))
            }
            "-i" | "--in-interface" => {
                once(&mut rule.incoming, option, negated, value::interface(option, &next()?)?)
            }
            "-o" | "--out-interface" => {
                once(&mut rule.outgoing, option, negated, value::interface(option, &next()?)?)
            }
            "-p" | "--protocol" | "--proto" => {
                let number = value::protocol(option, &next()?)?;
                once(&mut rule.protocol, option, negated, (number != 0).then_some(number))
            }
            _ if !option.starts_with('-') => Err(Cause::BadArgument(option.into())),
            "-m" | "--match" | "-j" | "--jump" | "-g" | "--goto" | "-c" | "--set-counters" if negated => {
                Err(Cause::BadArgument("!".into()))
            }
            "-m" | "--match" => {
                let name = next()?;
                let module = Module::new(&MATCHES, &name).ok_or(Cause::NoMatch(name))?;
                self.modules.push(module);
                Ok(())
            }
            "-j" | "--jump" => self.jump(option, next()?),
            "-g" | "--goto" => {
                let chain = next()?;
                self.jump_once(option)?;
                self.rule.target = Target::Goto(chain.into());
                Ok(())
            }
            "-c" | "--set-counters" => next().and_then(|_| next()).map(|_| ()),
            _ => self.extension(option, negated, words),
        }
    }

    fn jump_once(&mut self, option: &str) -> Result<(), Cause> {
        let again = std::mem::replace(&mut self.jumped, true);
        if again { Err(Cause::Repeated(option.into())) } else { Ok(()) }
    }

    fn jump(&mut self, option: &str, name: String) -> Result<(), Cause> {
        self.jump_once(option)?;
        if name.len() > 28 {
            return Err(Cause::NameTooLong(name));
        }
        self.rule.target = match name.as_str() {
            "" => return Err(value::bad(option, "")),
            "ACCEPT" => Target::Accept,
            "DROP" => Target::Drop,
            "RETURN" => Target::Return,
            "QUEUE" => return Err(Cause::Unsupported(name)),
            _ => {
                self.target = Module::new(&TARGETS, &name);
                Target::Jump(name.into())
            }
        };
        Ok(())
    }

    /// An option of a match, the one named last first, of the target, or of the match that `-p` brings with it.
    fn extension(&mut self, option: &str, negated: bool, words: Words<'_>) -> Result<(), Cause> {
        for module in self.modules.iter_mut().rev() {
            // With two of one kind, each has its own option.
            if module.get(option).is_none() && module.take(option, negated, || words.next())? {
                return Ok(());
            }
        }
        if let Some(target) = &mut self.target
            && target.take(option, negated, || words.next())?
        {
            return Ok(());
        }
        if self.modules.iter().any(|m| m.get(option).is_some()) {
            return Err(Cause::Repeated(option.into()));
        }
        let implied = match self.rule.protocol {
            Some(Maybe { negated: false, value }) => Protocol::from_number(value),
            _ => None,
        };
        if let Some(mut module) = implied.and_then(|p| Module::new(&MATCHES, p.as_str()))
            && self.modules.iter().all(|m| m.name != module.name)
            && module.take(option, negated, || words.next())?
        {
            self.modules.push(module);
            return Ok(());
        }
        Err(Cause::UnknownOption(option.into()))
    }

    fn finish(mut self) -> Result<Rule, Cause> {
        let family = self.family;
        let matches = self.modules.iter().map(|m| extension::one_match(m, family));
        self.rule.matches = matches.collect::<Result<_, _>>()?;
        if let Some(target) = &self.target {
            self.rule.target = extension::target(target, family)?;
        }
        self.protocols()?;
        self.rule.text = print::rule(&self.rule, family).into();
        Ok(self.rule)
    }

    /// What needs a protocol has it.
    fn protocols(&self) -> Result<(), Cause> {
        let own = match self.rule.protocol {
            Some(Maybe { negated: false, value }) => Protocol::from_number(value),
            _ => None,
        };
        for one in &self.rule.matches {
            if let Match::Transport { protocol, .. } = one
                && own != Some(*protocol)
            {
                return Err(Cause::NeedsProtocol(protocol.as_str()));
            }
        }
        match self.rule.target {
            Target::Dnat { port: Some(_), .. } if own.is_none() => {
                Err(Cause::NeedsProtocol("tcp, udp or sctp"))
            }
            Target::Reject("tcp-reset") if own != Some(Protocol::Tcp) => Err(Cause::NeedsProtocol("tcp")),
            _ => Ok(()),
        }
    }
}
