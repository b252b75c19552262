//! Which files there are, and whether one is still the same.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::document::Format;

/// What tells one state of a file from another without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    modified: (i64, i64),
    changed: (i64, i64),
    length: u64,
    inode: (u64, u64),
}

impl Stamp {
    pub(super) fn of(meta: &fs::Metadata) -> Self {
        Self {
            modified: (meta.mtime(), meta.mtime_nsec()),
            changed: (meta.ctime(), meta.ctime_nsec()),
            length: meta.len(),
            inode: (meta.dev(), meta.ino()),
        }
    }
}

/// What a folder holds. Paths are relative to it.
#[derive(Debug, Default)]
pub(super) struct Listing {
    /// Manifest files in name order.
    pub(super) files: BTreeMap<Arc<Path>, Stamp>,
    /// What is there but cannot be looked at, and why. Nothing is known of what is in or behind it.
    pub(super) unreadable: BTreeMap<Arc<Path>, String>,
}

/// How a file of this name is written; `None` when it is no manifest.
pub(super) fn format(path: &Path) -> Option<Format> {
    match path.extension()?.to_str()? {
        "yaml" | "yml" => Some(Format::Yaml),
        "json" => Some(Format::Json),
        _ => None,
    }
}

/// Lists a folder with its subfolders. Hidden files and folders are skipped; symbolic links are followed, so that a mounted ConfigMap
/// (links into a hidden folder) is read once, under its visible names.
///
/// # Errors
/// When the folder itself cannot be read.
pub(super) fn list(root: &Path) -> io::Result<Listing> {
    let mut out = Listing::default();
    let meta = fs::metadata(root)?;
    let mut above = vec![(meta.dev(), meta.ino())];
    folder(root, Path::new(""), &mut above, &mut out)?;
    Ok(out)
}

fn folder(root: &Path, at: &Path, above: &mut Vec<(u64, u64)>, out: &mut Listing) -> io::Result<()> {
    for entry in fs::read_dir(root.join(at))? {
        let name = entry?.file_name();
        if name.as_encoded_bytes().starts_with(b".") {
            continue;
        }
        let path = at.join(&name);
        let full = root.join(&path);
        let meta = match fs::metadata(&full) {
            Ok(meta) => meta,
            // removed since the folder was read; a link to nowhere is still there
            Err(e) if e.kind() == io::ErrorKind::NotFound && fs::symlink_metadata(&full).is_err() => continue,
            Err(e) => {
                if format(&path).is_some() || path.extension().is_none() {
                    out.unreadable.insert(path.into(), e.to_string());
                }
                continue;
            }
        };
        if meta.is_dir() {
            subfolder(root, path, (meta.dev(), meta.ino()), above, out);
        } else if meta.is_file() && format(&path).is_some() {
            out.files.insert(path.into(), Stamp::of(&meta));
        }
    }
    Ok(())
}

/// A subfolder that cannot be read does not spoil the rest; one that leads back to where we are is not entered again.
fn subfolder(root: &Path, path: PathBuf, id: (u64, u64), above: &mut Vec<(u64, u64)>, out: &mut Listing) {
    if above.contains(&id) {
        return;
    }
    above.push(id);
    if let Err(e) = folder(root, &path, above, out) {
        out.unreadable.insert(path.into(), e.to_string());
    }
    above.pop();
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn names(listing: &Listing) -> Vec<&str> {
        listing.files.keys().map(|p| p.to_str().expect("text")).collect()
    }

    #[test]
    fn what_is_listed() {
        let dir = tempfile::tempdir().expect("folder");
        let root = dir.path();
        for sub in ["sub/deep", ".hidden", "..data"] {
            fs::create_dir_all(root.join(sub)).expect("made");
        }
        for file in [
            "b.yaml",
            "a.yml",
            "c.json",
            "d.txt",
            ".e.yaml",
            "f.yaml~",
            "sub/deep/g.yaml",
            ".hidden/h.yaml",
            "..data/i.yaml",
        ] {
            fs::write(root.join(file), "").expect("written");
        }
        symlink("..data/i.yaml", root.join("i.yaml")).expect("linked");
        symlink(".", root.join("loop")).expect("linked");
        symlink("gone.yaml", root.join("dangling.yaml")).expect("linked");
        symlink("self.yaml", root.join("self.yaml")).expect("linked");
        let listing = list(root).expect("reads");
        assert_eq!(names(&listing), ["a.yml", "b.yaml", "c.json", "i.yaml", "sub/deep/g.yaml"]);
        let unreadable: Vec<_> = listing.unreadable.keys().map(|p| p.to_str().expect("text")).collect();
        assert_eq!(unreadable, ["dangling.yaml", "self.yaml"]);
    }

    #[test]
    fn a_missing_folder_is_an_error() {
        assert!(list(Path::new("/nonexistent/folder")).is_err());
    }
}
