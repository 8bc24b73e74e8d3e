//! Service mesh blocks of a service (docs/reference/jobspec.md, section 4.7).

use super::Nanos;
use super::decode::{ApiValue, DecodeError, Place};
use super::macros::api_objects;
use super::task::{LogConfig, Resources, VolumeMount, WorkloadIdentity};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

api_objects! {
    /// The part of a service in the mesh; exactly one of the four fields is used.
    Connect("ConsulConnect") {
        native: bool = "Native";
        gateway: Option<Gateway> = "Gateway";
        sidecar_service: Option<SidecarService> = "SidecarService";
        sidecar_task: Option<SidecarTask> = "SidecarTask";
    }

    /// The sidecar's own service.
    SidecarService("ConsulSidecarService") {
        tags: Option<Vec<String>> = "Tags";
        port: String = "Port";
        proxy: Option<Proxy> = "Proxy";
        disable_default_tcp_check: bool = "DisableDefaultTCPCheck";
        meta: Option<BTreeMap<String, String>> = "Meta";
    }

    /// Settings of the sidecar proxy.
    Proxy("ConsulProxy") {
        local_service_address: String = "LocalServiceAddress";
        local_service_port: i64 = "LocalServicePort";
        expose: Option<Expose> = "Expose";
        /// Older spelling of `Expose`.
        expose_config: Option<Expose> = "ExposeConfig";
        upstreams: Option<Vec<Upstream>> = "Upstreams";
        transparent_proxy: Option<TransparentProxy> = "TransparentProxy";
        config: Option<Map<String, Value>> = "Config";
    }

    /// Paths reachable without the mesh.
    Expose("ConsulExposeConfig") {
        paths: Option<Vec<ExposePath>> = "Paths";
        /// Older spelling of `Paths`.
        path: Option<Vec<ExposePath>> = "Path";
    }

    /// One exposed path.
    ExposePath("ConsulExposePath") {
        path: String = "Path";
        protocol: String = "Protocol";
        local_path_port: i64 = "LocalPathPort";
        listener_port: String = "ListenerPort";
    }

    /// A service that the task reaches through the proxy.
    Upstream("ConsulUpstream") {
        destination_name: String = "DestinationName";
        destination_namespace: String = "DestinationNamespace";
        destination_peer: String = "DestinationPeer";
        destination_partition: String = "DestinationPartition";
        destination_type: String = "DestinationType";
        local_bind_port: i64 = "LocalBindPort";
        datacenter: String = "Datacenter";
        local_bind_address: String = "LocalBindAddress";
        local_bind_socket_path: String = "LocalBindSocketPath";
        local_bind_socket_mode: String = "LocalBindSocketMode";
        mesh_gateway: Option<MeshGateway> = "MeshGateway";
        config: Option<Map<String, Value>> = "Config";
    }

    /// The mesh gateway of an upstream.
    MeshGateway("ConsulMeshGateway") {
        mode: String = "Mode";
    }

    /// Redirection of all traffic into the proxy.
    TransparentProxy("ConsulTransparentProxy") {
        uid: String = "UID";
        outbound_port: u64 = "OutboundPort";
        exclude_inbound_ports: Option<Vec<String>> = "ExcludeInboundPorts";
        exclude_outbound_ports: Option<Vec<u64>> = "ExcludeOutboundPorts";
        exclude_outbound_cidrs: Option<Vec<String>> = "ExcludeOutboundCIDRs";
        exclude_uids: Option<Vec<String>> = "ExcludeUIDs";
        no_dns: bool = "NoDNS";
    }

    /// The differences from the generated sidecar task.
    SidecarTask("SidecarTask") {
        name: String = "Name";
        driver: String = "Driver";
        user: String = "User";
        config: Option<Map<String, Value>> = "Config";
        env: Option<BTreeMap<String, String>> = "Env";
        resources: Option<Resources> = "Resources";
        meta: Option<BTreeMap<String, String>> = "Meta";
        kill_timeout: Option<Nanos> = "KillTimeout";
        log_config: Option<LogConfig> = "LogConfig";
        shutdown_delay: Option<Nanos> = "ShutdownDelay";
        kill_signal: String = "KillSignal";
        volume_mounts: Option<Vec<VolumeMount>> = "VolumeMounts";
        identities: Option<Vec<WorkloadIdentity>> = "Identities";
    }

    /// A gateway of the mesh; exactly one of the last three is used.
    Gateway("ConsulGateway") {
        proxy: Option<GatewayProxy> = "Proxy";
        ingress: Option<Ingress> = "Ingress";
        terminating: Option<Terminating> = "Terminating";
        mesh: Option<Mesh> = "Mesh";
    }

    /// Settings of a gateway's proxy.
    GatewayProxy("ConsulGatewayProxy") {
        connect_timeout: Option<Nanos> = "ConnectTimeout";
        envoy_gateway_bind_tagged_addresses: bool = "EnvoyGatewayBindTaggedAddresses";
        envoy_gateway_bind_addresses: Option<BTreeMap<String, GatewayBindAddress>> = "EnvoyGatewayBindAddresses";
        envoy_gateway_no_default_bind: bool = "EnvoyGatewayNoDefaultBind";
        envoy_dns_discovery_type: String = "EnvoyDNSDiscoveryType";
        config: Option<Map<String, Value>> = "Config";
    }

    /// An address that a gateway binds.
    GatewayBindAddress("ConsulGatewayBindAddress") {
        name: String = "Name";
        address: String = "Address";
        port: i64 = "Port";
    }

    /// An ingress gateway.
    Ingress("ConsulIngressConfigEntry") {
        tls: Option<GatewayTls> = "TLS";
        listeners: Option<Vec<IngressListener>> = "Listeners";
    }

    /// TLS settings of a gateway.
    GatewayTls("ConsulGatewayTLSConfig") {
        enabled: bool = "Enabled";
        tls_min_version: String = "TLSMinVersion";
        tls_max_version: String = "TLSMaxVersion";
        cipher_suites: Option<Vec<String>> = "CipherSuites";
        sds: Option<GatewayTlsSds> = "SDS";
    }

    /// The source of the certificates of a gateway.
    GatewayTlsSds("ConsulGatewayTLSSDSConfig") {
        cluster_name: String = "ClusterName";
        cert_resource: String = "CertResource";
    }

    /// A port of an ingress gateway.
    IngressListener("ConsulIngressListener") {
        port: i64 = "Port";
        protocol: String = "Protocol";
        services: Option<Vec<IngressService>> = "Services";
    }

    /// A service behind an ingress listener.
    IngressService("ConsulIngressService") {
        name: String = "Name";
        hosts: Option<Vec<String>> = "Hosts";
        tls: Option<GatewayTls> = "TLS";
        request_headers: Option<HttpHeaderModifiers> = "RequestHeaders";
        response_headers: Option<HttpHeaderModifiers> = "ResponseHeaders";
        max_connections: Option<u64> = "MaxConnections";
        max_pending_requests: Option<u64> = "MaxPendingRequests";
        max_concurrent_requests: Option<u64> = "MaxConcurrentRequests";
    }

    /// Changes to HTTP headers.
    HttpHeaderModifiers("ConsulHTTPHeaderModifiers") {
        add: Option<BTreeMap<String, String>> = "Add";
        set: Option<BTreeMap<String, String>> = "Set";
        remove: Option<Vec<String>> = "Remove";
    }

    /// A terminating gateway.
    Terminating("ConsulTerminatingConfigEntry") {
        services: Option<Vec<LinkedService>> = "Services";
    }

    /// A service outside the mesh.
    LinkedService("ConsulLinkedService") {
        name: String = "Name";
        ca_file: String = "CAFile";
        cert_file: String = "CertFile";
        key_file: String = "KeyFile";
        sni: String = "SNI";
    }
}

/// A mesh gateway; has no settings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Mesh {}

impl ApiValue for Mesh {
    const TYPE: &'static str = "api.ConsulMeshConfigEntry";
    fn read(value: &Value, at: &mut Place) -> Result<Self, DecodeError> {
        if value.is_object() { Ok(Self {}) } else { Err(at.mismatch(value, Self::TYPE)) }
    }
}
