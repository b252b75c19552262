//! What single statements mean, each in a ruleset of its own.

use proxier_core::oracle::Outcome;
use proxier_testkit::nft;
use proxier_testkit::walk::{BranchOutcome, Delivery, Walk, WalkError, WalkHost};

use crate::rows;

/// Base chains `pre` (nat), `in`, `fwd`, `out` (filter), `post` (nat), chains a to d, and the given lines in table t.
fn script(lines: &str) -> String {
    let mut script = String::from("add table ip t\n");
    for (name, kind, hook, priority) in [
        ("raw", "filter", "prerouting", -300),
        ("pre", "nat", "prerouting", -100),
        ("nat-out", "nat", "output", -100),
        ("in", "filter", "input", 0),
        ("fwd", "filter", "forward", 0),
        ("out", "filter", "output", 0),
        ("post", "nat", "postrouting", 100),
    ] {
        script += &format!("add chain ip t {name} {{ type {kind} hook {hook} priority {priority} ; }}\n");
    }
    for chain in ["a", "b", "c", "d"] {
        script += &format!("add chain ip t {chain}\n");
    }
    for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let verb =
            if line.starts_with("add ") || line.starts_with("delete ") { "" } else { "add rule ip t " };
        script += &format!("{verb}{line}\n");
    }
    script
}

fn host() -> WalkHost {
    WalkHost::new(["192.168.0.2".parse().unwrap()])
}

fn check(lines: &str, rows: &str) {
    let rules = nft::parse(&script(lines)).unwrap_or_else(|error| panic!("{error}"));
    assert!(rows::check(&rules, &host(), rows) > 0);
}

fn walk(lines: &str, packet: &str) -> Result<Walk, WalkError> {
    nft::walk(&nft::parse(&script(lines)).unwrap(), &rows::packet(packet), &host())
}

#[test]
fn a_reset_is_for_tcp_whether_the_match_is_written_or_not() {
    check(
        "fwd ip daddr 1.0.0.1 reject with tcp reset
         fwd meta l4proto tcp ip daddr 1.0.0.2 reject with tcp reset
         fwd ip daddr 1.0.0.3 reject with icmp type port-unreachable
         fwd drop",
        "9.9.9.9@eth0 > 1.0.0.1 tcp 1 = reject
         9.9.9.9@eth0 > 1.0.0.1 udp 1 = drop
         9.9.9.9@eth0 > 1.0.0.1 icmp 0 = drop
         9.9.9.9@eth0 > 1.0.0.2 tcp 1 = reject
         9.9.9.9@eth0 > 1.0.0.2 sctp 1 = drop
         9.9.9.9@eth0 > 1.0.0.3 udp 1 = reject",
    );
}

#[test]
fn a_random_index_begins_at_its_offset_and_what_it_misses_goes_on() {
    let lines = "add map ip t m { typeof ip daddr . numgen random mod 2 : ip daddr ; }
         add element ip t m { 1.0.0.1 . 70 : 2.0.0.1, 1.0.0.1 . 71 : 2.0.0.2, 1.0.0.1 . 72 : 2.0.0.3 }
         pre meta l4proto tcp dnat to ip daddr . numgen random mod 3 map @m
         pre meta l4proto tcp dnat to ip daddr . numgen random mod 4 offset 72 map @m
         pre meta l4proto tcp dnat to ip daddr . numgen random mod 2 offset 70 map @m";
    let walk = walk(lines, "9.9.9.9@eth0 > 1.0.0.1 tcp 1").unwrap();
    // A quarter by the second rule; the rest, as one branch, by halves.
    let weights: Vec<String> = walk.branches.iter().map(|b| b.weight.to_string()).collect();
    assert_eq!(weights, ["1/4", "3/8", "3/8"]);
}

#[test]
fn jump_comes_back_and_goto_does_not() {
    check(
        "fwd ip daddr 1.0.0.1 jump a
         fwd ip daddr 1.0.0.2 goto a
         fwd ip daddr 1.0.0.3 jump b
         fwd ip daddr 1.0.0.4 jump c
         fwd drop
         b goto a
         b reject
         c jump d
         c accept
         d goto a
         d reject",
        "
        # a is empty: after the jump the next rule drops, after the goto the base chain is at its end
        9.9.9.9@eth0 > 1.0.0.1 tcp 1 = drop
        9.9.9.9@eth0 > 1.0.0.2 tcp 1 = untouched
        # the goto of b comes back to whoever jumped to b, not to b
        9.9.9.9@eth0 > 1.0.0.3 tcp 1 = drop
        # the goto of d comes back to c, behind its jump
        9.9.9.9@eth0 > 1.0.0.4 tcp 1 = untouched
        ",
    );
}

#[test]
fn return_and_continue() {
    check(
        "fwd ip daddr 1.0.0.1 return
         fwd jump a
         fwd ip daddr vmap { 1.0.0.3 : continue , 1.0.0.4 : continue } ip saddr 9.9.9.8 reject
         fwd drop
         a ip daddr 1.0.0.2 return
         a ip daddr 1.0.0.5 continue
         a ip daddr { 1.0.0.2, 1.0.0.5 } accept",
        "
        9.9.9.9@eth0 > 1.0.0.1 tcp 1 = untouched
        9.9.9.9@eth0 > 1.0.0.2 tcp 1 = drop
        9.9.9.8@eth0 > 1.0.0.3 tcp 1 = reject
        9.9.9.9@eth0 > 1.0.0.4 tcp 1 = drop
        9.9.9.9@eth0 > 1.0.0.5 tcp 1 = untouched
        ",
    );
}

#[test]
fn accept_ends_the_base_chain_only_and_policies_count() {
    check(
        "add chain ip t early { type filter hook forward priority -10 ; policy accept ; }
         add chain ip t late { type filter hook forward priority filter + 10 ; policy drop ; comment \"x\" ; }
         early ip daddr 1.0.0.1 accept
         fwd ip daddr 1.0.0.2 reject
         late ip daddr 1.0.0.3 accept
         late ip daddr { 1.0.0.1, 1.0.0.2 } drop",
        "
        9.9.9.9@eth0 > 1.0.0.1 tcp 1 = drop
        9.9.9.9@eth0 > 1.0.0.2 tcp 1 = reject
        9.9.9.9@eth0 > 1.0.0.3 tcp 1 = untouched
        9.9.9.9@eth0 > 1.0.0.4 tcp 1 = drop
        ",
    );
}

#[test]
fn of_equal_priorities_the_younger_chain_comes_first() {
    check(
        "add chain ip t second { type filter hook forward priority 0 ; }
         fwd drop
         second ip daddr 1.0.0.1 reject",
        "
        9.9.9.9@eth0 > 1.0.0.1 tcp 1 = reject
        9.9.9.9@eth0 > 1.0.0.2 tcp 1 = drop
        ",
    );
}

#[test]
fn the_first_translation_ends_nat() {
    check(
        "add chain ip t pre2 { type nat hook prerouting priority -50 ; }
         pre ip daddr 1.0.0.1 dnat to 2.0.0.1
         pre ip daddr 1.0.0.2 accept
         pre2 dnat to 3.0.0.1
         post ip daddr 3.0.0.1 masquerade
         post ct status dnat ip daddr 2.0.0.1 accept",
        "
        9.9.9.9@eth0 > 1.0.0.1 tcp 5 = 2.0.0.1:5
        # accept is no translation: the next nat chain is asked
        9.9.9.9@eth0 > 1.0.0.2 tcp 5 = 3.0.0.1:5 M
        ",
    );
}

#[test]
fn a_translation_to_the_same_place_is_none_for_conntrack() {
    // The kernel sets the status bit only if the connection's addresses or ports change.
    check(
        "pre meta l4proto tcp dnat to 1.0.0.1:80
         fwd ct status dnat drop",
        "
        9.9.9.9@eth0 > 1.0.0.1 tcp 80 = 1.0.0.1:80
        9.9.9.9@eth0 > 1.0.0.1 tcp 81 = drop
        9.9.9.9@eth0 > 1.0.0.2 tcp 80 = drop
        ",
    );
}

#[test]
fn nat_chains_run_at_the_place_of_the_nat_core() {
    // Priority -200 of the nat chain does not bring it before the filter chain at -150.
    check(
        "add chain ip t nat-early { type nat hook prerouting priority -199 ; }
         add chain ip t mangle { type filter hook prerouting priority mangle ; }
         nat-early dnat to 2.0.0.1
         mangle ip daddr 2.0.0.1 drop
         mangle ip daddr 1.0.0.1 mark set 7
         fwd meta mark 7 ip daddr 2.0.0.1 reject",
        "9.9.9.9@eth0 > 1.0.0.1 tcp 5 = reject",
    );
}

#[test]
fn filter_chains_see_the_destination_of_their_side() {
    check(
        "raw ip daddr 1.0.0.2 drop
         pre ip daddr 1.0.0.1 meta l4proto tcp dnat to 192.168.0.2:80
         nat-out ip daddr 1.0.0.1 meta l4proto tcp dnat to 2.0.0.1:80
         in ip daddr 192.168.0.2 th dport 80 ct status dnat reject
         out ip daddr 2.0.0.1 tcp dport 80 drop",
        "
        9.9.9.9@eth0     > 1.0.0.1 tcp 5 = reject
        9.9.9.9@eth0     > 192.168.0.2 tcp 80 = untouched
        192.168.0.2@host > 1.0.0.1 tcp 5 = drop
        192.168.0.2@host > 1.0.0.1 udp 5 = untouched
        9.9.9.9@eth0     > 1.0.0.2 tcp 5 = drop
        192.168.0.2@host > 1.0.0.2 tcp 5 = untouched
        ",
    );
}

#[test]
fn over_lo_nat_is_not_asked_again() {
    check(
        "pre dnat to 2.0.0.1
         raw iifname \"lo\" ct state new ip daddr 127.0.0.2 drop
         in iifname lo ct state new ip daddr 127.0.0.3 reject
         nat-out ip daddr 1.0.0.1 dnat to 127.0.0.3",
        "
        192.168.0.2@host > 127.0.0.1 tcp 5 = untouched
        192.168.0.2@host > 127.0.0.2 tcp 5 = drop
        192.168.0.2@host > 1.0.0.1 tcp 5 = reject
        9.9.9.9@eth0     > 127.0.0.1 tcp 5 = 2.0.0.1:5
        ",
    );
}

#[test]
fn masquerading_on_the_way_to_lo_gives_an_own_source() {
    check(
        "nat-out ip daddr 1.0.0.1 dnat to 192.168.0.2
         post oifname lo masquerade
         in ip saddr 192.168.0.2 ip daddr 192.168.0.2 drop",
        "10.5.5.5@host > 1.0.0.1 tcp 5 = drop",
    );
}

#[test]
fn delivery_to_this_host_passes_no_postrouting() {
    let walk =
        walk("pre ip daddr 1.0.0.1 dnat to 192.168.0.2\n post masquerade", "9.9.9.9@eth0 > 1.0.0.1 tcp 5")
            .unwrap();
    let dnat = Some(("192.168.0.2".parse().unwrap(), 5));
    let outcome = BranchOutcome::Accepted { dnat, masquerade: false, delivery: Delivery::Local };
    assert_eq!(walk.branches[0].outcome, outcome);
}

#[test]
fn interfaces() {
    check(
        "fwd iifname \"veth*\" drop
         fwd iifname != \"eth0\" reject
         out iifname != \"eth0\" iifname != veth* drop
         in iifname { lo, \"eth0\" } accept
         in drop",
        "
        9.9.9.9@veth12   > 1.0.0.1 tcp 5 = drop
        9.9.9.9@veth     > 1.0.0.1 tcp 5 = drop
        9.9.9.9@eth0     > 1.0.0.1 tcp 5 = untouched
        9.9.9.9@eth1     > 1.0.0.1 tcp 5 = reject
        9.9.9.9@eth0     > 192.168.0.2 tcp 5 = untouched
        9.9.9.9@eth1     > 192.168.0.2 tcp 5 = drop
        # a packet of this host came in nowhere
        192.168.0.2@host > 1.0.0.1 tcp 5 = drop
        ",
    );
    let rules = nft::parse(&script("post oifname \"eth1\" ip daddr 1.2.0.0/16 masquerade")).unwrap();
    let packet = rows::packet("9.9.9.9@eth0 > 1.2.0.1 tcp 5");
    assert_eq!(nft::walk(&rules, &packet, &host()), Err(WalkError::NoRoute(packet.destination)));
    let routed = host()
        .with_route("0.0.0.0/0".parse().unwrap(), "eth0")
        .with_route("1.2.0.0/16".parse().unwrap(), "eth1");
    let walk = nft::walk(&rules, &packet, &routed).unwrap();
    assert_eq!(walk.outcome(), Err(WalkError::MasqueradedOnly));
}

#[test]
fn matches_on_addresses_ports_and_protocols() {
    check(
        "add set ip t nets { type ipv4_addr ; flags interval ; elements = { 1.1.0.0/16, 1.2.0.5-1.2.0.9 } ; }
         add set ip t pairs { type ipv4_addr . inet_service ; flags interval ; }
         add element ip t pairs { 1.3.0.0/24 . 80-90 , 1.3.1.1 . 443 }
         fwd ip daddr @nets drop
         fwd ip daddr . th dport @pairs reject
         fwd ip daddr != { 2.0.0.0/8, 3.0.0.1, 3.0.0.5-3.0.0.7, 3.0.0.0/29 } accept
         fwd ip daddr 3.0.0.0-3.0.0.3 drop
         fwd ip daddr 3.0.0.6 meta l4proto { tcp, sctp } drop
         fwd ip daddr 3.0.0.5 tcp dport != 80 drop
         fwd ip daddr 3.0.0.5 udp dport { 53, 100-200 } reject
         fwd ip daddr . meta l4proto 2.0.0.1 . icmp drop
         fwd ip saddr != 9.0.0.0/8 ip daddr 2.0.0.2 drop",
        "
        9.9.9.9@eth0 > 1.1.255.255 tcp 5 = drop
        9.9.9.9@eth0 > 1.2.0.9 tcp 5 = drop
        9.9.9.9@eth0 > 1.2.0.10 tcp 5 = untouched
        9.9.9.9@eth0 > 1.3.0.7 udp 90 = reject
        9.9.9.9@eth0 > 1.3.0.7 udp 91 = untouched
        9.9.9.9@eth0 > 1.3.1.1 udp 443 = reject
        9.9.9.9@eth0 > 3.0.0.3 udp 443 = drop
        9.9.9.9@eth0 > 3.0.0.4 udp 443 = untouched
        9.9.9.9@eth0 > 3.0.0.6 sctp 5 = drop
        9.9.9.9@eth0 > 3.0.0.6 udp 5 = untouched
        9.9.9.9@eth0 > 3.0.0.5 tcp 80 = untouched
        9.9.9.9@eth0 > 3.0.0.5 tcp 81 = drop
        9.9.9.9@eth0 > 3.0.0.5 udp 81 = untouched
        9.9.9.9@eth0 > 3.0.0.5 udp 150 = reject
        9.9.9.9@eth0 > 2.0.0.1 icmp 0 = drop
        9.9.9.9@eth0 > 2.0.0.1 tcp 0 = untouched
        9.9.9.9@eth0 > 2.0.0.2 tcp 1 = untouched
        8.9.9.9@eth0 > 2.0.0.2 tcp 1 = drop
        ",
    );
}

#[test]
fn connections_and_fib() {
    check(
        "fwd ct state established,related,invalid drop
         fwd ct state { established, new } ip daddr 1.0.0.1 reject
         fwd ct status dnat drop
         fwd fib saddr type local ip daddr 1.0.0.2 drop
         in fib daddr type != local drop
         in fib saddr type != local counter reject with tcp reset",
        "
        9.9.9.9@eth0     > 1.0.0.1 tcp 5 = reject
        9.9.9.9@eth0     > 1.0.0.2 tcp 5 = untouched
        192.168.0.2@eth0 > 1.0.0.2 tcp 5 = drop
        9.9.9.9@eth0     > 192.168.0.2 tcp 5 = reject
        127.9.9.9@host   > 192.168.0.2 tcp 5 = untouched
        ",
    );
}

#[test]
fn marks() {
    check(
        "raw mark set 0x0f0f
         raw mark set mark or 0x8000
         raw meta mark set meta mark & 0xff0f | 0x00f0
         raw mark set mark xor 0x1
         fwd meta mark != 0x8ffe drop
         fwd meta mark & 0x00004000 == 0x00004000 drop
         fwd mark and 0x8000 != 0 ip daddr 1.0.0.1 reject",
        "
        9.9.9.9@eth0 > 1.0.0.1 tcp 5 = reject
        9.9.9.9@eth0 > 1.0.0.2 tcp 5 = untouched
        ",
    );
}

#[test]
fn random_choices_are_exact() {
    check(
        "pre ip daddr 1.0.0.1 numgen random mod 2 vmap { 0 : goto a , 1 : goto b }
         pre ip daddr 1.0.0.2 meta l4proto tcp dnat ip addr . port to numgen random mod 4 map { 0 : 2.0.0.1 . 80 , 1 : 2.0.0.1 . 80 , 2 : 2.0.0.2 . 80 , 3 : 2.0.0.1 . 80 }
         pre ip daddr 1.0.0.3 numgen random mod 3 vmap { 0 : goto a , 1 : goto a }
         pre ip daddr 1.0.0.3 dnat to 2.0.0.9
         pre ip daddr 1.0.0.4 numgen random mod 5 { 0, 2 } dnat to 2.0.0.8
         pre ip daddr 1.0.0.4 dnat to 2.0.0.9
         a dnat to 2.0.0.5
         b dnat to numgen random mod 3 map { 0 : 2.0.0.5 , 1 : 2.0.0.6 , 2 : 2.0.0.7 }",
        "
        # 1/2 + 1/6, 1/6, 1/6
        9.9.9.9@eth0 > 1.0.0.1 tcp 5 = 2.0.0.5:5*4 | 2.0.0.6:5 | 2.0.0.7:5
        9.9.9.9@eth0 > 1.0.0.2 tcp 5 = 2.0.0.1:80*3 | 2.0.0.2:80
        # what the map does not have goes on with the next rule
        9.9.9.9@eth0 > 1.0.0.3 tcp 5 = 2.0.0.5:5*2 | 2.0.0.9:5
        9.9.9.9@eth0 > 1.0.0.4 tcp 5 = 2.0.0.8:5*2 | 2.0.0.9:5*3
        ",
    );
}

#[test]
fn a_miss_in_a_map_of_destinations_goes_on() {
    check(
        "add map ip t m { type ipv4_addr . inet_proto . inet_service : ipv4_addr . inet_service ; }
         add element ip t m { 1.0.0.1 . tcp . 5 : 2.0.0.1 . 6 }
         pre dnat ip addr . port to ip daddr . meta l4proto . th dport map @m
         pre dnat to 2.0.0.9",
        "
        9.9.9.9@eth0 > 1.0.0.1 tcp 5 = 2.0.0.1:6
        9.9.9.9@eth0 > 1.0.0.1 udp 5 = 2.0.0.9:5
        ",
    );
}

#[test]
fn the_declaration_of_a_maps_data_adds_a_match() {
    // nft 1.0.6 puts `meta l4proto tcp` in front of such a rule; not for `th dport`, and not for the key's declaration.
    let rules = "pre dnat ip to ip daddr . meta l4proto . th dport . numgen random mod 1 map @m
         pre dnat to 2.0.0.9
         add element ip t m { 1.0.0.1 . tcp . 5 . 0 : 2.0.0.1 . 6 , 1.0.0.1 . udp . 5 . 0 : 2.0.0.1 . 6 }";
    let with = |key: &str, data: &str| {
        format!(
            "add map ip t m {{ typeof ip daddr . meta l4proto . {key} dport . numgen random mod 2 : ip daddr . {data} dport ; }}\n{rules}"
        )
    };
    check(
        &with("th", "tcp"),
        "9.9.9.9@eth0 > 1.0.0.1 udp 5 = 2.0.0.9:5\n9.9.9.9@eth0 > 1.0.0.1 tcp 5 = 2.0.0.1:6",
    );
    check(
        &with("tcp", "th"),
        "9.9.9.9@eth0 > 1.0.0.1 udp 5 = 2.0.0.1:6\n9.9.9.9@eth0 > 1.0.0.1 tcp 5 = 2.0.0.1:6",
    );
}

#[test]
fn a_full_set_makes_an_update_not_apply() {
    let lines = "add set ip t s { type ipv4_addr ; size 1 ; flags dynamic,timeout ; timeout 10800s ; }
         add element ip t s { 9.9.9.9 timeout 10m expires 9m59s996ms }
         fwd update @s { ip saddr timeout 10s } drop
         fwd reject";
    check(lines, "9.9.9.9@eth0 > 1.0.0.1 tcp 5 = drop\n9.9.9.8@eth0 > 1.0.0.1 tcp 5 = reject");
    let mut rules = nft::parse(&script(lines)).unwrap();
    assert_eq!(rules.add_element("s", "9.9.9.9".parse().unwrap()), Ok(()));
    assert_eq!(rules.add_element("s", "9.9.9.8".parse().unwrap()), Err(nft::ModelError::Full("s".into())));
    assert_eq!(rules.add_element("s", "fd00::1".parse().unwrap()), Err(nft::ModelError::NoSet("s".into())));
}

#[test]
fn answers_without_a_form() {
    let mixed =
        walk("fwd numgen random mod 2 vmap { 0 : drop , 1 : accept }", "9.9.9.9@eth0 > 1.0.0.1 tcp 5")
            .unwrap();
    assert!(matches!(mixed.outcome(), Err(WalkError::Mixed(_))));
    let partly =
        walk("pre numgen random mod 2 { 0 } dnat to 2.0.0.1", "9.9.9.9@eth0 > 1.0.0.1 tcp 5").unwrap();
    assert!(matches!(partly.outcome(), Err(WalkError::Mixed(_))));
    let only = walk("post masquerade", "9.9.9.9@eth0 > 1.0.0.1 tcp 5").unwrap();
    assert_eq!(only.outcome(), Err(WalkError::MasqueradedOnly));
    let families = walk("fwd drop", "9.9.9.9@eth0 > fd00::1 tcp 5");
    assert_eq!(families, Err(WalkError::MixedFamilies));
    let two_ways =
        walk("fwd numgen random mod 2 vmap { 0 : return , 1 : accept }", "9.9.9.9@eth0 > 1.0.0.1 tcp 5")
            .unwrap();
    assert_eq!(two_ways.outcome(), Ok(Outcome::NotOurs));
}
