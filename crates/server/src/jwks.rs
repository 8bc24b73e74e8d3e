//! Key sets of others (RFC 7517), read over plain HTTP.

use crate::error::ServerError;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Bytes;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use jsonwebtoken::DecodingKey;
use jsonwebtoken::jwk::JwkSet;
use serde_json::Value;
use std::time::Duration;

/// Largest answer that is read.
const LARGEST: usize = 1 << 20;
/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(10);

fn failed(url: &str, why: impl std::fmt::Display) -> ServerError {
    ServerError::unavailable(format!("the keys at {url} cannot be read: {why}"))
}

/// The keys of a set.
pub(crate) async fn fetch(url: &str) -> Result<Vec<DecodingKey>, ServerError> {
    let set: JwkSet = serde_json::from_value(get(url).await?).map_err(|e| failed(url, e))?;
    let keys: Vec<DecodingKey> = set.keys.iter().filter_map(|key| DecodingKey::from_jwk(key).ok()).collect();
    if keys.is_empty() {
        return Err(failed(url, "there is none that is known"));
    }
    Ok(keys)
}

/// The keys of an issuer that tells where they are.
pub(crate) async fn discover(issuer: &str) -> Result<Vec<DecodingKey>, ServerError> {
    let url = format!("{}/.well-known/openid-configuration", issuer.trim_end_matches('/'));
    let told = get(&url).await?;
    match told["jwks_uri"].as_str() {
        Some(keys) => fetch(keys).await,
        None => Err(failed(&url, "it does not say where the keys are")),
    }
}

async fn get(url: &str) -> Result<Value, ServerError> {
    let uri: hyper::Uri = url.parse().map_err(|e| failed(url, e))?;
    if uri.scheme_str() != Some("http") {
        return Err(failed(url, "only http is supported yet, not https"));
    }
    let client: Client<_, Empty<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
    let answer = async {
        let response = client.get(uri).await.map_err(|e| failed(url, e))?;
        if !response.status().is_success() {
            return Err(failed(url, response.status()));
        }
        let body = Limited::new(response.into_body(), LARGEST).collect().await;
        let body = body.map_err(|e| failed(url, e))?.to_bytes();
        serde_json::from_slice(&body).map_err(|e| failed(url, e))
    };
    tokio::time::timeout(PATIENCE, answer).await.map_err(|_| failed(url, "there is no answer"))?
}
