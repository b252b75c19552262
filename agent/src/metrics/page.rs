//! A scrape as text: Prometheus' text format 0.0.4, as kube-proxy answers.
//!
//! Written here and not by the crate `prometheus-client`: that one writes OpenMetrics only. There a counter's family is named without
//! `_total`, help ends with a point and the text with `# EOF`; what scrapes kube-proxy reads `text/plain; version=0.0.4`, where the family is
//! named as its samples are.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use super::values::Observed;

/// The media type of a [`Page`].
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// What a family is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only grows, but for a restart.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Observations by size.
    Histogram,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        })
    }
}

/// A metric's name, kind and help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Family {
    /// Name, with the suffix that its kind asks for.
    pub name: &'static str,
    /// Kind.
    pub kind: Kind,
    /// What it tells, on one line.
    pub help: &'static str,
}

impl Family {
    /// A counter; its name ends in `_total`.
    #[must_use]
    pub const fn counter(name: &'static str, help: &'static str) -> Self {
        Self { name, kind: Kind::Counter, help }
    }

    /// A gauge.
    #[must_use]
    pub const fn gauge(name: &'static str, help: &'static str) -> Self {
        Self { name, kind: Kind::Gauge, help }
    }

    /// A histogram.
    #[must_use]
    pub const fn histogram(name: &'static str, help: &'static str) -> Self {
        Self { name, kind: Kind::Histogram, help }
    }
}

/// Names and values of labels, sorted by name.
pub type Labels<'a> = &'a [(&'static str, &'a str)];

/// A scrape in the making. Families come out sorted by name, and their samples by labels, whatever order they were added in.
#[derive(Debug, Default)]
pub struct Page {
    families: BTreeMap<&'static str, (Family, BTreeMap<String, String>)>,
}

impl Page {
    /// Nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a sample of a counter or a gauge.
    pub fn sample(&mut self, family: Family, labels: Labels<'_>, value: f64) {
        let mut line = String::new();
        sample(&mut line, family.name, "", labels, None, value);
        self.put(family, labels, line);
    }

    /// Adds a histogram's samples.
    pub fn histogram(&mut self, family: Family, labels: Labels<'_>, observed: &Observed) {
        let mut lines = String::new();
        let mut below = 0;
        let ends = observed.bounds.iter().map(ToString::to_string).chain(["+Inf".to_owned()]);
        for (end, count) in ends.zip(&observed.counts) {
            below += count;
            sample(&mut lines, family.name, "_bucket", labels, Some(&end), below as f64);
        }
        sample(&mut lines, family.name, "_sum", labels, None, observed.sum);
        sample(&mut lines, family.name, "_count", labels, None, below as f64);
        self.put(family, labels, lines);
    }

    fn put(&mut self, family: Family, labels: Labels<'_>, lines: String) {
        let key = labels.iter().fold(String::new(), |key, (name, value)| key + name + "\0" + value + "\0");
        self.families.entry(family.name).or_insert_with(|| (family, BTreeMap::new())).1.insert(key, lines);
    }

    /// The text.
    #[must_use]
    pub fn text(&self) -> String {
        let mut out = String::with_capacity(self.families.len() * 512);
        for (family, samples) in self.families.values() {
            let _ = writeln!(out, "# HELP {} {}", family.name, escaped(family.help, false));
            let _ = writeln!(out, "# TYPE {} {}", family.name, family.kind);
            samples.values().for_each(|lines| out.push_str(lines));
        }
        out
    }
}

fn sample(out: &mut String, name: &str, suffix: &str, labels: Labels<'_>, end: Option<&str>, value: f64) {
    out.push_str(name);
    out.push_str(suffix);
    let end = end.map(|end| ("le", end));
    let mut open = '{';
    for (name, value) in labels.iter().copied().chain(end) {
        let _ = write!(out, "{open}{name}=\"{}\"", escaped(value, true));
        open = ',';
    }
    if open == ',' {
        out.push('}');
    }
    // Infinities and "not a number" are spelled as the format does; `Display` of the rest is read by every parser.
    let _ = match value {
        v if v.is_nan() => writeln!(out, " NaN"),
        v if v.is_infinite() => writeln!(out, " {}Inf", if v > 0.0 { '+' } else { '-' }),
        v => writeln!(out, " {v}"),
    };
}

fn escaped(text: &str, quotes: bool) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '"' if quotes => out.push_str("\\\""),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUESTS: Family = Family::counter("b_requests_total", "Requests,\nby \\ code.");
    const LEVEL: Family = Family::gauge("a_level", "A level.");
    const TOOK: Family = Family::histogram("c_took_seconds", "How long it took.");

    #[test]
    fn families_and_samples_are_sorted_and_escaped() {
        let mut page = Page::new();
        page.sample(REQUESTS, &[("code", "503")], 2.0);
        page.sample(REQUESTS, &[("code", "200"), ("host", "a\"b\\c\nd")], 1e9);
        page.sample(LEVEL, &[], -0.5);
        let counts = vec![1, 0, 2];
        page.histogram(TOOK, &[("x", "y")], &Observed { bounds: &[0.25, 1.0], counts, sum: 7.5 });
        assert_eq!(
            page.text(),
            "# HELP a_level A level.\n\
             # TYPE a_level gauge\n\
             a_level -0.5\n\
             # HELP b_requests_total Requests,\\nby \\\\ code.\n\
             # TYPE b_requests_total counter\n\
             b_requests_total{code=\"200\",host=\"a\\\"b\\\\c\\nd\"} 1000000000\n\
             b_requests_total{code=\"503\"} 2\n\
             # HELP c_took_seconds How long it took.\n\
             # TYPE c_took_seconds histogram\n\
             c_took_seconds_bucket{x=\"y\",le=\"0.25\"} 1\n\
             c_took_seconds_bucket{x=\"y\",le=\"1\"} 1\n\
             c_took_seconds_bucket{x=\"y\",le=\"+Inf\"} 3\n\
             c_took_seconds_sum{x=\"y\"} 7.5\n\
             c_took_seconds_count{x=\"y\"} 3\n"
        );
    }

    #[test]
    fn odd_values_are_spelled_as_the_format_does() {
        let mut page = Page::new();
        for (at, value) in [("a", f64::NAN), ("b", f64::INFINITY), ("c", f64::NEG_INFINITY)] {
            page.sample(LEVEL, &[("at", at)], value);
        }
        let text = page.text();
        let values: Vec<&str> = text.lines().skip(2).filter_map(|l| l.split(' ').nth(1)).collect();
        assert_eq!(values, ["NaN", "+Inf", "-Inf"]);
    }
}
