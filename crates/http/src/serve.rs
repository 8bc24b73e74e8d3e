//! Listening.

use crate::state::HttpState;
use axum::serve::ListenerExt;
use std::io;
use std::time::Duration;
use tokio::net::{TcpListener, UnixListener};
use tokio_util::sync::CancellationToken;

/// How long requests may take to end once the agent stops.
const PATIENCE: Duration = Duration::from_secs(5);

/// Where requests come from.
#[derive(Debug)]
pub enum Listener {
    /// A TCP port.
    Tcp(TcpListener),
    /// A unix socket; whoever made it removes it.
    Unix(UnixListener),
}

impl From<TcpListener> for Listener {
    fn from(listener: TcpListener) -> Self {
        Self::Tcp(listener)
    }
}

impl From<UnixListener> for Listener {
    fn from(listener: UnixListener) -> Self {
        Self::Unix(listener)
    }
}

/// Answers requests until cancelled. Blocking queries then answer at once, streams end, and what still
/// runs after a few seconds is dropped.
///
/// # Errors
/// If the listener fails.
pub async fn serve(
    listener: impl Into<Listener>,
    mut state: HttpState,
    cancel: CancellationToken,
) -> io::Result<()> {
    // Either the agent as a whole stops, or only its listening.
    let stopping = state.stopping.child_token();
    state.stopping = stopping.clone();
    let app = crate::router(state);
    let stop = cancel.clone().cancelled_owned();
    let late = async {
        cancel.cancelled().await;
        stopping.cancel();
        tokio::time::sleep(PATIENCE).await;
    };
    let served = async {
        match listener.into() {
            Listener::Tcp(listener) => {
                // An answer is written at once, however small.
                let listener = listener.tap_io(|stream| {
                    if let Err(error) = stream.set_nodelay(true) {
                        tracing::debug!(%error, "small answers may be delayed");
                    }
                });
                axum::serve(listener, app).with_graceful_shutdown(stop).await
            }
            Listener::Unix(listener) => axum::serve(listener, app).with_graceful_shutdown(stop).await,
        }
    };
    tokio::select! {
        result = served => result,
        () = late => {
            tracing::warn!("requests were still running when the agent stopped");
            Ok(())
        }
    }
}
