//! The process of a plugin: handshake, services, end.

use crate::device::{DevicePlugin, DeviceService};
use crate::driver::{DriverPlugin, DriverService};
use crate::{Info, error, log};
use caravan_proto::plugins::base::base_plugin_server::BasePluginServer;
use caravan_proto::plugins::device::device_plugin_server::DevicePluginServer;
use caravan_proto::plugins::driver::driver_server::DriverServer;
use caravan_proto::plugins::health::health_server::HealthServer;
use caravan_proto::plugins::host::grpc_broker_server::GrpcBrokerServer;
use caravan_proto::plugins::host::grpc_controller_server::GrpcControllerServer;
use caravan_proto::plugins::host::grpc_stdio_server::GrpcStdioServer;
use handshake::Socket;
use host::HostServices;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio_stream::wrappers::UnixListenerStream;
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;
use tonic::transport::Server;
use tonic::{Response, Status};

pub(crate) mod base;
mod handshake;
mod host;
pub(crate) mod stream;

/// The response to a call.
pub(crate) type Reply<T> = Result<Response<T>, Status>;

/// The time for calls to end after the request to shut down. Agents kill the plugin after two seconds.
const GRACE: Duration = Duration::from_secs(1);

/// The reason why a plugin cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The program was not started by an agent.
    #[error(
        "this program is a plugin and runs only under an agent: put it into the agent's plugin_dir, and name it in a \
         plugin block of the agent's configuration"
    )]
    NotAnAgent,
    /// The agent speaks other versions of the protocol.
    #[error("the agent offers protocol versions {versions}, and the plugin needs version 2")]
    Version {
        /// The protocol versions of the agent.
        versions: String,
    },
    /// The agent expects TLS between itself and the plugin.
    #[error("the agent expects TLS on the plugin's socket, which the plugin does not support")]
    Tls,
    /// The socket cannot be created.
    #[error("cannot listen on a socket in {}", dir.display())]
    Socket {
        /// The directory of the socket.
        dir: PathBuf,
        /// The cause of the failure.
        source: io::Error,
    },
    /// Standard output, a signal or the socket fails.
    #[error("cannot serve the plugin")]
    Io(#[from] io::Error),
    /// The server fails.
    #[error("cannot serve the plugin")]
    Transport(#[from] tonic::transport::Error),
}

/// Serves a driver until the agent ends it. Returns the exit code for the main function.
pub async fn serve_driver<P: DriverPlugin>(plugin: P) -> ExitCode {
    let info = plugin.info();
    finish(
        serve(&info, |cancel| {
            let service = Arc::new(DriverService::new(plugin, cancel));
            let driver = DriverServer::from_arc(Arc::clone(&service));
            let driver = driver.max_decoding_message_size(usize::MAX).max_encoding_message_size(usize::MAX);
            shared(service).add_service(driver)
        })
        .await,
    )
}

/// Serves a device plugin until the agent ends it. Returns the exit code for the main function.
pub async fn serve_device<P: DevicePlugin>(plugin: P) -> ExitCode {
    let info = plugin.info();
    finish(
        serve(&info, |cancel| {
            let service = Arc::new(DeviceService::new(plugin, cancel));
            let device = DevicePluginServer::from_arc(Arc::clone(&service));
            let device = device.max_decoding_message_size(usize::MAX).max_encoding_message_size(usize::MAX);
            shared(service).add_service(device)
        })
        .await,
    )
}

/// Returns the services that both kinds of plugins have.
fn shared<P: base::Plugin>(plugin: Arc<P>) -> Routes {
    let base = BasePluginServer::new(base::Base(plugin));
    Routes::new(base.max_decoding_message_size(usize::MAX).max_encoding_message_size(usize::MAX))
}

fn finish(result: Result<(), ServeError>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            // Without a reader there is nothing else to do.
            let _unread = writeln!(io::stderr(), "{}", error::chain(&reason));
            ExitCode::FAILURE
        }
    }
}

async fn serve(info: &Info, routes: impl FnOnce(CancellationToken) -> Routes) -> Result<(), ServeError> {
    let dir = handshake::read(|name| std::env::var(name).ok())?;
    log::install(&info.name);
    let cancel = CancellationToken::new();
    let signals = tokio::spawn(watch_signals(cancel.clone())?);
    let Socket { listener, path } = Socket::open(&dir)?;
    let result = serve_on(listener, &path, routes(cancel.clone()), cancel).await;
    signals.abort();
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!(error = &error as &dyn std::error::Error, "the socket cannot be removed");
        }
        _ => {}
    }
    result
}

async fn serve_on(
    listener: std::os::unix::net::UnixListener,
    path: &std::path::Path,
    routes: Routes,
    cancel: CancellationToken,
) -> Result<(), ServeError> {
    listener.set_nonblocking(true)?;
    let listener = tokio::net::UnixListener::from_std(listener)?;
    let host = HostServices { cancel: cancel.clone() };
    let routes = routes
        .add_service(HealthServer::new(host.clone()))
        .add_service(GrpcControllerServer::new(host.clone()))
        .add_service(GrpcStdioServer::new(host.clone()))
        .add_service(GrpcBrokerServer::new(host));
    {
        let mut stdout = io::stdout().lock();
        stdout.write_all(handshake::line(path).as_bytes())?;
        stdout.flush()?;
    }
    let incoming = UnixListenerStream::new(listener);
    let serving = Server::builder()
        .add_routes(routes)
        .serve_with_incoming_shutdown(incoming, cancel.clone().cancelled_owned());
    tokio::select! {
        result = serving => Ok(result?),
        () = grace(&cancel) => Ok(()),
    }
}

async fn grace(cancel: &CancellationToken) {
    cancel.cancelled().await;
    tokio::time::sleep(GRACE).await;
}

/// Ignores the interrupt key, which also reaches the agent, and ends the plugin on SIGTERM. The handlers exist when
/// the function returns. Programs that the plugin starts have the default actions, because execve(2) resets handlers.
fn watch_signals(cancel: CancellationToken) -> io::Result<impl Future<Output = ()> + Send> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    Ok(async move {
        loop {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => cancel.cancel(),
            }
        }
    })
}
