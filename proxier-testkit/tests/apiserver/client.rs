//! A client that sees every byte: one request on a connection of its own.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::{Method, Request, Response, Uri, client::conn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;

/// A request.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) method: Method,
    /// Path and query.
    pub(crate) uri: String,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: String,
    pub(crate) http2: bool,
}

impl Ask {
    /// A GET over HTTP/2 by the program the answers were recorded with.
    pub(crate) fn get(uri: &str) -> Self {
        let headers = vec![("user-agent", "curl/7.88.1".to_owned()), ("accept", "*/*".to_owned())];
        Self { method: Method::GET, uri: uri.to_owned(), headers, body: String::new(), http2: true }
    }

    pub(crate) fn post(uri: &str, body: &str) -> Self {
        let ask = Self { method: Method::POST, body: body.to_owned(), ..Self::get(uri) };
        ask.with("content-type", "application/json")
    }

    pub(crate) fn with(mut self, name: &'static str, value: &str) -> Self {
        self.headers.retain(|(known, _)| *known != name);
        self.headers.push((name, value.to_owned()));
        self
    }

    pub(crate) fn http1(mut self) -> Self {
        self.http2 = false;
        self
    }
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// Without the date.
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap()
    }

    /// Type and object of each event of a watch.
    pub(crate) fn events(&self) -> Vec<(String, serde_json::Value)> {
        let event = |line: &str| {
            let event: serde_json::Value = serde_json::from_str(line).unwrap();
            (event["type"].as_str().unwrap().to_owned(), event["object"].clone())
        };
        self.body.lines().map(event).collect()
    }
}

/// Sends a request; the answer's headers have come, its body has not.
pub(crate) async fn begin(address: SocketAddr, ask: &Ask) -> hyper::Result<Response<Incoming>> {
    let stream = TcpStream::connect(address).await.unwrap();
    let authority = if ask.http2 { format!("http://{address}") } else { String::new() };
    let uri: Uri = format!("{authority}{}", ask.uri).parse().unwrap();
    let mut request = Request::builder().method(ask.method.clone()).uri(uri);
    for (name, value) in &ask.headers {
        request = request.header(*name, value);
    }
    if !ask.http2 {
        request = request.header("host", address.to_string());
    }
    let request = request.body(Full::new(Bytes::from(ask.body.clone()))).unwrap();
    if ask.http2 {
        let (mut sender, connection) =
            conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        sender.send_request(request).await
    } else {
        let (mut sender, connection) = conn::http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        sender.send_request(request).await
    }
}

/// Reads the rest of an answer.
pub(crate) async fn finish(response: Response<Incoming>) -> hyper::Result<Answer> {
    let status = response.status().as_u16();
    let named =
        response.headers().iter().map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()));
    let headers = named.filter(|(name, _)| name != "date").collect();
    let body = response.into_body().collect().await?.to_bytes();
    Ok(Answer { status, headers, body: String::from_utf8(body.to_vec()).unwrap() })
}

/// Sends a request and reads the whole answer.
pub(crate) async fn ask(address: SocketAddr, ask: &Ask) -> Answer {
    finish(begin(address, ask).await.unwrap()).await.unwrap()
}

/// Waits until something is so, looking often; a test fails that waits for long.
pub(crate) async fn until(mut is_so: impl FnMut() -> bool) {
    for _ in 0..2000 {
        if is_so() {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    panic!("waited in vain");
}
