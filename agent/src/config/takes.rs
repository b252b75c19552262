//! What a setting takes: is a value of that kind, and in which form is it kept.

use serde_json::{Value, json};

use super::duration::{Written, go_duration, nanoseconds};
use super::table::nearest;
use super::text::{self, PRIMARY};
use crate::source::kubernetes::check_server;
use crate::telemetry::parse_filter;

/// What a setting takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Takes {
    /// Any text.
    Text,
    /// The address of an API server.
    Server,
    /// True or false.
    Bool,
    /// A whole number between these two.
    Int(i64, i64),
    /// Any number.
    Number,
    /// A duration.
    Duration,
    /// A duration of whole seconds.
    Seconds,
    /// A duration, or whole nanoseconds.
    Pause,
    /// A size such as `4Mi`.
    Quantity,
    /// An address (core spec 1.6).
    Address,
    /// Address and port to listen on; an address alone gets this port. Empty for none.
    Listen(u16),
    /// Nothing, or the minor version before kube-proxy's.
    PreviousMinor,
    /// A list of ranges.
    Cidrs,
    /// A list of addresses.
    Ips,
    /// A list of Services, `namespace/name`.
    Services,
    /// A list of ranges, or only the word `primary` (core spec 7.2).
    NodePortAddresses,
    /// A list of mappings of `filePattern` and `verbosity`.
    Modules,
    /// One of these.
    OneOf(&'static [&'static str]),
    /// The name of a backend, or `auto`.
    Mode,
    /// A list of names of backends.
    Modes,
    /// A log filter.
    LogFilter,
}

/// The mode that takes the first backend that this machine can serve.
pub const AUTO: &str = "auto";

/// The version whose `showHiddenMetricsForVersion` is known (core spec 7.2).
const PREVIOUS_MINOR: &str = "1.35";

/// What is wrong with a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Complaint {
    /// Where below the setting: empty, or `[2]`.
    pub(super) place: String,
    /// What.
    pub(super) message: String,
    /// It is not even of the right type; such a file is refused whatever the mode (core spec 7.1).
    pub(super) wrong_type: bool,
}

impl Complaint {
    fn typed(message: String) -> Vec<Self> {
        vec![Self { place: String::new(), message, wrong_type: true }]
    }

    fn valued(message: String) -> Vec<Self> {
        vec![Self { place: String::new(), message, wrong_type: false }]
    }
}

/// Is this a value that the setting takes?
pub(super) fn check(takes: Takes, value: &Value, backends: &[&str]) -> Vec<Complaint> {
    match takes {
        Takes::Bool if value.is_boolean() => Vec::new(),
        Takes::Bool => Complaint::typed(expected("true or false", value)),
        Takes::Number if value.is_number() => Vec::new(),
        Takes::Number => Complaint::typed(expected("a number", value)),
        Takes::Int(least, most) => int(value, least, most),
        Takes::Duration | Takes::Seconds | Takes::Pause => duration(takes, value),
        Takes::Quantity => quantity(value),
        Takes::Cidrs => each(value, "a list of CIDRs", |t| text::cidr(t).err()),
        Takes::Ips => each(value, "a list of IP addresses", |t| text::ip(t).err()),
        Takes::Services => each(value, "a list of Services", |t| text::service(t).err()),
        Takes::NodePortAddresses => each(value, "a list of CIDRs, or [primary]", |t| match t {
            PRIMARY if value.as_array().is_some_and(|a| a.len() == 1) => None,
            PRIMARY => Some("primary stands alone: [primary]".into()),
            _ => text::cidr(t).err(),
        }),
        Takes::Modes => match value.as_array() {
            Some(list) if list.is_empty() => Complaint::valued("name one mode at least".into()),
            _ => each(value, "a list of modes", |t| one_of(t, backends)),
        },
        Takes::Modules => modules(value),
        _ => match value.as_str() {
            None => Complaint::typed(expected("a text", value)),
            Some(text) => check_text(takes, text, backends).map(Complaint::valued).unwrap_or_default(),
        },
    }
}

fn check_text(takes: Takes, text: &str, backends: &[&str]) -> Option<String> {
    match takes {
        Takes::Server if !text.is_empty() => check_server(text).err(),
        Takes::Address => text::ip(text).err(),
        Takes::Listen(port) if !text.is_empty() => text::listen(text, port).err(),
        Takes::PreviousMinor if !text.is_empty() && text != PREVIOUS_MINOR => {
            Some(format!("{text:?} is not {PREVIOUS_MINOR}, the only version that has hidden metrics"))
        }
        Takes::OneOf(names) => one_of(text, names),
        Takes::Mode if backends.is_empty() => Some("this program was built without any backend".into()),
        Takes::Mode => one_of(text, &[backends, &[AUTO]].concat()),
        Takes::LogFilter => parse_filter(text).err().map(|e| e.to_string()),
        _ => None,
    }
}

fn int(value: &Value, least: i64, most: i64) -> Vec<Complaint> {
    let what = if most == i64::from(i32::MAX) {
        format!("a number from {least} up")
    } else {
        format!("a number from {least} to {most}")
    };
    match value {
        Value::Number(n) if n.as_i64().is_some_and(|n| (least..=most).contains(&n)) => Vec::new(),
        Value::Number(n) if n.is_f64() => Complaint::typed(expected("a whole number", value)),
        Value::Number(_) => Complaint::valued(expected(&what, value)),
        _ => Complaint::typed(expected(&what, value)),
    }
}

fn duration(takes: Takes, value: &Value) -> Vec<Complaint> {
    match (serde_json::from_value::<Written>(value.clone()), value) {
        (Ok(_), _) => Vec::new(),
        (Err(_), Value::Number(n)) if takes == Takes::Pause && n.as_u64().is_some() => Vec::new(),
        (Err(_), Value::Number(n)) if takes == Takes::Pause && n.as_i64().is_some() => {
            Complaint::valued(format!("{n} is negative"))
        }
        (Err(e), Value::String(text)) => {
            let message = e.to_string();
            if text.starts_with('-') { Complaint::valued(message) } else { Complaint::typed(message) }
        }
        (Err(e), Value::Number(_)) => Complaint::typed(e.to_string()),
        (Err(_), _) => Complaint::typed(expected("a duration such as 30s", value)),
    }
}

/// As Kubernetes writes sizes: a number with one of a few endings.
fn quantity(value: &Value) -> Vec<Complaint> {
    let sized = |text: &str| {
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let ending = &text[digits.len()..];
        let endings = ["", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
        digits.parse::<f64>().is_ok_and(|n| n >= 0.0) && endings.contains(&ending)
    };
    match value {
        Value::Number(_) => Vec::new(),
        Value::String(text) if sized(text) => Vec::new(),
        Value::String(text) => Complaint::typed(format!("{text:?} is not a size such as 4Mi")),
        _ => Complaint::typed(expected("a size such as 4Mi", value)),
    }
}

fn modules(value: &Value) -> Vec<Complaint> {
    let Some(items) = value.as_array() else {
        return Complaint::typed(expected("a list of patterns with a verbosity", value));
    };
    let one = |item: &Value| {
        let (pattern, verbosity) = (item.get("filePattern").and_then(Value::as_str), item.get("verbosity"));
        let level =
            verbosity.is_none_or(|v| v.as_i64().is_some_and(|n| (0..=i64::from(i32::MAX)).contains(&n)));
        match pattern {
            Some(p) if p.is_empty() || p.contains(['=', ',']) => {
                Some((format!("filePattern: {p:?} is empty, or has = or , in it"), false))
            }
            Some(_) if level => None,
            Some(_) => Some(("verbosity: expected a number from 0 up".into(), true)),
            None => Some((expected("a mapping of filePattern and verbosity", item), true)),
        }
    };
    let place = |i: usize, (message, wrong_type)| Complaint { place: format!("[{i}]"), message, wrong_type };
    items.iter().enumerate().filter_map(|(i, item)| Some(place(i, one(item)?))).collect()
}

fn one_of(text: &str, names: &[&str]) -> Option<String> {
    (!names.contains(&text)).then(|| {
        let hint = nearest(text, names.iter().copied()).map(|n| format!("; did you mean {n}?"));
        format!("{text:?} is not one of {}{}", names.join(", "), hint.unwrap_or_default())
    })
}

fn each(value: &Value, what: &str, complain: impl Fn(&str) -> Option<String>) -> Vec<Complaint> {
    let Some(items) = value.as_array() else { return Complaint::typed(expected(what, value)) };
    let one = |item: &Value| match item.as_str() {
        Some(text) => Some((complain(text)?, false)),
        None => Some((expected("a text", item), true)),
    };
    let place = |i: usize, (message, wrong_type)| Complaint { place: format!("[{i}]"), message, wrong_type };
    items.iter().enumerate().filter_map(|(i, item)| Some(place(i, one(item)?))).collect()
}

/// A value that was checked, in the form in which it is kept: durations as Go prints them, addresses with their port.
pub(super) fn kept(takes: Takes, value: &Value) -> Value {
    match (takes, value) {
        (Takes::Duration | Takes::Seconds, _) => {
            let read = serde_json::from_value::<Written>(value.clone());
            read.map_or_else(|_| value.clone(), |w| go_duration(w.0).into())
        }
        (Takes::Pause, Value::Number(n)) => go_duration(nanoseconds(n.as_u64().unwrap_or_default())).into(),
        (Takes::Pause, _) => kept(Takes::Duration, value),
        (Takes::Listen(port), Value::String(text)) if !text.is_empty() => {
            text::listen(text, port).map_or_else(|_| value.clone(), |at| at.to_string().into())
        }
        (Takes::Quantity, Value::Number(n)) => n.to_string().into(),
        (Takes::Modules, Value::Array(items)) => {
            let one = |m: &Value| json!({ "filePattern": m["filePattern"], "verbosity": m["verbosity"].as_i64().unwrap_or(0) });
            items.iter().map(one).collect::<Vec<_>>().into()
        }
        _ => value.clone(),
    }
}

/// Is it an empty value, as Go has one for every type?
pub(super) fn is_empty(takes: Takes, value: &Value) -> bool {
    match value {
        Value::String(text) if matches!(takes, Takes::Duration | Takes::Seconds | Takes::Pause) => {
            super::duration::parse_duration(text).is_ok_and(|d| d.is_zero())
        }
        Value::String(text) => text.is_empty(),
        Value::Number(n) => n.as_f64() == Some(0.0),
        Value::Bool(b) => !b,
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::Null => true,
    }
}

/// `expected a list, found the number 3`.
pub(super) fn expected(what: &str, found: &Value) -> String {
    let found = match found {
        Value::Null => "nothing".into(),
        Value::Bool(b) => format!("{b}"),
        Value::Number(n) => format!("the number {n}"),
        Value::String(s) => format!("the text {s:?}"),
        Value::Array(_) => "a list".into(),
        Value::Object(_) => "a mapping".into(),
    };
    format!("expected {what}, found {found}")
}
