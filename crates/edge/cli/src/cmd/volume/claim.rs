//! `volume claim …`: claims of task groups on host volumes.

use crate::cmd::{at_most_one, one};
use crate::ctx::Ctx;
use crate::error::{CliError, Doing as _, Outcome};
use crate::format::{id as shown, json};
use crate::table::Table;
use caravan_types::host_volume::HostVolumeClaim;
use clap::Subcommand;
use std::io::IsTerminal as _;

/// Subcommands of `volume claim`.
#[derive(Debug, Subcommand)]
pub(crate) enum ClaimVerb {
    /// List the claims of task groups on host volumes
    List(ListArgs),
    /// Delete the claim of a task group on a host volume
    Delete(DeleteArgs),
}

/// Flags of `volume claim list`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct ListArgs {
    /// Show only claims of this job
    #[arg(long, value_name = "JOB")]
    job: Option<String>,
    /// Show only claims of this group
    #[arg(long, value_name = "GROUP")]
    group: Option<String>,
    /// Show only claims on volumes with this name
    #[arg(long, value_name = "NAME")]
    volume_name: Option<String>,
    /// Show JSON
    #[arg(long)]
    json: bool,
    /// Show full ids
    #[arg(long)]
    verbose: bool,
    /// Show only claims whose id has this prefix
    #[arg(value_name = "CLAIM", num_args = 0..)]
    args: Vec<String>,
}

/// Flags of `volume claim delete`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct DeleteArgs {
    /// Skip the confirmation prompt
    #[arg(long, short = 'y')]
    yes: bool,
    /// Claim id
    #[arg(value_name = "CLAIM", num_args = 0..)]
    args: Vec<String>,
}

pub(crate) async fn run(ctx: &Ctx, verb: &ClaimVerb) -> Outcome {
    match verb {
        ClaimVerb::List(args) => list(ctx, args).await,
        ClaimVerb::Delete(args) => delete(ctx, args).await,
    }
}

async fn list(ctx: &Ctx, args: &ListArgs) -> Outcome {
    let prefix = at_most_one(&args.args, "This command takes either no arguments or one: <claim id>")?;
    let mut query = ctx.query();
    let filters = [("job_id", &args.job), ("task_group", &args.group), ("volume_name", &args.volume_name)];
    for (key, value) in filters {
        if let Some(value) = value {
            query = query.param(key, value.as_str());
        }
    }
    if let Some(prefix) = prefix {
        query = query.prefix(prefix);
    }
    let claims = ctx
        .client
        .host_volumes()
        .claims(&query)
        .await
        .doing("Error querying task group host volume claims")?
        .value;
    if args.json {
        ctx.out.line(&json(&claims)?);
    } else if claims.is_empty() {
        ctx.out.line("No task group host volume claims found");
    } else {
        ctx.out.line(&table(&claims, args.verbose));
    }
    Ok(0)
}

fn table(claims: &[HostVolumeClaim], verbose: bool) -> String {
    let rows = claims.iter().map(|claim| {
        vec![
            shown(&claim.id, verbose),
            claim.namespace.to_string(),
            claim.job_id.to_string(),
            shown(claim.volume_id.as_str(), verbose),
            claim.volume_name.clone(),
        ]
    });
    Table::new(&["ID", "Namespace", "Job ID", "Volume ID", "Volume Name"]).rows(rows).render()
}

async fn delete(ctx: &Ctx, args: &DeleteArgs) -> Outcome {
    let supplied = one(&args.args, "This command takes one argument: <claim id>")?;
    let doing = "Error deleting task group host volume claim";
    let mut found = ctx.client.host_volumes().claims(&ctx.query().prefix(supplied)).await.doing(doing)?.value;
    let claim = match (found.pop(), found.is_empty()) {
        (Some(claim), true) => claim,
        (None, _) => {
            return Err(CliError::failed(format!(
                "{doing}: no claim with prefix or ID \"{supplied}\" found"
            )));
        }
        (Some(last), false) => {
            found.push(last);
            let table = table(&found, true);
            return Err(CliError::failed(format!("Prefix matched multiple claims\n\n{table}")));
        }
    };
    if !args.yes {
        if !std::io::stdin().is_terminal() {
            return Err(CliError::failed("-y is required where nobody can be asked"));
        }
        let question = format!(
            "Are you sure you want to delete task group host volume claim {}? The group may come to another volume. [y/N]",
            claim.id
        );
        if !ctx.out.ask(&question, &["y"]) {
            return Err(CliError::failed("Cancelling claim delete"));
        }
    }
    let query = ctx.query().namespace(claim.namespace.as_str());
    ctx.client.host_volumes().delete_claim(&claim.id, &query).await.doing(doing)?;
    ctx.out.line(&format!("Task group host volume claim {} successfully deleted", claim.id));
    Ok(0)
}
