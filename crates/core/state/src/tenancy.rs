//! Namespaces, node pools, access control and the settings of the region: rows that operators write.

use crate::root::{Root, Table};
use caravan_types::Namespace;
use caravan_types::acl::{AuthMethod, BindingRule, OneTimeToken, Policy, Role, Secret, Token};
use caravan_types::command::FIRST_LEVEL;
use caravan_types::namespace::NamespaceSpec;
use caravan_types::node_pool::NodePool;
use caravan_types::operator::{AutopilotConfig, RootKeyMaterial, RootKeyMeta, RootKeyState, SchedulerConfig};
use imbl::OrdMap;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The key of a row that an operator wrote.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AdminRow {
    /// A namespace, by name.
    Namespace(Namespace),
    /// A node pool, by name.
    NodePool(String),
    /// A policy, by name.
    Policy(String),
    /// A token, by accessor.
    Token(String),
    /// A role, by id.
    Role(String),
    /// An auth method, by name.
    AuthMethod(String),
    /// A binding rule, by id.
    BindingRule(String),
    /// A one-time secret, by the accessor of its token; the secret itself appears nowhere.
    OneTimeToken(String),
    /// A root key, by id.
    RootKey(String),
    /// The settings of the region.
    Settings,
}

impl AdminRow {
    /// Returns the table of the row.
    pub fn table(&self) -> Table {
        match self {
            Self::Namespace(_) => Table::Namespaces,
            Self::NodePool(_) => Table::NodePools,
            Self::Policy(_) => Table::AclPolicies,
            Self::Token(_) => Table::AclTokens,
            Self::Role(_) => Table::AclRoles,
            Self::AuthMethod(_) => Table::AuthMethods,
            Self::BindingRule(_) => Table::BindingRules,
            Self::OneTimeToken(_) => Table::OneTimeTokens,
            Self::RootKey(_) => Table::RootKeys,
            Self::Settings => Table::Settings,
        }
    }
}

/// The tables of operators' rows.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Tenancy {
    pub(crate) namespaces: OrdMap<Namespace, Arc<NamespaceSpec>>,
    pub(crate) node_pools: OrdMap<String, Arc<NodePool>>,
    pub(crate) policies: OrdMap<String, Arc<Policy>>,
    /// The tokens by accessor.
    pub(crate) tokens: OrdMap<String, Arc<Token>>,
    /// The accessors of tokens by secret.
    pub(crate) secrets: OrdMap<Secret, String>,
    pub(crate) roles: OrdMap<String, Arc<Role>>,
    pub(crate) auth_methods: OrdMap<String, Arc<AuthMethod>>,
    pub(crate) binding_rules: OrdMap<String, Arc<BindingRule>>,
    pub(crate) one_time: OrdMap<Secret, Arc<OneTimeToken>>,
    pub(crate) root_keys: OrdMap<String, Arc<RootKeyMeta>>,
    /// The sealed root keys, by id. Dumps omit them.
    pub(crate) root_key_material: OrdMap<String, Arc<RootKeyMaterial>>,
    pub(crate) settings: Arc<Settings>,
}

/// The settings of the region.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Settings {
    pub(crate) scheduler: SchedulerConfig,
    pub(crate) autopilot: AutopilotConfig,
    /// The index at which the first token was created.
    pub(crate) bootstrap: Option<u64>,
    /// The feature level of the commands that may be proposed.
    pub(crate) level: u32,
}

impl Default for Tenancy {
    fn default() -> Self {
        let default = NamespaceSpec::default_one();
        let pools = NodePool::built_in().map(|pool| (pool.name.clone(), Arc::new(pool)));
        let scheduler = SchedulerConfig { create_index: 1, modify_index: 1, ..SchedulerConfig::default() };
        Self {
            namespaces: OrdMap::unit(default.name.clone(), Arc::new(default)),
            node_pools: pools.into_iter().collect(),
            policies: OrdMap::new(),
            tokens: OrdMap::new(),
            secrets: OrdMap::new(),
            roles: OrdMap::new(),
            auth_methods: OrdMap::new(),
            binding_rules: OrdMap::new(),
            one_time: OrdMap::new(),
            root_keys: OrdMap::new(),
            root_key_material: OrdMap::new(),
            settings: Arc::new(Settings { scheduler, ..Settings::default() }),
        }
    }
}

impl Tenancy {
    /// Rebuilds the data that is derived from the rows.
    pub(crate) fn index(&mut self) {
        self.secrets = self.tokens.values().map(|t| (t.secret_id.clone(), t.accessor_id.clone())).collect();
    }
}

impl Root {
    /// Returns a namespace.
    pub fn namespace(&self, name: &Namespace) -> Option<&Arc<NamespaceSpec>> {
        self.tenancy.namespaces.get(name)
    }
    /// Returns all namespaces, by name.
    pub fn namespaces(&self) -> impl Iterator<Item = &Arc<NamespaceSpec>> {
        self.tenancy.namespaces.values()
    }
    /// Returns a node pool.
    pub fn node_pool(&self, name: &str) -> Option<&Arc<NodePool>> {
        self.tenancy.node_pools.get(name)
    }
    /// Returns all node pools, by name.
    pub fn node_pools(&self) -> impl Iterator<Item = &Arc<NodePool>> {
        self.tenancy.node_pools.values()
    }
    /// Returns a policy.
    pub fn acl_policy(&self, name: &str) -> Option<&Arc<Policy>> {
        self.tenancy.policies.get(name)
    }
    /// Returns all policies, by name.
    pub fn acl_policies(&self) -> impl Iterator<Item = &Arc<Policy>> {
        self.tenancy.policies.values()
    }
    /// Returns a token.
    pub fn acl_token(&self, accessor: &str) -> Option<&Arc<Token>> {
        self.tenancy.tokens.get(accessor)
    }
    /// Returns the token of a secret.
    pub fn acl_token_by_secret(&self, secret: &Secret) -> Option<&Arc<Token>> {
        self.tenancy.tokens.get(self.tenancy.secrets.get(secret)?)
    }
    /// Returns all tokens, by accessor.
    pub fn acl_tokens(&self) -> impl Iterator<Item = &Arc<Token>> {
        self.tenancy.tokens.values()
    }
    /// Returns a role.
    pub fn acl_role(&self, id: &str) -> Option<&Arc<Role>> {
        self.tenancy.roles.get(id)
    }
    /// Returns a role by its name.
    pub fn acl_role_named(&self, name: &str) -> Option<&Arc<Role>> {
        self.tenancy.roles.values().find(|role| role.name == name)
    }
    /// Returns all roles, by id.
    pub fn acl_roles(&self) -> impl Iterator<Item = &Arc<Role>> {
        self.tenancy.roles.values()
    }
    /// Returns an auth method.
    pub fn auth_method(&self, name: &str) -> Option<&Arc<AuthMethod>> {
        self.tenancy.auth_methods.get(name)
    }
    /// Returns all auth methods, by name.
    pub fn auth_methods(&self) -> impl Iterator<Item = &Arc<AuthMethod>> {
        self.tenancy.auth_methods.values()
    }
    /// Returns a binding rule.
    pub fn binding_rule(&self, id: &str) -> Option<&Arc<BindingRule>> {
        self.tenancy.binding_rules.get(id)
    }
    /// Returns all binding rules, by id.
    pub fn binding_rules(&self) -> impl Iterator<Item = &Arc<BindingRule>> {
        self.tenancy.binding_rules.values()
    }
    /// Returns a one-time secret.
    pub fn one_time_token(&self, secret: &Secret) -> Option<&Arc<OneTimeToken>> {
        self.tenancy.one_time.get(secret)
    }
    /// Returns all one-time secrets.
    pub fn one_time_tokens(&self) -> impl Iterator<Item = &Arc<OneTimeToken>> {
        self.tenancy.one_time.values()
    }
    /// Returns the metadata of a root key.
    pub fn root_key(&self, id: &str) -> Option<&Arc<RootKeyMeta>> {
        self.tenancy.root_keys.get(id)
    }
    /// Returns the metadata of all root keys, by id.
    pub fn root_keys(&self) -> impl Iterator<Item = &Arc<RootKeyMeta>> {
        self.tenancy.root_keys.values()
    }
    /// Returns the active root key.
    pub fn active_root_key(&self) -> Option<&Arc<RootKeyMeta>> {
        self.root_keys().find(|key| key.state == RootKeyState::Active)
    }
    /// Returns the scheduler configuration of the region.
    pub fn scheduler_config(&self) -> &SchedulerConfig {
        &self.tenancy.settings.scheduler
    }
    /// Returns the autopilot configuration of the region.
    pub fn autopilot_config(&self) -> &AutopilotConfig {
        &self.tenancy.settings.autopilot
    }
    /// Returns the sealed root keys.
    pub fn root_key_material(&self) -> impl Iterator<Item = &Arc<RootKeyMaterial>> {
        self.tenancy.root_key_material.values()
    }
    /// Returns the state with other sealed root keys. Keys that are not in the list lose their sealed keys.
    #[must_use]
    pub fn with_root_key_material(&self, rows: impl IntoIterator<Item = RootKeyMaterial>) -> Self {
        let mut changed = self.clone();
        changed.tenancy.root_key_material =
            rows.into_iter().map(|row| (row.key_id.clone(), Arc::new(row))).collect();
        changed
    }
    /// Returns a sealed root key.
    pub fn sealed_root_key(&self, id: &str) -> Option<&Arc<RootKeyMaterial>> {
        self.tenancy.root_key_material.get(id)
    }
    /// Returns the feature level of the commands that may be proposed.
    pub fn level(&self) -> u32 {
        self.tenancy.settings.level.max(FIRST_LEVEL)
    }
    /// Returns the index at which the first token was created.
    pub fn acl_bootstrap_index(&self) -> Option<u64> {
        self.tenancy.settings.bootstrap
    }
    /// Returns whether a root key seals any row, or signs the identities of live allocations.
    pub fn uses_root_key(&self, id: &str) -> bool {
        self.variables.values().any(|row| row.items.key == id)
            || self.volumes.values().any(|row| row.secrets.key == id)
            || self.claims.values().any(|row| row.kept_secrets.key == id)
            || self.allocs().any(|row| row.signing_key_id == id && !row.client_terminal())
    }
}
