//! The bundled CSI plugin: volumes are directories of the host, file system images, devices, or thin volumes of LVM.
//!
//! The plugin runs as a separate process (`caravan plugin hostpath`), usually as a task. It communicates with the
//! orchestrator only through CSI: each call carries its staging and target paths. It works with the host's paths as
//! well as inside its own root. A root requires that the paths of the calls and the state directory are on mounts
//! that propagate to the host.
//!
//! `request` and `mutable` check requests (no I/O). `record` defines the records, which `store` keeps. `controller`,
//! `modify`, `snapshot`, `group`, `expand` and `node` carry out calls, with the help of `mounts`, `loops`, `quota`,
//! `thin` and `copy`. `tidy` completes or undoes the unfinished work of a killed plugin. See
//! `docs/design/hostpath.md`.

mod controller;
mod copy;
mod error;
mod expand;
mod group;
mod group_service;
mod loops;
mod modify;
mod mountinfo;
mod mounts;
mod mutable;
mod node;
mod options;
mod quota;
mod record;
mod request;
mod serve;
mod service;
mod snapshot;
mod store;
mod thin;
mod tidy;
mod tool;

use std::{io, path::Path, path::PathBuf, process::ExitCode};
use tracing_subscriber::EnvFilter;

pub use error::Error;
pub use options::{Invocation, NODE_SEGMENT, Options, Surroundings, USAGE, UsageError};
pub use request::FsKind;
pub use thin::ThinPool;

/// The default state directory.
const STATE_DIR: &str = "/var/lib/caravan-hostpath";

/// The default root of the plugin in a task with its own root. It is a directory of the host with mount propagation,
/// shared by all allocations of the plugin.
const PLUGIN_ROOT: &str = "/local/csi";

/// The variable with the plugin's root on the host; the agent sets it for plugins without their own root.
const BASE_VARIABLE: &str = "CARAVAN_CSI_STAGE_PUBLISH_BASE_DIR";

/// Name of the state directory below the plugin's root.
const STATE_NAME: &str = "hostpath-state";

/// Runs the plugin with the arguments after `caravan plugin hostpath` until SIGTERM or SIGINT. Exit codes: 0 after a
/// signal, 2 for a wrong command line, 1 for any other error.
pub fn run(arguments: impl IntoIterator<Item = String>) -> ExitCode {
    // `start` is not generic, so that the plugin is compiled once in this crate and not in each caller's.
    start(arguments.into_iter().collect())
}

fn start(arguments: Vec<String>) -> ExitCode {
    let host_name = rustix::system::uname();
    let surroundings = Surroundings {
        variable: &|name| std::env::var(name).ok(),
        host_name: &host_name.nodename().to_string_lossy(),
        state_dir: default_state_dir(),
    };
    let options = match Options::parse(arguments, &surroundings) {
        Ok(Invocation::Run(options)) => options,
        Ok(Invocation::Help) => {
            print!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        Ok(Invocation::Version) => {
            println!("{}", env!("CARGO_PKG_VERSION"));
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("caravan plugin hostpath: {error}");
            return ExitCode::from(2);
        }
    };
    match serve(options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("caravan plugin hostpath: {}", error.sentence());
            ExitCode::FAILURE
        }
    }
}

/// Serves with these options until SIGTERM or SIGINT. Logs go to standard error, filtered by `RUST_LOG`, unless the
/// process already has a log subscriber.
pub fn serve(options: Options) -> Result<(), Error> {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    // An error means that the process already has a subscriber, which is fine.
    let _ =
        tracing_subscriber::fmt().with_writer(io::stderr).with_ansi(false).with_env_filter(filter).try_init();
    let store = store::Store::open(&options.state_dir)?.with_pool(options.thin.clone());
    if options.quota {
        quota::Quotas::find(store.root())?;
    }
    if let Some(pool) = &options.thin {
        pool.check()?;
    }
    tracing::info!(
        node = options.node_id,
        state_dir = %options.state_dir.display(),
        instance = store.instance().as_str(),
        controller_publish = options.controller_publish,
        stage = options.stage,
        enforce_size = options.enforce_size,
        "starting"
    );
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Error::io("start the runtime for", &options.endpoint))?;
    let endpoint = options.endpoint.clone();
    let plugin = controller::Plugin { options, store };
    let busy = plugin.tidy()?;
    if !busy.is_empty() {
        let plugin = plugin.clone();
        std::thread::spawn(move || plugin.tidy_later(busy));
    }
    let service = service::Service::new(plugin);
    runtime.block_on(serve::serve(&endpoint, service))
}

/// Returns the state directory below the plugin's root, which all allocations of the plugin share and which outlives
/// them. With its own root, the plugin finds it mounted there; otherwise a variable names it. So it is the same host
/// directory for every driver.
fn default_state_dir() -> PathBuf {
    if let Some(base) = std::env::var_os(BASE_VARIABLE).filter(|base| !base.is_empty()) {
        return Path::new(&base).join(STATE_NAME);
    }
    match mountinfo::at(Path::new(PLUGIN_ROOT)) {
        Ok(Some(_)) => Path::new(PLUGIN_ROOT).join(STATE_NAME),
        _ => PathBuf::from(STATE_DIR),
    }
}
