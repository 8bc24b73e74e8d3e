//! The hooks of devices: the reservation before each start of a task, and the release after the allocation.

use super::hooks::{AllocHook, HookContext};
use super::plan::Plan;
use super::task_hooks::{Prepared, StartFault, TaskContext, TaskHook};
use crate::clock;
use crate::devices::{DeviceManager, Holders};
use async_trait::async_trait;
use caravan_types::alloc::{TaskEvent, event};

/// The hook that reserves the devices of a task.
#[derive(Clone, Debug)]
pub(super) struct DevicesHook {
    pub(super) devices: DeviceManager,
    pub(super) holders: Holders,
}

#[async_trait]
impl TaskHook for DevicesHook {
    async fn start(
        &mut self,
        cx: TaskContext<'_>,
        plan: &Plan,
        prepared: &mut Prepared,
    ) -> Result<(), StartFault> {
        let assigned = plan.devices();
        if assigned.is_empty() {
            return Ok(());
        }
        if let Some(held) = self.holders.held(&plan.alloc) {
            let words = format!(
                "devices: waiting until allocation {} has ended, which uses {}",
                held.by, held.device
            );
            cx.emit(TaskEvent::new(event::HOOK_MESSAGE, clock::now()).message(words));
            self.holders.turn(&plan.alloc).await;
        }
        let reserved = self.devices.reserve(assigned).await;
        let reserved = reserved
            .map_err(|fault| StartFault::Hook(format!("devices: {}", caravan_sys::describe(&fault))))?;
        prepared.device_env = reserved.envs;
        prepared.devices = reserved.devices;
        // Tasks without a separate root see the host's files anyway.
        if plan.driver.capabilities().mounts {
            prepared.mounts.extend(reserved.mounts);
        }
        Ok(())
    }
}

/// The hook that lets other allocations use the devices.
#[derive(Debug)]
pub(super) struct HoldersHook {
    pub(super) holders: Holders,
}

#[async_trait]
impl AllocHook for HoldersHook {
    async fn release(&self, cx: &HookContext<'_>) {
        self.holders.release(&cx.id());
    }
}
