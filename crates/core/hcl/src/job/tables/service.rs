//! The tables of services, which groups and tasks share.

use super::mesh::CONNECT;
use super::task::IDENTITY;
use crate::schema::{Content, Kind, Schema, attr, many, one, plain};

pub(super) static SERVICE: Schema = Schema {
    name: "service",
    attributes: &[
        plain("address", "Address", Kind::Str).doc("Address that is registered instead of the found one."),
        plain("address_mode", "AddressMode", Kind::Str)
            .doc("Which address is registered.")
            .default("auto")
            .values(&["auto", "host", "alloc", "alloc_ipv6", "driver"]),
        attr("canary_tags", "CanaryTags", Kind::Strings).doc("Tags of canaries, in place of `tags`."),
        plain("cluster", "Cluster", Kind::Str).doc("Name of the Consul cluster.").default("default"),
        plain("enable_tag_override", "EnableTagOverride", Kind::Bool)
            .doc("Tags changed in the catalog stay.")
            .default("false"),
        plain("kind", "Kind", Kind::Str).doc("Kind of service in Consul; set for gateways."),
        plain("name", "Name", Kind::Str).doc("Name in the catalog.").default("`<job>-<group>-<task>`"),
        plain("on_update", "OnUpdate", Kind::Str)
            .doc("Which checks an update waits for.")
            .default("require_healthy")
            .values(&["require_healthy", "ignore_warnings", "ignore"]),
        plain("port", "PortLabel", Kind::Str).doc("Label of a port, or a number."),
        plain("provider", "Provider", Kind::Str)
            .doc("Catalog of the service.")
            .default("consul")
            .values(&["consul", "nomad"]),
        attr("tags", "Tags", Kind::Strings).doc("Tags."),
        plain("task", "TaskName", Kind::Str).doc("Task that a service of the group belongs to."),
    ],
    blocks: &[
        one("canary_meta", "CanaryMeta", Content::Strings).doc("Meta data of canaries, in place of `meta`."),
        many("check", "Checks", &CHECK).doc("A health check."),
        one("check_restart", "CheckRestart", Content::Schema(&CHECK_RESTART))
            .doc("Restarts tasks whose check fails."),
        one("connect", "Connect", Content::Schema(&CONNECT)).doc("Service mesh."),
        one("identity", "Identity", Content::Schema(&IDENTITY)).doc("An identity token of the workload."),
        one("meta", "Meta", Content::Strings).doc("Meta data: names with strings."),
        one("tagged_addresses", "TaggedAddresses", Content::Strings).doc("Further addresses with names."),
        one("weights", "Weights", Content::Schema(&WEIGHTS)).doc("Weights in DNS answers."),
    ],
    finish: None,
};

static CHECK: Schema = Schema {
    name: "check",
    attributes: &[
        plain("address_mode", "AddressMode", Kind::Str).doc("Which address is checked.").values(&[
            "host",
            "alloc",
            "alloc_ipv6",
            "driver",
        ]),
        plain("advertise", "Advertise", Kind::Str).doc("Address that is registered for the check."),
        attr("args", "Args", Kind::Strings).doc("Arguments of the command."),
        plain("body", "Body", Kind::Str).doc("Body of the HTTP request."),
        plain("command", "Command", Kind::Str).doc("Program of a script check."),
        plain("expose", "Expose", Kind::Bool)
            .doc("Make a path of the sidecar reachable for this check.")
            .default("false"),
        plain("failures_before_critical", "FailuresBeforeCritical", Kind::Int)
            .doc("Failures in a row that make it critical.")
            .default("0"),
        plain("failures_before_warning", "FailuresBeforeWarning", Kind::Int)
            .doc("Failures in a row that make it a warning.")
            .default("0"),
        plain("grpc_service", "GRPCService", Kind::Str).doc("Service asked for in a gRPC check."),
        plain("grpc_use_tls", "GRPCUseTLS", Kind::Bool).doc("TLS for gRPC checks.").default("false"),
        plain("initial_status", "InitialStatus", Kind::Str)
            .doc("Status before the first run.")
            .default("critical")
            .values(&["passing", "warning", "critical"]),
        attr("interval", "Interval", Kind::Duration).doc("Time between two runs, at least 1s."),
        plain("method", "Method", Kind::Str).doc("HTTP method.").default("GET"),
        plain("name", "Name", Kind::Str).doc("Name of the check.").default("service: \"<name>\" check"),
        plain("notes", "Notes", Kind::Str).doc("Text for people."),
        plain("on_update", "OnUpdate", Kind::Str)
            .doc("Whether an update waits for it.")
            .default("that of the service")
            .values(&["require_healthy", "ignore_warnings", "ignore"]),
        plain("path", "Path", Kind::Str).doc("Path of an HTTP check."),
        plain("port", "PortLabel", Kind::Str)
            .doc("Label of a port, or a number.")
            .default("that of the service"),
        plain("protocol", "Protocol", Kind::Str)
            .doc("Protocol of an HTTP check.")
            .default("http")
            .values(&["http", "https"]),
        plain("success_before_passing", "SuccessBeforePassing", Kind::Int)
            .doc("Successes in a row that make it passing.")
            .default("0"),
        plain("task", "TaskName", Kind::Str).doc("Task that a script check runs in."),
        attr("timeout", "Timeout", Kind::Duration).doc("Longest time that a run may take, at least 1s."),
        plain("tls_server_name", "TLSServerName", Kind::Str).doc("Name expected in the certificate."),
        plain("tls_skip_verify", "TLSSkipVerify", Kind::Bool).doc("Accept any certificate.").default("false"),
        plain("type", "Type", Kind::Str).doc("Kind of check.").values(&["http", "tcp", "grpc", "script"]),
    ],
    blocks: &[
        one("check_restart", "CheckRestart", Content::Schema(&CHECK_RESTART))
            .doc("Restarts tasks whose check fails."),
        one("header", "Header", Content::StringLists).doc("HTTP headers, each a list of values."),
    ],
    finish: None,
};

static CHECK_RESTART: Schema = Schema {
    name: "check_restart",
    attributes: &[
        attr("grace", "Grace", Kind::Duration)
            .doc("Time after a start in which failures do not count.")
            .default("1s"),
        plain("ignore_warnings", "IgnoreWarnings", Kind::Bool)
            .doc("Warnings count as passing.")
            .default("false"),
        plain("limit", "Limit", Kind::Int)
            .doc("Failures in a row that restart the task; 0 is never.")
            .default("0"),
    ],
    blocks: &[],
    finish: None,
};

static WEIGHTS: Schema = Schema {
    name: "weights",
    attributes: &[
        plain("passing", "Passing", Kind::Int).doc("Weight while passing.").default("1"),
        plain("warning", "Warning", Kind::Int).doc("Weight while warning.").default("1"),
    ],
    blocks: &[],
    finish: None,
};
