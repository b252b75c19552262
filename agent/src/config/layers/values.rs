//! What the layers say, one value at a time.

use std::time::Duration;

use serde_json::Value;

use super::{Effective, Layers, Origin};
use crate::config::duration::parse_duration;

impl Layers<'_> {
    fn effective(&self, path: &str) -> Option<&Effective> {
        let found = self.settings.get(path);
        debug_assert!(found.is_some(), "no setting {path}");
        found
    }

    pub(in crate::config) fn value(&self, path: &str) -> &Value {
        self.effective(path).map_or(&Value::Null, |e| &e.value)
    }

    pub(in crate::config) fn origin(&self, path: &str) -> Origin {
        self.effective(path).map_or(Origin::Default, |e| e.origin.clone())
    }

    pub(in crate::config) fn text(&self, path: &str) -> String {
        self.value(path).as_str().unwrap_or_default().to_owned()
    }

    pub(in crate::config) fn given(&self, path: &str) -> Option<String> {
        Some(self.text(path)).filter(|t| !t.is_empty())
    }

    pub(in crate::config) fn texts(&self, path: &str) -> Vec<String> {
        let list = self.value(path).as_array().into_iter().flatten();
        list.filter_map(|v| v.as_str().map(str::to_owned)).collect()
    }

    pub(in crate::config) fn switch(&self, path: &str) -> bool {
        self.value(path).as_bool().unwrap_or_default()
    }

    pub(in crate::config) fn int(&self, path: &str) -> i64 {
        self.value(path).as_i64().unwrap_or_default()
    }

    pub(in crate::config) fn duration(&self, path: &str) -> Option<Duration> {
        parse_duration(self.value(path).as_str()?).ok()
    }
}
