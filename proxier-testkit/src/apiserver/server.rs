//! The test's handle to a running server.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use data_encoding::BASE64;
use k8s_openapi::api::rbac::v1::PolicyRule;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::builder::Builder;
use super::error::Error;
use super::faults::Fault;
use super::listen::{Lines, Running, Tls};
use super::object::key;
use super::resource::{Resource, Verb};
use super::shared::{Seen, Shared};
use super::tls::{Authority, ClientIdentity, ServerCertificate};

/// A server, listening until it is stopped or dropped.
///
/// Resources are named by their plural (`services`, `endpointslices`, `nodes`, `servicecidrs`, `events`), objects by
/// namespace (empty for those that have none) and name.
#[derive(Debug)]
pub struct ApiServer {
    shared: Arc<Shared>,
    lines: Arc<Lines>,
    running: Mutex<Option<Running>>,
    address: SocketAddr,
    authority: Option<Authority>,
}

fn known(resource: &str) -> Result<&'static Resource, Error> {
    Resource::called(resource).ok_or_else(|| Error::UnknownResource(resource.to_owned()))
}

/// Running, stopping, and how to reach it.
impl ApiServer {
    /// Settings to start one with.
    pub fn builder() -> Builder {
        Builder::default()
    }

    pub(super) fn new(
        shared: Arc<Shared>,
        lines: Arc<Lines>,
        running: Running,
        address: SocketAddr,
        authority: Option<Authority>,
    ) -> Self {
        Self { shared, lines, running: Mutex::new(Some(running)), address, authority }
    }

    /// Where it listens; the same before and after a stop.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its base address, `http://...` or `https://...`.
    pub fn url(&self) -> String {
        let scheme = if self.authority.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    /// The certificate (PEM) of its authority, if it speaks TLS.
    pub fn authority(&self) -> Option<&str> {
        self.authority.as_ref().map(Authority::pem)
    }

    /// A kubeconfig file for a user with a token, or for nobody.
    pub fn kubeconfig(&self, user: Option<&str>) -> String {
        let token = user.and_then(|user| self.shared.access().token_of(user).map(str::to_owned));
        let user = token.map_or_else(|| json!({}), |token| json!({"token": token}));
        self.config(&user)
    }

    /// A kubeconfig file for a user with a certificate.
    pub fn kubeconfig_of(&self, identity: &ClientIdentity) -> String {
        self.config(&json!({
            "client-certificate-data": BASE64.encode(identity.certificate.as_bytes()),
            "client-key-data": BASE64.encode(identity.key.as_bytes()),
        }))
    }

    fn config(&self, user: &Value) -> String {
        let mut cluster = json!({"server": self.url()});
        if let Some(pem) = self.authority() {
            cluster["certificate-authority-data"] = BASE64.encode(pem.as_bytes()).into();
        }
        json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": "test", "user": user}],
        })
        .to_string()
    }

    /// Closes the listener and every connection. The state stays.
    pub async fn stop(&self) {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(running) = running {
            running.stop().await;
        }
    }

    /// Listens again at the same address; stops first if it is running.
    ///
    /// # Errors
    ///
    /// If the address is taken by now.
    pub async fn restart(&self) -> Result<(), Error> {
        self.stop().await;
        let started = Running::start(self.shared.clone(), self.lines.clone(), self.address).await;
        let (running, _) = started.map_err(Error::Listen)?;
        *self.running.lock().unwrap_or_else(PoisonError::into_inner) = Some(running);
        Ok(())
    }
}

/// The state.
impl ApiServer {
    /// Creates or replaces an object; returns the version it got. Nothing is validated or defaulted; uid and creation
    /// time are made up where they are missing.
    ///
    /// # Errors
    ///
    /// If no resource has such objects, or name or namespace do not fit.
    pub fn put(&self, object: Value) -> Result<u64, Error> {
        self.shared.change(|store| store.put(object, None))
    }

    /// [`Self::put`] with the version to give it, which must be after the current one.
    ///
    /// # Errors
    ///
    /// As [`Self::put`], and if the version is not after the current one.
    pub fn put_at(&self, object: Value, version: u64) -> Result<u64, Error> {
        self.shared.change(|store| store.put(object, Some(version)))
    }

    /// Creates or replaces many objects.
    ///
    /// # Errors
    ///
    /// As [`Self::put`]; the objects before the refused one are in.
    pub fn put_all(&self, objects: impl IntoIterator<Item = Value>) -> Result<(), Error> {
        self.shared
            .change(|store| objects.into_iter().try_for_each(|object| store.put(object, None).map(|_| ())))
    }

    /// Creates or replaces the objects of YAML documents.
    ///
    /// # Errors
    ///
    /// As [`Self::put_all`], and if the text is not YAML.
    pub fn put_yaml(&self, text: &str) -> Result<(), Error> {
        let objects: Vec<Value> =
            serde_saphyr::from_multiple(text).map_err(|error| Error::Yaml(error.to_string()))?;
        self.put_all(objects)
    }

    /// Removes an object; returns the version of the removal.
    ///
    /// # Errors
    ///
    /// If there is none.
    pub fn delete(&self, resource: &str, namespace: &str, name: &str) -> Result<u64, Error> {
        self.delete_with(resource, namespace, name, None)
    }

    /// [`Self::delete`] with the version to give the removal, which must be after the current one.
    ///
    /// # Errors
    ///
    /// If there is no such object, or the version is not after the current one.
    pub fn delete_at(&self, resource: &str, namespace: &str, name: &str, version: u64) -> Result<u64, Error> {
        self.delete_with(resource, namespace, name, Some(version))
    }

    fn delete_with(
        &self,
        resource: &str,
        namespace: &str,
        name: &str,
        version: Option<u64>,
    ) -> Result<u64, Error> {
        let resource = known(resource)?;
        self.shared
            .change(|store| store.delete(resource, &key(namespace, name), version))
            .map(|(version, _)| version)
    }

    /// An object as it is; Events in the form of events.k8s.io/v1.
    pub fn get(&self, resource: &str, namespace: &str, name: &str) -> Option<Value> {
        let resource = Resource::called(resource)?;
        self.shared.store().get(resource.store, &key(namespace, name)).map(|object| object.value())
    }

    /// All objects of a resource, as types of the API or as plain JSON.
    ///
    /// # Errors
    ///
    /// If there is no such resource, or an object does not fit the type.
    pub fn all<T: DeserializeOwned>(&self, resource: &str) -> Result<Vec<T>, Error> {
        let resource = known(resource)?;
        let values: Vec<Value> =
            self.shared.store().objects(resource.store).map(|object| object.value()).collect();
        values.into_iter().map(|value| serde_json::from_value(value).map_err(Error::Type)).collect()
    }

    /// The version of the last change.
    pub fn revision(&self) -> u64 {
        self.shared.store().revision()
    }

    /// Counts versions on to `version`, as changes of other resources do.
    ///
    /// # Errors
    ///
    /// If it is not after the current one.
    pub fn advance_to(&self, version: u64) -> Result<(), Error> {
        self.shared.change(|store| store.advance(version))
    }

    /// Forgets what was before `version` (at most the current one): older lists, watches and continue tokens expire.
    /// Watches that run are not disturbed.
    pub fn compact(&self, version: u64) {
        self.shared.store().compact(version);
    }

    /// Lets all continue tokens expire that were given out so far.
    pub fn expire_continue_tokens(&self) {
        self.shared.change(super::store::Store::expire_tokens);
    }

    /// Stops the clock at this time since 1970.
    pub fn set_time(&self, since_1970: Duration) {
        self.shared.store().clock.set(since_1970);
    }

    /// Gives the next object that needs one this uid; several are used in turn.
    pub fn next_uid(&self, uid: &str) {
        self.shared.store().clock.next_uid(uid.to_owned());
    }
}

/// Who may do what.
impl ApiServer {
    /// As [`Builder::token`].
    pub fn add_token(&self, token: &str, user: &str) {
        self.shared.access().token(token, user);
    }

    /// Knows a user by a certificate, made here by the server's authority.
    ///
    /// # Errors
    ///
    /// If the server does not speak TLS.
    pub fn add_certificate(&self, user: &str) -> Result<ClientIdentity, Error> {
        let (identity, certificate) = self.authority.as_ref().ok_or(Error::NoTls)?.client(user)?;
        self.shared.access().certificate(certificate, user);
        Ok(identity)
    }

    /// As [`Builder::allow`].
    pub fn allow(&self, user: &str, namespace: Option<&str>, rules: Vec<PolicyRule>) {
        self.shared.access().allow(user, namespace, rules);
    }

    /// Takes all of a user's rules away: it may do nothing, from its next request on.
    pub fn forbid(&self, user: &str) {
        self.shared.access().forbid(user);
    }
}

/// Failing on demand.
impl ApiServer {
    /// Adds a fault; of several that match a request, the oldest acts.
    pub fn fault(&self, fault: Fault) {
        self.shared.faults().add(fault);
    }

    /// Removes all faults; those at work on an answer go on.
    pub fn clear_faults(&self) {
        self.shared.faults().clear();
    }

    /// Sends a bookmark on every running watch that wants bookmarks.
    pub fn bookmark(&self) {
        self.shared.signal.send_modify(|signal| signal.bookmarks += 1);
    }

    /// Ends every running watch, as at its timeout.
    pub fn end_watches(&self) {
        self.shared.signal.send_modify(|signal| signal.ends += 1);
    }

    /// Ends every running watch with the ERROR event of an expired version (410).
    pub fn expire_watches(&self) {
        self.shared.signal.send_modify(|signal| signal.expiries += 1);
    }

    /// Closes every open connection; new ones are accepted.
    pub fn close_connections(&self) {
        self.lines.open().iter().for_each(|line| line.close());
    }

    /// Makes every open connection silent for good, without closing it, as if this host were gone; new ones are accepted.
    pub fn silence_connections(&self) {
        self.lines.open().iter().for_each(|line| line.silence());
    }

    /// Shows another certificate on connections from now on.
    ///
    /// # Errors
    ///
    /// If the server does not speak TLS.
    pub fn show_certificate(&self, certificate: ServerCertificate) -> Result<(), Error> {
        let authority = self.authority.as_ref().ok_or(Error::NoTls)?;
        let acceptor = authority.acceptor(certificate, self.shared.settings.protocols)?;
        self.lines.set_tls(Tls(acceptor));
        Ok(())
    }
}

/// What clients did.
impl ApiServer {
    /// How many requests with this verb came for a resource, those that were refused or met a fault included.
    pub fn requests(&self, verb: Verb, resource: &str) -> u64 {
        self.shared.record().count(verb, resource)
    }

    /// The last requests (at most 10,000), oldest first.
    pub fn seen(&self) -> Vec<Seen> {
        self.shared.record().last()
    }

    /// How many watches run on a resource.
    pub fn watches(&self, resource: &str) -> usize {
        self.shared.watches().get(resource).copied().unwrap_or(0)
    }

    /// How many connections are open.
    pub fn connections(&self) -> usize {
        self.lines.open().len()
    }
}
