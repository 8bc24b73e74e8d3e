//! Selectors of binding rules: filter expressions over the claims of a login.

use caravan_lang::filter::Filter;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The claims of a login, by the names that the auth method maps them to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Facts {
    /// Claims with single values.
    pub(crate) values: BTreeMap<String, String>,
    /// Claims with lists.
    pub(crate) lists: BTreeMap<String, Vec<String>>,
}

impl Facts {
    fn json(&self) -> Value {
        json!({"value": self.values, "list": self.lists})
    }

    /// Replaces `${value.name}` in a text; an unknown name becomes the empty string.
    pub(crate) fn interpolate(&self, text: &str, extra: &[(&str, &str)]) -> String {
        let mut out = String::new();
        let mut rest = text;
        while let Some(start) = rest.find("${") {
            let Some(end) = rest[start..].find('}') else { break };
            out.push_str(&rest[..start]);
            let name = rest[start + 2..start + end].trim();
            let known = extra.iter().find(|(key, _)| *key == name).map(|(_, value)| *value);
            let value = name.strip_prefix("value.").and_then(|name| self.values.get(name));
            out.push_str(known.or(value.map(String::as_str)).unwrap_or_default());
            rest = &rest[start + end + 1..];
        }
        out.push_str(rest);
        out
    }
}

/// A selector; the empty one matches every login.
#[derive(Debug)]
pub(crate) struct Selector(Option<Filter>);

impl Selector {
    /// Parses a selector; the error is one sentence.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        match text.trim() {
            "" => Ok(Self(None)),
            text => Filter::parse(text).map(|filter| Self(Some(filter))).map_err(|error| error.to_string()),
        }
    }

    /// Returns whether the selector matches a login. A selector with an unknown name matches none.
    pub(crate) fn fits(&self, facts: &Facts) -> bool {
        self.0.as_ref().is_none_or(|filter| filter.matches(&facts.json()).unwrap_or(false))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_look_at_values_and_lists() {
        let facts = Facts {
            values: BTreeMap::from([("user".into(), "ops".into())]),
            lists: BTreeMap::from([("groups".into(), vec!["dev".into(), "all".into()])]),
        };
        for (text, fits) in [
            ("", true),
            ("dev in list.groups", true),
            ("\"x\" in list.groups", false),
            ("value.user == \"ops\"", true),
            ("value.user == dev", false),
            ("value.nobody == dev", false),
        ] {
            assert_eq!(Selector::parse(text).unwrap().fits(&facts), fits, "{text}");
        }
        assert!(Selector::parse("= =").is_err());
        assert_eq!(facts.interpolate("${value.user}-role ${m}", &[("m", "x")]), "ops-role x");
        assert_eq!(facts.interpolate("a${value.none}b${open", &[]), "ab${open");
    }
}
