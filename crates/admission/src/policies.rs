//! Rules for the policies of a group (docs/reference/jobspec.md, sections 5 and 6).

use super::{one_of, unknown};
use caravan_types::Nanos;
use caravan_types::api::{Misfits, Part};
use caravan_types::job::{
    DisconnectStrategy, Job, JobType, MigrateStrategy, ReschedulePolicy, RestartMode, RestartPolicy,
    TaskGroup, UpdateStrategy,
};
use caravan_types::scaling::ScalingPolicy;

const FIVE_SECONDS: Nanos = Nanos::from_secs(5);

/// Checks all policies of a group.
pub(super) fn check(job: &Job, group: &TaskGroup, misfits: &mut Misfits, errors: &mut Vec<String>) {
    match &group.restart_policy {
        Some(policy) => restart(policy, misfits, errors),
        None => errors.push(format!("Task Group {} should have a restart policy", group.name)),
    }
    match (&group.reschedule_policy, job.kind) {
        (Some(_), JobType::System | JobType::Sysbatch) => {
            errors.push(format!("{} jobs should not have a reschedule policy", job.kind));
        }
        (Some(policy), _) => {
            errors.extend(misfits.take(Part::Reschedule));
            reschedule(policy, errors);
        }
        (None, _) => {}
    }
    match (&group.update, job.kind) {
        (Some(_), JobType::Batch | JobType::Sysbatch) => {
            errors.push(format!("Job type \"{}\" does not allow update block", job.kind));
        }
        (Some(strategy), _) => update(strategy, misfits, errors),
        (None, _) => {}
    }
    match (&group.migrate, job.kind) {
        (Some(strategy), JobType::Service) => {
            errors.extend(misfits.take(Part::Migrate));
            migrate(strategy, errors);
        }
        (Some(_), _) => errors.push(format!("Job type \"{}\" does not allow migrate block", job.kind)),
        (None, _) => {}
    }
    if let Some(block) = &group.disconnect {
        disconnect(job, block, errors);
    }
    match group.ephemeral_disk {
        Some(disk) if disk.size_mb < 10 => {
            errors.push(format!("minimum DiskMB value is 10; got {}", disk.size_mb));
        }
        Some(_) => {}
        None => errors.push(format!("Task Group {} should have an ephemeral disk object", group.name)),
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
            errors.push(format!("{name} must be a positive value"));
        }
    }
    if group.max_run_duration.is_some() && !job.kind.is_batch() {
        errors.push("max_run_duration may only be set on batch and sysbatch jobs".into());
    }
}

pub(super) fn restart(policy: &RestartPolicy, misfits: &mut Misfits, errors: &mut Vec<String>) {
    let unfit = misfits.take(Part::Restart);
    if !unfit.is_empty() {
        // Values that could not be converted are missing here, so the rules below do not apply.
        errors.extend(unfit);
        return;
    }
    if policy.attempts == 0 && policy.mode != RestartMode::Fail {
        errors.push("Restart policy \"delay\" with 0 attempts is ambiguous: use mode \"fail\"".into());
        return;
    }
    if policy.delay < Nanos::ZERO {
        errors.push(format!("Delay of a restart policy cannot be negative (got {})", policy.delay));
    }
    if policy.attempts == 0 {
        return;
    }
    if policy.interval < FIVE_SECONDS {
        errors.push(format!("Interval can not be less than 5s (got {})", policy.interval));
    }
    if policy.delay.0.saturating_mul(i64::from(policy.attempts)) > policy.interval.0 {
        errors.push(format!(
            "Nomad can't restart the TaskGroup {} times in an interval of {} with a delay of {}",
            policy.attempts, policy.interval, policy.delay
        ));
    }
}

/// Returns the total time of a policy's attempts.
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

pub(super) fn reschedule(policy: &ReschedulePolicy, errors: &mut Vec<String>) {
    if policy.attempts == 0 && !policy.unlimited {
        return;
    }
    if policy.attempts > 0 && policy.unlimited {
        errors.push(format!(
            "Reschedule Policy with unlimited = true cannot have attempts ({})",
            policy.attempts
        ));
    }
    let functions = ["constant", "exponential", "fibonacci"];
    if !functions.contains(&policy.delay_function.as_str()) {
        errors.push(one_of("Invalid delay function", &policy.delay_function, &functions));
        return;
    }
    if policy.delay < FIVE_SECONDS {
        errors.push(format!("Delay cannot be less than 5s (got {})", policy.delay));
    }
    if policy.delay_function != "constant" && policy.max_delay < policy.delay {
        errors
            .push(format!("Max Delay cannot be less than Delay {} (got {})", policy.delay, policy.max_delay));
    }
    if policy.unlimited {
        return;
    }
    if policy.interval < Nanos::from_secs(15) {
        errors.push(format!("Interval cannot be less than 15s (got {})", policy.interval));
    }
    if span_of(policy) > policy.interval.0 {
        errors.push(format!(
            "{} reschedule attempts do not fit into an interval of {}: with a delay of {} and delay function \"{}\" they take {}",
            policy.attempts,
            policy.interval,
            policy.delay,
            policy.delay_function,
            Nanos(span_of(policy))
        ));
    }
}

fn update(strategy: &UpdateStrategy, misfits: &mut Misfits, errors: &mut Vec<String>) {
    let checks = ["checks", "task_states", "manual"];
    if !checks.contains(&strategy.health_check.as_str()) {
        errors.push(unknown("Invalid health check given:", &strategy.health_check, &checks));
    }
    errors.extend(misfits.take(Part::Update));
    if strategy.min_healthy_time < Nanos::ZERO {
        errors.push(format!("Minimum healthy time may not be less than zero: {}", strategy.min_healthy_time));
    }
    if strategy.healthy_deadline <= Nanos::ZERO {
        errors.push(format!("Healthy deadline must be greater than zero: {}", strategy.healthy_deadline));
    }
    if strategy.progress_deadline < Nanos::ZERO {
        errors.push(format!("Progress deadline must be zero or greater: {}", strategy.progress_deadline));
    }
    if strategy.min_healthy_time >= strategy.healthy_deadline {
        errors.push(format!(
            "Minimum healthy time must be less than healthy deadline: {} > {}",
            strategy.min_healthy_time, strategy.healthy_deadline
        ));
    }
    if strategy.progress_deadline != Nanos::ZERO && strategy.healthy_deadline >= strategy.progress_deadline {
        errors.push(format!(
            "Healthy deadline must be less than progress deadline: {} > {}",
            strategy.healthy_deadline, strategy.progress_deadline
        ));
    }
    if strategy.stagger <= Nanos::ZERO {
        errors.push(format!("Stagger must be greater than zero: {}", strategy.stagger));
    }
    if strategy.auto_promote && strategy.canary == 0 {
        errors.push("Auto Promote requires a Canary count greater than zero".into());
    }
}

fn migrate(strategy: &MigrateStrategy, errors: &mut Vec<String>) {
    let checks = ["checks", "task_states"];
    if !checks.contains(&strategy.health_check.as_str()) {
        errors.push(one_of("Invalid HealthCheck:", &strategy.health_check, &checks));
    }
    if strategy.min_healthy_time < Nanos::ZERO {
        errors.push(format!("MinHealthyTime is {} but must be >= 0", strategy.min_healthy_time));
    }
    if strategy.min_healthy_time >= strategy.healthy_deadline {
        errors.push(format!(
            "MinHealthyTime must be less than HealthyDeadline: {} > {}",
            strategy.min_healthy_time, strategy.healthy_deadline
        ));
    }
}

fn disconnect(job: &Job, block: &DisconnectStrategy, errors: &mut Vec<String>) {
    if block.lost_after < Nanos::ZERO || block.stop_on_client_after.is_some_and(|span| span < Nanos::ZERO) {
        errors.push("disconnect: durations cannot be negative".into());
    }
    if block.stop_on_client_after.is_some() {
        if block.lost_after > Nanos::ZERO {
            errors.push("disconnect: lost_after and stop_on_client_after exclude each other".into());
        }
        if job.kind.is_system() {
            errors.push("disconnect: stop_on_client_after is for service and batch jobs only".into());
        }
    }
    let known = ["best_score", "keep_original", "keep_replacement", "longest_running"];
    if !block.reconcile.is_empty() && !known.contains(&block.reconcile.as_str()) {
        errors.push(one_of("disconnect: reconcile strategy is invalid:", &block.reconcile, &known));
    }
}

/// Checks a scaling policy of a group with this count.
fn scaling(policy: &ScalingPolicy, count: i64, errors: &mut Vec<String>) {
    let (min, max) = (policy.min.unwrap_or(count), policy.max);
    let Some(max) = max else {
        errors.push("Scaling policy invalid: maximum count must be specified".into());
        return;
    };
    if min < 0 {
        errors.push(format!("Scaling policy invalid: minimum count must be at least zero, got {min}"));
    }
    if max < min {
        errors.push(format!(
            "Scaling policy invalid: maximum count ({max}) must not be less than minimum count ({min})"
        ));
    }
    if count > max {
        errors.push(format!(
            "Scaling policy invalid: task group count ({count}) must not be greater than maximum count ({max})"
        ));
    } else if count < min {
        errors.push(format!(
            "Scaling policy invalid: task group count ({count}) must not be less than minimum count ({min})"
        ));
    }
}
