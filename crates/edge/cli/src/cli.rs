//! The root of the command line: the command tree and the dispatch to each command.

mod mistakes;

use crate::cmd::{
    acl, alloc, completion, config, deployment, enterprise, eval, explain, fmt, job, misc, monitor,
    namespace, node, operator, plugin, scaling, server, service, setup, status, system, tls, var, volume,
};
use crate::ctx::{Ctx, General};
use crate::data;
use crate::error::{CliError, Outcome};
use crate::local::Local;
use crate::out::Out;
use caravan_args as args;
use clap::{Args as _, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use mistakes::mistake;
use std::ffi::OsString;
use std::process::ExitCode;

/// The name of the program.
const PROGRAM: &str = "caravan";

/// An open workload orchestrator
#[derive(Debug, Parser)]
#[command(
    name = PROGRAM,
    disable_help_subcommand = true,
    after_help = "Other commands:\n  agent            Run an agent; `caravan agent -dev` needs nothing else\n  \
                  plugin hostpath  Run the bundled CSI plugin\n\n\
                  Long flags may have one dash or two: -detach, --detach."
)]
struct Cli {
    #[command(flatten)]
    general: General,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Jobs: run, plan, validate, status, stop, start, restart, inspect, history, init, dispatch, periodic and more
    #[command(subcommand)]
    Job(job::JobVerb),
    /// Allocations: status, logs, fs, exec, checks, signal, stop, restart
    #[command(subcommand)]
    Alloc(alloc::AllocVerb),
    /// Evaluations: list, status
    #[command(subcommand)]
    Eval(eval::EvalVerb),
    /// Deployments: list, status, pause, resume, promote, fail, unblock
    #[command(subcommand)]
    Deployment(deployment::DeploymentVerb),
    /// Nodes: status, config, drain, eligibility, identity, intro, meta, pool
    #[command(subcommand)]
    Node(node::NodeVerb),
    /// Access control: bootstrap, policies, tokens, roles, logins
    #[command(subcommand)]
    Acl(acl::AclVerb),
    /// Show statistics of the agent
    AgentInfo(misc::InfoArgs),
    /// Print the completion script for a shell: bash, zsh or fish
    Completion(completion::CompletionArgs),
    /// Agent configuration: validate
    #[command(subcommand)]
    Config(config::ConfigVerb),
    /// Log in with a JWT and create an ACL token
    Login(misc::LoginArgs),
    /// The license, a feature of Nomad Enterprise
    #[command(subcommand)]
    License(enterprise::LicenseVerb),
    /// Namespaces: apply, delete, inspect, list, status
    #[command(subcommand)]
    Namespace(namespace::NamespaceVerb),
    /// Quotas, a feature of Nomad Enterprise
    #[command(subcommand)]
    Quota(enterprise::QuotaVerb),
    /// Recommendations of resources, a feature of Nomad Enterprise
    #[command(subcommand)]
    Recommendation(enterprise::RecommendationVerb),
    /// Sentinel policies, a feature of Nomad Enterprise
    #[command(subcommand)]
    Sentinel(enterprise::SentinelVerb),
    /// Prepare Consul or Vault for workload identities: consul, vault
    #[command(subcommand)]
    Setup(setup::SetupVerb),
    /// Open the web UI
    Ui(misc::UiArgs),
    /// Volumes: create, register, status, explain, deregister, delete, detach, init, snapshot, claim
    #[command(subcommand)]
    Volume(volume::VolumeVerb),
    /// Plugins: status
    #[command(subcommand)]
    Plugin(plugin::PluginVerb),
    /// Variables: put, get, list, purge
    #[command(subcommand)]
    Var(var::VarVerb),
    /// Scaling policies: list, info
    #[command(subcommand)]
    Scaling(scaling::ScalingVerb),
    /// Servers: members, join, force-leave
    #[command(subcommand)]
    Server(server::ServerVerb),
    /// Operator commands: settings, root keys, snapshots, the replicated log, debug bundles
    #[command(subcommand)]
    Operator(operator::OperatorVerb),
    /// Maintenance of the servers: gc, reconcile
    #[command(subcommand)]
    System(system::SystemVerb),
    /// Services: list, info, delete
    #[command(subcommand)]
    Service(service::ServiceVerb),
    /// TLS certificates for agents: ca create, ca info, cert create, cert info
    #[command(subcommand)]
    Tls(tls::TlsVerb),
    /// Stream an agent's log; export: show its past entries
    Monitor(monitor::MonitorArgs),
    /// Alias of `alloc exec`
    Exec(alloc::exec::ExecArgs),
    /// Alias of `alloc fs`
    Fs(alloc::fs::FsArgs),
    /// Alias of `job action`
    Action(alloc::exec::ActionArgs),
    /// Show any object by its id or a prefix of it
    Status(status::StatusArgs),
    /// Rewrite HCL files in canonical format
    Fmt(fmt::FmtArgs),
    /// Alias of `job init`
    Init(job::init::InitArgs),
    /// Alias of `job start`
    Start(job::start::StartArgs),
    /// Alias of `job run`
    Run(job::run::RunArgs),
    /// Alias of `job plan`
    Plan(job::plan::PlanArgs),
    /// Alias of `job validate`
    Validate(job::validate::ValidateArgs),
    /// Alias of `job stop`
    Stop(job::stop::StopArgs),
    /// Alias of `job inspect`
    Inspect(job::inspect::InspectArgs),
    /// Alias of `alloc logs`
    Logs(alloc::logs::LogsArgs),
    /// Explain an error code of the job language
    Explain(explain::ExplainArgs),
    /// Show the version
    Version,
}

/// Returns the command tree with all subcommands and flags.
fn tree() -> clap::Command {
    data::with_templates(Cli::command())
}

/// Returns the built command tree for `args`, which begin with the program's name. If the first argument is a command,
/// the tree has no others: building all of them takes longer than everything else that a short command does.
fn tree_for(args: &[OsString]) -> clap::Command {
    let whole = Cli::command();
    let first = args.get(1).and_then(|word| word.to_str());
    let root = match first.and_then(|word| whole.find_subcommand(word)).cloned() {
        Some(verb) => {
            let root = clap::Command::new(PROGRAM).disable_help_subcommand(true);
            General::augment_args(root)
                .subcommand_required(true)
                .arg_required_else_help(true)
                .subcommand(verb)
        }
        None => whole,
    };
    let mut root = data::with_templates(root);
    root.build();
    root
}

/// Returns whether the first argument is a command of this crate.
///
/// ```
/// assert!(caravan_cli::is_verb("job"));
/// assert!(!caravan_cli::is_verb("agent"));
/// ```
pub fn is_verb(word: &str) -> bool {
    tree().find_subcommand(word).is_some()
}

/// Returns the command tree, for manual pages. Its long flags take one dash or two.
pub fn command() -> clap::Command {
    let mut root = tree();
    root.build();
    root
}

/// Returns the completion script for a shell: `bash`, `zsh` or `fish`.
pub fn completion_script(shell: &str) -> Option<String> {
    completion::script(&command(), shell)
}

/// Runs the command line and returns its exit status; `args` excludes the program's name. Without a command, or with
/// an unknown one, prints the help and returns 127.
pub fn main(args: impl IntoIterator<Item = OsString>, local: Local) -> ExitCode {
    // `main` is generic only up to this call, so this crate compiles the commands once and the caller does not
    // compile them again.
    start(std::iter::once(OsString::from("caravan")).chain(args).collect(), local)
}

fn start(args: Vec<OsString>, local: Local) -> ExitCode {
    let out = Out::default();
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            out.note(&format!("The runtime cannot be started: {error}"));
            return ExitCode::FAILURE;
        }
    };
    ExitCode::from(runtime.block_on(Box::pin(run_with(args, out, local))))
}

/// Runs the command line with the given outputs and returns the exit status. `args` begins with the program's name.
async fn run_with(args: Vec<OsString>, out: Out, local: Local) -> u8 {
    let args = mistakes::renamed(&out, args);
    let mut root = tree_for(&args);
    let args = args::normalise(&root, args);
    let first = args.get(1).and_then(|word| word.to_str()).unwrap_or_default();
    if let Some(done) = completion::install(&out, first) {
        return done.unwrap_or_else(|error| {
            out.note(&error.to_string());
            1
        });
    }
    if args.get(1).is_some_and(|word| word == "--version" || word == "-v") {
        out.line(&local.build.to_string());
        return 0;
    }
    let path = path(&root, &args);
    let matches = match root.try_get_matches_from_mut(&args) {
        Ok(matches) => matches,
        Err(error) => return mistake(&out, &path, &error),
    };
    if let Some(template) = data::template_of(&matches) {
        return through_template(&path, args, template.to_owned(), out, local).await;
    }
    let cli = match Cli::from_arg_matches(&matches) {
        Ok(cli) => cli,
        Err(error) => return mistake(&out, &path, &error),
    };
    let plan = matches!(cli.verb, Verb::Plan(_) | Verb::Job(job::JobVerb::Plan(_)));
    let outcome = match Ctx::new(&cli.general, &out, local) {
        Ok(ctx) => dispatch(&ctx, &cli.verb).await,
        Err(error) => Err(error),
    };
    match outcome {
        Ok(status) => status,
        Err(error) => {
            out.note(&error.to_string());
            if let CliError::Usage(_) = error {
                out.note(&format!("For additional help try '{} -help'", path.join(" ")));
                return 1;
            }
            if plan { job::plan::FAILED } else { 1 }
        }
    }
}

/// Runs a command with `-json` and renders the captured JSON through the template.
async fn through_template(
    path: &[String],
    args: Vec<OsString>,
    template: String,
    out: Out,
    local: Local,
) -> u8 {
    if args.iter().any(|arg| arg == "--json") {
        out.note("Both json and template formatting are not allowed");
        return 1;
    }
    // Put `--json` after the last subcommand and drop the template flag.
    let mut rewritten = Vec::with_capacity(args.len() + 1);
    let mut verbs = path[1..].iter();
    let mut verb = verbs.next();
    for (at, arg) in args.into_iter().enumerate() {
        if arg.to_str().is_some_and(|text| text.starts_with("-t=")) {
            continue;
        }
        let found = at > 0 && verb.is_some_and(|verb| arg == verb.as_str());
        rewritten.push(arg);
        if found {
            verb = verbs.next();
            if verb.is_none() {
                rewritten.push("--json".into());
            }
        }
    }
    let (inner, kept) = Out::captured();
    let status = Box::pin(run_with(rewritten, inner, local)).await;
    let kept = kept.lock().clone();
    out.raw_note(&kept.stderr);
    if status != 0 {
        out.raw(&kept.stdout);
        return status;
    }
    match data::printed(&template, &kept.stdout) {
        Ok(text) => {
            out.line(&text);
            0
        }
        Err(error) => {
            out.note(&error.to_string());
            1
        }
    }
}

async fn dispatch(ctx: &Ctx, verb: &Verb) -> Outcome {
    match verb {
        Verb::Job(job::JobVerb::Run(args)) | Verb::Run(args) => Box::pin(job::run::run(ctx, args)).await,
        Verb::Job(job::JobVerb::Plan(args)) | Verb::Plan(args) => Box::pin(job::plan::run(ctx, args)).await,
        Verb::Job(job::JobVerb::Validate(args)) | Verb::Validate(args) => {
            Box::pin(job::validate::run(ctx, args)).await
        }
        Verb::Job(job::JobVerb::Stop(args)) | Verb::Stop(args) => Box::pin(job::stop::run(ctx, args)).await,
        Verb::Job(job::JobVerb::Dispatch(args)) => Box::pin(job::dispatch::run(ctx, args)).await,
        Verb::Job(job::JobVerb::Periodic(job::periodic::PeriodicVerb::Force(args))) => {
            Box::pin(job::periodic::force(ctx, args)).await
        }
        Verb::Job(job::JobVerb::Inspect(args)) | Verb::Inspect(args) => {
            Box::pin(job::inspect::run(ctx, args)).await
        }
        Verb::Job(job::JobVerb::Start(args)) | Verb::Start(args) => {
            Box::pin(job::start::run(ctx, args)).await
        }
        Verb::Job(job::JobVerb::Init(args)) | Verb::Init(args) => Box::pin(job::init::run(ctx, args)).await,
        Verb::Job(job::JobVerb::Scale(args)) => Box::pin(job::scale::run(ctx, args)).await,
        Verb::Job(job::JobVerb::Tag(verb)) => Box::pin(job::tag::run(ctx, verb)).await,
        Verb::Scaling(verb) => Box::pin(scaling::run(ctx, verb)).await,
        Verb::Job(job::JobVerb::Status(args)) => Box::pin(job::status::run(ctx, args)).await,
        Verb::Job(job::JobVerb::Allocs(args)) => Box::pin(job::allocs::run(ctx, args)).await,
        Verb::Job(job::JobVerb::Eval(args)) => Box::pin(job::eval::run(ctx, args)).await,
        Verb::Job(job::JobVerb::History(args)) => Box::pin(job::history::run(ctx, args)).await,
        Verb::Job(job::JobVerb::Restart(args)) => Box::pin(job::restart::run(ctx, args)).await,
        Verb::Job(job::JobVerb::ScalingEvents(args)) => Box::pin(job::scaling_events::run(ctx, args)).await,
        Verb::Job(job::JobVerb::Schema(args)) => job::schema::run(ctx, args),
        Verb::Fmt(args) => fmt::run(ctx, args),
        Verb::Alloc(alloc::AllocVerb::Logs(args)) | Verb::Logs(args) => {
            Box::pin(alloc::logs::run(ctx, args)).await
        }
        Verb::Alloc(alloc::AllocVerb::Status(args)) => Box::pin(alloc::status::run(ctx, args)).await,
        Verb::Alloc(alloc::AllocVerb::Stop(args)) => Box::pin(alloc::stop::stop(ctx, args)).await,
        Verb::Alloc(alloc::AllocVerb::Restart(args)) => Box::pin(alloc::stop::restart(ctx, args)).await,
        Verb::Alloc(alloc::AllocVerb::Exec(args)) | Verb::Exec(args) => {
            Box::pin(alloc::exec::run(ctx, args)).await
        }
        Verb::Job(job::JobVerb::Action(args)) | Verb::Action(args) => {
            Box::pin(alloc::exec::action(ctx, args)).await
        }
        Verb::Alloc(alloc::AllocVerb::Fs(args)) | Verb::Fs(args) => Box::pin(alloc::fs::run(ctx, args)).await,
        Verb::Alloc(alloc::AllocVerb::Checks(args)) => Box::pin(alloc::checks::checks(ctx, args)).await,
        Verb::Alloc(alloc::AllocVerb::Signal(args)) => Box::pin(alloc::checks::signal(ctx, args)).await,
        Verb::Alloc(alloc::AllocVerb::Pause(args)) => Box::pin(alloc::checks::pause(ctx, args)).await,
        Verb::Service(verb) => Box::pin(service::run(ctx, verb)).await,
        Verb::Tls(verb) => tls::run(ctx, verb),
        Verb::Monitor(args) => Box::pin(monitor::run(ctx, args)).await,
        Verb::Node(node::NodeVerb::Meta(verb)) => Box::pin(node::meta::run(ctx, verb)).await,
        Verb::Eval(verb) => Box::pin(eval::run(ctx, verb)).await,
        Verb::Deployment(verb) => Box::pin(deployment::run(ctx, verb)).await,
        Verb::Job(job::JobVerb::Promote(args)) => Box::pin(deployment::job_promote(ctx, args)).await,
        Verb::Job(job::JobVerb::Revert(args)) => Box::pin(deployment::revert(ctx, args)).await,
        Verb::Job(job::JobVerb::Deployments(args)) => Box::pin(deployment::of_job(ctx, args)).await,
        Verb::Node(node::NodeVerb::Status(args)) => Box::pin(node::status::run(ctx, args)).await,
        Verb::Node(node::NodeVerb::Config(args)) => Box::pin(node::config::run(ctx, args)).await,
        Verb::Node(node::NodeVerb::Identity(verb)) => Box::pin(node::identity::run(ctx, verb)).await,
        Verb::Node(node::NodeVerb::Intro(verb)) => Box::pin(node::identity::intro(ctx, verb)).await,
        Verb::Node(node::NodeVerb::Drain(args)) => Box::pin(node::drain::run(ctx, args)).await,
        Verb::Node(node::NodeVerb::Fence(args)) => Box::pin(node::fence::run(ctx, args)).await,
        Verb::Node(node::NodeVerb::Eligibility(args)) => Box::pin(node::eligibility::run(ctx, args)).await,
        Verb::Volume(verb) => Box::pin(volume(ctx, verb)).await,
        Verb::Var(verb) => Box::pin(var::run(ctx, verb)).await,
        Verb::Plugin(plugin::PluginVerb::Status(args)) => Box::pin(plugin::status(ctx, args)).await,
        Verb::Server(verb) => Box::pin(server::run(ctx, verb)).await,
        Verb::Operator(verb) => Box::pin(operator::run(ctx, verb)).await,
        Verb::Node(node::NodeVerb::Pool(verb)) => Box::pin(node::pool::run(ctx, verb)).await,
        Verb::Acl(verb) => Box::pin(acl::run(ctx, verb)).await,
        Verb::AgentInfo(args) => misc::agent_info(ctx, args).await,
        Verb::Completion(args) => {
            let mut root = Cli::command();
            root.build();
            completion::run(&ctx.out, &root, args)
        }
        Verb::Login(args) => Box::pin(misc::login(ctx, args)).await,
        Verb::License(verb) => enterprise::license(ctx, verb).await,
        Verb::Config(verb) => config::run(ctx, verb),
        Verb::Setup(verb) => setup::run(ctx, verb),
        Verb::Namespace(verb) => Box::pin(namespace::run(ctx, verb)).await,
        Verb::Quota(verb) => enterprise::quota(ctx, verb).await,
        Verb::Recommendation(verb) => enterprise::recommendation(ctx, verb).await,
        Verb::Sentinel(verb) => enterprise::sentinel(ctx, verb).await,
        Verb::Ui(args) => Box::pin(misc::ui(ctx, args)).await,
        Verb::System(verb) => Box::pin(system::run(ctx, verb)).await,
        Verb::Status(args) => Box::pin(status::run(ctx, args)).await,
        Verb::Explain(args) => explain::run(ctx, args),
        Verb::Version => {
            ctx.out.line(&ctx.local.build.to_string());
            Ok(0)
        }
    }
}

async fn volume(ctx: &Ctx, verb: &volume::VolumeVerb) -> Outcome {
    match verb {
        volume::VolumeVerb::Create(args) => Box::pin(volume::create::create(ctx, args)).await,
        volume::VolumeVerb::Register(args) => Box::pin(volume::create::register(ctx, args)).await,
        volume::VolumeVerb::Status(args) => Box::pin(volume::status::run(ctx, args)).await,
        volume::VolumeVerb::Explain(args) => volume::explain::run(ctx, args).await,
        volume::VolumeVerb::Deregister(args) => volume::remove::deregister(ctx, args).await,
        volume::VolumeVerb::Delete(args) => volume::remove::delete(ctx, args).await,
        volume::VolumeVerb::Detach(args) => volume::remove::detach(ctx, args).await,
        volume::VolumeVerb::Init(args) => volume::init::run(ctx, args),
        volume::VolumeVerb::Snapshot(verb) => Box::pin(volume::snapshot::run(ctx, verb)).await,
        volume::VolumeVerb::Claim(verb) => volume::claim::run(ctx, verb).await,
    }
}

/// Returns the program's name and the subcommands that the user typed, for hints.
fn path(root: &clap::Command, args: &[OsString]) -> Vec<String> {
    let mut command = root;
    let mut path = vec![root.get_name().to_owned()];
    for word in args.iter().skip(1).filter_map(|arg| arg.to_str()) {
        if word.starts_with('-') {
            continue;
        }
        let Some(inner) = command.find_subcommand(word) else { break };
        path.push(word.to_owned());
        command = inner;
    }
    path
}

#[cfg(test)]
mod tests;
