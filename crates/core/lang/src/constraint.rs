//! Evaluates the operators of `constraint` and `affinity` blocks (docs/reference/jobspec.md, section 4.4).

use crate::version::{Flavor, Range, Version};
use regex::Regex;
use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::HashMap;

/// An operator. Each variant lists its spellings in job files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operator {
    /// `=`, `==`, `is`.
    Equal,
    /// `!=`, `not`.
    NotEqual,
    /// `<`.
    Less,
    /// `<=`.
    LessEqual,
    /// `>`.
    Greater,
    /// `>=`.
    GreaterEqual,
    /// `regexp`.
    Regexp,
    /// `version`.
    Version,
    /// `semver`.
    Semver,
    /// `set_contains`, `set_contains_all`.
    SetContainsAll,
    /// `set_contains_any`.
    SetContainsAny,
    /// `is_set`.
    IsSet,
    /// `is_not_set`.
    IsNotSet,
    /// `distinct_hosts`: a condition on the placement of other allocations, not on one node.
    DistinctHosts,
    /// `distinct_property`: a condition on the placement of other allocations, not on one node.
    DistinctProperty,
}

/// The spellings of all constraint operators. The operators of affinities come first.
pub const OPERATORS: [&str; 19] = [
    "=",
    "==",
    "is",
    "!=",
    "not",
    "<",
    "<=",
    ">",
    ">=",
    "regexp",
    "version",
    "semver",
    "set_contains",
    "set_contains_all",
    "set_contains_any",
    "is_set",
    "is_not_set",
    "distinct_hosts",
    "distinct_property",
];

/// The spellings of affinity operators: all operators that concern one node.
pub const AFFINITY_OPERATORS: &[&str] = OPERATORS.split_at(17).0;

/// The reason that an operator or its right side is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConstraintError {
    /// The operator is unknown. Contains its text.
    #[error("Unknown constraint type {0:?}")]
    Operator(String),
    /// The right side is no valid regular expression. Contains the reason.
    #[error("Regular expression failed to compile: {0}")]
    Regexp(String),
    /// The right side is no valid version range.
    #[error("Version constraint is invalid: {0}")]
    Version(#[source] crate::version::VersionError),
}

impl Operator {
    /// Parses an operator. An empty text is `=`.
    pub fn parse(text: &str) -> Result<Self, ConstraintError> {
        Ok(match text {
            "" | "=" | "==" | "is" => Self::Equal,
            "!=" | "not" => Self::NotEqual,
            "<" => Self::Less,
            "<=" => Self::LessEqual,
            ">" => Self::Greater,
            ">=" => Self::GreaterEqual,
            "regexp" => Self::Regexp,
            "version" => Self::Version,
            "semver" => Self::Semver,
            "set_contains" | "set_contains_all" => Self::SetContainsAll,
            "set_contains_any" => Self::SetContainsAny,
            "is_set" => Self::IsSet,
            "is_not_set" => Self::IsNotSet,
            "distinct_hosts" => Self::DistinctHosts,
            "distinct_property" => Self::DistinctProperty,
            other => return Err(ConstraintError::Operator(other.to_owned())),
        })
    }

    /// Returns whether the operator concerns other allocations rather than the node.
    pub fn is_distinct(self) -> bool {
        matches!(self, Self::DistinctHosts | Self::DistinctProperty)
    }
}

/// Validates an operator and a literal right side, before a job is admitted.
pub fn validate(operator: &str, right: &str) -> Result<Operator, ConstraintError> {
    let operator = Operator::parse(operator)?;
    let check = |flavor| Range::parse(right, flavor).map(|_| ()).map_err(ConstraintError::Version);
    if !right.contains("${") {
        match operator {
            Operator::Regexp => {
                crate::regexp::compile(right).map_err(ConstraintError::Regexp)?;
            }
            Operator::Version => check(Flavor::Loose)?,
            Operator::Semver => check(Flavor::Strict)?,
            _ => {}
        }
    }
    Ok(operator)
}

/// The values of names on one node: `attr.<key>`, `meta.<key>`, `node.class` and so on, without `${}`.
pub trait Targets {
    /// Returns the value of a name, or `None` if the node has none.
    fn target(&self, name: &str) -> Option<Cow<'_, str>>;
}

/// Resolves one side of a condition on a node: looks up a whole `${name}`, returns any other text unchanged. Returns
/// `None` if the node has no such value.
pub fn resolve<'a>(side: &'a str, targets: &'a impl Targets) -> Option<Cow<'a, str>> {
    match side.strip_prefix("${") {
        None => Some(Cow::Borrowed(side)),
        Some(inside) => targets.target(inside.strip_suffix('}')?),
    }
}

/// An evaluator of operators, which caches compiled regular expressions and version ranges.
#[derive(Debug, Default)]
pub struct Matcher {
    regexes: HashMap<String, Option<Regex>>,
    ranges: HashMap<(String, bool), Option<Range>>,
}

impl Matcher {
    /// Creates a matcher with an empty cache.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns whether a condition holds on a node. Returns true for operators that concern other allocations.
    pub fn holds(&mut self, left: &str, operator: Operator, right: &str, node: &impl Targets) -> bool {
        let (left, right) = (resolve(left, node), resolve(right, node));
        self.check(left.as_deref(), operator, right.as_deref())
    }

    /// Returns whether the operator holds between two values. `None` is a value that the node lacks.
    pub fn check(&mut self, left: Option<&str>, operator: Operator, right: Option<&str>) -> bool {
        match operator {
            Operator::NotEqual => return left != right,
            Operator::IsSet => return left.is_some(),
            Operator::IsNotSet => return left.is_none(),
            Operator::DistinctHosts | Operator::DistinctProperty => return true,
            _ => {}
        }
        let (Some(left), Some(right)) = (left, right) else { return false };
        match operator {
            Operator::Equal => left == right,
            Operator::Less => compare(left, right).is_lt(),
            Operator::LessEqual => compare(left, right).is_le(),
            Operator::Greater => compare(left, right).is_gt(),
            Operator::GreaterEqual => compare(left, right).is_ge(),
            Operator::Regexp => {
                if !self.regexes.contains_key(right) {
                    self.regexes.insert(right.to_owned(), crate::regexp::compile(right).ok());
                }
                self.regexes.get(right).and_then(Option::as_ref).is_some_and(|r| r.is_match(left))
            }
            Operator::Version => self.in_range(left, right, Flavor::Loose),
            Operator::Semver => self.in_range(left, right, Flavor::Strict),
            Operator::SetContainsAll => elements(right).all(|want| elements(left).any(|has| has == want)),
            Operator::SetContainsAny => elements(right).any(|want| elements(left).any(|has| has == want)),
            Operator::NotEqual
            | Operator::IsSet
            | Operator::IsNotSet
            | Operator::DistinctHosts
            | Operator::DistinctProperty => true,
        }
    }

    fn in_range(&mut self, version: &str, range: &str, flavor: Flavor) -> bool {
        let Ok(version) = Version::parse(version, flavor) else { return false };
        self.ranges
            .entry((range.to_owned(), flavor == Flavor::Strict))
            .or_insert_with(|| Range::parse(range, flavor).ok())
            .as_ref()
            .is_some_and(|range| range.contains(&version))
    }
}

fn elements(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').map(str::trim)
}

/// Compares as numbers if both texts are numbers, otherwise as texts.
fn compare(left: &str, right: &str) -> Ordering {
    if let (Ok(l), Ok(r)) = (left.parse::<i64>(), right.parse::<i64>()) {
        return l.cmp(&r);
    }
    if let (Ok(l), Ok(r)) = (left.parse::<f64>(), right.parse::<f64>())
        && let Some(order) = l.partial_cmp(&r)
    {
        return order;
    }
    left.cmp(right)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    struct Node;
    impl Targets for Node {
        fn target(&self, name: &str) -> Option<Cow<'_, str>> {
            match name {
                "attr.kernel.name" => Some("linux".into()),
                "meta.rack" => Some("r7".into()),
                _ => None,
            }
        }
    }

    fn holds(left: &str, word: &str, right: &str) -> bool {
        Matcher::new().check(Some(left), Operator::parse(word).unwrap(), Some(right))
    }

    #[test]
    fn operators_between_values() {
        for (left, word, right, want) in [
            ("a", "=", "a", true),
            ("a", "is", "b", false),
            ("a", "!=", "b", true),
            ("9", "<", "10", true),
            ("1.5", ">=", "1.25", true),
            ("10", "<", "9.5", false),
            ("a9", "<", "a10", false),
            ("abc", "regexp", "^a.c$", true),
            ("abc", "regexp", "(", false),
            ("5.10.0", "version", ">= 5.4, < 6", true),
            ("not-a-version", "version", ">= 1", false),
            ("1.7.0-beta", "semver", ">= 1.6.3-dev", true),
            ("a, b,c", "set_contains", "b,a", true),
            ("a,b", "set_contains_all", "a,d", false),
            ("a,b", "set_contains_any", "d, b", true),
            ("x", "is_set", "", true),
            ("x", "is_not_set", "", false),
        ] {
            assert_eq!(holds(left, word, right), want, "{left} {word} {right}");
        }
    }

    #[test]
    fn the_lists_are_the_operators() {
        for word in OPERATORS {
            let operator = Operator::parse(word).unwrap();
            assert_eq!(AFFINITY_OPERATORS.contains(&word), !operator.is_distinct(), "{word}");
        }
    }

    #[test]
    fn a_missing_value_satisfies_only_the_negations() {
        for word in OPERATORS {
            let operator = Operator::parse(word).unwrap();
            let want = operator.is_distinct() || matches!(word, "!=" | "not" | "is_not_set");
            assert_eq!(Matcher::new().check(None, operator, Some("1")), want, "{word}");
        }
    }

    #[test]
    fn sides_are_looked_up_only_when_they_are_whole_references() {
        assert_eq!(resolve("${attr.kernel.name}", &Node).as_deref(), Some("linux"));
        assert_eq!(resolve("linux", &Node).as_deref(), Some("linux"));
        assert_eq!(resolve("${attr.nothing}", &Node), None);
        assert_eq!(resolve("${meta.rack", &Node), None);
        assert!(Matcher::new().holds("${meta.rack}", Operator::Regexp, "^r[0-9]$", &Node));
        assert!(Matcher::new().holds("r7", Operator::Equal, "${meta.rack}", &Node));
    }

    #[test]
    fn nonsense_is_refused_before_a_job_is_admitted() {
        assert_eq!(validate("like", "x").unwrap_err().to_string(), "Unknown constraint type \"like\"");
        assert!(validate("regexp", "(").is_err());
        assert!(validate("version", "~> x").is_err());
        assert!(validate("version", "${meta.v}").is_ok());
    }

    proptest! {
        #[test]
        fn no_operator_panics(left in ".*", right in ".*", word in 0_usize..19) {
            holds(&left, OPERATORS[word], &right);
        }

        #[test]
        fn less_and_greater_exclude_each_other(left in "[0-9a-]{1,4}", right in "[0-9a-]{1,4}") {
            prop_assert_eq!(holds(&left, "<", &right), !holds(&left, ">=", &right));
        }
    }
}
