//! Namespaces (docs/reference/http-api.md, sections 3.7 and 5.8).

use crate::blocking;
use crate::call::Call;
use crate::error::ApiError;
use crate::order::{Keys, keys};
use crate::page::{Token, object, page};
use crate::reply::Reply;
use crate::typed::{self, refused};
use caravan_state::Table;
use caravan_types::Namespace;
use caravan_types::namespace::NamespaceSpec;
use http::Method;

/// The keys by which the list can be sorted.
pub(crate) const KEYS: Keys<NamespaceSpec> = keys!(NamespaceSpec {
    "name" => |_, row| row.name.as_str(),
    "description" => |_, row| &row.description,
    "create" => |_, row| row.create_index,
    "modify" => |_, row| row.modify_index,
});

pub(crate) async fn list(call: &Call) -> Result<Reply, ApiError> {
    call.only(&Method::GET)?;
    let prefix = call.query.text("prefix");
    let (mut meta, (rows, next)) = blocking::read(call, |reads| {
        let root = reads.snapshot();
        let seen = |row: &NamespaceSpec| {
            row.name.as_str().starts_with(prefix) && call.caller().acl.sees_namespace(row.name.as_str())
        };
        let rows = root.namespaces().filter(|row| seen(row)).collect();
        let (rows, next) =
            page(&call.query, &KEYS, root, rows, |row| Token::Id(row.name.as_str()), |row| object(&**row))?;
        Ok((reads.table_index(Table::Namespaces), (rows.into_iter().cloned().collect::<Vec<_>>(), next)))
    })
    .await?;
    meta.next = next;
    Ok(Reply::json(rows)?.meta(meta))
}

pub(crate) async fn create(call: &Call) -> Result<Reply, ApiError> {
    write(call, None).await
}

/// Creates or changes the namespace that the path names.
pub(crate) async fn update(call: &Call) -> Result<Reply, ApiError> {
    write(call, Some(&call.star(0))).await
}

async fn write(call: &Call, name: Option<&str>) -> Result<Reply, ApiError> {
    let admin = call.server()?.admin();
    let row: NamespaceSpec = typed::row(&call.body)?;
    if name.is_some_and(|name| row.name != name) {
        return Err(ApiError::bad_request("Namespace name does not match request path"));
    }
    Ok(Reply::empty().index(admin.write_namespace(row).await.map_err(|e| refused(&e))?))
}

pub(crate) async fn delete(call: &Call) -> Result<Reply, ApiError> {
    let admin = call.server()?.admin();
    let index = admin.delete_namespace(Namespace::new(call.star(0))).await.map_err(|e| refused(&e))?;
    Ok(Reply::empty().index(index))
}

pub(crate) async fn get(call: &Call) -> Result<Reply, ApiError> {
    call.only(&Method::GET)?;
    let name = Namespace::new(call.star(0));
    let (meta, row) = blocking::read(call, |reads| match reads.namespace(&name) {
        _ if !call.caller().acl.sees_namespace(name.as_str()) => Err(crate::access::denied()),
        Some(row) => Ok((row.modify_index, row.clone())),
        None => Err(super::absent(reads.snapshot(), Table::Namespaces, "Namespace not found")),
    })
    .await?;
    Ok(Reply::json(row)?.meta(meta))
}
