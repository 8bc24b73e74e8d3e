//! The bundled CSI plugin: volumes are directories of the host, file system images, or devices.
//!
//! It runs as a process of its own (`caravan plugin hostpath`), usually as a task, and knows nothing of
//! the orchestrator but the interface: where it stages and publishes is told with each call. It works
//! with the host's paths as well as inside a root of its own, as long as the paths of the calls and the
//! state directory are on mounts that propagate to the host.
//!
//! What is asked for is checked in `request` and `mutable` (no I/O); what is known is in `record`, kept by `store`;
//! `controller`, `modify`, `snapshot`, `group`, `expand` and `node` carry out, with the help of `mounts`, `loops` and
//! `copy`; `tidy` ends what a killed plugin left half done. See `docs/design/hostpath.md`.

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
mod record;
mod request;
mod serve;
mod service;
mod snapshot;
mod store;
mod tidy;
mod tool;

use std::{io, path::Path, path::PathBuf, process::ExitCode};

use tracing_subscriber::EnvFilter;

pub use error::Error;
pub use options::{Invocation, NODE_SEGMENT, Options, Surroundings, USAGE, UsageError};
pub use request::FsKind;

/// Where volumes are kept when nothing says otherwise.
const STATE_DIR: &str = "/var/lib/caravan-hostpath";

/// The plugin's root in a task that has a root of its own, unless the job says otherwise: a directory of
/// the host, shared by all allocations of the plugin, and with propagation.
const PLUGIN_ROOT: &str = "/local/csi";

/// Set by the agent for plugins without a root of their own: the plugin's root on the host.
const BASE_VARIABLE: &str = "CARAVAN_CSI_STAGE_PUBLISH_BASE_DIR";

/// Where the state is below the plugin's root.
const STATE_NAME: &str = "hostpath-state";

/// Runs the plugin with the arguments after `caravan plugin hostpath` until SIGTERM or SIGINT.
/// Exit codes: 0 after a signal, 2 for a wrong command line, 1 for everything else.
pub fn run(arguments: impl IntoIterator<Item = String>) -> ExitCode {
    // Nothing below is generic: the plugin is compiled here, once, and not again by whoever calls.
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

/// Serves with these options until SIGTERM or SIGINT. Logs go to standard error, by `RUST_LOG`, unless
/// the process already has a place for them.
pub fn serve(options: Options) -> Result<(), Error> {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    // An error says that there is a subscriber already, which is as good.
    let _ =
        tracing_subscriber::fmt().with_writer(io::stderr).with_ansi(false).with_env_filter(filter).try_init();
    let store = store::Store::open(&options.state_dir)?;
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

/// Below the plugin's root, which all allocations of the plugin share and which outlives them, whether they
/// have a root of their own (it is mounted there) or not (a variable names it): one place on the host for
/// every driver.
fn default_state_dir() -> PathBuf {
    if let Some(base) = std::env::var_os(BASE_VARIABLE).filter(|base| !base.is_empty()) {
        return Path::new(&base).join(STATE_NAME);
    }
    match mountinfo::at(Path::new(PLUGIN_ROOT)) {
        Ok(Some(_)) => Path::new(PLUGIN_ROOT).join(STATE_NAME),
        _ => PathBuf::from(STATE_DIR),
    }
}
