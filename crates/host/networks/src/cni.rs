//! Networks by plugins, as the Container Network Interface describes them (CNI specification 1.1, and its earlier
//! versions).
//!
//! An operator configures lists of plugins. [`Runtime`] runs the plugins of a list in their order to add an
//! allocation to a network, and in reverse to remove it. The caller stores each [`Attached`] from before the first
//! call until the removal is complete. Otherwise parts of the network of an allocation would be lost.

mod arguments;
mod fault;
mod list;
mod outcome;
mod process;
mod runtime;
mod version;

pub use arguments::{Arguments, BadArgument};
pub use fault::{CniFault, Code};
pub use list::{Catalog, NetworkList};
pub use outcome::{CniResult, Names, Reached};
pub use runtime::{Attached, Command, Runtime};
pub use version::SpecVersion;

/// The name of the interface within the namespace of an allocation.
pub const INTERFACE: &str = "eth0";
