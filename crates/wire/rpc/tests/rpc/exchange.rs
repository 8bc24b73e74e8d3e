//! Tests of the connection for short messages of the log.

use crate::support::*;
use caravan_messages::cluster::LogMessage;
use caravan_rpc::{
    Channel, Code, ConnectOptions, Exchange, PeerIdentity, Role, Router, RpcError, ServerOptions, ServerSide,
    Targets, methods,
};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// The handler never responds.
const HANG: u8 = 1;
/// The handler responds with an error.
const FAIL: u8 = 2;
/// The handler responds with a message that exceeds a frame.
const LONG: u8 = 3;

/// Starts a server that adds its name to each message.
async fn start(own: ServerSide, name: &'static str) -> Running {
    let router = Router::builder()
        .unary::<methods::LogCall, _, _>(move |_: caravan_rpc::Context, message: LogMessage| async move {
            match message.kind {
                HANG => std::future::pending().await,
                FAIL => Err(RpcError::new(Code::Conflict, "not now")),
                LONG => Ok(LogMessage { body: vec![0; 1 << 20], ..message }),
                _ => Ok(LogMessage { body: [name.as_bytes(), &message.body].concat(), ..message }),
            }
        })
        .build();
    let identity = PeerIdentity::server(name);
    Running::start(any_port(), ServerOptions { own, ..ServerOptions::new(identity, router) }).await
}

fn message(kind: u8, body: &str) -> LogMessage {
    LogMessage { kind, body: body.into() }
}

/// Calls until there is a connection, like a server that uses its channel meanwhile.
async fn answer(exchange: &Exchange, kind: u8, body: &str, limit: Duration) -> Result<String, RpcError> {
    let calls = async {
        loop {
            if let Some(answer) = exchange.call(&message(kind, body), limit).await {
                return answer.map(|answer| String::from_utf8(answer.body).unwrap());
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, calls).await.expect("there is no connection")
}

#[tokio::test]
async fn frequent_calls_get_a_connection_of_their_own() {
    let running = start(member("1"), "one").await;
    let exchange = Exchange::new(from_member("2", "1", &[running.addr]));
    assert!(exchange.call(&message(0, ""), TIMEOUT).await.is_none(), "the first call is rare");
    for round in 0..100 {
        let body = format!(" {round}");
        assert_eq!(answer(&exchange, 0, &body, TIMEOUT).await.unwrap(), format!("one{body}"));
    }
    let error = answer(&exchange, FAIL, "", TIMEOUT).await.unwrap_err();
    assert_eq!((error.code, error.message.as_str()), (Code::Conflict, "not now"));
    assert!(exchange.call(&message(0, "!"), TIMEOUT).await.is_some(), "an error does not end the connection");
    running.stop().await;
    assert!(exchange.call(&message(0, "!"), TIMEOUT).await.is_none(), "the server has stopped");
}

#[tokio::test]
async fn long_messages_are_left_to_the_channel() {
    let running = start(member("1"), "one").await;
    let exchange = Exchange::new(from_member("2", "1", &[running.addr]));
    for (kind, body) in [(0, "x".repeat(1 << 20)), (LONG, String::new())] {
        answer(&exchange, 0, "", TIMEOUT).await.unwrap();
        assert!(exchange.call(&message(kind, &body), TIMEOUT).await.is_none());
    }
    running.stop().await;
}

/// Checks that the response to a call that timed out or was dropped is not returned for the next call.
#[tokio::test]
async fn each_call_has_its_own_answer() {
    let running = start(member("1"), "one").await;
    let proxy = Proxy::start(running.addr).await;
    let exchange = Exchange::new(from_member("2", "1", &[proxy.addr]));
    let late = answer(&exchange, HANG, "", Duration::from_millis(50)).await.unwrap_err();
    assert_eq!(late.code, Code::Deadline);
    for round in 0..20 {
        let body = format!(" {round}");
        answer(&exchange, 0, &body, TIMEOUT).await.unwrap();
        // The response arrives after the call was dropped.
        proxy.hold(true);
        let dropped = message(0, "dropped");
        let call = exchange.call(&dropped, TIMEOUT);
        assert!(tokio::time::timeout(Duration::from_millis(10), call).await.is_err());
        proxy.hold(false);
        assert_eq!(answer(&exchange, 0, &body, TIMEOUT).await.unwrap(), format!("one{body}"));
    }
    // One call uses the connection, and other calls do not wait for it.
    let (hanging, other) = (message(HANG, ""), message(0, ""));
    let hanging = exchange.call(&hanging, Duration::from_millis(50));
    let (late, other) = tokio::join!(hanging, exchange.call(&other, TIMEOUT));
    assert!(late.unwrap().is_err() && other.is_none());
    running.stop().await;
}

/// Checks that a dropped call drops its handler, as over a channel.
#[tokio::test]
async fn a_call_that_is_given_up_drops_its_handler() {
    let dropped = CancellationToken::new();
    let drops = dropped.clone();
    let router = Router::builder()
        .unary::<methods::LogCall, _, _>(move |_: caravan_rpc::Context, message: LogMessage| {
            let drops = drops.clone();
            async move {
                if message.kind == HANG {
                    let _guard = drops.drop_guard();
                    std::future::pending::<()>().await;
                }
                Ok(message)
            }
        })
        .build();
    let options =
        ServerOptions { own: member("1"), ..ServerOptions::new(PeerIdentity::server("one"), router) };
    let running = Running::start(any_port(), options).await;
    let exchange = Exchange::new(from_member("2", "1", &[running.addr]));
    answer(&exchange, HANG, "", Duration::from_millis(50)).await.unwrap_err();
    tokio::time::timeout(TIMEOUT, dropped.cancelled()).await.expect("the handler was not dropped");
    running.stop().await;
}

#[tokio::test]
async fn the_connection_follows_the_targets() {
    let (one, two) = (start(member("1"), "one").await, start(member("1"), "two").await);
    let targets = Targets::from(vec![one.addr.to_string()]);
    let options = ConnectOptions { targets: targets.clone(), ..from_member("2", "1", &[]) };
    let exchange = Exchange::new(options);
    assert_eq!(answer(&exchange, 0, "", TIMEOUT).await.unwrap(), "one");
    targets.set(vec![two.addr.to_string()]);
    assert_eq!(answer(&exchange, 0, "", TIMEOUT).await.unwrap(), "two");
    one.stop().await;
    two.stop().await;
}

#[tokio::test]
async fn only_members_get_a_connection() {
    let running = start(member("1"), "one").await;
    let empty = ServerSide { id: "2".into(), ..ServerSide::default() };
    let options = ConnectOptions { role: Role::Exchange, ..calling(empty, "1", &[running.addr]) };
    let refused = Channel::connect(options).call::<methods::LogCall>(message(0, ""), Some(TIMEOUT)).await;
    assert_eq!(refused.unwrap_err().code, Code::Permission);
    running.stop().await;
}
