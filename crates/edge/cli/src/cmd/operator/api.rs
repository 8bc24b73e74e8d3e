//! `operator api`, `operator metrics`, `operator utilization`

use crate::cmd::wrong_count;
use crate::ctx::Ctx;
use crate::error::{CliError, Doing as _, Outcome};
use crate::format::json;
use caravan_sdk::Token;
use http::Method;
use std::io::{IsTerminal as _, Read as _};

/// Flags of `operator api`.
#[derive(Debug, clap::Args)]
pub(crate) struct ApiArgs {
    /// HTTP method of the request
    #[arg(short = 'X', value_name = "METHOD")]
    method: Option<String>,
    /// Header to send, name: value; may be repeated
    #[arg(short = 'H', value_name = "HEADER")]
    header: Vec<String>,
    /// Print the request as a curl command instead of sending it
    #[arg(long)]
    dryrun: bool,
    /// Filter expression, sent as the query parameter "filter"
    #[arg(long, value_name = "EXPRESSION")]
    filter: Option<String>,
    /// Print the request and the status of the answer to standard error
    #[arg(long)]
    verbose: bool,
    /// Read the request body from this file, or from standard input with -
    #[arg(short = 'd', value_name = "FILE")]
    body: Option<String>,
    /// Path of the request, and optionally the body
    #[arg(value_name = "PATH", num_args = 0..)]
    args: Vec<String>,
}

/// Flags of `operator metrics`.
#[derive(Debug, clap::Args)]
pub(crate) struct MetricsArgs {
    /// Indent JSON
    #[arg(long)]
    pretty: bool,
    /// Format of the metrics: prometheus, or empty for JSON
    #[arg(long, default_value = "", hide_default_value = true)]
    format: String,
    /// Show JSON
    #[arg(long)]
    json: bool,
}

/// Flags of `operator utilization`.
#[derive(Debug, clap::Args)]
pub(crate) struct UtilizationArgs {
    /// Message to store in the bundle
    #[arg(long, value_name = "TEXT")]
    message: Option<String>,
    /// File to write
    #[arg(long, value_name = "FILE")]
    output: Option<String>,
    /// Only show the bundle on this day of the month
    #[arg(long, value_name = "BOOL", hide = true)]
    today_only: Option<String>,
}

/// Sends any request and prints the answer.
pub(crate) async fn run(ctx: &Ctx, args: &ApiArgs) -> Outcome {
    let (path, supplied) = match args.args.as_slice() {
        [path] => (path.as_str(), None),
        [path, body] => (path.as_str(), Some(body.as_str())),
        _ => {
            return Err(wrong_count(&args.args, 2, "This command takes one or two arguments: <path> [body]"));
        }
    };
    let path =
        path.strip_prefix("http://").and_then(|rest| rest.find('/').map(|at| &rest[at..])).unwrap_or(path);
    let path = if path.starts_with('/') { path.to_owned() } else { format!("/v1/{path}") };
    let path = match &args.filter {
        None => path,
        Some(filter) => {
            let mark = if path.contains('?') { '&' } else { '?' };
            format!("{path}{mark}filter={filter}")
        }
    };
    let body = body(supplied, args)?;
    let default = if body.is_empty() { "GET" } else { "PUT" };
    let method: Method = args
        .method
        .as_deref()
        .unwrap_or(default)
        .to_uppercase()
        .parse()
        .map_err(|_| CliError::Usage("The method is none of HTTP".into()))?;
    let mut headers: Vec<(&str, Token)> = Vec::new();
    for header in &args.header {
        let (name, value) = header.split_once(':').ok_or_else(|| {
            CliError::Usage(format!("A header must be of the form name: value, not {header:?}"))
        })?;
        headers.push((name.trim(), Token::new(value.trim())));
    }
    if args.dryrun {
        ctx.out.line(&format!("curl -X {method} {}{path}", ctx.client.address()));
        return Ok(0);
    }
    if args.verbose {
        ctx.out.note(&format!("> {method} {path}"));
    }
    let answer = ctx.client.exchange(method, &path, &headers, body.into()).await;
    let (code, body) = answer.doing("Error performing request")?;
    if args.verbose {
        ctx.out.note(&format!("< {code}"));
    }
    if code == 404 && body.is_empty() {
        return Ok(0);
    }
    ctx.out.raw(&body);
    Ok(0)
}

fn body(supplied: Option<&str>, args: &ApiArgs) -> Result<Vec<u8>, CliError> {
    let from = supplied.or(args.body.as_deref());
    match from {
        None => Ok(Vec::new()),
        Some("-") => {
            let mut text = Vec::new();
            let mut input = std::io::stdin();
            if input.is_terminal() {
                return Err(CliError::failed(
                    "The body is to be read from standard input, which is a terminal",
                ));
            }
            input.read_to_end(&mut text).doing("Error reading the body")?;
            Ok(text)
        }
        Some(text) => match text.strip_prefix('@') {
            Some(path) => std::fs::read(path).doing(format!("Error reading {path:?}")),
            None => Ok(text.as_bytes().to_vec()),
        },
    }
}

/// Shows the metrics of an agent.
pub(crate) async fn metrics(ctx: &Ctx, args: &MetricsArgs) -> Outcome {
    let doing = "Error getting metrics";
    if args.format == "prometheus" && !args.json {
        let query = ctx.query().param("format", "prometheus");
        let text = ctx.client.raw(Method::GET, "/v1/metrics", &query, Vec::new().into()).await;
        ctx.out.raw(&text.doing(doing)?);
        return Ok(0);
    }
    let answer: caravan_sdk::Response<serde_json::Value> =
        ctx.client.get("/v1/metrics", &ctx.query()).await.doing(doing)?;
    match args.pretty || args.json {
        true => ctx.out.line(&json(&answer.value)?),
        false => ctx.out.line(&answer.value.to_string()),
    }
    Ok(0)
}

/// Fails: utilization bundles are a feature of Nomad Enterprise.
pub(crate) async fn utilization(ctx: &Ctx) -> Outcome {
    let path = "/v1/operator/utilization";
    let answer = ctx.client.exchange(Method::POST, path, &[], Vec::new().into()).await;
    let (code, body) = answer.doing("Error generating bundle")?;
    Err(CliError::failed(format!(
        "Error generating bundle: Unexpected response code: {code} ({})",
        String::from_utf8_lossy(&body).trim_end()
    )))
}
