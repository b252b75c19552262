//! Notices that the content of a file changed, however it was replaced.
//!
//! A ConfigMap is mounted as a folder of links: `config.yaml` leads to `..data/config.yaml`, and `..data` to a folder that is made anew for each
//! version; an update replaces the link `..data` alone. Editors rename a new file into place. So it is the folder that is watched, and what counts is
//! the content.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use notify::{Config, Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};

use crate::source::StopSignal;

/// The file is read once nothing has happened for so long.
const QUIET: Duration = Duration::from_millis(50);
/// It is read so often besides: a folder on a network file system gives no notices, and its own folder may be replaced.
const POLL: Duration = Duration::from_secs(10);

enum Wake {
    Changed,
    Stop,
}

/// Calls `changed` on a thread of its own each time the file's content is another than before, with it; the first time it is compared with `known`.
/// A file that is not there, or is unreadable, is no change: it may be in the middle of being replaced.
///
/// # Errors
/// When there is no thread to be had.
pub fn watch(
    path: &Path,
    known: Vec<u8>,
    stop: &StopSignal,
    mut changed: impl FnMut(Vec<u8>) + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    let (sender, receiver) = channel();
    let waker = sender.clone();
    stop.on_raise(move || {
        let _ = waker.send(Wake::Stop);
    });
    let path = path.to_owned();
    thread::Builder::new().name("config".to_owned()).spawn(move || {
        let _watcher = notices(&path, sender);
        let mut known = known;
        loop {
            if let Ok(content) = fs::read(&path)
                && content != known
            {
                known.clone_from(&content);
                changed(content);
            }
            match receiver.recv_timeout(POLL) {
                Ok(Wake::Stop) | Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => continue,
                Ok(Wake::Changed) => {}
            }
            // A file that is written in pieces is read when it is whole.
            loop {
                match receiver.recv_timeout(QUIET) {
                    Ok(Wake::Changed) => {}
                    Ok(Wake::Stop) => return,
                    Err(_) => break,
                }
            }
        }
    })
}

/// The kernel's notices about the file's folder, and about that where the file really is.
fn notices(path: &Path, sender: Sender<Wake>) -> Option<RecommendedWatcher> {
    let handler = move |event: notify::Result<Event>| {
        // Reading is no change; our own would wake us for ever.
        if !event.is_ok_and(|e| matches!(e.kind, EventKind::Access(_))) {
            let _ = sender.send(Wake::Changed);
        }
    };
    let blind = |error: notify::Error| {
        tracing::warn!(file = %path.display(), error = %error, "no notices from the kernel; looking at the file every 10 s");
    };
    let mut watcher = RecommendedWatcher::new(handler, Config::default()).map_err(blind).ok()?;
    watcher.watch(&folder(path), RecursiveMode::NonRecursive).map_err(blind).ok()?;
    if let Ok(real) = fs::canonicalize(path)
        && folder(&real) != folder(path)
    {
        // The link may lead to a file of another folder that is edited there. In a ConfigMap that folder goes with each update.
        let _ = watcher.watch(&folder(&real), RecursiveMode::NonRecursive);
    }
    Some(watcher)
}

fn folder(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::sync::mpsc::Receiver;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(30);

    /// A watch of a file that holds `one`, and what it tells.
    fn watched(path: &Path) -> (StopSignal, Receiver<String>, JoinHandle<()>) {
        let (stop, (told, changes)) = (StopSignal::new(), channel());
        let known = fs::read(path).expect("a file");
        assert_eq!(known, b"one");
        let changed = move |content| told.send(String::from_utf8(content).expect("text")).expect("heard");
        let thread = watch(path, known, &stop, changed).expect("a thread");
        (stop, changes, thread)
    }

    #[test]
    fn what_is_written_or_renamed_is_noticed_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("c.yaml");
        fs::write(&path, "one").expect("written");
        let (stop, changes, thread) = watched(&path);
        fs::write(&path, "two").expect("written");
        assert_eq!(changes.recv_timeout(LIMIT).expect("noticed"), "two");
        let other = folder.path().join("c.tmp");
        fs::write(&other, "three").expect("written");
        fs::rename(&other, &path).expect("renamed");
        assert_eq!(changes.recv_timeout(LIMIT).expect("noticed"), "three");
        // Gone is no change, nor is the same content again.
        fs::remove_file(&path).expect("removed");
        fs::write(&path, "three").expect("written");
        fs::write(folder.path().join("neighbour"), "x").expect("written");
        fs::write(&path, "four").expect("written");
        assert_eq!(changes.recv_timeout(LIMIT).expect("noticed"), "four");
        stop.raise();
        thread.join().expect("no panic");
        assert!(changes.try_recv().is_err());
    }

    #[test]
    fn a_config_map_that_is_updated_is_noticed() {
        let folder = tempfile::tempdir().expect("a folder");
        let version = |name: &str, text: &str| {
            let data = folder.path().join(name);
            fs::create_dir(&data).expect("made");
            fs::write(data.join("c.yaml"), text).expect("written");
        };
        let swap = |name: &str| {
            let link = folder.path().join("..data_tmp");
            symlink(name, &link).expect("linked");
            fs::rename(link, folder.path().join("..data")).expect("renamed");
        };
        version("..1", "one");
        swap("..1");
        let path = folder.path().join("c.yaml");
        symlink("..data/c.yaml", &path).expect("linked");
        let (stop, changes, thread) = watched(&path);
        for (name, text, before) in [("..2", "two", "..1"), ("..3", "three", "..2")] {
            version(name, text);
            swap(name);
            fs::remove_dir_all(folder.path().join(before)).expect("removed");
            assert_eq!(changes.recv_timeout(LIMIT).expect("noticed"), text);
        }
        stop.raise();
        thread.join().expect("no panic");
    }
}
