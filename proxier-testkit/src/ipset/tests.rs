use std::net::IpAddr;

use super::*;

fn part(ip: &str, port: Option<(u8, u16)>) -> Part {
    Part { ip: Some(ip.parse::<IpAddr>().unwrap()), port }
}

fn sets(lines: &[&str]) -> Sets {
    let mut out = Sets::default();
    for line in lines {
        out.run(line, &BTreeSet::new()).unwrap();
    }
    out
}

#[test]
fn what_is_found() {
    let sets = sets(&[
        "create A hash:ip,port family inet hashsize 1024 maxelem 65536 -exist",
        "add A 10.96.0.1,tcp:80",
        "create N hash:ip,port,net",
        "add N 10.96.0.1,tcp:80,203.0.113.0/24",
        "add N 10.96.0.1,tcp:80,198.51.100.7/32",
        "create L hash:ip,port,ip family inet6",
        "add L fd00::1,udp:53,fd00::1",
        "create P bitmap:port range 0-65535",
        "add P 30080",
        "create I hash:ip",
        "add I 10.96.0.1",
    ]);
    let tcp = Some((6, 80));
    let client = part("203.0.113.9", Some((6, 4000)));
    let front = part("10.96.0.1", tcp);
    assert!(sets.finds("A", &[front, front]));
    assert!(!sets.finds("A", &[front]), "one part is too few");
    assert!(!sets.finds("A", &[client, front]));
    assert!(!sets.finds("A", &[part("10.96.0.1", None), part("10.96.0.1", None)]), "without ports");
    assert!(!sets.finds("A", &[part("10.96.0.1", Some((17, 80))); 2]));
    assert!(sets.finds("N", &[front, front, client]));
    assert!(sets.finds("N", &[front, front, part("198.51.100.7", tcp)]));
    assert!(!sets.finds("N", &[front, front, part("198.51.100.8", tcp)]));
    assert!(sets.finds("L", &[part("fd00::1", Some((17, 53))); 3]));
    assert!(!sets.finds("L", &[front, front, front]), "another family");
    assert!(sets.finds("P", &[part("fd00::9", Some((17, 30080)))]), "bitmaps have no family");
    assert!(!sets.finds("P", &[part("fd00::9", Some((132, 30080)))]), "nor SCTP");
    assert!(sets.finds("I", &[part("10.96.0.1", None)]));
    assert!(!sets.finds("missing", &[front]));
}

#[test]
fn what_is_refused() {
    let mut there = sets(&["create A hash:ip,port", "add A 10.96.0.1,tcp:80", "create N hash:ip,port,net"]);
    let mut run = |line: &str, used: &[&str]| {
        let used = used.iter().map(ToString::to_string).collect();
        there.run(line, &used).map_err(|e| e.cause)
    };
    assert_eq!(run("create A hash:ip,port", &[]), Err(SetCause::SetExists));
    assert_eq!(run("create A hash:ip,port -exist", &[]), Ok(()));
    assert_eq!(run("create A hash:ip,port family inet6 -exist", &[]), Err(SetCause::OtherSet));
    assert_eq!(run("create A bitmap:port range 0-65535 -exist", &[]), Err(SetCause::OtherSet));
    assert_eq!(run("create KUBE-6-LOAD-BALANCER-SOURCE-CIDR hash:ip", &[]), Err(SetCause::NameTooLong));
    assert_eq!(run("add A 10.96.0.1,tcp:80", &[]), Err(SetCause::Added));
    assert_eq!(run("add A 10.96.0.1,tcp:80 -exist", &[]), Ok(()));
    assert_eq!(run("del A 10.96.0.2,tcp:80", &[]), Err(SetCause::NotAdded));
    assert_eq!(run("del A 10.96.0.2,tcp:80 -exist", &[]), Ok(()));
    assert_eq!(run("add B 1.2.3.4", &[]), Err(SetCause::NoSet));
    assert_eq!(run("add N 1.2.3.4,tcp:1,0.0.0.0/0", &[]), Err(SetCause::Entry(EntryError::Everything)));
    assert!(matches!(run("add A fd00::1,tcp:1", &[]), Err(SetCause::Entry(EntryError::Family(_)))));
    assert!(matches!(run("add A 1.2.3.4", &[]), Err(SetCause::Entry(EntryError::Syntax(_)))));
    assert_eq!(run("destroy A", &["A"]), Err(SetCause::InUse));
    assert_eq!(run("destroy A", &[]), Ok(()));
    assert_eq!(run("swap A N", &[]), Err(SetCause::Syntax));
}
