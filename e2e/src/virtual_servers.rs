//! What a node's kernel lists of IPVS and of what stands beside it.

use std::fs::{self, File};
use std::io::{self, Read};

use anyhow::{Context, bail};
use proxier_sys::netns::Netns;

use crate::process;

/// The kernel's listing of virtual servers, in the calling thread's network namespace.
const LISTING: &str = "/proc/thread-self/net/ip_vs";
/// The interface of service addresses.
pub const DEVICE: &str = "kube-ipvs0";

/// Has this kernel IPVS? A module is loaded if there is one.
#[must_use]
pub fn has_ipvs() -> bool {
    // Without modprobe it may be built in.
    let _ = process::output("modprobe", ["-q", "ip_vs"], "");
    fs::metadata(LISTING).is_ok()
}

/// The listing of a node, each virtual server with its real servers behind it, in single spaces and without connection counts; none before anything
/// was there.
///
/// # Errors
/// When it cannot be read.
pub fn listing(node: &str) -> anyhow::Result<String> {
    // With room for all of it from the start: the kernel loses its place between two readings when other nodes have virtual servers, too.
    let read = || {
        let mut text = String::with_capacity(1 << 20);
        match File::open(LISTING).and_then(|mut file| file.read_to_string(&mut text)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
            read => read.map(|_| text),
        }
    };
    let text = Netns::named(node)?.run(read)?.with_context(|| format!("{node}: {LISTING}"))?;
    Ok(settled(&text))
}

fn settled(text: &str) -> String {
    let mut out = String::new();
    for line in text.lines().skip(3) {
        let words: Vec<&str> = line.split_whitespace().collect();
        // Connections, active and inactive, are the last two of a real server.
        let words = if words.first() == Some(&"->") { words.get(..4).unwrap_or(&words) } else { &words };
        out.push_str(&words.join(" "));
        out.push('\n');
    }
    out
}

/// The lines of one virtual server: its own, such as `TCP 0A60A9B5:0050 rr`, then its real servers, sorted.
#[must_use]
pub fn of<'t>(listing: &'t str, head: &str) -> Option<Vec<&'t str>> {
    let mut lines = listing.lines().skip_while(|line| *line != head);
    let own = lines.next()?;
    let mut real: Vec<&str> = lines.take_while(|line| line.starts_with("->")).collect();
    real.sort_unstable();
    Some([own].into_iter().chain(real).collect())
}

/// The interface's state, then its addresses, sorted.
///
/// # Errors
/// When it is not there.
pub fn device(node: &str) -> anyhow::Result<Vec<String>> {
    let text = tool(node, "ip", &["-br", "address", "show", "dev", DEVICE])?;
    let mut words = text.split_whitespace().skip(1).map(str::to_owned);
    let state = words.next().unwrap_or_default();
    let mut addresses: Vec<String> = words.collect();
    addresses.sort_unstable();
    Ok([state].into_iter().chain(addresses).collect())
}

/// The entries of a set, sorted.
///
/// # Errors
/// When it is not there.
pub fn entries(node: &str, set: &str) -> anyhow::Result<Vec<String>> {
    let text = tool(node, "ipset", &["save", set])?;
    let head = format!("add {set} ");
    let mut entries: Vec<String> =
        text.lines().filter_map(|l| l.strip_prefix(&head)).map(str::to_owned).collect();
    entries.sort_unstable();
    Ok(entries)
}

/// Everything that a change may touch, as text.
///
/// # Errors
/// When it cannot be read.
pub fn everything(node: &str) -> anyhow::Result<String> {
    let sets = sets(node)?;
    let mut sets: Vec<&str> = sets.lines().collect();
    sets.sort_unstable();
    Ok(format!("{}{}", listing(node)?, sets.join("\n")))
}

/// What `ipvsadm -Sn` prints on a node.
///
/// # Errors
/// When the tool fails.
pub fn saved(node: &str) -> anyhow::Result<String> {
    tool(node, "ipvsadm", &["-Sn"])
}

/// How often `ipvsadm` is asked at most until it says the same twice.
const ASKED: usize = 16;

/// The same, said twice: all nodes share one table in the kernel, and while an agent writes for one of them, a listing of another one passes over some virtual
/// servers.
///
/// # Errors
/// When the tool fails, or never says the same twice.
pub fn saved_twice(node: &str) -> anyhow::Result<String> {
    let mut last = saved(node)?;
    for _ in 1..ASKED {
        let next = saved(node)?;
        if next == last {
            return Ok(next);
        }
        last = next;
    }
    bail!("{node}: ipvsadm says something else each time")
}

/// What `ipset save` prints on a node.
///
/// # Errors
/// When the tool fails.
pub fn sets(node: &str) -> anyhow::Result<String> {
    tool(node, "ipset", &["save"])
}

/// Virtual servers, sets and the interface, as far as they are there; connections in passing do not count.
///
/// # Errors
/// When they cannot be read.
pub fn left(node: &str) -> anyhow::Result<String> {
    let links = tool(node, "ip", &["-br", "link", "show", "type", "dummy"])?;
    Ok(format!("{}{}{links}", listing(node)?, tool(node, "ipset", &["list", "-name"])?))
}

/// Does a node's kernel send a frontend (`10.96.0.1 . tcp . 80`) to real servers?
///
/// # Errors
/// When it cannot be read.
pub fn dispatches(node: &str, frontend: &str) -> anyhow::Result<bool> {
    let parts: Vec<&str> = frontend.split(" . ").collect();
    let [address, "tcp", port] = parts[..] else { bail!("{frontend}: only TCP is asked for") };
    let address = if address.contains(':') { format!("[{address}]") } else { address.to_owned() };
    Ok(saved(node)?.lines().any(|line| line.starts_with(&format!("-a -t {address}:{port} "))))
}

fn tool(node: &str, program: &str, arguments: &[&str]) -> anyhow::Result<String> {
    let output = Netns::named(node)?.run(|| process::output(program, arguments.iter().copied(), ""))??;
    if !output.success() {
        bail!("{node}: {program} failed: {}", output.stderr_text().trim());
    }
    Ok(output.stdout_text())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "IP Virtual Server version 1.2.1 (size=4096)
Prot LocalAddress:Port Scheduler Flags
  -> RemoteAddress:Port Forward Weight ActiveConn InActConn
TCP  0A60A9B5:0050 rr  
  -> 0AF40202:1F90      Masq    1      0          3         
  -> 0AF40102:1F90      Masq    1      1          0         
TCP  AC1E0004:7581 rr  persistent 150000 FFFFFFFF
";

    #[test]
    fn a_virtual_server_is_its_line_and_those_below() {
        let listing = settled(TEXT);
        assert_eq!(
            of(&listing, "TCP 0A60A9B5:0050 rr").unwrap(),
            ["TCP 0A60A9B5:0050 rr", "-> 0AF40102:1F90 Masq 1", "-> 0AF40202:1F90 Masq 1"]
        );
        assert_eq!(of(&listing, "TCP AC1E0004:7581 rr persistent 150000 FFFFFFFF").unwrap().len(), 1);
        assert_eq!(of(&listing, "TCP 0A60A9B5:0051 rr"), None);
    }
}
