//! Namespaces, node pools, access control and the settings of the region: rows that operators write.

use crate::root::{Root, Table};
use caravan_types::Namespace;
use caravan_types::acl::{AuthMethod, BindingRule, OneTimeToken, Policy, Role, Secret, Token};
use caravan_types::namespace::NamespaceSpec;
use caravan_types::node_pool::NodePool;
use caravan_types::operator::{AutopilotConfig, RootKeyMeta, RootKeyState, SchedulerConfig};
use imbl::OrdMap;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// A row that an operator wrote, by its key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AdminRow {
    /// By name.
    Namespace(Namespace),
    /// By name.
    NodePool(String),
    /// By name.
    Policy(String),
    /// By accessor.
    Token(String),
    /// By id.
    Role(String),
    /// By name.
    AuthMethod(String),
    /// By id.
    BindingRule(String),
    /// The accessor that it stands for; the secret is named nowhere.
    OneTimeToken(String),
    /// By id.
    RootKey(String),
    /// The settings of the region.
    Settings,
}

impl AdminRow {
    /// The table of the row.
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

/// The tables.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Tenancy {
    pub(crate) namespaces: OrdMap<Namespace, Arc<NamespaceSpec>>,
    pub(crate) node_pools: OrdMap<String, Arc<NodePool>>,
    pub(crate) policies: OrdMap<String, Arc<Policy>>,
    /// By accessor.
    pub(crate) tokens: OrdMap<String, Arc<Token>>,
    /// Accessors by secret.
    pub(crate) secrets: OrdMap<Secret, String>,
    pub(crate) roles: OrdMap<String, Arc<Role>>,
    pub(crate) auth_methods: OrdMap<String, Arc<AuthMethod>>,
    pub(crate) binding_rules: OrdMap<String, Arc<BindingRule>>,
    pub(crate) one_time: OrdMap<Secret, Arc<OneTimeToken>>,
    pub(crate) root_keys: OrdMap<String, Arc<RootKeyMeta>>,
    pub(crate) settings: Arc<Settings>,
}

/// What is set once for the region.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Settings {
    pub(crate) scheduler: SchedulerConfig,
    pub(crate) autopilot: AutopilotConfig,
    /// Index at which the first token was made.
    pub(crate) bootstrap: Option<u64>,
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
            settings: Arc::new(Settings { scheduler, ..Settings::default() }),
        }
    }
}

impl Tenancy {
    /// What follows from the rows is made again.
    pub(crate) fn index(&mut self) {
        self.secrets = self.tokens.values().map(|t| (t.secret_id.clone(), t.accessor_id.clone())).collect();
    }
}

impl Root {
    /// A namespace.
    pub fn namespace(&self, name: &Namespace) -> Option<&Arc<NamespaceSpec>> {
        self.tenancy.namespaces.get(name)
    }
    /// All namespaces, by name.
    pub fn namespaces(&self) -> impl Iterator<Item = &Arc<NamespaceSpec>> {
        self.tenancy.namespaces.values()
    }
    /// A node pool.
    pub fn node_pool(&self, name: &str) -> Option<&Arc<NodePool>> {
        self.tenancy.node_pools.get(name)
    }
    /// All node pools, by name.
    pub fn node_pools(&self) -> impl Iterator<Item = &Arc<NodePool>> {
        self.tenancy.node_pools.values()
    }
    /// A policy.
    pub fn acl_policy(&self, name: &str) -> Option<&Arc<Policy>> {
        self.tenancy.policies.get(name)
    }
    /// All policies, by name.
    pub fn acl_policies(&self) -> impl Iterator<Item = &Arc<Policy>> {
        self.tenancy.policies.values()
    }
    /// A token.
    pub fn acl_token(&self, accessor: &str) -> Option<&Arc<Token>> {
        self.tenancy.tokens.get(accessor)
    }
    /// The token of a secret.
    pub fn acl_token_by_secret(&self, secret: &Secret) -> Option<&Arc<Token>> {
        self.tenancy.tokens.get(self.tenancy.secrets.get(secret)?)
    }
    /// All tokens, by accessor.
    pub fn acl_tokens(&self) -> impl Iterator<Item = &Arc<Token>> {
        self.tenancy.tokens.values()
    }
    /// A role.
    pub fn acl_role(&self, id: &str) -> Option<&Arc<Role>> {
        self.tenancy.roles.get(id)
    }
    /// A role by its name.
    pub fn acl_role_named(&self, name: &str) -> Option<&Arc<Role>> {
        self.tenancy.roles.values().find(|role| role.name == name)
    }
    /// All roles, by id.
    pub fn acl_roles(&self) -> impl Iterator<Item = &Arc<Role>> {
        self.tenancy.roles.values()
    }
    /// A way to log in.
    pub fn auth_method(&self, name: &str) -> Option<&Arc<AuthMethod>> {
        self.tenancy.auth_methods.get(name)
    }
    /// All ways to log in, by name.
    pub fn auth_methods(&self) -> impl Iterator<Item = &Arc<AuthMethod>> {
        self.tenancy.auth_methods.values()
    }
    /// A binding rule.
    pub fn binding_rule(&self, id: &str) -> Option<&Arc<BindingRule>> {
        self.tenancy.binding_rules.get(id)
    }
    /// All binding rules, by id.
    pub fn binding_rules(&self) -> impl Iterator<Item = &Arc<BindingRule>> {
        self.tenancy.binding_rules.values()
    }
    /// A secret that is exchanged once.
    pub fn one_time_token(&self, secret: &Secret) -> Option<&Arc<OneTimeToken>> {
        self.tenancy.one_time.get(secret)
    }
    /// All of them.
    pub fn one_time_tokens(&self) -> impl Iterator<Item = &Arc<OneTimeToken>> {
        self.tenancy.one_time.values()
    }
    /// What is known of a root key.
    pub fn root_key(&self, id: &str) -> Option<&Arc<RootKeyMeta>> {
        self.tenancy.root_keys.get(id)
    }
    /// What is known of all root keys, by id.
    pub fn root_keys(&self) -> impl Iterator<Item = &Arc<RootKeyMeta>> {
        self.tenancy.root_keys.values()
    }
    /// The root key in use.
    pub fn active_root_key(&self) -> Option<&Arc<RootKeyMeta>> {
        self.root_keys().find(|key| key.state == RootKeyState::Active)
    }
    /// How scheduling is done in the region.
    pub fn scheduler_config(&self) -> &SchedulerConfig {
        &self.tenancy.settings.scheduler
    }
    /// Care for the set of servers.
    pub fn autopilot_config(&self) -> &AutopilotConfig {
        &self.tenancy.settings.autopilot
    }
    /// Index at which the first token was made.
    pub fn acl_bootstrap_index(&self) -> Option<u64> {
        self.tenancy.settings.bootstrap
    }
    /// Whether anything is sealed with a root key, or the identities of allocations that live are signed with it.
    pub fn uses_root_key(&self, id: &str) -> bool {
        self.variables.values().any(|row| row.items.key == id)
            || self.volumes.values().any(|row| row.secrets.key == id)
            || self.claims.values().any(|row| row.kept_secrets.key == id)
            || self.allocs().any(|row| row.signing_key_id == id && !row.client_terminal())
    }
}
