//! Who we are and how we get there: tokens, files, certificates, plug-ins, TLS.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use agent::source::kubernetes::Access;
use proxier_testkit::apiserver::{BlockingApiServer, ServerCertificate};
use serde_json::{Value, json};

use crate::stage::{Churn, Line, Run, kubeconfig, server};

struct Case {
    server: BlockingApiServer,
    folder: tempfile::TempDir,
}

fn case(line: Line) -> Case {
    let server = server(line.builder().token("good", "proxier"), 10);
    Case { server, folder: tempfile::tempdir().expect("folder") }
}

impl Case {
    /// A kubeconfig for a user that is described so.
    fn with_user(&self, user: Value) -> Access {
        let mut config: Value = serde_json::from_str(&self.server.kubeconfig(None)).expect("JSON");
        config["users"][0]["user"] = user;
        kubeconfig(&self.folder, &config.to_string())
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        fs::write(&path, text).expect("written");
        path
    }

    /// A plug-in that runs this script.
    fn plug_in(&self, script: &str) -> Access {
        let path = self.write("plugin", &format!("#!/bin/sh\n{script}\n"));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("executable");
        let version = "client.authentication.k8s.io/v1";
        self.with_user(json!({"exec": {"apiVersion": version, "command": path, "interactiveMode": "Never"}}))
    }
}

fn credential(status: &Value) -> String {
    let credential = json!({
        "apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status,
    });
    format!("cat <<'END'\n{credential}\nEND")
}

#[test]
fn tokens_open_the_door() {
    for line in Line::ALL {
        let case = case(line);
        let run = Run::start(case.with_user(json!({"token": "good"})));
        run.settles(&case.server);
        // white space around it is a mistake that everybody makes
        let run = Run::start(case.with_user(json!({"token": "good\n"})));
        run.settles(&case.server);
    }
}

#[test]
fn a_wrong_token_is_told_once_and_a_right_one_found_in_the_file() {
    let case = case(Line::Tls2);
    let run = Run::start(case.with_user(json!({"token": "bad"})));
    run.until("told", |_| run.told("the API server does not accept our credentials: Unauthorized") == 1);
    assert_eq!(run.view().synced, 0);
    case.with_user(json!({"token": "good"}));
    run.settles(&case.server);
    assert_eq!(run.told("does not accept our credentials"), 1, "{}", run.log());
    assert!(!run.log().contains("bad") && !run.log().contains("good"), "{}", run.log());
}

#[test]
fn a_token_file_is_read_again() {
    let case = case(Line::Tls2);
    let path = case.write("token", "good\n");
    let run = Run::start(case.with_user(json!({"tokenFile": path})));
    run.settles(&case.server);
    case.write("token", "other");
    run.stop().expect("stops");
    let run = Run::start(case.with_user(json!({"tokenFile": path, "token": "good"})));
    run.until("told", |_| run.told("does not accept our credentials") == 1);
    case.server.add_token("other", "proxier");
    run.settles(&case.server);
}

#[test]
fn a_pod_has_its_folder() {
    let case = case(Line::Tls2);
    case.write("token", "good");
    case.write("ca.crt", case.server.authority().expect("TLS"));
    let access = Access::Pod { server: case.server.url(), folder: case.folder.path().to_owned() };
    let run = Run::start(access);
    run.settles(&case.server);
}

#[test]
fn an_open_server_needs_nothing() {
    let server = server(Line::Plain.builder(), 5);
    let run = Run::start(Access::Open { server: server.url() });
    run.settles(&server);
}

#[test]
fn certificates_open_the_door() {
    for line in [Line::Tls1, Line::Tls2] {
        let case = case(line);
        let identity = case.server.add_certificate("proxier").expect("TLS");
        let run = Run::start(kubeconfig(&case.folder, &case.server.kubeconfig_of(&identity)));
        run.settles(&case.server);
        run.stop().expect("stops");
        let (certificate, key) =
            (case.write("c.pem", &identity.certificate), case.write("k.pem", &identity.key));
        let user = json!({"client-certificate": certificate, "client-key": key});
        let run = Run::start(case.with_user(user));
        run.settles(&case.server);
    }
}

#[test]
fn plug_ins_give_tokens_and_certificates() {
    let case = case(Line::Tls2);
    let run = Run::start(case.plug_in(&credential(&json!({"token": "good"}))));
    run.settles(&case.server);
    run.stop().expect("stops");
    let identity = case.server.add_certificate("proxier").expect("TLS");
    let status = json!({"clientCertificateData": identity.certificate, "clientKeyData": identity.key});
    let run = Run::start(case.plug_in(&credential(&status)));
    run.settles(&case.server);
}

#[test]
fn a_plug_in_is_asked_again_when_its_token_ends_or_is_refused() {
    let case = case(Line::Tls2);
    let counter = case.folder.path().join("count");
    let script = |expires: &str| {
        let count = counter.display();
        let answer = credential(&json!({"token": "good", "expirationTimestamp": expires}));
        format!("echo x >> {count}\n{answer}")
    };
    let asked = || fs::read_to_string(&counter).map_or(0, |t| t.lines().count());
    let run = Run::start(case.plug_in(&script("2100-01-01T00:00:00Z")));
    run.settles(&case.server);
    case.server.end_watches();
    Churn::new(1).changes(&case.server, 10, 10);
    run.settles(&case.server);
    assert_eq!(asked(), 1, "once for all");
    run.stop().expect("stops");
    let run = Run::start(case.plug_in(&script("2020-01-01T00:00:00Z")));
    run.settles(&case.server);
    assert!(asked() >= 5, "for every request, since it is over at once: {}", asked());
    run.stop().expect("stops");
    let run = Run::start(case.plug_in(&credential(&json!({"token": "bad"}))));
    run.until("told", |_| run.told("does not accept our credentials") == 1);
    case.plug_in(&script("2100-01-01T00:00:00Z"));
    run.settles(&case.server);
}

#[test]
fn a_plug_in_that_fails_is_told_without_its_output() {
    let case = case(Line::Tls2);
    let run = Run::start(case.plug_in("echo hidden; echo 'log in first' >&2; exit 3"));
    run.until("told", |_| run.told("ended with status 3: log in first") == 1);
    assert!(!run.log().contains("hidden"), "{}", run.log());
    case.plug_in(&credential(&json!({"token": "good"})));
    run.settles(&case.server);
    assert_eq!(run.told("ended with status 3"), 1);
}

#[test]
fn a_server_that_is_not_who_it_should_be_is_not_spoken_to() {
    for wrong in [ServerCertificate::OtherHost, ServerCertificate::OtherAuthority, ServerCertificate::Expired]
    {
        let case = case(Line::Tls2);
        case.server.show_certificate(wrong).expect("TLS");
        let run = Run::start(case.with_user(json!({"token": "good"})));
        run.until("told", |_| run.told("the API server cannot be reached: ") == 1);
        assert_eq!(run.told("certificate"), 1, "{wrong:?}: {}", run.log());
        assert!(case.server.seen().is_empty(), "the token was not sent");
        case.server.show_certificate(ServerCertificate::Good).expect("TLS");
        run.settles(&case.server);
    }
}

#[test]
fn what_cannot_be_used_at_the_start_is_an_error() {
    let case = case(Line::Tls2);
    let fails = |access: Access| {
        let (result, _) = Run::start(access).ends();
        result.expect_err("refused").to_string()
    };
    let missing = Access::Kubeconfig { path: "/nonexistent/kubeconfig".into(), server: None };
    let told = fails(missing);
    assert!(told.starts_with("source kubernetes: /nonexistent/kubeconfig: "), "{told}");
    assert!(fails(kubeconfig(&case.folder, "a: [")).contains("failed to parse kubeconfig YAML"));
    assert!(fails(kubeconfig(&case.folder, "{}")).contains("current context"));
    let provider = fails(case.with_user(json!({"auth-provider": {"name": "gcp", "config": {}}})));
    assert!(provider.ends_with("auth-provider gcp is not supported; use an exec plug-in"), "{provider}");
    let Access::Kubeconfig { path, .. } = case.with_user(json!({})) else { panic!("a file") };
    let other = fails(Access::Kubeconfig { path, server: Some("10.0.0.1".into()) });
    assert!(other.contains("\"10.0.0.1\" is not the address of a server"), "{other}");
}

#[test]
fn the_address_may_be_another_than_the_files() {
    let case = case(Line::Tls2);
    let Access::Kubeconfig { path, .. } = case.with_user(json!({"token": "good"})) else { panic!("a file") };
    let text = fs::read_to_string(&path).expect("there").replace(&case.server.url(), "https://192.0.2.1:1");
    fs::write(&path, text).expect("written");
    let run = Run::start(Access::Kubeconfig { path, server: Some(case.server.url()) });
    run.settles(&case.server);
}
