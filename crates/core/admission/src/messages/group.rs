//! Messages about groups: policies, networks and volumes.

use super::*;

pub(super) const CASES: &[Case] = &[
    // Messages about the group itself.
    ("Missing tasks for task group", |j| group(j).tasks.clear()),
    ("Task group must have at least one main task", |j| {
        task(j).lifecycle = Some(Lifecycle { hook: "prestart".into(), sidecar: false });
    }),
    ("Only one task may be marked as leader", |j| {
        task(j).leader = true;
        let second = Task { name: "u".into(), ..task(j).clone() };
        group(j).tasks.push(second);
    }),
    ("Task 2 redefines 't' from task 1", |j| {
        let second = task(j).clone();
        group(j).tasks.push(second);
    }),
    ("Task 1 missing name", |j| task(j).name.clear()),
    ("Task Group g should have a restart policy", |j| group(j).restart_policy = None),
    ("Task Group g should have an ephemeral disk object", |j| group(j).ephemeral_disk = None),
    ("minimum DiskMB value is 10; got 9", |j| {
        group(j).ephemeral_disk = Some(EphemeralDisk { size_mb: 9, ..Default::default() });
        task(j).log_config.disabled = true;
    }),
    ("ShutdownDelay must be a positive value", |j| group(j).shutdown_delay = Some(secs(-1))),
    ("max_run_duration may only be set on batch and sysbatch jobs", |j| {
        group(j).max_run_duration = Some(secs(1));
    }),
    // Messages about policies.
    ("Restart policy \"delay\" with 0 attempts is ambiguous", |j| {
        group(j).restart_policy = Some(RestartPolicy { mode: RestartMode::Delay, ..Default::default() });
    }),
    ("Interval can not be less than 5s (got 4s)", |j| {
        group(j).restart_policy =
            Some(RestartPolicy { attempts: 1, interval: secs(4), ..Default::default() });
    }),
    ("can't restart the TaskGroup 3 times in an interval of 1m0s with a delay of 30s", |j| {
        task(j).restart_policy =
            Some(RestartPolicy { attempts: 3, interval: secs(60), delay: secs(30), ..Default::default() });
    }),
    ("system jobs should not have a reschedule policy", |j| {
        j.kind = JobType::System;
        group(j).reschedule_policy = Some(reschedule());
    }),
    ("with unlimited = true cannot have attempts (3)", |j| {
        group(j).reschedule_policy = Some(ReschedulePolicy { unlimited: true, ..reschedule() });
    }),
    ("Invalid delay function \"linear\"", |j| {
        group(j).reschedule_policy =
            Some(ReschedulePolicy { delay_function: "linear".into(), ..reschedule() });
    }),
    ("Delay cannot be less than 5s (got 4s)", |j| {
        group(j).reschedule_policy = Some(ReschedulePolicy { delay: secs(4), ..reschedule() });
    }),
    ("Max Delay cannot be less than Delay 30s (got 29s)", |j| {
        group(j).reschedule_policy = Some(ReschedulePolicy {
            delay_function: "fibonacci".into(),
            max_delay: secs(29),
            ..reschedule()
        });
    }),
    ("Interval cannot be less than 15s (got 14s)", |j| {
        group(j).reschedule_policy =
            Some(ReschedulePolicy { attempts: 1, interval: secs(14), delay: secs(5), ..reschedule() });
    }),
    ("3 reschedule attempts do not fit into an interval of 1m0s", |j| {
        group(j).reschedule_policy = Some(ReschedulePolicy { interval: secs(60), ..reschedule() });
    }),
    ("they take 3m30s", |j| {
        group(j).reschedule_policy = Some(ReschedulePolicy {
            delay_function: "exponential".into(),
            interval: secs(60),
            ..reschedule()
        });
    }),
    ("Job type \"batch\" does not allow update block", |j| {
        j.kind = JobType::Batch;
        group(j).update = Some(update());
    }),
    ("Job type \"system\" does not allow migrate block", |j| {
        j.kind = JobType::System;
        group(j).migrate = Some(MigrateStrategy::default());
    }),
    ("Invalid health check given: \"bogus\"", |j| {
        group(j).update = Some(UpdateStrategy { health_check: "bogus".into(), ..update() });
    }),
    ("Minimum healthy time may not be less than zero: -1s", |j| {
        group(j).update = Some(UpdateStrategy { min_healthy_time: secs(-1), ..update() });
    }),
    ("Healthy deadline must be greater than zero: 0s", |j| {
        group(j).update = Some(UpdateStrategy { healthy_deadline: secs(0), ..update() });
    }),
    ("Minimum healthy time must be less than healthy deadline: 5m0s > 5m0s", |j| {
        group(j).update = Some(UpdateStrategy { min_healthy_time: secs(300), ..update() });
    }),
    ("Healthy deadline must be less than progress deadline: 5m0s > 4m0s", |j| {
        group(j).update = Some(UpdateStrategy { progress_deadline: secs(240), ..update() });
    }),
    ("Progress deadline must be zero or greater: -1s", |j| {
        group(j).update = Some(UpdateStrategy { progress_deadline: secs(-1), ..update() });
    }),
    ("Stagger must be greater than zero: 0s", |j| {
        group(j).update = Some(UpdateStrategy { stagger: secs(0), ..update() });
    }),
    ("Auto Promote requires a Canary count greater than zero", |j| {
        group(j).update = Some(UpdateStrategy { auto_promote: true, ..update() });
    }),
    ("Invalid HealthCheck: \"manual\"", |j| {
        group(j).migrate = Some(MigrateStrategy {
            max_parallel: 1,
            health_check: "manual".into(),
            min_healthy_time: secs(1),
            healthy_deadline: secs(2),
        });
    }),
    ("MinHealthyTime must be less than HealthyDeadline: 2s > 2s", |j| {
        group(j).migrate = Some(MigrateStrategy {
            max_parallel: 1,
            health_check: "checks".into(),
            min_healthy_time: secs(2),
            healthy_deadline: secs(2),
        });
    }),
    ("lost_after and stop_on_client_after exclude each other", |j| {
        group(j).disconnect = Some(DisconnectStrategy {
            lost_after: secs(1),
            stop_on_client_after: Some(secs(1)),
            ..Default::default()
        });
    }),
    ("stop_on_client_after is for service and batch jobs only", |j| {
        j.kind = JobType::Sysbatch;
        group(j).disconnect =
            Some(DisconnectStrategy { stop_on_client_after: Some(secs(1)), ..Default::default() });
    }),
    ("disconnect: durations cannot be negative", |j| {
        group(j).disconnect = Some(DisconnectStrategy { lost_after: secs(-1), ..Default::default() });
    }),
    ("Did you mean \"best_score\"?", |j| {
        group(j).disconnect =
            Some(DisconnectStrategy { reconcile: "best_scor".into(), ..Default::default() });
    }),
    ("Scaling policy invalid: maximum count must be specified", |j| {
        group(j).scaling = Some(block(json!({"Min": 1})));
    }),
    ("maximum count (1) must not be less than minimum count (2)", |j| {
        group(j).scaling = Some(block(json!({"Min": 2, "Max": 1})));
    }),
    ("task group count (3) must not be greater than maximum count (2)", |j| {
        group(j).count = 3;
        group(j).scaling = Some(block(json!({"Min": 1, "Max": 2})));
    }),
    ("task group count (1) must not be less than minimum count (2)", |j| {
        group(j).scaling = Some(block(json!({"Min": 2, "Max": 4})));
    }),
    ("minimum count must be at least zero, got -1", |j| {
        group(j).scaling = Some(block(json!({"Min": -1, "Max": 4})));
    }),
    // Messages about networks.
    ("Port label can not be empty", |j| {
        group(j).networks = vec![Network { dynamic_ports: vec![port("", 0)], ..Default::default() }];
    }),
    ("Port label http already in use by taskgroup network:http", |j| {
        group(j).networks =
            vec![Network { dynamic_ports: vec![port("http", 0), port("http", 0)], ..Default::default() }];
    }),
    ("Port label http already in use by taskgroup network:http", |j| {
        group(j).networks = vec![Network { dynamic_ports: vec![port("http", 0)], ..Default::default() }];
        task(j).resources.networks =
            vec![Network { dynamic_ports: vec![port("http", 0)], ..Default::default() }];
    }),
    ("Static port 80 already reserved by taskgroup network:x", |j| {
        group(j).networks =
            vec![Network { reserved_ports: vec![port("x", 80), port("y", 80)], ..Default::default() }];
    }),
    ("Port \"x\" has an invalid static port 70000", |j| {
        group(j).networks = vec![Network { reserved_ports: vec![port("x", 70_000)], ..Default::default() }];
    }),
    ("Port \"x\" cannot be mapped to a port (-2)", |j| {
        let port = Port { to: -2, ..port("x", 0) };
        group(j).networks = vec![Network { dynamic_ports: vec![port], ..Default::default() }];
    }),
    ("Port \"x\" cannot ignore collisions", |j| {
        let port = Port { ignore_collision: true, ..port("x", 80) };
        group(j).networks =
            vec![Network { mode: "bridge".into(), reserved_ports: vec![port], ..Default::default() }];
    }),
    ("Invalid network mode \"brigde\"", |j| {
        group(j).networks = vec![Network { mode: "brigde".into(), ..Default::default() }];
    }),
    // Messages about volumes.
    ("volume with single-node-writer access mode allows only one reader or writer", |j| {
        source(j, "data", false);
        group(j).count = 2;
    }),
    ("volume has an empty source", |j| source(j, "", false)),
    ("volume source \"..\" cannot name a directory: it has a meaning of its own in paths", |j| {
        source(j, "..", false)
    }),
    ("cannot name a directory: it contains a NUL character", |j| source(j, "a\0", false)),
    ("cannot name a directory: it is longer than 255 bytes", |j| source(j, &"x".repeat(256), false)),
    ("with the index that per_alloc adds it is longer than 255 bytes", |j| source(j, &"x".repeat(250), true)),
    ("Hostname is not a valid DNS name: \"a_b\"", |j| {
        group(j).networks = vec![Network { hostname: "a_b".into(), ..Default::default() }];
    }),
];
