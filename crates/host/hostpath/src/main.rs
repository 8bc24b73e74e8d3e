//! The plugin as a separate program: the same as `caravan plugin hostpath`.

use std::process::ExitCode;

fn main() -> ExitCode {
    caravan_hostpath::run(std::env::args().skip(1))
}
