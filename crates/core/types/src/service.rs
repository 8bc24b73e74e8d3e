//! Services that clients registered (docs/reference/http-api.md, section 5.3), and the health of their checks.

use crate::id::{AllocId, JobId, JobKey, Namespace, NodeId, ServiceId};
use crate::identity::IdentitySpec;
use crate::job::{Unsupported, blocks};
use crate::ser::{is_default, null_default};
use crate::time::Nanos;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The registration of one service of one allocation, as the servers store it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct ServiceRegistration {
    /// The id `_nomad-task-<alloc>-group-<group>-<service>-<port>`, or with the task in place of `group-<group>`.
    #[serde(rename = "ID")]
    pub id: ServiceId,
    /// The name by which other programs find the service.
    pub service_name: String,
    /// The namespace of the job.
    pub namespace: Namespace,
    /// The node on which the allocation runs.
    #[serde(rename = "NodeID")]
    pub node_id: NodeId,
    /// The datacenter of the node.
    pub datacenter: String,
    /// The id of the job.
    #[serde(rename = "JobID")]
    pub job_id: JobId,
    /// The UUID of the allocation.
    #[serde(rename = "AllocID")]
    pub alloc_id: AllocId,
    /// The tags, with their references replaced.
    #[serde(deserialize_with = "null_default")]
    pub tags: Vec<String>,
    /// The address of the service; empty if the service has none.
    pub address: String,
    /// The port of the service; 0 if the service has none.
    pub port: i64,
    /// The Raft index at which the registration was created.
    pub create_index: u64,
    /// The Raft index of the last change.
    pub modify_index: u64,
}

impl ServiceRegistration {
    /// Returns the key of the service's job.
    pub fn job_key(&self) -> JobKey {
        JobKey { namespace: self.namespace.clone(), id: self.job_id.clone() }
    }

    /// Returns whether both registrations are the same except for their indexes.
    pub fn same(&self, other: &Self) -> bool {
        Self { create_index: 0, modify_index: 0, ..self.clone() }
            == Self { create_index: 0, modify_index: 0, ..other.clone() }
    }
}

blocks! {
    /// A service of a group or a task, as the job file describes it.
    ServiceSpec {
        /// The name; may contain references.
        name: String = "Name";
        tags: Option<Vec<String>> = "Tags";
        /// The tags of canaries, used in place of `tags` if present.
        canary_tags: Option<Vec<String>> = "CanaryTags";
        enable_tag_override: bool = "EnableTagOverride";
        /// The label of a port, or its number; may be empty.
        port_label: String = "PortLabel";
        /// The source of the address: `auto`, `host`, `alloc` or `driver`.
        address_mode: String = "AddressMode";
        /// The address that replaces the one of `address_mode`.
        address: String = "Address";
        checks: Option<Vec<CheckSpec>> = "Checks";
        connect: Option<Box<Unsupported>> = "Connect";
        meta: Option<BTreeMap<String, String>> = "Meta";
        canary_meta: Option<BTreeMap<String, String>> = "CanaryMeta";
        tagged_addresses: Option<BTreeMap<String, String>> = "TaggedAddresses";
        /// The task of a group's service, for checks that run in a task.
        task_name: String = "TaskName";
        /// The effect of checks on the health of a deployment: `require_healthy`, `ignore_warnings` or `ignore`.
        on_update: String = "OnUpdate";
        identity: Option<Box<IdentitySpec>> = "Identity";
        weights: Option<ServiceWeights> = "Weights";
        /// The registry: `nomad` for services that the servers store.
        provider: String = "Provider";
        cluster: String = "Cluster";
        kind: String = "Kind";
        /// The namespace, which the servers set.
        #[serde(skip_serializing_if = "Option::is_none")]
        namespace: Option<String> = "Namespace";
    }

    /// The weights of a service in DNS responses.
    ServiceWeights {
        passing: i64 = "Passing";
        warning: i64 = "Warning";
    }

    /// A check as the job file describes it.
    CheckSpec {
        /// The name; the servers generate one if it is empty.
        name: String = "Name";
        /// The kind of check: `http`, `tcp`, `script` or `grpc`.
        kind: String = "Type";
        /// The program of a script check.
        command: String = "Command";
        /// The arguments of that program.
        args: Option<Vec<String>> = "Args";
        /// The path of an HTTP check.
        path: String = "Path";
        /// The protocol of an HTTP check: `http` or `https`.
        protocol: String = "Protocol";
        /// The port that replaces the service's port.
        port_label: String = "PortLabel";
        expose: bool = "Expose";
        /// The address mode that replaces the service's address mode.
        address_mode: String = "AddressMode";
        /// The time between two runs of the check.
        interval: Nanos = "Interval";
        /// The longest time that a run may take.
        timeout: Nanos = "Timeout";
        /// The status before the first result: `passing`, `critical` or empty.
        initial_status: String = "InitialStatus";
        notes: String = "Notes";
        /// The name that the server's certificate must have, in place of the service's address.
        tls_server_name: String = "TLSServerName";
        /// Whether `https` and gRPC over TLS accept any certificate of the server.
        tls_skip_verify: bool = "TLSSkipVerify";
        /// The headers of an HTTP request.
        header: Option<BTreeMap<String, Vec<String>>> = "Header";
        /// The method of an HTTP request.
        method: String = "Method";
        /// The rule by which failures restart the task.
        check_restart: Option<CheckRestartSpec> = "CheckRestart";
        /// The name of the service in a gRPC health request.
        grpc_service: String = "GRPCService";
        /// Whether gRPC uses TLS.
        grpc_use_tls: bool = "GRPCUseTLS";
        /// The task in which a script runs.
        task_name: String = "TaskName";
        /// The number of consecutive successes before the check passes.
        success_before_passing: i64 = "SuccessBeforePassing";
        /// The number of consecutive failures, beyond the first, before the check fails.
        failures_before_critical: i64 = "FailuresBeforeCritical";
        failures_before_warning: i64 = "FailuresBeforeWarning";
        /// The body of an HTTP request.
        body: String = "Body";
        /// The effect of the check on the health of a deployment: `require_healthy`, `ignore_warnings` or `ignore`.
        on_update: String = "OnUpdate";
    }

    /// The rule by which failing checks restart a task.
    #[derive(Copy)]
    CheckRestartSpec {
        /// The number of consecutive failures; 0 means that the task is never restarted.
        limit: i64 = "Limit";
        /// The time after the start of the task in which failures do not count.
        grace: Nanos = "Grace";
        /// Whether warnings do not count as failures.
        ignore_warnings: bool = "IgnoreWarnings";
    }
}

impl ServiceSpec {
    /// Returns whether the servers store the registrations of the service.
    pub fn is_native(&self) -> bool {
        self.provider == "nomad"
    }

    /// Returns the checks of the service.
    pub fn checks(&self) -> &[CheckSpec] {
        self.checks.as_deref().unwrap_or_default()
    }
}

/// The status of a check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CheckStatus {
    /// The check has no result yet.
    #[default]
    Pending,
    /// The last probe succeeded.
    Success,
    /// The last probe failed.
    Failure,
}

impl CheckStatus {
    /// Returns the name of the status in the HTTP API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Success => "success",
            Self::Failure => "failure",
        }
    }
}

/// The last result of a check, as its node reports it (docs/reference/http-api.md, section 5.3).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct CheckResult {
    /// The SHA-256 of the fields that identify the check, in hexadecimal digits.
    #[serde(rename = "ID")]
    pub id: String,
    /// The kind of result: `healthiness` or `readiness`.
    pub mode: String,
    /// The status after this result.
    pub status: CheckStatus,
    /// The HTTP status of the response to an HTTP check.
    #[serde(skip_serializing_if = "is_default")]
    pub status_code: u16,
    /// The output of the check, shortened.
    pub output: String,
    /// The time of the result, in seconds since the epoch.
    pub timestamp: i64,
    /// The name of the allocation.
    pub group: String,
    /// The task, if the service is of a task.
    #[serde(skip_serializing_if = "is_default")]
    pub task: String,
    /// The name of the service.
    pub service: String,
    /// The name of the check.
    pub check: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_is_read_as_the_api_writes_it() {
        let block = serde_json::json!({
            "Name": "web", "Provider": "nomad", "Tags": null, "PortLabel": "http", "TaskName": "",
            "Checks": [{"Type": "http", "Path": "/", "Interval": 2_000_000_000, "Header": null,
                        "CheckRestart": {"Limit": 3, "Grace": null}}],
        });
        let spec: ServiceSpec = serde_json::from_value(block).unwrap();
        assert!(spec.is_native() && spec.tags.is_none());
        assert_eq!(spec.checks()[0].interval, Nanos::from_secs(2));
        assert_eq!(spec.checks()[0].check_restart.unwrap().limit, 3);
    }

    #[test]
    fn the_json_is_what_clients_know() {
        let row = ServiceRegistration { id: "i".into(), service_name: "web".into(), ..Default::default() };
        let json = serde_json::to_value(&row).unwrap();
        assert_eq!(json["Tags"], serde_json::json!([]));
        assert_eq!(json["AllocID"], "");
        assert!(row.same(&ServiceRegistration { modify_index: 9, ..row.clone() }));
        let check = serde_json::to_value(CheckResult::default()).unwrap();
        assert!(check.get("StatusCode").is_none() && check.get("Task").is_none());
        assert_eq!(check["Status"], "pending");
    }
}
