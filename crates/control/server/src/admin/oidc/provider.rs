//! The OpenID provider of a login: its discovery document, and the requests to it.

use super::LoginFault;
use super::fault::{AuthUrlFault, ExchangeFault, ProviderFault, UserInfoFault};
use super::pending::Begun;
use crate::documents::{Age, Documents, Unread};
use crate::jwks::{self, Keys};
use crate::outbound::{self, Asking, form};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use caravan_base::percent;
use caravan_types::acl::AuthConfig;
use http::Uri;
use jsonwebtoken::{Algorithm, decode_header};
use serde::Deserialize;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256, Sha384, Sha512};
use std::sync::Arc;

/// The discovery document of a provider.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Provider {
    pub(super) issuer: String,
    authorization_endpoint: String,
    token_endpoint: String,
    userinfo_endpoint: String,
    jwks_uri: String,
    token_endpoint_auth_methods_supported: Vec<String>,
}

/// The tokens that a provider returns for a code. `Debug` shows no token.
#[derive(Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Tokens {
    pub(super) id_token: String,
    access_token: String,
}

impl std::fmt::Debug for Tokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokens").finish_non_exhaustive()
    }
}

fn authorities(config: &AuthConfig) -> &[String] {
    config.discovery_ca_pem.as_deref().unwrap_or_default()
}

impl Provider {
    /// Fetches the discovery document of the provider.
    pub(super) async fn discover(documents: &Documents, config: &AuthConfig) -> Result<Self, LoginFault> {
        let reported = Self::read(documents, config).await;
        reported.map_err(LoginFault::Provider)
    }

    async fn read(documents: &Documents, config: &AuthConfig) -> Result<Self, ProviderFault> {
        let issuer = &config.oidc_discovery_url;
        let url = format!("{}/.well-known/openid-configuration", issuer.trim_end_matches('/'));
        let answer = documents.get(&url, authorities(config), Age::Any).await.map_err(|why| match why {
            Unread::Status(status) => ProviderFault::Status(status),
            Unread::Failed(reason) => ProviderFault::Get { url: url.clone(), reason },
        })?;
        let provider = Self::deserialize(&*answer).map_err(|error| ProviderFault::Form(Arc::new(error)))?;
        if provider.issuer != *issuer {
            let (expected, actual) = (issuer.clone(), provider.issuer);
            return Err(ProviderFault::OtherIssuer { expected, actual });
        }
        provider.keeps_encrypted()?;
        Ok(provider)
    }

    /// Refuses plain endpoints of a provider with an HTTPS address, because they receive secrets and return keys.
    fn keeps_encrypted(&self) -> Result<(), ProviderFault> {
        let is_plain = |url: &str| url.get(..7).is_some_and(|scheme| scheme.eq_ignore_ascii_case("http://"));
        let endpoints = [&self.token_endpoint, &self.userinfo_endpoint, &self.jwks_uri];
        match endpoints.into_iter().find(|endpoint| is_plain(endpoint) && !is_plain(&self.issuer)) {
            Some(endpoint) => Err(ProviderFault::PlainEndpoint(endpoint.clone())),
            None => Ok(()),
        }
    }

    /// Returns the address of the page that the user visits.
    pub(super) fn auth_url(&self, config: &AuthConfig, begun: &Begun, nonce: &str) -> String {
        let mut scopes = vec!["openid"];
        scopes.extend(config.oidc_scopes.iter().flatten().map(String::as_str).filter(|s| *s != "openid"));
        let scopes = scopes.join(" ");
        let challenge =
            begun.verifier.as_ref().map(|verifier| URL_SAFE_NO_PAD.encode(Sha256::digest(verifier)));
        let mut fields = vec![
            ("client_id", config.oidc_client_id.as_str()),
            ("nonce", nonce),
            ("redirect_uri", &begun.redirect_uri),
            ("response_type", "code"),
            ("scope", &scopes),
            ("state", &begun.state),
        ];
        if let Some(challenge) = &challenge {
            fields.extend([("code_challenge", challenge.as_str()), ("code_challenge_method", "S256")]);
        }
        let joint = if self.authorization_endpoint.contains('?') { '&' } else { '?' };
        format!("{}{joint}{}", self.authorization_endpoint, form(&fields))
    }

    /// Exchanges a code. No error repeats a value that was sent.
    pub(super) async fn exchange(
        &self,
        config: &AuthConfig,
        begun: &Begun,
        code: &str,
    ) -> Result<Tokens, ExchangeFault> {
        if config.oidc_client_assertion.is_some() {
            return Err(ExchangeFault::Assertion);
        }
        let (id, secret) = (config.oidc_client_id.as_str(), config.oidc_client_secret.expose());
        let ways = &self.token_endpoint_auth_methods_supported;
        let within = secret.is_empty()
            || (ways.iter().any(|way| way == "client_secret_post")
                && !ways.iter().any(|way| way == "client_secret_basic"));
        let mut fields =
            vec![("grant_type", "authorization_code"), ("code", code), ("redirect_uri", &begun.redirect_uri)];
        if let Some(verifier) = &begun.verifier {
            fields.push(("code_verifier", verifier));
        }
        if within {
            fields.push(("client_id", id));
            fields.extend((!secret.is_empty()).then_some(("client_secret", secret)));
        }
        let basic = || {
            format!(
                "Basic {}",
                STANDARD.encode(format!("{}:{}", percent::encode_form(id), percent::encode_form(secret)))
            )
        };
        let asking = Asking {
            authorization: (!within).then(basic),
            form: Some(form(&fields)),
            ..Asking::new(&self.token_endpoint, authorities(config))
        };
        let answer = outbound::ask(&asking)
            .await
            .map_err(|reason| ExchangeFault::Post { url: asking.url.to_owned(), reason })?;
        let reported = answer.json().unwrap_or_default();
        if !answer.status.is_success() {
            let reason = reported["error"].as_str().filter(|reason| reason.len() < 100).unwrap_or_default();
            return Err(ExchangeFault::Refused { status: answer.status, reason: reason.to_owned() });
        }
        let tokens: Tokens = serde_json::from_value(reported).map_err(|_| ExchangeFault::NoToken)?;
        if tokens.id_token.is_empty() {
            return Err(ExchangeFault::NoIdToken);
        }
        Ok(tokens)
    }

    /// Returns the keys that sign the provider's tokens.
    pub(super) async fn keys(
        &self,
        documents: &Documents,
        config: &AuthConfig,
        age: Age,
    ) -> Result<Keys, LoginFault> {
        jwks::fetch(documents, &self.jwks_uri, authorities(config), age).await
    }

    /// Returns the provider's further claims about the user; empty without a userinfo endpoint.
    pub(super) async fn user_info(
        &self,
        config: &AuthConfig,
        tokens: &Tokens,
    ) -> Result<Map<String, Value>, UserInfoFault> {
        if self.userinfo_endpoint.is_empty() || tokens.access_token.is_empty() {
            return Ok(Map::new());
        }
        let asking = Asking {
            authorization: Some(format!("Bearer {}", tokens.access_token)),
            ..Asking::new(&self.userinfo_endpoint, authorities(config))
        };
        let answer = outbound::ask(&asking).await.map_err(|reason| UserInfoFault::Get { reason })?;
        match answer.json() {
            _ if !answer.status.is_success() => Err(UserInfoFault::Status(answer.status)),
            Ok(Value::Object(reported)) => Ok(reported),
            _ => Err(UserInfoFault::NoObject),
        }
    }
}

/// Refuses redirect URIs that the method does not list. Programs on the user's own machine listen on an arbitrary
/// port (RFC 8252 section 7.3). Therefore ports of such addresses are ignored.
pub(super) fn check_redirect(config: &AuthConfig, redirect_uri: &str) -> Result<(), AuthUrlFault> {
    let allowed = config.allowed_redirect_uris.as_deref().unwrap_or_default();
    let own = |uri: &str| {
        let uri: Uri = uri.parse().ok()?;
        let host = uri.host().filter(|host| matches!(*host, "localhost" | "127.0.0.1" | "[::1]"))?.to_owned();
        Some((uri.scheme_str()?.to_owned(), host, uri.path_and_query()?.as_str().to_owned()))
    };
    let desired = own(redirect_uri);
    let known = |uri: &String| uri == redirect_uri || (desired.is_some() && own(uri) == desired);
    // Without a list, the provider alone restricts the redirect URIs of its client.
    if allowed.is_empty() || allowed.iter().any(known) {
        return Ok(());
    }
    Err(AuthUrlFault::RedirectUri(redirect_uri.to_owned()))
}

/// Returns an error unless a token of the provider belongs to this login.
pub(super) fn check_claims(
    config: &AuthConfig,
    claims: &Map<String, Value>,
    nonce: &str,
    tokens: &Tokens,
) -> Result<(), ExchangeFault> {
    let text = |name: &str| claims.get(name).and_then(Value::as_str);
    if text("nonce") != Some(nonce) {
        return Err(ExchangeFault::Nonce);
    }
    if text("sub").is_none_or(str::is_empty) {
        return Err(ExchangeFault::Subject);
    }
    if text("azp").is_some_and(|party| party != config.oidc_client_id) {
        return Err(ExchangeFault::AuthorizedParty);
    }
    let half = match decode_header(&tokens.id_token).map(|header| header.alg) {
        Ok(Algorithm::RS256 | Algorithm::PS256 | Algorithm::ES256) => {
            Sha256::digest(&tokens.access_token)[..16].to_vec()
        }
        Ok(Algorithm::RS384 | Algorithm::PS384 | Algorithm::ES384) => {
            Sha384::digest(&tokens.access_token)[..24].to_vec()
        }
        _ => Sha512::digest(&tokens.access_token)[..32].to_vec(),
    };
    match text("at_hash") {
        Some(hash) if !tokens.access_token.is_empty() && hash != URL_SAFE_NO_PAD.encode(half) => {
            Err(ExchangeFault::AccessToken)
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn config(value: Value) -> AuthConfig {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn ports_of_the_own_machine_do_not_matter() {
        let config =
            config(json!({"AllowedRedirectURIs": ["http://localhost:4649/oidc/callback", "https://x/ui"]}));
        for good in
            ["http://localhost:4649/oidc/callback", "http://localhost:1/oidc/callback", "https://x/ui"]
        {
            check_redirect(&config, good).unwrap();
        }
        for bad in [
            "http://localhost:4649/other",
            "https://localhost:4649/oidc/callback",
            "http://127.0.0.1:4649/oidc/callback",
            "https://x:8443/ui",
            "https://evil/oidc/callback",
            "r",
        ] {
            assert!(
                check_redirect(&config, bad).unwrap_err().to_string().contains("is not allowed"),
                "{bad}"
            );
        }
        check_redirect(&AuthConfig::default(), "https://anywhere").unwrap();
    }

    #[test]
    fn the_user_is_sent_with_all_that_the_provider_needs() {
        let config = config(json!({"OIDCClientID": "us", "OIDCScopes": ["groups", "openid"]}));
        let provider =
            Provider { authorization_endpoint: "https://p/auth?a=b".into(), ..Provider::default() };
        let begun = Begun::new("sso".into(), "http://localhost/cb".into(), true);
        let url = provider.auth_url(&config, &begun, "n 1");
        let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(begun.verifier.as_ref().unwrap()));
        let want = format!(
            "https://p/auth?a=b&client_id=us&code_challenge={challenge}&code_challenge_method=S256&nonce=n+1&redirect_uri=http%3A%2F%2Flocalhost%2Fcb&response_type=code&scope=openid+groups&state={}",
            begun.state
        );
        assert_eq!(url, want);
    }

    #[test]
    fn secrets_do_not_leave_encryption() {
        let provider = |issuer: &str, token: &str| Provider {
            issuer: issuer.into(),
            token_endpoint: token.into(),
            ..Provider::default()
        };
        assert!(provider("https://p", "https://p/token").keeps_encrypted().is_ok());
        assert!(provider("http://p", "http://p/token").keeps_encrypted().is_ok());
        assert!(
            provider("https://p", "HTTP://p/token")
                .keeps_encrypted()
                .unwrap_err()
                .to_string()
                .contains("not encrypted")
        );
    }

    #[test]
    fn a_token_is_about_this_login_and_this_client() {
        let config = config(json!({"OIDCClientID": "us"}));
        let tokens = Tokens::default();
        let reported = |claims: Value| {
            check_claims(&config, claims.as_object().unwrap(), "n", &tokens)
                .map_err(|fault| fault.to_string())
        };
        assert!(reported(json!({"nonce": "n", "sub": "dev"})).is_ok());
        assert_eq!(reported(json!({"nonce": "m", "sub": "dev"})), Err("invalid id_token nonce".to_owned()));
        assert_eq!(reported(json!({"nonce": "n"})), Err("invalid id_token subject".to_owned()));
        let foreign = json!({"nonce": "n", "sub": "dev", "azp": "them"});
        assert_eq!(reported(foreign), Err("invalid id_token authorized party".to_owned()));
    }
}
