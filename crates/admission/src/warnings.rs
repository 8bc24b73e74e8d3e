//! Warnings about allowed but misleading settings (docs/reference/jobspec.md, section 6).

use super::joined;
use super::targets::strangers;
use caravan_types::Nanos;
use caravan_types::identity::IdentitySpec;
use caravan_types::job::{Job, TaskGroup, Template};

/// Returns warnings about the job as a whole.
pub(super) fn of_job(job: &Job) -> Vec<String> {
    let mut out = Vec::new();
    if job.periodic.as_ref().is_some_and(|rule| !rule.spec.is_empty()) {
        out.push("cron is deprecated and may be removed in a future release. Use crons instead".to_owned());
    }
    let promote = |group: &TaskGroup| group.update.as_ref().is_some_and(|u| u.auto_promote);
    let updated = job.task_groups.iter().filter(|group| group.update.is_some()).count();
    let promoted = job.task_groups.iter().filter(|group| promote(group)).count();
    if promoted > 0 && promoted < updated {
        out.push("auto_promote must be true for all groups to enable automatic promotion".to_owned());
    }
    out.extend(strangers(&job.affinities, &job.spreads));
    out
}

/// Warns about missing shutdown delays: services are deregistered when their tasks receive the stop signal, and a
/// caller that queried a moment earlier still connects.
pub(super) fn of_services(group: &TaskGroup) -> Option<String> {
    let waits = group.shutdown_delay.is_some_and(|delay| delay > Nanos::ZERO)
        || group.tasks.iter().any(|task| task.shutdown_delay > Nanos::ZERO);
    (!group.services.is_empty() && !waits).then(|| {
        format!(
            "group \"{}\" defines services, but neither the group nor any of its tasks have shutdown_delay set",
            group.name
        )
    })
}

/// Returns the warnings about a group and its tasks as one text.
pub(super) fn of_group(group: &TaskGroup) -> Option<String> {
    let mut found = Vec::new();
    if let Some(update) = &group.update
        && update.max_parallel > group.count
        && group.count > 0
    {
        found.push(format!(
            "Update max parallel count is greater than task group count ({} > {}). A destructive change would result in the simultaneous replacement of all allocations.",
            update.max_parallel, group.count
        ));
    }
    for (name, instead, used) in [
        (
            "stop_after_client_disconnect",
            "stop_on_client_after",
            group.stop_after_client_disconnect.is_some(),
        ),
        ("max_client_disconnect", "lost_after", group.max_client_disconnect.is_some()),
        ("prevent_reschedule_on_lost", "replace", group.prevent_reschedule_on_lost),
    ] {
        if used {
            found.push(format!("{name} is ignored: use {instead} in a disconnect block"));
        }
    }
    if group.networks.iter().any(|network| network.mbits > 0) {
        found.push(
            "mbits has been deprecated as of Nomad 0.12.0. Please remove mbits from the network block"
                .to_owned(),
        );
    }
    found.extend(strangers(&group.affinities, &group.spreads));
    for task in &group.tasks {
        let mut own = strangers(&task.affinities, &[]);
        if task.resources.iops > 0 {
            own.push("iops is deprecated and has no effect".to_owned());
        }
        if !task.resources.networks.is_empty() {
            own.push("networks of a task are deprecated: use a network block in the group".to_owned());
        }
        if task.templates.iter().any(|template| template.vault_grace > Nanos::ZERO) {
            own.push("VaultGrace has been deprecated and has no effect".to_owned());
        }
        for (i, template) in task.templates.iter().enumerate() {
            if let Some(why) = of_template(template) {
                own.push(format!("Template {}: {why}", i + 1));
            }
        }
        for identity in task.identity.as_deref().into_iter().chain(&task.identities) {
            own.extend(of_identity(identity));
        }
        found.extend(own.into_iter().map(|text| format!("Task \"{}\": {text}", task.name)));
    }
    (!found.is_empty())
        .then(|| format!("Group \"{}\" has warnings: {}", group.name, joined(&found).trim_end()))
}

/// Returns the error with which the task would fail, for a template whose text is in the job.
fn of_template(block: &Template) -> Option<String> {
    if block.embedded_tmpl.is_empty() {
        return None;
    }
    let template = caravan_templates::Template {
        text: block.embedded_tmpl.clone(),
        left: block.left_delim.clone(),
        right: block.right_delim.clone(),
        error_on_missing_key: false,
    };
    caravan_templates::check(&template).err().map(|fault| fault.to_string())
}

fn of_identity(identity: &IdentitySpec) -> Vec<String> {
    let mut out = Vec::new();
    let default = matches!(identity.name.as_str(), "" | "default");
    if !default {
        match identity.audience.as_deref().unwrap_or_default() {
            [] => out.push("identities without an audience are insecure".to_owned()),
            [_] => {}
            several => out.push(format!(
                "while multiple audiences are allowed, it is more secure to use 1 audience per identity, not {}",
                several.len()
            )),
        }
        if identity.ttl == Nanos::ZERO {
            out.push("identities without an expiration are insecure".to_owned());
        }
    }
    if identity.env && identity.change_mode != "restart" && identity.ttl != Nanos::ZERO {
        out.push(
            "using env = true without change_mode = \"restart\" may cause tasks to use expired tokens"
                .to_owned(),
        );
    }
    out.into_iter().map(|text| format!("Identity \"{}\": {text}", identity.name)).collect()
}
