//! Variables (`http-api` section 5.9).

use crate::blocking;
use crate::body;
use crate::call::Call;
use crate::encode::encode;
use crate::error::ApiError;
use crate::page::{Token, object, page};
use crate::reply::{Meta, Reply, TEXT};
use caravan_server::{Kind, ServerError, VariableWritten};
use caravan_state::{Table, Topic};
use caravan_types::Namespace;
use caravan_types::variable::{Variable, VariableKey};
use http::{Method, StatusCode};
use serde_json::json;
use std::sync::Arc;

pub(crate) async fn list(call: &Call) -> Result<Reply, ApiError> {
    call.only(&Method::GET)?;
    let namespace = call.query.list_namespace();
    let prefix = call.query.text("prefix");
    let (mut meta, (rows, next)) = blocking::read(call, &[Topic::Table(Table::Variables)], |root| {
        let rows = root.variables_with_prefix(namespace.as_ref(), prefix).collect();
        let (rows, next) = page(
            &call.query,
            rows,
            |row: &&Arc<Variable>| Token::Key(row.key.namespace.as_str(), row.key.path.as_str()),
            // What is stored has its metadata in a part of its own.
            |row| json!({"VariableMetadata": object(&row.metadata())}),
        )?;
        let rows: Vec<_> = rows.into_iter().map(|row| row.metadata()).collect();
        Ok((root.table_index(Table::Variables), (rows, next)))
    })
    .await?;
    meta.next_token = next;
    Ok(Reply::json(rows)?.meta(meta))
}

pub(crate) async fn route(call: &Call, path: &str) -> Result<Reply, ApiError> {
    if path.is_empty() {
        return Err(ApiError::bad_request("missing variable path"));
    }
    for lock in ["lock-acquire", "lock-release", "lock-renew"] {
        if call.query.get(lock).is_some() {
            return Err(ApiError::bad_request("locks of variables are not supported yet"));
        }
    }
    match call.method {
        Method::GET => get(call, path).await,
        Method::PUT | Method::POST => put(call, path).await,
        Method::DELETE => delete(call, path).await,
        _ => Err(ApiError::bad_request("Invalid method")),
    }
}

async fn get(call: &Call, path: &str) -> Result<Reply, ApiError> {
    let server = call.server()?;
    let key = VariableKey::new(call.query.namespace(), path);
    let (meta, variable) =
        blocking::read(call, &[Topic::Variable(key.clone())], |root| match root.variable(&key) {
            Some(row) => {
                Ok((row.modify_index, server.open_variable(row).map_err(|e| ApiError::of_change(&e))?))
            }
            None => {
                let index = root.table_index(Table::Variables);
                let meta = Meta { index, known_leader: true, next_token: String::new() };
                Err(ApiError::not_found("variable not found").with_meta(meta))
            }
        })
        .await?;
    Ok(Reply::json(variable)?.meta(meta))
}

fn check_index(call: &Call) -> Result<Option<u64>, ApiError> {
    match call.query.get("cas") {
        None | Some("") => Ok(None),
        Some(text) => text.parse().map(Some).map_err(|_| {
            ApiError::bad_request(format!(
                "can not parse cas: strconv.ParseUint: parsing \"{text}\": invalid syntax"
            ))
        }),
    }
}

/// What makes no sense is told with its code.
fn refused(error: &ServerError) -> ApiError {
    match error.kind {
        Kind::BadRequest => ApiError::bad_request(format!("RPC Error:: 400,{}", error.message)),
        _ => ApiError::of_change(error),
    }
}

async fn put(call: &Call, path: &str) -> Result<Reply, ApiError> {
    let check_index = check_index(call)?;
    let (namespace, named, items) = body::variable(&call.body)?;
    if !named.is_empty() && named != path {
        return Err(ApiError::bad_request(
            "path mismatch: the request's path and body name different variables",
        ));
    }
    // The body wins over the query, as it is recorded.
    let namespace = if namespace.is_empty() { call.query.namespace() } else { Namespace::new(namespace) };
    let key = VariableKey::new(namespace, path);
    let done = call.server()?.write_variable(key, &items, check_index).await;
    written(done.map_err(|e| refused(&e))?)
}

async fn delete(call: &Call, path: &str) -> Result<Reply, ApiError> {
    let key = VariableKey::new(call.query.namespace(), path);
    let done = call.server()?.delete_variable(key, check_index(call)?).await;
    match done.map_err(|e| refused(&e))? {
        VariableWritten::Done { index, .. } => Ok(Reply::empty().status(StatusCode::NO_CONTENT).index(index)),
        conflict => written(conflict),
    }
}

fn written(done: VariableWritten) -> Result<Reply, ApiError> {
    match done {
        VariableWritten::Done { variable: Some(variable), index } => Ok(Reply::json(variable)?.index(index)),
        VariableWritten::Done { variable: None, index } => {
            Ok(Reply::empty().status(StatusCode::NO_CONTENT).index(index))
        }
        VariableWritten::Conflict { variable, index } => {
            let text = encode(&json!(variable), false);
            Ok(Reply::raw(TEXT, text).status(StatusCode::CONFLICT).index(index))
        }
    }
}
