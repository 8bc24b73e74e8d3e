//! `acl ...`: access control.

mod auth;
mod policy;
mod role;
mod token;

use crate::cmd::at_most_one;
use crate::ctx::Ctx;
use crate::data::DataArgs;
use crate::error::{Doing as _, Outcome};
use crate::jobfile;
use clap::Subcommand;
pub(crate) use token::shown as shown_token;

/// Subcommands of `acl`.
#[derive(Debug, Subcommand)]
pub(crate) enum AclVerb {
    /// Create the first management token
    Bootstrap(BootstrapArgs),
    /// Policies: apply, delete, info, list, self
    #[command(subcommand)]
    Policy(policy::PolicyVerb),
    /// Tokens: create, delete, info, list, self, update
    #[command(subcommand)]
    Token(token::TokenVerb),
    /// Roles: create, delete, info, list, update
    #[command(subcommand)]
    Role(role::RoleVerb),
    /// Auth methods: create, delete, info, list, update
    #[command(subcommand)]
    AuthMethod(auth::MethodVerb),
    /// Binding rules, which give roles and policies to logins: create, delete, info, list, update
    #[command(subcommand)]
    BindingRule(auth::RuleVerb),
}

/// Flags of `acl bootstrap`.
#[derive(Debug, clap::Args)]
pub(crate) struct BootstrapArgs {
    #[command(flatten)]
    data: DataArgs,
    /// File with the secret that the token gets, or - for standard input
    #[arg(value_name = "PATH", num_args = 0..)]
    args: Vec<String>,
}

pub(crate) async fn run(ctx: &Ctx, verb: &AclVerb) -> Outcome {
    match verb {
        AclVerb::Bootstrap(args) => bootstrap(ctx, args).await,
        AclVerb::Policy(verb) => Box::pin(policy::run(ctx, verb)).await,
        AclVerb::Token(verb) => Box::pin(token::run(ctx, verb)).await,
        AclVerb::Role(verb) => Box::pin(role::run(ctx, verb)).await,
        AclVerb::AuthMethod(verb) => Box::pin(auth::method(ctx, verb)).await,
        AclVerb::BindingRule(verb) => Box::pin(auth::rule(ctx, verb)).await,
    }
}

async fn bootstrap(ctx: &Ctx, args: &BootstrapArgs) -> Outcome {
    let path = at_most_one(&args.args, "This command takes 0 or 1 argument")?;
    let secret = match path {
        Some(path) => Some(jobfile::read_as(path, "Error reading provided token")?.trim().to_owned()),
        None => None,
    };
    let token = ctx.client.acl().bootstrap(secret.as_deref(), &ctx.query()).await;
    let token = token.doing("Error bootstrapping")?;
    if let Some(shown) = args.data.show(ctx, &token) {
        return shown;
    }
    ctx.out.line(&shown_token(&token));
    Ok(0)
}

/// Formats a list as Nomad prints it: `[a b]`.
fn words(list: &[String]) -> String {
    format!("[{}]", list.join(" "))
}

/// Returns the value of a flag: the file's text for `@path`, standard input for `-`, otherwise the value itself.
fn text_of(value: &str, what: &str) -> Result<String, crate::error::CliError> {
    match value.strip_prefix('@') {
        Some(path) => jobfile::read_as(path, &format!("Error reading {what}")),
        None if value == "-" => jobfile::read_as("-", &format!("Error reading {what}")),
        None => Ok(value.to_owned()),
    }
}
