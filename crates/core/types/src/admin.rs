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

/// What an operator changes. Rows come complete; their indexes are set by apply.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AdminChange {
    /// Written.
    NamespaceWrite(Box<NamespaceSpec>),
    /// Removed, if nothing is in it.
    NamespaceDelete {
        /// Which.
        name: Namespace,
        /// The region, for the words of a refusal.
        region: String,
    },
    /// Written.
    NodePoolWrite(Box<NodePool>),
    /// Removed, if no node and no live job is in it.
    NodePoolDelete {
        /// Which.
        name: String,
        /// The region, for the words of a refusal.
        region: String,
    },
    /// How scheduling is done.
    Scheduler {
        /// The new settings.
        config: Box<SchedulerConfig>,
        /// Only if they were last changed there.
        check_index: Option<u64>,
    },
    /// Care for the servers.
    Autopilot {
        /// The new settings.
        config: Box<AutopilotConfig>,
        /// Only if they were last changed there.
        check_index: Option<u64>,
    },
    /// The first token, once.
    Bootstrap {
        /// The token.
        token: Box<Token>,
        /// The index of the bootstrap before, which an operator with access to a server gives up by naming it.
        reset: Option<u64>,
    },
    /// Written.
    PolicyWrite(Box<Policy>),
    /// Removed; one that is not there is no refusal.
    PolicyDelete(String),
    /// Written.
    TokenWrite(Box<Token>),
    /// Removed, by accessor.
    TokensDelete(Vec<String>),
    /// Written.
    RoleWrite(Box<Role>),
    /// Removed.
    RoleDelete(String),
    /// Written.
    AuthMethodWrite(Box<AuthMethod>),
    /// Removed, with its binding rules.
    AuthMethodDelete(String),
    /// Written.
    BindingRuleWrite(Box<BindingRule>),
    /// Removed.
    BindingRuleDelete(String),
    /// Made.
    OneTimeWrite(Box<OneTimeToken>),
    /// Used or over.
    OneTimeDelete(Vec<Secret>),
    /// Written: a new active one makes the others inactive.
    RootKeyWrite {
        /// The key's row.
        key: Box<RootKeyMeta>,
        /// All others are to be taken out of use: the data that they sealed is sealed again.
        full: bool,
        /// The key itself, sealed. Absent if only the state of the key changes, and in logs of earlier versions.
        #[serde(default)]
        material: Option<RootKeyMaterial>,
    },
    /// The sealed root keys are written: with a key pair for signatures, or under another key of the cluster.
    RootKeyMaterial(Vec<RootKeyMaterial>),
    /// Removed.
    RootKeyDelete {
        /// Which.
        id: String,
        /// Although it sealed what is there.
        force: bool,
    },
    /// Sealed again with another key. Rows keep their indexes, because their content is the same.
    Reseal(Vec<Resealed>),
}

/// A row whose secrets were sealed again. The command skips it if the row changed meanwhile.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resealed {
    /// Which row.
    pub row: SealedRow,
    /// As they were sealed.
    pub before: SealedSecrets,
    /// As they are.
    pub after: SealedSecrets,
}

/// Rows that hold sealed secrets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SealedRow {
    /// Items of a variable.
    Variable(VariableKey),
    /// Secrets of a volume.
    Volume(VolumeKey),
    /// Secrets kept with a claim.
    Claim(ClaimId),
}

impl AdminChange {
    /// Name of the kind, for logs and event types.
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
