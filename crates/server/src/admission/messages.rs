//! Every message of admission: what brings it about, and what it says.

use super::tests::minimal;
use super::{Verdict, check, joined};
use caravan_types::Nanos;
use caravan_types::job::{
    Affinity, Carried, Constraint, CsiPluginConfig, DisconnectStrategy, EphemeralDisk, Job, JobType,
    Lifecycle, MigrateStrategy, Network, Port, RequestedDevice, ReschedulePolicy, RestartMode, RestartPolicy,
    Spread, SpreadTarget, Task, TaskGroup, UpdateStrategy,
};
use serde_json::{Value, json};

type Case = (&'static str, fn(&mut Job));

fn verdict(change: fn(&mut Job)) -> Verdict {
    let mut job = minimal();
    change(&mut job);
    check(&job)
}

fn group(job: &mut Job) -> &mut TaskGroup {
    &mut job.task_groups[0]
}

fn task(job: &mut Job) -> &mut Task {
    &mut job.task_groups[0].tasks[0]
}

fn carry(value: Value) -> Vec<Carried> {
    vec![Carried(value)]
}

fn secs(n: i64) -> Nanos {
    Nanos::from_secs(n)
}

fn constraint(left: &str, operand: &str, right: &str) -> Vec<Constraint> {
    vec![Constraint { l_target: left.into(), r_target: right.into(), operand: operand.into() }]
}

fn affinity(left: &str, operand: &str, right: &str, weight: i64) -> Vec<Affinity> {
    vec![Affinity { l_target: left.into(), r_target: right.into(), operand: operand.into(), weight }]
}

fn spread(attribute: &str, weight: i64, targets: &[(&str, u32)]) -> Vec<Spread> {
    let target = |(value, percent): &(&str, u32)| SpreadTarget { value: (*value).into(), percent: *percent };
    vec![Spread { attribute: attribute.into(), weight, spread_target: targets.iter().map(target).collect() }]
}

fn update() -> UpdateStrategy {
    UpdateStrategy {
        stagger: secs(30),
        max_parallel: 1,
        health_check: "checks".into(),
        min_healthy_time: secs(10),
        healthy_deadline: secs(300),
        progress_deadline: secs(600),
        ..Default::default()
    }
}

fn reschedule() -> ReschedulePolicy {
    ReschedulePolicy {
        attempts: 3,
        interval: secs(3600),
        delay: secs(30),
        delay_function: "constant".into(),
        max_delay: secs(300),
        unlimited: false,
    }
}

fn port(label: &str, value: i64) -> Port {
    Port { label: label.into(), value, host_network: "default".into(), ..Default::default() }
}

fn service(change: Value) -> Vec<Carried> {
    let mut all = json!({"Name": "web", "Provider": "consul", "AddressMode": "auto", "OnUpdate": "require_healthy",
        "Cluster": "default"});
    merge(&mut all, change);
    carry(all)
}

fn with_check(change: Value) -> Vec<Carried> {
    let mut all = json!({"Type": "tcp", "PortLabel": "8080", "Interval": 1_000_000_000, "Timeout": 1_000_000_000,
        "OnUpdate": "require_healthy"});
    merge(&mut all, change);
    service(json!({"Checks": [all]}))
}

fn template(change: Value) -> Vec<Carried> {
    let mut all =
        json!({"EmbeddedTmpl": "x", "DestPath": "local/x", "ChangeMode": "restart", "Perms": "0644"});
    merge(&mut all, change);
    carry(all)
}

fn identity(change: Value) -> Vec<Carried> {
    let mut all = json!({"Name": "i", "Audience": ["a"], "TTL": 3_600_000_000_000_i64});
    merge(&mut all, change);
    carry(all)
}

fn merge(into: &mut Value, from: Value) {
    if let (Some(into), Value::Object(from)) = (into.as_object_mut(), from) {
        into.extend(from);
    }
}

const ERRORS: &[Case] = &[
    // Job.
    ("Missing job ID", |j| j.id = "".into()),
    ("Job ID contains a space", |j| j.id = "a b".into()),
    ("Job ID contains a null character", |j| j.id = "a\0b".into()),
    ("Missing job name", |j| j.name.clear()),
    ("Missing job region", |j| j.region.clear()),
    ("job priority must be between [1, 100]", |j| j.priority = 101),
    ("Missing job datacenters", |j| j.datacenters.clear()),
    ("Job datacenter must be non-empty string", |j| j.datacenters = vec![String::new()]),
    ("Missing job task groups", |j| j.task_groups.clear()),
    ("Job task group 2 redefines 'g' from group 1", |j| j.task_groups.push(j.task_groups[0].clone())),
    ("Job task group 1 missing name", |j| group(j).name.clear()),
    ("total count was greater than configured job_max_count: 50001 > 50000", |j| group(j).count = 50_001),
    ("Job task group g has count 2. Count cannot exceed 1 with system scheduler", |j| {
        j.kind = JobType::System;
        group(j).count = 2;
    }),
    ("System jobs may not have an affinity block", |j| {
        j.kind = JobType::System;
        task(j).affinities = affinity("${node.class}", "=", "x", 50);
    }),
    ("System jobs may not have a spread block", |j| {
        j.kind = JobType::System;
        group(j).spreads = spread("${node.class}", 50, &[]);
    }),
    ("Multiregion jobs are unlicensed.", |j| j.multiregion = Some(Carried(json!({})))),
    ("Periodic can only be used with \"batch\" or \"sysbatch\" scheduler", |j| {
        j.periodic = Some(Carried(json!({"Specs": ["@daily"]})));
    }),
    ("Parameterized job can only be used with \"batch\" or \"sysbatch\" scheduler", |j| {
        j.parameterized_job = Some(Carried(json!({"Payload": "optional"})));
    }),
    ("UI description must be under 1000 characters", |j| {
        j.ui = Some(Carried(json!({"Description": "x".repeat(1001)})));
    }),
    // Constraints, affinities, spreads.
    ("Missing constraint operand", |j| j.constraints = constraint("${attr.a}", "", "x")),
    ("Did you mean \"regexp\"?", |j| j.constraints = constraint("${attr.a}", "regex", "x")),
    ("Unknown constraint type \"~~\"", |j| j.constraints = constraint("${attr.a}", "~~", "x")),
    ("Operator \"=\" requires an RTarget", |j| j.constraints = constraint("${attr.a}", "=", "")),
    ("Operator \"is_set\" does not support an RTarget", |j| {
        j.constraints = constraint("${attr.a}", "is_set", "x")
    }),
    ("No LTarget provided but is required by constraint", |j| j.constraints = constraint("", "=", "x")),
    ("unsupported attribute \"${x}\"", |j| j.constraints = constraint("${x}", "=", "x")),
    ("Did you mean \"${node.class}\"?", |j| j.constraints = constraint("${node.clas}", "=", "x")),
    ("Regular expression failed to compile", |j| j.constraints = constraint("${attr.a}", "regexp", "[")),
    ("version constraint is invalid", |j| j.constraints = constraint("${attr.a}", "version", ">= abc")),
    ("semver constraint is invalid", |j| j.constraints = constraint("${attr.a}", "semver", ">= 1.x.y")),
    ("Distinct property has invalid count: \"0\"", |j| {
        j.constraints = constraint("${meta.rack}", "distinct_property", "0");
    }),
    ("distinct_hosts is not allowed on tasks", |j| {
        task(j).constraints = constraint("", "distinct_hosts", "true")
    }),
    ("distinct_property is not allowed on devices", |j| {
        task(j).resources.devices = vec![RequestedDevice {
            name: "gpu".into(),
            count: 1,
            constraints: carry(json!({"LTarget": "${device.model}", "Operand": "distinct_property"})),
            affinities: vec![],
        }];
    }),
    ("Missing affinity operand", |j| j.affinities = affinity("${attr.a}", "", "x", 50)),
    ("Unknown affinity operator \"distinct_hosts\"", |j| {
        j.affinities = affinity("${attr.a}", "distinct_hosts", "true", 50);
    }),
    ("Affinity weight cannot be zero", |j| group(j).affinities = affinity("${attr.a}", "=", "x", 0)),
    ("Affinity weight must be within the range [-100,100], got 101", |j| {
        task(j).affinities = affinity("${attr.a}", "=", "x", 101);
    }),
    ("No LTarget provided but is required", |j| j.affinities = affinity("", "=", "x", 50)),
    ("Missing spread attribute", |j| j.spreads = spread("", 50, &[])),
    ("Spread block must have a weight from 1 to 100, got 0", |j| j.spreads = spread("${attr.a}", 0, &[])),
    ("Spread target value \"a\" already defined", |j| {
        j.spreads = spread("${attr.a}", 50, &[("a", 1), ("a", 2)]);
    }),
    ("must be between 0 and 100, got 101", |j| j.spreads = spread("${attr.a}", 50, &[("a", 101)])),
    ("Sum of spread target percentages must not be greater than 100%; got 120%", |j| {
        group(j).spreads = spread("${attr.a}", 50, &[("a", 60), ("b", 60)]);
    }),
    // Group.
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
    // Policies.
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
        group(j).scaling = Some(Carried(json!({"Min": 1})));
    }),
    ("maximum count (1) must not be less than minimum count (2)", |j| {
        group(j).scaling = Some(Carried(json!({"Min": 2, "Max": 1})));
    }),
    ("task group count (3) must not be greater than maximum count (2)", |j| {
        group(j).count = 3;
        group(j).scaling = Some(Carried(json!({"Min": 1, "Max": 2})));
    }),
    ("task group count (1) must not be less than minimum count (2)", |j| {
        group(j).scaling = Some(Carried(json!({"Min": 2, "Max": 4})));
    }),
    ("minimum count must be at least zero, got -1", |j| {
        group(j).scaling = Some(Carried(json!({"Min": -1, "Max": 4})));
    }),
    // Networks.
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
    ("Hostname is not a valid DNS name: \"a_b\"", |j| {
        group(j).networks = vec![Network { hostname: "a_b".into(), ..Default::default() }];
    }),
    // Services.
    (
        "Service[0] bad_name! validation failed: 1 error occurred:\n\t* Service name must be valid per RFC 1123",
        |j| {
            group(j).services = service(json!({"Name": "bad_name!"}));
        },
    ),
    ("Service name can not be empty", |j| task(j).services = service(json!({"Name": ""}))),
    ("Services are not unique", |j| {
        group(j).services = [service(json!({})), service(json!({}))].concat();
    }),
    ("task group services must use the same provider, not consul and nomad", |j| {
        group(j).services = [service(json!({})), service(json!({"Name": "b", "Provider": "nomad"}))].concat();
    }),
    ("Service provider must be known, not \"etcd\"", |j| {
        group(j).services = service(json!({"Provider": "etcd"}));
    }),
    ("service address_mode \"driver\" is for services of tasks only", |j| {
        group(j).services = service(json!({"AddressMode": "driver"}));
    }),
    ("Service address_mode must be known, not \"hots\"", |j| {
        group(j).services = service(json!({"AddressMode": "hots"}));
    }),
    ("Service address_mode must be \"auto\" if address is set", |j| {
        group(j).services = service(json!({"AddressMode": "host", "Address": "1.2.3.4"}));
    }),
    ("Service on_update must be known, not \"never\"", |j| {
        group(j).services = service(json!({"OnUpdate": "never"}));
    }),
    ("port label \"htp\" is not defined by a network of the group. Did you mean \"http\"?", |j| {
        group(j).networks = vec![Network { dynamic_ports: vec![port("http", 0)], ..Default::default() }];
        group(j).services = service(json!({"PortLabel": "htp"}));
    }),
    ("refers to task \"x\", which is not in the group", |j| {
        group(j).services = service(json!({"TaskName": "x"}));
    }),
    ("connect is for services of groups only", |j| {
        task(j).services = service(json!({"Connect": {"Native": true}}));
    }),
    ("must be exclusively native", |j| {
        group(j).services = service(json!({"Connect": {"Native": true, "SidecarService": {}}}));
    }),
    ("Service with provider nomad cannot include Connect blocks", |j| {
        group(j).services = service(json!({"Provider": "nomad", "Connect": {"Native": true}}));
    }),
    ("invalid check type \"htpp\"", |j| group(j).services = with_check(json!({"Type": "htpp"}))),
    ("check type must be set", |j| group(j).services = with_check(json!({"Type": ""}))),
    ("http type must have http path", |j| group(j).services = with_check(json!({"Type": "http"}))),
    ("relative http path required", |j| {
        group(j).services = with_check(json!({"Type": "http", "Path": "http://x/"}));
    }),
    ("script type must have a valid script path", |j| {
        task(j).services = with_check(json!({"Type": "script"}));
    }),
    ("script checks of a group's service need a task to run in", |j| {
        group(j).services = with_check(json!({"Type": "script", "Command": "x"}));
    }),
    ("missing required value interval", |j| group(j).services = with_check(json!({"Interval": 0}))),
    ("timeout (999ms) is lower than the required minimum 1s", |j| {
        group(j).services = with_check(json!({"Timeout": 999_000_000}));
    }),
    ("invalid initial check state \"up\"", |j| {
        group(j).services = with_check(json!({"InitialStatus": "up"}))
    }),
    ("invalid address_mode \"auto\"", |j| group(j).services = with_check(json!({"AddressMode": "auto"}))),
    ("check requires a port but neither check nor service has a port", |j| {
        group(j).services = with_check(json!({"PortLabel": ""}));
    }),
    ("on_update value \"ignore\" cannot be used with check_restart", |j| {
        group(j).services = with_check(json!({"OnUpdate": "ignore", "CheckRestart": {"Limit": 1}}));
    }),
    ("limit of check_restart must be positive; got -1", |j| {
        group(j).services = with_check(json!({"CheckRestart": {"Limit": -1}}));
    }),
    ("grpc_use_tls is not supported yet", |j| {
        group(j).services = with_check(json!({"Type": "grpc", "GRPCUseTLS": true}));
        group(j).services[0].0["Provider"] = "nomad".into();
    }),
    ("failures_before_warning is not possible with provider nomad", |j| {
        group(j).services = with_check(json!({"FailuresBeforeWarning": 2}));
        group(j).services[0].0["Provider"] = "nomad".into();
    }),
    // Tasks.
    ("Task name cannot include slashes", |j| task(j).name = "a/b".into()),
    ("Task name cannot include null characters", |j| task(j).name = "a\0".into()),
    ("Task name \"alloc\" is reserved", |j| task(j).name = "alloc".into()),
    ("Missing task driver", |j| task(j).driver.clear()),
    ("KillTimeout must be a positive value", |j| task(j).kill_timeout = secs(-1)),
    ("KillTimeout (20m0s) longer than the group's ProgressDeadline (10m0s)", |j| {
        group(j).update = Some(update());
        task(j).kill_timeout = secs(1200);
    }),
    ("minimum CPU value is 1; got 0", |j| task(j).resources.cpu = 0),
    ("minimum MemoryMB value is 10; got 9", |j| task(j).resources.memory_mb = 9),
    ("Task can only ask for 'cpu' or 'cores' resource, not both.", |j| task(j).resources.cores = 1),
    ("MemoryMaxMB value (200) should be larger than MemoryMB value (300)", |j| {
        task(j).resources.memory_max_mb = 200;
    }),
    ("minimum MemoryMaxMB value is -1, for no limit; got -2", |j| task(j).resources.memory_max_mb = -2),
    ("secrets (301 MB) must not be larger than memory (300 MB)", |j| task(j).resources.secrets_mb = 301),
    ("Task can't ask for disk resources", |j| task(j).resources.disk_mb = 1),
    ("log storage (500 MB) must be less than requested disk capacity", |j| {
        task(j).log_config.max_files = 50;
        task(j).log_config.max_file_size_mb = 10;
    }),
    ("poststop tasks cannot be sidecars", |j| {
        task(j).lifecycle = Some(Lifecycle { hook: "poststop".into(), sidecar: true });
    }),
    ("Did you mean \"prestart\"?", |j| {
        task(j).lifecycle = Some(Lifecycle { hook: "pre_start".into(), sidecar: true });
    }),
    ("invalid device name \"a/b/c/d\"", |j| {
        task(j).resources.devices = vec![RequestedDevice {
            name: "a/b/c/d".into(),
            count: 1,
            constraints: vec![],
            affinities: vec![],
        }];
    }),
    ("invalid device count", |j| {
        task(j).resources.devices =
            vec![RequestedDevice { name: "gpu".into(), count: 0, constraints: vec![], affinities: vec![] }];
    }),
    ("CSIPluginConfig must have a non-empty PluginID", |j| {
        task(j).csi_plugin_config = Some(CsiPluginConfig::default());
    }),
    // Blocks of tasks.
    ("Must specify a source path or have an embedded template", |j| {
        task(j).templates = template(json!({"EmbeddedTmpl": ""}));
    }),
    ("has a source path or is embedded, not both", |j| {
        task(j).templates = template(json!({"SourcePath": "local/y"}));
    }),
    ("Must specify a destination for the template", |j| {
        task(j).templates = template(json!({"DestPath": ""}))
    }),
    ("template destination escapes allocation directory", |j| {
        task(j).templates = template(json!({"DestPath": "../../x"}));
    }),
    ("template source escapes allocation directory", |j| {
        task(j).templates = template(json!({"EmbeddedTmpl": "", "SourcePath": "a/../../../x"}));
    }),
    ("another template has the destination \"local/x\" too", |j| {
        task(j).templates = [template(json!({})), template(json!({}))].concat();
    }),
    ("Invalid change mode given: \"reload\"", |j| {
        task(j).templates = template(json!({"ChangeMode": "reload"}))
    }),
    ("Must specify signal value when change mode is signal", |j| {
        task(j).templates = template(json!({"ChangeMode": "signal"}));
    }),
    ("must specify change script configuration value", |j| {
        task(j).templates = template(json!({"ChangeMode": "script"}));
    }),
    ("must specify script command value", |j| {
        task(j).templates = template(json!({"ChangeMode": "script", "ChangeScript": {}}));
    }),
    ("cannot use change mode signal with env var templates", |j| {
        task(j).templates =
            template(json!({"ChangeMode": "signal", "ChangeSignal": "SIGHUP", "Envvars": true}));
    }),
    ("Failed to parse \"rw\" as octal permissions", |j| task(j).templates = template(json!({"Perms": "rw"}))),
    ("Must specify positive splay value", |j| task(j).templates = template(json!({"Splay": -1}))),
    ("wait must have both min and max", |j| task(j).templates = template(json!({"Wait": {"Min": 1}}))),
    ("wait min 2ns is greater than max 1ns", |j| {
        task(j).templates = template(json!({"Wait": {"Min": 2, "Max": 1}}));
    }),
    ("source must be specified", |j| task(j).artifacts = carry(json!({}))),
    ("invalid artifact mode \"folder\"", |j| {
        task(j).artifacts = carry(json!({"GetterSource": "x", "GetterMode": "folder"}));
    }),
    ("destination escapes allocation directory", |j| {
        task(j).artifacts = carry(json!({"GetterSource": "x", "RelativeDest": "../../../etc"}));
    }),
    ("wrong length or digits for md5", |j| {
        task(j).artifacts = carry(json!({"GetterSource": "x", "GetterOptions": {"checksum": "md5:12"}}));
    }),
    ("Did you mean \"sha256\"?", |j| {
        task(j).artifacts = carry(json!({"GetterSource": "x", "GetterOptions": {"checksum": "sha265:12"}}));
    }),
    ("Dispatch Payload validation failed: destination escapes", |j| {
        task(j).dispatch_payload = Some(Carried(json!({"File": "../../../x"})));
    }),
    ("Vault validation failed", |j| task(j).vault = Some(Carried(json!({"ChangeMode": "reload"})))),
    ("ttl for default identity not yet supported", |j| {
        task(j).identity = Some(Carried(json!({"TTL": 1})));
    }),
    ("invalid name \"a b\"", |j| task(j).identities = identity(json!({"Name": "a b"}))),
    ("Duplicate identity \"i\" found", |j| {
        task(j).identities = [identity(json!({})), identity(json!({}))].concat();
    }),
    ("can only use change_signal with change_mode = \"signal\"", |j| {
        task(j).identities = identity(json!({"ChangeSignal": "SIGHUP"}));
    }),
    ("an empty string is an invalid audience", |j| task(j).identities = identity(json!({"Audience": [""]}))),
    ("identity filepath escapes allocation directory", |j| {
        task(j).identities = identity(json!({"Filepath": "../../x"}));
    }),
    ("Duplicate secret \"s\" found", |j| {
        let one = json!({"Name": "s", "Provider": "nomad", "Path": "a"});
        task(j).secrets = vec![Carried(one.clone()), Carried(one)];
    }),
    ("secret must have a provider", |j| task(j).secrets = carry(json!({"Name": "s", "Path": "a"}))),
    ("secret must have a path", |j| task(j).secrets = carry(json!({"Name": "s", "Provider": "nomad"}))),
    ("secret name must have", |j| {
        task(j).secrets = carry(json!({"Name": "a-b", "Provider": "nomad", "Path": "a"}));
    }),
    ("secrets of provider vault need a vault block", |j| {
        task(j).secrets = carry(json!({"Name": "s", "Provider": "vault", "Path": "a"}));
    }),
    ("invalid name \"a b\": it must have 1 to 128 characters and no blanks", |j| {
        task(j).actions = carry(json!({"Name": "a b", "Command": "x"}));
    }),
    ("command must be set", |j| task(j).actions = carry(json!({"Name": "a"}))),
    ("maximum (1) must not be less than minimum (2)", |j| {
        task(j).scaling_policies = carry(json!({"Type": "vertical_cpu", "Min": 2, "Max": 1}));
    }),
];

const WARNINGS: &[Case] = &[
    ("cron is deprecated", |j| {
        j.kind = JobType::Batch;
        j.periodic = Some(Carried(json!({"Spec": "@daily"})));
    }),
    ("auto_promote must be true for all groups", |j| {
        let mut second = group(j).clone();
        second.name = "h".into();
        group(j).update = Some(UpdateStrategy { auto_promote: true, canary: 1, ..update() });
        second.update = Some(update());
        j.task_groups.push(second);
    }),
    ("Update max parallel count is greater than task group count (2 > 1)", |j| {
        group(j).update = Some(UpdateStrategy { max_parallel: 2, ..update() });
    }),
    ("max_client_disconnect is ignored: use lost_after", |j| group(j).max_client_disconnect = Some(secs(1))),
    ("stop_after_client_disconnect is ignored", |j| group(j).stop_after_client_disconnect = Some(secs(1))),
    ("prevent_reschedule_on_lost is ignored", |j| group(j).prevent_reschedule_on_lost = true),
    ("services without shutdown_delay", |j| group(j).services = service(json!({}))),
    ("mbits has been deprecated", |j| {
        group(j).networks = vec![Network { mbits: 1, ..Default::default() }];
    }),
    ("iops is deprecated", |j| task(j).resources.iops = 1),
    ("networks of a task are deprecated", |j| task(j).resources.networks = vec![Network::default()]),
    ("VaultGrace has been deprecated", |j| task(j).templates = template(json!({"VaultGrace": 1}))),
    ("identities without an audience are insecure", |j| {
        task(j).identities = identity(json!({"Audience": []}))
    }),
    ("it is more secure to use 1 audience per identity, not 2", |j| {
        task(j).identities = identity(json!({"Audience": ["a", "b"]}));
    }),
    ("identities without an expiration are insecure", |j| task(j).identities = identity(json!({"TTL": 0}))),
    ("using env = true without change_mode = \"restart\"", |j| {
        task(j).identities = identity(json!({"Env": true}));
    }),
];

#[test]
fn every_error_is_reported() {
    let mut wrong = Vec::new();
    for (want, change) in ERRORS {
        let text = joined(&verdict(*change).errors);
        if !text.contains(want) {
            wrong.push(format!("want {want:?}, have {text}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_warning_is_reported() {
    let mut wrong = Vec::new();
    for (want, change) in WARNINGS {
        let text = verdict(*change).warnings.join("\n");
        if !text.contains(want) {
            wrong.push(format!("want {want:?}, have {text}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What the builders of the cases make is right before a case breaks it.
#[test]
fn the_cases_begin_with_what_is_right() {
    let not_built = |error: &String| !error.contains("not supported yet");
    let mut job = minimal();
    group(&mut job).update = Some(update());
    group(&mut job).reschedule_policy = Some(reschedule());
    group(&mut job).services = with_check(json!({}));
    group(&mut job).shutdown_delay = Some(secs(1));
    task(&mut job).identities = identity(json!({}));
    task(&mut job).constraints = constraint("${attr.a}", "version", ">= 1.2");
    task(&mut job).affinities = affinity("${meta.a}", "set_contains_any", "x", -100);
    group(&mut job).spreads = spread("${node.datacenter}", 100, &[("a", 50), ("b", 50)]);
    let errors: Vec<_> = check(&job).errors.into_iter().filter(not_built).collect();
    assert_eq!(errors, Vec::<String>::new());
    task(&mut job).templates = template(json!({}));
    assert_eq!(check(&job).errors, Vec::<String>::new());
}

/// All that is wrong is told at once.
#[test]
fn errors_are_collected() {
    let mut job = minimal();
    job.priority = 0;
    group(&mut job).constraints = constraint("", "~~", "");
    task(&mut job).driver.clear();
    task(&mut job).resources.memory_mb = 1;
    let text = joined(&check(&job).errors);
    for part in ["job priority", "Unknown constraint type", "No LTarget", "Missing task driver", "MemoryMB"] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
}
