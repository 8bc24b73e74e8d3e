//! Logins through an OIDC provider, which the test simulates.

use crate::harness::{Api, Got};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use caravan_server::AclConfig;
use http::header::AUTHORIZATION;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use rcgen::{KeyPair, PublicKeyData as _};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use tokio::net::TcpListener;

const CALLBACK: &str = "http://127.0.0.1:4649/oidc/callback";

/// A provider: its address, the claims of its next token, and the token requests that it received.
#[derive(Clone)]
struct Provider {
    issuer: String,
    key: Arc<KeyPair>,
    claims: Arc<Mutex<Value>>,
    asked: Arc<Mutex<HashMap<String, String>>>,
}

impl Provider {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let issuer = format!("http://{}", listener.local_addr().unwrap());
        let key = Arc::new(KeyPair::generate().unwrap());
        let provider = Self { issuer, key, claims: Arc::default(), asked: Arc::default() };
        let server = provider.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let provider = server.clone();
                let service = service_fn(move |request| answer(provider.clone(), request));
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
            }
        });
        provider
    }

    fn says(&self, claims: Value) {
        *self.claims.lock().unwrap() = claims;
    }
}

async fn answer(provider: Provider, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let answer = match (head.method.as_str(), head.uri.path()) {
        ("GET", "/.well-known/openid-configuration") => description(&provider),
        ("GET", "/keys") => keys(&provider),
        ("POST", "/token") => token(&provider, &head.headers, std::str::from_utf8(&body).unwrap()),
        ("GET", "/user") => user(&head.headers),
        _ => {
            let mut missing = Response::new(Full::default());
            *missing.status_mut() = StatusCode::NOT_FOUND;
            return Ok(missing);
        }
    };
    Ok(Response::new(Full::from(answer.to_string())))
}

fn description(provider: &Provider) -> Value {
    let at = |path: &str| format!("{}/{path}", provider.issuer);
    json!({
        "issuer": provider.issuer, "authorization_endpoint": at("authorize"), "token_endpoint": at("token"),
        "userinfo_endpoint": at("user"), "jwks_uri": at("keys"),
    })
}

fn keys(provider: &Provider) -> Value {
    let point = provider.key.der_bytes();
    let part = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
    let (x, y) = (part(&point[1..33]), part(&point[33..65]));
    json!({"keys": [{"kty": "EC", "crv": "P-256", "kid": "a", "use": "sig", "x": x, "y": y}]})
}

fn token(provider: &Provider, headers: &HeaderMap, form: &str) -> Value {
    let pairs = form.split('&').filter_map(|pair| pair.split_once('='));
    let mut asked: HashMap<String, String> = pairs.map(|(k, v)| (k.to_owned(), v.to_owned())).collect();
    let proof = headers.get(AUTHORIZATION).map(|value| value.to_str().unwrap().to_owned());
    asked.insert("authorization".into(), proof.unwrap_or_default());
    *provider.asked.lock().unwrap() = asked;
    let now = caravan_sys::time::wall_nanos() / 1_000_000_000;
    let mut claims = json!({"iss": provider.issuer, "aud": "us", "sub": "dev", "iat": now, "exp": now + 60});
    for (name, value) in provider.claims.lock().unwrap().as_object().unwrap() {
        claims[name] = value.clone();
    }
    let key = EncodingKey::from_ec_pem(provider.key.serialize_pem().as_bytes()).unwrap();
    let id_token = encode(&Header::new(Algorithm::ES256), &claims, &key).unwrap();
    json!({"id_token": id_token, "access_token": "access", "token_type": "Bearer"})
}

fn user(headers: &HeaderMap) -> Value {
    assert_eq!(headers.get(AUTHORIZATION).unwrap(), "Bearer access");
    json!({"sub": "dev", "groups": ["engineering"]})
}

/// Sends a request with the bootstrap token.
async fn put(api: &Api, path: &str, body: &Value) -> Got {
    api.web.put(path, body).await
}

/// Starts an API with a method that trusts the provider, and a binding rule for one group.
async fn with_method(provider: &Provider) -> Api {
    let api = Api::start_with(AclConfig { enabled: true, ..AclConfig::default() }).await;
    let boot = put(&api, "/v1/acl/bootstrap", &json!({})).await.json();
    let secret = boot["SecretID"].as_str().unwrap().to_owned();
    for (path, body) in [
        (
            "/v1/acl/policy/eng",
            json!({"Name": "eng", "Rules": "namespace \"default\" { policy = \"read\" }"}),
        ),
        (
            "/v1/acl/auth-method",
            json!({"Name": "sso", "Type": "OIDC", "TokenLocality": "global", "MaxTokenTTL": "1h", "Config": {
                "OIDCDiscoveryURL": provider.issuer, "OIDCClientID": "us", "OIDCClientSecret": "hunter2",
                "OIDCScopes": ["groups"], "OIDCEnablePKCE": true, "AllowedRedirectURIs": [CALLBACK],
                "SigningAlgs": ["ES256"], "ListClaimMappings": {"groups": "groups"},
            }}),
        ),
        (
            "/v1/acl/binding-rule",
            json!({"AuthMethod": "sso", "BindType": "policy", "BindName": "eng",
                "Selector": "engineering in list.groups"}),
        ),
    ] {
        let got = api.web.put_as(path, &body, &secret).await;
        assert_eq!(got.status, 200, "{path}: {}", got.text());
    }
    api
}

fn field(url: &str, name: &str) -> String {
    let pairs = url.split_once('?').unwrap().1.split('&');
    let mut pairs = pairs.filter_map(|pair| pair.split_once('='));
    pairs.find(|(key, _)| *key == name).unwrap().1.to_owned()
}

async fn begun(api: &Api, nonce: &str) -> String {
    let body = json!({"AuthMethodName": "sso", "RedirectURI": CALLBACK, "ClientNonce": nonce});
    let got = put(api, "/v1/acl/oidc/auth-url", &body).await;
    assert_eq!(got.status, 200, "{}", got.text());
    got.json()["AuthURL"].as_str().unwrap().to_owned()
}

async fn completed(api: &Api, nonce: &str, state: &str) -> Got {
    let body = json!({"AuthMethodName": "sso", "RedirectURI": CALLBACK, "ClientNonce": nonce, "State": state,
        "Code": "the-code"});
    put(api, "/v1/acl/oidc/complete-auth", &body).await
}

#[tokio::test]
async fn who_proves_to_be_somebody_gets_a_token() {
    let provider = Provider::start().await;
    let api = with_method(&provider).await;
    let url = begun(&api, "n1").await;
    assert!(url.starts_with(&format!("{}/authorize?client_id=us&", provider.issuer)), "{url}");
    assert_eq!(field(&url, "scope"), "openid+groups");
    provider.says(json!({"nonce": "n1"}));
    let state = field(&url, "state");
    let got = completed(&api, "n1", &state).await;
    assert_eq!(got.status, 200, "{}", got.text());
    let token = got.json();
    assert_eq!(token["Policies"], json!(["eng"]));
    assert_eq!((token["Name"].as_str(), token["ExpirationTTL"].as_str()), (Some("OIDC-sso"), Some("1h0m0s")));
    let asked = provider.asked.lock().unwrap().clone();
    assert_eq!(asked["code"], "the-code");
    assert_eq!(asked["authorization"], "Basic dXM6aHVudGVyMg==");
    let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(&asked["code_verifier"]));
    assert_eq!(field(&url, "code_challenge"), challenge);
    // The same proof is not accepted twice.
    let again = completed(&api, "n1", &state).await;
    assert_eq!(again.status, 400, "{}", again.text());
}

#[tokio::test]
async fn what_proves_nothing_is_refused() {
    let provider = Provider::start().await;
    let api = with_method(&provider).await;
    for (nonce, claims, want) in [
        ("a", json!({"nonce": "other"}), "invalid id_token nonce"),
        ("b", json!({"nonce": "b", "aud": "them"}), "invalid audience (aud) claim"),
        ("c", json!({"nonce": "c", "iss": "https://else"}), "invalid issuer (iss) claim"),
        ("d", json!({"nonce": "d", "exp": 1}), "token is expired"),
        ("e", json!({"nonce": "e", "sub": "boss"}), "about another subject"),
        ("f", json!({"nonce": "f", "at_hash": "x"}), "does not fit its hash"),
    ] {
        let state = field(&begun(&api, nonce).await, "state");
        provider.says(claims);
        let got = completed(&api, nonce, &state).await;
        assert!(got.status.as_u16() >= 400 && got.text().contains(want), "{nonce}: {}", got.text());
    }
    begun(&api, "g").await;
    let got = completed(&api, "g", "st_guessed").await;
    assert_eq!(got.status, 400, "{}", got.text());
    let body = json!({"AuthMethodName": "sso", "RedirectURI": "https://evil/cb", "ClientNonce": "h"});
    let got = put(&api, "/v1/acl/oidc/auth-url", &body).await;
    assert!(got.text().contains("redirect URI https://evil/cb is not allowed"), "{}", got.text());
}

#[tokio::test]
async fn a_provider_that_is_not_there_is_named() {
    let provider = Provider { issuer: "http://127.0.0.1:1".into(), ..Provider::start().await };
    let api = with_method(&provider).await;
    let body = json!({"AuthMethodName": "sso", "RedirectURI": CALLBACK, "ClientNonce": "n"});
    let got = put(&api, "/v1/acl/oidc/auth-url", &body).await;
    assert_eq!(
        (got.status.as_u16(), got.text().as_str()),
        (
            500,
            "failed to generate OIDC provider: NewProvider: unable to create provider: Get \"http://127.0.0.1:1/.well-known/openid-configuration\": dial tcp 127.0.0.1:1: connect: connection refused"
        )
    );
    assert_eq!(completed(&api, "n", "s").await.status, 500);
}
