//! Tests of connections: opened late, lost, refused, and reopened.

use crate::support::*;
use caravan_rpc::{
    Authenticator, Channel, Code, ConnectOptions, Connectivity, Hello, KeepAlive, Limits, PeerIdentity,
    ReverseOptions, ReverseRegistry, ReverseService, Role, RpcError, ServeError, ServerOptions,
};
use futures::StreamExt;
use futures::future::BoxFuture;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

#[tokio::test]
async fn a_channel_comes_back_after_the_server_restarted() {
    let first = Running::start(any_port(), ServerOptions::new(server(), router().0)).await;
    let addr = first.addr;
    let channel = Channel::connect(options(&[addr]));
    channel.call::<WhoAmI>((), None).await.unwrap();
    first.stop().await;

    let waiting = channel.clone();
    let call = tokio::spawn(async move { waiting.call::<WhoAmI>((), Some(TIMEOUT)).await });
    let second = Running::start(addr, ServerOptions::new(server(), router().0)).await;
    call.await.unwrap().unwrap();
    second.stop().await;
}

#[tokio::test]
async fn a_channel_goes_to_the_next_server() {
    let a = Running::start(any_port(), ServerOptions::new(server(), router().0)).await;
    let b = Running::start(any_port(), ServerOptions::new(server(), router().0)).await;
    let channel = Channel::connect(impatient(&[a.addr, b.addr]));
    channel.call::<WhoAmI>((), None).await.unwrap();
    a.stop().await;
    channel.call::<WhoAmI>((), None).await.unwrap();
    b.stop().await;
    let error = channel.call::<WhoAmI>((), None).await.unwrap_err();
    assert_eq!(error.code, Code::Unavailable);
    assert!(error.message.contains("cannot connect to 127.0.0.1"), "{error}");
}

/// Returns addresses without listeners.
async fn closed(count: usize) -> Vec<std::net::SocketAddr> {
    let mut addresses = Vec::new();
    for _ in 0..count {
        let listener = tokio::net::TcpListener::bind(any_port()).await.unwrap();
        addresses.push(listener.local_addr().unwrap());
    }
    addresses
}

/// Checks that one round reaches each server, whatever the position of the responding server in the list.
#[tokio::test]
async fn a_call_tries_each_server_once() {
    let well = Running::start(any_port(), ServerOptions::new(server(), router().0)).await;
    for (before, after) in [(1, 0), (1, 1), (2, 0), (2, 2), (4, 0)] {
        let mut servers = closed(before).await;
        servers.push(well.addr);
        servers.extend(closed(after).await);
        let channel = Channel::connect(impatient(&servers));
        channel.call::<WhoAmI>((), None).await.unwrap();
    }
    well.stop().await;
}

/// Checks the fallback: the servers have moved, and only an address of the configuration leads to them.
#[tokio::test]
async fn a_fallback_is_used_when_no_server_of_the_list_answers() {
    let well = Running::start(any_port(), ServerOptions::new(server(), router().0)).await;
    let options = impatient(&closed(2).await);
    let before = options.targets.list();
    options.targets.set_fallback(vec![before[0].clone(), well.addr.to_string()]);
    let channel = Channel::connect(options.clone());
    channel.call::<WhoAmI>((), None).await.unwrap();
    let expected: Vec<String> = [vec![well.addr.to_string()], before].concat();
    assert_eq!(options.targets.list(), expected);
    channel.call::<WhoAmI>((), None).await.unwrap();
    well.stop().await;
}

/// Checks that a caller with a shorter timeout than the greeting does not try the same hanging server repeatedly.
#[tokio::test]
async fn a_call_after_an_abandoned_one_tries_the_next_server() {
    let hangs = tokio::net::TcpListener::bind(any_port()).await.unwrap();
    let well = Running::start(any_port(), ServerOptions::new(server(), router().0)).await;
    let channel = Channel::connect(options(&[hangs.local_addr().unwrap(), well.addr]));
    let _kept = tokio::select! {
        answer = channel.call::<WhoAmI>((), None) => panic!("{answer:?}"),
        accepted = hangs.accept() => accepted.unwrap(),
    };
    let next = tokio::select! {
        answer = channel.call::<WhoAmI>((), None) => answer,
        again = hangs.accept() => panic!("{again:?}"),
    };
    next.unwrap();
    well.stop().await;
}

/// Checks that a heartbeat reaches another server long before the keep-alive detects the silence of the first one.
#[tokio::test]
async fn a_channel_that_leaves_a_silent_server_calls_the_next_one() {
    let (silent, well) = (router(), router());
    let silent_server = Running::start(any_port(), ServerOptions::new(server(), silent.0)).await;
    let proxy = Proxy::start(silent_server.addr).await;
    let well_server = Running::start(any_port(), ServerOptions::new(server(), well.0)).await;
    let channel = Channel::connect(options(&[proxy.addr, well_server.addr]));
    let (mut seen_first, mut seen_next) = (silent.1, well.1);
    let in_progress = channel.clone();
    let in_progress = tokio::spawn(async move { in_progress.call::<Hang>((), None).await });
    expect(&mut seen_first, &[Seen::Started("hang")]).await;
    proxy.freeze();
    channel.leave_server();
    let next = channel.clone();
    let next = tokio::spawn(async move { next.call::<Hang>((), None).await });
    expect(&mut seen_next, &[Seen::Started("hang")]).await;
    assert!(!in_progress.is_finished(), "a call in progress keeps its connection");
    next.abort();
    in_progress.abort();
    well_server.stop().await;

    // A channel with one server has no alternative: it keeps its connection.
    let alone = Running::start(any_port(), ServerOptions::new(server(), router().0)).await;
    let proxy = Proxy::start(alone.addr).await;
    let channel = Channel::connect(options(&[proxy.addr]));
    channel.call::<WhoAmI>((), None).await.unwrap();
    channel.leave_server();
    channel.call::<WhoAmI>((), None).await.unwrap();
    assert_eq!(proxy.connections(), 1);
}

#[tokio::test]
async fn a_call_in_progress_fails_when_the_connection_is_cut() {
    let (router, mut seen) = router();
    let running = Running::start(any_port(), ServerOptions::new(server(), router)).await;
    let proxy = Proxy::start(running.addr).await;
    let channel = Channel::connect(options(&[proxy.addr]));
    let mut items = channel.stream::<Count>(Count { upto: 1, then: Then::Silence });
    assert_eq!(items.next().await, Some(Ok(0)));
    let waiting = channel.clone();
    let call = tokio::spawn(async move { waiting.call::<Hang>((), None).await });
    expect(&mut seen, &[Seen::Started("hang")]).await;

    proxy.cut();
    assert_eq!(call.await.unwrap().unwrap_err().code, Code::Unavailable);
    assert_eq!(items.next().await.unwrap().unwrap_err().code, Code::Unavailable);
    assert!(items.next().await.is_none());
    expect(&mut seen, &[Seen::Cancelled("hang"), Seen::Cancelled("count")]).await;
    // The next call opens a new connection.
    channel.call::<WhoAmI>((), None).await.unwrap();
    running.stop().await;
}

/// Checks that a hundred readers that disconnect at the same time do not end the connection of the others.
#[tokio::test]
async fn calls_that_are_given_up_do_not_harm_others() {
    let running = Running::start(any_port(), ServerOptions::new(server(), router().0)).await;
    let proxy = Proxy::start(running.addr).await;
    let channel = Channel::connect(options(&[proxy.addr]));
    let mut kept = channel.stream::<Count>(Count { upto: 2, then: Then::Silence });
    assert_eq!(kept.next().await.unwrap().unwrap(), 0);
    // Each call and its end reach the server at the same time.
    proxy.hold(true);
    let count = || Count { upto: 1, then: Then::End };
    let mut given_up: Vec<_> = (0..100).map(|_| channel.stream::<Count>(count())).collect();
    for stream in &mut given_up {
        assert!(futures::poll!(stream.next()).is_pending());
    }
    tokio::task::yield_now().await;
    drop(given_up);
    tokio::task::yield_now().await;
    proxy.hold(false);
    channel.call::<WhoAmI>((), None).await.unwrap();
    assert_eq!(kept.next().await.unwrap().unwrap(), 1);
    running.stop().await;
}

#[tokio::test]
async fn a_stopping_server_ends_calls_that_hang() {
    let (router, mut seen) = router();
    let running = Running::start(any_port(), ServerOptions::new(server(), router)).await;
    let channel = Channel::connect(impatient(&[running.addr]));
    let call = tokio::spawn(async move { channel.call::<Hang>((), None).await });
    expect(&mut seen, &[Seen::Started("hang")]).await;
    running.stop().await;
    assert_eq!(call.await.unwrap().unwrap_err().code, Code::Unavailable);
    expect(&mut seen, &[Seen::Dropped("hang"), Seen::Cancelled("hang")]).await;
}

/// An authenticator that accepts one particular secret.
#[derive(Debug)]
struct Password;

impl Authenticator for Password {
    fn authenticate<'a>(
        &'a self,
        _role: Role,
        hello: &'a Hello,
    ) -> BoxFuture<'a, Result<PeerIdentity, RpcError>> {
        Box::pin(async move {
            match &hello.identity {
                PeerIdentity::Client { secret, .. } if secret.expose() == "right" => {
                    Ok(hello.identity.clone())
                }
                other => Err(RpcError::new(Code::Permission, format!("{other} has the wrong secret"))),
            }
        })
    }
}

#[tokio::test]
async fn who_is_not_let_in_learns_why_at_once() {
    let serve =
        ServerOptions { authenticator: Arc::new(Password), ..ServerOptions::new(server(), router().0) };
    let running = Running::start(any_port(), serve).await;

    // The channel retries other failures, but this one is final.
    let channel = Channel::connect(options(&[running.addr]));
    let error = channel.call::<WhoAmI>((), None).await.unwrap_err();
    assert_eq!(error.code, Code::Permission);
    assert!(error.message.ends_with("client node-1 has the wrong secret"), "{error}");
    assert!(!format!("{error:?}").contains("s3cret"), "{error:?}");

    let mut right = options(&[running.addr]);
    right.identity =
        PeerIdentity::Client { node_id: "node-1".into(), secret: caravan_rpc::Secret::new("right") };
    Channel::connect(right).call::<WhoAmI>((), None).await.unwrap();
    running.stop().await;
}

#[tokio::test]
async fn surplus_connections_get_an_error() {
    let serve = ServerOptions { max_connections: 1, ..ServerOptions::new(server(), router().0) };
    let running = Running::start(any_port(), serve).await;
    let (_first, _second, error) = one_is_let_in(&running).await;
    assert!(error.message.contains("as many connections as it may"), "{error}");
    running.stop().await;
}

/// Connects twice; the second connection is temporarily refused.
async fn one_is_let_in(running: &Running) -> (Channel, Channel, RpcError) {
    let first = Channel::connect(impatient(&[running.addr]));
    first.call::<WhoAmI>((), None).await.unwrap();
    let second = Channel::connect(impatient(&[running.addr]));
    let error = second.call::<WhoAmI>((), None).await.unwrap_err();
    assert_eq!(error.code, Code::Unavailable);
    (first, second, error)
}

#[tokio::test]
async fn an_address_has_so_many_connections_and_no_more() {
    let limits = Limits::new(TIMEOUT, 1, std::time::Instant::now());
    let serve = ServerOptions { limits: limits.clone(), ..ServerOptions::new(server(), router().0) };
    let running = Running::start(any_port(), serve).await;
    let (_first, second, error) = one_is_let_in(&running).await;
    assert!(error.message.contains("lets an address have 1 connections"), "{error}");
    limits.set(TIMEOUT, 2);
    second.call::<WhoAmI>((), None).await.unwrap();
    running.stop().await;
}

#[tokio::test]
async fn whoever_says_nothing_is_closed() {
    // No bytes, only a role, and a frame that never ends.
    let beginnings: [&[u8]; 3] = [&[], &[1], &[1, 0, 0, 0, 9, 1]];
    let limits = Limits::new(Duration::from_millis(50), 0, std::time::Instant::now());
    let serve = ServerOptions { limits: limits.clone(), ..ServerOptions::new(server(), router().0) };
    let running = Running::start(any_port(), serve).await;
    for bytes in beginnings {
        let answer = answer_to(running.addr, bytes).await;
        assert!(answer.contains("no greeting came in time"), "{answer}");
    }
    // An established connection stays, even if it is silent: the time limit is only for the greeting.
    let channel = Channel::connect(impatient(&[running.addr]));
    channel.call::<WhoAmI>((), None).await.unwrap();
    let answer = answer_to(running.addr, &[]).await;
    assert!(answer.contains("no greeting came in time"), "{answer}");
    channel.call::<WhoAmI>((), None).await.unwrap();
    running.stop().await;
}

/// Returns the server's response to raw bytes, as text with the readable parts.
async fn answer_to(addr: std::net::SocketAddr, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(addr).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    let mut answer = Vec::new();
    tokio::time::timeout(TIMEOUT, stream.read_to_end(&mut answer)).await.expect("no end").unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test]
async fn what_is_no_greeting_is_refused_with_a_reason() {
    let running = Running::start(any_port(), ServerOptions::new(server(), router().0)).await;
    let http = answer_to(running.addr, b"GET / HTTP/1.1\r\n\r\n").await;
    assert!(http.contains("no role of this protocol"), "{http}");
    let huge = answer_to(running.addr, &[1, 255, 255, 255, 255]).await;
    assert!(huge.contains("were announced") || huge.contains("was announced"), "{huge}");

    let frame = |role: u8, version: u16| {
        let hello = Hello { version, region: "global".into(), identity: client(), server: None };
        let body = rmp_serde::to_vec_named(&hello).unwrap();
        let length = u32::try_from(body.len()).unwrap();
        [&[role], &length.to_be_bytes()[..], &body].concat()
    };
    let newer = answer_to(running.addr, &frame(1, 99)).await;
    assert!(newer.contains("protocol version 99 is not spoken here"), "{newer}");
    let raft = answer_to(running.addr, &frame(3, 1)).await;
    assert!(raft.contains("has not proved that it belongs to this cluster"), "{raft}");
    running.stop().await;
}

#[tokio::test]
async fn an_address_in_use_is_named() {
    let running = Running::start(any_port(), ServerOptions::new(server(), router().0)).await;
    let again = caravan_rpc::RpcServer::bind(running.addr, ServerOptions::new(server(), router().0)).await;
    let Err(ServeError::Bind { addr, .. }) = again else { panic!("it was bound twice") };
    assert_eq!(addr, running.addr);
    running.stop().await;
}

async fn wait_until(registry: &ReverseRegistry, expected: bool) {
    let mut changes = registry.changes();
    let wait = changes.wait_for(|_| registry.get("node-1").is_ok() == expected);
    tokio::time::timeout(TIMEOUT, wait).await.expect("the registry did not change").unwrap();
}

#[tokio::test]
async fn the_way_back_is_made_again_after_it_was_cut() {
    let registry = ReverseRegistry::default();
    let serve = ServerOptions { registry: registry.clone(), ..ServerOptions::new(server(), router().0) };
    let running = Running::start(any_port(), serve).await;
    let proxy = Proxy::start(running.addr).await;
    let connect = options(&[proxy.addr]);
    let (service, mut state) = ReverseService::new(ReverseOptions { connect, router: router().0 });
    let cancel = CancellationToken::new();
    let service = tokio::spawn(service.run(cancel.clone()));

    let connected = |state: &Connectivity| matches!(state, Connectivity::Connected { .. });
    tokio::time::timeout(TIMEOUT, state.wait_for(connected)).await.unwrap().unwrap();
    wait_until(&registry, true).await;
    let old = registry.get("node-1").unwrap();
    assert_eq!(old.call::<WhoAmI>((), None).await.unwrap(), "server server-1");

    proxy.cut();
    assert_eq!(old.call::<Hang>((), None).await.unwrap_err().code, Code::Unavailable);
    tokio::time::timeout(TIMEOUT, async {
        loop {
            let again = registry.get("node-1");
            if let Ok(channel) = again
                && channel.call::<WhoAmI>((), None).await.is_ok()
            {
                break;
            }
            tokio::task::yield_now().await;
        }
    })
    .await
    .expect("the client did not come back");

    cancel.cancel();
    service.await.unwrap();
    wait_until(&registry, false).await;
    let error = registry.get("node-1").unwrap_err();
    assert_eq!(error.code, Code::NoPath);
    assert!(error.message.contains("node-1"), "{error}");
    running.stop().await;
}

#[tokio::test]
async fn a_peer_that_went_silent_is_noticed_on_both_sides() {
    let keep_alive = KeepAlive { interval: Duration::from_millis(250), timeout: Duration::from_millis(250) };
    let registry = ReverseRegistry::default();
    let (server_router, mut seen) = router();
    let serve = ServerOptions {
        registry: registry.clone(),
        keep_alive,
        ..ServerOptions::new(server(), server_router)
    };
    let running = Running::start(any_port(), serve).await;
    let proxy = Proxy::start(running.addr).await;
    let connect = ConnectOptions { keep_alive, ..options(&[proxy.addr]) };

    let (service, mut state) =
        ReverseService::new(ReverseOptions { connect: connect.clone(), router: router().0 });
    let service = tokio::spawn(service.run(CancellationToken::new()));
    wait_until(&registry, true).await;
    let connected = |state: &Connectivity| matches!(state, Connectivity::Connected { .. });
    tokio::time::timeout(TIMEOUT, state.wait_for(connected)).await.unwrap().unwrap();
    let channel = Channel::connect(connect);
    let call = tokio::spawn(async move { channel.call::<Hang>((), None).await });
    expect(&mut seen, &[Seen::Started("hang")]).await;

    proxy.freeze();
    assert_eq!(call.await.unwrap().unwrap_err().code, Code::Unavailable);
    expect(&mut seen, &[Seen::Cancelled("hang")]).await;
    wait_until(&registry, false).await;
    let disconnected = |state: &Connectivity| !connected(state);
    tokio::time::timeout(TIMEOUT, state.wait_for(disconnected)).await.unwrap().unwrap();
    service.abort();
    running.stop().await;
}

#[tokio::test]
async fn a_client_that_is_refused_knows_why() {
    let serve =
        ServerOptions { authenticator: Arc::new(Password), ..ServerOptions::new(server(), router().0) };
    let running = Running::start(any_port(), serve).await;
    let connect = options(&[running.addr]);
    let (service, mut state) = ReverseService::new(ReverseOptions { connect, router: router().0 });
    let cancel = CancellationToken::new();
    let service = tokio::spawn(service.run(cancel.clone()));
    let refused = |state: &Connectivity| matches!(state, Connectivity::Disconnected { error: Some(error) } if error.code == Code::Permission);
    tokio::time::timeout(TIMEOUT, state.wait_for(refused)).await.unwrap().unwrap();
    cancel.cancel();
    service.await.unwrap();
    running.stop().await;
}

#[tokio::test]
async fn both_ways_go_over_to_other_servers() {
    let (near, far) = (ReverseRegistry::default(), ReverseRegistry::default());
    let serving = |registry: &ReverseRegistry| ServerOptions {
        registry: registry.clone(),
        ..ServerOptions::new(server(), router().0)
    };
    let a = Running::start(any_port(), serving(&near)).await;
    let b = Running::start(any_port(), serving(&far)).await;
    let connect = options(&[a.addr]);
    let targets = connect.targets.clone();
    let channel = Channel::connect(connect.clone());
    let (service, _state) = ReverseService::new(ReverseOptions { connect, router: router().0 });
    let cancel = CancellationToken::new();
    let service = tokio::spawn(service.run(cancel.clone()));
    wait_until(&near, true).await;
    channel.call::<WhoAmI>((), None).await.unwrap();

    targets.set(vec![b.addr.to_string()]);
    assert_eq!(targets.list(), [b.addr.to_string()]);
    wait_until(&far, true).await;
    wait_until(&near, false).await;
    // The channel has switched servers too, so the end of the first server does not affect it.
    channel.call::<WhoAmI>((), None).await.unwrap();
    a.stop().await;
    channel.call::<WhoAmI>((), None).await.unwrap();
    cancel.cancel();
    service.await.unwrap();
    b.stop().await;
}

/// An authenticator that accepts all peers, without proof of identity until the flag is set.
#[derive(Clone, Debug, Default)]
struct Proof(Arc<std::sync::atomic::AtomicBool>);

impl Authenticator for Proof {
    fn authenticate<'a>(
        &'a self,
        _role: Role,
        hello: &'a Hello,
    ) -> BoxFuture<'a, Result<PeerIdentity, RpcError>> {
        Box::pin(std::future::ready(Ok(hello.identity.clone())))
    }

    fn proves(&self, _: &PeerIdentity, _: Option<&caravan_rpc::Certificate>) -> bool {
        self.0.load(std::sync::atomic::Ordering::Relaxed)
    }
}

fn echo(bytes: usize) -> Echo {
    Echo { text: String::new(), bytes: vec![7; bytes], nothing: None }
}

#[tokio::test]
async fn who_has_proved_nothing_has_little_room() {
    let (router, mut seen) = router();
    let proof = Proof::default();
    let serve = ServerOptions {
        authenticator: Arc::new(proof.clone()),
        strangers: caravan_rpc::Strangers::new(1, 4 << 20),
        ..ServerOptions::new(server(), router)
    };
    let running = Running::start(any_port(), serve).await;
    let channel = Channel::connect(impatient(&[running.addr]));
    assert_eq!(channel.call::<Echo>(echo(1000), None).await.unwrap().bytes.len(), 1000);
    let error = channel.call::<Echo>(echo(2 << 20), None).await.unwrap_err();
    assert!(error.message.contains("too large"), "{error}");
    // Another connection is refused with a reason.
    let other = Channel::connect(impatient(&[running.addr]));
    let error = other.call::<WhoAmI>((), None).await.unwrap_err();
    assert!(error.message.contains("nodes that it does not know"), "{error}");
    // Calls that hang use up the limit.
    let hanging: Vec<_> = (0..8)
        .map(|_| {
            let channel = channel.clone();
            tokio::spawn(async move { channel.call::<Hang>((), None).await })
        })
        .collect();
    for _ in &hanging {
        expect(&mut seen, &[Seen::Started("hang")]).await;
    }
    let error = channel.call::<WhoAmI>((), None).await.unwrap_err();
    assert_eq!(error.code, Code::Permission);
    // Once the peer has proved its identity, the limits no longer apply on the same connection, and its slot is free.
    proof.0.store(true, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(channel.call::<Echo>(echo(2 << 20), None).await.unwrap().bytes.len(), 2 << 20);
    proof.0.store(false, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(channel.call::<Echo>(echo(2 << 20), None).await.unwrap().bytes.len(), 2 << 20);
    other.call::<WhoAmI>((), None).await.unwrap();
    hanging.iter().for_each(tokio::task::JoinHandle::abort);
    running.stop().await;
}
