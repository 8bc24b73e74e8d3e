//! A task driver that runs programs on the host.
//!
//! The program has three roles. Without arguments it is the plugin. As `supervise` it starts one task, outlives the
//! plugin, and records how the task ended. As `beside` it becomes a command in the environment of
//! a task.
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

mod beside;
mod driver;
mod exec;
mod running;
mod supervise;
mod usage;

use caravan_plugin_sdk::serve_driver;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    match arguments.next().as_deref().and_then(|role| role.to_str()) {
        Some(supervise::ROLE) => supervise::main(),
        Some(beside::ROLE) => beside::main(arguments),
        _ => plugin(),
    }
}

#[tokio::main]
async fn plugin() -> ExitCode {
    serve_driver(driver::Example::default()).await
}
