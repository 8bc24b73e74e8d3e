//! Services, the same in groups and tasks.

use super::mesh::CONNECT;
use super::task::IDENTITY;
use crate::schema::{Content, Kind, Schema, attr, many, one};

pub(super) static SERVICE: Schema = Schema {
    name: "service",
    attributes: &[
        attr("address", "Address", Kind::Str),
        attr("address_mode", "AddressMode", Kind::Str),
        attr("canary_tags", "CanaryTags", Kind::Strings),
        attr("cluster", "Cluster", Kind::Str),
        attr("enable_tag_override", "EnableTagOverride", Kind::Bool),
        attr("kind", "Kind", Kind::Str),
        attr("name", "Name", Kind::Str),
        attr("on_update", "OnUpdate", Kind::Str),
        attr("port", "PortLabel", Kind::Str),
        attr("provider", "Provider", Kind::Str),
        attr("tags", "Tags", Kind::Strings),
        attr("task", "TaskName", Kind::Str),
    ],
    blocks: &[
        one("canary_meta", "CanaryMeta", Content::StringsOrAttribute),
        many("check", "Checks", &CHECK),
        one("check_restart", "CheckRestart", Content::Schema(&CHECK_RESTART)),
        one("connect", "Connect", Content::Schema(&CONNECT)),
        one("identity", "Identity", Content::Schema(&IDENTITY)),
        one("meta", "Meta", Content::StringsOrAttribute),
        one("tagged_addresses", "TaggedAddresses", Content::StringsOrAttribute),
        one("weights", "Weights", Content::Schema(&WEIGHTS)),
    ],
    finish: None,
};

static CHECK: Schema = Schema {
    name: "check",
    attributes: &[
        attr("address_mode", "AddressMode", Kind::Str),
        attr("advertise", "Advertise", Kind::Str),
        attr("args", "Args", Kind::Strings),
        attr("body", "Body", Kind::Str),
        attr("command", "Command", Kind::Str),
        attr("expose", "Expose", Kind::Bool),
        attr("failures_before_critical", "FailuresBeforeCritical", Kind::Int),
        attr("failures_before_warning", "FailuresBeforeWarning", Kind::Int),
        attr("grpc_service", "GRPCService", Kind::Str),
        attr("grpc_use_tls", "GRPCUseTLS", Kind::Bool),
        attr("initial_status", "InitialStatus", Kind::Str),
        attr("interval", "Interval", Kind::Duration),
        attr("method", "Method", Kind::Str),
        attr("name", "Name", Kind::Str),
        attr("notes", "Notes", Kind::Str),
        attr("on_update", "OnUpdate", Kind::Str),
        attr("path", "Path", Kind::Str),
        attr("port", "PortLabel", Kind::Str),
        attr("protocol", "Protocol", Kind::Str),
        attr("success_before_passing", "SuccessBeforePassing", Kind::Int),
        attr("task", "TaskName", Kind::Str),
        attr("timeout", "Timeout", Kind::Duration),
        attr("tls_server_name", "TLSServerName", Kind::Str),
        attr("tls_skip_verify", "TLSSkipVerify", Kind::Bool),
        attr("type", "Type", Kind::Str),
    ],
    blocks: &[
        one("check_restart", "CheckRestart", Content::Schema(&CHECK_RESTART)),
        one("header", "Header", Content::StringLists),
    ],
    finish: None,
};

static CHECK_RESTART: Schema = Schema {
    name: "check_restart",
    attributes: &[
        attr("grace", "Grace", Kind::Duration),
        attr("ignore_warnings", "IgnoreWarnings", Kind::Bool),
        attr("limit", "Limit", Kind::Int),
    ],
    blocks: &[],
    finish: None,
};

static WEIGHTS: Schema = Schema {
    name: "weights",
    attributes: &[attr("passing", "Passing", Kind::Int), attr("warning", "Warning", Kind::Int)],
    blocks: &[],
    finish: None,
};
