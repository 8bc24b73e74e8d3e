//! The collector for this crate's tests. In production the agent's own program serves as the collector.

fn main() -> std::process::ExitCode {
    caravan_shim::main(std::env::args_os().skip(1))
}
