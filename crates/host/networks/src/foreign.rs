//! Firewalls of other programs that may drop packets of the bridge. The client does not change them: it reports them.

use crate::config::BridgeConfig;
use caravan_sys::netlink::nft::{Chain, Family};
use std::fmt;

/// The table of iptables in which forwarded packets are dropped.
const FILTER: &str = "filter";
/// A firewall that may drop packets of the bridge.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Foreign {
    /// A chain of nf_tables that drops forwarded packets by default, with its policy or with a rule without conditions.
    /// An accepting rule of another table does not help.
    Chain {
        /// The family, as `nft` names it.
        family: &'static str,
        /// The name of the table.
        table: String,
        /// The name of the chain.
        chain: String,
    },
    /// The table `filter` of iptables-legacy, which nf_tables cannot see.
    Legacy,
}

impl fmt::Display for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Chain { family, table, chain } => {
                write!(f, "chain {chain} of table {family} {table} drops forwarded packets by default")
            }
            Self::Legacy => f.write_str("iptables-legacy drops forwarded packets by default"),
        }
    }
}

/// Returns the chains of a family that drop forwarded packets. `is_passed` is whether the client has rules in the table
/// `filter` of the family.
pub(crate) fn chains(
    config: &BridgeConfig,
    family: Family,
    chains: &[Chain],
    is_passed: bool,
) -> Vec<Foreign> {
    let is_own = |chain: &&Chain| {
        (family == Family::Inet && chain.table == config.table().name) || (is_passed && chain.table == FILTER)
    };
    let found = chains.iter().filter(|chain| chain.drops_forwarded && !is_own(chain));
    let family = match family {
        Family::Inet => "inet",
        Family::Ip => "ip",
        Family::Ip6 => "ip6",
    };
    found
        .map(|chain| Foreign::Chain { family, table: chain.table.clone(), chain: chain.name.clone() })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_chains_that_drop_and_are_not_passed_count() {
        let config = BridgeConfig::default();
        let chain =
            |table: &str, drops_forwarded| Chain { table: table.into(), name: "c".into(), drops_forwarded };
        let all = [
            chain("firewalld", true),
            chain("quiet", false),
            chain("caravan-nomad", true),
            chain("filter", true),
        ];
        let names = |family, is_passed| -> Vec<String> {
            chains(&config, family, &all, is_passed).iter().map(ToString::to_string).collect()
        };
        assert_eq!(names(Family::Inet, false).len(), 2);
        assert_eq!(
            names(Family::Ip, true),
            [
                "chain c of table ip firewalld drops forwarded packets by default",
                "chain c of table ip caravan-nomad drops forwarded packets by default"
            ]
        );
    }
}
