//! TLS with the real client: certificates of both sides, and those that must not be accepted.

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::ListParams;
use proxier_testkit::apiserver::{ApiServer, Error, Protocols, ServerCertificate};

use crate::kube_client::client_of;

async fn list(kubeconfig: &str) -> Result<usize, kube::Error> {
    let nodes: Api<Node> = Api::all(client_of(kubeconfig).await);
    nodes.list(&ListParams::default()).await.map(|list| list.items.len())
}

async fn started(protocols: Protocols) -> ApiServer {
    let server = ApiServer::builder().tls().protocols(protocols).token("t", "u").start().await.unwrap();
    server.put_yaml("{apiVersion: v1, kind: Node, metadata: {name: worker}}").unwrap();
    server
}

#[tokio::test]
async fn users_come_by_token_or_certificate() {
    for protocols in [Protocols::Both, Protocols::Http1] {
        let server = started(protocols).await;
        assert!(server.url().starts_with("https://127.0.0.1:"));
        assert_eq!(list(&server.kubeconfig(Some("u"))).await.unwrap(), 1);
        let identity = server.add_certificate("c").unwrap();
        assert_eq!(list(&server.kubeconfig_of(&identity)).await.unwrap(), 1);
        server.forbid("c");
        let code = |result: Result<usize, kube::Error>| match result {
            Err(kube::Error::Api(status)) => (status.code, status.message.clone()),
            other => panic!("{other:?}"),
        };
        let (forbidden, message) = code(list(&server.kubeconfig_of(&identity)).await);
        assert_eq!(forbidden, 403);
        assert!(message.contains("User \"c\" cannot list"), "{message}");
        assert_eq!(code(list(&server.kubeconfig(None)).await).0, 401);
    }
}

#[tokio::test]
async fn clients_refuse_wrong_certificates() {
    let server = started(Protocols::Both).await;
    let kubeconfig = server.kubeconfig(Some("u"));
    for (shown, complaint) in [
        (ServerCertificate::OtherHost, "not valid for name"),
        (ServerCertificate::OtherAuthority, "UnknownIssuer"),
        (ServerCertificate::Expired, "expired"),
    ] {
        server.show_certificate(shown).unwrap();
        let error = list(&kubeconfig).await.unwrap_err();
        assert!(!matches!(error, kube::Error::Api(_)));
        let text = format!("{error:?} {error}");
        let mentions = text.contains(complaint) || text.to_lowercase().contains("certificate");
        assert!(mentions, "{shown:?}: {text}");
        server.show_certificate(ServerCertificate::Good).unwrap();
        assert_eq!(list(&kubeconfig).await.unwrap(), 1);
    }
}

#[tokio::test]
async fn a_certificate_needs_an_authority() {
    let server = ApiServer::builder().start().await.unwrap();
    assert_eq!(server.authority(), None);
    assert!(matches!(server.show_certificate(ServerCertificate::Expired), Err(Error::NoTls)));
    assert!(matches!(server.add_certificate("c"), Err(Error::NoTls)));
}
