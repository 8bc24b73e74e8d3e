//! The place of the user interface.

use crate::call::Call;
use crate::dispatch::redirect;
use crate::error::ApiError;
use crate::reply::Reply;

/// Redirects `/` to the user interface, with the query string.
pub(crate) fn root(call: &Call) -> Result<Reply, ApiError> {
    let query = call.uri.split_once('?').map(|(_, query)| format!("?{query}")).unwrap_or_default();
    Ok(redirect(&format!("/ui/{query}"), &call.method))
}

/// Answers that there is no user interface.
pub(crate) fn page(_: &Call) -> Result<Reply, ApiError> {
    Ok(Reply::raw(
        "text/html; charset=utf-8",
        "<!doctype html><title>Caravan</title><p>There is no web page yet.\n",
    ))
}
