use std::sync::atomic::{AtomicU32, Ordering};

use proxier_core::oracle::Choice;

use super::*;

#[test]
fn the_oracle_answers_every_packet_as_worked_out_by_hand() {
    let cases = cases().unwrap();
    let wrong: Vec<String> = cases.iter().flat_map(check).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    let count = |file: &str| cases.iter().find(|c| c.file == file).unwrap().questions.len();
    assert!(count("peer-state.yaml") >= 60);
}

#[test]
fn a_wrong_expectation_is_found() {
    let mut case = cases().unwrap().remove(0);
    let question = &mut case.questions[0];
    question.outcome = if question.outcome == Outcome::Drop { Outcome::Reject } else { Outcome::Drop };
    assert_eq!(check(&case).len(), 1);
}

/// Loads a case from its text.
fn loaded(text: &str) -> Result<Case, String> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let file = std::env::temp_dir().join(format!("proxier-case-{}-{number}.yaml", std::process::id()));
    std::fs::write(&file, text).unwrap();
    let case = load(&file).map_err(|e| e.to_string());
    std::fs::remove_file(&file).unwrap();
    case
}

const PACKET: &str = "packets: [{from: 10.0.0.1, in: eth0, to: 10.0.0.2:80/tcp, expect: not-ours}]";

fn with_packet(packet: &str) -> Result<Case, String> {
    loaded(&format!("title: t\nrefs: []\npackets:\n- {packet}\n"))
}

#[test]
fn errors_name_the_file_and_the_field() {
    let object = "objects: [{apiVersion: v1, kind: Service, metadata: {name: s}, spec: {clusterIP: 10.0.0.1, ports: [{port: x}]}}]";
    let cases = [
        ("refs: []\npackets: []".to_owned(), "title"),
        ("title: t\nrefs: [a\n".to_owned(), "line"),
        (format!("title: t\nrefs: []\nnode: {{ip: [1.2.3.4]}}\n{PACKET}"), "node"),
        (format!("title: t\nrefs: []\nnode: {{ips: [1.2.3]}}\n{PACKET}"), "node.ips[0]"),
        (
            format!("title: t\nrefs: []\noptions: {{serviceCIDRs: [10.0.0.0/8, x]}}\n{PACKET}"),
            "options.serviceCIDRs[1]",
        ),
        (
            format!(
                "title: t\nrefs: []\noptions: {{detectLocal: {{nodeCIDR: true, interface: a}}}}\n{PACKET}"
            ),
            "options.detectLocal",
        ),
        (format!("title: t\nrefs: []\nmanifests: [none.yaml]\n{PACKET}"), "none.yaml"),
        (format!("title: t\nrefs: []\n{object}\n{PACKET}"), "objects[0].spec.ports[0].port"),
        (
            format!("title: t\nrefs: []\nobjects: [{{apiVersion: v1, kind: Pod}}]\n{PACKET}"),
            "objects[0].kind",
        ),
        (format!("title: t\nrefs: []\nproblems: [nothing]\n{PACKET}"), "problems"),
    ];
    for (text, field) in cases {
        let error = loaded(&text).unwrap_err();
        assert!(error.contains("proxier-case-") || error.contains("none.yaml"), "{error}");
        assert!(error.contains(field), "{field}: {error}");
    }
}

#[test]
fn unannounced_problems_are_errors() {
    let object = "objects: [{apiVersion: v1, kind: Service, metadata: {name: s}, spec: {clusterIP: 10.0.0.1, externalIPs: [junk], ports: [{port: 80}]}}]";
    let text = |problems: &str| format!("title: t\nrefs: []\n{problems}\n{object}\n{PACKET}");
    assert!(loaded(&text("")).unwrap_err().contains("junk"));
    assert!(loaded(&text("problems: ['externalIPs[0]']")).is_ok());
}

#[test]
fn packets_that_cannot_be_meant_are_errors() {
    let cases = [
        ("{from: 10.0.0.1, in: eth0, to: 10.0.0.2:80, expect: drop}", "packets[0].to"),
        ("{from: 10.0.0.1, in: eth0, to: 10.0.0.2:80/dccp, expect: drop}", "packets[0].to"),
        ("{from: 10.0.0.1, in: eth0, to: '[fd00::1]:80/tcp', expect: drop}", "packets[0].to"),
        ("{from: ten, in: eth0, to: 10.0.0.2:80/tcp, expect: drop}", "packets[0].from"),
        ("{from: 10.0.0.1, in: eth0, to: 10.0.0.2:80/tcp, expect: lost}", "packets[0].expect"),
        ("{from: 10.0.0.1, in: eth0, to: 10.0.0.2:80/tcp, expect: {kept: []}}", "packets[0].expect"),
        (
            "{from: 10.0.0.1, in: eth0, to: 10.0.0.2:80/tcp, expect: {changed: [1.2.3.4:5]}}",
            "packets[0].expect",
        ),
        (
            "{from: 10.0.0.1, in: eth0, to: 10.0.0.2:80/tcp, expect: {kept: [1.2.3.4:5 1/2]}}",
            "packets[0].expect",
        ),
        ("{from: 10.0.0.1, in: eth0, to: 10.0.0.2:80/tcp, expect: drop, reason: why}", "packets[0].reason"),
        (
            "{from: 10.0.0.1, in: eth0, to: 10.0.0.2:80/tcp, expect: drop, recorded: here}",
            "packets[0].recorded",
        ),
        ("{from: 10.0.0.1, in: eth0, to: 10.0.0.2:80/tcp, expect: drop, because: x}", "packets[0]"),
    ];
    for (packet, field) in cases {
        let error = with_packet(packet).unwrap_err();
        assert!(error.contains(field), "{packet}: {error}");
    }
}

#[test]
fn shares_and_products() {
    let case = with_packet(
        "{from: [10.0.0.1, 10.0.0.3], in: host, to: [10.0.0.2:80/tcp, 10.0.0.2/icmp], \
         expect: {kept: ['1.2.3.4:5 1/3'], masqueraded: ['1.2.3.5:5 2/3']}}",
    )
    .unwrap();
    assert_eq!(case.questions.len(), 4);
    assert_eq!(case.questions[1].place, "packets[0] (10.0.0.1 to 10.0.0.2/icmp)");
    assert_eq!(case.questions[1].packet.protocol, None);
    let Outcome::Endpoints(choices) = &case.questions[0].outcome else { panic!("{case:?}") };
    let brief: Vec<(u32, bool)> = choices.iter().map(|c: &Choice| (c.weight, c.masquerade)).collect();
    assert_eq!(brief, [(1, false), (2, true)]);
}
