//! The parser for the rules of a policy: HCL 1 or JSON, with shorthands expanded (docs/reference/http-api.md, section
//! 5.8).

use super::privilege::{self, Level, NsCap, OPERATOR, PoolCap, VarCap};
use caravan_hcl::ast::{Block, Body};
use caravan_hcl::eval::{Evaluator, Scope};
use caravan_hcl::parse::hcl1;
use caravan_hcl::{Diagnostic, Source, Sources};
use caravan_types::acl::{
    CapabilityRules, HostVolumeRules, NamespaceRules, NodePoolRules, PolicyRule, Rules, VariablePath,
    VariableRules,
};
use serde_json::{Map, Value};

/// The reason that rules are invalid, with texts that clients of Nomad recognize.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct RulesError(String);

type Parsed<T> = Result<T, RulesError>;

fn wrong<T>(text: String) -> Parsed<T> {
    Err(RulesError(text))
}

/// A body in either notation.
#[derive(Debug, Default)]
struct Tree {
    values: Map<String, Value>,
    blocks: Vec<(String, String, Tree)>,
}

/// The permitted blocks, and whether each has a label.
const BLOCKS: [(&str, bool); 11] = [
    ("namespace", true),
    ("node_pool", true),
    ("host_volume", true),
    ("agent", false),
    ("node", false),
    ("operator", false),
    ("quota", false),
    ("sentinel", false),
    ("plugin", false),
    ("variables", false),
    ("path", true),
];

fn named(kind: &str) -> Option<bool> {
    BLOCKS.iter().find(|(name, _)| *name == kind).map(|(_, named)| *named)
}

/// Parses rules.
///
/// # Errors
/// If the syntax, a block, a shorthand or a capability is invalid. The error is one sentence.
pub fn parse(text: &str) -> Parsed<Rules> {
    let mut rules = if text.trim().is_empty() { Rules::default() } else { read(&tree(text)?)? };
    text.clone_into(&mut rules.raw);
    Ok(rules)
}

fn tree(text: &str) -> Parsed<Tree> {
    let syntax = |at: String, detail: &str| RulesError(format!("Failed to parse ACL Policy: {at}{detail}"));
    if text.trim_start().starts_with('{') {
        let value: Value = serde_json::from_str(text)
            .map_err(|e| syntax(format!("At {}:{}: ", e.line(), e.column()), &e.to_string()))?;
        return Ok(from_json(&value));
    }
    let mut sources = Sources::default();
    let id = sources.add(Source::new("policy", text));
    let body = hcl1::parse_body(&sources, id).map_err(|errors| {
        let place = |error: &Diagnostic| {
            error.span.map_or_else(String::new, |span| {
                let (line, column) = sources.line_column(span.source, span.start);
                format!("At {line}:{column}: ")
            })
        };
        match errors.first() {
            Some(error) => syntax(place(error), &error.detail),
            None => syntax(String::new(), "the rules cannot be read"),
        }
    })?;
    from_hcl(&body)
}

fn from_hcl(body: &Body) -> Parsed<Tree> {
    let mut tree = Tree::default();
    for attribute in &body.attributes {
        let value = Evaluator::literals().eval(&attribute.value, &Scope::default());
        let value =
            value.map_err(|error| RulesError(format!("Failed to parse ACL Policy: {}", error.detail)))?;
        match (named(&attribute.name.text), value.to_json()) {
            // `node = { ... }` means the same as a block.
            (Some(_), value @ Value::Object(_)) => {
                tree.blocks.extend(blocks_of(&attribute.name.text, &value));
            }
            (_, value) => {
                tree.values.insert(attribute.name.text.clone(), value);
            }
        }
    }
    for Block { kind, labels, body, .. } in &body.blocks {
        let label = labels.first().map(|label| label.text.clone()).unwrap_or_default();
        if labels.is_empty() && named(&kind.text) == Some(true) {
            // The label may be a key within the block.
            for inner in &body.blocks {
                let name = inner.kind.text.clone();
                tree.blocks.push((kind.text.clone(), name, from_hcl(&inner.body)?));
            }
            continue;
        }
        tree.blocks.push((kind.text.clone(), label, from_hcl(body)?));
    }
    Ok(tree)
}

fn from_json(value: &Value) -> Tree {
    let mut tree = Tree::default();
    for object in list(value).filter_map(Value::as_object) {
        for (key, value) in object {
            match named(key) {
                None => {
                    tree.values.insert(key.clone(), value.clone());
                }
                Some(_) => tree.blocks.extend(blocks_of(key, value)),
            }
        }
    }
    tree
}

fn blocks_of(kind: &str, value: &Value) -> Vec<(String, String, Tree)> {
    if named(kind) != Some(true) {
        return vec![(kind.to_owned(), String::new(), from_json(value))];
    }
    let labelled = list(value).filter_map(Value::as_object).flatten();
    labelled.map(|(label, value)| (kind.to_owned(), label.clone(), from_json(value))).collect()
}

/// Returns a list; a single value becomes a list of one.
fn list(value: &Value) -> impl Iterator<Item = &Value> {
    match value {
        Value::Array(items) => items.as_slice().iter(),
        one => std::slice::from_ref(one).iter(),
    }
}

impl Tree {
    fn policy(&self) -> String {
        self.values.get("policy").and_then(Value::as_str).unwrap_or_default().to_owned()
    }

    fn capabilities(&self) -> Option<Vec<String>> {
        let items = self.values.get("capabilities")?.as_array()?;
        Some(items.iter().filter_map(Value::as_str).map(str::to_owned).collect())
    }

    fn unknown(&self, values: &[&str], blocks: &[&str]) -> Vec<&str> {
        let values = self.values.keys().map(String::as_str).filter(|key| !values.contains(key));
        let blocks = self.blocks.iter().map(|(kind, ..)| kind.as_str()).filter(|kind| !blocks.contains(kind));
        values.chain(blocks).collect()
    }
}

fn read(tree: &Tree) -> Parsed<Rules> {
    let known: Vec<&str> = BLOCKS.iter().map(|(name, _)| *name).take(9).collect();
    let unknown = tree.unknown(&["name"], &known);
    if !unknown.is_empty() {
        return wrong(format!("Invalid or duplicate policy keys: {}", unknown.join(", ")));
    }
    let mut rules = Rules::default();
    for (kind, label, tree) in &tree.blocks {
        match kind.as_str() {
            "namespace" => rules.namespaces.get_or_insert_default().push(namespace(label, tree)?),
            "node_pool" => rules.node_pools.get_or_insert_default().push(node_pool(label, tree)?),
            "host_volume" => rules.host_volumes.get_or_insert_default().push(host_volume(label, tree)?),
            "agent" => rules.agent = Some(whole("agent", "Agent", tree, &["deny", "read", "write"])?),
            "node" => rules.node = Some(whole("node", "Node", tree, &["deny", "read", "write"])?),
            "quota" => rules.quota = Some(whole("quota", "Quota", tree, &["deny", "read", "write"])?),
            "sentinel" => {
                rules.sentinel = Some(whole("sentinel", "Sentinel", tree, &["deny", "read", "write"])?)
            }
            "plugin" => rules.plugin = Some(whole("plugin", "Plugin", tree, &["deny", "read", "list"])?),
            _ => rules.operator = Some(operator(tree)?),
        }
    }
    Ok(rules)
}

/// Formats a list of strings as Nomad does.
fn go_strings(list: Option<&Vec<String>>) -> String {
    match list {
        None => "[]string(nil)".to_owned(),
        Some(list) => {
            let items: Vec<String> = list.iter().map(|item| format!("\"{item}\"")).collect();
            format!("[]string{{{}}}", items.join(", "))
        }
    }
}

fn namespace(name: &str, tree: &Tree) -> Parsed<NamespaceRules> {
    let (policy, mut capabilities) = (tree.policy(), tree.capabilities());
    let printed = || {
        format!(
            "&acl.NamespacePolicy{{Name:\"{name}\", Policy:\"{policy}\", Capabilities:{}, Variables:(*acl.VariablesPolicy)(nil)}}",
            go_strings(capabilities.as_ref())
        )
    };
    if !is_glob(name) {
        return wrong(format!("Invalid namespace name: {}", printed()));
    }
    let shorthand = privilege::namespace(&policy);
    if !policy.is_empty() && shorthand.is_none() {
        return wrong(format!("Invalid namespace policy: {}", printed()));
    }
    for cap in capabilities.iter().flatten() {
        if NsCap::parse(cap).is_none() {
            return wrong(format!("Invalid namespace capability '{cap}': {}", printed()));
        }
    }
    if let Some(shorthand) = shorthand {
        let names = shorthand.into_iter().map(|cap| cap.as_str().to_owned());
        capabilities.get_or_insert_default().extend(names);
    }
    let mut variables = None;
    for (_, _, block) in tree.blocks.iter().filter(|(kind, ..)| kind == "variables") {
        let rules: &mut VariableRules = variables.get_or_insert_default();
        for (_, path, tree) in block.blocks.iter().filter(|(kind, ..)| kind == "path") {
            rules.paths.get_or_insert_default().push(variable(name, path, tree)?);
        }
    }
    Ok(NamespaceRules { name: name.to_owned(), policy, capabilities, variables })
}

fn variable(namespace: &str, path: &str, tree: &Tree) -> Parsed<VariablePath> {
    if path.is_empty() {
        return wrong(format!("Invalid missing variable path in namespace {namespace}"));
    }
    let mut capabilities = tree.capabilities();
    for cap in capabilities.iter().flatten() {
        if VarCap::parse(cap).is_none() {
            return wrong(format!("Invalid variable capability '{cap}' in namespace {namespace}"));
        }
    }
    if let Some(caps) = &mut capabilities {
        // The capabilities to read or write include the capability to list.
        let implies = caps.iter().any(|cap| matches!(cap.as_str(), "read" | "write"));
        if implies && !caps.iter().any(|cap| matches!(cap.as_str(), "list" | "deny")) {
            caps.push("list".to_owned());
        }
    }
    Ok(VariablePath { path_spec: path.to_owned(), capabilities })
}

fn node_pool(name: &str, tree: &Tree) -> Parsed<NodePoolRules> {
    let (policy, mut capabilities) = (tree.policy(), tree.capabilities());
    let shorthand = privilege::node_pool(&policy);
    if !policy.is_empty() && shorthand.is_none() {
        return wrong(format!("Invalid node pool policy '{policy}' for '{name}'"));
    }
    for cap in capabilities.iter().flatten() {
        if PoolCap::parse(cap).is_none() {
            return wrong(format!("Invalid node pool capability '{cap}' for '{name}'"));
        }
    }
    if !name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'*')) || name.is_empty()
    {
        return wrong(format!("Invalid node pool name '{name}'"));
    }
    if let Some(shorthand) = shorthand {
        let names = shorthand.into_iter().map(|cap| cap.as_str().to_owned());
        capabilities.get_or_insert_default().extend(names);
    }
    Ok(NodePoolRules { name: name.to_owned(), policy, capabilities })
}

/// Returns the name of a host volume without the index of an allocation (`data[0]`), or with a star for all of them
/// (`data[*]`). Each allocation of a `per_alloc` request has a separate volume.
fn without_number(name: &str) -> &str {
    let parts = name.strip_suffix(']').and_then(|name| name.rsplit_once('['));
    let is_number =
        |text: &str| text == "*" || (!text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()));
    parts.filter(|(_, number)| is_number(number)).map_or(name, |(base, _)| base)
}

fn host_volume(name: &str, tree: &Tree) -> Parsed<HostVolumeRules> {
    let (policy, mut capabilities) = (tree.policy(), tree.capabilities());
    let printed = || {
        format!(
            "&acl.HostVolumePolicy{{Name:\"{name}\", Policy:\"{policy}\", Capabilities:{}}}",
            go_strings(capabilities.as_ref())
        )
    };
    if !is_glob(without_number(name)) {
        return wrong(format!("Invalid host volume name: {}", printed()));
    }
    let shorthand = privilege::host_volume(&policy);
    if !policy.is_empty() && shorthand.is_none() {
        return wrong(format!("Invalid host volume policy: {}", printed()));
    }
    for cap in capabilities.iter().flatten() {
        if super::HostVolumeCap::parse(cap).is_none() {
            return wrong(format!("Invalid host volume capability '{cap}': {}", printed()));
        }
    }
    if let Some(shorthand) = shorthand {
        let names = shorthand.into_iter().map(|cap| cap.as_str().to_owned());
        capabilities.get_or_insert_default().extend(names);
    }
    Ok(HostVolumeRules { name: name.to_owned(), policy, capabilities })
}

fn whole(kind: &str, kind_of_go: &str, tree: &Tree, known: &[&str]) -> Parsed<PolicyRule> {
    let policy = tree.policy();
    if !known.contains(&policy.as_str()) {
        return wrong(format!("Invalid {kind} policy: &acl.{kind_of_go}Policy{{Policy:\"{policy}\"}}"));
    }
    Ok(PolicyRule { policy })
}

fn operator(tree: &Tree) -> Parsed<CapabilityRules> {
    let (policy, capabilities) = (tree.policy(), tree.capabilities());
    let level = Level::parse(&policy).filter(|level| *level != Level::List);
    if level.is_none() && !(policy.is_empty() && capabilities.is_some()) {
        return wrong(format!(
            "Invalid operator policy: &acl.OperatorPolicy{{Policy:\"{policy}\", Capabilities:{}}}",
            go_strings(capabilities.as_ref())
        ));
    }
    for cap in capabilities.iter().flatten() {
        if !OPERATOR.contains(&cap.as_str()) && cap != "deny" {
            return wrong(format!("Invalid operator capability '{cap}'"));
        }
    }
    Ok(CapabilityRules { policy, capabilities })
}

fn is_glob(name: &str) -> bool {
    (1..=128).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'*'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEVELOPER: &str = "namespace \"default\" {\n  policy       = \"write\"\n  capabilities = [\"alloc-node-exec\"]\n  variables {\n    path \"app/*\" {\n      capabilities = [\"read\", \"write\", \"list\", \"destroy\"]\n    }\n    path \"other\" {\n      capabilities = [\"deny\"]\n    }\n  }\n}\nnamespace \"team-*\" {\n  capabilities = [\"list-jobs\", \"read-job\"]\n}\nhost_volume \"scratch\" {\n  policy = \"write\"\n}\n";

    #[test]
    fn host_volumes_of_single_allocations_have_rules() {
        let rules = |name: &str| parse(&format!("host_volume \"{name}\" {{ policy = \"read\" }}"));
        for good in ["data", "data[0]", "data[17]", "data[*]", "da*[0]"] {
            assert!(rules(good).is_ok(), "{good}");
        }
        for bad in ["data[]", "data[x]", "data[0", "data]", "data[0][1]", "[0]", "da ta[0]", "data[-1]"] {
            assert!(rules(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn shorthands_are_written_out_as_recorded() {
        let json = serde_json::to_value(parse(DEVELOPER).unwrap()).unwrap();
        let caps = json["Namespaces"][0]["Capabilities"].as_array().unwrap();
        assert_eq!(
            (caps.len(), &caps[0], &caps[21]),
            (22, &"alloc-node-exec".into(), &"host-volume-read".into())
        );
        assert_eq!(json["Namespaces"][0]["Variables"]["Paths"][1]["PathSpec"], "other");
        assert!(json["Namespaces"][1]["Variables"].is_null() && json["Node"].is_null());
        assert_eq!(json["HostVolumes"][0]["Capabilities"][1], "mount-readwrite");
        assert_eq!(json["Raw"], DEVELOPER);
    }

    #[test]
    fn json_means_the_same() {
        let json = r#"{"namespace": {"default": {"policy": "read", "variables": {"path": {"a/*": {"capabilities": ["read"]}}}}},
            "node": {"policy": "read"}, "agent": [{"policy": "write"}]}"#;
        let rules = parse(json).unwrap();
        let namespace = &rules.namespaces.as_ref().unwrap()[0];
        assert_eq!((namespace.name.as_str(), namespace.capabilities.as_ref().unwrap().len()), ("default", 9));
        let paths = namespace.variables.as_ref().unwrap().paths.as_ref().unwrap();
        assert_eq!(paths[0].capabilities.as_ref().unwrap(), &["read", "list"]);
        assert_eq!(rules.agent.unwrap().policy, "write");
    }

    #[test]
    fn mistakes_are_told_in_the_recorded_words() {
        let error = |text: &str| parse(text).unwrap_err().to_string();
        assert_eq!(
            error("namespace \"x\" { policy = \"everything\" }"),
            "Invalid namespace policy: &acl.NamespacePolicy{Name:\"x\", Policy:\"everything\", Capabilities:[]string(nil), Variables:(*acl.VariablesPolicy)(nil)}"
        );
        assert_eq!(
            error("namespace \"x\" { capabilities = [\"fly\"] }"),
            "Invalid namespace capability 'fly': &acl.NamespacePolicy{Name:\"x\", Policy:\"\", Capabilities:[]string{\"fly\"}, Variables:(*acl.VariablesPolicy)(nil)}"
        );
        assert_eq!(
            error(
                "namespace \"default\" {\n  variables {\n    path \"a\" { capabilities = [\"chew\"] }\n  }\n}\n"
            ),
            "Invalid variable capability 'chew' in namespace default"
        );
        assert!(error("this is { not hcl").starts_with("Failed to parse ACL Policy: At 1:"));
        assert!(error("job \"x\" {}").starts_with("Invalid or duplicate policy keys: job"));
        assert!(error("node { policy = \"list\" }").starts_with("Invalid node policy"));
        assert_eq!(parse("").unwrap(), Rules::default());
    }

    proptest::proptest! {
        #[test]
        fn no_text_breaks_it(text in "[a-z_ {}\"=\\[\\]*\n]{0,80}") {
            let _ = parse(&text);
        }
    }
}
