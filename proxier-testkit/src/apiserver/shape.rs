//! The order in which the API's types write their fields (Kubernetes API reference, the order of the Go types).

/// Names of an object's fields in order, each with the shape of what it holds. Lists have the shape of their items. A
/// field that is not named comes after those that are, by name: so does every key of a map.
pub(super) struct Shape(pub(super) &'static [(&'static str, &'static Self)]);

impl Shape {
    /// Any value: keys by name.
    pub(super) const ANY: Self = Self(&[]);
}

macro_rules! shapes {
    (@shape) => { &Shape::ANY };
    (@shape $shape:ident) => { &$shape };
    ($($(#[$doc:meta])* $name:ident { $($field:ident $(: $shape:ident)?),* $(,)? })*) => {
        $($(#[$doc])* pub(super) static $name: Shape =
            Shape(&[$((shapes!(@name $field), shapes!(@shape $($shape)?))),*]);)*
    };
    (@name type_) => { "type" };
    (@name $field:ident) => { stringify!($field) };
}

shapes! {
    METADATA {
        name, generateName, namespace, selfLink, uid, resourceVersion, generation, creationTimestamp,
        deletionTimestamp, deletionGracePeriodSeconds, labels, annotations, ownerReferences: OWNER, finalizers,
        managedFields: MANAGED_FIELDS,
    }
    OWNER { apiVersion, kind, name, uid, controller, blockOwnerDeletion }
    MANAGED_FIELDS { manager, operation, apiVersion, time, fieldsType, fieldsV1, subresource }
    REFERENCE { kind, namespace, name, uid, apiVersion, resourceVersion, fieldPath }
    CONDITION { type_, status, observedGeneration, lastHeartbeatTime, lastTransitionTime, reason, message }

    /// core/v1 Service.
    SERVICE { kind, apiVersion, metadata: METADATA, spec: SERVICE_SPEC, status: SERVICE_STATUS }
    SERVICE_SPEC {
        ports: SERVICE_PORT, selector, clusterIP, clusterIPs, type_, externalIPs, sessionAffinity, loadBalancerIP,
        loadBalancerSourceRanges, externalName, externalTrafficPolicy, healthCheckNodePort,
        publishNotReadyAddresses, sessionAffinityConfig, ipFamilies, ipFamilyPolicy,
        allocateLoadBalancerNodePorts, loadBalancerClass, internalTrafficPolicy, trafficDistribution,
    }
    SERVICE_PORT { name, protocol, appProtocol, port, targetPort, nodePort }
    SERVICE_STATUS { loadBalancer: LOAD_BALANCER, conditions: CONDITION }
    LOAD_BALANCER { ingress: INGRESS }
    INGRESS { ip, hostname, ipMode, ports: INGRESS_PORT }
    INGRESS_PORT { port, protocol, error }

    /// discovery.k8s.io/v1 EndpointSlice.
    ENDPOINT_SLICE { kind, apiVersion, metadata: METADATA, addressType, endpoints: ENDPOINT, ports: ENDPOINT_PORT }
    ENDPOINT {
        addresses, conditions: ENDPOINT_CONDITIONS, hostname, targetRef: REFERENCE, deprecatedTopology, nodeName, zone,
        hints: HINTS,
    }
    ENDPOINT_CONDITIONS { ready, serving, terminating }
    HINTS { forZones, forNodes }
    ENDPOINT_PORT { name, protocol, port, appProtocol }

    /// core/v1 Node.
    NODE { kind, apiVersion, metadata: METADATA, spec: NODE_SPEC, status: NODE_STATUS }
    NODE_SPEC { podCIDR, podCIDRs, providerID, unschedulable, taints: TAINT, configSource, externalID }
    TAINT { key, value, effect, timeAdded }
    NODE_STATUS {
        capacity, allocatable, phase, conditions: CONDITION, addresses: NODE_ADDRESS, daemonEndpoints,
        nodeInfo: NODE_INFO, images: IMAGE, volumesInUse, volumesAttached: ATTACHED_VOLUME, config, runtimeHandlers,
        features,
    }
    NODE_ADDRESS { type_, address }
    NODE_INFO {
        machineID, systemUUID, bootID, kernelVersion, osImage, containerRuntimeVersion, kubeletVersion,
        kubeProxyVersion, operatingSystem, architecture, swap,
    }
    IMAGE { names, sizeBytes }
    ATTACHED_VOLUME { name, devicePath }

    /// networking.k8s.io/v1 ServiceCIDR.
    SERVICE_CIDR { kind, apiVersion, metadata: METADATA, spec, status: SERVICE_CIDR_STATUS }
    SERVICE_CIDR_STATUS { conditions: CONDITION }

    /// events.k8s.io/v1 Event.
    EVENT {
        kind, apiVersion, metadata: METADATA, eventTime, series, reportingController, reportingInstance, action,
        reason, regarding: REFERENCE, related: REFERENCE, note, type_, deprecatedSource, deprecatedFirstTimestamp,
        deprecatedLastTimestamp, deprecatedCount,
    }
    /// core/v1 Event.
    CORE_EVENT {
        kind, apiVersion, metadata: METADATA, involvedObject: REFERENCE, reason, message, source, firstTimestamp,
        lastTimestamp, count, type_, eventTime, series, action, related: REFERENCE, reportingComponent,
        reportingInstance,
    }
}
