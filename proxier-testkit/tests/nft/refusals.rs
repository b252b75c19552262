//! What the model refuses, as the kernel does (each tried with nft 1.0.6 on Linux 6.18), and what it does not understand.

use proxier_core::ids::IpFamily;
use proxier_testkit::nft::{self, Cause, ModelError, ParseError, Ruleset};

const BASE: &str = "
add table ip t
add chain ip t c
add chain ip t d
add chain ip t base { type filter hook input priority 0 ; }
add chain ip t fwd { type filter hook forward priority 0 ; }
add chain ip t pre { type nat hook prerouting priority -100 ; }
add map ip t m { type inet_service : verdict ; }
add set ip t s { type ipv4_addr ; }
add set ip t iv { type ipv4_addr ; flags interval ; }
add set ip t small { type ipv4_addr ; size 2 ; elements = { 1.1.1.1, 1.1.1.2 } ; }
add element ip t m { 80 : goto c }
add element ip t s { 5.5.5.5 comment \"five\" }
";

fn base() -> Ruleset {
    nft::parse(BASE).unwrap()
}

/// Runs the lines, which must be refused at the last one, and leave no trace.
fn refused(lines: &str) -> ModelError {
    let mut rules = base();
    let before = rules.clone();
    let error = rules.apply(lines).expect_err(lines);
    assert!(rules == before, "changed by {lines}");
    assert_eq!(error.line, lines.lines().count(), "{error}");
    match error.cause {
        Cause::Model(cause) => cause,
        other => panic!("{lines}: {other}"),
    }
}

fn accepted(lines: &str) -> Ruleset {
    let mut rules = base();
    rules.apply(lines).unwrap_or_else(|error| panic!("{lines}: {error}"));
    rules
}

fn conflict(set: &str, key: &str) -> ModelError {
    ModelError::ElementConflict { set: set.into(), key: key.into() }
}

#[test]
fn things_that_are_not_there() {
    let chain = |name: &str| ModelError::NoChain(name.into());
    let set = |name: &str| ModelError::NoSet(name.into());
    assert_eq!(refused("delete table ip u"), ModelError::NoTable("u".into()));
    assert_eq!(refused("add chain ip u c"), ModelError::NoTable("u".into()));
    assert_eq!(refused("add chain ip6 t c"), ModelError::NoTable("t".into()));
    assert_eq!(refused("delete chain ip t x"), chain("x"));
    assert_eq!(refused("flush chain ip t x"), chain("x"));
    assert_eq!(refused("add rule ip t x drop"), chain("x"));
    assert_eq!(refused("add rule ip t c goto x"), chain("x"));
    assert_eq!(refused("add rule ip t c ip saddr 1.1.1.1 jump x"), chain("x"));
    assert_eq!(refused("add rule ip t c th dport vmap { 80 : drop , 81 : goto x }"), chain("x"));
    assert_eq!(refused("add element ip t m { 81 : goto x }"), chain("x"));
    assert_eq!(refused("add element ip t x { 1.1.1.1 }"), set("x"));
    assert_eq!(refused("delete set ip t x"), set("x"));
    assert_eq!(refused("flush set ip t m"), set("m"));
    assert_eq!(refused("flush map ip t s"), set("s"));
    assert_eq!(refused("add rule ip t c ip saddr @x accept"), set("x"));
    assert_eq!(refused("add rule ip t c th dport vmap @x"), set("x"));
    assert_eq!(refused("add rule ip t c update @x { ip saddr }"), set("x"));
    let element = ModelError::NoElement { set: "s".into(), key: "6.6.6.6".into() };
    assert_eq!(refused("delete element ip t s { 5.5.5.5 , 6.6.6.6 }"), element);
    // `destroy` does not mind.
    accepted("destroy table ip u");
    accepted("destroy chain ip t x\ndestroy set ip t x\ndestroy element ip t s { 6.6.6.6 }");
}

#[test]
fn things_that_are_there_already() {
    let exists = |name: &str| ModelError::Exists(name.into());
    assert_eq!(refused("add set ip t s { type ipv6_addr ; }"), exists("s"));
    assert_eq!(
        refused("add set ip t s { type ipv4_addr ; flags dynamic,timeout ; timeout 5s ; }"),
        exists("s")
    );
    assert_eq!(refused("add map ip t m { type inet_service : ipv4_addr ; }"), exists("m"));
    assert_eq!(refused("add chain ip t base { type filter hook input priority 10 ; }"), exists("base"));
    assert_eq!(refused("add chain ip t c { type filter hook input priority 0 ; }"), exists("c"));
    accepted(
        "add table ip t\nadd chain ip t c\nadd chain ip t base\nadd chain ip t base { type filter hook input priority filter ; }",
    );
    accepted("add set ip t s { type ipv4_addr ; size 10 ; comment \"x\" ; }");
    // A chain may change its policy, and keeps it when it is not mentioned.
    let mut rules = accepted("add chain ip t base { type filter hook input priority 0 ; policy drop ; }");
    let policy = |rules: &Ruleset| {
        rules.table(IpFamily::Ipv4, "t").unwrap().chain("base").unwrap().base.unwrap().accept
    };
    assert!(!policy(&rules));
    rules.apply("add chain ip t base { type filter hook input priority 0 ; }").unwrap();
    assert!(!policy(&rules));
}

#[test]
fn elements() {
    assert_eq!(refused("add element ip t m { 80 : drop }"), conflict("m", "80"));
    assert_eq!(refused("add element ip t m { 81 : drop , 81 : accept }"), conflict("m", "81"));
    accepted("add element ip t m { 80 : goto c , 81 : drop , 81 : drop }\nadd element ip t s { 5.5.5.5 }");
    accepted("delete element ip t m { 80 : goto c }");
    accepted("delete element ip t m { 80 }\nadd element ip t m { 80 : drop }");
    assert_eq!(
        refused("add element ip t iv { 10.0.0.0/8 }\nadd element ip t iv { 10.1.0.0/16 }"),
        conflict("iv", "10.1.0.0-10.1.255.255")
    );
    assert_eq!(refused("add element ip t iv { 10.0.0.0/8, 10.0.0.1 }"), conflict("iv", "10.0.0.1"));
    assert_eq!(
        refused("add element ip t iv { 10.0.0.1, 10.0.0.0/8 }"),
        conflict("iv", "10.0.0.0-10.255.255.255")
    );
    accepted(
        "add element ip t iv { 10.0.0.0/8 , 10.0.0.0/8, 11.0.0.1 }\ndelete element ip t iv { 10.0.0.0/8 }\nadd element ip t iv { 10.1.0.0/16 }",
    );
    accepted(
        "add set ip t am { type ipv4_addr ; flags interval ; auto-merge ; }\nadd element ip t am { 10.0.0.0/8, 10.1.0.0/16, 10.0.0.1 }",
    );
    assert_eq!(refused("add element ip t small { 1.1.1.3 }"), ModelError::Full("small".into()));
    accepted(
        "add element ip t small { 1.1.1.2 }\ndelete element ip t small { 1.1.1.2 }\nadd element ip t small { 1.1.1.3 }",
    );
    accepted("flush set ip t small\nadd element ip t small { 1.1.1.3, 1.1.1.4 }");
    let typed = |lines: &str| assert!(matches!(refused(lines), ModelError::Type(_)), "{lines}");
    typed("add element ip t s { 10.0.0.0/8 }");
    typed("add element ip t s { fd00::1 }");
    typed("add element ip t s { 1.1.1.1 . 80 }");
    typed("add element ip t s { 1.1.1.1 : drop }");
    typed("add element ip t s { 1.1.1.1 timeout 5s }");
    typed("add element ip t m { 90 }");
    typed("add element ip t m { 90 : 1.1.1.1 }");
    typed("add element ip t m { 99999 : drop }");
}

#[test]
fn things_in_use() {
    let busy = |name: &str| ModelError::Busy(name.into());
    assert_eq!(refused("delete chain ip t c"), busy("c"));
    accepted("delete element ip t m { 80 }\ndelete chain ip t c");
    accepted("flush map ip t m\ndelete chain ip t c");
    accepted("delete map ip t m\ndelete chain ip t c");
    assert_eq!(refused("add rule ip t base jump d\ndelete chain ip t d"), busy("d"));
    accepted("add rule ip t base jump d\nflush chain ip t base\ndelete chain ip t d");
    accepted("add rule ip t base jump d\ndelete chain ip t base\ndelete chain ip t d");
    accepted("add rule ip t base jump d\nflush table ip t\ndelete chain ip t d");
    accepted("add rule ip t d drop\ndelete chain ip t d");
    assert_eq!(refused("add rule ip t c ip saddr @s accept\ndelete set ip t s"), busy("s"));
    assert_eq!(refused("add rule ip t d update @s { ip saddr }\ndelete set ip t s"), busy("s"));
    assert_eq!(refused("add rule ip t d th dport vmap @m\ndelete map ip t m"), busy("m"));
    accepted("add rule ip t c ip saddr @s accept\nflush chain ip t c\ndelete set ip t s");
    accepted("add rule ip t c ip saddr @s accept\ndelete table ip t");
}

#[test]
fn statements_in_the_wrong_place() {
    let hook = |lines: &str, what: &str, chain: &str| {
        assert_eq!(refused(lines), ModelError::WrongHook { what: what.into(), chain: chain.into() });
    };
    hook("add chain ip t f { type nat hook forward priority 0 ; }", "type nat", "f");
    hook("add rule ip t base masquerade", "masquerade", "base");
    hook("add rule ip t pre masquerade", "masquerade", "pre");
    hook("add rule ip t fwd dnat to 1.1.1.1", "dnat", "fwd");
    hook(
        "add chain ip t post { type nat hook postrouting priority 100 ; }\nadd rule ip t post reject",
        "reject",
        "post",
    );
    // Through chains and maps, in whichever order they are connected.
    hook("add rule ip t d masquerade\nadd rule ip t base jump d", "masquerade", "base");
    hook("add rule ip t base th dport vmap @m\nadd rule ip t c dnat to 1.1.1.1", "dnat", "base");
    // As long as no base chain leads there, nobody minds.
    accepted("add rule ip t d masquerade\nadd rule ip t d drop");
    accepted("add rule ip t pre reject");
    accepted("add rule ip t d jump c\nadd rule ip t c jump d");
    let error = refused("add rule ip t d jump c\nadd rule ip t c jump d\nadd rule ip t base jump d");
    assert_eq!(error, ModelError::Loop("d".into()));
    assert_eq!(refused("add rule ip t c jump base"), ModelError::BaseChainTarget("base".into()));
    assert_eq!(refused("add element ip t m { 90 : goto base }"), ModelError::BaseChainTarget("base".into()));
}

#[test]
fn chains_below_each_other() {
    // c0 to c14 below a base chain are taken, c15 is refused, whether by jump or by goto.
    let chain = |verb: &str, last: usize| {
        let add = (0..=last).map(|n| format!("add chain ip t c{n}"));
        let link = (0..last).map(|n| format!("add rule ip t c{n} {verb} c{}", n + 1));
        let lines: Vec<String> = add.chain(link).chain([format!("add rule ip t base {verb} c0")]).collect();
        lines.join("\n")
    };
    for verb in ["jump", "goto"] {
        accepted(&chain(verb, 14));
        assert_eq!(refused(&chain(verb, 15)), ModelError::TooDeep("c15".into()));
        // Reached a second time, and deeper.
        let again = format!("add chain ip t e\nadd rule ip t e {verb} c0\nadd rule ip t base {verb} e");
        assert_eq!(refused(&format!("{}\n{again}", chain(verb, 14))), ModelError::TooDeep("c0".into()));
    }
}

#[test]
fn types_of_rules() {
    let typed = |lines: &str| assert!(matches!(refused(lines), ModelError::Type(_)), "{lines}");
    typed("add rule ip t c th dport @s accept");
    typed("add rule ip t c ip saddr . ip daddr @s accept");
    typed("add rule ip t c ip saddr vmap @s");
    typed("add map ip t n { type inet_service : ipv4_addr ; }\nadd rule ip t c th dport vmap @n");
    typed("add rule ip t pre dnat to th dport map @m");
    typed("add map ip t n { type ipv4_addr : inet_service ; }\nadd rule ip t pre dnat to ip daddr map @n");
    accepted("add rule ip t c th dport @m drop");
    accepted(
        "add map ip t n { type ipv4_addr : ipv4_addr ; }\nadd rule ip t pre meta l4proto tcp dnat to ip daddr map @n",
    );
}

#[test]
fn ports_need_a_transport_protocol() {
    let refuse =
        |rule: &str| assert_eq!(refused(&format!("add rule ip t pre {rule}")), ModelError::TransportUnknown);
    refuse("dnat to 1.1.1.1:80");
    refuse("th dport 80 dnat to 1.1.1.1:80");
    refuse("meta l4proto != tcp dnat to 1.1.1.1:80");
    refuse("meta l4proto . th dport vmap { tcp . 80 : accept } dnat to 1.1.1.1:80");
    refuse("dnat ip addr . port to numgen random mod 1 map { 0 : 1.1.1.1 . 80 }");
    for rule in [
        "dnat to 1.1.1.1",
        "tcp dport 80 dnat to 1.1.1.1:80",
        "meta l4proto { tcp, udp } dnat to 1.1.1.1:80",
        "meta l4proto tcp dnat ip addr . port to numgen random mod 1 map { 0 : 1.1.1.1 . 80 }",
        "dnat ip addr . port to meta l4proto . th dport map { tcp . 80 : 1.1.1.1 . 80 }",
        "dnat to numgen random mod 2 map { 0 : 1.1.1.1 , 1 : 1.1.1.2 } comment \"x y\"",
    ] {
        accepted(&format!("add rule ip t pre {rule}"));
    }
}

#[test]
fn a_script_is_all_or_nothing() {
    let error = refused("add chain ip t e\nadd element ip t s { 7.7.7.7 }\ndelete chain ip t c");
    assert_eq!(error, ModelError::Busy("c".into()));
}

#[test]
fn what_is_not_understood_is_named() {
    let syntax = |text: &str, line: usize, at: &str| {
        let error = nft::parse(text).expect_err(text);
        let ParseError { line: found, text: place, cause: Cause::Syntax(_) } = &error else {
            panic!("{text}: {error}")
        };
        assert_eq!((*found, place.as_str()), (line, at), "{error}");
    };
    syntax("add table ip t\nlist ruleset", 2, "list ruleset");
    syntax("add table inet t", 1, "inet t");
    syntax("add table ip t {", 1, "");
    syntax("add chain ip t c { type route hook output priority 0 ; }", 1, "hook output priority 0 ; }");
    syntax("add chain ip t c { type filter hook ingress priority 0 ; }", 1, "priority 0 ; }");
    syntax("add chain ip t c { type filter hook input priority high ; }", 1, "high ; }");
    syntax("add set ip t s { type ether_addr ; }", 1, "ether_addr ; }");
    syntax("add set ip t s { type ipv4_addr : verdict ; }", 1, "");
    syntax("add set ip t s { flags odd ; }", 1, "odd ; }");
    let rules = [
        ("ip ttl 5", "ttl 5"),
        ("ip6 daddr ::1", "ip6 daddr ::1"),
        ("ip daddr fd00::1", "fd00::1"),
        ("ip daddr 10.0.0.300", "10.0.0.300"),
        ("ip daddr 10.0.0.9-10.0.0.1", "10.0.0.9-10.0.0.1"),
        ("quota over 5 mbytes", "quota over 5 mbytes"),
        ("tcp sport 5", "sport 5"),
        ("tcp dport http", "http"),
        ("ct state closed", "closed"),
        ("ct status snat", "snat"),
        ("fib daddr type broadcast", "broadcast"),
        ("numgen inc mod 2 vmap { 0 : drop }", "inc mod 2 vmap { 0 : drop }"),
        ("numgen random mod 0 vmap { 0 : drop }", "0 vmap { 0 : drop }"),
        ("snat to 1.1.1.1", "snat to 1.1.1.1"),
        ("dnat to [fd00::1]:80", "[fd00::1]:80"),
        ("drop accept", "accept"),
        ("comment \"x\" drop", "drop"),
        ("update @s { th dport }", "}"),
        ("comment \"x", "\"x"),
        ("", ""),
    ];
    for (rule, at) in rules {
        syntax(&format!("add table ip t\nadd rule ip t c {rule}\nadd chain ip t d"), 2, at);
    }
    let listing = "table ip t {\n\tchain c {\n\t\tip saddr 1.1.1.1 frobnicate\n\t}\n}\n";
    syntax(listing, 3, "frobnicate");
    syntax("table ip t {\n\tflowtable f {\n\t}\n}\n", 2, "flowtable f {");
    syntax("table ip t {\n\tset s {\n\t\ttype ipv4_addr\n\t\tcolour red\n\t}\n}\n", 4, "colour red");
}

#[test]
fn an_error_in_a_listing_has_its_line() {
    let listing = "table ip t {\n\tmap m {\n\t\ttype inet_service : verdict\n\t\telements = { 80 : drop,\n\t\t\t     81 : goto x }\n\t}\n}\n";
    let error = nft::parse(listing).unwrap_err();
    assert_eq!((error.line, error.cause), (5, Cause::Model(ModelError::NoChain("x".into()))));
    assert_eq!(
        nft::parse("add table ip t\n\nadd rule ip t c drop").unwrap_err().to_string(),
        "line 3: no chain c, at `add rule ip t c drop`"
    );
}

#[test]
fn a_listing_may_refer_ahead() {
    let text = "table ip t { # handle 1\n\tmap m {\n\t\ttype inet_service : verdict\n\t\telements = { 80 : goto y }\n\t}\n\
        \tchain x {\n\t\tip saddr { 1.1.1.1,\n\t\t\t   2.2.2.2 } goto y # handle 3\n\t\ttcp dport 5 counter packets 7 bytes 420 jump y\n\t}\n\
        \tchain y {\n\t\tdrop; }\n}\n";
    let rules = nft::parse(text).unwrap();
    let chain = rules.table(IpFamily::Ipv4, "t").unwrap().chain("x").unwrap();
    assert_eq!(&*chain.rules[0].text, "ip saddr { 1.1.1.1, 2.2.2.2 } goto y");
    assert_eq!(chain.rules.len(), 2);
}
