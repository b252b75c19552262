//! Deleting a backend touches its folder, one line of the agent's registry, and two manifests.

use std::path::Path;

use crate::workspace::{files, metadata, text};

/// Files outside of a backend's own folder that may name it.
const MAY_NAME: [&str; 3] = ["Cargo.toml", "agent/Cargo.toml", "agent/src/registry.rs"];

/// Whether a source or manifest at `path` with this text names `backend` where it must not.
fn is_stray(backend: &str, path: &Path, text: &str) -> bool {
    let own = path.starts_with(backend) || MAY_NAME.iter().any(|file| path == Path::new(file));
    !own && [backend.to_owned(), backend.replace('-', "_")].iter().any(|name| text.contains(name))
}

#[test]
fn backends_are_named_in_the_registry_only() {
    let metadata = metadata();
    let members = metadata.workspace_packages();
    let backends: Vec<&str> =
        members.iter().map(|p| p.name.as_str()).filter(|name| name.starts_with("backend-")).collect();
    assert!(!backends.is_empty());
    let mut strays = Vec::new();
    for path in files() {
        let source = path.extension().is_some_and(|e| e == "rs") || path.ends_with("Cargo.toml");
        let Some(text) = source.then(|| text(&path)).flatten() else { continue };
        let named = backends.iter().filter(|backend| is_stray(backend, &path, &text));
        strays.extend(named.map(|backend| format!("{} names {backend}", path.display())));
    }
    assert_eq!(strays, [""; 0]);
}

#[test]
fn a_stray_name_is_seen() {
    assert!(is_stray("backend-x", Path::new("agent/src/sync.rs"), "use backend_x::X;"));
    assert!(is_stray("backend-x", Path::new("e2e/Cargo.toml"), "backend-x.workspace = true"));
    assert!(!is_stray("backend-x", Path::new("agent/src/registry.rs"), "use backend_x::X;"));
    assert!(!is_stray("backend-x", Path::new("backend-x/src/lib.rs"), "//! backend-x"));
    assert!(!is_stray("backend-x", Path::new("agent/src/sync.rs"), "use backend_y::Y;"));
}
