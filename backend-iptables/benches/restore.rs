//! What the tools and the kernel need for kube-proxy's shape of rules, whatever decides about them.
//!
//! Each service has a dispatch rule in KUBE-SERVICES, a chain with a masquerade rule and one rule for each endpoint, and for each endpoint a
//! chain of two rules. Prints wall time and the CPU time of the tool, kernel included, for loads in inputs of several sizes and for single
//! changes afterwards, in both variants, each load in a network namespace of its own.
//!
//! `cargo bench -p backend-iptables --bench restore [-- SERVICESxENDPOINTS[:nft|:legacy] ...]`, default `1000x5 10000x5`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a benchmark, not shipped"
)]

use std::thread;
use std::time::{Duration, Instant};

use backend_iptables::objects::{ChainId, Input, Op, Rule, Step, Table};
use backend_iptables::restore::Restorer;
use backend_iptables::saved;
use backend_iptables::tool::{self, Tools, Variant};
use backend_iptables::trial::scratch;
use nix::sys::resource::{UsageWho, getrusage};
use proxier_core::ids::IpFamily;
use proxier_sys::netns;
use proxier_sys::runner::SystemRunner;

/// CPU time of children that have ended, and that of their system calls.
fn children() -> [Duration; 2] {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).unwrap();
    let time = |t: nix::sys::time::TimeVal| {
        Duration::new(t.tv_sec().try_into().unwrap(), u32::try_from(t.tv_usec()).unwrap() * 1000)
    };
    [time(usage.user_time()), time(usage.system_time())]
}

fn row<T>(what: &str, job: impl FnOnce() -> T) -> T {
    let (before, began) = (children(), Instant::now());
    let result = job();
    let (wall, after) = (began.elapsed(), children());
    let ms = |d: Duration| d.as_secs_f64() * 1000.0;
    let [user, system] = [ms(after[0] - before[0]), ms(after[1] - before[1])];
    println!("| {what:<52} | {:>8.0} | {:>8.0} | {user:>8.0} | {system:>8.0} |", ms(wall), user + system);
    result
}

fn nat(name: &str) -> ChainId {
    ChainId { table: Table::Nat, name: name.into() }
}

fn step(op: Op) -> Step {
    Step { op, port: None }
}

fn append(chain: &str, rule: String) -> Step {
    step(Op::Append(nat(chain), Rule(rule.into())))
}

struct Shape {
    services: usize,
    endpoints: usize,
}

impl Shape {
    fn service(i: usize) -> String {
        format!("KUBE-SVC-{:016X}", i.wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }

    fn endpoint(&self, i: usize, j: usize) -> String {
        format!("KUBE-SEP-{:016X}", (i * self.endpoints + j).wrapping_mul(0xD1B5_4A32_D192_ED03))
    }

    fn dispatch(i: usize) -> String {
        let (a, b, c) = (96 + (i >> 16), (i >> 8) & 255, i & 255);
        let name = format!("ns{}/svc{i}:http", i % 100);
        let to = Self::service(i);
        format!(
            "-d 10.{a}.{b}.{c}/32 -p tcp -m comment --comment \"{name} cluster IP\" -m tcp --dport 80 -j {to}"
        )
    }

    fn address(&self, i: usize, j: usize) -> String {
        let k = i * self.endpoints + j;
        format!("10.{}.{}.{}", 128 + (k >> 16), (k >> 8) & 255, k & 255)
    }

    /// Chain and rules of a service that has its first `endpoints`.
    fn service_chain(&self, i: usize, endpoints: usize) -> Vec<Step> {
        let (chain, name) = (Self::service(i), format!("ns{}/svc{i}:http", i % 100));
        let masquerade = Self::dispatch(i).replacen("-d", "! -s 10.244.0.0/16 -d", 1);
        let (matches, _) = masquerade.rsplit_once("-j").unwrap();
        let mut out =
            vec![step(Op::Chain(nat(&chain))), append(&chain, format!("{matches}-j KUBE-MARK-MASQ"))];
        for j in 0..endpoints {
            let left = endpoints - j;
            let share = if left > 1 {
                format!(
                    "-m statistic --mode random --probability {:.10} ",
                    1.0 / f64::from(u32::try_from(left).unwrap())
                )
            } else {
                String::new()
            };
            let (address, to) = (self.address(i, j), self.endpoint(i, j));
            append_to(
                &mut out,
                &chain,
                format!("-m comment --comment \"{name} -> {address}:8080\" {share}-j {to}"),
            );
        }
        out
    }

    fn endpoint_chain(&self, i: usize, j: usize) -> Vec<Step> {
        let (chain, address) = (self.endpoint(i, j), self.address(i, j));
        let comment = format!("-m comment --comment \"ns{}/svc{i}:http\"", i % 100);
        vec![
            step(Op::Chain(nat(&chain))),
            append(&chain, format!("-s {address}/32 {comment} -j KUBE-MARK-MASQ")),
            append(&chain, format!("-p tcp {comment} -m tcp -j DNAT --to-destination {address}:8080")),
        ]
    }

    /// All chains of a service, endpoints first.
    fn chains(&self, i: usize) -> Vec<Step> {
        let mut out: Vec<Step> = (0..self.endpoints).flat_map(|j| self.endpoint_chain(i, j)).collect();
        out.extend(self.service_chain(i, self.endpoints));
        out
    }

    /// What all share, with jumps from both hooks.
    fn skeleton() -> Input {
        let mut steps: Vec<Step> =
            ["KUBE-SERVICES", "KUBE-MARK-MASQ"].map(|c| step(Op::Chain(nat(c)))).into();
        steps.push(append("KUBE-MARK-MASQ", "-j MARK --set-xmark 0x4000/0x4000".to_owned()));
        for hook in ["PREROUTING", "OUTPUT"] {
            steps.push(append(hook, "-j KUBE-SERVICES".to_owned()));
        }
        Input { steps }
    }

    /// Whole services in inputs of at most `chains` chains, dispatch last or with each service; `usize::MAX` is one input of all.
    fn load(&self, chains: usize, dispatch_last: bool) -> Vec<Input> {
        let each = (chains / (self.endpoints + 1)).clamp(1, self.services);
        let (mut inputs, mut last) = (vec![Self::skeleton()], Vec::new());
        for from in (0..self.services).step_by(each) {
            let services = from..self.services.min(from + each);
            let mut steps: Vec<Step> = services.clone().flat_map(|i| self.chains(i)).collect();
            // Chains first: the tool has to know what is jumped to.
            steps.sort_by_key(|s| !matches!(s.op, Op::Chain(_)));
            let dispatch = services.map(|i| append("KUBE-SERVICES", Self::dispatch(i)));
            let dispatch_to = if dispatch_last && chains != usize::MAX { &mut last } else { &mut steps };
            dispatch_to.extend(dispatch);
            inputs.push(Input { steps });
        }
        inputs.extend(last.chunks(2_000).map(|some| Input { steps: some.to_vec() }));
        inputs
    }
}

fn append_to(out: &mut Vec<Step>, chain: &str, rule: String) {
    out.push(append(chain, rule));
}

/// One load, and if asked the changes after it.
fn measure(shape: &Shape, tools: &Tools, what: &str, inputs: Vec<Input>, changes: bool) {
    let runner = SystemRunner::new();
    let restorer = Restorer { runner: &runner, tools, trial: &scratch };
    row(&format!("{what}: {} inputs", inputs.len()), || restorer.run(&inputs, &mut |_| {}).unwrap());
    drop(inputs);
    if !changes {
        return;
    }
    let i = shape.services / 2;
    let run = |what: &str, steps: Vec<Step>| {
        row(&format!("{}: {what}", tools.variant), || restorer.run(&[Input { steps }], &mut |_| {}).unwrap());
    };
    for _ in 0..3 {
        let last = shape.endpoints - 1;
        let gone = nat(&shape.endpoint(i, last));
        let mut fewer = vec![step(Op::Chain(gone.clone()))];
        fewer.extend(shape.service_chain(i, last));
        fewer.push(step(Op::DropChain(gone)));
        run("an endpoint less", fewer);
        let mut more = shape.endpoint_chain(i, last);
        more.extend(shape.service_chain(i, shape.endpoints));
        more.sort_by_key(|s| !matches!(s.op, Op::Chain(_)));
        run("an endpoint more", more);
    }
    let rule = || Rule(Shape::dispatch(i).into());
    let services = nat("KUBE-SERVICES");
    run("dispatch -D", vec![step(Op::Delete(services.clone(), rule()))]);
    run("dispatch -A", vec![step(Op::Append(services.clone(), rule()))]);
    run("dispatch -D", vec![step(Op::Delete(services.clone(), rule()))]);
    run("dispatch -I", vec![step(Op::Insert(services, rule()))]);
    let saved = row(&format!("{}: listing, read", tools.variant), || {
        saved::read(&runner, tools, |_, _| true).unwrap()
    });
    let rules: usize = saved.chains.values().map(Vec::len).sum();
    println!("{} chains, {rules} rules", saved.chains.len());
}

fn variant(shape: &Shape, variant: Variant) {
    let tools = tool::choose(&SystemRunner::new(), IpFamily::Ipv4, Some(variant)).unwrap().tools;
    let one = (usize::MAX, false, "one input");
    let loads = match variant {
        Variant::Nft => {
            vec![
                (100, true, "100"),
                (250, true, "250"),
                (1000, true, "1000"),
                (2000, true, "2000"),
                (500, false, "500, dispatch with each"),
                (500, true, "500"),
            ]
        }
        Variant::Legacy => vec![(30_000, true, "30000"), one],
    };
    let last = loads.len() - 1;
    for (at, (chains, dispatch_last, name)) in loads.into_iter().enumerate() {
        thread::scope(|scope| {
            scope.spawn(|| {
                netns::enter_new().unwrap();
                let what = format!("{variant}: load, {name}");
                measure(shape, &tools, &what, shape.load(chains, dispatch_last), at == last);
            });
        });
    }
}

fn main() {
    let asked: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with("--")).collect();
    let asked = if asked.is_empty() { vec!["1000x5".to_owned(), "10000x5".to_owned()] } else { asked };
    for one in asked {
        let (size, only) = one.split_once(':').map_or((one.as_str(), ""), |(s, v)| (s, v));
        let (services, endpoints) = size.split_once('x').expect("SERVICESxENDPOINTS");
        let shape = Shape { services: services.parse().unwrap(), endpoints: endpoints.parse().unwrap() };
        println!(
            "\n{size}\n\n| {:<52} | {:>8} | {:>8} | {:>8} | {:>8} |",
            "what", "wall ms", "CPU ms", "user", "system"
        );
        println!("|{}|---------:|---------:|---------:|---------:|", "-".repeat(54));
        for v in Variant::ALL.into_iter().filter(|v| only.is_empty() || v.name() == only) {
            variant(&shape, v);
        }
    }
}
