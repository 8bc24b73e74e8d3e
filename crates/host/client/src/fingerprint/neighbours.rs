//! Consul and Vault integrations: their self-descriptions become attributes of the node (docs/reference/http-api.md,
//! section 5.4, docs/reference/jobspec.md, section 11.1). The integrations are polled in the background, and no other
//! part of the client waits for them.

mod consul;
mod vault;

use crate::clock::Backoff;
use crate::node::NodeState;
use caravan_rpc::Secret;
use caravan_tls::{ClientSettings, Connector, Stream};
use http::Request;
use http_body_util::Full;
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};

/// The timeout of a request.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The interval between requests to a server that answers.
const STEADY: Duration = Duration::from_secs(15);
/// The first and the longest pause after a failed request.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_secs(60);
/// The number of consecutive failures after which the attributes are removed; a restarting server answers again sooner.
const FAILURES: u32 = 3;
/// The longest response that is read, in bytes.
const MAX_RESPONSE_BYTES: usize = 4 << 20;

/// The kind of program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NeighbourKind {
    /// An agent of Consul.
    Consul,
    /// A server of Vault.
    Vault,
}

/// The address and the settings of a Consul agent or Vault server.
#[derive(Clone, Debug, PartialEq)]
pub struct Neighbour {
    /// The kind of the program.
    pub kind: NeighbourKind,
    /// Name of its cluster; `default` is the default cluster.
    pub name: String,
    /// Host name or address, without brackets.
    pub host: String,
    /// TCP port of its HTTP API.
    pub port: u16,
    /// TLS settings; `None` means no TLS.
    pub tls: Option<ClientSettings>,
    /// The token for requests; may be empty.
    pub token: Secret,
}

/// All integrations of a node.
pub type Neighbours = Vec<Neighbour>;

impl Neighbour {
    /// Returns the attributes of this integration: each with its name for the default cluster and its name for this
    /// cluster.
    fn keys(&self) -> impl Iterator<Item = (&'static str, String)> + '_ {
        let (names, kind) = match self.kind {
            NeighbourKind::Consul => (consul::ATTRIBUTES, "consul"),
            NeighbourKind::Vault => (vault::ATTRIBUTES, "vault"),
        };
        names.iter().map(move |name| (*name, self.key(kind, name)))
    }

    /// Returns `consul.version` for the default cluster, or `consul.<cluster>.version`.
    fn key(&self, kind: &str, name: &str) -> String {
        match (self.name.as_str(), name.split_once(&format!("{kind}."))) {
            ("default", _) | (_, None) => name.to_owned(),
            (cluster, Some((before, after))) => format!("{before}{kind}.{cluster}.{after}"),
        }
    }

    /// Sends one request.
    async fn ask(&self) -> Result<BTreeMap<String, String>, String> {
        let path = match self.kind {
            NeighbourKind::Consul => consul::PATH,
            NeighbourKind::Vault => vault::PATH,
        };
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        let mut request = Request::get(path)
            .header(http::header::HOST, format!("{host}:{}", self.port))
            .header(http::header::USER_AGENT, concat!("caravan/", env!("CARGO_PKG_VERSION")));
        // Vault's health endpoint needs no token.
        if self.kind == NeighbourKind::Consul && !self.token.expose().is_empty() {
            request = request.header("x-consul-token", self.token.expose());
        }
        let request = request.body(Full::default()).map_err(|_| "its token cannot be sent".to_owned())?;
        let stream = match &self.tls {
            None => TcpStream::connect((self.host.as_str(), self.port)).await.map(Stream::Plain),
            Some(settings) => {
                let connector = Connector::new(settings).map_err(|error| error.to_string())?;
                connector.dial(&self.host, self.port).await
            }
        };
        let stream = stream.map_err(|error| error.to_string())?;
        let failed = |error: caravan_fetch::FetchError| caravan_sys::describe(&error);
        let reply = caravan_fetch::exchange(stream, request).await.map_err(failed)?;
        if !reply.status().is_success() {
            return Err(format!("it answers {}", reply.status()));
        }
        let body = reply.body(MAX_RESPONSE_BYTES).await.map_err(failed)?;
        let answer: Value =
            serde_json::from_slice(&body).map_err(|error| format!("its answer is not JSON: {error}"))?;
        let found = match self.kind {
            NeighbourKind::Consul => consul::attributes(&answer, self.tls.is_some()),
            NeighbourKind::Vault => vault::attributes(&answer),
        };
        let named = self.keys().filter_map(|(usual, own)| Some((own, found.get(usual)?.clone())));
        let named: BTreeMap<String, String> = named.collect();
        if named.is_empty() { Err("its answer says nothing of it".to_owned()) } else { Ok(named) }
    }
}

/// Polls the integrations while the returned future is polled; `desired` may change.
pub(crate) async fn mind(node: NodeState, mut desired: watch::Receiver<Neighbours>) {
    let mut tasks = JoinSet::new();
    let mut looked: Vec<(Neighbour, AbortHandle)> = Vec::new();
    loop {
        let now = desired.borrow_and_update().clone();
        looked.retain(|(neighbour, task)| {
            let stays = now.contains(neighbour);
            if !stays {
                task.abort();
                node.put_attributes(neighbour.keys().map(|(_, key)| key), BTreeMap::new());
            }
            stays
        });
        for neighbour in now {
            if !looked.iter().any(|(known, _)| *known == neighbour) {
                let task = tasks.spawn(look_after(neighbour.clone(), node.clone()));
                looked.push((neighbour, task));
            }
        }
        if desired.changed().await.is_err() {
            // No sender is left, so the list cannot change any more.
            return std::future::pending().await;
        }
    }
}

/// Polls one integration periodically.
async fn look_after(neighbour: Neighbour, node: NodeState) {
    let what = format!("{:?} \"{}\"", neighbour.kind, neighbour.name);
    let mut backoff = Backoff::new(FIRST_PAUSE, MAX_PAUSE);
    let (mut there, mut failures) = (false, 0);
    loop {
        let looked = tokio::time::timeout(TIMEOUT, neighbour.ask()).await;
        let pause = match looked.unwrap_or_else(|_| Err(format!("no answer within {}s", TIMEOUT.as_secs()))) {
            Ok(found) => {
                if !std::mem::replace(&mut there, true) {
                    tracing::info!(what, "an integration of the node answers");
                }
                node.put_attributes(neighbour.keys().map(|(_, key)| key), found);
                failures = 0;
                backoff.reset();
                STEADY
            }
            Err(error) => {
                failures += 1;
                if there && failures >= FAILURES {
                    there = false;
                    tracing::warn!(what, error, "an integration of the node no longer answers");
                    node.put_attributes(neighbour.keys().map(|(_, key)| key), BTreeMap::new());
                } else if failures == 1 {
                    tracing::debug!(what, error, "an integration of the node does not answer");
                }
                backoff.delay()
            }
        };
        tokio::time::sleep(pause).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use caravan_types::node::Node;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    fn neighbour(kind: NeighbourKind, name: &str, port: u16) -> Neighbour {
        let (name, host) = (name.to_owned(), "127.0.0.1".to_owned());
        Neighbour { kind, name, host, port, tls: None, token: Secret::new("t0ken") }
    }

    #[test]
    fn other_clusters_are_named_in_the_attributes() {
        let keys = |kind, name: &str| neighbour(kind, name, 1).keys().map(|(_, own)| own).collect::<Vec<_>>();
        let usual = keys(NeighbourKind::Consul, "default");
        assert!(
            usual.contains(&"consul.version".to_owned()) && usual.contains(&"unique.consul.name".to_owned())
        );
        let other = keys(NeighbourKind::Consul, "east");
        assert!(other.contains(&"consul.east.version".to_owned()));
        assert!(other.contains(&"unique.consul.east.name".to_owned()));
        assert!(keys(NeighbourKind::Vault, "east").contains(&"vault.east.cluster_id".to_owned()));
    }

    /// Answers each request with the next text; returns the received requests.
    async fn serve(listener: TcpListener, answers: Vec<String>) -> Vec<String> {
        let mut asked = Vec::new();
        for answer in answers {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = vec![0; 4096];
            let read = stream.read(&mut head).await.unwrap();
            asked.push(String::from_utf8_lossy(&head[..read]).into_owned());
            let text = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{answer}", answer.len());
            stream.write_all(text.as_bytes()).await.unwrap();
        }
        asked
    }

    #[tokio::test]
    async fn a_configured_neighbour_is_reported() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let answer = r#"{"Config": {"Version": "1.17.0", "NodeName": "n"}, "DebugConfig": {}}"#.to_owned();
        let serving = tokio::spawn(serve(listener, vec![answer]));
        let node = NodeState::new(Node::default());
        let desired = watch::Sender::new(vec![neighbour(NeighbourKind::Consul, "default", port)]);
        let minding = tokio::spawn(mind(node.clone(), desired.subscribe()));
        let mut seen = node.watch();
        let has = |node: &std::sync::Arc<Node>| node.attributes.contains_key("consul.version");
        seen.wait_for(has).await.unwrap();
        let asked = serving.await.unwrap().remove(0);
        assert!(
            asked.starts_with("GET /v1/agent/self HTTP/1.1\r\n") && asked.contains("x-consul-token: t0ken")
        );
        desired.send_replace(Vec::new());
        seen.wait_for(|node| !has(node)).await.unwrap();
        assert!(seen.borrow().attributes.is_empty(), "{:?}", seen.borrow().attributes);
        minding.abort();
    }

    #[tokio::test]
    async fn what_is_no_answer_is_a_sentence() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let serving = tokio::spawn(serve(listener, vec!["<html>".to_owned(), "{}".to_owned()]));
        let vault = neighbour(NeighbourKind::Vault, "default", port);
        assert!(vault.ask().await.unwrap_err().contains("not JSON"));
        assert!(vault.ask().await.unwrap_err().contains("says nothing of it"));
        let asked = serving.await.unwrap();
        assert!(asked.iter().all(|head| head.starts_with("GET /v1/sys/health?") && !head.contains("t0ken")));
        assert!(vault.ask().await.is_err(), "nobody listens any more");
    }
}
