//! Equal rules that are spelled differently.
//!
//! `iptables-save` 1.8.9 prints the same text in both variants, and what is written in that spelling is read back letter for letter. Other
//! versions may order matches otherwise, leave defaults out or quote differently. A probe finds that out (see
//! [`crate::feature::printed_alike`]); then rules are compared by what [`canonical`] makes of them.

/// A form that does not depend on order of matches, quotes, defaults and digits: for comparing, not for the tool.
#[must_use]
pub fn canonical(rule: &str) -> String {
    let words = words(rule);
    let mut parts: Vec<Vec<String>> = Vec::new();
    let mut negated = false;
    for word in words {
        // A negation belongs to what follows.
        if word == "!" {
            negated = true;
            continue;
        }
        let begins = matches!(word.as_str(), "-s" | "-d" | "-i" | "-o" | "-p" | "-m" | "-j" | "-g");
        if begins || parts.is_empty() {
            parts.push(Vec::new());
        }
        let Some(part) = parts.last_mut() else { continue };
        if negated {
            part.push("!".to_owned());
            negated = false;
        }
        part.push(word);
    }
    let mut texts: Vec<String> = parts.iter().filter_map(|part| part_text(part)).collect();
    texts.sort();
    texts.join(" ")
}

/// Words, without the quotes around some.
fn words(rule: &str) -> Vec<String> {
    let (mut words, mut word) = (Vec::new(), String::new());
    let (mut quoted, mut any, mut escaped) = (false, false, false);
    for c in rule.chars() {
        match c {
            _ if escaped => {
                word.push(c);
                escaped = false;
            }
            '\\' if quoted => escaped = true,
            '"' => {
                quoted = !quoted;
                any = true;
            }
            ' ' if !quoted => {
                if any {
                    words.push(std::mem::take(&mut word));
                }
                any = false;
            }
            _ => {
                word.push(c);
                any = true;
            }
        }
    }
    if any {
        words.push(word);
    }
    words
}

/// An option that says what is meant without it.
const DEFAULT: &str = "--rsource";
const PROTOCOLS: [&str; 3] = ["tcp", "udp", "sctp"];

/// One match, address or target; `None` if it says nothing.
fn part_text(part: &[String]) -> Option<String> {
    // `-m tcp` beside `-p tcp`.
    if part.len() == 2
        && part.first().is_some_and(|w| w == "-m")
        && part.get(1).is_some_and(|w| PROTOCOLS.contains(&w.as_str()))
    {
        return None;
    }
    let mut out: Vec<Vec<String>> = Vec::new();
    for word in part {
        let new = word.starts_with('-') || word == "!" || out.is_empty();
        let after_not = out.last().is_some_and(|o| o.last().is_some_and(|w| w == "!"));
        if new && !after_not {
            out.push(Vec::new());
        }
        if let Some(option) = out.last_mut() {
            option.push(value(option.last().map(String::as_str), word));
        }
    }
    out.retain(|option| {
        let name = option.first().map_or("", String::as_str);
        let all = matches!(
            option.get(1).map(String::as_str),
            Some("255.255.255.255" | "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff")
        );
        let port = matches!(
            option.get(1).map(String::as_str),
            Some("icmp-port-unreachable" | "icmp6-port-unreachable")
        );
        name != DEFAULT && !(name == "--mask" && all) && !(name == "--reject-with" && port)
    });
    // The name of the match or target stays first.
    if let Some(options) = out.get_mut(1..) {
        options.sort();
    }
    Some(out.concat().join(" "))
}

/// A value as it is meant: host addresses without their length, chances as the kernel keeps them.
fn value(option: Option<&str>, word: &str) -> String {
    match option {
        Some("-s" | "-d") => word.trim_end_matches("/32").trim_end_matches("/128").to_owned(),
        Some("--probability") => {
            // In multiples of 1 / 2^31 (linux/netfilter/xt_statistic.h).
            word.parse::<f64>().map_or_else(|_| word.to_owned(), |p| format!("{:.0}", p * 2_147_483_648.0))
        }
        _ => word.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_of_one_rule_are_one() {
        for (a, b) in [
            (
                "-d 10.96.0.1/32 -p tcp -m comment --comment \"a b\" -m tcp --dport 443 -j KUBE-SVC-A",
                "-p tcp -d 10.96.0.1 -m tcp --dport 443 -m comment --comment \"a b\" -j KUBE-SVC-A",
            ),
            (
                "-p tcp -m comment --comment \"web/sticky\" -m recent --set --name A --mask 255.255.255.255 --rsource -m tcp -j DNAT --to-destination 1.2.3.4:5",
                "-p tcp -m tcp -m comment --comment web/sticky -m recent --name A --set -j DNAT --to-destination 1.2.3.4:5",
            ),
            (
                "-m statistic --mode random --probability 0.33333333349 -j X",
                "-m statistic --mode random --probability 0.3333333333 -j X",
            ),
            ("-p tcp -j REJECT --reject-with icmp-port-unreachable", "-p tcp -j REJECT"),
            ("! -s 10.0.0.0/8 -d 127.0.0.0/8 -j DROP", "-d 127.0.0.0/8 ! -s 10.0.0.0/8 -j DROP"),
        ] {
            assert_eq!(canonical(a), canonical(b));
        }
    }

    #[test]
    fn other_rules_stay_others() {
        let rules = [
            "-d 10.96.0.1/32 -j X",
            "! -d 10.96.0.1/32 -j X",
            "-s 10.96.0.1/32 -j X",
            "-d 10.96.0.1/31 -j X",
            "-d 10.96.0.1/32 -j Y",
            "-d 10.96.0.1/32 -g X",
            "-d 10.96.0.1/32 -p tcp -j X",
            "-d 10.96.0.1/32 -p tcp -m tcp --dport 1 -j X",
            "-d 10.96.0.1/32 -p tcp -m tcp ! --dport 1 -j X",
            "-m statistic --mode random --probability 0.5 -j X",
            "-m statistic --mode random --probability 0.25 -j X",
            "-j REJECT",
            "-j REJECT --reject-with icmp-host-unreachable",
            "-m comment --comment \"a -j X\"",
            "-m comment --comment a -j X",
        ];
        let mut forms: Vec<_> = rules.iter().map(|r| canonical(r)).collect();
        forms.sort();
        forms.dedup();
        assert_eq!(forms.len(), rules.len());
    }
}
