//! Which shared libraries a set of files needs, and where this machine has them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};

use super::elf;

/// Where the system's loader looks, besides what `/etc/ld.so.conf` names.
const DEFAULT_FOLDERS: [&str; 4] = ["/lib64", "/usr/lib64", "/lib", "/usr/lib"];

/// Where the list of further folders begins.
const CONFIGURATION: &str = "/etc/ld.so.conf";

/// Finds libraries and remembers what it found.
#[derive(Debug)]
pub(crate) struct Libraries {
    folders: Vec<PathBuf>,
    seen: BTreeSet<PathBuf>,
    found: BTreeMap<String, PathBuf>,
}

impl Libraries {
    /// With this machine's folders.
    pub(crate) fn new() -> Self {
        let configured = configured(Path::new(CONFIGURATION), 0);
        Self::within(configured.into_iter().chain(DEFAULT_FOLDERS.map(PathBuf::from)).collect())
    }

    fn within(folders: Vec<PathBuf>) -> Self {
        Self { folders, seen: BTreeSet::new(), found: BTreeMap::new() }
    }

    /// Everything that `file` needs and what that needs, with the loader; only what no earlier call gave.
    ///
    /// # Errors
    /// A file that cannot be read, a damaged one, and a library that is nowhere.
    pub(crate) fn of(&mut self, file: &Path) -> anyhow::Result<Vec<PathBuf>> {
        let mut all = Vec::new();
        let mut open = vec![file.to_owned()];
        while let Some(file) = open.pop() {
            if !self.seen.insert(file.clone()) {
                continue;
            }
            let content = std::fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?;
            let needs = elf::needs(&content).map_err(|e| anyhow!("{}: {e}", file.display()))?;
            let Some(needs) = needs else { continue };
            let mut new: Vec<PathBuf> = needs.loader.iter().map(PathBuf::from).collect();
            for name in &needs.libraries {
                new.push(self.find(name, &file, &needs.folders)?);
            }
            new.retain(|path| !self.seen.contains(path));
            all.extend(new.iter().cloned());
            open.extend(new);
        }
        all.sort();
        all.dedup();
        Ok(all)
    }

    fn find(&mut self, name: &str, of: &Path, own: &[String]) -> anyhow::Result<PathBuf> {
        if let Some(path) = self.found.get(name) {
            return Ok(path.clone());
        }
        let origin = of.parent().unwrap_or(Path::new("/")).display().to_string();
        let own =
            own.iter().map(|f| PathBuf::from(f.replace("$ORIGIN", &origin).replace("${ORIGIN}", &origin)));
        let folders: Vec<PathBuf> = own.chain(self.folders.iter().cloned()).collect();
        let Some(path) = folders.iter().map(|f| f.join(name)).find(|path| path.is_file()) else {
            let folders: Vec<_> = folders.iter().map(|f| f.display().to_string()).collect();
            bail!("{} needs {name}, which is in none of {}", of.display(), folders.join(", "));
        };
        self.found.insert(name.to_owned(), path.clone());
        Ok(path)
    }
}

/// The folders a file in the format of `ld.so.conf` names, with those of the files it includes.
fn configured(file: &Path, depth: u8) -> Vec<PathBuf> {
    const DEEPEST: u8 = 4;
    let Ok(text) = std::fs::read_to_string(file) else { return Vec::new() };
    let mut folders = Vec::new();
    for line in text.lines().map(str::trim) {
        if let Some(pattern) = line.strip_prefix("include ") {
            if depth < DEEPEST {
                folders.extend(included(pattern.trim()).iter().flat_map(|f| configured(f, depth + 1)));
            }
        } else if line.starts_with('/') {
            folders.push(line.into());
        }
    }
    folders
}

/// The files a pattern means; only its last part may hold an asterisk.
fn included(pattern: &str) -> Vec<PathBuf> {
    let pattern = Path::new(pattern);
    let name = pattern.file_name().unwrap_or_default().to_string_lossy();
    let Some((start, end)) = name.split_once('*') else { return vec![pattern.to_owned()] };
    let Some(Ok(entries)) = pattern.parent().map(std::fs::read_dir) else { return Vec::new() };
    let mut files: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with(start) && name.ends_with(end)
        })
        .collect();
    files.sort();
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_comes_with_its_libraries_and_the_loader_once() {
        let own = std::env::current_exe().unwrap();
        let mut libraries = Libraries::new();
        let found = libraries.of(&own).unwrap();
        let names: Vec<_> = found.iter().filter_map(|p| p.file_name()?.to_str()).collect();
        assert!(names.iter().any(|n| n.starts_with("libc.so.")), "{found:?}");
        assert!(names.iter().any(|n| n.starts_with("ld-linux")), "{found:?}");
        assert_eq!(libraries.of(&own).unwrap(), Vec::<PathBuf>::new(), "given once");
    }

    #[test]
    fn a_library_that_is_nowhere_is_named_with_who_needs_it() {
        let own = std::env::current_exe().unwrap();
        let error = Libraries::within(vec!["/nonexistent".into()]).of(&own).unwrap_err().to_string();
        assert!(error.contains(&own.display().to_string()) && error.contains("/nonexistent"), "{error}");
    }

    #[test]
    fn scripts_need_no_library() {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
        assert_eq!(Libraries::new().of(&script).unwrap(), Vec::<PathBuf>::new());
    }

    #[test]
    fn the_loaders_configuration_is_followed_through_its_includes() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        let here = folder.path().display();
        write("main", &format!("# comment\ninclude {here}/*.conf\n/last\n"));
        write("b.conf", "/second\n");
        write("a.conf", &format!("/first\ninclude {here}/main\n"));
        write("other", "/never\n");
        let folders = configured(&folder.path().join("main"), 0);
        assert_eq!((folders[0].to_str(), folders.last().unwrap().to_str()), (Some("/first"), Some("/last")));
        assert!(folders.contains(&"/second".into()) && !folders.contains(&"/never".into()));
    }
}
