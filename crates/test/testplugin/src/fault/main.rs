//! The fault plugin: a CSI plugin that enforces the order of calls, logs each of them, and
//! fails, delays, hangs or dies on command.
//!
//! Its instances on several nodes share one directory, the *san*: the existing volumes, and where they are attached,
//! staged and published. The same program is the writer: a task that continuously stamps a volume.

mod controller;
#[path = "../endpoint.rs"]
mod endpoint;
mod faults;
mod fuse;
mod identity;
mod log;
mod mounts;
mod node;
mod options;
mod san;
mod writer;

use crate::endpoint::{Services, socket};
use crate::faults::{Fault, Faults, When};
use crate::log::{About, Ended, Log};
use crate::options::{Command, Serve};
use crate::san::San;
use anyhow::{Context, Result, bail};
use caravan_proto::csi::{
    controller_server::ControllerServer, identity_server::IdentityServer, node_server::NodeServer,
};
use clap::Parser;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::Arc;
use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{Code, Response, Status};

/// The state that the three services share.
#[derive(Clone, Debug)]
struct Plugin {
    options: Arc<Serve>,
    san: Arc<San>,
    faults: Arc<Faults>,
    log: Arc<Log>,
    /// The volumes with a call in progress in this process.
    busy: Arc<Mutex<BTreeSet<String>>>,
    /// Whether this call must succeed partially.
    half: bool,
}

/// The prefix of a refusal to undo an unknown step, by which the log recognises the refusal.
const NOT_KNOWN: &str = "it is not known here";

/// The result of a call: its answer, and whether it had an effect.
type Done<A> = Result<(A, bool), Status>;

/// A guard that removes a volume from the volumes with a call in progress.
struct Busy<'a> {
    plugin: &'a Plugin,
    volume: &'a str,
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        let mut busy = self.plugin.busy.lock();
        busy.remove(self.volume);
    }
}

impl Plugin {
    /// Runs a call with its log entries, its faults, and the exclusion of other calls on the volume.
    ///
    /// A call continues after its caller's timeout, as in most plugins. Until the call ends,
    /// other calls on the volume return ABORTED (CSI specification, "Timeouts" and the error table).
    async fn call<A: Send + 'static>(
        &self,
        about: About,
        act: impl FnOnce(&Self) -> Done<A> + Send + 'static,
    ) -> Result<Response<A>, Status> {
        let plugin = self.clone();
        let call = tokio::spawn(async move {
            let id = plugin.log.begin(&about);
            let (result, effect) = plugin.carry_out(&about, act).await;
            let code = result.as_ref().map_or_else(Status::code, |_| Code::Ok);
            let unknown = result.as_ref().is_err_and(|status| status.message().starts_with(NOT_KNOWN));
            plugin.log.end(id, &about, Ended { code, effect, unknown });
            result
        });
        call.await.map_err(|e| Status::internal(format!("the call broke: {e}")))?.map(Response::new)
    }

    async fn carry_out<A: Send + 'static>(
        &self,
        about: &About,
        act: impl FnOnce(&Self) -> Done<A> + Send + 'static,
    ) -> (Result<A, Status>, bool) {
        let _busy = if about.volume.is_empty() {
            None
        } else {
            let mut busy = self.busy.lock();
            if !busy.insert(about.volume.clone()) {
                return (Err(Status::aborted("an operation on this volume is pending")), false);
            }
            Some(Busy { plugin: self, volume: &about.volume })
        };
        let mut plugin = self.clone();
        match self.suffer(about, When::Before).await {
            Ok(half) => plugin.half = half,
            Err(status) => return (Err(status), false),
        }
        let half = plugin.half;
        let acted = tokio::task::spawn_blocking(move || act(&plugin)).await;
        let (answer, effect) = match acted {
            Ok(Ok(done)) => done,
            Ok(Err(status)) => return (Err(status), half),
            Err(error) => return (Err(Status::internal(format!("the call broke: {error}"))), true),
        };
        match self.suffer(about, When::After).await {
            Ok(_) => (Ok(answer), effect),
            Err(status) => (Err(status), effect),
        }
    }

    /// Applies the fault rules to a call. Returns whether the call must succeed partially.
    async fn suffer(&self, about: &About, when: When) -> Result<bool, Status> {
        match self.faults.take(about, when) {
            None => Ok(false),
            Some(Fault::Half) => Ok(true),
            Some(Fault::Fail(code)) => Err(Status::new(code, "told to fail")),
            Some(Fault::Delay(time)) => {
                tokio::time::sleep(time).await;
                Ok(false)
            }
            Some(Fault::Hang) => {
                self.faults.hang(about, when).await;
                Ok(false)
            }
            Some(Fault::Exit) => {
                self.log.exit();
                std::process::exit(1)
            }
        }
    }
}

fn main() -> Result<()> {
    match Command::parse() {
        Command::Write(options) => writer::run(&options),
        Command::Serve(options) => {
            let runtime =
                tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
            runtime.block_on(serve(options))
        }
    }
}

async fn serve(options: Serve) -> Result<()> {
    let socket = socket(&options.endpoint)?;
    let san = San::open(&options.san)?;
    let log = Log::open(&san.trace(), &options.nodeid)?;
    let removed = match options.services {
        Services::Controller => Vec::new(),
        Services::All | Services::Node => san.begin_node(&options.nodeid, options.forget)?,
    };
    log.start(&removed);
    let plugin = Plugin {
        faults: Arc::new(Faults::new(&options.san)),
        options: Arc::new(options),
        san: Arc::new(san),
        log: Arc::new(log),
        busy: Arc::default(),
        half: false,
    };
    if let Err(error) = std::fs::remove_file(&socket)
        && error.kind() != std::io::ErrorKind::NotFound
    {
        bail!("cannot remove the old socket {}: {error}", socket.display());
    }
    let listener = UnixListener::bind(&socket).with_context(|| format!("listen on {}", socket.display()))?;
    let mut asked = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    let log = Arc::clone(&plugin.log);
    tokio::spawn(async move {
        asked.recv().await;
        log.exit();
        std::process::exit(0);
    });
    let services = plugin.options.services;
    tonic::transport::Server::builder()
        .add_service(IdentityServer::new(plugin.clone()))
        .add_optional_service((services != Services::Node).then(|| ControllerServer::new(plugin.clone())))
        .add_optional_service((services != Services::Controller).then(|| NodeServer::new(plugin.clone())))
        .serve_with_incoming(UnixListenerStream::new(listener))
        .await?;
    Ok(())
}
