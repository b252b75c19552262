//! The program under test, a folder of manifests, and what tests write into it.

use std::fs;
use std::path::{Path, PathBuf};

use proxier_sys::runner::{CommandSpec, Output, Runner, SystemRunner};

/// The program.
pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_proxier");

/// The node that all tests are about.
pub(crate) const NODE: [&str; 4] = ["--node", "worker", "--cluster-cidr", "10.244.0.0/16,fd00:10:244::/56"];

/// The cluster that a real kube-proxy was asked about.
pub(crate) fn peer() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../proxier-testkit/corpus/peer/state.yaml")
}

/// Runs a tool in the network namespace of this thread.
pub(crate) fn tool(program: &str, args: &[&str], input: &str) -> Output {
    let spec = CommandSpec::new(program, args.iter().copied()).stdin(input);
    SystemRunner::new().run(&spec).unwrap_or_else(|error| panic!("{program} {args:?}: {error}"))
}

/// Runs the program.
pub(crate) fn proxier(args: &[&str]) -> Output {
    tool(PROGRAM, args, "")
}

/// A folder of files.
pub(crate) struct Folder(tempfile::TempDir);

impl Folder {
    pub(crate) fn new(files: &[(&str, &str)]) -> Self {
        let folder = Self(tempfile::tempdir().expect("folder"));
        for (name, text) in files {
            folder.write(name, text);
        }
        folder
    }

    pub(crate) fn path(&self) -> &str {
        self.0.path().to_str().expect("text")
    }

    /// The full name of a file in it.
    pub(crate) fn file(&self, name: &str) -> String {
        format!("{}/{name}", self.path())
    }

    /// Writes a file as editors do: beside, and then in its place.
    pub(crate) fn write(&self, name: &str, text: &str) {
        let beside = self.0.path().join(".new");
        fs::write(&beside, text).expect("written");
        fs::rename(beside, self.0.path().join(name)).expect("in place");
    }

    pub(crate) fn remove(&self, name: &str) {
        fs::remove_file(self.0.path().join(name)).expect("removed");
    }
}

/// A Service with one TCP port, named `http`, and its EndpointSlice with port 8080.
pub(crate) fn service(name: &str, cluster_ip: &str, endpoints: &[&str]) -> String {
    let family = if cluster_ip.contains(':') { "IPv6" } else { "IPv4" };
    let endpoints: String = endpoints.iter().map(|e| format!("- addresses: ['{e}']\n")).collect();
    format!(
        "apiVersion: v1
kind: Service
metadata: {{name: {name}, namespace: shop, creationTimestamp: '2026-01-01T00:00:00Z'}}
spec:
  clusterIP: '{cluster_ip}'
  clusterIPs: ['{cluster_ip}']
  ipFamilies: [{family}]
  ports: [{{name: http, port: 80}}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: {name}-1, namespace: shop, labels: {{kubernetes.io/service-name: {name}}}}}
addressType: {family}
ports: [{{name: http, port: 8080}}]
endpoints:
{endpoints}"
    )
}
