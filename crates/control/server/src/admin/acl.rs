//! Policies, tokens, roles (docs/reference/http-api.md, section 3.6).

use super::fault::{AdminFault, RowProblem};
use super::{Admin, hash_of};
use crate::acl;
use crate::core::new_id;
use crate::error::{Denial, ServerError};
use caravan_state::Root;
use caravan_types::acl::{OneTimeToken, Policy, Role, RoleLink, Secret, Token, TokenType};
use caravan_types::admin::AdminChange;
use caravan_types::{Nanos, Time};
use std::sync::Arc;

/// The time for which a one-time secret can be exchanged.
const ONE_TIME: Nanos = Nanos::from_secs(600);

/// Whether a text has the form of a UUID.
fn is_uuid(text: &str) -> bool {
    text.len() == 36 && uuid::Uuid::parse_str(text).is_ok()
}

/// Checks the accessor and the secret that a request specifies for a new token.
fn check_upload(root: &Root, token: &Token) -> Result<(), AdminFault> {
    let (accessor, secret) = (token.accessor_id.as_str(), &token.secret_id);
    if secret.is_empty() {
        return match accessor {
            "" => Ok(()),
            unknown => Err(AdminFault::NoToken(unknown.to_owned())),
        };
    }
    // Only the servers choose the secret of a management token.
    if token.kind == TokenType::Management {
        return Err(AdminFault::ManagementUpload);
    }
    if !accessor.is_empty() && !is_uuid(accessor) {
        return Err(AdminFault::AccessorId);
    }
    if !is_uuid(secret.expose()) {
        return Err(AdminFault::SecretId);
    }
    match root.acl_token_by_secret(secret) {
        Some(_) => Err(AdminFault::SecretTaken),
        None => Ok(()),
    }
}

impl Admin {
    /// Returns the limits of a token's lifetime.
    pub(super) fn life(&self) -> (Nanos, Nanos) {
        (self.config.min_expiration, self.config.max_expiration)
    }

    /// Creates the first token. `secret` is its secret, if the operator provides one. A second bootstrap requires the
    /// index of the previous one in the file `acl-bootstrap-reset` of this server.
    ///
    /// # Errors
    /// If the bootstrap was done before, or the secret is not a UUID.
    pub async fn bootstrap(&self, secret: Option<String>) -> Result<(Arc<Token>, u64), ServerError> {
        if secret.as_deref().is_some_and(|secret| !is_uuid(secret)) {
            return Err(AdminFault::BootstrapSecret.into());
        }
        let reset = match self.core.snapshot().acl_bootstrap_index() {
            Some(done) => self.reset(done)?,
            None => None,
        };
        let mut token = Token {
            accessor_id: new_id(),
            secret_id: Secret::new(secret.unwrap_or_else(new_id)),
            name: "Bootstrap Token".into(),
            kind: TokenType::Management,
            global: true,
            create_time: self.core.now().to_time(),
            ..Token::default()
        };
        token.hash = Some(hash_of(&token.stub()));
        let accessor = token.accessor_id.clone();
        let change = AdminChange::Bootstrap { token: Box::new(token), reset };
        let index = self.commit_as(change, AdminFault::BadRequest).await?;
        Ok((self.stored(&accessor)?, index))
    }

    /// Returns the content of the reset file, if it matches the previous bootstrap.
    fn reset(&self, done: u64) -> Result<Option<u64>, AdminFault> {
        let Some(path) = &self.reset_file else { return Ok(None) };
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "the file that resets the bootstrap cannot be read");
                return Ok(None);
            }
        };
        match text.trim().parse() {
            Ok(index) if index == done => {
                tracing::warn!(index, "the bootstrap of access control is reset");
                Ok(Some(index))
            }
            Ok(0) => Ok(None),
            Ok(index) => Err(AdminFault::ResetIndex { index, done }),
            Err(_) => {
                tracing::warn!(path = %path.display(), "the file that resets the bootstrap holds no index");
                Ok(None)
            }
        }
    }

    fn stored(&self, accessor: &str) -> Result<Arc<Token>, AdminFault> {
        let root = self.core.snapshot();
        root.acl_token(accessor).cloned().ok_or(AdminFault::Removed("token"))
    }

    /// Writes a policy.
    ///
    /// # Errors
    /// If the request has problems; the error contains all of them.
    pub async fn write_policy(&self, mut policy: Policy) -> Result<u64, ServerError> {
        let mut problems = RowProblem::rows(policy.check().err().unwrap_or_default());
        if let Err(error) = acl::parse(&policy.rules) {
            problems.push(RowProblem::Rules(Arc::new(error)));
        }
        if !problems.is_empty() {
            return Err(AdminFault::Invalid { row: "policy", problems }.into());
        }
        (policy.create_index, policy.modify_index, policy.hash) = (0, 0, String::new());
        policy.hash = hash_of(&policy);
        self.commit(AdminChange::PolicyWrite(Box::new(policy))).await
    }

    /// Removes a policy; succeeds if it does not exist.
    ///
    /// # Errors
    /// If the change cannot be made durable.
    pub async fn delete_policy(&self, name: String) -> Result<u64, ServerError> {
        self.commit(AdminChange::PolicyDelete(name)).await
    }

    /// Creates a token, or updates the token with its accessor.
    ///
    /// # Errors
    /// If the request has problems; the error contains all of them.
    pub async fn write_token(&self, mut token: Token) -> Result<(Arc<Token>, u64), ServerError> {
        let (root, now) = (self.core.snapshot(), self.core.now());
        let before = root.acl_token(&token.accessor_id);
        if before.is_none() {
            check_upload(&root, &token)?;
        }
        match before {
            Some(before) => {
                token.secret_id = before.secret_id.clone();
                token.create_time = before.create_time;
            }
            None => {
                if token.accessor_id.is_empty() {
                    token.accessor_id = new_id();
                }
                if token.secret_id.is_empty() {
                    token.secret_id = Secret::new(new_id());
                }
                token.create_time = now.to_time();
                if !token.expiration_ttl.is_zero() {
                    token.expiration_time = now.plus(token.expiration_ttl.0).to_time();
                }
            }
        }
        if let Err(problems) = token.check(before.map(AsRef::as_ref), now, self.life()) {
            return Err(AdminFault::invalid("token", problems).into());
        }
        if let Some(roles) = &mut token.roles {
            *roles = linked(&root, roles)?;
        }
        // A token with roles also has a list of policies, possibly empty.
        if token.roles.is_some() && token.policies.is_none() {
            token.policies = Some(Vec::new());
        }
        (token.create_index, token.modify_index, token.hash) = (0, 0, None);
        token.hash = Some(hash_of(&token.stub()));
        let accessor = token.accessor_id.clone();
        let index = self.commit_as(AdminChange::TokenWrite(Box::new(token)), AdminFault::BadRequest).await?;
        Ok((self.stored(&accessor)?, index))
    }

    /// Removes tokens by their accessors.
    ///
    /// # Errors
    /// If one of the tokens does not exist.
    pub async fn delete_tokens(&self, accessors: Vec<String>) -> Result<u64, ServerError> {
        self.commit_as(AdminChange::TokensDelete(accessors), AdminFault::BadRequest).await
    }

    /// Creates a one-time secret that can be exchanged once for the token's secret.
    ///
    /// # Errors
    /// If the change cannot be made durable.
    pub async fn make_one_time(&self, accessor: &str) -> Result<(OneTimeToken, u64), ServerError> {
        let row = OneTimeToken {
            one_time_secret_id: Secret::new(new_id()),
            accessor_id: accessor.to_owned(),
            expires_at: self.core.now().plus(ONE_TIME).to_time(),
            ..OneTimeToken::default()
        };
        let index = self.commit(AdminChange::OneTimeWrite(Box::new(row.clone()))).await?;
        Ok((OneTimeToken { create_index: index, modify_index: index, ..row }, index))
    }

    /// Exchanges a one-time secret for its token; the secret is used up.
    ///
    /// # Errors
    /// If the secret is not valid (any more).
    pub async fn exchange(&self, secret: Secret) -> Result<(Arc<Token>, u64), ServerError> {
        let root = self.core.snapshot();
        let row = root.one_time_token(&secret).ok_or(Denial::Any)?;
        let token = root.acl_token(&row.accessor_id).cloned().ok_or(Denial::Any)?;
        let over = row.expires_at.to_unix() <= self.core.now();
        let used = self.commit(AdminChange::OneTimeDelete(vec![secret])).await;
        let index = used.map_err(|error| match error {
            ServerError::Admin(AdminFault::Refused(_)) => Denial::Any.into(),
            error => error,
        })?;
        if over { Err(Denial::Any.into()) } else { Ok((token, index)) }
    }

    /// Creates a role, or updates the role with its id.
    ///
    /// # Errors
    /// If the request has problems; the error contains all of them.
    pub async fn write_role(&self, mut role: Role) -> Result<(Arc<Role>, u64), ServerError> {
        if let Err(problems) = role.check() {
            return Err(AdminFault::invalid("role", problems).into());
        }
        let root = self.core.snapshot();
        if role.id.is_empty() {
            role.id = new_id();
        } else if root.acl_role(&role.id).is_none() {
            return Err(AdminFault::NoRole(role.id).into());
        }
        if root.acl_role_named(&role.name).is_some_and(|other| other.id != role.id) {
            return Err(AdminFault::RoleName(role.name).into());
        }
        for policy in &role.policies {
            if root.acl_policy(&policy.name).is_none() {
                return Err(AdminFault::NoPolicy(policy.name.clone()).into());
            }
        }
        let mut seen = std::collections::BTreeSet::new();
        role.policies.retain(|policy| seen.insert(policy.name.clone()));
        (role.create_index, role.modify_index, role.hash) = (0, 0, String::new());
        role.hash = hash_of(&role);
        let id = role.id.clone();
        let index = self.commit_as(AdminChange::RoleWrite(Box::new(role)), AdminFault::BadRequest).await?;
        let root = self.core.snapshot();
        let role = root.acl_role(&id).cloned().ok_or(AdminFault::Removed("role"))?;
        Ok((role, index))
    }

    /// Removes a role.
    ///
    /// # Errors
    /// If the role does not exist.
    pub async fn delete_role(&self, id: String) -> Result<u64, ServerError> {
        self.commit(AdminChange::RoleDelete(id)).await
    }

    /// Removes expired tokens and expired one-time secrets. The authoritative region alone removes tokens that are
    /// valid in all regions; the others replicate the removal.
    ///
    /// # Errors
    /// If the change cannot be made durable.
    pub(crate) async fn collect_expired(&self) -> Result<(), ServerError> {
        let (root, now) = (self.core.snapshot(), self.core.now());
        let tokens: Vec<String> = root
            .acl_tokens()
            .filter(|t| t.expired(now) && (self.is_authoritative || !t.global))
            .map(|t| t.accessor_id.clone())
            .collect();
        if !tokens.is_empty() {
            self.commit(AdminChange::TokensDelete(tokens)).await?;
        }
        let over = |row: &&Arc<OneTimeToken>| row.expires_at != Time(0) && row.expires_at.to_unix() <= now;
        let secrets: Vec<Secret> =
            root.one_time_tokens().filter(over).map(|row| row.one_time_secret_id.clone()).collect();
        if !secrets.is_empty() {
            self.commit(AdminChange::OneTimeDelete(secrets)).await?;
        }
        Ok(())
    }
}

/// Returns links to roles, each with id and name, without duplicates. A link in `roles` names its role by id or by
/// name.
fn linked(root: &Root, roles: &[RoleLink]) -> Result<Vec<RoleLink>, AdminFault> {
    let mut out: Vec<RoleLink> = Vec::new();
    for link in roles {
        let role = if link.id.is_empty() { root.acl_role_named(&link.name) } else { root.acl_role(&link.id) };
        let asked = if link.id.is_empty() { &link.name } else { &link.id };
        let role = role.ok_or_else(|| AdminFault::NoRole(asked.clone()))?;
        if !out.iter().any(|known| known.id == role.id) {
            out.push(RoleLink { id: role.id.clone(), name: role.name.clone() });
        }
    }
    Ok(out)
}
