//! Texts for both families of a host.

use proxier_core::ids::IpFamily;
use proxier_testkit::conformance::Model;
use proxier_testkit::iptables::{Cause, Families, TableName};

const BOTH: &str = "# iptables-restore -w 5 --noflush
*nat
:SVC - [0:0]
-A SVC -d 10.0.0.1 -j RETURN
COMMIT
iptables -w 5 -t nat -I PREROUTING -m comment --comment \"a b\" -j SVC
# something else
# ip6tables-nft-restore
*nat
:SVC - [0:0]
-A SVC -d fd00::1 -j RETURN
COMMIT
ip6tables -t nat -A PREROUTING -j SVC
";

#[test]
fn comments_and_commands_say_the_family() {
    let mut families = Families::default();
    families.apply(BOTH).unwrap();
    let rules = |family: IpFamily| -> Vec<String> {
        let printed = families.get(family).print();
        printed.lines().filter(|line| line.starts_with("-A")).map(str::to_owned).collect()
    };
    assert_eq!(
        rules(IpFamily::Ipv4),
        ["-A PREROUTING -m comment --comment \"a b\" -j SVC", "-A SVC -d 10.0.0.1/32 -j RETURN"]
    );
    assert_eq!(rules(IpFamily::Ipv6), ["-A PREROUTING -j SVC", "-A SVC -d fd00::1/128 -j RETURN"]);
    assert_eq!(
        families.objects().into_iter().collect::<Vec<_>>(),
        [
            "IPv4 nat PREROUTING 0: -m comment --comment \"a b\" -j SVC",
            "IPv4 nat SVC 0: -d 10.0.0.1/32 -j RETURN",
            "IPv6 nat PREROUTING 0: -j SVC",
            "IPv6 nat SVC 0: -d fd00::1/128 -j RETURN",
        ]
    );
}

#[test]
fn errors_name_the_line_of_the_whole_text() {
    let mut families = Families::default();
    let error = families.apply(&format!("{BOTH}*nat\n-X NOPE\nCOMMIT\n")).unwrap_err();
    assert_eq!((error.line, error.cause), (15, Cause::NoChain("NOPE".into())));
    let error = families.apply("\niptables -t nat -D PREROUTING -j SVC\n").unwrap_err();
    assert_eq!((error.line, error.cause), (2, Cause::NoRule));
    let error = families.apply("*nat\n# ip6tables-restore\n*nat\nCOMMIT\n").unwrap_err();
    assert_eq!((error.line, error.cause), (2, Cause::CommitExpected));
    // What was committed before stays.
    assert!(families.get(IpFamily::Ipv6).table(TableName::Nat).unwrap().chain("SVC").is_some());
}

#[test]
fn commands() {
    let mut families = Families::default();
    families.apply(BOTH).unwrap();
    let four = families.get_mut(IpFamily::Ipv4);
    four.command("iptables -w 5 -C PREROUTING -t nat -m comment --comment \"a b\" -j SVC").unwrap();
    four.command("iptables -w -D PREROUTING -t nat -m comment --comment \"a b\" -j SVC").unwrap();
    let again =
        four.command("iptables -C PREROUTING -t nat -m comment --comment \"a b\" -j SVC").unwrap_err();
    assert_eq!(again.cause.exit_code(), 1);
    four.command("iptables -w 5 -N CANARY -t mangle").unwrap();
    assert_eq!(
        four.command("iptables -w 5 -N CANARY -t mangle").unwrap_err().cause,
        Cause::ChainExists("CANARY".into())
    );
    four.command("iptables -X CANARY -t mangle").unwrap();
    assert!(four.command("iptables -I INPUT -t nope -j ACCEPT").is_err());
}
