//! Objects of access control: policies, roles, tokens and authentication methods (docs/reference/http-api.md,
//! sections 3.6 and 5.8).

mod auth;
mod rules;
mod token;

pub use auth::{AuthConfig, AuthMethod, AuthMethodStub, BindType, BindingRule, BindingRuleStub};
pub use rules::{
    CapabilityRules, HostVolumeRules, NamespaceRules, NodePoolRules, PolicyRule, Rules, VariablePath,
    VariableRules,
};
pub use token::{OneTimeToken, RoleLink, Secret, Token, TokenStub, TokenType};

use crate::ser::nil;
use serde::{Deserialize, Serialize};

/// The name of the policy that requests without a token have.
pub const ANONYMOUS: &str = "anonymous";

/// A named set of rights.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[expect(missing_docs, reason = "fields are those of docs/reference/http-api.md, section 5.8")]
pub struct Policy {
    pub name: String,
    pub description: String,
    /// The rules in HCL or JSON, unchanged.
    pub rules: String,
    #[serde(rename = "JobACL")]
    pub job_acl: Option<JobAcl>,
    pub hash: String,
    pub create_index: u64,
    pub modify_index: u64,
}

/// A policy as an element of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[expect(missing_docs, reason = "fields are those of docs/reference/http-api.md, section 5.8")]
pub struct PolicyStub {
    pub name: String,
    pub description: String,
    #[serde(rename = "JobACL")]
    pub job_acl: Option<JobAcl>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub hash: String,
    pub create_index: u64,
    pub modify_index: u64,
}

/// The workloads that have a policy without a token. An empty job, group or task covers all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[expect(missing_docs, reason = "fields are those of docs/reference/http-api.md, section 5.8")]
pub struct JobAcl {
    pub namespace: String,
    #[serde(rename = "JobID")]
    pub job_id: String,
    pub group: String,
    pub task: String,
}

impl JobAcl {
    /// Returns whether the policy applies to a workload.
    pub fn covers(&self, namespace: &str, job: &str, group: &str, task: &str) -> bool {
        let fits = |desired: &str, is: &str| desired.is_empty() || desired == is;
        self.namespace == namespace
            && fits(&self.job_id, job)
            && fits(&self.group, group)
            && fits(&self.task, task)
    }
}

impl Policy {
    /// Returns the policy as an element of a list.
    pub fn stub(&self) -> PolicyStub {
        PolicyStub {
            name: self.name.clone(),
            description: self.description.clone(),
            job_acl: self.job_acl.clone(),
            hash: self.hash.clone(),
            create_index: self.create_index,
            modify_index: self.modify_index,
        }
    }

    /// Checks all fields but the rules.
    ///
    /// # Errors
    /// Returns all problems.
    pub fn check(&self) -> Result<(), Vec<String>> {
        let mut errors = Vec::new();
        if !crate::namespace::is_name(&self.name) {
            errors.push(format!("invalid name '{}'", self.name));
        }
        if self.description.chars().count() > crate::namespace::MAX_DESCRIPTION {
            errors.push(format!("description longer than {}", crate::namespace::MAX_DESCRIPTION));
        }
        if let Some(job) = &self.job_acl {
            for (missing, what) in [
                (job.namespace.is_empty() && !job.job_id.is_empty(), "namespace must be set to set job ID"),
                (job.job_id.is_empty() && !job.group.is_empty(), "job ID must be set to set group"),
                (job.group.is_empty() && !job.task.is_empty(), "group must be set to set task"),
            ] {
                if missing {
                    errors.push(what.to_owned());
                }
            }
        }
        if errors.is_empty() { Ok(()) } else { Err(errors) }
    }
}

/// A named set of policies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[expect(missing_docs, reason = "fields are those of docs/reference/http-api.md, section 5.8")]
pub struct Role {
    #[serde(rename = "ID")]
    pub id: String,
    pub name: String,
    pub description: String,
    #[serde(with = "nil")]
    pub policies: Vec<PolicyLink>,
    pub hash: String,
    pub create_index: u64,
    pub modify_index: u64,
}

/// The name of a policy of a role.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[expect(missing_docs, reason = "fields are those of docs/reference/http-api.md, section 5.8")]
pub struct PolicyLink {
    pub name: String,
}

impl Role {
    /// Checks the role without other objects.
    ///
    /// # Errors
    /// Returns all problems.
    pub fn check(&self) -> Result<(), Vec<String>> {
        let mut errors = Vec::new();
        if !crate::namespace::is_name(&self.name) {
            errors.push(format!("invalid name '{}'", self.name));
        }
        if self.description.chars().count() > crate::namespace::MAX_DESCRIPTION {
            errors.push(format!("description longer than {}", crate::namespace::MAX_DESCRIPTION));
        }
        if self.policies.is_empty() {
            errors.push("at least one policy should be specified".to_owned());
        }
        if errors.is_empty() { Ok(()) } else { Err(errors) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workload_is_covered_by_the_parts_that_are_named() {
        let acl = JobAcl { namespace: "default".into(), job_id: "web".into(), ..JobAcl::default() };
        assert!(acl.covers("default", "web", "g", "t"));
        assert!(!acl.covers("default", "db", "g", "t") && !acl.covers("team", "web", "g", "t"));
    }

    #[test]
    fn parts_of_a_workload_need_their_owners() {
        let policy = Policy {
            name: "p".into(),
            job_acl: Some(JobAcl { job_id: "x".into(), ..JobAcl::default() }),
            ..Policy::default()
        };
        assert_eq!(policy.check().unwrap_err(), ["namespace must be set to set job ID"]);
        assert_eq!(Role { name: "r".into(), ..Role::default() }.check().unwrap_err().len(), 1);
    }
}
