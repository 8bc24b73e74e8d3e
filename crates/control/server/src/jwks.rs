//! JSON web key sets of other parties (RFC 7517), fetched over HTTP or HTTPS.

use crate::admin::LoginFault;
use crate::documents::{Age, Documents, Unread};
use jsonwebtoken::DecodingKey;
use jsonwebtoken::jwk::JwkSet;
use serde::Deserialize as _;
use std::fmt;
use std::sync::Arc;

/// The reason that the keys of another party cannot be read.
#[derive(Clone, Debug, thiserror::Error)]
pub enum KeysFault {
    #[error(transparent)]
    Unread(#[from] Unread),
    #[error("{0}")]
    Form(#[source] Arc<serde_json::Error>),
    #[error("there is none that is known")]
    NoneKnown,
    #[error("it does not say where the keys are")]
    NoAddress,
}

fn failed(url: &str, cause: KeysFault) -> LoginFault {
    LoginFault::Keys { url: url.to_owned(), cause }
}

/// The keys of a set that can verify a signature.
pub(crate) struct Keys {
    keys: Vec<DecodingKey>,
    /// The ids of the keys; `None` for a key without an id.
    ids: Vec<Option<String>>,
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keys").field("ids", &self.ids).finish_non_exhaustive()
    }
}

impl Keys {
    /// Returns keys without ids.
    pub(crate) fn plain(keys: Vec<DecodingKey>) -> Self {
        Self { ids: keys.iter().map(|_| None).collect(), keys }
    }

    /// Returns all keys of the set.
    pub(crate) fn all(&self) -> &[DecodingKey] {
        &self.keys
    }

    /// Returns whether the set contains the key that a token names. If so, a failed verification is the token's
    /// fault.
    pub(crate) fn know(&self, token: &str) -> bool {
        let id = jsonwebtoken::decode_header(token).ok().and_then(|header| header.kid);
        id.is_some_and(|id| self.ids.iter().flatten().any(|own| *own == id))
    }
}

/// Fetches the keys of a set. `authorities` (PEM) sign its server's certificate; without any, the host's trust store
/// applies.
pub(crate) async fn fetch(
    documents: &Documents,
    url: &str,
    authorities: &[String],
    age: Age,
) -> Result<Keys, LoginFault> {
    let value = documents.get(url, authorities, age).await.map_err(|why| failed(url, why.into()))?;
    let set = JwkSet::deserialize(&*value).map_err(|e| failed(url, KeysFault::Form(Arc::new(e))))?;
    let known =
        |jwk: &jsonwebtoken::jwk::Jwk| Some((DecodingKey::from_jwk(jwk).ok()?, jwk.common.key_id.clone()));
    let (keys, ids): (Vec<_>, Vec<_>) = set.keys.iter().filter_map(known).unzip();
    if keys.is_empty() {
        return Err(failed(url, KeysFault::NoneKnown));
    }
    Ok(Keys { keys, ids })
}

/// Fetches the keys of an issuer from the address in its discovery document.
pub(crate) async fn discover(
    documents: &Documents,
    issuer: &str,
    authorities: &[String],
    age: Age,
) -> Result<Keys, LoginFault> {
    let url = format!("{}/.well-known/openid-configuration", issuer.trim_end_matches('/'));
    let reported = documents.get(&url, authorities, age).await.map_err(|why| failed(&url, why.into()))?;
    match reported["jwks_uri"].as_str() {
        Some(keys) => fetch(documents, keys, authorities, age).await,
        None => Err(failed(&url, KeysFault::NoAddress)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use caravan_tls::{Acceptor, Protocol, ServerSettings};
    use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    const KEYS: &str = r#"{"keys":[{"kty":"EC","crv":"P-256","kid":"a","use":"sig",
        "x":"MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4","y":"4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM"}]}"#;

    /// Starts an issuer with TLS. Returns its address, and the authority that signed its certificate.
    async fn issuer(name: &str) -> (String, String) {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &authority).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let (cert_file, key_file) = (dir.path().join("cert.pem"), dir.path().join("key.pem"));
        std::fs::write(&cert_file, certificate.pem()).unwrap();
        std::fs::write(&key_file, key.serialize_pem()).unwrap();
        let settings = ServerSettings {
            cert_file,
            key_file,
            client_ca: None,
            protocol: Protocol::default(),
            http2: false,
        };
        let acceptor = Acceptor::new(&settings).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("https://{}", listener.local_addr().unwrap());
        let own = address.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let Ok(mut stream) = acceptor.accept(stream).await else { continue };
                let mut head = [0; 1024];
                let read = stream.read(&mut head).await.unwrap_or_default();
                let head = String::from_utf8_lossy(&head[..read]).into_owned();
                let (status, more, body) = match head.split(' ').nth(1).unwrap_or_default() {
                    "/.well-known/openid-configuration" => {
                        ("200 OK", String::new(), format!("{{\"jwks_uri\":\"{own}/moved\"}}"))
                    }
                    "/moved" => ("302 Found", "Location: /keys\r\n".to_owned(), String::new()),
                    "/down" => {
                        ("302 Found", "Location: http://127.0.0.1:1/keys\r\n".to_owned(), String::new())
                    }
                    _ => ("200 OK", String::new(), KEYS.to_owned()),
                };
                let answer = format!(
                    "HTTP/1.1 {status}\r\n{more}Connection: close\r\nContent-Length: {}\r\n\r\n{body}",
                    body.len()
                );
                // The client may have disconnected.
                let _ = stream.write_all(answer.as_bytes()).await;
                let _ = stream.shutdown().await;
            }
        });
        (address, authority.pem())
    }

    #[tokio::test]
    async fn keys_are_read_over_tls() {
        let (address, authority) = issuer("a").await;
        let authorities = [authority];
        let documents = Documents::default();
        let fetch = async |url: String, authorities: &[String]| {
            fetch(&documents, &url, authorities, Age::Any).await.map(|keys| keys.all().len())
        };
        assert_eq!(fetch(format!("{address}/keys"), &authorities).await.unwrap(), 1);
        let found = discover(&documents, &address, &authorities, Age::Any).await.unwrap();
        assert_eq!(found.all().len(), 1);
        let reported = |error: LoginFault| error.to_string();
        let (_, other) = issuer("b").await;
        let foreign = reported(fetch(format!("{address}/keys"), &[other]).await.unwrap_err());
        assert!(foreign.contains("not trusted here"), "{foreign}");
        let down = reported(fetch(format!("{address}/down"), &authorities).await.unwrap_err());
        assert!(down.contains("not encrypted"), "{down}");
        let odd = reported(fetch("ftp://x/keys".to_owned(), &[]).await.unwrap_err());
        assert!(odd.contains("only http:// and https:// are supported"), "{odd}");
    }
}
