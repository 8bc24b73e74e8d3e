//! Login with a signed token of another issuer (docs/reference/http-api.md, section 3.6, RFC 7519).

use super::login_fault::{LoginFault, TokenFault, TokenProblem};
use super::{Admin, AdminFault, hash_of};
use crate::core::new_id;
use crate::documents::{Age, Documents};
use crate::error::ServerError;
use crate::jwks::{self, Keys};
use crate::selector::{Facts, Selector};
use caravan_state::Root;
use caravan_types::acl::{AuthConfig, AuthMethod, BindType, RoleLink, Secret, Token, TokenType};
use caravan_types::admin::AdminChange;
use caravan_types::{Nanos, UnixNanos};
use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode, decode_header};
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The default tolerance for clock skew.
const SKEW: Nanos = Nanos::from_secs(60);
/// The validity of a token without an expiry after its time of issue, and without a time of issue before its expiry.
const LEEWAY: Nanos = Nanos::from_secs(150);

/// The algorithms that a public key can verify; algorithms with shared secrets are excluded.
const ALGORITHMS: [(&str, Algorithm); 9] = [
    ("RS256", Algorithm::RS256),
    ("RS384", Algorithm::RS384),
    ("RS512", Algorithm::RS512),
    ("PS256", Algorithm::PS256),
    ("PS384", Algorithm::PS384),
    ("PS512", Algorithm::PS512),
    ("ES256", Algorithm::ES256),
    ("ES384", Algorithm::ES384),
    ("EdDSA", Algorithm::EdDSA),
];

impl Admin {
    /// Exchanges a signed token for a Caravan token.
    ///
    /// # Errors
    /// If the method does not exist, the token is not valid, or no binding rule matches it.
    pub async fn login(&self, method: &str, token: &str) -> Result<Arc<Token>, ServerError> {
        let root = self.core.snapshot();
        let method = root.auth_method(method).ok_or_else(|| LoginFault::NoMethod(method.to_owned()))?.clone();
        if method.kind != "JWT" {
            return Err(LoginFault::MethodType(method.kind.clone()).into());
        }
        let config = method.config.clone().unwrap_or_default();
        let keys = keys_of(&self.documents, &config, Age::Any).await?;
        let claims = match verified(&config, keys.all(), token, self.core.now()) {
            // The issuer may have rotated its keys.
            Err(_) if !keys.know(token) => {
                let keys = keys_of(&self.documents, &config, Age::Newer).await?;
                verified(&config, keys.all(), token, self.core.now())
            }
            claims => claims,
        }
        .map_err(LoginFault::Token)?;
        self.let_in(&method, &facts_of(&config, &claims)).await
    }

    /// Creates the token of an authenticated login.
    pub(super) async fn let_in(&self, method: &AuthMethod, facts: &Facts) -> Result<Arc<Token>, ServerError> {
        let (root, now) = (self.core.snapshot(), self.core.now());
        let mut token = bound(&root, method, facts).ok_or(LoginFault::NoBinding)?;
        let names = [("auth_method_type", method.kind.as_str()), ("auth_method_name", method.name.as_str())];
        token.name = facts.interpolate(&method.token_name_format, &names);
        token.accessor_id = new_id();
        token.secret_id = Secret::new(new_id());
        token.global = method.token_locality == "global";
        token.create_time = now.to_time();
        token.expiration_ttl = method.max_token_ttl;
        token.expiration_time = now.plus(method.max_token_ttl.0).to_time();
        token.hash = Some(hash_of(&token.stub()));
        let accessor = token.accessor_id.clone();
        self.commit(AdminChange::TokenWrite(Box::new(token))).await?;
        let stored = self.core.snapshot().acl_token(&accessor).cloned();
        Ok(stored.ok_or(AdminFault::Removed("token"))?)
    }
}

/// Returns the policies and roles that the binding rules of a method grant to a login; `None` if no rule matches.
fn bound(root: &Root, method: &AuthMethod, facts: &Facts) -> Option<Token> {
    let (mut roles, mut policies, mut management) = (Vec::new(), BTreeSet::new(), false);
    for rule in root.binding_rules().filter(|rule| rule.auth_method == method.name) {
        if !Selector::parse(&rule.selector).is_ok_and(|selector| selector.fits(facts)) {
            continue;
        }
        let name = facts.interpolate(&rule.bind_name, &[]);
        match rule.binds() {
            Some(BindType::Management) => management = true,
            Some(BindType::Policy) if root.acl_policy(&name).is_some() => {
                policies.insert(name);
            }
            Some(BindType::Role) => {
                if let Some(role) = root.acl_role_named(&name)
                    && !roles.iter().any(|known: &RoleLink| known.id == role.id)
                {
                    roles.push(RoleLink { id: role.id.clone(), name: role.name.clone() });
                }
            }
            Some(BindType::Policy) | None => {}
        }
    }
    if management {
        return Some(Token { kind: TokenType::Management, ..Token::default() });
    }
    if roles.is_empty() && policies.is_empty() {
        return None;
    }
    Some(Token {
        policies: Some(policies.into_iter().collect()),
        roles: (!roles.is_empty()).then_some(roles),
        ..Token::default()
    })
}

/// Returns the keys that a method trusts.
async fn keys_of(documents: &Documents, config: &AuthConfig, age: Age) -> Result<Keys, LoginFault> {
    if !config.jwks_url.is_empty() {
        let authorities = Some(config.jwks_ca_cert.clone()).filter(|pem| !pem.is_empty());
        return jwks::fetch(documents, &config.jwks_url, authorities.as_slice(), age).await;
    }
    if !config.oidc_discovery_url.is_empty() {
        let authorities = config.discovery_ca_pem.as_deref().unwrap_or_default();
        return jwks::discover(documents, &config.oidc_discovery_url, authorities, age).await;
    }
    let pems = config.jwt_validation_pub_keys.iter().flatten();
    let keys: Vec<DecodingKey> = pems.filter_map(|pem| key_of(pem)).collect();
    if keys.is_empty() {
        return Err(LoginFault::NoKey);
    }
    Ok(Keys::plain(keys))
}

fn key_of(pem: &str) -> Option<DecodingKey> {
    let pem = pem.as_bytes();
    let rsa = DecodingKey::from_rsa_pem(pem);
    rsa.or_else(|_| DecodingKey::from_ec_pem(pem)).or_else(|_| DecodingKey::from_ed_pem(pem)).ok()
}

/// Returns the claims of a token, if one of the keys signed it and it is valid now and for this audience.
pub(super) fn verified(
    config: &AuthConfig,
    keys: &[DecodingKey],
    token: &str,
    now: UnixNanos,
) -> Result<Map<String, Value>, TokenFault> {
    let algorithm = decode_header(token).map_err(|_| TokenProblem::Malformed)?.alg;
    let allowed: Vec<Algorithm> = match config.signing_algs.as_deref() {
        None | Some([]) => ALGORITHMS.iter().map(|(_, algorithm)| *algorithm).collect(),
        Some(names) => ALGORITHMS
            .iter()
            .filter(|(name, _)| names.iter().any(|desired| desired == name))
            .map(|(_, algorithm)| *algorithm)
            .collect(),
    };
    if !allowed.contains(&algorithm) {
        return Err(TokenProblem::Algorithm.into());
    }
    // Times, audience and issuer are checked below, with error texts that clients recognize.
    let mut validation = Validation::new(algorithm);
    (validation.validate_exp, validation.validate_nbf, validation.validate_aud) = (false, false, false);
    validation.required_spec_claims.clear();
    let opened = keys.iter().find_map(|key| decode::<Map<String, Value>>(token, key, &validation).ok());
    let claims = opened.ok_or(TokenProblem::Signature)?.claims;
    times(config, &claims, now.as_secs())?;
    let one_of = |desired: &Option<Vec<String>>, found: &[&str]| {
        desired.as_ref().is_none_or(|list| {
            list.is_empty() || list.iter().any(|desired| found.contains(&desired.as_str()))
        })
    };
    if !one_of(&config.bound_audiences, &texts(claims.get("aud"))) {
        return Err(TokenProblem::Audience.into());
    }
    if !one_of(&config.bound_issuer, &texts(claims.get("iss"))) {
        return Err(TokenProblem::Issuer.into());
    }
    Ok(claims)
}

fn texts(value: Option<&Value>) -> Vec<&str> {
    match value {
        Some(Value::Array(items)) => items.iter().filter_map(Value::as_str).collect(),
        Some(Value::String(text)) => vec![text.as_str()],
        _ => Vec::new(),
    }
}

fn times(config: &AuthConfig, claims: &Map<String, Value>, now: i64) -> Result<(), TokenProblem> {
    let seconds = |name: &str| claims.get(name).and_then(Value::as_f64).map(|n| n.floor());
    let supplied = |leeway: Nanos, otherwise: Nanos| match leeway.0 {
        0 => otherwise,
        n if n < 0 => Nanos::ZERO,
        _ => leeway,
    };
    let secs = |n: Nanos| n.0.div_euclid(1_000_000_000);
    let skew = secs(supplied(config.clock_skew_leeway.0, SKEW));
    let (iat, nbf, exp) = (whole(seconds("iat")), whole(seconds("nbf")), whole(seconds("exp")));
    let Some(known) = iat.or(nbf).or(exp) else {
        return Err(TokenProblem::NoTime);
    };
    let exp = exp.unwrap_or_else(|| {
        let begun = iat.unwrap_or(known).max(nbf.unwrap_or(known));
        begun.saturating_add(secs(supplied(config.expiration_leeway.0, LEEWAY)))
    });
    let nbf = nbf.unwrap_or_else(|| {
        iat.unwrap_or_else(|| exp.saturating_sub(secs(supplied(config.not_before_leeway.0, LEEWAY))))
    });
    if now.saturating_sub(skew) >= exp {
        return Err(TokenProblem::Expired);
    }
    if now.saturating_add(skew) < nbf {
        return Err(TokenProblem::NotYetValid);
    }
    if iat.is_some_and(|iat| now.saturating_add(skew) < iat) {
        return Err(TokenProblem::FromTheFuture);
    }
    Ok(())
}

/// Returns seconds as an integer.
fn whole(seconds: Option<f64>) -> Option<i64> {
    #[expect(clippy::cast_possible_truncation, reason = "a float is cut to the range of the integer")]
    seconds.filter(|n| n.is_finite()).map(|n| n as i64)
}

/// Maps the claims to the names that the method defines for them.
pub(super) fn facts_of(config: &AuthConfig, claims: &Map<String, Value>) -> Facts {
    let claims = Value::Object(claims.clone());
    let find = |path: &str| {
        if path.starts_with('/') { claims.pointer(path) } else { claims.get(path) }
    };
    let text = |value: &Value| match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(_) | Value::Number(_) => Some(value.to_string()),
        _ => None,
    };
    let mut facts = Facts::default();
    for (path, name) in &config.claim_mappings {
        if let Some(value) = find(path).and_then(text) {
            facts.values.insert(name.clone(), value);
        }
    }
    for (path, name) in &config.list_claim_mappings {
        let values = match find(path) {
            Some(Value::Array(items)) => items.iter().filter_map(text).collect(),
            Some(one) => text(one).into_iter().collect(),
            None => continue,
        };
        facts.lists.insert(name.clone(), values);
    }
    facts
}

#[cfg(test)]
mod tests {
    use super::*;
    use caravan_types::duration::GoDuration;
    use serde_json::json;

    fn at(claims: &Value, now: i64) -> Result<(), String> {
        let config =
            AuthConfig { clock_skew_leeway: GoDuration(Nanos::from_secs(10)), ..AuthConfig::default() };
        times(&config, claims.as_object().unwrap(), now).map_err(|error| error.to_string())
    }

    #[test]
    fn times_are_checked_with_a_little_patience() {
        let claims = json!({"iat": 100, "nbf": 100, "exp": 200});
        assert!(at(&claims, 150).is_ok() && at(&claims, 209).is_ok() && at(&claims, 91).is_ok());
        assert!(at(&claims, 210).unwrap_err().ends_with("token is expired"));
        assert!(at(&claims, 89).unwrap_err().ends_with("token not yet valid"));
        assert!(at(&json!({}), 1).unwrap_err().contains("no issued at"));
        assert!(at(&json!({"iat": 100}), 200).is_ok() && at(&json!({"iat": 100}), 400).is_err());
    }

    #[test]
    fn claims_become_values_and_lists() {
        let config: AuthConfig = serde_json::from_value(json!({
            "ClaimMappings": {"sub": "user", "/a/b": "deep", "none": "x"},
            "ListClaimMappings": {"groups": "groups", "sub": "subs"},
        }))
        .unwrap();
        let claims = json!({"sub": "dev", "a": {"b": true}, "groups": ["x", 1]});
        let facts = facts_of(&config, claims.as_object().unwrap());
        assert_eq!(
            facts.values,
            [("deep", "true"), ("user", "dev")].map(|(k, v)| (k.into(), v.into())).into()
        );
        assert_eq!(facts.lists["groups"], ["x", "1"]);
        assert_eq!(facts.lists["subs"], ["dev"]);
    }

    #[test]
    fn malformed_tokens_have_the_recorded_errors() {
        let error = verified(&AuthConfig::default(), &[], "a.b.c", UnixNanos(0)).unwrap_err();
        let error = ServerError::from(LoginFault::from(error));
        assert_eq!(
            error.to_string(),
            "unable to validate provided token: unable to verify signature of JWT token: error verifying token signature: illegal base64 data at input byte 0"
        );
        assert_eq!(error.http_status(), 401);
    }
}
