//! The task runner's handling of templates: before a start, and after a change.

use super::{Script, TaskTemplates, TemplateChange};
use crate::clock;
use crate::runner::alloc::AllocRunner;
use crate::runner::identity::Writes;
use crate::runner::start::{Plan, Prepared, StartFault};
use caravan_drivers::TaskId;
use caravan_types::alloc::{TaskEvent, event};

/// Runs the slow steps before the start: files in the task's directories first, templates last.
pub(in crate::runner) async fn prepare(
    alloc: &AllocRunner,
    plan: &Plan,
    identities: &Writes,
    templates: &mut Option<TaskTemplates>,
) -> Result<Prepared, StartFault> {
    let prepared = plan.prepare(alloc, identities).await?;
    let group = plan.alloc.group();
    let policy = plan.task().restart_policy.or_else(|| group.and_then(|group| group.restart_policy));
    let restarted = templates.is_some();
    if !restarted {
        *templates = TaskTemplates::of(alloc, plan).map_err(StartFault::Templates)?;
    }
    if let Some(templates) = templates {
        let anew = restarted && policy.is_some_and(|policy| policy.render_templates);
        templates.begin(plan, anew).map_err(StartFault::Templates)?;
        templates.ready().await.map_err(StartFault::Templates)?;
    }
    Ok(prepared)
}

/// Waits for a change of templates.
pub(in crate::runner) async fn changed(templates: &mut Option<TaskTemplates>) -> TemplateChange {
    match templates {
        Some(templates) => templates.changed().await,
        None => std::future::pending().await,
    }
}

/// Notifies a running task that its templates changed. The error means that the task must not continue.
pub(in crate::runner) async fn tell(
    alloc: &AllocRunner,
    plan: &Plan,
    id: &TaskId,
    signals: Vec<String>,
    scripts: Vec<Script>,
) -> Result<(), String> {
    let event = |kind: &str| TaskEvent::new(kind, clock::now());
    for signal in signals {
        let told = event(event::SIGNALING).detail("task_signal", signal.clone());
        alloc.emit(&plan.name, told.detail("task_signal_reason", "Template re-rendered"));
        plan.driver.signal(id, &signal).await.map_err(|error| {
            format!("Template failed to send signal {signal}: {}", crate::error::chain(&error))
        })?;
    }
    for script in scripts {
        let program = script.command.join(" ");
        let ended = plan.driver.exec(id, &script.command, script.timeout).await;
        let (words, failed) = match ended {
            Ok(done) if done.exit_code == 0 => (format!("Template successfully ran {program}"), false),
            Ok(done) => {
                (format!("Template ran {program}, which ended with exit code {}", done.exit_code), true)
            }
            Err(error) => {
                (format!("Template failed to run {program}: {}", crate::error::chain(&error)), true)
            }
        };
        if failed && script.fail_on_error {
            return Err(words);
        }
        alloc.emit(&plan.name, event(event::TEMPLATE).message(words));
    }
    Ok(())
}
