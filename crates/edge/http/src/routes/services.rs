//! Service discovery: the registrations of services by nodes (docs/reference/http-api.md, sections 3.7 and 5.3).

use super::{check_uuid, jobs};
use crate::blocking;
use crate::call::Call;
use crate::error::ApiError;
use crate::order::{Keys, keys};
use crate::page::{Token, object, page};
use crate::reply::{Meta, Next, Reply};
use caravan_server::NsCap;
use caravan_state::{Root, Table};
use caravan_types::service::ServiceRegistration;
use caravan_types::{AllocId, ServiceId};
use http::Method;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Lists service names and their tags by namespace.
pub(crate) async fn list(call: &Call) -> Result<Reply, ApiError> {
    call.only(&Method::GET)?;
    let namespace = call.list_namespace();
    let (meta, value) = blocking::read(call, |reads| {
        let mut found: BTreeMap<&str, BTreeMap<&str, BTreeSet<&str>>> = BTreeMap::new();
        let rows = reads.snapshot().services().filter(|row| {
            namespace.as_ref().is_none_or(|ns| row.namespace == *ns)
                && call.may(&row.namespace, NsCap::ReadJob)
        });
        for row in rows {
            let tags = found
                .entry(row.namespace.as_str())
                .or_default()
                .entry(row.service_name.as_str())
                .or_default();
            tags.extend(row.tags.iter().map(String::as_str));
        }
        let value: Vec<Value> = found
            .into_iter()
            .map(|(namespace, services)| {
                let services: Vec<Value> = services
                    .into_iter()
                    .map(|(name, tags)| json!({"ServiceName": name, "Tags": tags}))
                    .collect();
                json!({"Namespace": namespace, "Services": services})
            })
            .collect();
        Ok((reads.table_index(Table::Services), value))
    })
    .await?;
    Ok(Reply::value(Value::Array(value)).meta(meta))
}

/// The keys by which the registrations of a service can be sorted.
pub(crate) const KEYS: Keys<ServiceRegistration> = keys!(ServiceRegistration {
    "id" => |_, row| row.id.as_str(),
    "service" => |_, row| &row.service_name,
    "job" => |_, row| row.job_id.as_str(),
    "allocation" => |_, row| row.alloc_id.as_str(),
    "node" => |_, row| row.node_id.as_str(),
    "datacenter" => |_, row| &row.datacenter,
    "address" => |_, row| &row.address,
    "port" => |_, row| row.port,
    "create" => |_, row| row.create_index,
    "modify" => |_, row| row.modify_index,
});

/// Filters and sorts registrations, and returns the page that the request names.
fn in_pages<'a>(
    call: &Call,
    root: &'a Root,
    rows: Vec<&'a Arc<ServiceRegistration>>,
) -> Result<(Vec<Arc<ServiceRegistration>>, Next), ApiError> {
    let (rows, next) = page(
        &call.query,
        &KEYS,
        root,
        rows,
        |row| Token::Key(row.namespace.as_str(), row.id.as_str()),
        object,
    )?;
    Ok((rows.into_iter().cloned().collect(), next))
}

/// Lists the registrations of a service.
pub(crate) async fn get(call: &Call) -> Result<Reply, ApiError> {
    call.only(&Method::GET)?;
    let name = &call.star(0);
    let namespace = call.namespace.clone();
    let choice = match call.query.text("choose") {
        "" => None,
        text => Some(choice(text)?),
    };
    let (mut meta, (rows, next)) = blocking::read(call, |reads| {
        let rows: Vec<&Arc<ServiceRegistration>> = reads.services_by_name(&namespace, name).collect();
        let (mut rows, next) = in_pages(call, reads.snapshot(), rows)?;
        if let Some((count, key)) = &choice {
            rows = chosen(rows, *count, key);
        }
        let index = reads.part_index(&[Table::Services]);
        Ok((index, (rows, next)))
    })
    .await?;
    meta.next = next;
    Ok(Reply::json(rows)?.meta(meta))
}

/// Parses `<number>|<key>`.
fn choice(text: &str) -> Result<(usize, String), ApiError> {
    let read = || {
        let (count, key) = text.split_once('|')?;
        let count: usize = count.parse().ok().filter(|n| *n > 0)?;
        (!key.contains('|')).then(|| (count, key.to_owned()))
    };
    read().ok_or_else(|| {
        ApiError::bad_request(
            "failed to choose services: Parameter for choose must be in form '<number>|<key>'",
        )
    })
}

/// Chooses by rendezvous hashing: each caller receives the same instances while they exist, and callers spread over
/// all.
fn chosen(rows: Vec<Arc<ServiceRegistration>>, count: usize, key: &str) -> Vec<Arc<ServiceRegistration>> {
    let weight = |row: &Arc<ServiceRegistration>| {
        let mut hash = Sha256::new();
        hash.update(key.as_bytes());
        hash.update([0]);
        hash.update(row.id.as_str().as_bytes());
        <[u8; 32]>::from(hash.finalize())
    };
    let mut weighed: Vec<_> = rows.into_iter().map(|row| (weight(&row), row)).collect();
    weighed.sort_by_key(|(weight, _)| std::cmp::Reverse(*weight));
    weighed.truncate(count);
    weighed.into_iter().map(|(_, row)| row).collect()
}

/// Deregisters a service instance.
pub(crate) async fn delete(call: &Call) -> Result<Reply, ApiError> {
    let (name, id) = (call.star(0), call.star(1));
    let namespace = call.namespace.clone();
    let done = call.server()?.nodes().deregister_service(&namespace, &name, ServiceId::new(id)).await;
    Ok(Reply::empty().index(done.map_err(|e| ApiError::of_change(&e))?))
}

/// Lists the registrations of a job; in pages, if the query requests them.
pub(crate) async fn of_job(call: &Call) -> Result<Reply, ApiError> {
    call.only(&Method::GET)?;
    let key = jobs::named(call);
    let (mut meta, (rows, next)) = blocking::read(call, |reads| {
        let index = reads.part_index(&[Table::Services]);
        if reads.job(&key).is_none() {
            let meta = Meta { index: 0, known_leader: true, next: Next::default() };
            return Err(ApiError::not_found("job not found").with_meta(meta));
        }
        let rows: Vec<_> = reads.services_by_job(&key).collect();
        Ok((index, in_pages(call, reads.snapshot(), rows)?))
    })
    .await?;
    meta.next = next;
    Ok(Reply::json(rows)?.meta(meta))
}

/// Lists the registrations of an allocation.
pub(crate) async fn of_alloc(call: &Call) -> Result<Reply, ApiError> {
    call.only(&Method::GET)?;
    let id = AllocId::new(call.star(0));
    check_uuid("alloc", id.as_str())?;
    let (meta, rows) = blocking::read(call, |reads| {
        let index = reads.part_index(&[Table::Services]);
        if reads.alloc(&id).is_none() {
            let meta = Meta { index, known_leader: true, next: Next::default() };
            return Err(ApiError::not_found("allocation not found").with_meta(meta));
        }
        let rows: Vec<_> = reads.services_by_alloc(&id).cloned().collect();
        Ok((index, rows))
    })
    .await?;
    Ok(Reply::json(rows)?.meta(meta))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(ids: &[&str]) -> Vec<Arc<ServiceRegistration>> {
        let row = |id: &&str| Arc::new(ServiceRegistration { id: (*id).into(), ..Default::default() });
        ids.iter().map(row).collect()
    }

    fn ids(rows: &[Arc<ServiceRegistration>]) -> Vec<&str> {
        rows.iter().map(|row| row.id.as_str()).collect()
    }

    #[test]
    fn a_choice_has_a_number_and_a_key() {
        assert_eq!(choice("2|me").unwrap(), (2, "me".to_owned()));
        for bad in ["x|y", "1", "0|a", "1|a|b", "-1|a"] {
            assert_eq!(choice(bad).unwrap_err().status, 400, "{bad}");
        }
    }

    #[test]
    fn a_caller_keeps_its_choice_while_others_come_and_go() {
        let all = ["a", "b", "c", "d", "e"];
        let first = chosen(rows(&all), 1, "client");
        let kept: Vec<&str> = all.iter().filter(|id| **id != "zz").copied().collect();
        assert_eq!(ids(&chosen(rows(&kept), 1, "client")), ids(&first));
        let without: Vec<&str> = all.iter().filter(|id| **id != ids(&first)[0]).copied().collect();
        assert_ne!(ids(&chosen(rows(&without), 1, "client")), ids(&first));
        let spread: BTreeSet<String> =
            (0..64).map(|n| ids(&chosen(rows(&all), 1, &n.to_string()))[0].to_owned()).collect();
        assert!(spread.len() > 2, "{spread:?}");
        assert_eq!(chosen(rows(&all), 9, "x").len(), 5);
    }
}
