//! The service mesh (jobspec.md 4.7).

use super::task::{IDENTITY, LOGS, RESOURCES, VOLUME_MOUNT};
use crate::schema::{BlockType, Content, Kind, Repeat, Schema, attr, many, one};

pub(super) static CONNECT: Schema = Schema {
    name: "connect",
    attributes: &[attr("native", "Native", Kind::Bool)],
    blocks: &[
        one("gateway", "Gateway", Content::Schema(&GATEWAY)),
        one("sidecar_service", "SidecarService", Content::Schema(&SIDECAR_SERVICE)),
        one("sidecar_task", "SidecarTask", Content::Schema(&SIDECAR_TASK)),
    ],
    finish: None,
};

static SIDECAR_SERVICE: Schema = Schema {
    name: "sidecar_service",
    attributes: &[
        attr("disable_default_tcp_check", "DisableDefaultTCPCheck", Kind::Bool),
        attr("port", "Port", Kind::Str),
        attr("tags", "Tags", Kind::Strings),
    ],
    blocks: &[
        one("meta", "Meta", Content::StringsOrAttribute),
        one("proxy", "Proxy", Content::Schema(&PROXY)),
    ],
    finish: None,
};

static PROXY: Schema = Schema {
    name: "proxy",
    attributes: &[
        attr("local_service_address", "LocalServiceAddress", Kind::Str),
        attr("local_service_port", "LocalServicePort", Kind::Int),
    ],
    blocks: &[
        one("config", "Config", Content::Free),
        one("expose", "Expose", Content::Schema(&EXPOSE)),
        one("transparent_proxy", "TransparentProxy", Content::Schema(&TRANSPARENT_PROXY)),
        many("upstreams", "Upstreams", &UPSTREAM),
    ],
    finish: None,
};

static EXPOSE: Schema =
    Schema { name: "expose", attributes: &[], blocks: &[many("path", "Paths", &EXPOSE_PATH)], finish: None };

static EXPOSE_PATH: Schema = Schema {
    name: "path",
    attributes: &[
        attr("listener_port", "ListenerPort", Kind::Str),
        attr("local_path_port", "LocalPathPort", Kind::Int),
        attr("path", "Path", Kind::Str),
        attr("protocol", "Protocol", Kind::Str),
    ],
    blocks: &[],
    finish: None,
};

static TRANSPARENT_PROXY: Schema = Schema {
    name: "transparent_proxy",
    attributes: &[
        attr("exclude_inbound_ports", "ExcludeInboundPorts", Kind::Strings),
        attr("exclude_outbound_cidrs", "ExcludeOutboundCIDRs", Kind::Strings),
        attr("exclude_outbound_ports", "ExcludeOutboundPorts", Kind::UnsignedList),
        attr("exclude_uids", "ExcludeUIDs", Kind::Strings),
        attr("no_dns", "NoDNS", Kind::Bool),
        attr("outbound_port", "OutboundPort", Kind::Unsigned),
        attr("uid", "UID", Kind::Str),
    ],
    blocks: &[],
    finish: None,
};

static UPSTREAM: Schema = Schema {
    name: "upstreams",
    attributes: &[
        attr("datacenter", "Datacenter", Kind::Str),
        attr("destination_name", "DestinationName", Kind::Str),
        attr("destination_namespace", "DestinationNamespace", Kind::Str),
        attr("destination_partition", "DestinationPartition", Kind::Str),
        attr("destination_peer", "DestinationPeer", Kind::Str),
        attr("destination_type", "DestinationType", Kind::Str),
        attr("local_bind_address", "LocalBindAddress", Kind::Str),
        attr("local_bind_port", "LocalBindPort", Kind::Int),
        attr("local_bind_socket_mode", "LocalBindSocketMode", Kind::Str),
        attr("local_bind_socket_path", "LocalBindSocketPath", Kind::Str),
    ],
    blocks: &[
        one("config", "Config", Content::Free),
        one("mesh_gateway", "MeshGateway", Content::Schema(&MESH_GATEWAY)),
    ],
    finish: None,
};

static MESH_GATEWAY: Schema = Schema {
    name: "mesh_gateway",
    attributes: &[attr("mode", "Mode", Kind::Str)],
    blocks: &[],
    finish: None,
};

static SIDECAR_TASK: Schema = Schema {
    name: "sidecar_task",
    attributes: &[
        attr("driver", "Driver", Kind::Str),
        attr("kill_signal", "KillSignal", Kind::Str),
        attr("kill_timeout", "KillTimeout", Kind::Duration),
        attr("name", "Name", Kind::Str),
        attr("shutdown_delay", "ShutdownDelay", Kind::Duration),
        attr("user", "User", Kind::Str),
    ],
    blocks: &[
        one("config", "Config", Content::Free),
        one("env", "Env", Content::StringsOrAttribute),
        many("identity", "Identities", &IDENTITY),
        one("logs", "LogConfig", Content::Schema(&LOGS)),
        one("meta", "Meta", Content::StringsOrAttribute),
        one("resources", "Resources", Content::Schema(&RESOURCES)),
        many("volume_mount", "VolumeMounts", &VOLUME_MOUNT),
    ],
    finish: None,
};

static GATEWAY: Schema = Schema {
    name: "gateway",
    attributes: &[],
    blocks: &[
        one("ingress", "Ingress", Content::Schema(&INGRESS)),
        one("mesh", "Mesh", Content::Schema(&MESH)),
        one("proxy", "Proxy", Content::Schema(&GATEWAY_PROXY)),
        one("terminating", "Terminating", Content::Schema(&TERMINATING)),
    ],
    finish: None,
};

static MESH: Schema = Schema { name: "mesh", attributes: &[], blocks: &[], finish: None };

static GATEWAY_PROXY: Schema = Schema {
    name: "proxy",
    attributes: &[
        attr("connect_timeout", "ConnectTimeout", Kind::Duration),
        attr("envoy_dns_discovery_type", "EnvoyDNSDiscoveryType", Kind::Str),
        attr("envoy_gateway_bind_tagged_addresses", "EnvoyGatewayBindTaggedAddresses", Kind::Bool),
        attr("envoy_gateway_no_default_bind", "EnvoyGatewayNoDefaultBind", Kind::Bool),
    ],
    blocks: &[
        one("config", "Config", Content::Free),
        BlockType {
            name: "envoy_gateway_bind_addresses",
            key: "EnvoyGatewayBindAddresses",
            labels: &["name"],
            repeat: Repeat::ByLabel,
            content: Content::Schema(&BIND_ADDRESS),
        },
    ],
    finish: None,
};

static BIND_ADDRESS: Schema = Schema {
    name: "envoy_gateway_bind_addresses",
    attributes: &[attr("address", "Address", Kind::Str), attr("port", "Port", Kind::Int)],
    blocks: &[],
    finish: None,
};

static INGRESS: Schema = Schema {
    name: "ingress",
    attributes: &[],
    blocks: &[many("listener", "Listeners", &LISTENER), one("tls", "TLS", Content::Schema(&TLS))],
    finish: None,
};

static TLS: Schema = Schema {
    name: "tls",
    attributes: &[
        attr("cipher_suites", "CipherSuites", Kind::Strings),
        attr("enabled", "Enabled", Kind::Bool),
        attr("tls_max_version", "TLSMaxVersion", Kind::Str),
        attr("tls_min_version", "TLSMinVersion", Kind::Str),
    ],
    blocks: &[one("sds", "SDS", Content::Schema(&SDS))],
    finish: None,
};

static SDS: Schema = Schema {
    name: "sds",
    attributes: &[
        attr("cert_resource", "CertResource", Kind::Str),
        attr("cluster_name", "ClusterName", Kind::Str),
    ],
    blocks: &[],
    finish: None,
};

static LISTENER: Schema = Schema {
    name: "listener",
    attributes: &[attr("port", "Port", Kind::Int), attr("protocol", "Protocol", Kind::Str)],
    blocks: &[many("service", "Services", &INGRESS_SERVICE)],
    finish: None,
};

static INGRESS_SERVICE: Schema = Schema {
    name: "service",
    attributes: &[
        attr("hosts", "Hosts", Kind::Strings),
        attr("max_concurrent_requests", "MaxConcurrentRequests", Kind::Unsigned),
        attr("max_connections", "MaxConnections", Kind::Unsigned),
        attr("max_pending_requests", "MaxPendingRequests", Kind::Unsigned),
        attr("name", "Name", Kind::Str),
    ],
    blocks: &[
        one("request_headers", "RequestHeaders", Content::Schema(&HEADERS)),
        one("response_headers", "ResponseHeaders", Content::Schema(&HEADERS)),
        one("tls", "TLS", Content::Schema(&TLS)),
    ],
    finish: None,
};

static HEADERS: Schema = Schema {
    name: "headers",
    attributes: &[attr("remove", "Remove", Kind::Strings)],
    blocks: &[one("add", "Add", Content::StringsOrAttribute), one("set", "Set", Content::StringsOrAttribute)],
    finish: None,
};

static TERMINATING: Schema = Schema {
    name: "terminating",
    attributes: &[],
    blocks: &[many("service", "Services", &LINKED_SERVICE)],
    finish: None,
};

static LINKED_SERVICE: Schema = Schema {
    name: "service",
    attributes: &[
        attr("ca_file", "CAFile", Kind::Str),
        attr("cert_file", "CertFile", Kind::Str),
        attr("key_file", "KeyFile", Kind::Str),
        attr("name", "Name", Kind::Str),
        attr("sni", "SNI", Kind::Str),
    ],
    blocks: &[],
    finish: None,
};
