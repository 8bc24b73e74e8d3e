//! Members over real sockets on loopback.

use caravan_members::{
    Config, Event, Handle, JoinEntry, Key, RetryPlan, ServerTags, Service, Status, Timing, retry_join,
    start_join,
};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// A limit that only a hang reaches.
const DEADLINE: Duration = Duration::from_secs(60);

/// A server that runs until it is ended or dropped.
struct Server {
    handle: Handle,
    addr: SocketAddr,
    cancel: CancellationToken,
    task: JoinHandle<()>,
}

/// The settings that differ between tests.
#[derive(Default)]
struct Settings<'a> {
    dir: Option<&'a Path>,
    key: Option<Key>,
    accept_plain: bool,
    rejoin_after_leave: bool,
    region: Option<&'a str>,
    at: Option<SocketAddr>,
}

fn key(byte: u8) -> Key {
    // 32 letters of base64 are 24 bytes.
    Key::parse(&String::from(char::from(byte)).repeat(32)).unwrap()
}

async fn start(n: u128, settings: Settings<'_>) -> Server {
    let region = settings.region.unwrap_or("global");
    let id = Uuid::from_u128(n);
    let tags = ServerTags { region: region.into(), id, port: 4647, ..ServerTags::default() };
    let listener = TcpListener::bind(settings.at.unwrap_or(([127, 0, 0, 1], 0).into())).await.unwrap();
    let addr = listener.local_addr().unwrap();
    let config = Config {
        id,
        node: format!("s{n}"),
        advertise: ([127, 0, 0, 1], 0).into(),
        tags,
        dir: settings.dir.map(Path::to_owned),
        encrypt: settings.key,
        accept_plain: settings.accept_plain,
        rejoin_after_leave: settings.rejoin_after_leave,
        timing: Timing::default(),
    };
    let (handle, service) = Service::start(config, listener).unwrap();
    let cancel = CancellationToken::new();
    let task = tokio::spawn(service.run(cancel.clone()));
    Server { handle, addr, cancel, task }
}

impl Server {
    async fn end(self) {
        self.cancel.cancel();
        self.task.await.unwrap();
    }

    fn status(&self, n: u128) -> Option<Status> {
        self.handle.view().by_id(Uuid::from_u128(n)).map(|member| member.status)
    }

    async fn join(&self, other: &Server) {
        let joined = self.handle.join(&[other.addr.to_string()]).await;
        assert_eq!((joined.joined, joined.error()), (1, None));
    }
}

async fn eventually(what: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < DEADLINE, "{what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

const ALIVE: Option<Status> = Some(Status::Alive);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_join_change_leave_and_fail() {
    let a = start(1, Settings::default()).await;
    let b = start(2, Settings { region: Some("west"), ..Settings::default() }).await;
    let c = start(3, Settings::default()).await;
    let mut events = a.handle.events();
    let nope = a.handle.join(&["no-such-host.invalid".into(), "127.0.0.1:1".into(), "a b".into()]).await;
    assert_eq!((nope.joined, nope.failures.len()), (0, 3));
    assert!(nope.error().unwrap().contains("failed to join 127.0.0.1:1"), "{nope:?}");
    b.join(&a).await;
    c.join(&b).await;
    for server in [&a, &b, &c] {
        eventually("all know all", || (1..4).all(|n| server.status(n) == ALIVE)).await;
    }
    assert_eq!(a.handle.regions(), ["global", "west"]);
    let names: Vec<String> = a.handle.members().into_iter().map(|member| member.name).collect();
    assert_eq!(names, ["s1.global", "s2.west", "s3.global"]);

    let mut tags = b.handle.own().unwrap().server_tags();
    tags.cluster = Some(Uuid::from_u128(99));
    b.handle.set_tags(tags.clone()).await.unwrap();
    let seen = || a.handle.view().by_id(Uuid::from_u128(2)).map(|member| member.server_tags());
    eventually("the tags spread", || seen().as_ref() == Some(&tags)).await;

    assert!(!a.handle.force_leave("nope", false).await.unwrap());
    assert!(a.handle.force_leave("s3.global", false).await.unwrap());
    assert_eq!(a.status(3), Some(Status::Leaving));

    b.handle.leave().await.unwrap();
    eventually("b left", || a.status(2) == Some(Status::Left) && c.status(2) == Some(Status::Left)).await;
    assert!(b.handle.join(&[a.addr.to_string()]).await.error().unwrap().contains("has left"));
    b.end().await;
    eventually("c refuted", || a.status(3) == ALIVE).await;

    c.end().await;
    eventually("c failed", || a.status(3) == Some(Status::Failed)).await;
    assert!(a.handle.force_leave("s3.global", true).await.unwrap());
    assert_eq!(a.status(3), None);
    let stats = a.handle.stats();
    assert_eq!((stats.members, stats.failed, stats.left, stats.encrypted), (2, 0, 1, false));

    let mut seen = Vec::new();
    while let Ok(event) = events.try_recv() {
        if event.member().name == "s3.global" {
            seen.push(event.as_str());
        }
    }
    assert_eq!(seen, ["joined", "leaving", "joined", "failed", "reaped"]);
    a.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_rotate_and_wrong_keys_are_named() {
    let keyed = |byte| Settings { key: Some(key(byte)), ..Settings::default() };
    let (a, b) = (start(1, keyed(b'A')).await, start(2, keyed(b'A')).await);
    b.join(&a).await;
    eventually("joined", || a.status(2) == ALIVE).await;
    assert!(a.handle.is_encrypted());

    let stranger = start(3, keyed(b'B')).await;
    let refused = stranger.handle.join(&[a.addr.to_string()]).await;
    let tag = key(b'B').tag().to_string();
    assert!(refused.error().unwrap().contains(&format!("does not have gossip key {tag}")), "{refused:?}");
    let plain = start(4, Settings::default()).await;
    let refused = plain.handle.join(&[a.addr.to_string()]).await;
    assert!(refused.error().unwrap().contains("requires a gossip key"), "{refused:?}");
    let refused = a.handle.join(&[plain.addr.to_string()]).await;
    assert!(refused.error().unwrap().contains("has no gossip key"), "{refused:?}");
    assert_eq!(plain.handle.keyring_list().await.errors.len(), 1);

    let (old, new) = (key(b'A').to_text(), key(b'B').to_text());
    let answer = a.handle.keyring_install(&new).await;
    assert!(answer.is_complete(), "{answer:?}");
    assert_eq!((answer.nodes, answer.keys[&new], answer.primary_keys[&old]), (2, 2, 2));
    assert_eq!(a.handle.keyring_use(&new).await.primary_keys[&new], 2);
    let refused = b.handle.keyring_remove(&new).await;
    assert_eq!(refused.errors.keys().collect::<Vec<_>>(), ["s2.global"]);
    assert!(a.handle.keyring_remove(&old).await.is_complete());
    assert_eq!(b.handle.keyring_list().await.keys.into_iter().collect::<Vec<_>>(), [(new, 2)]);
    stranger.join(&b).await;
    eventually("the stranger has the key now", || a.status(3) == ALIVE).await;
    // A server that does not respond is an error by name.
    stranger.end().await;
    let answer = a.handle.keyring_list().await;
    assert_eq!(answer.errors.keys().collect::<Vec<_>>(), ["s3.global"]);
    for server in [a, b, plain] {
        server.end().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_running_cluster_is_switched_to_encryption() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let settings =
        |n: usize, accept_plain| Settings { dir: Some(dirs[n].path()), accept_plain, ..Settings::default() };
    let (a, b) = (start(1, settings(0, true)).await, start(2, settings(1, true)).await);
    b.join(&a).await;
    eventually("joined", || a.status(2) == ALIVE).await;
    let key = key(b'A').to_text();
    let answer = a.handle.keyring_install(&key).await;
    assert!(answer.is_complete(), "{answer:?}");
    assert_eq!(answer.primary_keys[&key], 2);
    // The servers are restarted without the setting, one after the other.
    b.end().await;
    let b = start(2, settings(1, false)).await;
    b.join(&a).await;
    let of_b = || a.handle.view().by_id(Uuid::from_u128(2)).map(|member| member.addr);
    eventually("a knows the new address", || of_b() == Some(b.addr)).await;
    a.end().await;
    let a = start(1, settings(0, false)).await;
    eventually("both are back", || a.status(2) == ALIVE && b.status(1) == ALIVE).await;
    assert!(a.handle.is_encrypted() && b.handle.is_encrypted());
    a.end().await;
    b.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restarted_server_finds_the_members_that_it_knew() {
    let dir = tempfile::tempdir().unwrap();
    let own =
        |rejoin_after_leave| Settings { dir: Some(dir.path()), rejoin_after_leave, ..Settings::default() };
    let a = start(1, Settings::default()).await;
    let b = start(2, own(false)).await;
    b.join(&a).await;
    let saved = || std::fs::read_to_string(dir.path().join("members")).unwrap_or_default();
    eventually("a is remembered", || saved().contains(&a.addr.to_string())).await;
    b.end().await;
    let b = start(2, own(false)).await;
    eventually("b is back", || b.status(1) == ALIVE && a.status(2) == ALIVE).await;
    b.handle.leave().await.unwrap();
    b.end().await;
    let b = start(2, own(true)).await;
    eventually("b is back by rejoin_after_leave", || b.status(1) == ALIVE).await;
    b.handle.leave().await.unwrap();
    b.end().await;
    let b = start(2, own(false)).await;
    assert!(!saved().contains(&a.addr.to_string()), "a server that left does not return by itself");
    eventually("b is still left", || a.status(2) == Some(Status::Left)).await;
    assert_eq!(b.status(1), None);
    b.end().await;
    a.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn joins_of_the_configuration_retry_and_give_up() {
    let a = start(1, Settings::default()).await;
    let b = start(2, Settings::default()).await;
    let entry = |addr: SocketAddr| JoinEntry::parse(&addr.to_string()).unwrap();
    // The port is free: the listener is dropped immediately.
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let error = start_join(&a.handle, &[entry(free)]).await.unwrap_err();
    assert!(error.to_string().starts_with("server_join.start_join: no server could be joined"), "{error}");
    assert_eq!(start_join(&a.handle, &[entry(a.addr)]).await, Ok(0));
    let plan = RetryPlan { interval: Duration::from_millis(10), max: 2, failed: 0 };
    let error = retry_join(&a.handle, &[entry(free)], plan).await.unwrap_err();
    assert!(error.to_string().starts_with("server_join.retry_join"), "{error}");
    assert_eq!(retry_join(&a.handle, &[entry(free), entry(a.addr), entry(b.addr)], plan).await, Ok(1));
    assert_eq!(a.status(2), ALIVE);
    // A server that starts later is joined after its start.
    let late = tokio::spawn({
        let handle = a.handle.clone();
        async move { retry_join(&handle, &[entry(free)], RetryPlan { max: 0, ..plan }).await }
    });
    let c = start(3, Settings { at: Some(free), ..Settings::default() }).await;
    assert_eq!(late.await.unwrap(), Ok(1));
    for server in [a, b, c] {
        server.end().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_protocols_are_refused() {
    let a = start(1, Settings { key: Some(key(b'A')), ..Settings::default() }).await;
    for bytes in [&b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"[..], &[0; 64], &[0xff; 4096]] {
        let mut stream = TcpStream::connect(a.addr).await.unwrap();
        // The server may have ended the connection already.
        let _ = stream.write_all(bytes).await;
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        assert!(answer.len() <= 20, "{answer:?}");
    }
    let web = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = web.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = web.accept().await {
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        }
    });
    let refused = a.handle.join(&[addr.to_string()]).await;
    assert!(refused.error().unwrap().contains("no Caravan server answers there"), "{refused:?}");
    assert!(matches!(a.handle.own().map(|own| own.status), ALIVE));
    let event = Event::Joined(a.handle.own().unwrap());
    assert_eq!(event.as_str(), "joined");
    a.end().await;
}
