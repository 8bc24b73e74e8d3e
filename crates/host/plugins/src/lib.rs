//! External plugins: programs that speak go-plugin's protocol (docs/reference/wire-plugins.md).
//!
//! [`Catalog::load`] finds the programs of `plugin_dir`, starts and configures each, and returns them as
//! [`caravan_drivers::Driver`]s. One supervisor per plugin is the only part that starts processes: it restarts a
//! plugin that ended, and kills a plugin that does not answer. Tasks continue meanwhile.

mod catalog;
mod convert;
mod device;
mod driver;
mod error;
mod handshake;
mod instance;
mod output;
mod process;
mod setup;
mod spec;

pub use catalog::{Allowed, Block, Catalog, Options};
pub use device::ExternalDevice;
pub use driver::ExternalDriver;
pub use error::PluginError;
pub use handshake::{Address, HandshakeError};
pub use instance::Timing;
pub use setup::{Info, Kind};

use driver::client as driver_client;
