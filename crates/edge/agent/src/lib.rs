//! The agent: configuration files, the command line, and the wiring of server, client and HTTP API in one
//! process.

mod api_socket;
mod client_join;
mod data_dir;
mod drivers;
mod error;
mod flags;
mod host;
mod inspect;
mod known_nodes;
mod log_file;
mod logging;
mod monitor;
mod notify;
mod profile;
mod reload;
mod reserved;
mod run;
mod servers;
mod settings;
mod shown;
mod start;
mod tls;

pub use caravan_server::FEATURE_LEVEL;
pub use data_dir::ForeignReason;
pub use error::AgentError;
pub use flags::{FlagError, Flags, parse};
pub use inspect::{client_state, validate_config};

use caravan_base::Build;
use caravan_hcl::Source;
use caravan_hcl::config::AgentConfig;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Runs `caravan agent` with the arguments after the verb, until a signal or a failure.
///
/// Exit codes: 0 after a signal, 78 for an error that needs an operator, 1 for all other errors.
pub fn main(args: impl IntoIterator<Item = OsString>, build: Build) -> ExitCode {
    main_at_level(args, build, FEATURE_LEVEL)
}

/// Runs `caravan agent` as [`main`] does, as a program of another feature level. For tests of upgrades: a program of
/// the next level stands for the next version.
pub fn main_at_level(args: impl IntoIterator<Item = OsString>, build: Build, level: u32) -> ExitCode {
    // `start` is not generic, so the agent is compiled once in this crate and not again in each caller.
    match start(args.into_iter().map(|arg| arg.to_string_lossy().into_owned()).collect(), build, level) {
        Ok(()) => ExitCode::SUCCESS,
        Err(AgentError::Flags(FlagError::Help(text))) => {
            println!("{text}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("==> {}", caravan_sys::describe(&error));
            ExitCode::from(error.exit_code())
        }
    }
}

fn start(args: Vec<String>, build: Build, level: u32) -> Result<(), AgentError> {
    let flags = flags::parse(args)?;
    let sources = read_texts(&flags.config)?;
    let mut settings = settings::resolve(&flags, parse_files(&sources)?, &host::look())?;
    settings.build = build;
    settings.level = level;
    settings.place_plugins(&sources);
    let open_files = caravan_sys::limits::raise_open_files();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        // Tasks of the agent wait much more than they compute.
        .worker_threads(std::thread::available_parallelism().map_or(2, |n| n.get().clamp(2, 4)))
        .enable_all()
        .build()
        .map_err(AgentError::Runtime)?;
    let signals = runtime.block_on(async { run::Signals::listen() })?;
    // Logging starts after the signal handlers: once a log line appears, signals are handled.
    let log_file = settings.log_file.clone().map(log_file::LogFile::open).transpose()?;
    let kept = settings.log_file.as_ref().map(|file| file.path.clone());
    let (logs, levels) = logging::start(&settings.log_level, settings.log_json, log_file.zip(kept));
    for warning in flags.warnings() {
        tracing::warn!("{warning}");
    }
    match open_files {
        Ok(limit) => tracing::debug!(?limit, "the limit on open files is the hard limit"),
        Err(error) => tracing::warn!(error = caravan_sys::describe(&error), "limit on open files not raised"),
    }
    let result = runtime.block_on(run::run(settings, flags, signals, logs, levels));
    // Remaining tasks have one more second to end.
    runtime.shutdown_timeout(std::time::Duration::from_secs(1));
    result
}

/// Reads all configuration files; later ones override earlier ones.
fn read_files(paths: &[String]) -> Result<AgentConfig, AgentError> {
    parse_files(&read_texts(paths)?)
}

fn parse_files(sources: &[Source]) -> Result<AgentConfig, AgentError> {
    caravan_hcl::config::parse(sources).map_err(|diagnostics| AgentError::Config(diagnostics.to_string()))
}

fn read_texts(paths: &[String]) -> Result<Vec<Source>, AgentError> {
    let mut sources = Vec::new();
    for path in paths {
        for file in expand(Path::new(path))? {
            let text = std::fs::read_to_string(&file)
                .map_err(|source| AgentError::Read { path: file.clone(), source })?;
            sources.push(Source::new(file.display().to_string(), text));
        }
    }
    Ok(sources)
}

/// Returns the file itself, or the `*.hcl` and `*.json` files of a directory in order of their names.
fn expand(path: &Path) -> Result<Vec<PathBuf>, AgentError> {
    let read = |source| AgentError::Read { path: path.to_owned(), source };
    if !std::fs::metadata(path).map_err(read)?.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in std::fs::read_dir(path).map_err(read)? {
        let file = entry.map_err(read)?.path();
        if file.extension().is_some_and(|e| e == "hcl" || e == "json") {
            files.push(file);
        }
    }
    files.sort();
    Ok(files)
}
