//! `server ...`

use crate::cmd::one;
use crate::ctx::Ctx;
use crate::error::{CliError, Doing as _, Outcome};
use crate::format::json;
use crate::table::Table;
use caravan_sdk::{Member, Response};
use clap::Subcommand;
use std::collections::{BTreeMap, BTreeSet};

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
                    let warning = done.value["warning"].as_str().unwrap_or_default();
                    if !warning.is_empty() {
                        ctx.out.note(&format!("Warning: {warning}"));
                    }
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

/// The tag of a member in JSON that says whether the member leads its region.
const LEADER: &str = "Leader";

/// Lists the servers. A region whose leader is unknown is named on standard error, and the exit code is 1.
async fn members(ctx: &Ctx, args: &MembersArgs) -> Outcome {
    let mut members = ctx.client.agent().members().await.doing("Error querying servers")?.members;
    if members.is_empty() {
        ctx.out.line(if args.json { "[]" } else { "No servers found" });
        return Ok(0);
    }
    let (leaders, failures) = leaders(ctx, &members).await;
    for member in &mut members {
        let leads = is_leader(member, &leaders);
        member.tags.insert(LEADER.to_owned(), leads.to_string());
    }
    members.sort_by(|a, b| a.name.cmp(&b.name));
    if args.json {
        ctx.out.line(&json(&members)?);
    } else {
        ctx.out.line(&table(&members, args.verbose));
    }
    if failures.is_empty() {
        return Ok(0);
    }
    ctx.out.note("");
    for (region, error) in failures {
        ctx.out.note(&format!("Error determining the leader of region \"{region}\": {error}"));
    }
    Ok(1)
}

fn tag(member: &Member, name: &str) -> String {
    member.tags.get(name).cloned().unwrap_or_default()
}

/// Asks for the leader of each region that has a member. Returns the leaders' addresses by region, and the failures.
async fn leaders(
    ctx: &Ctx,
    members: &[Member],
) -> (BTreeMap<String, String>, Vec<(String, caravan_sdk::Error)>) {
    let present = members.iter().filter(|member| member.status != "left");
    let regions: BTreeSet<String> = present.map(|member| tag(member, "region")).collect();
    let asked = regions.into_iter().map(|region| async move {
        let query = caravan_sdk::QueryOptions { region: Some(region.clone()), ..ctx.query() };
        (region, ctx.client.status().leader(&query).await)
    });
    let (mut leaders, mut failures) = (BTreeMap::new(), Vec::new());
    for (region, answer) in futures::future::join_all(asked).await {
        match answer {
            Ok(leader) => drop(leaders.insert(region, leader)),
            Err(error) => failures.push((region, error)),
        }
    }
    (leaders, failures)
}

/// Whether a member leads its region. The address of a leader is that for other servers: the member's own IP address with
/// the port for calls.
fn is_leader(member: &Member, leaders: &BTreeMap<String, String>) -> bool {
    let host = if member.addr.contains(':') { format!("[{}]", member.addr) } else { member.addr.clone() };
    let address = format!("{host}:{}", tag(member, "port"));
    leaders.get(&tag(member, "region")).is_some_and(|leader| *leader == address)
}

fn table(members: &[Member], verbose: bool) -> String {
    let mut heading = vec!["Name", "Address", "Port", "Status", "Leader"];
    if verbose {
        heading.push("Protocol");
    }
    heading.extend(["Raft Version", "Build", "Datacenter", "Region"]);
    if verbose {
        heading.push("Tags");
    }
    let rows = members.iter().map(|member| {
        let mut row = vec![
            member.name.clone(),
            member.addr.clone(),
            member.port.to_string(),
            member.status.clone(),
            tag(member, LEADER),
        ];
        if verbose {
            row.push(member.protocol_cur.to_string());
        }
        row.extend(["raft_vsn", "build", "dc", "region"].map(|name| tag(member, name)));
        if verbose {
            let tags = member.tags.iter().filter(|(name, _)| *name != LEADER);
            row.push(tags.map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(","));
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
        let mut member = Member {
            name: "fixture-node.global".into(),
            addr: "127.0.0.1".into(),
            port: 14648,
            status: "alive".into(),
            tags: tags.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
            ..Default::default()
        };
        let leaders = |address: &str| BTreeMap::from([("global".to_owned(), address.to_owned())]);
        assert!(is_leader(&member, &leaders("127.0.0.1:14647")));
        assert!(!is_leader(&member, &leaders("127.0.0.2:14647")) && !is_leader(&member, &BTreeMap::new()));
        member.tags.insert(LEADER.to_owned(), "true".to_owned());
        let text = table(std::slice::from_ref(&member), false);
        assert_eq!(text + "\n", include_str!("../../fixtures/server-members.txt"));
        let verbose = table(&[member], true);
        assert!(
            verbose.contains("Leader  Protocol  Raft Version") && !verbose.contains("Leader=true"),
            "{verbose}"
        );
    }
}
