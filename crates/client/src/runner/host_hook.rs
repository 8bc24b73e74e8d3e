//! The hook that waits until host volumes of an earlier agent are verified before tasks start.

use super::alloc::AllocRunner;
use crate::clock;
use caravan_types::alloc::{TaskEvent, event};

impl AllocRunner {
    /// Waits for the group's host volumes; a wait becomes an event of the tasks.
    pub(super) async fn await_host_volumes(&self) {
        let alloc = self.alloc();
        for (_, request) in alloc.group().into_iter().flat_map(|group| group.host_volumes()) {
            let name = request.source_for(&alloc.name);
            let tell = || {
                let words = format!("volumes: waiting for the plugin of host volume {name} to verify it");
                for task in self.task_names() {
                    self.emit(
                        &task,
                        TaskEvent::new(event::HOOK_MESSAGE, clock::now()).message(words.clone()),
                    );
                }
            };
            self.context().host_volumes.settled(&alloc.namespace, &name, tell).await;
        }
    }
}
