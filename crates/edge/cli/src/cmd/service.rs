//! `service …`

use crate::cmd::page::PageArgs;
use crate::cmd::{one, wrong_count};
use crate::ctx::Ctx;
use crate::error::{Doing as _, Outcome};
use crate::format::{id, json};
use crate::table::{Pairs, Table};
use caravan_types::service::ServiceRegistration;
use clap::Subcommand;

/// Subcommands of `service`.
#[derive(Debug, Subcommand)]
pub(crate) enum ServiceVerb {
    /// List service names
    List(ListArgs),
    /// Show the instances of a service
    Info(InfoArgs),
    /// Deregister a service instance
    Delete(DeleteArgs),
}

/// Flags of `service list`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct ListArgs {
    /// Show JSON
    #[arg(long)]
    json: bool,
}

/// Flags of `service info`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct InfoArgs {
    /// Show JSON
    #[arg(long)]
    json: bool,
    /// Show all attributes of each instance
    #[arg(long)]
    verbose: bool,
    #[command(flatten)]
    page: PageArgs,
    /// Name of the service
    #[arg(value_name = "SERVICE", num_args = 0..)]
    args: Vec<String>,
}

/// Flags of `service delete`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct DeleteArgs {
    /// Name of the service, and the id of the instance
    #[arg(value_name = "SERVICE", num_args = 0..)]
    args: Vec<String>,
}

pub(crate) async fn run(ctx: &Ctx, verb: &ServiceVerb) -> Outcome {
    match verb {
        ServiceVerb::List(args) => list(ctx, args).await,
        ServiceVerb::Info(args) => info(ctx, args).await,
        ServiceVerb::Delete(args) => delete(ctx, args).await,
    }
}

fn tags(tags: &[String]) -> String {
    format!("[{}]", tags.join(","))
}

async fn list(ctx: &Ctx, args: &ListArgs) -> Outcome {
    let found =
        ctx.client.services().list(&ctx.query()).await.doing("Error listing service registrations")?.value;
    if args.json {
        ctx.out.line(&json(&found)?);
        return Ok(0);
    }
    if found.iter().all(|names| names.services.is_empty()) {
        ctx.out.line("No service registrations found");
        return Ok(0);
    }
    let all = ctx.all_namespaces();
    let heading: &[&str] =
        if all { &["Service Name", "Namespace", "Tags"] } else { &["Service Name", "Tags"] };
    let mut table = Table::new(heading);
    for names in &found {
        for service in &names.services {
            let mut row = vec![service.service_name.clone()];
            if all {
                row.push(names.namespace.clone());
            }
            row.push(tags(&service.tags));
            table.row(row);
        }
    }
    ctx.out.line(&table.render());
    Ok(0)
}

async fn info(ctx: &Ctx, args: &InfoArgs) -> Outcome {
    let name = one(&args.args, "This command takes one argument: <service_name>")?;
    let query = args.page.over(ctx.query());
    let answer =
        ctx.client.services().get(name, &query).await.doing("Error listing service registrations")?;
    let found = answer.value;
    if found.is_empty() {
        ctx.out.line("No service registrations found");
        return Ok(0);
    }
    if args.json {
        ctx.out.line(&json(&found)?);
    } else if args.verbose {
        for row in &found {
            ctx.out.line(&format!("{}\n", whole(row)));
        }
    } else {
        ctx.out.line(&table(&found).render());
    }
    if !answer.meta.next_token.is_empty() {
        ctx.out.line(&format!(
            "\nResults have been paginated. To get the next page run:\n\n\
             caravan service info -page-token {} {name}",
            answer.meta.next_token
        ));
    }
    Ok(0)
}

fn place(row: &ServiceRegistration) -> String {
    if row.address.contains(':') {
        format!("[{}]:{}", row.address, row.port)
    } else {
        format!("{}:{}", row.address, row.port)
    }
}

fn table(found: &[ServiceRegistration]) -> Table {
    let row = |row: &ServiceRegistration| {
        vec![
            row.job_id.to_string(),
            place(row),
            tags(&row.tags),
            id(row.node_id.as_str(), false),
            id(row.alloc_id.as_str(), false),
        ]
    };
    Table::new(&["Job ID", "Address", "Tags", "Node ID", "Alloc ID"]).rows(found.iter().map(row))
}

fn whole(row: &ServiceRegistration) -> String {
    Pairs::new()
        .pair("ID", row.id.as_str())
        .pair("Service Name", row.service_name.as_str())
        .pair("Namespace", row.namespace.as_str())
        .pair("Job ID", row.job_id.as_str())
        .pair("Alloc ID", row.alloc_id.as_str())
        .pair("Node ID", row.node_id.as_str())
        .pair("Datacenter", row.datacenter.as_str())
        .pair("Address", place(row))
        .pair("Tags", tags(&row.tags))
        .render()
}

async fn delete(ctx: &Ctx, args: &DeleteArgs) -> Outcome {
    let [name, id] = args.args.as_slice() else {
        return Err(wrong_count(
            &args.args,
            2,
            "This command takes two arguments: <service_name> and <service_id>",
        ));
    };
    ctx.client
        .services()
        .delete(name, id, &ctx.query())
        .await
        .doing("Error deleting service registration")?;
    ctx.out.line("Successfully deleted service registration");
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registrations_are_shown_as_known() {
        let row = ServiceRegistration {
            job_id: "web".into(),
            address: "127.0.0.1".into(),
            port: 29501,
            tags: vec!["blue".into(), "v1".into()],
            node_id: "63126d9d-dd5a".into(),
            alloc_id: "861d219d-b109".into(),
            ..Default::default()
        };
        assert_eq!(
            table(std::slice::from_ref(&row)).render(),
            "Job ID  Address          Tags       Node ID   Alloc ID\n\
             web     127.0.0.1:29501  [blue,v1]  63126d9d  861d219d"
        );
        assert!(whole(&row).contains("Tags         = [blue,v1]"));
    }
}
