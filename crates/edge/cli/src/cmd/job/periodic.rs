//! `job periodic …`

use crate::cmd::wrong_count;
use crate::ctx::Ctx;
use crate::error::{Doing as _, Outcome};
use crate::format::Clock;
use crate::{monitor, resolve};
use caravan_lang::cron::Schedule;
use caravan_types::job::Job;
use caravan_types::time::{Nanos, UnixNanos};
use jiff::Timestamp;

/// Subcommands of `job periodic`.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum PeriodicVerb {
    /// Launch a periodic job now
    Force(ForceArgs),
}

/// Flags of `job periodic force`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct ForceArgs {
    /// Return at once instead of following the evaluation
    #[arg(long)]
    detach: bool,
    /// Show full ids
    #[arg(long)]
    verbose: bool,
    /// Job id or prefix
    #[arg(value_name = "JOB", num_args = 0..)]
    jobs: Vec<String>,
}

pub(crate) async fn force(ctx: &Ctx, args: &ForceArgs) -> Outcome {
    let [supplied] = args.jobs.as_slice() else {
        return Err(wrong_count(&args.jobs, 1, "This command takes one argument: <job id>"));
    };
    let job = resolve::job_of_kind(ctx, supplied, "periodic ", |job| job.periodic).await?;
    let query = ctx.query().namespace(job.namespace.as_str());
    let doing = format!("Error forcing periodic job \"{}\"", job.id);
    let answer = ctx.client.jobs().force_periodic(job.id.as_str(), &query).await.doing(doing)?.value;
    if args.detach {
        ctx.out.line("Force periodic successful");
        ctx.out.line(&format!("Evaluation ID: {}", answer.eval_id));
        return Ok(0);
    }
    monitor::run(ctx, &answer.eval_id, monitor::Options { verbose: args.verbose, start: None }).await
}

/// Returns when a periodic job launches next, as `2026-11-22T03:30:00Z (18h7m1s from now)`. Returns `None` for other
/// jobs, and for a periodic job without a next launch.
pub(crate) fn next_launch(job: &Job, clock: &Clock) -> Option<String> {
    let rule = job.periodic.as_ref().filter(|rule| rule.enabled)?;
    let schedule = Schedule::new(rule.expressions(), &rule.time_zone).ok()?;
    let next = schedule.next_after(Timestamp::from_nanosecond(i128::from(clock.now.0)).ok()?)?;
    let next = UnixNanos(i64::try_from(next.as_nanosecond()).ok()?);
    let whole = Nanos::from_secs(next.since(clock.now).0 / 1_000_000_000);
    Some(format!("{} ({whole} from now)", clock.time(next)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::tests::clock;
    use caravan_types::job::Periodic;

    #[test]
    fn the_next_launch_reads_like_the_recorded_one() {
        let rule = Periodic {
            enabled: true,
            specs: vec!["30 3 * * *".into(), "0 0 1 1 *".into()],
            spec_type: "cron".into(),
            time_zone: "UTC".into(),
            ..Periodic::default()
        };
        let job = Job { periodic: Some(rule.into()), ..Job::default() };
        assert_eq!(
            next_launch(&job, &clock("2026-11-21T09:22:59Z")).as_deref(),
            Some("2026-11-22T03:30:00Z (18h7m1s from now)")
        );
        assert_eq!(next_launch(&Job::default(), &clock("2026-11-21T09:22:59Z")), None);
    }
}
