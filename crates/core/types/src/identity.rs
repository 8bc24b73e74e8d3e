//! Identities of workloads and nodes, as signed claims (docs/reference/http-api.md, section 5.10).

use crate::job::{Task, blocks};
use crate::time::{Nanos, UnixNanos};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The name of the identity that every task has. It authenticates the task to the servers.
pub const DEFAULT_NAME: &str = "default";
/// The audience of the default identity.
pub const DEFAULT_AUDIENCE: &str = "nomadproject.io";

/// The time by which the clocks of two servers may differ, in seconds.
pub const NOT_BEFORE_LEEWAY: i64 = 60;

blocks! {
    /// An `identity` block of a job file (docs/reference/http-api.md, section 5.1).
    IdentitySpec {
        /// The name, unique in the task; empty means [`DEFAULT_NAME`].
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
}

impl IdentitySpec {
    /// Returns the identity of a task whose job file has no `identity` block.
    pub fn default_one() -> Self {
        Self { name: DEFAULT_NAME.into(), audience: Some(vec![DEFAULT_AUDIENCE.into()]), ..Self::default() }
    }

    /// Returns the identity with its name filled in.
    #[must_use]
    pub fn named(&self) -> Self {
        let name = if self.name.is_empty() { DEFAULT_NAME.to_owned() } else { self.name.clone() };
        Self { name, ..self.clone() }
    }

    /// Returns the identities that a task receives, in its environment or as a file.
    pub fn all(task: &Task) -> Vec<Self> {
        let all = task.identity.as_deref().into_iter().chain(&task.identities);
        all.filter(|spec| spec.env || spec.file).map(Self::named).collect()
    }

    /// Returns whether this identity authenticates the task to the servers.
    pub fn is_default(&self) -> bool {
        self.name == DEFAULT_NAME
    }

    /// Returns the name of the environment variable that holds the token.
    pub fn variable(&self) -> String {
        if self.is_default() { "NOMAD_TOKEN".into() } else { format!("NOMAD_TOKEN_{}", self.name) }
    }

    /// Returns the path of the token file, relative to the task's directory.
    pub fn path(&self) -> String {
        match self.filepath.as_str() {
            "" if self.is_default() => "secrets/nomad_token".into(),
            "" => format!("secrets/nomad_{}.jwt", self.name),
            path => path.trim_start_matches('/').into(),
        }
    }
}

/// The claims of a signed identity.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "fields are those of docs/reference/http-api.md, section 5.10 and RFC 7519")]
pub struct Claims {
    #[serde(rename = "nomad_namespace", skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    #[serde(rename = "nomad_job_id", skip_serializing_if = "String::is_empty")]
    pub job_id: String,
    #[serde(rename = "nomad_allocation_id", skip_serializing_if = "String::is_empty")]
    pub allocation_id: String,
    #[serde(rename = "nomad_task", skip_serializing_if = "String::is_empty")]
    pub task: String,
    #[serde(rename = "nomad_service", skip_serializing_if = "String::is_empty")]
    pub service: String,
    #[serde(rename = "nomad_node_id", skip_serializing_if = "String::is_empty")]
    pub node_id: String,
    #[serde(rename = "nomad_node_name", skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
    #[serde(rename = "nomad_node_pool", skip_serializing_if = "String::is_empty")]
    pub node_pool: String,
    #[serde(rename = "nomad_node_class", skip_serializing_if = "String::is_empty")]
    pub node_class: String,
    #[serde(rename = "nomad_node_datacenter", skip_serializing_if = "String::is_empty")]
    pub node_datacenter: String,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub extra_claims: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub iss: String,
    pub sub: String,
    #[serde(skip_serializing_if = "Audience::is_empty")]
    pub aud: Audience,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exp: Option<i64>,
    pub nbf: i64,
    pub iat: i64,
    pub jti: String,
}

/// The audiences of an identity. A single one is serialised as a string, several as a list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "OneOrMany", into = "OneOrMany")]
pub struct Audience(pub Vec<String>);

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

impl Audience {
    /// Returns whether the list of audiences is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl From<OneOrMany> for Audience {
    fn from(supplied: OneOrMany) -> Self {
        match supplied {
            OneOrMany::One(one) => Self(vec![one]),
            OneOrMany::Many(many) => Self(many),
        }
    }
}

impl From<Audience> for OneOrMany {
    fn from(audience: Audience) -> Self {
        match <[String; 1]>::try_from(audience.0) {
            Ok([one]) => Self::One(one),
            Err(many) => Self::Many(many),
        }
    }
}

impl Claims {
    /// Returns the subject of a workload: `region:namespace:job:group:task:identity`.
    pub fn workload_subject(
        region: &str,
        namespace: &str,
        job: &str,
        group: &str,
        task: &str,
        identity: &str,
    ) -> String {
        format!("{region}:{namespace}:{job}:{group}:{task}:{identity}")
    }

    /// Returns whether the claims identify a workload rather than a node.
    pub fn is_workload(&self) -> bool {
        !self.allocation_id.is_empty()
    }

    /// Returns whether the claims are issued for an audience.
    pub fn is_for(&self, audience: &str) -> bool {
        self.aud.0.iter().any(|own| own == audience)
    }

    /// Returns whether the claims are not valid yet at `now`, in seconds since the epoch. Clocks may differ by
    /// [`NOT_BEFORE_LEEWAY`].
    pub fn is_early(&self, now: i64) -> bool {
        self.nbf > now.saturating_add(NOT_BEFORE_LEEWAY)
    }

    /// Returns when the claims expire, or `None` if they never do.
    pub fn ends(&self) -> Option<UnixNanos> {
        self.exp.map(|exp| UnixNanos(exp.saturating_mul(1_000_000_000)))
    }

    /// Returns whether the claims are expired at `now`, in seconds since the epoch.
    pub fn expired(&self, now: i64) -> bool {
        self.exp.is_some_and(|exp| exp <= now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_say_where_an_identity_goes() {
        let block = serde_json::json!({"Name": "vault", "File": true, "TTL": 5, "Audience": null});
        let spec: IdentitySpec = serde_json::from_value(block).unwrap();
        assert_eq!(
            (spec.variable().as_str(), spec.path().as_str()),
            ("NOMAD_TOKEN_vault", "secrets/nomad_vault.jwt")
        );
        let own = IdentitySpec::default_one();
        assert_eq!((own.variable().as_str(), own.path().as_str()), ("NOMAD_TOKEN", "secrets/nomad_token"));
        let unnamed = IdentitySpec { env: true, ..IdentitySpec::default() };
        assert!(unnamed.named().is_default());
        let task = Task { identity: Some(own.into()), identities: vec![spec.clone()], ..Task::default() };
        assert_eq!(IdentitySpec::all(&task), [spec]);
    }

    #[test]
    fn claims_have_the_recorded_names() {
        let claims = Claims {
            job_id: "web".into(),
            allocation_id: "a".into(),
            aud: Audience(vec![DEFAULT_AUDIENCE.into()]),
            ..Claims::default()
        };
        let json = serde_json::to_value(&claims).unwrap();
        assert_eq!((&json["nomad_job_id"], &json["aud"]), (&"web".into(), &DEFAULT_AUDIENCE.into()));
        assert!(json.get("exp").is_none() && json.get("nomad_node_id").is_none());
        assert_eq!(serde_json::from_value::<Claims>(json).unwrap(), claims);
        assert!(claims.is_workload() && !claims.expired(i64::MAX));
    }
}
