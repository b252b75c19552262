//! Against kernels: sets on any, IPVS and its device on one that has them.

mod machine;
mod sets;

use proxier_core::ids::{EndpointAddr, Port, Protocol};
use proxier_sys::netns;
use proxier_sys::runner::{CommandSpec, Runner, SystemRunner};

use crate::objects::{RealServer, ServiceKey, VirtualServer};

/// Output of a tool that must succeed.
#[track_caller]
fn tool(line: &str) -> String {
    let output = try_tool(line);
    assert!(output.success(), "{line}: {}", output.stderr_text());
    output.stdout_text()
}

/// What a tool lists once it lists the same twice: it reads as the kernel dumps, which passes over or repeats virtual servers while others, of whatever
/// namespace, come and go.
#[track_caller]
fn listing(line: &str) -> String {
    let mut before = tool(line);
    loop {
        let now = tool(line);
        if now == before {
            return now;
        }
        before = now;
    }
}

fn try_tool(line: &str) -> proxier_sys::runner::Output {
    let mut words = line.split(' ');
    SystemRunner::new().run(&CommandSpec::new(words.next().unwrap(), words)).unwrap()
}

/// Output of a tool that reads its input.
#[track_caller]
fn tool_with(line: &str, input: &str) -> String {
    let mut words = line.split(' ');
    let spec = CommandSpec::new(words.next().unwrap(), words).stdin(input);
    let output = SystemRunner::new().run(&spec).unwrap();
    assert!(output.success(), "{line}: {}", output.stderr_text());
    output.stdout_text()
}

fn isolated() {
    netns::enter_new().unwrap();
}

fn key(protocol: Protocol, ip: &str, port: u16) -> ServiceKey {
    ServiceKey { protocol, ip: ip.parse().unwrap(), port: Port::new(port).unwrap() }
}

fn real(ip: &str, port: u16) -> RealServer {
    EndpointAddr { ip: ip.parse().unwrap(), port: Port::new(port).unwrap() }
}

fn server(key: ServiceKey, scheduler: &str) -> VirtualServer {
    VirtualServer { key, scheduler: scheduler.into(), persistence: None, hash_port: false }
}

fn sorted(text: &str) -> Vec<String> {
    let mut lines: Vec<_> = text.lines().map(|line| line.trim().to_owned()).collect();
    lines.sort();
    lines
}
