//! The settings of the page: the `ui` block of an agent's configuration.

use crate::policy::Policy;
use serde_json::{Map, Value, json};

/// The settings of the page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Whether the agent serves the page.
    pub enabled: bool,
    /// Whether commands name the page's addresses.
    pub show_cli_hints: bool,
    /// The address of Consul's page; empty for none.
    pub consul: String,
    /// The address of Vault's page; empty for none.
    pub vault: String,
    /// The flag in the header of the page.
    pub label: Label,
    /// The content security policy.
    pub policy: Policy,
}

/// A flag in the header of the page, which names the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Label {
    /// The text; empty for no flag.
    pub text: String,
    /// The colour behind the text.
    pub background: String,
    /// The colour of the text.
    pub colour: String,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            enabled: true,
            show_cli_hints: true,
            consul: String::new(),
            vault: String::new(),
            label: Label::default(),
            policy: Policy::default(),
        }
    }
}

impl Settings {
    /// Returns the settings in the form of the HTTP API (`config.UI` of `/v1/agent/self`).
    pub fn shown(&self) -> Value {
        let policy: Map<String, Value> =
            self.policy.shown().map(|(name, sources)| (name.to_owned(), json!(sources))).collect();
        json!({
            "Enabled": self.enabled,
            "ShowCLIHints": self.show_cli_hints,
            "Consul": { "BaseUIURL": self.consul },
            "Vault": { "BaseUIURL": self.vault },
            "Label": {
                "Text": self.label.text,
                "BackgroundColor": self.label.background,
                "TextColor": self.label.colour,
            },
            "ContentSecurityPolicy": policy,
        })
    }
}
