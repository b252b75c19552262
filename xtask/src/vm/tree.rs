//! The files of the machine, collected from this one: a plan that can be told apart from another one without reading its
//! files, and be written as an archive.

use std::collections::BTreeMap;
use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash, Hasher};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use super::cpio::Archive;
use super::libraries::Libraries;

/// Folders that everybody may write to, wherever they come up.
const PUBLIC: [&str; 2] = ["tmp", "var/tmp"];

/// Folders that are links into `usr` there, as on Debian since version 12.
pub(crate) const MERGED: [&str; 4] = ["bin", "sbin", "lib", "lib64"];

/// One file there.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Entry {
    Directory,
    /// A file of this machine, read when the archive is written.
    Host(PathBuf),
    Text(String, u32),
    Link(String),
    Device(u32, (u32, u32)),
}

/// Files by their path there, without the leading slash.
#[derive(Debug)]
pub(crate) struct Tree {
    entries: BTreeMap<String, Entry>,
    libraries: Libraries,
}

impl Tree {
    /// Nothing yet.
    pub(crate) fn new() -> Self {
        Self { entries: BTreeMap::new(), libraries: Libraries::new() }
    }

    /// A folder and those above it.
    pub(crate) fn directory(&mut self, path: &str) {
        let path = inside(Path::new(path));
        self.parents(&path);
        self.entries.entry(path).or_insert(Entry::Directory);
    }

    /// A file with this text.
    pub(crate) fn text(&mut self, path: &str, permissions: u32, text: &str) {
        self.put(&inside(Path::new(path)), Entry::Text(text.to_owned(), permissions));
    }

    /// A symbolic link.
    pub(crate) fn link(&mut self, path: &str, target: &str) {
        self.put(path.trim_start_matches('/'), Entry::Link(target.to_owned()));
    }

    /// A character device.
    pub(crate) fn device(&mut self, path: &str, permissions: u32, device: (u32, u32)) {
        self.put(&inside(Path::new(path)), Entry::Device(permissions, device));
    }

    /// A file or folder of this machine with all below it, at `there`.
    pub(crate) fn host(&mut self, here: &Path, there: &Path) -> anyhow::Result<()> {
        let facts = fs::metadata(here).with_context(|| format!("cannot read {}", here.display()))?;
        if facts.is_dir() {
            self.directory(&there.to_string_lossy());
            let entries = fs::read_dir(here).with_context(|| format!("cannot read {}", here.display()))?;
            for entry in entries {
                let name = entry.with_context(|| format!("reading {}", here.display()))?.file_name();
                self.host(&here.join(&name), &there.join(&name))?;
            }
        } else if facts.is_file() {
            self.put(&inside(there), Entry::Host(here.to_owned()));
        } else {
            bail!("{} is neither a file nor a folder", here.display());
        }
        Ok(())
    }

    /// A program or library of this machine at its own path, with the libraries it needs. A path that is a link stays one,
    /// since there are programs that look at the name they are called by.
    pub(crate) fn program(&mut self, path: &Path) -> anyhow::Result<()> {
        let real = path.canonicalize().with_context(|| format!("cannot find {}", path.display()))?;
        self.put(&inside(&real), Entry::Host(real.clone()));
        if inside(path) != inside(&real) {
            self.link(&inside(path), &format!("/{}", inside(&real)));
        }
        self.libraries_of(&real)
    }

    /// The libraries that a file of this machine needs.
    pub(crate) fn libraries_of(&mut self, file: &Path) -> anyhow::Result<()> {
        for library in self.libraries.of(file)? {
            // As a file under the name it was asked for by; what that links to is nobody's concern.
            self.put(&inside(&library), Entry::Host(library.clone()));
        }
        Ok(())
    }

    /// Leaves out what `base` has in the same way.
    pub(crate) fn without(&mut self, base: &Self) {
        self.entries
            .retain(|path, entry| matches!(entry, Entry::Directory) || base.entries.get(path) != Some(entry));
    }

    /// A number that changes with any path, and with size and time of any file.
    pub(crate) fn fingerprint(&self) -> anyhow::Result<u64> {
        let mut hasher = DefaultHasher::new();
        for (path, entry) in &self.entries {
            path.hash(&mut hasher);
            match entry {
                Entry::Directory => {}
                Entry::Host(file) => {
                    let facts =
                        fs::metadata(file).with_context(|| format!("cannot read {}", file.display()))?;
                    (file, facts.size(), facts.mtime(), facts.mtime_nsec()).hash(&mut hasher);
                }
                Entry::Text(text, permissions) => (text, permissions).hash(&mut hasher),
                Entry::Link(target) => target.hash(&mut hasher),
                Entry::Device(permissions, numbers) => (permissions, numbers).hash(&mut hasher),
            }
        }
        Ok(hasher.finish())
    }

    /// Writes everything as one archive.
    pub(crate) fn write<W: Write>(&self, out: W) -> anyhow::Result<W> {
        let mut archive = Archive::new(out);
        for (path, entry) in &self.entries {
            let written = match entry {
                Entry::Directory if PUBLIC.contains(&path.as_str()) => archive.directory(path, 0o1777),
                Entry::Directory => archive.directory(path, 0o755),
                Entry::Host(file) => {
                    let read = || -> std::io::Result<_> {
                        Ok((fs::metadata(file)?.permissions().mode() & 0o7777, fs::read(file)?))
                    };
                    let (mode, content) =
                        read().with_context(|| format!("cannot read {}", file.display()))?;
                    // Readable by everybody there, whoever owns it here.
                    archive.file(path, mode | 0o444 | ((mode & 0o100) >> 6) | ((mode & 0o100) >> 3), &content)
                }
                Entry::Text(text, permissions) => archive.file(path, *permissions, text.as_bytes()),
                Entry::Link(target) => archive.symlink(path, target),
                Entry::Device(permissions, numbers) => archive.device(path, *permissions, *numbers),
            };
            written.with_context(|| format!("writing the archive at {path}"))?;
        }
        archive.finish().context("writing the archive")
    }

    fn put(&mut self, path: &str, entry: Entry) {
        self.parents(path);
        self.entries.insert(path.to_owned(), entry);
    }

    fn parents(&mut self, path: &str) {
        let above = Path::new(path).ancestors().skip(1).filter(|p| *p != Path::new(""));
        for folder in above {
            self.entries.entry(folder.to_string_lossy().into_owned()).or_insert(Entry::Directory);
        }
    }
}

/// The path there of a path here: without the leading slash, and below `usr` where the folder is a link to there.
pub(crate) fn inside(path: &Path) -> String {
    let path = path.to_string_lossy();
    let path = path.trim_start_matches('/');
    let first = path.split('/').next().unwrap_or(path);
    if MERGED.contains(&first) && path.contains('/') { format!("usr/{path}") } else { path.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(tree: &Tree) -> Vec<&str> {
        tree.entries.keys().map(String::as_str).collect()
    }

    #[test]
    fn folders_above_come_first_and_merged_ones_are_followed() {
        let mut tree = Tree::new();
        tree.text("/lib/modules/x", 0o644, "");
        tree.link("/lib", "usr/lib");
        assert_eq!(paths(&tree), ["lib", "usr", "usr/lib", "usr/lib/modules", "usr/lib/modules/x"]);
    }

    #[test]
    fn a_program_that_is_a_link_stays_one_and_brings_its_libraries() {
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("called");
        std::os::unix::fs::symlink("/bin/true", &link).unwrap();
        let mut tree = Tree::new();
        tree.program(&link).unwrap();
        assert_eq!(tree.entries.get(&inside(&link)), Some(&Entry::Link("/usr/bin/true".to_owned())));
        assert!(paths(&tree).iter().any(|p| p.contains("libc.so.")), "{:?}", paths(&tree));
    }

    #[test]
    fn folders_come_with_all_below() {
        let mut tree = Tree::new();
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        tree.host(&here.join("src"), Path::new("/there")).unwrap();
        assert!(paths(&tree).contains(&"there/vm/tree.rs"));
        assert!(tree.host(Path::new("/nonexistent"), Path::new("/x")).is_err());
        assert!(tree.host(Path::new("/dev/null"), Path::new("/x")).is_err());
    }

    #[test]
    fn the_fingerprint_follows_paths_texts_and_files() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("f");
        let print = |text: &str, there: &str| {
            let mut tree = Tree::new();
            tree.host(&file, Path::new(there)).unwrap();
            tree.text("t", 0o644, text);
            tree.fingerprint().unwrap()
        };
        fs::write(&file, "1").unwrap();
        let first = print("a", "/f");
        assert_eq!(print("a", "/f"), first);
        assert_ne!(print("b", "/f"), first);
        assert_ne!(print("a", "/g"), first);
        fs::write(&file, "12").unwrap();
        assert_ne!(print("a", "/f"), first);
    }

    #[test]
    fn what_the_base_has_is_left_out_unless_it_differs() {
        let make = |text: &str| {
            let mut tree = Tree::new();
            tree.text("same", 0o644, "same");
            tree.text("other", 0o644, text);
            tree
        };
        let mut tree = make("mine");
        tree.without(&make("theirs"));
        assert_eq!(paths(&tree), ["other"]);
    }

    #[test]
    fn public_folders_stay_public_in_an_appended_archive() {
        let mut tree = Tree::new();
        tree.text("tmp/x", 0o644, "");
        let bytes = tree.write(Vec::new()).unwrap();
        assert_eq!(&bytes[14..22], b"000043ff");
    }
}
