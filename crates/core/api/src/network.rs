//! Networks and ports of a group or a task.

use super::macros::api_objects;
use std::collections::BTreeMap;

api_objects! {
    /// The network that a group or task requests: its mode, ports and resolver.
    NetworkResource("NetworkResource") {
        /// `host` (the default when empty), `bridge`, `none` or `cni/<name>`.
        mode: String = "Mode";
        device: String = "Device";
        cidr: String = "CIDR";
        ip: String = "IP";
        dns: Option<Dns> = "DNS";
        reserved_ports: Option<Vec<Port>> = "ReservedPorts";
        dynamic_ports: Option<Vec<Port>> = "DynamicPorts";
        hostname: String = "Hostname";
        mbits: Option<i64> = "MBits";
        cni: Option<Cni> = "CNI";
    }

    /// A port by label; `Value` 0 means that the scheduler chooses.
    Port("Port") {
        label: String = "Label";
        value: i64 = "Value";
        /// Port inside the network namespace; 0 the same, -1 the chosen host port.
        to: i64 = "To";
        host_network: String = "HostNetwork";
        ignore_collision: bool = "IgnoreCollision";
    }

    /// Name servers for the network namespace.
    Dns("DNSConfig") {
        servers: Option<Vec<String>> = "Servers";
        searches: Option<Vec<String>> = "Searches";
        options: Option<Vec<String>> = "Options";
    }

    /// Arguments for CNI plugins.
    Cni("CNIConfig") {
        args: Option<BTreeMap<String, String>> = "Args";
    }
}
