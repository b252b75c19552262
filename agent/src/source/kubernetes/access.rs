//! How the API server is reached and who we are there: from a kubeconfig, or from what a pod is given.

use std::path::{Path, PathBuf};

use data_encoding::BASE64;
use hyper::Uri;
use hyper::header::{HeaderName, HeaderValue};
use k8s_openapi::jiff::Timestamp;
use kube::Config;
use kube::config::{AuthInfo, ExecConfig, Kubeconfig};
use secrecy::ExposeSecret;

use super::exec::{Credential, ExecError};
use super::fault::explain;

/// Where a pod finds its token and the server's authority.
const POD_FOLDER: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// How to get to the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Access {
    /// As this kubeconfig's current context says, but at another address if one is given.
    Kubeconfig {
        /// The file. It is read again when the server is not reached or does not accept us.
        path: PathBuf,
        /// Address, in place of the file's.
        server: Option<String>,
    },
    /// As a pod, with the token and the authority in a folder.
    Pod {
        /// Address.
        server: String,
        /// The folder with `token` and `ca.crt`.
        folder: PathBuf,
    },
    /// Without credentials.
    Open {
        /// Address.
        server: String,
    },
}

impl Access {
    /// What an address alone means: with the pod's credentials when this is a pod and the address is `https`, else without any.
    #[must_use]
    pub fn server(server: &str) -> Self {
        match Self::pod() {
            Some(Self::Pod { folder, .. }) if server.starts_with("https:") => {
                Self::Pod { server: server.to_owned(), folder }
            }
            _ => Self::Open { server: server.to_owned() },
        }
    }

    /// The access that a pod has; `None` when this is no pod with a service account.
    #[must_use]
    pub fn pod() -> Option<Self> {
        let variable = |name| std::env::var(name).ok().filter(|v: &String| !v.is_empty());
        let host = variable("KUBERNETES_SERVICE_HOST")?;
        let port = variable("KUBERNETES_SERVICE_PORT").unwrap_or_else(|| "443".to_owned());
        Self::pod_in(Path::new(POD_FOLDER), &host, &port)
    }

    fn pod_in(folder: &Path, host: &str, port: &str) -> Option<Self> {
        let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
        let server = format!("https://{host}:{port}");
        folder.join("token").exists().then(|| Self::Pod { server, folder: folder.to_owned() })
    }

    /// For people.
    #[must_use]
    pub fn describe(&self) -> String {
        match self {
            Self::Kubeconfig { path, server: None } => path.display().to_string(),
            Self::Kubeconfig { path, server: Some(server) } => format!("{server} by {}", path.display()),
            Self::Pod { server, .. } => format!("{server} as this pod"),
            Self::Open { server } => format!("{server} without credentials"),
        }
    }
}

/// Why there is no way to the API server.
#[derive(Debug, thiserror::Error)]
pub(super) enum AccessError {
    /// The kubeconfig cannot be used.
    #[error("{path}: {message}")]
    Kubeconfig { path: String, message: String },
    /// The address is none.
    #[error("{address:?} is not the address of a server: {why}")]
    Address { address: String, why: String },
    /// A secret cannot be used. What is wrong, without the secret.
    #[error("{0}")]
    Secret(String),
    /// The plug-in did not help.
    #[error(transparent)]
    Exec(#[from] ExecError),
    /// TLS cannot be set up.
    #[error("TLS: {0}")]
    Tls(String),
}

/// How requests say who we are.
#[derive(Clone)]
pub(super) enum Authorization {
    None,
    Fixed(HeaderValue),
    /// A bearer token in a file, which somebody renews, and what to say while it cannot be read.
    File {
        path: PathBuf,
        before: Option<HeaderValue>,
    },
}

/// What a client is made of.
pub(super) struct Plan {
    pub(super) config: Config,
    pub(super) authorization: Authorization,
    /// Impersonation.
    pub(super) headers: Vec<(HeaderName, HeaderValue)>,
    /// The credentials are no longer good after this.
    pub(super) expires: Option<Timestamp>,
}

/// Reads what there is to read. The plug-in, if there is one, has yet to be asked.
pub(super) fn load(access: &Access) -> Result<Config, AccessError> {
    match access {
        Access::Open { server } => Ok(Config::new(address(server)?)),
        Access::Pod { server, folder } => {
            let mut config = Config::new(address(server)?);
            // read again every minute; the certificates themselves are of no use
            config.root_cert = Some(Vec::new());
            config.root_cert_file = Some(folder.join("ca.crt"));
            config.auth_info.token_file = Some(folder.join("token").to_string_lossy().into_owned());
            Ok(config)
        }
        Access::Kubeconfig { path, server } => {
            let mut config = kubeconfig(path)?;
            if let Some(server) = server {
                config.cluster_url = address(server)?;
            }
            if !matches!(config.cluster_url.scheme_str(), Some("http" | "https")) {
                address(&config.cluster_url.to_string())?;
            }
            Ok(config)
        }
    }
}

fn kubeconfig(path: &Path) -> Result<Config, AccessError> {
    let wrong = |message: String| AccessError::Kubeconfig { path: path.display().to_string(), message };
    let file = Kubeconfig::read_from(path).map_err(|e| wrong(explain(&e)))?;
    let proxy = file.clusters.iter().filter_map(|c| c.cluster.as_ref()).find_map(|c| c.proxy_url.as_deref());
    if proxy.is_some_and(|p| !p.is_empty()) {
        return Err(wrong("proxy-url is not supported".into()));
    }
    let config = Config::try_from(file).map_err(|e| wrong(explain(&e)))?;
    if let Some(provider) = &config.auth_info.auth_provider {
        return Err(wrong(format!("auth-provider {} is not supported; use an exec plug-in", provider.name)));
    }
    if config.auth_info.impersonate_user_extra.as_ref().is_some_and(|e| !e.is_empty()) {
        return Err(wrong("as-user-extra is not supported".into()));
    }
    Ok(config)
}

/// Is this the address of a server, e.g. `https://10.0.0.1:6443`?
///
/// # Errors
/// Why not.
pub fn check_server(text: &str) -> Result<(), String> {
    address(text).map(drop).map_err(|e| e.to_string())
}

fn address(text: &str) -> Result<Uri, AccessError> {
    let wrong = |why: &str| AccessError::Address { address: text.to_owned(), why: why.to_owned() };
    let uri: Uri = text.parse().map_err(|_| wrong("no URL"))?;
    match (uri.scheme_str(), uri.authority()) {
        (Some("http" | "https"), Some(_)) if uri.query().is_none() => Ok(uri),
        (Some("http" | "https"), Some(_)) => Err(wrong("it has a query")),
        _ => Err(wrong("it does not begin with https:// or http://")),
    }
}

/// Which plug-in has to be asked: none when the file has something that goes before it.
pub(super) fn plug_in(config: &Config) -> Option<&ExecConfig> {
    let auth = &config.auth_info;
    let earlier = auth.token.is_some() || auth.token_file.is_some() || auth.username.is_some();
    auth.exec.as_ref().filter(|_| !earlier)
}

/// Puts together what a client is made of, with the plug-in's answer if there is one.
pub(super) fn plan(mut config: Config, credential: Option<&Credential>) -> Result<Plan, AccessError> {
    if let Some((certificate, key)) = credential.and_then(|c| c.identity.as_ref()) {
        config.auth_info.client_certificate_data = Some(BASE64.encode(certificate.as_bytes()));
        config.auth_info.client_key_data = Some(BASE64.encode(key.as_bytes()).into());
    }
    // whoever builds TLS from this must not run the plug-in again
    config.auth_info.exec = None;
    let authorization = authorization(&config.auth_info, credential)?;
    let headers = impersonation(&config.auth_info)?;
    Ok(Plan { config, authorization, headers, expires: credential.and_then(|c| c.expires) })
}

fn authorization(auth: &AuthInfo, credential: Option<&Credential>) -> Result<Authorization, AccessError> {
    let token = auth.token.as_ref().map(|t| bearer(t.expose_secret())).transpose()?;
    if let Some(path) = &auth.token_file {
        return Ok(Authorization::File { path: path.into(), before: token });
    }
    if let Some(token) = token {
        return Ok(Authorization::Fixed(token));
    }
    if let (Some(user), Some(password)) = (&auth.username, &auth.password) {
        let pair = BASE64.encode(format!("{user}:{}", password.expose_secret()).as_bytes());
        return Ok(Authorization::Fixed(secret(&format!("Basic {pair}"), "the password")?));
    }
    match credential.and_then(|c| c.token.as_deref()) {
        Some(token) => Ok(Authorization::Fixed(bearer(token)?)),
        None => Ok(Authorization::None),
    }
}

/// The header of a token; white space around it does not count.
///
/// # Errors
/// When it cannot stand in a header.
pub(super) fn bearer(token: &str) -> Result<HeaderValue, AccessError> {
    secret(&format!("Bearer {}", token.trim()), "the token")
}

fn secret(text: &str, what: &str) -> Result<HeaderValue, AccessError> {
    let refused = |_| AccessError::Secret(format!("{what} holds characters that cannot be sent"));
    let mut value = HeaderValue::from_str(text).map_err(refused)?;
    value.set_sensitive(true);
    Ok(value)
}

fn impersonation(auth: &AuthInfo) -> Result<Vec<(HeaderName, HeaderValue)>, AccessError> {
    let header = |name: &'static str, value: &String| {
        let value = HeaderValue::from_str(value)
            .map_err(|_| AccessError::Secret(format!("{value:?} cannot be sent as {name}")))?;
        Ok((HeaderName::from_static(name), value))
    };
    let user = auth.impersonate.iter().map(|v| header("impersonate-user", v));
    let uid = auth.impersonate_uid.iter().map(|v| header("impersonate-uid", v));
    let groups = auth.impersonate_groups.iter().flatten().map(|v| header("impersonate-group", v));
    user.chain(uid).chain(groups).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(authorization: Authorization) -> String {
        match authorization {
            Authorization::None => "nothing".to_owned(),
            Authorization::Fixed(value) => value.to_str().expect("text").to_owned(),
            Authorization::File { path, before } => {
                let before = before.map(|v| v.to_str().expect("text").to_owned());
                format!("{} before {before:?}", path.display())
            }
        }
    }

    fn auth(user: serde_json::Value) -> AuthInfo {
        serde_json::from_value(user).expect("a user")
    }

    #[test]
    fn a_pod_is_known_by_its_token() {
        let folder = tempfile::tempdir().expect("folder");
        assert_eq!(Access::pod_in(folder.path(), "10.96.0.1", "443"), None);
        std::fs::write(folder.path().join("token"), "t").expect("written");
        let server = |host| match Access::pod_in(folder.path(), host, "443") {
            Some(Access::Pod { server, .. }) => server,
            other => panic!("{other:?}"),
        };
        assert_eq!(server("10.96.0.1"), "https://10.96.0.1:443");
        assert_eq!(server("fd00::1"), "https://[fd00::1]:443");
    }

    #[test]
    fn what_goes_before_what() {
        let credential = Credential { token: Some("plugin".into()), ..Credential::default() };
        let of = |user, credential| said(authorization(&auth(user), credential).expect("good"));
        use serde_json::json;
        assert_eq!(of(json!({}), None), "nothing");
        assert_eq!(of(json!({"token": " a\n"}), None), "Bearer a");
        assert_eq!(
            of(json!({"tokenFile": "/t", "token": "a"}), Some(&credential)),
            "/t before Some(\"Bearer a\")"
        );
        assert_eq!(of(json!({"username": "u", "password": "p"}), Some(&credential)), "Basic dTpw");
        assert_eq!(of(json!({}), Some(&credential)), "Bearer plugin");
    }

    #[test]
    fn a_secret_that_cannot_be_sent_is_not_repeated() {
        let error = bearer("hid\u{1}den").expect_err("refused").to_string();
        assert_eq!(error, "the token holds characters that cannot be sent");
        assert_eq!(format!("{:?}", bearer("hidden").expect("good")), "Sensitive");
    }

    #[test]
    fn groups_are_each_a_header() {
        let user = auth(serde_json::json!({"as": "u", "as-uid": "7", "as-groups": ["a", "b"]}));
        let headers = impersonation(&user).expect("good");
        let headers: Vec<_> =
            headers.iter().map(|(n, v)| format!("{n}: {}", v.to_str().expect("text"))).collect();
        assert_eq!(
            headers,
            ["impersonate-user: u", "impersonate-uid: 7", "impersonate-group: a", "impersonate-group: b"]
        );
    }
}
