//! From a file to a case.

use std::path::Path;

use proxier_core::cluster::Cluster;
use proxier_core::model::NodeFacts;
use serde_json::Value;

use super::objects::Objects;
use super::raw::RawCase;
use super::{Case, CorpusError, Question, expect, folder, options};

/// Loads one case.
///
/// # Errors
/// The file, the field and what is wrong with it.
pub fn load(file: &Path) -> Result<Case, CorpusError> {
    let wrong = |(field, message)| CorpusError::Field { file: file.into(), field, message };
    let raw = parse(file)?;
    let traffic = options::options(&raw.options).map_err(wrong)?;
    let node = options::node(&raw.node).map_err(wrong)?;
    let cluster = Cluster::new(node.name.clone(), traffic);
    let mut objects = Objects { cluster, node, problems: Vec::new() };
    before(&raw, &mut objects).map_err(wrong)?;
    for name in &raw.manifests {
        let path = folder().join(name);
        for (i, object) in documents(&path)?.into_iter().enumerate() {
            objects.add(object).map_err(|(field, message)| CorpusError::Field {
                file: path.clone(),
                field: format!("document {}: {field}", i + 1),
                message,
            })?;
        }
    }
    for (i, object) in raw.objects.iter().enumerate() {
        objects
            .add(object.clone())
            .map_err(|(field, message)| wrong((format!("objects[{i}].{field}"), message)))?;
    }
    problems(&raw.problems, &objects).map_err(|message| wrong(("problems".into(), message)))?;
    let Objects { mut cluster, node, .. } = objects;
    cluster.set_node(node);
    let mut questions: Vec<Question> = Vec::new();
    for (i, packet) in raw.packets.iter().enumerate() {
        let place = format!("packets[{i}]");
        let asked = expect::questions(&place, packet);
        questions.extend(asked.map_err(|(field, message)| wrong((format!("{place}.{field}"), message)))?);
    }
    let name = file.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    Ok(Case { file: name, title: raw.title, refs: raw.refs, commit: cluster.commit(), questions })
}

/// What was there first is published, so that what follows is a change of it, and goes away.
fn before(raw: &RawCase, objects: &mut Objects) -> Result<(), (String, String)> {
    let zone = raw.before.zone.as_deref().filter(|z| !z.is_empty()).map(Into::into);
    objects.cluster.set_node(NodeFacts { zone, ..objects.node.clone() });
    let place = |i: usize| {
        move |(field, message): (String, String)| (format!("before.objects[{i}].{field}"), message)
    };
    for (i, object) in raw.before.objects.iter().enumerate() {
        objects.add(object.clone()).map_err(place(i))?;
    }
    objects.cluster.commit();
    for (i, object) in raw.before.objects.iter().enumerate() {
        objects.remove(object.clone()).map_err(place(i))?;
    }
    Ok(())
}

fn read(file: &Path) -> Result<String, CorpusError> {
    std::fs::read_to_string(file).map_err(|source| CorpusError::Read { file: file.into(), source })
}

/// YAML to a tree first, so that what does not fit it is named by its path.
fn parse(file: &Path) -> Result<RawCase, CorpusError> {
    let text = read(file)?;
    let tree: Value = serde_saphyr::from_str(&text).map_err(|e| syntax(file, &e))?;
    serde_path_to_error::deserialize(tree).map_err(|e| CorpusError::Field {
        file: file.into(),
        field: e.path().to_string(),
        message: e.inner().to_string(),
    })
}

fn documents(file: &Path) -> Result<Vec<Value>, CorpusError> {
    let text = read(file)?;
    let all: Vec<Value> = serde_saphyr::from_multiple(&text).map_err(|e| syntax(file, &e))?;
    Ok(all.into_iter().filter(|v| !v.is_null()).collect())
}

fn syntax(file: &Path, error: &serde_saphyr::Error) -> CorpusError {
    CorpusError::Syntax { file: file.into(), message: error.to_string() }
}

/// Intake must find exactly the problems that the case announces, each by a part of its text.
fn problems(wanted: &[String], objects: &Objects) -> Result<(), String> {
    let mut found: Vec<String> = objects.problems.iter().map(ToString::to_string).collect();
    for want in wanted {
        match found.iter().position(|f| f.contains(want)) {
            Some(at) => {
                found.remove(at);
            }
            None => return Err(format!("intake reports nothing like {want:?}; left: {found:?}")),
        }
    }
    if found.is_empty() { Ok(()) } else { Err(format!("intake also reports {found:?}")) }
}
