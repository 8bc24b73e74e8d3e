//! Tests of the order of the parts, and of the wakeups of the task.

use super::*;
use crate::codec::encode;
use crate::h2::{Connection, KeepAlive, Served, serve};
use crate::method::Method as _;
use crate::methods::LogCall;
use crate::{PeerIdentity, Router};
use caravan_messages::cluster::LogMessage;
use std::io;
use std::pin::pin;
use std::sync::atomic::AtomicUsize;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

/// A counter of the wakeups of the task.
#[derive(Debug, Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Count {
    fn take(&self) -> usize {
        self.0.swap(0, Ordering::SeqCst)
    }
}

/// Returns a future that is ready after it has woken itself some times.
fn restless(times: usize) -> impl Future<Output = ()> + Send {
    let mut left = times;
    poll_fn(move |task| {
        if left == 0 {
            return Poll::Ready(());
        }
        left -= 1;
        task.waker().wake_by_ref();
        Poll::Pending
    })
}

fn poll(future: Pin<&mut impl Future<Output = ()>>, count: &Arc<Count>) -> bool {
    let waker = Waker::from(count.clone());
    future.poll(&mut Context::from_waker(&waker)).is_ready()
}

#[test]
fn wakeups_inside_the_task_need_no_scheduler() {
    let count = Arc::new(Count::default());
    let parts = Parts::default();
    let mut driver = parts.driver(Gate::default());
    parts.execute(restless(3));
    let done = Arc::new(AtomicBool::new(false));
    let (part_ends, end) = (parts.clone(), done.clone());
    // The connection starts a part, which starts another one.
    let mut connection = pin!(async move {
        restless(2).await;
        let again = part_ends.clone();
        part_ends.execute(async move {
            again.execute(async move { end.store(true, Ordering::SeqCst) });
        });
        std::future::pending::<()>().await
    });
    let mut drive = pin!(driver.drive(connection.as_mut()));
    assert!(!poll(drive.as_mut(), &count));
    assert!(done.load(Ordering::SeqCst), "one poll of the task is enough");
    assert_eq!(count.take(), 0);
}

#[test]
fn wakeups_from_outside_wake_the_task_once_each() {
    let count = Arc::new(Count::default());
    let parts = Parts::default();
    let mut driver = parts.driver(Gate::default());
    let (answer, asked) = oneshot::channel::<()>();
    let (ends, end) = oneshot::channel::<()>();
    parts.execute(async move {
        let _ = asked.await;
        let _ = ends.send(());
    });
    let mut connection = pin!(async move { drop(end.await) });
    let mut drive = pin!(driver.drive(connection.as_mut()));
    assert!(!poll(drive.as_mut(), &count));
    assert_eq!(count.take(), 0);
    answer.send(()).unwrap();
    assert_eq!(count.take(), 1);
    assert!(poll(drive.as_mut(), &count), "the part and the connection end in one poll");
    assert_eq!(count.take(), 0);
}

#[test]
fn an_endless_part_lets_others_run() {
    let count = Arc::new(Count::default());
    let parts = Parts::default();
    let mut driver = parts.driver(Gate::default());
    parts.execute(restless(usize::MAX));
    let mut connection = pin!(std::future::pending::<()>());
    let mut drive = pin!(driver.drive(connection.as_mut()));
    for _ in 0..3 {
        assert!(!poll(drive.as_mut(), &count));
        assert_eq!(count.take(), 1, "the task is scheduled again");
    }
}

#[test]
fn parts_run_before_the_connection_and_end_after_it() {
    let count = Arc::new(Count::default());
    let parts = Parts::default();
    let mut driver = parts.driver(Gate::default());
    let sent = Arc::new(Mutex::new(Vec::new()));
    for name in ["head", "body"] {
        let sent = sent.clone();
        parts.execute(async move { sent.lock().push(name) });
    }
    let seen = sent.clone();
    let mut connection = pin!(async move { seen.lock().push("written") });
    {
        let mut drive = pin!(driver.drive(connection.as_mut()));
        assert!(poll(drive.as_mut(), &count));
    }
    assert_eq!(*sent.lock(), ["head", "body", "written"]);
    parts.execute(restless(2));
    let mut finish = pin!(driver.finish());
    while !poll(finish.as_mut(), &count) {
        assert_ne!(count.take(), 0, "the part goes on");
    }
}

#[test]
fn a_driver_that_ends_keeps_no_part() {
    let parts = Parts::default();
    let held = Arc::new(());
    let driver = parts.driver(Gate::default());
    let (executor, inside) = (parts.clone(), held.clone());
    parts.execute(async move {
        let _held = (executor, inside);
        std::future::pending::<()>().await
    });
    drop(driver);
    assert_eq!(Arc::strong_count(&held), 1);
}

/// A connection that counts its writes.
#[derive(Debug)]
struct Writes(DuplexStream, Arc<AtomicUsize>);

impl AsyncRead for Writes {
    fn poll_read(
        mut self: Pin<&mut Self>,
        task: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(task, buffer)
    }
}

impl AsyncWrite for Writes {
    fn poll_write(mut self: Pin<&mut Self>, task: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.1.fetch_add(1, Ordering::SeqCst);
        Pin::new(&mut self.0).poll_write(task, bytes)
    }
    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        task: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.1.fetch_add(1, Ordering::SeqCst);
        Pin::new(&mut self.0).poll_write_vectored(task, slices)
    }
    fn is_write_vectored(&self) -> bool {
        true
    }
    fn poll_flush(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(task)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(task)
    }
}

/// Checks that head, body and end of a message arrive together, so that the receiver wakes up once for each message.
#[tokio::test]
async fn a_message_of_the_log_is_one_write_in_each_direction() {
    let (near, far) = tokio::io::duplex(1 << 20);
    let (asked, answered) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let router = Router::builder().unary::<LogCall, _, _>(async |_, message: LogMessage| {
        // The log responds from another task, too.
        tokio::spawn(tokio::task::yield_now()).await.unwrap();
        Ok(message)
    });
    let served = Served { router: router.build(), nodes: None };
    let cancel = CancellationToken::new();
    let far = Box::new(Writes(far, answered.clone()));
    let serving = serve(far, served, PeerIdentity::server("s"), None, KeepAlive::default(), cancel.clone());
    let serving = tokio::spawn(serving);
    let near = Box::new(Writes(near, asked.clone()));
    let connection = Connection::handshake(near, KeepAlive::default()).await.unwrap();
    let message = encode(LogCall::NAME, &LogMessage { kind: 1, body: vec![7; 2000] }).unwrap();
    for round in 0..20 {
        let before = (asked.load(Ordering::SeqCst), answered.load(Ordering::SeqCst));
        let answer = connection.call(LogCall::NAME, None, message.clone()).await.unwrap();
        assert_eq!(answer, message);
        let after = (asked.load(Ordering::SeqCst), answered.load(Ordering::SeqCst));
        // The first call is sent together with the settings of the connection.
        if round > 2 {
            assert_eq!((after.0 - before.0, after.1 - before.1), (1, 1), "call {round}");
        }
    }
    cancel.cancel();
    // Either side may close the connection first.
    drop(serving.await.unwrap());
}

/// Checks that held bytes are neither lost nor sent twice on a connection that accepts some bytes and then
/// none for a while.
#[tokio::test]
async fn large_messages_pass_a_slow_connection_whole() {
    let (near, far) = tokio::io::duplex(100);
    let router = Router::builder().unary::<LogCall, _, _>(async |_, message: LogMessage| Ok(message));
    let served = Served { router: router.build(), nodes: None };
    let cancel = CancellationToken::new();
    let peer = PeerIdentity::server("s");
    let serving = serve(Box::new(far), served, peer, None, KeepAlive::default(), cancel.clone());
    let serving = tokio::spawn(serving);
    let connection = Connection::handshake(Box::new(near), KeepAlive::default()).await.unwrap();
    let calls = (0..30_usize).map(|round| {
        let body = (0..=250).cycle().take(round * 1500).collect();
        let message = encode(LogCall::NAME, &LogMessage { kind: 1, body }).unwrap();
        let connection = connection.clone();
        async move {
            assert_eq!(connection.call(LogCall::NAME, None, message.clone()).await.unwrap(), message);
        }
    });
    futures::future::join_all(calls).await;
    cancel.cancel();
    drop(serving.await.unwrap());
}
