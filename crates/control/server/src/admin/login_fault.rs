//! Failures of logins.

use super::oidc::fault::{AuthUrlFault, ExchangeFault, ProviderFault, UserInfoFault};
use crate::error::Kind;
use crate::jwks::KeysFault;

/// The failure of a login.
#[derive(Clone, Debug, thiserror::Error)]
pub enum LoginFault {
    #[error("auth-method \"{0}\" not found")]
    NoMethod(String),
    #[error("unsupported auth-method type: {0}")]
    MethodType(String),
    #[error("no role or policy bindings matched")]
    NoBinding,
    #[error("the auth method has no public key that can be read")]
    NoKey,
    #[error("the keys at {url} cannot be read: {cause}")]
    Keys {
        url: String,
        #[source]
        cause: KeysFault,
    },
    #[error(transparent)]
    Token(#[from] TokenFault),
    #[error("failed to generate OIDC provider: NewProvider: unable to create provider: {0}")]
    Provider(#[source] ProviderFault),
    #[error("failed to generate auth URL: {0}")]
    AuthUrl(#[source] AuthUrlFault),
    #[error(
        "failed to exchange token with provider: no login was begun here with this nonce, state and redirect URI"
    )]
    NotBegun,
    #[error("failed to exchange token with provider: the answer is from another issuer")]
    OtherIssuer,
    #[error("failed to exchange token with provider: {0}")]
    Exchange(#[source] ExchangeFault),
    #[error("failed to exchange token with provider: {0}")]
    IdToken(#[source] TokenFault),
    #[error("failed to retrieve the user info claims: {0}")]
    UserInfo(#[source] UserInfoFault),
}

impl LoginFault {
    pub(crate) fn kind(&self) -> Kind {
        match self {
            Self::NoMethod(_)
            | Self::MethodType(_)
            | Self::NoBinding
            | Self::NotBegun
            | Self::OtherIssuer => Kind::BadRequest,
            Self::NoKey => Kind::Refused,
            Self::Keys { .. } => Kind::Unavailable,
            Self::Token(_) => Kind::Unauthorized,
            Self::Provider(_)
            | Self::AuthUrl(_)
            | Self::Exchange(_)
            | Self::IdToken(_)
            | Self::UserInfo(_) => Kind::Internal,
        }
    }
}

/// The reason that a token of another issuer proves nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unable to validate provided token: unable to verify signature of JWT token: {0}")]
pub struct TokenFault(#[from] pub TokenProblem);

/// A problem of a token, with texts that clients recognize.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenProblem {
    #[error("error verifying token signature: illegal base64 data at input byte 0")]
    Malformed,
    #[error("token signed with unexpected algorithm")]
    Algorithm,
    #[error("error verifying token signature: no known key successfully validated the token signature")]
    Signature,
    #[error("invalid audience (aud) claim: audience claim does not match any expected audience")]
    Audience,
    #[error("invalid issuer (iss) claim")]
    Issuer,
    #[error("no issued at (iat), not before (nbf), or expiration time (exp) claims in token")]
    NoTime,
    #[error("invalid expiration time (exp) claim: token is expired")]
    Expired,
    #[error("invalid not before (nbf) claim: token not yet valid")]
    NotYetValid,
    #[error("invalid issued at (iat) claim: token issued in the future")]
    FromTheFuture,
}
