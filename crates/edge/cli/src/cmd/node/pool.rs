//! `node pool ...`

use crate::cmd::one;
use crate::cmd::page::{PageArgs, more};
use crate::ctx::Ctx;
use crate::data::DataArgs;
use crate::error::{CliError, Doing as _, Outcome};
use crate::format;
use crate::jobfile;
use crate::table::{Pairs, Table};
use caravan_types::node_pool::NodePool;
use clap::Subcommand;

/// Subcommands of `node pool`.
#[derive(Debug, Subcommand)]
pub(crate) enum PoolVerb {
    /// Create or update a node pool
    Apply(ApplyArgs),
    /// Delete a node pool
    Delete(NameArgs),
    /// Show a node pool
    Info(InfoArgs),
    /// Write an example node pool file
    Init(InitArgs),
    /// List the jobs of a node pool
    Jobs(JobsArgs),
    /// List node pools
    List(ListArgs),
    /// List the nodes of a node pool
    Nodes(NodesArgs),
}

/// Flags of `node pool apply`.
#[derive(Debug, clap::Args)]
pub(crate) struct ApplyArgs {
    /// Parse the file as JSON
    #[arg(long)]
    json: bool,
    /// Node pool file, or - for standard input
    #[arg(value_name = "PATH", num_args = 0..)]
    args: Vec<String>,
}

/// Arguments that name a node pool.
#[derive(Debug, clap::Args)]
pub(crate) struct NameArgs {
    #[arg(value_name = "NAME", num_args = 0..)]
    args: Vec<String>,
}

/// Flags of `node pool jobs`.
#[derive(Debug, clap::Args)]
pub(crate) struct JobsArgs {
    #[command(flatten)]
    page: PageArgs,
    #[command(flatten)]
    data: DataArgs,
    /// Name of the node pool, or a prefix of it
    #[arg(value_name = "NAME", num_args = 0..)]
    args: Vec<String>,
}

/// Flags of `node pool info`.
#[derive(Debug, clap::Args)]
pub(crate) struct InfoArgs {
    #[command(flatten)]
    data: DataArgs,
    /// Name of the node pool, or a prefix of it
    #[arg(value_name = "NAME", num_args = 0..)]
    args: Vec<String>,
}

/// Flags of `node pool nodes`.
#[derive(Debug, clap::Args)]
pub(crate) struct NodesArgs {
    /// Show full ids
    #[arg(long)]
    verbose: bool,
    #[command(flatten)]
    page: PageArgs,
    #[command(flatten)]
    data: DataArgs,
    /// Name of the node pool, or a prefix of it
    #[arg(value_name = "NAME", num_args = 0..)]
    args: Vec<String>,
}

/// Flags of `node pool init`.
#[derive(Debug, clap::Args)]
pub(crate) struct InitArgs {
    /// Write JSON
    #[arg(long)]
    json: bool,
    /// Print only errors
    #[arg(long)]
    quiet: bool,
    /// File to write
    #[arg(value_name = "PATH", num_args = 0..)]
    args: Vec<String>,
}

/// Flags of `node pool list`.
#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    page: PageArgs,
    #[command(flatten)]
    data: DataArgs,
}

const ONE: &str = "This command takes one argument: <node-pool>";

const HCL: &str = "node_pool \"example\" {\n  description = \"Example node pool\"\n\n  # Pairs of your own.\n  meta {\n    environment = \"test\"\n  }\n}\n";
const JSON: &str = "{\n  \"Name\": \"example\",\n  \"Description\": \"Example node pool\",\n  \"Meta\": {\n    \"environment\": \"test\"\n  }\n}\n";

pub(crate) async fn run(ctx: &Ctx, verb: &PoolVerb) -> Outcome {
    let pools = ctx.client.node_pools();
    match verb {
        PoolVerb::Apply(args) => {
            let path = one(&args.args, "This command takes one argument: <input>")?;
            let pool = read(path, args.json)?;
            pools.write(&pool, &ctx.query()).await.doing("Error applying node pool")?;
            ctx.out.line(&format!("Successfully applied node pool \"{}\"!", pool.name));
            Ok(0)
        }
        PoolVerb::Delete(args) => {
            let name = one(&args.args, ONE)?;
            pools.delete(name, &ctx.query()).await.doing("Error deleting node pool")?;
            ctx.out.line(&format!("Successfully deleted node pool \"{name}\"!"));
            Ok(0)
        }
        PoolVerb::Info(args) => {
            let pool = found(ctx, one(&args.args, ONE)?).await?;
            if let Some(shown) = args.data.show(ctx, &pool) {
                return shown;
            }
            ctx.out.line(&shown(&pool));
            Ok(0)
        }
        PoolVerb::Init(args) => init(ctx, args),
        PoolVerb::Jobs(args) => jobs(ctx, args).await,
        PoolVerb::List(args) => {
            let answer = pools.list(&args.page.over(ctx.query())).await.doing("Error querying node pools")?;
            let rows = answer.value;
            if let Some(shown) = args.data.show(ctx, &rows) {
                return shown;
            }
            let cells = rows.into_iter().map(|row| vec![row.name, row.description]);
            ctx.out.line(&Table::new(&["Name", "Description"]).rows(cells).render());
            more(ctx, &answer.meta);
            Ok(0)
        }
        PoolVerb::Nodes(args) => nodes(ctx, args).await,
    }
}

fn read(path: &str, as_json: bool) -> Result<NodePool, CliError> {
    let text = jobfile::read_as(path, "Error reading the node pool file")?;
    let name = if path == "-" { "<stdin>" } else { path };
    let value = match as_json {
        true => serde_json::from_str(&text)?,
        false => {
            let spec = caravan_hcl::policy::parse_node_pool(&text, name)
                .map_err(|found| CliError::failed(format!("Error parsing the node pool file: {found}")))?;
            serde_json::to_value(spec)?
        }
    };
    let value = match value {
        // Omit attributes that the file does not set.
        serde_json::Value::Object(map) => map.into_iter().filter(|(_, value)| !value.is_null()).collect(),
        other => other,
    };
    Ok(serde_json::from_value(value)?)
}

fn init(ctx: &Ctx, args: &InitArgs) -> Outcome {
    let (default, text) = if args.json { ("pool.nomad.json", JSON) } else { ("pool.nomad.hcl", HCL) };
    let path = crate::cmd::at_most_one(&args.args, "This command takes no arguments or one: <filename>")?;
    let path = path.unwrap_or(default);
    if std::path::Path::new(path).exists() {
        return Err(CliError::failed(format!("File {path:?} already exists")));
    }
    std::fs::write(path, text).doing(format!("Failed to write {path:?}"))?;
    if args.quiet {
        return Ok(0);
    }
    ctx.out.line(&format!("Example node pool specification written to {path}"));
    Ok(0)
}

/// Returns the node pool with this name or unique prefix.
async fn found(ctx: &Ctx, name: &str) -> Result<NodePool, CliError> {
    let doing = "Error retrieving node pool";
    let rows = ctx.client.node_pools().list(&ctx.query().prefix(name)).await.doing(doing)?.value;
    if let Some(exact) = rows.iter().find(|row| row.name == name) {
        return Ok(exact.clone());
    }
    match rows.as_slice() {
        [] => Err(CliError::failed(format!("{doing}: No node pool with prefix \"{name}\" found"))),
        [one] => Ok(one.clone()),
        many => {
            let names: Vec<&str> = many.iter().map(|row| row.name.as_str()).collect();
            Err(CliError::failed(format!("Prefix matched multiple node pools\n\n{}", names.join("\n"))))
        }
    }
}

fn shown(pool: &NodePool) -> String {
    let head = Pairs::new()
        .pair("Name", &pool.name)
        .pair("Description", &pool.description)
        .pair("Node Identity TTL", pool.node_identity_ttl.to_string());
    let mut meta = Pairs::new();
    pool.meta.iter().for_each(|(key, value)| meta.push(key, value));
    let meta = if pool.meta.is_empty() { "No metadata".to_owned() } else { meta.render() };
    let scheduler = match &pool.scheduler_configuration {
        None => "No scheduler configuration".to_owned(),
        Some(config) => Pairs::new().pair("Scheduler Algorithm", &config.scheduler_algorithm).render(),
    };
    format!("{}\n\nMetadata\n{meta}\n\nScheduler Configuration\n{scheduler}", head.render())
}

async fn nodes(ctx: &Ctx, args: &NodesArgs) -> Outcome {
    let pool = found(ctx, one(&args.args, ONE)?).await?;
    let answer = ctx.client.node_pools().nodes(&pool.name, &args.page.over(ctx.query())).await;
    let answer = answer.doing("Error querying nodes")?;
    let rows = answer.value;
    if let Some(shown) = args.data.show(ctx, &rows) {
        return shown;
    }
    if rows.is_empty() {
        ctx.out.line("No nodes");
        return Ok(0);
    }
    let cells = rows.into_iter().map(|node| {
        vec![
            format::id(node.id.as_str(), args.verbose),
            node.datacenter,
            node.name,
            node.node_class,
            node.drain.to_string(),
            node.scheduling_eligibility.as_str().to_owned(),
            node.status.as_str().to_owned(),
        ]
    });
    let heading = ["ID", "DC", "Name", "Class", "Drain", "Eligibility", "Status"];
    ctx.out.line(&Table::new(&heading).rows(cells).render());
    more(ctx, &answer.meta);
    Ok(0)
}

async fn jobs(ctx: &Ctx, args: &JobsArgs) -> Outcome {
    let pool = found(ctx, one(&args.args, ONE)?).await?;
    let answer = ctx.client.node_pools().jobs(&pool.name, &args.page.over(ctx.query())).await;
    let answer = answer.doing("Error querying jobs")?;
    let rows = answer.value;
    if let Some(shown) = args.data.show(ctx, &rows) {
        return shown;
    }
    if rows.is_empty() {
        ctx.out.line("No jobs");
        return Ok(0);
    }
    ctx.out.line(&crate::cmd::job::status::list(&ctx.clock(), &rows, false));
    more(ctx, &answer.meta);
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_pool_reads_like_the_recorded_one() {
        let pool = NodePool {
            name: "gold".into(),
            description: "fast machines".into(),
            meta: [("tier".to_owned(), "1".to_owned())].into(),
            ..NodePool::default()
        };
        assert_eq!(
            shown(&pool),
            "Name              = gold\nDescription       = fast machines\nNode Identity TTL = 24h0m0s\n\nMetadata\ntier = 1\n\nScheduler Configuration\nNo scheduler configuration"
        );
    }
}
