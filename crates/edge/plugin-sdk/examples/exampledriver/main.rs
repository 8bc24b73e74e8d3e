//! A task driver that runs programs on the host.
//!
//! The program has three roles. Without arguments it is the plugin. As `supervise` it starts one task, outlives the
//! plugin, and records how the task ended. As `terminal` it makes its standard input the controlling terminal of a
//! command.
//!
//! ```hcl
//! task "hello" {
//!   driver = "example"
//!   config {
//!     command = "/bin/sh"
//!     args    = ["-c", "echo hello"]
//!   }
//! }
//! ```

mod driver;
mod exec;
mod running;
mod supervise;
mod terminal;
mod usage;

use caravan_plugin_sdk::serve_driver;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    match arguments.next().as_deref().and_then(|role| role.to_str()) {
        Some(supervise::ROLE) => supervise::main(),
        Some(terminal::ROLE) => terminal::main(arguments),
        _ => plugin(),
    }
}

#[tokio::main]
async fn plugin() -> ExitCode {
    serve_driver(driver::Example::default()).await
}
