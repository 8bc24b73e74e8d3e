//! Commands of operators: namespaces, node pools, access control, settings of the region, root keys.

use crate::acl::{AuthMethod, BindingRule, OneTimeToken, Policy, Role, Secret, Token};
use crate::id::{Namespace, VolumeKey};
use crate::namespace::NamespaceSpec;
use crate::node_pool::NodePool;
use crate::operator::{AutopilotConfig, RootKeyMaterial, RootKeyMeta, SchedulerConfig};
use crate::sealed::SealedSecrets;
use crate::variable::VariableKey;
use crate::volume::ClaimId;
use serde::{Deserialize, Serialize};

/// A change by an operator. Rows are complete; their indexes are set when the command is applied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AdminChange {
    /// Writes a namespace.
    NamespaceWrite(Box<NamespaceSpec>),
    /// Removes a namespace that contains no objects.
    NamespaceDelete {
        /// The name of the namespace.
        name: Namespace,
        /// The region, for the message of a refusal.
        region: String,
    },
    /// Writes a node pool.
    NodePoolWrite(Box<NodePool>),
    /// Removes a node pool that has no nodes and no live jobs.
    NodePoolDelete {
        /// The name of the pool.
        name: String,
        /// The region, for the message of a refusal.
        region: String,
    },
    /// Writes the settings of the scheduler.
    Scheduler {
        /// The new settings.
        config: Box<SchedulerConfig>,
        /// The index that the settings must have, or the command is refused.
        check_index: Option<u64>,
    },
    /// Writes the settings of autopilot.
    Autopilot {
        /// The new settings.
        config: Box<AutopilotConfig>,
        /// The index that the settings must have, or the command is refused.
        check_index: Option<u64>,
    },
    /// Writes the first token, unless a bootstrap happened before.
    Bootstrap {
        /// The row of the token.
        token: Box<Token>,
        /// The index of the earlier bootstrap, which permits another one. An operator writes it to a file of a
        /// server.
        reset: Option<u64>,
    },
    /// Writes a policy.
    PolicyWrite(Box<Policy>),
    /// Removes a policy. The command succeeds if the policy does not exist.
    PolicyDelete(String),
    /// Writes a token.
    TokenWrite(Box<Token>),
    /// Removes tokens, by accessor.
    TokensDelete(Vec<String>),
    /// Writes a role.
    RoleWrite(Box<Role>),
    /// Removes a role, by id.
    RoleDelete(String),
    /// Writes an authentication method.
    AuthMethodWrite(Box<AuthMethod>),
    /// Removes an authentication method with its binding rules, by name.
    AuthMethodDelete(String),
    /// Writes a binding rule.
    BindingRuleWrite(Box<BindingRule>),
    /// Removes a binding rule, by id.
    BindingRuleDelete(String),
    /// Writes a one-time token.
    OneTimeWrite(Box<OneTimeToken>),
    /// Removes one-time tokens that were used or have expired.
    OneTimeDelete(Vec<Secret>),
    /// Writes a root key. A new active key makes the others inactive.
    RootKeyWrite {
        /// The row of the key.
        key: Box<RootKeyMeta>,
        /// Whether the data that the other keys sealed is sealed again with this key.
        full: bool,
        /// The sealed secret part. Absent if only the state of the key changes, and in logs of earlier versions.
        #[serde(default)]
        material: Option<RootKeyMaterial>,
    },
    /// Writes sealed root keys again: with a key pair for signatures, or under another key of the cluster.
    RootKeyMaterial(Vec<RootKeyMaterial>),
    /// Removes a root key.
    RootKeyDelete {
        /// The id of the key.
        id: String,
        /// Whether the key is removed although it sealed existing data.
        force: bool,
    },
    /// Writes secrets that were sealed again with another key. Rows keep their indexes, because their content is the
    /// same.
    Reseal(Vec<Resealed>),
}

/// A row whose secrets were sealed again. The command skips it if the row changed meanwhile.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resealed {
    /// The row with the secrets.
    pub row: SealedRow,
    /// The sealed secrets before.
    pub before: SealedSecrets,
    /// The sealed secrets after.
    pub after: SealedSecrets,
}

/// The key of a row with sealed secrets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SealedRow {
    /// The items of a variable.
    Variable(VariableKey),
    /// The secrets of a volume.
    Volume(VolumeKey),
    /// The secrets that a claim keeps for its release.
    Claim(ClaimId),
}

impl AdminChange {
    /// Returns the name of the kind, for logs and event types.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::NamespaceWrite(_) => "NamespaceUpserted",
            Self::NamespaceDelete { .. } => "NamespaceDeleted",
            Self::NodePoolWrite(_) => "NodePoolUpserted",
            Self::NodePoolDelete { .. } => "NodePoolDeleted",
            Self::Scheduler { .. } => "SchedulerConfig",
            Self::Autopilot { .. } => "AutopilotConfig",
            Self::Bootstrap { .. } | Self::TokenWrite(_) => "ACLTokenUpserted",
            Self::PolicyWrite(_) => "ACLPolicyUpserted",
            Self::PolicyDelete(_) => "ACLPolicyDeleted",
            Self::TokensDelete(_) => "ACLTokenDeleted",
            Self::RoleWrite(_) => "ACLRoleUpserted",
            Self::RoleDelete(_) => "ACLRoleDeleted",
            Self::AuthMethodWrite(_) => "ACLAuthMethodUpserted",
            Self::AuthMethodDelete(_) => "ACLAuthMethodDeleted",
            Self::BindingRuleWrite(_) => "ACLBindingRuleUpserted",
            Self::BindingRuleDelete(_) => "ACLBindingRuleDeleted",
            Self::OneTimeWrite(_) => "OneTimeToken",
            Self::OneTimeDelete(_) => "OneTimeTokenDeleted",
            Self::RootKeyWrite { .. } => "RootKey",
            Self::RootKeyMaterial(_) => "RootKeyMaterial",
            Self::RootKeyDelete { .. } => "RootKeyDeleted",
            Self::Reseal(_) => "Reseal",
        }
    }
}
