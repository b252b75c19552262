//! New connections, and what they met.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::bail;
use proxier_core::ids::Protocol;

use super::plan::FIRST_CLIENT_PORT;
use super::predict::{Expected, Prediction};
use super::stage::Cast;
use crate::pace::Patience;
use crate::traffic::{Seen, associate_here, connect_here, exchange_here, has_sctp};

/// How long an answer may take.
pub const ANSWER: Duration = Duration::from_secs(3);
/// How long a refusal may take. That it comes at once is checked by a scenario; here are many clients at the same time.
const REFUSAL: Duration = ANSWER;
/// How long nothing must come back to count as silence, and longer where answers take long: see [`silence`].
const SILENCE: Duration = Duration::from_millis(300);
/// Connections for each endpoint that may answer; in full, and under a thin pace.
const EACH: (usize, usize) = (4, 2);
/// Connections where one endpoint alone may answer.
const ALONE: (usize, usize) = (2, 1);
/// Further connections while one was not met yet: of two, one stays unmet once in 10^14 rows.
const FURTHER: usize = 40;
/// Connections of a client that must stay with its endpoint.
const STAYS: (usize, usize) = (6, 3);

/// Source ports: each is used once in a namespace until all were, so that no flow meets what connection tracking remembers of another.
#[derive(Debug, Default)]
pub struct Ports {
    next: Mutex<BTreeMap<&'static str, u16>>,
}

impl Ports {
    /// A port that was not used for long.
    #[must_use]
    pub fn next(&self, namespace: &'static str) -> u16 {
        let mut next = self.next.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let port = next.entry(namespace).or_insert(FIRST_CLIENT_PORT);
        let given = *port;
        *port = given.checked_add(1).unwrap_or(FIRST_CLIENT_PORT);
        given
    }
}

/// What connections met.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observation {
    /// How often what.
    pub met: BTreeMap<Expected, usize>,
    /// Something that is in no list, which ended the row.
    pub odd: Option<String>,
    /// The shortest time after which nothing was taken for silence.
    pub silence: Option<Duration>,
}

impl Observation {
    /// Is it what was expected: all of it and nothing else, or always the same one for a client that stays?
    #[must_use]
    pub fn fits(&self, expected: &BTreeSet<Expected>, sticky: bool) -> bool {
        let known = self.odd.is_none() && self.met.keys().all(|m| expected.contains(m));
        known && if sticky { self.met.len() == 1 } else { self.met.keys().eq(expected.iter()) }
    }
}

impl fmt::Display for Observation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let met = self.met.iter().map(|(what, count)| format!("{count} x {what}"));
        let all: Vec<String> = met.chain(self.odd.clone()).collect();
        f.write_str(&all.join(", "))
    }
}

/// Opens new connections as the prediction says, until it is fulfilled or contradicted; in the namespace of the calling thread.
///
/// # Errors
/// A protocol without sockets.
pub fn observe(prediction: &Prediction, cast: &Cast<'_>) -> anyhow::Result<Observation> {
    if !has_sockets(prediction) {
        bail!("there are no sockets of this protocol here");
    }
    Ok(connections(prediction, cast))
}

/// How long nothing must come back here to count as silence.
#[must_use]
pub fn silence(cast: &Cast<'_>) -> Duration {
    cast.stage.pace.patience.of(SILENCE).max(cast.slowest.silence())
}

/// Can it be observed?
#[must_use]
pub fn has_sockets(prediction: &Prediction) -> bool {
    match prediction.protocol {
        Some(Protocol::Tcp | Protocol::Udp) => true,
        Some(Protocol::Sctp) => has_sctp().is_ok(),
        None => false,
    }
}

fn connections(prediction: &Prediction, cast: &Cast<'_>) -> Observation {
    let expected = &prediction.expected;
    let pace = cast.stage.pace;
    let limit = if expected.contains(&Expected::Silence) {
        silence(cast)
    } else if expected.contains(&Expected::Refused) {
        cast.slowest.answer(REFUSAL, pace.patience)
    } else {
        cast.slowest.answer(ANSWER, pace.patience)
    };
    let waits = expected.contains(&Expected::Silence) || expected.contains(&Expected::Refused);
    let of = |(full, thin)| pace.connections(full, thin);
    let wanted = match (prediction.sticky, expected.len()) {
        (true, _) => of(STAYS),
        (false, 1) if waits => 1,
        (false, 1) => of(ALONE),
        (false, kinds) => of(EACH) * kinds,
    };
    let mut out = Observation::default();
    let mut took = Duration::ZERO;
    for number in 0..wanted + FURTHER {
        if number >= wanted {
            if prediction.sticky || out.met.len() >= expected.len() {
                break;
            }
            std::thread::sleep(out_of_step(took, RandomState::new().hash_one(number)));
        }
        let begun = Instant::now();
        let one = || one(prediction, cast.stage.ports.next(prediction.namespace), limit, pace.patience);
        let seen = if expected.contains(&Expected::Silence) {
            one()
        } else {
            cast.answered(|| Ok::<_, Infallible>(one())).unwrap_or_else(|never| match never {})
        };
        took = begun.elapsed();
        let met = match seen {
            Seen::Answered { server, .. } if prediction.own_source => {
                Expected::Answer(server, prediction.from)
            }
            Seen::Answered { server, client } => {
                cast.slowest.record(took);
                Expected::Answer(server, client)
            }
            Seen::Refused => Expected::Refused,
            Seen::TimedOut => {
                out.silence = Some(limit);
                Expected::Silence
            }
            other => {
                out.odd = Some(other.to_string());
                break;
            }
        };
        let stop = !expected.contains(&met);
        if stop && met == Expected::Silence {
            cast.slowest.record_none();
        }
        *out.met.entry(met).or_default() += 1;
        if stop {
            break;
        }
    }
    out
}

/// How long to pause after a connection that took so long: anything from nothing to twice that. Where endpoints are taken in turn, two clients of one
/// pace would otherwise each meet its own for ever.
fn out_of_step(took: Duration, random: u64) -> Duration {
    let per_mille = u32::try_from(random % 2001).unwrap_or(0);
    took.saturating_mul(per_mille) / 1000
}

fn one(prediction: &Prediction, port: u16, limit: Duration, patience: Patience) -> Seen {
    let from = Some(SocketAddr::new(prediction.from, port));
    match prediction.protocol {
        Some(Protocol::Udp) => exchange_here(from, prediction.to, limit, patience.datagrams()),
        Some(Protocol::Sctp) => associate_here(from, prediction.to, limit),
        _ => connect_here(from, prediction.to, limit),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(server: &str) -> Expected {
        Expected::Answer(server.to_owned(), "10.244.1.20".parse().unwrap())
    }

    fn met(what: &[Expected]) -> Observation {
        Observation { met: what.iter().map(|w| (w.clone(), 1)).collect(), ..Observation::default() }
    }

    #[test]
    fn all_of_what_is_expected_and_nothing_else() {
        let expected = BTreeSet::from([answer("one"), answer("three")]);
        assert!(met(&[answer("one"), answer("three")]).fits(&expected, false));
        assert!(!met(&[answer("one")]).fits(&expected, false));
        assert!(!met(&[answer("one"), answer("three"), answer("four")]).fits(&expected, false));
        assert!(!met(&[Expected::Refused]).fits(&expected, false));
        assert!(!met(&[]).fits(&BTreeSet::new(), true));
    }

    #[test]
    fn a_client_that_stays_meets_one_of_them() {
        let expected = BTreeSet::from([answer("one"), answer("three")]);
        assert!(met(&[answer("three")]).fits(&expected, true));
        assert!(!met(&[answer("one"), answer("three")]).fits(&expected, true));
        assert!(!met(&[answer("four")]).fits(&expected, true));
    }

    /// How many connections two clients make, the one a little behind the other, until each has met both of two endpoints that are taken in turn.
    fn connections_until_both_are_met(mut pause: impl FnMut(Duration) -> Duration) -> Option<usize> {
        let took = Duration::from_millis(20);
        let mut due = [Duration::ZERO, Duration::from_millis(7)];
        let (mut met, mut turn) = ([[0_usize; 2]; 2], 0);
        while met.iter().all(|m| m.iter().sum::<usize>() < FURTHER) {
            let client = usize::from(due[1] < due[0]);
            met[client][turn] += 1;
            turn = 1 - turn;
            due[client] += took + pause(took);
            if met.iter().flatten().all(|count| *count > 0) {
                return Some(met.iter().flatten().sum());
            }
        }
        None
    }

    #[test]
    fn two_clients_of_endpoints_in_turn_get_out_of_step() {
        assert_eq!(connections_until_both_are_met(|_| Duration::ZERO), None, "in step they stay");
        for seed in 0..100_u64 {
            let mut number = seed << 32;
            let random = |took| {
                number += 1;
                let bits = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
                out_of_step(took, bits.wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 11)
            };
            assert!(connections_until_both_are_met(random).is_some(), "{seed}");
        }
    }

    #[test]
    fn something_odd_fits_nothing() {
        let odd = Observation { odd: Some("unreachable".into()), ..met(&[answer("one")]) };
        assert!(!odd.fits(&BTreeSet::from([answer("one")]), false));
    }

    #[test]
    fn source_ports_are_given_once_until_all_were() {
        let ports = Ports::default();
        assert_eq!((ports.next("a"), ports.next("a"), ports.next("b")), (32_000, 32_001, 32_000));
        let all: BTreeSet<u16> = (0..u32::from(u16::MAX)).map(|_| ports.next("c")).collect();
        assert_eq!((all.first(), all.last()), (Some(&32_000), Some(&u16::MAX)));
    }
}
