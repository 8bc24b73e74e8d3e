//! `job status`

use crate::cmd::alloc::{self, Columns};
use crate::cmd::at_most_one;
use crate::cmd::eval;
use crate::cmd::job::periodic;
use crate::ctx::Ctx;
use crate::data::DataArgs;
use crate::error::{CliError, Doing as _, Outcome};
use crate::format::{Clock, id};
use crate::metrics;
use crate::monitor::deployment;
use crate::resolve;
use crate::table::{Pairs, Table};
use caravan_sdk::ClaimView;
use caravan_types::alloc::AllocListStub;
use caravan_types::deployment::Deployment;
use caravan_types::eval::{EvalStatus, Evaluation};
use caravan_types::job::{Job, JobListStub, JobSummary};
use serde::Serialize;
use std::collections::BTreeMap;

/// Flags of `job status`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct StatusArgs {
    /// Include allocations of earlier jobs with the same id
    #[arg(long)]
    all_allocs: bool,
    /// Show evaluations
    #[arg(long)]
    evals: bool,
    #[command(flatten)]
    data: DataArgs,
    /// Show only the job, without its allocations
    #[arg(long)]
    short: bool,
    /// Open the job's page in the browser; without a display, print its address
    #[arg(long)]
    ui: bool,
    /// Show full ids and timestamps
    #[arg(long)]
    verbose: bool,
    /// Job id or prefix
    #[arg(value_name = "JOB", num_args = 0..)]
    args: Vec<String>,
}

impl StatusArgs {
    /// Creates the arguments for a job that `status` found.
    pub(crate) fn new(id: &str, verbose: bool) -> Self {
        Self { verbose, args: vec![id.to_owned()], ..Self::default() }
    }
}

/// All data that `job status` shows about a job.
#[derive(Debug, Default)]
struct Detail {
    job: Job,
    summary: Option<JobSummary>,
    evals: Vec<Evaluation>,
    deployment: Option<Deployment>,
    allocs: Vec<AllocListStub>,
    children: Vec<JobListStub>,
    /// The claims on each volume that blocked evaluations wait for.
    holders: BTreeMap<String, Vec<ClaimView>>,
}

/// The JSON form of `Detail`, for programs.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct DetailJson<'a> {
    summary: &'a Option<JobSummary>,
    allocations: &'a [AllocListStub],
    latest_deployment: &'a Option<Deployment>,
    evaluations: &'a [Evaluation],
}

pub(crate) async fn run(ctx: &Ctx, args: &StatusArgs) -> Outcome {
    let supplied = at_most_one(&args.args, "This command takes either no arguments or one: <job>")?;
    let Some(supplied) = supplied else {
        crate::cmd::page::open(ctx, args.ui, "jobs");
        return all(ctx, args).await;
    };
    let stub = resolve::job(ctx, supplied).await?;
    crate::cmd::page::open_job(ctx, args.ui, stub.id.as_str(), stub.namespace.as_str());
    let detail = detail(ctx, &stub, args.all_allocs).await?;
    if let Some(shown) = args.data.show(ctx, &[detail.json()]) {
        return shown;
    }
    ctx.out.line(&detail.render(&ctx.clock(), args));
    Ok(0)
}

async fn all(ctx: &Ctx, args: &StatusArgs) -> Outcome {
    let jobs = ctx.client.jobs().list(&ctx.query()).await.doing("Error querying jobs")?.value;
    if args.data.is_requested() {
        let mut details = Vec::new();
        for stub in &jobs {
            details.push(detail(ctx, stub, args.all_allocs).await?);
        }
        return args.data.always(ctx, &details.iter().map(Detail::json).collect::<Vec<_>>());
    }
    if jobs.is_empty() {
        ctx.out.line("No running jobs");
    } else {
        ctx.out.line(&list(&ctx.clock(), &jobs, ctx.all_namespaces()));
    }
    Ok(0)
}

async fn detail(ctx: &Ctx, stub: &JobListStub, all_allocs: bool) -> Result<Detail, CliError> {
    let id = stub.id.as_str();
    let query = ctx.query().namespace(stub.namespace.as_str());
    let jobs = ctx.client.jobs();
    let job = jobs.info(id, &query).await.doing("Error querying job")?.value;
    let mut children = Vec::new();
    if stub.periodic || stub.parameterized_job {
        let of = query.clone().prefix(format!("{id}/"));
        children = jobs.list(&of).await.doing("Error querying job")?.value;
        children.retain(|child| child.parent_id == stub.id);
    }
    let deployment = match jobs.latest_deployment(id, &query).await {
        Err(error) if error.is_not_found() => None,
        answer => answer.doing("Error querying latest job deployment")?.value,
    };
    let evals = jobs.evaluations(id, &query).await.doing("Error querying job evaluations")?.value;
    Ok(Detail {
        holders: holders(ctx, &evals).await,
        summary: Some(jobs.summary(id, &query).await.doing("Error querying job summary")?.value),
        evals,
        allocs: jobs.allocations(id, all_allocs, &query).await.doing("Error querying job allocations")?.value,
        deployment,
        children,
        job,
    })
}

/// Returns the claims on the volumes that blocked evaluations wait for. They only explain the wait, so failed queries
/// are ignored.
async fn holders(ctx: &Ctx, evals: &[Evaluation]) -> BTreeMap<String, Vec<ClaimView>> {
    let mut out = BTreeMap::new();
    let blocked = evals.iter().filter(|eval| eval.status == EvalStatus::Blocked);
    for text in blocked.flat_map(|eval| &eval.missing_non_node_resources) {
        let Some((namespace, id)) = text.strip_prefix("csi-claim:").and_then(|key| key.split_once(':'))
        else {
            continue;
        };
        let query = ctx.query().namespace(namespace);
        if let Ok(answer) = ctx.client.volumes().info(id, &query).await {
            out.insert(text.clone(), answer.value.claims);
        }
    }
    out
}

/// Renders a claim: `Held by allocation "59017f05" of job "writer" (mounted, since 3s ago)`.
fn held(clock: &Clock, claim: &ClaimView) -> String {
    format!(
        "Held by allocation \"{}\" of job \"{}\" ({}, since {})",
        claim.alloc_id.short(),
        claim.job_id,
        claim.phase.as_str(),
        clock.ago(claim.modify_time)
    )
}

/// Returns the table of jobs.
pub(crate) fn list(clock: &Clock, jobs: &[JobListStub], namespaces: bool) -> String {
    let mut heading = vec!["ID"];
    if namespaces {
        heading.push("Namespace");
    }
    heading.extend(["Type", "Priority", "Status", "Submit Date"]);
    let rows = jobs.iter().map(|job| {
        let mut row = vec![job.id.to_string()];
        if namespaces {
            row.push(job.namespace.to_string());
        }
        let kind = match (job.periodic, job.parameterized_job) {
            (true, true) => "/periodic/parameterized",
            (true, false) => "/periodic",
            (false, true) => "/parameterized",
            (false, false) => "",
        };
        row.extend([
            format!("{}{kind}", job.kind),
            job.priority.to_string(),
            status_word(job.status.as_str(), job.stop),
            clock.time(job.submit_time),
        ]);
        row
    });
    Table::new(&heading).rows(rows).render()
}

fn status_word(status: &str, stopped: bool) -> String {
    if stopped { format!("{status} (stopped)") } else { status.to_owned() }
}

impl Detail {
    fn json(&self) -> DetailJson<'_> {
        DetailJson {
            summary: &self.summary,
            allocations: &self.allocs,
            latest_deployment: &self.deployment,
            evaluations: &self.evals,
        }
    }

    fn render(&self, clock: &Clock, args: &StatusArgs) -> String {
        let mut sections = vec![self.head(clock)];
        if !args.short {
            if self.job.is_template() {
                sections.extend(self.family());
            } else {
                sections.extend(self.body(clock, args));
            }
        }
        sections.join("\n\n")
    }

    fn head(&self, clock: &Clock) -> String {
        let job = &self.job;
        let mut pairs = Pairs::new()
            .pair("ID", job.id.as_str())
            .pair("Name", job.name.as_str())
            .pair("Submit Date", clock.time(job.submit_time))
            .pair("Type", job.kind.as_str())
            .pair("Priority", job.priority.to_string())
            .pair("Datacenters", job.datacenters.join(","))
            .pair("Namespace", job.namespace.as_str())
            .pair("Node Pool", job.node_pool.as_str())
            .pair("Status", status_word(job.status.as_str(), job.stop))
            .pair("Periodic", job.periodic.is_some().to_string())
            .pair("Parameterized", job.dispatch_rule().is_some().to_string());
        if job.periodic.is_some() && job.dispatch_rule().is_none() {
            if job.stop {
                pairs = pairs.pair("Next Periodic Launch", "none (job stopped)");
            } else if let Some(next) = periodic::next_launch(job, clock) {
                pairs = pairs.pair("Next Periodic Launch", next);
            }
        }
        pairs.render()
    }

    fn family(&self) -> Vec<String> {
        let (heading, none, children) = if self.job.periodic.is_some() {
            ("Children Job Summary", "No instances of periodic job found", "Previously Launched Jobs")
        } else {
            (
                "Parameterized Job Summary",
                "No dispatched instances of parameterized job found",
                "Dispatched Jobs",
            )
        };
        let counts = self.summary.as_ref().map(|s| s.children).unwrap_or_default();
        let row = vec![counts.pending.to_string(), counts.running.to_string(), counts.dead.to_string()];
        let summary = Table::new(&["Pending", "Running", "Dead"]).rows([row]).render();
        let rows =
            self.children.iter().map(|c| vec![c.id.to_string(), status_word(c.status.as_str(), c.stop)]);
        let children = match self.children.len() {
            0 => none.to_owned(),
            _ => format!("{children}\n{}", Table::new(&["ID", "Status"]).rows(rows).render()),
        };
        let mut out: Vec<String> = self.parameters().into_iter().collect();
        out.extend([format!("{heading}\n{summary}"), children]);
        out
    }

    /// Describes the payload and the metadata that a dispatch must or may provide.
    fn parameters(&self) -> Option<String> {
        let rule = self.job.parameterized_job.as_ref()?;
        let pairs = Pairs::new()
            .pair("Payload", rule.payload.as_str())
            .pair("Required Metadata", rule.required().join(", "))
            .pair("Optional Metadata", rule.optional().join(", "));
        Some(format!("Parameterized Job\n{}", pairs.render()))
    }

    fn body(&self, clock: &Clock, args: &StatusArgs) -> Vec<String> {
        let mut out = Vec::new();
        out.extend(self.counts());
        if args.evals || args.verbose {
            out.push(format!("Evaluations\n{}", eval::job_table(&self.evals, args.verbose)));
        }
        out.extend(self.placement_failure(clock));
        if let Some(deployment) = &self.deployment {
            let head = Pairs::new()
                .pair("ID", id(deployment.id.as_str(), args.verbose))
                .pair("Status", deployment.status.as_str())
                .pair("Description", deployment.status_description.as_str())
                .render();
            out.push(format!("Latest Deployment\n{head}"));
            out.push(deployment::groups(clock, deployment));
        }
        out.extend(self.actions());
        let allocs = match self.allocs.len() {
            0 => "No allocations placed".to_owned(),
            _ => {
                let columns = Columns { verbose: args.verbose, node_name: args.verbose };
                alloc::table(clock, &self.allocs, columns).render()
            }
        };
        out.push(format!("Allocations\n{allocs}"));
        out
    }

    fn counts(&self) -> Option<String> {
        let summary = self.summary.as_ref()?;
        let rows = summary.summary.iter().map(|(group, n)| {
            let counts = [n.queued, n.starting, n.running, n.failed, n.complete, n.lost, n.unknown];
            std::iter::once(group.clone()).chain(counts.iter().map(u32::to_string)).collect()
        });
        let heading =
            ["Task Group", "Queued", "Starting", "Running", "Failed", "Complete", "Lost", "Unknown"];
        Some(format!("Summary\n{}", Table::new(&heading).rows(rows).render()))
    }

    /// Explains why groups are not placed, from the newest evaluation with placement failures. Returns `None` if no
    /// evaluation is blocked and the newest one has no placement failure.
    fn placement_failure(&self, clock: &Clock) -> Option<String> {
        let newest = self.evals.iter().max_by_key(|e| e.create_index)?;
        let blocked =
            self.evals.iter().filter(|e| e.status == EvalStatus::Blocked).max_by_key(|e| e.create_index);
        let failed =
            self.evals.iter().filter(|e| !e.failed_tg_allocs.is_empty()).max_by_key(|e| e.modify_index)?;
        if blocked.is_none() && newest.failed_tg_allocs.is_empty() {
            return None;
        }
        let mut lines = vec!["Placement Failure".to_owned()];
        for (group, metric) in &failed.failed_tg_allocs {
            lines.push(format!("Task Group \"{group}\":"));
            lines.extend(metrics::reasons(metric, "  "));
        }
        if let Some(blocked) = blocked {
            for (text, sentence) in blocked.missing_non_node_resources.iter().zip(metrics::waits(blocked)) {
                lines.push(format!("  * {sentence}"));
                let claims = self.holders.get(text).into_iter().flatten();
                let held = claims.filter(|claim| claim.phase.holds()).map(|claim| held(clock, claim));
                lines.extend(held.map(|sentence| format!("    {sentence}")));
            }
        }
        Some(lines.join("\n"))
    }

    fn actions(&self) -> Option<String> {
        let mut table = Table::new(&["Action Name", "Task Group", "Task"]);
        let mut any = false;
        for group in &self.job.task_groups {
            for task in &group.tasks {
                for action in &task.actions {
                    table.row(vec![action.name.clone(), group.name.clone(), task.name.clone()]);
                    any = true;
                }
            }
        }
        any.then(|| format!("Actions\n{}", table.render()))
    }
}

#[cfg(test)]
mod tests;
