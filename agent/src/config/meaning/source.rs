//! Where objects come from.

use super::unless_zero;
use crate::config::layers::{Layers, Origin};
use crate::config::types::{KubernetesConfig, ManifestsConfig, SourceConfig};

const MANIFESTS: &str = "source.manifests.path";

/// One at most. `clientConnection.kubeconfig` is kube-proxy's name for what `source.kubernetes.kubeconfig` says.
pub(super) fn source(layers: &mut Layers<'_>) -> Option<SourceConfig> {
    let path = layers.given(MANIFESTS);
    let own = layers.given("source.kubernetes.kubeconfig");
    let server = layers.given("source.kubernetes.server");
    // A file that is kube-proxy's names the cluster that it is for; a flag of ours can still ask for a folder.
    let by_flag = path.is_some() && matches!(layers.origin(MANIFESTS), Origin::Flag(_));
    let by_file = matches!(layers.origin("clientConnection.kubeconfig"), Origin::File(_));
    let peer = layers.given("clientConnection.kubeconfig").filter(|_| !(by_flag && by_file));
    let named = match (&own, &peer, &server) {
        (Some(_), _, _) => Some("source.kubernetes.kubeconfig"),
        (None, Some(_), _) => Some("clientConnection.kubeconfig"),
        (None, None, Some(_)) => Some("source.kubernetes.server"),
        (None, None, None) => None,
    };
    match (named, path) {
        (Some(named), Some(_)) => {
            layers.complain(named, format!("{MANIFESTS} is given as well; name one source"));
            None
        }
        (Some(_), None) => {
            let kubeconfig = own.or(peer).map(Into::into);
            Some(SourceConfig::Kubernetes(KubernetesConfig { kubeconfig, server }))
        }
        (None, path) => path.map(|path| {
            let poll = layers.duration("source.manifests.poll").and_then(unless_zero);
            SourceConfig::Manifests(ManifestsConfig { path: path.into(), poll })
        }),
    }
}
