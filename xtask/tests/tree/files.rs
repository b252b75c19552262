//! What a committed file must not hold: paths of one machine, hosts of package registries.

use std::path::Path;

use crate::workspace::{files, text};

/// First folders of paths that exist on one machine only. Split, so that this file does not hold them.
const MACHINE: [[&str; 2]; 5] = [["wo", "rk"], ["fa", "rm"], ["ho", "me"], ["ro", "ot"], ["Use", "rs"]];

/// Words in names of hosts that serve packages.
const REGISTRY: [[&str; 2]; 4] = [["cra", "tes"], ["py", "pi"], ["deb", "ian"], ["npm", "js"]];

/// Cargo writes the registry into its lock file itself.
const EXCEPT: &str = "Cargo.lock";

/// Whether `line` holds an absolute path that begins with one of [`MACHINE`].
fn names_machine(line: &str) -> bool {
    MACHINE.iter().map(|halves| format!("/{}/", halves.concat())).any(|folder| {
        line.match_indices(&folder).any(|(at, _)| {
            // A folder of that name further down a path is no matter.
            let before = line[..at].chars().next_back();
            before.is_none_or(|c| !c.is_alphanumeric() && !"_.-/}".contains(c))
        })
    })
}

/// Whether `line` holds an address at a host with one of [`REGISTRY`] in its name.
fn names_registry(line: &str) -> bool {
    let hosts = ["http://", "https://"].into_iter().flat_map(|scheme| line.split(scheme).skip(1));
    let name = |rest: &str| -> String {
        rest.chars().take_while(|c| c.is_ascii_alphanumeric() || "-.".contains(*c)).collect()
    };
    let words: Vec<String> = REGISTRY.iter().map(|halves| halves.concat()).collect();
    hosts.map(name).any(|host| words.iter().any(|word| host.contains(word)))
}

#[test]
fn no_file_names_a_machine_or_a_registry() {
    let mut found = Vec::new();
    for path in files().into_iter().filter(|path| path != Path::new(EXCEPT)) {
        let Some(text) = text(&path) else { continue };
        let hits = text.lines().enumerate().filter(|(_, line)| names_machine(line) || names_registry(line));
        found.extend(hits.map(|(i, line)| format!("{}:{}: {}", path.display(), i + 1, line.trim())));
    }
    assert_eq!(found, [""; 0]);
}

#[test]
fn machines_and_registries_are_recognised() {
    let [work, home] = [MACHINE[0], MACHINE[2]].map(|halves| halves.concat());
    for line in [format!("/{work}/x"), format!("see \"/{home}/me/x\""), format!("cd /{work}/")] {
        assert!(names_machine(&line), "{line}");
    }
    for line in [format!("a/{work}/x"), format!("./{work}/x"), format!("/{work}s/x"), "/etc/x".to_owned()] {
        assert!(!names_machine(&line), "{line}");
    }
    let host = REGISTRY[0].concat();
    assert!(names_registry(&format!("from https://static.{host}.io/x")));
    assert!(!names_registry(&format!("https://github.com/rust-lang/{host}.io-index")));
    assert!(!names_registry(&format!("the {host} of this workspace")));
}
