//! Services and their checks.

use super::Nanos;
use super::connect::Connect;
use super::macros::api_objects;
use super::task::WorkloadIdentity;
use std::collections::BTreeMap;

api_objects! {
    /// A service of a group or a task.
    Service("Service") {
        name: String = "Name";
        tags: Option<Vec<String>> = "Tags";
        canary_tags: Option<Vec<String>> = "CanaryTags";
        enable_tag_override: bool = "EnableTagOverride";
        /// A port label or a number.
        port_label: String = "PortLabel";
        address_mode: String = "AddressMode";
        address: String = "Address";
        checks: Option<Vec<ServiceCheck>> = "Checks";
        /// Merged into each check by the canonical form.
        check_restart: Option<CheckRestart> = "CheckRestart";
        connect: Option<Connect> = "Connect";
        meta: Option<BTreeMap<String, String>> = "Meta";
        canary_meta: Option<BTreeMap<String, String>> = "CanaryMeta";
        tagged_addresses: Option<BTreeMap<String, String>> = "TaggedAddresses";
        task_name: String = "TaskName";
        on_update: String = "OnUpdate";
        identity: Option<WorkloadIdentity> = "Identity";
        weights: Option<ServiceWeights> = "Weights";
        provider: String = "Provider";
        cluster: String = "Cluster";
        kind: String = "Kind";
    }

    /// Weights of a service in DNS answers.
    ServiceWeights("ServiceWeights") {
        passing: i64 = "Passing";
        warning: i64 = "Warning";
    }

    /// The rule by which a failing check restarts the task.
    CheckRestart("CheckRestart") {
        /// 0 means never.
        limit: i64 = "Limit";
        grace: Option<Nanos> = "Grace";
        ignore_warnings: bool = "IgnoreWarnings";
    }

    /// A health check of a service.
    ServiceCheck("ServiceCheck") {
        name: String = "Name";
        kind: String = "Type";
        command: String = "Command";
        args: Option<Vec<String>> = "Args";
        path: String = "Path";
        protocol: String = "Protocol";
        port_label: String = "PortLabel";
        expose: bool = "Expose";
        address_mode: String = "AddressMode";
        advertise: String = "Advertise";
        interval: Nanos = "Interval";
        timeout: Nanos = "Timeout";
        initial_status: String = "InitialStatus";
        notes: String = "Notes";
        tls_server_name: String = "TLSServerName";
        tls_skip_verify: bool = "TLSSkipVerify";
        header: Option<BTreeMap<String, Vec<String>>> = "Header";
        method: String = "Method";
        check_restart: Option<CheckRestart> = "CheckRestart";
        grpc_service: String = "GRPCService";
        grpc_use_tls: bool = "GRPCUseTLS";
        task_name: String = "TaskName";
        success_before_passing: i64 = "SuccessBeforePassing";
        failures_before_critical: i64 = "FailuresBeforeCritical";
        failures_before_warning: i64 = "FailuresBeforeWarning";
        body: String = "Body";
        on_update: String = "OnUpdate";
    }
}
