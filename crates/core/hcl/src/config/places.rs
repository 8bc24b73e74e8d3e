//! The places of the `plugin` blocks of configuration files. The schema of a plugin is available only after the
//! plugin has started. Errors that it finds need the places of a configuration that was read long before.

use crate::ast::Body;
use crate::parse::hcl1;
use crate::source::{Source, Sources, Span};
use std::collections::BTreeMap;

/// The places of one `plugin` block, by the path of a key below its `config` (`auth.username`, `mount[1].target`), as
/// `file:line,column-column`. Keys of an object in braces have no separate place. The empty path is the block itself.
pub type PluginPlaces = BTreeMap<String, String>;

/// Returns the places of all `plugin` blocks by label. Of several blocks with a label, the last one counts. Files in
/// JSON have no places.
#[must_use]
pub fn plugin_places(files: &[Source]) -> BTreeMap<String, PluginPlaces> {
    let mut sources = Sources::default();
    let mut found = BTreeMap::new();
    for file in files {
        let id = sources.add(file.clone());
        let Ok(body) = hcl1::parse_body(&sources, id) else { continue };
        for block in body.blocks.iter().filter(|block| block.kind.text == "plugin") {
            let Some(label) = block.labels.first() else { continue };
            let mut places = PluginPlaces::from([(String::new(), sources.show(block.header).to_string())]);
            for config in block.body.blocks.iter().filter(|inner| inner.kind.text == "config") {
                collect(&config.body, "", &mut |path, span| {
                    places.insert(path, sources.show(span).to_string());
                });
            }
            found.insert(label.text.clone(), places);
        }
    }
    found
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

fn collect(body: &Body, path: &str, put: &mut impl FnMut(String, Span)) {
    for attribute in &body.attributes {
        let path = join(path, &attribute.name.text);
        put(path, attribute.name.span);
    }
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for block in &body.blocks {
        *counts.entry(block.kind.text.as_str()).or_insert(0) += 1;
    }
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    for block in &body.blocks {
        let kind = block.kind.text.as_str();
        let number = seen.entry(kind).or_insert(0);
        let several = counts.get(kind).is_some_and(|count| *count > 1);
        let mut path = join(path, kind);
        if several {
            put(path.clone(), block.header);
            path = format!("{path}[{number}]");
        }
        *number += 1;
        for label in &block.labels {
            path = join(&path, &label.text);
        }
        put(path.clone(), block.header);
        collect(&block.body, &path, put);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_plugins_have_places() {
        let text = "data_dir = \"/d\"\nplugin \"x\" {\n  config {\n    dir = \"/x\"\n    mount {\n      a = 1\n    }\n    mount {\n      b = 2\n    }\n    auth {\n      name = \"n\"\n    }\n  }\n}\nplugin \"y\" {}\n";
        let found = plugin_places(&[Source::new("a.hcl", text), Source::new("b.json", "{}")]);
        let at = |label: &str, path: &str| found[label].get(path).map_or("", String::as_str).to_owned();
        assert_eq!(at("x", ""), "a.hcl:2,1-11");
        assert_eq!(at("x", "dir"), "a.hcl:4,5-8");
        assert!(at("x", "mount[1].b").starts_with("a.hcl:9,7"));
        assert!(at("x", "auth.name").starts_with("a.hcl:12,7"));
        assert!(at("y", "").starts_with("a.hcl:16,1"));
    }
}
