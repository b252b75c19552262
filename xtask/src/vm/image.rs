//! What every machine has: the kernel's modules, a shell, the tools of networking, and the first process. Built once, kept
//! in the target folder until a file of it changes.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use super::kernel::{self, Kernel};
use super::modules;
use super::tree::{MERGED, Tree};
use crate::{metadata, packages, process};

/// Beginning of the names of finished images.
const PREFIX: &str = "base-";

/// Programs of this machine that are there too.
const TOOLS: [&str; 24] = [
    "cksum",
    "conntrack",
    "install",
    "ip",
    "ip6tables",
    "ip6tables-legacy",
    "ip6tables-legacy-restore",
    "ip6tables-legacy-save",
    "ip6tables-nft",
    "ip6tables-nft-restore",
    "ip6tables-nft-save",
    "iptables",
    "iptables-legacy",
    "iptables-legacy-restore",
    "iptables-legacy-save",
    "iptables-nft",
    "iptables-nft-restore",
    "iptables-nft-save",
    "ipset",
    "ipvsadm",
    "nft",
    "setpriv",
    "ss",
    "unshare",
];

/// Names of the tools above under which Debian's alternatives may or may not have them.
const RESTORERS: [(&str, &str); 4] = [
    ("iptables-save", "iptables-nft-save"),
    ("iptables-restore", "iptables-nft-restore"),
    ("ip6tables-save", "ip6tables-nft-save"),
    ("ip6tables-restore", "ip6tables-nft-restore"),
];

/// Names under which the kernel and people call `kmod`.
const KMOD: [&str; 4] = ["modprobe", "lsmod", "modinfo", "rmmod"];

/// Where Debian has the plug-ins of iptables, below the folder of libraries of its architecture.
const PLUGINS: [&str; 1] = ["/usr/lib/x86_64-linux-gnu/xtables"];

/// Files of this machine that tools read.
const TABLES: [&str; 4] = ["/etc/protocols", "/etc/services", "/etc/iproute2", "/lib/terminfo/d/dumb"];

/// Texts that differ from this machine's.
const TEXTS: [(&str, &str); 5] = [
    (
        "/etc/passwd",
        "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
    ),
    ("/etc/group", "root:x:0:\nnogroup:x:65534:\n"),
    ("/etc/hosts", "127.0.0.1 localhost machine\n::1 localhost\n"),
    ("/etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\nprotocols: files\nservices: files\n"),
    ("/etc/hostname", "machine\n"),
];

/// The first process.
const INIT: &str = include_str!("init.sh");

/// What a machine is started from.
#[derive(Debug)]
pub(crate) struct Image {
    /// The kernel.
    pub(crate) kernel: Kernel,
    /// The first part of the initial file system.
    pub(crate) base: PathBuf,
    /// What is in it.
    pub(crate) tree: Tree,
    /// The folder of all that is kept.
    pub(crate) cache: PathBuf,
}

/// Makes sure of packages, kernel and image.
///
/// # Errors
/// What is missing and cannot be had, with the command that gets it.
pub(crate) fn prepare() -> anyhow::Result<Image> {
    if !cfg!(target_arch = "x86_64") {
        bail!("the machine is an x86-64 one and runs what was built for that");
    }
    packages::ensure(packages::MACHINE)?;
    let cache: PathBuf = metadata::load()?.target_directory.join("vm").into();
    fs::create_dir_all(&cache).with_context(|| format!("cannot make {}", cache.display()))?;
    let kernel = kernel::newest(&cache)?;
    let tree = base(&kernel)?;
    let name = format!("{PREFIX}{}-{:016x}.cpio", kernel.release, tree.fingerprint()?);
    let base = cache.join(&name);
    if !base.exists() {
        println!("building the machine's image, {}", base.display());
        build(&tree, &base)?;
        kernel::remove_others(&cache, PREFIX, &name)?;
    }
    Ok(Image { kernel, base, tree, cache })
}

/// Everything of the image, by paths.
fn base(kernel: &Kernel) -> anyhow::Result<Tree> {
    let mut tree = Tree::new();
    for folder in MERGED {
        tree.directory(&format!("usr/{folder}"));
        tree.link(&format!("/{folder}"), &format!("usr/{folder}"));
    }
    for folder in ["proc", "sys", "dev", "run/lock", "tmp", "root", "var/tmp", "machine", "etc"] {
        tree.directory(folder);
    }
    tree.link("/var/run", "/run");
    tree.device("/dev/console", 0o600, (5, 1));
    tree.device("/dev/null", 0o666, (1, 3));
    tree.text("/init", 0o755, INIT);
    for (path, text) in TEXTS {
        tree.text(path, 0o644, text);
    }
    for path in TABLES.map(Path::new).iter().filter(|path| path.exists()) {
        tree.host(path, path)?;
    }
    shell(&mut tree)?;
    tools(&mut tree)?;
    let indices = kernel::names(&kernel.modules)?.into_iter().filter(|name| name.starts_with("modules."));
    let dependencies = kernel.modules.join("modules.dep");
    let text = fs::read_to_string(&dependencies)
        .with_context(|| format!("cannot read {}", dependencies.display()))?;
    for path in indices.chain(modules::chosen(&text)) {
        let there = Path::new("/lib/modules").join(&kernel.release).join(&path);
        tree.host(&kernel.modules.join(&path), &there)?;
    }
    Ok(tree)
}

/// Debian's shell, and busybox under the names of everything else; [`tools`] puts the real ones over some. Busybox's own shell
/// would take its own `ip` whatever the search path says.
fn shell(tree: &mut Tree) -> anyhow::Result<()> {
    let busybox = find("busybox")?.canonicalize().context("busybox")?;
    tree.program(&busybox)?;
    for name in kernel::output("busybox", &["--list"])?.lines().filter(|name| *name != "busybox") {
        tree.link(&format!("usr/bin/{name}"), &busybox.to_string_lossy());
    }
    let shell = find("dash")?;
    tree.program(&shell)?;
    tree.link("usr/bin/sh", &shell.to_string_lossy());
    Ok(())
}

fn tools(tree: &mut Tree) -> anyhow::Result<()> {
    for name in TOOLS {
        tree.program(&find(name)?)?;
    }
    let kmod = find("kmod")?;
    tree.program(&kmod)?;
    for name in KMOD {
        tree.link(&format!("usr/sbin/{name}"), &kmod.to_string_lossy());
    }
    for (name, of) in RESTORERS {
        let path = find(name).or_else(|_| find(of))?;
        tree.link(&format!("usr/sbin/{name}"), &path.canonicalize()?.to_string_lossy());
    }
    for folder in PLUGINS.map(Path::new) {
        tree.host(folder, folder)?;
        for name in kernel::names(folder)? {
            tree.libraries_of(&folder.join(name))?;
        }
    }
    Ok(())
}

/// Where this machine has a program.
pub(crate) fn find(name: &str) -> anyhow::Result<PathBuf> {
    let candidates = packages::search_path().into_iter().map(|folder| folder.join(name));
    candidates.into_iter().find(|path| path.is_file()).with_context(|| format!("`{name}` is not installed"))
}

/// Writes beside, then puts into place. Not compressed: emulated, the kernel takes two seconds longer to unpack gzip.
fn build(tree: &Tree, path: &Path) -> anyhow::Result<()> {
    let unfinished = path.with_extension(process::unique());
    let write = || -> anyhow::Result<()> {
        tree.write(BufWriter::new(File::create(&unfinished)?))?.flush()?;
        fs::rename(&unfinished, path)?;
        Ok(())
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}
