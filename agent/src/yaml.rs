//! How YAML is read, the same for configuration and manifests.

use serde_saphyr::options::DuplicateKeyPolicy;
use serde_saphyr::{DefaultMessageFormatter, Options, SnippetMode};

/// Reading rules: what `duplicates` says about repeated keys, no limits on size (the files are the operator's own), but the
/// parser's limits on nesting and on what aliases may expand to.
pub(crate) fn options(duplicates: DuplicateKeyPolicy) -> Options {
    serde_saphyr::options! {
        duplicate_keys: duplicates,
        with_snippet: false,
        budget: serde_saphyr::budget! {
            max_events: usize::MAX,
            max_nodes: usize::MAX,
            max_total_scalar_bytes: usize::MAX,
        },
    }
}

/// An error in one line; `preceding` lines stand before the text in its file.
pub(crate) fn describe(error: &serde_saphyr::Error, preceding: usize) -> String {
    let options = serde_saphyr::render_options! {
        formatter: &DefaultMessageFormatter,
        snippets: SnippetMode::Off,
        line_offset: preceding as u64,
    };
    error.without_snippet().render_with_options(options).replace('\n', " ")
}
