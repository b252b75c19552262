//! Certificates: a throw-away authority, what it signs, and certificates a client must not accept.

use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};
use rustls::RootCertStore;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::PrivateKeyDer;
use rustls::server::WebPkiClientVerifier;
use tokio_rustls::TlsAcceptor;

use super::error::Error;
use super::shared::Protocols;

/// Which certificate the server shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ServerCertificate {
    /// One that clients with the server's authority accept.
    #[default]
    Good,
    /// One for another host.
    OtherHost,
    /// One signed by an authority the client does not know.
    OtherAuthority,
    /// One that ended in the year 2000.
    Expired,
}

/// A certificate and its key, both PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientIdentity {
    /// The certificate.
    pub certificate: String,
    /// Its private key.
    pub key: String,
}

/// The server's authority.
pub(super) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
    der: rustls::pki_types::CertificateDer<'static>,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authority").finish_non_exhaustive()
    }
}

impl Authority {
    /// A new authority.
    pub(super) fn try_new() -> Result<Self, Error> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(Vec::new())?;
        params.distinguished_name.push(DnType::CommonName, "proxier test authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let certificate = params.self_signed(&key)?;
        let (pem, der) = (certificate.pem(), certificate.der().clone());
        Ok(Self { issuer: Issuer::new(params, key), pem, der })
    }

    /// Its certificate, PEM.
    pub(super) fn pem(&self) -> &str {
        &self.pem
    }

    /// A certificate for a client: the identity, and the certificate as it comes over the wire.
    pub(super) fn client(&self, user: &str) -> Result<(ClientIdentity, Vec<u8>), Error> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(Vec::new())?;
        params.distinguished_name.push(DnType::CommonName, user);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let certificate = params.signed_by(&key, &self.issuer)?;
        let identity = ClientIdentity { certificate: certificate.pem(), key: key.serialize_pem() };
        Ok((identity, certificate.der().to_vec()))
    }

    /// What turns connections into TLS.
    pub(super) fn acceptor(
        &self,
        shown: ServerCertificate,
        protocols: Protocols,
    ) -> Result<TlsAcceptor, Error> {
        let host = if shown == ServerCertificate::OtherHost { "elsewhere.example" } else { "localhost" };
        let mut names = vec![host.to_owned()];
        if shown != ServerCertificate::OtherHost {
            names.extend(["127.0.0.1".to_owned(), "::1".to_owned()]);
        }
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(names)?;
        params.distinguished_name.push(DnType::CommonName, "proxier test API server");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        if shown == ServerCertificate::Expired {
            params.not_before = date_time_ymd(1999, 1, 1);
            params.not_after = date_time_ymd(2000, 1, 1);
        }
        let certificate = if shown == ServerCertificate::OtherAuthority {
            params.signed_by(&key, &Self::try_new()?.issuer)?
        } else {
            params.signed_by(&key, &self.issuer)?
        };
        let provider: Arc<CryptoProvider> = ring::default_provider().into();
        let mut roots = RootCertStore::empty();
        roots.add(self.der.clone())?;
        let clients = WebPkiClientVerifier::builder_with_provider(roots.into(), provider.clone());
        let clients =
            clients.allow_unauthenticated().build().map_err(|error| Error::Verifier(error.to_string()))?;
        let key = PrivateKeyDer::try_from(key.serialize_der())
            .map_err(|error| Error::Verifier(error.to_owned()))?;
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_client_cert_verifier(clients)
            .with_single_cert(vec![certificate.der().clone()], key)?;
        config.alpn_protocols = match protocols {
            Protocols::Both => vec![b"h2".to_vec(), b"http/1.1".to_vec()],
            Protocols::Http1 => vec![b"http/1.1".to_vec()],
            Protocols::Http2 => vec![b"h2".to_vec()],
        };
        Ok(TlsAcceptor::from(Arc::new(config)))
    }
}
