//! Programs that run in tasks: the search for the agent that holds the allocation, and the connection to the
//! program there (docs/reference/http-api.md, section 4.2).

use crate::access;
use crate::client_side::{self, ClientSide};
use crate::error::{ApiError, ClientCall};
use crate::leader;
use crate::region;
use crate::relay::MAX_HOPS;
use crate::state::HttpState;
use caravan_client::{ExecEvent, ExecInput, ExecRequest, ExecStream};
use caravan_messages::{ExecIn, ExecOpen, ExecOut};
use caravan_rpc::{Channel, Code, Context, ItemStream, PeerIdentity, RpcError, methods};
use caravan_types::acl::Secret;
use futures::{FutureExt, Stream, StreamExt, stream};
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

/// The number of queued messages for a program that reads slowly.
const QUEUE: usize = 16;

/// A program that runs in a task. Dropping the output ends the program.
pub(crate) struct ExecSession {
    /// Messages to the program.
    pub(crate) input: mpsc::Sender<ExecIn>,
    /// Messages from the program; an error is the last item.
    pub(crate) output: stream::BoxStream<'static, Result<ExecOut, ApiError>>,
}

/// Opens a session in this agent or in the agent that holds the allocation.
pub(crate) async fn open(state: &HttpState, open: ExecOpen) -> Result<ExecSession, ApiError> {
    let unknown = || ApiError::not_found(format!("Unknown allocation \"{}\"", open.alloc));
    if is_foreign(state, &open) {
        if open.hops > MAX_HOPS {
            return Err(region::crossed(&open.region));
        }
        let channel = match &state.server {
            Some(server) => region::reach(server, &open.region).await?,
            None => state.relay.clone().filter(|_| open.hops == 0).ok_or_else(ApiError::no_leader)?,
        };
        return Ok(remote(&channel, ExecOpen { hops: open.hops + 1, ..open }));
    }
    if let Some(client) = &state.client {
        client_side::ready(client.as_ref()).await;
    }
    if let Some(client) = state.client.as_deref().filter(|client| client.has_alloc(&open.alloc)) {
        return local(client, &open).await;
    }
    if open.hops > MAX_HOPS {
        return Err(unknown());
    }
    let (channel, secret) = match &state.server {
        Some(server) => {
            let row = server.store().snapshot().alloc(&open.alloc).cloned().ok_or_else(unknown)?;
            let channel = server.node_channel(&row.node_id).await.map_err(ApiError::no_path)?;
            (channel, Secret::default())
        }
        None => (state.relay.clone().filter(|_| open.hops == 0).ok_or_else(unknown)?, open.secret.clone()),
    };
    Ok(remote(&channel, ExecOpen { hops: open.hops + 1, secret, ..open }))
}

/// Returns whether a session is for another region, whose servers then check the caller's right.
pub(crate) fn is_foreign(state: &HttpState, open: &ExecOpen) -> bool {
    !open.region.is_empty() && open.region != state.info.region
}

/// Starts a program in a task of this node and adapts it to the messages of the protocol.
async fn local(client: &dyn ClientSide, open: &ExecOpen) -> Result<ExecSession, ApiError> {
    let refused = |error| ApiError::of_client(ClientCall::Exec, &error);
    let command = match open.action.as_str() {
        "" => open.command.clone(),
        action => client.action(&open.alloc, &open.task, action).map_err(refused)?,
    };
    let request = ExecRequest { command, tty: open.tty };
    let ExecStream { input: to_program, output } =
        client.exec_stream(&open.alloc, &open.task, request).await.map_err(refused)?;
    let (input, mut inputs) = mpsc::channel(QUEUE);
    // The session ends when either side ends. The program is ended when its output has no reader.
    tokio::spawn(async move {
        while let Some(message) = inputs.recv().await {
            let message = match message {
                ExecIn::Data(data) => ExecInput::Data(data),
                ExecIn::Close => ExecInput::Close,
                ExecIn::Resize { rows, columns } => ExecInput::Resize { rows, columns },
            };
            if to_program.send(message).await.is_err() {
                return;
            }
        }
    });
    let output = ReceiverStream::new(output).map(|event| match event {
        Ok(ExecEvent::Stdout(data)) => Ok(ExecOut::Stdout(data)),
        Ok(ExecEvent::Stderr(data)) => Ok(ExecOut::Stderr(data)),
        Ok(ExecEvent::StdoutClosed) => Ok(ExecOut::StdoutClosed),
        Ok(ExecEvent::StderrClosed) => Ok(ExecOut::StderrClosed),
        Ok(ExecEvent::Exited(code)) => Ok(ExecOut::Exited(code)),
        Err(error) => Err(ApiError::of_program(&error)),
    });
    Ok(ExecSession { input, output: output.boxed() })
}

/// Opens a session over a connection to another agent.
fn remote(channel: &Channel, open: ExecOpen) -> ExecSession {
    let (input, inputs) = mpsc::channel::<ExecIn>(QUEUE);
    let inputs = ReceiverStream::new(inputs);
    let output = channel.duplex::<methods::Exec>(open, inputs).map(|item| item.map_err(ApiError::from));
    ExecSession { input, output: output.boxed() }
}

/// Answers exec sessions of other agents; the RPC side of [`open`].
pub(crate) fn serve(
    state: Arc<HttpState>,
    peer: PeerIdentity,
    asked: ExecOpen,
    inputs: ItemStream<ExecIn>,
) -> impl Stream<Item = Result<ExecOut, RpcError>> + Send + 'static {
    let opening = async move {
        let is_foreign = is_foreign(&state, &asked);
        if is_foreign && matches!(peer, PeerIdentity::Server(_)) {
            return stream::iter([Err(rpc_error(&region::crossed(&asked.region)))]).right_stream();
        }
        // A connection to a server's port alone does not authorize the caller.
        let judge = state.server.clone().filter(|_| !is_foreign);
        let allowed = match &judge {
            Some(server) => leader::surely(server, || access::may_exec(server, &asked)).await,
            None => Ok(()),
        };
        let opened = match allowed {
            Ok(()) => open(&state, asked.clone()).await,
            Err(error) => Err(error),
        };
        match opened {
            Ok(session) => {
                let lost = async move {
                    match &judge {
                        Some(server) => access::exec_lost(server, &asked).await,
                        None => std::future::pending().await,
                    }
                };
                let refusal = lost.map(|error| Err(rpc_error(&error)));
                until(answers(session, inputs), refusal).left_stream()
            }
            Err(error) => stream::iter([Err(rpc_error(&error))]).right_stream(),
        }
    };
    stream::once(opening).flatten()
}

/// Returns the items of a stream until a future completes, whose outcome is then the last item.
fn until<T: Send + 'static>(
    items: impl Stream<Item = T> + Send + 'static,
    last: impl Future<Output = T> + Send + 'static,
) -> impl Stream<Item = T> + Send + 'static {
    let state = Some((items.boxed(), last.boxed()));
    stream::unfold(state, |state| async {
        let (mut items, mut last) = state?;
        tokio::select! {
            item = items.next() => item.map(|item| (item, Some((items, last)))),
            item = &mut last => Some((item, None)),
        }
    })
}

/// Returns the answers of a session. Passes inputs on while the answers are read.
fn answers(
    session: ExecSession,
    inputs: ItemStream<ExecIn>,
) -> impl Stream<Item = Result<ExecOut, RpcError>> + Send + 'static {
    let state = (Some(session.input), Some(inputs), session.output);
    stream::unfold(state, |(mut input, mut inputs, mut output)| async move {
        loop {
            tokio::select! {
                item = output.next() => {
                    let item = item?.map_err(|error| rpc_error(&error));
                    return Some((item, (input, inputs, output)));
                }
                item = next_of(&input, &mut inputs) => {
                    let sent = match (item, &input) {
                        (Some(Ok(item)), Some(to)) => to.try_send(item).is_ok(),
                        _ => false,
                    };
                    // The caller closed its input, or the program closed its standard input. The program may
                    // continue.
                    if !sent {
                        (input, inputs) = (None, None);
                    }
                }
            }
        }
    })
}

async fn next_of(
    to: &Option<mpsc::Sender<ExecIn>>,
    inputs: &mut Option<ItemStream<ExecIn>>,
) -> Option<Result<ExecIn, RpcError>> {
    room(to.as_ref()).await;
    match inputs {
        Some(inputs) => inputs.next().await,
        None => std::future::pending().await,
    }
}

/// Waits until the program can take another message. The task that carries both directions must not block on one
/// direction while the other one is full. Without a channel to the program, returns immediately.
pub(crate) async fn room(to: Option<&mpsc::Sender<ExecIn>>) {
    if let Some(to) = to {
        // The next send reports a closed channel.
        let _ = to.reserve().await;
    }
}

fn rpc_error(error: &ApiError) -> RpcError {
    RpcError::new(Code::Internal, error.message.clone()).with_http_status(error.status.as_u16())
}

/// Returns the RPC routes by which other agents run programs in this agent's tasks.
pub(crate) fn rpc(
    state: Arc<HttpState>,
) -> impl Fn(Context, ExecOpen, ItemStream<ExecIn>) -> futures::future::Ready<Result<Outputs, RpcError>>
+ Send
+ Sync {
    move |context, asked, inputs| {
        futures::future::ready(Ok(serve(state.clone(), context.peer, asked, inputs).boxed()))
    }
}

type Outputs = stream::BoxStream<'static, Result<ExecOut, RpcError>>;
