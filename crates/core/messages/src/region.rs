//! Messages between regions: the rows that each region reads from the authoritative region.

use caravan_types::acl::{AuthMethod, BindingRule, Policy, Role, Secret, Token};
use caravan_types::namespace::NamespaceSpec;
use caravan_types::node_pool::NodePool;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

/// The kinds of rows that are replicated between regions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ReplicatedKind {
    /// Policies.
    Policies,
    /// Roles.
    Roles,
    /// Tokens that are valid in all regions.
    Tokens,
    /// Authentication methods.
    AuthMethods,
    /// Binding rules of authentication methods.
    BindingRules,
    /// Namespaces.
    Namespaces,
    /// Node pools, without the built-in ones.
    NodePools,
}

impl ReplicatedKind {
    /// All kinds of replicated rows.
    pub const ALL: [Self; 7] = [
        Self::Policies,
        Self::Roles,
        Self::Tokens,
        Self::AuthMethods,
        Self::BindingRules,
        Self::Namespaces,
        Self::NodePools,
    ];

    /// Returns the name of the kind, for logs and for the status.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Policies => "policies",
            Self::Roles => "roles",
            Self::Tokens => "tokens",
            Self::AuthMethods => "auth_methods",
            Self::BindingRules => "binding_rules",
            Self::Namespaces => "namespaces",
            Self::NodePools => "node_pools",
        }
    }

    /// Returns whether the rows belong to access control, which is replicated only while it is enabled.
    pub fn is_access_control(self) -> bool {
        !matches!(self, Self::Namespaces | Self::NodePools)
    }
}

impl fmt::Display for ReplicatedKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A row as the authoritative region stores it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "each variant is the row of the kind with its name")]
pub enum ReplicatedRow {
    Policy(Arc<Policy>),
    Role(Arc<Role>),
    Token(Arc<Token>),
    AuthMethod(Arc<AuthMethod>),
    BindingRule(Arc<BindingRule>),
    Namespace(Arc<NamespaceSpec>),
    NodePool(Arc<NodePool>),
}

impl ReplicatedRow {
    /// Returns the key of the row, unique among the rows of its kind.
    pub fn key(&self) -> &str {
        match self {
            Self::Policy(row) => &row.name,
            Self::Role(row) => &row.id,
            Self::Token(row) => &row.accessor_id,
            Self::AuthMethod(row) => &row.name,
            Self::BindingRule(row) => &row.id,
            Self::Namespace(row) => row.name.as_str(),
            Self::NodePool(row) => &row.name,
        }
    }

    /// Returns the kind of the row.
    pub fn kind(&self) -> ReplicatedKind {
        match self {
            Self::Policy(_) => ReplicatedKind::Policies,
            Self::Role(_) => ReplicatedKind::Roles,
            Self::Token(_) => ReplicatedKind::Tokens,
            Self::AuthMethod(_) => ReplicatedKind::AuthMethods,
            Self::BindingRule(_) => ReplicatedKind::BindingRules,
            Self::Namespace(_) => ReplicatedKind::Namespaces,
            Self::NodePool(_) => ReplicatedKind::NodePools,
        }
    }
}

/// The request of a leader of another region for all rows of a kind, and for later changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FollowRows {
    /// The kind of all rows of the response.
    pub kind: ReplicatedKind,
    /// The token with which the region replicates; needed while access control is enabled.
    #[serde(default)]
    pub token: Secret,
}

/// A part of a response. The parts up to a [`complete`](Self::complete) one belong together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RowsPart {
    /// The index of the state from which the part was created.
    pub index: u64,
    /// Whether the parts together have all rows of the kind; all other rows are then deleted.
    pub full: bool,
    /// Whether this is the last part.
    pub complete: bool,
    /// The rows that are new or changed.
    pub rows: Vec<ReplicatedRow>,
    /// The keys of the rows that were deleted.
    pub removed: Vec<String>,
}

caravan_types::packed!(FollowRows, RowsPart);
