//! Serves the test API server from the command line, to look at it with `kubectl` or to run a program against it.
//!
//! It prints one line when it listens and another when its kubeconfig is written, then takes commands on standard input,
//! one a line, and answers each with a line; at the end of the input it stops:
//!
//! | command | does |
//! |---|---|
//! | `put JSON` | creates or replaces an object |
//! | `delete RESOURCE NAMESPACE NAME` | removes one (`-` where there is no namespace) |
//! | `compact` | forgets the past |
//! | `bookmark`, `end`, `expire` | sends a bookmark on every watch; ends every watch; ends it as expired |
//! | `close`, `silence` | closes every connection; makes it silent |
//! | `stop`, `start` | closes the listener and every connection; listens again |

use std::io::{BufRead, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::Parser;
use proxier_testkit::apiserver::{ApiServer, BlockingApiServer};
use proxier_testkit::scale;

/// A Kubernetes API server for tests.
#[derive(Debug, Parser)]
struct Options {
    /// YAML files with the objects to serve.
    files: Vec<PathBuf>,
    /// Where to listen.
    #[arg(long, default_value_t = SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))]
    listen: SocketAddr,
    /// Speak TLS.
    #[arg(long)]
    tls: bool,
    /// Know a user: `TOKEN=NAME`; without one, everybody may do everything.
    #[arg(long)]
    token: Vec<String>,
    /// Where to write a kubeconfig (of the first user).
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    /// Serve that many generated Services with two endpoints each.
    #[arg(long, default_value_t = 0)]
    services: u32,
}

fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    let server = start(&options)?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "listening on {}", server.url())?;
    if let Some(path) = &options.kubeconfig {
        let user = options.token.first().and_then(|token| token.split_once('=')).map(|(_, user)| user);
        std::fs::write(path, server.kubeconfig(user))
            .with_context(|| format!("cannot write {}", path.display()))?;
        writeln!(out, "kubeconfig written to {}", path.display())?;
    }
    out.flush()?;
    for line in std::io::stdin().lock().lines() {
        match command(&server, line?.trim()) {
            Ok(()) => writeln!(out, "ok, version {}", server.revision())?,
            Err(error) => writeln!(out, "error: {error:#}")?,
        }
        out.flush()?;
    }
    server.stop();
    Ok(())
}

fn start(options: &Options) -> anyhow::Result<BlockingApiServer> {
    let mut builder = ApiServer::builder().address(options.listen);
    if options.tls {
        builder = builder.tls();
    }
    for token in &options.token {
        let (token, user) = token.split_once('=').context("--token wants TOKEN=NAME")?;
        builder = builder.token(token, user);
    }
    let server = BlockingApiServer::start(builder)?;
    for path in &options.files {
        let text =
            std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        server.put_yaml(&text).with_context(|| format!("cannot serve {}", path.display()))?;
    }
    server.put_all((0..options.services).map(scale::service_json))?;
    server.put_all((0..options.services).map(|number| scale::slice_json(number, 2, 0)))?;
    Ok(server)
}

fn command(server: &BlockingApiServer, line: &str) -> anyhow::Result<()> {
    let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
    match (word, rest) {
        ("put", json) => _ = server.put(serde_json::from_str(json)?)?,
        ("delete", rest) => {
            let [resource, namespace, name] = rest.split(' ').collect::<Vec<_>>()[..] else {
                bail!("delete wants RESOURCE NAMESPACE NAME");
            };
            server.delete(resource, if namespace == "-" { "" } else { namespace }, name)?;
        }
        ("compact", "") => server.compact(server.revision()),
        ("bookmark", "") => server.bookmark(),
        ("end", "") => server.end_watches(),
        ("expire", "") => server.expire_watches(),
        ("close", "") => server.close_connections(),
        ("silence", "") => server.silence_connections(),
        ("stop", "") => server.stop(),
        ("start", "") => server.restart()?,
        _ => bail!("no such command: {line:?}"),
    }
    Ok(())
}
