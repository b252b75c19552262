//! What was found against what should be there: every difference, in words.

use proxier_core::backend::{Drift, DriftItem};
use proxier_xtables::drift::{chain_text, exact, missing};

use crate::belief::{Belief, Desired};
use crate::edits::address;
use crate::fragment::Balanced;
use crate::objects::{DRAINING, ServiceKey, WEIGHT};
use crate::observed::{Observed, SeenReal, SeenService, wrong_type};
use crate::ops::{DEVICE, drains, real_text, server_text};
use crate::sets::{Entry, SetId};
use crate::skeleton;
use crate::takeover::{is_excluded, is_ours};

/// How the kernel differs from a belief. Connections, and real servers that drain, are no difference.
#[must_use]
pub fn drift(belief: &Belief, seen: &Observed) -> Drift {
    drift_from(belief, &belief.desired(), seen)
}

/// The same, for whoever knows already what this belief says should be there.
pub(crate) fn drift_from(belief: &Belief, desired: &Desired, seen: &Observed) -> Drift {
    let mut items = Vec::new();
    services(belief, desired, seen, &mut items);
    sets(belief, desired, seen, &mut items);
    addresses(desired, seen, &mut items);
    rules(belief, seen, &mut items);
    items.sort_unstable();
    Drift { items }
}

fn services(belief: &Belief, desired: &Desired, seen: &Observed, items: &mut Vec<DriftItem>) {
    for (key, (balanced, _)) in &desired.services {
        match seen.services.get(key) {
            None => {
                let text = server_text(&balanced.server);
                items.push(DriftItem::Missing(format!("virtual server {text}")));
            }
            Some(there) => service(key, balanced, there, items),
        }
    }
    for (key, there) in &seen.services {
        let unwanted = !desired.services.contains_key(key);
        if unwanted && is_ours(key, &belief.env, seen) && !is_excluded(key, &belief.env) {
            items.push(DriftItem::Unexpected(format!("virtual server {}", server_text(&there.server))));
        }
    }
}

fn service(key: &ServiceKey, want: &Balanced, there: &SeenService, items: &mut Vec<DriftItem>) {
    if there.odd || there.server != want.server {
        let odd = if there.odd { ", with settings that are not ours" } else { "" };
        items.push(DriftItem::Different(
            format!("virtual server {}", server_text(&want.server)),
            format!("virtual server {}{odd}", server_text(&there.server)),
        ));
    }
    for real in &want.real {
        let text = |seen: &SeenReal| {
            let odd = if seen.usual { "" } else { ", forwarded otherwise" };
            format!("real server {}{odd}", real_text(key, *real, seen.weight))
        };
        // Nearly all are right, and need no words.
        match there.real.get(real) {
            None => items.push(DriftItem::Missing(text(&SeenReal::PLAIN))),
            Some(seen) if seen.usual && seen.weight == WEIGHT => {}
            Some(seen) => items.push(DriftItem::Different(text(&SeenReal::PLAIN), text(seen))),
        }
    }
    for (real, seen) in &there.real {
        let leaving = seen.weight == DRAINING && drains(key);
        if !leaving && want.real.binary_search(real).is_err() {
            items.push(DriftItem::Unexpected(format!("real server {}", real_text(key, *real, seen.weight))));
        }
    }
}

fn sets(belief: &Belief, desired: &Desired, seen: &Observed, items: &mut Vec<DriftItem>) {
    let family = belief.env.family;
    for id in SetId::ALL {
        let name = id.name(family);
        match seen.sets.get(&id) {
            None => items.push(DriftItem::Missing(format!("set {name}"))),
            Some(set) => {
                if let Some(what) = wrong_type(id, set, family) {
                    items.push(DriftItem::Different(format!("set {name} {}", id.set_type().name()), what));
                }
            }
        }
    }
    let text = |id: SetId, entry: &Entry| format!("entry {} {entry}", id.name(family));
    let lacking = desired.entries.keys().filter(|(id, entry)| !seen.has(*id, entry));
    items.extend(lacking.map(|(id, entry)| DriftItem::Missing(text(*id, entry))));
    for (id, set) in &seen.sets {
        let extra = set.entries.iter().filter(|entry| !desired.entries.contains_key(&(*id, **entry)));
        items.extend(extra.map(|entry| DriftItem::Unexpected(text(*id, entry))));
        let name = id.name(family);
        items.extend(set.strange.iter().map(|e| DriftItem::Unexpected(format!("entry {name} {e}"))));
    }
}

fn addresses(desired: &Desired, seen: &Observed, items: &mut Vec<DriftItem>) {
    if !seen.device {
        items.push(DriftItem::Missing(format!("interface {DEVICE}")));
    }
    let wanted = |(id, entry): &(SetId, Entry)| address(*id, entry);
    let lacking = desired.entries.keys().filter_map(wanted).filter(|ip| !seen.bound.contains(ip));
    items.extend(lacking.map(|ip| DriftItem::Missing(format!("address {ip} of {DEVICE}"))));
    let extra =
        seen.bound.iter().filter(|ip| !desired.entries.contains_key(&(SetId::IpvsIps, Entry::Ip(**ip))));
    items.extend(extra.map(|ip| DriftItem::Unexpected(format!("address {ip} of {DEVICE}"))));
}

fn rules(belief: &Belief, seen: &Observed, items: &mut Vec<DriftItem>) {
    for (id, rules) in skeleton::chains(&belief.env, belief.filled()) {
        match seen.rules.chains.get(&id) {
            None => items.push(DriftItem::Missing(chain_text(&id))),
            Some(there) => items.extend(exact(&id, &rules, there)),
        }
    }
    items.extend(skeleton::missing_jumps(&seen.rules).iter().map(|(from, rule)| missing(from, rule)));
}
