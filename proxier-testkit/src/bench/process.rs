//! What a process costs, as the system accounts it.

use std::fs;
use std::time::Duration;

use nix::time::{ClockId, clock_getcpuclockid};
use nix::unistd::Pid;

use super::Error;

/// A running process, this one or a child.
#[derive(Clone, Copy, Debug)]
pub struct Process {
    id: u32,
    cpu: ClockId,
}

impl Process {
    /// This process.
    #[must_use]
    pub fn own() -> Self {
        Self { id: std::process::id(), cpu: ClockId::CLOCK_PROCESS_CPUTIME_ID }
    }

    /// Another process, by its number.
    ///
    /// # Errors
    /// When there is none of that number.
    pub fn of(id: u32) -> Result<Self, Error> {
        let cpu = clock_getcpuclockid(Pid::from_raw(id.cast_signed()))
            .map_err(|errno| Error::io(format!("process {id}"), errno))?;
        Ok(Self { id, cpu })
    }

    /// Its number.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.id
    }

    /// CPU time of all its threads so far, user and system, to the nanosecond.
    ///
    /// # Errors
    /// When it has ended.
    pub fn cpu(&self) -> Result<Duration, Error> {
        let now =
            self.cpu.now().map_err(|errno| Error::io(format!("CPU time of process {}", self.id), errno))?;
        Ok(now.into())
    }

    /// Resident memory now, in KiB (`VmRSS` of proc(5)).
    ///
    /// # Errors
    /// When it has ended.
    pub fn resident_kib(&self) -> Result<u64, Error> {
        self.field("VmRSS:")
    }

    /// The peak of resident memory, in KiB, since its start or since [`Process::forget_peak`] (`VmHWM` of proc(5)).
    ///
    /// # Errors
    /// When it has ended.
    pub fn peak_kib(&self) -> Result<u64, Error> {
        self.field("VmHWM:")
    }

    /// Lets the peak begin anew at what is resident now (`clear_refs` of proc(5)).
    ///
    /// # Errors
    /// When it has ended, or is another user's.
    pub fn forget_peak(&self) -> Result<(), Error> {
        let file = format!("/proc/{}/clear_refs", self.id);
        fs::write(&file, "5").map_err(|source| Error::io(file, source))
    }

    fn field(&self, name: &str) -> Result<u64, Error> {
        let file = format!("/proc/{}/status", self.id);
        let status = fs::read_to_string(&file).map_err(|source| Error::io(&file, source))?;
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
        number.ok_or_else(|| Error::Wrong(format!("{file} has no {name}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_costs_are_seen() {
        let own = Process::own();
        let by_number = Process::of(std::process::id()).unwrap();
        let before = own.cpu().unwrap();
        let mut sum = 0_u64;
        while own.cpu().unwrap() < before + Duration::from_millis(20) {
            sum = sum.wrapping_mul(31).wrapping_add(1);
        }
        assert!(by_number.cpu().unwrap() > before + Duration::from_millis(19), "{sum}");
        let large = vec![1_u8; 64 << 20];
        let peak = own.peak_kib().unwrap();
        assert!(peak >= 64 << 10, "{peak}");
        // The kernel adds these up from parts for each processor, roughly.
        assert!(own.resident_kib().unwrap() <= peak + 1024);
        drop(std::hint::black_box(large));
        own.forget_peak().unwrap();
        assert!(own.peak_kib().unwrap() < peak);
    }

    #[test]
    fn no_such_process_is_an_error() {
        // Numbers are below 2^22.
        assert!(Process::of(1 << 22).is_err());
    }
}
