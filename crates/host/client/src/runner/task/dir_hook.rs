//! The hook that creates the directories of a task.

use crate::alloc_dir::Secrets;
use crate::runner::alloc_state::AllocState;
use crate::runner::plan::{Plan, secrets_mode};
use crate::runner::task_hooks::{Prepared, StartFault, TaskContext, TaskHook};
use async_trait::async_trait;
use caravan_sys::dir::Owner;

/// The hook of the task's directories.
#[derive(Debug)]
pub(in crate::runner) struct TaskDirHook;

impl TaskDirHook {
    /// Applies the owners and modes of this agent to the directories of a running task.
    pub(super) async fn adopt(alloc: &AllocState, plan: &Plan) -> Result<(), String> {
        build(alloc, plan, plan.user().owner().await)
    }
}

#[async_trait]
impl TaskHook for TaskDirHook {
    async fn start(
        &mut self,
        cx: TaskContext<'_>,
        plan: &Plan,
        prepared: &mut Prepared,
    ) -> Result<(), StartFault> {
        prepared.owner = plan.user().known_owner().await;
        build(cx.alloc, plan, prepared.owner()).map_err(|why| StartFault::of_hook("task_dir", why))
    }
}

/// Creates the directories of the task. Idempotent, also while the task runs.
fn build(alloc: &AllocState, plan: &Plan, owner: Owner) -> Result<(), String> {
    let task = plan.task();
    let secrets = Secrets { size_mb: task.resources.secrets_mb, user: owner, mode: secrets_mode(task) };
    let built = alloc.dir().build_task(&plan.name, secrets);
    built.map(drop).map_err(|error| caravan_sys::describe(&error))
}
