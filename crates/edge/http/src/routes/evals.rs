//! Evaluations (docs/reference/http-api.md, sections 3.2 and 5.2).

use super::{allocs, check_prefix, check_uuid};
use crate::blocking;
use crate::body::{bodies, required};
use crate::call::Call;
use crate::error::ApiError;
use crate::filter::{Filter, whole_evaluation};
use crate::order::{Keys, keys};
use crate::page::{Page, Pager, Token, object};
use crate::reply::{Meta, Next, Reply};
use caravan_server::NsCap;
use caravan_state::{Root, Table};
use caravan_types::EvalId;
use caravan_types::eval::{EvalStatus, EvalStub, Evaluation};
use http::Method;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The keys by which the list of evaluations can be sorted.
pub(crate) const KEYS: Keys<Evaluation> = keys!(Evaluation {
    "id" => |_, eval| eval.id.as_str(),
    "namespace" => |_, eval| eval.namespace.as_str(),
    "job" => |_, eval| eval.job_id.as_str(),
    "type" => |_, eval| &eval.kind,
    "triggered" => |_, eval| eval.triggered_by.as_str(),
    "priority" => |_, eval| eval.priority,
    "status" => |_, eval| eval.status.as_str(),
    "create" => |_, eval| eval.create_index,
    "modify" => |_, eval| eval.modify_index,
});

/// Returns whether the list's parameters select an evaluation.
fn is_selected(call: &Call, eval: &Evaluation) -> bool {
    let namespace = call.list_namespace();
    let (status, job) = (call.query.text("status"), call.query.text("job"));
    namespace.as_ref().is_none_or(|ns| eval.namespace == *ns)
        && (status.is_empty() || eval.status.as_str() == status)
        && (job.is_empty() || eval.job_id == *job)
        && call.may(&eval.namespace, NsCap::ReadJob)
}

/// Returns the requested page of the list.
fn selected<'a>(
    call: &Call,
    pager: &Pager<'_, Evaluation>,
    root: &'a Root,
) -> Result<Page<'a, Evaluation>, ApiError> {
    let here = |eval: &&Arc<Evaluation>| is_selected(call, eval);
    let seen = |eval: &&'a Arc<Evaluation>| whole_evaluation(object(eval));
    match call.query.text("prefix") {
        "" => pager.take(
            root,
            root.evals_by_age(pager.start_by_age(), pager.reverse).filter(here),
            |eval| Token::Created(eval.create_index, eval.id.as_str()),
            seen,
        ),
        prefix => pager.cut(
            root,
            root.evals_with_prefix(prefix).filter(here).collect(),
            |eval| Token::Id(eval.id.as_str()),
            seen,
        ),
    }
}

/// Returns an evaluation as routes show it. A blocked evaluation omits its queued counts; the evaluation that created
/// it shows them.
pub(crate) fn shown(eval: &Arc<Evaluation>) -> Arc<Evaluation> {
    if eval.status == EvalStatus::Blocked && !eval.queued_allocations.is_empty() {
        return Arc::new(Evaluation { queued_allocations: BTreeMap::new(), ..Evaluation::clone(eval) });
    }
    eval.clone()
}

bodies! {
    /// Evaluations to delete.
    DeleteBody("EvalDeleteRequest") {
        ids: Vec<String> = "EvalIDs";
        filter: String = "Filter";
    }
}

/// Deletes evaluations by id or by filter expression.
pub(crate) async fn delete(call: &Call) -> Result<Reply, ApiError> {
    let body: DeleteBody = required(&call.body)?;
    let server = call.server()?;
    let (count, index) = match (body.ids.is_empty(), body.filter.is_empty()) {
        (true, true) => {
            return Err(ApiError::bad_request("evals must be deleted by either ID or filter"));
        }
        (false, false) => {
            return Err(ApiError::bad_request("evals cannot be deleted by both ID and filter"));
        }
        (false, true) => {
            for id in &body.ids {
                check_uuid("eval", id)?;
            }
            server.evals().delete(body.ids.iter().map(EvalId::new).collect()).await?
        }
        (true, false) => {
            let filter = Filter::parse(&body.filter)?;
            let namespace = call.list_namespace();
            server
                .evals()
                .delete_needless::<ApiError>(|root| {
                    let mut chosen = Vec::new();
                    for eval in root.evals() {
                        let here = namespace.as_ref().is_none_or(|ns| eval.namespace == *ns);
                        if here && filter.matches(&whole_evaluation(object(eval)))? {
                            chosen.push(eval.id.clone());
                        }
                    }
                    Ok(chosen)
                })
                .await?
        }
    };
    Ok(Reply::value(json!({"Count": count, "Index": index})).index(index))
}

pub(crate) async fn list(call: &Call) -> Result<Reply, ApiError> {
    call.only(&Method::GET)?;
    check_prefix("eval", call.query.text("prefix"))?;
    let filtered = !call.query.text("filter").is_empty();
    if filtered && !(call.query.text("status").is_empty() && call.query.text("job").is_empty()) {
        return Err(ApiError::bad_request("Filter expression cannot be used with other filter parameters"));
    }
    let pager = Pager::new(&call.query, &KEYS)?;
    let (mut meta, (rows, next)) = blocking::read(call, |reads| {
        let (rows, next) = selected(call, &pager, reads.snapshot())?;
        let rows: Vec<_> = rows.into_iter().cloned().collect();
        Ok((reads.table_index(Table::Evals), (rows, next)))
    })
    .await?;
    meta.next = next;
    let rows: Vec<_> = rows.iter().map(shown).collect();
    Ok(Reply::json(rows)?.meta(meta))
}

pub(crate) async fn count(call: &Call) -> Result<Reply, ApiError> {
    call.only(&Method::GET)?;
    check_prefix("eval", call.query.text("prefix"))?;
    let pager = Pager::new(&call.query, &KEYS)?.unpaged();
    let (meta, count) = blocking::read(call, |reads| {
        Ok((reads.table_index(Table::Evals), selected(call, &pager, reads.snapshot())?.0.len()))
    })
    .await?;
    Ok(Reply::value(meta.merge_into(json!({"Count": count}))).meta(meta))
}

/// Returns the reasons why allocations of an evaluation are not placed.
pub(crate) async fn explain(call: &Call) -> Result<Reply, ApiError> {
    call.only(&Method::GET)?;
    let id = EvalId::new(call.star(0));
    check_uuid("eval", id.as_str())?;
    let reasons = call.server()?.evals().explain(&id).map_err(|e| ApiError::of_change(&e))?;
    Reply::json(serde_json::json!({ "Reasons": reasons }))
}

pub(crate) async fn get(call: &Call) -> Result<Reply, ApiError> {
    call.only(&Method::GET)?;
    let id = EvalId::new(call.star(0));
    check_uuid("eval", id.as_str())?;
    let with_related = call.query.flag("related")?.unwrap_or(false);
    let (meta, eval) = blocking::read(call, |reads| {
        let Some(eval) = reads.eval(&id) else {
            let index = reads.part_index(&[Table::Evals]);
            let meta = Meta { index, known_leader: true, next: Next::default() };
            return Err(ApiError::not_found("eval not found").with_meta(meta));
        };
        let mut eval = Evaluation::clone(&shown(eval));
        if with_related {
            eval.related_evals = related(reads.snapshot(), &eval);
        }
        Ok((eval.modify_index, eval))
    })
    .await?;
    Ok(Reply::json(eval)?.meta(meta))
}

/// Returns all evaluations that are linked with an evaluation, directly or indirectly.
fn related(root: &Root, eval: &Evaluation) -> Vec<EvalStub> {
    let of_job: Vec<_> = root.evals_by_job(&eval.job_key()).collect();
    let links = |e: &Evaluation| [e.next_eval.clone(), e.previous_eval.clone(), e.blocked_eval.clone()];
    let mut seen = BTreeSet::from([eval.id.clone()]);
    loop {
        let before = seen.len();
        for row in &of_job {
            let linked = links(row);
            if seen.contains(&row.id) || linked.iter().any(|id| seen.contains(id)) {
                seen.insert(row.id.clone());
                seen.extend(linked.into_iter().filter(|id| !id.is_empty()));
            }
        }
        if seen.len() == before {
            break;
        }
    }
    let mut rows: Vec<_> = of_job.into_iter().filter(|e| e.id != eval.id && seen.contains(&e.id)).collect();
    rows.sort_by_key(|e| e.create_index);
    rows.into_iter().map(|e| e.stub()).collect()
}

pub(crate) async fn allocations(call: &Call) -> Result<Reply, ApiError> {
    call.only(&Method::GET)?;
    let id = EvalId::new(call.star(0));
    check_uuid("eval", id.as_str())?;
    let (meta, stubs) = blocking::read(call, |reads| {
        let mut rows: Vec<_> = reads.allocs_by_eval(&id).collect();
        rows.sort_by_key(|alloc| alloc.create_index);
        Ok((reads.part_index(&[Table::Allocs]), allocs::stubs(rows, true, false)))
    })
    .await?;
    Ok(Reply::json(stubs)?.meta(meta))
}
