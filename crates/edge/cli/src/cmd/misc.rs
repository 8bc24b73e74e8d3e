//! Small commands: `agent-info`, `login`, `ui`.

use crate::ctx::Ctx;
use crate::data::DataArgs;
use crate::error::{CliError, Doing as _, Outcome};
use std::process::{Command, Stdio};

/// Flags of `agent-info`.
#[derive(Debug, clap::Args)]
pub(crate) struct InfoArgs {
    #[command(flatten)]
    data: DataArgs,
}

/// Flags of `login`.
#[derive(Debug, clap::Args)]
pub(crate) struct LoginArgs {
    /// Auth method to log in with [default: the default method]
    #[arg(long, default_value = "", hide_default_value = true)]
    method: String,
    /// Type of the auth method, OIDC or JWT; an error if the method has another type
    #[arg(long = "type", default_value = "", hide_default_value = true)]
    kind: String,
    /// JWT that proves your identity
    #[arg(long, value_name = "JWT", default_value = "", hide_default_value = true)]
    login_token: String,
    /// Address that an OIDC login redirects to
    #[arg(long, value_name = "ADDR", hide = true)]
    oidc_callback_addr: Option<String>,
    #[command(flatten)]
    data: DataArgs,
}

/// Flags of `ui`.
#[derive(Debug, clap::Args)]
pub(crate) struct UiArgs {
    /// Log in to the web UI with the current token
    #[arg(long)]
    authenticate: bool,
    /// Print the URL instead of opening it
    #[arg(long)]
    show_url: bool,
    /// Id of the object to show
    #[arg(value_name = "ID", num_args = 0..)]
    args: Vec<String>,
}

/// Shows statistics of the agent.
pub(crate) async fn agent_info(ctx: &Ctx, args: &InfoArgs) -> Outcome {
    let info = ctx.client.agent().info().await.doing("Error querying agent info")?;
    if args.data.is_requested() {
        let answer: caravan_sdk::Response<serde_json::Value> =
            ctx.client.get("/v1/agent/self", &ctx.query()).await.doing("Error querying agent info")?;
        return args.data.always(ctx, &answer.value);
    }
    for (group, figures) in &info.stats {
        ctx.out.line(group);
        for (name, value) in figures {
            ctx.out.line(&format!("  {name} = {value}"));
        }
    }
    Ok(0)
}

/// Logs in with a JWT.
pub(crate) async fn login(ctx: &Ctx, args: &LoginArgs) -> Outcome {
    let acl = ctx.client.acl();
    let methods = acl.auth_methods(&ctx.query()).await.doing("Error listing ACL auth methods")?;
    let method = match args.method.as_str() {
        "" => methods
            .iter()
            .find(|method| method.default)
            .ok_or_else(|| CliError::failed("Must specify an auth method name and type, no default found"))?,
        name => methods.iter().find(|method| method.name == name).ok_or_else(|| {
            CliError::failed(format!("Error: method {name} not found in the state store. "))
        })?,
    };
    if !args.kind.is_empty() && !args.kind.eq_ignore_ascii_case(&method.kind) {
        return Err(CliError::failed(format!(
            "Specified type: {} does not match the type of the auth method: {}",
            args.kind, method.kind
        )));
    }
    if method.kind != "JWT" {
        return Err(CliError::failed(
            "Error performing login: logging in with OIDC is not supported yet: use an auth method of type JWT",
        ));
    }
    if args.login_token.is_empty() {
        return Err(CliError::failed("You need to provide a login token."));
    }
    let token = acl.login(&method.name, &args.login_token, &ctx.query()).await;
    let token = token.doing("Error performing login")?;
    if let Some(shown) = args.data.show(ctx, &token) {
        return shown;
    }
    ctx.out.line(&format!("Successfully logged in via {} and {}\n", method.kind, method.name));
    ctx.out.line(&super::acl::shown_token(&token));
    Ok(0)
}

/// Opens the web UI.
pub(crate) async fn ui(ctx: &Ctx, args: &UiArgs) -> Outcome {
    let what = crate::cmd::at_most_one(
        &args.args,
        "This command takes no or one optional argument, [<identifier>]",
    )?;
    let base = ctx.client.address().to_string();
    let mut url = match what {
        None => format!("{base}/ui/"),
        Some(id) => format!("{base}/ui/{}", page_of(ctx, id).await?),
    };
    if args.authenticate {
        let secret = ctx.client.acl().one_time_token(&ctx.query()).await;
        let secret = secret.doing("Could not get one-time token")?;
        url.push_str(&format!("?ott={}", secret.one_time_secret_id.expose()));
    }
    if args.show_url {
        ctx.out.line(&format!("URL for web UI: {url}"));
        return Ok(0);
    }
    ctx.out.line(&format!("Opening URL \"{url}\""));
    let opened = Command::new("xdg-open")
        .arg(&url)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    match opened {
        Ok(status) if status.success() => Ok(0),
        _ => Err(CliError::failed(format!("Error opening URL: no browser could be started; visit {url}"))),
    }
}

/// Returns the page of the object with this id.
async fn page_of(ctx: &Ctx, id: &str) -> Result<String, CliError> {
    let body = serde_json::json!({"Prefix": id, "Context": "all"});
    let found: caravan_sdk::Response<serde_json::Value> =
        ctx.client.put("/v1/search", &ctx.query(), &body).await.doing("Error querying search")?;
    let first = |kind: &str| found.value["Matches"][kind][0].as_str().map(str::to_owned);
    let pages =
        [("jobs", "jobs"), ("allocs", "allocations"), ("nodes", "clients"), ("volumes", "csi/volumes")];
    for (kind, page) in pages {
        if let Some(id) = first(kind) {
            return Ok(format!("{page}/{id}"));
        }
    }
    Err(CliError::failed(format!("No object with the id {id:?} was found")))
}
