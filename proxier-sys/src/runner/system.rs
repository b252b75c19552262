//! The real runner.

use std::io::{self, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::Instant;

use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;

use super::{CommandSpec, Output, RunError, Runner};

/// Starts processes of the host.
///
/// A command runs in the network namespace of the calling thread, in a process group of its own (so that the
/// time limit also ends what it started), and with `LC_ALL=C` so that its messages are the ones documented.
/// The time limit covers the command until its outputs are closed.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemRunner;

impl SystemRunner {
    /// The runner; it has no state.
    pub fn new() -> Self {
        Self
    }
}

impl Runner for SystemRunner {
    fn run(&self, command: &CommandSpec) -> Result<Output, RunError> {
        let started = Instant::now();
        let mut running = Running::start(command)?;
        let outcome = running.attend(command, started);
        if outcome.is_err() {
            running.kill();
        }
        // The child has exited or was killed, so this reaps it without waiting.
        let status = running.child.wait();
        let (stdout, stderr) = outcome?;
        let status = status.map_err(|source| exchange(command, source))?;
        match (status.code(), status.signal()) {
            (Some(code), _) => Ok(Output { code, stdout, stderr }),
            (None, signal) => Err(RunError::Signalled {
                program: command.program.clone(),
                signal: signal.unwrap_or_default(),
            }),
        }
    }
}

/// What the threads around a child report, each once.
enum Event {
    Exited(io::Result<()>),
    Fed(io::Result<()>),
    Stdout(io::Result<Vec<u8>>),
    Stderr(io::Result<Vec<u8>>),
}

/// Number of threads, hence of events.
const EVENTS: usize = 4;

struct Running {
    child: Child,
    group: Pid,
    events: Receiver<Event>,
}

impl Running {
    fn start(command: &CommandSpec) -> Result<Self, RunError> {
        #[allow(clippy::disallowed_methods, reason = "this is the one place that starts processes")]
        let mut process = Command::new(&command.program);
        process.args(&command.args).env("LC_ALL", "C").process_group(0);
        process.envs(command.env.iter().map(|(name, value)| (name, value)));
        process.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = process.spawn().map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => RunError::Missing { program: command.program.clone() },
            _ => RunError::Start { program: command.program.clone(), source },
        })?;
        // Linux process ids are positive C ints, and std gives them as u32.
        let group = Pid::from_raw(child.id().cast_signed());
        let (sender, events) = mpsc::channel();
        let mut running = Self { child, group, events };
        if let Err(source) = running.surround(command, &sender) {
            running.kill();
            let _ = running.child.wait();
            return Err(exchange(command, source));
        }
        Ok(running)
    }

    /// Starts the threads that feed the child, read from it and wait for it; each on its own so that no full
    /// pipe can stop the others.
    fn surround(&mut self, command: &CommandSpec, sender: &Sender<Event>) -> io::Result<()> {
        let group = self.group;
        let input = command.stdin.clone().unwrap_or_default();
        let (stdin, stdout, stderr) =
            (self.child.stdin.take(), self.child.stdout.take(), self.child.stderr.take());
        report(sender, move || Event::Fed(stdin.map_or(Ok(()), |pipe| feed(pipe, &input))))?;
        report(sender, move || Event::Stdout(stdout.map_or(Ok(Vec::new()), drain)))?;
        report(sender, move || Event::Stderr(stderr.map_or(Ok(Vec::new()), drain)))?;
        report(sender, move || Event::Exited(await_exit(group)))
    }

    /// Collects what the threads report, until the time limit.
    fn attend(&self, command: &CommandSpec, started: Instant) -> Result<(Vec<u8>, Vec<u8>), RunError> {
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        for _ in 0..EVENTS {
            let left = command.timeout.saturating_sub(started.elapsed());
            let event = self.events.recv_timeout(left).map_err(|error| match error {
                RecvTimeoutError::Timeout => {
                    RunError::TimedOut { program: command.program.clone(), timeout: command.timeout }
                }
                RecvTimeoutError::Disconnected => {
                    exchange(command, io::Error::other("a helper thread ended"))
                }
            })?;
            match event {
                Event::Exited(result) | Event::Fed(result) => result,
                Event::Stdout(result) => result.map(|bytes| stdout = bytes),
                Event::Stderr(result) => result.map(|bytes| stderr = bytes),
            }
            .map_err(|source| exchange(command, source))?;
        }
        Ok((stdout, stderr))
    }

    /// Ends the child and all of its process group. The child is not reaped before this, so its number cannot
    /// belong to anybody else.
    fn kill(&mut self) {
        // A group that is gone already is what we want.
        let _ = killpg(self.group, Signal::SIGKILL);
        let _ = self.child.kill();
    }
}

/// Runs `work` on a thread that reports its result; nobody listens any more after a time-out.
fn report(sender: &Sender<Event>, work: impl FnOnce() -> Event + Send + 'static) -> io::Result<()> {
    let sender = sender.clone();
    thread::Builder::new().name("runner".to_owned()).spawn(move || {
        let _ = sender.send(work());
    })?;
    Ok(())
}

/// Writes the input and closes the pipe. A tool may end without reading all of it; its status says why.
fn feed(mut pipe: impl Write, input: &[u8]) -> io::Result<()> {
    match pipe.write_all(input) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

fn drain(mut pipe: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    pipe.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Waits for the child to exit, and leaves it to be reaped.
fn await_exit(pid: Pid) -> io::Result<()> {
    loop {
        match waitid(Id::Pid(pid), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT) {
            Err(nix::errno::Errno::EINTR) => {}
            // Killed and reaped by the caller before this thread came to look.
            Err(nix::errno::Errno::ECHILD) => return Ok(()),
            result => return result.map(drop).map_err(io::Error::from),
        }
    }
}

fn exchange(command: &CommandSpec, source: io::Error) -> RunError {
    RunError::Exchange { program: command.program.clone(), source }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use super::*;

    fn sh(script: &str) -> CommandSpec {
        CommandSpec::new("sh", ["-c", script])
    }

    fn run(spec: &CommandSpec) -> Result<Output, RunError> {
        SystemRunner::new().run(spec)
    }

    #[test]
    fn status_and_both_outputs_come_back() {
        let output = run(&sh("printf out; printf err >&2; exit 3")).unwrap();
        assert_eq!(output, Output { code: 3, stdout: b"out".to_vec(), stderr: b"err".to_vec() });
    }

    #[test]
    fn megabytes_go_through_without_a_deadlock() {
        let input = vec![b'x'; 4 << 20];
        let output = run(&CommandSpec::new("cat", [""; 0]).stdin(input.clone())).unwrap();
        assert!(output.success());
        assert!(output.stdout == input);
        let both = run(&sh("head -c 2000000 /dev/zero; head -c 2000000 /dev/zero >&2")).unwrap();
        assert_eq!((both.stdout.len(), both.stderr.len()), (2_000_000, 2_000_000));
    }

    #[test]
    fn input_that_is_not_read_is_no_error() {
        let output = run(&sh("exit 7").stdin(vec![0; 4 << 20])).unwrap();
        assert_eq!(output.code, 7);
    }

    #[test]
    fn no_input_is_an_empty_one() {
        assert_eq!(run(&CommandSpec::new("cat", [""; 0])).unwrap(), Output::default());
    }

    #[test]
    fn variables_are_given_beside_those_there_are() {
        let output =
            run(&sh("printf '%s %s' \"$PROXIER_A\" \"${PATH:+path}\"").env("PROXIER_A", "a b")).unwrap();
        assert_eq!(output.stdout_text(), "a b path");
    }

    #[test]
    fn a_missing_tool_is_told_apart_from_one_that_cannot_start() {
        let error = run(&CommandSpec::new("proxier-has-no-such-tool", [""; 0])).unwrap_err();
        assert!(error.is_missing(), "{error:?}");
        let error = run(&CommandSpec::new("/etc/passwd", [""; 0])).unwrap_err();
        assert!(matches!(error, RunError::Start { .. }), "{error:?}");
    }

    #[test]
    fn a_signal_is_told() {
        let error = run(&sh("kill -TERM $$")).unwrap_err();
        assert!(matches!(error, RunError::Signalled { signal: 15, .. }), "{error:?}");
    }

    #[test]
    fn the_time_limit_kills_and_reaps_the_whole_group() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("pids");
        let script = format!("sleep 600 & echo $$ $! > {}; wait", file.display());
        let error = run(&sh(&script).timeout(Duration::from_millis(500))).unwrap_err();
        assert!(error.is_timeout(), "{error:?}");
        let pids = std::fs::read_to_string(&file).unwrap();
        let pids: Vec<&str> = pids.split_whitespace().collect();
        assert_eq!(pids.len(), 2);
        assert!(!Path::new("/proc").join(pids[0]).exists(), "the child was not reaped");
        // The grandchild is reaped by init, or stays a zombie where init does not reap.
        let state = || std::fs::read_to_string(format!("/proc/{}/stat", pids[1])).unwrap_or_default();
        let gone = |state: &str| state.is_empty() || state.contains(") Z ") || state.contains(") X ");
        for _ in 0..200 {
            if gone(&state()) {
                return;
            }
            thread::sleep(Duration::from_millis(10));
        }
        panic!("the grandchild still runs: {}", state());
    }

    #[test]
    fn messages_are_not_translated() {
        assert_eq!(run(&sh("printf %s \"$LC_ALL\"")).unwrap().stdout_text(), "C");
    }
}
