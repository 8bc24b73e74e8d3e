//! Creation of child jobs: dispatches of parameterized jobs, forced launches of periodic ones
//! (docs/reference/http-api.md, section 3.1).

use super::jobs;
use crate::body::{bodies, required};
use crate::call::Call;
use crate::error::ApiError;
use crate::reply::Reply;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use caravan_server::{Dispatch, Dispatched};
use caravan_types::JobKey;
use serde_json::json;
use std::collections::BTreeMap;

bodies! {
    /// The input of a dispatch.
    DispatchBody("JobDispatchRequest") {
        job_id: String = "JobID";
        payload: String = "Payload";
        meta: BTreeMap<String, String> = "Meta";
        id_prefix: String = "IdPrefixTemplate";
        priority: i64 = "Priority";
    }
}

pub(crate) async fn dispatch(call: &Call) -> Result<Reply, ApiError> {
    let key = jobs::named(call);
    let body: DispatchBody = required(&call.body)?;
    if !body.job_id.is_empty() && body.job_id != key.id.as_str() {
        return Err(ApiError::bad_request("Job ID does not match"));
    }
    let dispatch = Dispatch {
        payload: payload(&body.payload)?,
        meta: body.meta,
        id_prefix: body.id_prefix,
        priority: body.priority,
        idempotency_token: call.query.text("idempotency_token").to_owned(),
    };
    made(call, key, dispatch).await
}

/// Dispatches with the body as payload and no other input.
pub(crate) async fn dispatch_payload(call: &Call) -> Result<Reply, ApiError> {
    let key = jobs::named(call);
    let dispatch = Dispatch {
        payload: call.body.to_vec(),
        idempotency_token: call.query.text("idempotency_token").to_owned(),
        ..Dispatch::default()
    };
    made(call, key, dispatch).await
}

async fn made(call: &Call, key: JobKey, dispatch: Dispatch) -> Result<Reply, ApiError> {
    let done = call.server()?.jobs().dispatch(key, dispatch).await.map_err(|e| ApiError::of_change(&e))?;
    let Dispatched { job_id, eval_id, eval_create_index, job_create_index, index } = done;
    let body = json!({
        "DispatchedJobID": job_id,
        "EvalID": eval_id,
        "EvalCreateIndex": eval_create_index,
        "JobCreateIndex": job_create_index,
        "Index": index,
    });
    Ok(Reply::value(body).index(index))
}

pub(crate) async fn force(call: &Call) -> Result<Reply, ApiError> {
    let key = jobs::named(call);
    let done = call.server()?.jobs().force_periodic(key).await.map_err(|e| ApiError::of_change(&e))?;
    let body = json!({
        "EvalID": done.eval_id,
        "EvalCreateIndex": done.eval_create_index,
        "Index": done.index,
    });
    Ok(Reply::value(body).index(done.index))
}

/// Decodes a payload. Ignores line breaks, because some clients wrap their base64 text.
pub(super) fn payload(text: &str) -> Result<Vec<u8>, ApiError> {
    let plain: String = text.chars().filter(|c| !matches!(c, '\r' | '\n')).collect();
    STANDARD.decode(&plain).map_err(|error| {
        let at = match error {
            base64::DecodeError::InvalidByte(at, _) | base64::DecodeError::InvalidLastSymbol(at, _) => at,
            base64::DecodeError::InvalidLength(length) => length / 4 * 4,
            base64::DecodeError::InvalidPadding => plain.len(),
        };
        ApiError::bad_request(format!("illegal base64 data at input byte {at}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_are_base64() {
        assert_eq!(payload("cGF5\r\nbG9hZA=="), Ok(b"payload".to_vec()));
        assert_eq!(payload(""), Ok(Vec::new()));
        assert_eq!(payload("%%%not base64").unwrap_err().message, "illegal base64 data at input byte 0");
        assert_eq!(payload("cGF5b").unwrap_err().message, "illegal base64 data at input byte 4");
    }
}
