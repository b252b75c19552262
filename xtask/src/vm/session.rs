//! What a machine is to do: a command, the files it needs, and how long it may take.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{BufWriter, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;

use super::cpio::BLOCK;
use super::image::{self, Image};
use super::kernel;
use super::machine::{self, Outcome, Sinks};
use super::report;
use super::tree::Tree;
use crate::process;

/// Programs below this size are taken as they are, larger ones without what only debuggers read.
const SMALL: u64 = 1 << 20;

/// Files of sessions that run, named by their process.
const RUNNING: &str = "running";

/// One use of a machine.
#[derive(Debug)]
pub(crate) struct Session<'a> {
    image: &'a Image,
    tree: Tree,
}

impl<'a> Session<'a> {
    /// With nothing beyond the image.
    pub(crate) fn new(image: &'a Image) -> Self {
        Self { image, tree: Tree::new() }
    }

    /// A file or folder of this machine at `there`. Programs come without debug information, and with their libraries.
    pub(crate) fn add(&mut self, here: &Path, there: &Path) -> anyhow::Result<()> {
        if !here.is_file() {
            return self.tree.host(here, there);
        }
        let lean = self.stripped(here)?;
        self.tree.host(lean.as_deref().unwrap_or(here), there)?;
        self.tree.libraries_of(here)
    }

    /// A folder that is there, if empty.
    pub(crate) fn directory(&mut self, path: &Path) {
        self.tree.directory(&path.to_string_lossy());
    }

    /// Boots a machine that runs `script` in a shell for at most `limit`. One that fails before it comes to that is booted once
    /// more: kernels time their hardware at start, which an emulator on a busy machine may spoil.
    ///
    /// # Errors
    /// When the machine cannot be started.
    pub(crate) fn run(mut self, script: &str, limit: Duration, sinks: &Sinks) -> anyhow::Result<Outcome> {
        self.tree.text("/machine/command", 0o644, script);
        self.tree.text("/machine/limit", 0o644, &format!("{}\n", limit.as_secs_f64().ceil()));
        self.tree.without(&self.image.tree);
        let initrd = self.initrd()?;
        let boot = || machine::run(&self.image.kernel.image, &initrd, limit, sinks);
        let outcome = boot().and_then(|outcome| match outcome.boot {
            Some(_) => Ok(outcome),
            None => {
                report(&outcome, false);
                eprintln!("vm: once more");
                boot()
            }
        });
        fs::remove_file(&initrd).with_context(|| format!("cannot remove {}", initrd.display()))?;
        outcome
    }

    /// The image's file system, and behind it the programs and files that were added.
    fn initrd(&self) -> anyhow::Result<PathBuf> {
        let folder = self.image.cache.join(RUNNING);
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        remove_abandoned(&folder)?;
        let path = folder.join(process::unique());
        let write = || -> anyhow::Result<()> {
            let mut file = File::create(&path)?;
            let size = std::io::copy(&mut File::open(&self.image.base)?, &mut file)?;
            let block = BLOCK as u64;
            let padding = usize::try_from(size.next_multiple_of(block) - size)?;
            file.write_all(&vec![0; padding])?;
            self.tree.write(BufWriter::new(file))?.flush()?;
            Ok(())
        };
        write().with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }

    /// A copy of a large program without debug information, kept until the program changes; nothing when that cannot be had.
    fn stripped(&self, program: &Path) -> anyhow::Result<Option<PathBuf>> {
        let facts = fs::metadata(program).with_context(|| format!("cannot read {}", program.display()))?;
        let Some(name) = program.file_name().filter(|_| facts.size() >= SMALL) else { return Ok(None) };
        if image::find("strip").is_err() {
            return Ok(None);
        }
        let mut hasher = DefaultHasher::new();
        (program, facts.size(), facts.mtime(), facts.mtime_nsec()).hash(&mut hasher);
        let folder = self.image.cache.join("stripped").join(name);
        let file = format!("{:016x}", hasher.finish());
        let copy = folder.join(&file);
        if copy.exists() {
            return Ok(Some(copy));
        }
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let unfinished = folder.join(format!("{file}-{}", process::unique()));
        let arguments =
            [OsStr::new("--strip-debug"), OsStr::new("-o"), unfinished.as_ref(), program.as_ref()];
        let done = process::command("strip", &arguments).output().context("cannot run strip")?;
        if !done.status.success() {
            // No program at all, or one of a kind that the tool does not know.
            return Ok(None);
        }
        fs::rename(&unfinished, &copy).with_context(|| format!("cannot write {}", copy.display()))?;
        kernel::remove_others(&folder, "", &file)?;
        Ok(Some(copy))
    }
}

/// Removes what sessions left whose process is gone.
fn remove_abandoned(folder: &Path) -> anyhow::Result<()> {
    for name in kernel::names(folder)? {
        let process = name.split('-').next().unwrap_or_default();
        if !Path::new("/proc").join(process).exists() {
            // Another process may be doing the same.
            let _ = fs::remove_file(folder.join(&name));
        }
    }
    Ok(())
}

/// A word as the shell there reads it back.
pub(crate) fn quoted(word: &OsStr) -> String {
    format!("'{}'", word.to_string_lossy().replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shell_reads_quoted_words_as_they_were() {
        for word in ["plain", "two words", "it's", "$HOME `x` \\ \"", ""] {
            let script = format!("printf %s {}", quoted(OsStr::new(word)));
            assert_eq!(kernel::output("sh", &["-c", &script]).unwrap(), word);
        }
    }

    #[test]
    fn only_files_of_processes_that_are_gone_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let own = format!("{}-1", std::process::id());
        for name in [own.as_str(), "999999999-1"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        remove_abandoned(folder.path()).unwrap();
        assert_eq!(kernel::names(folder.path()).unwrap(), [own]);
    }
}
