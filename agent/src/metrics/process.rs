//! The process itself: what Prometheus' client libraries tell of every program, under the names that they share.

use std::fs;

use super::page::{Family, Page};

const CPU: Family =
    Family::counter("process_cpu_seconds_total", "Processor time of this process, user and system.");
const OPEN_FDS: Family = Family::gauge("process_open_fds", "Open file descriptors.");
const MAX_FDS: Family = Family::gauge("process_max_fds", "File descriptors that may be open.");
const RESIDENT: Family = Family::gauge("process_resident_memory_bytes", "Memory that is resident.");
const VIRTUAL: Family = Family::gauge("process_virtual_memory_bytes", "Memory that is mapped.");
const VIRTUAL_MAX: Family =
    Family::gauge("process_virtual_memory_max_bytes", "Memory that may be mapped; -1 without a limit.");
const START: Family =
    Family::gauge("process_start_time_seconds", "When this process was started, in seconds since the epoch.");
const THREADS: Family = Family::gauge("process_threads", "Threads of this process.");

/// Ticks a second in `/proc`: the kernel's `USER_HZ`, 100 on every architecture that we run on.
const TICKS: f64 = 100.0;

/// What `/proc` says, as text.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// `/proc/self/stat`
    pub stat: String,
    /// `/proc/self/status`
    pub status: String,
    /// `/proc/self/limits`
    pub limits: String,
    /// `/proc/stat`
    pub machine: String,
    /// Entries of `/proc/self/fd`.
    pub descriptors: Option<usize>,
}

impl Facts {
    /// Reads them; what cannot be read is left out.
    #[must_use]
    pub fn read() -> Self {
        let text = |path| fs::read_to_string(path).unwrap_or_default();
        Self {
            stat: text("/proc/self/stat"),
            status: text("/proc/self/status"),
            limits: text("/proc/self/limits"),
            machine: text("/proc/stat"),
            // The one that reads the folder is among them.
            descriptors: fs::read_dir("/proc/self/fd").ok().map(|d| d.count().saturating_sub(1)),
        }
    }

    /// A field of `stat`, counted as proc(5) does, from the third on: the second may hold blanks and parentheses.
    fn stat_field(&self, number: usize) -> Option<f64> {
        let (_, rest) = self.stat.rsplit_once(')')?;
        rest.split_whitespace().nth(number.checked_sub(3)?)?.parse().ok()
    }

    fn status_field(&self, name: &str) -> Option<f64> {
        let rest = self.status.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(':'))?;
        rest.split_whitespace().next()?.parse().ok()
    }

    /// The soft limit, the first of the two.
    fn limit(&self, name: &str) -> Option<f64> {
        let rest = self.limits.lines().find_map(|l| l.strip_prefix(name))?;
        match rest.split_whitespace().next()? {
            "unlimited" => Some(-1.0),
            number => number.parse().ok(),
        }
    }

    /// When the process was started, in seconds since the epoch.
    #[must_use]
    pub fn started(&self) -> Option<f64> {
        let boot: f64 = self.machine.lines().find_map(|l| l.strip_prefix("btime "))?.trim().parse().ok()?;
        Some(boot + self.stat_field(22)? / TICKS)
    }

    /// Adds them to a scrape.
    pub fn collect(&self, page: &mut Page) {
        let cpu = self.stat_field(14).zip(self.stat_field(15)).map(|(user, system)| (user + system) / TICKS);
        let kibibytes = |name| self.status_field(name).map(|n| n * 1024.0);
        let rows = [
            (CPU, cpu),
            (OPEN_FDS, self.descriptors.map(|n| n as f64)),
            (MAX_FDS, self.limit("Max open files")),
            (RESIDENT, kibibytes("VmRSS")),
            (VIRTUAL, kibibytes("VmSize")),
            (VIRTUAL_MAX, self.limit("Max address space")),
            (START, self.started()),
            (THREADS, self.status_field("Threads")),
        ];
        for (family, value) in rows {
            if let Some(value) = value {
                page.sample(family, &[], value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_behind_any_name() {
        let facts = Facts {
            stat: "7 (a) b (c) S 1 7 7 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 3 0 4200 1 2".to_owned(),
            status: "Name:\ta\nVmSize:\t   2048 kB\nVmRSS:\t    1024 kB\nThreads:\t3\n".to_owned(),
            limits: "Limit  Soft Limit  Hard Limit  Units\nMax open files            1024                 \
                     4096                 files\nMax address space         unlimited            unlimited            bytes\n"
                .to_owned(),
            machine: "cpu 1 2\nbtime 1000\n".to_owned(),
            descriptors: Some(9),
        };
        let mut page = Page::new();
        facts.collect(&mut page);
        let text = page.text();
        let samples: Vec<&str> = text.lines().filter(|l| !l.starts_with('#')).collect();
        assert_eq!(
            samples,
            [
                "process_cpu_seconds_total 3",
                "process_max_fds 1024",
                "process_open_fds 9",
                "process_resident_memory_bytes 1048576",
                "process_start_time_seconds 1042",
                "process_threads 3",
                "process_virtual_memory_bytes 2097152",
                "process_virtual_memory_max_bytes -1",
            ]
        );
    }

    #[test]
    fn this_process_has_all_of_them() {
        let mut page = Page::new();
        Facts::read().collect(&mut page);
        assert_eq!(page.text().lines().filter(|l| !l.starts_with('#')).count(), 8);
    }
}
