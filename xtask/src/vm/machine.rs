//! One machine: an emulated PC without network, whose channels are sockets of ours.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Context;

use super::verdict::Verdict;
use crate::process;

/// The emulator.
pub(crate) const EMULATOR: &str = "qemu-system-x86_64";

/// Emulation alone, since virtualisation that is announced need not work; both processors really in parallel.
const HARDWARE: [&str; 15] = [
    "-nodefaults",
    "-no-user-config",
    "-display",
    "none",
    "-accel",
    "tcg,thread=multi",
    "-cpu",
    "max",
    "-m",
    "2048",
    "-smp",
    "2",
    "-no-reboot",
    "-device",
    "virtio-serial-pci",
];

/// The kernel's log on the console; after a fault the machine restarts, which ends it. The check of the timer counts its ticks
/// within a fixed number of instructions, which an emulator on a busy machine does not pass.
const COMMAND_LINE: &str =
    "console=ttyS0 loglevel=7 panic=-1 oops=panic mitigations=off no_timer_check rdinit=/init";

/// The console's file.
const CONSOLE: &str = "console";

/// Lines of the console that are kept.
const LOG: usize = 4000;

/// How much longer than its own limit a machine may run before it is ended from outside.
const GRACE: Duration = Duration::from_secs(45);

/// How often the machine is looked at.
const PAUSE: Duration = Duration::from_millis(10);

/// What takes the program's output: pieces of it, in order.
#[derive(Clone)]
pub(crate) struct Sink(Arc<Mutex<Take>>);

type Take = dyn FnMut(&[u8]) + Send;

impl Sink {
    /// One that calls `take`.
    pub(crate) fn new(take: impl FnMut(&[u8]) + Send + 'static) -> Self {
        Self(Arc::new(Mutex::new(take)))
    }

    fn take(&self, piece: &[u8]) {
        lock(&self.0)(piece);
    }
}

/// Where a program's standard output and standard error go.
#[derive(Clone)]
pub(crate) struct Sinks {
    /// Standard output.
    pub(crate) out: Sink,
    /// Standard error.
    pub(crate) err: Sink,
}

/// What came of a machine.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    /// Of the program.
    pub(crate) verdict: Verdict,
    /// The console: the kernel's log, and what the first process says.
    pub(crate) console: Vec<String>,
    /// From the emulator's start to the program's, if it came to that.
    pub(crate) boot: Option<Duration>,
}

/// Lines as they come, with the time of the first one.
#[derive(Debug, Default)]
struct Lines {
    all: Vec<String>,
    first: Option<Instant>,
}

/// A channel out of the machine.
struct Channel {
    path: PathBuf,
    reader: JoinHandle<()>,
}

/// Boots `kernel` with the initial file system `initrd`, which names the program and its `limit`, and waits for the end.
///
/// # Errors
/// When the emulator cannot be run.
pub(crate) fn run(kernel: &Path, initrd: &Path, limit: Duration, sinks: &Sinks) -> anyhow::Result<Outcome> {
    let folder = tempfile::tempdir().context("a folder for sockets")?;
    let status = Arc::default();
    let channels = [
        channel(folder.path(), "status", collect(&status))?,
        channel(folder.path(), "out", pieces(sinks.out.clone()))?,
        channel(folder.path(), "err", pieces(sinks.err.clone()))?,
    ];
    let start = Instant::now();
    let mut emulator = emulator(kernel, initrd, folder.path())?;
    let killed = wait(&mut emulator, limit + GRACE)?;
    for channel in channels {
        // Should the emulator have gone before it connected, this is what the reader gets.
        drop(UnixStream::connect(&channel.path));
        let _ = channel.reader.join();
    }
    let console = last_lines(&folder.path().join(CONSOLE));
    let status = std::mem::take(&mut *lock(&status));
    Ok(Outcome {
        verdict: Verdict::of(&status.all, &console, limit, killed),
        console,
        boot: status.first.map(|first| first - start),
    })
}

fn emulator(kernel: &Path, initrd: &Path, folder: &Path) -> anyhow::Result<Child> {
    // Ends with this process, however this one ends.
    let mut command = process::command("setpriv", &["--pdeathsig", "KILL", "--", EMULATOR]);
    command
        .args(HARDWARE)
        .arg("-kernel")
        .arg(kernel)
        .arg("-initrd")
        .arg(initrd)
        .args(["-append", COMMAND_LINE]);
    for name in ["status", "out", "err"] {
        let mut socket = OsString::from(format!("socket,id={name},path="));
        socket.push(folder.join(name));
        command.arg("-chardev").arg(socket);
    }
    // A file, since a serial port drops what a socket does not take at once.
    let mut console = OsString::from("file:");
    console.push(folder.join(CONSOLE));
    command.arg("-serial").arg(console);
    for (number, name) in [(1, "out"), (2, "err"), (3, "status")] {
        command.args(["-device", &format!("virtserialport,nr={number},chardev={name},name={name}")]);
    }
    command.stdin(Stdio::null());
    command.spawn().with_context(|| format!("cannot run {EMULATOR}"))
}

/// Waits for the emulator's end; whether it had to be ended.
fn wait(emulator: &mut Child, longest: Duration) -> anyhow::Result<bool> {
    let end = Instant::now() + longest;
    while Instant::now() < end {
        if emulator.try_wait().context("waiting for the emulator")?.is_some() {
            return Ok(false);
        }
        std::thread::sleep(PAUSE);
    }
    emulator.kill().context("ending the emulator")?;
    emulator.wait().context("waiting for the emulator")?;
    Ok(true)
}

/// Listens at `name` and reads what the first to connect sends.
fn channel(
    folder: &Path,
    name: &str,
    read: impl FnOnce(UnixStream) + Send + 'static,
) -> anyhow::Result<Channel> {
    let path = folder.join(name);
    let listener =
        UnixListener::bind(&path).with_context(|| format!("cannot listen at {}", path.display()))?;
    let reader = std::thread::spawn(move || {
        if let Ok((stream, _)) = listener.accept() {
            read(stream);
        }
    });
    Ok(Channel { path, reader })
}

/// Passes all on as it comes.
fn pieces(sink: Sink) -> impl FnOnce(UnixStream) + Send + 'static {
    move |mut stream| {
        let mut piece = vec![0; 1 << 16];
        while let Ok(length @ 1..) = stream.read(&mut piece) {
            sink.take(&piece[..length]);
        }
    }
}

/// Keeps all lines.
fn collect(lines: &Arc<Mutex<Lines>>) -> impl FnOnce(UnixStream) + Send + use<> {
    let lines = Arc::clone(lines);
    move |stream| {
        for line in BufReader::new(stream).split(b'\n').map_while(Result::ok) {
            let mut lines = lock(&lines);
            lines.first.get_or_insert_with(Instant::now);
            lines.all.push(text(&line));
        }
    }
}

/// The end of what is in a file; nothing of one that is not there.
fn last_lines(path: &Path) -> Vec<String> {
    let content = std::fs::read(path).unwrap_or_default();
    let all: Vec<&[u8]> = content.split(|byte| *byte == b'\n').collect();
    all.iter().skip(all.len().saturating_sub(LOG)).map(|line| text(line)).collect()
}

fn text(line: &[u8]) -> String {
    String::from_utf8_lossy(line).trim_end_matches('\r').to_owned()
}

fn lock<T: ?Sized>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
