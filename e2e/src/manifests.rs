//! The folder of manifests that the agents watch: the lab's stand-in for an API server.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

/// A folder of YAML files that is changed while agents run.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    staging: PathBuf,
}

impl Folder {
    /// Creates an empty folder at `path`.
    ///
    /// # Errors
    /// When the file system refuses.
    pub fn create(path: PathBuf) -> anyhow::Result<Self> {
        let staging = path.with_extension("staging");
        for folder in [&path, &staging] {
            fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
        }
        Ok(Self { path, staging })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Adds or replaces a file in one step, so that a reader meets the old or the new text, never half of it.
    ///
    /// # Errors
    /// When the file system refuses.
    pub fn put(&self, name: &str, text: &str) -> anyhow::Result<()> {
        let staged = self.staging.join(name);
        fs::write(&staged, text).with_context(|| format!("writing {}", staged.display()))?;
        fs::rename(&staged, self.path.join(name)).with_context(|| format!("putting {name} in place"))
    }

    /// Replaces one passage of a file, as an operator's patch would.
    ///
    /// # Errors
    /// When the passage is not there exactly once, or the file system refuses.
    pub fn patch(&self, name: &str, passage: &str, replacement: &str) -> anyhow::Result<()> {
        let file = self.path.join(name);
        let text = fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
        if text.matches(passage).count() != 1 {
            bail!("{name} holds {passage:?} {} times, not once", text.matches(passage).count());
        }
        self.put(name, &text.replace(passage, replacement))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_replaces_exactly_one_passage() {
        let root = tempfile::tempdir().unwrap();
        let folder = Folder::create(root.path().join("manifests")).unwrap();
        folder.put("a.yaml", "policy: Cluster\nport: 1\nport: 2\n").unwrap();
        folder.patch("a.yaml", "policy: Cluster", "policy: Local").unwrap();
        let text = fs::read_to_string(folder.path().join("a.yaml")).unwrap();
        assert_eq!(text, "policy: Local\nport: 1\nport: 2\n");
        assert!(folder.patch("a.yaml", "policy: Cluster", "x").is_err());
        assert!(folder.patch("a.yaml", "port", "x").is_err());
        assert_eq!(
            fs::read_dir(folder.path()).unwrap().count(),
            1,
            "no staged file is ever in the watched folder"
        );
    }
}
