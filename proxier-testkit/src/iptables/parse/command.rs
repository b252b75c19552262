//! Lines of a table.

use std::sync::Arc;

use proxier_core::ids::IpFamily;

use super::{is_target, rule};
use crate::iptables::ast::Rule;
use crate::iptables::error::Cause;
use crate::iptables::token::words;

/// Which rule of a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::iptables) enum Position {
    /// The one with this number, counted from 1.
    Number(usize),
    /// The first one that is the same.
    Same(Rule),
}

/// What is done to a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::iptables) enum Command {
    /// `:CHAIN POLICY`: `None` is `-`.
    Declare(Arc<str>, Option<bool>),
    /// `-N`.
    New(Arc<str>),
    /// `-A`.
    Append(Arc<str>, Rule),
    /// `-I`, counted from 1.
    Insert(Arc<str>, usize, Rule),
    /// `-R`, counted from 1.
    Replace(Arc<str>, usize, Rule),
    /// `-D`.
    Delete(Arc<str>, Position),
    /// `-C`.
    Check(Arc<str>, Rule),
    /// `-F`, of all chains without a name.
    Flush(Option<Arc<str>>),
    /// `-X`, of all chains of our own without a name.
    DeleteChain(Option<Arc<str>>),
    /// `-P`: true accepts.
    Policy(Arc<str>, bool),
}

/// A name for a chain.
pub(in crate::iptables) fn chain_name(name: &str) -> Result<Arc<str>, Cause> {
    if name.len() > 28 {
        return Err(Cause::NameTooLong(name.into()));
    }
    if name.is_empty() || name.starts_with(['-', '!']) || is_target(name) {
        return Err(Cause::BadName(name.into()));
    }
    Ok(name.into())
}

fn policy(name: &str) -> Result<Option<bool>, Cause> {
    match name {
        "-" => Ok(None),
        "ACCEPT" => Ok(Some(true)),
        "DROP" => Ok(Some(false)),
        other => Err(Cause::BadValue { option: "policy".into(), value: other.into() }),
    }
}

/// A command, as a line or already split.
#[derive(Debug)]
pub(in crate::iptables) enum Line<'l> {
    /// A line of an input.
    Text(&'l str),
    /// Words of a command line.
    Words(Vec<String>),
}

/// A line of a table that is neither blank nor a comment, nor `COMMIT`.
pub(in crate::iptables) fn command(family: IpFamily, line: Line<'_>) -> Result<Command, Cause> {
    let mut words = match line {
        Line::Text(text) if text.starts_with(':') => return declaration(text),
        Line::Text(text) => words(without_counters(text)?).into_iter(),
        Line::Words(words) => words.into_iter(),
    };
    let option = words.next().ok_or(Cause::Missing("a command"))?;
    let command = with_words(family, &option, &mut words)?;
    words.next().map_or(Ok(command), |word| Err(Cause::BadArgument(word)))
}

/// `:CHAIN POLICY`; the tool does not look at what follows.
fn declaration(line: &str) -> Result<Command, Cause> {
    let mut words = line.trim_start_matches(':').split_whitespace();
    let name = chain_name(words.next().unwrap_or_default())?;
    let policy = policy(words.next().ok_or(Cause::Missing("policy"))?)?;
    Ok(Command::Declare(name, policy))
}

/// Cuts `[packets:bytes]` off the front.
fn without_counters(line: &str) -> Result<&str, Cause> {
    let Some(rest) = line.trim_start().strip_prefix('[') else { return Ok(line) };
    let bad = || Cause::BadValue { option: "counters".into(), value: line.into() };
    let (counters, rest) = rest.split_once(']').ok_or_else(bad)?;
    let (packets, bytes) = counters.split_once(':').ok_or_else(bad)?;
    let both: Result<Vec<u64>, _> = [packets, bytes].iter().map(|n| n.parse()).collect();
    both.map(|_| rest).map_err(|_| bad())
}

fn with_words(
    family: IpFamily,
    option: &str,
    words: &mut std::vec::IntoIter<String>,
) -> Result<Command, Cause> {
    let mut chain = || chain_name(&words.next().ok_or_else(|| Cause::NeedsArgument(option.into()))?);
    Ok(match option {
        "-N" | "--new-chain" => Command::New(chain()?),
        "-A" | "--append" => Command::Append(chain()?, rule(family, words)?),
        "-C" | "--check" => Command::Check(chain()?, rule(family, words)?),
        "-I" | "--insert" => {
            let chain = chain()?;
            let number = number(words)?.unwrap_or(1);
            Command::Insert(chain, number, rule(family, words)?)
        }
        "-R" | "--replace" => {
            let chain = chain()?;
            let number = number(words)?.ok_or(Cause::Missing("rule number"))?;
            Command::Replace(chain, number, rule(family, words)?)
        }
        "-D" | "--delete" => {
            let chain = chain()?;
            let position = match number(words)? {
                Some(number) => Position::Number(number),
                None => Position::Same(rule(family, words)?),
            };
            Command::Delete(chain, position)
        }
        "-F" | "--flush" => Command::Flush(words.next().map(|n| chain_name(&n)).transpose()?),
        "-X" | "--delete-chain" => Command::DeleteChain(words.next().map(|n| chain_name(&n)).transpose()?),
        "-P" | "--policy" => {
            let chain = chain()?;
            let name = words.next().ok_or_else(|| Cause::NeedsArgument(option.into()))?;
            Command::Policy(chain, policy(&name)?.ok_or(Cause::Missing("policy"))?)
        }
        // In an input, -Z of the nft variant undoes what stands before it.
        "-Z" | "--zero" | "-E" | "--rename-chain" | "-S" | "--list-rules" | "-L" | "--list" => {
            return Err(Cause::Unsupported(option.into()));
        }
        word if word.starts_with("--") => return Err(Cause::UnknownOption(word.into())),
        word => return Err(Cause::BadArgument(word.into())),
    })
}

/// A rule number, if one is next.
fn number(words: &mut std::vec::IntoIter<String>) -> Result<Option<usize>, Cause> {
    let Some(word) = words.as_slice().first().filter(|w| !w.starts_with(['-', '!'])) else { return Ok(None) };
    let number = word.parse().ok().filter(|n| *n > 0);
    let value = word.clone();
    words.next();
    number.map(Some).ok_or(Cause::BadValue { option: "rule number".into(), value })
}
