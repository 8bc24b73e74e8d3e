//! The tables of groups.

use super::finish;
use super::job::{AFFINITY, CONSTRAINT, MIGRATE, RESCHEDULE, RESTART, SPREAD, UPDATE};
use super::service::SERVICE;
use super::task::{CONSUL, SECRET, TASK, VAULT};
use crate::schema::{BlockType, Content, Kind, Repeat, Schema, attr, labelled, many, one, plain, required};

pub(super) static GROUP: Schema = Schema {
    name: "group",
    attributes: &[
        attr("count", "Count", Kind::Int)
            .doc("How many allocations run; system jobs: 0 or 1.")
            .default("1, or `min` of `scaling`"),
        attr("max_client_disconnect", "MaxClientDisconnect", Kind::Duration)
            .doc("How long a lost client may be away.")
            .deprecated("use `disconnect { lost_after }`"),
        attr("max_run_duration", "MaxRunDuration", Kind::Duration)
            .doc("Batch allocations are stopped after this time."),
        attr("prevent_reschedule_on_lost", "PreventRescheduleOnLost", Kind::Bool)
            .doc("Do not replace allocations of lost clients.")
            .deprecated("use `disconnect { replace }`"),
        attr("shutdown_delay", "ShutdownDelay", Kind::Duration)
            .doc("Pause between taking services out of the catalog and stopping tasks."),
        attr("stop_after_client_disconnect", "StopAfterClientDisconnect", Kind::Duration)
            .doc("Stop allocations when the client lost its servers for this long.")
            .deprecated("use `disconnect { stop_on_client_after }`"),
    ],
    blocks: &[
        many("affinity", "Affinities", &AFFINITY).doc("Prefers nodes."),
        many("constraint", "Constraints", &CONSTRAINT).doc("Restricts nodes."),
        one("consul", "Consul", Content::Schema(&CONSUL)).doc("Access to Consul."),
        one("disconnect", "Disconnect", Content::Schema(&DISCONNECT))
            .doc("What happens when a client is away."),
        one("ephemeral_disk", "EphemeralDisk", Content::Schema(&EPHEMERAL_DISK))
            .doc("Disk space of the allocation."),
        one("meta", "Meta", Content::StringsOrAttribute).doc("Meta data: names with strings."),
        one("migrate", "Migrate", Content::Schema(&MIGRATE)).doc("How a drain moves allocations."),
        many("network", "Networks", &NETWORK).doc("Network and ports."),
        one("reschedule", "ReschedulePolicy", Content::Schema(&RESCHEDULE))
            .doc("What happens to failed allocations."),
        one("restart", "RestartPolicy", Content::Schema(&RESTART))
            .doc("How failed tasks are restarted on their node."),
        one("scaling", "Scaling", Content::Schema(&SCALING)).doc("Limits for an autoscaler."),
        labelled("secret", "~Secrets", &SECRET).doc("Secrets fetched before the task starts."),
        many("service", "Services", &SERVICE).doc("A service in a catalog."),
        many("spread", "Spreads", &SPREAD).doc("Spreads allocations over values of an attribute."),
        labelled("task", "Tasks", &TASK).doc("A program that a driver runs."),
        one("update", "Update", Content::Schema(&UPDATE)).doc("How new versions replace old ones."),
        one("vault", "~Vault", Content::Schema(&VAULT)).doc("Access to Vault."),
        BlockType {
            name: "volume",
            key: "Volumes",
            labels: &["name"],
            repeat: Repeat::ByLabel,
            content: Content::Schema(&VOLUME),
            doc: "A volume that tasks of the group may mount.",
        },
    ],
    finish: Some(finish::group),
};

static DISCONNECT: Schema = Schema {
    name: "disconnect",
    attributes: &[
        attr("lost_after", "LostAfter", Kind::Duration)
            .doc("Allocations of a client that is away for this long are lost."),
        attr("reconcile", "Reconcile", Kind::Str)
            .doc("Which allocation stays when the client is back.")
            .default("best_score")
            .values(&["best_score", "keep_original", "keep_replacement", "longest_running"]),
        attr("replace", "Replace", Kind::Bool)
            .doc("Run replacements while the client is away.")
            .default("true"),
        attr("stop_on_client_after", "StopOnClientAfter", Kind::Duration)
            .doc("The client itself stops its allocations when it lost its servers for this long."),
    ],
    blocks: &[],
    finish: None,
};

static EPHEMERAL_DISK: Schema = Schema {
    name: "ephemeral_disk",
    attributes: &[
        attr("migrate", "Migrate", Kind::Bool)
            .doc("Copy the data to the next node; implies `sticky`.")
            .default("false"),
        attr("size", "SizeMB", Kind::Int).doc("Size in MB.").default("300"),
        attr("sticky", "Sticky", Kind::Bool)
            .doc("Try to place the next version on the same node, and keep the data.")
            .default("false"),
    ],
    blocks: &[],
    finish: None,
};

static VOLUME: Schema = Schema {
    name: "volume",
    attributes: &[
        plain("access_mode", "AccessMode", Kind::Str).doc("Who may use the volume and how.").values(&[
            "single-node-reader-only",
            "single-node-writer",
            "multi-node-reader-only",
            "multi-node-single-writer",
            "multi-node-multi-writer",
            "single-node-single-writer",
            "single-node-multi-writer",
        ]),
        plain("attachment_mode", "AttachmentMode", Kind::Str)
            .doc("As a file system or as a device.")
            .values(&["file-system", "block-device"]),
        plain("broken_mount", "BrokenMount", Kind::Str)
            .doc("What happens to tasks whose mount is gone.")
            .default("hold")
            .values(&["hold", "restart", "remount"]),
        plain("group", "Group", Kind::Str).doc("Group owner that the mounted volume is given."),
        plain("mode", "Mode", Kind::Str).doc("Permissions of the mounted volume, such as `0770`."),
        plain("per_alloc", "PerAlloc", Kind::Bool)
            .doc("The source is the volume `source[index]`, one for each allocation.")
            .default("false"),
        plain("read_only", "ReadOnly", Kind::Bool).doc("Mount for reading only.").default("false"),
        plain("source", "Source", Kind::Str).doc("Id of the volume."),
        plain("sticky", "Sticky", Kind::Bool)
            .doc("Allocations keep the volume that they had.")
            .default("false"),
        plain("type", "Type", Kind::Str).doc("Kind of volume.").default("host").values(&["host", "csi"]),
        plain("user", "User", Kind::Str).doc("User owner that the mounted volume is given."),
    ],
    blocks: &[one("mount_options", "MountOptions", Content::Schema(&MOUNT_OPTIONS))
        .doc("How the volume is mounted.")],
    finish: None,
};

static MOUNT_OPTIONS: Schema = Schema {
    name: "mount_options",
    attributes: &[
        plain("fs_type", "FSType", Kind::Str).doc("File system type."),
        attr("mount_flags", "MountFlags", Kind::Strings).doc("Flags for the mount; may be secret."),
    ],
    blocks: &[],
    finish: None,
};

static SCALING: Schema = Schema {
    name: "scaling",
    attributes: &[
        attr("enabled", "Enabled", Kind::Bool).doc("Whether an autoscaler acts on it.").default("true"),
        required("max", "Max", Kind::Int).doc("Highest count."),
        attr("min", "Min", Kind::Int).doc("Lowest count.").default("count"),
        plain("type", "Type", Kind::Str).doc("Kind of policy.").default("horizontal").values(&["horizontal"]),
    ],
    blocks: &[one("policy", "Policy", Content::Free).doc("Passed on to the autoscaler.")],
    finish: Some(finish::group_scaling),
};

pub(super) static TASK_SCALING: Schema = Schema {
    name: "scaling",
    attributes: &[
        attr("enabled", "Enabled", Kind::Bool).doc("Whether an autoscaler acts on it.").default("true"),
        attr("max", "Max", Kind::Int).doc("Highest value."),
        attr("min", "Min", Kind::Int).doc("Lowest value."),
        plain("type", "Type", Kind::Str)
            .doc("Kind of policy.")
            .default("by label")
            .values(&["vertical_cpu", "vertical_mem"]),
    ],
    blocks: &[one("policy", "Policy", Content::Free).doc("Passed on to the autoscaler.")],
    finish: Some(finish::task_scaling),
};

pub(super) static NETWORK: Schema = Schema {
    name: "network",
    attributes: &[
        plain("cidr", "CIDR", Kind::Str).doc("Kept for older jobs; ports of this network are chosen."),
        plain("device", "Device", Kind::Str).doc("Kept for older jobs; name of the interface."),
        plain("hostname", "Hostname", Kind::Str).doc("Host name inside the network namespace."),
        plain("ip", "IP", Kind::Str).doc("Kept for older jobs; address of the interface."),
        attr("mbits", "MBits", Kind::Int).doc("Bandwidth.").deprecated("it has no effect"),
        plain("mode", "Mode", Kind::Str)
            .doc("Kind of network.")
            .default("host")
            .values(&["host", "bridge", "none", "cni/NAME"]),
    ],
    blocks: &[
        one("cni", "CNI", Content::Schema(&CNI)).doc("Arguments for CNI plugins."),
        one("dns", "DNS", Content::Schema(&DNS)).doc("Name resolution of the allocation."),
        BlockType {
            name: "port",
            key: "~Ports",
            labels: &["label"],
            repeat: Repeat::Many,
            content: Content::Schema(&PORT),
            doc: "A port.",
        },
        BlockType {
            name: "reserved_ports",
            key: "ReservedPorts",
            labels: &["label"],
            repeat: Repeat::Many,
            content: Content::Schema(&PORT),
            doc: "Ports as the API has them; use `port`.",
        },
    ],
    finish: Some(finish::network),
};

static CNI: Schema = Schema {
    name: "cni",
    attributes: &[],
    blocks: &[one("args", "Args", Content::StringsOrAttribute).doc("Names with values.")],
    finish: None,
};

static DNS: Schema = Schema {
    name: "dns",
    attributes: &[
        attr("options", "Options", Kind::Strings).doc("Options of the resolver."),
        attr("searches", "Searches", Kind::Strings).doc("Search domains."),
        attr("servers", "Servers", Kind::Strings).doc("Addresses of name servers."),
    ],
    blocks: &[],
    finish: None,
};

static PORT: Schema = Schema {
    name: "port",
    attributes: &[
        plain("host_network", "HostNetwork", Kind::Str)
            .doc("Which of the networks of the host is used.")
            .default("default"),
        plain("ignore_collision", "IgnoreCollision", Kind::Bool)
            .doc("Several allocations may share this port; host mode only.")
            .default("false"),
        plain("static", "Value", Kind::Int).doc("Port of the host; without it one is chosen."),
        plain("to", "To", Kind::Int)
            .doc("Port inside the network namespace; -1 is the port of the host.")
            .default("0"),
    ],
    blocks: &[],
    finish: Some(finish::port),
};
