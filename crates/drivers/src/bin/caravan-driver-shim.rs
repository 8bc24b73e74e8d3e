//! The shim for this crate's tests, which need a real one beside them; the agent serves as its own.

fn main() -> std::process::ExitCode {
    caravan_shim::main(std::env::args_os().skip(1))
}
