//! Responses of the Identity service.

use crate::StringMap;

/// `GetPluginInfoResponse`: the plugin's name and version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginInfo {
    /// The name that the plugin reports, in domain notation.
    pub name: String,
    /// The vendor's version, in a format that the vendor chooses.
    pub vendor_version: String,
    /// Further information about the plugin, for display.
    pub manifest: StringMap,
}

/// The response to `Probe`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// The plugin serves. A response without a value counts as ready ("ProbeResponse.ready").
    Ready,
    /// The plugin is running but not ready yet.
    NotReady,
}

impl Readiness {
    /// Returns whether the plugin serves.
    pub const fn is_ready(self) -> bool {
        matches!(self, Self::Ready)
    }
}
