//! `proxier status`, `snapshot`, `rules` and `syncs`: they ask the running agent by its socket and print what it says.

use std::io::{self, Read as _, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

use super::Ended;
use crate::admin::ADMIN_SOCKET;
use crate::cli::OutputFormat;

/// How long an answer may take: all rules of a large cluster are many.
const PATIENCE: Duration = Duration::from_secs(60);

/// Arguments of the commands that ask the running agent.
#[derive(Clone, Debug, Args)]
pub struct AdminArgs {
    /// Socket of the agent's admin API
    #[arg(long, value_name = "PATH", default_value = ADMIN_SOCKET)]
    pub socket: PathBuf,
    /// Only this Service (snapshot, rules)
    #[arg(value_name = "NAMESPACE/NAME")]
    pub service: Option<String>,
    /// Only this family: ipv4 or ipv6 (snapshot, rules)
    #[arg(long, value_name = "FAMILY")]
    pub family: Option<String>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    pub output: OutputFormat,
}

impl AdminArgs {
    /// A path with what was asked for.
    fn target(&self, path: &str) -> String {
        let pairs = [("service", &self.service), ("family", &self.family)];
        let given = pairs.iter().filter_map(|(name, value)| Some((name, value.as_deref()?)));
        let query: Vec<String> = given.map(|(name, value)| format!("{name}={}", encoded(value))).collect();
        if query.is_empty() { path.to_owned() } else { format!("{path}?{}", query.join("&")) }
    }

    fn ask(&self, path: &str) -> anyhow::Result<Value> {
        let target = self.target(path);
        let at = self.socket.display();
        let answer =
            request(&self.socket, &target).with_context(|| format!("cannot ask the agent at {at}"))?;
        let (status, body) = read(&answer).with_context(|| format!("the agent at {at} gave no answer"))?;
        let value: Value = serde_json::from_slice(body).context("the agent's answer is no JSON")?;
        if status != 200 {
            bail!("the agent says: {}", value["error"].as_str().unwrap_or("no"));
        }
        Ok(value)
    }
}

fn encoded(text: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._~/:".contains(&b);
    text.bytes().map(|b| if plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect()
}

fn request(socket: &std::path::Path, target: &str) -> io::Result<Vec<u8>> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(
        format!("GET {target} HTTP/1.1\r\nHost: proxier\r\nConnection: close\r\n\r\n").as_bytes(),
    )?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    Ok(answer)
}

/// Status and body of an answer that was sent in one piece.
fn read(answer: &[u8]) -> Option<(u16, &[u8])> {
    let end = answer.windows(4).position(|w| w == b"\r\n\r\n")?;
    let head = std::str::from_utf8(answer.get(..end)?).ok()?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some((status, answer.get(end + 4..)?))
}

type Print = fn(&Value, &mut dyn Write) -> io::Result<()>;

fn run(args: &AdminArgs, path: &str, print: Print, out: &mut dyn Write) -> anyhow::Result<Ended> {
    let answer = args.ask(path)?;
    match args.output {
        OutputFormat::Text => print(&answer, out)?,
        OutputFormat::Json => {
            serde_json::to_writer_pretty(&mut *out, &answer).map_err(io::Error::from)?;
            writeln!(out)?;
        }
    }
    Ok(Ended::Well)
}

pub(super) fn status(args: &AdminArgs, out: &mut dyn Write) -> anyhow::Result<Ended> {
    run(args, "/status", print_status, out)
}

pub(super) fn snapshot(args: &AdminArgs, out: &mut dyn Write) -> anyhow::Result<Ended> {
    let print = if args.service.is_some() { print_service } else { print_snapshot };
    run(args, "/snapshot", print, out)
}

pub(super) fn rules(args: &AdminArgs, out: &mut dyn Write) -> anyhow::Result<Ended> {
    run(args, "/rules", print_rules, out)
}

pub(super) fn syncs(args: &AdminArgs, out: &mut dyn Write) -> anyhow::Result<Ended> {
    run(args, "/syncs", print_syncs, out)
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => "none".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn time(value: &Value) -> String {
    let millis = value.as_f64().map(|seconds| (seconds * 1000.0) as i64);
    let at = millis.and_then(|m| Timestamp::from_millisecond(m).ok());
    at.map_or_else(|| "never".to_owned(), |at| at.to_string())
}

/// How long before `now` that was.
fn ago(value: &Value, now: &Value) -> String {
    match (value.as_f64(), now.as_f64()) {
        (Some(at), Some(now)) => format!("{:.1} s ago", (now - at).max(0.0)),
        _ => "never".to_owned(),
    }
}

fn print_status(answer: &Value, out: &mut dyn Write) -> io::Result<()> {
    let (source, now) = (&answer["source"], &answer["now"]);
    let [node, mode, version] = ["node", "mode", "version"].map(|key| text(&answer[key]));
    writeln!(out, "node {node}, mode {mode}, version {version}, started {}", time(&answer["started"]))?;
    let listed = if source["listed"] == true { "complete" } else { "NOT COMPLETE YET" };
    let [kind, requests, failed] = ["kind", "requests", "requestsFailed"].map(|key| text(&source[key]));
    writeln!(
        out,
        "source {kind}: list {listed}, last event {}, {requests} requests, {failed} failed",
        ago(&source["lastEvent"], now)
    )?;
    for family in list(&answer["families"]) {
        print_family(family, now, out)?;
    }
    let problems = &answer["problems"];
    writeln!(out, "input problems: {}", problems["count"])?;
    for problem in list(&problems["first"]) {
        writeln!(out, "  {}", text(problem))?;
    }
    Ok(())
}

fn print_family(family: &Value, now: &Value, out: &mut dyn Write) -> io::Result<()> {
    let [name, force, desired, ports] =
        ["family", "inForceGeneration", "desiredGeneration", "servicePorts"].map(|key| text(&family[key]));
    writeln!(out, "{name}: generation {force} in force, {desired} desired; {ports} service ports")?;
    if !family["pendingSince"].is_null() {
        writeln!(out, "  PENDING since {}", ago(&family["pendingSince"], now))?;
    }
    let sync = &family["lastSync"];
    if !sync.is_null() {
        let took = sync["duration"].as_f64().unwrap_or_default() * 1000.0;
        let [kind, cause, operations] = ["kind", "cause", "operations"].map(|key| text(&sync[key]));
        writeln!(
            out,
            "  last sync {}: {kind}, {operations} operations in {took:.1} ms ({cause})",
            ago(&sync["at"], now)
        )?;
    }
    let failure = &family["lastFailure"];
    if !failure.is_null() {
        let [error, class] = ["error", "class"].map(|key| text(&failure[key]));
        let row = &family["failuresInARow"];
        writeln!(out, "  last failure {} ({row} in a row): {error} [{class}]", ago(&failure["at"], now))?;
    }
    let verified = &family["lastVerification"];
    if verified.is_null() {
        writeln!(out, "  not compared with the kernel yet")?;
    } else {
        let differences = &verified["differences"];
        writeln!(out, "  compared with the kernel {}: {differences} differences", ago(&verified["at"], now))?;
    }
    let aside = &family["setAside"];
    if aside["count"] != 0 {
        writeln!(out, "  SET ASIDE: {} service ports", aside["count"])?;
        for port in list(&aside["first"]) {
            writeln!(out, "    {}: {}", text(&port["servicePort"]), text(&port["reason"]))?;
        }
    }
    Ok(())
}

fn heading(family: &Value, out: &mut dyn Write) -> io::Result<()> {
    let force = if family["inForce"] == true { "in force" } else { "NOT IN FORCE YET" };
    writeln!(out, "{}, generation {}, {force}", text(&family["family"]), family["generation"])
}

fn print_snapshot(answer: &Value, out: &mut dyn Write) -> io::Result<()> {
    for family in list(&answer["families"]) {
        heading(family, out)?;
        for port in list(&family["servicePorts"]) {
            let [all, cluster, local] = ["endpoints", "cluster", "local"].map(|key| &port[key]);
            let conflicts = if port["conflicts"] == 0 { "" } else { ", CONFLICTS" };
            let name = text(&port["servicePort"]);
            writeln!(out, "  {name}: {all} endpoints, {cluster} for the cluster, {local} local{conflicts}")?;
        }
    }
    Ok(())
}

fn print_service(answer: &Value, out: &mut dyn Write) -> io::Result<()> {
    for family in list(&answer["families"]) {
        heading(family, out)?;
        for port in list(&family["servicePorts"]) {
            writeln!(out, "  {}", text(&port["servicePort"]))?;
            if let Some(reason) = port["setAside"].as_str() {
                writeln!(out, "    SET ASIDE: {reason}")?;
            }
            for frontend in list(&port["frontends"]) {
                writeln!(out, "    {}", text(frontend))?;
            }
            for conflict in list(&port["conflicts"]) {
                writeln!(
                    out,
                    "    {} BELONGS TO {}",
                    text(&conflict["frontend"]),
                    text(&conflict["belongsTo"])
                )?;
            }
            let [internal, external] = ["internalPolicy", "externalPolicy"].map(|key| text(&port[key]));
            writeln!(
                out,
                "    policy: internal {internal}, external {external}; topology {}",
                text(&port["topology"])
            )?;
            for endpoint in list(&port["endpoints"]) {
                print_endpoint(endpoint, out)?;
            }
        }
    }
    Ok(())
}

fn print_endpoint(endpoint: &Value, out: &mut dyn Write) -> io::Result<()> {
    let verdict = &endpoint["verdict"];
    let scopes = ["cluster", "local"].into_iter().filter(|s| !verdict[*s].is_null());
    let verdicts: Vec<String> = scopes.map(|s| format!("{s}: {}", text(&verdict[s]))).collect();
    writeln!(out, "    {:<40} {}", text(&endpoint["address"]), verdicts.join("; "))
}

fn print_rules(answer: &Value, out: &mut dyn Write) -> io::Result<()> {
    for plan in list(&answer["plans"]) {
        for operation in list(&plan["operations"]) {
            writeln!(out, "{}", text(&operation["text"]))?;
        }
    }
    Ok(())
}

fn print_syncs(answer: &Value, out: &mut dyn Write) -> io::Result<()> {
    for sync in list(&answer["syncs"]) {
        let took = sync["duration"].as_f64().unwrap_or_default() * 1000.0;
        let [family, cause, operations, bytes] =
            ["family", "cause", "operations", "bytes"].map(|key| text(&sync[key]));
        let kind = if sync["kind"].is_null() { "FAILED".to_owned() } else { text(&sync["kind"]) };
        let at = time(&sync["at"]);
        writeln!(
            out,
            "{at} {family} {kind} generation {}: {operations} operations, {bytes} bytes, {took:.1} ms; {cause}",
            sync["generation"]
        )?;
        if let Some(error) = sync["error"].as_str() {
            writeln!(out, "  error: {error}")?;
        }
        for setback in list(&sync["setbackErrors"]) {
            writeln!(out, "  refused before: {}", text(setback))?;
        }
        for (mark, what) in [("+", "added"), ("~", "changed"), ("-", "removed")] {
            print_names(mark, &sync["difference"][what], out)?;
        }
    }
    Ok(())
}

fn print_names(mark: &str, names: &Value, out: &mut dyn Write) -> io::Result<()> {
    let first = list(&names["first"]);
    for name in first {
        writeln!(out, "  {mark} {}", text(name))?;
    }
    let more = names["count"].as_u64().unwrap_or_default().saturating_sub(first.len() as u64);
    if more > 0 {
        writeln!(out, "  {mark} and {more} more")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
