use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn slice(name: &str, version: &str, service: &str) -> Vec<u8> {
    let object = json!({
        "metadata": {
            "namespace": "d", "name": name, "resourceVersion": version,
            "labels": {"kubernetes.io/service-name": service},
        },
        "addressType": "IPv4", "endpoints": [], "ports": [],
    });
    object.to_string().into_bytes()
}

fn broken(name: &str, version: &str) -> Vec<u8> {
    let meta = json!({"namespace": "d", "name": name, "resourceVersion": version});
    json!({"metadata": meta, "addressType": "IPv4", "endpoints": 7}).to_string().into_bytes()
}

/// Events in short: `+name@version`, `-name<service`, `!name:problems`.
fn short(events: Vec<SourceEvent>) -> Vec<String> {
    let one = |event| match event {
        SourceEvent::Upsert(Object::EndpointSlice(slice)) => {
            let meta = slice.metadata;
            format!("+{}@{}", meta.name.expect("named"), meta.resource_version.expect("versioned"))
        }
        SourceEvent::Delete { key, service } => format!("-{}<{}", key.name, service.as_deref().unwrap_or("")),
        SourceEvent::Problems { origin, problems } => {
            let problems: Vec<_> = problems.iter().map(ToString::to_string).collect();
            format!("!{origin}: {}", problems.join("; "))
        }
        other => panic!("{other:?}"),
    };
    events.into_iter().map(one).collect()
}

fn mirror() -> Mirror {
    Mirror::new(ObjectKind::EndpointSlice)
}

fn put(mirror: &mut Mirror, json: &[u8]) -> Vec<String> {
    let mut out = Vec::new();
    mirror.put(json, &mut out).expect("an object");
    short(out)
}

fn complete(mirror: &mut Mirror) -> Vec<String> {
    let mut out = Vec::new();
    mirror.complete(&mut out);
    short(out)
}

#[test]
fn a_new_list_says_only_what_is_different() {
    let mut mirror = mirror();
    mirror.begin();
    for name in ["a", "b", "c"] {
        assert_eq!(put(&mut mirror, &slice(name, "1", "s")), [format!("+{name}@1")]);
    }
    assert_eq!(complete(&mut mirror), [] as [&str; 0]);
    mirror.begin();
    assert_eq!(put(&mut mirror, &slice("a", "1", "s")), [] as [&str; 0]);
    assert_eq!(put(&mut mirror, &slice("b", "2", "s")), ["+b@2"]);
    assert_eq!(complete(&mut mirror), ["-c<s"]);
    assert_eq!(mirror.len(), 2);
}

#[test]
fn a_list_that_was_broken_off_deletes_nothing() {
    let mut mirror = mirror();
    mirror.begin();
    put(&mut mirror, &slice("a", "1", "s"));
    put(&mut mirror, &slice("b", "1", "s"));
    complete(&mut mirror);
    mirror.begin();
    put(&mut mirror, &slice("a", "1", "s"));
    mirror.begin();
    put(&mut mirror, &slice("b", "1", "s"));
    assert_eq!(complete(&mut mirror), ["-a<s"], "what only the broken one held is not in the new one");
}

#[test]
fn a_slice_that_changes_its_service_leaves_the_old_one_first() {
    let mut mirror = mirror();
    put(&mut mirror, &slice("a", "1", "s"));
    assert_eq!(put(&mut mirror, &slice("a", "2", "t")), ["-a<s", "+a@2"]);
    let mut out = Vec::new();
    mirror.remove(&slice("a", "3", "t"), &mut out).expect("an object");
    assert_eq!(short(out), ["-a<t"]);
    assert_eq!(mirror.len(), 0);
}

#[test]
fn what_cannot_be_read_keeps_its_last_good_state() {
    let mut mirror = mirror();
    mirror.begin();
    put(&mut mirror, &slice("a", "1", "s"));
    let told = put(&mut mirror, &broken("a", "2"));
    assert_eq!(
        told,
        ["!API server, EndpointSlice d/a: endpoints: invalid type: integer `7`, expected a sequence"]
    );
    assert_eq!(put(&mut mirror, &broken("a", "2")), [] as [&str; 0], "said already");
    assert_eq!(complete(&mut mirror), [] as [&str; 0], "it is there");
    assert_eq!(put(&mut mirror, &slice("a", "3", "s")), ["!API server, EndpointSlice d/a: ", "+a@3"]);
}

#[test]
fn what_could_never_be_read_is_not_deleted() {
    let mut mirror = mirror();
    mirror.begin();
    assert_eq!(put(&mut mirror, &broken("a", "1")).len(), 1);
    mirror.begin();
    assert_eq!(complete(&mut mirror), ["!API server, EndpointSlice d/a: "]);
}

#[test]
fn what_has_no_name_is_no_object() {
    let mut mirror = mirror();
    for bad in [
        r#"{"metadata":{"namespace":"d","name":"","resourceVersion":"1"}}"#,
        r#"{"metadata":{"name":"a","resourceVersion":"1"}}"#,
        r#"{"metadata":{"namespace":"d","name":"a"}}"#,
        "{}",
        "7",
    ] {
        assert!(mirror.put(bad.as_bytes(), &mut Vec::new()).is_err(), "{bad}");
        assert!(mirror.remove(bad.as_bytes(), &mut Vec::new()).is_err(), "{bad}");
    }
    assert_eq!(mirror.len(), 0);
}

/// What the server does, and how we hear of it.
#[derive(Clone, Debug)]
enum Act {
    Put(u8, u8),
    Remove(u8),
    /// A new list, broken off after so many objects a few times.
    Relist(Vec<u8>),
    /// Changes that are not heard of before the next list.
    Miss(Vec<(u8, bool)>),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        4 => (0..6u8, 0..3u8).prop_map(|(name, service)| Act::Put(name, service)),
        2 => (0..6u8).prop_map(Act::Remove),
        1 => proptest::collection::vec(0..6u8, 0..3).prop_map(Act::Relist),
        1 => proptest::collection::vec((0..6u8, any::<bool>()), 0..4).prop_map(Act::Miss),
    ];
    proptest::collection::vec(act, 0..40)
}

/// The receiver's view: slices by service and name, as the core keeps them.
fn receive(view: &mut BTreeMap<(String, String), String>, events: Vec<SourceEvent>) {
    for event in events {
        match event {
            SourceEvent::Upsert(object) => {
                let service = object.owning_service().unwrap_or_default().to_owned();
                let Object::EndpointSlice(slice) = object else { panic!("a slice") };
                let meta = slice.metadata;
                view.insert((service, meta.name.expect("named")), meta.resource_version.expect("versioned"));
            }
            SourceEvent::Delete { key, service } => {
                let key = (service.as_deref().unwrap_or_default().to_owned(), key.name.to_string());
                assert!(view.remove(&key).is_some(), "deleted what was not there: {key:?}");
            }
            other => panic!("{other:?}"),
        }
    }
}

proptest! {
    #[test]
    fn after_a_list_the_receiver_has_what_the_server_has(acts in acts()) {
        let mut server: BTreeMap<u8, (u64, u8)> = BTreeMap::new();
        let mut version = 0;
        let (mut mirror, mut view) = (mirror(), BTreeMap::new());
        let name = |n: u8| format!("n{n}");
        let service = |s: u8| format!("s{s}");
        let json = |n: u8, (v, s): (u64, u8)| slice(&name(n), &v.to_string(), &service(s));
        for act in acts.into_iter().chain([Act::Relist(vec![2])]) {
            let mut out = Vec::new();
            version += 1;
            match act {
                Act::Put(n, s) => {
                    server.insert(n, (version, s));
                    mirror.put(&json(n, (version, s)), &mut out).expect("an object");
                }
                Act::Remove(n) => if let Some((_, s)) = server.remove(&n) {
                    mirror.remove(&json(n, (version, s)), &mut out).expect("an object");
                },
                Act::Miss(changes) => for (n, there) in changes {
                    version += 1;
                    if there { server.insert(n, (version, n % 2)); } else { server.remove(&n); }
                },
                Act::Relist(broken_off) => {
                    for after in broken_off.into_iter().map(usize::from).chain([usize::MAX]) {
                        mirror.begin();
                        for (n, state) in server.iter().take(after) {
                            mirror.put(&json(*n, *state), &mut out).expect("an object");
                        }
                    }
                    mirror.complete(&mut out);
                    let known: BTreeSet<_> = out.iter().filter(|e| matches!(e, SourceEvent::Upsert(_))).map(|e| format!("{e:?}")).collect();
                    prop_assert_eq!(known.len(), out.iter().filter(|e| matches!(e, SourceEvent::Upsert(_))).count(), "said twice");
                    receive(&mut view, std::mem::take(&mut out));
                    let expected: BTreeMap<_, _> = server.iter().map(|(n, (v, s))| ((service(*s), name(*n)), v.to_string())).collect();
                    prop_assert_eq!(&view, &expected);
                }
            }
            receive(&mut view, out);
        }
    }
}
