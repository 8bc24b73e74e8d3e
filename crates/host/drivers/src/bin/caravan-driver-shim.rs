//! The shim for this crate's tests, which need a real shim program. In production the agent's own program serves as
//! the shim.

fn main() -> std::process::ExitCode {
    caravan_shim::main(std::env::args_os().skip(1))
}
