//! The tables of tasks.

use super::finish;
use super::group::{NETWORK, TASK_SCALING};
use super::job::{AFFINITY, CONSTRAINT, RESTART};
use super::service::SERVICE;
use crate::schema::{BlockType, Content, Kind, Repeat, Schema, attr, labelled, many, one, plain, required};

pub(super) static TASK: Schema = Schema {
    name: "task",
    attributes: &[
        plain("driver", "Driver", Kind::Str).doc("Driver that runs it, such as `exec` or `docker`."),
        plain("kill_signal", "KillSignal", Kind::Str).doc("Signal that asks the task to stop."),
        attr("kill_timeout", "KillTimeout", Kind::Duration)
            .doc("Time between that signal and the end by force.")
            .default("5s"),
        plain("kind", "Kind", Kind::Str).doc("Set for tasks of the service mesh."),
        plain("leader", "Leader", Kind::Bool)
            .doc("When it ends, the other tasks of the group are stopped.")
            .default("false"),
        attr("shutdown_delay", "ShutdownDelay", Kind::Duration)
            .doc("Pause between taking services out of the catalog and stopping the task.")
            .default("0s"),
        plain("user", "User", Kind::Str).doc("User that it runs as."),
    ],
    blocks: &[
        labelled("action", "Actions", &ACTION).doc("A command that users may run in the task."),
        many("affinity", "Affinities", &AFFINITY).doc("Prefers nodes."),
        many("artifact", "Artifacts", &ARTIFACT).doc("Something that is fetched before the task starts."),
        one("config", "Config", Content::Free).doc("Settings for the driver, plugin or proxy."),
        many("constraint", "Constraints", &CONSTRAINT).doc("Restricts nodes."),
        one("consul", "Consul", Content::Schema(&CONSUL)).doc("Access to Consul."),
        one("csi_plugin", "CSIPluginConfig", Content::Schema(&CSI_PLUGIN)).doc("The task is a CSI plugin."),
        one("dispatch_payload", "DispatchPayload", Content::Schema(&DISPATCH_PAYLOAD))
            .doc("Where the payload of a dispatch is written."),
        one("env", "Env", Content::StringsOrAttribute).doc("Environment variables."),
        many("identity", "Identities", &IDENTITY).doc("An identity token of the workload."),
        one("lifecycle", "Lifecycle", Content::Schema(&LIFECYCLE))
            .doc("Runs before, after or along with the main tasks."),
        one("logs", "LogConfig", Content::Schema(&LOGS)).doc("How logs are kept."),
        one("meta", "Meta", Content::StringsOrAttribute).doc("Meta data: names with strings."),
        one("resources", "Resources", Content::Schema(&RESOURCES)).doc("What the task needs."),
        one("restart", "RestartPolicy", Content::Schema(&RESTART))
            .doc("How failed tasks are restarted on their node."),
        BlockType { repeat: Repeat::Distinct, ..labelled("scaling", "ScalingPolicies", &TASK_SCALING) }
            .doc("Limits for an autoscaler."),
        one("schedule", "Schedule", Content::Schema(&SCHEDULE)).doc("When the task runs."),
        labelled("secret", "Secrets", &SECRET).doc("Secrets fetched before the task starts."),
        many("service", "Services", &SERVICE).doc("A service in a catalog."),
        many("template", "Templates", &TEMPLATE).doc("A file rendered before the task starts."),
        one("vault", "Vault", Content::Schema(&VAULT)).doc("Access to Vault."),
        many("volume_mount", "VolumeMounts", &VOLUME_MOUNT).doc("Mounts a volume of the group."),
    ],
    finish: Some(finish::task),
};

static ACTION: Schema = Schema {
    name: "action",
    attributes: &[
        attr("args", "Args", Kind::Strings).doc("Arguments."),
        required("command", "Command", Kind::Str).plain().doc("Program run inside the task."),
    ],
    blocks: &[],
    finish: None,
};

static ARTIFACT: Schema = Schema {
    name: "artifact",
    attributes: &[
        plain("chown", "Chown", Kind::Bool).doc("Give the files to the user of the task.").default("false"),
        attr("destination", "RelativeDest", Kind::Str)
            .doc("Where it is put, below the directory of the task.")
            .default("local/"),
        attr("insecure", "GetterInsecure", Kind::Bool).doc("Accept any certificate.").default("false"),
        attr("mode", "GetterMode", Kind::Str)
            .doc("What the source is.")
            .default("any")
            .values(&["any", "file", "dir"]),
        attr("source", "GetterSource", Kind::Str).doc("URL of the source."),
    ],
    blocks: &[
        one("headers", "GetterHeaders", Content::Strings).doc("HTTP headers of the request."),
        one("options", "GetterOptions", Content::Strings).doc("Options of the source."),
    ],
    finish: None,
};

pub(super) static CONSUL: Schema = Schema {
    name: "consul",
    attributes: &[
        plain("cluster", "Cluster", Kind::Str).doc("Name of the Consul cluster.").default("default"),
        plain("namespace", "Namespace", Kind::Str).doc("Namespace in Consul."),
        plain("partition", "Partition", Kind::Str).doc("Admin partition in Consul."),
    ],
    blocks: &[],
    finish: None,
};

static CSI_PLUGIN: Schema = Schema {
    name: "csi_plugin",
    attributes: &[
        attr("health_timeout", "HealthTimeout", Kind::Duration)
            .doc("Time in which the plugin must become healthy.")
            .default("30s"),
        plain("id", "ID", Kind::Str).doc("Id of the plugin, as volumes name it."),
        plain("mount_dir", "MountDir", Kind::Str)
            .doc("Where the socket directory is in the task.")
            .default("/csi"),
        plain("stage_publish_base_dir", "StagePublishBaseDir", Kind::Str)
            .doc("Where volumes are staged and published in the task.")
            .default("/local/csi"),
        plain("type", "Type", Kind::Str).doc("What the plugin serves.").values(&[
            "node",
            "controller",
            "monolith",
        ]),
    ],
    blocks: &[],
    finish: None,
};

static DISPATCH_PAYLOAD: Schema = Schema {
    name: "dispatch_payload",
    attributes: &[plain("file", "File", Kind::Str).doc("File below `local/` that the payload is written to.")],
    blocks: &[],
    finish: None,
};

pub(super) static IDENTITY: Schema = Schema {
    name: "identity",
    attributes: &[
        attr("aud", "Audience", Kind::Strings).doc("Audience of the token."),
        plain("change_mode", "ChangeMode", Kind::Str)
            .doc("What happens when the token is renewed.")
            .values(&["noop", "restart", "signal"]),
        plain("change_signal", "ChangeSignal", Kind::Str).doc("Signal for `change_mode = \"signal\"`."),
        plain("env", "Env", Kind::Bool).doc("Put the token into the environment.").default("false"),
        attr("extra_claims", "ExtraClaims", Kind::Strings).doc("Claims that are added."),
        plain("file", "File", Kind::Bool).doc("Write the token to a file.").default("false"),
        plain("filepath", "Filepath", Kind::Str).doc("Where that file is, below the directory of the task."),
        plain("name", "Name", Kind::Str).doc("Name of the identity.").default("default"),
        plain("service_name", "ServiceName", Kind::Str).doc("Service that the identity is for."),
        attr("ttl", "TTL", Kind::Duration).doc("How long a token is valid."),
    ],
    blocks: &[],
    finish: None,
};

static LIFECYCLE: Schema = Schema {
    name: "lifecycle",
    attributes: &[
        required("hook", "Hook", Kind::Str).plain().doc("When the task runs.").values(&[
            "prestart",
            "poststart",
            "poststop",
        ]),
        plain("sidecar", "Sidecar", Kind::Bool)
            .doc("Whether it runs along with the main tasks.")
            .default("false"),
    ],
    blocks: &[],
    finish: None,
};

pub(super) static LOGS: Schema = Schema {
    name: "logs",
    attributes: &[
        attr("disabled", "Disabled", Kind::Bool).doc("Collect no logs.").default("false"),
        attr("enabled", "Enabled", Kind::Bool).doc("Collect logs.").deprecated("use `disabled`"),
        attr("max_file_size", "MaxFileSizeMB", Kind::Int).doc("Size of a log file in MB.").default("10"),
        attr("max_files", "MaxFiles", Kind::Int).doc("How many log files are kept.").default("10"),
    ],
    blocks: &[],
    finish: None,
};

pub(super) static RESOURCES: Schema = Schema {
    name: "resources",
    attributes: &[
        attr("cores", "Cores", Kind::Int).doc("Processor cores that no other task uses.").default("0"),
        attr("cpu", "CPU", Kind::Int).doc("Processor share in MHz.").default("100"),
        attr("disk", "DiskMB", Kind::Int).doc("Size in MB.").deprecated("use `ephemeral_disk` of the group"),
        attr("iops", "IOPS", Kind::Int).doc("I/O operations.").deprecated("it has no effect"),
        attr("memory", "MemoryMB", Kind::Int).doc("Memory in MB that is reserved.").default("300"),
        attr("memory_max", "MemoryMaxMB", Kind::Int)
            .doc("Memory in MB that may be used; -1 is all.")
            .default("0"),
        attr("secrets", "SecretsMB", Kind::Int).doc("Size of the secrets directory in MB.").default("1"),
    ],
    blocks: &[
        labelled("device", "Devices", &DEVICE).doc("A device."),
        many("network", "Networks", &NETWORK).doc("Network and ports."),
        one("numa", "NUMA", Content::Schema(&NUMA)).doc("Placement near memory."),
    ],
    finish: None,
};

static DEVICE: Schema = Schema {
    name: "device",
    attributes: &[attr("count", "Count", Kind::Unsigned).doc("How many.").default("1")],
    blocks: &[
        many("affinity", "Affinities", &AFFINITY).doc("Prefers nodes."),
        many("constraint", "Constraints", &CONSTRAINT).doc("Restricts nodes."),
    ],
    finish: None,
};

static NUMA: Schema = Schema {
    name: "numa",
    attributes: &[
        plain("affinity", "Affinity", Kind::Str)
            .doc("How much the cores must be near each other.")
            .default("none")
            .values(&["none", "prefer", "require"]),
        attr("devices", "Devices", Kind::Strings).doc("Devices that must be near the cores."),
    ],
    blocks: &[],
    finish: None,
};

static SCHEDULE: Schema = Schema {
    name: "schedule",
    attributes: &[],
    blocks: &[one("cron", "Cron", Content::Schema(&SCHEDULE_CRON)).doc("Times.")],
    finish: None,
};

static SCHEDULE_CRON: Schema = Schema {
    name: "cron",
    attributes: &[
        plain("end", "End", Kind::Str).doc("When the task is stopped, in cron syntax."),
        plain("start", "Start", Kind::Str).doc("When the task is started, in cron syntax."),
        plain("timezone", "Timezone", Kind::Str).doc("Time zone of both."),
    ],
    blocks: &[],
    finish: None,
};

pub(super) static SECRET: Schema = Schema {
    name: "secret",
    attributes: &[
        plain("path", "Path", Kind::Str).doc("Path of the secret."),
        plain("provider", "Provider", Kind::Str).doc("`nomad`, `vault`, or the name of a plugin."),
    ],
    blocks: &[
        one("config", "Config", Content::Free).doc("Settings for the driver, plugin or proxy."),
        one("env", "Env", Content::Strings).doc("Environment variables."),
    ],
    finish: None,
};

static TEMPLATE: Schema = Schema {
    name: "template",
    attributes: &[
        attr("change_mode", "ChangeMode", Kind::Str)
            .doc("What happens when the result changes.")
            .default("restart")
            .values(&["noop", "restart", "signal", "script"]),
        attr("change_signal", "ChangeSignal", Kind::Str).doc("Signal for `change_mode = \"signal\"`."),
        attr("data", "EmbeddedTmpl", Kind::Str).doc("The template itself."),
        attr("destination", "DestPath", Kind::Str)
            .doc("Where the result is written, below the directory of the task."),
        attr("env", "Envvars", Kind::Bool)
            .doc("Read the result as `KEY=value` lines into the environment.")
            .default("false"),
        attr("error_on_missing_key", "ErrMissingKey", Kind::Bool)
            .doc("A missing key is an error.")
            .default("false"),
        attr("gid", "Gid", Kind::Int).doc("Group owner of the file."),
        attr("left_delimiter", "LeftDelim", Kind::Str).doc("Opens an action.").default("{{"),
        attr("once", "Once", Kind::Bool).doc("Render once and do not watch.").default("false"),
        attr("perms", "Perms", Kind::Str).doc("Permissions of the file.").default("0644"),
        attr("right_delimiter", "RightDelim", Kind::Str).doc("Closes an action.").default("}}"),
        attr("source", "SourcePath", Kind::Str)
            .doc("File with the template, below the directory of the task."),
        attr("splay", "Splay", Kind::Duration)
            .doc("Longest random pause before acting on a change.")
            .default("5s"),
        attr("uid", "Uid", Kind::Int).doc("User owner of the file."),
        attr("vault_grace", "VaultGrace", Kind::Duration)
            .doc("Kept for older jobs.")
            .deprecated("it has no effect"),
    ],
    blocks: &[
        one("change_script", "ChangeScript", Content::Schema(&CHANGE_SCRIPT))
            .doc("Script that runs when the result changes."),
        one("wait", "Wait", Content::Schema(&WAIT)).doc("Waits for more changes before rendering."),
    ],
    finish: Some(finish::template),
};

static CHANGE_SCRIPT: Schema = Schema {
    name: "change_script",
    attributes: &[
        attr("args", "Args", Kind::Strings).doc("Arguments.").default("[]"),
        attr("command", "Command", Kind::Str).doc("Program run inside the task."),
        attr("fail_on_error", "FailOnError", Kind::Bool)
            .doc("Kill the task when the script fails.")
            .default("false"),
        attr("run_on_first_render", "RunOnFirstRender", Kind::Bool)
            .doc("Run it after the first rendering too.")
            .default("false"),
        attr("timeout", "Timeout", Kind::Duration)
            .doc("Longest time that the script may take.")
            .default("5s"),
    ],
    blocks: &[],
    finish: Some(finish::change_script),
};

static WAIT: Schema = Schema {
    name: "wait",
    attributes: &[
        attr("max", "Max", Kind::Duration).doc("Longest time to wait for more changes."),
        attr("min", "Min", Kind::Duration).doc("Shortest time to wait for more changes."),
    ],
    blocks: &[],
    finish: None,
};

pub(super) static VAULT: Schema = Schema {
    name: "vault",
    attributes: &[
        attr("allow_token_expiration", "AllowTokenExpiration", Kind::Bool)
            .doc("Do not renew the token.")
            .default("false"),
        attr("change_mode", "ChangeMode", Kind::Str)
            .doc("What happens when the token changes.")
            .default("restart")
            .values(&["noop", "restart", "signal"]),
        attr("change_signal", "ChangeSignal", Kind::Str).doc("Signal for `change_mode = \"signal\"`."),
        plain("cluster", "Cluster", Kind::Str).doc("Name of the Vault cluster.").default("default"),
        attr("disable_file", "DisableFile", Kind::Bool).doc("Write no token file.").default("false"),
        attr("env", "Env", Kind::Bool).doc("Put the token into the environment.").default("true"),
        attr("namespace", "Namespace", Kind::Str).doc("Namespace in Vault."),
        attr("policies", "Policies", Kind::Strings).doc("Policies of the token.").deprecated("use `role`"),
        plain("role", "Role", Kind::Str).doc("Role from which the token is created."),
    ],
    blocks: &[],
    finish: Some(finish::vault),
};

pub(super) static VOLUME_MOUNT: Schema = Schema {
    name: "volume_mount",
    attributes: &[
        attr("destination", "Destination", Kind::Str).doc("Where the volume is mounted in the task."),
        attr("propagation_mode", "PropagationMode", Kind::Str)
            .doc("Whether mounts show on the other side.")
            .default("private")
            .values(&["private", "host-to-task", "bidirectional"]),
        attr("read_only", "ReadOnly", Kind::Bool).doc("Mount for reading only.").default("false"),
        attr("selinux_label", "SELinuxLabel", Kind::Str).doc("SELinux label.").values(&["z", "Z"]),
        attr("volume", "Volume", Kind::Str).doc("Name of a `volume` of the group."),
    ],
    blocks: &[],
    finish: None,
};
