//! When to write and to look.

use std::time::Duration;

use super::unless_zero;
use crate::config::duration::go_duration;
use crate::config::layers::{Layers, Origin};
use crate::config::types::Periods;

/// The longest time between syncs that the loop lets pass anyway (core spec 6.3).
const MAX_MIN_SYNC_PERIOD: Duration = Duration::from_secs(3600);

/// Where the periods of a mode stand: `syncPeriod`, `minSyncPeriod` (core spec 7.3).
pub(in crate::config) fn of_mode(mode: &str) -> (&'static str, &'static str) {
    match mode {
        "ipvs" => ("ipvs.syncPeriod", "ipvs.minSyncPeriod"),
        "nftables" => ("nftables.syncPeriod", "nftables.minSyncPeriod"),
        _ => ("iptables.syncPeriod", "iptables.minSyncPeriod"),
    }
}

/// What stands above the sections holds for every mode; else the section of the mode says it.
pub(super) fn periods(layers: &mut Layers<'_>, mode: &str) -> Periods {
    let (sync_of_mode, min_of_mode) = of_mode(mode);
    let mut chosen = |own: &'static str, section: &'static str| {
        if !layers.value(own).is_null() {
            return (own, layers.duration(own).unwrap_or_default());
        }
        let value = layers.duration(section).unwrap_or_default();
        layers.mean(own, go_duration(value).into(), Origin::Follows(section));
        (section, value)
    };
    let (sync_path, sync) = chosen("syncPeriod", sync_of_mode);
    let (min_path, min_sync) = chosen("minSyncPeriod", min_of_mode);
    if sync.is_zero() {
        layers.complain(sync_path, "must be longer than 0".into());
    }
    if min_sync > sync {
        layers.complain(min_path, format!("longer than {sync_path}, which is {}", go_duration(sync)));
    } else if min_sync > MAX_MIN_SYNC_PERIOD {
        layers.complain(min_path, "longer than an hour".into());
    }
    if layers.duration("configSyncPeriod").is_none_or(|d| d.is_zero()) {
        layers.complain("configSyncPeriod", "must be longer than 0".into());
    }
    let verify = layers.duration("verifyPeriod").and_then(unless_zero);
    Periods { sync, min_sync, verify }
}
