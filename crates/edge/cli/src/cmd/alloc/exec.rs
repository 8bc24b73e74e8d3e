//! `alloc exec` and `job action`

use super::logs::{choose, of_job};
use crate::cmd::wrong_count;
use crate::ctx::Ctx;
use crate::error::{CliError, Doing as _, Outcome};
use crate::resolve;
use crate::terminal::{self, Session};
use caravan_sdk::ExecOptions;
use caravan_types::alloc::Allocation;

/// Flags of the commands that exchange input and output with a program in a task.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct TalkArgs {
    /// Pass standard input to the program [default: true]
    #[arg(short = 'i', value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    interactive: Option<bool>,
    /// Give the program a terminal [default: true if standard input and output are terminals]
    #[arg(short = 't', value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    tty: Option<bool>,
    /// Escape character: at the start of a line and followed by a dot, it ends the session; "none" disables it
    #[arg(short = 'e', value_name = "CHAR", default_value = "~")]
    escape: String,
}

impl TalkArgs {
    pub(crate) fn session(&self) -> Result<Session, CliError> {
        let escape = match self.escape.as_bytes() {
            b"none" => None,
            [byte] => Some(*byte),
            _ => {
                return Err(CliError::failed("-e requires 'none' or a single character"));
            }
        };
        let interactive = self.interactive.unwrap_or(true);
        let tty = self.tty.unwrap_or_else(|| interactive && terminal::is_there());
        if tty && !interactive {
            return Err(CliError::failed("-i must be enabled if running with tty"));
        }
        Ok(Session { interactive, tty, escape })
    }
}

/// Flags of `alloc exec`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct ExecArgs {
    #[command(flatten)]
    talk: TalkArgs,
    /// Task to run the command in
    #[arg(long, value_name = "TASK")]
    task: Option<String>,
    /// Take the argument as a job and use one of its allocations
    #[arg(long)]
    job: bool,
    /// With -job: use an allocation of this group
    #[arg(long, value_name = "GROUP")]
    group: Option<String>,
    /// Allocation or job, and the command with its arguments
    #[arg(value_name = "ALLOCATION", num_args = 0.., trailing_var_arg = true)]
    args: Vec<String>,
}

pub(crate) async fn run(ctx: &Ctx, args: &ExecArgs) -> Outcome {
    let Some((supplied, command)) = args.args.split_first() else {
        return Err(CliError::Usage("An allocation ID is required".into()));
    };
    if command.is_empty() {
        return Err(CliError::Usage("A command is required".into()));
    }
    let session = args.talk.session()?;
    let id = match args.job {
        true => of_job(ctx, supplied, args.group.as_deref()).await?,
        false => resolve::alloc(ctx, supplied).await?.id,
    };
    let alloc = info(ctx, id.as_str()).await?;
    let task = choose(&alloc, args.task.as_deref())?;
    check_task(&alloc, &task)?;
    let options = ExecOptions { task, command: command.to_vec(), tty: session.tty };
    let talking = ctx.client.exec(id.as_str(), &options, &ctx.query()).await;
    terminal::carry(&ctx.out, talking.doing("failed to exec into task")?, session).await
}

async fn info(ctx: &Ctx, id: &str) -> Result<Allocation, CliError> {
    let answer = ctx.client.allocations().info(id, &ctx.query()).await;
    Ok(answer.doing("Error querying allocation")?.value)
}

/// Returns an error that lists the allocation's tasks if `task` is not one of them.
pub(crate) fn check_task(alloc: &Allocation, task: &str) -> Result<(), CliError> {
    let names: Vec<&str> = match alloc.group() {
        Some(group) => group.tasks.iter().map(|task| task.name.as_str()).collect(),
        None => alloc.task_states.keys().map(String::as_str).collect(),
    };
    if names.is_empty() || names.contains(&task) {
        return Ok(());
    }
    Err(CliError::failed(format!("Could not find task named: {task}, found:\n{}", names.join("\n"))))
}

/// Flags of `job action`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct ActionArgs {
    #[command(flatten)]
    talk: TalkArgs,
    /// Job that defines the action
    #[arg(long, value_name = "JOB")]
    job: Option<String>,
    /// Allocation to run the action in, instead of any of the job's
    #[arg(long, value_name = "ALLOCATION")]
    allocation: Option<String>,
    /// Group to run the action in
    #[arg(long, value_name = "GROUP")]
    group: Option<String>,
    /// Task to run the action in
    #[arg(long, value_name = "TASK")]
    task: Option<String>,
    /// Name of the action
    #[arg(value_name = "ACTION", num_args = 0..)]
    args: Vec<String>,
}

/// Runs `job action`.
pub(crate) async fn action(ctx: &Ctx, args: &ActionArgs) -> Outcome {
    let [name] = args.args.as_slice() else {
        return Err(wrong_count(&args.args, 1, "This command takes one argument: <action>"));
    };
    let Some(supplied) = &args.job else {
        return Err(CliError::Usage("A job ID is required".into()));
    };
    let session = args.talk.session()?;
    let stub = resolve::job(ctx, supplied).await?;
    let query = ctx.query().namespace(stub.namespace.as_str());
    let job = ctx.client.jobs().info(stub.id.as_str(), &query).await.doing("Error querying job")?.value;
    let mut found = Vec::new();
    for group in job.task_groups.iter().filter(|g| args.group.as_ref().is_none_or(|name| g.name == *name)) {
        let tasks = group.tasks.iter().filter(|t| args.task.as_ref().is_none_or(|name| t.name == *name));
        let with = tasks.filter(|task| task.actions.iter().any(|action| action.name == *name));
        found.extend(with.map(|task| (group.name.clone(), task.name.clone())));
    }
    let (group, task) = match found.as_slice() {
        [one] => one.clone(),
        [] => {
            return Err(CliError::failed(format!(
                "Unable to find an action \"{name}\" in job \"{}\"",
                job.id
            )));
        }
        many => {
            let places: Vec<String> =
                many.iter().map(|(group, task)| format!("  * {group}/{task}")).collect();
            return Err(CliError::failed(format!(
                "Several tasks have an action \"{name}\"; name one with -group and -task:\n{}",
                places.join("\n")
            )));
        }
    };
    let alloc = match &args.allocation {
        Some(supplied) => resolve::alloc(ctx, supplied).await?.id,
        None => of_job(ctx, job.id.as_str(), Some(&group)).await?,
    };
    let talking = ctx
        .client
        .action(job.id.as_str(), alloc.as_str(), (&group, &task, name), session.tty, &query)
        .await
        .doing("failed to exec into task")?;
    terminal::carry(&ctx.out, talking, session).await
}
