//! Tokens (docs/reference/http-api.md, section 5.8).

use crate::duration::GoDuration;
use crate::time::{Nanos, Time, UnixNanos};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The longest name of a token, in characters.
const MAX_NAME: usize = 256;

/// A secret that is shown only in the response to a read of its object.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// Wraps the text of a secret.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
    /// Returns the secret, for the one place that needs it.
    pub fn expose(&self) -> &str {
        &self.0
    }
    /// Returns whether there is no secret.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "[NONE]" } else { "[REDACTED]" })
    }
}

/// The kind of rights of a token.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum TokenType {
    /// The rights of the token's policies and roles.
    #[default]
    Client,
    /// All rights.
    Management,
    /// No rights, because the type is unknown.
    Other(String),
}

impl TokenType {
    /// Returns the name in the HTTP API.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Client => "client",
            Self::Management => "management",
            Self::Other(name) => name,
        }
    }
}

impl From<String> for TokenType {
    fn from(text: String) -> Self {
        match text.as_str() {
            "client" => Self::Client,
            "management" => Self::Management,
            _ => Self::Other(text),
        }
    }
}

impl From<TokenType> for String {
    fn from(kind: TokenType) -> Self {
        kind.as_str().to_owned()
    }
}

/// A role of a token.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[expect(missing_docs, reason = "fields are those of docs/reference/http-api.md, section 5.8")]
pub struct RoleLink {
    #[serde(rename = "ID")]
    pub id: String,
    pub name: String,
}

/// A token. `Debug` does not show its secret.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[expect(missing_docs, reason = "fields are those of docs/reference/http-api.md, section 5.8")]
pub struct Token {
    #[serde(rename = "AccessorID")]
    pub accessor_id: String,
    #[serde(rename = "SecretID")]
    pub secret_id: Secret,
    pub name: String,
    #[serde(rename = "Type")]
    pub kind: TokenType,
    pub policies: Option<Vec<String>>,
    pub roles: Option<Vec<RoleLink>>,
    pub global: bool,
    pub hash: Option<String>,
    pub create_time: Time,
    pub expiration_time: Time,
    #[serde(rename = "ExpirationTTL")]
    pub expiration_ttl: GoDuration,
    pub create_index: u64,
    pub modify_index: u64,
}

/// A token as an element of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[expect(missing_docs, reason = "fields are those of docs/reference/http-api.md, section 5.8")]
pub struct TokenStub {
    #[serde(rename = "AccessorID")]
    pub accessor_id: String,
    pub name: String,
    #[serde(rename = "Type")]
    pub kind: TokenType,
    pub policies: Option<Vec<String>>,
    pub roles: Option<Vec<RoleLink>>,
    pub global: bool,
    pub hash: Option<String>,
    pub create_time: Time,
    pub expiration_time: Time,
    pub create_index: u64,
    pub modify_index: u64,
}

impl Token {
    /// Returns the token of requests without a token.
    pub fn anonymous() -> Self {
        Self {
            accessor_id: super::ANONYMOUS.into(),
            name: "Anonymous Token".into(),
            policies: Some(vec![super::ANONYMOUS.into()]),
            ..Self::default()
        }
    }

    /// Returns whether the token has expired.
    pub fn expired(&self, now: UnixNanos) -> bool {
        !self.expiration_time.is_zero() && self.expiration_time.to_unix() <= now
    }

    /// Returns the time at which the token expires, or `None` if it never does.
    pub fn ends(&self) -> Option<UnixNanos> {
        (!self.expiration_time.is_zero()).then(|| self.expiration_time.to_unix())
    }

    /// Returns the names of the policies that the token names directly.
    pub fn policy_names(&self) -> &[String] {
        self.policies.as_deref().unwrap_or_default()
    }

    /// Returns the roles of the token.
    pub fn role_links(&self) -> &[RoleLink] {
        self.roles.as_deref().unwrap_or_default()
    }

    /// Returns the token as an element of a list.
    pub fn stub(&self) -> TokenStub {
        TokenStub {
            accessor_id: self.accessor_id.clone(),
            name: self.name.clone(),
            kind: self.kind.clone(),
            policies: self.policies.clone(),
            roles: self.roles.clone(),
            global: self.global,
            hash: self.hash.clone(),
            create_time: self.create_time,
            expiration_time: self.expiration_time,
            create_index: self.create_index,
            modify_index: self.modify_index,
        }
    }

    /// Checks a token before a write. `now` and the limits of the time to live are for new tokens; `before` is the
    /// replaced token.
    ///
    /// # Errors
    /// Returns all problems.
    pub fn check(
        &self,
        before: Option<&Self>,
        now: UnixNanos,
        life: (Nanos, Nanos),
    ) -> Result<(), Vec<String>> {
        let mut errors = Vec::new();
        if self.name.chars().count() > MAX_NAME {
            errors.push("token name too long".to_owned());
        }
        let without = self.policy_names().is_empty() && self.role_links().is_empty();
        match self.kind {
            TokenType::Client if without => {
                errors.push("client token missing policies or roles".to_owned());
            }
            TokenType::Management if !without => {
                errors.push("management token cannot be associated with policies or roles".to_owned());
            }
            TokenType::Other(_) => errors.push("token type must be client or management".to_owned()),
            _ => {}
        }
        match before {
            Some(before) => {
                if before.global != self.global {
                    errors.push("cannot toggle global mode".to_owned());
                }
                if before.expiration_ttl != self.expiration_ttl {
                    errors.push("cannot update expiration TTL".to_owned());
                }
                if before.expiration_time != self.expiration_time {
                    errors.push("cannot update expiration time".to_owned());
                }
            }
            None if !self.expiration_time.is_zero() => {
                let left = self.expiration_time.to_unix().since(now);
                if self.expiration_ttl.0 < Nanos(0) {
                    errors.push(format!(
                        "token expiration TTL '{}' should not be negative",
                        self.expiration_ttl.0
                    ));
                }
                if left.0 < 0 {
                    errors.push("expiration time cannot be before create time".to_owned());
                }
                if left < life.0 {
                    errors.push(format!(
                        "expiration time cannot be less than {} in the future (was {left})",
                        life.0
                    ));
                } else if left > life.1 {
                    errors.push(format!(
                        "expiration time cannot be more than {} in the future (was {left})",
                        life.1
                    ));
                }
            }
            None => {}
        }
        if errors.is_empty() { Ok(()) } else { Err(errors) }
    }
}

/// A secret that can be exchanged once for the secret of a token.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[expect(missing_docs, reason = "fields are those of docs/reference/http-api.md, section 3.6")]
pub struct OneTimeToken {
    #[serde(rename = "OneTimeSecretID")]
    pub one_time_secret_id: Secret,
    #[serde(rename = "AccessorID")]
    pub accessor_id: String,
    pub expires_at: Time,
    pub create_index: u64,
    pub modify_index: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIFE: (Nanos, Nanos) = (Nanos::from_secs(60), Nanos::from_secs(86_400));

    fn errors(edit: impl FnOnce(&mut Token)) -> Vec<String> {
        let mut token = Token { policies: Some(vec!["p".into()]), ..Token::default() };
        edit(&mut token);
        token.check(None, UnixNanos(0), LIFE).err().unwrap_or_default()
    }

    #[test]
    fn invalid_tokens_have_the_recorded_errors() {
        assert!(errors(|_| {}).is_empty());
        assert_eq!(errors(|t| t.policies = None), ["client token missing policies or roles"]);
        assert_eq!(
            errors(|t| t.kind = "king".to_owned().into()),
            ["token type must be client or management"]
        );
        assert_eq!(
            errors(|t| t.kind = TokenType::Management),
            ["management token cannot be associated with policies or roles"]
        );
        assert_eq!(errors(|t| t.name = "x".repeat(300)), ["token name too long"]);
        assert_eq!(
            errors(|t| t.expiration_time = Time(1_000_000_000)),
            ["expiration time cannot be less than 1m0s in the future (was 1s)"]
        );
    }

    #[test]
    fn the_expiry_of_a_token_stays() {
        let before = Token {
            policies: Some(vec!["p".into()]),
            expiration_ttl: GoDuration(Nanos::from_secs(600)),
            expiration_time: Time(600_000_000_000),
            ..Token::default()
        };
        let errors = |edit: fn(&mut Token)| {
            let mut token = before.clone();
            edit(&mut token);
            token.check(Some(&before), UnixNanos(0), LIFE).err().unwrap_or_default()
        };
        assert!(errors(|t| t.name = "renamed".into()).is_empty());
        let ttl = ["cannot update expiration TTL"];
        assert_eq!(errors(|t| t.expiration_ttl = GoDuration(Nanos::from_secs(900))), ttl);
        assert_eq!(errors(|t| t.expiration_ttl = GoDuration::default()), ttl);
        let time = ["cannot update expiration time"];
        assert_eq!(errors(|t| t.expiration_time = Time(900_000_000_000)), time);
        assert_eq!(errors(|t| t.expiration_time = Time::default()), time);
    }

    #[test]
    fn a_negative_ttl_is_named() {
        let found = errors(|t| {
            t.expiration_ttl = GoDuration(Nanos::from_secs(-3600));
            t.expiration_time = Time(-3_600_000_000_000);
        });
        assert_eq!(found[0], "token expiration TTL '-1h0m0s' should not be negative");
        assert_eq!(found[1], "expiration time cannot be before create time");
    }

    #[test]
    fn secrets_do_not_print_and_times_run_out() {
        let token = Token { secret_id: Secret::new("hunter2"), expiration_time: Time(5), ..Token::default() };
        assert!(!format!("{token:?}").contains("hunter2"));
        assert!(token.expired(UnixNanos(5)) && !token.expired(UnixNanos(4)));
        assert_eq!(serde_json::to_value(&token).unwrap()["SecretID"], "hunter2");
        assert!(serde_json::to_value(token.stub()).unwrap().get("SecretID").is_none());
    }
}
