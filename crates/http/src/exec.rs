//! Programs that run in tasks: finds the agent that holds the allocation and connects to the program there
//! (docs/reference/http-api.md, section 4.2).

use crate::access;
use crate::client_side::{ClientSideError, ExecSession};
use crate::error::ApiError;
use crate::relay::MAX_HOPS;
use crate::state::HttpState;
use caravan_rpc::{Channel, Code, Context, ItemStream, RpcError, methods};
use caravan_types::acl::Secret;
use caravan_types::wire::{ExecIn, ExecOpen, ExecOut};
use futures::{FutureExt, Stream, StreamExt, stream};
use http::StatusCode;
use std::sync::Arc;
use tokio::sync::mpsc;

/// The number of queued messages for a program that reads slowly.
const QUEUE: usize = 16;

/// Opens a session in this agent or in the agent that holds the allocation.
pub(crate) async fn open(state: &HttpState, open: ExecOpen) -> Result<ExecSession, ClientSideError> {
    let unknown = || {
        let text = format!("Unknown allocation \"{}\"", open.alloc);
        ClientSideError::new(StatusCode::NOT_FOUND, text)
    };
    if let Some(client) = &state.client {
        client.ready().await;
    }
    if let Some(client) = state.client.as_deref().filter(|client| client.has_alloc(&open.alloc)) {
        return client.exec(&open).await;
    }
    if open.hops > MAX_HOPS {
        return Err(unknown());
    }
    let (channel, secret) = match &state.server {
        Some(server) => {
            let row = server.store().snapshot().alloc(&open.alloc).cloned().ok_or_else(unknown)?;
            let channel = server
                .node_channel(&row.node_id)
                .map_err(|_| ClientSideError::new(StatusCode::NOT_FOUND, "No path to node"))?;
            (channel, Secret::default())
        }
        None => (state.relay.clone().filter(|_| open.hops == 0).ok_or_else(unknown)?, open.secret.clone()),
    };
    Ok(remote(&channel, ExecOpen { hops: open.hops + 1, secret, ..open }))
}

/// Opens a session over a connection to another agent.
fn remote(channel: &Channel, open: ExecOpen) -> ExecSession {
    let (input, inputs) = mpsc::channel::<ExecIn>(QUEUE);
    let inputs = stream::unfold(inputs, |mut inputs| async move { Some((inputs.recv().await?, inputs)) });
    let output = channel.duplex::<methods::Exec>(open, inputs).map(|item| item.map_err(refused));
    ExecSession { input, output: output.boxed() }
}

fn refused(error: RpcError) -> ClientSideError {
    let error = ApiError::from(error);
    ClientSideError { status: error.status, message: error.message }
}

/// Answers exec sessions of other agents; the RPC side of [`open`].
pub(crate) fn serve(
    state: Arc<HttpState>,
    asked: ExecOpen,
    inputs: ItemStream<ExecIn>,
) -> impl Stream<Item = Result<ExecOut, RpcError>> + Send + 'static {
    let opening = async move {
        // A connection to a server's port alone does not authorize the caller.
        let allowed = match &state.server {
            Some(server) => access::may_exec(server, &asked),
            None => Ok(()),
        };
        let opened = match allowed {
            Ok(()) => open(&state, asked.clone()).await,
            Err(error) => Err(error.into()),
        };
        match opened {
            Ok(session) => {
                let lost = async move {
                    match &state.server {
                        Some(server) => access::exec_lost(server, &asked).await,
                        None => std::future::pending().await,
                    }
                };
                let refusal = lost.map(|error| Err(rpc_error(&error.into())));
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
                    // The caller closed its input, or the program closed its standard input. The program may continue.
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
/// direction while the other one is full. Without a channel to the program, returns at once.
pub(crate) async fn room(to: Option<&mpsc::Sender<ExecIn>>) {
    if let Some(to) = to {
        // The next send reports a closed channel.
        let _ = to.reserve().await;
    }
}

fn rpc_error(error: &ClientSideError) -> RpcError {
    RpcError::new(Code::Internal, error.message.clone()).with_http_status(error.status.as_u16())
}

/// Returns the RPC routes by which other agents run programs in this agent's tasks.
pub(crate) fn rpc(
    state: Arc<HttpState>,
) -> impl Fn(Context, ExecOpen, ItemStream<ExecIn>) -> futures::future::Ready<Result<Outputs, RpcError>>
+ Send
+ Sync {
    move |_, asked, inputs| futures::future::ready(Ok(serve(state.clone(), asked, inputs).boxed()))
}

type Outputs = stream::BoxStream<'static, Result<ExecOut, RpcError>>;
