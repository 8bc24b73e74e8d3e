//! Documents of other parties that logins depend on: key sets, and discovery documents of issuers.
//!
//! Every client of the API may begin a login. Therefore a document is cached, and only one request for it is in
//! progress at a time. The number of requests for it per minute is limited, for successful and failed requests alike.

use crate::outbound::{self, Asking};
use crate::runtime;
use http::StatusCode;
use parking_lot::Mutex;
use serde_json::Value;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// The time for which a document is cached.
const MAX_AGE: Duration = Duration::from_secs(300);
/// The window in which requests are counted, and the maximum number of requests for one document in it.
const SPAN: Duration = Duration::from_secs(60);
const MAX_REQUESTS: usize = 5;
/// The maximum number of cached documents. An auth method has two.
const MAX_KEPT: usize = 256;

/// The reason that a document cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unread {
    /// The server refused the request.
    #[error("{0}")]
    Status(StatusCode),
    /// The server was not reached, or returned an invalid response.
    #[error("{0}")]
    Failed(String),
}

/// The required freshness of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Age {
    /// A cached document is sufficient.
    Any,
    /// The cached document lacked an entry: fetch it again, if the limit permits.
    Newer,
}

type Key = (String, Vec<String>);

#[derive(Debug, Default)]
struct Kept {
    value: Option<(Arc<Value>, Instant)>,
    failure: Option<Unread>,
    /// The times of the requests within the last window.
    requests: Vec<Instant>,
}

/// The cached documents; clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Documents(Arc<Mutex<HashMap<Key, Arc<tokio::sync::Mutex<Kept>>>>>);

impl Documents {
    fn entry(&self, url: &str, authorities: &[String]) -> Arc<tokio::sync::Mutex<Kept>> {
        // A panic of a lock holder leaves only complete entries.
        let mut all = self.0.lock();
        let key = (url.to_owned(), authorities.to_vec());
        if all.len() >= MAX_KEPT && !all.contains_key(&key) {
            // Entries with waiting callers have further references, which these callers hold.
            all.retain(|_, kept| Arc::strong_count(kept) > 1);
        }
        all.entry(key).or_default().clone()
    }

    /// Returns a document. `authorities` (PEM) sign its server's certificate; without any, the host's trust store
    /// applies.
    ///
    /// # Errors
    /// If the document cannot be read, or recent requests failed and the limit is reached.
    pub(crate) async fn get(
        &self,
        url: &str,
        authorities: &[String],
        age: Age,
    ) -> Result<Arc<Value>, Unread> {
        let entry = self.entry(url, authorities);
        let mut kept = entry.lock().await;
        let now = runtime::now();
        kept.requests.retain(|at| now.duration_since(*at) < SPAN);
        let may_ask = kept.requests.len() < MAX_REQUESTS;
        if let Some((value, at)) = &kept.value
            && ((age == Age::Any && now.duration_since(*at) < MAX_AGE) || !may_ask)
        {
            return Ok(value.clone());
        }
        if !may_ask && let Some(failure) = &kept.failure {
            return Err(failure.clone());
        }
        kept.requests.push(now);
        match ask(url, authorities).await {
            Ok(value) => {
                let value = Arc::new(value);
                (kept.value, kept.failure) = (Some((value.clone(), now)), None);
                Ok(value)
            }
            Err(failure) => {
                kept.failure = Some(failure.clone());
                Err(failure)
            }
        }
    }
}

async fn ask(url: &str, authorities: &[String]) -> Result<Value, Unread> {
    let answer = outbound::ask(&Asking::new(url, authorities)).await.map_err(Unread::Failed)?;
    match answer.status.is_success() {
        true => answer.json().map_err(|why| Unread::Failed(why.to_string())),
        false => Err(Unread::Status(answer.status)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    /// Starts a server that counts its requests, and returns its URL and the counter.
    async fn counting() -> (String, Arc<AtomicUsize>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/doc", listener.local_addr().unwrap());
        let count = Arc::new(AtomicUsize::new(0));
        let asked = count.clone();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let number = asked.fetch_add(1, Ordering::Relaxed) + 1;
                let mut head = [0; 1024];
                let _ = stream.read(&mut head).await;
                let body = number.to_string();
                let head = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length:";
                let answer = format!("{head} {}\r\n\r\n{body}", body.len());
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        (url, count)
    }

    #[tokio::test]
    async fn a_document_is_asked_for_a_bounded_number_of_times() {
        let (url, count) = counting().await;
        let documents = Documents::default();
        for _ in 0..50 {
            assert_eq!(*documents.get(&url, &[], Age::Any).await.unwrap(), 1);
        }
        assert_eq!(count.load(Ordering::Relaxed), 1);
        let all = (0..50).map(|_| documents.get(&url, &[], Age::Newer));
        for value in futures::future::join_all(all).await {
            value.unwrap();
        }
        assert_eq!(count.load(Ordering::Relaxed), MAX_REQUESTS);
        // Another document has a separate count.
        assert!(documents.get(&format!("{url}2"), &[], Age::Any).await.is_ok());
    }

    #[tokio::test]
    async fn a_server_that_is_down_is_not_asked_without_end() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/doc", listener.local_addr().unwrap());
        drop(listener);
        let documents = Documents::default();
        for _ in 0..50 {
            assert!(matches!(documents.get(&url, &[], Age::Any).await, Err(Unread::Failed(_))));
        }
        let entry = documents.entry(&url, &[]);
        assert_eq!(entry.lock().await.requests.len(), MAX_REQUESTS);
    }
}
