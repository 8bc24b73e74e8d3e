//! The hook that releases an allocation's processors.

use super::hooks::{AllocHook, HookContext};
use crate::cores::Cores;
use async_trait::async_trait;

/// The hook of processors.
#[derive(Debug)]
pub(super) struct CoresHook {
    pub(super) cores: Cores,
}

#[async_trait]
impl AllocHook for CoresHook {
    async fn release(&self, cx: &HookContext<'_>) {
        self.cores.release(&cx.id());
    }
}
