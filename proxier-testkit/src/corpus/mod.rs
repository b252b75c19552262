//! Cases, Kubernetes objects, and what must happen to packets.
//!
//! One YAML file a case, in `corpus/cases/`; the folder's `README.md` describes the format. What a case expects was worked out by hand from the
//! specs, so that a case can find the oracle wrong as well as a backend: [`check`] puts every packet to the oracle, and
//! [`conformance::corpus`](crate::conformance::corpus) to a backend's rules.
//!
//! ```
//! let cases = proxier_testkit::corpus::cases()?;
//! assert!(cases.iter().any(|c| c.refs.iter().any(|r| r == "core-11.38")));
//! # Ok::<(), proxier_testkit::corpus::CorpusError>(())
//! ```

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use proxier_core::cluster::Commit;
use proxier_core::ids::{EndpointAddr, IpFamily};
use proxier_core::oracle::{Outcome, Packet, Reason};
use proxier_core::snapshot::Snapshot;

mod check;
mod expect;
mod load;
mod objects;
mod options;
mod raw;
#[cfg(test)]
mod tests;

pub use check::{answer, check};
pub use load::load;

/// A case.
#[derive(Clone, Debug)]
pub struct Case {
    /// Its file's name, without folder.
    pub file: String,
    /// What it is about.
    pub title: String,
    /// The items of specs and reports that it covers: `core-11.38`, `nftables-12.5`, `report-C1-10`.
    pub refs: Vec<String>,
    /// The cluster, published.
    pub commit: Commit,
    /// The packets.
    pub questions: Vec<Question>,
}

impl Case {
    /// The snapshot of a packet's family.
    #[must_use]
    pub fn snapshot(&self, question: &Question) -> &Snapshot {
        self.commit.snapshot(IpFamily::of(question.packet.destination))
    }
}

/// A packet and what must happen to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// Where in the file it stands: `packets[3]`, with source and destination where there are several.
    pub place: String,
    /// The packet.
    pub packet: Packet,
    /// What must happen.
    pub outcome: Outcome,
    /// Why, where the case says so.
    pub reason: Option<Reason>,
    /// The endpoint that session affinity has this client recorded at.
    pub recorded: Option<EndpointAddr>,
}

/// What is wrong with a case, with the file and the field.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CorpusError {
    /// A file cannot be read.
    #[error("{file}: {source}")]
    Read {
        /// File.
        file: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A file is no YAML.
    #[error("{file}: {message}")]
    Syntax {
        /// File.
        file: PathBuf,
        /// What is wrong, and in which line.
        message: String,
    },
    /// A field cannot be used.
    #[error("{file}: {field}: {message}")]
    Field {
        /// File.
        file: PathBuf,
        /// Path of the field, such as `packets[2].expect`.
        field: String,
        /// What is wrong with it.
        message: String,
    },
}

/// The folder with the case files and the manifests they name.
#[must_use]
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus")
}

/// All cases, sorted by file name.
///
/// # Errors
/// The first case that cannot be loaded.
pub fn cases() -> Result<Vec<Case>, CorpusError> {
    let folder = folder().join("cases");
    let read = |source| CorpusError::Read { file: folder.clone(), source };
    let mut files: Vec<PathBuf> = Vec::new();
    for entry in std::fs::read_dir(&folder).map_err(read)? {
        let path = entry.map_err(read)?.path();
        if path.extension().is_some_and(|e| e == "yaml") {
            files.push(path);
        }
    }
    files.sort();
    files.iter().map(|file| load(file)).collect()
}

/// An address as a case writes it, in the one form.
fn address(text: &str) -> Result<IpAddr, String> {
    text.parse().map_err(|_| format!("{text:?} is no address"))
}
