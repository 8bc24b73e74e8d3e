//! The hook of a task that is a CSI plugin: registered and supervised while it runs.

use crate::clock;
use crate::csi::registry::Registry;
use crate::csi::{LeftMounts, supervisor};
use crate::runner::plan::Plan;
use crate::runner::task_hooks::{Prepared, StartFault, TaskContext, TaskHook};
use async_trait::async_trait;
use caravan_csi::Deadlines;
use caravan_types::alloc::{TaskEvent, event};

/// The hook of CSI plugins.
#[derive(Clone, Debug)]
pub(in crate::runner) struct PluginHook {
    pub(super) registry: Registry,
    pub(super) left_mounts: LeftMounts,
    pub(super) deadlines: Deadlines,
}

impl PluginHook {
    /// Supervises the plugin until it is unhealthy; waits for ever if the task is no plugin.
    pub(super) async fn supervise(&self, plan: &Plan, emit: impl Fn(TaskEvent)) {
        match &plan.plugin {
            Some(plugin) => {
                supervisor::supervise(plugin, &self.registry, self.deadlines, emit).await;
            }
            None => std::future::pending().await,
        }
    }
}

#[async_trait]
impl TaskHook for PluginHook {
    async fn start(
        &mut self,
        _cx: TaskContext<'_>,
        plan: &Plan,
        prepared: &mut Prepared,
    ) -> Result<(), StartFault> {
        if let Some(plugin) = &plan.plugin {
            self.left_mounts.begin(&plan.name, plugin).await;
            plugin.prepare().map_err(|error| StartFault::of_hook("csi_plugin_supervisor", error))?;
            prepared.mounts = plugin.mounts();
        }
        Ok(())
    }

    async fn stop(&mut self, plan: &Plan) {
        if let Some(plugin) = &plan.plugin {
            supervisor::set_health(plugin, &self.registry, false).await;
        }
    }

    async fn finish(&mut self, cx: TaskContext<'_>, plan: Option<&Plan>) {
        let Some(plugin) = plan.and_then(|plan| plan.plugin.as_ref()) else { return };
        supervisor::deregister(plugin, &self.registry).await;
        plugin.unlink();
        let rest = self.left_mounts.end(cx.name, plugin).await;
        if let Some(words) = rest.describe() {
            cx.emit(TaskEvent::new(event::PLUGIN_LEFT_MOUNTS, clock::now()).message(words));
        }
    }
}
