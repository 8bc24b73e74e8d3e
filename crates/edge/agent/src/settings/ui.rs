//! The `ui` block: the web page. Pure.

use super::bad;
use crate::error::AgentError;
use caravan_hcl::config::AgentConfig;
use caravan_ui::{Label, Policy, Settings};

/// Reads the `ui` block.
pub(super) fn from_config(file: &AgentConfig) -> Result<Settings, AgentError> {
    let ui = file.ui.clone().unwrap_or_default();
    let policy = ui.content_security_policy.unwrap_or_default();
    let label = ui.label.unwrap_or_default();
    let directives = [
        ("ui.content_security_policy.connect_src", "connect-src", policy.connect_src),
        ("ui.content_security_policy.default_src", "default-src", policy.default_src),
        ("ui.content_security_policy.form_action", "form-action", policy.form_action),
        ("ui.content_security_policy.frame_ancestors", "frame-ancestors", policy.frame_ancestors),
        ("ui.content_security_policy.img_src", "img-src", policy.img_src),
        ("ui.content_security_policy.script_src", "script-src", policy.script_src),
        ("ui.content_security_policy.style_src", "style-src", policy.style_src),
    ];
    let mut built = Policy::default();
    for (field, directive, sources) in directives {
        built = built
            .with(directive, &sources.unwrap_or_default())
            .map_err(|error| bad(field, error.to_string()))?;
    }
    Ok(Settings {
        enabled: ui.enabled.unwrap_or(true),
        show_cli_hints: ui.show_cli_hints.unwrap_or(true),
        consul: ui.consul.and_then(|consul| consul.ui_url).unwrap_or_default(),
        vault: ui.vault.and_then(|vault| vault.ui_url).unwrap_or_default(),
        label: Label {
            text: label.text.unwrap_or_default(),
            background: label.background_color.unwrap_or_default(),
            colour: label.text_color.unwrap_or_default(),
        },
        policy: built,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use caravan_hcl::config::{UiConfig, UiLabelConfig, UiPolicyConfig};

    #[test]
    fn the_block_is_read() {
        let mut file = AgentConfig::default();
        assert_eq!(from_config(&file).unwrap(), Settings::default());
        let policy = UiPolicyConfig { img_src: Some(vec!["https:".into()]), ..Default::default() };
        file.ui = Some(UiConfig {
            enabled: Some(false),
            content_security_policy: Some(policy),
            label: Some(UiLabelConfig { text: Some("prod".into()), ..Default::default() }),
            ..Default::default()
        });
        let read = from_config(&file).unwrap();
        assert!(!read.enabled && read.show_cli_hints);
        assert_eq!(read.label.text, "prod");
        assert_eq!(read.shown()["ContentSecurityPolicy"]["ImgSrc"][0], "https:");
    }

    #[test]
    fn a_source_that_would_add_a_directive_is_refused_by_its_field() {
        let policy = UiPolicyConfig { style_src: Some(vec!["x; script-src *".into()]), ..Default::default() };
        let ui = UiConfig { content_security_policy: Some(policy), ..Default::default() };
        let error = from_config(&AgentConfig { ui: Some(ui), ..Default::default() }).unwrap_err();
        assert!(error.to_string().contains("ui.content_security_policy.style_src"), "{error}");
    }
}
