//! `acl token ...`

use super::words;
use crate::cmd::{at_most_one, one};
use crate::ctx::Ctx;
use crate::data::DataArgs;
use crate::error::{CliError, Doing as _, Outcome};
use crate::format::go_time;
use crate::jobfile;
use crate::table::{Pairs, Table};
use caravan_types::acl::{RoleLink, Secret, Token, TokenStub, TokenType};
use caravan_types::duration::{self, GoDuration};
use clap::Subcommand;

/// Subcommands of `acl token`.
#[derive(Debug, Subcommand)]
pub(crate) enum TokenVerb {
    /// Create a token
    Create(CreateArgs),
    /// Update a token
    Update(UpdateArgs),
    /// Delete a token
    Delete(IdArgs),
    /// Show a token
    Info(InfoArgs),
    /// Show the token in use
    #[command(name = "self")]
    Own(OwnArgs),
    /// List tokens
    List(OwnArgs),
}

/// Flags of `acl token create`.
#[derive(Debug, clap::Args)]
pub(crate) struct CreateArgs {
    /// Name of the token
    #[arg(long, default_value = "", hide_default_value = true)]
    name: String,
    /// Type of the token: client or management
    #[arg(long = "type", default_value = "client")]
    kind: String,
    /// Make the token valid in all regions
    #[arg(long)]
    global: bool,
    /// Policy that the token grants; may be repeated
    #[arg(long, value_name = "NAME")]
    policy: Vec<String>,
    /// Role that the token grants, by id; may be repeated
    #[arg(long, value_name = "ID")]
    role_id: Vec<String>,
    /// Role that the token grants, by name; may be repeated
    #[arg(long, value_name = "NAME")]
    role_name: Vec<String>,
    /// Time to live of the token; without it, the token does not expire
    #[arg(long, value_name = "DURATION")]
    ttl: Option<String>,
    /// Accessor (a UUID) of an existing client token to upload; its secret is read from PATH
    #[arg(long, value_name = "UUID")]
    accessor: Option<String>,
    #[command(flatten)]
    data: DataArgs,
    /// File with the secret of the uploaded token, or - for standard input
    #[arg(value_name = "PATH", num_args = 0..)]
    args: Vec<String>,
}

/// Flags of `acl token update`.
#[derive(Debug, clap::Args)]
pub(crate) struct UpdateArgs {
    /// New name of the token
    #[arg(long, default_value = "", hide_default_value = true)]
    name: String,
    /// Type of the token: client or management
    #[arg(long = "type", default_value = "", hide_default_value = true)]
    kind: String,
    /// Make the token valid in all regions
    #[arg(long)]
    global: bool,
    /// Policy that replaces the token's present policies; may be repeated
    #[arg(long, value_name = "NAME")]
    policy: Vec<String>,
    /// Role, by id, that replaces the token's present roles; may be repeated
    #[arg(long, value_name = "ID")]
    role_id: Vec<String>,
    /// Role, by name, that replaces the token's present roles; may be repeated
    #[arg(long, value_name = "NAME")]
    role_name: Vec<String>,
    #[command(flatten)]
    data: DataArgs,
    /// Accessor of the token
    #[arg(value_name = "ACCESSOR", num_args = 0..)]
    args: Vec<String>,
}

/// Arguments that name a token.
#[derive(Debug, clap::Args)]
pub(crate) struct IdArgs {
    #[arg(value_name = "ACCESSOR", num_args = 0..)]
    args: Vec<String>,
}

/// Flags of `acl token info`.
#[derive(Debug, clap::Args)]
pub(crate) struct InfoArgs {
    #[command(flatten)]
    data: DataArgs,
    /// Accessor of the token
    #[arg(value_name = "ACCESSOR", num_args = 0..)]
    args: Vec<String>,
}

/// Flags of `acl token self` and `acl token list`.
#[derive(Debug, clap::Args)]
pub(crate) struct OwnArgs {
    #[command(flatten)]
    data: DataArgs,
    #[arg(num_args = 0.., hide = true)]
    args: Vec<String>,
}

const ONE: &str = "This command takes one argument: <token_accessor_id>";

pub(crate) async fn run(ctx: &Ctx, verb: &TokenVerb) -> Outcome {
    match verb {
        TokenVerb::Create(args) => create(ctx, args).await,
        TokenVerb::Update(args) => update(ctx, args).await,
        TokenVerb::Delete(args) => {
            let id = one(&args.args, ONE)?;
            ctx.client.acl().delete_token(id, &ctx.query()).await.doing("Error deleting token")?;
            ctx.out.line(&format!("Token {id} successfully deleted"));
            Ok(0)
        }
        TokenVerb::Info(args) => {
            let id = one(&args.args, ONE)?;
            let token = ctx.client.acl().token(id, &ctx.query()).await.doing("Error fetching token")?;
            show(ctx, &args.data, &token.value)
        }
        TokenVerb::Own(args) => {
            at_most_one(&args.args, "This command takes no arguments")?;
            if ctx.client.config().token.is_none() {
                return Err(CliError::failed("No token present in the environment or set via the CLI flag"));
            }
            let token = ctx.client.acl().own_token(&ctx.query()).await;
            show(ctx, &args.data, &token.doing("Error fetching self token")?)
        }
        TokenVerb::List(args) => list(ctx, args).await,
    }
}

/// Prints the token, as data if the flags ask for data.
fn show(ctx: &Ctx, data: &DataArgs, token: &Token) -> Outcome {
    if let Some(shown) = data.show(ctx, token) {
        return shown;
    }
    ctx.out.line(&shown(token));
    Ok(0)
}

async fn create(ctx: &Ctx, args: &CreateArgs) -> Outcome {
    let path = at_most_one(&args.args, "This command takes 0 or 1 argument")?;
    let (accessor, secret) = match (&args.accessor, path) {
        (None, None) => (String::new(), Secret::default()),
        (Some(accessor), Some(path)) => {
            let text = jobfile::read_as(path, "Error reading provided token")?;
            (accessor.clone(), Secret::new(text.trim()))
        }
        (Some(_), None) => {
            return Err(CliError::Usage(
                "-accessor needs the secret of the token: a file, or - for standard input".into(),
            ));
        }
        (None, Some(_)) => {
            return Err(CliError::Usage("A secret is uploaded together with -accessor".into()));
        }
    };
    let ttl =
        match &args.ttl {
            None => GoDuration::default(),
            Some(text) => GoDuration(duration::parse(text).ok_or_else(|| {
                CliError::failed(format!("Failed to parse TTL: {}", duration::invalid(text)))
            })?),
        };
    let roles = links(&args.role_id, &args.role_name);
    let token = Token {
        accessor_id: accessor,
        secret_id: secret,
        name: args.name.clone(),
        kind: TokenType::from(args.kind.clone()),
        policies: (!args.policy.is_empty()).then(|| args.policy.clone()),
        roles: (!roles.is_empty()).then_some(roles),
        global: args.global,
        expiration_ttl: ttl,
        ..Token::default()
    };
    let token = ctx.client.acl().write_token(&token, &ctx.query()).await.doing("Error creating token")?;
    show(ctx, &args.data, &token)
}

/// Returns links to roles by id and by name.
fn links(ids: &[String], names: &[String]) -> Vec<RoleLink> {
    let by_id = ids.iter().map(|id| RoleLink { id: id.clone(), name: String::new() });
    let by_name = names.iter().map(|name| RoleLink { id: String::new(), name: name.clone() });
    by_id.chain(by_name).collect()
}

async fn update(ctx: &Ctx, args: &UpdateArgs) -> Outcome {
    let id = one(&args.args, ONE)?;
    let token = ctx.client.acl().token(id, &ctx.query()).await;
    let mut token = token.doing("Error fetching token")?.value;
    if !args.name.is_empty() {
        token.name.clone_from(&args.name);
    }
    if !args.kind.is_empty() {
        token.kind = TokenType::from(args.kind.clone());
    }
    if args.global {
        token.global = true;
    }
    if !args.policy.is_empty() {
        token.policies = Some(args.policy.clone());
    }
    let roles = links(&args.role_id, &args.role_name);
    if !roles.is_empty() {
        token.roles = Some(roles);
    }
    let token = ctx.client.acl().write_token(&token, &ctx.query()).await.doing("Error updating token")?;
    show(ctx, &args.data, &token)
}

async fn list(ctx: &Ctx, args: &OwnArgs) -> Outcome {
    let rows: Vec<TokenStub> =
        ctx.client.acl().tokens(&ctx.query()).await.doing("Error listing ACL tokens")?.value;
    if let Some(shown) = args.data.show(ctx, &rows) {
        return shown;
    }
    if rows.is_empty() {
        ctx.out.line("No tokens found");
        return Ok(0);
    }
    let now = ctx.clock().now;
    let cells = rows.into_iter().map(|row| {
        let expired = !row.expiration_time.is_zero() && row.expiration_time.to_unix() <= now;
        vec![
            row.name,
            row.kind.as_str().to_owned(),
            row.global.to_string(),
            row.accessor_id,
            expired.to_string(),
        ]
    });
    ctx.out.line(&Table::new(&["Name", "Type", "Global", "Accessor ID", "Expired"]).rows(cells).render());
    Ok(0)
}

/// Renders a token for people.
pub(crate) fn shown(token: &Token) -> String {
    let expiry = match token.expiration_time.is_zero() {
        true => "<none>".to_owned(),
        false => go_time(token.expiration_time),
    };
    let mut pairs = Pairs::new()
        .pair("Accessor ID", &token.accessor_id)
        .pair("Secret ID", token.secret_id.expose())
        .pair("Name", &token.name)
        .pair("Type", token.kind.as_str())
        .pair("Global", token.global.to_string())
        .pair("Create Time", go_time(token.create_time))
        .pair("Expiry Time", expiry)
        .pair("Create Index", token.create_index.to_string())
        .pair("Modify Index", token.modify_index.to_string());
    if token.kind == TokenType::Management {
        return pairs.pair("Policies", "n/a").pair("Roles", "n/a").render();
    }
    pairs.push("Policies", words(token.policy_names()));
    let roles = match token.role_links() {
        [] => "<none>".to_owned(),
        links => {
            let rows = links.iter().map(|link| vec![link.id.clone(), link.name.clone()]);
            Table::new(&["ID", "Name"]).rows(rows).render()
        }
    };
    format!("{}\n\nRoles\n{roles}", pairs.render())
}

#[cfg(test)]
mod tests {
    use super::*;
    use caravan_types::Time;

    #[test]
    fn tokens_read_like_the_recorded_ones() {
        let mut token = Token {
            accessor_id: "994a4b78".into(),
            secret_id: Secret::new("f49e0ffc"),
            name: "by-role".into(),
            policies: Some(Vec::new()),
            roles: Some(vec![RoleLink { id: "8430cd2e".into(), name: "watchers".into() }]),
            create_time: Time(1_795_253_020_881_275_954),
            create_index: 18,
            modify_index: 18,
            ..Token::default()
        };
        assert_eq!(
            shown(&token),
            "Accessor ID  = 994a4b78\nSecret ID    = f49e0ffc\nName         = by-role\nType         = client\n\
             Global       = false\nCreate Time  = 2026-11-21 09:23:40.881275954 +0000 UTC\nExpiry Time  = <none>\n\
             Create Index = 18\nModify Index = 18\nPolicies     = []\n\nRoles\nID        Name\n8430cd2e  watchers"
        );
        token.kind = TokenType::Management;
        assert!(shown(&token).ends_with("Policies     = n/a\nRoles        = n/a"));
    }
}
