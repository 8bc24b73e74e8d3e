//! Variables (docs/reference/http-api.md, section 5.9).

use crate::blocking;
use crate::body::{self, VariableInput};
use crate::call::Call;
use crate::encode::encode;
use crate::error::ApiError;
use crate::order::{Keys, keys};
use crate::page::{Token, object, page};
use crate::reply::{Indexed, Meta, Next, Reply, TEXT};
use caravan_server::{Kind, ServerError, VarCap, VariableWritten};
use caravan_state::Table;
use caravan_types::ser::Secrets;
use caravan_types::variable::{Variable, VariableDecrypted, VariableKey};
use http::{Method, StatusCode};
use serde_json::json;
use std::sync::Arc;

/// The keys by which the list of variables can be sorted.
pub(crate) const KEYS: Keys<Variable> = keys!(Variable {
    "path" => |_, row| row.key.path.as_str(),
    "namespace" => |_, row| row.key.namespace.as_str(),
    "create" => |_, row| row.create_index,
    "modify" => |_, row| row.modify_index,
});

pub(crate) async fn list(call: &Call) -> Result<Reply, ApiError> {
    call.only(&Method::GET)?;
    let namespace = call.list_namespace();
    let prefix = call.query.text("prefix");
    let (mut meta, (rows, next)) = blocking::read(call, |reads| {
        let rows = reads.snapshot().variables_with_prefix(namespace.as_ref(), prefix);
        let seen = |row: &&Arc<Variable>| {
            call.caller().variable(row.key.namespace.as_str(), row.key.path.as_str(), VarCap::List)
        };
        let rows = rows.filter(seen).collect();
        let (rows, next) = page(
            &call.query,
            &KEYS,
            reads.snapshot(),
            rows,
            |row| Token::Key(row.key.namespace.as_str(), row.key.path.as_str()),
            // A stored variable has its metadata in a separate field.
            |row| json!({"VariableMetadata": object(&row.metadata())}),
        )?;
        let rows: Vec<_> = rows.into_iter().map(|row| row.metadata()).collect();
        Ok((reads.table_index(Table::Variables), (rows, next)))
    })
    .await?;
    meta.next = next;
    Ok(Reply::json(rows)?.meta(meta))
}

/// Returns the variable that the path names, or changes, locks or deletes the variable.
pub(crate) async fn route(call: &Call) -> Result<Reply, ApiError> {
    let path = &call.star(0);
    if path.is_empty() {
        return Err(ApiError::bad_request("missing variable path"));
    }
    if let Some(operation) = lock_operation(call)? {
        return match call.is_put() {
            true => lock(call, path, operation).await,
            false => Err(ApiError::bad_request("Invalid method")),
        };
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
    let key = VariableKey::new(call.namespace.clone(), path);
    let (meta, variable) = blocking::read(call, |reads| match reads.variable(&key) {
        Some(row) => {
            Ok((row.modify_index, server.variables().open(row).map_err(|e| ApiError::of_change(&e))?))
        }
        None => {
            let index = reads.part_index(&[Table::Variables]);
            let meta = Meta { index, known_leader: true, next: Next::default() };
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

/// Converts a refusal; an invalid request has its own status code.
fn refused(error: &ServerError) -> ApiError {
    match error.kind() {
        Kind::BadRequest => ApiError::bad_request(format!("RPC Error:: 400,{error}")),
        _ => ApiError::of_change(error),
    }
}

/// Converts a refused write, whose answer has index headers although nothing was written.
fn unwritten(error: &ServerError) -> ApiError {
    refused(error).with_index(0)
}

/// The operation of a request on a lock.
#[derive(Clone, Copy)]
enum Operation {
    Acquire,
    Release,
    Renew,
}

fn lock_operation(call: &Call) -> Result<Option<Operation>, ApiError> {
    let known = [
        ("lock-acquire", Operation::Acquire),
        ("lock-release", Operation::Release),
        ("lock-renew", Operation::Renew),
    ];
    let mut asked = known.into_iter().filter(|(name, _)| call.query.get(name).is_some());
    let first = asked.next().map(|(_, operation)| operation);
    if asked.next().is_some() {
        return Err(ApiError::bad_request("multiple lock operations"));
    }
    if first.is_some() && call.query.get("cas").is_some() {
        return Err(ApiError::bad_request("CAS can't be used with lock operations"));
    }
    Ok(first)
}

/// Returns the key of the variable that a body describes.
fn key_of(call: &Call, path: &str, supplied: &VariableInput) -> Result<VariableKey, ApiError> {
    if !supplied.path.is_empty() && supplied.path != path {
        return Err(ApiError::bad_request(
            "path mismatch: the request's path and body name different variables",
        ));
    }
    Ok(VariableKey::new(call.namespace.clone(), path))
}

async fn lock(call: &Call, path: &str, operation: Operation) -> Result<Reply, ApiError> {
    let supplied = body::variable(&call.body)?;
    let key = key_of(call, path, &supplied)?;
    let server = call.server()?;
    let own = supplied.lock.clone().unwrap_or_default();
    if own.id.is_empty() && !matches!(operation, Operation::Acquire) {
        return Err(ApiError::bad_request("missing lock ID"));
    }
    match operation {
        Operation::Acquire => {
            let done = server.variables().acquire_lock(key.clone(), &supplied.items, own).await;
            written(call, &key, done.map_err(|e| unwritten(&e))?, &supplied.items).map(unindexed)
        }
        Operation::Release => {
            let done =
                server.variables().release_lock(key.clone(), own.id).await.map_err(|e| unwritten(&e))?;
            match done {
                VariableWritten::Done { variable: Some(variable), index } => {
                    Ok(Reply::json(variable.metadata)?.index(index))
                }
                other => written(call, &key, other, &supplied.items).map(unindexed),
            }
        }
        Operation::Renew => match server.variables().renew_lock(&key, &own.id).await {
            Ok(Some(metadata)) => Reply::json(metadata),
            Ok(None) => Err(ApiError::new(StatusCode::CONFLICT, "attempting to modify locked variable")),
            Err(error) => match error.kind() {
                Kind::NotFound => Err(ApiError::not_found(error.to_string())),
                Kind::Refused => Err(ApiError::new(StatusCode::CONFLICT, error.to_string())),
                // The holder may still have the lock.
                _ => Err(unwritten(&error)),
            },
        },
    }
}

async fn put(call: &Call, path: &str) -> Result<Reply, ApiError> {
    let check_index = check_index(call)?;
    let supplied = body::variable(&call.body)?;
    if supplied.items.is_empty() {
        return Err(ApiError::bad_request("variable missing required Items object"));
    }
    let key = key_of(call, path, &supplied)?;
    let lock = supplied.lock.filter(|lock| !lock.id.is_empty());
    let done = call.server()?.variables().write(key.clone(), &supplied.items, check_index, lock).await;
    written(call, &key, done.map_err(|e| unwritten(&e))?, &supplied.items)
}

async fn delete(call: &Call, path: &str) -> Result<Reply, ApiError> {
    let key = VariableKey::new(call.namespace.clone(), path);
    let done = call.server()?.variables().delete(key.clone(), check_index(call)?).await;
    match done.map_err(|e| refused(&e))? {
        VariableWritten::Done { index, .. } => Ok(Reply::empty().status(StatusCode::NO_CONTENT).index(index)),
        conflict => written(call, &key, conflict, &Secrets::default()),
    }
}

/// Removes the index headers, which an answer about a lock conflict does not have.
fn unindexed(mut reply: Reply) -> Reply {
    if reply.status == StatusCode::CONFLICT {
        reply.indexed = Indexed::None;
    }
    reply
}

/// Returns the answer to a write. A caller who may not read the variable receives only the items of its own request.
/// The stored variable may hold other items, for example those from before it was locked.
fn written(
    call: &Call,
    key: &VariableKey,
    done: VariableWritten,
    items: &Secrets,
) -> Result<Reply, ApiError> {
    let conflict = |variable: &VariableDecrypted, index: u64| {
        let text = encode(&json!(variable), false);
        Reply::raw(TEXT, text).status(StatusCode::CONFLICT).index(index)
    };
    let reads = call.caller().variable(key.namespace.as_str(), key.path.as_str(), VarCap::Read);
    match done {
        VariableWritten::Done { variable: Some(mut variable), index } => {
            if !reads {
                variable.items = items.clone();
                // The caller may not see a lock that another caller has acquired since.
                if variable.metadata.modify_index != index {
                    variable.metadata.lock = None;
                }
            }
            Ok(Reply::json(variable)?.index(index))
        }
        VariableWritten::Done { variable: None, index } => {
            Ok(Reply::empty().status(StatusCode::NO_CONTENT).index(index))
        }
        VariableWritten::Conflict { mut variable, index } => {
            if !reads {
                variable.items = Secrets::default();
                variable.metadata.lock = None;
            }
            Ok(conflict(&variable, index))
        }
        VariableWritten::Locked => {
            let row = Variable { key: key.clone(), ..Variable::default() };
            let variable = VariableDecrypted { metadata: row.metadata(), items: Secrets::default() };
            Ok(conflict(&variable, 0))
        }
    }
}
