//! The task and its blocks.

use super::Nanos;
use super::macros::api_objects;
use super::network::NetworkResource;
use super::policy::{Affinity, Constraint, RestartPolicy, ScalingPolicy};
use super::service::Service;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

api_objects! {
    /// One process, container or machine of a group.
    Task("Task") {
        name: String = "Name";
        driver: String = "Driver";
        user: String = "User";
        lifecycle: Option<Lifecycle> = "Lifecycle";
        /// Free-form; the driver reads it.
        config: Option<Map<String, Value>> = "Config";
        constraints: Option<Vec<Constraint>> = "Constraints";
        affinities: Option<Vec<Affinity>> = "Affinities";
        env: Option<BTreeMap<String, String>> = "Env";
        services: Option<Vec<Service>> = "Services";
        resources: Option<Resources> = "Resources";
        restart: Option<RestartPolicy> = "RestartPolicy";
        meta: Option<BTreeMap<String, String>> = "Meta";
        kill_timeout: Option<Nanos> = "KillTimeout";
        log_config: Option<LogConfig> = "LogConfig";
        artifacts: Option<Vec<Artifact>> = "Artifacts";
        vault: Option<Vault> = "Vault";
        consul: Option<Consul> = "Consul";
        templates: Option<Vec<Template>> = "Templates";
        dispatch_payload: Option<DispatchPayload> = "DispatchPayload";
        volume_mounts: Option<Vec<VolumeMount>> = "VolumeMounts";
        csi_plugin: Option<CsiPlugin> = "CSIPluginConfig" omit "Option::is_none";
        leader: bool = "Leader";
        shutdown_delay: Nanos = "ShutdownDelay";
        kill_signal: String = "KillSignal";
        kind: String = "Kind";
        scaling_policies: Option<Vec<ScalingPolicy>> = "ScalingPolicies";
        secrets: Option<Vec<Secret>> = "Secrets";
        /// The default identity.
        identity: Option<WorkloadIdentity> = "Identity";
        /// All other identities.
        identities: Option<Vec<WorkloadIdentity>> = "Identities";
        actions: Option<Vec<Action>> = "Actions";
        schedule: Option<TaskSchedule> = "Schedule";
    }

    /// The time of a task relative to the main tasks.
    Lifecycle("TaskLifecycle") {
        /// `prestart`, `poststart` or `poststop`.
        hook: String = "Hook";
        sidecar: bool = "Sidecar";
    }

    /// The resources that a task needs on its node.
    Resources("Resources") {
        /// MHz.
        cpu: Option<i64> = "CPU";
        cores: Option<i64> = "Cores";
        memory_mb: Option<i64> = "MemoryMB";
        memory_max_mb: Option<i64> = "MemoryMaxMB";
        disk_mb: Option<i64> = "DiskMB";
        networks: Option<Vec<NetworkResource>> = "Networks";
        devices: Option<Vec<RequestedDevice>> = "Devices";
        numa: Option<Numa> = "NUMA";
        secrets_mb: Option<i64> = "SecretsMB";
        iops: Option<i64> = "IOPS";
    }

    /// A device by `type`, `vendor/type` or `vendor/type/name`.
    RequestedDevice("RequestedDevice") {
        name: String = "Name";
        count: Option<u64> = "Count";
        constraints: Option<Vec<Constraint>> = "Constraints";
        affinities: Option<Vec<Affinity>> = "Affinities";
    }

    /// Placement on NUMA nodes.
    Numa("NUMAResource") {
        affinity: String = "Affinity";
        devices: Option<Vec<String>> = "Devices";
    }

    /// Rotation of a task's output.
    LogConfig("LogConfig") {
        max_files: Option<i64> = "MaxFiles";
        max_file_size_mb: Option<i64> = "MaxFileSizeMB";
        /// Old negated alias of `Disabled`.
        enabled: Option<bool> = "Enabled";
        disabled: Option<bool> = "Disabled";
    }

    /// A file or directory that is fetched before the task starts.
    Artifact("TaskArtifact") {
        source: Option<String> = "GetterSource";
        options: Option<BTreeMap<String, String>> = "GetterOptions";
        headers: Option<BTreeMap<String, String>> = "GetterHeaders";
        /// `any`, `file` or `dir`.
        mode: Option<String> = "GetterMode";
        insecure: Option<bool> = "GetterInsecure";
        destination: Option<String> = "RelativeDest";
        chown: bool = "Chown";
    }

    /// Access to a secret store.
    Vault("Vault") {
        policies: Option<Vec<String>> = "Policies";
        role: String = "Role";
        namespace: Option<String> = "Namespace";
        cluster: String = "Cluster";
        env: Option<bool> = "Env";
        disable_file: Option<bool> = "DisableFile";
        change_mode: Option<String> = "ChangeMode";
        change_signal: Option<String> = "ChangeSignal";
        allow_token_expiration: Option<bool> = "AllowTokenExpiration";
    }

    /// The service registry of a group or task.
    Consul("Consul") {
        namespace: String = "Namespace";
        cluster: String = "Cluster";
        partition: String = "Partition";
    }

    /// A file rendered for the task.
    Template("Template") {
        source: Option<String> = "SourcePath";
        destination: Option<String> = "DestPath";
        data: Option<String> = "EmbeddedTmpl";
        change_mode: Option<String> = "ChangeMode";
        change_script: Option<ChangeScript> = "ChangeScript";
        change_signal: Option<String> = "ChangeSignal";
        once: Option<bool> = "Once";
        splay: Option<Nanos> = "Splay";
        perms: Option<String> = "Perms";
        uid: Option<i64> = "Uid";
        gid: Option<i64> = "Gid";
        left_delim: Option<String> = "LeftDelim";
        right_delim: Option<String> = "RightDelim";
        env: Option<bool> = "Envvars";
        vault_grace: Option<Nanos> = "VaultGrace";
        wait: Option<WaitConfig> = "Wait";
        error_on_missing_key: Option<bool> = "ErrMissingKey";
    }

    /// A program run inside the task when a template changes.
    ChangeScript("ChangeScript") {
        command: Option<String> = "Command";
        args: Option<Vec<String>> = "Args";
        timeout: Option<Nanos> = "Timeout";
        fail_on_error: Option<bool> = "FailOnError";
        run_on_first_render: Option<bool> = "RunOnFirstRender";
    }

    /// The time for which template changes are collected.
    WaitConfig("WaitConfig") {
        min: Option<Nanos> = "Min";
        max: Option<Nanos> = "Max";
    }

    /// The file to which a dispatch payload is written.
    DispatchPayload("DispatchPayloadConfig") {
        file: String = "File";
    }

    /// The place of a group's volume in the task (docs/reference/storage.md, section 4.2).
    VolumeMount("VolumeMount") {
        volume: Option<String> = "Volume";
        destination: Option<String> = "Destination";
        read_only: Option<bool> = "ReadOnly";
        /// `private`, `host-to-task` or `bidirectional`.
        propagation_mode: Option<String> = "PropagationMode";
        selinux_label: Option<String> = "SELinuxLabel";
    }

    /// The settings of a task that is a CSI plugin (docs/reference/storage.md, section 1.1).
    CsiPlugin("TaskCSIPluginConfig") {
        id: String = "ID";
        /// `node`, `controller` or `monolith`.
        kind: String = "Type";
        mount_dir: String = "MountDir";
        stage_publish_base_dir: String = "StagePublishBaseDir";
        health_timeout: Nanos = "HealthTimeout";
    }

    /// A secret read before the task starts.
    Secret("Secret") {
        name: String = "Name";
        provider: String = "Provider";
        path: String = "Path";
        config: Option<Map<String, Value>> = "Config";
        env: Option<BTreeMap<String, String>> = "Env";
    }

    /// A token that identifies the task.
    WorkloadIdentity("WorkloadIdentity") {
        name: String = "Name";
        audience: Option<Vec<String>> = "Audience";
        change_mode: String = "ChangeMode";
        change_signal: String = "ChangeSignal";
        env: bool = "Env";
        file: bool = "File";
        filepath: String = "Filepath";
        service_name: String = "ServiceName";
        ttl: Nanos = "TTL";
        extra_claims: Option<Vec<String>> = "ExtraClaims";
    }

    /// A command that operators can run in the task.
    Action("Action") {
        name: String = "Name";
        command: String = "Command";
        args: Option<Vec<String>> = "Args";
    }

    /// The times of day at which a task runs.
    TaskSchedule("TaskSchedule") {
        cron: Option<TaskScheduleCron> = "Cron";
    }

    /// Start and end of a scheduled task.
    TaskScheduleCron("TaskScheduleCron") {
        start: String = "Start";
        end: String = "End";
        timezone: String = "Timezone";
    }
}
