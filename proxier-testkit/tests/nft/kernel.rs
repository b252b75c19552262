//! The model against the kernel: what nft lists of a loaded text must be understood, and treat every packet alike.

use std::io::Write;
use std::process::{Command, Stdio};

use proxier_core::ids::Protocol;
use proxier_core::oracle::{Entry, Packet};
use proxier_testkit::nft;
use proxier_testkit::walk::WalkHost;

use crate::{example, peer};

/// Loads a text with `nft -f` in a network namespace of its own, and lists it.
#[expect(clippy::disallowed_methods, reason = "a test starts the tools it is about")]
fn through_the_kernel(text: &str, table: &str) -> String {
    let shell = format!("nft -f - && nft list table {table}");
    let mut child = Command::new("unshare")
        .args(["--map-root-user", "--net", "sh", "-c", &shell])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("unshare starts");
    child.stdin.take().expect("a pipe").write_all(text.as_bytes()).expect("the text is taken");
    let output = child.wait_with_output().expect("nft ends");
    assert!(output.status.success(), "nft failed: {}", output.status);
    String::from_utf8(output.stdout).expect("a listing is text")
}

/// Every packet that can be made of these; compares both texts, and counts.
fn compare(
    text: &str,
    table: &str,
    host: &WalkHost,
    sources: &[&str],
    destinations: &[&str],
    ports: &[u16],
) -> usize {
    let written = nft::parse(text).unwrap_or_else(|error| panic!("{error}"));
    let listed = nft::parse(&through_the_kernel(text, table)).unwrap_or_else(|error| panic!("{error}"));
    let protocols = Protocol::ALL.map(Some).into_iter().chain([None]);
    let mut count = 0;
    for protocol in protocols {
        for (source, destination) in sources.iter().flat_map(|s| destinations.iter().map(move |d| (s, d))) {
            for port in ports {
                for entry in [Entry::Host, Entry::Interface("eth0".into()), Entry::Interface("veth0".into())]
                {
                    let (source, destination) = (source.parse().unwrap(), destination.parse().unwrap());
                    let packet = Packet { source, destination, protocol, port: *port, entry };
                    let [one, other] =
                        [&written, &listed].map(|rules| nft::walk(rules, &packet, host).unwrap());
                    assert_eq!(one.outcome(), other.outcome(), "{packet:?}");
                    assert_eq!(one.branches.len(), other.branches.len(), "{packet:?}");
                    count += 1;
                }
            }
        }
    }
    count
}

#[test]
#[ignore = "needs nft and the right to make a network namespace"]
fn the_worked_example_listed_by_the_kernel() {
    let count = compare(
        example::SCRIPT,
        "ip kube-proxy",
        &example::host(),
        &[
            "10.244.0.5",
            "10.244.0.11",
            "10.244.1.7",
            "192.168.0.2",
            "192.168.0.9",
            "203.0.113.1",
            "203.0.113.200",
            "127.0.0.1",
        ],
        &[
            "10.96.0.1",
            "10.96.0.10",
            "10.96.10.1",
            "10.96.10.2",
            "10.96.10.3",
            "10.96.10.4",
            "10.96.99.99",
            "203.0.113.10",
            "198.51.100.20",
            "198.51.100.30",
            "198.51.100.40",
            "192.0.2.50",
            "192.168.0.2",
            "10.244.0.1",
            "127.0.0.1",
            "8.8.8.8",
        ],
        &[53, 80, 443, 2905, 8080, 30080, 30443, 30808, 30905],
    );
    assert_eq!(count, 8 * 16 * 9 * 4 * 3);
}

#[test]
#[ignore = "needs nft and the right to make a network namespace"]
fn the_peers_rules_loaded_and_listed_again() {
    compare(
        peer::IPV4,
        "ip kube-proxy",
        &peer::host(),
        &[
            "10.244.1.2",
            "10.244.1.51",
            "10.244.2.2",
            "172.30.0.3",
            "172.30.0.5",
            "203.0.113.9",
            "198.51.100.7",
        ],
        &[
            "10.96.66.43",
            "10.96.123.219",
            "10.96.0.10",
            "10.96.1.1",
            "10.96.2.2",
            "10.96.3.1",
            "10.96.4.1",
            "10.96.200.1",
            "192.0.2.10",
            "192.0.2.20",
            "192.0.2.77",
            "192.0.2.88",
            "172.30.0.3",
            "10.244.1.1",
        ],
        &[53, 80, 443, 2905, 9100, 30080, 30081, 30180, 30280, 30480, 30905],
    );
    compare(
        peer::IPV6,
        "ip6 kube-proxy",
        &peer::host(),
        &["fd00:10:244:1::81", "fd00:10:244:2::9", "fd00:30::3", "fd00:30::5"],
        &["fd00:10:96::66", "fd00:10:96::a", "fd00:10:96::99", "fd00:30::3", "fd00:99::1"],
        &[53, 80, 30680],
    );
}

#[test]
#[ignore = "needs nft and the right to make a network namespace"]
fn services_as_map_elements_listed_by_the_kernel() {
    let count = compare(
        example::MAPS,
        "ip p",
        &example::host(),
        &["10.244.0.9", "192.168.0.2"],
        &["10.96.0.1", "192.168.0.2", "10.1.1.1"],
        &[53, 80, 8080, 30000],
    );
    assert!(count > 0);
}
