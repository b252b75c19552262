//! Credentials from a plug-in: a program that the kubeconfig names, asked by the protocol of `client.authentication.k8s.io`.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kube::config::{ExecAuthCluster, ExecConfig, ExecInteractiveMode};
use proxier_sys::runner::{CommandSpec, Runner};
use serde::{Deserialize, Serialize};

/// How long a plug-in may take.
const TIMEOUT: Duration = Duration::from_secs(60);

const VERSIONS: [&str; 2] = ["client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1"];

/// Why a plug-in gave no credentials. Never holds what it printed on standard output.
#[derive(Debug, thiserror::Error)]
pub(super) enum ExecError {
    /// The kubeconfig asks for something that cannot be.
    #[error("exec plug-in: {0}")]
    Config(String),
    /// It could not be run to its end.
    #[error("exec plug-in: {0}")]
    Run(#[from] proxier_sys::runner::RunError),
    /// It failed.
    #[error("exec plug-in {program} ended with status {code}: {line}")]
    Failed { program: String, code: i32, line: String },
    /// Its answer is not as it should be.
    #[error("exec plug-in {program} gave {what}")]
    Answer { program: String, what: String },
}

/// What a plug-in gave.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct Credential {
    pub(super) token: Option<String>,
    /// Certificate chain and key, PEM.
    pub(super) identity: Option<(String, String)>,
    /// It is no longer good after this.
    pub(super) expires: Option<Timestamp>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Request<'a> {
    api_version: &'a str,
    kind: &'static str,
    spec: RequestSpec<'a>,
}

#[derive(Serialize)]
struct RequestSpec<'a> {
    interactive: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    cluster: Option<&'a ExecAuthCluster>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    api_version: Option<String>,
    kind: Option<String>,
    status: Option<AnswerStatus>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AnswerStatus {
    expiration_timestamp: Option<String>,
    token: Option<String>,
    client_certificate_data: Option<String>,
    client_key_data: Option<String>,
}

/// Asks the plug-in. Blocks until it has answered, a minute at most.
///
/// # Errors
/// [`ExecError`].
pub(super) fn ask(config: &ExecConfig, runner: &impl Runner) -> Result<Credential, ExecError> {
    let (program, version, command) = command(config)?;
    let output = runner.run(&command)?;
    if !output.success() {
        return Err(ExecError::Failed { program, code: output.code, line: output.first_error_line() });
    }
    credential(&output.stdout, version).map_err(|what| ExecError::Answer { program, what })
}

fn command(config: &ExecConfig) -> Result<(String, &str, CommandSpec), ExecError> {
    let wrong = |what: &str| ExecError::Config(what.to_owned());
    let program = config.command.clone().filter(|c| !c.is_empty()).ok_or_else(|| wrong("no command"))?;
    let version = config.api_version.as_deref().unwrap_or_default();
    if !VERSIONS.contains(&version) {
        return Err(wrong(&format!("apiVersion {version:?} is not one of {}", VERSIONS.join(", "))));
    }
    if config.interactive_mode == Some(ExecInteractiveMode::Always) {
        return Err(wrong("interactiveMode is Always, and this program has no terminal"));
    }
    let request = Request {
        api_version: version,
        kind: "ExecCredential",
        spec: RequestSpec {
            interactive: false,
            cluster: config.cluster.as_ref().filter(|_| config.provide_cluster_info),
        },
    };
    let request = serde_json::to_string(&request).map_err(|e| ExecError::Config(e.to_string()))?;
    let mut command = CommandSpec::new(&program, config.args.iter().flatten())
        .timeout(TIMEOUT)
        .env("KUBERNETES_EXEC_INFO", request);
    for pair in config.env.iter().flatten() {
        if let (Some(name), Some(value)) = (pair.get("name"), pair.get("value")) {
            command = command.env(name, value);
        }
    }
    Ok((program, version, command))
}

fn credential(stdout: &[u8], version: &str) -> Result<Credential, String> {
    // a message of the parser could repeat the secret
    let answer: Answer =
        serde_json::from_slice(stdout).map_err(|_| "no ExecCredential in JSON".to_owned())?;
    if answer.kind.as_deref() != Some("ExecCredential") || answer.api_version.as_deref() != Some(version) {
        return Err(format!("something else than an ExecCredential of {version}"));
    }
    let status = answer.status.ok_or("no status")?;
    let expires = match status.expiration_timestamp.as_deref() {
        None => None,
        Some(text) => {
            Some(text.parse().map_err(|_| format!("expirationTimestamp {text:?}, which is no time"))?)
        }
    };
    let token = status.token.filter(|t| !t.trim().is_empty());
    let identity = match (status.client_certificate_data, status.client_key_data) {
        (Some(certificate), Some(key)) => Some((certificate, key)),
        (None, None) => None,
        _ => return Err("a certificate without a key, or a key without a certificate".into()),
    };
    if token.is_none() && identity.is_none() {
        return Err("neither a token nor a certificate".into());
    }
    Ok(Credential { token, identity, expires })
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::HashMap;

    use proxier_sys::runner::{Output, RunError};

    use super::*;

    struct Script(Output, RefCell<Option<CommandSpec>>);

    impl Runner for Script {
        fn run(&self, command: &CommandSpec) -> Result<Output, RunError> {
            *self.1.borrow_mut() = Some(command.clone());
            Ok(self.0.clone())
        }
    }

    fn config() -> ExecConfig {
        ExecConfig {
            api_version: Some(VERSIONS[0].into()),
            command: Some("plugin".into()),
            args: Some(vec!["get-token".into()]),
            env: Some(vec![HashMap::from([("name".into(), "A".into()), ("value".into(), "b".into())])]),
            ..ExecConfig::default()
        }
    }

    fn asked(
        config: &ExecConfig,
        code: i32,
        stdout: &str,
    ) -> (Result<Credential, String>, Option<CommandSpec>) {
        let output = Output { code, stdout: stdout.into(), stderr: b"no session\n".to_vec() };
        let script = Script(output, RefCell::default());
        let answer = ask(config, &script).map_err(|e| e.to_string());
        (answer, script.1.into_inner())
    }

    fn answer(status: &str) -> String {
        format!(r#"{{"apiVersion":"{}","kind":"ExecCredential","status":{status}}}"#, VERSIONS[0])
    }

    #[test]
    fn a_token_with_its_end() {
        let text = answer(r#"{"token":"t","expirationTimestamp":"2030-01-01T00:00:00Z"}"#);
        let (credential, command) = asked(&config(), 0, &text);
        let credential = credential.expect("good");
        assert_eq!(credential.token.as_deref(), Some("t"));
        assert_eq!(credential.expires, Some("2030-01-01T00:00:00Z".parse().expect("a time")));
        let command = command.expect("run");
        assert_eq!((command.program.as_str(), command.args), ("plugin", vec!["get-token".to_owned()]));
        assert_eq!(command.env[1], ("A".to_owned(), "b".to_owned()));
        let info: serde_json::Value = serde_json::from_str(&command.env[0].1).expect("JSON");
        assert_eq!(command.env[0].0, "KUBERNETES_EXEC_INFO");
        assert_eq!(info["apiVersion"], VERSIONS[0]);
        assert_eq!(info["spec"], serde_json::json!({"interactive": false}));
    }

    #[test]
    fn a_certificate() {
        let (credential, _) =
            asked(&config(), 0, &answer(r#"{"clientCertificateData":"C","clientKeyData":"K"}"#));
        assert_eq!(credential.expect("good").identity, Some(("C".into(), "K".into())));
    }

    #[test]
    fn failures_say_what_and_never_the_secret() {
        let told = |code, stdout: &str| asked(&config(), code, stdout).0.err().expect("refused");
        assert_eq!(told(3, "secret"), "exec plug-in plugin ended with status 3: no session");
        assert_eq!(told(0, "secret"), "exec plug-in plugin gave no ExecCredential in JSON");
        assert_eq!(told(0, &answer("{}")), "exec plug-in plugin gave neither a token nor a certificate");
        assert!(told(0, &answer(r#"{"token":"secret","clientKeyData":"secret"}"#)).contains("without a key"));
        let other = answer(r#"{"token":"secret"}"#).replace("/v1\"", "/v1beta1\"");
        assert!(told(0, &other).starts_with("exec plug-in plugin gave something else"));
        let late = answer(r#"{"token":"secret","expirationTimestamp":"tomorrow"}"#);
        assert!(told(0, &late).contains("\"tomorrow\", which is no time"));
    }

    #[test]
    fn what_cannot_be_asked() {
        let told = |change: fn(&mut ExecConfig)| {
            let mut config = config();
            change(&mut config);
            let (answer, command) = asked(&config, 0, "");
            assert_eq!(command, None);
            answer.err().expect("refused")
        };
        assert_eq!(told(|c| c.command = None), "exec plug-in: no command");
        assert!(told(|c| c.api_version = Some("v1".into())).contains("apiVersion \"v1\" is not one of"));
        assert!(told(|c| c.interactive_mode = Some(ExecInteractiveMode::Always)).contains("no terminal"));
    }
}
