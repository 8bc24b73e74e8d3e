//! Answers of the Identity service.

use crate::StringMap;

/// `GetPluginInfoResponse`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PluginInfo {
    /// The plugin's own name, in domain notation.
    pub name: String,
    /// The vendor's version, opaque.
    pub vendor_version: String,
    /// More about the plugin, for people.
    pub manifest: StringMap,
}

/// What `Probe` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readiness {
    /// The plugin serves. An answer without a value counts as ready ("ProbeResponse.ready").
    Ready,
    /// The plugin is up and still getting ready.
    NotReady,
}

impl Readiness {
    /// Whether the plugin serves.
    pub const fn is_ready(self) -> bool {
        matches!(self, Self::Ready)
    }
}
