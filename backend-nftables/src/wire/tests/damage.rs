//! A kernel's answer is not trusted: damaged messages give foreign objects or nothing, never a panic.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proxier_core::ids::IpFamily;

use super::super::decode::{Names, content_of, read_elements};
use super::super::encode;
use super::super::parse::{RawChain, RawRule, RawSet};
use super::super::raise::{Content, Raiser};
use super::roundtrip::messages;
use super::samples::{Sample, name};

/// Reads a message as everything it could be.
fn read(family: IpFamily, payload: &[u8]) {
    let anonymous = BTreeMap::from([
        ("__set%d".to_owned(), Content::Networks(Vec::new())),
        ("__map%d".to_owned(), Content::Chains(vec![name("a")])),
    ]);
    let raiser = Raiser { family, anonymous: &anonymous };
    if let Some(raw) = RawRule::read(payload) {
        let _ = raiser.rule(&raw);
    }
    let _ = RawChain::read(payload).map(|raw| raw.name.len());
    if let Some(raw) = RawSet::read(payload) {
        let _ = content_of(family, &raw, &[payload]);
    }
    for set in Sample::sets() {
        let _ = read_elements(family, &set, payload, &mut Names::default());
    }
}

fn sample_messages() -> Vec<(IpFamily, Vec<u8>)> {
    let mut out = Vec::new();
    for family in IpFamily::ALL {
        let sample = Sample { family };
        let encoded = encode(&sample.table(), &sample.ops()).unwrap();
        let all = messages(encoded.batch.bytes().unwrap());
        out.extend(all.into_iter().map(|(_, payload)| (family, payload.to_vec())));
    }
    out
}

#[test]
fn every_beginning_of_every_message_is_read_without_panic() {
    for (family, message) in sample_messages() {
        for end in 0..=message.len() {
            read(family, &message[..end]);
        }
    }
}

proptest! {
    #[test]
    fn changed_bytes_are_read_without_panic(
        pick in any::<prop::sample::Index>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let all = sample_messages();
        let (family, mut message) = all[pick.index(all.len())].clone();
        for (at, byte) in changes {
            let at = at.index(message.len());
            message[at] = byte;
        }
        read(family, &message);
    }
}
