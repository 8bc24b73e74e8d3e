//! Failures of requests about the objects that operators change.

use crate::acl::RulesError;
use crate::admission::joined;
use crate::error::Kind;
use caravan_state::SnapshotError;
use caravan_types::Namespace;
use caravan_types::command::Refusal;
use std::sync::Arc;

/// The failure of a request of an operator.
#[derive(Clone, Debug, thiserror::Error)]
pub enum AdminFault {
    /// The state refused the change: 500 for every reason.
    #[error(transparent)]
    Refused(Refusal),
    /// The state refused the change, and clients expect 400.
    #[error(transparent)]
    BadRequest(Refusal),
    #[error("Invalid namespace \"{namespace}\": {}", joined(.problems))]
    Namespace { namespace: Namespace, problems: Vec<String> },
    #[error("namespace \"{namespace}\" using non-existent quota \"{quota}\"")]
    NoQuota { namespace: Namespace, quota: String },
    #[error("modifying node pool \"{0}\" is not allowed")]
    BuiltInPool(String),
    #[error("invalid node pool \"{pool}\": {}", joined(.problems))]
    NodePool { pool: String, problems: Vec<String> },
    #[error("node pool \"{0}\" does not exist")]
    NoNodePool(String),
    #[error("Feature \"Node Pools Governance\" is unlicensed")]
    Governance,
    #[error("{0}")]
    Snapshot(#[source] Arc<SnapshotError>),
    /// Root keys in a snapshot are sealed with the key of another cluster.
    #[error(
        "the snapshot is of another cluster, whose key seals root key {key} in it{}: restore with -key-file and the file \
         server/keyring/cluster.key of a server of that cluster, or save the snapshot with -with-key; with -without-key, \
         variables and secrets of volumes in the snapshot stay unreadable",
        if *is_wrong { ", and the supplied key is not that key" } else { "" }
    )]
    SnapshotKey { key: String, is_wrong: bool },
    /// A row of access control with problems.
    #[error("{row} 0 invalid: {}", joined(&.problems.iter().map(ToString::to_string).collect::<Vec<_>>()))]
    Invalid { row: &'static str, problems: Vec<RowProblem> },
    /// The row was removed after it was written.
    #[error("ACL {0} not found")]
    Removed(&'static str),
    #[error("cannot find token {0}")]
    NoToken(String),
    #[error("cannot find role {0}")]
    NoRole(String),
    #[error("cannot find policy {0}")]
    NoPolicy(String),
    #[error("cannot find binding rule {0}")]
    NoBindingRule(String),
    #[error("role with name {0} already exists")]
    RoleName(String),
    #[error("cannot upload management tokens")]
    ManagementUpload,
    #[error("invalid accessor ID: it must be a UUID")]
    AccessorId,
    #[error("invalid secret ID: it must be a UUID")]
    SecretId,
    #[error("the secret ID is that of another token")]
    SecretTaken,
    #[error("invalid acl token")]
    BootstrapSecret,
    #[error("Invalid bootstrap reset index (specified {index}, reset index: {done})")]
    ResetIndex { index: u64, done: u64 },
    #[error("keyring cannot be prepublished and full rotated at the same time")]
    PublishAndFull,
}

impl AdminFault {
    pub(crate) fn kind(&self) -> Kind {
        match self {
            Self::Refused(_)
            | Self::Namespace { .. }
            | Self::NoQuota { .. }
            | Self::Governance
            | Self::Snapshot(_)
            | Self::PublishAndFull => Kind::Refused,
            Self::Removed(_) => Kind::NotFound,
            Self::BadRequest(_)
            | Self::BuiltInPool(_)
            | Self::NodePool { .. }
            | Self::NoNodePool(_)
            | Self::SnapshotKey { .. }
            | Self::Invalid { .. }
            | Self::NoToken(_)
            | Self::NoRole(_)
            | Self::NoPolicy(_)
            | Self::NoBindingRule(_)
            | Self::RoleName(_)
            | Self::ManagementUpload
            | Self::AccessorId
            | Self::SecretId
            | Self::SecretTaken
            | Self::BootstrapSecret
            | Self::ResetIndex { .. } => Kind::BadRequest,
        }
    }

    /// Returns the fault of a row whose own check failed.
    pub(crate) fn invalid(row: &'static str, problems: Vec<String>) -> Self {
        Self::Invalid { row, problems: RowProblem::rows(problems) }
    }
}

/// A problem of a row of access control.
#[derive(Clone, Debug, thiserror::Error)]
pub enum RowProblem {
    /// The sentence of the row's own check.
    #[error("{0}")]
    Row(String),
    #[error("failed to parse rules: {0}")]
    Rules(#[source] Arc<RulesError>),
    /// The sentence of the parser.
    #[error("selector is invalid: {0}")]
    Selector(String),
}

impl RowProblem {
    pub(super) fn rows(problems: Vec<String>) -> Vec<Self> {
        problems.into_iter().map(Self::Row).collect()
    }
}
