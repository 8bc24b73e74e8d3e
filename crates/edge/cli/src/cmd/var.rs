//! `var …`

mod lock;
mod spec;

use crate::cmd::page::PageArgs;
use crate::cmd::{at_most_one, one};
use crate::ctx::Ctx;
use crate::data;
use crate::error::{CliError, Doing as _, Outcome};
use crate::format::json;
use crate::table::Pairs;
use caravan_sdk::{CheckIndex, Error, Written};
use caravan_types::variable::VariableDecrypted;
use clap::Subcommand;
use std::fmt;
use std::io::IsTerminal as _;

/// The output format that renders a template.
const TEMPLATE: &str = "go-template";

/// Subcommands of `var`.
#[derive(Debug, Subcommand)]
pub(crate) enum VarVerb {
    /// Create or update a variable
    Put(PutArgs),
    /// Show a variable
    Get(GetArgs),
    /// List variables without their items
    List(ListArgs),
    /// Delete a variable
    Purge(PurgeArgs),
    /// Hold the lock of a variable while a program runs
    Lock(lock::LockArgs),
    /// Write an example variable file
    Init(lock::InitArgs),
}

/// Flags of `var put`.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(
    override_usage = "caravan var put [OPTIONS] <PATH> [NAME=VALUE ...]\n       caravan var put [OPTIONS] <PATH> <@FILE | ->"
)]
pub(crate) struct PutArgs {
    /// Overwrite the variable without checking its index
    #[arg(long)]
    force: bool,
    /// Write the variable only if its modify index equals this; 0: only if it is new [default: 0]
    #[arg(long, value_name = "INDEX")]
    check_index: Option<u64>,
    /// Format of the input, hcl or json [default: by the file's extension or its first character]
    #[arg(long = "in", value_name = "FORM")]
    input: Option<String>,
    /// Output format: json, hcl, table, go-template or none
    #[arg(long, value_name = "FORM")]
    out: Option<String>,
    /// Template for -out go-template
    #[arg(long, value_name = "TEMPLATE")]
    template: Option<String>,
    /// Accepted for compatibility; has no effect
    #[arg(long, hide = true)]
    verbose: bool,
    /// Path of the variable, and its items
    #[arg(value_name = "PATH ITEMS", num_args = 0..)]
    args: Vec<Typed>,
}

/// Flags of `var get`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct GetArgs {
    /// Show only the value of this item
    #[arg(long, value_name = "NAME")]
    item: Option<String>,
    /// Output format: json, hcl, table, go-template or none
    #[arg(long, value_name = "FORM")]
    out: Option<String>,
    /// Template for -out go-template
    #[arg(long, value_name = "TEMPLATE")]
    template: Option<String>,
    /// Path of the variable
    #[arg(value_name = "PATH", num_args = 0..)]
    args: Vec<String>,
}

/// Flags of `var list`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct ListArgs {
    /// Output format: json, table, terse or go-template
    #[arg(long, value_name = "FORM")]
    out: Option<String>,
    /// Template for -out go-template
    #[arg(long, value_name = "TEMPLATE")]
    template: Option<String>,
    #[command(flatten)]
    page: PageArgs,
    /// Prefix of the paths
    #[arg(value_name = "PREFIX", num_args = 0..)]
    args: Vec<String>,
}

/// Flags of `var purge`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct PurgeArgs {
    /// Delete the variable only if its modify index equals this
    #[arg(long, value_name = "INDEX")]
    check_index: Option<u64>,
    /// Path of the variable
    #[arg(value_name = "PATH", num_args = 0..)]
    args: Vec<String>,
}

/// An argument that may hold a secret. `Debug` hides it.
#[derive(Clone, Default)]
struct Typed(String);

impl fmt::Debug for Typed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[REDACTED]")
    }
}

impl From<String> for Typed {
    fn from(text: String) -> Self {
        Self(text)
    }
}

pub(crate) async fn run(ctx: &Ctx, verb: &VarVerb) -> Outcome {
    match verb {
        VarVerb::Put(args) => put(ctx, args).await,
        VarVerb::Get(args) => get(ctx, args).await,
        VarVerb::List(args) => list(ctx, args).await,
        VarVerb::Purge(args) => purge(ctx, args).await,
        VarVerb::Lock(args) => lock::run(ctx, args).await,
        VarVerb::Init(args) => lock::init(ctx, args),
    }
}

/// Returns the requested output format. The default on a terminal differs from the one for programs.
fn form<'a>(
    asked: Option<&'a str>,
    terminal: &'a str,
    known: &[&str],
    template: &Option<String>,
) -> Result<&'a str, CliError> {
    let form = match asked {
        Some(form) => form,
        None if std::io::stdout().is_terminal() => terminal,
        None => "json",
    };
    if (form == TEMPLATE) != template.is_some() {
        return Err(CliError::Usage(format!("-template and -out {TEMPLATE} need each other")));
    }
    match known.contains(&form) {
        true => Ok(form),
        false => Err(CliError::Usage(format!("Unknown form \"{form}\": use one of {}", known.join(", ")))),
    }
}

async fn put(ctx: &Ctx, args: &PutArgs) -> Outcome {
    let form =
        form(args.out.as_deref(), "none", &["json", "hcl", "table", "none", TEMPLATE], &args.template)?;
    let desired = spec::read(&args.args, args.input.as_deref())?;
    let check = match (args.force, args.check_index) {
        (true, None) => CheckIndex::Force,
        (false, index) => CheckIndex::At(index.or(desired.modify_index).unwrap_or(0)),
        (true, Some(_)) => {
            return Err(CliError::Usage("-force and -check-index exclude each other".into()));
        }
    };
    let mut query = ctx.query();
    if let Some(namespace) = desired.namespace {
        let own = ctx.client.namespace();
        if own != "default" && own != namespace {
            return Err(CliError::failed(format!(
                "The file says namespace \"{namespace}\", the command namespace \"{own}\""
            )));
        }
        query = query.namespace(namespace);
    }
    let written = ctx.client.variables().write(&desired.path, &desired.items, check, &query).await;
    match written.doing("Error creating variable")? {
        Written::Done(variable) => {
            show(ctx, form, args.template.as_deref(), &variable)?;
            Ok(0)
        }
        Written::Conflict(variable) => Err(conflict(ctx, check, &variable)),
    }
}

/// Returns the error of a failed check-and-set, in Nomad's words.
fn conflict(ctx: &Ctx, check: CheckIndex, variable: &VariableDecrypted) -> CliError {
    let supplied = match check {
        CheckIndex::At(index) => index,
        CheckIndex::Force => 0,
    };
    let (index, time) = (variable.metadata.modify_index, ctx.clock().time(variable.metadata.modify_time));
    CliError::failed(format!(
        "\nCheck-and-Set conflict\n\n    Your provided check-index ({supplied}) does not match the server-side index ({index}). The\n    \
         server-side item was last updated on {time}. If you are sure you\n    \
         want to perform this operation, add the -force or -check-index={index} flag before\n    \
         the positional arguments.\n"
    ))
}

fn show(ctx: &Ctx, form: &str, template: Option<&str>, variable: &VariableDecrypted) -> Result<(), CliError> {
    match form {
        TEMPLATE => ctx.out.line(&data::template(template.unwrap_or_default(), variable)?),
        "none" => {}
        "table" => ctx.out.line(&table(ctx, variable)),
        "hcl" => ctx.out.line(&hcl(variable)),
        _ => ctx.out.line(&serde_json::to_string_pretty(variable)?),
    }
    Ok(())
}

fn table(ctx: &Ctx, variable: &VariableDecrypted) -> String {
    let meta = &variable.metadata;
    let mut head = Pairs::new()
        .pair("Namespace", meta.namespace.as_str())
        .pair("Path", meta.path.as_str())
        .pair("Create Time", ctx.clock().time(meta.create_time));
    if meta.create_index != meta.modify_index {
        head.push("Modify Time", ctx.clock().time(meta.modify_time));
    }
    head.push("Check Index", meta.modify_index.to_string());
    let mut items = Pairs::new();
    for (name, value) in variable.items.expose() {
        items.push(name.as_str(), value.as_str());
    }
    format!("{}\n\nItems\n{}", head.render(), items.render())
}

fn hcl(variable: &VariableDecrypted) -> String {
    let meta = &variable.metadata;
    // A JSON string is a valid HCL string once template markers are escaped.
    let quoted =
        |text: &str| serde_json::Value::from(text).to_string().replace("${", "$${").replace("%{", "%%{");
    let items = variable.items.expose();
    let width = items.keys().map(String::len).max().unwrap_or(0);
    let lines: Vec<String> =
        items.iter().map(|(name, value)| format!("  {name:width$} = {}", quoted(value))).collect();
    format!(
        "\nnamespace    = {}\npath         = {}\ncreate_index = {}  # Set by server\nmodify_index = {}  # Set by server; consulted for check-and-set\n\
         create_time  = {}   # Set by server\nmodify_time  = {}   # Set by server\n\nitems = {{\n{}\n}}\n",
        quoted(meta.namespace.as_str()),
        quoted(&meta.path),
        meta.create_index,
        meta.modify_index,
        meta.create_time.0,
        meta.modify_time.0,
        lines.join("\n")
    )
}

async fn get(ctx: &Ctx, args: &GetArgs) -> Outcome {
    let path = one(&args.args, "This command takes one argument: <path>")?;
    let form =
        form(args.out.as_deref(), "table", &["json", "hcl", "table", "none", TEMPLATE], &args.template)?;
    let variable = match ctx.client.variables().read(path, &ctx.query()).await {
        Err(Error::Status { code: 404, .. }) => return Err(CliError::failed("Variable not found")),
        other => other.doing("Error retrieving variable")?.value,
    };
    let Some(item) = &args.item else {
        show(ctx, form, args.template.as_deref(), &variable)?;
        return Ok(0);
    };
    match variable.items.expose().get(item) {
        Some(value) => {
            ctx.out.raw(value.as_bytes());
            Ok(0)
        }
        None => Err(CliError::failed(format!("Variable does not contain \"{item}\" item"))),
    }
}

async fn list(ctx: &Ctx, args: &ListArgs) -> Outcome {
    let prefix =
        at_most_one(&args.args, "This command takes flags and either no arguments or one: <prefix>")?;
    let form = form(args.out.as_deref(), "table", &["json", "table", "terse", TEMPLATE], &args.template)?;
    let query = args.page.over(ctx.query().prefix(prefix.unwrap_or_default()));
    let answer = ctx.client.variables().list(&query).await.doing("Error retrieving vars")?;
    let rows = answer.value;
    match form {
        "json" => ctx.out.line(&json(&rows)?),
        TEMPLATE => ctx.out.line(&data::template(args.template.as_deref().unwrap_or_default(), &rows)?),
        "terse" => rows.iter().for_each(|row| ctx.out.line(&row.path)),
        _ if rows.is_empty() => ctx.out.note("No variables found"),
        _ => {
            let heading = ["Namespace", "Path", "Last Updated"];
            let cells = rows.iter().map(|row| {
                vec![row.namespace.to_string(), row.path.clone(), ctx.clock().time(row.modify_time)]
            });
            ctx.out.line(&crate::table::Table::new(&heading).rows(cells).render());
        }
    }
    if !answer.meta.next_token.is_empty() {
        ctx.out.note(&format!("Next page token: {}", answer.meta.next_token));
    }
    Ok(0)
}

async fn purge(ctx: &Ctx, args: &PurgeArgs) -> Outcome {
    let path = one(&args.args, "This command takes one argument: <path>")?;
    let check = args.check_index.map_or(CheckIndex::Force, CheckIndex::At);
    let done = ctx.client.variables().delete(path, check, &ctx.query()).await;
    if let Some(variable) = done.doing("Error purging variable")? {
        return Err(conflict(ctx, check, &variable));
    }
    ctx.out.line(&format!("Successfully purged variable \"{path}\"!"));
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use caravan_types::ser::Secrets;
    use std::collections::BTreeMap;

    #[test]
    fn hcl_is_as_recorded() {
        let mut variable: VariableDecrypted = serde_json::from_str(
            r#"{"Namespace":"default","Path":"app/config","CreateIndex":217,"ModifyIndex":219,
                "CreateTime":1795253000388392953,"ModifyTime":1795253000518049118,"Items":{"user":"u3"}}"#,
        )
        .unwrap();
        let recorded = "\nnamespace    = \"default\"\npath         = \"app/config\"\ncreate_index = 217  # Set by server\n\
            modify_index = 219  # Set by server; consulted for check-and-set\n\
            create_time  = 1795253000388392953   # Set by server\nmodify_time  = 1795253000518049118   # Set by server\n\n\
            items = {\n  user = \"u3\"\n}\n";
        assert_eq!(hcl(&variable), recorded);
        variable.items = Secrets::new(BTreeMap::from([("a".to_owned(), "${x}".to_owned())]));
        assert!(hcl(&variable).contains("$${x}"));
    }
}
