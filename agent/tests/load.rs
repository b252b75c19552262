//! What a large folder costs: 10,000 Services and as many EndpointSlices with 5 endpoints, in lists of 1,000.
//!
//! `cargo test --release --package agent --test load -- --ignored --nocapture`

#![allow(clippy::expect_used, reason = "all of it is a test")]

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::Duration;

use agent::source::manifests::Manifests;
use agent::source::{EventSink, SourceEvent, StopSignal, spawn};
use nix::sys::resource::{UsageWho, getrusage};

const FILES: usize = 10;
const ITEMS: usize = 1000;

/// Writes the item of that number.
type Item = fn(&mut String, usize);

fn service(out: &mut String, i: usize) {
    let ip = format!("10.{}.{}.{}", 96 + i / 65536, i / 256 % 256, i % 256);
    write!(
        out,
        r#"{{"apiVersion":"v1","kind":"Service","metadata":{{"annotations":{{"example.com/owner":"team-{}"}},"creationTimestamp":"2026-03-04T09:12:33Z","labels":{{"app.kubernetes.io/name":"svc-{i}","app.kubernetes.io/part-of":"load"}},"name":"svc-{i}","namespace":"ns-{}","resourceVersion":"{i}","uid":"00000000-0000-0000-0000-{i:012}"}},"spec":{{"clusterIP":"{ip}","clusterIPs":["{ip}"],"internalTrafficPolicy":"Cluster","ipFamilies":["IPv4"],"ipFamilyPolicy":"SingleStack","ports":[{{"name":"http","port":80,"protocol":"TCP","targetPort":8080}},{{"name":"https","port":443,"protocol":"TCP","targetPort":8443}}],"selector":{{"app.kubernetes.io/name":"svc-{i}"}},"sessionAffinity":"None","type":"ClusterIP"}},"status":{{"loadBalancer":{{}}}}}}"#,
        i % 7,
        i % 100
    )
    .expect("text");
}

fn slice(out: &mut String, i: usize) {
    let endpoint = |e: usize| {
        let n = i * 5 + e;
        format!(
            r#"{{"addresses":["10.244.{}.{}"],"conditions":{{"ready":true,"serving":true,"terminating":false}},"nodeName":"node-{}","targetRef":{{"kind":"Pod","name":"svc-{i}-{e}","namespace":"ns-{}","uid":"10000000-0000-0000-0000-{n:012}"}},"zone":"zone-{}"}}"#,
            n / 256 % 256,
            n % 256,
            n % 100,
            i % 100,
            n % 3
        )
    };
    let endpoints: Vec<_> = (0..5).map(endpoint).collect();
    write!(
        out,
        r#"{{"addressType":"IPv4","apiVersion":"discovery.k8s.io/v1","endpoints":[{}],"kind":"EndpointSlice","metadata":{{"annotations":{{"endpoints.kubernetes.io/last-change-trigger-time":"2026-03-04T09:12:40Z"}},"creationTimestamp":"2026-03-04T09:12:33Z","generateName":"svc-{i}-","generation":3,"labels":{{"endpointslice.kubernetes.io/managed-by":"endpointslice-controller.k8s.io","kubernetes.io/service-name":"svc-{i}"}},"name":"svc-{i}-x","namespace":"ns-{}","ownerReferences":[{{"apiVersion":"v1","blockOwnerDeletion":true,"controller":true,"kind":"Service","name":"svc-{i}","uid":"00000000-0000-0000-0000-{i:012}"}}],"resourceVersion":"{i}"}},"ports":[{{"name":"http","port":8080,"protocol":"TCP"}},{{"name":"https","port":8443,"protocol":"TCP"}}]}}"#,
        endpoints.join(","),
        i % 100
    )
    .expect("text");
}

/// Writes the folder file by file, so that making it costs little memory.
fn generate(root: &Path) -> usize {
    let mut bytes = 0;
    let kinds: [(&str, Item); 2] = [("services", service), ("slices", slice)];
    for (kind, item) in kinds {
        for file in 0..FILES {
            let mut text = String::from(r#"{"apiVersion":"v1","items":["#);
            for i in 0..ITEMS {
                if i > 0 {
                    text.push(',');
                }
                item(&mut text, file * ITEMS + i);
            }
            text.push_str(r#"],"kind":"List","metadata":{"resourceVersion":""}}"#);
            bytes += text.len();
            fs::write(root.join(format!("{kind}-{file}.json")), text).expect("written");
        }
    }
    bytes
}

fn cpu() -> Duration {
    let usage = getrusage(UsageWho::RUSAGE_SELF).expect("usage");
    let micros = |t: nix::sys::time::TimeVal| {
        Duration::from_micros(u64::try_from(t.tv_sec() * 1_000_000 + t.tv_usec()).expect("positive"))
    };
    micros(usage.user_time()) + micros(usage.system_time())
}

fn status_kib(field: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("status");
    let line = status.lines().find_map(|l| l.strip_prefix(field)).expect("field");
    line.trim_start_matches(':').trim().trim_end_matches(" kB").parse().expect("number")
}

#[test]
#[ignore = "writes 30 MB and measures this process; run it alone"]
fn a_large_folder_is_cheap() {
    let dir = tempfile::tempdir().expect("folder");
    let bytes = generate(dir.path());
    let (before, start) = (cpu(), status_kib("VmRSS"));
    let (sink, events) = EventSink::channel(4);
    let stop = StopSignal::new();
    let thread = spawn(Box::new(Manifests::new(dir.path())), sink, stop.clone()).expect("thread");
    let (mut objects, mut batches) = (0, 0);
    'all: for batch in &events {
        batches += 1;
        for event in batch {
            match event {
                SourceEvent::Upsert(_) => objects += 1,
                SourceEvent::Synced => break 'all,
                other => panic!("{other:?}"),
            }
        }
    }
    let (load, rss, peak) = (cpu() - before, status_kib("VmRSS"), status_kib("VmHWM"));
    println!(
        "{} MB, {objects} objects, {batches} batches: cpu {load:?}, resident {start} -> {rss} KiB, peak {peak} KiB",
        bytes / 1_000_000
    );
    let again = cpu();
    let changed =
        fs::read_to_string(dir.path().join("slices-3.json")).expect("read").replacen("10.244.", "10.245.", 1);
    fs::write(dir.path().join("slices-3.json"), changed).expect("written");
    let batch = events.recv_timeout(Duration::from_secs(20)).expect("the change");
    println!("one change in a file of {ITEMS}: {} event, cpu {:?}", batch.len(), cpu() - again);
    stop.raise();
    thread.join().expect("no panic").expect("ends well");
    assert_eq!((objects, batch.len()), (2 * FILES * ITEMS, 1));
    assert!(load < Duration::from_millis(1500), "{load:?}");
    assert!(peak < 60 * 1024, "{peak} KiB");
}
