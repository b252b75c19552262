//! The machine's kernel: Debian's cloud kernel, downloaded and unpacked, never installed.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use crate::{packages, process};

/// The package that depends on the newest kernel of its kind.
const PACKAGE: &str = "linux-image-cloud-amd64";

/// Where `apt-get update` leaves what there is; its time says whether an answer is still good.
const LISTS: &str = "/var/lib/apt/lists";

/// Beginning of the names of unpacked kernels.
const PREFIX: &str = "kernel-";

/// An unpacked kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kernel {
    /// The file to boot.
    pub(crate) image: PathBuf,
    /// What `uname -r` says there.
    pub(crate) release: String,
    /// The folder of its modules, with their indices.
    pub(crate) modules: PathBuf,
}

impl Kernel {
    fn at(folder: &Path) -> anyhow::Result<Self> {
        let boot = folder.join("boot");
        let names = names(&boot)?;
        let Some(release) = names.iter().find_map(|name| name.strip_prefix("vmlinuz-")) else {
            bail!("{} holds no kernel", boot.display());
        };
        Ok(Self {
            image: boot.join(format!("vmlinuz-{release}")),
            release: release.to_owned(),
            modules: folder.join("lib/modules").join(release),
        })
    }
}

/// The newest kernel that this machine's package lists name, from the cache or by download.
///
/// # Errors
/// When there is neither a download nor an earlier one.
pub(crate) fn newest(cache: &Path) -> anyhow::Result<Kernel> {
    let stamp = cache.join("kernel");
    let lists = fs::metadata(LISTS).and_then(|facts| facts.modified()).ok();
    let answer = lists.map(|time| format!("{time:?}"));
    if let (Some(answer), Ok(known)) = (&answer, fs::read_to_string(&stamp))
        && let Some(name) = known.strip_prefix(&format!("{answer}\n"))
        && let Ok(kernel) = Kernel::at(&cache.join(name))
    {
        return Ok(kernel);
    }
    let name = match package_file() {
        Ok(file) => obtain(cache, &file)?,
        Err(error) => {
            let Some(name) = earlier(cache)? else { return Err(error) };
            println!("{error:#}; taking the kernel downloaded before, {name}");
            return Kernel::at(&cache.join(name));
        }
    };
    let answer = fs::metadata(LISTS).and_then(|facts| facts.modified()).ok().map(|time| format!("{time:?}"));
    fs::write(&stamp, format!("{}\n{name}", answer.unwrap_or_default()))
        .with_context(|| format!("cannot write {}", stamp.display()))?;
    remove_others(cache, PREFIX, &name)?;
    Kernel::at(&cache.join(name))
}

/// What to download.
#[derive(Clone, Debug, PartialEq, Eq)]
struct PackageFile {
    package: String,
    file: String,
}

/// Asks the package lists, after reading them anew if they do not know.
fn package_file() -> anyhow::Result<PackageFile> {
    let ask = || -> anyhow::Result<PackageFile> {
        let depends = output("apt-cache", &["depends", "--important", PACKAGE])?;
        let package =
            dependency(&depends).with_context(|| format!("the package lists do not know {PACKAGE}"))?;
        let uris = output("apt-get", &["download", "--print-uris", &package])?;
        let file = file_name(&uris).with_context(|| format!("the package lists do not know {package}"))?;
        Ok(PackageFile { package, file })
    };
    match ask() {
        Err(_) if packages::is_root() => {
            process::run(&mut process::command("apt-get", &["update"]))?;
            ask()
        }
        answer => answer.context("if the package lists are missing: apt-get update"),
    }
}

/// The real package in the answer of `apt-cache depends`.
fn dependency(answer: &str) -> Option<String> {
    let names = answer.lines().filter_map(|line| line.trim().strip_prefix("Depends: "));
    names.map(str::to_owned).find(|name| name.starts_with("linux-image-"))
}

/// The file's name in the answer of `apt-get download --print-uris`: `'URI' NAME SIZE HASH`.
fn file_name(answer: &str) -> Option<String> {
    let line = answer.lines().find(|line| line.starts_with('\''))?;
    line.rsplit_once("' ")?.1.split_whitespace().next().map(str::to_owned)
}

/// Downloads and unpacks unless that was done before; the folder's name.
fn obtain(cache: &Path, wanted: &PackageFile) -> anyhow::Result<String> {
    let name = format!("{PREFIX}{}", wanted.file.trim_end_matches(".deb"));
    if Kernel::at(&cache.join(&name)).is_ok() {
        return Ok(name);
    }
    let work = cache.join(format!("unpack-{}", process::unique()));
    fs::create_dir_all(&work).with_context(|| format!("cannot make {}", work.display()))?;
    let done = fetch(&work, wanted).and_then(|root| {
        let target = cache.join(&name);
        // Another process may have been faster.
        fs::rename(&root, &target).or_else(|e| Kernel::at(&target).map(drop).map_err(|_| e))?;
        Ok(())
    });
    fs::remove_dir_all(&work).with_context(|| format!("cannot remove {}", work.display()))?;
    done.with_context(|| format!("downloading and unpacking {}", wanted.package))?;
    Ok(name)
}

fn fetch(work: &Path, wanted: &PackageFile) -> anyhow::Result<PathBuf> {
    let mut arguments = vec!["download", wanted.package.as_str()];
    if packages::is_root() {
        // Else apt complains that its own user cannot write to our folder.
        arguments.extend(["-o", "APT::Sandbox::User=root"]);
    }
    let download = || process::run(process::command("apt-get", &arguments).current_dir(work));
    if download().is_err() && packages::is_root() {
        // Lists may name a file that its server has replaced.
        process::run(&mut process::command("apt-get", &["update"]))?;
        download()?;
    }
    let Some(file) = names(work)?.into_iter().find(|name| name.ends_with(".deb")) else {
        bail!("apt-get has downloaded nothing");
    };
    let root = work.join("root");
    let text = root.to_string_lossy().into_owned();
    process::run(process::command("dpkg-deb", &["-x", &file, &text]).current_dir(work))?;
    // Newer packages have modules below usr/lib, older ones below lib; tools look in either.
    for (missing, target) in [("lib", "usr/lib"), ("usr/lib", "../lib")] {
        if !root.join(missing).exists() {
            fs::create_dir_all(root.join(missing).parent().unwrap_or(&root))?;
            symlink(target, root.join(missing))?;
        }
    }
    let kernel = Kernel::at(&root)?;
    process::run(&mut process::command("depmod", &["-b", &text, &kernel.release]))?;
    Ok(root)
}

/// The kernel unpacked last, whatever the package lists say.
fn earlier(cache: &Path) -> anyhow::Result<Option<String>> {
    let mut names = names(cache)?;
    names.retain(|name| name.starts_with(PREFIX) && Kernel::at(&cache.join(name)).is_ok());
    Ok(names.pop())
}

/// Removes the files and folders whose names begin with `prefix` and not with `keep`, under which another process may be writing the same. Nor does it
/// matter when another one removes them.
pub(crate) fn remove_others(folder: &Path, prefix: &str, keep: &str) -> anyhow::Result<()> {
    for name in names(folder)?.iter().filter(|name| name.starts_with(prefix) && !name.starts_with(keep)) {
        let path = folder.join(name);
        let removed = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        match removed {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            removed => removed.with_context(|| format!("cannot remove {}", path.display()))?,
        }
    }
    Ok(())
}

/// The names in a folder, sorted.
pub(crate) fn names(folder: &Path) -> anyhow::Result<Vec<String>> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut names = Vec::new();
    for entry in entries {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

/// What a command that must succeed prints.
pub(crate) fn output(program: &str, arguments: &[&str]) -> anyhow::Result<String> {
    let mut command = process::command(program, arguments);
    let shown = process::shown(&command);
    let output = command.output().with_context(|| format!("cannot run {shown}"))?;
    if !output.status.success() {
        bail!("{shown}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_real_package_and_its_file_are_read_from_the_answers() {
        let depends = "linux-image-cloud-amd64\n  Depends: linux-image-6.1.0-57-cloud-amd64\n";
        assert_eq!(dependency(depends).as_deref(), Some("linux-image-6.1.0-57-cloud-amd64"));
        assert_eq!(dependency("linux-image-cloud-amd64\n"), None);
        let uris = "'http://a/pool/linux-image_6.1.192-3_amd64.deb' linux-image_6.1.192-3_amd64.deb 26705532 SHA256:0\n";
        assert_eq!(file_name(uris).as_deref(), Some("linux-image_6.1.192-3_amd64.deb"));
        assert_eq!(file_name("E: nothing"), None);
    }

    #[test]
    fn an_unpacked_kernel_is_recognised_by_its_image() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("boot")).unwrap();
        assert!(Kernel::at(folder.path()).is_err());
        fs::write(folder.path().join("boot/vmlinuz-6.1.0-x"), "").unwrap();
        let kernel = Kernel::at(folder.path()).unwrap();
        assert_eq!(kernel.release, "6.1.0-x");
        assert_eq!(kernel.modules, folder.path().join("lib/modules/6.1.0-x"));
    }

    #[test]
    fn only_others_of_the_same_kind_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["base-1", "base-2", "base-2-77", "kernel"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        fs::create_dir(folder.path().join("base-3")).unwrap();
        remove_others(folder.path(), "base-", "base-2").unwrap();
        assert_eq!(names(folder.path()).unwrap(), ["base-2", "base-2-77", "kernel"]);
    }

    #[test]
    fn a_command_that_fails_tells_its_own_words() {
        assert_eq!(output("sh", &["-c", "echo x"]).unwrap(), "x\n");
        let error = output("sh", &["-c", "echo why >&2; exit 3"]).unwrap_err().to_string();
        assert!(error.contains("exit status: 3") && error.ends_with("why"), "{error}");
    }
}
