//! `server ...`

use crate::cmd::one;
use crate::ctx::Ctx;
use crate::error::{CliError, Doing as _, Outcome};
use crate::format::json;
use crate::table::Table;
use caravan_sdk::{Member, QueryOptions, Response};
use clap::Subcommand;
use std::collections::BTreeSet;

/// Subcommands of `server`.
#[derive(Debug, Subcommand)]
pub(crate) enum ServerVerb {
    /// Force a server that does not return into the left state
    ForceLeave(LeaveArgs),
    /// Make the agent join other servers
    Join(JoinArgs),
    /// List the servers
    Members(MembersArgs),
}

/// Flags of `server force-leave`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct LeaveArgs {
    /// Remove the server from the list of members
    #[arg(long)]
    prune: bool,
    /// Name of the server to remove from the cluster
    #[arg(value_name = "NODE", num_args = 0..)]
    args: Vec<String>,
}

/// Arguments of `server join`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct JoinArgs {
    /// Addresses of servers to join
    #[arg(value_name = "ADDR", num_args = 0..)]
    args: Vec<String>,
}

pub(crate) async fn run(ctx: &Ctx, verb: &ServerVerb) -> Outcome {
    match verb {
        ServerVerb::Members(args) => members(ctx, args).await,
        ServerVerb::ForceLeave(args) => {
            let node = one(&args.args, "This command takes one argument: <node>")?;
            let mut query = ctx.query().param("node", node);
            if args.prune {
                query = query.param("prune", "1");
            }
            let done: Result<Response<()>, _> = ctx.client.put("/v1/agent/force-leave", &query, &()).await;
            done.doing(format!("Error force-leaving server {node}"))?;
            Ok(0)
        }
        ServerVerb::Join(args) => {
            if args.args.is_empty() {
                return Err(CliError::Usage("One or more node addresses must be given as arguments".into()));
            }
            let query = args.args.iter().fold(ctx.query(), |query, address| query.param("address", address));
            let done: Response<serde_json::Value> =
                ctx.client.put("/v1/agent/join", &query, &()).await.doing("Error joining")?;
            match done.value["error"].as_str().unwrap_or_default() {
                "" => {
                    let n = done.value["num_joined"].as_u64().unwrap_or(0);
                    ctx.out.line(&format!("Joined {n} servers successfully"));
                    Ok(0)
                }
                error => Err(CliError::failed(format!("Error joining: failed joining: {error}"))),
            }
        }
    }
}

/// Flags of `server members`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct MembersArgs {
    /// Show JSON
    #[arg(long)]
    json: bool,
    /// Show all tags of the servers
    #[arg(long, alias = "detailed")]
    verbose: bool,
}

/// Lists the servers.
async fn members(ctx: &Ctx, args: &MembersArgs) -> Outcome {
    let members = ctx.client.agent().members().await.doing("Error querying servers")?.members;
    if args.json {
        ctx.out.line(&json(&members)?);
        return Ok(0);
    }
    if members.is_empty() {
        ctx.out.line("No servers found");
        return Ok(0);
    }
    let (leaders, failures) = leaders(ctx, &members).await;
    ctx.out.line(&table(&members, &leaders, args.verbose));
    if failures.is_empty() {
        return Ok(0);
    }
    ctx.out.note("");
    for (region, error) in &failures {
        ctx.out.note(&format!("Error determining the leader of region \"{region}\": {error}"));
    }
    Ok(1)
}

/// Asks each region for its leader, at the same time. A region whose servers have all left is not asked. Returns the
/// addresses, and the errors of the regions that cannot be asked.
async fn leaders(ctx: &Ctx, members: &[Member]) -> (Vec<String>, Vec<(String, caravan_sdk::Error)>) {
    let present = members.iter().filter(|member| member.status != "left");
    let regions: BTreeSet<&str> = present.filter_map(|m| m.tags.get("region").map(String::as_str)).collect();
    let asked = regions.into_iter().map(|region| async move {
        let query = QueryOptions { region: Some(region.to_owned()), ..ctx.query() };
        (region.to_owned(), ctx.client.status().leader(&query).await)
    });
    let (mut leaders, mut failures) = (Vec::new(), Vec::new());
    for (region, answer) in futures::future::join_all(asked).await {
        match answer {
            Ok(leader) => leaders.push(leader),
            Err(error) => failures.push((region, error)),
        }
    }
    (leaders, failures)
}

fn table(members: &[Member], leaders: &[String], verbose: bool) -> String {
    let mut heading = vec!["Name", "Address", "Port", "Status", "Leader"];
    if verbose {
        heading.push("Protocol");
    }
    heading.extend(["Raft Version", "Build", "Datacenter", "Region"]);
    if verbose {
        heading.push("Tags");
    }
    let mut members: Vec<&Member> = members.iter().collect();
    members.sort_by(|a, b| a.name.cmp(&b.name));
    let rows = members.into_iter().map(|member| {
        let tag = |name: &str| member.tags.get(name).cloned().unwrap_or_default();
        // Servers call each other at the address of the gossip port.
        let host = if member.addr.contains(':') { format!("[{}]", member.addr) } else { member.addr.clone() };
        let rpc = format!("{host}:{}", tag("port"));
        let mut row = vec![
            member.name.clone(),
            member.addr.clone(),
            member.port.to_string(),
            member.status.clone(),
            leaders.contains(&rpc).to_string(),
        ];
        if verbose {
            row.push(member.protocol_cur.to_string());
        }
        row.extend([tag("raft_vsn"), tag("build"), tag("dc"), tag("region")]);
        if verbose {
            let tags: Vec<String> = member.tags.iter().map(|(k, v)| format!("{k}={v}")).collect();
            row.push(tags.join(","));
        }
        row
    });
    Table::new(&heading).rows(rows).render()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_reads_like_the_recorded_one() {
        let tags = [
            ("rpc_addr", "127.0.0.1"),
            ("port", "14647"),
            ("raft_vsn", "3"),
            ("build", "2.0.6-dev"),
            ("dc", "dc1"),
            ("region", "global"),
        ];
        let member = Member {
            name: "fixture-node.global".into(),
            addr: "127.0.0.1".into(),
            port: 14648,
            status: "alive".into(),
            tags: tags.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
            ..Default::default()
        };
        let text = table(&[member], &["127.0.0.1:14647".to_owned()], false);
        assert_eq!(text + "\n", include_str!("../../fixtures/server-members.txt"));
    }
}
