//! Services that clients registered (docs/reference/http-api.md, section 5.3), and the health of their checks.

use crate::id::{AllocId, JobId, JobKey, Namespace, NodeId, ServiceId};
use crate::job::Carried;
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

/// A service as the job file describes it: the part that clients act on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct ServiceSpec {
    /// Name, may hold references.
    pub name: String,
    /// The provider; `nomad` for registrations that the servers store.
    pub provider: String,
    /// Label of a port, or a number; may be empty.
    pub port_label: String,
    /// `auto`, `host`, `alloc` or `driver`.
    pub address_mode: String,
    /// Address instead of a found one.
    pub address: String,
    /// Tags.
    #[serde(deserialize_with = "null_default")]
    pub tags: Vec<String>,
    /// Tags of canaries, if there are any.
    #[serde(deserialize_with = "null_default")]
    pub canary_tags: Vec<String>,
    /// Checks.
    #[serde(deserialize_with = "null_default")]
    pub checks: Vec<CheckSpec>,
    /// Task that a group's service belongs to, for what needs one.
    pub task_name: String,
}

impl ServiceSpec {
    /// Reads a service that a job carries.
    ///
    /// # Errors
    /// When it has another shape.
    pub fn read(carried: &Carried) -> Result<Self, serde_json::Error> {
        Self::deserialize(&carried.0)
    }

    /// Whether the servers keep its registrations.
    pub fn is_native(&self) -> bool {
        self.provider == "nomad"
    }
}

/// A check as the job file describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct CheckSpec {
    /// Name; one is made where it is empty.
    pub name: String,
    /// `http`, `tcp`, `script` or `grpc`.
    #[serde(rename = "Type")]
    pub kind: String,
    /// Program of a script check.
    pub command: String,
    /// Its arguments.
    #[serde(deserialize_with = "null_default")]
    pub args: Vec<String>,
    /// Path of an HTTP check.
    pub path: String,
    /// `http` or `https`.
    pub protocol: String,
    /// Whether any certificate of the server is taken, by `https` and by gRPC over TLS.
    #[serde(rename = "TLSSkipVerify")]
    pub tls_skip_verify: bool,
    /// Name that its certificate must be for, instead of the service's address.
    #[serde(rename = "TLSServerName")]
    pub tls_server_name: String,
    /// Port instead of the service's.
    pub port_label: String,
    /// Address mode instead of the service's.
    pub address_mode: String,
    /// Between two looks.
    pub interval: Nanos,
    /// Longest look.
    pub timeout: Nanos,
    /// `passing`, `critical` or empty.
    pub initial_status: String,
    /// HTTP method.
    pub method: String,
    /// HTTP headers.
    #[serde(deserialize_with = "null_default")]
    pub header: BTreeMap<String, Vec<String>>,
    /// HTTP body.
    pub body: String,
    /// Service that a gRPC server is asked about.
    #[serde(rename = "GRPCService")]
    pub grpc_service: String,
    /// Whether gRPC goes over TLS.
    #[serde(rename = "GRPCUseTLS")]
    pub grpc_use_tls: bool,
    /// Task in which a script runs.
    pub task_name: String,
    /// Successes in a row before it passes.
    pub success_before_passing: i64,
    /// Failures in a row, beyond the first, before it fails.
    pub failures_before_critical: i64,
    /// `require_healthy`, `ignore_warnings` or `ignore`.
    pub on_update: String,
    /// When failures restart the task.
    pub check_restart: Option<CheckRestartSpec>,
}

/// When failing checks restart a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct CheckRestartSpec {
    /// Failures in a row; 0 = never.
    pub limit: i64,
    /// After the start of the task failures do not count for so long.
    #[serde(deserialize_with = "null_default")]
    pub grace: Nanos,
    /// Warnings are no failures.
    pub ignore_warnings: bool,
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
        let carried = Carried(serde_json::json!({
            "Name": "web", "Provider": "nomad", "Tags": null, "PortLabel": "http", "TaskName": "",
            "Checks": [{"Type": "http", "Path": "/", "Interval": 2_000_000_000, "Header": null,
                        "CheckRestart": {"Limit": 3, "Grace": null}}],
        }));
        let spec = ServiceSpec::read(&carried).unwrap();
        assert!(spec.is_native() && spec.tags.is_empty());
        assert_eq!(spec.checks[0].interval, Nanos::from_secs(2));
        assert_eq!(spec.checks[0].check_restart.unwrap().limit, 3);
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
