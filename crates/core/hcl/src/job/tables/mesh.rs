//! The tables of the service mesh (docs/reference/jobspec.md, section 4.7).

use super::task::{IDENTITY, LOGS, RESOURCES, VOLUME_MOUNT};
use crate::schema::{BlockType, Content, Kind, Repeat, Schema, attr, many, one, plain};

pub(super) static CONNECT: Schema = Schema {
    name: "connect",
    attributes: &[plain("native", "Native", Kind::Bool)
        .doc("The service speaks to the mesh itself.")
        .default("false")],
    blocks: &[
        one("gateway", "Gateway", Content::Schema(&GATEWAY)).doc("A gateway of the mesh."),
        one("sidecar_service", "SidecarService", Content::Schema(&SIDECAR_SERVICE))
            .doc("A sidecar registered for the service."),
        one("sidecar_task", "SidecarTask", Content::Schema(&SIDECAR_TASK))
            .doc("Changes to the sidecar's task."),
    ],
    finish: None,
};

static SIDECAR_SERVICE: Schema = Schema {
    name: "sidecar_service",
    attributes: &[
        plain("disable_default_tcp_check", "DisableDefaultTCPCheck", Kind::Bool)
            .doc("Register no TCP check of the sidecar.")
            .default("false"),
        plain("port", "Port", Kind::Str).doc("Label of the port of the sidecar."),
        attr("tags", "Tags", Kind::Strings).doc("Tags of the sidecar."),
    ],
    blocks: &[
        one("meta", "Meta", Content::Strings).doc("Meta data: names with strings."),
        one("proxy", "Proxy", Content::Schema(&PROXY)).doc("Settings of the proxy."),
    ],
    finish: None,
};

static PROXY: Schema = Schema {
    name: "proxy",
    attributes: &[
        plain("local_service_address", "LocalServiceAddress", Kind::Str)
            .doc("Address of the service behind the sidecar.")
            .default("127.0.0.1"),
        plain("local_service_port", "LocalServicePort", Kind::Int)
            .doc("Port of the service behind the sidecar."),
    ],
    blocks: &[
        one("config", "Config", Content::Free).doc("Settings for the driver, plugin or proxy."),
        one("expose", "Expose", Content::Schema(&EXPOSE)).doc("Paths reachable from outside the mesh."),
        one("transparent_proxy", "TransparentProxy", Content::Schema(&TRANSPARENT_PROXY))
            .doc("Sends all traffic through the sidecar."),
        many("upstreams", "Upstreams", &UPSTREAM).doc("A service that this one talks to."),
    ],
    finish: None,
};

static EXPOSE: Schema = Schema {
    name: "expose",
    attributes: &[],
    blocks: &[many("path", "Paths", &EXPOSE_PATH).doc("One path.")],
    finish: None,
};

static EXPOSE_PATH: Schema = Schema {
    name: "path",
    attributes: &[
        plain("listener_port", "ListenerPort", Kind::Str).doc("Label of the port that is opened."),
        plain("local_path_port", "LocalPathPort", Kind::Int).doc("Port of the service."),
        plain("path", "Path", Kind::Str).doc("Path that is exposed."),
        plain("protocol", "Protocol", Kind::Str).doc("Protocol.").values(&["http", "http2"]),
    ],
    blocks: &[],
    finish: None,
};

static TRANSPARENT_PROXY: Schema = Schema {
    name: "transparent_proxy",
    attributes: &[
        attr("exclude_inbound_ports", "ExcludeInboundPorts", Kind::Strings)
            .doc("Ports of the host that go around the proxy."),
        attr("exclude_outbound_cidrs", "ExcludeOutboundCIDRs", Kind::Strings)
            .doc("Networks that are reached without the proxy."),
        attr("exclude_outbound_ports", "ExcludeOutboundPorts", Kind::Ports)
            .doc("Ports that are reached without the proxy."),
        attr("exclude_uids", "ExcludeUIDs", Kind::Strings).doc("Users whose traffic bypasses the proxy."),
        plain("no_dns", "NoDNS", Kind::Bool).doc("Leave DNS alone.").default("false"),
        plain("outbound_port", "OutboundPort", Kind::Port)
            .doc("Port of the proxy for outgoing traffic.")
            .default("15001"),
        plain("uid", "UID", Kind::Str).doc("User that the proxy runs as.").default("101"),
    ],
    blocks: &[],
    finish: None,
};

static UPSTREAM: Schema = Schema {
    name: "upstreams",
    attributes: &[
        plain("datacenter", "Datacenter", Kind::Str).doc("Datacenter of the upstream."),
        plain("destination_name", "DestinationName", Kind::Str).doc("Name of the service."),
        plain("destination_namespace", "DestinationNamespace", Kind::Str).doc("Its namespace in Consul."),
        plain("destination_partition", "DestinationPartition", Kind::Str).doc("Its admin partition."),
        plain("destination_peer", "DestinationPeer", Kind::Str).doc("Its cluster peer."),
        plain("destination_type", "DestinationType", Kind::Str)
            .doc("What the name is.")
            .default("service")
            .values(&["service", "prepared_query"]),
        plain("local_bind_address", "LocalBindAddress", Kind::Str)
            .doc("Address that the sidecar listens on.")
            .default("127.0.0.1"),
        plain("local_bind_port", "LocalBindPort", Kind::Int).doc("Port that the sidecar listens on."),
        plain("local_bind_socket_mode", "LocalBindSocketMode", Kind::Str).doc("Permissions of that socket."),
        plain("local_bind_socket_path", "LocalBindSocketPath", Kind::Str)
            .doc("Unix socket that the sidecar listens on."),
    ],
    blocks: &[
        one("config", "Config", Content::Free).doc("Settings for the driver, plugin or proxy."),
        one("mesh_gateway", "MeshGateway", Content::Schema(&MESH_GATEWAY)).doc("Use of mesh gateways."),
    ],
    finish: None,
};

static MESH_GATEWAY: Schema = Schema {
    name: "mesh_gateway",
    attributes: &[plain("mode", "Mode", Kind::Str)
        .doc("Which gateways are used.")
        .values(&["none", "local", "remote"])],
    blocks: &[],
    finish: None,
};

static SIDECAR_TASK: Schema = Schema {
    name: "sidecar_task",
    attributes: &[
        plain("driver", "Driver", Kind::Str).doc("Driver of the sidecar.").default("docker"),
        plain("kill_signal", "KillSignal", Kind::Str).doc("Signal that asks the task to stop."),
        attr("kill_timeout", "KillTimeout", Kind::Duration)
            .doc("Time between that signal and the end by force.")
            .default("5s"),
        plain("name", "Name", Kind::Str).doc("Name of the task.").default("`connect-proxy-<service>`"),
        attr("shutdown_delay", "ShutdownDelay", Kind::Duration)
            .doc("Pause before it is stopped.")
            .default("5s"),
        plain("user", "User", Kind::Str).doc("User that it runs as."),
    ],
    blocks: &[
        one("config", "Config", Content::Free).doc("Settings for the driver, plugin or proxy."),
        one("env", "Env", Content::Strings).doc("Environment variables."),
        many("identity", "Identities", &IDENTITY).doc("An identity token of the workload."),
        one("logs", "LogConfig", Content::Schema(&LOGS)).doc("How logs are kept."),
        one("meta", "Meta", Content::Strings).doc("Meta data: names with strings."),
        one("resources", "Resources", Content::Schema(&RESOURCES)).doc("What the task needs."),
        many("volume_mount", "VolumeMounts", &VOLUME_MOUNT).doc("Mounts a volume of the group."),
    ],
    finish: None,
};

static GATEWAY: Schema = Schema {
    name: "gateway",
    attributes: &[],
    blocks: &[
        one("ingress", "Ingress", Content::Schema(&INGRESS)).doc("A gateway into the mesh."),
        one("mesh", "Mesh", Content::Schema(&MESH)).doc("A gateway between meshes."),
        one("proxy", "Proxy", Content::Schema(&GATEWAY_PROXY)).doc("Settings of the proxy."),
        one("terminating", "Terminating", Content::Schema(&TERMINATING)).doc("A gateway out of the mesh."),
    ],
    finish: None,
};

static MESH: Schema = Schema { name: "mesh", attributes: &[], blocks: &[], finish: None };

static GATEWAY_PROXY: Schema = Schema {
    name: "proxy",
    attributes: &[
        attr("connect_timeout", "ConnectTimeout", Kind::Duration)
            .doc("Time to connect to upstreams.")
            .default("5s"),
        plain("envoy_dns_discovery_type", "EnvoyDNSDiscoveryType", Kind::Str)
            .doc("How names are resolved.")
            .values(&["STRICT_DNS", "LOGICAL_DNS"]),
        plain("envoy_gateway_bind_tagged_addresses", "EnvoyGatewayBindTaggedAddresses", Kind::Bool)
            .doc("Listen on the tagged addresses.")
            .default("false"),
        plain("envoy_gateway_no_default_bind", "EnvoyGatewayNoDefaultBind", Kind::Bool)
            .doc("Do not listen on the default address.")
            .default("false"),
    ],
    blocks: &[
        one("config", "Config", Content::Free).doc("Settings for the driver, plugin or proxy."),
        BlockType {
            name: "envoy_gateway_bind_addresses",
            key: "EnvoyGatewayBindAddresses",
            labels: &["name"],
            repeat: Repeat::ByLabel,
            content: Content::Schema(&BIND_ADDRESS),
            doc: "An address to listen on.",
        },
    ],
    finish: None,
};

static BIND_ADDRESS: Schema = Schema {
    name: "envoy_gateway_bind_addresses",
    attributes: &[
        plain("address", "Address", Kind::Str).doc("Address to listen on."),
        plain("port", "Port", Kind::Int).doc("Port to listen on."),
    ],
    blocks: &[],
    finish: None,
};

static INGRESS: Schema = Schema {
    name: "ingress",
    attributes: &[],
    blocks: &[
        many("listener", "Listeners", &LISTENER).doc("An open port."),
        one("tls", "TLS", Content::Schema(&TLS)).doc("TLS."),
    ],
    finish: None,
};

static TLS: Schema = Schema {
    name: "tls",
    attributes: &[
        attr("cipher_suites", "CipherSuites", Kind::Strings).doc("Cipher suites."),
        plain("enabled", "Enabled", Kind::Bool).doc("Whether TLS is on.").default("false"),
        plain("tls_max_version", "TLSMaxVersion", Kind::Str)
            .doc("Newest version.")
            .values(&["TLS_AUTO", "TLSv1_0", "TLSv1_1", "TLSv1_2", "TLSv1_3"]),
        plain("tls_min_version", "TLSMinVersion", Kind::Str)
            .doc("Oldest version.")
            .values(&["TLS_AUTO", "TLSv1_0", "TLSv1_1", "TLSv1_2", "TLSv1_3"]),
    ],
    blocks: &[one("sds", "SDS", Content::Schema(&SDS)).doc("Certificates from a service.")],
    finish: None,
};

static SDS: Schema = Schema {
    name: "sds",
    attributes: &[
        plain("cert_resource", "CertResource", Kind::Str).doc("Name of the certificate."),
        plain("cluster_name", "ClusterName", Kind::Str).doc("Cluster that serves certificates."),
    ],
    blocks: &[],
    finish: None,
};

static LISTENER: Schema = Schema {
    name: "listener",
    attributes: &[
        plain("port", "Port", Kind::Int).doc("Port that is opened."),
        plain("protocol", "Protocol", Kind::Str)
            .doc("Protocol.")
            .default("tcp")
            .values(&["tcp", "http", "http2", "grpc"]),
    ],
    blocks: &[many("service", "Services", &INGRESS_SERVICE).doc("A service in a catalog.")],
    finish: None,
};

static INGRESS_SERVICE: Schema = Schema {
    name: "service",
    attributes: &[
        attr("hosts", "Hosts", Kind::Strings).doc("Host names that lead to the service."),
        attr("max_concurrent_requests", "MaxConcurrentRequests", Kind::Unsigned32)
            .doc("Requests at the same time."),
        attr("max_connections", "MaxConnections", Kind::Unsigned32).doc("Connections at the same time."),
        attr("max_pending_requests", "MaxPendingRequests", Kind::Unsigned32).doc("Requests that may wait."),
        plain("name", "Name", Kind::Str).doc("Name of the service; `*` is all."),
    ],
    blocks: &[
        one("request_headers", "RequestHeaders", Content::Schema(&HEADERS)).doc("Changes to requests."),
        one("response_headers", "ResponseHeaders", Content::Schema(&HEADERS)).doc("Changes to responses."),
        one("tls", "TLS", Content::Schema(&TLS)).doc("TLS."),
    ],
    finish: None,
};

static HEADERS: Schema = Schema {
    name: "headers",
    attributes: &[attr("remove", "Remove", Kind::Strings).doc("Headers that are removed.")],
    blocks: &[
        one("add", "Add", Content::Strings).doc("Headers that are added."),
        one("set", "Set", Content::Strings).doc("Headers that are set."),
    ],
    finish: None,
};

static TERMINATING: Schema = Schema {
    name: "terminating",
    attributes: &[],
    blocks: &[many("service", "Services", &LINKED_SERVICE).doc("A service in a catalog.")],
    finish: None,
};

static LINKED_SERVICE: Schema = Schema {
    name: "service",
    attributes: &[
        plain("ca_file", "CAFile", Kind::Str).doc("Certificate authority."),
        plain("cert_file", "CertFile", Kind::Str).doc("Certificate."),
        plain("key_file", "KeyFile", Kind::Str).doc("Private key."),
        plain("name", "Name", Kind::Str).doc("Name of the service."),
        plain("sni", "SNI", Kind::Str).doc("Name sent in TLS."),
    ],
    blocks: &[],
    finish: None,
};
