use super::*;

#[test]
fn events_are_told_apart() {
    let of = |line: &str| match event(line.as_bytes()).expect(line) {
        Event::Put(object) => format!("put {}", object.get()),
        Event::Gone(object) => format!("gone {}", object.get()),
        Event::Bookmark { version, mark } => format!("bookmark {version} {mark}"),
        Event::Error(status) => format!("error {:?}", status.code),
    };
    assert_eq!(of(r#"{"type":"ADDED","object":{"a":1}}"#), r#"put {"a":1}"#);
    assert_eq!(of(r#"{"object":{"a":1},"type":"MODIFIED"}"#), r#"put {"a":1}"#);
    assert_eq!(of(r#"{"type":"DELETED","object":{}}"#), "gone {}");
    assert_eq!(
        of(
            r#"{"type":"BOOKMARK","object":{"kind":"Service","apiVersion":"v1","metadata":{"resourceVersion":"153"},"spec":{}}}"#
        ),
        "bookmark 153 false"
    );
    assert_eq!(
        of(
            r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"144","annotations":{"k8s.io/initial-events-end":"true"}}}}"#
        ),
        "bookmark 144 true"
    );
    assert_eq!(
        of(
            r#"{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"too old resource version: 2 (166)","reason":"Expired","code":410}}"#
        ),
        "error Some(410)"
    );
}

#[test]
fn what_is_no_event_says_why() {
    let of = |line: &str| event(line.as_bytes()).expect_err(line);
    assert_eq!(
        of(r#"{"type":"RENAMED","object":{}}"#),
        "the server sent an event of unknown type \"RENAMED\""
    );
    assert!(of(r#"{"type":"ADDED","obj"#).starts_with("the server sent an event that cannot be read: EOF"));
    assert!(
        of(r#"{"type":"BOOKMARK","object":{"metadata":{}}}"#).contains("missing field `resourceVersion`")
    );
}

#[test]
fn what_nobody_reads_is_dropped() {
    let json = r#"{
        "kind": "Node", "apiVersion": "v1",
        "metadata": {
            "name": "n", "resourceVersion": "5", "labels": {"topology.kubernetes.io/zone": "a"},
            "annotations": {"x": "y"}, "managedFields": [{"manager": "m"}], "creationTimestamp": "2026-11-30T07:22:09Z"
        },
        "spec": {"podCIDRs": ["10.1.0.0/24"], "taints": [{"key": "k", "effect": "NoSchedule"}]},
        "status": {
            "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
            "images": [{"names": ["i"], "sizeBytes": 1}], "conditions": "unreadable"
        }
    }"#;
    let Ok(Object::Node(node)) = object(ObjectKind::Node, json.as_bytes()) else { panic!("a node") };
    assert_eq!(node.metadata.managed_fields, None);
    assert_eq!(node.metadata.annotations, None);
    assert_eq!(node.metadata.labels.as_ref().map(BTreeMap::len), Some(1));
    assert!(node.metadata.creation_timestamp.is_some());
    let status = node.status.expect("status");
    assert_eq!(status.addresses.map(|a| a.len()), Some(1));
    assert_eq!(status.images, None);
    let spec = node.spec.expect("spec");
    assert_eq!(spec.pod_cidrs, Some(vec!["10.1.0.0/24".to_owned()]));
    assert_eq!(spec.taints.map(|t| t.len()), Some(1), "health checks will ask");
}

#[test]
fn the_trigger_time_of_a_slice_is_kept() {
    let json = r#"{
        "metadata": {
            "name": "s", "namespace": "d", "resourceVersion": "5",
            "annotations": {"endpoints.kubernetes.io/last-change-trigger-time": "2026-11-30T07:22:09Z", "x": "y"}
        },
        "addressType": "IPv4", "endpoints": null
    }"#;
    let Ok(Object::EndpointSlice(slice)) = object(ObjectKind::EndpointSlice, json.as_bytes()) else {
        panic!("a slice")
    };
    let annotations = slice.metadata.annotations.expect("kept");
    assert_eq!(
        annotations.into_iter().collect::<Vec<_>>(),
        [(TRIGGER_TIME.to_owned(), "2026-11-30T07:22:09Z".to_owned())]
    );
    assert_eq!(slice.endpoints, []);
}

#[test]
fn a_wrong_field_is_named() {
    let json = r#"{"metadata":{"name":"s"},"spec":{"ports":[{"port":80},{"port":"x"}]}}"#;
    let problem = object(ObjectKind::Service, json.as_bytes()).expect_err("wrong");
    assert_eq!(problem.field.as_deref(), Some("spec.ports[1].port"));
    assert!(problem.message.starts_with("invalid type: string \"x\""), "{problem}");
}

#[test]
fn cluster_wide_kinds_have_no_namespace() {
    let json =
        br#"{"metadata":{"name":"kubernetes","resourceVersion":"16"},"spec":{"cidrs":["10.96.0.0/12"]}}"#;
    let head = head(ObjectKind::ServiceCidr, json).expect("an object");
    assert_eq!((&*head.namespace, &*head.name, &*head.version), ("", "kubernetes", "16"));
    let Ok(Object::ServiceCidr(cidr)) = object(ObjectKind::ServiceCidr, json) else { panic!("a range") };
    assert_eq!(cidr.spec.and_then(|s| s.cidrs), Some(vec!["10.96.0.0/12".to_owned()]));
    assert!(super::head(ObjectKind::Service, json).is_err());
}
