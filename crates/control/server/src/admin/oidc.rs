//! Login by the page of an OpenID provider (docs/reference/http-api.md, section 3.6; OpenID Connect Core 1.0, RFC
//! 7636, RFC 9207).

pub(super) mod fault;
mod pending;
mod provider;

pub(crate) use pending::Logins;

use super::login::{facts_of, verified};
use super::{Admin, LoginFault};
use crate::documents::Age;
use crate::error::ServerError;
use caravan_types::acl::{AuthConfig, AuthMethod, Token};
use fault::UserInfoFault;
use pending::Begun;
use provider::Provider;
use serde_json::{Map, Value};
use std::sync::Arc;

/// A login to begin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OidcBegin {
    /// Name of the auth method.
    pub method: String,
    /// The address to which the provider redirects the user afterwards.
    pub redirect_uri: String,
    /// The nonce that the caller generated for this login.
    pub client_nonce: String,
}

/// A login that the provider's page has confirmed. `Debug` does not show the code.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct OidcDone {
    /// Name of the auth method.
    pub method: String,
    /// The redirect URI, as when the login was begun.
    pub redirect_uri: String,
    /// The client nonce, as when the login was begun.
    pub client_nonce: String,
    /// The `state` value that the redirect returned.
    pub state: String,
    /// The code that the provider exchanges for its tokens.
    pub code: String,
    /// The issuer that the redirect names (RFC 9207); empty if it names no issuer.
    pub issuer: String,
}

impl std::fmt::Debug for OidcDone {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OidcDone").field("method", &self.method).finish_non_exhaustive()
    }
}

impl Admin {
    /// Returns the address of the page where the user authenticates.
    ///
    /// # Errors
    /// If the method does not exist, its provider does not respond, or the redirect URI is not allowed.
    pub async fn oidc_auth_url(&self, begin: OidcBegin) -> Result<String, ServerError> {
        let (_, config) = self.oidc_method(&begin.method)?;
        let provider = Provider::discover(&self.documents, &config).await?;
        provider::check_redirect(&config, &begin.redirect_uri).map_err(LoginFault::AuthUrl)?;
        let begun = Begun::new(begin.method, begin.redirect_uri, config.oidc_enable_pkce);
        let url = provider.auth_url(&config, &begun, &begin.client_nonce);
        let pending = self.logins.begin(&begin.client_nonce, begun, self.core.now());
        pending.map_err(LoginFault::AuthUrl)?;
        Ok(url)
    }

    /// Exchanges the code of the redirect for a Caravan token.
    ///
    /// # Errors
    /// If the method does not exist, the provider does not confirm the login, this server did not begin the login, or
    /// no binding rule matches.
    pub async fn oidc_complete(&self, done: OidcDone) -> Result<Arc<Token>, ServerError> {
        let (method, config) = self.oidc_method(&done.method)?;
        let provider = Provider::discover(&self.documents, &config).await?;
        let begun = self.logins.take(&done.client_nonce, self.core.now());
        let begun = begun.filter(|begun| begun.is_of(&done)).ok_or(LoginFault::NotBegun)?;
        if !done.issuer.is_empty() && done.issuer != provider.issuer {
            return Err(LoginFault::OtherIssuer.into());
        }
        let tokens = provider.exchange(&config, &begun, &done.code).await.map_err(LoginFault::Exchange)?;
        let keys = provider.keys(&self.documents, &config, Age::Any).await?;
        let trusted = trusted(&config, &provider);
        let mut claims = match verified(&trusted, keys.all(), &tokens.id_token, self.core.now()) {
            // The provider may have rotated its keys.
            Err(_) if !keys.know(&tokens.id_token) => {
                let keys = provider.keys(&self.documents, &config, Age::Newer).await?;
                verified(&trusted, keys.all(), &tokens.id_token, self.core.now())
            }
            claims => claims,
        }
        .map_err(LoginFault::IdToken)?;
        provider::check_claims(&config, &claims, &done.client_nonce, &tokens)
            .map_err(LoginFault::Exchange)?;
        if !config.oidc_disable_user_info {
            let reported = provider.user_info(&config, &tokens).await;
            merge(&mut claims, reported.map_err(LoginFault::UserInfo)?)?;
        }
        self.let_in(&method, &facts_of(&config, &claims)).await
    }

    fn oidc_method(&self, name: &str) -> Result<(AuthMethod, AuthConfig), LoginFault> {
        let root = self.core.snapshot();
        let method = root.auth_method(name).ok_or_else(|| LoginFault::NoMethod(name.to_owned()))?;
        if method.kind != "OIDC" {
            return Err(LoginFault::MethodType(method.kind.clone()));
        }
        Ok(((**method).clone(), method.config.clone().unwrap_or_default()))
    }
}

/// Returns the accepted audiences: this client, unless the method lists others.
fn trusted(config: &AuthConfig, provider: &Provider) -> AuthConfig {
    let supplied = |list: &Option<Vec<String>>| list.clone().filter(|list| !list.is_empty());
    AuthConfig {
        bound_issuer: Some(vec![provider.issuer.clone()]),
        bound_audiences: supplied(&config.bound_audiences)
            .or_else(|| Some(vec![config.oidc_client_id.clone()])),
        signing_algs: supplied(&config.signing_algs).or_else(|| Some(vec!["RS256".to_owned()])),
        ..config.clone()
    }
}

/// Adds the provider's further claims about the user; claims about another subject are refused.
fn merge(claims: &mut Map<String, Value>, reported: Map<String, Value>) -> Result<(), LoginFault> {
    if !reported.is_empty() && reported.get("sub") != claims.get("sub") {
        return Err(LoginFault::UserInfo(UserInfoFault::OtherSubject));
    }
    claims.extend(reported);
    Ok(())
}
