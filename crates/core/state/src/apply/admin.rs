//! Commands of operators.

use super::Done;
use crate::changes::Changed;
use crate::tenancy::{AdminRow, Settings};
use crate::tx::Tx;
use caravan_types::Namespace;
use caravan_types::acl::{AuthMethod, BindingRule, Role, Secret, Token};
use caravan_types::admin::{AdminChange, Resealed, SealedRow};
use caravan_types::blob::Blob;
use caravan_types::command::Refusal;
use caravan_types::job::JobStatus;
use caravan_types::node_pool::{self, NodePool};
use caravan_types::operator::{AutopilotConfig, RootKeyMaterial, RootKeyMeta, RootKeyState, SchedulerConfig};
use std::sync::Arc;

fn missing(what: &str) -> Refusal {
    Refusal::NotFound { what: what.to_owned() }
}

/// Joins several reasons into one text, in the format that clients of Nomad recognize.
fn reasons(all: &[String]) -> Done {
    if all.is_empty() {
        return Ok(());
    }
    let noun = if all.len() == 1 { "error" } else { "errors" };
    let lines: String = all.iter().map(|e| format!("\t* {e}\n")).collect();
    Err(Refusal::Invalid(format!("{} {noun} occurred:\n{lines}\n", all.len())))
}

/// Writes a row of one of the tables: its indexes, the table, the change.
macro_rules! put {
    ($tx:ident, $table:ident, $key:expr, $row:expr, $changed:expr) => {{
        let (key, mut row) = ($key, $row);
        row.modify_index = $tx.index;
        row.create_index = $tx.root.tenancy.$table.get(&key).map_or($tx.index, |old| old.create_index);
        $tx.root.tenancy.$table.insert(key, Arc::new(row));
        $tx.changed(Changed::Admin($changed));
    }};
}

/// Removes a row and returns it.
macro_rules! remove {
    ($tx:ident, $table:ident, $key:expr, $changed:expr) => {{
        let old = $tx.root.tenancy.$table.remove($key);
        if old.is_some() {
            $tx.changed(Changed::AdminRemoved($changed));
        }
        old
    }};
}

impl Tx {
    /// Replaces everything except for the index, which continues after the index of the snapshot and the index of the
    /// previous state.
    pub(super) fn restore(&mut self, snapshot: &[u8]) -> Done {
        let restored = crate::snapshot::decode(snapshot);
        let before = self.root.clone();
        let level = before.level();
        self.root = restored.map_err(|error| Refusal::Invalid(error.to_string()))?;
        let log_index = self.index - before.ahead;
        self.index = self.index.max(self.root.index + 1);
        self.root.index = self.index;
        self.root.ahead = self.index - log_index;
        self.keep_claims(&before);
        // The level stays that of the current servers, not of the servers that wrote the snapshot.
        self.set_level(level);
        Ok(())
    }

    pub(super) fn restore_part(&mut self, id: &str, number: u32, bytes: &Blob) -> Done {
        let staged = self.root.staged.take().map(|staged| (*staged).clone()).unwrap_or_default();
        self.root.staged = Some(Arc::new(staged.with(id, number, bytes)?));
        Ok(())
    }

    pub(super) fn restore_staged(&mut self, id: &str, parts: u32, sha256: &str) -> Done {
        let staged = self.root.staged.take().unwrap_or_default();
        let snapshot = staged.whole(id, parts, sha256)?;
        self.restore(&snapshot)
    }

    pub(super) fn raise_level(&mut self, level: u32) {
        if level > self.root.level() {
            self.set_level(level);
        }
    }

    fn set_level(&mut self, level: u32) {
        let settings = Settings { level, ..(*self.root.tenancy.settings).clone() };
        self.root.tenancy.settings = Arc::new(settings);
    }

    pub(super) fn admin(&mut self, change: &AdminChange) -> Done {
        match change {
            AdminChange::NamespaceWrite(row) => {
                put!(
                    self,
                    namespaces,
                    row.name.clone(),
                    (**row).clone(),
                    AdminRow::Namespace(row.name.clone())
                );
            }
            AdminChange::NamespaceDelete { name, region } => self.namespace_delete(name, region)?,
            AdminChange::NodePoolWrite(row) => self.put_node_pool((**row).clone()),
            AdminChange::NodePoolDelete { name, region } => self.node_pool_delete(name, region)?,
            AdminChange::Scheduler { config, check_index } => self.scheduler_write(config, *check_index)?,
            AdminChange::Autopilot { config, check_index } => self.autopilot_write(config, *check_index)?,
            AdminChange::Bootstrap { token, reset } => self.bootstrap(token, *reset)?,
            AdminChange::PolicyWrite(row) => {
                put!(self, policies, row.name.clone(), (**row).clone(), AdminRow::Policy(row.name.clone()));
            }
            AdminChange::PolicyDelete(name) => {
                remove!(self, policies, name, AdminRow::Policy(name.clone()));
            }
            AdminChange::TokenWrite(token) => self.put_token((**token).clone())?,
            AdminChange::TokensDelete(accessors) => self.delete_tokens(accessors)?,
            AdminChange::RoleWrite(row) => self.put_role(row)?,
            AdminChange::RoleDelete(id) => {
                remove!(self, roles, id, AdminRow::Role(id.clone())).ok_or_else(|| missing("ACL role"))?;
            }
            AdminChange::AuthMethodWrite(row) => self.put_auth_method((**row).clone())?,
            AdminChange::AuthMethodDelete(name) => self.delete_auth_method(name)?,
            AdminChange::BindingRuleWrite(row) => self.put_binding_rule((**row).clone())?,
            AdminChange::BindingRuleDelete(id) => {
                remove!(self, binding_rules, id, AdminRow::BindingRule(id.clone()))
                    .ok_or_else(|| missing("ACL binding rule"))?;
            }
            AdminChange::OneTimeWrite(row) => {
                let (key, changed) = (row.one_time_secret_id.clone(), row.accessor_id.clone());
                put!(self, one_time, key, (**row).clone(), AdminRow::OneTimeToken(changed));
            }
            AdminChange::OneTimeDelete(secrets) => self.delete_one_time_tokens(secrets)?,
            AdminChange::RootKeyWrite { key, full, material } => {
                self.root_key_write(key, *full);
                material.iter().for_each(|material| self.put_material(material));
            }
            AdminChange::RootKeyMaterial(materials) => {
                for material in materials {
                    // The key may have been removed meanwhile.
                    if self.root.root_key(&material.key_id).is_some() {
                        self.put_material(material);
                    }
                }
            }
            AdminChange::RootKeyDelete { id, force } => self.root_key_delete(id, *force)?,
            AdminChange::Reseal(rows) => {
                // A new seal with a removed key is skipped: the stored row can still be opened.
                let known: Vec<_> =
                    rows.iter().filter(|row| self.can_be_opened(&row.after, None).is_ok()).collect();
                known.into_iter().for_each(|row| self.reseal(row));
            }
        }
        Ok(())
    }

    fn scheduler_write(&mut self, config: &SchedulerConfig, check_index: Option<u64>) -> Done {
        let mut settings = (*self.root.tenancy.settings).clone();
        unchanged("the scheduler configuration", check_index, settings.scheduler.modify_index)?;
        let create_index = settings.scheduler.create_index;
        settings.scheduler = SchedulerConfig { create_index, modify_index: self.index, ..config.clone() };
        self.put_settings(settings);
        Ok(())
    }

    fn autopilot_write(&mut self, config: &AutopilotConfig, check_index: Option<u64>) -> Done {
        let mut settings = (*self.root.tenancy.settings).clone();
        unchanged("the autopilot configuration", check_index, settings.autopilot.modify_index)?;
        let create_index = settings.autopilot.create_index;
        settings.autopilot = AutopilotConfig { create_index, modify_index: self.index, ..config.clone() };
        self.put_settings(settings);
        Ok(())
    }

    fn put_settings(&mut self, settings: Settings) {
        self.root.tenancy.settings = Arc::new(settings);
        self.changed(Changed::Admin(AdminRow::Settings));
    }

    fn delete_tokens(&mut self, accessors: &[String]) -> Done {
        let gone: Vec<&String> =
            accessors.iter().filter(|id| !self.root.tenancy.tokens.contains_key(*id)).collect();
        if !gone.is_empty() {
            let gone: Vec<&str> = gone.iter().map(|id| id.as_str()).collect();
            return Err(Refusal::Invalid(format!("Cannot delete nonexistent tokens: {}", gone.join(", "))));
        }
        accessors.iter().for_each(|id| self.remove_token(id));
        Ok(())
    }

    fn put_role(&mut self, row: &Role) -> Done {
        if self.root.acl_role_named(&row.name).is_some_and(|other| other.id != row.id) {
            return Err(Refusal::Invalid(format!("role with name {} already exists", row.name)));
        }
        put!(self, roles, row.id.clone(), row.clone(), AdminRow::Role(row.id.clone()));
        Ok(())
    }

    fn put_auth_method(&mut self, mut row: AuthMethod) -> Done {
        let other = self.root.auth_methods().find(|m| m.default && m.name != row.name);
        if let Some(other) = other.filter(|_| row.default) {
            return Err(Refusal::Invalid(format!("default method already exists: {}", other.name)));
        }
        let old = self.root.auth_method(&row.name);
        row.create_time = old.map_or(self.now.to_time(), |old| old.create_time);
        row.modify_time = self.now.to_time();
        let name = row.name.clone();
        put!(self, auth_methods, name.clone(), row, AdminRow::AuthMethod(name));
        Ok(())
    }

    fn delete_auth_method(&mut self, name: &String) -> Done {
        remove!(self, auth_methods, name, AdminRow::AuthMethod(name.clone()))
            .ok_or_else(|| missing("ACL auth method"))?;
        let rules = self.root.binding_rules().filter(|rule| rule.auth_method == *name);
        let rules: Vec<String> = rules.map(|rule| rule.id.clone()).collect();
        for id in rules {
            remove!(self, binding_rules, &id, AdminRow::BindingRule(id.clone()));
        }
        Ok(())
    }

    fn put_binding_rule(&mut self, mut row: BindingRule) -> Done {
        if self.root.auth_method(&row.auth_method).is_none() {
            return Err(Refusal::Invalid(format!("ACL auth method {} not found", row.auth_method)));
        }
        let old = self.root.binding_rule(&row.id);
        row.create_time = old.map_or(self.now.to_time(), |old| old.create_time);
        row.modify_time = self.now.to_time();
        let id = row.id.clone();
        put!(self, binding_rules, id.clone(), row, AdminRow::BindingRule(id));
        Ok(())
    }

    fn delete_one_time_tokens(&mut self, secrets: &[Secret]) -> Done {
        let mut found = false;
        for secret in secrets {
            let row = self.root.tenancy.one_time.remove(secret);
            if let Some(row) = row {
                found = true;
                let accessor = row.accessor_id.clone();
                self.changed(Changed::AdminRemoved(AdminRow::OneTimeToken(accessor)));
            }
        }
        if !found {
            return Err(missing("one-time token"));
        }
        Ok(())
    }

    fn namespace_delete(&mut self, name: &Namespace, region: &str) -> Done {
        if *name == "default" {
            return Err(Refusal::Invalid("can not delete default namespace".to_owned()));
        }
        if self.root.namespace(name).is_none() {
            return Err(missing("namespace"));
        }
        let live = self.root.jobs_with_prefix(Some(name), "").any(|job| job.status != JobStatus::Dead);
        let volumes = self.root.volumes_with_prefix(Some(name), "").next().is_some()
            || self.root.host_volumes().any(|volume| volume.namespace == *name);
        let variables = self.root.variables_with_prefix(Some(name), "").next().is_some();
        let found: Vec<String> =
            [(live, "non-terminal jobs"), (volumes, "volumes"), (variables, "variables")]
                .into_iter()
                .filter(|(there, _)| *there)
                .map(|(_, what)| format!("namespace \"{name}\" has {what} in regions: [{region}]"))
                .collect();
        reasons(&found)?;
        remove!(self, namespaces, name, AdminRow::Namespace(name.clone()));
        Ok(())
    }

    fn put_node_pool(&mut self, row: NodePool) {
        let name = row.name.clone();
        put!(self, node_pools, name.clone(), row, AdminRow::NodePool(name));
    }

    /// Creates the pool of a node if no operator has created it.
    pub(super) fn ensure_node_pool(&mut self, name: &str) {
        if !name.is_empty() && self.root.node_pool(name).is_none() {
            self.put_node_pool(NodePool { name: name.to_owned(), ..NodePool::default() });
        }
    }

    fn node_pool_delete(&mut self, name: &str, region: &str) -> Done {
        if self.root.node_pool(name).is_none() {
            return Err(missing("node pool"));
        }
        let jobs = self.root.jobs().any(|job| job.node_pool == name && job.status != JobStatus::Dead);
        let nodes = self.root.nodes().any(|node| node.node_pool == name || name == node_pool::ALL);
        let found: Vec<String> = [(jobs, "non-terminal jobs"), (nodes, "nodes")]
            .into_iter()
            .filter(|(there, _)| *there)
            .map(|(_, what)| format!("node pool \"{name}\" has {what} in regions: [{region}]"))
            .collect();
        reasons(&found)?;
        if NodePool::is_built_in(name) {
            return Err(Refusal::Invalid(format!("node pool \"{name}\" cannot be deleted")));
        }
        remove!(self, node_pools, name, AdminRow::NodePool(name.to_owned()));
        Ok(())
    }

    fn bootstrap(&mut self, token: &Token, reset: Option<u64>) -> Done {
        if let Some(done) = self.root.acl_bootstrap_index()
            && reset != Some(done)
        {
            return Err(Refusal::Invalid(format!("ACL bootstrap already done (reset index: {done})")));
        }
        let mut settings = (*self.root.tenancy.settings).clone();
        settings.bootstrap = Some(self.index);
        self.root.tenancy.settings = Arc::new(settings);
        self.changed(Changed::Admin(AdminRow::Settings));
        self.put_token(token.clone())
    }

    fn put_token(&mut self, token: Token) -> Done {
        let owner = self.root.tenancy.secrets.get(&token.secret_id);
        if owner.is_some_and(|owner| *owner != token.accessor_id) {
            return Err(Refusal::Invalid("the secret of the token is another one's".to_owned()));
        }
        let accessor = token.accessor_id.clone();
        if let Some(old) = self.root.tenancy.tokens.get(&accessor) {
            self.root.tenancy.secrets.remove(&old.secret_id.clone());
        }
        self.root.tenancy.secrets.insert(token.secret_id.clone(), accessor.clone());
        put!(self, tokens, accessor.clone(), token, AdminRow::Token(accessor));
        Ok(())
    }

    fn remove_token(&mut self, accessor: &str) {
        if let Some(old) = remove!(self, tokens, accessor, AdminRow::Token(accessor.to_owned())) {
            self.root.tenancy.secrets.remove(&old.secret_id);
        }
    }

    fn root_key_write(&mut self, key: &RootKeyMeta, full: bool) {
        if key.state == RootKeyState::Active {
            let others: Vec<Arc<RootKeyMeta>> =
                self.root.root_keys().filter(|other| other.key_id != key.key_id).cloned().collect();
            for other in others {
                let state = match other.state {
                    RootKeyState::Active | RootKeyState::Inactive if full => RootKeyState::Rekeying,
                    RootKeyState::Active => RootKeyState::Inactive,
                    as_it_is => as_it_is,
                };
                if state != other.state {
                    let row = RootKeyMeta { state, ..(*other).clone() };
                    let id = row.key_id.clone();
                    put!(self, root_keys, id.clone(), row, AdminRow::RootKey(id));
                }
            }
        }
        let id = key.key_id.clone();
        put!(self, root_keys, id.clone(), key.clone(), AdminRow::RootKey(id));
    }

    fn put_material(&mut self, material: &RootKeyMaterial) {
        let id = material.key_id.clone();
        self.root.tenancy.root_key_material.insert(id.clone(), Arc::new(material.clone()));
        self.changed(Changed::Admin(AdminRow::RootKey(id)));
    }

    fn root_key_delete(&mut self, id: &str, force: bool) -> Done {
        let key = self.root.root_key(id).ok_or_else(|| Refusal::Invalid("root key not found".to_owned()))?;
        if key.state == RootKeyState::Active {
            return Err(Refusal::Invalid("active root key cannot be deleted - call rotate first".to_owned()));
        }
        if !force && self.root.uses_root_key(id) {
            return Err(Refusal::Invalid("root key in use, cannot delete".to_owned()));
        }
        remove!(self, root_keys, id, AdminRow::RootKey(id.to_owned()));
        self.root.tenancy.root_key_material.remove(id);
        Ok(())
    }

    fn reseal(&mut self, resealed: &Resealed) {
        let Resealed { row, before, after } = resealed;
        match row {
            SealedRow::Variable(key) => {
                if let Some(old) = self.root.variables.get(key).filter(|old| old.items == *before) {
                    let row = caravan_types::variable::Variable { items: after.clone(), ..(**old).clone() };
                    self.root.variables.insert(key.clone(), Arc::new(row));
                }
            }
            SealedRow::Volume(key) => {
                if let Some(old) = self.root.volumes.get(key).filter(|old| old.secrets == *before) {
                    let row = caravan_types::volume::Volume { secrets: after.clone(), ..(**old).clone() };
                    self.root.volumes.insert(key.clone(), Arc::new(row));
                }
            }
            SealedRow::Claim(id) => {
                if let Some(old) = self.root.claims.get(id).filter(|old| old.kept_secrets == *before) {
                    let row = caravan_types::volume::Claim { kept_secrets: after.clone(), ..(**old).clone() };
                    self.root.claims.insert(id.clone(), Arc::new(row));
                }
            }
        }
    }
}

fn unchanged(what: &str, expected: Option<u64>, actual: u64) -> Done {
    match expected {
        Some(expected) if expected != actual => Err(Refusal::Changed { what: what.to_owned() }),
        _ => Ok(()),
    }
}

/// Refuses a job without an existing namespace and an existing node pool.
pub(super) fn homes(root: &crate::root::Root, job: &caravan_types::job::Job) -> Done {
    let mut missing = Vec::new();
    if root.namespace(&job.namespace).is_none() {
        missing.push(format!("job \"{}\" is in nonexistent namespace \"{}\"", job.id, job.namespace));
    }
    if root.node_pool(&job.node_pool).is_none() {
        missing.push(format!("job \"{}\" is in nonexistent node pool \"{}\"", job.id, job.node_pool));
    }
    reasons(&missing)
}
