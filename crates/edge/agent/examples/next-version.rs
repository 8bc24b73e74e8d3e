//! An agent that stands for the next version, for tests of rolling upgrades: its feature level is one higher. The
//! level is a part of this program, so no setting and no variable of the real program can raise it.

use caravan_agent::FEATURE_LEVEL;
use caravan_base::Build;
use std::process::ExitCode;

const BUILD: Build = Build { version: concat!(env!("CARGO_PKG_VERSION"), "-next"), commit: "", date: "" };

/// The feature level of the next version.
const LEVEL: u32 = FEATURE_LEVEL + 1;

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    match args.next().as_deref().and_then(|verb| verb.to_str()) {
        Some("agent") => caravan_agent::main_at_level(args, BUILD, LEVEL),
        _ => {
            eprintln!("usage: next-version agent [FLAGS]");
            ExitCode::FAILURE
        }
    }
}
