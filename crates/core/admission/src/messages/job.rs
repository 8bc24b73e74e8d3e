//! Messages about jobs and their constraints, affinities and spreads.

use super::*;

pub(super) const CASES: &[Case] = &[
    // Messages about the job itself.
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
    ("Multiregion jobs are unlicensed.", |j| j.multiregion = Some(block(json!({})))),
    ("Periodic can only be used with \"batch\" or \"sysbatch\" scheduler", |j| {
        j.periodic = Some(block(json!({"Specs": ["@daily"]})));
    }),
    ("Parameterized job can only be used with \"batch\" or \"sysbatch\" scheduler", |j| {
        j.parameterized_job = Some(block(json!({"Payload": "optional"})));
    }),
    ("UI description must be under 1000 characters", |j| {
        j.ui = Some(block(json!({"Description": "x".repeat(1001)})));
    }),
    ("Invalid cron spec \"x\"", |j| {
        j.kind = JobType::Batch;
        j.periodic = Some(block(
            json!({"Enabled": true, "SpecType": "cron", "TimeZone": "UTC", "Specs": ["@daily", "x"]}),
        ));
    }),
    ("Invalid time zone \"Mars\"", |j| {
        j.kind = JobType::Batch;
        j.periodic = Some(block(
            json!({"Enabled": true, "SpecType": "cron", "TimeZone": "Mars", "Specs": ["@daily"]}),
        ));
    }),
    // Messages about constraints, affinities and spreads.
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
    (
        "device 1 failed validation: 1 error occurred:\n\t* Constraint 2 validation failed: 1 error occurred:\n\t* Regular",
        |j| {
            // The scheduler never receives a constraint that it cannot read.
            let one =
                |value: &str| json!({"LTarget": "${device.model}", "Operand": "regexp", "RTarget": value});
            task(j).resources.devices = vec![RequestedDevice {
                name: "gpu".into(),
                count: 1,
                constraints: vec![block(one("a")), block(one("["))],
                affinities: vec![],
            }];
        },
    ),
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
];
