//! The reading of request bodies, within limits of size, time and total memory.

use crate::access::BodyLimit;
use crate::error::ApiError;
use crate::http_body::Body;
use bytes::{Bytes, BytesMut};
use http::StatusCode;
use http_body_util::BodyExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Maximum length of a request body, in bytes.
pub const MAX_BODY: usize = 16 * 1024 * 1024;

/// Maximum length of a snapshot archive, in bytes.
pub(crate) const MAX_SNAPSHOT: usize = 1024 * 1024 * 1024;

/// Total bytes of all bodies that are being received; small bodies do not count.
const BUDGET: usize = 256 * 1024 * 1024;
const SMALL: usize = 64 * 1024;

/// Timeout for the next part of a body.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The bytes of a refused body that are still read, and the time for that. A client whose connection closes while
/// it sends may never receive the refusal.
const DISCARDED: usize = 64 * 1024 * 1024;
const DISCARDING: Duration = Duration::from_secs(10);

/// The bytes of all bodies that are being received.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bodies(Arc<AtomicUsize>);

/// A share of the budget, returned when dropped.
struct Share<'b> {
    of: &'b AtomicUsize,
    taken: usize,
}

impl Share<'_> {
    fn grow(&mut self, to: usize) -> bool {
        let more = to.saturating_sub(self.taken);
        let before = self.of.fetch_add(more, Ordering::Relaxed);
        self.taken += more;
        before + more <= BUDGET
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        self.of.fetch_sub(self.taken, Ordering::Relaxed);
    }
}

fn too_large(most: usize) -> ApiError {
    let text = format!("the request body is larger than {} MiB", most / 1024 / 1024);
    ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, text)
}

async fn discard(mut body: Body) {
    let reading = async {
        let mut length = 0;
        while let Some(Ok(frame)) = body.frame().await {
            length += frame.data_ref().map_or(0, Bytes::len);
            if length > DISCARDED {
                break;
            }
        }
    };
    // The rest of the body is cut off.
    let _ = tokio::time::timeout(DISCARDING, reading).await;
}

impl Bodies {
    /// Reads a whole body of at most `limit`.
    pub(crate) async fn read(&self, limit: BodyLimit, mut body: Body) -> Result<Bytes, ApiError> {
        match self.read_part(limit.bytes(), &mut body).await {
            Err(error) if error.status == StatusCode::PAYLOAD_TOO_LARGE => {
                discard(body).await;
                Err(error)
            }
            other => other,
        }
    }

    async fn read_part(&self, most: usize, body: &mut Body) -> Result<Bytes, ApiError> {
        let announced = hyper::body::Body::size_hint(&*body).lower();
        if usize::try_from(announced).map_or(true, |bytes| bytes > most) {
            return Err(too_large(most));
        }
        let mut share = Share { of: &self.0, taken: 0 };
        let mut first = Bytes::new();
        let mut whole = BytesMut::new();
        loop {
            let frame = tokio::time::timeout(TIMEOUT, body.frame()).await.map_err(|_| {
                ApiError::new(StatusCode::REQUEST_TIMEOUT, "the request body did not come in time")
            })?;
            let Some(frame) = frame else { break };
            let frame = frame.map_err(|error| {
                ApiError::bad_request(format!("the request body could not be read: {error}"))
            })?;
            // Trailers are ignored.
            let Ok(data) = frame.into_data() else { continue };
            let length = first.len() + whole.len() + data.len();
            if length > most {
                return Err(too_large(most));
            }
            if length > SMALL && !share.grow(length) {
                let text = "the agent is busy with other large requests: try again later";
                return Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, text));
            }
            // Most bodies arrive in one part and need no copy.
            if first.is_empty() && whole.is_empty() {
                first = data;
            } else {
                if whole.is_empty() {
                    whole.extend_from_slice(&std::mem::take(&mut first));
                }
                whole.extend_from_slice(&data);
            }
        }
        Ok(if whole.is_empty() { first } else { whole.freeze() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::stream;

    fn parts(parts: Vec<Vec<u8>>) -> Body {
        Body::from_stream(stream::iter(parts.into_iter().map(Ok::<_, std::io::Error>)))
    }

    #[tokio::test]
    async fn bodies_are_put_together_and_limited() {
        let bodies = Bodies::default();
        let read =
            bodies.read(BodyLimit::Usual, parts(vec![b"ab".to_vec(), b"c".to_vec(), b"d".to_vec()])).await;
        assert_eq!(read.unwrap(), "abcd");
        assert!(bodies.read(BodyLimit::Usual, Body::empty()).await.unwrap().is_empty());
        let large = vec![vec![0; MAX_BODY / 2 + 1]; 2];
        let refused = bodies.read(BodyLimit::Usual, parts(large.clone())).await.unwrap_err();
        assert_eq!(
            (refused.status.as_u16(), refused.message.as_str()),
            (413, "the request body is larger than 16 MiB")
        );
        assert_eq!(bodies.read(BodyLimit::Snapshot, parts(large)).await.unwrap().len(), MAX_BODY + 2);
        assert_eq!(bodies.0.load(Ordering::Relaxed), 0);
    }

    #[tokio::test]
    async fn all_bodies_together_have_a_limit() {
        let bodies = Bodies(Arc::new(AtomicUsize::new(BUDGET)));
        assert_eq!(bodies.read(BodyLimit::Usual, parts(vec![vec![0; 100]])).await.unwrap().len(), 100);
        let refused = bodies.read(BodyLimit::Usual, parts(vec![vec![0; SMALL + 1]])).await.unwrap_err();
        assert_eq!(refused.status, 503);
        assert_eq!(bodies.0.load(Ordering::Relaxed), BUDGET);
    }
}
