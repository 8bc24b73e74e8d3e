//! The helper processes of the client's tests, which are parts of the agent's own binary in production: `helper shim …`
//! and `helper plugin …`.

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    match args.next().as_deref().and_then(|a| a.to_str()) {
        Some("shim") => caravan_shim::main(args),
        Some("plugin") => caravan_hostpath::run(args.map(|a| a.to_string_lossy().into_owned())),
        _ => {
            eprintln!("usage: helper shim|plugin ...");
            ExitCode::from(2)
        }
    }
}
