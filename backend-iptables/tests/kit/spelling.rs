//! The specification's spelling of rules, turned into the tool's own.

use std::collections::BTreeMap;

/// Words of a rule; a quoted one keeps its quotes.
fn words(rule: &str) -> Vec<String> {
    let mut out = vec![String::new()];
    let mut quoted = false;
    for c in rule.chars() {
        quoted ^= c == '"';
        match c {
            ' ' if !quoted => out.push(String::new()),
            c => out.last_mut().unwrap().push(c),
        }
    }
    out.retain(|w| !w.is_empty());
    out
}

fn number(text: &str) -> u32 {
    u32::from_str_radix(text.trim_start_matches("0x"), 16).unwrap()
}

fn kept(probability: &str) -> String {
    let one = 2_147_483_648.0;
    format!("{:.11}", (probability.parse::<f64>().unwrap() * one).round() / one)
}

/// What the tool saves for an IPv4 rule (iptables spec 11, last paragraph).
pub fn saved(rule: &str) -> String {
    let mut first: BTreeMap<u8, String> = BTreeMap::new();
    let mut rest: Vec<String> = Vec::new();
    let mut recent: Option<String> = None;
    let (mut words, mut not) = (words(rule).into_iter(), "");
    while let Some(word) = words.next() {
        let mut next = || words.next().unwrap();
        if recent.is_some() && matches!(word.as_str(), "-m" | "-j") {
            let name = recent.take().unwrap();
            rest.push(format!("--name {name} --mask 255.255.255.255 --rsource"));
        }
        let text = match word.as_str() {
            "!" => {
                not = "! ";
                continue;
            }
            option @ ("-s" | "-d" | "-p") => {
                let value = next();
                let length = if option == "-p" || value.contains('/') { "" } else { "/32" };
                let place = match option {
                    "-s" => 0,
                    "-d" => 1,
                    _ => 2,
                };
                first.insert(place, format!("{}{option} {value}{length} ", std::mem::take(&mut not)));
                continue;
            }
            "--name" => {
                recent = Some(next());
                continue;
            }
            // A comment without a blank has no quotes there; the tool quotes all but letters, digits, `_` and `-`.
            "--comment" => {
                let value = next();
                let quotes = if value.starts_with('"') || !value.contains(['/', ':']) { "" } else { "\"" };
                format!("--comment {quotes}{value}{quotes}")
            }
            "--probability" => format!("--probability {}", kept(&next())),
            "--mark" => {
                let value = next();
                let (mark, mask) = value.split_once('/').unwrap();
                format!("--mark {:#x}/{:#x}", number(mark), number(mask))
            }
            "--or-mark" => {
                let mark = number(&next());
                format!("--set-xmark {mark:#x}/{mark:#x}")
            }
            "--xor-mark" => format!("--set-xmark {:#x}/0x0", number(&next())),
            "REJECT" => "REJECT --reject-with icmp-port-unreachable".to_owned(),
            other => other.to_owned(),
        };
        rest.push(format!("{}{text}", std::mem::take(&mut not)));
    }
    first.into_values().collect::<String>() + &rest.join(" ")
}
