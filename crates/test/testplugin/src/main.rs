//! A CSI plugin for tests, with the habits of other plugins. It was written from the CSI specification alone, and
//! differs from the bundled plugin in as many ways as possible.
//!
//! The plugin is configured by arguments only, logs to standard error, and does not remove its socket. It keeps its
//! state in one JSON file. It requires ControllerPublishVolume and only records NodeStageVolume. It runs `mount` and
//! `umount` to mount from its own state directory, on a target that it creates and removes. Flags add further habits
//! and faults.

mod controller;
mod endpoint;
mod identity;
mod mounts;
mod node;
mod options;
mod state;

use anyhow::{Context, Result};
use caravan_proto::csi::{
    controller_server::ControllerServer, identity_server::IdentityServer, node_server::NodeServer,
};
use clap::Parser;
use endpoint::{Services, socket};
use options::Options;
use parking_lot::Mutex;
use state::Store;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::Status;

/// The state that the three services share.
#[derive(Clone, Debug)]
struct Plugin {
    options: Arc<Options>,
    store: Arc<Store>,
    /// The number of remaining failures of each call.
    failures: Faults,
    /// The number of remaining lost answers of each call.
    losses: Faults,
}

type Faults = Arc<Mutex<BTreeMap<String, u32>>>;

/// Removes the data of a volume; mounts of other programs inside it stay intact.
fn remove_tree(path: &std::path::Path) -> Result<(), Status> {
    let removed = caravan_sys::tree::remove(path, caravan_sys::tree::Seals::Keep);
    removed.map(drop).map_err(|error| Status::failed_precondition(caravan_sys::describe(&error)))
}

impl Plugin {
    /// Logs a call, and fails it if a failure is due. Every service method calls this first.
    fn begin(&self, call: &str, about: &str) -> Result<(), Status> {
        let noise = if self.options.chatty { 200 } else { 0 };
        for n in 0..noise {
            eprintln!("I{n:04} {call}: a line that nobody reads, as some plugins write by the thousand");
        }
        eprintln!("call {call} {about}");
        match take(&self.failures, call) {
            true => Err(Status::unavailable("the back end is busy")),
            false => Ok(()),
        }
    }

    /// Answers a call, logs its refusal, or loses the answer.
    fn end<A>(&self, call: &str, result: Result<A, Status>) -> Result<tonic::Response<A>, Status> {
        match result {
            Ok(_) if take(&self.losses, call) => {
                eprintln!("lost the answer of {call}");
                Err(Status::unavailable("the back end did not answer"))
            }
            Ok(answer) => Ok(tonic::Response::new(answer)),
            Err(status) => {
                eprintln!("refused {call} {:?}: {}", status.code(), status.message());
                Err(status)
            }
        }
    }
}

/// Counts a fault down. Returns whether it is due.
fn take(faults: &Faults, call: &str) -> bool {
    let mut faults = faults.lock();
    match faults.get_mut(call) {
        Some(left) if *left > 0 => {
            *left -= 1;
            true
        }
        _ => false,
    }
}

fn main() -> Result<()> {
    let options = Options::parse();
    eprintln!("starting with {options:?}");
    let socket = socket(&options.endpoint)?;
    let store = Store::open(&options.statedir)?;
    if options.forget {
        store.drop_uses()?;
    }
    let faults = |all: &[(String, u32)]| Arc::new(Mutex::new(all.iter().cloned().collect()));
    let plugin = Plugin {
        failures: faults(&options.fail),
        losses: faults(&options.lose),
        options: Arc::new(options),
        store: Arc::new(store),
    };
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(serve(plugin, socket))
}

async fn serve(plugin: Plugin, socket: PathBuf) -> Result<()> {
    tokio::time::sleep(Duration::from_millis(plugin.options.slow_start_ms)).await;
    // An existing socket makes bind(2) fail, which many plugins do not handle.
    let listener = UnixListener::bind(&socket).with_context(|| format!("listen on {}", socket.display()))?;
    eprintln!("listening on {}", socket.display());
    let services = plugin.options.services;
    tonic::transport::Server::builder()
        .add_service(IdentityServer::new(plugin.clone()))
        .add_optional_service((services != Services::Node).then(|| ControllerServer::new(plugin.clone())))
        .add_optional_service((services != Services::Controller).then(|| NodeServer::new(plugin.clone())))
        .serve_with_incoming(UnixListenerStream::new(listener))
        .await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::socket;
    use std::path::Path;

    #[test]
    fn endpoints_are_urls_of_sockets() {
        assert_eq!(socket("unix:///csi/csi.sock").unwrap(), Path::new("/csi/csi.sock"));
        assert!(socket("${CSI_ENDPOINT}").is_err() && socket("/csi/csi.sock").is_err());
    }
}
