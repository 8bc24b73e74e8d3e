//! The shim as a separate program: tests start it, and an installation may use it instead of the large binary.

fn main() -> std::process::ExitCode {
    caravan_shim::main(std::env::args_os().skip(1))
}
