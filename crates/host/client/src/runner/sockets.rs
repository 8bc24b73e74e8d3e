//! The hook of the API sockets of an allocation's tasks.

use super::alloc_state::AllocState;
use super::hooks::{AllocHook, HookContext};
use super::plan::Plan;
use super::task_hooks::{Prepared, StartFault, TaskContext, TaskHook};
use crate::task_api::{Served, Sockets};
use async_trait::async_trait;
use std::sync::Arc;

/// The API sockets of an allocation's tasks. Clones share them.
#[derive(Clone, Debug)]
pub(super) struct SocketsHook {
    api: Served,
    open: Arc<Sockets>,
}

impl SocketsHook {
    pub(super) fn new(api: Served) -> Self {
        Self { api, open: Arc::default() }
    }

    /// Opens the API socket of a task, if it has none.
    pub(super) fn open(&self, alloc: &AllocState, task: &str) {
        self.open.open(&self.api, task, &alloc.dir().task(task));
    }
}

#[async_trait]
impl TaskHook for SocketsHook {
    async fn start(
        &mut self,
        cx: TaskContext<'_>,
        _plan: &Plan,
        _prepared: &mut Prepared,
    ) -> Result<(), StartFault> {
        self.open(cx.alloc, cx.name);
        Ok(())
    }
}

#[async_trait]
impl AllocHook for SocketsHook {
    async fn release(&self, _cx: &HookContext<'_>) {
        self.open.close();
    }
}
