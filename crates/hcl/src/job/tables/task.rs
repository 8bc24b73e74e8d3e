//! The task.

use super::finish;
use super::group::{NETWORK, TASK_SCALING};
use super::job::{AFFINITY, CONSTRAINT, RESTART};
use super::service::SERVICE;
use crate::schema::{Content, Kind, Schema, attr, labelled, many, one, required};

pub(super) static TASK: Schema = Schema {
    name: "task",
    attributes: &[
        attr("driver", "Driver", Kind::Str),
        attr("kill_signal", "KillSignal", Kind::Str),
        attr("kill_timeout", "KillTimeout", Kind::Duration),
        attr("kind", "Kind", Kind::Str),
        attr("leader", "Leader", Kind::Bool),
        attr("shutdown_delay", "ShutdownDelay", Kind::Duration),
        attr("user", "User", Kind::Str),
    ],
    blocks: &[
        labelled("action", "Actions", &ACTION),
        many("affinity", "Affinities", &AFFINITY),
        many("artifact", "Artifacts", &ARTIFACT),
        one("config", "Config", Content::Free),
        many("constraint", "Constraints", &CONSTRAINT),
        one("consul", "Consul", Content::Schema(&CONSUL)),
        one("csi_plugin", "CSIPluginConfig", Content::Schema(&CSI_PLUGIN)),
        one("dispatch_payload", "DispatchPayload", Content::Schema(&DISPATCH_PAYLOAD)),
        one("env", "Env", Content::StringsOrAttribute),
        many("identity", "Identities", &IDENTITY),
        one("lifecycle", "Lifecycle", Content::Schema(&LIFECYCLE)),
        one("logs", "LogConfig", Content::Schema(&LOGS)),
        one("meta", "Meta", Content::StringsOrAttribute),
        one("resources", "Resources", Content::Schema(&RESOURCES)),
        one("restart", "RestartPolicy", Content::Schema(&RESTART)),
        labelled("scaling", "ScalingPolicies", &TASK_SCALING),
        one("schedule", "Schedule", Content::Schema(&SCHEDULE)),
        labelled("secret", "Secrets", &SECRET),
        many("service", "Services", &SERVICE),
        many("template", "Templates", &TEMPLATE),
        one("vault", "Vault", Content::Schema(&VAULT)),
        many("volume_mount", "VolumeMounts", &VOLUME_MOUNT),
    ],
    finish: Some(finish::task),
};

static ACTION: Schema = Schema {
    name: "action",
    attributes: &[attr("args", "Args", Kind::Strings), attr("command", "Command", Kind::Str)],
    blocks: &[],
    finish: None,
};

static ARTIFACT: Schema = Schema {
    name: "artifact",
    attributes: &[
        attr("chown", "Chown", Kind::Bool),
        attr("destination", "RelativeDest", Kind::Str),
        attr("insecure", "GetterInsecure", Kind::Bool),
        attr("mode", "GetterMode", Kind::Str),
        attr("source", "GetterSource", Kind::Str),
    ],
    blocks: &[
        one("headers", "GetterHeaders", Content::StringsOrAttribute),
        one("options", "GetterOptions", Content::StringsOrAttribute),
    ],
    finish: None,
};

pub(super) static CONSUL: Schema = Schema {
    name: "consul",
    attributes: &[
        attr("cluster", "Cluster", Kind::Str),
        attr("namespace", "Namespace", Kind::Str),
        attr("partition", "Partition", Kind::Str),
    ],
    blocks: &[],
    finish: None,
};

static CSI_PLUGIN: Schema = Schema {
    name: "csi_plugin",
    attributes: &[
        attr("health_timeout", "HealthTimeout", Kind::Duration),
        attr("id", "ID", Kind::Str),
        attr("mount_dir", "MountDir", Kind::Str),
        attr("stage_publish_base_dir", "StagePublishBaseDir", Kind::Str),
        attr("type", "Type", Kind::Str),
    ],
    blocks: &[],
    finish: None,
};

static DISPATCH_PAYLOAD: Schema = Schema {
    name: "dispatch_payload",
    attributes: &[attr("file", "File", Kind::Str)],
    blocks: &[],
    finish: None,
};

pub(super) static IDENTITY: Schema = Schema {
    name: "identity",
    attributes: &[
        attr("aud", "Audience", Kind::Strings),
        attr("change_mode", "ChangeMode", Kind::Str),
        attr("change_signal", "ChangeSignal", Kind::Str),
        attr("env", "Env", Kind::Bool),
        attr("extra_claims", "ExtraClaims", Kind::Strings),
        attr("file", "File", Kind::Bool),
        attr("filepath", "Filepath", Kind::Str),
        attr("name", "Name", Kind::Str),
        attr("service_name", "ServiceName", Kind::Str),
        attr("ttl", "TTL", Kind::Duration),
    ],
    blocks: &[],
    finish: None,
};

static LIFECYCLE: Schema = Schema {
    name: "lifecycle",
    attributes: &[required("hook", "Hook", Kind::Str), attr("sidecar", "Sidecar", Kind::Bool)],
    blocks: &[],
    finish: None,
};

pub(super) static LOGS: Schema = Schema {
    name: "logs",
    attributes: &[
        attr("disabled", "Disabled", Kind::Bool),
        attr("enabled", "Enabled", Kind::Bool),
        attr("max_file_size", "MaxFileSizeMB", Kind::Int),
        attr("max_files", "MaxFiles", Kind::Int),
    ],
    blocks: &[],
    finish: None,
};

pub(super) static RESOURCES: Schema = Schema {
    name: "resources",
    attributes: &[
        attr("cores", "Cores", Kind::Int),
        attr("cpu", "CPU", Kind::Int),
        attr("disk", "DiskMB", Kind::Int),
        attr("iops", "IOPS", Kind::Int),
        attr("memory", "MemoryMB", Kind::Int),
        attr("memory_max", "MemoryMaxMB", Kind::Int),
        attr("secrets", "SecretsMB", Kind::Int),
    ],
    blocks: &[
        labelled("device", "Devices", &DEVICE),
        many("network", "Networks", &NETWORK),
        one("numa", "NUMA", Content::Schema(&NUMA)),
    ],
    finish: None,
};

static DEVICE: Schema = Schema {
    name: "device",
    attributes: &[attr("count", "Count", Kind::Unsigned)],
    blocks: &[many("affinity", "Affinities", &AFFINITY), many("constraint", "Constraints", &CONSTRAINT)],
    finish: None,
};

static NUMA: Schema = Schema {
    name: "numa",
    attributes: &[attr("affinity", "Affinity", Kind::Str), attr("devices", "Devices", Kind::Strings)],
    blocks: &[],
    finish: None,
};

static SCHEDULE: Schema = Schema {
    name: "schedule",
    attributes: &[],
    blocks: &[one("cron", "Cron", Content::Schema(&SCHEDULE_CRON))],
    finish: None,
};

static SCHEDULE_CRON: Schema = Schema {
    name: "cron",
    attributes: &[
        attr("end", "End", Kind::Str),
        attr("start", "Start", Kind::Str),
        attr("timezone", "Timezone", Kind::Str),
    ],
    blocks: &[],
    finish: None,
};

pub(super) static SECRET: Schema = Schema {
    name: "secret",
    attributes: &[attr("path", "Path", Kind::Str), attr("provider", "Provider", Kind::Str)],
    blocks: &[one("config", "Config", Content::Free), one("env", "Env", Content::StringsOrAttribute)],
    finish: None,
};

static TEMPLATE: Schema = Schema {
    name: "template",
    attributes: &[
        attr("change_mode", "ChangeMode", Kind::Str),
        attr("change_signal", "ChangeSignal", Kind::Str),
        attr("data", "EmbeddedTmpl", Kind::Str),
        attr("destination", "DestPath", Kind::Str),
        attr("env", "Envvars", Kind::Bool),
        attr("error_on_missing_key", "ErrMissingKey", Kind::Bool),
        attr("gid", "Gid", Kind::Int),
        attr("left_delimiter", "LeftDelim", Kind::Str),
        attr("once", "Once", Kind::Bool),
        attr("perms", "Perms", Kind::Str),
        attr("right_delimiter", "RightDelim", Kind::Str),
        attr("source", "SourcePath", Kind::Str),
        attr("splay", "Splay", Kind::Duration),
        attr("uid", "Uid", Kind::Int),
        attr("vault_grace", "VaultGrace", Kind::Duration),
    ],
    blocks: &[
        one("change_script", "ChangeScript", Content::Schema(&CHANGE_SCRIPT)),
        one("wait", "Wait", Content::Schema(&WAIT)),
    ],
    finish: Some(finish::template),
};

static CHANGE_SCRIPT: Schema = Schema {
    name: "change_script",
    attributes: &[
        attr("args", "Args", Kind::Strings),
        attr("command", "Command", Kind::Str),
        required("fail_on_error", "FailOnError", Kind::Bool),
        attr("run_on_first_render", "RunOnFirstRender", Kind::Bool),
        attr("timeout", "Timeout", Kind::Duration),
    ],
    blocks: &[],
    finish: Some(finish::change_script),
};

static WAIT: Schema = Schema {
    name: "wait",
    attributes: &[attr("max", "Max", Kind::Duration), attr("min", "Min", Kind::Duration)],
    blocks: &[],
    finish: None,
};

pub(super) static VAULT: Schema = Schema {
    name: "vault",
    attributes: &[
        attr("allow_token_expiration", "AllowTokenExpiration", Kind::Bool),
        attr("change_mode", "ChangeMode", Kind::Str),
        attr("change_signal", "ChangeSignal", Kind::Str),
        attr("cluster", "Cluster", Kind::Str),
        attr("disable_file", "DisableFile", Kind::Bool),
        attr("env", "Env", Kind::Bool),
        attr("namespace", "Namespace", Kind::Str),
        attr("policies", "Policies", Kind::Strings),
        attr("role", "Role", Kind::Str),
    ],
    blocks: &[],
    finish: Some(finish::vault),
};

pub(super) static VOLUME_MOUNT: Schema = Schema {
    name: "volume_mount",
    attributes: &[
        attr("destination", "Destination", Kind::Str),
        attr("propagation_mode", "PropagationMode", Kind::Str),
        attr("read_only", "ReadOnly", Kind::Bool),
        attr("selinux_label", "SELinuxLabel", Kind::Str),
        attr("volume", "Volume", Kind::Str),
    ],
    blocks: &[],
    finish: None,
};
