//! Tests of the greeting between servers of one cluster, and of different clusters.

use crate::support::*;
use caravan_rpc::{
    Authenticator, Channel, Code, ConnectOptions, Credential, Hello, Method, PeerIdentity, Role, Router,
    RpcError, ServerOptions, ServerSide,
};
use futures::future::BoxFuture;

/// A method that returns whether the caller has proved that it is a member.
struct AmIMember;

impl Method for AmIMember {
    const NAME: &'static str = "Test.AmIMember";
    type Request = ();
    type Response = String;
}

/// An authenticator that accepts every peer, but without proof.
#[derive(Debug)]
struct Open;

impl Authenticator for Open {
    fn authenticate<'a>(
        &'a self,
        _role: Role,
        hello: &'a Hello,
    ) -> BoxFuture<'a, Result<PeerIdentity, RpcError>> {
        Box::pin(std::future::ready(Ok(hello.identity.clone())))
    }
}

async fn start(own: ServerSide) -> Running {
    let router = Router::builder()
        .unary::<AmIMember, _, _>(async |cx: caravan_rpc::Context, ()| Ok(cx.peer.is_member().to_string()))
        .build();
    let authenticator = std::sync::Arc::new(Open);
    let identity = PeerIdentity::server("server-1");
    Running::start(any_port(), ServerOptions { own, authenticator, ..ServerOptions::new(identity, router) })
        .await
}

async fn ask(options: ConnectOptions) -> Result<bool, RpcError> {
    Ok(Channel::connect(options).call::<AmIMember>((), Some(TIMEOUT)).await? == "true")
}

fn other(id: &str, cluster: &str, key: u8) -> ServerSide {
    let own = ServerSide { id: id.to_owned(), ..ServerSide::default() };
    own.credential.set(Credential::new(cluster, 2, [key; 32]));
    own
}

#[tokio::test]
async fn members_of_one_cluster_prove_it_to_each_other() {
    let running = start(member("1")).await;
    assert_eq!(ask(from_member("2", "1", &[running.addr])).await, Ok(true));
    assert_eq!(ask(from_member("2", "", &[running.addr])).await, Ok(true), "only the address is known");
    let raft = ConnectOptions { role: Role::Raft, ..from_member("2", "1", &[running.addr]) };
    assert_eq!(ask(raft).await, Ok(true));
    running.stop().await;
}

#[tokio::test]
async fn a_server_with_another_identity_is_refused_by_name() {
    let running = start(member("1")).await;
    let to = [running.addr];
    let wrong = ask(from_member("2", "3", &to)).await.unwrap_err();
    assert!(wrong.message.contains("server 3 was called, but this is server 1"), "{wrong}");
    let foreign = ask(calling(other("2", "elsewhere", 7), "1", &to)).await.unwrap_err();
    assert_eq!(foreign.code, Code::Permission);
    assert!(
        foreign.message.contains("belongs to cluster elsewhere, but this server belongs to cluster cluster"),
        "{foreign}"
    );
    let pretender = ask(calling(other("2", "cluster", 8), "1", &to)).await.unwrap_err();
    assert!(pretender.message.contains("does not have its key"), "{pretender}");
    running.stop().await;
}

#[tokio::test]
async fn a_server_without_a_cluster_proves_nothing() {
    let (running, empty) = (start(member("1")).await, ServerSide { id: "2".into(), ..Default::default() });
    assert_eq!(ask(calling(empty.clone(), "1", &[running.addr])).await, Ok(false));
    let raft = ConnectOptions { role: Role::Raft, ..calling(empty.clone(), "1", &[running.addr]) };
    assert_eq!(ask(raft).await.unwrap_err().code, Code::Permission);
    // In the other direction: the called server does not belong to a cluster yet.
    let unadmitted = start(empty).await;
    assert_eq!(ask(from_member("1", "2", &[unadmitted.addr])).await, Ok(false));
    let raft = ConnectOptions { role: Role::Raft, ..from_member("1", "2", &[unadmitted.addr]) };
    assert_eq!(ask(raft).await.unwrap_err().code, Code::Permission);
    // A client cannot prove membership.
    assert_eq!(ask(impatient(&[running.addr])).await, Ok(false));
    running.stop().await;
    unadmitted.stop().await;
}

#[tokio::test]
async fn a_channel_proves_membership_once_its_server_is_admitted() {
    let (running, empty) = (start(member("1")).await, ServerSide { id: "2".into(), ..Default::default() });
    let channel = Channel::connect(calling(empty.clone(), "1", &[running.addr]));
    let ask = async || channel.call::<AmIMember>((), Some(TIMEOUT)).await.unwrap();
    assert_eq!(ask().await, "false");
    empty.credential.set(Credential::new("cluster", 2, [7; 32]));
    let proved = async {
        while ask().await != "true" {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, proved).await.expect("the channel proves nothing");
    running.stop().await;
}

#[tokio::test]
async fn only_members_call_nodes_through_a_server() {
    let running = start(member("1")).await;
    for caller in [impatient(&[running.addr]), calling(ServerSide::default(), "1", &[running.addr])] {
        let channel = Channel::via(Channel::connect(caller), "node-1");
        let error = channel.call::<AmIMember>((), Some(TIMEOUT)).await.unwrap_err();
        assert_eq!(error.code, Code::Permission, "{error}");
    }
    let channel = Channel::via(Channel::connect(from_member("2", "1", &[running.addr])), "node-1");
    assert_eq!(channel.call::<AmIMember>((), Some(TIMEOUT)).await.unwrap_err().code, Code::NoPath);
    running.stop().await;
}
