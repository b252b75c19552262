//! Single objects and lists.

use std::sync::Arc;

use bytes::Bytes;
use tokio::time::timeout;

use super::body::CHUNK;
use super::object::{Object, key};
use super::request::{Query, Target, Version, list_version, number};
use super::resource::Resource;
use super::selector::Selector;
use super::shared::Shared;
use super::status::Refusal;
use super::store::Page;
use super::token::Token;

/// One object.
pub(super) async fn get(shared: &Shared, target: &Target, query: &Query) -> Result<Bytes, Refusal> {
    if let Some(version) = number(query.text("resourceVersion"))? {
        reach(shared, version).await?;
    }
    let store = shared.store();
    let object = store.get(target.resource.store, &key(&target.namespace, &target.name));
    let object = object.ok_or_else(|| Refusal::no_object(target.resource, &target.name))?;
    let mut out = Vec::new();
    object.write(&mut out, target.resource);
    Ok(out.into())
}

/// A list, cut out of the state and not yet written.
pub(super) struct List {
    resource: &'static Resource,
    version: u64,
    page: Page,
    /// The token of the next page.
    next: Option<String>,
    /// Whether to say how many objects are left: it is known without a selector only.
    counted: bool,
}

/// What a list is of: a version (none: now), the key it starts with, and how many objects at most.
struct Cut {
    version: Option<u64>,
    start: String,
    limit: usize,
}

/// A list.
pub(super) async fn list(shared: &Shared, target: &Target, query: &Query) -> Result<List, Refusal> {
    let resource = target.resource;
    let selector = Selector::parse(query.text("labelSelector"), query.text("fieldSelector"), resource);
    let selector = selector.map_err(Refusal::bad_request)?;
    let wanted = list_version(query)?;
    if let Version::NotOlder(version) | Version::Exact(version) = wanted {
        reach(shared, version).await?;
    }
    let prefix = key(&target.namespace, "");
    let store = shared.store();
    let mut cut = cut(query, wanted)?;
    if !cut.start.is_empty() {
        let token = Token { version: cut.version, start: std::mem::take(&mut cut.start) };
        if token.version.is_some_and(|version| store.token_is_old(resource.store, version)) {
            return Err(Refusal::token_expired(token.newest()));
        }
        cut.start = format!("{prefix}{}", token.start);
    } else if cut.version.is_some_and(|version| version < store.floor(resource.store)) {
        return Err(Refusal::list_expired());
    }
    let version = cut.version.unwrap_or_else(|| store.revision());
    let places = (prefix.as_str(), cut.start.as_str());
    let page = store.page(resource.store, cut.version, places, cut.limit, |object| selector.matches(object));
    let last = page.last.as_deref().map(|last| &last[prefix.len()..]);
    let next = last.map(|last| Token::after(version, last));
    Ok(List { resource, version, page, next, counted: selector.is_empty() })
}

fn cut(query: &Query, wanted: Version) -> Result<Cut, Refusal> {
    let limit = match query.text("limit") {
        "" => 0,
        text => text.parse().map_err(|_| {
            Refusal::bad_request(format!("strconv.ParseInt: parsing {text:?}: invalid syntax"))
        })?,
    };
    let limit = if limit == 0 || wanted == Version::Any { usize::MAX } else { limit };
    let token = query.text("continue");
    if token.is_empty() {
        let version = if let Version::Exact(version) = wanted { Some(version) } else { None };
        return Ok(Cut { version, start: String::new(), limit });
    }
    if !matches!(wanted, Version::Newest | Version::Any) {
        return Err(Refusal::bad_request("specifying resource version is not allowed when using continue"));
    }
    let Token { version, start } = Token::parse(token).map_err(Refusal::bad_request)?;
    if start.is_empty() {
        return Err(Refusal::bad_request(
            "continue key is not valid: encoded start key empty (meta.k8s.io/v1)",
        ));
    }
    Ok(Cut { version, start, limit })
}

/// Waits until the state has reached `version`, as long as the server is patient.
pub(super) async fn reach(shared: &Shared, version: u64) -> Result<(), Refusal> {
    let mut signal = shared.signal.subscribe();
    let reached = signal.wait_for(|signal| signal.revision >= version);
    match timeout(shared.settings.future_wait, reached).await {
        Ok(Ok(_)) => Ok(()),
        _ => Err(Refusal::from_the_future(version, shared.store().revision())),
    }
}

impl List {
    fn head(&self) -> Vec<u8> {
        let (kind, api_version, version) = (self.resource.kind, self.resource.api_version(), self.version);
        let mut head = format!(
            r#"{{"kind":"{kind}List","apiVersion":"{api_version}","metadata":{{"resourceVersion":"{version}""#
        );
        if let Some(token) = &self.next {
            head.push_str(&format!(r#","continue":"{token}""#));
            if self.counted {
                head.push_str(&format!(r#","remainingItemCount":{}"#, self.page.remaining));
            }
        }
        head.push_str(r#"},"items":["#);
        head.into_bytes()
    }

    /// The list as text, in parts of some size, made one by one.
    pub(super) fn parts(self) -> impl Iterator<Item = Bytes> + Send {
        let head = self.head();
        let resource = self.resource;
        chunks(head, self.page.items.into_iter(), b"]}".to_vec(), move |out, object, first| {
            if !first {
                out.push(b',');
            }
            out.extend_from_slice(object.item(resource));
        })
    }
}

/// `head`, what `write` makes of each object, and `tail`, in parts of about [`CHUNK`] bytes.
pub(super) fn chunks(
    head: Vec<u8>,
    mut objects: impl Iterator<Item = Arc<Object>> + Send,
    tail: Vec<u8>,
    write: impl Fn(&mut Vec<u8>, &Object, bool) + Send,
) -> impl Iterator<Item = Bytes> + Send {
    let (mut out, mut tail, mut first) = (head, Some(tail), true);
    std::iter::from_fn(move || {
        while out.len() < CHUNK {
            match (objects.next(), &mut tail) {
                (Some(object), _) => write(&mut out, &object, std::mem::take(&mut first)),
                (None, tail) => {
                    out.append(&mut tail.take()?);
                    break;
                }
            }
        }
        let capacity = if tail.is_some() { CHUNK + CHUNK / 8 } else { 0 };
        Some(std::mem::replace(&mut out, Vec::with_capacity(capacity)).into())
    })
}
