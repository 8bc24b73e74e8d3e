//! HTTP and HTTPS requests to servers of other parties.

use crate::runtime;
use bytes::Bytes;
use caravan_base::percent;
use caravan_fetch::{FetchError, Message, Policy};
use caravan_tls::ClientSettings;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderValue, Method, StatusCode, Uri};
use serde_json::Value;
use std::fmt;
use std::io;
use std::time::Duration;

/// The maximum size of a response in bytes.
const MAX_RESPONSE_BYTES: usize = 1 << 20;
/// The timeout of a request.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum number of redirects.
const MAX_REDIRECTS: usize = 5;

/// A request to another server. `Debug` shows no secret.
pub(crate) struct Asking<'a> {
    /// The URL of the request.
    pub(crate) url: &'a str,
    /// The authorities (PEM) that sign the server's certificate. Without any, the host's trust store applies.
    pub(crate) authorities: &'a [String],
    /// The credentials of this agent; they are never sent to another server.
    pub(crate) authorization: Option<String>,
    /// The form to post; without one, the request is a GET.
    pub(crate) form: Option<String>,
}

impl<'a> Asking<'a> {
    /// Returns a GET request.
    pub(crate) fn new(url: &'a str, authorities: &'a [String]) -> Self {
        Self { url, authorities, authorization: None, form: None }
    }

    /// Returns the message to send.
    fn message(&self) -> Result<Message, String> {
        let mut message = Message::default();
        message.headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        if let Some(authorization) = &self.authorization {
            let value = HeaderValue::from_str(authorization).map_err(|error| error.to_string())?;
            message.headers.insert(AUTHORIZATION, value);
        }
        if let Some(form) = &self.form {
            let kind = HeaderValue::from_static("application/x-www-form-urlencoded");
            message.headers.insert(CONTENT_TYPE, kind);
            message.method = Method::POST;
            message.body = Bytes::from(form.clone());
        }
        Ok(message)
    }

    /// Whether only this server may see the content of the request.
    fn is_private(&self) -> bool {
        self.authorization.is_some() || self.form.is_some()
    }
}

impl fmt::Debug for Asking<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Asking").field("url", &self.url).finish_non_exhaustive()
    }
}

/// The response of a server.
#[derive(Debug)]
pub(crate) struct Answer {
    /// The status code of the response.
    pub(crate) status: StatusCode,
    body: Bytes,
}

impl Answer {
    /// Returns the body as JSON.
    pub(crate) fn json(&self) -> Result<Value, serde_json::Error> {
        serde_json::from_slice(&self.body)
    }
}

/// Sends a request and reads the whole response. Redirects are followed only if the request contains no secret. The
/// returned error is a reason without the address.
pub(crate) async fn ask(asking: &Asking<'_>) -> Result<Answer, String> {
    let url: Uri = asking.url.parse().map_err(|error: http::uri::InvalidUri| error.to_string())?;
    let message = asking.message()?;
    let policy = Policy {
        tls: ClientSettings { ca_pem: asking.authorities.to_vec(), ..ClientSettings::default() },
        max_redirects: if asking.is_private() { 0 } else { MAX_REDIRECTS },
        timeout: TIMEOUT,
    };
    let answer = async {
        let reply = caravan_fetch::fetch(&url, &message, &policy).await?;
        Ok(Answer { status: reply.status(), body: reply.body(MAX_RESPONSE_BYTES).await? })
    };
    let answer = runtime::timeout(TIMEOUT, answer).await;
    answer.map_err(|_| "there is no answer".to_owned())?.map_err(|error| sentence(&error))
}

/// Returns the reason of a failure. Clients recognize the texts of failed connections.
fn sentence(error: &FetchError) -> String {
    match error {
        FetchError::Lookup { host } => format!("dial tcp: lookup {host}: no such host"),
        FetchError::Connect { address, source } if source.kind() == io::ErrorKind::ConnectionRefused => {
            format!("dial tcp {address}: connect: connection refused")
        }
        FetchError::Connect { address, source } => format!("dial tcp {address}: connect: {source}"),
        FetchError::Handshake { source, .. } => source.to_string(),
        error => caravan_sys::describe(error),
    }
}

/// Encodes the fields of a form or of a query, in the order of their names.
pub(crate) fn form(fields: &[(&str, &str)]) -> String {
    let mut fields: Vec<_> = fields.to_vec();
    fields.sort_by_key(|(name, _)| *name);
    let pairs: Vec<String> = fields
        .iter()
        .map(|(name, value)| format!("{}={}", percent::encode_form(name), percent::encode_form(value)))
        .collect();
    pairs.join("&")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_ordered_and_escaped() {
        assert_eq!(form(&[("b", "x y&z"), ("a", "ü/1")]), "a=%C3%BC%2F1&b=x+y%26z");
    }

    #[test]
    fn secrets_are_not_sent_on() {
        let asking = Asking { form: Some("code=hunter2".into()), ..Asking::new("https://x", &[]) };
        assert!(asking.is_private() && !format!("{asking:?}").contains("hunter2"));
        assert!(!Asking::new("https://x", &[]).is_private());
    }
}
