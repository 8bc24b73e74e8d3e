//! `job …`

pub(crate) mod allocs;
pub(crate) mod diff;
pub(crate) mod dispatch;
pub(crate) mod eval;
pub(crate) mod history;
pub(crate) mod init;
pub(crate) mod inspect;
pub(crate) mod periodic;
pub(crate) mod plan;
pub(crate) mod restart;
pub(crate) mod run;
pub(crate) mod scale;
pub(crate) mod scaling_events;
pub(crate) mod schema;
pub(crate) mod start;
pub(crate) mod status;
pub(crate) mod stop;
pub(crate) mod tag;
pub(crate) mod validate;

use crate::cmd::deployment;
use crate::jobfile::JobInput;
use clap::Subcommand;

/// Subcommands of `job`.
#[derive(Debug, Subcommand)]
pub(crate) enum JobVerb {
    /// Register a job and follow it until it is placed
    Run(run::RunArgs),
    /// Show what registering a job would do
    Plan(plan::PlanArgs),
    /// Validate a job file
    Validate(validate::ValidateArgs),
    /// Show jobs, or one job
    Status(status::StatusArgs),
    /// Create a child job of a parameterized job
    Dispatch(dispatch::DispatchArgs),
    /// Periodic jobs: force
    #[command(subcommand)]
    Periodic(periodic::PeriodicVerb),
    /// Stop jobs
    Stop(stop::StopArgs),
    /// Run an action that the job file defines for a task
    Action(super::alloc::exec::ActionArgs),
    /// Show a job as the servers store it
    Inspect(inspect::InspectArgs),
    /// Promote the canaries of a job's newest deployment
    Promote(deployment::JobPromoteArgs),
    /// Revert a job to an earlier version
    Revert(deployment::RevertArgs),
    /// List the deployments of a job
    Deployments(deployment::JobDeploymentsArgs),
    /// List the allocations of a job
    Allocs(allocs::AllocsArgs),
    /// Create an evaluation of a job
    Eval(eval::EvalArgs),
    /// Show the versions of a job
    History(history::HistoryArgs),
    /// Write an example job file
    Init(init::InitArgs),
    /// Restart the allocations of a job in batches
    Restart(restart::RestartArgs),
    /// Show the scaling events of a job
    ScalingEvents(scaling_events::ScalingEventsArgs),
    /// Print a JSON Schema of jobs, for editors
    Schema(schema::SchemaArgs),
    /// Start stopped jobs
    Start(start::StartArgs),
    /// Change the number of allocations of a group
    Scale(scale::ScaleArgs),
    /// Tag versions of a job: apply, unset
    #[command(subcommand)]
    Tag(tag::TagVerb),
}

/// Flags of the commands that read a job file.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct FileArgs {
    /// Read the file as JSON
    #[arg(long)]
    json: bool,
    /// Reject variables that the job does not declare
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_value_t = true,
        default_missing_value = "true",
        action = clap::ArgAction::Set
    )]
    hcl2_strict: bool,
    /// Value of a variable, KEY=VALUE; may be repeated
    #[arg(long = "var", value_name = "KEY=VALUE")]
    vars: Vec<String>,
    /// File with values of variables; may be repeated
    #[arg(long = "var-file", value_name = "FILE")]
    var_files: Vec<String>,
    /// Format of the findings in the job file: text, or json for programs
    #[arg(long, value_name = "FORMAT", default_value = "text", value_parser = ["text", "json"])]
    diagnostics: String,
}

/// Consul and Vault namespaces that flags set for the job.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct NamespaceArgs {
    /// Consul namespace of the job
    #[arg(long, value_name = "NAMESPACE")]
    consul_namespace: Option<String>,
    /// Vault namespace of the job
    #[arg(long, value_name = "NAMESPACE")]
    vault_namespace: Option<String>,
}

impl NamespaceArgs {
    /// Sets the namespaces in the job.
    pub(crate) fn apply(&self, job: &mut caravan_api::Job) {
        if self.consul_namespace.is_some() {
            job.consul_namespace.clone_from(&self.consul_namespace);
        }
        if self.vault_namespace.is_some() {
            job.vault_namespace.clone_from(&self.vault_namespace);
        }
    }
}

impl FileArgs {
    pub(crate) fn input(&self) -> JobInput {
        JobInput {
            json: self.json,
            strict: self.hcl2_strict,
            vars: self.vars.clone(),
            var_files: self.var_files.clone(),
            diagnostics_json: self.diagnostics == "json",
        }
    }

    /// Returns the flags as typed, for a command line that the user can copy.
    pub(crate) fn typed(&self) -> String {
        let mut out = String::new();
        if self.json {
            out.push_str("-json ");
        }
        for var in &self.vars {
            out.push_str(&format!("-var={var:?} "));
        }
        for file in &self.var_files {
            out.push_str(&format!("-var-file={file:?} "));
        }
        out
    }
}

/// Formats the warnings of the servers, which precede all other output.
pub(crate) fn warnings(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| format!("Job Warnings:\n{text}\n"))
}
