//! `job status`

use crate::cmd::alloc::{self, Columns};
use crate::cmd::at_most_one;
use crate::cmd::eval;
use crate::ctx::Ctx;
use crate::error::{CliError, Doing as _, Outcome};
use crate::format::{Clock, id, json};
use crate::metrics;
use crate::monitor::deployment;
use crate::resolve;
use crate::table::{Pairs, Table};
use caravan_types::alloc::AllocListStub;
use caravan_types::deployment::Deployment;
use caravan_types::eval::{EvalStatus, Evaluation};
use caravan_types::job::{Job, JobListStub, JobSummary};
use serde::Serialize;

/// Flags of `job status`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct StatusArgs {
    /// Show allocations of earlier jobs of the same id too
    #[arg(long)]
    all_allocs: bool,
    /// Show evaluations
    #[arg(long)]
    evals: bool,
    /// Show JSON
    #[arg(long)]
    json: bool,
    /// Show the job only
    #[arg(long)]
    short: bool,
    /// Show whole ids and times
    #[arg(long)]
    verbose: bool,
    /// Job
    #[arg(value_name = "JOB", num_args = 0..)]
    args: Vec<String>,
}

impl StatusArgs {
    /// For a job found by another verb.
    pub(crate) fn of(id: &str, verbose: bool) -> Self {
        Self { verbose, args: vec![id.to_owned()], ..Self::default() }
    }
}

/// Everything that is known of a job.
#[derive(Debug, Default)]
struct Detail {
    job: Job,
    summary: Option<JobSummary>,
    evals: Vec<Evaluation>,
    deployment: Option<Deployment>,
    allocs: Vec<AllocListStub>,
    children: Vec<JobListStub>,
}

/// The same for tools.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct DetailJson<'a> {
    summary: &'a Option<JobSummary>,
    allocations: &'a [AllocListStub],
    latest_deployment: &'a Option<Deployment>,
    evaluations: &'a [Evaluation],
}

/// Runs it.
pub(crate) async fn run(ctx: &Ctx, args: &StatusArgs) -> Outcome {
    let given = at_most_one(&args.args, "This command takes either no arguments or one: <job>")?;
    let Some(given) = given else {
        return all(ctx, args).await;
    };
    let stub = resolve::job(ctx, given).await?;
    let detail = detail(ctx, &stub, args.all_allocs).await?;
    if args.json {
        ctx.out.line(&json(&[detail.json()])?);
        return Ok(0);
    }
    ctx.out.line(&detail.render(&ctx.clock(), args));
    Ok(0)
}

async fn all(ctx: &Ctx, args: &StatusArgs) -> Outcome {
    let jobs = ctx.client.jobs().list(&ctx.query()).await.doing("Error querying jobs")?.value;
    if args.json {
        let mut details = Vec::new();
        for stub in &jobs {
            details.push(detail(ctx, stub, args.all_allocs).await?);
        }
        ctx.out.line(&json(&details.iter().map(Detail::json).collect::<Vec<_>>())?);
    } else if jobs.is_empty() {
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
    Ok(Detail {
        summary: Some(jobs.summary(id, &query).await.doing("Error querying job summary")?.value),
        evals: jobs.evaluations(id, &query).await.doing("Error querying job evaluations")?.value,
        allocs: jobs.allocations(id, all_allocs, &query).await.doing("Error querying job allocations")?.value,
        deployment,
        children,
        job,
    })
}

/// The table of jobs.
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
            if self.job.periodic.is_some() || self.job.parameterized_job.is_some() {
                sections.extend(self.family());
            } else {
                sections.extend(self.body(clock, args));
            }
        }
        sections.join("\n\n")
    }

    fn head(&self, clock: &Clock) -> String {
        let job = &self.job;
        Pairs::new()
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
            .pair("Parameterized", job.parameterized_job.is_some().to_string())
            .render()
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
        vec![format!("{heading}\n{summary}"), children]
    }

    fn body(&self, clock: &Clock, args: &StatusArgs) -> Vec<String> {
        let mut out = Vec::new();
        out.extend(self.counts());
        if args.evals || args.verbose {
            out.push(format!("Evaluations\n{}", eval::job_table(&self.evals, args.verbose)));
        }
        out.extend(self.placement_failure());
        if let Some(deployment) = &self.deployment {
            let head = Pairs::new()
                .pair("ID", id(deployment.id.as_str(), args.verbose))
                .pair("Status", deployment::word(deployment.status))
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

    /// Why groups are not placed: from the newest evaluation that says so, as long as one is blocked or
    /// nothing newer came.
    fn placement_failure(&self) -> Option<String> {
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
            lines.extend(metrics::waits(blocked).into_iter().map(|sentence| format!("  * {sentence}")));
        }
        Some(lines.join("\n"))
    }

    fn actions(&self) -> Option<String> {
        let mut table = Table::new(&["Action Name", "Task Group", "Task"]);
        let mut any = false;
        for group in &self.job.task_groups {
            for task in &group.tasks {
                for action in &task.actions {
                    let name = action.0.get("Name").and_then(serde_json::Value::as_str).unwrap_or_default();
                    table.row(vec![name.to_owned(), group.name.clone(), task.name.clone()]);
                    any = true;
                }
            }
        }
        any.then(|| format!("Actions\n{}", table.render()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::tests::clock;
    use caravan_types::eval::AllocMetric;
    use caravan_types::job::{GroupSummary, JobStatus, JobType};
    use caravan_types::time::UnixNanos;
    use std::collections::BTreeMap;

    fn at(text: &str) -> UnixNanos {
        clock(text).now
    }

    fn job(id: &str, kind: JobType, status: JobStatus, submitted: &str) -> Job {
        Job {
            id: id.into(),
            name: id.into(),
            kind,
            status,
            priority: 50,
            datacenters: vec!["*".into()],
            namespace: "default".into(),
            node_pool: "default".into(),
            submit_time: at(submitted),
            ..Default::default()
        }
    }

    #[test]
    fn the_list_reads_like_the_recorded_one() {
        let stub = |id: &str, kind, status, time: &str| {
            let job = job(id, kind, status, time);
            JobListStub {
                id: job.id,
                kind: job.kind,
                priority: 50,
                status,
                submit_time: job.submit_time,
                ..Default::default()
            }
        };
        use JobStatus::{Dead, Pending, Running};
        let mut jobs = vec![
            stub("crash", JobType::Service, Dead, "2026-11-21T09:22:37Z"),
            stub("crunch", JobType::Batch, Dead, "2026-11-21T09:22:23Z"),
            stub("encode", JobType::Batch, Running, "2026-11-21T09:22:37Z"),
            stub("everywhere", JobType::System, Running, "2026-11-21T09:22:24Z"),
            stub("huge", JobType::Service, Pending, "2026-11-21T09:22:36Z"),
            stub("nightly", JobType::Batch, Running, "2026-11-21T09:22:36Z"),
            stub("sweep", JobType::Sysbatch, Dead, "2026-11-21T09:22:24Z"),
            stub("talk", JobType::Service, Running, "2026-11-21T09:22:24Z"),
            stub("web", JobType::Service, Running, "2026-11-21T09:22:37Z"),
        ];
        jobs[2].parameterized_job = true;
        jobs[5].periodic = true;
        let text = list(&clock("2026-11-21T09:22:40Z"), &jobs, false);
        assert_eq!(text + "\n", include_str!("../../../fixtures/job-list.txt"));
    }

    #[test]
    fn a_job_that_waits_reads_like_the_recorded_one() {
        let metric = AllocMetric {
            nodes_evaluated: 1,
            nodes_exhausted: 1,
            class_exhausted: BTreeMap::from([("fixture".into(), 1)]),
            dimension_exhausted: BTreeMap::from([("cpu".into(), 1)]),
            ..Default::default()
        };
        let eval = |status, index| Evaluation {
            status,
            create_index: index,
            modify_index: index,
            failed_tg_allocs: BTreeMap::from([("g".into(), metric.clone())]),
            ..Default::default()
        };
        let summary = GroupSummary { queued: 1, ..Default::default() };
        let mut detail = Detail {
            job: job("huge", JobType::Service, JobStatus::Pending, "2026-11-21T09:22:36Z"),
            summary: Some(JobSummary {
                summary: BTreeMap::from([("g".into(), summary)]),
                ..Default::default()
            }),
            evals: vec![eval(EvalStatus::Complete, 1), eval(EvalStatus::Blocked, 2)],
            ..Default::default()
        };
        let clock = clock("2026-11-21T09:22:40Z");
        let text = detail.render(&clock, &StatusArgs::default());
        assert_eq!(text + "\n", include_str!("../../../fixtures/job-status-huge.txt"));

        detail.evals[1].missing_non_node_resources = vec!["csi-claim:default:data".into()];
        let text = detail.render(&clock, &StatusArgs::default());
        let line = "  * Waiting for a claim on volume \"data\" in namespace \"default\" to be released";
        assert!(text.contains(line), "{text}");

        detail.evals =
            vec![eval(EvalStatus::Complete, 1), Evaluation { create_index: 3, ..Default::default() }];
        assert!(detail.placement_failure().is_none(), "a newer evaluation placed everything");
    }

    #[test]
    fn a_finished_batch_job_reads_like_the_recorded_one() {
        let summary = GroupSummary { complete: 1, ..Default::default() };
        let alloc = AllocListStub {
            id: "de0fa963-aacf-0637-6aa1-531be241cffb".into(),
            node_id: "63126d9d-dd5a-f032-b3e4-c1537acb6cc7".into(),
            task_group: "g".into(),
            client_status: caravan_types::alloc::ClientStatus::Complete,
            create_time: at("2026-11-21T09:22:23Z"),
            modify_time: at("2026-11-21T09:22:24Z"),
            ..Default::default()
        };
        let detail = Detail {
            job: job("crunch", JobType::Batch, JobStatus::Dead, "2026-11-21T09:22:23Z"),
            summary: Some(JobSummary {
                summary: BTreeMap::from([("g".into(), summary)]),
                ..Default::default()
            }),
            evals: vec![Evaluation {
                id: "7517fe37-e7f9-e051-f894-839e3280cda6".into(),
                priority: 50,
                status: EvalStatus::Complete,
                ..Default::default()
            }],
            allocs: vec![alloc],
            ..Default::default()
        };
        let args = StatusArgs { evals: true, ..Default::default() };
        let text = detail.render(&clock("2026-11-21T09:22:39Z"), &args);
        assert_eq!(text + "\n", include_str!("../../../fixtures/job-status-crunch.txt"));
    }
}
