//! The merging of several policies into one set of rights.

use super::privilege::{HostVolumeCap, Level, NsCap, PoolCap, VarCap};
use caravan_lang::glob;
use caravan_types::acl::Rules;
use std::collections::{BTreeMap, BTreeSet};

/// The rights of a caller. Compiled once from the rules of policies, then consulted for each request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Acl {
    management: bool,
    namespaces: Scopes,
    variables: Scopes,
    node_pools: Scopes,
    host_volumes: Scopes,
    node: Level,
    agent: Level,
    operator: Level,
    operator_caps: BTreeSet<String>,
    quota: Level,
    plugin: Level,
}

/// Sets of capabilities by pattern. Only the most specific pattern that matches a name applies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Scopes(BTreeMap<String, u64>);

/// The capability that removes all others.
const DENY: u64 = 1;

impl Scopes {
    /// Adds the capabilities that one policy grants for a pattern; a denial in any policy wins.
    fn add(&mut self, pattern: &str, bits: u64) {
        let all = self.0.entry(pattern.to_owned()).or_default();
        *all |= bits;
        if *all & DENY != 0 {
            *all = DENY;
        }
    }

    /// Returns the capabilities for a name: by an exact entry, otherwise by the closest pattern.
    fn rights(&self, name: &str) -> u64 {
        if let Some(bits) = self.0.get(name) {
            return *bits;
        }
        let closest = self.0.iter().filter(|(pattern, _)| glob::matches(pattern, name));
        closest.min_by_key(|(pattern, _)| distance(pattern, name)).map_or(0, |(_, bits)| *bits)
    }

    fn allows(&self, name: &str, bit: u64) -> bool {
        let bits = self.rights(name);
        bits & DENY == 0 && bits & bit != 0
    }

    /// Returns whether any matching pattern grants any capability.
    fn any(&self, bit: u64) -> bool {
        self.0.values().any(|bits| bits & DENY == 0 && bits & bit != 0)
    }
}

/// Returns the distance of a pattern from a name: the number of characters that the stars match; the pattern breaks
/// ties.
fn distance<'p>(pattern: &'p str, name: &str) -> (usize, &'p str) {
    let stars = pattern.bytes().filter(|b| *b == b'*').count();
    ((name.len() + stars).saturating_sub(pattern.len()), pattern)
}

fn bits<T: Copy>(
    names: Option<&Vec<String>>,
    parse: impl Fn(&str) -> Option<T>,
    bit: impl Fn(T) -> u64,
) -> u64 {
    names.into_iter().flatten().filter_map(|name| parse(name)).map(bit).fold(0, |all, one| all | one)
}

/// Separates namespace and path; neither can contain it.
fn variable_key(namespace: &str, path: &str) -> String {
    format!("{namespace}\0{path}")
}

impl Acl {
    /// Returns all rights.
    pub fn management() -> Self {
        Self { management: true, ..Self::default() }
    }

    /// Returns the merged rights of several policies.
    pub fn compile<'r>(policies: impl IntoIterator<Item = &'r Rules>) -> Self {
        let mut acl = Self::default();
        for rules in policies {
            acl.add(rules);
        }
        acl
    }

    fn add(&mut self, rules: &Rules) {
        for rule in rules.namespaces.iter().flatten() {
            self.namespaces.add(&rule.name, bits(rule.capabilities.as_ref(), NsCap::parse, NsCap::bit));
            for path in rule.variables.iter().flat_map(|v| v.paths.iter().flatten()) {
                let set = bits(path.capabilities.as_ref(), VarCap::parse, VarCap::bit);
                self.variables.add(&variable_key(&rule.name, &path.path_spec), set);
            }
        }
        for rule in rules.node_pools.iter().flatten() {
            self.node_pools.add(&rule.name, bits(rule.capabilities.as_ref(), PoolCap::parse, PoolCap::bit));
        }
        for rule in rules.host_volumes.iter().flatten() {
            let set = bits(rule.capabilities.as_ref(), HostVolumeCap::parse, HostVolumeCap::bit);
            self.host_volumes.add(&rule.name, set);
        }
        for (mine, rule) in [
            (&mut self.node, &rules.node),
            (&mut self.agent, &rules.agent),
            (&mut self.quota, &rules.quota),
            (&mut self.plugin, &rules.plugin),
        ] {
            if let Some(level) = rule.as_ref().and_then(|rule| Level::parse(&rule.policy)) {
                *mine = (*mine).max(level);
            }
        }
        if let Some(rule) = &rules.operator {
            self.operator = self.operator.max(Level::parse(&rule.policy).unwrap_or_default());
            self.operator_caps.extend(rule.capabilities.iter().flatten().cloned());
        }
    }

    /// Whether the caller has all rights.
    pub fn is_management(&self) -> bool {
        self.management
    }

    /// Returns whether a capability is granted in a namespace; `*` stands for any namespace.
    pub fn namespace(&self, namespace: &str, cap: NsCap) -> bool {
        self.management
            || match namespace {
                "*" => self.namespaces.any(cap.bit()),
                name => self.namespaces.allows(name, cap.bit()),
            }
    }

    /// Returns whether one of several capabilities is granted in a namespace.
    pub fn namespace_any(&self, namespace: &str, caps: &[NsCap]) -> bool {
        caps.iter().any(|cap| self.namespace(namespace, *cap))
    }

    /// Returns whether the namespace is visible: any capability in it is granted.
    pub fn sees_namespace(&self, namespace: &str) -> bool {
        let bits = self.namespaces.rights(namespace);
        self.management
            || (bits & DENY == 0 && bits != 0)
            || (bits & DENY == 0
                && self.variables.0.keys().any(|key| {
                    key.split_once('\0').is_some_and(|(pattern, _)| glob::matches(pattern, namespace))
                }))
    }

    /// Returns whether some namespace is visible.
    pub fn sees_some_namespace(&self) -> bool {
        self.management
            || self.namespaces.0.values().any(|bits| bits & DENY == 0 && *bits != 0)
            || self.any_variable("*")
    }

    /// Returns whether a capability is granted on a variable.
    pub fn variable(&self, namespace: &str, path: &str, cap: VarCap) -> bool {
        self.management || self.variables.allows(&variable_key(namespace, path), cap.bit())
    }

    /// Returns the rules about the variables of a namespace: patterns of paths with their capabilities. The first
    /// pattern that matches a path decides. Empty for callers with all rights.
    pub fn variable_rules(&self, namespace: &str) -> Vec<(&str, Vec<VarCap>)> {
        let mut rules: Vec<_> = self
            .variables
            .0
            .iter()
            .filter_map(|(key, bits)| Some((key, key.split_once('\0')?, *bits)))
            .filter(|(_, (pattern, _), _)| glob::matches(pattern, namespace))
            .collect();
        // As in `Scopes::rights`. The path adds the same number to the distance of every pattern that matches it, so the
        // order is the same for all paths. A pattern without stars only matches its own name.
        let order = |key: &str| {
            let stars = key.bytes().filter(|b| *b == b'*').count();
            (stars > 0, key.len() - stars)
        };
        rules.sort_by(|(a, ..), (b, ..)| {
            let ((a_stars, a_text), (b_stars, b_text)) = (order(a), order(b));
            a_stars.cmp(&b_stars).then(b_text.cmp(&a_text)).then(a.cmp(b))
        });
        let caps = |bits: u64| VarCap::ALL.iter().copied().filter(|cap| bits & cap.bit() != 0).collect();
        rules.into_iter().map(|(_, (_, path), bits)| (path, caps(bits))).collect()
    }

    /// Returns whether a capability is granted on some variable of a namespace; `*` stands for any namespace.
    pub fn any_variable(&self, namespace: &str) -> bool {
        self.management
            || self.variables.0.iter().any(|(key, bits)| {
                let fits = |pattern: &str| namespace == "*" || glob::matches(pattern, namespace);
                bits & DENY == 0 && *bits != 0 && key.split_once('\0').is_some_and(|(ns, _)| fits(ns))
            })
    }

    /// Returns whether a capability is granted on a node pool.
    pub fn node_pool(&self, name: &str, cap: PoolCap) -> bool {
        self.management || self.node_pools.allows(name, cap.bit())
    }

    /// Returns whether a capability is granted on some node pool.
    pub fn any_node_pool(&self, cap: PoolCap) -> bool {
        self.management || self.node_pools.any(cap.bit())
    }

    /// Returns whether a capability is granted on a host volume of the agents' configuration.
    pub fn host_volume(&self, name: &str, cap: HostVolumeCap) -> bool {
        self.management || self.host_volumes.allows(name, cap.bit())
    }

    /// Returns whether a level of access to nodes is granted.
    pub fn node(&self, level: Level) -> bool {
        self.management || self.node.allows(level)
    }

    /// Returns whether a level of access to agents is granted.
    pub fn agent(&self, level: Level) -> bool {
        self.management || self.agent.allows(level)
    }

    /// Returns whether a level of access to settings of the region is granted.
    pub fn operator(&self, level: Level) -> bool {
        self.management || self.operator.allows(level)
    }

    /// Returns whether one capability of operators is granted, by its name or by the level.
    pub fn operator_cap(&self, cap: &str, level: Level) -> bool {
        self.operator(level) || (self.operator != Level::Deny && self.operator_caps.contains(cap))
    }

    /// Returns whether a level of access to quotas is granted.
    pub fn quota(&self, level: Level) -> bool {
        self.management || self.quota.allows(level)
    }

    /// Returns whether a level of access to storage plugins is granted.
    pub fn plugin(&self, level: Level) -> bool {
        self.management || self.plugin.allows(level)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::acl::parse;
    use proptest::prelude::*;

    fn acl(texts: &[&str]) -> Acl {
        let rules: Vec<Rules> = texts.iter().map(|text| parse(text).unwrap()).collect();
        Acl::compile(&rules)
    }

    #[test]
    fn the_most_specific_pattern_decides_alone() {
        let acl = acl(&[
            "namespace \"*\" { policy = \"read\" }\nnamespace \"team-*\" { policy = \"write\" }\nnamespace \"team-x\" { policy = \"deny\" }",
        ]);
        assert!(acl.namespace("other", NsCap::ReadJob) && !acl.namespace("other", NsCap::SubmitJob));
        assert!(acl.namespace("team-a", NsCap::SubmitJob));
        assert!(!acl.namespace("team-x", NsCap::ReadJob) && !acl.sees_namespace("team-x"));
        assert!(acl.namespace("*", NsCap::SubmitJob));
    }

    #[test]
    fn policies_add_up_and_denials_stay() {
        let both = acl(&[
            "namespace \"a\" { policy = \"read\" }",
            "namespace \"a\" { capabilities = [\"submit-job\"] }",
        ]);
        assert!(both.namespace("a", NsCap::ReadJob) && both.namespace("a", NsCap::SubmitJob));
        let denied =
            acl(&["namespace \"a\" { policy = \"write\" }", "namespace \"a\" { policy = \"deny\" }"]);
        assert!(!denied.namespace("a", NsCap::ReadJob));
        let node = acl(&["node { policy = \"write\" }", "node { policy = \"deny\" }"]);
        assert!(!node.node(Level::Read));
    }

    #[test]
    fn variables_are_allowed_by_path() {
        let acl = acl(&[
            "namespace \"default\" {\n variables {\n path \"app/*\" { capabilities = [\"read\", \"write\"] }\n path \"app/secret\" { capabilities = [\"deny\"] }\n }\n}",
        ]);
        assert!(
            acl.variable("default", "app/x", VarCap::Read) && acl.variable("default", "app/x", VarCap::List)
        );
        assert!(!acl.variable("default", "app/x", VarCap::Destroy));
        assert!(!acl.variable("default", "app/secret", VarCap::Read));
        assert!(
            !acl.variable("team", "app/x", VarCap::Read) && !acl.variable("default", "other", VarCap::List)
        );
        assert!(acl.sees_namespace("default") && !acl.sees_namespace("team"));
    }

    #[test]
    fn the_rules_about_variables_are_in_the_order_of_decisions() {
        let acl = acl(&[
            "namespace \"*\" { variables { path \"*\" { capabilities = [\"list\"] } path \"app/secret\" { capabilities = [\"write\"] } } }",
            "namespace \"team\" { variables { path \"app/*\" { capabilities = [\"write\"] } path \"app/secret\" { capabilities = [\"deny\"] } } }",
        ]);
        let paths =
            |namespace| acl.variable_rules(namespace).into_iter().map(|(path, _)| path).collect::<Vec<_>>();
        assert_eq!(paths("team"), ["app/secret", "app/secret", "app/*", "*"]);
        assert_eq!(paths("other"), ["app/secret", "*"]);
        assert_eq!(acl.variable_rules("team")[0].1, [VarCap::Deny]);
        assert!(Acl::management().variable_rules("team").is_empty());
    }

    #[test]
    fn management_may_everything_and_nobody_nothing() {
        let all = Acl::management();
        assert!(all.namespace("x", NsCap::AllocNodeExec) && all.operator(Level::Write));
        let none = Acl::default();
        assert!(!none.namespace("default", NsCap::ListJobs) && !none.namespace("*", NsCap::ListJobs));
        assert!(!none.plugin(Level::List) && !none.any_node_pool(PoolCap::Read));
    }

    #[test]
    fn operators_may_get_single_rights() {
        let acl = acl(&["operator { capabilities = [\"snapshot-save\"] }"]);
        assert!(acl.operator_cap("snapshot-save", Level::Write) && !acl.operator(Level::Read));
        assert!(!acl.operator_cap("keyring-rotate", Level::Write));
    }

    proptest! {
        #[test]
        fn the_first_rule_about_variables_that_matches_decides(
            rules in proptest::collection::vec(("[ab*]{1,3}", "[ab*]{1,4}", 0..5_usize), 0..6),
            namespace in "[ab]{1,3}",
            path in "[ab]{1,4}",
        ) {
            let text: String = rules
                .iter()
                .map(|(ns, path, cap)| {
                    let cap = VarCap::ALL[*cap].as_str();
                    format!("namespace \"{ns}\" {{ variables {{ path \"{path}\" {{ capabilities = [\"{cap}\"] }} }} }}\n")
                })
                .collect();
            let acl = acl(&[&text]);
            let rules = acl.variable_rules(&namespace);
            let first = rules.iter().find(|(pattern, _)| glob::matches(pattern, &path));
            for cap in VarCap::ALL.iter().copied().filter(|cap| *cap != VarCap::Deny) {
                let granted = first.is_some_and(|(_, caps)| caps.contains(&cap));
                prop_assert_eq!(granted, acl.variable(&namespace, &path, cap), "{} {:?}", cap.as_str(), rules);
            }
        }

        #[test]
        fn an_exact_name_beats_any_pattern(name in "[a-z]{1,8}", pattern in "[a-z*]{1,8}") {
            prop_assume!(pattern != name);
            let text = format!(
                "namespace \"{pattern}\" {{ policy = \"write\" }}\nnamespace \"{name}\" {{ policy = \"deny\" }}"
            );
            prop_assert!(!acl(&[&text]).namespace(&name, NsCap::ReadJob));
        }
    }
}
