//! Warnings about allowed but misleading settings.

use super::*;

pub(super) const CASES: &[Case] = &[
    ("cron is deprecated", |j| {
        j.kind = JobType::Batch;
        j.periodic = Some(block(json!({"Spec": "@daily"})));
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
    (
        "group \"g\" defines services, but neither the group nor any of its tasks have shutdown_delay set",
        |j| {
            group(j).services = service(json!({}));
        },
    ),
    (
        "Group \"g\" has warnings: 1 error occurred:\n\t* Spread 1 has no effect: unsupported attribute \"${x}\"",
        |j| {
            group(j).spreads = spread("${x}", 50, &[]);
        },
    ),
    ("Affinity 2 has no effect: unsupported attribute \"${x}\"", |j| {
        j.affinities = [affinity("${attr.a}", "=", "x", 1), affinity("${x}", "=", "x", 1)].concat();
    }),
    ("mbits has been deprecated", |j| {
        group(j).networks = vec![Network { mbits: 1, ..Default::default() }];
    }),
    ("iops is deprecated", |j| task(j).resources.iops = 1),
    ("networks of a task are deprecated", |j| task(j).resources.networks = vec![Network::default()]),
    ("VaultGrace has been deprecated", |j| task(j).templates = template(json!({"VaultGrace": 1}))),
    ("Template 1: function \"key\" is not available: Consul is not contacted", |j| {
        task(j).templates = template(json!({"EmbeddedTmpl": "{{ key \"a\" }}"}));
    }),
    ("Template 1: the template cannot be parsed", |j| {
        task(j).templates =
            template(json!({"EmbeddedTmpl": "[[ if ]]", "LeftDelim": "[[", "RightDelim": "]]"}));
    }),
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
