//! The shim as a program of its own: what tests start, and what an installation may use instead of the big binary.

fn main() -> std::process::ExitCode {
    caravan_shim::main(std::env::args_os().skip(1))
}
