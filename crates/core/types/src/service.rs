//! Services that clients registered (docs/reference/http-api.md, section 5.3), and the health of their checks.

use crate::id::{AllocId, JobId, JobKey, Namespace, NodeId, ServiceId};
use crate::identity::IdentitySpec;
use crate::job::{Unsupported, blocks};
use crate::ser::{is_default, null_default};
use crate::time::Nanos;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One service of one allocation, as the servers keep it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct ServiceRegistration {
    /// `_nomad-task-<alloc>-group-<group>-<service>-<port>`, or with the task in place of `group-<group>`.
    #[serde(rename = "ID")]
    pub id: ServiceId,
    /// Name that others look for.
    pub service_name: String,
    /// Namespace of the job.
    pub namespace: Namespace,
    /// Where it runs.
    #[serde(rename = "NodeID")]
    pub node_id: NodeId,
    /// Datacenter of the node.
    pub datacenter: String,
    /// Job.
    #[serde(rename = "JobID")]
    pub job_id: JobId,
    /// Allocation.
    #[serde(rename = "AllocID")]
    pub alloc_id: AllocId,
    /// Tags, references replaced.
    #[serde(deserialize_with = "null_default")]
    pub tags: Vec<String>,
    /// Address; empty if the service names none.
    pub address: String,
    /// Port; 0 if it names none.
    pub port: i64,
    /// Index that made it.
    pub create_index: u64,
    /// Index of its last change.
    pub modify_index: u64,
}

impl ServiceRegistration {
    /// The job it belongs to.
    pub fn job_key(&self) -> JobKey {
        JobKey { namespace: self.namespace.clone(), id: self.job_id.clone() }
    }

    /// Whether both say the same, indexes aside.
    pub fn same(&self, other: &Self) -> bool {
        Self { create_index: 0, modify_index: 0, ..self.clone() }
            == Self { create_index: 0, modify_index: 0, ..other.clone() }
    }
}

blocks! {
    /// A service of a group or a task, as the job file describes it.
    ServiceSpec {
        /// May hold references.
        name: String = "Name";
        tags: Option<Vec<String>> = "Tags";
        /// Tags of canaries, if there are any.
        canary_tags: Option<Vec<String>> = "CanaryTags";
        enable_tag_override: bool = "EnableTagOverride";
        /// Label of a port, or a number; may be empty.
        port_label: String = "PortLabel";
        /// `auto`, `host`, `alloc` or `driver`.
        address_mode: String = "AddressMode";
        /// Address instead of a found one.
        address: String = "Address";
        checks: Option<Vec<CheckSpec>> = "Checks";
        connect: Option<Box<Unsupported>> = "Connect";
        meta: Option<BTreeMap<String, String>> = "Meta";
        canary_meta: Option<BTreeMap<String, String>> = "CanaryMeta";
        tagged_addresses: Option<BTreeMap<String, String>> = "TaggedAddresses";
        /// Task that a group's service belongs to, for what needs one.
        task_name: String = "TaskName";
        /// `require_healthy`, `ignore_warnings` or `ignore`.
        on_update: String = "OnUpdate";
        identity: Option<Box<IdentitySpec>> = "Identity";
        weights: Option<ServiceWeights> = "Weights";
        /// `nomad` for services that the servers keep.
        provider: String = "Provider";
        cluster: String = "Cluster";
        kind: String = "Kind";
        /// Set by the servers.
        #[serde(skip_serializing_if = "Option::is_none")]
        namespace: Option<String> = "Namespace";
    }

    /// Weights of a service in DNS answers.
    ServiceWeights {
        passing: i64 = "Passing";
        warning: i64 = "Warning";
    }

    /// A check as the job file describes it.
    CheckSpec {
        /// Name; one is made where it is empty.
        name: String = "Name";
        /// `http`, `tcp`, `script` or `grpc`.
        kind: String = "Type";
        /// Program of a script check.
        command: String = "Command";
        /// Arguments of that program.
        args: Option<Vec<String>> = "Args";
        /// Path of an HTTP check.
        path: String = "Path";
        /// `http` or `https`.
        protocol: String = "Protocol";
        /// Port instead of the service's.
        port_label: String = "PortLabel";
        expose: bool = "Expose";
        /// Address mode instead of the service's.
        address_mode: String = "AddressMode";
        /// Between two looks.
        interval: Nanos = "Interval";
        /// Longest look.
        timeout: Nanos = "Timeout";
        /// `passing`, `critical` or empty.
        initial_status: String = "InitialStatus";
        notes: String = "Notes";
        /// Name that the server's certificate must be for, instead of the service's address.
        tls_server_name: String = "TLSServerName";
        /// Whether any certificate of the server is taken, by `https` and by gRPC over TLS.
        tls_skip_verify: bool = "TLSSkipVerify";
        /// HTTP headers.
        header: Option<BTreeMap<String, Vec<String>>> = "Header";
        /// HTTP method.
        method: String = "Method";
        /// When failures restart the task.
        check_restart: Option<CheckRestartSpec> = "CheckRestart";
        /// Service that a gRPC server is asked about.
        grpc_service: String = "GRPCService";
        /// Whether gRPC goes over TLS.
        grpc_use_tls: bool = "GRPCUseTLS";
        /// Task in which a script runs.
        task_name: String = "TaskName";
        /// Successes in a row before it passes.
        success_before_passing: i64 = "SuccessBeforePassing";
        /// Failures in a row, beyond the first, before it fails.
        failures_before_critical: i64 = "FailuresBeforeCritical";
        failures_before_warning: i64 = "FailuresBeforeWarning";
        /// HTTP body.
        body: String = "Body";
        /// `require_healthy`, `ignore_warnings` or `ignore`.
        on_update: String = "OnUpdate";
    }

    /// When failing checks restart a task.
    #[derive(Copy)]
    CheckRestartSpec {
        /// Failures in a row; 0 = never.
        limit: i64 = "Limit";
        /// After the start of the task failures do not count for so long.
        grace: Nanos = "Grace";
        /// Warnings are no failures.
        ignore_warnings: bool = "IgnoreWarnings";
    }
}

impl ServiceSpec {
    /// Whether the servers keep its registrations.
    pub fn is_native(&self) -> bool {
        self.provider == "nomad"
    }

    /// Returns its checks.
    pub fn checks(&self) -> &[CheckSpec] {
        self.checks.as_deref().unwrap_or_default()
    }
}

/// How a check stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CheckStatus {
    /// Not decided yet.
    #[default]
    Pending,
    /// Passing.
    Success,
    /// Critical.
    Failure,
}

impl CheckStatus {
    /// The word in answers.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Success => "success",
            Self::Failure => "failure",
        }
    }
}

/// The last result of a check, as its node tells it (docs/reference/http-api.md, section 5.3).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct CheckResult {
    /// SHA-256 in hexadecimal of what identifies the check.
    #[serde(rename = "ID")]
    pub id: String,
    /// `healthiness` or `readiness`.
    pub mode: String,
    /// How it stands.
    pub status: CheckStatus,
    /// HTTP status, of HTTP checks that were answered.
    #[serde(skip_serializing_if = "is_default")]
    pub status_code: u16,
    /// What the check said, cut short.
    pub output: String,
    /// Seconds since 1970.
    pub timestamp: i64,
    /// Name of the allocation.
    pub group: String,
    /// Task of a task's service.
    #[serde(skip_serializing_if = "is_default")]
    pub task: String,
    /// Service.
    pub service: String,
    /// Name of the check.
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
