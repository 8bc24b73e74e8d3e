//! The socket, the server and its shutdown.

use crate::{error::Error, service::Service};
use caravan_proto::csi::{
    controller_server::ControllerServer, group_controller_server::GroupControllerServer,
    identity_server::IdentityServer, node_server::NodeServer,
};
use rustix::fs::Mode;
use std::{
    fs, io,
    os::unix::{fs::FileTypeExt, fs::MetadataExt, net::UnixStream},
    path::Path,
    time::Duration,
};
use tokio::{
    net::UnixListener,
    signal::unix::{SignalKind, signal},
};
use tokio_stream::wrappers::UnixListenerStream;

/// The longest time that running calls may take after the signal to end.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The number of checks before a socket counts as that of another process, and the delay between checks.
const LOOKS: u32 = 20;
const BETWEEN_LOOKS: Duration = Duration::from_millis(25);

/// Serves until SIGTERM or SIGINT. Then accepts no more calls, waits for running calls and removes the socket.
pub(crate) async fn serve(socket: &Path, service: Service) -> Result<(), Error> {
    let (mut terminate, mut interrupt) = signal(SignalKind::terminate())
        .and_then(|terminate| Ok((terminate, signal(SignalKind::interrupt())?)))
        .map_err(Error::io("watch for signals to end", socket))?;
    let listener = listen(socket)?;
    let ours = identity(socket);
    tracing::info!(socket = %socket.display(), "serving");

    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let server = tonic::transport::Server::builder()
        .add_service(IdentityServer::new(service.clone()))
        .add_service(ControllerServer::new(service.clone()))
        .add_service(GroupControllerServer::new(service.clone()))
        .add_service(NodeServer::new(service))
        .serve_with_incoming_shutdown(UnixListenerStream::new(listener), async {
            // An error means that the sender was dropped, which is a shutdown as well.
            let _ = stopped.await;
        });
    let mut server = Box::pin(server);
    let ended = tokio::select! {
        ended = &mut server => Some(ended),
        _ = terminate.recv() => None,
        _ = interrupt.recv() => None,
    };
    let ended = match ended {
        Some(ended) => Some(ended),
        None => {
            tracing::info!("shutting down");
            let _ = stop.send(());
            tokio::time::timeout(TIMEOUT, server).await.ok()
        }
    };
    // Another process may have created its own socket there meanwhile.
    if ours.is_some() && identity(socket) == ours {
        let _ = fs::remove_file(socket);
    }
    match ended {
        Some(Err(error)) => Err(Error::io("serve on", socket)(io::Error::other(error))),
        Some(Ok(())) => Ok(()),
        None => {
            tracing::warn!("some calls did not end before the timeout");
            Ok(())
        }
    }
}

/// Listens on a socket that only this user can open. Replaces the socket of a killed process, on which no process
/// listens.
fn listen(socket: &Path) -> Result<UnixListener, Error> {
    match fs::symlink_metadata(socket) {
        Ok(metadata) if !metadata.file_type().is_socket() => {
            return Err(Error::Inconsistent(format!("{} is there and is not a socket", socket.display())));
        }
        Ok(_) if is_served(socket) => {
            return Err(Error::Inconsistent(format!("another process serves on {}", socket.display())));
        }
        Ok(_) => fs::remove_file(socket).map_err(Error::io("remove the stale socket", socket))?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(Error::io("look at", socket)(error)),
    }
    // Use the umask, not chmod(2) afterwards, so that other users can never open the socket. No other code creates
    // files at this point.
    let before = rustix::process::umask(Mode::from_raw_mode(0o177));
    let listener = UnixListener::bind(socket).map_err(Error::io("listen on", socket));
    rustix::process::umask(before);
    listener
}

/// Returns whether another process listens on a socket and continues to. A child of a killed plugin keeps the socket
/// open until its execve(2).
fn is_served(socket: &Path) -> bool {
    for _ in 0..LOOKS {
        if UnixStream::connect(socket).is_err() {
            return false;
        }
        std::thread::sleep(BETWEEN_LOOKS);
    }
    true
}

fn identity(socket: &Path) -> Option<(u64, u64)> {
    fs::symlink_metadata(socket).ok().map(|metadata| (metadata.dev(), metadata.ino()))
}
