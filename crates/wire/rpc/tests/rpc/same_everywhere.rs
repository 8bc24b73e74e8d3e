//! One set of expectations, checked over every kind of channel.

use crate::support::*;
use caravan_rpc::{Channel, Code, ReverseOptions, ReverseRegistry, ReverseService, RpcError, ServerOptions};
use futures::StreamExt;
use std::future::Future;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// A channel of some kind to a router of the shared methods.
struct Way {
    name: &'static str,
    channel: Channel,
    seen: mpsc::UnboundedReceiver<Seen>,
    caller: String,
    /// The servers and clients that must run as long as the channel.
    _ends: Vec<Running>,
    _proxy: Option<Proxy>,
}

async fn local() -> Way {
    let (router, seen) = router();
    let channel = Channel::local(router, client());
    Way { name: "local", channel, seen, caller: "client node-1".into(), _ends: vec![], _proxy: None }
}

async fn tcp() -> Way {
    let (router, seen) = router();
    let running = Running::start(any_port(), ServerOptions::new(server(), router)).await;
    let channel = Channel::connect(options(&[running.addr]));
    Way { name: "tcp", channel, seen, caller: "client node-1".into(), _ends: vec![running], _proxy: None }
}

/// Returns a reverse channel: the client connects through a proxy, and the server calls the client.
async fn reversed() -> Way {
    let (router, seen) = router();
    let registry = ReverseRegistry::default();
    let nothing = caravan_rpc::Router::builder().build();
    let serve = ServerOptions { registry: registry.clone(), ..ServerOptions::new(server(), nothing) };
    let running = Running::start(any_port(), serve).await;
    let proxy = Proxy::start(running.addr).await;
    let (service, _) = ReverseService::new(ReverseOptions { connect: options(&[proxy.addr]), router });
    tokio::spawn(service.run(CancellationToken::new()));
    let mut changes = registry.changes();
    let wait = changes.wait_for(|_| registry.get("node-1").is_ok());
    tokio::time::timeout(TIMEOUT, wait).await.expect("the client never connected").unwrap();
    let channel = registry.get("node-1").unwrap();
    let caller = "server server-1".into();
    Way { name: "reversed", channel, seen, caller, _ends: vec![running], _proxy: Some(proxy) }
}

/// Returns a channel to a client that is connected to another server of the cluster.
async fn via() -> Way {
    let (router, seen) = router();
    let registry = ReverseRegistry::default();
    let nothing = caravan_rpc::Router::builder().build();
    let serve = ServerOptions {
        registry: registry.clone(),
        own: member("1"),
        ..ServerOptions::new(server(), nothing)
    };
    let running = Running::start(any_port(), serve).await;
    let (service, _) = ReverseService::new(ReverseOptions { connect: options(&[running.addr]), router });
    tokio::spawn(service.run(CancellationToken::new()));
    let mut changes = registry.changes();
    let wait = changes.wait_for(|_| registry.get("node-1").is_ok());
    tokio::time::timeout(TIMEOUT, wait).await.expect("the client never connected").unwrap();
    let other = Channel::connect(from_member("2", "1", &[running.addr]));
    let channel = Channel::via(other, "node-1");
    let caller = "server server-1".into();
    Way { name: "via", channel, seen, caller, _ends: vec![running], _proxy: None }
}

/// Runs `check` over each kind of channel.
async fn everywhere<F, Fut>(check: F)
where
    F: Fn(Way) -> Fut,
    Fut: Future<Output = ()>,
{
    for way in [local().await, tcp().await, reversed().await, via().await] {
        let name = way.name;
        let outcome = tokio::time::timeout(2 * TIMEOUT, check(way)).await;
        assert!(outcome.is_ok(), "over {name} it never ended");
    }
}

#[tokio::test]
async fn values_arrive_as_they_were_sent() {
    everywhere(async |way: Way| {
        let echo = Echo { text: "ünï".into(), bytes: (0..=255).collect(), nothing: None };
        assert_eq!(way.channel.call::<Echo>(echo.clone(), None).await.unwrap(), echo, "{}", way.name);
        let big = Echo { text: "x".repeat(5_000_000), bytes: vec![], nothing: Some(u64::MAX) };
        assert_eq!(way.channel.call::<Echo>(big.clone(), None).await.unwrap(), big, "{}", way.name);
    })
    .await;
}

#[tokio::test]
async fn the_handler_knows_its_caller() {
    everywhere(async |way: Way| {
        let caller = way.channel.call::<WhoAmI>((), None).await.unwrap();
        assert_eq!(caller, way.caller, "{}", way.name);
    })
    .await;
}

#[tokio::test]
async fn errors_keep_their_identity() {
    everywhere(async |way: Way| {
        for code in [Code::NotFound, Code::Conflict, Code::Retryable, Code::Cancelled, Code::Unavailable] {
            let error = RpcError::new(code, "no \"volume\" of this name").with_http_status(418);
            let got = way.channel.call::<Fail>(error.clone(), None).await.unwrap_err();
            assert_eq!(got, error, "{}", way.name);
        }
        let long = RpcError::new(Code::Conflict, "why? ".repeat(1000));
        assert_eq!(way.channel.call::<Fail>(long.clone(), None).await.unwrap_err(), long, "{}", way.name);
    })
    .await;
}

#[tokio::test]
async fn an_unknown_method_and_a_panic_are_errors() {
    everywhere(async |way: Way| {
        let unknown = way.channel.call::<Unserved>((), None).await.unwrap_err();
        assert_eq!(unknown.code, Code::Invalid, "{}", way.name);
        assert!(unknown.message.contains("Test.Unserved"), "{}: {unknown}", way.name);
        let panicked = way.channel.call::<Panic>((), None).await.unwrap_err();
        assert_eq!(panicked, RpcError::internal("the handler of Test.Panic panicked"), "{}", way.name);
        // The channel still works.
        way.channel.call::<WhoAmI>((), None).await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_deadline_ends_the_call_and_its_handler() {
    everywhere(async |mut way: Way| {
        let error = way.channel.call::<Hang>((), Some(Duration::from_millis(50))).await.unwrap_err();
        assert_eq!(error.code, Code::Deadline, "{}", way.name);
        if way.name == "local" {
            // Over a network, the request itself may not arrive within the deadline.
            expect(&mut way.seen, &[Seen::Started("hang")]).await;
        }
    })
    .await;
}

#[tokio::test]
async fn dropping_a_call_drops_its_handler_and_cancels_its_token() {
    everywhere(async |mut way: Way| {
        let channel = way.channel.clone();
        let call = tokio::spawn(async move { channel.call::<Hang>((), None).await });
        expect(&mut way.seen, &[Seen::Started("hang")]).await;
        call.abort();
        expect(&mut way.seen, &[Seen::Dropped("hang"), Seen::Cancelled("hang")]).await;
    })
    .await;
}

#[tokio::test]
async fn a_stream_delivers_all_and_ends() {
    everywhere(async |mut way: Way| {
        let count = Count { upto: 1000, then: Then::End };
        let items: Vec<_> = way.channel.stream::<Count>(count).map(|item| item.unwrap()).collect().await;
        assert_eq!(items, (0..1000).collect::<Vec<_>>(), "{}", way.name);
        expect(&mut way.seen, &[Seen::Dropped("count"), Seen::Cancelled("count")]).await;
    })
    .await;
}

#[tokio::test]
async fn a_stream_ends_after_its_error() {
    everywhere(async |way: Way| {
        let count = Count { upto: 2, then: Then::Fail };
        let items: Vec<_> = way.channel.stream::<Count>(count).collect().await;
        let error = RpcError::new(Code::Conflict, "counted enough");
        assert_eq!(items, [Ok(0), Ok(1), Err(error)], "{}", way.name);

        let count = Count { upto: 1, then: Then::Panic };
        let items: Vec<_> = way.channel.stream::<Count>(count).collect().await;
        assert_eq!(items[0], Ok(0));
        assert_eq!(items[1].as_ref().unwrap_err().code, Code::Internal, "{}", way.name);
        assert_eq!(items.len(), 2);
    })
    .await;
}

#[tokio::test]
async fn dropping_a_stream_drops_the_handlers_stream() {
    everywhere(async |mut way: Way| {
        let mut items = way.channel.stream::<Count>(Count { upto: 1, then: Then::Silence });
        // The first item arrives immediately, although no other item follows.
        assert_eq!(items.next().await, Some(Ok(0)), "{}", way.name);
        drop(items);
        expect(&mut way.seen, &[Seen::Dropped("count"), Seen::Cancelled("count")]).await;
    })
    .await;
}

#[tokio::test]
async fn a_duplex_call_answers_while_it_is_still_sent_to() {
    everywhere(async |way: Way| {
        let (words, input) = mpsc::unbounded_channel();
        let input = futures::stream::unfold(input, async |mut input: mpsc::UnboundedReceiver<String>| {
            Some((input.recv().await?, input))
        });
        let mut answers = way.channel.duplex::<Shout>("you".into(), input);
        assert_eq!(answers.next().await, Some(Ok("hello you".into())), "{}", way.name);
        for word in ["one", "two"] {
            words.send(word.into()).unwrap();
            assert_eq!(answers.next().await, Some(Ok(word.to_uppercase())), "{}", way.name);
        }
        drop(words);
        assert_eq!(answers.next().await, Some(Ok("bye".into())), "{}", way.name);
        assert_eq!(answers.next().await, None);
    })
    .await;
}

#[tokio::test]
async fn many_calls_at_once_do_not_mix() {
    everywhere(async |way: Way| {
        let calls = (0..200).map(|n| {
            let channel = way.channel.clone();
            async move {
                let echo = Echo { text: n.to_string(), bytes: vec![], nothing: Some(n) };
                assert_eq!(channel.call::<Echo>(echo.clone(), None).await.unwrap(), echo);
            }
        });
        futures::future::join_all(calls).await;
    })
    .await;
}
