//! From a request to its answer.

use std::future::pending;
use std::iter::once;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER, USER_AGENT};
use hyper::{HeaderMap, Request, Response, StatusCode, Version};
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::body::{Answer, Cut};
use super::discovery::{Document, document};
use super::events::{Write, write};
use super::faults::{Action, Finder, Then};
use super::json::pretty;
use super::line::Line;
use super::list::{get, list};
use super::request::{Query, Route, Target};
use super::resource::Verb;
use super::selector::Selector;
use super::shared::{Seen, Shared};
use super::status::Refusal;
use super::watch::{error_event, watch};

/// Largest body a client may send.
const LARGEST: usize = 3 * 1024 * 1024;

/// Between the last bytes of a cut body and the cut, so that they are on the wire before it.
const BEFORE_CUT: Duration = Duration::from_millis(50);

/// The other end of a connection.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) line: Arc<Line>,
    /// The client's certificate, if it showed one.
    pub(super) certificate: Option<Vec<u8>>,
    /// The server's own address.
    pub(super) address: String,
}

/// One request, read as far as its headers.
struct Exchange {
    shared: Arc<Shared>,
    peer: Arc<Peer>,
    query: Query,
    user_agent: String,
    http2: bool,
    /// Whether the answer is indented, as it is for people.
    pretty: bool,
}

type Reply = Response<Answer>;

/// Answers a request, or does what a fault says instead.
pub(super) async fn answer(
    shared: Arc<Shared>,
    peer: Arc<Peer>,
    request: Request<Incoming>,
) -> Result<Reply, Cut> {
    let (parts, body) = request.into_parts();
    let query = Query::parse(parts.uri.query().unwrap_or_default());
    let route = Route::of(&parts.method, parts.uri.path(), &query);
    let user_agent = header(&parts.headers, &USER_AGENT).to_owned();
    let pretty = wants_pretty(&query, &user_agent);
    let http2 = parts.version == Version::HTTP_2;
    let (verb, resource) = match &route {
        Route::Resource(target) => (Some(target.verb), target.resource.plural.to_owned()),
        _ => (None, parts.uri.path().to_owned()),
    };
    let uri = parts.uri.path_and_query().map(ToString::to_string).unwrap_or_default();
    let seen = Seen { verb, resource: resource.clone(), uri, user_agent: user_agent.clone(), http2 };
    shared.record().add(seen);
    let exchange = Exchange { shared, peer, query, user_agent, http2, pretty };
    let fault = verb.and_then(|verb| exchange.shared.faults().take(verb, &resource));
    if let Some(refused) = exchange.before(fault.as_ref()).await {
        return Ok(refused);
    }
    let reply = match exchange.reply(route, &parts.headers, body).await {
        Ok(reply) => reply,
        Err(refusal) => exchange.refused(&refusal),
    };
    Ok(match fault {
        Some(action @ (Action::DelayBody(_) | Action::Cut { .. } | Action::Drip { .. })) => {
            let line = exchange.peer.line.clone();
            reply.map(|body| faulty(body, action, line))
        }
        _ => reply,
    })
}

fn header<'a>(headers: &'a HeaderMap, name: &HeaderName) -> &'a str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// Whether a person reads the answer: as the request says, else as the program is known.
fn wants_pretty(query: &Query, user_agent: &str) -> bool {
    let asked = query.text("pretty");
    if !asked.is_empty() {
        return matches!(asked, "1" | "t" | "T" | "true" | "TRUE" | "True");
    }
    ["curl", "Wget", "Mozilla/5.0"].iter().any(|program| user_agent.starts_with(program))
}

impl Exchange {
    /// Does what a fault does before the answer.
    async fn before(&self, fault: Option<&Action>) -> Option<Reply> {
        match fault? {
            Action::Close => {
                self.peer.line.close();
                pending::<()>().await;
            }
            Action::Silence => {
                self.peer.line.silence();
                pending::<()>().await;
            }
            Action::Delay(time) => sleep(*time).await,
            Action::Status { code, retry_after } => {
                return Some(self.refused(&Refusal::on_demand(*code, *retry_after)));
            }
            Action::DelayBody(_) | Action::Cut { .. } | Action::Drip { .. } => {}
        }
        None
    }

    async fn reply(&self, route: Route, headers: &HeaderMap, body: Incoming) -> Result<Reply, Refusal> {
        let token = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let user = self.shared.access().user(token, self.peer.certificate.as_deref())?;
        let target = match route {
            Route::Nowhere => return Err(Refusal::no_path()),
            Route::WrongMethod => return Err(Refusal::method()),
            Route::Discovery(path) => return self.document(&path),
            Route::Resource(target) => target,
        };
        self.authorize(&user, &target)?;
        if !accepts_json(header(headers, &ACCEPT)) {
            return Err(Refusal::media_type(406));
        }
        match target.verb {
            Verb::Get => get(&self.shared, &target, &self.query).await.map(|bytes| self.json(200, &bytes)),
            Verb::List => list(&self.shared, &target, &self.query).await.map(|list| self.parts(list.parts())),
            Verb::Watch => {
                let stream = watch(self.shared.clone(), &target, &self.query).await?;
                Ok(response(200, "application/json", stream))
            }
            Verb::Create | Verb::Update | Verb::Patch | Verb::Delete => {
                let body = Limited::new(body, LARGEST).collect().await;
                let body = body.map_err(|_| Refusal::bad_request("the body cannot be read"))?.to_bytes();
                let content_type = header(headers, &CONTENT_TYPE);
                let (query, user_agent) = (&self.query, self.user_agent.as_str());
                let request = Write { target: &target, query, user_agent, content_type, body: &body };
                write(&self.shared, &request).map(|(code, bytes)| self.json(code, &bytes))
            }
        }
    }

    fn authorize(&self, user: &str, target: &Target) -> Result<(), Refusal> {
        let selector = match target.verb {
            Verb::List | Verb::Watch => {
                Selector::parse("", self.query.text("fieldSelector"), target.resource).ok()
            }
            _ => None,
        };
        let name = selector.as_ref().and_then(Selector::name).unwrap_or(&target.name);
        self.shared.access().check(user, target, name)
    }

    fn document(&self, path: &str) -> Result<Reply, Refusal> {
        match document(path, &self.peer.address).ok_or_else(Refusal::no_path)? {
            Document::Json(bytes) => Ok(self.json(200, &bytes)),
            Document::Fixed(bytes) => {
                Ok(response(200, "application/json", Answer::known(bytes.into(), self.http2)))
            }
            Document::Text(text) => {
                Ok(response(200, "text/plain; charset=utf-8", Answer::known(text.into(), self.http2)))
            }
        }
    }

    fn refused(&self, refusal: &Refusal) -> Reply {
        let mut reply = self.json(refusal.code, &refusal.body());
        if let Some(seconds) = refusal.retry_after {
            reply.headers_mut().insert(RETRY_AFTER, seconds.into());
        }
        if refusal.nosniff {
            let name = HeaderName::from_static("x-content-type-options");
            reply.headers_mut().insert(name, HeaderValue::from_static("nosniff"));
        }
        reply
    }

    /// An answer of JSON: indented for people, else on a line.
    fn json(&self, code: u16, compact: &[u8]) -> Reply {
        let bytes = if self.pretty { pretty(compact) } else { [compact, b"\n"].concat() };
        response(code, "application/json", Answer::known(bytes.into(), self.http2))
    }

    /// An answer of JSON that is made in parts.
    fn parts(&self, mut parts: impl Iterator<Item = Bytes> + Send + 'static) -> Reply {
        if self.pretty {
            return self.json(200, &parts.collect::<Vec<_>>().concat());
        }
        let (first, second) = (parts.next().unwrap_or_default(), parts.next());
        let body = match second {
            None => return self.json(200, &first),
            Some(second) => {
                let end = once(Bytes::from_static(b"\n"));
                Answer::Parts(Box::new([first, second].into_iter().chain(parts).chain(end)))
            }
        };
        response(200, "application/json", body)
    }
}

fn response(code: u16, content_type: &'static str, body: Answer) -> Reply {
    let mut reply = Response::new(body);
    *reply.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    reply
}

fn accepts_json(header: &str) -> bool {
    let types = header.split(',').map(|entry| entry.split(';').next().unwrap_or_default().trim());
    header.is_empty()
        || types.into_iter().any(|kind| matches!(kind, "application/json" | "*/*" | "application/*"))
}

/// The same body under a fault.
fn faulty(body: Answer, action: Action, line: Arc<Line>) -> Answer {
    let (sender, receiver) = mpsc::channel(1);
    tokio::spawn(async move {
        // An error means that the client is gone.
        let _gone = feed(body, action, &line, &sender).await;
    });
    Answer::Fed(receiver)
}

type Feed = mpsc::Sender<Result<Bytes, Cut>>;

async fn feed(
    mut body: Answer,
    action: Action,
    line: &Line,
    sender: &Feed,
) -> Result<(), mpsc::error::SendError<Result<Bytes, Cut>>> {
    let mut finder = if let Action::Cut { at, .. } = action { Some(Finder::new(at)) } else { None };
    if let Action::DelayBody(time) = action {
        sleep(time).await;
    }
    loop {
        let next = tokio::select! {
            next = body.next() => next,
            () = sender.closed() => return Ok(()),
        };
        let Some(Ok(mut part)) = next else { return Ok(()) };
        if let (Some(finder), Action::Cut { then, .. }) = (&mut finder, &action)
            && let Some(length) = finder.before(&part)
        {
            part.truncate(length);
            sender.send(Ok(part)).await?;
            sleep(BEFORE_CUT).await;
            return cut(*then, line, sender).await;
        }
        if let Action::Drip { bytes, pause } = action {
            while !part.is_empty() {
                sleep(pause).await;
                sender.send(Ok(part.split_to(part.len().min(bytes.max(1))))).await?;
            }
        } else {
            sender.send(Ok(part)).await?;
        }
    }
}

async fn cut(
    then: Then,
    line: &Line,
    sender: &Feed,
) -> Result<(), mpsc::error::SendError<Result<Bytes, Cut>>> {
    match then {
        Then::End => {}
        Then::Abort => sender.send(Err(Cut)).await?,
        Then::Close => {
            line.close();
            sender.closed().await;
        }
        Then::Silence => {
            line.silence();
            sender.closed().await;
        }
        Then::Expire => sender.send(Ok(error_event(&Refusal::watch_expired(1, 2)).into())).await?,
    }
    Ok(())
}
