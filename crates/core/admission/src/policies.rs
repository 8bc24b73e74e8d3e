//! Rules for the policies of a group (docs/reference/jobspec.md, sections 5 and 6).

use super::problem::{Findings, ProblemCode as Code};
use super::{one_of, unknown};
use caravan_api::{Misfits, Part};
use caravan_types::Nanos;
use caravan_types::job::{
    DisconnectStrategy, Job, JobType, MigrateStrategy, ReschedulePolicy, RestartMode, RestartPolicy,
    TaskGroup, UpdateStrategy,
};
use caravan_types::scaling::ScalingPolicy;

const FIVE_SECONDS: Nanos = Nanos::from_secs(5);

/// Checks all policies of a group.
pub(super) fn check(job: &Job, group: &TaskGroup, misfits: &mut Misfits, errors: &mut Findings) {
    match &group.restart_policy {
        Some(policy) => restart(policy, misfits, errors),
        None => {
            let text = format!("Task Group {} should have a restart policy", group.name);
            errors.add(Code::Missing, "RestartPolicy", text);
        }
    }
    match (&group.reschedule_policy, job.kind) {
        (Some(_), JobType::System | JobType::Sysbatch) => {
            let text = format!("{} jobs should not have a reschedule policy", job.kind);
            errors.add(Code::NotForJobType, "ReschedulePolicy", text);
        }
        (Some(policy), _) => {
            errors.misfits(misfits.take(Part::Reschedule));
            reschedule(policy, errors);
        }
        (None, _) => {}
    }
    match (&group.update, job.kind) {
        (Some(_), JobType::Batch | JobType::Sysbatch) => {
            let text = format!("Job type \"{}\" does not allow update block", job.kind);
            errors.add(Code::NotForJobType, "Update", text);
        }
        (Some(strategy), _) => update(strategy, misfits, errors),
        (None, _) => {}
    }
    match (&group.migrate, job.kind) {
        (Some(strategy), JobType::Service) => {
            errors.misfits(misfits.take(Part::Migrate));
            migrate(strategy, errors);
        }
        (Some(_), _) => {
            let text = format!("Job type \"{}\" does not allow migrate block", job.kind);
            errors.add(Code::NotForJobType, "Migrate", text);
        }
        (None, _) => {}
    }
    if let Some(block) = &group.disconnect {
        disconnect(job, block, errors);
    }
    match group.ephemeral_disk {
        Some(disk) if disk.size_mb < 10 => {
            let text = format!("minimum DiskMB value is 10; got {}", disk.size_mb);
            errors.add(Code::BelowMinimum, "EphemeralDisk.SizeMB", text);
        }
        Some(_) => {}
        None => {
            let text = format!("Task Group {} should have an ephemeral disk object", group.name);
            errors.add(Code::Missing, "EphemeralDisk", text);
        }
    }
    if let Some(policy) = &group.scaling {
        scaling(policy, i64::from(group.count), errors);
    }
    for (name, duration) in [
        ("ShutdownDelay", group.shutdown_delay),
        ("MaxRunDuration", group.max_run_duration),
        ("StopAfterClientDisconnect", group.stop_after_client_disconnect),
        ("MaxClientDisconnect", group.max_client_disconnect),
    ] {
        if duration.is_some_and(|d| d < Nanos::ZERO) {
            errors.add(Code::BelowMinimum, name, format!("{name} must be a positive value"));
        }
    }
    if group.max_run_duration.is_some() && !job.kind.is_batch() {
        let text = "max_run_duration may only be set on batch and sysbatch jobs";
        errors.add(Code::NotForJobType, "MaxRunDuration", text);
    }
}

/// Checks the restart policy of a group or task.
pub(super) fn restart(policy: &RestartPolicy, misfits: &mut Misfits, errors: &mut Findings) {
    let unfit = misfits.take(Part::Restart);
    if !unfit.is_empty() {
        // Values that could not be converted are missing here, so the rules below do not apply.
        errors.misfits(unfit);
        return;
    }
    if policy.attempts == 0 && policy.mode != RestartMode::Fail {
        let text = "Restart policy \"delay\" with 0 attempts is ambiguous: use mode \"fail\"";
        errors.add(Code::Conflict, "RestartPolicy.Attempts", text);
        return;
    }
    if policy.delay < Nanos::ZERO {
        let text = format!("Delay of a restart policy cannot be negative (got {})", policy.delay);
        errors.add(Code::BelowMinimum, "RestartPolicy.Delay", text);
    }
    if policy.attempts == 0 {
        return;
    }
    if policy.interval < FIVE_SECONDS {
        let text = format!("Interval can not be less than 5s (got {})", policy.interval);
        errors.add(Code::BelowMinimum, "RestartPolicy.Interval", text);
    }
    if policy.delay.0.saturating_mul(i64::from(policy.attempts)) > policy.interval.0 {
        let text = format!(
            "Nomad can't restart the TaskGroup {} times in an interval of {} with a delay of {}",
            policy.attempts, policy.interval, policy.delay
        );
        errors.add(Code::Conflict, "RestartPolicy.Interval", text);
    }
}

/// Returns the total time of a policy's attempts in nanoseconds.
fn span_of(policy: &ReschedulePolicy) -> i64 {
    let limit = policy.max_delay.0.max(policy.delay.0);
    let (mut total, mut last, mut next) = (0_i64, 0_i64, policy.delay.0);
    for _ in 0..policy.attempts.min(100_000) {
        total = total.saturating_add(next);
        let following = match policy.delay_function.as_str() {
            "exponential" => next.saturating_mul(2).min(limit),
            "fibonacci" => next.saturating_add(last).min(limit),
            _ => next,
        };
        (last, next) = (next, following);
    }
    total
}

fn reschedule(policy: &ReschedulePolicy, errors: &mut Findings) {
    if policy.attempts == 0 && !policy.unlimited {
        return;
    }
    if policy.attempts > 0 && policy.unlimited {
        let text =
            format!("Reschedule Policy with unlimited = true cannot have attempts ({})", policy.attempts);
        errors.add(Code::Conflict, "ReschedulePolicy.Attempts", text);
    }
    let functions = ["constant", "exponential", "fibonacci"];
    if !functions.contains(&policy.delay_function.as_str()) {
        let text = one_of("Invalid delay function", &policy.delay_function, &functions);
        errors.add(Code::UnknownWord, "ReschedulePolicy.DelayFunction", text);
        return;
    }
    if policy.delay < FIVE_SECONDS {
        let text = format!("Delay cannot be less than 5s (got {})", policy.delay);
        errors.add(Code::BelowMinimum, "ReschedulePolicy.Delay", text);
    }
    if policy.delay_function != "constant" && policy.max_delay < policy.delay {
        let text = format!("Max Delay cannot be less than Delay {} (got {})", policy.delay, policy.max_delay);
        errors.add(Code::BelowMinimum, "ReschedulePolicy.MaxDelay", text);
    }
    if policy.unlimited {
        return;
    }
    if policy.interval < Nanos::from_secs(15) {
        let text = format!("Interval cannot be less than 15s (got {})", policy.interval);
        errors.add(Code::BelowMinimum, "ReschedulePolicy.Interval", text);
    }
    if span_of(policy) > policy.interval.0 {
        let text = format!(
            "{} reschedule attempts do not fit into an interval of {}: with a delay of {} and delay function \"{}\" they take {}",
            policy.attempts,
            policy.interval,
            policy.delay,
            policy.delay_function,
            Nanos(span_of(policy))
        );
        errors.add(Code::Conflict, "ReschedulePolicy.Interval", text);
    }
}

fn update(strategy: &UpdateStrategy, misfits: &mut Misfits, errors: &mut Findings) {
    let checks = ["checks", "task_states", "manual"];
    if !checks.contains(&strategy.health_check.as_str()) {
        let text = unknown("Invalid health check given:", &strategy.health_check, &checks);
        errors.add(Code::UnknownWord, "Update.HealthCheck", text);
    }
    errors.misfits(misfits.take(Part::Update));
    if strategy.min_healthy_time < Nanos::ZERO {
        let text = format!("Minimum healthy time may not be less than zero: {}", strategy.min_healthy_time);
        errors.add(Code::BelowMinimum, "Update.MinHealthyTime", text);
    }
    if strategy.healthy_deadline <= Nanos::ZERO {
        let text = format!("Healthy deadline must be greater than zero: {}", strategy.healthy_deadline);
        errors.add(Code::BelowMinimum, "Update.HealthyDeadline", text);
    }
    if strategy.progress_deadline < Nanos::ZERO {
        let text = format!("Progress deadline must be zero or greater: {}", strategy.progress_deadline);
        errors.add(Code::BelowMinimum, "Update.ProgressDeadline", text);
    }
    if strategy.min_healthy_time >= strategy.healthy_deadline {
        let text = format!(
            "Minimum healthy time must be less than healthy deadline: {} > {}",
            strategy.min_healthy_time, strategy.healthy_deadline
        );
        errors.add(Code::Conflict, "Update.MinHealthyTime", text);
    }
    if strategy.progress_deadline != Nanos::ZERO && strategy.healthy_deadline >= strategy.progress_deadline {
        let text = format!(
            "Healthy deadline must be less than progress deadline: {} > {}",
            strategy.healthy_deadline, strategy.progress_deadline
        );
        errors.add(Code::Conflict, "Update.HealthyDeadline", text);
    }
    if strategy.stagger <= Nanos::ZERO {
        let text = format!("Stagger must be greater than zero: {}", strategy.stagger);
        errors.add(Code::BelowMinimum, "Update.Stagger", text);
    }
    if strategy.auto_promote && strategy.canary == 0 {
        let text = "Auto Promote requires a Canary count greater than zero";
        errors.add(Code::Conflict, "Update.AutoPromote", text);
    }
}

fn migrate(strategy: &MigrateStrategy, errors: &mut Findings) {
    let checks = ["checks", "task_states"];
    if !checks.contains(&strategy.health_check.as_str()) {
        let text = one_of("Invalid HealthCheck:", &strategy.health_check, &checks);
        errors.add(Code::UnknownWord, "Migrate.HealthCheck", text);
    }
    if strategy.min_healthy_time < Nanos::ZERO {
        let text = format!("MinHealthyTime is {} but must be >= 0", strategy.min_healthy_time);
        errors.add(Code::BelowMinimum, "Migrate.MinHealthyTime", text);
    }
    if strategy.min_healthy_time >= strategy.healthy_deadline {
        let text = format!(
            "MinHealthyTime must be less than HealthyDeadline: {} > {}",
            strategy.min_healthy_time, strategy.healthy_deadline
        );
        errors.add(Code::Conflict, "Migrate.MinHealthyTime", text);
    }
}

fn disconnect(job: &Job, block: &DisconnectStrategy, errors: &mut Findings) {
    let negative_stop = block.stop_on_client_after.is_some_and(|span| span < Nanos::ZERO);
    if block.lost_after < Nanos::ZERO || negative_stop {
        let field = if negative_stop { "Disconnect.StopOnClientAfter" } else { "Disconnect.LostAfter" };
        errors.add(Code::BelowMinimum, field, "disconnect: durations cannot be negative");
    }
    if block.stop_on_client_after.is_some() {
        let field = "Disconnect.StopOnClientAfter";
        if block.lost_after > Nanos::ZERO {
            let text = "disconnect: lost_after and stop_on_client_after exclude each other";
            errors.add(Code::Conflict, field, text);
        }
        if job.kind.is_system() {
            let text = "disconnect: stop_on_client_after is for service and batch jobs only";
            errors.add(Code::NotForJobType, field, text);
        }
    }
    let known = ["best_score", "keep_original", "keep_replacement", "longest_running"];
    if !block.reconcile.is_empty() && !known.contains(&block.reconcile.as_str()) {
        let text = one_of("disconnect: reconcile strategy is invalid:", &block.reconcile, &known);
        errors.add(Code::UnknownWord, "Disconnect.Reconcile", text);
    }
}

/// Checks a scaling policy for a group of `count` allocations.
fn scaling(policy: &ScalingPolicy, count: i64, errors: &mut Findings) {
    let (min, max) = (policy.min.unwrap_or(count), policy.max);
    let Some(max) = max else {
        let text = "Scaling policy invalid: maximum count must be specified";
        errors.add(Code::Missing, "Scaling.Max", text);
        return;
    };
    if min < 0 {
        let text = format!("Scaling policy invalid: minimum count must be at least zero, got {min}");
        errors.add(Code::BelowMinimum, "Scaling.Min", text);
    }
    if max < min {
        let text = format!(
            "Scaling policy invalid: maximum count ({max}) must not be less than minimum count ({min})"
        );
        errors.add(Code::Conflict, "Scaling.Max", text);
    }
    if count > max {
        let text = format!(
            "Scaling policy invalid: task group count ({count}) must not be greater than maximum count ({max})"
        );
        errors.add(Code::AboveMaximum, "Count", text);
    } else if count < min {
        let text = format!(
            "Scaling policy invalid: task group count ({count}) must not be less than minimum count ({min})"
        );
        errors.add(Code::BelowMinimum, "Count", text);
    }
}
