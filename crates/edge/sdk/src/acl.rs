//! Access control (docs/reference/http-api.md, section 3.6).

use crate::client::Client;
use crate::error::Error;
use crate::query::{QueryOptions, Response, path};
use caravan_types::acl::{
    AuthMethod, AuthMethodStub, BindingRule, BindingRuleStub, OneTimeToken, Policy, PolicyStub, Role, Token,
    TokenStub,
};
use serde::Deserialize;
use serde_json::{Value, json};

/// The routes of access control, from [`Client::acl`].
#[derive(Clone, Copy, Debug)]
pub struct Acl<'a>(pub(crate) &'a Client);

impl Client {
    /// Returns the routes of access control.
    pub fn acl(&self) -> Acl<'_> {
        Acl(self)
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct OneTime {
    one_time_token: OneTimeToken,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Exchanged {
    token: Token,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "UPPERCASE", default)]
struct Introduced {
    jwt: String,
}

/// Every method fails with [`Error::Status`] when the agent refuses, and otherwise as [`Client::get`].
#[expect(clippy::missing_errors_doc, reason = "documented once for all methods")]
impl Acl<'_> {
    /// Creates the first management token. Its secret is `secret` if present; otherwise the servers generate one.
    pub async fn bootstrap(&self, secret: Option<&str>, query: &QueryOptions) -> Result<Token, Error> {
        let path = "/v1/acl/bootstrap";
        let answer = match secret {
            Some(secret) => self.0.put(path, query, &json!({"BootstrapSecret": secret})).await,
            None => self.0.put(path, query, &json!({})).await,
        };
        Ok(answer?.value)
    }

    /// Lists policies.
    pub async fn policies(&self, query: &QueryOptions) -> Result<Response<Vec<PolicyStub>>, Error> {
        self.0.get("/v1/acl/policies", query).await
    }
    /// Lists the policies of the caller's token.
    pub async fn own_policies(&self, query: &QueryOptions) -> Result<Vec<PolicyStub>, Error> {
        Ok(self.0.get("/v1/acl/policy/self", query).await?.value)
    }
    /// Returns a policy by its name.
    pub async fn policy(&self, name: &str, query: &QueryOptions) -> Result<Response<Policy>, Error> {
        self.0.get(&path("/v1/acl/policy/{}", &[name]), query).await
    }
    /// Creates or replaces a policy.
    pub async fn write_policy(&self, policy: &Policy, query: &QueryOptions) -> Result<Response<()>, Error> {
        self.0.put(&path("/v1/acl/policy/{}", &[&policy.name]), query, policy).await
    }
    /// Deletes a policy.
    pub async fn delete_policy(&self, name: &str, query: &QueryOptions) -> Result<Response<()>, Error> {
        self.0.delete(&path("/v1/acl/policy/{}", &[name]), query).await
    }

    /// Lists tokens.
    pub async fn tokens(&self, query: &QueryOptions) -> Result<Response<Vec<TokenStub>>, Error> {
        self.0.get("/v1/acl/tokens", query).await
    }
    /// Returns a token by its accessor.
    pub async fn token(&self, accessor: &str, query: &QueryOptions) -> Result<Response<Token>, Error> {
        self.0.get(&path("/v1/acl/token/{}", &[accessor]), query).await
    }
    /// Returns the token of the caller.
    pub async fn own_token(&self, query: &QueryOptions) -> Result<Token, Error> {
        Ok(self.0.get("/v1/acl/token/self", query).await?.value)
    }
    /// Creates a token, or updates the token with the same accessor.
    pub async fn write_token(&self, token: &Token, query: &QueryOptions) -> Result<Token, Error> {
        let answer = match token.accessor_id.as_str() {
            "" => self.0.put("/v1/acl/token", query, token).await?,
            id => self.0.put(&path("/v1/acl/token/{}", &[id]), query, token).await?,
        };
        Ok(answer.value)
    }
    /// Deletes a token by its accessor.
    pub async fn delete_token(&self, accessor: &str, query: &QueryOptions) -> Result<Response<()>, Error> {
        self.0.delete(&path("/v1/acl/token/{}", &[accessor]), query).await
    }
    /// Creates a secret that can be exchanged once for the caller's token.
    pub async fn one_time_token(&self, query: &QueryOptions) -> Result<OneTimeToken, Error> {
        let answer = self.0.put::<_, OneTime>("/v1/acl/token/onetime", query, &json!({})).await?;
        Ok(answer.value.one_time_token)
    }
    /// Exchanges a one-time secret for the token that the secret represents.
    pub async fn exchange(&self, secret: &str, query: &QueryOptions) -> Result<Token, Error> {
        let body = json!({"OneTimeSecretID": secret});
        let answer = self.0.put::<_, Exchanged>("/v1/acl/token/onetime/exchange", query, &body).await?;
        Ok(answer.value.token)
    }

    /// Lists roles.
    pub async fn roles(&self, query: &QueryOptions) -> Result<Response<Vec<Role>>, Error> {
        self.0.get("/v1/acl/roles", query).await
    }
    /// Returns a role by its id.
    pub async fn role(&self, id: &str, query: &QueryOptions) -> Result<Role, Error> {
        Ok(self.0.get(&path("/v1/acl/role/{}", &[id]), query).await?.value)
    }
    /// Returns a role by its name.
    pub async fn role_named(&self, name: &str, query: &QueryOptions) -> Result<Role, Error> {
        Ok(self.0.get(&path("/v1/acl/role/name/{}", &[name]), query).await?.value)
    }
    /// Creates a role, or updates the role with the same id.
    pub async fn write_role(&self, role: &Role, query: &QueryOptions) -> Result<Role, Error> {
        let answer = match role.id.as_str() {
            "" => self.0.put("/v1/acl/role", query, role).await?,
            id => self.0.put(&path("/v1/acl/role/{}", &[id]), query, role).await?,
        };
        Ok(answer.value)
    }
    /// Deletes a role by its id.
    pub async fn delete_role(&self, id: &str, query: &QueryOptions) -> Result<Response<()>, Error> {
        self.0.delete(&path("/v1/acl/role/{}", &[id]), query).await
    }

    /// Lists authentication methods.
    pub async fn auth_methods(&self, query: &QueryOptions) -> Result<Vec<AuthMethodStub>, Error> {
        Ok(self.0.get("/v1/acl/auth-methods", query).await?.value)
    }
    /// Returns an authentication method by its name.
    pub async fn auth_method(&self, name: &str, query: &QueryOptions) -> Result<AuthMethod, Error> {
        Ok(self.0.get(&path("/v1/acl/auth-method/{}", &[name]), query).await?.value)
    }
    /// Creates an authentication method. With `update`, changes the method of that name; absent fields keep their
    /// values.
    pub async fn write_auth_method(
        &self,
        method: &AuthMethod,
        update: bool,
        query: &QueryOptions,
    ) -> Result<AuthMethod, Error> {
        let answer = match update {
            false => self.0.put("/v1/acl/auth-method", query, method).await?,
            true => self.0.put(&path("/v1/acl/auth-method/{}", &[&method.name]), query, method).await?,
        };
        Ok(answer.value)
    }
    /// Deletes an authentication method.
    pub async fn delete_auth_method(&self, name: &str, query: &QueryOptions) -> Result<Response<()>, Error> {
        self.0.delete(&path("/v1/acl/auth-method/{}", &[name]), query).await
    }

    /// Lists binding rules.
    pub async fn binding_rules(&self, query: &QueryOptions) -> Result<Vec<BindingRuleStub>, Error> {
        Ok(self.0.get("/v1/acl/binding-rules", query).await?.value)
    }
    /// Returns a binding rule by its id.
    pub async fn binding_rule(&self, id: &str, query: &QueryOptions) -> Result<BindingRule, Error> {
        Ok(self.0.get(&path("/v1/acl/binding-rule/{}", &[id]), query).await?.value)
    }
    /// Creates a binding rule, or updates the rule with the same id.
    pub async fn write_binding_rule(
        &self,
        rule: &BindingRule,
        query: &QueryOptions,
    ) -> Result<BindingRule, Error> {
        let answer = match rule.id.as_str() {
            "" => self.0.put("/v1/acl/binding-rule", query, rule).await?,
            id => self.0.put(&path("/v1/acl/binding-rule/{}", &[id]), query, rule).await?,
        };
        Ok(answer.value)
    }
    /// Deletes a binding rule by its id.
    pub async fn delete_binding_rule(&self, id: &str, query: &QueryOptions) -> Result<Response<()>, Error> {
        self.0.delete(&path("/v1/acl/binding-rule/{}", &[id]), query).await
    }

    /// Exchanges a token that an external issuer signed for an ACL token.
    pub async fn login(&self, method: &str, token: &str, query: &QueryOptions) -> Result<Token, Error> {
        let body = json!({"AuthMethodName": method, "LoginToken": token});
        Ok(self.0.put("/v1/acl/login", query, &body).await?.value)
    }

    /// Creates an introduction token, with which a node may register. `request` has `NodeName`, `NodePool` and `TTL`.
    pub async fn introduce_client(&self, request: &Value, query: &QueryOptions) -> Result<String, Error> {
        let path = "/v1/acl/identity/client-introduction-token";
        Ok(self.0.put::<_, Introduced>(path, query, request).await?.value.jwt)
    }
}
