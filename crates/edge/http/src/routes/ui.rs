//! The user interface: the web page, and its settings.

use crate::call::Call;
use crate::compress::Coding;
use crate::dispatch::redirect;
use crate::error::ApiError;
use crate::reply::Reply;
use http::header::IF_NONE_MATCH;
use serde_json::json;

/// Redirects `/` to the user interface, with the query string.
pub(crate) fn root(call: &Call) -> Result<Reply, ApiError> {
    let query = call.uri.split_once('?').map(|(_, query)| format!("?{query}")).unwrap_or_default();
    Ok(redirect(&format!("/ui/{query}"), &call.method))
}

/// Returns the page or one of its files.
pub(crate) fn page(call: &Call) -> Result<Reply, ApiError> {
    let path = call.uri.split('?').next().unwrap_or_default();
    let request = caravan_ui::Request {
        path: path.strip_prefix("/ui/").unwrap_or_default(),
        if_none_match: call
            .headers
            .get(IF_NONE_MATCH)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default(),
        gzip: Coding::accepted(&call.headers) == Some(Coding::Gzip),
    };
    let answer = caravan_ui::answer(&call.state.info.ui, &request);
    let mut reply = Reply::raw(answer.content_type, answer.body).status(answer.status);
    reply.headers.extend(answer.headers);
    Ok(reply)
}

/// Returns the page of an error code of job files, in Markdown.
pub(crate) fn error_page(call: &Call) -> Result<Reply, ApiError> {
    let code = call.star(0);
    let page = caravan_hcl::explain::page(&code)
        .ok_or_else(|| ApiError::not_found(format!("there is no error code {code:?}")))?;
    let (line, text) = page.split_once('\n').unwrap_or((page, ""));
    let title = line.trim_start_matches(['#', ' ']);
    let (code, title) = title.split_once(": ").unwrap_or((&code, title));
    Reply::json(json!({ "Code": code, "Title": title, "Text": text.trim() }))
}

/// Returns the facts that the page shows before a user has signed in. None of them depends on a token, and none is a
/// secret: the page's label is shown on every page, and the version is part of the page's files.
pub(crate) fn settings(call: &Call) -> Result<Reply, ApiError> {
    let info = &call.state.info;
    let ui = info.ui.shown();
    Reply::json(json!({
        "ACLEnabled": call.state.acl,
        "Consul": ui["Consul"],
        "Label": ui["Label"],
        "Region": info.region,
        "Vault": ui["Vault"],
        "Version": info.version,
    }))
}
