//! The identity of a plugin.

use caravan_proto::plugins::base::{PluginInfoResponse, PluginType};

/// The version of the interface between agents and plugins, which has been the same since the first release.
const API_VERSION: &str = "v0.1.0";

/// The name and the version of a plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Info {
    /// The name by which jobs refer to a driver. For devices it is only shown.
    pub name: String,
    /// The version of the program, such as `1.2.0`. Of two plugins of one name, an agent uses the newer one.
    pub version: String,
}

impl Info {
    /// Returns an identity.
    pub fn new(name: impl Into<String>, version: impl Into<String>) -> Self {
        Self { name: name.into(), version: version.into() }
    }

    pub(crate) fn into_response(self, kind: PluginType) -> PluginInfoResponse {
        PluginInfoResponse {
            r#type: kind.into(),
            plugin_api_versions: vec![API_VERSION.to_owned()],
            plugin_version: self.version,
            name: self.name,
        }
    }
}
