//! The group.

use super::finish;
use super::job::{AFFINITY, CONSTRAINT, MIGRATE, RESCHEDULE, RESTART, SPREAD, UPDATE};
use super::service::SERVICE;
use super::task::{CONSUL, SECRET, TASK, VAULT};
use crate::schema::{BlockType, Content, Kind, Repeat, Schema, attr, labelled, many, one, required};

pub(super) static GROUP: Schema = Schema {
    name: "group",
    attributes: &[
        attr("count", "Count", Kind::Int),
        attr("max_client_disconnect", "MaxClientDisconnect", Kind::Duration),
        attr("max_run_duration", "MaxRunDuration", Kind::Duration),
        attr("prevent_reschedule_on_lost", "PreventRescheduleOnLost", Kind::Bool),
        attr("shutdown_delay", "ShutdownDelay", Kind::Duration),
        attr("stop_after_client_disconnect", "StopAfterClientDisconnect", Kind::Duration),
    ],
    blocks: &[
        many("affinity", "Affinities", &AFFINITY),
        many("constraint", "Constraints", &CONSTRAINT),
        one("consul", "Consul", Content::Schema(&CONSUL)),
        one("disconnect", "Disconnect", Content::Schema(&DISCONNECT)),
        one("ephemeral_disk", "EphemeralDisk", Content::Schema(&EPHEMERAL_DISK)),
        one("meta", "Meta", Content::StringsOrAttribute),
        one("migrate", "Migrate", Content::Schema(&MIGRATE)),
        many("network", "Networks", &NETWORK),
        one("reschedule", "ReschedulePolicy", Content::Schema(&RESCHEDULE)),
        one("restart", "RestartPolicy", Content::Schema(&RESTART)),
        one("scaling", "Scaling", Content::Schema(&SCALING)),
        labelled("secret", "~Secrets", &SECRET),
        many("service", "Services", &SERVICE),
        many("spread", "Spreads", &SPREAD),
        labelled("task", "Tasks", &TASK),
        one("update", "Update", Content::Schema(&UPDATE)),
        one("vault", "~Vault", Content::Schema(&VAULT)),
        BlockType {
            name: "volume",
            key: "Volumes",
            labels: &["name"],
            repeat: Repeat::ByLabel,
            content: Content::Schema(&VOLUME),
        },
    ],
    finish: Some(finish::group),
};

static DISCONNECT: Schema = Schema {
    name: "disconnect",
    attributes: &[
        attr("lost_after", "LostAfter", Kind::Duration),
        attr("reconcile", "Reconcile", Kind::Str),
        attr("replace", "Replace", Kind::Bool),
        attr("stop_on_client_after", "StopOnClientAfter", Kind::Duration),
    ],
    blocks: &[],
    finish: None,
};

static EPHEMERAL_DISK: Schema = Schema {
    name: "ephemeral_disk",
    attributes: &[
        attr("migrate", "Migrate", Kind::Bool),
        attr("size", "SizeMB", Kind::Int),
        attr("sticky", "Sticky", Kind::Bool),
    ],
    blocks: &[],
    finish: None,
};

static VOLUME: Schema = Schema {
    name: "volume",
    attributes: &[
        attr("access_mode", "AccessMode", Kind::Str),
        attr("attachment_mode", "AttachmentMode", Kind::Str),
        attr("broken_mount", "BrokenMount", Kind::Str),
        attr("group", "Group", Kind::Str),
        attr("mode", "Mode", Kind::Str),
        attr("per_alloc", "PerAlloc", Kind::Bool),
        attr("read_only", "ReadOnly", Kind::Bool),
        attr("source", "Source", Kind::Str),
        attr("sticky", "Sticky", Kind::Bool),
        attr("type", "Type", Kind::Str),
        attr("user", "User", Kind::Str),
    ],
    blocks: &[one("mount_options", "MountOptions", Content::Schema(&MOUNT_OPTIONS))],
    finish: None,
};

static MOUNT_OPTIONS: Schema = Schema {
    name: "mount_options",
    attributes: &[attr("fs_type", "FSType", Kind::Str), attr("mount_flags", "MountFlags", Kind::Strings)],
    blocks: &[],
    finish: None,
};

static SCALING: Schema = Schema {
    name: "scaling",
    attributes: &[
        attr("enabled", "Enabled", Kind::Bool),
        required("max", "Max", Kind::Int),
        attr("min", "Min", Kind::Int),
        attr("type", "Type", Kind::Str),
    ],
    blocks: &[one("policy", "Policy", Content::Free)],
    finish: Some(finish::group_scaling),
};

pub(super) static TASK_SCALING: Schema = Schema {
    name: "scaling",
    attributes: &[
        attr("enabled", "Enabled", Kind::Bool),
        required("max", "Max", Kind::Int),
        attr("min", "Min", Kind::Int),
        attr("type", "Type", Kind::Str),
    ],
    blocks: &[one("policy", "Policy", Content::Free)],
    finish: Some(finish::task_scaling),
};

pub(super) static NETWORK: Schema = Schema {
    name: "network",
    attributes: &[
        attr("cidr", "CIDR", Kind::Str),
        attr("device", "Device", Kind::Str),
        attr("hostname", "Hostname", Kind::Str),
        attr("ip", "IP", Kind::Str),
        attr("mbits", "MBits", Kind::Int),
        attr("mode", "Mode", Kind::Str),
    ],
    blocks: &[
        one("cni", "CNI", Content::Schema(&CNI)),
        one("dns", "DNS", Content::Schema(&DNS)),
        BlockType {
            name: "port",
            key: "~Ports",
            labels: &["label"],
            repeat: Repeat::Many,
            content: Content::Schema(&PORT),
        },
        BlockType {
            name: "reserved_ports",
            key: "ReservedPorts",
            labels: &["label"],
            repeat: Repeat::Many,
            content: Content::Schema(&PORT),
        },
    ],
    finish: Some(finish::network),
};

static CNI: Schema = Schema {
    name: "cni",
    attributes: &[],
    blocks: &[one("args", "Args", Content::StringsOrAttribute)],
    finish: None,
};

static DNS: Schema = Schema {
    name: "dns",
    attributes: &[
        attr("options", "Options", Kind::Strings),
        attr("searches", "Searches", Kind::Strings),
        attr("servers", "Servers", Kind::Strings),
    ],
    blocks: &[],
    finish: None,
};

static PORT: Schema = Schema {
    name: "port",
    attributes: &[
        attr("host_network", "HostNetwork", Kind::Str),
        attr("ignore_collision", "IgnoreCollision", Kind::Bool),
        attr("static", "Value", Kind::Int),
        attr("to", "To", Kind::Int),
    ],
    blocks: &[],
    finish: Some(finish::port),
};
