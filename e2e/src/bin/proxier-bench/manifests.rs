//! Folders of manifests.

use std::fs;
use std::path::Path;

use proxier_testkit::bench::Size;
use proxier_testkit::scale;
use serde_json::{Value, json};

/// Objects in one List, as `kubectl get -o json` of a large namespace would be split.
const LIST: u32 = 1_000;
/// The file that holds nothing but the slice of the last Service.
pub(crate) const EDITED: &str = "edited.json";

/// Puts a List into a file, at once.
pub(crate) fn write_list(folder: &Path, name: &str, items: &[Value]) -> anyhow::Result<()> {
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
    let hidden = folder.join(format!(".{name}"));
    fs::write(&hidden, serde_json::to_vec_pretty(&list)?)?;
    fs::rename(hidden, folder.join(name))?;
    Ok(())
}

/// Puts a whole cluster into a folder.
pub(crate) fn write(folder: &Path, Size { services, endpoints }: Size) -> anyhow::Result<()> {
    let edited = services - 1;
    for start in (0..services).step_by(LIST as usize) {
        let numbers = start..(start + LIST).min(services);
        let items: Vec<_> = numbers.clone().map(scale::service_json).collect();
        write_list(folder, &format!("services-{start:06}.json"), &items)?;
        let items: Vec<_> =
            numbers.filter(|n| *n != edited).map(|n| scale::slice_json(n, endpoints, 0)).collect();
        write_list(folder, &format!("slices-{start:06}.json"), &items)?;
    }
    write_list(folder, EDITED, &[scale::slice_json(edited, endpoints, 0)])
}
