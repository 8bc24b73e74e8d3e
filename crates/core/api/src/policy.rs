//! Placement rules, and the reactions to failures of tasks, allocations and nodes.

use super::Nanos;
use super::macros::api_objects;

api_objects! {
    /// A rule that a node must satisfy.
    Constraint("Constraint") {
        l_target: String = "LTarget";
        r_target: String = "RTarget";
        operand: String = "Operand";
    }

    /// A rule that a node should satisfy, with its weight (-100 to 100).
    Affinity("Affinity") {
        l_target: String = "LTarget";
        r_target: String = "RTarget";
        operand: String = "Operand";
        weight: Option<i8> = "Weight";
    }

    /// A preference for an even distribution over the values of an attribute.
    Spread("Spread") {
        attribute: String = "Attribute";
        weight: Option<i8> = "Weight";
        targets: Option<Vec<SpreadTarget>> = "SpreadTarget";
    }

    /// The desired share of one value.
    SpreadTarget("SpreadTarget") {
        value: String = "Value";
        percent: u8 = "Percent";
    }

    /// The rollout of a new version of a job.
    UpdateStrategy("UpdateStrategy") {
        stagger: Option<Nanos> = "Stagger";
        max_parallel: Option<i64> = "MaxParallel";
        /// `checks`, `task_states` or `manual`.
        health_check: Option<String> = "HealthCheck";
        min_healthy_time: Option<Nanos> = "MinHealthyTime";
        healthy_deadline: Option<Nanos> = "HealthyDeadline";
        progress_deadline: Option<Nanos> = "ProgressDeadline";
        canary: Option<i64> = "Canary";
        auto_revert: Option<bool> = "AutoRevert";
        auto_promote: Option<bool> = "AutoPromote";
    }

    /// The migration of allocations from a draining node.
    MigrateStrategy("MigrateStrategy") {
        max_parallel: Option<i64> = "MaxParallel";
        health_check: Option<String> = "HealthCheck";
        min_healthy_time: Option<Nanos> = "MinHealthyTime";
        healthy_deadline: Option<Nanos> = "HealthyDeadline";
    }

    /// The restarts of a task on its node.
    RestartPolicy("RestartPolicy") {
        interval: Option<Nanos> = "Interval";
        attempts: Option<i64> = "Attempts";
        delay: Option<Nanos> = "Delay";
        /// `fail` or `delay`.
        mode: Option<String> = "Mode";
        render_templates: Option<bool> = "RenderTemplates";
    }

    /// The rescheduling of a failed allocation.
    ReschedulePolicy("ReschedulePolicy") {
        attempts: Option<i64> = "Attempts";
        interval: Option<Nanos> = "Interval";
        delay: Option<Nanos> = "Delay";
        /// `constant`, `exponential` or `fibonacci`.
        delay_function: Option<String> = "DelayFunction";
        max_delay: Option<Nanos> = "MaxDelay";
        unlimited: Option<bool> = "Unlimited";
    }

    /// The reactions to an unreachable client.
    Disconnect("DisconnectStrategy") {
        lost_after: Option<Nanos> = "LostAfter";
        stop_on_client_after: Option<Nanos> = "StopOnClientAfter";
        replace: Option<bool> = "Replace";
        reconcile: Option<String> = "Reconcile";
    }

    /// Bounds and policy for an autoscaler.
    ScalingPolicy("ScalingPolicy") {
        min: Option<i64> = "Min";
        max: Option<i64> = "Max";
        policy: Option<serde_json::Map<String, serde_json::Value>> = "Policy";
        enabled: Option<bool> = "Enabled";
        /// `horizontal`, `vertical_cpu` or `vertical_mem`.
        kind: String = "Type";
        id: String = "ID";
        namespace: String = "Namespace";
        target: Option<std::collections::BTreeMap<String, String>> = "Target";
        create_index: u64 = "CreateIndex";
        modify_index: u64 = "ModifyIndex";
    }
}
