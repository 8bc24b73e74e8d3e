//! Versions and version ranges.
//!
//! Two flavors exist (docs/reference/jobspec.md, section 4.4). The loose one accepts a pre-release without a dash
//! (`1.2beta`), and a range contains pre-releases only if the range names one. The strict one orders pre-releases
//! according to semver.org.

use std::cmp::Ordering;
use std::fmt;

/// A version: numbers and an optional pre-release. Build metadata is ignored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// The numbers, padded with zeros to at least three.
    numbers: Vec<u64>,
    /// The number of numbers in the source text.
    written: usize,
    /// The pre-release; empty without one.
    pre: String,
}

/// The syntax of versions, and the treatment of pre-releases in ranges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flavor {
    /// The syntax of the operator `version`.
    Loose,
    /// The syntax of the operator `semver`.
    Strict,
}

/// The reason that a text is no valid version or range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VersionError {
    /// The version is invalid. Contains its text.
    #[error("Malformed version: {0}")]
    Version(String),
    /// The range is invalid. Contains its text.
    #[error("Malformed constraint: {0}")]
    Constraint(String),
}

impl Version {
    /// Parses a version, with or without a leading `v`.
    pub fn parse(text: &str, flavor: Flavor) -> Result<Self, VersionError> {
        let bad = || VersionError::Version(text.to_owned());
        let trimmed = text.trim();
        let body = trimmed.strip_prefix('v').unwrap_or(trimmed);
        let (body, build) = body.split_once('+').map_or((body, None), |(b, m)| (b, Some(m)));
        if build.is_some_and(|b| !identifiers(b)) {
            return Err(bad());
        }
        let end = body.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(body.len());
        let (numbers_text, tail) = body.split_at(end);
        let pre = match (tail.strip_prefix('-'), flavor) {
            (Some(pre), _) => pre,
            (None, Flavor::Loose) => tail,
            (None, Flavor::Strict) if tail.is_empty() => tail,
            (None, Flavor::Strict) => return Err(bad()),
        };
        if !tail.is_empty() && !identifiers(pre) {
            return Err(bad());
        }
        let mut numbers = numbers_text
            .split('.')
            .map(|part| part.parse::<u64>().map_err(|_| bad()))
            .collect::<Result<Vec<_>, _>>()?;
        let written = numbers.len();
        numbers.resize(written.max(3), 0);
        Ok(Self { numbers, written, pre: pre.to_owned() })
    }

    /// Returns whether the version is a pre-release.
    pub fn is_prerelease(&self) -> bool {
        !self.pre.is_empty()
    }

    fn number(&self, at: usize) -> u64 {
        self.numbers.get(at).copied().unwrap_or(0)
    }

    fn cmp_numbers(&self, other: &Self) -> Ordering {
        let length = self.numbers.len().max(other.numbers.len());
        (0..length)
            .map(|i| self.number(i).cmp(&other.number(i)))
            .find(|o| o.is_ne())
            .unwrap_or(Ordering::Equal)
    }

    /// Compares versions by rule 11 of semver.org. Not `Ord`, because versions with different texts may be equal.
    pub fn order(&self, other: &Self) -> Ordering {
        self.cmp_numbers(other).then_with(|| match (self.pre.is_empty(), other.pre.is_empty()) {
            (true, true) => Ordering::Equal,
            (true, false) => Ordering::Greater,
            (false, true) => Ordering::Less,
            (false, false) => cmp_pre(&self.pre, &other.pre),
        })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numbers: Vec<_> = self.numbers.iter().map(u64::to_string).collect();
        f.write_str(&numbers.join("."))?;
        if self.pre.is_empty() { Ok(()) } else { write!(f, "-{}", self.pre) }
    }
}

fn identifiers(text: &str) -> bool {
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '~');
    text.split('.').all(|part| !part.is_empty() && part.chars().all(legal))
}

fn cmp_pre(a: &str, b: &str) -> Ordering {
    let (mut a, mut b) = (a.split('.'), b.split('.'));
    loop {
        let (x, y) = match (a.next(), b.next()) {
            (None, None) => return Ordering::Equal,
            (None, Some(_)) => return Ordering::Less,
            (Some(_), None) => return Ordering::Greater,
            (Some(x), Some(y)) => (x, y),
        };
        let order = match (x.parse::<u64>(), y.parse::<u64>()) {
            (Ok(x), Ok(y)) => x.cmp(&y),
            (Ok(_), Err(_)) => Ordering::Less,
            (Err(_), Ok(_)) => Ordering::Greater,
            (Err(_), Err(_)) => x.cmp(y),
        };
        if order.is_ne() {
            return order;
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Equal,
    NotEqual,
    Greater,
    GreaterEqual,
    Less,
    LessEqual,
    Pessimistic,
}

const COMPARISONS: [(&str, Comparison); 7] = [
    (">=", Comparison::GreaterEqual),
    ("<=", Comparison::LessEqual),
    ("!=", Comparison::NotEqual),
    ("~>", Comparison::Pessimistic),
    (">", Comparison::Greater),
    ("<", Comparison::Less),
    ("=", Comparison::Equal),
];

/// A range: comma-separated conditions that must all hold, for example `>= 1.2, < 2`.
#[derive(Clone, Debug)]
pub struct Range {
    flavor: Flavor,
    conditions: Vec<(Comparison, Version)>,
}

impl Range {
    /// Parses a range. Only the loose flavor has `~>`.
    pub fn parse(text: &str, flavor: Flavor) -> Result<Self, VersionError> {
        let condition = |part: &str| {
            let part = part.trim();
            let (comparison, rest) = COMPARISONS
                .iter()
                .find_map(|(sign, comparison)| Some((*comparison, part.strip_prefix(sign)?)))
                .unwrap_or((Comparison::Equal, part));
            if comparison == Comparison::Pessimistic && flavor == Flavor::Strict {
                return Err(VersionError::Constraint(part.to_owned()));
            }
            let version =
                Version::parse(rest, flavor).map_err(|_| VersionError::Constraint(part.to_owned()))?;
            Ok((comparison, version))
        };
        Ok(Self { flavor, conditions: text.split(',').map(condition).collect::<Result<_, _>>()? })
    }

    /// Returns whether the range contains a version.
    pub fn contains(&self, version: &Version) -> bool {
        self.conditions.iter().all(|(comparison, bound)| self.holds(*comparison, version, bound))
    }

    fn holds(&self, comparison: Comparison, v: &Version, bound: &Version) -> bool {
        let order = v.order(bound);
        match comparison {
            Comparison::Equal => return order.is_eq(),
            Comparison::NotEqual => return order.is_ne(),
            _ => {}
        }
        if self.flavor == Flavor::Loose && !prerelease_fits(v, bound) {
            return false;
        }
        match comparison {
            Comparison::Greater => order.is_gt(),
            Comparison::GreaterEqual => order.is_ge(),
            Comparison::Less => order.is_lt(),
            Comparison::LessEqual => order.is_le(),
            Comparison::Equal | Comparison::NotEqual | Comparison::Pessimistic => {
                // All numbers except the last one in the text are fixed; the last may only be larger.
                let fixed = bound.written.saturating_sub(1);
                (!bound.is_prerelease() || v.is_prerelease())
                    && order.is_ge()
                    && (0..fixed).all(|i| v.number(i) == bound.number(i))
            }
        }
    }
}

/// Returns whether a pre-release is allowed: only if the bound is a pre-release of the same numbers.
fn prerelease_fits(v: &Version, bound: &Version) -> bool {
    match (v.is_prerelease(), bound.is_prerelease()) {
        (true, true) => v.cmp_numbers(bound).is_eq(),
        (true, false) => false,
        (false, _) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn fits(flavor: Flavor, range: &str, version: &str) -> bool {
        Range::parse(range, flavor).unwrap().contains(&Version::parse(version, flavor).unwrap())
    }

    #[test]
    fn loose_ranges() {
        for (range, version, want) in [
            (">= 1.2", "1.2.0", true),
            (">= 1.2, < 2", "1.9.9", true),
            (">= 1.2, < 2", "2.0.0", false),
            ("1.2.3", "v1.2.3", true),
            ("= 1.2", "1.2.0+build", true),
            ("!= 1.2", "1.2.1", true),
            ("~> 1.2", "1.9", true),
            ("~> 1.2", "2.0", false),
            ("~> 1.2.3", "1.2.9", true),
            ("~> 1.2.3", "1.3.0", false),
            ("> 1.0", "1.1-beta", false),
            ("> 1.0-alpha", "1.0-beta", true),
            ("> 1.0-alpha", "1.1-beta", false),
            (">= 1.0-beta", "1.0", true),
            ("> 4.0", "6.1.0-13-cloud", false),
            ("< 1.0", "0.9beta", false),
        ] {
            assert_eq!(fits(Flavor::Loose, range, version), want, "{version} in {range}");
        }
    }

    #[test]
    fn strict_ranges_order_prereleases() {
        for (range, version, want) in [
            (">= 1.6.3-dev", "1.7.0-beta.1", true),
            (">= 1.7.0-a", "1.7.0", true),
            (">= 1.7.0", "1.7.0-rc.1", false),
            ("> 1.0.0-alpha.2", "1.0.0-alpha.10", true),
            ("> 1.0.0-alpha", "1.0.0-alpha.1", true),
            (">= 0.4.0", "v1.2.0", true),
        ] {
            assert_eq!(fits(Flavor::Strict, range, version), want, "{version} in {range}");
        }
        assert!(Version::parse("1.2beta", Flavor::Strict).is_err());
        assert!(Range::parse("~> 1.2", Flavor::Strict).is_err());
    }

    #[test]
    fn malformed_texts_are_named() {
        for text in ["", "a", "1.", "1..2", "1.2-", "99999999999999999999999", "1 2"] {
            assert!(Version::parse(text, Flavor::Loose).is_err(), "{text:?}");
        }
        assert_eq!(
            Range::parse(">= x", Flavor::Loose).unwrap_err().to_string(),
            "Malformed constraint: >= x"
        );
    }

    proptest! {
        #[test]
        fn parsing_never_panics(text in ".*") {
            for flavor in [Flavor::Loose, Flavor::Strict] {
                let _ = Version::parse(&text, flavor);
                let _ = Range::parse(&text, flavor);
            }
        }

        #[test]
        fn the_order_is_one(a in "[0-2]\\.[0-2](-[ab1](\\.[ab1])?)?", b in "[0-2]\\.[0-2](-[ab1](\\.[ab1])?)?") {
            let (a, b) = (Version::parse(&a, Flavor::Strict).unwrap(), Version::parse(&b, Flavor::Strict).unwrap());
            prop_assert_eq!(a.order(&b), b.order(&a).reverse());
            prop_assert_eq!(a.order(&a), Ordering::Equal);
        }
    }
}
