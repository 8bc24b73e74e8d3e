//! Failures of logins by the page of an OpenID provider. No text repeats a secret that was sent.

use http::StatusCode;
use std::sync::Arc;

/// The reason that a provider cannot be used.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ProviderFault {
    #[error("{0}")]
    Status(StatusCode),
    /// The sentence of the failed connection.
    #[error("Get \"{url}\": {reason}")]
    Get { url: String, reason: String },
    #[error("oidc: failed to decode provider discovery object: {0}")]
    Form(#[source] Arc<serde_json::Error>),
    #[error(
        "oidc: issuer did not match the issuer returned by provider, expected \"{expected}\" got \"{actual}\""
    )]
    OtherIssuer { expected: String, actual: String },
    #[error("oidc: endpoint \"{0}\" is not encrypted")]
    PlainEndpoint(String),
}

/// The reason that a login cannot begin.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthUrlFault {
    #[error("redirect URI {0} is not allowed by the auth method")]
    RedirectUri(String),
    #[error("the client nonce is that of another login")]
    NonceTaken,
}

/// The reason that a code does not prove a login.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExchangeFault {
    #[error("client assertions are not supported: give the auth method an OIDCClientSecret")]
    Assertion,
    /// The sentence of the failed connection.
    #[error("Post \"{url}\": {reason}")]
    Post { url: String, reason: String },
    /// `reason` is the text that the provider returned; it may be empty.
    #[error("{}", format!("the provider refuses the code: {status} {reason}").trim_end())]
    Refused { status: StatusCode, reason: String },
    #[error("the provider's answer is no token")]
    NoToken,
    #[error("id_token is missing")]
    NoIdToken,
    #[error("invalid id_token nonce")]
    Nonce,
    #[error("invalid id_token subject")]
    Subject,
    #[error("invalid id_token authorized party")]
    AuthorizedParty,
    #[error("access_token does not fit its hash in the id_token")]
    AccessToken,
}

/// The reason that the provider's further claims about a user cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UserInfoFault {
    /// The sentence of the failed connection.
    #[error("{reason}")]
    Get { reason: String },
    #[error("{0}")]
    Status(StatusCode),
    #[error("the answer is no JSON object")]
    NoObject,
    #[error("they are about another subject")]
    OtherSubject,
}
