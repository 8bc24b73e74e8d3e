//! `var lock`, `var init`

use crate::cmd::{at_most_one, duration_of};
use crate::ctx::Ctx;
use crate::error::{CliError, Doing as _, Outcome};
use caravan_sdk::{Error, Written};
use caravan_types::duration::GoDuration;
use caravan_types::ser::Secrets;
use caravan_types::variable::{VariableDecrypted, VariableLock};
use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt as _;
use std::process::Stdio;
use std::time::Duration;
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, sleep_until};

/// The interval between two attempts to take a lock that another holder has.
const AGAIN: Duration = Duration::from_secs(1);

/// Flags of `var lock`.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(override_usage = "caravan var lock [OPTIONS] <PATH> <PROGRAM> [ARGUMENT ...]")]
pub(crate) struct LockArgs {
    /// Time to live of the lock if it is not renewed
    #[arg(long, value_name = "DURATION", default_value = "15s")]
    ttl: String,
    /// Delay after the lock expires until another holder can take it
    #[arg(long, value_name = "DURATION", default_value = "15s")]
    delay: String,
    /// Number of retries to take the lock when the servers do not answer
    #[arg(long, value_name = "N", default_value_t = 5)]
    max_retry: u32,
    /// Run the program with /bin/sh instead of directly [default: false]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    shell: Option<bool>,
    /// Print each step
    #[arg(long)]
    verbose: bool,
    /// Path of the variable, and the program with its arguments
    #[arg(value_name = "PATH PROGRAM", num_args = 0.., trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<String>,
}

/// Flags of `var init`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct InitArgs {
    /// Format of the example: hcl or json
    #[arg(long, value_name = "FORM", default_value = "hcl")]
    out: String,
    /// Print only errors
    #[arg(long)]
    quiet: bool,
    /// File to write
    #[arg(value_name = "PATH", num_args = 0..)]
    args: Vec<String>,
}

const HCL: &str = "# The path and the namespace may be given on the command line instead.\npath      = \"path/to/variable\"\nnamespace = \"default\"\n\nitems {\n  key1 = \"value 1\"\n  key2 = \"value 2\"\n}\n";
const JSON: &str = "{\n  \"Namespace\": \"default\",\n  \"Path\": \"path/to/variable\",\n  \"Items\": {\n    \"key1\": \"value 1\",\n    \"key2\": \"value 2\"\n  }\n}\n";

/// Writes an example.
pub(super) fn init(ctx: &Ctx, args: &InitArgs) -> Outcome {
    let (default, text) = match args.out.as_str() {
        "hcl" => ("spec.nv.hcl", HCL),
        "json" => ("spec.nv.json", JSON),
        other => return Err(CliError::Usage(format!("Unknown form \"{other}\": use one of hcl, json"))),
    };
    let path = at_most_one(&args.args, "This command takes no arguments or one: <filename>")?;
    let path = path.unwrap_or(default);
    if std::path::Path::new(path).exists() {
        return Err(CliError::failed(format!("File {path:?} already exists")));
    }
    std::fs::write(path, text).doing(format!("Failed to write {path:?}"))?;
    if !args.quiet {
        ctx.out.line(&format!("Example variable specification written to {path}"));
    }
    Ok(0)
}

/// Runs a program while holding the lock of a variable.
pub(super) async fn run(ctx: &Ctx, args: &LockArgs) -> Outcome {
    let [path, program, rest @ ..] = args.args.as_slice() else {
        return Err(CliError::Usage("Not enough arguments (expected >1)".into()));
    };
    let lock = VariableLock {
        ttl: GoDuration(duration_of("ttl", &args.ttl)?),
        lock_delay: GoDuration(duration_of("delay", &args.delay)?),
        ..VariableLock::default()
    };
    let (held, sent) = acquire(ctx, args, path, &lock).await?;
    let lock = held.metadata.lock.ok_or_else(|| CliError::failed("The servers gave no lock"))?;
    if args.verbose {
        ctx.out.note(&format!("Holding the lock {} of variable {path:?}", lock.id));
    }
    let child = start(args, program, rest)?;
    let done = watch(ctx, path, &lock, sent, child).await;
    let released = ctx.client.variables().release_lock(path, &lock.id, &ctx.query()).await;
    let status = done?;
    released.doing("Error releasing the lock")?;
    Ok(status)
}

/// Takes the lock. Returns the variable, and when the request was sent.
async fn acquire(
    ctx: &Ctx,
    args: &LockArgs,
    path: &str,
    lock: &VariableLock,
) -> Result<(VariableDecrypted, Instant), CliError> {
    let mut tries = 0;
    // A variable that is created for its lock needs at least one item.
    let mut items = Secrets::default();
    loop {
        let sent = Instant::now();
        match ctx.client.variables().acquire_lock(path, &items, lock, &ctx.query()).await {
            Ok(Written::Done(variable)) => return Ok((*variable, sent)),
            Ok(Written::Conflict(_)) if args.verbose => {
                ctx.out.note(&format!("Somebody else holds variable {path:?}"));
            }
            Ok(Written::Conflict(_)) => {}
            Err(Error::Status { code: 400, body, .. }) if items.is_empty() && body.contains("Items") => {
                items = Secrets::new(BTreeMap::from([("lock".to_owned(), "held".to_owned())]));
                continue;
            }
            Err(error @ Error::Status { code: ..500, .. }) => {
                return Err(error).doing("Error acquiring the lock");
            }
            Err(error) => {
                tries += 1;
                if tries > args.max_retry {
                    return Err(error).doing("Error acquiring the lock");
                }
            }
        }
        tokio::time::sleep(AGAIN).await;
    }
}

fn start(args: &LockArgs, program: &str, rest: &[String]) -> Result<Child, CliError> {
    let mut command = match args.shell {
        Some(true) => {
            let mut shell = Command::new("/bin/sh");
            shell.arg("-c").arg(
                std::iter::once(program).chain(rest.iter().map(String::as_str)).collect::<Vec<_>>().join(" "),
            );
            shell
        }
        _ => {
            let mut command = Command::new(program);
            command.args(rest);
            command
        }
    };
    command.stdin(Stdio::inherit()).kill_on_drop(true);
    command.spawn().doing(format!("Error starting {program:?}"))
}

/// Why the lock is lost, although the program still runs.
fn lost(path: &str, reason: &str) -> CliError {
    CliError::failed(format!("The lock of variable {path:?} was lost: {reason}"))
}

/// Renews the lock until the program ends. Stops the program if another holder may get the lock: a renewal was refused, or
/// none was answered for the TTL. A server that cannot answer, for example during an election, takes no lock away.
async fn watch(ctx: &Ctx, path: &str, lock: &VariableLock, sent: Instant, mut child: Child) -> Outcome {
    let failed = |error| CliError::Io { doing: "Error waiting for the program".into(), source: error };
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    let ttl = lock.ttl.0.to_std();
    let (mut next, mut held_until) = (sent + ttl / 2, sent + ttl);
    let query = ctx.query();
    let mut failure = String::from("no renewal was sent");
    loop {
        // A renewal that a signal interrupts is sent again.
        let at = next;
        let renewal = async {
            sleep_until(at).await;
            let sent = Instant::now();
            (sent, ctx.client.variables().renew_lock(path, &lock.id, &query).await)
        };
        let error = tokio::select! {
            status = child.wait() => {
                let status = status.map_err(failed)?;
                let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
                return Ok(u8::try_from(code.unwrap_or(1)).unwrap_or(1));
            }
            // The program receives the same signal, because it is in the same process group. The lock is released
            // after it ends.
            _ = interrupt.recv() => continue,
            _ = terminate.recv() => {
                child.start_kill().map_err(failed)?;
                continue;
            }
            (sent, renewed) = renewal => match renewed {
                Ok(_) => {
                    (next, held_until) = (sent + ttl / 2, sent + ttl);
                    continue;
                }
                Err(Error::Status { code: 404 | 409, body, .. }) => lost(path, &body),
                Err(error) => {
                    failure = error.to_string();
                    next = Instant::now() + AGAIN.min(ttl / 2);
                    continue;
                }
            },
            () = sleep_until(held_until) => {
                lost(path, &format!("no renewal was answered within {}: {failure}", lock.ttl.0))
            }
        };
        child.start_kill().map_err(failed)?;
        let _ = child.wait().await;
        return Err(error);
    }
}
