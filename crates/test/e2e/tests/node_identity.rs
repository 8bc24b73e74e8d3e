//! Identities of nodes: the servers sign them with heartbeats, accept them in calls, and renew them.

use anyhow::{Context, Result, bail, ensure};
use caravan_messages::{NodeContact, NodeHeartbeat, NodeRegister, SignedNode};
use caravan_rpc::{Channel, Code, ConnectOptions, PeerIdentity, RetryPolicy, RpcError, Secret, methods};
use caravan_testkit::{Agent, AgentOptions, eventually};
use caravan_types::node::{Node, NodeSecret};
use serde_json::json;
use std::time::Duration;

const ONE: &str = "11111111-2222-3333-4444-555555555555";
const TWO: &str = "11111111-2222-3333-4444-666666666666";
const SECRET: &str = "5a1a6ad5-0000-4a4e-9e3a-2f1a6d2bb6c9";

/// A node that this test simulates.
struct Player {
    runtime: tokio::runtime::Runtime,
    channel: Channel,
    id: &'static str,
}

impl Player {
    fn new(agent: &Agent, id: &'static str) -> Result<Self> {
        let identity = PeerIdentity::Client { node_id: id.to_owned(), secret: Secret::new(SECRET) };
        let mut options = ConnectOptions::new(vec![agent.rpc_address()], identity, "global");
        options.retry = RetryPolicy { patience: Duration::ZERO, ..RetryPolicy::default() };
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let channel = runtime.block_on(async { Channel::connect(options) });
        let player = Self { runtime, channel, id };
        let node = Node {
            id: id.into(),
            secret_id: NodeSecret::new(SECRET),
            name: id.into(),
            datacenter: "dc1".to_owned(),
            node_pool: "default".to_owned(),
            ..Node::default()
        };
        let registered = player.runtime.block_on(async {
            player.channel.call::<methods::NodeRegister>(NodeRegister { node }, LIMIT).await
        });
        registered.map_err(|error| anyhow::anyhow!("{error:?}"))?;
        Ok(player)
    }

    fn beat(&self, proof: &str, wants_identity: bool) -> Result<NodeContact, RpcError> {
        let beat = NodeHeartbeat { node_id: self.id.into(), secret: NodeSecret::new(proof), wants_identity };
        self.runtime.block_on(self.channel.call::<methods::NodeHeartbeat>(beat, LIMIT))
    }

    /// Sends heartbeats until an answer has an identity: heartbeats do not wait for a key pair that is being created.
    fn identity(&self, proof: &str, wants_identity: bool) -> Result<SignedNode> {
        eventually("an identity", || {
            let answer = self.beat(proof, wants_identity).map_err(|error| anyhow::anyhow!("{error:?}"))?;
            answer.identity.context("no identity")
        })
    }
}

const LIMIT: Option<Duration> = Some(Duration::from_secs(10));

#[test]
fn a_node_proves_itself_by_an_identity_that_heartbeats_renew() -> Result<()> {
    let agent = Agent::with(AgentOptions { client: false, ..AgentOptions::default() })?;
    let (one, two) = (Player::new(&agent, ONE)?, Player::new(&agent, TWO)?);
    let answered =
        |answer: Result<NodeContact, RpcError>| answer.map_err(|error| anyhow::anyhow!("{error:?}"));
    // A node of an earlier version requests no identity.
    ensure!(answered(one.beat(SECRET, false))?.identity.is_none());
    let signed = one.identity(SECRET, true)?;
    ensure!(signed.claims.sub == format!("node:global:default:{ONE}:default"), "{:?}", signed.claims);
    let token = signed.token.expose();
    ensure!(answered(one.beat(token, false))?.identity.is_none(), "the identity is young");
    let refused = two.beat(token, false).err().context("the identity of another node was accepted")?;
    ensure!(refused.code == Code::Permission && refused.message.contains("another node"), "{refused:?}");
    ensure!(!refused.message.contains(token), "{refused:?}");
    // With another root key, a new identity is due.
    let rotated = agent.request("PUT", "/v1/operator/keyring/rotate", Some(&json!({})))?;
    ensure!(rotated.status == 200, "{}", rotated.text());
    let renewed = one.identity(token, false)?;
    ensure!(answered(one.beat(renewed.token.expose(), false))?.identity.is_none());
    let purged = agent.request("PUT", &format!("/v1/node/{ONE}/purge"), None)?;
    ensure!(purged.status == 200, "{}", purged.text());
    ensure!(answered(one.beat(token, false))?.unknown, "a purged node is known");
    Ok(())
}

#[test]
fn the_program_uses_its_identity_after_its_first_heartbeat() -> Result<()> {
    let agent = Agent::start()?;
    let node = agent.node_id()?;
    let claims = eventually("the identity of the node", || {
        let shown = agent.get("/v1/client/identity")?;
        if shown.to_string().contains(&node) { Ok(shown) } else { bail!("{shown}") }
    })?;
    ensure!(!claims.to_string().contains("eyJ"), "the token itself is shown: {claims}");
    let renewed = agent.request("PUT", "/v1/client/identity/renew", Some(&json!({})))?;
    ensure!(renewed.status == 200, "{}", renewed.text());
    // The calls after the renewal carry the identity.
    crate::run_job(&agent, "awake", &crate::script_job("awake", "exec sleep 1000"))?;
    agent.wait_alloc("awake", "running")?;
    ensure!(!agent.log().contains("did not prove who it is"), "{}", agent.log_tail());
    Ok(())
}
