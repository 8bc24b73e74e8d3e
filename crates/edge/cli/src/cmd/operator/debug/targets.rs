//! Selects the agents to collect data from.

use super::DebugArgs;
use crate::ctx::Ctx;
use crate::error::{CliError, Doing as _};
use caravan_sdk::{Member, QueryOptions};
use std::collections::BTreeSet;

/// The selected agents, and the numbers of existing agents.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Targets {
    /// The names of the selected servers.
    pub(super) servers: Vec<String>,
    /// The number of servers in the cluster.
    pub(super) all_servers: usize,
    /// The ids of the selected nodes.
    pub(super) nodes: Vec<String>,
    /// The number of nodes in the cluster, of the requested class.
    pub(super) all_nodes: usize,
}

/// Selects the agents. A named server or node that does not exist is an error.
pub(super) async fn find(ctx: &Ctx, args: &DebugArgs, query: &QueryOptions) -> Result<Targets, CliError> {
    let known = ctx.client.agent().members().await.doing("Failed to retrieve server list")?;
    // The member table spans all regions, and an agent captures from servers of one.
    let region = query.region.as_ref().or(ctx.client.config().region.as_ref());
    let members = in_region(known.members, region.map_or(&known.server_region, |region| region));
    let leader = ctx.client.status().leader(query).await.unwrap_or_default();
    let servers = servers(&args.server_id, &members, &leader)?;
    let nodes = ctx.client.nodes().list(query).await.doing("Error querying node info")?.value;
    let of_class = nodes
        .iter()
        .filter(|node| args.node_class.is_empty() || node.node_class == args.node_class)
        .map(|node| (node.id.to_string(), node.name.to_string()))
        .collect::<Vec<_>>();
    let most = usize::try_from(args.max_nodes).ok().filter(|most| *most > 0).unwrap_or(usize::MAX);
    let mut chosen = self::nodes(&args.node_id, &of_class)?;
    chosen.truncate(most);
    Ok(Targets { servers, all_servers: members.len(), nodes: chosen, all_nodes: of_class.len() })
}

fn words(text: &str) -> Vec<&str> {
    text.split(',').map(str::trim).filter(|word| !word.is_empty() && *word != "none").collect()
}

/// Returns the servers of a region; all of them without a region.
fn in_region(mut members: Vec<Member>, region: &str) -> Vec<Member> {
    members.retain(|member| {
        let own = member.tags.get("region").map(String::as_str);
        region.is_empty() || own.is_none_or(|own| own == region)
    });
    members
}

fn servers(desired: &str, members: &[Member], leader: &str) -> Result<Vec<String>, CliError> {
    let mut out = BTreeSet::new();
    for word in words(desired) {
        let address = |member: &Member| {
            let of = |tag: &str| member.tags.get(tag).cloned().unwrap_or_default();
            format!("{}:{}", of("rpc_addr"), of("port"))
        };
        let found: Vec<&Member> = members
            .iter()
            .filter(|member| match word {
                "all" => true,
                "leader" => address(member) == leader || members.len() == 1,
                name => member.name == name || member.tags.get("id").is_some_and(|id| id == name),
            })
            .collect();
        if found.is_empty() && word != "all" {
            return Err(CliError::failed(format!("Failed to retrieve servers, no server is {word:?}")));
        }
        out.extend(found.into_iter().map(|member| member.name.clone()));
    }
    Ok(out.into_iter().collect())
}

fn nodes(desired: &str, known: &[(String, String)]) -> Result<Vec<String>, CliError> {
    let mut out: Vec<String> = Vec::new();
    for word in words(desired) {
        let found: Vec<&String> = match word {
            "all" => known.iter().map(|(id, _)| id).collect(),
            name => {
                let is = |(id, called): &&(String, String)| id.starts_with(name) || called == name;
                known.iter().filter(is).map(|(id, _)| id).collect()
            }
        };
        if found.is_empty() && word != "all" {
            return Err(CliError::failed(format!("Failed to retrieve clients, no node is {word:?}")));
        }
        for id in found {
            if !out.contains(id) {
                out.push(id.clone());
            }
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_named_by_prefix_name_or_all() {
        let known = [("a1-x".to_owned(), "one".to_owned()), ("b2-y".to_owned(), "two".to_owned())];
        assert_eq!(nodes("all", &known).unwrap(), ["a1-x", "b2-y"]);
        assert_eq!(nodes("b2, one,all", &known).unwrap(), ["b2-y", "a1-x"]);
        assert!(nodes("none", &known).unwrap().is_empty() && nodes("all", &[]).unwrap().is_empty());
        assert!(nodes("zz", &known).unwrap_err().to_string().contains("no node is \"zz\""));
    }

    #[test]
    fn servers_are_named_by_name_id_or_leader() {
        let member = |name: &str, port: &str| Member {
            name: name.to_owned(),
            tags: [("rpc_addr", "10.0.0.1"), ("port", port), ("id", &format!("id-{name}"))]
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .into(),
            ..Member::default()
        };
        let members = [member("s1.global", "1"), member("s2.global", "2")];
        let found = |expected: &str| servers(expected, &members, "10.0.0.1:2");
        assert_eq!(found("all").unwrap(), ["s1.global", "s2.global"]);
        assert_eq!(found("leader").unwrap(), ["s2.global"]);
        assert_eq!(found("id-s1.global,s2.global").unwrap(), ["s1.global", "s2.global"]);
        assert!(found("s3").is_err());
    }

    #[test]
    fn servers_of_other_regions_are_left_out() {
        let member = |name: &str, region: &str| Member {
            name: name.to_owned(),
            tags: [("region".to_owned(), region.to_owned())].into(),
            ..Member::default()
        };
        let members = vec![member("a.east", "east"), member("a.west", "west")];
        assert_eq!(in_region(members.clone(), "west"), [member("a.west", "west")]);
        assert_eq!(in_region(members, "").len(), 2);
    }
}
