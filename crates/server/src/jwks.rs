//! Key sets of others (RFC 7517), read over HTTP, with TLS or without.

use crate::error::ServerError;
use crate::outbound::{self, Asking};
use jsonwebtoken::DecodingKey;
use jsonwebtoken::jwk::JwkSet;
use serde_json::Value;

fn failed(url: &str, why: impl std::fmt::Display) -> ServerError {
    ServerError::unavailable(format!("the keys at {url} cannot be read: {why}"))
}

/// The keys of a set. `authorities` sign its server where it has TLS, as PEM; the host's public ones if there are none.
pub(crate) async fn fetch(url: &str, authorities: &[String]) -> Result<Vec<DecodingKey>, ServerError> {
    let set: JwkSet = serde_json::from_value(get(url, authorities).await?).map_err(|e| failed(url, e))?;
    let keys: Vec<DecodingKey> = set.keys.iter().filter_map(|key| DecodingKey::from_jwk(key).ok()).collect();
    if keys.is_empty() {
        return Err(failed(url, "there is none that is known"));
    }
    Ok(keys)
}

/// The keys of an issuer that tells where they are.
pub(crate) async fn discover(issuer: &str, authorities: &[String]) -> Result<Vec<DecodingKey>, ServerError> {
    let url = format!("{}/.well-known/openid-configuration", issuer.trim_end_matches('/'));
    let told = get(&url, authorities).await?;
    match told["jwks_uri"].as_str() {
        Some(keys) => fetch(keys, authorities).await,
        None => Err(failed(&url, "it does not say where the keys are")),
    }
}

async fn get(url: &str, authorities: &[String]) -> Result<Value, ServerError> {
    let answer = outbound::ask(&Asking::of(url, authorities)).await.map_err(|why| failed(url, why))?;
    if !answer.status.is_success() {
        return Err(failed(url, answer.status));
    }
    answer.json().map_err(|why| failed(url, why))
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

    /// An issuer with TLS: its address, and the authority that signed it.
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
                // The other side may have gone.
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
        assert_eq!(fetch(&format!("{address}/keys"), &authorities).await.unwrap().len(), 1);
        assert_eq!(discover(&address, &authorities).await.unwrap().len(), 1);
        let told = |error: ServerError| error.to_string();
        let (_, other) = issuer("b").await;
        let foreign = told(fetch(&format!("{address}/keys"), &[other]).await.unwrap_err());
        assert!(foreign.contains("not trusted here"), "{foreign}");
        let down = told(fetch(&format!("{address}/down"), &authorities).await.unwrap_err());
        assert!(down.contains("not encrypted"), "{down}");
        let odd = told(fetch("ftp://x/keys", &[]).await.unwrap_err());
        assert!(odd.contains("no http:// or https:// URL"), "{odd}");
    }
}
