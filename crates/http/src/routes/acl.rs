//! Access control: bootstrap, policies, tokens, roles (docs/reference/http-api.md, section 3.6).

mod auth;

use crate::access;
use crate::blocking;
use crate::call::Call;
use crate::error::ApiError;
use crate::page::{Token as At, object, page};
use crate::reply::{Meta, Reply};
use crate::typed::{self, coded, refused};
use caravan_server::Admin;
use caravan_state::{AdminRow, Root, Table, Topic};
use caravan_types::acl::{Policy, Role, Secret, Token, TokenType};
use http::Method;
use serde_json::{Value, json};
use std::sync::Arc;

pub(crate) async fn route(call: &Call, rest: &[&str]) -> Result<Reply, ApiError> {
    let admin = call.server()?.admin();
    if !admin.acl_enabled() {
        return match rest {
            ["token", "self"] if call.is_get() => everybody(),
            _ => Err(disabled(call, rest)),
        };
    }
    match rest {
        ["bootstrap"] => bootstrap(call, admin).await,
        ["policies"] => policies(call, false).await,
        ["policy", "self"] => policies(call, true).await,
        ["policy", name @ ..] if !name.is_empty() => policy(call, admin, &name.join("/")).await,
        ["tokens"] => tokens(call).await,
        ["token", "onetime", "exchange"] => exchange(call, admin).await,
        ["token", "onetime"] => one_time(call, admin).await,
        ["token", "self"] => own_token(call).await,
        ["token"] => write_token(call, admin, "").await,
        ["token", accessor @ ..] => token(call, admin, &accessor.join("/")).await,
        ["roles"] => roles(call).await,
        ["role", "name", name @ ..] if !name.is_empty() => role_named(call, &name.join("/")).await,
        ["role"] => write_role(call, admin, "").await,
        ["role", id @ ..] => role(call, admin, &id.join("/")).await,
        _ => auth::route(call, admin, rest).await,
    }
}

/// Returns the error while access control is off. An invalid request is reported as such nevertheless.
fn disabled(call: &Call, rest: &[&str]) -> ApiError {
    let rows = ["policy", "token", "role", "auth-method", "binding-rule"];
    let fits = match rest {
        ["policies" | "tokens" | "roles" | "auth-methods" | "binding-rules"]
        | ["policy" | "token", "self"]
        | ["role", "name", _, ..] => call.is_get(),
        ["bootstrap" | "login" | "token" | "role" | "auth-method" | "binding-rule"]
        | ["token", "onetime"]
        | ["token", "onetime", "exchange"]
        | ["oidc", "auth-url" | "complete-auth"]
        | ["identity", "client-introduction-token"] => call.is_put(),
        [kind, _, ..] if rows.contains(kind) => call.is_get() || call.is_put() || call.is_delete(),
        _ => return ApiError::unknown_path(),
    };
    match fits {
        true => ApiError::bad_request("ACL support disabled"),
        false => ApiError::method(),
    }
}

async fn bootstrap(call: &Call, admin: &Admin) -> Result<Reply, ApiError> {
    call.put()?;
    let secret = match call.body.is_empty() {
        true => None,
        false => {
            let body: Value = typed::row(&call.body)?;
            body["BootstrapSecret"].as_str().filter(|s| !s.is_empty()).map(str::to_owned)
        }
    };
    let (token, index) = admin.bootstrap(secret).await.map_err(|e| coded(&e))?;
    Ok(shown(&token)?.index(index))
}

/// Answers with a token, with the zero time as Nomad writes it.
fn shown(token: &Token) -> Result<Reply, ApiError> {
    let mut value = serde_json::to_value(token)
        .map_err(|e| ApiError::internal(format!("the token cannot be encoded: {e}")))?;
    if token.create_time.is_zero() {
        value["CreateTime"] = json!("0001-01-01T00:00:00Z");
    }
    Ok(Reply::value(value))
}

/// Lists all policies, or the policies of the caller (`own`).
async fn policies(call: &Call, own: bool) -> Result<Reply, ApiError> {
    call.only(&Method::GET)?;
    let prefix = call.query.text("prefix");
    let (meta, rows) = blocking::read(call, &[Topic::Table(Table::AclPolicies)], |root| {
        let all = call.caller().is_management() && !own;
        let names = call.caller().policies(root);
        let seen = |row: &&Arc<Policy>| row.name.starts_with(prefix) && (all || names.contains(&row.name));
        let rows: Vec<_> = root.acl_policies().filter(seen).map(|row| row.stub()).collect();
        Ok((root.table_index(Table::AclPolicies), rows))
    })
    .await?;
    Ok(Reply::json(rows)?.meta(meta))
}

async fn policy(call: &Call, admin: &Admin, name: &str) -> Result<Reply, ApiError> {
    if name.is_empty() {
        return Err(ApiError::bad_request("Missing Policy Name"));
    }
    match call.method {
        Method::GET => {
            let topic = Topic::Admin(AdminRow::Policy(name.to_owned()));
            let (meta, row) = blocking::read(call, &[topic], |root| {
                let caller = &call.caller();
                if !caller.is_management() && !caller.policies(root).contains(name) {
                    return Err(access::denied());
                }
                let row = root.acl_policy(name);
                let row =
                    row.ok_or_else(|| super::absent(root, Table::AclPolicies, "ACL policy not found"))?;
                Ok((row.modify_index, row.clone()))
            })
            .await?;
            let rules = caravan_server::parse_rules(&row.rules).unwrap_or_default();
            let mut value = json!(*row);
            value["RulesJSON"] = json!(rules);
            Ok(Reply::value(value).meta(meta))
        }
        Method::DELETE => {
            let index = admin.delete_policy(name.to_owned()).await.map_err(|e| refused(&e))?;
            Ok(Reply::empty().index(index))
        }
        _ => {
            call.put()?;
            let row: Policy = typed::row(&call.body)?;
            if row.name != name {
                return Err(ApiError::bad_request("ACL policy name does not match request path"));
            }
            Ok(Reply::empty().index(admin.write_policy(row).await.map_err(|e| coded(&e))?))
        }
    }
}

async fn tokens(call: &Call) -> Result<Reply, ApiError> {
    call.only(&Method::GET)?;
    if !call.caller().is_management() {
        return Err(access::denied());
    }
    let prefix = call.query.text("prefix");
    let (mut meta, (rows, next)) = blocking::read(call, &[Topic::Table(Table::AclTokens)], |root| {
        let seen = |row: &&Arc<Token>| row.accessor_id.starts_with(prefix);
        let rows: Vec<_> = root.acl_tokens().filter(seen).collect();
        // Filters do not see secrets, so a filter cannot probe for a secret.
        let (rows, next) = page(
            &call.query,
            rows,
            |row| match prefix {
                "" => At::Created(row.create_index, row.accessor_id.as_str()),
                _ => At::Id(row.accessor_id.as_str()),
            },
            |row| object(&row.stub()),
        )?;
        let rows: Vec<_> = rows.into_iter().map(|row| row.stub()).collect();
        Ok((root.table_index(Table::AclTokens), (rows, next)))
    })
    .await?;
    meta.next_token = next;
    Ok(Reply::json(rows)?.meta(meta))
}

/// Answers with the token that stands for every caller while access control is off.
fn everybody() -> Result<Reply, ApiError> {
    let token = Token {
        accessor_id: "acls-disabled".into(),
        name: "ACLs disabled token".into(),
        kind: TokenType::Client,
        ..Token::default()
    };
    Ok(shown(&token)?.meta(Meta { index: 0, known_leader: true, next_token: String::new() }))
}

async fn own_token(call: &Call) -> Result<Reply, ApiError> {
    call.only(&Method::GET)?;
    match &call.caller().token {
        Some(token) => {
            let meta = Meta { index: token.modify_index, known_leader: true, next_token: String::new() };
            Ok(shown(token)?.meta(meta))
        }
        None => Err(ApiError::not_found("ACL token not found")),
    }
}

async fn token(call: &Call, admin: &Admin, accessor: &str) -> Result<Reply, ApiError> {
    if accessor.is_empty() {
        return Err(ApiError::bad_request("Missing Token Accessor"));
    }
    match call.method {
        Method::GET => {
            let may = || {
                let caller = call.caller();
                caller.is_management()
                    || caller.token.as_ref().is_some_and(|token| token.accessor_id == accessor)
            };
            let topic = Topic::Admin(AdminRow::Token(accessor.to_owned()));
            let (meta, row) = blocking::read(call, &[topic], |root| match root.acl_token(accessor) {
                _ if !may() => Err(access::denied()),
                Some(row) => Ok((row.modify_index, row.clone())),
                None => Err(super::absent(root, Table::AclTokens, "ACL token not found")),
            })
            .await?;
            Ok(shown(&row)?.meta(meta))
        }
        Method::DELETE => {
            let index = admin.delete_tokens(vec![accessor.to_owned()]).await.map_err(|e| coded(&e))?;
            Ok(Reply::empty().index(index))
        }
        _ => write_token(call, admin, accessor).await,
    }
}

async fn write_token(call: &Call, admin: &Admin, accessor: &str) -> Result<Reply, ApiError> {
    call.put()?;
    let mut body: Value = typed::row(&call.body)?;
    // A token without a type is a client token.
    if body["Type"].as_str().is_none_or(str::is_empty) {
        body["Type"] = json!(TokenType::Client.as_str());
    }
    let row: Token = typed::of_value(&body)?;
    if !accessor.is_empty() && row.accessor_id != accessor {
        return Err(ApiError::bad_request("ACL token accessor does not match request path"));
    }
    let (token, index) = admin.write_token(row).await.map_err(|e| coded(&e))?;
    Ok(shown(&token)?.index(index))
}

async fn one_time(call: &Call, admin: &Admin) -> Result<Reply, ApiError> {
    call.put()?;
    let caller = call.caller();
    let token = caller.token.as_ref().filter(|token| !token.secret_id.is_empty());
    let token = token.ok_or_else(|| ApiError::internal("acl token lookup failed: missing secret id"))?;
    let (row, index) = admin.make_one_time(&token.accessor_id).await.map_err(|e| refused(&e))?;
    Ok(Reply::value(json!({"OneTimeToken": row, "Index": index})).index(index))
}

async fn exchange(call: &Call, admin: &Admin) -> Result<Reply, ApiError> {
    call.put()?;
    let body: Value = typed::row(&call.body)?;
    let secret = Secret::new(body["OneTimeSecretID"].as_str().unwrap_or_default());
    let (token, index) = admin.exchange(secret).await.map_err(|e| coded(&e))?;
    Ok(Reply::value(json!({"Token": *token, "Index": index})).index(index))
}

/// Lists all roles, or the roles of the caller.
async fn roles(call: &Call) -> Result<Reply, ApiError> {
    call.only(&Method::GET)?;
    let prefix = call.query.text("prefix");
    let (meta, rows) = blocking::read(call, &[Topic::Table(Table::AclRoles)], |root| {
        let rows = root.acl_roles().filter(|row| row.id.starts_with(prefix) && sees_role(call, row));
        Ok((root.table_index(Table::AclRoles), rows.cloned().collect::<Vec<_>>()))
    })
    .await?;
    Ok(Reply::json(rows)?.meta(meta))
}

fn sees_role(call: &Call, role: &Role) -> bool {
    let caller = &call.caller();
    caller.is_management()
        || caller.token.as_ref().is_some_and(|token| token.role_links().iter().any(|link| link.id == role.id))
}

/// Answers with the role that `find` returns.
async fn show_role(call: &Call, find: impl Fn(&Root) -> Option<Arc<Role>>) -> Result<Reply, ApiError> {
    call.only(&Method::GET)?;
    let (meta, row) = blocking::read(call, &[Topic::Table(Table::AclRoles)], |root| match find(root) {
        Some(row) if sees_role(call, &row) => Ok((row.modify_index, row)),
        None if call.caller().is_management() => {
            Err(super::absent(root, Table::AclRoles, "ACL role not found"))
        }
        _ => Err(access::denied()),
    })
    .await?;
    Ok(Reply::json(row)?.meta(meta))
}

async fn role_named(call: &Call, name: &str) -> Result<Reply, ApiError> {
    if name.is_empty() {
        return Err(ApiError::bad_request("missing ACL role name"));
    }
    show_role(call, |root| root.acl_role_named(name).cloned()).await
}

async fn role(call: &Call, admin: &Admin, id: &str) -> Result<Reply, ApiError> {
    if id.is_empty() {
        return Err(ApiError::bad_request("missing ACL role ID"));
    }
    match call.method {
        Method::GET => show_role(call, |root| root.acl_role(id).cloned()).await,
        Method::DELETE => {
            let done = admin.delete_role(id.to_owned()).await.map_err(|e| refused(&e))?;
            Ok(Reply::empty().index(done))
        }
        _ => write_role(call, admin, id).await,
    }
}

async fn write_role(call: &Call, admin: &Admin, id: &str) -> Result<Reply, ApiError> {
    call.put()?;
    let row: Role = typed::row(&call.body)?;
    if !id.is_empty() && row.id != id {
        return Err(ApiError::bad_request("ACL role ID does not match request path"));
    }
    let (role, index) = admin.write_role(row).await.map_err(|e| coded(&e))?;
    Ok(Reply::json(role)?.index(index))
}
