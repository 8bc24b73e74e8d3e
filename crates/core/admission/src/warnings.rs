//! Warnings about allowed but misleading settings (docs/reference/jobspec.md, section 6).

use super::problem::{Findings, Problem, ProblemCode as Code};
use super::targets::strangers;
use caravan_api::JobPath;
use caravan_types::Nanos;
use caravan_types::identity::IdentitySpec;
use caravan_types::job::{Job, Task, TaskGroup, Template};

/// Adds warnings about the job as a whole.
pub(super) fn of_job(job: &Job, warnings: &mut Findings) {
    if job.periodic.as_ref().is_some_and(|rule| !rule.spec.is_empty()) {
        let text = "cron is deprecated and may be removed in a future release. Use crons instead";
        warnings.add(Code::Deprecated, "Periodic.Spec", text);
    }
    let promote = |group: &TaskGroup| group.update.as_ref().is_some_and(|u| u.auto_promote);
    let updated = job.task_groups.iter().filter(|group| group.update.is_some()).count();
    let promoted = job.task_groups.iter().filter(|group| promote(group)).count();
    if promoted > 0 && promoted < updated {
        let other = job.task_groups.iter().position(|group| group.update.is_some() && !promote(group));
        let path = JobPath::group(other.unwrap_or_default()).field("Update.AutoPromote");
        let text = "auto_promote must be true for all groups to enable automatic promotion";
        warnings.add_at(Code::NoEffect, path, text);
    }
    strangers(&job.affinities, &job.spreads, "", warnings);
}

/// Adds a warning if services vanish from the catalog at the moment when their tasks stop. A caller that looked up a
/// service just before still calls it.
pub(super) fn of_services(group: &TaskGroup, warnings: &mut Findings) {
    let waits = group.shutdown_delay.is_some_and(|delay| delay > Nanos::ZERO)
        || group.tasks.iter().any(|task| task.shutdown_delay > Nanos::ZERO);
    if !group.services.is_empty() && !waits {
        let text = format!(
            "group \"{}\" defines services, but neither the group nor any of its tasks have shutdown_delay set",
            group.name
        );
        warnings.add(Code::AbruptStop, "ShutdownDelay", text);
    }
}

/// Adds warnings about a group and its tasks as one list.
pub(super) fn of_group(group: &TaskGroup, warnings: &mut Findings) {
    let mut found = Findings::at(warnings.path.clone());
    if let Some(update) = &group.update
        && update.max_parallel > group.count
        && group.count > 0
    {
        let text = format!(
            "Update max parallel count is greater than task group count ({} > {}). A destructive change would result in the simultaneous replacement of all allocations.",
            update.max_parallel, group.count
        );
        found.add(Code::Disruptive, "Update.MaxParallel", text);
    }
    for (field, name, instead, used) in [
        (
            "StopAfterClientDisconnect",
            "stop_after_client_disconnect",
            "stop_on_client_after",
            group.stop_after_client_disconnect.is_some(),
        ),
        ("MaxClientDisconnect", "max_client_disconnect", "lost_after", group.max_client_disconnect.is_some()),
        (
            "PreventRescheduleOnLost",
            "prevent_reschedule_on_lost",
            "replace",
            group.prevent_reschedule_on_lost,
        ),
    ] {
        if used {
            let text = format!("{name} is ignored: use {instead} in a disconnect block");
            found.add(Code::NoEffect, field, text);
        }
    }
    if let Some(at) = group.networks.iter().position(|network| network.mbits > 0) {
        let path = found.path.clone().field("Networks").index(at).field("MBits");
        let text = "mbits has been deprecated as of Nomad 0.12.0. Please remove mbits from the network block";
        found.add_at(Code::Deprecated, path, text);
    }
    strangers(&group.affinities, &group.spreads, "", &mut found);
    for (at, task) in group.tasks.iter().enumerate() {
        let mut own = found.element("Tasks", at);
        of_task(task, &format!("Task \"{}\": ", task.name), &mut own);
        found.found.append(own.found);
    }
    warnings.found.nest_bare(format!("Group \"{}\" has warnings: ", group.name), found.found);
}

/// Adds warnings about a task. `lead` comes before each text.
fn of_task(task: &Task, lead: &str, warnings: &mut Findings) {
    strangers(&task.affinities, &[], lead, warnings);
    let path = warnings.path.clone();
    let mut warn =
        |code, path: JobPath, text: String| warnings.found.push_after(lead, Problem::new(code, path, text));
    if task.resources.iops > 0 {
        let text = "iops is deprecated and has no effect".to_owned();
        warn(Code::Deprecated, path.clone().field("Resources.IOPS"), text);
    }
    if !task.resources.networks.is_empty() {
        let text = "networks of a task are deprecated: use a network block in the group".to_owned();
        warn(Code::Deprecated, path.clone().field("Resources.Networks"), text);
    }
    let template = |at: usize| path.clone().field("Templates").index(at);
    if let Some(at) = task.templates.iter().position(|template| template.vault_grace > Nanos::ZERO) {
        let text = "VaultGrace has been deprecated and has no effect".to_owned();
        warn(Code::Deprecated, template(at).field("VaultGrace"), text);
    }
    for (at, block) in task.templates.iter().enumerate() {
        if let Some(why) = of_template(block) {
            let path = template(at).field("EmbeddedTmpl");
            warn(Code::InvalidTemplate, path, format!("Template {}: {why}", at + 1));
        }
    }
    let named = task.identities.iter().enumerate();
    let named = named.map(|(at, identity)| (identity, path.clone().field("Identities").index(at)));
    let default = task.identity.as_deref().map(|identity| (identity, path.clone().field("Identity")));
    for (block, path) in default.into_iter().chain(named) {
        for (field, text) in of_identity(block) {
            warn(Code::Insecure, path.clone().field(field), text);
        }
    }
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

/// Returns the fields that weaken an identity, each with its sentence.
fn of_identity(identity: &IdentitySpec) -> Vec<(&'static str, String)> {
    let mut out = Vec::new();
    let default = matches!(identity.name.as_str(), "" | "default");
    if !default {
        match identity.audience.as_deref().unwrap_or_default() {
            [] => out.push(("Audience", "identities without an audience are insecure".to_owned())),
            [_] => {}
            several => out.push(("Audience", format!(
                "while multiple audiences are allowed, it is more secure to use 1 audience per identity, not {}",
                several.len()
            ))),
        }
        if identity.ttl == Nanos::ZERO {
            out.push(("TTL", "identities without an expiration are insecure".to_owned()));
        }
    }
    if identity.env && identity.change_mode != "restart" && identity.ttl != Nanos::ZERO {
        let text = "using env = true without change_mode = \"restart\" may cause tasks to use expired tokens";
        out.push(("ChangeMode", text.to_owned()));
    }
    let named = |text| format!("Identity \"{}\": {text}", identity.name);
    out.into_iter().map(|(field, text)| (field, named(text))).collect()
}
