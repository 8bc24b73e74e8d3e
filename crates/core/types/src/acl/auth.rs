//! Authentication methods, and the rights that a login receives (docs/reference/http-api.md, section 5.8).

use super::token::Secret;
use crate::duration::GoDuration;
use crate::ser::nil;
use crate::time::{Nanos, Time};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// An authentication method: the settings of one kind of login.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[expect(missing_docs, reason = "fields are those of docs/reference/http-api.md, section 5.8")]
pub struct AuthMethod {
    pub name: String,
    #[serde(rename = "Type")]
    pub kind: String,
    pub token_locality: String,
    pub token_name_format: String,
    #[serde(rename = "MaxTokenTTL")]
    pub max_token_ttl: GoDuration,
    pub default: bool,
    pub config: Option<AuthConfig>,
    pub hash: String,
    pub create_time: Time,
    pub modify_time: Time,
    pub create_index: u64,
    pub modify_index: u64,
}

/// An authentication method as an element of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[expect(missing_docs, reason = "fields are those of docs/reference/http-api.md, section 3.6")]
pub struct AuthMethodStub {
    pub name: String,
    #[serde(rename = "Type")]
    pub kind: String,
    pub default: bool,
    pub hash: String,
    pub create_index: u64,
    pub modify_index: u64,
}

/// The settings with which proofs of identity are verified. `Debug` does not show the client's secret.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "fields are those of docs/reference/http-api.md, section 5.8")]
pub struct AuthConfig {
    #[serde(rename = "JWTValidationPubKeys")]
    pub jwt_validation_pub_keys: Option<Vec<String>>,
    #[serde(rename = "JWKSURL")]
    pub jwks_url: String,
    #[serde(rename = "JWKSCACert")]
    pub jwks_ca_cert: String,
    #[serde(rename = "OIDCDiscoveryURL")]
    pub oidc_discovery_url: String,
    #[serde(rename = "OIDCClientID")]
    pub oidc_client_id: String,
    #[serde(rename = "OIDCClientSecret")]
    pub oidc_client_secret: Secret,
    #[serde(rename = "OIDCClientAssertion")]
    pub oidc_client_assertion: Option<BTreeMap<String, String>>,
    #[serde(rename = "OIDCEnablePKCE")]
    pub oidc_enable_pkce: bool,
    #[serde(rename = "OIDCDisableUserInfo")]
    pub oidc_disable_user_info: bool,
    #[serde(rename = "OIDCScopes")]
    pub oidc_scopes: Option<Vec<String>>,
    #[serde(rename = "BoundAudiences")]
    pub bound_audiences: Option<Vec<String>>,
    #[serde(rename = "BoundIssuer")]
    pub bound_issuer: Option<Vec<String>>,
    #[serde(rename = "AllowedRedirectURIs")]
    pub allowed_redirect_uris: Option<Vec<String>>,
    #[serde(rename = "DiscoveryCaPem")]
    pub discovery_ca_pem: Option<Vec<String>>,
    #[serde(rename = "SigningAlgs")]
    pub signing_algs: Option<Vec<String>>,
    #[serde(rename = "ExpirationLeeway")]
    pub expiration_leeway: GoDuration,
    #[serde(rename = "NotBeforeLeeway")]
    pub not_before_leeway: GoDuration,
    #[serde(rename = "ClockSkewLeeway")]
    pub clock_skew_leeway: GoDuration,
    #[serde(rename = "ClaimMappings", with = "nil")]
    pub claim_mappings: BTreeMap<String, String>,
    #[serde(rename = "ListClaimMappings", with = "nil")]
    pub list_claim_mappings: BTreeMap<String, String>,
    #[serde(rename = "VerboseLogging")]
    pub verbose_logging: bool,
}

impl AuthMethod {
    /// Returns the method as an element of a list.
    pub fn stub(&self) -> AuthMethodStub {
        AuthMethodStub {
            name: self.name.clone(),
            kind: self.kind.clone(),
            default: self.default,
            hash: self.hash.clone(),
            create_index: self.create_index,
            modify_index: self.modify_index,
        }
    }

    /// Returns the method for a response, with the client's secret replaced by `redacted`.
    #[must_use]
    pub fn shown(&self) -> Self {
        let mut shown = self.clone();
        if let Some(config) = shown.config.as_mut().filter(|c| !c.oidc_client_secret.is_empty()) {
            config.oidc_client_secret = Secret::new("redacted");
        }
        shown
    }

    /// Completes an update from the stored method: empty fields keep their stored values, except `default`.
    pub fn merge(&mut self, before: &Self) {
        let keep = |mine: &mut String, old: &String| {
            if mine.is_empty() {
                mine.clone_from(old);
            }
        };
        keep(&mut self.kind, &before.kind);
        keep(&mut self.token_locality, &before.token_locality);
        keep(&mut self.token_name_format, &before.token_name_format);
        if self.max_token_ttl.is_zero() {
            self.max_token_ttl = before.max_token_ttl;
        }
        match (&mut self.config, &before.config) {
            (None, old) => self.config.clone_from(old),
            // A client that read the method and writes it back does not intend to change the secret.
            (Some(new), Some(old)) if matches!(new.oidc_client_secret.expose(), "" | "redacted") => {
                new.oidc_client_secret = old.oidc_client_secret.clone();
            }
            _ => {}
        }
    }

    /// Checks the method without other objects; `life` is the shortest and longest time to live of a token.
    ///
    /// # Errors
    /// Returns all problems.
    pub fn check(&self, life: (Nanos, Nanos)) -> Result<(), Vec<String>> {
        let mut errors = Vec::new();
        if !crate::namespace::is_name(&self.name) {
            errors.push(format!("invalid name '{}'", self.name));
        }
        if !matches!(self.token_locality.as_str(), "local" | "global") {
            errors.push(format!("invalid token locality '{}'", self.token_locality));
        }
        if !matches!(self.kind.as_str(), "OIDC" | "JWT") {
            errors.push(format!("invalid token type '{}'", self.kind));
        }
        match &self.config {
            None => errors.push("invalid config: missing auth method Config".to_owned()),
            Some(config) => config.check(&self.kind, &mut errors),
        }
        let ttl = self.max_token_ttl.0;
        if ttl < life.0 || ttl > life.1 {
            errors.push(format!(
                "invalid MaxTokenTTL value '{ttl}' (should be between {} and {})",
                life.0, life.1
            ));
        }
        if errors.is_empty() { Ok(()) } else { Err(errors) }
    }
}

impl AuthConfig {
    fn check(&self, kind: &str, errors: &mut Vec<String>) {
        match kind {
            "OIDC" => {
                for (missing, what) in [
                    (self.oidc_discovery_url.is_empty(), "missing OIDCDiscoveryURL"),
                    (self.oidc_client_id.is_empty(), "missing OIDCClientID"),
                ] {
                    if missing {
                        errors.push(format!("invalid config: {what}"));
                    }
                }
            }
            "JWT" => {
                let ways = [
                    self.jwt_validation_pub_keys.as_ref().is_some_and(|keys| !keys.is_empty()),
                    !self.jwks_url.is_empty(),
                    !self.oidc_discovery_url.is_empty(),
                ];
                if ways.iter().filter(|way| **way).count() != 1 {
                    errors.push(
                        "invalid config: exactly one of 'JWTValidationPubKeys', 'JWKSURL', or 'OIDCDiscoveryURL' must be set"
                            .to_owned(),
                    );
                }
            }
            _ => {}
        }
    }
}

/// The kind of right that a binding rule grants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BindType {
    /// A role, by name.
    Role,
    /// A policy, by name.
    Policy,
    /// All rights.
    Management,
}

/// A rule that grants rights to a user who logged in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[expect(missing_docs, reason = "fields are those of docs/reference/http-api.md, section 5.8")]
pub struct BindingRule {
    #[serde(rename = "ID")]
    pub id: String,
    pub description: String,
    pub auth_method: String,
    pub selector: String,
    pub bind_type: String,
    pub bind_name: String,
    pub hash: String,
    pub create_time: Time,
    pub modify_time: Time,
    pub create_index: u64,
    pub modify_index: u64,
}

/// A binding rule as an element of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[expect(missing_docs, reason = "fields are those of docs/reference/http-api.md, section 3.6")]
pub struct BindingRuleStub {
    #[serde(rename = "ID")]
    pub id: String,
    pub description: String,
    pub auth_method: String,
    pub hash: String,
    pub create_index: u64,
    pub modify_index: u64,
}

impl BindingRule {
    /// Returns the binding rule as an element of a list.
    pub fn stub(&self) -> BindingRuleStub {
        BindingRuleStub {
            id: self.id.clone(),
            description: self.description.clone(),
            auth_method: self.auth_method.clone(),
            hash: self.hash.clone(),
            create_index: self.create_index,
            modify_index: self.modify_index,
        }
    }

    /// Returns the kind of right that the rule grants, or `None` for an unknown kind.
    pub fn binds(&self) -> Option<BindType> {
        match self.bind_type.as_str() {
            "role" => Some(BindType::Role),
            "policy" => Some(BindType::Policy),
            "management" => Some(BindType::Management),
            _ => None,
        }
    }

    /// Completes an update from the stored rule: empty fields keep their stored values, except the selector.
    pub fn merge(&mut self, before: &Self) {
        for (mine, old) in [
            (&mut self.description, &before.description),
            (&mut self.auth_method, &before.auth_method),
            (&mut self.bind_type, &before.bind_type),
            (&mut self.bind_name, &before.bind_name),
        ] {
            if mine.is_empty() {
                mine.clone_from(old);
            }
        }
    }

    /// Checks the rule without other objects, and without the selector.
    ///
    /// # Errors
    /// Returns all problems.
    pub fn check(&self) -> Result<(), Vec<String>> {
        let mut errors = Vec::new();
        if self.auth_method.is_empty() {
            errors.push("auth method is missing".to_owned());
        }
        if self.description.chars().count() > crate::namespace::MAX_DESCRIPTION {
            errors.push(format!("description longer than {}", crate::namespace::MAX_DESCRIPTION));
        }
        match self.binds() {
            None => errors.push(format!("unsupported bind type: \"{}\"", self.bind_type)),
            Some(BindType::Management) if !self.bind_name.is_empty() => {
                errors.push("bind name should be empty".to_owned());
            }
            Some(BindType::Role | BindType::Policy) if self.bind_name.is_empty() => {
                errors.push("bind name is missing".to_owned());
            }
            Some(_) => {}
        }
        if errors.is_empty() { Ok(()) } else { Err(errors) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIFE: (Nanos, Nanos) = (Nanos::from_secs(60), Nanos::from_secs(86_400));

    #[test]
    fn problems_come_in_the_recorded_order() {
        let method = AuthMethod { name: "bad name!".into(), kind: "JWT".into(), ..AuthMethod::default() };
        assert_eq!(
            method.check(LIFE).unwrap_err(),
            [
                "invalid name 'bad name!'",
                "invalid token locality ''",
                "invalid config: missing auth method Config",
                "invalid MaxTokenTTL value '0s' (should be between 1m0s and 24h0m0s)",
            ]
        );
    }

    #[test]
    fn an_update_keeps_what_it_does_not_name() {
        let before = AuthMethod {
            kind: "OIDC".into(),
            default: true,
            config: Some(AuthConfig { oidc_client_secret: Secret::new("hush"), ..AuthConfig::default() }),
            ..AuthMethod::default()
        };
        assert_eq!(before.shown().config.unwrap().oidc_client_secret.expose(), "redacted");
        let mut update = AuthMethod { config: before.shown().config, ..AuthMethod::default() };
        update.merge(&before);
        assert_eq!((update.kind.as_str(), update.default), ("OIDC", false));
        assert_eq!(update.config.unwrap().oidc_client_secret.expose(), "hush");
    }

    #[test]
    fn rules_bind_to_something() {
        let rule = |kind: &str, name: &str| BindingRule {
            auth_method: "ci".into(),
            bind_type: kind.into(),
            bind_name: name.into(),
            ..BindingRule::default()
        };
        assert!(rule("policy", "p").check().is_ok() && rule("management", "").check().is_ok());
        assert_eq!(rule("crown", "x").check().unwrap_err(), ["unsupported bind type: \"crown\""]);
        assert_eq!(rule("policy", "").check().unwrap_err(), ["bind name is missing"]);
        assert_eq!(rule("management", "x").check().unwrap_err(), ["bind name should be empty"]);
    }
}
