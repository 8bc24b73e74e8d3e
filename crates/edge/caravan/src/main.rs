//! The `caravan` binary: selects the role of this process and calls the crate of that role.

use caravan_base::Build;
use caravan_cli::Local;
use caravan_sys::heap::{MiMalloc, delay_purges};
use std::process::ExitCode;

/// The allocator of the program. With three servers and 500,000 allocations, the allocator of glibc halves the rate
/// of placements (`docs/adr/0016-allocator.md`).
#[global_allocator]
static HEAP: MiMalloc = MiMalloc;

const BUILD: Build = Build {
    version: env!("CARGO_PKG_VERSION"),
    commit: env!("CARAVAN_COMMIT"),
    date: env!("CARAVAN_BUILD_DATE"),
};

fn main() -> ExitCode {
    delay_purges();
    let mut args = std::env::args_os().skip(1);
    match args.next().as_deref().and_then(|verb| verb.to_str()) {
        // The shim comes first, before any other part starts, because a shim is as small as possible.
        Some("shim") => caravan_shim::main(args),
        Some("agent") => caravan_agent::main(args, BUILD),
        Some("plugin") => match args.next().as_deref().and_then(|name| name.to_str()) {
            Some("hostpath") => caravan_hostpath::run(args.map(|arg| arg.to_string_lossy().into_owned())),
            _ => verb(),
        },
        _ => verb(),
    }
}

/// Runs a verb of the command line.
fn verb() -> ExitCode {
    let local = Local {
        build: BUILD,
        validate_config: caravan_agent::validate_config,
        client_state: caravan_agent::client_state,
    };
    caravan_cli::main(std::env::args_os().skip(1), local)
}
