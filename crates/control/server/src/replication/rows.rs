//! Replicated rows in the state.

use caravan_messages::region::{ReplicatedKind, ReplicatedRow};
use caravan_state::{Root, Table};
use caravan_types::Time;
use caravan_types::admin::AdminChange;
use caravan_types::job::JobStatus;
use caravan_types::node_pool::NodePool;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Replicated rows of one kind, by key.
pub(super) type Rows = BTreeMap<String, ReplicatedRow>;

/// Returns the replicated rows of a kind: tokens that are valid in all regions, and node pools that are not built in.
pub(super) fn list(root: &Root, kind: ReplicatedKind) -> Rows {
    let keyed = |row: ReplicatedRow| (row.key().to_owned(), row);
    match kind {
        ReplicatedKind::Policies => {
            root.acl_policies().cloned().map(ReplicatedRow::Policy).map(keyed).collect()
        }
        ReplicatedKind::Roles => root.acl_roles().cloned().map(ReplicatedRow::Role).map(keyed).collect(),
        ReplicatedKind::Tokens => {
            let global = root.acl_tokens().filter(|token| token.global);
            global.cloned().map(ReplicatedRow::Token).map(keyed).collect()
        }
        ReplicatedKind::AuthMethods => {
            root.auth_methods().cloned().map(ReplicatedRow::AuthMethod).map(keyed).collect()
        }
        ReplicatedKind::BindingRules => {
            root.binding_rules().cloned().map(ReplicatedRow::BindingRule).map(keyed).collect()
        }
        ReplicatedKind::Namespaces => {
            root.namespaces().cloned().map(ReplicatedRow::Namespace).map(keyed).collect()
        }
        ReplicatedKind::NodePools => {
            let own = root.node_pools().filter(|pool| !NodePool::is_built_in(&pool.name));
            own.cloned().map(ReplicatedRow::NodePool).map(keyed).collect()
        }
    }
}

/// Returns the table of a kind.
pub(super) fn table(kind: ReplicatedKind) -> Table {
    match kind {
        ReplicatedKind::Policies => Table::AclPolicies,
        ReplicatedKind::Roles => Table::AclRoles,
        ReplicatedKind::Tokens => Table::AclTokens,
        ReplicatedKind::AuthMethods => Table::AuthMethods,
        ReplicatedKind::BindingRules => Table::BindingRules,
        ReplicatedKind::Namespaces => Table::Namespaces,
        ReplicatedKind::NodePools => Table::NodePools,
    }
}

/// Returns whether nodes or jobs use a node pool.
pub(super) fn uses_pool(root: &Root, name: &str) -> bool {
    root.nodes().any(|node| node.node_pool == name)
        || root.jobs().any(|job| job.node_pool == name && job.status != JobStatus::Dead)
}

/// Returns a row without the fields that each region sets itself when it writes the row.
pub(super) fn bare(row: &ReplicatedRow) -> ReplicatedRow {
    macro_rules! bare {
        ($variant:ident, $row:expr $(, $time:ident)*) => {{
            let mut row = (**$row).clone();
            (row.create_index, row.modify_index) = (0, 0);
            $(row.$time = Time(0);)*
            ReplicatedRow::$variant(Arc::new(row))
        }};
    }
    match row {
        ReplicatedRow::Policy(row) => bare!(Policy, row),
        ReplicatedRow::Role(row) => bare!(Role, row),
        ReplicatedRow::Token(row) => bare!(Token, row),
        ReplicatedRow::AuthMethod(row) => bare!(AuthMethod, row, create_time, modify_time),
        ReplicatedRow::BindingRule(row) => bare!(BindingRule, row, create_time, modify_time),
        ReplicatedRow::Namespace(row) => bare!(Namespace, row),
        ReplicatedRow::NodePool(row) => bare!(NodePool, row),
    }
}

/// Returns the change that writes a row.
pub(super) fn write(row: &ReplicatedRow) -> AdminChange {
    match bare(row) {
        ReplicatedRow::Policy(row) => AdminChange::PolicyWrite(Box::new(Arc::unwrap_or_clone(row))),
        ReplicatedRow::Role(row) => AdminChange::RoleWrite(Box::new(Arc::unwrap_or_clone(row))),
        ReplicatedRow::Token(row) => AdminChange::TokenWrite(Box::new(Arc::unwrap_or_clone(row))),
        ReplicatedRow::AuthMethod(row) => AdminChange::AuthMethodWrite(Box::new(Arc::unwrap_or_clone(row))),
        ReplicatedRow::BindingRule(row) => AdminChange::BindingRuleWrite(Box::new(Arc::unwrap_or_clone(row))),
        ReplicatedRow::Namespace(row) => AdminChange::NamespaceWrite(Box::new(Arc::unwrap_or_clone(row))),
        ReplicatedRow::NodePool(row) => AdminChange::NodePoolWrite(Box::new(Arc::unwrap_or_clone(row))),
    }
}

/// Returns the change that deletes a row; `None` for a row that every region has.
pub(super) fn delete(kind: ReplicatedKind, key: &str) -> Option<AdminChange> {
    // The status names the region of a refusal, because it belongs to one region.
    let region = String::new();
    Some(match kind {
        ReplicatedKind::Policies => AdminChange::PolicyDelete(key.to_owned()),
        ReplicatedKind::Roles => AdminChange::RoleDelete(key.to_owned()),
        ReplicatedKind::Tokens => AdminChange::TokensDelete(vec![key.to_owned()]),
        ReplicatedKind::AuthMethods => AdminChange::AuthMethodDelete(key.to_owned()),
        ReplicatedKind::BindingRules => AdminChange::BindingRuleDelete(key.to_owned()),
        ReplicatedKind::Namespaces if key == "default" => return None,
        ReplicatedKind::Namespaces => AdminChange::NamespaceDelete { name: key.into(), region },
        ReplicatedKind::NodePools => AdminChange::NodePoolDelete { name: key.to_owned(), region },
    })
}
