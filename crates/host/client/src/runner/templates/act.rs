//! The hook of templates: before a start, and after a change.

use super::{Failed, Script, TaskTemplates, TemplateChange};
use crate::clock;
use crate::runner::alloc_state::AllocState;
use crate::runner::plan::{Plan, Planner};
use crate::runner::task_hooks::{Prepared, StartFault, TaskContext, TaskHook};
use crate::servers::Link;
use async_trait::async_trait;
use caravan_drivers::TaskId;
use caravan_types::alloc::{TaskEvent, event};
use std::sync::Arc;

/// The hook of templates, with the templates of the last start.
#[derive(Debug)]
pub(in crate::runner) struct TemplatesHook {
    link: Link,
    planner: Arc<Planner>,
    templates: Option<TaskTemplates>,
}

impl TemplatesHook {
    pub(in crate::runner) fn new(link: Link, planner: Arc<Planner>) -> Self {
        Self { link, planner, templates: None }
    }

    /// Takes the templates of the running task, or restores the templates that an earlier agent rendered.
    pub(in crate::runner) fn take(&mut self, alloc: &AllocState, plan: &Plan) -> Option<TaskTemplates> {
        let adopt = || TaskTemplates::adopt(&self.link, &self.planner, alloc, plan);
        self.templates.take().or_else(adopt)
    }

    /// Keeps the templates for the next start.
    pub(in crate::runner) fn keep(&mut self, templates: Option<TaskTemplates>) {
        self.templates = templates;
    }

    async fn render(&mut self, alloc: &AllocState, plan: &Plan) -> Result<(), Failed> {
        let group = plan.alloc.group();
        let policy = plan.task().restart_policy.or_else(|| group.and_then(|group| group.restart_policy));
        let restarted = self.templates.is_some();
        if !restarted {
            self.templates = TaskTemplates::new(&self.link, &self.planner, alloc, plan)?;
        }
        if let Some(templates) = &mut self.templates {
            let anew = restarted && policy.is_some_and(|policy| policy.render_templates);
            templates.begin(plan, anew)?;
            templates.ready().await?;
        }
        Ok(())
    }
}

#[async_trait]
impl TaskHook for TemplatesHook {
    async fn start(
        &mut self,
        cx: TaskContext<'_>,
        plan: &Plan,
        prepared: &mut Prepared,
    ) -> Result<(), StartFault> {
        let rendered = self.render(cx.alloc, plan).await;
        rendered.map_err(|Failed { why, recoverable }| StartFault::Templates { why, recoverable })?;
        prepared.variables = self.templates.as_ref().map(TaskTemplates::variables).unwrap_or_default();
        Ok(())
    }
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
    alloc: &AllocState,
    plan: &Plan,
    id: &TaskId,
    signals: Vec<String>,
    scripts: Vec<Script>,
) -> Result<(), String> {
    let event = |kind: &str| TaskEvent::new(kind, clock::now());
    for signal in signals {
        let signaling = event(event::SIGNALING).detail("task_signal", signal.clone());
        alloc.emit(&plan.name, signaling.detail("task_signal_reason", "Template re-rendered"));
        plan.driver.signal(id, &signal).await.map_err(|error| {
            format!("Template failed to send signal {signal}: {}", caravan_sys::describe(&error))
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
                (format!("Template failed to run {program}: {}", caravan_sys::describe(&error)), true)
            }
        };
        if failed && script.fail_on_error {
            return Err(words);
        }
        alloc.emit(&plan.name, event(event::TEMPLATE).message(words));
    }
    Ok(())
}
