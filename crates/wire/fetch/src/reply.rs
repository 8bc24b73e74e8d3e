//! The response of a server.

use super::FetchError;
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Response, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use std::fmt;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// The head of a response, with the body to read. Dropping the reply closes the connection.
pub struct Reply {
    response: Response<Incoming>,
    /// Timeout of a part of the body, and the server's address for the error.
    silence: Option<(Duration, String)>,
    _connection: JoinSet<Result<(), hyper::Error>>,
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reply").field("status", &self.status()).finish_non_exhaustive()
    }
}

impl Reply {
    pub(crate) fn new(response: Response<Incoming>, connection: JoinSet<Result<(), hyper::Error>>) -> Self {
        Self { response, silence: None, _connection: connection }
    }

    pub(crate) fn with_timeout(self, part: Duration, address: String) -> Self {
        Self { silence: Some((part, address)), ..self }
    }

    /// Returns the status of the response.
    pub fn status(&self) -> StatusCode {
        self.response.status()
    }

    /// Returns the headers of the response.
    pub fn headers(&self) -> &HeaderMap {
        self.response.headers()
    }

    /// Returns the next part of the body, or `None` at its end.
    ///
    /// # Errors
    /// Fails if the connection breaks or the server is silent for too long.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, FetchError> {
        loop {
            let frame = self.response.body_mut().frame();
            let frame = match &self.silence {
                None => frame.await,
                Some((part, address)) => match timeout(*part, frame).await {
                    Ok(frame) => frame,
                    Err(_) => return Err(FetchError::Silent { address: address.clone() }),
                },
            };
            match frame.transpose()?.map(hyper::body::Frame::into_data) {
                None => return Ok(None),
                Some(Ok(data)) => return Ok(Some(data)),
                // A frame with trailers has no data.
                Some(Err(_)) => {}
            }
        }
    }

    /// Returns the whole body.
    ///
    /// # Errors
    /// Fails as [`Reply::chunk`] does, and if the body has more than `limit` bytes.
    pub async fn body(mut self, limit: usize) -> Result<Bytes, FetchError> {
        let mut body = BytesMut::new();
        while let Some(data) = self.chunk().await? {
            if body.len() + data.len() > limit {
                return Err(FetchError::TooLarge { limit });
            }
            body.extend_from_slice(&data);
        }
        Ok(body.freeze())
    }

    /// Returns the first bytes of the body, at most `limit`. Does not wait for the rest.
    ///
    /// # Errors
    /// Fails as [`Reply::chunk`] does.
    pub async fn start(mut self, limit: usize) -> Result<Bytes, FetchError> {
        let mut body = BytesMut::new();
        while body.len() < limit {
            let Some(data) = self.chunk().await? else { break };
            body.extend_from_slice(&data);
        }
        body.truncate(limit);
        Ok(body.freeze())
    }
}
