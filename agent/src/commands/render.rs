//! `proxier render`: manifests in, plan out.

use std::io::{self, Write};

use proxier_core::backend::PlanEntry;
use serde_json::{Value, json};

use super::Ended;
use super::setup::Setup;
use crate::cli::{OutputFormat, RenderArgs};

pub(super) fn render(args: &RenderArgs, out: &mut dyn Write) -> anyhow::Result<Ended> {
    let setup = Setup::from_flags(&args.flags)?;
    setup.log()?;
    let mut world = setup.world()?;
    let commit = setup.read_all(&mut world)?;
    let mut plans = Vec::new();
    for instance in setup.instances() {
        let family = instance.family();
        let snapshot = commit.snapshot(family);
        let rendered = instance.render(snapshot);
        for unsupported in &rendered.unsupported {
            tracing::warn!(service.port = %unsupported.port, feature = %unsupported.feature, "not supported");
        }
        match args.output {
            OutputFormat::Text => {
                for entry in rendered.entries {
                    writeln!(out, "{}", entry.text)?;
                }
            }
            OutputFormat::Json => plans.push(json!({
                "backend": instance.name(),
                "family": family.to_string(),
                "generation": snapshot.generation().0,
                "operations": rendered.entries.iter().map(operation).collect::<Vec<_>>(),
            })),
        }
    }
    if args.output == OutputFormat::Json {
        let problems = world.problems().first(usize::MAX);
        let answer = json!({ "plans": plans, "problems": problems });
        serde_json::to_writer_pretty(&mut *out, &answer).map_err(io::Error::from)?;
        writeln!(out)?;
    }
    Ok(Ended::Well)
}

fn operation(entry: &PlanEntry) -> Value {
    let port = entry.port.as_ref().map(|p| {
        json!({
            "namespace": &*p.service.namespace,
            "name": &*p.service.name,
            "port": &*p.port,
            "protocol": p.protocol.as_str(),
        })
    });
    json!({ "text": entry.text, "servicePort": port })
}
