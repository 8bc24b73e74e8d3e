//! Namespaces (docs/reference/http-api.md, sections 3.7 and 5.8).

use crate::blocking;
use crate::call::Call;
use crate::error::ApiError;
use crate::reply::Reply;
use crate::typed::{self, refused};
use caravan_state::{AdminRow, Table, Topic};
use caravan_types::Namespace;
use caravan_types::namespace::NamespaceSpec;
use http::Method;

pub(crate) async fn list(call: &Call) -> Result<Reply, ApiError> {
    call.only(&Method::GET)?;
    let prefix = call.query.text("prefix");
    let (meta, rows) = blocking::read(call, &[Topic::Table(Table::Namespaces)], |root| {
        let seen = |row: &NamespaceSpec| {
            row.name.as_str().starts_with(prefix) && call.caller().acl.sees_namespace(row.name.as_str())
        };
        let rows: Vec<_> = root.namespaces().filter(|row| seen(row)).cloned().collect();
        Ok((root.table_index(Table::Namespaces), rows))
    })
    .await?;
    Ok(Reply::json(rows)?.meta(meta))
}

/// Answers `/v1/namespace` and `/v1/namespace/:name`.
pub(crate) async fn route(call: &Call, name: Option<&str>) -> Result<Reply, ApiError> {
    let admin = call.server()?.admin();
    match name {
        Some(name) if call.is_get() => get(call, Namespace::new(name)).await,
        Some(name) if call.is_delete() => {
            let index = admin.delete_namespace(Namespace::new(name)).await.map_err(|e| refused(&e))?;
            Ok(Reply::empty().index(index))
        }
        _ => {
            call.put()?;
            let row: NamespaceSpec = typed::row(&call.body)?;
            if name.is_some_and(|name| row.name != name) {
                return Err(ApiError::bad_request("Namespace name does not match request path"));
            }
            Ok(Reply::empty().index(admin.write_namespace(row).await.map_err(|e| refused(&e))?))
        }
    }
}

async fn get(call: &Call, name: Namespace) -> Result<Reply, ApiError> {
    let topic = Topic::Admin(AdminRow::Namespace(name.clone()));
    let (meta, row) = blocking::read(call, &[topic], |root| match root.namespace(&name) {
        _ if !call.caller().acl.sees_namespace(name.as_str()) => Err(crate::access::denied()),
        Some(row) => Ok((row.modify_index, row.clone())),
        None => Err(super::absent(root, Table::Namespaces, "Namespace not found")),
    })
    .await?;
    Ok(Reply::json(row)?.meta(meta))
}
