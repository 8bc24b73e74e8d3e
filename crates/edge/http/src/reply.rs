//! Answers before their encoding: a body, the index headers, a status.

use crate::encode::{encode, encode_parsed};
use crate::error::ApiError;
use crate::http_body::Body;
use bytes::Bytes;
use caravan_api::REASON_HEADER;
use http::header::{CONTENT_TYPE, HeaderName};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use serde::Serialize;
use serde_json::{Value, json};

pub(crate) const TEXT: &str = "text/plain; charset=utf-8";
pub(crate) const JSON: &str = "application/json";

const INDEX: HeaderName = HeaderName::from_static("x-nomad-index");
pub(crate) const LAST_CONTACT: HeaderName = HeaderName::from_static("x-nomad-lastcontact");
pub(crate) const KNOWN_LEADER: HeaderName = HeaderName::from_static("x-nomad-knownleader");
const NEXT_TOKEN: HeaderName = HeaderName::from_static("x-nomad-nexttoken");
/// The header of a refusal by a server that held a query until its term ended: the query may wait for the next
/// leader.
pub(crate) const HELD: HeaderName = HeaderName::from_static("x-caravan-held");
const TOTAL: HeaderName = HeaderName::from_static("x-caravan-total");

/// The rows of a list that its page leaves out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Next {
    /// The start of the next page; empty on the last page.
    pub(crate) token: String,
    /// The number of rows on all pages, if the request includes `count`.
    pub(crate) total: Option<usize>,
}

/// The metadata of a read about its state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Meta {
    /// The index of the result; 0 if its table was never written.
    pub(crate) index: u64,
    /// Whether there is a leader.
    pub(crate) known_leader: bool,
    /// The rows that the page leaves out.
    pub(crate) next: Next,
}

impl Meta {
    /// Adds the same facts as fields to an answer that is an object.
    pub(crate) fn merge_into(&self, mut value: Value) -> Value {
        if let Value::Object(map) = &mut value {
            map.insert("Index".into(), json!(self.index));
            map.insert("LastContact".into(), json!(0));
            map.insert("KnownLeader".into(), json!(self.known_leader));
            map.insert("NextToken".into(), json!(self.next.token));
        }
        value
    }
}

/// The index headers of an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Indexed {
    #[default]
    None,
    /// The headers of a read.
    Meta(Meta),
    /// The header of a write.
    Index(u64),
}

/// Converts a value to JSON. Fails only on a defect, because all shapes have string keys.
pub(crate) fn to_value(value: impl Serialize) -> Result<Value, ApiError> {
    serde_json::to_value(value).map_err(|e| ApiError::internal(format!("the answer cannot be encoded: {e}")))
}

pub(crate) enum Content {
    Empty,
    Json(Value),
    /// A value that was parsed from a job file.
    Parsed(Value),
    Raw(&'static str, Body),
}

pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) content: Content,
    pub(crate) indexed: Indexed,
    pub(crate) headers: HeaderMap,
}

impl Reply {
    fn with(content: Content) -> Self {
        Self { status: StatusCode::OK, content, indexed: Indexed::None, headers: HeaderMap::new() }
    }
    pub(crate) fn empty() -> Self {
        Self::with(Content::Empty)
    }
    /// Creates a reply from a value. Fails only on a defect, because all shapes have string keys.
    pub(crate) fn json(value: impl Serialize) -> Result<Self, ApiError> {
        Ok(Self::with(Content::Json(to_value(value)?)))
    }
    /// Creates a reply as [`Reply::json`], but all integers stay integers; for values from a job file or of
    /// routes that only Caravan has.
    pub(crate) fn parsed(value: impl Serialize) -> Result<Self, ApiError> {
        let mut reply = Self::json(value)?;
        if let Content::Json(value) = reply.content {
            reply.content = Content::Parsed(value);
        }
        Ok(reply)
    }
    pub(crate) fn value(value: Value) -> Self {
        Self::with(Content::Json(value))
    }
    pub(crate) fn raw(content_type: &'static str, body: impl Into<Body>) -> Self {
        Self::with(Content::Raw(content_type, body.into()))
    }
    pub(crate) fn status(mut self, status: StatusCode) -> Self {
        self.status = status;
        self
    }
    pub(crate) fn meta(mut self, meta: Meta) -> Self {
        self.indexed = Indexed::Meta(meta);
        self
    }
    pub(crate) fn index(mut self, index: u64) -> Self {
        self.indexed = Indexed::Index(index);
        self
    }
    pub(crate) fn header(mut self, name: &'static str, value: &'static str) -> Self {
        self.headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        self
    }

    pub(crate) fn into_response(self, pretty: bool) -> Response<Body> {
        let (content_type, body) = match self.content {
            Content::Empty => (None, Body::empty()),
            Content::Json(value) => (Some(JSON), Body::from(Bytes::from(encode(&value, pretty)))),
            Content::Parsed(value) => (Some(JSON), Body::from(Bytes::from(encode_parsed(&value, pretty)))),
            Content::Raw(content_type, body) => (Some(content_type), body),
        };
        let mut response = Response::new(body);
        *response.status_mut() = self.status;
        *response.headers_mut() = self.headers;
        let headers = response.headers_mut();
        if let Some(content_type) = content_type {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        }
        match self.indexed {
            Indexed::None => {}
            Indexed::Index(index) => {
                headers.insert(INDEX, HeaderValue::from(index));
            }
            Indexed::Meta(meta) => {
                headers.insert(INDEX, HeaderValue::from(meta.index));
                headers.insert(LAST_CONTACT, HeaderValue::from(0));
                let known = if meta.known_leader { "true" } else { "false" };
                headers.insert(KNOWN_LEADER, HeaderValue::from_static(known));
                if let Ok(token) = HeaderValue::from_str(&meta.next.token)
                    && !meta.next.token.is_empty()
                {
                    headers.insert(NEXT_TOKEN, token);
                }
                if let Some(total) = meta.next.total {
                    headers.insert(TOTAL, HeaderValue::from(total));
                }
            }
        }
        response
    }
}

impl From<ApiError> for Reply {
    fn from(error: ApiError) -> Self {
        let mut reply = match error.message.is_empty() {
            true => Self::empty(),
            false => Self::raw(TEXT, error.message),
        };
        reply.indexed = error.indexed;
        if let Some(reason) = error.reason {
            reply = reply.header(REASON_HEADER, reason.as_str());
        }
        if error.held {
            reply.headers.insert(HELD, HeaderValue::from_static("1"));
        }
        reply.status(error.status)
    }
}
