//! Authentication methods, binding rules, logins, and introductions of nodes
//! (docs/reference/http-api.md, section 3.6).

use super::enabled;
use crate::blocking;
use crate::call::Call;
use crate::error::ApiError;
use crate::order::{Keys, keys};
use crate::page::{Token as At, object, page};
use crate::reply::Reply;
use crate::typed::{self, coded, refused};
use caravan_server::{Admin, Introduction, OidcBegin, OidcDone, joined};
use caravan_state::Table;
use caravan_types::acl::{AuthMethod, BindingRule};
use caravan_types::duration::GoDuration;
use http::Method;
use serde::Deserialize;
use serde_json::{Value, json};

/// The keys by which the list of authentication methods can be sorted.
pub(crate) const METHOD_KEYS: Keys<AuthMethod> = keys!(AuthMethod {
    "name" => |_, row| &row.name,
    "type" => |_, row| &row.kind,
    "create" => |_, row| row.create_index,
    "modify" => |_, row| row.modify_index,
});

/// The keys by which the list of binding rules can be sorted.
pub(crate) const RULE_KEYS: Keys<BindingRule> = keys!(BindingRule {
    "id" => |_, row| &row.id,
    "description" => |_, row| &row.description,
    "method" => |_, row| &row.auth_method,
    "create" => |_, row| row.create_index,
    "modify" => |_, row| row.modify_index,
});

pub(crate) async fn methods(call: &Call) -> Result<Reply, ApiError> {
    enabled(call)?;
    call.only(&Method::GET)?;
    let prefix = call.query.text("prefix");
    let (mut meta, (rows, next)) = blocking::read(call, |reads| {
        let root = reads.snapshot();
        let rows = root.auth_methods().filter(|row| row.name.starts_with(prefix)).collect();
        let (rows, next) =
            page(&call.query, &METHOD_KEYS, root, rows, |row| At::Id(&row.name), |row| object(&row.stub()))?;
        let rows: Vec<_> = rows.into_iter().map(|row| row.stub()).collect();
        Ok((reads.table_index(Table::AuthMethods), (rows, next)))
    })
    .await?;
    meta.next = next;
    Ok(Reply::json(rows)?.meta(meta))
}

/// Returns, changes or deletes the authentication method that the path names.
pub(crate) async fn method(call: &Call) -> Result<Reply, ApiError> {
    let admin = enabled(call)?;
    let name: &str = &call.star(0);
    if name.is_empty() {
        return Err(ApiError::bad_request("missing ACL auth-method name"));
    }
    match call.method {
        Method::GET => {
            let (meta, row) = blocking::read(call, |reads| match reads.auth_method(name) {
                Some(row) => Ok((row.modify_index, row.shown())),
                None => Err(super::super::absent(
                    reads.snapshot(),
                    Table::AuthMethods,
                    "ACL auth-method not found",
                )),
            })
            .await?;
            Ok(Reply::json(row)?.meta(meta))
        }
        Method::DELETE => {
            let index = admin.delete_auth_method(name.to_owned()).await.map_err(|e| refused(&e))?;
            Ok(Reply::empty().index(index))
        }
        _ => write_method(call, &admin, name).await,
    }
}

pub(crate) async fn create_method(call: &Call) -> Result<Reply, ApiError> {
    write_method(call, &*enabled(call)?, "").await
}

async fn write_method(call: &Call, admin: &Admin, name: &str) -> Result<Reply, ApiError> {
    call.put()?;
    let row: AuthMethod = typed::row(&call.body)?;
    if !name.is_empty() && row.name != name {
        return Err(ApiError::bad_request("ACL auth-method name does not match request path"));
    }
    let (row, index) = admin.write_auth_method(row).await.map_err(|e| coded(&e))?;
    Ok(Reply::json(row.shown())?.index(index))
}

pub(crate) async fn rules(call: &Call) -> Result<Reply, ApiError> {
    enabled(call)?;
    call.only(&Method::GET)?;
    let prefix = call.query.text("prefix");
    let (mut meta, (rows, next)) = blocking::read(call, |reads| {
        let root = reads.snapshot();
        let rows = root.binding_rules().filter(|row| row.id.starts_with(prefix)).collect();
        let (rows, next) =
            page(&call.query, &RULE_KEYS, root, rows, |row| At::Id(&row.id), |row| object(&row.stub()))?;
        let rows: Vec<_> = rows.into_iter().map(|row| row.stub()).collect();
        Ok((reads.table_index(Table::BindingRules), (rows, next)))
    })
    .await?;
    meta.next = next;
    Ok(Reply::json(rows)?.meta(meta))
}

/// Returns, changes or deletes the binding rule that the path names.
pub(crate) async fn rule(call: &Call) -> Result<Reply, ApiError> {
    let admin = enabled(call)?;
    let id: &str = &call.star(0);
    if id.is_empty() {
        return Err(ApiError::bad_request("missing ACL binding rule ID"));
    }
    match call.method {
        Method::GET => {
            let (meta, row) = blocking::read(call, |reads| match reads.binding_rule(id) {
                Some(row) => Ok((row.modify_index, row.clone())),
                None => Err(super::super::absent(
                    reads.snapshot(),
                    Table::BindingRules,
                    "ACL binding rule not found",
                )),
            })
            .await?;
            Ok(Reply::json(row)?.meta(meta))
        }
        Method::DELETE => {
            let index = admin.delete_binding_rule(id.to_owned()).await.map_err(|e| refused(&e))?;
            Ok(Reply::empty().index(index))
        }
        _ => write_rule(call, &admin, id).await,
    }
}

pub(crate) async fn create_rule(call: &Call) -> Result<Reply, ApiError> {
    write_rule(call, &*enabled(call)?, "").await
}

async fn write_rule(call: &Call, admin: &Admin, id: &str) -> Result<Reply, ApiError> {
    call.put()?;
    let row: BindingRule = typed::row(&call.body)?;
    if !id.is_empty() && row.id != id {
        return Err(ApiError::bad_request("ACL binding rule ID does not match request path"));
    }
    let (row, index) = admin.write_binding_rule(row).await.map_err(|e| coded(&e))?;
    Ok(Reply::json(row)?.index(index))
}

/// Returns the error that names the missing fields of a body, with the text of each field.
fn missing(body: &Value, kind: &str, fields: &[(&str, &str)]) -> Result<(), ApiError> {
    let errors: Vec<String> = fields
        .iter()
        .filter(|(field, _)| body[*field].as_str().is_none_or(str::is_empty))
        .map(|(_, words)| (*words).to_owned())
        .collect();
    match errors.is_empty() {
        true => Ok(()),
        false => Err(ApiError::bad_request(format!("invalid {kind} request: {}", joined(&errors)))),
    }
}

pub(crate) async fn login(call: &Call) -> Result<Reply, ApiError> {
    let admin = enabled(call)?;
    let body: Value = typed::row(&call.body)?;
    let fields = [("AuthMethodName", "missing auth method name"), ("LoginToken", "missing login token")];
    missing(&body, "login", &fields)?;
    let text = |name: &str| body[name].as_str().unwrap_or_default();
    let token = admin.login(text("AuthMethodName"), text("LoginToken")).await.map_err(|e| coded(&e))?;
    Ok(super::shown(&token)?.index(0))
}

pub(crate) async fn auth_url(call: &Call) -> Result<Reply, ApiError> {
    let admin = enabled(call)?;
    let body: Value = typed::row(&call.body)?;
    let fields = [
        ("AuthMethodName", "missing auth method name"),
        ("ClientNonce", "missing client nonce"),
        ("RedirectURI", "missing redirect URI"),
    ];
    missing(&body, "OIDC auth-url", &fields)?;
    let text = |name: &str| body[name].as_str().unwrap_or_default().to_owned();
    let begin = OidcBegin {
        method: text("AuthMethodName"),
        redirect_uri: text("RedirectURI"),
        client_nonce: text("ClientNonce"),
    };
    let url = admin.oidc_auth_url(begin).await.map_err(|e| coded(&e))?;
    Ok(Reply::value(json!({"AuthURL": url})))
}

pub(crate) async fn complete_auth(call: &Call) -> Result<Reply, ApiError> {
    let admin = enabled(call)?;
    let body: Value = typed::row(&call.body)?;
    let fields = [
        ("AuthMethodName", "missing auth method name"),
        ("ClientNonce", "missing client nonce"),
        ("State", "missing state"),
        ("Code", "missing code"),
        ("RedirectURI", "missing redirect URI"),
    ];
    missing(&body, "OIDC complete-auth", &fields)?;
    let text = |name: &str| body[name].as_str().unwrap_or_default().to_owned();
    let done = OidcDone {
        method: text("AuthMethodName"),
        redirect_uri: text("RedirectURI"),
        client_nonce: text("ClientNonce"),
        state: text("State"),
        code: text("Code"),
        issuer: text("Iss"),
    };
    let token = admin.oidc_complete(done).await.map_err(|e| coded(&e))?;
    Ok(super::shown(&token)?.index(0))
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct IntroductionBody {
    node_name: String,
    node_pool: String,
    #[serde(rename = "TTL")]
    ttl: GoDuration,
}

pub(crate) async fn introduce(call: &Call) -> Result<Reply, ApiError> {
    let admin = enabled(call)?;
    let body: IntroductionBody = match call.body.is_empty() {
        true => IntroductionBody::default(),
        false => typed::row(&call.body)?,
    };
    let introduction = Introduction { node_name: body.node_name, node_pool: body.node_pool, ttl: body.ttl.0 };
    let token = admin.introduce(introduction).await.map_err(|e| coded(&e))?;
    Ok(Reply::value(json!({"JWT": token})))
}
