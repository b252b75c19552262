//! The connection to the API server: made when it is needed, made anew when the server does not accept it.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER, USER_AGENT};
use hyper::{Request, Response, Uri};
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::client::ConfigExt;
use proxier_sys::runner::SystemRunner;
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::access::{self, Access, AccessError, Authorization, Plan};
use super::exec::{self, Credential};
use super::fault::{Fault, explain};
use super::limiter::{Limiter, Rate};
use crate::metrics::ClientMetrics;

/// How long a connection may take to come about.
const CONNECT: Duration = Duration::from_secs(10);

/// A peer that is no longer there is found out by asking after so much silence ...
const PROBE_AFTER: Duration = Duration::from_secs(15);
/// ... and waiting so long for the answer.
const PROBE_ANSWER: Duration = Duration::from_secs(10);

/// Bytes that a stream, and a connection, may be ahead of us over HTTP/2; they wait in memory.
const STREAM_WINDOW: u32 = 256 << 10;
const CONNECTION_WINDOW: u32 = 1 << 20;

/// A token in a file is read again after this.
const TOKEN_AGE: Duration = Duration::from_secs(60);

/// Credentials are renewed so long before they end.
const MARGIN: SignedDuration = SignedDuration::from_secs(30);

const AGENT: &str = concat!("proxier/", env!("CARGO_PKG_VERSION"));

type Http = Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

/// The way to the server.
pub(super) struct Link {
    access: Access,
    slot: Mutex<Slot>,
    headers_within: Duration,
    limiter: Limiter,
    metrics: Arc<ClientMetrics>,
}

#[derive(Default)]
struct Slot {
    current: Option<Rc<Connected>>,
    trust: Trust,
    /// What the plug-in gave.
    credential: Option<Credential>,
}

/// What is thought of the current client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Trust {
    /// It is good.
    #[default]
    Good,
    /// It did not lead to the server. Make it anew if that can be done.
    Doubtful,
    /// The server did not accept it. Make it anew.
    Rejected,
}

/// A client with what belongs to it.
struct Connected {
    http: Http,
    base: Uri,
    authorization: Authorization,
    token: RefCell<Option<(HeaderValue, Instant)>>,
    headers: Vec<(HeaderName, HeaderValue)>,
    expires: Option<Timestamp>,
}

impl Link {
    /// A link that is not made yet. The beginning of an answer is waited for so long.
    pub(super) fn new(
        access: Access,
        headers_within: Duration,
        rate: Rate,
        metrics: Arc<ClientMetrics>,
    ) -> Self {
        Self { access, slot: Mutex::default(), headers_within, limiter: Limiter::new(rate), metrics }
    }

    /// Waits until the server may be asked for something new.
    pub(super) async fn turn(&self) {
        self.limiter.wait().await;
    }

    /// Asks for a path and waits for the beginning of the answer, whatever its status.
    ///
    /// # Errors
    /// [`Fault::Setup`] when it cannot be asked, [`Fault::Unreachable`] when there is no connection,
    /// [`Fault::Broken`] and [`Fault::Silent`] when there is no answer.
    pub(super) async fn get(&self, path: &str) -> Result<Response<Incoming>, Fault> {
        self.ask(path, None).await
    }

    /// As [`Link::get`], and hands over a JSON object to be created there.
    ///
    /// # Errors
    /// As [`Link::get`].
    pub(super) async fn post(&self, path: &str, object: Bytes) -> Result<Response<Incoming>, Fault> {
        self.ask(path, Some(object)).await
    }

    async fn ask(&self, path: &str, object: Option<Bytes>) -> Result<Response<Incoming>, Fault> {
        let connected = self.connected().await.map_err(|e| Fault::Setup(explain(&e)))?;
        let verb = if object.is_some() { "POST" } else { "GET" };
        let request = connected.request(path, object).map_err(|e| Fault::Setup(explain(&e)))?;
        let begun = Instant::now();
        let answer = timeout(self.headers_within, connected.http.request(request)).await;
        let code = answer.as_ref().ok().and_then(|a| a.as_ref().ok()).map(|r| r.status().as_u16());
        let host = connected.base.authority().map_or("", |a| a.as_str());
        self.metrics.request(verb, host, code, begun.elapsed());
        match answer {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(error)) if error.is_connect() => Err(Fault::Unreachable(explain(&error))),
            Ok(Err(error)) => Err(Fault::Broken(explain(&error))),
            Err(_) => Err(Fault::Silent(self.headers_within)),
        }
    }

    /// Takes notice of a fault: what the server does not accept or what does not lead to it is made anew, from the file as it is then.
    pub(super) async fn failed(&self, fault: &Fault) {
        let mut slot = self.slot.lock().await;
        match fault {
            Fault::Unauthorized(_) => {
                slot.trust = Trust::Rejected;
                slot.credential = None;
            }
            // a silent server may be one that is no longer at the other end of this connection
            Fault::Unreachable(_) | Fault::Silent(_) if slot.trust == Trust::Good => {
                slot.trust = Trust::Doubtful;
            }
            _ => {}
        }
    }

    async fn connected(&self) -> Result<Rc<Connected>, AccessError> {
        let mut slot = self.slot.lock().await;
        let current = slot.current.clone().filter(|c| slot.trust != Trust::Rejected && !is_over(c.expires));
        match current {
            Some(current) if slot.trust == Trust::Good => Ok(current),
            Some(current) => Ok(slot.renew(&self.access).await.unwrap_or(current)),
            None => slot.renew(&self.access).await,
        }
    }
}

impl Slot {
    async fn renew(&mut self, access: &Access) -> Result<Rc<Connected>, AccessError> {
        let config = access::load(access)?;
        if let Some(exec) = access::plug_in(&config) {
            if self.credential.as_ref().is_none_or(|c| is_over(c.expires)) {
                let exec = exec.clone();
                let asked = tokio::task::spawn_blocking(move || exec::ask(&exec, &SystemRunner::new()));
                self.credential = Some(asked.await.map_err(|e| AccessError::Secret(e.to_string()))??);
            }
        } else {
            self.credential = None;
        }
        let connected = Rc::new(Connected::new(access::plan(config, self.credential.as_ref())?)?);
        self.current = Some(Rc::clone(&connected));
        self.trust = Trust::Good;
        Ok(connected)
    }
}

fn is_over(expires: Option<Timestamp>) -> bool {
    expires.is_some_and(|end| end.saturating_sub(MARGIN).is_ok_and(|end| end <= Timestamp::now()))
}

impl Connected {
    fn new(plan: Plan) -> Result<Self, AccessError> {
        let Plan { config, authorization, headers, expires } = plan;
        let tls = config.rustls_client_config().map_err(|e| AccessError::Tls(explain(&e)))?;
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(CONNECT));
        tcp.set_keepalive(Some(PROBE_AFTER));
        tcp.set_keepalive_interval(Some(PROBE_ANSWER / 2));
        tcp.set_keepalive_retries(Some(3));
        let mut https = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http();
        if let Some(name) = config.tls_server_name {
            let name = name.try_into().map_err(|_| AccessError::Tls("tls-server-name is no name".into()))?;
            https = https.with_server_name_resolver(FixedServerNameResolver::new(name));
        }
        let http = Client::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .http2_initial_stream_window_size(STREAM_WINDOW)
            .http2_initial_connection_window_size(CONNECTION_WINDOW)
            .http2_keep_alive_interval(PROBE_AFTER)
            .http2_keep_alive_timeout(PROBE_ANSWER)
            .build(https.enable_all_versions().wrap_connector(tcp));
        let base = config.cluster_url;
        Ok(Self { http, base, authorization, token: RefCell::default(), headers, expires })
    }

    fn request(&self, path: &str, object: Option<Bytes>) -> Result<Request<Full<Bytes>>, AccessError> {
        let wrong = |e: hyper::http::Error| AccessError::Address {
            address: self.base.to_string(),
            why: e.to_string(),
        };
        let mut parts = self.base.clone().into_parts();
        let below = self.base.path().trim_end_matches('/');
        let joined =
            format!("{below}{path}").parse().map_err(|e: hyper::http::uri::InvalidUri| wrong(e.into()))?;
        parts.path_and_query = Some(joined);
        let uri = Uri::from_parts(parts).map_err(|e| wrong(e.into()))?;
        let builder = match &object {
            None => Request::get(uri),
            Some(_) => Request::post(uri).header(CONTENT_TYPE, "application/json"),
        };
        let builder = builder.header(ACCEPT, "application/json").header(USER_AGENT, AGENT);
        let mut request = builder.body(Full::new(object.unwrap_or_default())).map_err(wrong)?;
        let headers = request.headers_mut();
        if let Some(authorization) = self.authorization()? {
            headers.insert(AUTHORIZATION, authorization);
        }
        for (name, value) in &self.headers {
            headers.append(name, value.clone());
        }
        Ok(request)
    }

    fn authorization(&self) -> Result<Option<HeaderValue>, AccessError> {
        let (path, before) = match &self.authorization {
            Authorization::None => return Ok(None),
            Authorization::Fixed(value) => return Ok(Some(value.clone())),
            Authorization::File { path, before } => (path, before),
        };
        let mut held = self.token.borrow_mut();
        if let Some((value, read)) = &*held
            && read.elapsed() < TOKEN_AGE
        {
            return Ok(Some(value.clone()));
        }
        let value = match std::fs::read_to_string(path) {
            Ok(text) => access::bearer(&text)?,
            // the file may be in the middle of being replaced
            Err(error) => match held.as_ref().map(|(value, _)| value).or(before.as_ref()) {
                Some(value) => value.clone(),
                None => return Err(AccessError::Secret(format!("{}: {error}", path.display()))),
            },
        };
        *held = Some((value.clone(), Instant::now()));
        Ok(Some(value))
    }
}

/// The delay that an answer asks for.
pub(super) fn retry_after(response: &Response<Incoming>) -> Option<Duration> {
    let seconds = response.headers().get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connected(server: &str) -> Connected {
        let config = access::load(&Access::Open { server: server.to_owned() }).expect("an address");
        Connected::new(access::plan(config, None).expect("a plan")).expect("a client")
    }

    #[test]
    fn the_path_of_the_server_comes_first() {
        let uri = |server| {
            connected(server).request("/api/v1/services?limit=500", None).expect("good").uri().to_string()
        };
        assert_eq!(uri("https://a:6443"), "https://a:6443/api/v1/services?limit=500");
        assert_eq!(uri("https://a/"), "https://a/api/v1/services?limit=500");
        assert_eq!(
            uri("http://[fd00::1]:80/k8s/c-1/"),
            "http://[fd00::1]:80/k8s/c-1/api/v1/services?limit=500"
        );
    }

    #[test]
    fn requests_say_who_asks_and_what_for() {
        let mut connected = connected("https://a");
        connected.authorization = Authorization::Fixed(HeaderValue::from_static("Bearer t"));
        connected.headers =
            vec![(HeaderName::from_static("impersonate-user"), HeaderValue::from_static("u"))];
        let request = connected.request("/version", None).expect("good");
        let header = |name: &str| request.headers()[name].to_str().expect("text").to_owned();
        assert_eq!(header("accept"), "application/json");
        assert!(header("user-agent").starts_with("proxier/"));
        assert_eq!(header("authorization"), "Bearer t");
        assert_eq!(header("impersonate-user"), "u");
    }

    #[test]
    fn a_token_file_that_is_gone_leaves_the_last_token() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("token");
        let mut connected = connected("https://a");
        connected.authorization = Authorization::File { path: path.clone(), before: None };
        let error = connected.authorization().expect_err("no file").to_string();
        assert!(error.starts_with(&path.display().to_string()), "{error}");
        std::fs::write(&path, "one\n").expect("written");
        let said =
            |c: &Connected| c.authorization().expect("good").expect("some").to_str().map(str::to_owned);
        assert_eq!(said(&connected).expect("text"), "Bearer one");
        std::fs::remove_file(&path).expect("removed");
        let old = connected.token.borrow_mut().take().map(|(value, _)| value).expect("held");
        let long_ago = Instant::now().checked_sub(TOKEN_AGE * 2).expect("the machine has been up");
        *connected.token.borrow_mut() = Some((old, long_ago));
        assert_eq!(said(&connected).expect("text"), "Bearer one");
    }

    #[test]
    fn credentials_end_a_little_earlier() {
        let at = |seconds: i64| Some(Timestamp::now() + SignedDuration::from_secs(seconds));
        assert!(!is_over(None) && !is_over(at(60)));
        assert!(is_over(at(20)) && is_over(at(-20)));
    }
}
