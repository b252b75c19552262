//! Durations as Go writes them, which is how Kubernetes configuration does: `1m30s`, `500ms`, `1.5h`.

use std::time::Duration;

use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor};

/// Units and their length in nanoseconds; a unit that begins like another one comes first.
const UNITS: [(&str, u128); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("\u{b5}s", 1_000),
    ("\u{3bc}s", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60 * 1_000_000_000),
    ("h", 3_600 * 1_000_000_000),
];

/// Why a text is not a duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DurationError {
    /// Not a sequence of numbers and units.
    #[error("{0:?} is not a duration such as 30s, 1m30s or 500ms")]
    Syntax(String),
    /// Below zero.
    #[error("{0:?} is negative")]
    Negative(String),
    /// More than about 584 years.
    #[error("{0:?} is too long")]
    TooLong(String),
}

/// Reads a duration: numbers, each with a unit of `ns`, `us`, `ms`, `s`, `m`, `h`; fractions are allowed, and `0` needs no unit.
///
/// # Errors
/// When it is not one, is negative, or is too long.
pub fn parse_duration(text: &str) -> Result<Duration, DurationError> {
    let syntax = || DurationError::Syntax(text.to_owned());
    let negative = text.starts_with('-');
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    let mut nanos: u128 = 0;
    if rest != "0" {
        if rest.is_empty() {
            return Err(syntax());
        }
        while !rest.is_empty() {
            let (value, after) = term(rest).ok_or_else(syntax)?;
            nanos = nanos.saturating_add(value);
            rest = after;
        }
    }
    if negative && nanos > 0 {
        return Err(DurationError::Negative(text.to_owned()));
    }
    let nanos = u64::try_from(nanos).map_err(|_| DurationError::TooLong(text.to_owned()))?;
    Ok(Duration::from_nanos(nanos))
}

/// The first number with its unit, in nanoseconds (cut off below one), and the rest. A number too large saturates.
fn term(text: &str) -> Option<(u128, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, rest) = text.split_at(end);
    let (unit, scale) = UNITS.iter().find(|(unit, _)| rest.starts_with(unit))?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.len() + fraction.len() == 0 || fraction.contains('.') {
        return None;
    }
    let digit = |b: u8| u128::from(b - b'0');
    let whole = whole.bytes().fold(0u128, |n, b| n.saturating_mul(10).saturating_add(digit(b)));
    // 18 digits are more than the longest unit has nanoseconds
    let kept = fraction.get(..18).unwrap_or(fraction);
    let (part, base) = kept.bytes().fold((0u128, 1u128), |(n, base), b| (n * 10 + digit(b), base * 10));
    Some((whole.saturating_mul(*scale).saturating_add(part * scale / base), &rest[unit.len()..]))
}

/// A number of nanoseconds.
pub(super) fn nanoseconds(number: u64) -> Duration {
    Duration::from_nanos(number)
}

/// As Go prints a duration: `15m0s`, `1.5s`, `500ms`, `0s`.
#[must_use]
pub fn go_duration(duration: Duration) -> String {
    let nanos = duration.as_nanos();
    let fraction = |whole: u128, part: u128, digits: usize| {
        let text = format!("{whole}.{part:0digits$}");
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    };
    match nanos {
        0 => "0s".to_owned(),
        1..1_000 => format!("{nanos}ns"),
        1_000..1_000_000 => format!("{}\u{b5}s", fraction(nanos / 1_000, nanos % 1_000, 3)),
        1_000_000..1_000_000_000 => format!("{}ms", fraction(nanos / 1_000_000, nanos % 1_000_000, 6)),
        _ => {
            let (minutes, rest) = (nanos / 60_000_000_000, nanos % 60_000_000_000);
            let seconds = fraction(rest / 1_000_000_000, rest % 1_000_000_000, 9);
            match (minutes / 60, minutes % 60) {
                (0, 0) => format!("{seconds}s"),
                (0, minutes) => format!("{minutes}m{seconds}s"),
                (hours, minutes) => format!("{hours}h{minutes}m{seconds}s"),
            }
        }
    }
}

/// A [`Duration`] as configuration writes it: a text for [`parse_duration`], or the number 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Written(pub Duration);

impl<'de> Deserialize<'de> for Written {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = Written;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a duration such as 30s")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Written, E> {
                parse_duration(text).map(Written).map_err(E::custom)
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Written, E> {
                if number == 0 {
                    Ok(Written(Duration::ZERO))
                } else {
                    Err(E::custom(format!("{number} has no unit, such as {number}s")))
                }
            }
        }
        deserializer.deserialize_any(Text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn go_durations() {
        let cases: [(&str, u64); 14] = [
            ("0", 0),
            ("-0s", 0),
            ("0s", 0),
            ("1ns", 1),
            ("500ms", 500_000_000),
            ("1m30s", 90_000_000_000),
            ("1h", 3_600_000_000_000),
            ("1.5h", 5_400_000_000_000),
            (".5s", 500_000_000),
            ("1.s", 1_000_000_000),
            ("+3us", 3_000),
            ("3\u{b5}s", 3_000),
            ("1.9ns", 1),
            ("0.333333333333333333333m", 19_999_999_999),
        ];
        for (text, nanos) in cases {
            assert_eq!(parse_duration(text), Ok(Duration::from_nanos(nanos)), "{text}");
        }
    }

    #[test]
    fn durations_are_printed_as_go_prints_them() {
        for text in [
            "0s",
            "1ns",
            "1.5\u{b5}s",
            "500ms",
            "1.25ms",
            "1s",
            "1.5s",
            "1m30s",
            "15m0s",
            "24h0m0s",
            "1h0m0.5s",
        ] {
            assert_eq!(go_duration(parse_duration(text).expect(text)), text);
        }
    }

    #[test]
    fn what_is_no_duration() {
        for text in ["", "-", "30", "s", ".s", "1.2.3s", "30 s", "3d", "1s2", "s1", "1S"] {
            assert_eq!(parse_duration(text), Err(DurationError::Syntax(text.to_owned())), "{text}");
        }
        assert_eq!(parse_duration("-1s"), Err(DurationError::Negative("-1s".into())));
        for long in ["9999999999h", "99999999999999999999999999999999999999999999s"] {
            assert_eq!(parse_duration(long), Err(DurationError::TooLong(long.into())));
        }
    }

    #[test]
    fn numbers_need_a_unit() {
        assert_eq!(serde_json::from_str::<Written>("0").expect("zero"), Written(Duration::ZERO));
        let error = serde_json::from_str::<Written>("5").expect_err("no unit").to_string();
        assert!(error.contains("5 has no unit, such as 5s"), "{error}");
    }
}
