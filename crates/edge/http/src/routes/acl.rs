//! Access control: bootstrap, policies, tokens, roles (docs/reference/http-api.md, section 3.6).

pub(crate) mod auth;

use crate::access::{self, On};
use crate::blocking;
use crate::call::Call;
use crate::error::ApiError;
use crate::order::{Keys, keys};
use crate::page::{Token as At, object, page};
use crate::reply::{Content, Meta, Next, Reply};
use crate::typed::{self, coded, refused};
use caravan_server::{Admin, Level, NsCap, VarCap};
use caravan_state::{Reads, Table};
use caravan_types::acl::{Policy, Role, Secret, Token, TokenType};
use http::Method;
use serde_json::{Value, json};
use std::sync::Arc;

/// Returns the access control of the server.
///
/// # Errors
/// Returns the refusal while access control is off. A request with a method that the route does not serve is reported
/// as such nevertheless.
fn enabled(call: &Call) -> Result<Arc<Admin>, ApiError> {
    let admin = call.server()?.admin();
    if admin.acl_enabled() {
        return Ok(admin);
    }
    let fits = match call.line.on {
        On::Get => call.is_get(),
        On::Put => call.is_put(),
        On::Delete => call.is_delete(),
        On::Any => call.is_get() || call.is_put() || call.is_delete(),
    };
    Err(match fits {
        true => ApiError::bad_request("ACL support disabled"),
        false => ApiError::method(),
    })
}

pub(crate) async fn bootstrap(call: &Call) -> Result<Reply, ApiError> {
    let admin = enabled(call)?;
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

/// Returns the answer with a token, whose zero time is written as in Nomad.
fn shown(token: &Token) -> Result<Reply, ApiError> {
    let mut value = serde_json::to_value(token)
        .map_err(|e| ApiError::internal(format!("the token cannot be encoded: {e}")))?;
    if token.create_time.is_zero() {
        value["CreateTime"] = json!("0001-01-01T00:00:00Z");
    }
    Ok(Reply::value(value))
}

/// The keys by which the list of policies can be sorted.
pub(crate) const POLICY_KEYS: Keys<Policy> = keys!(Policy {
    "name" => |_, row| &row.name,
    "description" => |_, row| &row.description,
    "create" => |_, row| row.create_index,
    "modify" => |_, row| row.modify_index,
});

/// The keys by which the list of roles can be sorted.
pub(crate) const ROLE_KEYS: Keys<Role> = keys!(Role {
    "name" => |_, row| &row.name,
    "description" => |_, row| &row.description,
    "create" => |_, row| row.create_index,
    "modify" => |_, row| row.modify_index,
});

pub(crate) async fn policies(call: &Call) -> Result<Reply, ApiError> {
    list_policies(call, false).await
}

pub(crate) async fn own_policies(call: &Call) -> Result<Reply, ApiError> {
    list_policies(call, true).await
}

/// Lists all policies, or the policies of the caller (`own`).
async fn list_policies(call: &Call, own: bool) -> Result<Reply, ApiError> {
    enabled(call)?;
    call.only(&Method::GET)?;
    let prefix = call.query.text("prefix");
    let (mut meta, (rows, next)) = blocking::read(call, |reads| {
        let root = reads.snapshot();
        let all = call.caller().is_management() && !own;
        let names = call.caller().policies(root);
        let seen = |row: &&Arc<Policy>| row.name.starts_with(prefix) && (all || names.contains(&row.name));
        let rows = root.acl_policies().filter(seen).collect();
        let (rows, next) =
            page(&call.query, &POLICY_KEYS, root, rows, |row| At::Id(&row.name), |row| object(&row.stub()))?;
        let rows: Vec<_> = rows.into_iter().map(|row| row.stub()).collect();
        Ok((reads.table_index(Table::AclPolicies), (rows, next)))
    })
    .await?;
    meta.next = next;
    Ok(Reply::json(rows)?.meta(meta))
}

/// Returns, changes or deletes the policy that the path names.
pub(crate) async fn policy(call: &Call) -> Result<Reply, ApiError> {
    let admin = enabled(call)?;
    let name: &str = &call.star(0);
    if name.is_empty() {
        return Err(ApiError::bad_request("Missing Policy Name"));
    }
    match call.method {
        Method::GET => {
            let (meta, row) = blocking::read(call, |reads| {
                let caller = &call.caller();
                if !caller.is_management() && !caller.policies(reads.snapshot()).contains(name) {
                    return Err(access::denied());
                }
                let row = reads.acl_policy(name);
                let row = row.ok_or_else(|| {
                    super::absent(reads.snapshot(), Table::AclPolicies, "ACL policy not found")
                })?;
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

/// The keys by which the list of tokens can be sorted.
pub(crate) const TOKEN_KEYS: Keys<Token> = keys!(Token {
    "accessor" => |_, row| &row.accessor_id,
    "name" => |_, row| &row.name,
    "type" => |_, row| row.kind.as_str(),
    "global" => |_, row| row.global,
    "expires" => |_, row| row.expiration_time.0,
    "create" => |_, row| row.create_index,
    "modify" => |_, row| row.modify_index,
});

pub(crate) async fn tokens(call: &Call) -> Result<Reply, ApiError> {
    enabled(call)?;
    call.only(&Method::GET)?;
    if !call.caller().is_management() {
        return Err(access::denied());
    }
    let prefix = call.query.text("prefix");
    let (mut meta, (rows, next)) = blocking::read(call, |reads| {
        let seen = |row: &&Arc<Token>| row.accessor_id.starts_with(prefix);
        let rows: Vec<_> = reads.snapshot().acl_tokens().filter(seen).collect();
        // Filters do not see secrets, so a filter cannot probe for a secret.
        let (rows, next) = page(
            &call.query,
            &TOKEN_KEYS,
            reads.snapshot(),
            rows,
            |row| match prefix {
                "" => At::Created(row.create_index, row.accessor_id.as_str()),
                _ => At::Id(row.accessor_id.as_str()),
            },
            |row| object(&row.stub()),
        )?;
        let rows: Vec<_> = rows.into_iter().map(|row| row.stub()).collect();
        Ok((reads.table_index(Table::AclTokens), (rows, next)))
    })
    .await?;
    meta.next = next;
    Ok(Reply::json(rows)?.meta(meta))
}

/// Returns the answer with the token that represents every caller while access control is off.
fn everybody() -> Result<Reply, ApiError> {
    let token = Token {
        accessor_id: "acls-disabled".into(),
        name: "ACLs disabled token".into(),
        kind: TokenType::Client,
        ..Token::default()
    };
    Ok(shown(&token)?.meta(Meta { index: 0, known_leader: true, next: Next::default() }))
}

pub(crate) async fn own_token(call: &Call) -> Result<Reply, ApiError> {
    call.only(&Method::GET)?;
    let with_rights = call.query.flag("capabilities")?.unwrap_or(false);
    if !call.server()?.admin().acl_enabled() {
        let mut reply = everybody()?;
        if with_rights {
            add_rights(call, &mut reply)?;
        }
        return Ok(reply);
    }
    match &call.caller().token {
        Some(token) => {
            let meta = Meta { index: token.modify_index, known_leader: true, next: Next::default() };
            let mut reply = shown(token)?.meta(meta);
            if with_rights {
                add_rights(call, &mut reply)?;
            }
            Ok(reply)
        }
        None => Err(ApiError::not_found("ACL token not found")),
    }
}

/// Adds the effective rights of the caller: those of all policies and roles, by namespace.
fn add_rights(call: &Call, reply: &mut Reply) -> Result<(), ApiError> {
    let root = call.server()?.store().snapshot();
    let caller = call.caller();
    let acl = &caller.acl;
    let namespaces: serde_json::Map<String, Value> = root
        .namespaces()
        .filter(|row| acl.is_management() || acl.sees_namespace(row.name.as_str()))
        .map(|row| {
            let name = row.name.as_str();
            let has = |cap: &&NsCap| **cap != NsCap::Deny && acl.namespace(name, **cap);
            let caps: Vec<&str> = NsCap::ALL.iter().filter(has).map(|cap| cap.as_str()).collect();
            (name.to_owned(), json!(caps))
        })
        .collect();
    let variables: serde_json::Map<String, Value> = root
        .namespaces()
        .filter(|row| acl.any_variable(row.name.as_str()) || namespaces.contains_key(row.name.as_str()))
        .filter_map(|row| {
            let rule = |(path, caps): (&str, Vec<VarCap>)| {
                let caps: Vec<&str> = caps.iter().map(|cap| cap.as_str()).collect();
                json!({"Path": path, "Capabilities": caps})
            };
            let rules: Vec<Value> = acl.variable_rules(row.name.as_str()).into_iter().map(rule).collect();
            (!rules.is_empty()).then(|| (row.name.to_string(), json!(rules)))
        })
        .collect();
    let level = |has: &dyn Fn(Level) -> bool| match () {
        () if has(Level::Write) => "write",
        () if has(Level::Read) => "read",
        () if has(Level::List) => "list",
        () => "",
    };
    if let Content::Json(value) = &mut reply.content {
        value["CaravanCapabilities"] = json!({
            "Management": acl.is_management(),
            "Namespaces": namespaces,
            "Variables": variables,
            "Node": level(&|level| acl.node(level)),
            "Agent": level(&|level| acl.agent(level)),
            "Operator": level(&|level| acl.operator(level)),
            "Plugin": level(&|level| acl.plugin(level)),
        });
    }
    Ok(())
}

/// Returns, changes or deletes the token that the path names.
pub(crate) async fn token(call: &Call) -> Result<Reply, ApiError> {
    let admin = enabled(call)?;
    let accessor: &str = &call.star(0);
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
            let (meta, row) = blocking::read(call, |reads| match reads.acl_token(accessor) {
                _ if !may() => Err(access::denied()),
                Some(row) => Ok((row.modify_index, row.clone())),
                None => Err(super::absent(reads.snapshot(), Table::AclTokens, "ACL token not found")),
            })
            .await?;
            Ok(shown(&row)?.meta(meta))
        }
        Method::DELETE => {
            let index = admin.delete_tokens(vec![accessor.to_owned()]).await.map_err(|e| coded(&e))?;
            Ok(Reply::empty().index(index))
        }
        _ => write_token(call, &admin, accessor).await,
    }
}

pub(crate) async fn create_token(call: &Call) -> Result<Reply, ApiError> {
    write_token(call, &*enabled(call)?, "").await
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

pub(crate) async fn one_time(call: &Call) -> Result<Reply, ApiError> {
    let admin = enabled(call)?;
    let caller = call.caller();
    let token = caller.token.as_ref().filter(|token| !token.secret_id.is_empty());
    let token = token.ok_or_else(|| ApiError::internal("acl token lookup failed: missing secret id"))?;
    let (row, index) = admin.make_one_time(&token.accessor_id).await.map_err(|e| refused(&e))?;
    Ok(Reply::value(json!({"OneTimeToken": row, "Index": index})).index(index))
}

pub(crate) async fn exchange(call: &Call) -> Result<Reply, ApiError> {
    let admin = enabled(call)?;
    let body: Value = typed::row(&call.body)?;
    let secret = Secret::new(body["OneTimeSecretID"].as_str().unwrap_or_default());
    let (token, index) = admin.exchange(secret).await.map_err(|e| coded(&e))?;
    Ok(Reply::value(json!({"Token": *token, "Index": index})).index(index))
}

/// Lists all roles, or the roles of the caller.
pub(crate) async fn roles(call: &Call) -> Result<Reply, ApiError> {
    enabled(call)?;
    call.only(&Method::GET)?;
    let prefix = call.query.text("prefix");
    let (mut meta, (rows, next)) = blocking::read(call, |reads| {
        let root = reads.snapshot();
        let rows =
            root.acl_roles().filter(|row| row.id.starts_with(prefix) && sees_role(call, row)).collect();
        let (rows, next) =
            page(&call.query, &ROLE_KEYS, root, rows, |row| At::Id(&row.id), |row| object(&**row))?;
        Ok((reads.table_index(Table::AclRoles), (rows.into_iter().cloned().collect::<Vec<_>>(), next)))
    })
    .await?;
    meta.next = next;
    Ok(Reply::json(rows)?.meta(meta))
}

fn sees_role(call: &Call, role: &Role) -> bool {
    let caller = &call.caller();
    caller.is_management()
        || caller.token.as_ref().is_some_and(|token| token.role_links().iter().any(|link| link.id == role.id))
}

/// Returns the answer with the role that `find` returns.
async fn show_role(call: &Call, find: impl Fn(&Reads<'_>) -> Option<Arc<Role>>) -> Result<Reply, ApiError> {
    call.only(&Method::GET)?;
    let (meta, row) = blocking::read(call, |reads| match find(reads) {
        Some(row) if sees_role(call, &row) => Ok((row.modify_index, row)),
        None if call.caller().is_management() => {
            Err(super::absent(reads.snapshot(), Table::AclRoles, "ACL role not found"))
        }
        _ => Err(access::denied()),
    })
    .await?;
    Ok(Reply::json(row)?.meta(meta))
}

pub(crate) async fn role_named(call: &Call) -> Result<Reply, ApiError> {
    enabled(call)?;
    let name: &str = &call.star(0);
    if name.is_empty() {
        return Err(ApiError::bad_request("missing ACL role name"));
    }
    show_role(call, |root| root.acl_role_named(name).cloned()).await
}

/// Returns, changes or deletes the role that the path names.
pub(crate) async fn role(call: &Call) -> Result<Reply, ApiError> {
    let admin = enabled(call)?;
    let id: &str = &call.star(0);
    if id.is_empty() {
        return Err(ApiError::bad_request("missing ACL role ID"));
    }
    match call.method {
        Method::GET => show_role(call, |root| root.acl_role(id).cloned()).await,
        Method::DELETE => {
            let done = admin.delete_role(id.to_owned()).await.map_err(|e| refused(&e))?;
            Ok(Reply::empty().index(done))
        }
        _ => write_role(call, &admin, id).await,
    }
}

pub(crate) async fn create_role(call: &Call) -> Result<Reply, ApiError> {
    write_role(call, &*enabled(call)?, "").await
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
