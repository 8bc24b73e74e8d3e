//! `namespace ...`

use crate::cmd::one;
use crate::ctx::Ctx;
use crate::data::DataArgs;
use crate::error::{CliError, Doing as _, Outcome};
use crate::format::json;
use crate::jobfile;
use crate::table::{Pairs, Table};
use caravan_types::namespace::{NamespaceCapabilities, NamespaceSpec};
use clap::Subcommand;

/// Subcommands of `namespace`.
#[derive(Debug, Subcommand)]
pub(crate) enum NamespaceVerb {
    /// Create or update a namespace
    Apply(ApplyArgs),
    /// Delete a namespace
    Delete(NameArgs),
    /// Show a namespace in full, as JSON
    Inspect(InspectArgs),
    /// List namespaces
    List(ListArgs),
    /// Show the status of a namespace
    Status(StatusArgs),
}

/// Flags of `namespace apply`.
#[derive(Debug, clap::Args)]
pub(crate) struct ApplyArgs {
    /// Description of the namespace
    #[arg(long)]
    description: Option<String>,
    /// Quota that the namespace counts against
    #[arg(long)]
    quota: Option<String>,
    /// Parse the file as JSON
    #[arg(long)]
    json: bool,
    /// Name of the namespace, a file, or - for standard input
    #[arg(value_name = "NAME or PATH", num_args = 0..)]
    args: Vec<String>,
}

/// Arguments that name a namespace.
#[derive(Debug, clap::Args)]
pub(crate) struct NameArgs {
    #[arg(value_name = "NAME", num_args = 0..)]
    args: Vec<String>,
}

/// Flags of `namespace inspect`.
#[derive(Debug, clap::Args)]
pub(crate) struct InspectArgs {
    #[command(flatten)]
    data: DataArgs,
    /// Name of the namespace
    #[arg(value_name = "NAME", num_args = 0..)]
    args: Vec<String>,
}

/// Flags of `namespace list`.
#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    data: DataArgs,
}

/// Flags of `namespace status`.
#[derive(Debug, clap::Args)]
pub(crate) struct StatusArgs {
    /// Show JSON
    #[arg(long)]
    json: bool,
    /// Name of the namespace, or a prefix of it
    #[arg(value_name = "NAME", num_args = 0..)]
    args: Vec<String>,
}

const ONE: &str = "This command takes one argument: <namespace>";

pub(crate) async fn run(ctx: &Ctx, verb: &NamespaceVerb) -> Outcome {
    match verb {
        NamespaceVerb::Apply(args) => apply(ctx, args).await,
        NamespaceVerb::Delete(args) => {
            let name = one(&args.args, ONE)?;
            ctx.client.namespaces().delete(name, &ctx.query()).await.doing("Error deleting namespace")?;
            ctx.out.line(&format!("Successfully deleted namespace \"{name}\"!"));
            Ok(0)
        }
        NamespaceVerb::Inspect(args) => {
            let found = found(ctx, one(&args.args, ONE)?).await?;
            args.data.always(ctx, &without_hash(&found)?)
        }
        NamespaceVerb::List(args) => {
            let rows =
                ctx.client.namespaces().list(&ctx.query()).await.doing("Error retrieving namespaces")?.value;
            let all: Vec<_> = rows.iter().map(without_hash).collect::<Result<_, _>>()?;
            if let Some(shown) = args.data.show(ctx, &all) {
                return shown;
            }
            let cells = rows.into_iter().map(|row| vec![row.name.to_string(), row.description]);
            ctx.out.line(&Table::new(&["Name", "Description"]).rows(cells).render());
            Ok(0)
        }
        NamespaceVerb::Status(args) => {
            let found = found(ctx, one(&args.args, ONE)?).await?;
            match args.json {
                true => ctx.out.line(&json(&without_hash(&found)?)?),
                false => ctx.out.line(&shown(&found)),
            }
            Ok(0)
        }
    }
}

/// Returns the namespace as JSON without its hash, which Nomad's clients do not show either.
fn without_hash(spec: &NamespaceSpec) -> Result<serde_json::Value, CliError> {
    let mut value = serde_json::to_value(spec)?;
    if let Some(map) = value.as_object_mut() {
        map.remove("Hash");
    }
    Ok(value)
}

async fn apply(ctx: &Ctx, args: &ApplyArgs) -> Outcome {
    let supplied = one(&args.args, "This command takes one argument: <input>")?;
    let is_file = supplied == "-" || std::path::Path::new(supplied).is_file();
    let mut spec = match is_file {
        true => read(supplied, args.json)?,
        // Attributes without a flag keep their value.
        false => match ctx.client.namespaces().info(supplied, &ctx.query()).await {
            Ok(found) => found.value,
            Err(caravan_sdk::Error::Status { code: 404, .. }) => {
                NamespaceSpec { name: supplied.into(), ..NamespaceSpec::default() }
            }
            Err(error) => return Err(error).doing("Error looking up namespace"),
        },
    };
    if let Some(description) = &args.description {
        spec.description.clone_from(description);
    }
    if let Some(quota) = &args.quota {
        spec.quota.clone_from(quota);
    }
    ctx.client.namespaces().write(&spec, &ctx.query()).await.doing("Error applying namespace")?;
    ctx.out.line(&format!("Successfully applied namespace \"{}\"!", spec.name));
    Ok(0)
}

fn read(path: &str, as_json: bool) -> Result<NamespaceSpec, CliError> {
    let text = jobfile::read_as(path, "Error reading the namespace file")?;
    let name = if path == "-" { "<stdin>" } else { path };
    let value = match as_json {
        true => serde_json::from_str(&text),
        false => {
            let spec = caravan_hcl::policy::parse_namespace(&text, name)
                .map_err(|found| CliError::failed(format!("Error parsing the namespace file: {found}")))?;
            serde_json::to_value(spec)
        }
    };
    let spec: NamespaceSpec = serde_json::from_value(value?)?;
    match spec.name.is_empty() {
        true => Err(CliError::failed("Error: namespace name is missing in the file")),
        false => Ok(spec),
    }
}

/// Returns the namespace with this name or unique prefix.
async fn found(ctx: &Ctx, name: &str) -> Result<NamespaceSpec, CliError> {
    let doing = "Error retrieving namespaces";
    let rows = ctx.client.namespaces().list(&ctx.query().prefix(name)).await.doing(doing)?.value;
    if let Some(exact) = rows.iter().find(|row| row.name == name) {
        return Ok(exact.clone());
    }
    match rows.as_slice() {
        [] => Err(CliError::failed(format!("{doing}: Namespace \"{name}\" matched no namespaces"))),
        [one] => Ok(one.clone()),
        many => {
            let names: Vec<&str> = many.iter().map(|row| row.name.as_str()).collect();
            Err(CliError::failed(format!("Prefix matched multiple namespaces\n\n{}", names.join("\n"))))
        }
    }
}

fn shown(spec: &NamespaceSpec) -> String {
    let default = NamespaceCapabilities::default();
    let caps = spec.capabilities.as_ref().unwrap_or(&default);
    let enabled = |list: &[String]| if list.is_empty() { "*".to_owned() } else { list.join(",") };
    let pairs = Pairs::new()
        .pair("Name", spec.name.as_str())
        .pair("Description", &spec.description)
        .pair("Quota", &spec.quota)
        .pair("Enabled Drivers", enabled(&caps.enabled_task_drivers))
        .pair("Disabled Drivers", caps.disabled_task_drivers.join(","))
        .pair("Enabled Network Modes", enabled(&caps.enabled_network_modes))
        .pair("Disabled Network Modes", caps.disabled_network_modes.join(","));
    let mut text = pairs.render();
    if !spec.meta.is_empty() {
        let mut meta = Pairs::new();
        spec.meta.iter().for_each(|(key, value)| meta.push(key, value));
        text.push_str(&format!("\n\nMetadata\n{}", meta.render()));
    }
    if let Some(pools) = &spec.node_pool_configuration {
        let block = Pairs::new()
            .pair("Default", &pools.default)
            .pair("Allowed", pools.allowed.join(","))
            .pair("Denied", pools.denied.join(","));
        text.push_str(&format!("\n\nNode Pool Configuration\n{}", block.render()));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_reads_like_the_recorded_one() {
        let spec = NamespaceSpec {
            name: "team-b".into(),
            description: "From a file".into(),
            meta: [("owner".to_owned(), "bea".to_owned())].into(),
            ..NamespaceSpec::default()
        };
        assert_eq!(
            shown(&spec),
            "Name                   = team-b\nDescription            = From a file\nQuota                  = <none>\n\
             Enabled Drivers        = *\nDisabled Drivers       = <none>\nEnabled Network Modes  = *\n\
             Disabled Network Modes = <none>\n\nMetadata\nowner = bea"
        );
    }
}
