//! `acl role ...`

use crate::cmd::{at_most_one, one};
use crate::ctx::Ctx;
use crate::data::DataArgs;
use crate::error::{CliError, Doing as _, Outcome};
use crate::table::{Pairs, Table};
use caravan_types::acl::{PolicyLink, Role};
use clap::Subcommand;

/// Subcommands of `acl role`.
#[derive(Debug, Subcommand)]
pub(crate) enum RoleVerb {
    /// Create a role
    Create(CreateArgs),
    /// Update a role
    Update(UpdateArgs),
    /// Delete a role
    Delete(IdArgs),
    /// Show a role
    Info(InfoArgs),
    /// List roles
    List(ListArgs),
}

/// Flags of `acl role create`.
#[derive(Debug, clap::Args)]
pub(crate) struct CreateArgs {
    /// Name of the role
    #[arg(long, default_value = "", hide_default_value = true)]
    name: String,
    /// Description of the role
    #[arg(long, default_value = "", hide_default_value = true)]
    description: String,
    /// Policy that the role grants; may be repeated
    #[arg(long = "policy", alias = "policy-name", value_name = "NAME")]
    policy: Vec<String>,
    #[command(flatten)]
    data: DataArgs,
}

/// Flags of `acl role update`.
#[derive(Debug, clap::Args)]
pub(crate) struct UpdateArgs {
    /// New name of the role
    #[arg(long, default_value = "", hide_default_value = true)]
    name: String,
    /// New description of the role
    #[arg(long, default_value = "", hide_default_value = true)]
    description: String,
    /// Policy that the role grants; may be repeated
    #[arg(long = "policy", alias = "policy-name", value_name = "NAME")]
    policy: Vec<String>,
    /// Replace the role instead of merging the flags into it
    #[arg(long)]
    no_merge: bool,
    #[command(flatten)]
    data: DataArgs,
    /// Id of the role
    #[arg(value_name = "ID", num_args = 0..)]
    args: Vec<String>,
}

/// Arguments that name a role.
#[derive(Debug, clap::Args)]
pub(crate) struct IdArgs {
    #[arg(value_name = "ID", num_args = 0..)]
    args: Vec<String>,
}

/// Flags of `acl role info`.
#[derive(Debug, clap::Args)]
pub(crate) struct InfoArgs {
    /// Take the argument as a name, not as an id
    #[arg(long)]
    by_name: bool,
    #[command(flatten)]
    data: DataArgs,
    /// Id of the role, or its name with -by-name
    #[arg(value_name = "ID", num_args = 0..)]
    args: Vec<String>,
}

/// Flags of `acl role list`.
#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    data: DataArgs,
    #[arg(num_args = 0.., hide = true)]
    args: Vec<String>,
}

fn links(names: &[String]) -> Vec<PolicyLink> {
    names.iter().map(|name| PolicyLink { name: name.clone() }).collect()
}

fn names(role: &Role) -> String {
    role.policies.iter().map(|policy| policy.name.as_str()).collect::<Vec<_>>().join(",")
}

pub(crate) async fn run(ctx: &Ctx, verb: &RoleVerb) -> Outcome {
    let acl = ctx.client.acl();
    match verb {
        RoleVerb::Create(args) => {
            if args.name.is_empty() {
                return Err(CliError::failed("ACL role name must be specified using the -name flag"));
            }
            if args.policy.is_empty() {
                return Err(CliError::failed(
                    "At least one policy name must be specified using the -policy flag",
                ));
            }
            let role = Role {
                name: args.name.clone(),
                description: args.description.clone(),
                policies: links(&args.policy),
                ..Role::default()
            };
            let role = acl.write_role(&role, &ctx.query()).await.doing("Error creating ACL role")?;
            show(ctx, &args.data, &role)
        }
        RoleVerb::Update(args) => update(ctx, args).await,
        RoleVerb::Delete(args) => {
            let id = one(&args.args, "This command takes one argument: <acl_role_id>")?;
            acl.delete_role(id, &ctx.query()).await.doing("Error deleting ACL role")?;
            ctx.out.line(&format!("ACL role {id} successfully deleted"));
            Ok(0)
        }
        RoleVerb::Info(args) => {
            let supplied = one(&args.args, "This command takes one argument: <acl_role_id>")?;
            let role = match args.by_name {
                true => acl.role_named(supplied, &ctx.query()).await,
                false => acl.role(supplied, &ctx.query()).await,
            };
            show(ctx, &args.data, &role.doing("Error reading ACL role")?)
        }
        RoleVerb::List(args) => list(ctx, args).await,
    }
}

async fn update(ctx: &Ctx, args: &UpdateArgs) -> Outcome {
    let id = one(&args.args, "This command takes one argument: <acl_role_id>")?;
    let acl = ctx.client.acl();
    let mut role = acl.role(id, &ctx.query()).await.doing("Error reading ACL role")?;
    let changes = !args.name.is_empty() || !args.description.is_empty() || !args.policy.is_empty();
    if !changes {
        return Err(CliError::failed("Please provide at least one flag to update the ACL role"));
    }
    if args.no_merge {
        if args.name.is_empty() || args.policy.is_empty() {
            return Err(CliError::failed("A role without a merge needs the -name and -policy flags"));
        }
        role = Role { id: role.id, ..Role::default() };
    }
    if !args.name.is_empty() {
        role.name.clone_from(&args.name);
    }
    if !args.description.is_empty() {
        role.description.clone_from(&args.description);
    }
    for policy in links(&args.policy) {
        if !role.policies.contains(&policy) {
            role.policies.push(policy);
        }
    }
    let role = acl.write_role(&role, &ctx.query()).await.doing("Error updating ACL role")?;
    show(ctx, &args.data, &role)
}

fn show(ctx: &Ctx, data: &DataArgs, role: &Role) -> Outcome {
    if let Some(shown) = data.show(ctx, role) {
        return shown;
    }
    let pairs = Pairs::new()
        .pair("ID", &role.id)
        .pair("Name", &role.name)
        .pair("Description", &role.description)
        .pair("Policies", names(role))
        .pair("Create Index", role.create_index.to_string())
        .pair("Modify Index", role.modify_index.to_string());
    ctx.out.line(&pairs.render());
    Ok(0)
}

async fn list(ctx: &Ctx, args: &ListArgs) -> Outcome {
    at_most_one(&args.args, "This command takes no arguments")?;
    let rows = ctx.client.acl().roles(&ctx.query()).await.doing("Error listing ACL roles")?.value;
    if let Some(shown) = args.data.show(ctx, &rows) {
        return shown;
    }
    if rows.is_empty() {
        ctx.out.line("No ACL roles found");
        return Ok(0);
    }
    let cells = rows
        .iter()
        .map(|role| vec![role.id.clone(), role.name.clone(), role.description.clone(), names(role)]);
    ctx.out.line(&Table::new(&["ID", "Name", "Description", "Policies"]).rows(cells).render());
    Ok(0)
}
