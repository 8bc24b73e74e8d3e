//! The connections: one that this server opens to each receiver of its messages, and the connections that
//! members open.

use super::Input;
use crate::frame::{KeyOperation, Message};
use crate::key::KeyError;
use crate::net::{self, CallError, Net, Reader, Writer};
use crate::session::{Refusal, Side};
use std::collections::HashMap;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// Number of messages that wait for one connection; more are dropped, as the protocol allows.
const QUEUE: usize = 64;
/// The time without messages after which an opened connection ends.
const IDLE: Duration = Duration::from_secs(90);
/// An idle time that is never reached.
const MAX_IDLE: Duration = Duration::from_secs(1 << 30);
/// The time without messages after which an accepted connection ends.
const ACCEPTED_IDLE: Duration = Duration::from_secs(300);
/// The time for which messages are dropped after a failed attempt to connect.
const PAUSE: Duration = Duration::from_secs(1);
/// Maximum number of accepted connections.
const MAX_ACCEPTED: usize = 1024;
/// Pause after the system refused to accept a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The opened connections by address.
#[derive(Debug)]
pub(super) struct Links {
    net: Arc<Net>,
    inputs: mpsc::WeakSender<Input>,
    open: HashMap<SocketAddr, mpsc::Sender<Message>>,
}

impl Links {
    pub(super) fn new(net: Arc<Net>, inputs: mpsc::WeakSender<Input>) -> Self {
        Self { net, inputs, open: HashMap::new() }
    }

    /// Sends a message if its queue has room. Delivery is not certain.
    pub(super) fn send(&mut self, to: SocketAddr, message: Message) {
        let message = match self.open.get(&to) {
            Some(link) => match link.try_send(message) {
                Ok(()) => return,
                Err(mpsc::error::TrySendError::Full(_)) => {
                    tracing::debug!(%to, "a gossip message was dropped: the queue is full");
                    return;
                }
                Err(mpsc::error::TrySendError::Closed(message)) => message,
            },
            None => message,
        };
        self.open.retain(|_, link| !link.is_closed());
        let (link, queue) = mpsc::channel(QUEUE);
        // The new queue has room.
        let _ = link.try_send(message);
        self.open.insert(to, link);
        tokio::spawn(carry(to, queue, Arc::clone(&self.net), self.inputs.clone()));
    }
}

/// Carries the messages of a queue to an address, until no message arrives for a while.
async fn carry(
    to: SocketAddr,
    mut queue: mpsc::Receiver<Message>,
    net: Arc<Net>,
    inputs: mpsc::WeakSender<Input>,
) {
    let mut plain = false;
    while let Ok(Some(first)) = timeout(IDLE, queue.recv()).await {
        // The membership has ended.
        let Some(inputs) = inputs.upgrade() else { return };
        let error = match net::connect(to, plain).await {
            Ok((reader, writer)) => {
                let (answers, mut answered) = mpsc::channel(QUEUE);
                let link = Link { reader, writer, net: &net, inputs: &inputs, answers };
                link.run(Some(first), &mut queue, &mut answered).await
            }
            Err(error) => Some(error),
        };
        drop(inputs);
        let Some(error) = error else { return };
        net.report(to, &error);
        // During a change-over to encryption, members without a key get plain messages until they have a key.
        plain = match error {
            CallError::Refused(Refusal::NoKeys) => net.keys.accepts_plain(),
            CallError::Refused(_) => false,
            _ => plain,
        };
        if matches!(error, CallError::Io(_) | CallError::Timeout) {
            let until = tokio::time::Instant::now() + PAUSE;
            while let Ok(Some(_)) = tokio::time::timeout_at(until, queue.recv()).await {}
        }
    }
}

/// Accepts connections until `cancel`.
pub(super) async fn listen(
    listener: TcpListener,
    net: Arc<Net>,
    inputs: mpsc::Sender<Input>,
    cancel: CancellationToken,
) {
    let permits = Arc::new(Semaphore::new(MAX_ACCEPTED));
    loop {
        let accepted = tokio::select! {
            () = cancel.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        let (stream, from) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a gossip connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let Ok(permit) = Arc::clone(&permits).try_acquire_owned() else {
            tracing::debug!(%from, "a gossip connection was refused: there are too many");
            continue;
        };
        let (net, inputs, cancel) = (Arc::clone(&net), inputs.clone(), cancel.clone());
        tokio::spawn(async move {
            tokio::select! {
                () = cancel.cancelled() => {}
                () = serve(stream, from, &net, &inputs) => {}
            }
            drop(permit);
        });
    }
}

async fn serve(stream: TcpStream, from: SocketAddr, net: &Arc<Net>, inputs: &mpsc::Sender<Input>) {
    let error = match net::greet(stream, Side::Acceptor, false).await {
        Ok((reader, writer)) => {
            let (answers, mut answered) = mpsc::channel(QUEUE);
            // This side sends responses only.
            let (own, mut nothing) = mpsc::channel(1);
            let link = Link { reader, writer, net, inputs, answers };
            let error = link.run(None, &mut nothing, &mut answered).await;
            drop(own);
            error
        }
        Err(error) => Some(error),
    };
    if let Some(error) = error {
        net.report(from, &error);
    }
}

/// One connection, with the senders of its messages and responses.
struct Link<'a> {
    reader: Reader,
    writer: Writer,
    net: &'a Arc<Net>,
    inputs: &'a mpsc::Sender<Input>,
    answers: mpsc::Sender<Message>,
}

impl Link<'_> {
    /// Carries messages in both directions. Returns the reason of the end, or `None` if no message arrived
    /// for a while.
    async fn run(
        self,
        first: Option<Message>,
        queue: &mut mpsc::Receiver<Message>,
        answered: &mut mpsc::Receiver<Message>,
    ) -> Option<CallError> {
        let Self { mut reader, mut writer, net, inputs, answers } = self;
        // The side that opened the connection decides about its end. The other side only limits the silence.
        let (read_idle, write_idle) =
            if first.is_some() { (MAX_IDLE, IDLE) } else { (ACCEPTED_IDLE, MAX_IDLE) };
        let reading = read_all(&mut reader, net, inputs, &answers, read_idle);
        let writing = write_all(&mut writer, net, first, queue, answered, write_idle);
        let ended = either(reading, writing).await;
        if let Some(error) = &ended {
            net::end(reader, writer, error).await;
        }
        ended
    }
}

async fn either<T>(one: impl Future<Output = T>, other: impl Future<Output = T>) -> T {
    tokio::select! {
        result = one => result,
        result = other => result,
    }
}

/// Reads messages, until an error or until no message arrived for `idle`.
async fn read_all(
    reader: &mut Reader,
    net: &Arc<Net>,
    inputs: &mpsc::Sender<Input>,
    answers: &mpsc::Sender<Message>,
    idle: Duration,
) -> Option<CallError> {
    loop {
        let (message, sealed) = match timeout(idle, reader.read(net)).await {
            Err(_) => return None,
            Ok(Err(error)) => return Some(error),
            Ok(Ok(read)) => read,
        };
        let handled = match message {
            Message::Keys(operation) => answers.send(change_keys(net, operation, sealed).await).await.is_ok(),
            message => inputs.send(Input::Message { message, answers: answers.clone() }).await.is_ok(),
        };
        if !handled {
            return None;
        }
    }
}

/// Writes messages, until an error or until there were no messages for `idle`.
async fn write_all(
    writer: &mut Writer,
    net: &Net,
    first: Option<Message>,
    queue: &mut mpsc::Receiver<Message>,
    answered: &mut mpsc::Receiver<Message>,
    idle: Duration,
) -> Option<CallError> {
    let mut next = first;
    loop {
        if let Some(message) = next.take()
            && let Err(error) = writer.write(net, &message).await
        {
            return Some(error);
        }
        let received = async {
            tokio::select! {
                message = queue.recv() => message,
                message = answered.recv() => message,
            }
        };
        match timeout(idle, received).await {
            Ok(Some(message)) => next = Some(message),
            Ok(None) | Err(_) => return None,
        }
    }
}

/// Executes an operation on the own key ring that another server sent.
async fn change_keys(net: &Arc<Net>, operation: KeyOperation, sealed: bool) -> Message {
    // A server without a key must not change the keys of others.
    let result = if !sealed && !net.keys.ring().is_empty() {
        Err(KeyError::NotEncrypted)
    } else {
        let net = Arc::clone(net);
        let applied = tokio::task::spawn_blocking(move || net.keys.apply(&operation)).await;
        applied.unwrap_or_else(|error| Err(KeyError::File(error.to_string())))
    };
    Message::KeysAnswer(result.map_err(|error| error.to_string()))
}
